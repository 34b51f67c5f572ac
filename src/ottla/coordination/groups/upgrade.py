"""A classic group of consumers becomes a consumer group, with all its members and their partitions.

Pure; only reads the classic group. The way back is in `downgrade.py`, when it happens in `migration_state.py`.
"""

from dataclasses import replace
from uuid import UUID

from ottla.coordination.groups.classic.group_state import ClassicGroup
from ottla.coordination.groups.consumer.group import ConsumerGroup, Member, as_assignment, metadata_hash
from ottla.coordination.groups.consumer.group_change import GroupChange, Refusal
from ottla.coordination.groups.consumer.records import (
    ClassicMetadata,
    CurrentRecord,
    EpochRecord,
    EpochValue,
    MemberRecord,
    MemberValue,
    TargetEpochRecord,
    TargetEpochValue,
    TargetRecord,
)
from ottla.coordination.groups.consumer.requests import ConsumerGroupConfig
from ottla.coordination.groups.group_kind import Topics
from ottla.coordination.groups.records import group_tombstone
from ottla.model.error_codes import ErrorCode
from ottla.protocol.consumer_protocol import (
    ConsumerProtocolError,
    PartitionsByTopic,
    read_assignment,
    read_subscription,
)


def upgrade(classic: ClassicGroup, topics: Topics, config: ConsumerGroupConfig) -> GroupChange:
    """A change that begins with the conversion; raises `Refusal` for a group that must stay classic.

    A group without members is only deleted, to make room. Its offsets stay either way.
    """
    if classic.members:
        _check(classic, config)
    change = GroupChange(ConsumerGroup(classic.group_id))
    change.write_foreign([group_tombstone(classic.group_id)])
    if not classic.members:
        return change
    members = _members(classic, topics)
    group_id = classic.group_id
    for member in members:
        change.write(MemberRecord(group_id, member.member_id, member.said))
    # The generation becomes the epoch, so that the members' heartbeats and commits stay valid.
    epoch = max(classic.generation, 1)
    digest = metadata_hash(change.group.subscribed_topics(), topics)
    change.write(EpochRecord(group_id, EpochValue(epoch=epoch, metadata_hash=digest)))
    for member in members:
        change.write(TargetRecord(group_id, member.member_id, as_assignment(member.assigned)))
    change.write(TargetEpochRecord(group_id, TargetEpochValue(epoch=epoch)))
    for member in members:
        arrived = replace(member, member_epoch=epoch, previous_member_epoch=epoch)
        change.write(CurrentRecord(group_id, member.member_id, arrived.current))
    return change


def _check(classic: ClassicGroup, config: ConsumerGroupConfig) -> None:
    reason = None
    if not config.migration_policy.allows_upgrade:
        reason = "online upgrade is disabled"
    elif not classic.is_consumer_group:
        reason = "the group does not use the consumer embedded protocol"
    elif len(classic.members) > config.max_size:
        reason = "the group size exceeds the consumer group maximum size"
    if reason is not None:
        raise _refusal(classic, reason)


def _refusal(classic: ClassicGroup, reason: str) -> Refusal:
    return Refusal(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Cannot upgrade classic group {classic.group_id} to consumer group because {reason}.",
    )


def _members(classic: ClassicGroup, topics: Topics) -> list[Member]:
    taken: dict[tuple[UUID, int], None] = {}
    epoch = max(classic.generation, 1)
    members = []
    for member in classic.members:
        # While a group rebalances its protocol is not chosen yet; any that the member speaks has its topics.
        metadata = member.metadata(classic.protocol) or member.protocols[0].metadata
        try:
            subscription = read_subscription(metadata)
            assignment = read_assignment(member.assignment)
        except ConsumerProtocolError:
            raise _refusal(classic, "the embedded consumer protocol is malformed") from None
        if assignment.user_data:
            raise _refusal(classic, "an unsupported custom assignor is in use: its data would be lost")
        protocols = tuple((protocol.name, protocol.metadata) for protocol in member.protocols)
        said = MemberValue(
            instance_id=member.instance_id,
            rack_id=subscription.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            topic_names=tuple(sorted(set(subscription.topics))),
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            classic=ClassicMetadata(session_timeout_ms=member.session_timeout_ms, protocols=protocols),
        )
        assigned = _held(assignment.partitions, topics, taken, epoch)
        members.append(Member(member_id=member.member_id, said=said, assigned=assigned))
    return members


def _held(
    assignment: PartitionsByTopic, topics: Topics, taken: dict[tuple[UUID, int], None], epoch: int
) -> dict[UUID, dict[int, int]]:
    """A member's partitions of existing topics; one that the leader gave to two members stays with the first."""
    held: dict[UUID, dict[int, int]] = {}
    for name, partitions in assignment.items():
        topic = topics.get(name)
        for partition in partitions:
            if topic is None or not 0 <= partition < topic.partition_count or (topic.topic_id, partition) in taken:
                continue
            taken[topic.topic_id, partition] = None
            held.setdefault(topic.topic_id, {})[partition] = epoch
    return held
