"""Groups of all four types: the list with state and lag; one group with members, assignment and offsets; deletions.

Resets of offsets are in `offset_resets.py`.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ottla.client.admin.any_group import describe_any_group
from ottla.client.admin.group_requests import IDLE_STATES, GroupDescription, GroupListing, GroupMember, list_groups
from ottla.client.admin.share_group_requests import SHARE, describe_share_group
from ottla.client.admin.streams_group_requests import (
    STREAMS,
    StreamsGroupDescription,
    StreamsGroupMember,
    Subtopology,
    describe_streams_group,
)
from ottla.client.errors import AnswerError
from ottla.console.cluster.access import Access
from ottla.console.errors import NotFoundError
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import InvalidRequestError, OttlaError
from ottla.model.ids import TopicPartition
from ottla.operations.groups.offsets_by_type import offsets_of, remove_offsets
from ottla.operations.groups.progress import PartitionProgress, end_offsets, progress_of
from ottla.operations.topic_choices import chosen_partitions

KINDS: Final = ("classic", "consumer", "share", "streams")
DESCRIBED_MAX: Final = 200
"""Groups of the list whose members are counted; with more groups, the number is not shown."""
_ASKED_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """One group in the list."""

    group_id: str
    kind: str
    state: str
    protocol_type: str
    coordinator: int
    members: int | None
    """None if it was not asked for, or could not be."""
    lag: float | None
    """As of the last sample; None if the group has no offsets, or was not sampled yet."""
    rate: float | None
    """Records per second that it committed, as of the last sample."""

    @property
    def is_idle(self) -> bool:
        """Whether it has no members."""
        return self.state in IDLE_STATES


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupList:
    """All groups at one time."""

    rows: Sequence[GroupRow]
    at_ms: int
    sampled_at_ms: int | None
    """When lag and rates were measured."""

    @property
    def active(self) -> int:
        """How many have members."""
        return sum(not each.is_idle for each in self.rows)

    @property
    def lagging(self) -> int:
        """How many have a lag."""
        return sum(bool(each.lag) for each in self.rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPage:
    """One group at one time."""

    group: GroupDescription
    progress: Sequence[PartitionProgress]
    at_ms: int

    @property
    def is_share(self) -> bool:
        """Whether offsets are start offsets."""
        return self.group.type == SHARE

    @property
    def is_streams(self) -> bool:
        """Whether it has a topology and tasks."""
        return self.group.type == STREAMS

    @property
    def lag(self) -> int | None:
        """The sum of what is known; None if no partition's lag is."""
        known = [each.lag for each in self.progress if each.lag is not None]
        return sum(known) if known else None

    @property
    def topics(self) -> list[str]:
        """The topics that it has offsets or an assignment in."""
        return sorted({each.partition.topic for each in self.progress})

    @property
    def offset_topics(self) -> list[str]:
        """The topics that it has offsets in."""
        return sorted({each.partition.topic for each in self.progress if each.committed is not None})

    @property
    def subtopologies(self) -> Sequence[Subtopology]:
        """The parts of a streams group's topology."""
        return self.group.subtopologies if isinstance(self.group, StreamsGroupDescription) else ()

    @property
    def topology_epoch(self) -> int | None:
        """Of a streams group."""
        return self.group.topology_epoch if isinstance(self.group, StreamsGroupDescription) else None

    def tasks_of(self, subtopology_id: str) -> list[tuple[int, GroupMember]]:
        """The active tasks of a subtopology: the partition, and its member."""
        return sorted(
            (
                (partition, member)
                for member in self.group.members
                if isinstance(member, StreamsGroupMember)
                for partition in member.active_tasks.get(subtopology_id, ())
            ),
            key=lambda task: task[0],
        )

    @property
    def has_moving_partitions(self) -> bool:
        """Whether a member does not have its target assignment yet."""
        return any(each.target is not None and each.target != each.assignment for each in self.group.members)


