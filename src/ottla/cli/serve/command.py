"""`ottla serve`: runs a broker, or several, until it is told to stop.

Only what concerns the process: options, logging, signals, the event loop. The broker itself is `ottla.broker`; what
each of several is told is in `serve_brokers.py`. Parsed by argparse, since loading anything more would be a good part
of the time that a broker takes to start.
"""

import argparse
import asyncio
import gc
import logging
import os
import resource
import shutil
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ottla.broker.configuration import BrokerConfig
from ottla.cli.serve.brokers import (
    broker_ids,
    broker_settings,
    http_of,
    refuse_to_leave_replicas,
    shared_metadata,
)
from ottla.cli.serve.log_output import set_up_logging
from ottla.cli.serve.metadata_option import EMBEDDED, check_metadata_option, metadata_store
from ottla.model.errors import InvalidConfigError, OttlaError
from ottla.model.ids import BrokerId
from ottla.model.invariants import InvariantViolation

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.storage.log_store import OpeningProgress

_LOGGER: Final = logging.getLogger(__name__)
_PROGRESS_SECONDS: Final = 1.0
_STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_DATA: Final = "./ottla-data"
_LISTEN: Final = "127.0.0.1:9092"

EXAMPLE: Final = """\
Examples:
  ottla serve
  ottla serve --data /var/lib/ottla --listen 0.0.0.0:9092 --advertise broker.example:9092
  ottla serve --set log.retention.ms=3600000 --set auto.create.topics.enable=false
  ottla serve --brokers 3 --set default.replication.factor=3
  ottla serve --node-id 2 --metadata zookeeper://zk1:2181,zk2:2181,zk3:2181/ottla

When the broker serves, it prints one line: `ready` and its address (with --brokers, all
addresses). SIGTERM and Ctrl-C stop it cleanly."""


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Help in the style of the other commands."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=34, width=min(shutil.get_terminal_size().columns, 100))

    def add_usage(self, usage: str | None, actions: Any, groups: Any, prefix: str | None = None) -> None:
        super().add_usage("%(prog)s [OPTIONS]", actions, groups, "Usage: ")

    def start_section(self, heading: str | None) -> None:
        super().start_section(heading and heading.capitalize())


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    made = argparse.ArgumentParser(
        prog="ottla serve",
        description="Start a broker, or several on this machine.",
        epilog=EXAMPLE,
        formatter_class=_HelpFormatter,
        allow_abbrev=False,
        add_help=False,
    )
    add = made.add_argument
    add("--data", metavar="DIR", help=f"Folder for partitions and metadata. [default: {_DATA}]")
    add("--listen", metavar="HOST:PORT", help=f"Address to listen on; port 0 takes a free one. [default: {_LISTEN}]")
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
        help="Start although the metadata store is older than the data, after a restore from a backup; stop all brokers"
        " first. Topics that the store does not know are set aside.",
    )
    add(
        "--recover-without",
        metavar="ID,ID",
        help="Brokers whose data is lost: lost metadata is recovered without waiting for them.",
    )
    add("--http", metavar="HOST:PORT", help="Address for metrics and health checks, such as 127.0.0.1:9644.")
    add(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="Broker config, by Kafka's name; may be repeated.",
    )
    add("--config", type=Path, metavar="FILE.toml", help="File of broker configs; --set overrides it.")
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
    add("-h", "--help", action="help", help="Show this page.")
    return made


def main(arguments: Sequence[str]) -> int:
    """Runs a broker and returns the exit status: 0 after a clean stop, 1 if it cannot run, 2 for wrong options."""
    options = parser().parse_args(arguments)
    set_up_logging(options.log_format, options.log_level)
    return _told(lambda: _main(options))


def _main(options: argparse.Namespace) -> int:
    check_metadata_option(options.metadata)
    _broker_list("--recover-without", options.recover_without)
    http = None if options.http is None else _address("--http", options.http)
    first = _configuration(options)
    brokers = broker_ids(first, options.brokers)
    if options.metadata == EMBEDDED:
        refuse_to_leave_replicas(first, brokers)
    if options.brokers == 1:
        return _run(options, first, http, options.metadata, _print_ready)
    return _supervise(options, first, brokers, http)


def _print_ready(*addresses: str) -> None:
    print(f"ready {','.join(addresses)}", flush=True)


def _told(work: Callable[[], int]) -> int:
    """What the work answers; a failure is told to the operator, and is 1."""
    try:
        return work()
    except OttlaError as error:
        print(f"ottla serve: {error}", file=sys.stderr)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(f"ottla serve: {where}{error.strerror or error}", file=sys.stderr)
    return 1


def _supervise(options: argparse.Namespace, first: BrokerConfig, brokers: range, http: tuple[str, int] | None) -> int:
    # Loaded before the processes part, so that it is in memory once.
    import uvloop  # noqa: F401

    import ottla.broker.broker  # noqa: F401
    from ottla.broker.supervisor import SEES_ALL, WAITING, Supervisor

    metadata = shared_metadata(first, options.metadata)
    for place in range(len(brokers)):
        # Whatever is wrong with one is told before any of them starts.
        _configuration(options, broker_settings(first, place, None))
        http_of(http, place)

    def run(broker: int, address: str | None, say: Callable[[str], None]) -> int:
        set_up_logging(options.log_format, options.log_level, broker)
        place = broker - brokers.start
        config = _configuration(options, broker_settings(first, place, address))
        return _told(
            lambda: _run(
                options,
                config,
                http_of(http, place),
                metadata,
                say,
                (signal.SIGTERM,),
                _Neighbours(ids=brokers, on_waiting=lambda: say(WAITING), on_all_seen=lambda: say(SEES_ALL)),
            )
        )

    return Supervisor(brokers, run, lambda addresses: _print_ready(*addresses)).run()


