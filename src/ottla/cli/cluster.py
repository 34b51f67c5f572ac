"""`ottla cluster`: who is in the cluster, what it holds, whether it is well, and who leads; moving replicas is in
`cluster_reassign.py`."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ottla.cli.asking import confirm
from ottla.cli.cluster_reassign import app as reassign_app
from ottla.cli.options import BOOTSTRAP_DEFAULT, AsJson, AssumeYes, Bootstrap
from ottla.cli.output import human_bytes, human_count, print_facts, print_json, print_table, say
from ottla.cli.running import ExitStatus, application, examples, run_with_cluster
from ottla.model.min_isr import effective_min_isr

if TYPE_CHECKING:
    from ottla.client.admin_requests import LogDir
    from ottla.client.cluster import Cluster
    from ottla.client.cluster_view import ClusterView

app = application("Describe the cluster, say whether it is well, elect leaders, and move replicas.")
app.add_typer(reassign_app, name="reassign")

_TIMEOUT_MS: Final = 60_000


@app.command("describe", epilog=examples("ottla cluster describe", "ottla cluster describe --json"))
def describe(bootstrap: Bootstrap = BOOTSTRAP_DEFAULT, as_json: AsJson = False) -> None:
    """Show the cluster's id, controller, brokers and log dirs, and how many topics and partitions it has."""

    async def work(cluster: "Cluster") -> None:
        view = await cluster.refresh()
        dirs = await _log_dirs(cluster, view)
        if as_json:
            print_json(_description(view, dirs))
            return
        print_facts(
            {
                "cluster": view.cluster_id,
                "controller": "none" if view.controller is None else view.controller,
                "brokers": len(view.brokers),
                "topics": len(view.topics),
                "partitions": sum(len(topic.partitions) for topic in view.topics.values()),
            }
        )
        print()
        led = _led(view)
        rows = [(each.id, str(each.address), each.rack, led.get(each.id, 0)) for each in view.brokers.values()]
        print_table(("broker", "address", "rack", "leads"), rows)
        print()
        columns = ("broker", "log dir", "partitions", "size", "free", "state")
        print_table(columns, [_log_dir_row(each) for each in dirs])

    run_with_cluster(bootstrap, work)


@app.command("brokers", epilog=examples("ottla cluster brokers --json"))
def brokers(bootstrap: Bootstrap = BOOTSTRAP_DEFAULT, as_json: AsJson = False) -> None:
    """List the brokers: where they are, what they hold and lead, and how much of it is not in sync."""

    async def work(cluster: "Cluster") -> None:
        view = await cluster.refresh()
        rows = [_broker_document(view, each) for each in sorted(view.brokers)]
        if as_json:
            print_json(rows)
        else:
            shown = [{**row, "controller": "yes" if row["controller"] else ""} for row in rows]
            print_table(list(shown[0]) if shown else ["id"], [list(row.values()) for row in shown])

    run_with_cluster(bootstrap, work)


@app.command(
    "elect",
    epilog=examples(
        "ottla cluster elect", "ottla cluster elect --topic events", "ottla cluster elect --unclean --topic events -p 3"
    ),
)
def elect(
    topic: Annotated[str | None, typer.Option("--topic", help="Only this topic.")] = None,
    partition: Annotated[int | None, typer.Option("--partition", "-p", min=0, help="Only this partition.")] = None,
    unclean: Annotated[
        bool, typer.Option("--unclean", help="Where no replica in sync lives, let any live one lead: records are lost.")
    ] = False,
    yes: AssumeYes = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
) -> None:
    """Let the preferred replicas lead, the first of each partition's list; of all partitions, unless told which."""
    if partition is not None and topic is None:
        raise typer.BadParameter("a partition of which topic? Say --topic", param_hint="--partition")
    if unclean and not yes:
        confirm("an unclean election loses what the new leader lacks; go on?")

    async def work(cluster: "Cluster") -> int:
        from ottla.client.partition_moves import ElectionType, elect_leaders
        from ottla.model.ids import TopicPartition

        wanted = None
        if topic is not None:
            count = len((await cluster.topic(topic)).partitions)
            wanted = [TopicPartition(topic, each) for each in (range(count) if partition is None else [partition])]
        kind = ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED
        elected, refused = await elect_leaders(cluster, kind, wanted, timeout_ms=_TIMEOUT_MS)
        for error in refused.values():
            say(f"ottla: {error}")
        print(f"{human_count(len(elected), 'partition')} led as wanted")
        return ExitStatus.REFUSED if refused else ExitStatus.DONE

    run_with_cluster(bootstrap, work)


