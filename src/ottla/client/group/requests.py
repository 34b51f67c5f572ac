"""What members ask their coordinator, as messages: joining, syncing, signs of life, leaving, in both protocols.

Each function takes an action of `membership_state.py` or `consumer_membership_state.py`, asks, and gives the answer in
their terms. Errors are codes within the answer; only what is not answered raises.
"""

from dataclasses import dataclass
from typing import Any, Final

from ottla.client.errors import UnsupportedByBrokerError
from ottla.client.group.assignors.assignor import NO_GENERATION
from ottla.client.group.classic_membership_state import Heartbeat, Join, Joined, Leave, Sync
from ottla.client.group.consumer_membership_state import GroupHeartbeat, HeartbeatAnswer
from ottla.protocol.apis import ApiKey
from ottla.protocol.messages import milliseconds
from ottla.transport.client_connection import Connection

PROTOCOL_TYPE: Final = "consumer"
PATTERN_VERSION: Final = 1
"""The first version of the newer heartbeat that can carry a pattern."""
_ANSWER_MARGIN_MS: Final = 5_000
"""The coordinator waits for members as long as it was told; the connection waits this much longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberIdentity:
    """What stays the same in all that a member asks."""

    group_id: str
    instance_id: str | None
    rack_id: str | None
    session_timeout_ms: int
    rebalance_timeout_ms: int
    request_timeout_ms: int
    remote_assignor: str | None = None


async def ask_join(connection: Connection, identity: MemberIdentity, action: Join) -> Joined:
    """Answered once all members have joined, or their time is over."""
    from kio.schema.join_group.v9.request import JoinGroupRequest, JoinGroupRequestProtocol
    from kio.schema.types import GroupId

    message = JoinGroupRequest(
        group_id=GroupId(identity.group_id),
        session_timeout=milliseconds(identity.session_timeout_ms),
        rebalance_timeout=milliseconds(identity.rebalance_timeout_ms),
        member_id=action.member_id,
        group_instance_id=identity.instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocols=tuple(JoinGroupRequestProtocol(name=name, metadata=told) for name, told in action.protocols),
        reason=None,
    )
    timeout_ms = max(identity.request_timeout_ms, identity.rebalance_timeout_ms + _ANSWER_MARGIN_MS)
    answer = await connection.request(ApiKey.JOIN_GROUP, message, timeout_ms=timeout_ms)
    return Joined(
        error_code=int(answer.error_code),
        generation=int(answer.generation_id),
        protocol=answer.protocol_name or "",
        leader=answer.leader,
        member_id=answer.member_id,
        members=tuple((each.member_id, each.group_instance_id, each.metadata) for each in answer.members),
        skip_assignment=bool(answer.skip_assignment),
    )


async def ask_sync(connection: Connection, identity: MemberIdentity, action: Sync) -> tuple[int, bytes]:
    """(error code, this member's assignment); answered once the leader has assigned."""
    from kio.schema.sync_group.v5.request import SyncGroupRequest, SyncGroupRequestAssignment
    from kio.schema.types import GroupId
    from kio.static.primitive import i32

    message = SyncGroupRequest(
        group_id=GroupId(identity.group_id),
        generation_id=i32(action.generation),
        member_id=action.member_id,
        group_instance_id=identity.instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=action.protocol,
        assignments=tuple(
            SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
            for member_id, assignment in action.assignments
        ),
    )
    timeout_ms = max(identity.request_timeout_ms, identity.rebalance_timeout_ms + _ANSWER_MARGIN_MS)
    answer = await connection.request(ApiKey.SYNC_GROUP, message, timeout_ms=timeout_ms)
    return int(answer.error_code), bytes(answer.assignment)


async def ask_heartbeat(connection: Connection, identity: MemberIdentity, action: Heartbeat) -> int:
    """The error code."""
    from kio.schema.heartbeat.v4.request import HeartbeatRequest
    from kio.schema.types import GroupId
    from kio.static.primitive import i32

    message = HeartbeatRequest(
        group_id=GroupId(identity.group_id),
        generation_id=i32(action.generation),
        member_id=action.member_id,
        group_instance_id=identity.instance_id,
    )
    answer = await connection.request(ApiKey.HEARTBEAT, message, timeout_ms=identity.request_timeout_ms)
    return int(answer.error_code)


async def ask_leave(connection: Connection, identity: MemberIdentity, action: Leave) -> None:
    """What the coordinator says to it does not matter."""
    from kio.schema.leave_group.v5.request import LeaveGroupRequest
    from kio.schema.leave_group.v5.request import MemberIdentity as LeavingMember
    from kio.schema.types import GroupId

    leaving = LeavingMember(member_id=action.member_id, group_instance_id=identity.instance_id, reason=action.reason)
    message = LeaveGroupRequest(group_id=GroupId(identity.group_id), members=(leaving,))
    await connection.request(ApiKey.LEAVE_GROUP, message, timeout_ms=identity.request_timeout_ms)


async def ask_group_heartbeat(
    connection: Connection, identity: MemberIdentity, member_id: str, action: GroupHeartbeat
) -> HeartbeatAnswer:
    """The newer protocol's heartbeat."""
    from kio.schema.consumer_group_heartbeat.v1.request import ConsumerGroupHeartbeatRequest, TopicPartitions
    from kio.schema.types import GroupId, TopicName
    from kio.static.primitive import i32

    if action.pattern and connection.version_for(ApiKey.CONSUMER_GROUP_HEARTBEAT, PATTERN_VERSION) < PATTERN_VERSION:
        raise UnsupportedByBrokerError(
            f"{connection.address} does not match patterns for a group; subscribe to topics by name, or with"
            ' group_protocol="classic"'
        )
    owned: Any = None
    if action.owned is not None:
        owned = tuple(
            TopicPartitions(topic_id=topic_id, partitions=tuple(map(i32, partitions)))
            for topic_id, partitions in action.owned.items()
        )
    message = ConsumerGroupHeartbeatRequest(
        group_id=GroupId(identity.group_id),
        member_id=member_id,
        member_epoch=i32(action.member_epoch),
        # A static member is known by its instance in every heartbeat.
        instance_id=identity.instance_id,
        rack_id=identity.rack_id if action.is_whole else None,
        rebalance_timeout=milliseconds(identity.rebalance_timeout_ms if action.is_whole else NO_GENERATION),
        subscribed_topic_names=None if action.topics is None else tuple(map(TopicName, action.topics)),
        subscribed_topic_regex=action.pattern,
        server_assignor=identity.remote_assignor if action.is_whole else None,
        topic_partitions=owned,
    )
    answer = await connection.request(ApiKey.CONSUMER_GROUP_HEARTBEAT, message, timeout_ms=identity.request_timeout_ms)
    assignment = None
    if answer.assignment is not None:
        assignment = {each.topic_id: tuple(map(int, each.partitions)) for each in answer.assignment.topic_partitions}
    return HeartbeatAnswer(
        error_code=int(answer.error_code),
        error_message=answer.error_message,
        member_epoch=int(answer.member_epoch),
        heartbeat_interval=answer.heartbeat_interval.total_seconds(),
        assignment=assignment,
    )
