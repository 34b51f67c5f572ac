"""Resets the offsets of a group: reads the offsets, plans with `offset_resets.py`, and commits."""

from collections.abc import Sequence

from ottla.client.admin.any_group import describe_any_group
from ottla.client.admin.group_offsets import CommittedOffset
from ottla.client.admin.group_requests import GroupDescription
from ottla.client.errors import AnswerError
from ottla.client.network.cluster import Cluster
from ottla.client.network.list_offsets import list_offsets, offset_bounds
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import InvalidRequestError
from ottla.model.ids import TopicPartition
from ottla.operations.groups.offset_resets import (
    PartitionFacts,
    PlannedReset,
    Target,
    ToGroup,
    ToListed,
    ToTime,
    plan_reset,
)
from ottla.operations.groups.offsets_by_type import GroupOffsets, alter_offsets, offsets_of
from ottla.operations.topic_choices import chosen_partitions


class GroupInUseError(InvalidRequestError):
    """The group has members, which would continue from their own positions."""


class NothingToResetError(InvalidRequestError):
    """No partition was chosen."""


async def type_of_idle_group(cluster: Cluster, group_id: str) -> str | None:
    """The type of a group, None if it does not exist. Raises `GroupInUseError` while it has members."""
    try:
        group = await describe_any_group(cluster, group_id)
    except AnswerError as error:
        if error.error_code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return None
    if not group.is_idle:
        raise GroupInUseError(in_use_words(group))
    return group.type


def in_use_words(group: GroupDescription, change: str = "reset its offsets") -> str:
    """Why the group cannot be changed, and what to do first."""
    count = len(group.members)
    return (
        f"group {group.group_id} is in use ({group.state}, {count} {'member' if count == 1 else 'members'}); "
        f"stop its consumers before you {change} "
        f"(`ottla groups describe {group.group_id} --members` lists them)"
    )


async def offsets_of_group(cluster: Cluster, source: ToGroup) -> ToListed:
    """The offsets of a group of any type. Raises `NothingToResetError` if it has none."""
    described = await describe_any_group(cluster, source.group_id)
    found = await offsets_of(cluster, described.type, source.group_id)
    if not found.offsets:
        raise NothingToResetError(f"group {source.group_id} has no offsets to copy")
    return ToListed({partition: each.offset for partition, each in found.offsets.items()})


async def plan_resets(
    cluster: Cluster,
    group_id: str,
    group_type: str | None,
    target: Target | ToGroup,
    choices: Sequence[str],
    *,
    all_topics: bool,
) -> list[PlannedReset]:
    """The new offsets of the chosen partitions, of all with an offset of the group, or of those that are listed."""
    if isinstance(target, ToGroup):
        target = await offsets_of_group(cluster, target)
    found_offsets = GroupOffsets() if group_type is None else await offsets_of(cluster, group_type, group_id)
    committed = found_offsets.offsets
    if isinstance(target, ToListed):
        partitions = sorted(target.offsets)
        for each in partitions:
            await cluster.partition(each)
    elif all_topics:
        topics = {each.topic for each in committed}
        view = await cluster.refresh(topics) if topics else cluster.view
        partitions = await chosen_partitions(cluster, sorted(topics & view.topics.keys()))
    else:
        partitions = await chosen_partitions(cluster, choices)
    if not partitions:
        raise NothingToResetError(f"group {group_id} has no committed offsets; pass --topic TOPIC")
    bounds = await offset_bounds(cluster, partitions)
    at_time: dict[TopicPartition, int] = {}
    if isinstance(target, ToTime):
        # Negative timestamps are not times: -1 would be the end.
        found = await list_offsets(cluster, dict.fromkeys(partitions, max(0, target.timestamp)))
        at_time = {each: place.offset for each, place in found.items() if place.offset >= 0}
    return [
        plan_reset(target, each, _facts(committed.get(each), bounds[each], at_time.get(each))) for each in partitions
    ]


async def carry_out(
    cluster: Cluster, group_id: str, group_type: str | None, plan: Sequence[PlannedReset]
) -> dict[TopicPartition, AnswerError]:
    """Sets the planned offsets; returns the refusals."""
    return await alter_offsets(cluster, group_type, group_id, {each.partition: each.new for each in plan})


def _facts(committed: CommittedOffset | None, bounds: tuple[int, int], at_time: int | None) -> PartitionFacts:
    offset = None if committed is None else committed.offset
    return PartitionFacts(committed=offset, start=bounds[0], end=bounds[1], at_time=at_time)
