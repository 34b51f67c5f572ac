"""A schema registry beside a broker: `ottla registry serve` in a process of its own."""

from typing import Final

from ottla.cli.serve.beside_process import ProcessBeside
from ottla.cli.serve.service_connection import ServiceConnection
from ottla.transport.addresses import Address

REGISTRY: Final = "127.0.0.1:8081"


def registry_process(
    listen: tuple[str, int], connection: ServiceConnection, log_format: str, log_level: str
) -> ProcessBeside:
    """The registry of `ottla serve --registry`."""
    file = connection.command_config
    command = ["registry", "serve", "--listen", str(Address(*listen))]
    command += [] if file is None else ["--command-config", file]
    command += ["--log-format", log_format, "--log-level", log_level]
    return ProcessBeside("the schema registry", "registry", connection.listener, command)
