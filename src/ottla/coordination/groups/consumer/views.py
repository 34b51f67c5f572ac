"""Queries of a consumer group: descriptions, and whether a member may commit and fetch its offsets.

Pure functions of the group as it is; responses wait until that is committed.
"""

from uuid import UUID

from ottla.coordination.groups.consumer.group import ConsumerGroup, GroupState, Member, as_assignment
from ottla.coordination.groups.consumer.group_change import NOTHING, preferred_assignor
from ottla.coordination.groups.consumer.requests import (
    MODERN_COMMIT_VERSION,
    DescribedConsumerGroup,
    DescribedMember,
    DescribedPartitions,
)
from ottla.coordination.groups.group_kind import ALLOWED, CommitVerdict, Topics
from ottla.coordination.groups.record_values import Assignment
from ottla.model.error_codes import ErrorCode


def describe(group_id: str, group: ConsumerGroup | None, topics: Topics) -> DescribedConsumerGroup:
    """ConsumerGroupDescribe, for one group; None for one that does not exist or is of another kind."""
    if group is None:
        return DescribedConsumerGroup(
            group_id=group_id,
            error=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=f"Group {group_id} is not a consumer group, or not found.",
            group_state=GroupState.DEAD.value,
        )
    names = {topic.topic_id: name for name, topic in topics.items()}
    return DescribedConsumerGroup(
        group_id=group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor=preferred_assignor(group),
        members=tuple(
            _described(member, group.targets.get(member.member_id, NOTHING), names) for member in group.members.values()
        ),
    )


def _described(member: Member, target: Assignment, names: dict[UUID, str]) -> DescribedMember:
    def named(assignment: Assignment) -> tuple[DescribedPartitions, ...]:
        # A topic that was deleted has no name to show.
        return tuple(
            DescribedPartitions(topic_id=topic_id, topic_name=names[topic_id], partitions=partitions)
            for topic_id, partitions in assignment.items()
            if topic_id in names
        )

    return DescribedMember(
        member_id=member.member_id,
        instance_id=member.said.instance_id,
        rack_id=member.said.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.said.client_id,
        client_host=member.said.client_host,
        topic_names=member.said.topic_names,
        topic_regex=member.said.topic_regex,
        assignment=named(as_assignment(member.assigned, member.revoking)),
        target_assignment=named(target),
        is_classic=member.classic is not None,
    )


def commit_verdict(
    group: ConsumerGroup,
    *,
    member_id: str,
    instance_id: str | None,
    member_epoch: int,
    is_transactional: bool,
    api_version: int = MODERN_COMMIT_VERSION,
) -> CommitVerdict:
    """Whether offsets of the group may be committed. Without members any client may that does not claim to be one."""
    if member_epoch < 0 and not group.members:
        return ALLOWED
    if is_transactional and member_epoch == -1 and not member_id and instance_id is None:
        # Old versions of TxnOffsetCommit have no member.
        return ALLOWED
    member = group.members.get(member_id)
    if member is None:
        return CommitVerdict(error=ErrorCode.UNKNOWN_MEMBER_ID)
    if not is_transactional and member.classic is None and api_version < MODERN_COMMIT_VERSION:
        return CommitVerdict(error=ErrorCode.UNSUPPORTED_VERSION)
    if member_epoch == member.member_epoch:
        return ALLOWED
    stale = _stale(member)
    if member_epoch > member.member_epoch:
        return CommitVerdict(error=stale)
    return CommitVerdict(received_epoch=member_epoch, holdings=(member.assigned, member.revoking), stale=stale)


def fetch_refusal(group: ConsumerGroup, *, member_id: str | None, member_epoch: int) -> ErrorCode:
    """The error for a fetch of offsets; NONE if it is allowed. A client that does not claim to be a member may."""
    if member_id is None and member_epoch < 0:
        return ErrorCode.NONE
    member = group.members.get(member_id or "")
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if member_epoch == member.member_epoch else _stale(member)


def _stale(member: Member) -> ErrorCode:
    return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION
