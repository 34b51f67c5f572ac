"""The requests of a member to its coordinator: join, sync, heartbeat and leave, in all group protocols.

Each function sends one action of `classic_membership_state.py`, `consumer_membership_state.py` or
`share_membership_state.py` and returns the response in their terms. Error codes are part of the response; a request
without a response raises.
"""

from dataclasses import dataclass
from typing import Any, Final

from ottla.client.errors import UnsupportedByBrokerError
from ottla.client.group.classic_membership_state import Heartbeat, Join, Joined, Leave, Sync
from ottla.client.group.consumer_membership_state import GroupHeartbeat, HeartbeatAnswer
from ottla.client.group.membership_state import NO_GENERATION
from ottla.client.group.share_membership_state import ShareHeartbeat
from ottla.protocol.apis import ApiKey
from ottla.protocol.messages import milliseconds
from ottla.transport.client_connection import Connection

PROTOCOL_TYPE: Final = "consumer"
PATTERN_VERSION: Final = 1
"""The first version of ConsumerGroupHeartbeat that has a pattern."""
_ANSWER_MARGIN_MS: Final = 5_000
"""How much longer than the rebalance timeout a response to JoinGroup or SyncGroup may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberIdentity:
    """What is the same in all requests of a member."""

    group_id: str
    instance_id: str | None
    rack_id: str | None
    session_timeout_ms: int
    rebalance_timeout_ms: int
    request_timeout_ms: int
    remote_assignor: str | None = None
    protocol_type: str = PROTOCOL_TYPE
    """Of a classic group: its members are consumers, or something else."""


async def ask_join(connection: Connection, identity: MemberIdentity, action: Join) -> Joined:
    """JoinGroup; answered once all members have joined, or the rebalance timeout is over."""
    from kio.schema.join_group.v9.request import JoinGroupRequest, JoinGroupRequestProtocol
    from kio.schema.types import GroupId

    message = JoinGroupRequest(
        group_id=GroupId(identity.group_id),
        session_timeout=milliseconds(identity.session_timeout_ms),
        rebalance_timeout=milliseconds(identity.rebalance_timeout_ms),
        member_id=action.member_id,
        group_instance_id=identity.instance_id,
        protocol_type=identity.protocol_type,
        protocols=tuple(JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in action.protocols),
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
    """SyncGroup: (error code, this member's assignment); answered once the leader has sent all assignments."""
    from kio.schema.sync_group.v5.request import SyncGroupRequest, SyncGroupRequestAssignment
    from kio.schema.types import GroupId
    from kio.static.primitive import i32

    message = SyncGroupRequest(
        group_id=GroupId(identity.group_id),
        generation_id=i32(action.generation),
        member_id=action.member_id,
        group_instance_id=identity.instance_id,
        protocol_type=identity.protocol_type,
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
    """Heartbeat: the error code."""
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
    """LeaveGroup; the error code in the response does not matter."""
    from kio.schema.leave_group.v5.request import LeaveGroupRequest
    from kio.schema.leave_group.v5.request import MemberIdentity as LeavingMember
    from kio.schema.types import GroupId

    leaving = LeavingMember(member_id=action.member_id, group_instance_id=identity.instance_id, reason=action.reason)
    message = LeaveGroupRequest(group_id=GroupId(identity.group_id), members=(leaving,))
    await connection.request(ApiKey.LEAVE_GROUP, message, timeout_ms=identity.request_timeout_ms)


async def ask_group_heartbeat(
    connection: Connection, identity: MemberIdentity, member_id: str, action: GroupHeartbeat
) -> HeartbeatAnswer:
    """ConsumerGroupHeartbeat. Raises `UnsupportedByBrokerError` for a pattern that the broker cannot match."""
    from kio.schema.consumer_group_heartbeat.v1.request import ConsumerGroupHeartbeatRequest, TopicPartitions
    from kio.schema.types import GroupId, TopicName
    from kio.static.primitive import i32

    if action.pattern and connection.version_for(ApiKey.CONSUMER_GROUP_HEARTBEAT, PATTERN_VERSION) < PATTERN_VERSION:
        raise UnsupportedByBrokerError(
            f"{connection.address} does not support subscriptions by pattern; subscribe to topics by name, or use"
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
        # Static members send their instance id in every heartbeat.
        instance_id=identity.instance_id,
        rack_id=identity.rack_id if action.is_whole else None,
        rebalance_timeout=milliseconds(identity.rebalance_timeout_ms if action.is_whole else NO_GENERATION),
        subscribed_topic_names=None if action.topics is None else tuple(map(TopicName, action.topics)),
        subscribed_topic_regex=action.pattern,
        server_assignor=identity.remote_assignor if action.is_whole else None,
        topic_partitions=owned,
    )
    answer = await connection.request(ApiKey.CONSUMER_GROUP_HEARTBEAT, message, timeout_ms=identity.request_timeout_ms)
    return _heartbeat_answer(answer)


async def ask_share_heartbeat(
    connection: Connection, identity: MemberIdentity, member_id: str, action: ShareHeartbeat
) -> HeartbeatAnswer:
    """ShareGroupHeartbeat. Raises `UnsupportedByBrokerError` if the broker has no share groups."""
    from kio.schema.share_group_heartbeat.v1.request import ShareGroupHeartbeatRequest
    from kio.schema.types import GroupId, TopicName
    from kio.static.primitive import i32

    message = ShareGroupHeartbeatRequest(
        group_id=GroupId(identity.group_id),
        member_id=member_id,
        member_epoch=i32(action.member_epoch),
        rack_id=identity.rack_id if action.is_whole else None,
        subscribed_topic_names=None if action.topics is None else tuple(map(TopicName, action.topics)),
    )
    answer = await connection.request(ApiKey.SHARE_GROUP_HEARTBEAT, message, timeout_ms=identity.request_timeout_ms)
    return _heartbeat_answer(answer)


def _heartbeat_answer(answer: Any) -> HeartbeatAnswer:
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
