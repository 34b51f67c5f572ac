"""`ottla cluster reassign`: moves replicas between brokers. A plan is generated, executed, verified or cancelled.

What a plan looks like and how it is made is in `cluster_plan.py`.
"""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from ottla.cli.cluster.plan import PlanError, plan_moves, read_plan, write_plan
from ottla.cli.cluster.throttle import clear_throttle, set_throttle
from ottla.cli.confirmation import confirm
from ottla.cli.options import AsJson, AssumeYes, Bootstrap, Profile, parse_size
from ottla.cli.output import human_bytes, human_count, json_line, print_json, print_table, say, tell
from ottla.cli.running import ExitStatus, application, examples, guarded, run_with_cluster
from ottla.model.ids import TopicPartition

if TYPE_CHECKING:
    from ottla.client.admin.partition_moves import PartitionReassignment
    from ottla.client.network.cluster import Cluster
    from ottla.client.network.cluster_view import ClusterView

app = application("Move replicas between brokers.")

_TIMEOUT_MS: Final = 60_000
_WATCH_SECONDS: Final = 1.0

PlanFile = Annotated[Path, typer.Argument(metavar="FILE", help="Plan; - for stdin.", show_default=False)]
PlanFileOrAll = Annotated[
    Path | None, typer.Argument(metavar="FILE", help="Plan; without one, all moves.", show_default=False)
]


class Progress(NamedTuple):
    """How far moves have come."""

    moving: dict[TopicPartition, "PartitionReassignment"]
    bytes_left: int
    bytes_copied: int
    """What those replicas have that are still to come."""


@app.command(
    "generate",
    epilog=examples(
        "ottla cluster reassign generate --brokers 0,1,2,3 > plan.json",
        "ottla cluster reassign generate --brokers 0,1,2 --topic events --replication-factor 3",
    ),
)
def generate(
    brokers: Annotated[str, typer.Option("--brokers", metavar="ID,...", help="Brokers that get the replicas.")],
    topic: Annotated[
        list[str] | None, typer.Option("--topic", metavar="TOPIC", help="Only this topic; may be repeated.")
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            "--replication-factor", metavar="N", min=1, help="Replicas of each partition.", show_default="unchanged"
        ),
    ] = None,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
) -> None:
    """Print a plan that spreads replicas and leaders evenly over brokers and moves as little as possible.

    The plan holds only the partitions that change. Nothing is moved yet.
    """
    ids = _ids(brokers)

    async def work(cluster: "Cluster") -> None:
        view = await cluster.refresh()
        unknown = sorted(set(ids) - view.brokers.keys())
        if unknown:
            raise PlanError(
                f"the cluster has no broker {', '.join(map(str, unknown))}; `ottla cluster brokers` lists them"
            )
        for name in topic or ():
            if name not in view.topics:
                raise PlanError(f"topic {name} does not exist")
        present = _replicas(view, topic)
        plan = plan_moves(present, {each: view.brokers[each].rack for each in ids}, replication_factor)
        print(write_plan(plan))
        new = sum(len(set(replicas) - set(present[each])) for each, replicas in plan.items())
        say(f"{human_count(len(plan), 'partition')} would change, {human_count(new, 'replica')} would be copied")

    run_with_cluster(bootstrap, profile, work)


@app.command(
    "execute",
    epilog=examples("ottla cluster reassign execute plan.json", "ottla cluster reassign execute p.json --throttle 50m"),
)
def execute(
    plan_file: PlanFile,
    throttle: Annotated[
        str | None,
        typer.Option("--throttle", metavar="BYTES", help="How much each broker may copy per second, such as 50m."),
    ] = None,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
) -> None:
    """Start moving replicas according to a plan; clients are not interrupted.

    The present replicas are printed to stderr, as a plan that undoes the move. A throttle stays until `verify` finds
    the plan completed or `cancel` stops it; executing the plan again changes the throttle.
    """
    plan = _read(plan_file)
    rate = None if throttle is None else parse_size(throttle, "--throttle")

    async def work(cluster: "Cluster") -> int:
        from ottla.client.admin.partition_moves import alter_reassignments, list_reassignments

        present = _replicas(await cluster.refresh(), None)
        before = {each: present[each] for each in plan if each in present}
        if rate is not None:
            moving = await list_reassignments(cluster, plan, timeout_ms=_TIMEOUT_MS)
            gone = {each: tuple(set(move.replicas) - set(move.adding_replicas)) for each, move in moving.items()}
            await set_throttle(cluster, {**before, **gone}, plan, rate)
        refused = await alter_reassignments(cluster, plan, timeout_ms=_TIMEOUT_MS)
        for error in refused.values():
            say(f"ottla: {error}")
        say(f"before: {write_plan(before)}")
        started = human_count(len(plan) - len(refused), "move")
        tell(f"started {started}; `ottla cluster reassign verify` shows the progress")
        return ExitStatus.REFUSED if refused else ExitStatus.DONE

    run_with_cluster(bootstrap, profile, work)


