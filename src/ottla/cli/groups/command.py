"""`ottla groups`: lists and describes groups of all types, and resets or deletes their offsets."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ottla.cli.command_runner import ExitStatus, application, examples, guarded, run_with_cluster
from ottla.cli.confirmation import confirm
from ottla.cli.deletions import delete_each
from ottla.cli.groups import options
from ottla.cli.options import AsJson, AssumeYes, Bootstrap, Profile, UsageError, parse_choices
from ottla.cli.output import MISSING, human_count, print_json, print_list, print_table, say, say_errors, tell
from ottla.cli.progress import Progress
from ottla.cli.topic_choices import Topics, checked_topic_choices, partition_outcome
from ottla.operations.durations import parse_duration

if TYPE_CHECKING:
    from ottla.client.admin.group_requests import GroupDescription
    from ottla.client.errors import AnswerError
    from ottla.client.network.cluster import Cluster
    from ottla.model.ids import TopicPartition
    from ottla.operations.groups.offset_resets import PlannedReset, Target, ToGroup
    from ottla.operations.groups.offsets_by_type import GroupOffsets

app = application("List and describe groups of all types and their lag; reset and delete their offsets.")


@app.command(
    "list",
    epilog=examples(
        "ottla groups list", "ottla groups list --state stable --type consumer", "ottla groups list --type share"
    ),
)
def list_groups(
    state: options.States = None,
    kind: options.Types = None,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """List the groups with their state, type and coordinator."""
    states = parse_choices(state, options.STATES, "--state")
    types = parse_choices(kind, options.TYPES, "--type")

    async def work(cluster: "Cluster") -> None:
        from ottla.client.admin.group_requests import list_groups

        documents = [
            {
                "group": each.group_id,
                "state": each.state,
                "type": each.type,
                "protocol_type": each.protocol_type,
                "coordinator": each.coordinator,
            }
            for each in await list_groups(cluster, states=states, types=types)
        ]
        columns = {
            "group": "group",
            "state": "state",
            "type": "type",
            "protocol": "protocol_type",
            "coordinator": "coordinator",
        }
        print_list(documents, columns, as_json=as_json)

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

    A share group has a start offset instead: the group has finished with all records before it. With --all and --json,
    prints a list of groups.
    """
    if (group is None) is not every:
        raise UsageError("pass either GROUP or --all")

    async def work(cluster: "Cluster") -> None:
        from ottla.cli.groups.views import Views, group_document, idle_words, print_group
        from ottla.operations.groups.progress import end_offsets, progress_of

        none_chosen = not (offsets or members or state)
        views = Views(members=members or (as_json and none_chosen), offsets=offsets or none_chosen)
        found = await _described(cluster, group, with_offsets=views.offsets)
        asked = {partition for each, offsets in found for partition in (*offsets.offsets, *_assigned(each))}
        ends = await end_offsets(cluster, asked) if views.offsets and asked else {}
        shown = [(each, progress_of(each, offsets, ends)) for each, offsets in found]
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

    run_with_cluster(bootstrap, profile, work, shows_progress=every)


