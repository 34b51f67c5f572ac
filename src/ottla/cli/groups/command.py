"""`ottla groups`: lists and describes consumer groups, and resets or deletes their committed offsets."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ottla.cli.confirmation import confirm
from ottla.cli.durations import parse_duration
from ottla.cli.options import AsJson, AssumeYes, Bootstrap, Profile, parse_choices
from ottla.cli.output import MISSING, human_count, print_json, print_table, say, tell
from ottla.cli.progress import Progress
from ottla.cli.running import ExitStatus, application, examples, guarded, run_with_cluster
from ottla.cli.topic_choices import Topics, parse_topic_choice

if TYPE_CHECKING:
    from ottla.cli.groups.offset_resets import PlannedReset, Target
    from ottla.client.admin.group_offsets import CommittedOffset
    from ottla.client.admin.group_requests import GroupDescription
    from ottla.client.errors import AnswerError
    from ottla.client.network.cluster import Cluster
    from ottla.model.ids import TopicPartition

app = application("List and describe consumer groups and their lag; reset and delete their offsets.")

STATES: Final = (
    "Stable",
    "Empty",
    "PreparingRebalance",
    "CompletingRebalance",
    "Assigning",
    "Reconciling",
    "Dead",
)
TYPES: Final = ("classic", "consumer", "share", "streams")
_DESCRIBED_TYPES: Final = ("classic", "consumer")

GroupName = Annotated[str, typer.Argument(metavar="GROUP", help="Name of the group.", show_default=False)]


@app.command("list", epilog=examples("ottla groups list", "ottla groups list --state stable --type consumer"))
def list_groups(
    state: Annotated[
        list[str] | None,
        typer.Option(
            "--state", metavar="STATE,...", help=f"Only groups in these states: {', '.join(STATES)}; may be repeated."
        ),
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option("--type", metavar="classic|consumer", help="Only groups of this protocol; may be repeated."),
    ] = None,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """List the groups with their state, type and coordinator."""
    states = parse_choices(state, STATES, "--state")
    types = parse_choices(kind, TYPES, "--type")

    async def work(cluster: "Cluster") -> None:
        from ottla.client.admin.group_requests import list_groups

        found = await list_groups(cluster, states=states, types=types)
        if as_json:
            print_json(
                [
                    {
                        "group": each.group_id,
                        "state": each.state,
                        "type": each.type,
                        "protocol_type": each.protocol_type,
                        "coordinator": each.coordinator,
                    }
                    for each in found
                ]
            )
        else:
            rows = [
                (each.group_id, each.state, each.type, each.protocol_type or MISSING, each.coordinator)
                for each in found
            ]
            print_table(("group", "state", "type", "protocol", "coordinator"), rows)

    run_with_cluster(bootstrap, profile, work)


@app.command(
    "describe",
    epilog=examples(
        "ottla groups describe billing",
        "ottla groups describe billing --members",
        "ottla groups describe --all --json | jq '.[] | {group, lag}'",
    ),
)
def describe(
    group: Annotated[str | None, typer.Argument(metavar="GROUP", help="Name of the group.", show_default=False)] = None,
    every: Annotated[bool, typer.Option("--all", help="Describe all groups.")] = False,
    offsets: Annotated[bool, typer.Option("--offsets", help="Show offsets and lag (the default).")] = False,
    members: Annotated[bool, typer.Option("--members", help="Show the members and their partitions.")] = False,
    state: Annotated[bool, typer.Option("--state", help="Show only the state of the group.")] = False,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Show a group: its state and, for each partition, committed offset, end offset, lag and member.

    With --all and --json, prints a list of groups.
    """
    if (group is None) is not every:
        raise typer.BadParameter("pass either GROUP or --all")

    async def work(cluster: "Cluster") -> None:
        from ottla.cli.groups.views import Views, end_offsets, group_document, idle_words, print_group, progress_of

        none_chosen = not (offsets or members or state)
        views = Views(members=members or (as_json and none_chosen), offsets=offsets or none_chosen)
        found = await _described(cluster, group, with_offsets=views.offsets)
        asked = {partition for each, committed in found for partition in (*committed, *_assigned(each))}
        ends = await end_offsets(cluster, asked) if views.offsets and asked else {}
        shown = [(each, progress_of(each, committed, ends)) for each, committed in found]
        if as_json:
            documents = [group_document(each, progress, views) for each, progress in shown]
            print_json(documents if every else documents[0])
            return
        for at, (each, progress) in enumerate(shown):
            if at:
                tell("", "")
            print_group(each, progress, views)
            words = idle_words(each)
            if words is not None and not every:
                say(words)

    run_with_cluster(bootstrap, profile, work)