@app.command("health", epilog=examples("ottla cluster health || echo 'look at it'"))
def health(bootstrap: Bootstrap = BOOTSTRAP_DEFAULT, as_json: AsJson = False) -> None:
    """Say what is wrong: no controller, partitions without leader, with replicas that are not in sync, with fewer than
    min.insync.replicas, replicas that have lost their log, failed log dirs, replicas whose log is offline or has a
    corrupt batch.

    Ends with 0 if nothing is, with 1 otherwise.
    """

    async def work(cluster: "Cluster") -> int:
        from ottla.cli.lost_replicas import lost_replica_troubles
        from ottla.client.log_troubles import log_troubles

        view = await cluster.refresh()
        minimums = await _minimums(cluster, view)
        troubles = list(_troubles(view, minimums, await _log_dirs(cluster, view)))
        troubles += await lost_replica_troubles(cluster, view)
        troubles += map(str, await log_troubles(cluster, view))
        if as_json:
            print_json({"healthy": not troubles, "troubles": troubles})
        else:
            print("\n".join(troubles) or f"well: {_counts(view)}")
        return ExitStatus.REFUSED if troubles else ExitStatus.DONE

    run_with_cluster(bootstrap, work)


async def _log_dirs(cluster: "Cluster", view: "ClusterView") -> "list[LogDir]":
    from ottla.client.admin_requests import describe_log_dirs

    return [each for broker in sorted(view.brokers) for each in await describe_log_dirs(cluster, broker)]


async def _minimums(cluster: "Cluster", view: "ClusterView") -> dict[str, int]:
    """The least replicas in sync that a write needs, of the topics that have not all."""
    from ottla.client.config_requests import Resource, ResourceType, describe_configs

    found: dict[str, int] = {}
    for name, topic in sorted(view.topics.items()):
        if any(len(each.isr) < len(each.replicas) for each in topic.partitions):
            resource = Resource(type=ResourceType.TOPIC, name=name)
            (entry,) = await describe_configs(cluster, resource, ["min.insync.replicas"])
            found[name] = int(entry.value or 1)
    return found


def _troubles(view: "ClusterView", minimums: dict[str, int], dirs: "list[LogDir]") -> Iterator[str]:
    if view.controller is None:
        yield "there is no controller: topics cannot be changed and leaders cannot be elected"
    for name in sorted(view.topics):
        for each in view.topics[name].partitions:
            if each.leader is None:
                yield f"{name}-{each.index} has no leader: it can be neither read nor written"
            elif len(each.isr) < (needed := effective_min_isr(minimums.get(name, 1), len(each.replicas))):
                yield (
                    f"{name}-{each.index} takes no writes with acks=all: {len(each.isr)} in sync, {needed} are needed"
                )
            elif len(each.isr) < len(each.replicas):
                yield f"{name}-{each.index} is under-replicated: {len(each.isr)} of {len(each.replicas)} in sync"
    for log_dir in dirs:
        if log_dir.error_code:
            yield f"{log_dir.path} of broker {log_dir.broker} has failed: {log_dir.error_code.name}"


def _counts(view: "ClusterView") -> str:
    return f"{human_count(len(view.brokers), 'broker')}, {human_count(len(view.topics), 'topic')}"


def _led(view: "ClusterView") -> dict[int, int]:
    led: dict[int, int] = {}
    for topic in view.topics.values():
        for each in topic.partitions:
            if each.leader is not None:
                led[each.leader] = led.get(each.leader, 0) + 1
    return led


def _broker_document(view: "ClusterView", broker: int) -> dict[str, Any]:
    found = view.brokers[broker]
    held = [each for topic in view.topics.values() for each in topic.partitions if broker in each.replicas]
    return {
        "id": broker,
        "address": str(found.address),
        "rack": found.rack,
        "controller": view.controller == broker,
        "replicas": len(held),
        "leads": sum(each.leader == broker for each in held),
        "preferred": sum(each.replicas[0] == broker for each in held),
        "behind": sum(broker not in each.isr for each in held),
    }


def _log_dir_row(log_dir: "LogDir") -> tuple[Any, ...]:
    return (
        log_dir.broker,
        log_dir.path,
        len(log_dir.partitions),
        human_bytes(sum(each.size_bytes for each in log_dir.partitions)),
        human_bytes(log_dir.usable_bytes),
        "failed" if log_dir.error_code else "online",
    )


def _description(view: "ClusterView", dirs: "list[LogDir]") -> dict[str, Any]:
    led = _led(view)
    return {
        "cluster_id": view.cluster_id,
        "controller": view.controller,
        "brokers": [
            {
                "id": each.id,
                "host": each.address.host,
                "port": each.address.port,
                "rack": each.rack,
                "leads": led.get(each.id, 0),
            }
            for each in view.brokers.values()
        ],
        "topics": len(view.topics),
        "partitions": sum(len(topic.partitions) for topic in view.topics.values()),
        "log_dirs": [log_dir_document(each) for each in dirs],
    }


def log_dir_document(log_dir: "LogDir") -> dict[str, Any]:
    """A log dir without its partitions, for JSON."""
    return {
        "broker": log_dir.broker,
        "path": log_dir.path,
        "error": log_dir.error_code.name if log_dir.error_code else None,
        "total_bytes": log_dir.total_bytes,
        "usable_bytes": log_dir.usable_bytes,
        "partitions": len(log_dir.partitions),
        "size_bytes": sum(each.size_bytes for each in log_dir.partitions),
    }