@app.command(
    "reset-offsets",
    epilog=examples(
        "ottla groups reset-offsets billing --topic events --to-earliest",
        "ottla groups reset-offsets billing --topic events:0,2 --shift-by -100 --execute",
        "ottla groups reset-offsets billing --all-topics --to-datetime 2024-05-01T12:00:00Z --execute",
        "ottla groups reset-offsets billing --all-topics --to-current --export > offsets.csv",
        "ottla groups reset-offsets billing --from-file offsets.csv --execute",
        "ottla groups reset-offsets billing-2 --from-group billing --execute",
    ),
)
def reset_offsets(
    group: options.GroupName,
    topic: Topics = None,
    all_topics: options.AllTopics = False,
    to_earliest: options.ToEarliest = False,
    to_latest: options.ToLatest = False,
    to_current: options.ToCurrent = False,
    to_offset: options.ToOffset = None,
    shift_by: options.ShiftBy = None,
    to_datetime: options.ToDatetime = None,
    by_duration: options.ByDuration = None,
    from_file: options.FromFile = None,
    from_group: options.FromGroup = None,
    execute: options.Execute = False,
    dry_run: options.DryRun = False,
    export: options.Export = False,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Reset the offsets of a group that has no members. Shows the plan; --execute carries it out.

    Sets the committed offsets, or the start offsets of a share group. An offset outside the log is
    replaced by its start or its end. A group that does not exist is created as a consumer group.
    """
    if execute and dry_run:
        raise UsageError("pass either --execute or --dry-run")
    if sum([bool(topic), all_topics, from_file is not None, from_group is not None]) != 1:
        raise UsageError("pass one of --topic TOPIC, --all-topics, --from-file FILE and --from-group GROUP")
    given = {
        "--to-earliest": to_earliest,
        "--to-latest": to_latest,
        "--to-current": to_current,
        "--to-offset": to_offset,
        "--shift-by": shift_by,
        "--to-datetime": to_datetime,
        "--by-duration": by_duration,
        "--from-file": from_file,
        "--from-group": from_group,
    }
    choices = checked_topic_choices(topic)
    with guarded():
        target = _target({name: value for name, value in given.items() if value not in (None, False)}, group)

    async def work(cluster: "Cluster") -> int:
        from ottla.operations.groups.reset import carry_out, plan_resets, type_of_idle_group

        group_type = await type_of_idle_group(cluster, group)
        plan = await plan_resets(cluster, group, group_type, target, choices, all_topics=all_topics)
        refused = await carry_out(cluster, group, group_type, plan) if execute else {}
        _print_resets(group, plan, refused, executed=execute, export=export, as_json=as_json)
        if group_type is None:
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
    """Delete groups of any type without members, and their offsets."""
    confirm(f"delete {', '.join(groups)} and all of their offsets?", yes=yes)

    async def work(cluster: "Cluster") -> int:
        from ottla.client.admin.group_requests import delete_group
        from ottla.model.error_codes import ErrorCode

        return await delete_each(
            groups,
            lambda group: delete_group(cluster, group),
            not_found=ErrorCode.GROUP_ID_NOT_FOUND,
            if_exists=if_exists,
            as_json=as_json,
        )

    run_with_cluster(bootstrap, profile, work)


@app.command(
    "delete-offsets",
    epilog=examples(
        "ottla groups delete-offsets billing --topic events",
        "ottla groups delete-offsets billing --topic events:3 --yes",
    ),
)
def delete_offsets(
    group: options.GroupName,
    topic: Topics = None,
    yes: AssumeYes = False,
    bootstrap: Bootstrap = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Delete the offsets of a group in topics that no member reads; of a share group, in whole topics."""
    choices = checked_topic_choices(topic, required=True)
    confirm(f"delete the offsets of group {group} in {', '.join(choices)}?", yes=yes)

    async def work(cluster: "Cluster") -> int:
        from ottla.client.admin.any_group import describe_any_group
        from ottla.operations.groups.offsets_by_type import remove_offsets
        from ottla.operations.topic_choices import chosen_partitions

        described = await describe_any_group(cluster, group)
        partitions = await chosen_partitions(cluster, choices)
        refused = await remove_offsets(cluster, described.type, group, choices, partitions)
        if as_json:
            print_json([partition_outcome(each, refused) for each in partitions])
        else:
            say_errors(refused.values())
            if len(refused) < len(partitions):
                tell(f"{group}: deleted the offsets of {human_count(len(partitions) - len(refused), 'partition')}")
        return ExitStatus.REFUSED if refused else ExitStatus.DONE

    run_with_cluster(bootstrap, profile, work)


async def _described(
    cluster: "Cluster", name: str | None, *, with_offsets: bool
) -> "list[tuple[GroupDescription, GroupOffsets]]":
    """One group or all groups, with their offsets if `with_offsets`."""
    from ottla.client.admin.any_group import describe_any_group
    from ottla.client.admin.group_requests import list_groups
    from ottla.client.errors import AnswerError
    from ottla.model.error_codes import ErrorCode
    from ottla.operations.groups.offsets_by_type import GroupOffsets, offsets_of

    names = [name] if name is not None else [each.group_id for each in await list_groups(cluster)]
    found: list[tuple[GroupDescription, GroupOffsets]] = []
    progress = Progress()
    for group_id in names:
        progress.tick(lambda: f"{len(found):,} of {human_count(len(names), 'group')} described")
        try:
            description = await describe_any_group(cluster, group_id)
            offsets = await offsets_of(cluster, description.type, group_id) if with_offsets else GroupOffsets()
        except AnswerError as error:
            # With --all, a group that was deleted in the meantime is not an error.
            if name is not None or error.error_code is not ErrorCode.GROUP_ID_NOT_FOUND:
                progress.end()
                raise
            continue
        found.append((description, offsets))
    progress.end()
    return found


def _assigned(group: "GroupDescription") -> "list[TopicPartition]":
    return [partition for member in group.members for partition in member.assignment or ()]


def _target(given: dict[str, Any], group: str) -> "Target | ToGroup":
    """The one target that was given, by the name of its option."""
    import time

    from ottla.operations.groups import offset_resets as resets

    if len(given) != 1:
        names = "" if not given else f", not {' and '.join(given)} together"
        raise UsageError(
            "pass one of --to-earliest, --to-latest, --to-current, --to-offset, --shift-by, --to-datetime, "
            f"--by-duration, --from-file and --from-group{names}"
        )
    ((option, value),) = given.items()
    match option:
        case "--to-earliest":
            return resets.ToEarliest()
        case "--to-latest":
            return resets.ToLatest()
        case "--to-current":
            return resets.ToCurrent()
        case "--to-offset":
            return resets.ToOffset(value)
        case "--shift-by":
            return resets.ShiftBy(value)
        case "--to-datetime":
            return resets.parse_datetime(value)
        case "--by-duration":
            return resets.ToTime(time.time_ns() // 1_000_000 - parse_duration(value))
        case "--from-group":
            return resets.ToGroup(value)
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
            partition_outcome(each.partition, refused)
            | {"current_offset": each.current, "new_offset": each.new, "note": each.note or None}
            for each in plan
        ]
        print_json({"group": group, "executed": executed, "partitions": documents})
        return
    say_errors(refused.values())
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