@app.command(
    "reset-offsets",
    epilog=examples(
        "ottla groups reset-offsets billing --topic events --to-earliest",
        "ottla groups reset-offsets billing --topic events:0,2 --shift-by -100 --execute",
        "ottla groups reset-offsets billing --all-topics --to-datetime 2024-05-01T12:00:00Z --execute",
        "ottla groups reset-offsets billing --all-topics --to-current --export > offsets.csv",
        "ottla groups reset-offsets billing --from-file offsets.csv --execute",
    ),
)
def reset_offsets(
    group: GroupName,
    topic: Topics = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="All topics that the group has committed offsets for.")
    ] = False,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the first offset of each partition.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="To the end of each partition.")] = False,
    to_current: Annotated[
        bool, typer.Option("--to-current", help="To the committed offset; to the end if there is none.")
    ] = False,
    to_offset: Annotated[
        int | None, typer.Option("--to-offset", metavar="OFFSET", help="To this offset.", min=0)
    ] = None,
    shift_by: Annotated[
        int | None, typer.Option("--shift-by", metavar="N", help="Forward by N offsets, or back if negative.")
    ] = None,
    to_datetime: Annotated[
        str | None,
        typer.Option(
            "--to-datetime",
            metavar="TIME",
            help="To the first record at or after an ISO 8601 time; UTC without a zone.",
        ),
    ] = None,
    by_duration: Annotated[
        str | None,
        typer.Option("--by-duration", metavar="DURATION", help="To the first record of the last 90m, 2d or PT1H30M."),
    ] = None,
    from_file: Annotated[
        str | None,
        typer.Option(
            "--from-file", metavar="FILE", help="To the offsets in lines of topic,partition,offset; - for stdin."
        ),
    ] = None,
    execute: Annotated[
        bool, typer.Option("--execute", help="Reset the offsets; without it, the plan is only shown.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the plan (the default).")] = False,
    export: Annotated[bool, typer.Option("--export", help="Print the plan as CSV, for --from-file.")] = False,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Reset the committed offsets of a group that has no members. Shows the plan; --execute carries it out.

    An offset beyond the bounds of a partition becomes the nearest bound. A group that does not exist is created.
    """
    if execute and dry_run:
        raise typer.BadParameter("pass either --execute or --dry-run")
    scopes = [bool(topic), all_topics, from_file is not None]
    if sum(scopes) != 1:
        raise typer.BadParameter("pass one of --topic TOPIC, --all-topics and --from-file FILE")
    wishes = {
        "to_earliest": to_earliest,
        "to_latest": to_latest,
        "to_current": to_current,
        "to_offset": to_offset,
        "shift_by": shift_by,
        "to_datetime": to_datetime,
        "by_duration": by_duration,
        "from_file": from_file,
    }
    with guarded():
        for choice in topic or ():
            parse_topic_choice(choice)
        target = _target({name: value for name, value in wishes.items() if value not in (None, False)}, group)

    async def work(cluster: "Cluster") -> int:
        from ottla.cli.groups.reset import carry_out, plan_resets, refuse_group_in_use

        is_known = await refuse_group_in_use(cluster, group)
        plan = await plan_resets(cluster, group, target, topic or [], all_topics=all_topics)
        refused = await carry_out(cluster, group, plan) if execute else {}
        _print_resets(group, plan, refused, executed=execute, export=export, as_json=as_json)
        if not is_known:
            say(f"group {group} {'did not exist; it was created' if execute else 'does not exist; a reset creates it'}")
        if not execute:
            say("nothing was changed; pass --execute to reset the offsets")
        return ExitStatus.REFUSED if refused else ExitStatus.DONE

    run_with_cluster(bootstrap, profile, work)


@app.command("delete", epilog=examples("ottla groups delete billing --yes"))
def delete(
    groups: Annotated[list[str], typer.Argument(metavar="GROUP", help="Names of groups.", show_default=False)],
    yes: AssumeYes = False,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Succeed if a group does not exist.")] = False,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Delete groups without members, and their committed offsets."""
    if not yes:
        confirm(f"delete {', '.join(groups)} and all committed offsets?")

    async def work(cluster: "Cluster") -> int:
        from ottla.client.admin.group_requests import delete_group
        from ottla.client.errors import AnswerError
        from ottla.model.error_codes import ErrorCode

        outcomes: dict[str, str] = {}
        failed = False
        for group in groups:
            try:
                await delete_group(cluster, group)
                outcomes[group] = "deleted"
            except AnswerError as error:
                if error.error_code is ErrorCode.GROUP_ID_NOT_FOUND and if_exists:
                    outcomes[group] = "does not exist"
                    continue
                outcomes[group] = error.error_code.name.lower()
                failed = True
                say(f"ottla: {error}")
        if as_json:
            print_json(outcomes)
        else:
            tell(*(f"{group}: {outcome}" for group, outcome in outcomes.items()))
        return ExitStatus.REFUSED if failed else ExitStatus.DONE

    run_with_cluster(bootstrap, profile, work)


