"""The options of `ottla serve`, with their help.

Parsed by argparse: importing Typer would slow down the start.
"""

import argparse
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

from ottla.cli.serve.console_process import CONSOLE
from ottla.cli.serve.metadata_option import EMBEDDED
from ottla.cli.serve.registry_process import REGISTRY

_AddOption: TypeAlias = Callable[..., argparse.Action]
"""`ArgumentParser.add_argument`."""

DATA: Final = "./ottla-data"
LISTEN: Final = "127.0.0.1:9092"

_EXAMPLES: Final = """\
Examples:
  ottla serve
  ottla serve --data /var/lib/ottla --listen 0.0.0.0:9092 --advertise broker.example:9092
  ottla serve --set log.retention.ms=3600000 --set auto.create.topics.enable=false
  ottla serve --brokers 3 --set default.replication.factor=3
  ottla serve --registry --console
  ottla serve --node-id 2 --metadata zookeeper://zk1:2181,zk2:2181,zk3:2181/ottla

When the broker is ready, it prints one line: `ready` and its address (with --brokers, all
addresses). A registry and a console print a line of their own: `registry` or `console` and the
URL. On a terminal, a short screen follows. Under systemd, use Type=notify. SIGTERM and Ctrl-C stop
everything cleanly."""


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    made = argparse.ArgumentParser(
        prog="ottla serve",
        description="Start a broker, or several on this machine.",
        epilog=_EXAMPLES,
        formatter_class=_HelpFormatter,
        allow_abbrev=False,
        add_help=False,
    )
    _add_broker_options(made.add_argument)
    _add_metadata_options(made.add_argument)
    _add_service_options(made.add_argument)
    _add_config_options(made.add_argument)
    _add_log_options(made.add_argument)
    made.add_argument("-h", "--help", action="help", help="Show this page.")
    return made


def _add_broker_options(add: _AddOption) -> None:
    """Which broker to run, and where it listens."""
    add("--data", metavar="DIR", help=f"Folder for partitions and metadata. [default: {DATA}]")
    add("--listen", metavar="HOST:PORT", help=f"Address to listen on; port 0 picks a free port. [default: {LISTEN}]")
    add(
        "--advertise",
        metavar="HOST:PORT",
        help="Address that clients connect to. [default: the address of --listen]",
    )
    add("--node-id", type=int, metavar="N", help="Id of this broker in the cluster. [default: 0]")
    add(
        "--brokers",
        type=int,
        default=1,
        metavar="N",
        help="Number of brokers to run on this machine, one process each; ids and ports count up. [default: 1]",
    )


def _add_metadata_options(add: _AddOption) -> None:
    """Where the metadata is, and what to do after its loss."""
    add(
        "--metadata",
        default=EMBEDDED,
        metavar="WHERE",
        help="Store of the cluster's metadata: embedded (a file in the data dir), sqlite:PATH (a file that brokers of"
        " one machine share), or zookeeper://HOST:PORT,HOST:PORT/path. [default: embedded]",
    )
    add(
        "--accept-older-metadata",
        action="store_true",
        help="Start even if the metadata store is older than the data, as after a restore from a backup; stop all"
        " brokers first. Topics that the store does not know are set aside.",
    )
    add(
        "--recover-without",
        metavar="ID,ID",
        help="Brokers whose data is lost; the recovery of lost metadata does not wait for them.",
    )


def _add_service_options(add: _AddOption) -> None:
    """What runs beside the broker."""
    add("--http", metavar="HOST:PORT", help="Address for metrics and health checks, such as 127.0.0.1:9644.")
    add(
        "--registry",
        nargs="?",
        const=REGISTRY,
        metavar="HOST:PORT",
        help="Also run a schema registry on this address, in a process of its own; with --brokers one for each broker,"
        f" on ports that count up. Topics with schema validation use it. [default: {REGISTRY}]",
    )
    add(
        "--registry-command-config",
        metavar="FILE",
        help="File with the registry's client properties, such as security.protocol and sasl.jaas.config, if the"
        " broker's listeners need TLS or a login.",
    )
    add(
        "--console",
        nargs="?",
        const=CONSOLE,
        metavar="HOST:PORT",
        help="Also run the web console on this loopback address, in a process of its own. For other addresses, run"
        f" `ottla console`. [default: {CONSOLE}]",
    )
    add(
        "--console-command-config",
        metavar="FILE",
        help="File with the console's client properties, if the broker's listeners need TLS or a login.",
    )
    add(
        "--prometheus",
        metavar="URL",
        help="Prometheus server that scrapes the brokers (http://HOST:9090), for charts of the console of more than the"
        " last hour; the URL may hold a login (https://user:password@host).",
    )
    add(
        "--prometheus-label",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="Label of this cluster's brokers in Prometheus, such as job=ottla, if it scrapes other clusters too; may"
        " be repeated.",
    )


def _add_config_options(add: _AddOption) -> None:
    """Configs and first users."""
    add(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="Broker config, by Kafka's name; may be repeated.",
    )
    add(
        "--add-scram",
        action="append",
        default=[],
        metavar="MECHANISM=[...]",
        help="User to create before the broker listens, such as SCRAM-SHA-256=[name=alice,password=secret]; a user that"
        " exists is not changed. May be repeated.",
    )
    add("--config", type=Path, metavar="FILE.toml", help="File of broker configs; --set overrides it.")


def _add_log_options(add: _AddOption) -> None:
    """How to log."""
    add(
        "--log-format",
        choices=("text", "json"),
        default="text",
        metavar="text|json",
        help="Format of log lines. [default: text]",
    )
    add(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        default="info",
        metavar="debug|info|warning|error",
        help="Lowest level of log lines. [default: info]",
    )


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Help in the style of the other commands."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=34, width=min(shutil.get_terminal_size().columns, 100))

    def add_usage(self, usage: str | None, actions: Any, groups: Any, prefix: str | None = None) -> None:
        super().add_usage("%(prog)s [OPTIONS]", actions, groups, "Usage: ")

    def start_section(self, heading: str | None) -> None:
        super().start_section(heading and heading.capitalize())
