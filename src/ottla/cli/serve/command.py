"""`ottla serve`: runs one broker or several until they are stopped.

This is only the process: logging, signals, the event loop. The broker itself is `ottla.broker`; `brokers.py`
has the settings of each of several, `options.py` the options.
"""

import argparse
import asyncio
import gc
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ottla.broker.configs.configuration import BrokerConfig
from ottla.cli.serve.beside_process import ProcessBeside
from ottla.cli.serve.brokers import (
    broker_ids,
    broker_settings,
    http_of,
    refuse_to_leave_replicas,
    registry_settings,
    shared_metadata,
)
from ottla.cli.serve.console_process import PrometheusOptions, check_console, console_process
from ottla.cli.serve.log_output import set_up_logging
from ottla.cli.serve.metadata_option import EMBEDDED, check_metadata_option, metadata_store
from ottla.cli.serve.options import DATA, LISTEN, parser
from ottla.cli.serve.registry_process import registry_process
from ottla.cli.serve.service_connection import service_connection
from ottla.cli.serve.service_notification import SILENT, ServiceNotifier, take_notifier
from ottla.cli.serve.welcome import Services, url_of, welcome
from ottla.console.history.options import parse_prometheus
from ottla.model.errors import InvalidConfigError, MisuseError, OttlaError
from ottla.model.ids import BrokerId
from ottla.model.invariants import InvariantViolation

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.security.scram_argument import ScramUser
    from ottla.storage.log_store import OpeningProgress

_LOGGER: Final = logging.getLogger(__name__)
_PROGRESS_SECONDS: Final = 1.0
_STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


def main(arguments: Sequence[str]) -> int:
    """Runs a broker and returns the exit status: 0 after a clean stop, 1 if it cannot run, 2 for wrong options."""
    options = parser().parse_args(arguments)
    set_up_logging(options.log_format, options.log_level)
    service = take_notifier(os.environ, os.getpid())
    return _told(lambda: _main(options, service))


def _main(options: argparse.Namespace, service: ServiceNotifier) -> int:
    check_metadata_option(options.metadata)
    _broker_list("--recover-without", options.recover_without)
    _first_users(options.add_scram)
    http = None if options.http is None else parse_address("--http", options.http)
    registry = None if options.registry is None else parse_address("--registry", options.registry)
    console = None if options.console is None else parse_address("--console", options.console)
    if registry is None and options.registry_command_config is not None:
        raise MisuseError("--registry-command-config is for the schema registry; add --registry")
    if console is None and options.console_command_config is not None:
        raise MisuseError("--console-command-config is for the console; add --console")
    if console is None and (options.prometheus is not None or options.prometheus_label):
        raise MisuseError("--prometheus and --prometheus-label are for the console; add --console")
    services = Services(http=http, registry=registry, console=console)
    first = configuration(options, otherwise=registry_settings(registry, 0, 1))
    # Refused before the broker starts.
    if registry is not None:
        service_connection("registry", first, options.registry_command_config)
    if console is not None:
        check_console(console)
        parse_prometheus(options.prometheus, options.prometheus_label)
        service_connection("console", first, options.console_command_config)
    brokers = broker_ids(first, options.brokers)
    if options.metadata == EMBEDDED:
        refuse_to_leave_replicas(first, brokers)

    def on_ready(*addresses: str) -> None:
        print(f"ready {','.join(addresses)}", flush=True)
        service.ready(f"ready on {', '.join(addresses)}")
        if sys.stdout.isatty():
            print(*welcome(addresses, first, options.metadata, services), sep="\n", flush=True)

    if options.brokers == 1:
        return _run(options, first, services, options.metadata, on_ready, service=service)
    return _supervise(options, first, brokers, services, on_ready, service)


def _told(work: Callable[[], int]) -> int:
    """The status of the work; an error is printed, and the status is 1."""
    try:
        return work()
    except OttlaError as error:
        print(f"ottla serve: {error}", file=sys.stderr)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(f"ottla serve: {where}{error.strerror or error}", file=sys.stderr)
    return 1


