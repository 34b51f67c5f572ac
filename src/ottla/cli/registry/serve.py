"""`ottla registry serve`: runs one instance of the registry until it is stopped."""

import asyncio
import gc
import logging
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from ottla.client.loop_thread import new_event_loop
from ottla.client.options import ClientConfig
from ottla.registry.service.cluster_access import ClusterAccess
from ottla.registry.service.election_protocol import Instance
from ottla.registry.service.leader_election import ElectionOptions
from ottla.registry.service.registry import RegistryConfig
from ottla.registry.service.served_registry import ServedRegistry, TlsFiles
from ottla.registry.state.options import RegistryOptions
from ottla.registry.state.record_formats import CompatibilityLevel
from ottla.transport.addresses import Address, parse_bootstrap

_HEARTBEATS_IN_SESSION: Final = 4
_LOGGER: Final = logging.getLogger(__name__)
NONE: Final = "none"
CLUSTER: Final = "cluster"
AUTHENTICATIONS: Final = (NONE, CLUSTER)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """The options of the command."""

    bootstrap: str
    client_options: Mapping[str, Any]
    """The security options of connections to the cluster."""
    listen: Address
    advertise: Address | None
    topic: str
    group_id: str
    session_timeout_ms: int
    replication_factor: int
    compatibility: CompatibilityLevel
    read_only: bool
    transactional: bool
    logs_access: bool
    stops_with_stdin: bool
    authentication: str = NONE
    basic_mechanism: str = "SCRAM-SHA-512"
    super_users: tuple[str, ...] = ()
    tls_certificate: str | None = None
    tls_key: str | None = None
    tls_ca: str | None = None
    hosts: tuple[str, ...] = ()


def serve(options: ServeOptions) -> None:
    """Runs until SIGTERM or Ctrl-C."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(_serve(options))


async def _serve(options: ServeOptions) -> None:
    for chatty in ("httpx", "uvicorn"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    advertised = Instance(host="", port=0)
    if options.advertise is not None:
        advertised = Instance(host=options.advertise.host, port=options.advertise.port)
    config = RegistryConfig(
        bootstrap=options.bootstrap,
        client_options=options.client_options,
        advertised=advertised,
        topic=options.topic,
        replication_factor=options.replication_factor,
        election=ElectionOptions(
            group_id=options.group_id,
            session_timeout_ms=options.session_timeout_ms,
            heartbeat_interval_ms=options.session_timeout_ms // _HEARTBEATS_IN_SESSION,
        ),
        options=RegistryOptions(compatibility_level=options.compatibility),
        read_only=options.read_only,
        transactional=options.transactional,
    )
    access = None
    if options.authentication == CLUSTER:
        security = ClientConfig(**options.client_options).security
        access = ClusterAccess(
            parse_bootstrap(options.bootstrap),
            security,
            mechanism=options.basic_mechanism,
            super_users=options.super_users,
        )
    tls = None
    if options.tls_certificate is not None:
        tls = TlsFiles(certificate=options.tls_certificate, key=options.tls_key, authorities=options.tls_ca)
    served = ServedRegistry(
        config, options.listen, access=access, tls=tls, logs_access=options.logs_access, hosts=options.hosts
    )
    _warn_of_open_doors(options)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    watching = asyncio.create_task(_until_stdin_closes(stop)) if options.stops_with_stdin else None

    def on_ready() -> None:
        # gc.freeze(): the image lives as long as the process and is left out of garbage collection.
        gc.collect()
        gc.freeze()
        print(f"ready {served.url}", flush=True)

    try:
        await served.run(stop, on_ready)
    finally:
        if watching is not None:
            watching.cancel()


def _warn_of_open_doors(options: ServeOptions) -> None:
    host = options.listen.host
    if host in ("localhost", "127.0.0.1", "::1"):
        return
    if options.authentication == NONE:
        _LOGGER.warning(
            "%s: every client that reaches this address can read and change all schemas; set --authentication cluster",
            options.listen,
        )
    elif options.tls_certificate is None:
        _LOGGER.warning("%s: passwords are sent without encryption; set --tls-certificate", options.listen)


async def _until_stdin_closes(stop: asyncio.Event) -> None:
    """Stops when the process that started this one has ended, however it ended."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    with suppress(OSError, ValueError):
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while await reader.read(1024):
            pass
    stop.set()
