"""`ottla cluster reassign`: moves replicas between brokers. A plan is generated, executed, verified or cancelled.

`ottla.operations.reassignment` makes, reads and executes plans.
"""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ottla.cli.command_runner import ExitStatus, application, examples, guarded, run_with_cluster
from ottla.cli.confirmation import confirm
from ottla.cli.options import AsJson, AssumeYes, Bootstrap, Profile, parse_size
from ottla.cli.output import (
    clear_line,
    human_bytes,
    human_count,
    json_line,
    print_json,
    print_table,
    say,
    say_errors,
    tell,
)
from ottla.cli.topic_choices import partition_outcome
from ottla.model.ids import TopicPartition
from ottla.operations.reassignment.plan import PlanError, plan_document, plan_moves, read_plan, write_plan

if TYPE_CHECKING:
    from ottla.client.network.cluster import Cluster
    from ottla.operations.reassignment.progress import Progress

app = application("Move replicas between brokers.")

_WATCH_SECONDS: Final = 1.0

PlanFile = Annotated[Path, typer.Argument(metavar="FILE", help="Plan; - for stdin.", show_default=False)]
PlanFileOrAll = Annotated[
    Path | None, typer.Argument(metavar="FILE", help="Plan; without one, all moves.", show_default=False)
]


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
        from ottla.operations.reassignment.progress import placement_of

        view = await cluster.refresh()
        unknown = sorted(set(ids) - view.brokers.keys())
        if unknown:
            raise PlanError(
                f"the cluster has no broker {', '.join(map(str, unknown))}; `ottla cluster brokers` lists them"
            )
        for name in topic or ():
            if name not in view.topics:
                raise PlanError(f"topic {name} does not exist")
        present = placement_of(view, topic or None)
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
        typer.Option("--throttle", metavar="BYTES", help="Bytes that each broker may copy per second, such as 50m."),
    ] = None,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Start moving replicas according to a plan; clients are not interrupted.

    The present replicas are printed to stderr (with --json, as `before`), as a plan that undoes the move. A throttle
    stays until `verify` finds the plan completed or `cancel` stops it; executing the plan again changes the throttle.
    """
    plan = _read(plan_file)
    rate = None if throttle is None else parse_size(throttle, "--throttle")

    async def work(cluster: "Cluster") -> int:
        from ottla.operations.reassignment.execution import start_moves

        before, refused = await start_moves(cluster, plan, rate)
        say_errors(refused.values())
        if as_json:
            moves = [partition_outcome(each, refused) | {"replicas": plan[each]} for each in sorted(plan)]
            print_json({"moves": moves, "before": plan_document(before)})
        else:
            say(f"before: {write_plan(before)}")
            if len(refused) < len(plan):
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

        from ottla.operations.reassignment.progress import not_there, progress_of

        now, before = time.monotonic(), await progress_of(cluster, plan)
        while watch and before.moving:
            await asyncio.sleep(_WATCH_SECONDS)
            progress = await progress_of(cluster, plan)
            seconds, now = time.monotonic() - now, time.monotonic()
            rate = max(progress.bytes_copied - before.bytes_copied, 0) / seconds
            if len(progress.moving) == len(before.moving):
                _print_progress(progress, rate, as_json)
            before = progress
        pending = not_there(await cluster.refresh(), plan or {}, before)
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
    plan_file: PlanFileOrAll = None,
    yes: AssumeYes = False,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Cancel moves in progress: replicas stay where they were, and copied data is removed."""
    plan = None if plan_file is None else _read(plan_file)

    async def work(cluster: "Cluster") -> int:
        from ottla.client.admin.replica_requests import list_reassignments
        from ottla.operations.reassignment.execution import cancel_moves
        from ottla.operations.reassignment.progress import TIMEOUT_MS

        moving = await list_reassignments(cluster, plan, timeout_ms=TIMEOUT_MS)
        if not moving:
            print_json([]) if as_json else tell("no moves in progress")
            return ExitStatus.DONE
        confirm(f"cancel {human_count(len(moving), 'move')}?", yes=yes)
        refused = await cancel_moves(cluster, moving)
        say_errors(refused.values())
        if as_json:
            print_json([partition_outcome(each, refused) for each in sorted(moving)])
        elif len(refused) < len(moving):
            tell(f"cancelled {human_count(len(moving) - len(refused), 'move')}")
        if not refused:
            await _clear_throttle(cluster, moving)
        return ExitStatus.REFUSED if refused else ExitStatus.DONE

    run_with_cluster(bootstrap, profile, work)


async def _clear_throttle(cluster: "Cluster", moved: Iterable[TopicPartition]) -> None:
    from ottla.operations.reassignment.execution import clear_throttle_of

    if await clear_throttle_of(cluster, moved):
        say("removed the throttle")


def _ids(text: str) -> list[int]:
    words = [each.strip() for each in text.split(",")]
    if not all(each.isascii() and each.isdigit() for each in words):
        raise typer.BadParameter(f"{text!r} is not a list of broker ids such as 0,1,2", param_hint="--brokers")
    return list(dict.fromkeys(map(int, words)))


def _read(path: Path) -> dict[TopicPartition, tuple[int, ...]]:
    with guarded():
        return read_plan(sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes())


def _print_progress(progress: "Progress", rate: float, as_json: bool) -> None:
    if as_json:
        line = {**_document(progress), "bytes_per_second": round(rate)}
        clear_line()
        sys.stdout.buffer.write(json_line(line))
        sys.stdout.flush()
    elif progress.moving:
        count = human_count(len(progress.moving), "move")
        tell(f"{count} in progress, {human_bytes(progress.bytes_left)} left, {human_bytes(rate)}/s")
        sys.stdout.flush()


def _document(progress: "Progress") -> dict[str, Any]:
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


def _print_state(progress: "Progress", pending: list[TopicPartition]) -> None:
    if progress.moving:
        rows = [
            (str(each), _ids_text(move.replicas), _ids_text(move.adding_replicas), _ids_text(move.removing_replicas))
            for each, move in progress.moving.items()
        ]
        print_table(("partition", "replicas", "adding", "removing"), rows)
        tell(f"{human_bytes(progress.bytes_left)} left to copy")
    for each in pending:
        tell(f"{each} differs from the plan and is not being moved")
    if not progress.moving and not pending:
        tell("done: no moves in progress")


def _ids_text(brokers: tuple[int, ...]) -> str:
    return ",".join(map(str, brokers))
