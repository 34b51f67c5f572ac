"""`ottla log`: log files on disk, without a broker, and the log dirs of running brokers, also to move partitions."""

import sys
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ottla.cli.command_runner import ExitStatus, application, examples, guarded, run_with_cluster
from ottla.cli.consume.record_formats import json_bytes
from ottla.cli.known_brokers import refuse_unknown_broker
from ottla.cli.options import AsJson, Bootstrap, Profile
from ottla.cli.output import human_bytes, human_count, json_line, print_json, print_table, say, say_errors, tell
from ottla.cli.topic_choices import partition_outcome

if TYPE_CHECKING:
    from ottla.client.network.cluster import Cluster

app = application("Dump log files, list the log dirs of brokers, and move partitions between them.")

_SHOWN_BYTES_MAX: Final = 200


@app.command(
    "dump",
    epilog=examples("ottla log dump ottla-data/events-0", "ottla log dump --records events-0/00000000000000000000.log"),
)
def dump(
    paths: Annotated[
        list[str],
        typer.Argument(metavar="PATH", help="Log files, partition folders or data dirs.", show_default=False),
    ],
    records: Annotated[bool, typer.Option("--records", "-r", help="Also show the records in the batches.")] = False,
    as_json: AsJson = False,
) -> None:
    """Dump log files of Ottla or Kafka, without a broker.

    Shows batches, indexes, producer snapshots, aborted transactions, leader epochs, checkpoints and any damage. The
    exit status is 1 if a file is damaged. Zeros up to the end of a segment are shown as unwritten: space that was
    preallocated, or written just before a power cut. With --json, prints one object per line.
    """
    from ottla.cli.log.files import read_path
    from ottla.env.real_disk import RealDisk

    damaged = 0
    with guarded():
        current = ""
        for path in paths:
            for finding in read_path(RealDisk(), path.rstrip("/") or "/", records=records):
                damaged += finding["kind"] == "damage"
                if as_json:
                    sys.stdout.buffer.write(json_line(_jsonable(finding), is_for_terminal=sys.stdout.isatty()))
                    continue
                if finding["file"] != current:
                    tell(*([""] if current else []), finding["file"])
                    current = finding["file"]
                tell(_line(finding))
        sys.stdout.flush()
    if damaged:
        say(f"ottla: found {human_count(damaged, 'damaged place')}")
    raise typer.Exit(ExitStatus.REFUSED if damaged else ExitStatus.DONE)


