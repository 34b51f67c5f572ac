"""The web console beside a broker: `ottla console` in a process of its own."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from ottla.cli.console.needed_packages import check_installed
from ottla.cli.serve.beside_process import ProcessBeside
from ottla.cli.serve.service_connection import ServiceConnection
from ottla.model.errors import InvalidConfigError
from ottla.transport.addresses import Address
from ottla.transport.http_hosts import is_loopback

CONSOLE: Final = "127.0.0.1:8080"


class PrometheusOptions(NamedTuple):
    """`--prometheus` and `--prometheus-label`, as they were given."""

    url: str | None
    labels: Sequence[str]


def check_console(listen: tuple[str, int]) -> None:
    """Raises InvalidConfigError for an address that others can reach, and MissingPackagesError."""
    check_installed()
    address = Address(*listen)
    if not is_loopback(address.host):
        raise InvalidConfigError(
            f"--console {address}: this console has no login, so it listens on loopback addresses only; for other"
            " addresses run `ottla console --auth cluster`"
        )


def console_process(
    listen: tuple[str, int],
    connection: ServiceConnection,
    registries: Sequence[str],
    metrics: Sequence[str],
    log_format: str,
    log_level: str,
    prometheus: PrometheusOptions,
) -> ProcessBeside:
    """The console of `ottla serve --console`, with the schema registry, the metrics of its brokers and their past."""
    file = connection.command_config
    command = ["console", "--listen", str(Address(*listen))]
    command += [] if file is None else ["--command-config", file]
    command += ["--registry", ",".join(registries)] if registries else []
    command += [part for each in metrics for part in ("--metrics", each)]
    command += [] if prometheus.url is None else ["--prometheus", prometheus.url]
    command += [part for each in prometheus.labels for part in ("--prometheus-label", each)]
    command += ["--log-format", log_format, "--log-level", log_level]
    return ProcessBeside("the console", "console", connection.listener, command)
