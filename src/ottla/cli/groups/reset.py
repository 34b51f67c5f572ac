"""The work of `ottla groups reset-offsets`: looks up what `offset_resets.py` needs, and commits what it decides."""

from collections.abc import Sequence

from ottla.cli.groups.offset_resets import PartitionFacts, PlannedReset, Target, ToListed, ToTime, plan_reset
from ottla.cli.topic_choices import chosen_partitions
from ottla.client.admin.group_offsets import CommittedOffset, commit_offsets, committed_offsets
from ottla.client.admin.group_requests import describe_group
from ottla.client.errors import AnswerError
from ottla.client.network.cluster import Cluster
from ottla.client.network.list_offsets import list_offsets, offset_bounds
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import InvalidRequestError
from ottla.model.ids import TopicPartition


class GroupInUseError(InvalidRequestError):
    """The group has members, which would continue from their own positions."""


class NothingToResetError(InvalidRequestError):
    """No partition was chosen."""


async def refuse_group_in_use(cluster: Cluster, group_id: str) -> bool:
    """Raises `GroupInUseError` while a group has members; returns whether the group exists."""
    try:
        group = await describe_group(cluster, group_id)
    except AnswerError as error:
        if error.error_code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return False
    if not group.is_idle:
        count = len(group.members)
        raise GroupInUseError(
            f"group {group_id} is in use ({group.state}, {count} {'member' if count == 1 else 'members'}); "
            "stop its consumers before you reset its offsets "
            f"(`ottla groups describe {group_id} --members` lists them)"
        )
    return True


async def plan_resets(
    cluster: Cluster, group_id: str, target: Target, choices: Sequence[str], *, all_topics: bool
) -> list[PlannedReset]:
    """The new offset of each partition that was chosen, that the group has committed to, or that a file lists."""
    committed = await committed_offsets(cluster, group_id)
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
        found = await list_offsets(cluster, dict.fromkeys(partitions, target.timestamp))
        at_time = {each: place.offset for each, place in found.items() if place.offset >= 0}
    return [
        plan_reset(target, each, _facts(committed.get(each), bounds[each], at_time.get(each))) for each in partitions
    ]


async def carry_out(cluster: Cluster, group_id: str, plan: Sequence[PlannedReset]) -> dict[TopicPartition, AnswerError]:
    """Commits the planned offsets; returns the refusals."""
    return await commit_offsets(cluster, group_id, {each.partition: each.new for each in plan})


def _facts(committed: CommittedOffset | None, bounds: tuple[int, int], at_time: int | None) -> PartitionFacts:
    offset = None if committed is None else committed.offset
    return PartitionFacts(committed=offset, start=bounds[0], end=bounds[1], at_time=at_time)
