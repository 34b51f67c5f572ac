"""`ottla cluster`: who is in the cluster, what it holds, and whether it is well."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ottla.cli.options import BOOTSTRAP_DEFAULT, AsJson, Bootstrap
from ottla.cli.output import human_bytes, human_count, print_facts, print_json, print_table
from ottla.cli.running import ExitStatus, application, examples, run_with_cluster

if TYPE_CHECKING:
    from ottla.client.admin_requests import LogDir
    from ottla.client.cluster import Cluster
    from ottla.client.cluster_view import ClusterView

app = application("Describe the cluster, and say whether it is well.")


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


@app.command("health", epilog=examples("ottla cluster health || echo 'look at it'"))
def health(bootstrap: Bootstrap = BOOTSTRAP_DEFAULT, as_json: AsJson = False) -> None:
    """Say what is wrong: no controller, partitions without leader or in-sync replicas, failed log dirs.

    Ends with 0 if nothing is, with 1 otherwise.
    """

    async def work(cluster: "Cluster") -> int:
        view = await cluster.refresh()
        troubles = list(_troubles(view, await _log_dirs(cluster, view)))
        if as_json:
            print_json({"healthy": not troubles, "troubles": troubles})
        else:
            print("\n".join(troubles) or f"well: {_counts(view)}")
        return ExitStatus.REFUSED if troubles else ExitStatus.DONE

    run_with_cluster(bootstrap, work)


async def _log_dirs(cluster: "Cluster", view: "ClusterView") -> "list[LogDir]":
    from ottla.client.admin_requests import describe_log_dirs

    return [each for broker in sorted(view.brokers) for each in await describe_log_dirs(cluster, broker)]


def _troubles(view: "ClusterView", dirs: "list[LogDir]") -> Iterator[str]:
    if view.controller is None:
        yield "there is no controller: topics cannot be changed and leaders cannot be elected"
    for name in sorted(view.topics):
        for each in view.topics[name].partitions:
            if each.leader is None:
                yield f"{name}-{each.index} has no leader: it can be neither read nor written"
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
