"""Admin requests about groups: list, describe, delete, remove members.

They cover groups of both protocols, classic and consumer; `list_groups` and `delete_group` cover groups of all types,
and `any_group.py` describes them. Each function retries retriable errors and raises
`AnswerError`. Committed offsets are in `group_offsets.py`.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from ottla.client.errors import AnswerError, UnsupportedByBrokerError, answer_error
from ottla.client.group.classic_protocol import read_assignment
from ottla.client.network.cluster import Cluster
from ottla.client.network.coordinators import CoordinatorType, find_coordinator, to_coordinator
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.protocol.apis import ApiKey
from ottla.protocol.consumer_protocol import CONSUMER_PROTOCOL_TYPE, ConsumerProtocolError, read_topics

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
IDLE_STATES: Final = frozenset({"Empty", "Dead"})
"""A group in one of these has no members."""

_WORDS: Final = {
    ErrorCode.GROUP_ID_NOT_FOUND: "the group does not exist; `ottla groups list` shows all groups",
    ErrorCode.NON_EMPTY_GROUP: "the group has members; stop its consumers first",
    ErrorCode.UNKNOWN_MEMBER_ID: "the group has members, and only they may commit; stop its consumers first",
    ErrorCode.STALE_MEMBER_EPOCH: "the group has members, and only they may commit; stop its consumers first",
    ErrorCode.ILLEGAL_GENERATION: "the group has members, and only they may commit; stop its consumers first",
    ErrorCode.REBALANCE_IN_PROGRESS: "the group has members, and only they may commit; stop its consumers first",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "a member of the group is subscribed to the topic; stop it first",
    ErrorCode.INVALID_GROUP_ID: "the group id is not valid",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "the broker's ACLs do not allow this on the group",
}
_NOT_NEWER: Final = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION})


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListing:
    """One group in a list. `type` is `classic`, `consumer`, `share` or `streams`."""

    group_id: str
    type: str
    state: str
    protocol_type: str
    coordinator: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """One member. `assignment` is None if it is in a format of the member itself. Only consumer groups have epochs."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...] | None
    target: tuple[TopicPartition, ...] | None = None
    member_epoch: int | None = None
    subscription: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """One group with its members. Epochs are None for a classic group."""

    group_id: str
    type: str
    state: str
    protocol_type: str
    assignor: str
    coordinator: int
    members: tuple[GroupMember, ...]
    group_epoch: int | None = None
    assignment_epoch: int | None = None

    @property
    def is_idle(self) -> bool:
        """Whether the group has no members, so that its offsets can be altered."""
        return self.state in IDLE_STATES


async def list_groups(
    cluster: Cluster, *, states: Collection[str] = (), types: Collection[str] = ()
) -> list[GroupListing]:
    """The groups of all brokers, sorted: those in these states and of these types, or all. Case does not matter."""
    from kio.schema.list_groups.v5.request import ListGroupsRequest

    message = ListGroupsRequest(states_filter=tuple(states), types_filter=tuple(types))
    wanted_states, wanted_types = {each.lower() for each in states}, {each.lower() for each in types}
    found: dict[str, GroupListing] = {}

    async def ask(broker: int) -> None:
        response = await cluster.to_broker(broker, ApiKey.LIST_GROUPS, message)
        if response.error_code:
            raise group_error(int(response.error_code), f"groups of broker {broker}")
        for each in response.groups:
            found[each.group_id] = GroupListing(
                group_id=each.group_id,
                type=each.group_type.lower() or CLASSIC,
                state=each.group_state,
                protocol_type=each.protocol_type,
                coordinator=broker,
            )

    for broker in sorted((await cluster.retry(lambda: cluster.refresh([]))).brokers):
        await cluster.retry(partial(ask, broker))
    # A broker that is too old for a filter ignores it.
    return [
        found[name]
        for name in sorted(found)
        if (not wanted_states or found[name].state.lower() in wanted_states)
        and (not wanted_types or found[name].type in wanted_types)
    ]


async def describe_group(cluster: Cluster, group_id: str) -> GroupDescription:
    """Describes a group. Raises `AnswerError` with GROUP_ID_NOT_FOUND if it does not exist."""

    async def ask() -> GroupDescription:
        coordinator = await find_coordinator(cluster, CoordinatorType.GROUP, group_id)
        found = await _describe_newer(cluster, coordinator, group_id)
        return found or await _describe_classic(cluster, coordinator, group_id)

    return await cluster.retry(ask)