@app.command("verify", epilog=examples("ottla cluster reassign verify --watch", "ottla cluster reassign verify p.json"))
def verify(
    plan_file: PlanFileOrAll = None,
    watch: Annotated[bool, typer.Option("--watch", help="Show the progress every second until it is done.")] = False,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Show the moves in progress and how much is left to copy; with a plan, also whether it is completed.

    The exit status is 0 if nothing is left to do, else 1.
    """
    plan = None if plan_file is None else _read(plan_file)

    async def work(cluster: "Cluster") -> int:
        import asyncio
        import time

        now, before = time.monotonic(), await _progress(cluster, plan)
        while watch and before.moving:
            await asyncio.sleep(_WATCH_SECONDS)
            progress = await _progress(cluster, plan)
            seconds, now = time.monotonic() - now, time.monotonic()
            rate = max(progress.bytes_copied - before.bytes_copied, 0) / seconds
            if len(progress.moving) == len(before.moving):
                _tell(progress, rate, as_json)
            before = progress
        pending = _not_there(await cluster.refresh(), plan, before)
        if plan is not None and not before.moving and not pending:
            await _clear_throttle(cluster, plan)
        if as_json:
            print_json({**_document(before), "pending": [str(each) for each in pending]})
        else:
            _print_state(before, pending)
        return ExitStatus.REFUSED if before.moving or pending else ExitStatus.DONE

    run_with_cluster(bootstrap, profile, work)


@app.command("cancel", epilog=examples("ottla cluster reassign cancel --yes"))
def cancel(
    plan_file: PlanFileOrAll = None, yes: AssumeYes = False, bootstrap: Bootstrap = None, profile: Profile = None
) -> None:
    """Cancel moves in progress: replicas stay where they were, and copied data is removed."""
    plan = None if plan_file is None else _read(plan_file)

    async def work(cluster: "Cluster") -> int:
        from ottla.client.admin.partition_moves import alter_reassignments, list_reassignments

        moving = await list_reassignments(cluster, plan, timeout_ms=_TIMEOUT_MS)
        if not moving:
            tell("no moves in progress")
            return ExitStatus.DONE
        if not yes:
            confirm(f"cancel {human_count(len(moving), 'move')}?")
        refused = await alter_reassignments(cluster, dict.fromkeys(moving), timeout_ms=_TIMEOUT_MS)
        for error in refused.values():
            say(f"ottla: {error}")
        tell(f"cancelled {human_count(len(moving) - len(refused), 'move')}")
        if not refused:
            await _clear_throttle(cluster, moving)
        return ExitStatus.REFUSED if refused else ExitStatus.DONE

    run_with_cluster(bootstrap, profile, work)


async def _clear_throttle(cluster: "Cluster", moved: Iterable[TopicPartition]) -> None:
    if await clear_throttle(cluster, sorted({each.topic for each in moved})):
        say("removed the throttle")


def _ids(text: str) -> list[int]:
    words = [each.strip() for each in text.split(",")]
    if not all(each.isascii() and each.isdigit() for each in words):
        raise typer.BadParameter(f"{text!r} is not a list of broker ids such as 0,1,2", param_hint="--brokers")
    return list(dict.fromkeys(map(int, words)))


def _read(path: Path) -> dict[TopicPartition, tuple[int, ...]]:
    with guarded():
        return read_plan(sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes())


def _replicas(view: "ClusterView", topics: list[str] | None) -> dict[TopicPartition, tuple[int, ...]]:
    return {
        TopicPartition(name, each.index): each.replicas
        for name, topic in view.topics.items()
        if not topics or name in topics
        for each in topic.partitions
    }


async def _progress(cluster: "Cluster", plan: dict[TopicPartition, tuple[int, ...]] | None) -> Progress:
    from ottla.client.admin.partition_moves import list_reassignments
    from ottla.client.admin.topic_requests import describe_log_dirs, partition_sizes

    moving = await list_reassignments(cluster, plan, timeout_ms=_TIMEOUT_MS)
    view = await cluster.refresh()
    sizes = await partition_sizes(cluster, list(moving))
    coming: dict[int, list[TopicPartition]] = {}
    for partition, move in moving.items():
        for broker in move.adding_replicas:
            if broker in view.brokers:
                coming.setdefault(broker, []).append(partition)
    copied = left = 0
    for broker, partitions in coming.items():
        dirs = await describe_log_dirs(cluster, broker, partitions)
        there = {each.partition: each.size_bytes for log_dir in dirs for each in log_dir.partitions}
        for partition in partitions:
            copied += there.get(partition, 0)
            left += max(sizes.get(partition, 0) - there.get(partition, 0), 0)
    return Progress(moving, left, copied)


def _not_there(
    view: "ClusterView", plan: dict[TopicPartition, tuple[int, ...]] | None, progress: Progress
) -> list[TopicPartition]:
    """What is neither as the plan says nor on the way."""
    present = _replicas(view, None)
    return [
        each for each, wanted in (plan or {}).items() if each not in progress.moving and present.get(each) != wanted
    ]


def _tell(progress: Progress, rate: float, as_json: bool) -> None:
    if as_json:
        line = {**_document(progress), "bytes_per_second": round(rate)}
        sys.stdout.buffer.write(json_line(line))
        sys.stdout.flush()
    elif progress.moving:
        count = human_count(len(progress.moving), "move")
        tell(f"{count} in progress, {human_bytes(progress.bytes_left)} left, {human_bytes(rate)}/s")
        sys.stdout.flush()


def _document(progress: Progress) -> dict[str, Any]:
    return {
        "moving": [
            {
                "topic": each.topic,
                "partition": each.partition,
                "replicas": move.replicas,
                "adding": move.adding_replicas,
                "removing": move.removing_replicas,
            }
            for each, move in progress.moving.items()
        ],
        "bytes_left": progress.bytes_left,
    }


def _print_state(progress: Progress, pending: list[TopicPartition]) -> None:
    if progress.moving:
        rows = [
            (str(each), _spell(move.replicas), _spell(move.adding_replicas), _spell(move.removing_replicas))
            for each, move in progress.moving.items()
        ]
        print_table(("partition", "replicas", "adding", "removing"), rows)
        tell(f"{human_bytes(progress.bytes_left)} left to copy")
    for each in pending:
        tell(f"{each} differs from the plan and is not being moved")
    if not progress.moving and not pending:
        tell("done: no moves in progress")


def _spell(brokers: tuple[int, ...]) -> str:
    return ",".join(map(str, brokers))
