"""`ottla cluster`: describes the cluster and its brokers, checks its health, and elects leaders.

`reassign.py` moves replicas; `features.py` changes features. `ottla.client.admin.broker_states` finds out which brokers
answer, `ottla.client.admin.cluster_problems` what is wrong.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ottla.cli.cluster.features import EPILOG as FEATURES_EPILOG
from ottla.cli.cluster.features import features
from ottla.cli.cluster.reassign import app as reassign_app
from ottla.cli.command_runner import ExitStatus, application, examples, run_with_cluster
from ottla.cli.confirmation import confirm
from ottla.cli.options import AsJson, AssumeYes, Bootstrap, Profile
from ottla.cli.output import human_bytes, human_count, print_facts, print_json, print_table, say_errors, tell
from ottla.cli.topic_choices import partition_outcome

if TYPE_CHECKING:
    from ottla.client.admin.broker_states import BrokerProbe
    from ottla.client.admin.topic_requests import LogDir
    from ottla.client.network.cluster import Cluster
    from ottla.client.network.cluster_view import ClusterView

app = application("Describe the cluster, check its health, elect leaders, and move replicas.")
app.add_typer(reassign_app, name="reassign")
app.command("features", epilog=FEATURES_EPILOG)(features)

_TIMEOUT_MS: Final = 60_000


@app.command("describe", epilog=examples("ottla cluster describe", "ottla cluster describe --json"))
def describe(bootstrap: Bootstrap = None, profile: Profile = None, as_json: AsJson = False) -> None:
    """Show the cluster: its id, controller, brokers and log dirs, and the number of topics and partitions."""

    async def work(cluster: "Cluster") -> None:
        from ottla.client.admin.broker_states import probe_brokers

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
        from ottla.client.admin.broker_states import probe_brokers

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
    as_json: AsJson = False,
) -> None:
    """Elect the preferred replica (the first in the list) as the leader of partitions, by default of all."""
    if partition is not None and topic is None:
        raise typer.BadParameter("needs --topic", param_hint="--partition")
    if unclean:
        confirm("an unclean election loses the records that the new leader does not have; continue?", yes=yes)

    async def work(cluster: "Cluster") -> int:
        from ottla.client.admin.replica_requests import ElectionType, elect_leaders
        from ottla.model.ids import TopicPartition

        wanted = None
        if topic is not None:
            count = len((await cluster.topic(topic)).partitions)
            wanted = [TopicPartition(topic, each) for each in (range(count) if partition is None else [partition])]
        kind = ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED
        elected, refused = await elect_leaders(cluster, kind, wanted, timeout_ms=_TIMEOUT_MS)
        say_errors(refused.values())
        if as_json:
            print_json([partition_outcome(each, refused) for each in sorted([*elected, *refused])])
        else:
            tell(f"elected the leader of {human_count(len(elected), 'partition')}")
        return ExitStatus.REFUSED if refused else ExitStatus.DONE

    run_with_cluster(bootstrap, profile, work)


@app.command("unregister", epilog=examples("ottla cluster unregister 3"))
def unregister(
    broker: Annotated[int, typer.Argument(metavar="ID", min=0, help="Broker to unregister.", show_default=False)],
    yes: AssumeYes = False,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Unregister a broker that will not come back.

    Removes its dynamic configs and its data dirs from the cluster's metadata. Stop the broker and move its replicas
    to other brokers first.
    """
    confirm(f"unregister broker {broker}?", yes=yes)

    async def work(cluster: "Cluster") -> None:
        from ottla.client.admin.quorum_requests import unregister_broker

        await unregister_broker(cluster, broker)
        if as_json:
            print_json({"broker": broker, "unregistered": True})
        else:
            tell(f"unregistered broker {broker}")

    run_with_cluster(bootstrap, profile, work)


@app.command("health", epilog=examples("ottla cluster health", "ottla cluster health || echo 'needs attention'"))
def health(bootstrap: Bootstrap = None, profile: Profile = None, as_json: AsJson = False) -> None:
    """Check the cluster and list its problems. The exit status is 0 if it is healthy, else 1.

    Problems are: no controller, brokers that do not answer or are missing, partitions without a leader, with fewer
    in-sync replicas than min.insync.replicas or than replicas, replicas that have lost their log, whose log is offline
    or has a corrupt batch, and failed log dirs.
    """

    async def work(cluster: "Cluster") -> int:
        from ottla.client.admin.cluster_problems import find_problems

        view = await cluster.refresh()
        problems = [str(each) for each in await find_problems(cluster, view)]
        if as_json:
            print_json({"healthy": not problems, "problems": problems})
        else:
            healthy = f"healthy: {human_count(len(view.brokers), 'broker')}, {human_count(len(view.topics), 'topic')}"
            tell(*(problems or [healthy]))
        return ExitStatus.REFUSED if problems else ExitStatus.DONE

    run_with_cluster(bootstrap, profile, work)


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