async def _describe_newer(cluster: Cluster, coordinator: int, group_id: str) -> GroupDescription | None:
    """None if the group is a classic one, or the broker does not support others."""
    from kio.schema.consumer_group_describe.v1.request import ConsumerGroupDescribeRequest
    from kio.schema.types import GroupId

    message = ConsumerGroupDescribeRequest(group_ids=(GroupId(group_id),), include_authorized_operations=False)
    try:
        response = await cluster.to_broker(coordinator, ApiKey.CONSUMER_GROUP_DESCRIBE, message)
    except UnsupportedByBrokerError:
        return None
    (group,) = response.groups
    if int(group.error_code) in _NOT_NEWER:
        return None
    refuse(group, f"group {group_id}")
    return GroupDescription(
        group_id=group_id,
        type=CONSUMER,
        state=group.group_state,
        protocol_type=CONSUMER,
        assignor=group.assignor_name,
        coordinator=coordinator,
        group_epoch=int(group.group_epoch),
        assignment_epoch=int(group.assignment_epoch),
        members=tuple(
            GroupMember(
                member_id=each.member_id,
                instance_id=each.instance_id,
                client_id=each.client_id,
                host=each.client_host,
                assignment=assigned(each.assignment),
                target=assigned(each.target_assignment),
                member_epoch=int(each.member_epoch),
                subscription=(
                    *each.subscribed_topic_names,
                    *([each.subscribed_topic_regex] if each.subscribed_topic_regex else []),
                ),
            )
            for each in group.members
        ),
    )


def assigned(assignment: Any) -> tuple[TopicPartition, ...]:
    """The partitions of an assignment in a response, sorted."""
    return tuple(
        sorted(
            TopicPartition(topic.topic_name, int(index))
            for topic in assignment.topic_partitions
            for index in topic.partitions
        )
    )


async def _describe_classic(cluster: Cluster, coordinator: int, group_id: str) -> GroupDescription:
    from kio.schema.describe_groups.v6.request import DescribeGroupsRequest
    from kio.schema.types import GroupId

    message = DescribeGroupsRequest(groups=(GroupId(group_id),), include_authorized_operations=False)
    response = await cluster.to_broker(coordinator, ApiKey.DESCRIBE_GROUPS, message)
    (group,) = response.groups
    refuse(group, f"group {group_id}")
    if group.group_state == "Dead":
        # Before version 6 a group that does not exist is described as Dead.
        raise group_error(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id}")
    return GroupDescription(
        group_id=group_id,
        type=CLASSIC,
        state=group.group_state,
        protocol_type=group.protocol_type,
        assignor=group.protocol_data,
        coordinator=coordinator,
        members=tuple(_classic_member(each, group.protocol_type) for each in group.members),
    )


def _classic_member(member: Any, protocol_type: str) -> GroupMember:
    assignment: tuple[TopicPartition, ...] | None = None
    subscription: tuple[str, ...] = ()
    if protocol_type == CONSUMER_PROTOCOL_TYPE:
        try:
            # While the group rebalances, there are no bytes.
            subscription = read_topics(member.member_metadata) if member.member_metadata else ()
            assignment = tuple(sorted(read_assignment(member.member_assignment)))
        except ConsumerProtocolError:
            # A member whose bytes are malformed is listed without them.
            assignment = None
    return GroupMember(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        client_id=member.client_id,
        host=member.client_host,
        assignment=assignment,
        subscription=subscription,
    )


async def delete_group(cluster: Cluster, group_id: str) -> None:
    """Deletes a group without members, with its committed offsets."""
    from kio.schema.delete_groups.v2.request import DeleteGroupsRequest
    from kio.schema.types import GroupId

    message = DeleteGroupsRequest(groups_names=(GroupId(group_id),))

    async def ask() -> None:
        response = await to_coordinator(cluster, CoordinatorType.GROUP, group_id, ApiKey.DELETE_GROUPS, message)
        refuse(response.results[0], f"group {group_id}")

    await cluster.retry(ask)


async def remove_members(
    cluster: Cluster, group_id: str, members: Sequence[tuple[str, str | None]], *, reason: str | None = None
) -> dict[tuple[str, str | None], AnswerError]:
    """Removes members, given as (member id, instance id), from a classic group; returns the errors."""
    from kio.schema.leave_group.v5.request import LeaveGroupRequest, MemberIdentity
    from kio.schema.types import GroupId

    message = LeaveGroupRequest(
        group_id=GroupId(group_id),
        members=tuple(
            MemberIdentity(member_id=member_id, group_instance_id=instance_id, reason=reason)
            for member_id, instance_id in members
        ),
    )

    async def ask() -> dict[tuple[str, str | None], AnswerError]:
        response = await to_coordinator(cluster, CoordinatorType.GROUP, group_id, ApiKey.LEAVE_GROUP, message)
        refuse(response, f"group {group_id}")
        # Results are in the order of the request. One for an instance id may have the member id instead.
        return {
            asked: answer_error(
                int(each.error_code),
                f"member {asked[1] or asked[0]} of group {group_id}",
                "the group has no such member" if _is_unknown(each) else None,
            )
            for asked, each in zip(members, response.members, strict=False)
            if each.error_code
        }

    return await cluster.retry(ask)


def _is_unknown(answer: Any) -> bool:
    return int(answer.error_code) == ErrorCode.UNKNOWN_MEMBER_ID


def refuse(answer: Any, what: str) -> None:
    """Raises `AnswerError` if the response has an error code."""
    if answer.error_code:
        raise group_error(int(answer.error_code), what, getattr(answer, "error_message", None))


def group_error(code: int, what: str, message: str | None = None) -> AnswerError:
    """The exception for an error code, with advice if there is some."""
    return answer_error(code, what, next((words for known, words in _WORDS.items() if known == code), message))