async def find_groups(access: Access) -> GroupList:
    """All groups that the user may see."""
    cluster = access.cluster
    listed = await list_groups(cluster)
    counts: dict[str, int] = {}
    limit = asyncio.Semaphore(_ASKED_AT_ONCE)

    async def count_members(each: GroupListing) -> None:
        async with limit:
            try:
                counts[each.group_id] = len((await _describe(access, each)).members)
            except OttlaError:
                # Deleted meanwhile, or not allowed: the list does without the number.
                return

    if len(listed) <= DESCRIBED_MAX:
        await asyncio.gather(*map(count_members, listed))
    sampler = access.sampler
    rows = [
        GroupRow(
            group_id=each.group_id,
            kind=each.type,
            state=each.state,
            protocol_type=each.protocol_type,
            coordinator=each.coordinator,
            members=counts.get(each.group_id),
            lag=sampler.latest("group.lag", each.group_id),
            rate=sampler.latest("group.out", each.group_id),
        )
        for each in listed
    ]
    return GroupList(rows=rows, at_ms=cluster.clock.now_ms(), sampled_at_ms=sampler.status.answered_at_ms)


async def _describe(access: Access, listing: GroupListing) -> GroupDescription:
    if listing.type == SHARE:
        return await describe_share_group(access.cluster, listing.group_id)
    if listing.type == STREAMS:
        return await describe_streams_group(access.cluster, listing.group_id)
    return await describe_any_group(access.cluster, listing.group_id)


async def find_group(access: Access, group_id: str) -> GroupPage:
    """One group with its offsets. Raises `NotFoundError`."""
    cluster = access.cluster
    try:
        group = await describe_any_group(cluster, group_id)
    except AnswerError as error:
        if error.error_code is ErrorCode.GROUP_ID_NOT_FOUND:
            raise NotFoundError(
                f"group {group_id} does not exist: it was deleted, or its offsets have expired. A group appears when a"
                " consumer joins it or commits an offset"
            ) from None
        raise
    found = await offsets_of(cluster, group.type, group_id)
    assigned = {partition for member in group.members for partition in member.assignment or ()}
    asked = found.offsets.keys() | assigned
    ends = await end_offsets(cluster, asked) if asked else {}
    return GroupPage(group=group, progress=progress_of(group, found, ends), at_ms=cluster.clock.now_ms())


async def delete_group(access: Access, group_id: str) -> None:
    """Deletes a group without members, and its offsets."""
    async with access.change("delete group", group_id):
        await access.admin().delete_consumer_groups([group_id])


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetDeletion:
    """The offsets of a group that would be deleted."""

    group: GroupDescription
    choices: Sequence[str]
    """As `--topic` takes them: orders, or orders:0,2."""
    offsets: Mapping[TopicPartition, int]


async def plan_offset_deletion(access: Access, group_id: str, choices: Sequence[str]) -> OffsetDeletion:
    """Which offsets would be deleted. Topics that do not exist any more are found by the group's own offsets."""
    page = await find_group(access, group_id)
    known = {each.partition: each.committed.offset for each in page.progress if each.committed is not None}
    missing = {choice for choice in choices if ":" not in choice and choice in {each.topic for each in known}}
    wanted = {each for each in known if each.topic in missing}
    wanted |= set(await chosen_partitions(access.cluster, [each for each in choices if each not in missing]))
    offsets = {partition: known[partition] for partition in sorted(wanted) if partition in known}
    return OffsetDeletion(group=page.group, choices=tuple(choices), offsets=offsets)


async def delete_offsets(access: Access, plan: OffsetDeletion) -> None:
    """Deletes the offsets. Raises `InvalidRequestError` with what was refused."""
    group_id = plan.group.group_id
    if not plan.offsets:
        raise InvalidRequestError(f"group {group_id} has no offsets in {', '.join(plan.choices)}")
    async with access.change("delete offsets", group_id, {"topics": list(plan.choices)}):
        partitions = list(plan.offsets)
        refused = await remove_offsets(access.cluster, plan.group.type, group_id, plan.choices, partitions)
        if refused:
            raise InvalidRequestError("; ".join(str(error) for error in list(refused.values())[:5]))
