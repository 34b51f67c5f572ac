"""Runs a console with its HTTP server until it is stopped, in the event loop of the caller."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import uvicorn

from ottla.console.application import Console
from ottla.console.settings import ConsoleSettings
from ottla.transport.addresses import Address
from ottla.transport.http_serving import EmbeddedUvicorn, bound_socket

_STOP_SECONDS: Final = 2
"""Streams of live records end with the console; other requests have this long to finish."""
_KEEP_ALIVE_SECONDS: Final = 75


class ServedConsole:
    """A console with its port, which is bound at once: port 0 becomes a real one."""

    def __init__(self, settings: ConsoleSettings) -> None:
        self._socket = bound_socket(settings.listen)
        port: int = self._socket.getsockname()[1]
        self.settings = replace(settings, listen=Address(settings.listen.host, port))
        self.url = f"{'https' if settings.has_tls else 'http'}://{self.settings.listen}"

    async def run(self, stop: asyncio.Event, on_ready: Callable[[], None] = lambda: None) -> None:
        """Serves until `stop` is set."""
        console = Console(self.settings)
        config = uvicorn.Config(
            console.app,
            http="httptools",
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            # Anyone can write these headers; only a proxy on this machine, which --host speaks of, is believed.
            proxy_headers=bool(self.settings.hosts),
            forwarded_allow_ips="127.0.0.1,::1",
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=_STOP_SECONDS,
            ssl_certfile=self.settings.tls_certificate,
            ssl_keyfile=self.settings.tls_key,
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
            self._socket.close()
