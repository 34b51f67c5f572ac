"""`ottla doctor`: probes the machine in the order of the report, judges what was found, and prints it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.command_runner import CONTEXT, ExitStatus, application, examples, guarded, run_loop
from ottla.cli.doctor import judgement
from ottla.cli.doctor.facts import Address, Configuration, Disk
from ottla.cli.doctor.findings import Finding, Level, count_of
from ottla.cli.doctor.report import print_findings
from ottla.cli.options import AsJson, OptionalBootstrap, Profile

if TYPE_CHECKING:
    from argparse import Namespace

    from ottla.broker.configs.configuration import BrokerConfig

app = application("Check whether this machine can run a broker well.")


@app.command(
    "doctor",
    context_settings=CONTEXT,
    epilog=examples(
        "ottla doctor",
        "ottla doctor --data /var/lib/ottla --listen 0.0.0.0:9092",
        "ottla doctor --config /etc/ottla/broker.toml --json",
        "ottla doctor --bootstrap broker-1:9092",
    ),
)
def doctor(
    data: Annotated[
        str | None,
        typer.Option("--data", metavar="DIR", help="Data dir to check.", show_default="./ottla-data"),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(
            "--listen", metavar="HOST:PORT", help="Address to check for listening.", show_default="127.0.0.1:9092"
        ),
    ] = None,
    http: Annotated[
        str | None,
        typer.Option("--http", metavar="HOST:PORT", help="Address of metrics and health checks to check as well."),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option("--config", metavar="FILE.toml", help="File of broker configs to check; its values are used."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Broker config, by Kafka's name; may be repeated."),
    ] = None,
    bootstrap: OptionalBootstrap = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Check whether this machine can run a broker well, and say what to change.

    Looks at Python, kernel, cores, memory and CPU, limits, clocks, the data dir and its disk, ports, packages and Java,
    and the configs of --config and --set. With --bootstrap or --profile, it also checks that cluster. Takes about two
    seconds for each data dir and changes nothing. The exit status is 1 if there is a problem; warnings do not count.
    """
    with guarded():
        given = {"--data": data, "--listen": listen, "--http": http, "--config": config}
        words = [f"{option}={value}" for option, value in given.items() if value is not None]
        words += [f"--set={each}" for each in settings or ()]
        findings = list(_findings(words, bootstrap, profile))
        print_findings(findings, as_json=as_json)
        if count_of(findings, Level.PROBLEM):
            raise typer.Exit(ExitStatus.REFUSED)


def _findings(words: list[str], bootstrap: str | None, profile: str | None) -> Iterator[Finding]:
    from ottla.cli.doctor.probes.clock import ClockWatch
    from ottla.cli.doctor.probes.installation import probe_installation, probe_java
    from ottla.cli.doctor.probes.machine import probe_limits, probe_machine
    from ottla.cli.serve.options import parser

    options = parser().parse_args(words)
    watch = ClockWatch()
    yield from judgement.judge_machine(probe_machine())
    yield from judgement.judge_limits(probe_limits())
    configuration, broker = _configuration(options)
    disks = _disks(broker)
    yield from judgement.judge_clock(watch.probe())
    for disk in disks:
        yield from judgement.judge_disk(disk)
    addresses = [] if broker is None else _addresses(options, broker)
    yield from judgement.judge_addresses(addresses, broker_runs=any(each.lock_owner for each in disks))
    installation = probe_installation()
    yield from judgement.judge_installation(installation)
    spark = installation.extras.get("spark", ())
    has_spark = any(each.name == "pyspark" and each.installed is not None for each in spark)
    yield from judgement.judge_java(probe_java(), has_spark=has_spark)
    yield from judgement.judge_configuration(configuration)
    if bootstrap is not None or profile is not None:
        from ottla.cli.doctor.probes.cluster import probe_cluster
        from ottla.cli.profile.store import chosen_connection

        answer = run_loop(probe_cluster(chosen_connection(bootstrap, profile)))
        yield from judgement.judge_cluster(answer)


def _configuration(options: "Namespace") -> "tuple[Configuration, BrokerConfig | None]":
    """What a broker would say to these options, and its configs if it would take them."""
    from ottla.cli.serve.command import configuration
    from ottla.model.errors import OttlaError

    file = None if options.config is None else str(options.config)
    try:
        broker = configuration(options)
    except OttlaError as error:
        return Configuration(file=file, failure=str(error)), None
    except OSError as error:
        return Configuration(file=file, failure=error.strerror or str(error)), None
    return Configuration(file=file, failure=None, keys=tuple(broker.static)), broker


def _disks(broker: "BrokerConfig | None") -> list[Disk]:
    from ottla.cli.doctor.probes.disk import probe_disk

    return [] if broker is None else [probe_disk(each) for each in broker.log_dirs]


def _addresses(options: "Namespace", broker: "BrokerConfig") -> list[Address]:
    from ottla.cli.doctor.probes.addresses import probe_address
    from ottla.cli.serve.command import parse_address

    found = [probe_address(each.name, each.host, each.port) for each in broker.listeners]
    if options.http is not None:
        found.append(probe_address("--http", *parse_address("--http", options.http)))
    return found
