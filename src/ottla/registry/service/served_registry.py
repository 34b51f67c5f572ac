"""Runs a registry instance with its HTTP server, in the event loop of the caller.

uvicorn serves the application; `httptools` parses the requests. The port is bound first, because the other instances
must be told where this one listens.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec.structs
import uvicorn

from ottla.model.errors import InvalidConfigError, OttlaError
from ottla.registry.service.application import Application
from ottla.registry.service.cluster_access import ClusterAccess
from ottla.registry.service.http_protocol import HttpProtocol
from ottla.registry.service.registry import Registry, RegistryConfig
from ottla.transport.addresses import Address
from ottla.transport.http_hosts import HostNames
from ottla.transport.http_serving import EmbeddedUvicorn, bound_socket

_KEEP_ALIVE_SECONDS: Final = 75
_STOP_SECONDS: Final = 5
_BACKLOG: Final = 2048
_ANY_ADDRESS: Final = frozenset({"", "0.0.0.0", "::"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """PEM files: the certificate chain of this instance, its private key, and the authorities of other instances."""

    certificate: str
    key: str | None = None
    """None if it is in the same file."""
    authorities: str | None = None
    """None for those that the system trusts."""

    def peers_context(self) -> ssl.SSLContext:
        """For connections to other instances. Raises `InvalidConfigError` if a file cannot be used."""
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.certificate, self.key, password=lambda: "")
            return ssl.create_default_context(cafile=self.authorities)
        except (OSError, ValueError) as error:
            files = ", ".join(each for each in (self.certificate, self.key, self.authorities) if each is not None)
            raise InvalidConfigError(f"the TLS files {files} cannot be used: {error}") from error


class ServedRegistry:
    """One instance with its port. `advertised` in the config may leave host and port open ("" and 0)."""

    def __init__(
        self,
        config: RegistryConfig,
        listen: Address,
        *,
        access: ClusterAccess | None = None,
        tls: TlsFiles | None = None,
        logs_access: bool = False,
        hosts: tuple[str, ...] = (),
    ) -> None:
        """`hosts` are names under which web pages may use the registry, through a proxy on this machine."""
        self._socket = bound_socket(listen)
        self.port: int = self._socket.getsockname()[1]
        told = config.advertised
        host = told.host or (socket.gethostname() if listen.host in _ANY_ADDRESS else listen.host)
        scheme = "http" if tls is None else "https"
        advertised = msgspec.structs.replace(told, host=host, port=told.port or self.port, scheme=scheme)
        self.url = f"{scheme}://{Address(listen.host, self.port)}"
        self._tls = tls
        self._hosts = hosts
        self._access = access
        self.config = replace(config, advertised=advertised)
        self.address = Address(listen.host, self.port)
        self.registry = Registry(self.config)
        self.application = Application(
            self.registry,
            authorizer=access,
            logs_access=logs_access,
            hosts=HostNames(listen.host, hosts, other_names=[host]),
            peers_context=None if tls is None else tls.peers_context(),
        )

    async def run(self, stop: asyncio.Event, on_ready: Callable[[], None] = lambda: None) -> None:
        """Serves until `stop` is set. Raises what keeps the registry from starting."""
        try:
            if await _unless_stopped(self.registry.start(), stop):
                async with self._reading_acls():
                    await self._serve(stop, on_ready)
        finally:
            await self.registry.stop()
            await self.application.close()
            self._socket.close()

    @asynccontextmanager
    async def _reading_acls(self) -> AsyncIterator[None]:
        """Before the port opens for the first time, so that no client is denied what it may do."""
        if self._access is None:
            yield
            return
        async with self.registry.new_cluster("registry-acls") as cluster:
            with suppress(OttlaError):
                # If it fails, the loop says why.
                await self._access.read_acls(cluster)
            reading = asyncio.create_task(self._access.read_acls_forever(cluster))
            try:
                yield
            finally:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)

    async def _serve(self, stop: asyncio.Event, on_ready: Callable[[], None]) -> None:
        config = uvicorn.Config(
            self.application,
            http=HttpProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            # Anyone can write these headers; only a proxy on this machine, which --host speaks of, is believed.
            proxy_headers=bool(self._hosts),
            forwarded_allow_ips="127.0.0.1,::1",
            backlog=_BACKLOG,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=_STOP_SECONDS,
            ssl_certfile=None if self._tls is None else self._tls.certificate,
            ssl_keyfile=None if self._tls is None else self._tls.key,
        )
        server = EmbeddedUvicorn(config, on_ready)
        serving = asyncio.create_task(server.serve(sockets=[self._socket]))
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            server.should_exit = True
            await serving


async def _unless_stopped(starting: Coroutine[Any, Any, None], stop: asyncio.Event) -> bool:
    """Whether the start was completed before `stop` was set."""
    start = asyncio.ensure_future(starting)
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({start, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not start.done():
            return False
        start.result()
        return True
    finally:
        stopping.cancel()
        if not start.done():
            start.cancel()
            await asyncio.gather(start, return_exceptions=True)