@app.command("dirs", epilog=examples("ottla log dirs", "ottla log dirs --broker 0 --topic events"))
def dirs(
    broker: Annotated[int | None, typer.Option("--broker", metavar="ID", help="Only of this broker.")] = None,
    topic: Annotated[
        str | None, typer.Option("--topic", metavar="TOPIC", help="Only partitions of this topic.")
    ] = None,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """List the log dirs of brokers, with the partitions in them and their sizes."""

    async def work(cluster: "Cluster") -> None:
        from ottla.cli.cluster.command import log_dir_document
        from ottla.client.admin.broker_states import BrokerState, probe_brokers
        from ottla.client.admin.topic_requests import describe_log_dirs
        from ottla.model.ids import TopicPartition

        await refuse_unknown_broker(cluster, broker)
        asked = None
        if topic is not None:
            asked = [TopicPartition(topic, each.index) for each in (await cluster.topic(topic)).partitions]
        if broker is None:
            probes = await probe_brokers(cluster, await cluster.refresh([]), asked)
            found = [each for probe in probes.values() for each in probe.log_dirs]
            for silent in (each for each, probe in probes.items() if probe.state is BrokerState.SILENT):
                say(f"ottla: broker {silent} does not answer")
        else:
            found = await describe_log_dirs(cluster, broker, asked)
        if as_json:
            print_json([log_dir_document(each) | {"replicas": _replicas(each)} for each in found])
            return
        rows = [
            (each.broker, each.path, _name(replica), human_bytes(replica.size_bytes), replica.lag)
            for each in found
            for replica in sorted(each.partitions, key=lambda replica: replica.partition)
        ]
        print_table(("broker", "log dir", "partition", "size", "lag"), rows)

    run_with_cluster(bootstrap, profile, work)


@app.command(
    "move",
    epilog=examples(
        "ottla log move events --broker 0 --to /disk2/ottla",
        "ottla log move events --partition 3 --broker 0 --to /disk2/ottla",
    ),
)
def move(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic of the partitions.", show_default=False)],
    broker: Annotated[int, typer.Option("--broker", metavar="ID", help="The broker that has the replicas.")],
    to: Annotated[str, typer.Option("--to", metavar="PATH", help="The log dir of that broker to move them to.")],
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", metavar="N", min=0, help="Only this partition; may be repeated."),
    ] = None,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Move partitions to another log dir of the same broker, while they are in use.

    The broker copies the log and switches to the copy when it has caught up. `ottla log dirs` shows the copy as a
    future replica with its lag. By default all partitions of the topic that the broker has are moved.
    """

    async def work(cluster: "Cluster") -> int:
        from ottla.client.admin.topic_requests import alter_replica_log_dirs
        from ottla.model.ids import TopicPartition

        await refuse_unknown_broker(cluster, broker)
        held = [each.index for each in (await cluster.topic(topic)).partitions if broker in each.replicas]
        wanted = [TopicPartition(topic, each) for each in (held if partition is None else partition)]
        refused = await alter_replica_log_dirs(cluster, broker, dict.fromkeys(wanted, to))
        say_errors(refused.values())
        if as_json:
            print_json([partition_outcome(each, refused) for each in wanted])
        elif len(refused) < len(wanted):
            tell(f"moving {human_count(len(wanted) - len(refused), 'partition')} to {to}")
        elif not wanted:
            tell(f"broker {broker} has no replica of topic {topic}; nothing to move")
        return ExitStatus.REFUSED if refused else ExitStatus.DONE

    run_with_cluster(bootstrap, profile, work)


def _name(replica: Any) -> str:
    return f"{replica.partition} (future)" if replica.is_future else str(replica.partition)


def _replicas(log_dir: Any) -> list[dict[str, Any]]:
    return [
        {
            "topic": each.partition.topic,
            "partition": each.partition.partition,
            "size_bytes": each.size_bytes,
            "lag": each.lag,
            "future": each.is_future,
        }
        for each in sorted(log_dir.partitions, key=lambda replica: replica.partition)
    ]


def _jsonable(finding: dict[str, Any]) -> dict[str, Any]:
    """The finding with keys, values and headers as text, or as base64 if they are not text."""
    if finding["kind"] != "record":
        return finding
    headers = [[name, json_bytes(value)] for name, value in finding["headers"]]
    return finding | {"key": json_bytes(finding["key"]), "value": json_bytes(finding["value"]), "headers": headers}


def _line(finding: dict[str, Any]) -> str:
    """One finding as a line: its kind, then names with values."""
    kind = finding["kind"]
    indent = "    " if kind == "record" else "  "
    rest = {name: value for name, value in finding.items() if name not in ("file", "kind") and value is not None}
    mark = "DAMAGE" if kind == "damage" else kind.replace("_", " ")
    return f"{indent}{mark}  " + "  ".join(f"{name}={_shown(value)}" for name, value in rest.items())


def _shown(value: Any) -> str:
    """A value in a line; bytes cut short, as Python writes them."""
    if isinstance(value, bytes):
        more = "…" if len(value) > _SHOWN_BYTES_MAX else ""
        return repr(value[:_SHOWN_BYTES_MAX])[1:] + more
    if isinstance(value, tuple):
        return "[" + ", ".join(f"{name}={_shown(held) if held is not None else 'null'}" for name, held in value) + "]"
    return str(value)