def _supervise(
    options: argparse.Namespace,
    first: BrokerConfig,
    brokers: range,
    services: Services,
    on_ready: Callable[..., None],
    service: ServiceNotifier,
) -> int:
    # Imported before forking, so that the brokers share the memory.
    for module in ("uvloop", "ottla.broker.broker"):
        import_module(module)
    from ottla.broker.supervisor import SEES_ALL, WAITING, Supervisor, Tick

    metadata = shared_metadata(first, options.metadata)
    for place in range(len(brokers)):
        # Checks the settings of all brokers before any of them starts.
        registries = registry_settings(services.registry, place, len(brokers))
        configuration(options, broker_settings(first, place, None), registries)
        http_of(services.http, place)

    def run(broker: int, address: str | None, say: Callable[[str], None]) -> int:
        set_up_logging(options.log_format, options.log_level, broker)
        place = broker - brokers.start
        registries = registry_settings(services.registry, place, len(brokers))
        config = configuration(options, broker_settings(first, place, address), registries)
        return _told(
            lambda: _run(
                options,
                config,
                Services(
                    http=http_of(services.http, place),
                    registry=http_of(services.registry, place),
                    console=services.console if place == 0 else None,
                ),
                metadata,
                say,
                (signal.SIGTERM,),
                _Neighbours(
                    ids=brokers, count=len(brokers), on_waiting=lambda: say(WAITING), on_all_seen=lambda: say(SEES_ALL)
                ),
            )
        )

    watchdog = None if service.ping_seconds is None else Tick(seconds=service.ping_seconds, call=service.ping)
    return Supervisor(brokers, run, lambda addresses: on_ready(*addresses), service.stopping, watchdog).run()


def configuration(
    options: argparse.Namespace, over: Mapping[str, str] | None = None, otherwise: Mapping[str, str] | None = None
) -> BrokerConfig:
    """The config: `over` overrides the command line, which overrides the file, which overrides the defaults. What is
    not set anywhere has the values of `otherwise`."""
    file = _read_toml(options.config) or {}
    settings: dict[str, str] = {}
    for text in options.set:
        key, equals, value = text.partition("=")
        if not equals:
            raise InvalidConfigError(f"--set {text}: write it as key=value")
        settings[key.strip()] = value
    _add(settings, "--data", "log.dirs", options.data)
    _add(settings, "--listen", "listeners", options.listen and f"PLAINTEXT://{options.listen}")
    _add(settings, "--node-id", "node.id", None if options.node_id is None else str(options.node_id))
    config = BrokerConfig.parse(file, settings)
    if not config.log_dirs:
        settings["log.dirs"] = DATA
    if "listeners" not in config.static:
        settings["listeners"] = f"PLAINTEXT://{LISTEN}"
    settings |= {key: value for key, value in (otherwise or {}).items() if key not in config.static}
    if options.advertise is not None:
        _add(settings, "--advertise", "advertised.listeners", f"{_only_listener(config)}://{options.advertise}")
    return BrokerConfig.parse(file, {**settings, **(over or {})})


def _add(settings: dict[str, str], option: str, key: str, value: str | None) -> None:
    """Adds the config that an option sets. Raises MisuseError if --set gives the config another value."""
    if value is not None and settings.setdefault(key, value) != value:
        raise MisuseError(f"{option} sets {key}={value}, but --set sets {key}={settings[key]}; remove one of the two")


def _only_listener(config: BrokerConfig) -> str:
    """The name of the listener that --advertise is for. Raises InvalidConfigError if there are several."""
    names = [each.name for each in config.endpoints]
    if len(names) > 1:
        raise InvalidConfigError(
            f"--advertise is for one listener, and there are {len(names)} ({', '.join(names)}); set"
            " advertised.listeners instead"
        )
    return names[0]


def _read_toml(path: Path | None) -> dict[str, object] | None:
    if path is None:
        return None
    import tomllib

    try:
        return tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidConfigError(f"{path} is not valid TOML: {error}") from error


def parse_address(option: str, text: str) -> tuple[str, int]:
    """An address that an option names. Raises InvalidConfigError if it is not HOST:PORT."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise InvalidConfigError(f"{option} {text}: write it as HOST:PORT")
    return host.strip("[]"), int(port)


def _broker_list(option: str, text: str | None) -> list[BrokerId]:
    if text is None:
        return []
    if not all(each.isdecimal() for each in text.split(",")):
        raise InvalidConfigError(f"{option} {text}: write broker ids separated by commas, such as 1,2")
    return [BrokerId(int(each)) for each in text.split(",")]


def _first_users(arguments: Sequence[str]) -> "list[ScramUser]":
    if not arguments:
        return []
    import secrets

    from ottla.security.scram_argument import parse_scram_user

    return [parse_scram_user(each, secrets.token_bytes) for each in arguments]


def _raise_file_limit() -> None:
    """Raises the limit of open files: every active partition and every connection needs one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Neighbours:
    """The other brokers of this command: callbacks while this broker waits for them, and when it sees all of them."""

    ids: range = range(0)
    count: int = 1
    """All brokers of this command, this one included."""
    on_waiting: Callable[[], None] = lambda: None
    on_all_seen: Callable[[], None] = lambda: None


_ALONE: Final = _Neighbours()


def _run(
    options: argparse.Namespace,
    config: BrokerConfig,
    services: Services,
    metadata: str,
    on_ready: Callable[[str], None],
    signals: Sequence[signal.Signals] = _STOP_SIGNALS,
    neighbours: _Neighbours = _ALONE,
    service: ServiceNotifier = SILENT,
) -> int:
    from uvloop import new_event_loop

    _raise_file_limit()
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(_serve(options, config, services, metadata, on_ready, signals, neighbours, service))


