"""`ottla cluster`: describes the cluster and its brokers, checks its health, and elects leaders.

Moving replicas is in `cluster_reassign.py`, whether brokers answer in `broker_states.py`.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ottla.cli.cluster.reassign import app as reassign_app
from ottla.cli.confirmation import confirm
from ottla.cli.options import AsJson, AssumeYes, Bootstrap, Profile
from ottla.cli.output import human_bytes, human_count, print_facts, print_json, print_table, say, tell
from ottla.cli.running import ExitStatus, application, examples, run_with_cluster
from ottla.model.min_isr import effective_min_isr

if TYPE_CHECKING:
    from ottla.cli.cluster.broker_states import BrokerProbe
    from ottla.client.admin.topic_requests import LogDir
    from ottla.client.network.cluster import Cluster
    from ottla.client.network.cluster_view import ClusterView

app = application("Describe the cluster, check its health, elect leaders, and move replicas.")
app.add_typer(reassign_app, name="reassign")

_TIMEOUT_MS: Final = 60_000


@app.command("describe", epilog=examples("ottla cluster describe", "ottla cluster describe --json"))
def describe(bootstrap: Bootstrap = None, profile: Profile = None, as_json: AsJson = False) -> None:
    """Show the cluster: its id, controller, brokers and log dirs, and the number of topics and partitions."""

    async def work(cluster: "Cluster") -> None:
        from ottla.cli.cluster.broker_states import probe_brokers

        view = await cluster.refresh()
        probes = await probe_brokers(cluster, view)
        if as_json:
            print_json(_description(view, probes))
            return
        print_facts(
            {
                "cluster": view.cluster_id,
                "controller": "none" if view.controller is None else view.controller,
                "brokers": len(probes),
                "topics": len(view.topics),
                "partitions": sum(len(topic.partitions) for topic in view.topics.values()),
            }
        )
        print()
        brokers = [_broker_document(view, each, probe) for each, probe in probes.items()]
        columns = ("id", "address", "rack", "leads", "state")
        print_table(("broker", *columns[1:]), [[each[name] for name in columns] for each in brokers])
        print()
        headings = ("broker", "log dir", "partitions", "size", "free", "state")
        print_table(headings, [_log_dir_row(each) for probe in probes.values() for each in probe.log_dirs])

    run_with_cluster(bootstrap, profile, work)


@app.command("brokers", epilog=examples("ottla cluster brokers", "ottla cluster brokers --json"))
def brokers(bootstrap: Bootstrap = None, profile: Profile = None, as_json: AsJson = False) -> None:
    """List the brokers with their address, state, replicas and leaderships.

    The state is `online`, `not answering` (registered, but silent for 3 seconds) or `missing` (has replicas, but is
    not registered).
    """

    async def work(cluster: "Cluster") -> None:
        from ottla.cli.cluster.broker_states import probe_brokers

        view = await cluster.refresh()
        rows = [_broker_document(view, each, probe) for each, probe in (await probe_brokers(cluster, view)).items()]
        if as_json:
            print_json(rows)
        else:
            shown = [{**row, "controller": "yes" if row["controller"] else ""} for row in rows]
            print_table(list(shown[0]) if shown else ["id"], [list(row.values()) for row in shown])

    run_with_cluster(bootstrap, profile, work)


@app.command(
    "elect",
    epilog=examples(
        "ottla cluster elect", "ottla cluster elect --topic events", "ottla cluster elect --unclean --topic events -p 3"
    ),
)
def elect(
    topic: Annotated[str | None, typer.Option("--topic", metavar="TOPIC", help="Only this topic.")] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", metavar="N", min=0, help="Only this partition of --topic.")
    ] = None,
    unclean: Annotated[
        bool,
        typer.Option(
            "--unclean", help="Elect any online replica where no in-sync replica is online; records may be lost."
        ),
    ] = False,
    yes: AssumeYes = False,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
) -> None:
    """Elect the preferred replica (the first in the list) as the leader of partitions, by default of all."""
    if partition is not None and topic is None:
        raise typer.BadParameter("needs --topic", param_hint="--partition")
    if unclean and not yes:
        confirm("an unclean election loses the records that the new leader does not have; continue?")

    async def work(cluster: "Cluster") -> int:
        from ottla.client.admin.partition_moves import ElectionType, elect_leaders
        from ottla.model.ids import TopicPartition

        wanted = None
        if topic is not None:
            count = len((await cluster.topic(topic)).partitions)
            wanted = [TopicPartition(topic, each) for each in (range(count) if partition is None else [partition])]
        kind = ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED
        elected, refused = await elect_leaders(cluster, kind, wanted, timeout_ms=_TIMEOUT_MS)
        for error in refused.values():
            say(f"ottla: {error}")
        tell(f"elected the leader of {human_count(len(elected), 'partition')}")
        return ExitStatus.REFUSED if refused else ExitStatus.DONE

    run_with_cluster(bootstrap, profile, work)


@app.command("health", epilog=examples("ottla cluster health", "ottla cluster health || echo 'needs attention'"))
def health(bootstrap: Bootstrap = None, profile: Profile = None, as_json: AsJson = False) -> None:
    """Check the cluster and list its problems. The exit status is 0 if it is healthy, else 1.

    Problems are: no controller, brokers that do not answer or are missing, partitions without a leader, with fewer
    in-sync replicas than min.insync.replicas or than replicas, replicas that have lost their log, whose log is offline
    or has a corrupt batch, and failed log dirs.
    """

    async def work(cluster: "Cluster") -> int:
        from ottla.cli.cluster.broker_states import BrokerState, probe_brokers
        from ottla.cli.cluster.lost_replicas import lost_replica_troubles
        from ottla.client.admin.log_troubles import log_troubles

        view = await cluster.refresh()
        minimums = await _minimums(cluster, view)
        probes = await probe_brokers(cluster, view)
        troubles = list(_troubles(view, minimums, probes))
        troubles += await lost_replica_troubles(cluster, view)
        online = [broker for broker, probe in probes.items() if probe.state is BrokerState.ONLINE]
        troubles += map(str, await log_troubles(cluster, view, online))
        if as_json:
            print_json({"healthy": not troubles, "troubles": troubles})
        else:
            tell(*(troubles or [f"healthy: {_counts(view)}"]))
        return ExitStatus.REFUSED if troubles else ExitStatus.DONE

    run_with_cluster(bootstrap, profile, work)


async def _minimums(cluster: "Cluster", view: "ClusterView") -> dict[str, int]:
    """min.insync.replicas of the topics with partitions that are not fully in sync."""
    from ottla.client.admin.config_requests import Resource, ResourceType, describe_configs

    found: dict[str, int] = {}
    for name, topic in sorted(view.topics.items()):
        if any(len(each.isr) < len(each.replicas) for each in topic.partitions):
            resource = Resource(type=ResourceType.TOPIC, name=name)
            (entry,) = await describe_configs(cluster, resource, ["min.insync.replicas"], of_any=True)
            found[name] = int(entry.value or 1)
    return found


def _troubles(view: "ClusterView", minimums: dict[str, int], probes: "Mapping[int, BrokerProbe]") -> Iterator[str]:
    if view.controller is None:
        yield "no controller: topics cannot be changed and leaders cannot be elected"
    for broker, probe in probes.items():
        yield from _broker_troubles(view, broker, probe)
    for name in sorted(view.topics):
        for each in view.topics[name].partitions:
            if each.leader is None:
                yield f"partition {name}-{each.index} has no leader: it can be neither read nor written"
            elif len(each.isr) < (needed := effective_min_isr(minimums.get(name, 1), len(each.replicas))):
                in_sync = human_count(len(each.isr), "in-sync replica")
                yield (
                    f"partition {name}-{each.index} refuses writes with acks=all: {in_sync}, "
                    f"min.insync.replicas requires {needed}"
                )
            elif len(each.isr) < len(each.replicas):
                yield (
                    f"partition {name}-{each.index} is under-replicated: "
                    f"{len(each.isr)} of {len(each.replicas)} replicas in sync"
                )


def _broker_troubles(view: "ClusterView", broker: int, probe: "BrokerProbe") -> Iterator[str]:
    from ottla.cli.cluster.broker_states import BrokerState

    found = _broker_document(view, broker, probe)
    role = ", the controller," if found["controller"] else ""
    held = human_count(found["replicas"], "partition")
    if probe.state is BrokerState.SILENT:
        yield f"broker {broker} at {found['address']}{role} does not answer; it has replicas of {held}"
    elif probe.state is BrokerState.MISSING:
        yield f"broker {broker} is missing: it has replicas of {held}, but is not registered in the cluster"
    for log_dir in probe.log_dirs:
        if log_dir.error_code:
            yield f"log dir {log_dir.path} of broker {broker} has failed: {log_dir.error_code.name}"


def _counts(view: "ClusterView") -> str:
    return f"{human_count(len(view.brokers), 'broker')}, {human_count(len(view.topics), 'topic')}"


def _broker_document(view: "ClusterView", broker: int, probe: "BrokerProbe") -> dict[str, Any]:
    found = view.brokers.get(broker)
    held = [each for topic in view.topics.values() for each in topic.partitions if broker in each.replicas]
    return {
        "id": broker,
        "address": None if found is None else str(found.address),
        "rack": None if found is None else found.rack,
        "state": probe.state.value,
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


def _description(view: "ClusterView", probes: "Mapping[int, BrokerProbe]") -> dict[str, Any]:
    return {
        "cluster_id": view.cluster_id,
        "controller": view.controller,
        "brokers": [
            {
                "id": each,
                "host": view.brokers[each].address.host if each in view.brokers else None,
                "port": view.brokers[each].address.port if each in view.brokers else None,
                **{name: document[name] for name in ("rack", "leads", "state")},
            }
            for each, probe in probes.items()
            for document in [_broker_document(view, each, probe)]
        ],
        "topics": len(view.topics),
        "partitions": sum(len(topic.partitions) for topic in view.topics.values()),
        "log_dirs": [log_dir_document(each) for probe in probes.values() for each in probe.log_dirs],
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