@app.command(
    "delete-offsets",
    epilog=examples(
        "ottla groups delete-offsets billing --topic events",
        "ottla groups delete-offsets billing --topic events:3 --yes",
    ),
)
def delete_offsets(
    group: GroupName,
    topic: Topics = None,
    yes: AssumeYes = False,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Delete the committed offsets of a group in topics that no member reads."""
    if not topic:
        raise typer.BadParameter("pass --topic TOPIC")
    with guarded():
        for choice in topic:
            parse_topic_choice(choice)
    if not yes:
        confirm(f"delete the committed offsets of group {group} in {', '.join(topic)}?")

    async def work(cluster: "Cluster") -> int:
        from ottla.cli.topic_choices import chosen_partitions
        from ottla.client.admin import group_offsets

        partitions = await chosen_partitions(cluster, topic)
        refused = await group_offsets.delete_offsets(cluster, group, partitions)
        if as_json:
            print_json([_partition_document(each) | _outcome_document(refused.get(each)) for each in partitions])
        else:
            _tell(refused)
            if len(refused) < len(partitions):
                tell(f"{group}: deleted the offsets of {human_count(len(partitions) - len(refused), 'partition')}")
        return ExitStatus.REFUSED if refused else ExitStatus.DONE

    run_with_cluster(bootstrap, profile, work)


async def _described(
    cluster: "Cluster", name: str | None, *, with_offsets: bool
) -> "list[tuple[GroupDescription, dict[TopicPartition, CommittedOffset]]]":
    """One group, or all that can be described, with their committed offsets if they are wanted."""
    from ottla.client.admin.group_offsets import committed_offsets
    from ottla.client.admin.group_requests import describe_group, list_groups
    from ottla.client.errors import AnswerError
    from ottla.model.error_codes import ErrorCode

    names = (
        [name] if name is not None else [each.group_id for each in await list_groups(cluster, types=_DESCRIBED_TYPES)]
    )
    found: list[tuple[GroupDescription, dict[TopicPartition, CommittedOffset]]] = []
    progress = Progress()
    for group_id in names:
        progress.tick(lambda: f"{len(found):,} of {human_count(len(names), 'group')} described")
        try:
            description = await describe_group(cluster, group_id)
        except AnswerError as error:
            # Among all groups, one that was deleted in the meantime is not an error.
            if name is not None or error.error_code is not ErrorCode.GROUP_ID_NOT_FOUND:
                progress.end()
                raise
            continue
        found.append((description, await committed_offsets(cluster, group_id) if with_offsets else {}))
    progress.end()
    return found


def _assigned(group: "GroupDescription") -> "list[TopicPartition]":
    return [partition for member in group.members for partition in member.assignment or ()]


def _target(wishes: dict[str, Any], group: str) -> "Target":
    """The one target that was given."""
    import time

    from ottla.cli.groups import offset_resets as resets

    names = ["--" + name.replace("_", "-") for name in wishes]
    if len(names) != 1:
        given = "" if not names else f", not {' and '.join(names)} together"
        raise typer.BadParameter(
            "pass one of --to-earliest, --to-latest, --to-current, --to-offset, --shift-by, --to-datetime, "
            f"--by-duration and --from-file{given}"
        )
    ((name, value),) = wishes.items()
    match name:
        case "to_earliest":
            return resets.ToEarliest()
        case "to_latest":
            return resets.ToLatest()
        case "to_current":
            return resets.ToCurrent()
        case "to_offset":
            return resets.ToOffset(value)
        case "shift_by":
            return resets.ShiftBy(value)
        case "to_datetime":
            return resets.parse_datetime(value)
        case "by_duration":
            return resets.ToTime(time.time_ns() // 1_000_000 - parse_duration(value))
        case _:
            text = sys.stdin.read() if value == "-" else Path(value).read_text()
            return resets.parse_listed(text.splitlines(), "stdin" if value == "-" else value, group)


def _print_resets(
    group: str,
    plan: "list[PlannedReset]",
    refused: "dict[TopicPartition, AnswerError]",
    *,
    executed: bool,
    export: bool,
    as_json: bool,
) -> None:
    if as_json:
        documents = [
            _partition_document(each.partition)
            | {"current_offset": each.current, "new_offset": each.new, "note": each.note or None}
            | _outcome_document(refused.get(each.partition))
            for each in plan
        ]
        print_json({"group": group, "executed": executed, "partitions": documents})
        return
    _tell(refused)
    if export:
        tell(*(f"{each.partition.topic},{each.partition.partition},{each.new}" for each in plan))
        return
    rows = [
        (
            each.partition.topic,
            each.partition.partition,
            MISSING if each.current is None else each.current,
            each.new,
            refused[each.partition].error_code.name.lower() if each.partition in refused else each.note,
        )
        for each in plan
    ]
    print_table(("topic", "partition", "current", "new", "note"), rows)


def _tell(refused: "dict[TopicPartition, AnswerError]") -> None:
    for error in refused.values():
        say(f"ottla: {error}")


def _partition_document(partition: "TopicPartition") -> dict[str, Any]:
    return {"topic": partition.topic, "partition": partition.partition}


def _outcome_document(error: "AnswerError | None") -> dict[str, Any]:
    return {"error": None if error is None else error.error_code.name}
