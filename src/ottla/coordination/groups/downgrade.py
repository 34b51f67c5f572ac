"""A consumer group becomes a classic group of its members that use the classic protocol, with their partitions.

Pure; only reads the consumer group. The way back is in `upgrade.py`, when it happens in `migration_state.py`.
"""

from ottla.coordination.groups.consumer.classic_members_state import named, rebalance_timeout_ms, shared_protocols
from ottla.coordination.groups.consumer.group import Member, as_assignment
from ottla.coordination.groups.consumer.group_change import GroupChange, tombstones
from ottla.coordination.groups.consumer.records import ClassicMetadata
from ottla.coordination.groups.consumer.requests import ConsumerGroupConfig
from ottla.coordination.groups.group_kind import Topics
from ottla.coordination.groups.records import GroupValue, MemberValue, group_record
from ottla.protocol.consumer_protocol import CONSUMER_PROTOCOL_TYPE, version_of, write_assignment


def can_be_classic(staying: list[Member], config: ConsumerGroupConfig) -> bool:
    """Whether a group with only these members becomes a classic one."""
    return (
        bool(staying)
        and all(member.classic is not None for member in staying)
        and config.migration_policy.allows_downgrade
        and len(staying) <= config.classic_max_size
        and bool(shared_protocols(staying))
    )


def downgrade(change: GroupChange, staying: list[Member], topics: Topics, now_ms: int) -> GroupValue:
    """Adds the records of the conversion to the change; returns the classic group as it is written."""
    group_id = change.group.group_id
    value = _classic_group(change.group.epoch, staying, topics, now_ms)
    for record in tombstones(change.group):
        change.write(record)
    change.write_foreign([group_record(group_id, value)])
    return value


def _classic_group(generation: int, staying: list[Member], topics: Topics, now_ms: int) -> GroupValue:
    """The classic group of the staying members, each with its partitions. It has no leader: a coordinator that finds
    this in the log knows that the members have yet to agree on their assignments."""
    protocol = (shared_protocols(staying) or [""])[0]
    members = []
    for member in staying:
        classic = member.classic or ClassicMetadata(session_timeout_ms=0, protocols=())
        metadata = dict(classic.protocols)[protocol]
        held = named(as_assignment(member.assigned), topics)
        members.append(
            MemberValue(
                member_id=member.member_id,
                instance_id=member.said.instance_id,
                client_id=member.said.client_id,
                client_host=member.said.client_host,
                rebalance_timeout_ms=rebalance_timeout_ms(member),
                session_timeout_ms=classic.session_timeout_ms,
                subscription=metadata,
                assignment=write_assignment(held, version_of(metadata)),
            )
        )
    return GroupValue(
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        generation=generation,
        protocol=protocol,
        leader=None,
        state_ms=now_ms,
        members=tuple(members),
    )