async def _serve(
    options: argparse.Namespace,
    config: BrokerConfig,
    services: Services,
    metadata: str,
    on_ready: Callable[[str], None],
    signals: Sequence[signal.Signals],
    neighbours: _Neighbours,
    service: ServiceNotifier,
) -> int:
    from ottla.broker.broker import Broker
    from ottla.broker.startup.metadata_recovery import StartStoppedError
    from ottla.env.real_clock import RealClock

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_on_unhandled)
    store = metadata_store(metadata, config, RealClock())
    broker = Broker(
        config,
        on_progress=_progress(service),
        http=services.http,
        store=store,
        accept_older_metadata=options.accept_older_metadata,
        recover_without=_broker_list("--recover-without", options.recover_without),
        on_waiting=neighbours.on_waiting,
        first_users=_first_users(options.add_scram),
    )

    def on_signal() -> None:
        service.stopping()
        stop.set()
        broker.stop_waiting()

    for number in signals:
        loop.add_signal_handler(number, on_signal)
    pinging = asyncio.ensure_future(service.ping_forever())
    try:
        beside = _beside(options, config, services, neighbours.count)
        return await _until_stopped(broker, stop, on_ready, neighbours, beside)
    except StartStoppedError as error:
        _LOGGER.info("stopping: %s", error)
        return 0
    finally:
        pinging.cancel()


async def _until_stopped(
    broker: "Broker",
    stop: asyncio.Event,
    on_ready: Callable[[str], None],
    neighbours: _Neighbours,
    beside: Sequence[ProcessBeside],
) -> int:
    async with broker:
        # Long-lived objects are left out of garbage collection.
        gc.collect()
        gc.freeze()
        host, port = broker.advertised
        on_ready(f"{host}:{port}")
        seeing = asyncio.ensure_future(_see_all(broker, neighbours, beside))
        ends = [asyncio.ensure_future(stop.wait()), asyncio.ensure_future(broker.wait_failure())]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        has_failed = ends[1].done()
        for end in (*ends, seeing):
            end.cancel()
        _LOGGER.info("stopping")
        # Before the broker: the registry still has to leave its group.
        await asyncio.gather(seeing, return_exceptions=True)
    return 1 if has_failed else 0


async def _see_all(broker: "Broker", neighbours: _Neighbours, beside: Sequence[ProcessBeside]) -> None:
    """Waits for the other brokers, then runs registry and console: so the registry's topic gets replicas on several."""
    while not all(each in broker.image.brokers for each in neighbours.ids):
        await broker.wait_revision(broker.image.revision + 1)
    neighbours.on_all_seen()
    addresses = {each.name: f"{each.host}:{each.port}" for each in broker.endpoints}
    async with asyncio.TaskGroup() as running:
        for each in beside:
            running.create_task(each.run(addresses[each.listener]))


def _beside(options: argparse.Namespace, config: BrokerConfig, services: Services, brokers: int) -> list[ProcessBeside]:
    """The services of this broker that are processes of their own."""
    log_options = (options.log_format, options.log_level)
    made: list[ProcessBeside] = []
    if services.registry is not None:
        connection = service_connection("registry", config, options.registry_command_config)
        made.append(registry_process(services.registry, connection, *log_options))
    if services.console is not None:
        connection = service_connection("console", config, options.console_command_config)
        counted = [http_of(services.http, place) for place in range(brokers)]
        metrics = [f"{url}/metrics" for each in counted if (url := url_of(each))]
        registries = config.schema_registry_urls if services.registry is not None else ()
        history = PrometheusOptions(options.prometheus, options.prometheus_label)
        made.append(console_process(services.console, connection, registries, metrics, *log_options, history))
    return made


def _on_unhandled(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Logs an unhandled exception; a broken invariant ends the process at once, as if it had been killed."""
    error = context.get("exception")
    _LOGGER.error("%s", context.get("message", "unexpected failure"), exc_info=error)
    if isinstance(error, InvariantViolation):
        # The state in memory cannot be trusted, so no clean shutdown may be recorded.
        logging.shutdown()
        os._exit(1)


def _progress(service: ServiceNotifier) -> "Callable[[OpeningProgress], None]":
    """Logs the progress of opening partitions once per second, and tells it to the service manager."""
    import time

    last = time.monotonic()

    def on_progress(progress: "OpeningProgress") -> None:
        nonlocal last
        if time.monotonic() - last >= _PROGRESS_SECONDS:
            last = time.monotonic()
            service.status(f"opened {progress.partitions_done} of {progress.partitions_total} partitions")
            _LOGGER.info(
                "opened %d of %d partitions, %d MB scanned",
                progress.partitions_done,
                progress.partitions_total,
                progress.bytes_scanned // 1_000_000,
            )

    return on_progress