def _configuration(options: argparse.Namespace, over: Mapping[str, str] | None = None) -> BrokerConfig:
    """The file, under what the command line says, under `over`; the command's own defaults are under all."""
    file = _read_toml(options.config) or {}
    given = {
        "log.dirs": options.data,
        "listeners": options.listen and f"PLAINTEXT://{options.listen}",
        "advertised.listeners": options.advertise and f"PLAINTEXT://{options.advertise}",
        "node.id": None if options.node_id is None else str(options.node_id),
    }
    settings = {key: value for key, value in given.items() if value is not None}
    for text in options.set:
        key, equals, value = text.partition("=")
        if not equals:
            raise InvalidConfigError(f"--set {text}: write it as key=value")
        settings[key.strip()] = value
    config = BrokerConfig.parse(file, settings)
    if not config.log_dirs:
        settings["log.dirs"] = _DATA
    if "listeners" not in config.static:
        settings["listeners"] = f"PLAINTEXT://{_LISTEN}"
    return BrokerConfig.parse(file, {**settings, **(over or {})})


def _read_toml(path: Path | None) -> dict[str, object] | None:
    if path is None:
        return None
    import tomllib

    try:
        return tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidConfigError(f"{path} is not TOML: {error}") from error


def _address(option: str, text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise InvalidConfigError(f"{option} {text}: write it as HOST:PORT")
    return host.strip("[]"), int(port)


def _broker_list(option: str, text: str | None) -> list[BrokerId]:
    if text is None:
        return []
    if not all(each.isdecimal() for each in text.split(",")):
        raise InvalidConfigError(f"{option} {text}: write broker ids with commas between them, such as 1,2")
    return [BrokerId(int(each)) for each in text.split(",")]


def _raise_file_limit() -> None:
    """A partition that is written to holds a file open, and so does a connection; the usual limit is for shells."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Neighbours:
    """The brokers of the same command: what is called while this one waits for them, and when all of them are
    registered in its image."""

    ids: range = range(0)
    on_waiting: Callable[[], None] = lambda: None
    on_all_seen: Callable[[], None] = lambda: None


_ALONE: Final = _Neighbours()


def _run(
    options: argparse.Namespace,
    config: BrokerConfig,
    http: tuple[str, int] | None,
    metadata: str,
    on_ready: Callable[[str], None],
    signals: Sequence[signal.Signals] = _STOP_SIGNALS,
    neighbours: _Neighbours = _ALONE,
) -> int:
    from uvloop import new_event_loop

    _raise_file_limit()
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(_serve(options, config, http, metadata, on_ready, signals, neighbours))


async def _serve(
    options: argparse.Namespace,
    config: BrokerConfig,
    http: tuple[str, int] | None,
    metadata: str,
    on_ready: Callable[[str], None],
    signals: Sequence[signal.Signals],
    neighbours: _Neighbours,
) -> int:
    from ottla.broker.broker import Broker
    from ottla.broker.metadata_recovery import RecoveryStoppedError
    from ottla.env.real_clock import RealClock

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_on_unhandled)
    store = metadata_store(metadata, config, RealClock())
    broker = Broker(
        config,
        on_progress=_progress(),
        http=http,
        store=store,
        accept_older_metadata=options.accept_older_metadata,
        recover_without=_broker_list("--recover-without", options.recover_without),
        on_waiting=neighbours.on_waiting,
    )

    def on_signal() -> None:
        stop.set()
        broker.stop_waiting()

    for number in signals:
        loop.add_signal_handler(number, on_signal)
    try:
        return await _until_stopped(broker, stop, on_ready, neighbours)
    except RecoveryStoppedError as error:
        _LOGGER.info("stopping: %s", error)
        return 0


async def _until_stopped(
    broker: "Broker", stop: asyncio.Event, on_ready: Callable[[str], None], neighbours: _Neighbours
) -> int:
    async with broker:
        # What was made while starting stays: the collector need not look at it again and again.
        gc.collect()
        gc.freeze()
        host, port = broker.advertised
        on_ready(f"{host}:{port}")
        seeing = asyncio.ensure_future(_see_all(broker, neighbours))
        ends = [asyncio.ensure_future(stop.wait()), asyncio.ensure_future(broker.wait_failure())]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        has_failed = ends[1].done()
        for end in (*ends, seeing):
            end.cancel()
        _LOGGER.info("stopping")
    return 1 if has_failed else 0


async def _see_all(broker: "Broker", neighbours: _Neighbours) -> None:
    while not all(each in broker.image.brokers for each in neighbours.ids):
        await broker.wait_news(broker.image.revision)
    neighbours.on_all_seen()


def _on_unhandled(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Reports what nobody caught; a broken invariant ends the process there and then, as if it had been killed."""
    error = context.get("exception")
    _LOGGER.error("%s", context.get("message", "unexpected failure"), exc_info=error)
    if isinstance(error, InvariantViolation):
        # Nothing in memory can be trusted, so nothing of it may be written down as clean.
        logging.shutdown()
        os._exit(1)


def _progress() -> "Callable[[OpeningProgress], None]":
    """Tells once a second how far the opening of many partitions has come."""
    import time

    last = time.monotonic()

    def on_progress(progress: "OpeningProgress") -> None:
        nonlocal last
        if time.monotonic() - last >= _PROGRESS_SECONDS:
            last = time.monotonic()
            _LOGGER.info(
                "opened %d of %d partitions, %d MB scanned",
                progress.partitions_done,
                progress.partitions_total,
                progress.bytes_scanned // 1_000_000,
            )

    return on_progress
