"""How a group and its progress are shown: facts and tables for people, one object in JSON."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ottla.cli.output import MISSING, Cell, print_facts, print_table
from ottla.client.admin.group_requests import GroupDescription, GroupMember
from ottla.client.admin.share_group_requests import SHARE
from ottla.client.admin.streams_group_requests import STREAMS, StreamsGroupDescription, StreamsGroupMember, Tasks
from ottla.operations.groups.progress import PartitionProgress, by_topic, partitions_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Views:
    """Which parts of a group are shown besides its state."""

    members: bool
    offsets: bool


# Text


def print_group(group: GroupDescription, progress: Sequence[PartitionProgress], views: Views) -> None:
    """Prints the group, with its offsets or members below."""
    has_usual_protocol = group.protocol_type in ("", "consumer", group.type)
    facts: dict[str, Cell] = {
        "group": group.group_id,
        "state": group.state,
        "type": group.type if has_usual_protocol else f"{group.type}, {group.protocol_type}",
        "assignor": group.assignor or "none",
        "coordinator": group.coordinator,
        "members": len(group.members),
    }
    if group.group_epoch is not None:
        facts["epoch"] = f"{group.group_epoch}, assignment of {group.assignment_epoch}"
    if views.offsets:
        known = [each.lag for each in progress if each.lag is not None]
        facts["lag"] = f"{sum(known):,}" if known else "unknown"
    print_facts(facts)
    if views.members:
        print()
        if group.type == STREAMS:
            print_table(
                ("member", "client", "host", "process", "active", "standby", "warmup"),
                [_streams_row(each) for each in group.members if isinstance(each, StreamsGroupMember)],
            )
        else:
            print_table(
                ("member", "client", "host", "instance", "partitions", "assignment"), map(_member_row, group.members)
            )
    if views.offsets:
        print()
        if group.type == SHARE:
            print_table(("topic", "partition", "start", "end", "lag"), [_progress_row(each)[:5] for each in progress])
        else:
            columns = ("topic", "partition", "committed", "end", "lag", "member", "host", "client")
            print_table(columns, map(_progress_row, progress))


def _progress_row(progress: PartitionProgress) -> Sequence[Cell]:
    member = progress.member
    return (
        progress.partition.topic,
        progress.partition.partition,
        MISSING if progress.committed is None else progress.committed.offset,
        MISSING if progress.end is None else progress.end,
        MISSING if progress.lag is None else progress.lag,
        *((MISSING, MISSING, MISSING) if member is None else (member.member_id, member.host, member.client_id)),
    )


def _member_row(member: GroupMember) -> Sequence[Cell]:
    return (
        member.member_id,
        member.client_id,
        member.host,
        member.instance_id or MISSING,
        MISSING if member.assignment is None else len(member.assignment),
        "unreadable" if member.assignment is None else partitions_text(member.assignment) or MISSING,
    )


def _streams_row(member: StreamsGroupMember) -> Sequence[Cell]:
    return (
        member.member_id,
        member.client_id,
        member.host,
        member.process_id,
        *(_tasks_text(tasks) or MISSING for tasks in (member.active_tasks, member.standby_tasks, member.warmup_tasks)),
    )


def _tasks_text(tasks: Tasks) -> str:
    """Tasks with their partitions: 0:0,1 1:3."""
    return " ".join(f"{part}:{','.join(map(str, some))}" for part, some in sorted(tasks.items()))


def idle_words(group: GroupDescription) -> str | None:
    """A remark about a group without members."""
    return None if group.members else f"group {group.group_id} has no active members"


# JSON


def group_document(group: GroupDescription, progress: Sequence[PartitionProgress], views: Views) -> dict[str, Any]:
    """A group as one object."""
    found: dict[str, Any] = {
        "group": group.group_id,
        "state": group.state,
        "type": group.type,
        "protocol_type": group.protocol_type,
        "assignor": group.assignor or None,
        "coordinator": group.coordinator,
        "group_epoch": group.group_epoch,
        "assignment_epoch": group.assignment_epoch,
        "member_count": len(group.members),
    }
    if isinstance(group, StreamsGroupDescription):
        found["topology_epoch"] = group.topology_epoch
        found["subtopologies"] = [asdict(each) for each in group.subtopologies]
    if views.members:
        found["members"] = [_member_document(each) for each in group.members]
    if views.offsets:
        document = _share_document if group.type == SHARE else _progress_document
        found["offsets"] = [document(each) for each in progress]
        found["lag"] = sum(each.lag or 0 for each in progress)
    return found


def _member_document(member: GroupMember) -> dict[str, Any]:
    tasks: dict[str, Any] = {}
    if isinstance(member, StreamsGroupMember):
        tasks = {
            "process_id": member.process_id,
            "topology_epoch": member.topology_epoch,
            "active_tasks": dict(member.active_tasks),
            "standby_tasks": dict(member.standby_tasks),
            "warmup_tasks": dict(member.warmup_tasks),
        }
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "host": member.host,
        "member_epoch": member.member_epoch,
        "subscription": member.subscription,
        "assignment": None if member.assignment is None else by_topic(member.assignment),
        "target_assignment": None if member.target is None else by_topic(member.target),
        **tasks,
    }


def _share_document(progress: PartitionProgress) -> dict[str, Any]:
    start = progress.committed
    return {
        "topic": progress.partition.topic,
        "partition": progress.partition.partition,
        "start_offset": None if start is None else start.offset,
        "leader_epoch": None if start is None or start.leader_epoch < 0 else start.leader_epoch,
        "end_offset": progress.end,
        "lag": progress.lag,
    }


def _progress_document(progress: PartitionProgress) -> dict[str, Any]:
    member, committed = progress.member, progress.committed
    return {
        "topic": progress.partition.topic,
        "partition": progress.partition.partition,
        "committed_offset": None if committed is None else committed.offset,
        "leader_epoch": None if committed is None or committed.leader_epoch < 0 else committed.leader_epoch,
        "metadata": None if committed is None else committed.metadata,
        "end_offset": progress.end,
        "lag": progress.lag,
        "member_id": None if member is None else member.member_id,
        "client_id": None if member is None else member.client_id,
        "host": None if member is None else member.host,
    }
