"""A classic group of consumers becomes a server-side group, with all its members and what they have.

Pure; one function, which only reads the classic group. The way back is in `mixed_group_state.py`.
"""

from dataclasses import replace
from uuid import UUID

from ottla.coordination.groups.classic.group_state import ClassicGroup
from ottla.coordination.groups.consumer.decision import Decision, Refusal
from ottla.coordination.groups.consumer.group import ConsumerGroup, Member, Topics, as_assignment, metadata_hash
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
from ottla.coordination.groups.consumer_protocol import NamedAssignment, read_assignment, read_subscription
from ottla.coordination.groups.records import group_tombstone
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import CorruptError


def upgrade(classic: ClassicGroup, topics: Topics, config: ConsumerGroupConfig) -> Decision:
    """A decision that begins with the conversion; refuses a group that must stay what it is.

    A group without members has nothing to convert: it only makes room. Its offsets stay either way.
    """
    if classic.members:
        _check(classic, config)
    decision = Decision(ConsumerGroup(classic.group_id))
    decision.write_foreign([group_tombstone(classic.group_id)])
    if not classic.members:
        return decision
    members = _members(classic, topics)
    group_id = classic.group_id
    for member in members:
        decision.write(MemberRecord(group_id, member.member_id, member.said))
    # The generation becomes the epoch, so that the members' heartbeats and commits stay good.
    epoch = max(classic.generation, 1)
    digest = metadata_hash(decision.group.subscribed_topics(), topics)
    decision.write(EpochRecord(group_id, EpochValue(epoch=epoch, metadata_hash=digest)))
    for member in members:
        decision.write(TargetRecord(group_id, member.member_id, as_assignment(member.assigned)))
    decision.write(TargetEpochRecord(group_id, TargetEpochValue(epoch=epoch)))
    for member in members:
        arrived = replace(member, member_epoch=epoch, previous_member_epoch=epoch)
        decision.write(CurrentRecord(group_id, member.member_id, arrived.current))
    return decision


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
            assignment, user_data = read_assignment(member.assignment)
        except CorruptError:
            raise _refusal(classic, "the embedded consumer protocol is malformed") from None
        if user_data:
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
        assigned = _held(assignment, topics, taken, epoch)
        members.append(Member(member_id=member.member_id, said=said, assigned=assigned))
    return members


def _held(
    assignment: NamedAssignment, topics: Topics, taken: dict[tuple[UUID, int], None], epoch: int
) -> dict[UUID, dict[int, int]]:
    """What a member was assigned, of topics that exist; a leader that gave a partition to two is not believed twice."""
    held: dict[UUID, dict[int, int]] = {}
    for name, partitions in assignment.items():
        topic = topics.get(name)
        for partition in partitions:
            if topic is None or not 0 <= partition < topic.partition_count or (topic.topic_id, partition) in taken:
                continue
            taken[topic.topic_id, partition] = None
            held.setdefault(topic.topic_id, {})[partition] = epoch
    return held
