"""Checks of a heartbeat before anything is changed. Raise `Refusal`, which becomes the response."""

from typing import Final

from ottla.coordination.groups.consumer.group import Member
from ottla.coordination.groups.consumer.group_change import Refusal
from ottla.coordination.groups.consumer.member_reconciliation import owns_only
from ottla.coordination.groups.consumer.requests import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    MEMBER_ID_REQUIRED_VERSION,
    STATIC_LEAVE_EPOCH,
    ConsumerHeartbeat,
)
from ottla.coordination.groups.consumer.target_assignor import ASSIGNORS
from ottla.model.error_codes import ErrorCode

TEXT_LENGTH_MAX: Final = 8_000
"""Longer names are refused; up to this length any encoding fits into a record's key."""


def check_heartbeat(request: ConsumerHeartbeat) -> None:
    """Refuses a heartbeat that is invalid for any group."""
    needs_id = request.api_version >= MEMBER_ID_REQUIRED_VERSION or request.member_epoch > 0
    if (needs_id or request.member_epoch == LEAVE_EPOCH) and not request.member_id:
        raise _invalid("MemberId can't be empty.")
    if not request.group_id:
        raise _invalid("GroupId can't be empty.")
    if request.instance_id == "":
        raise _invalid("InstanceId can't be empty.")
    if request.rack_id == "":
        raise _invalid("RackId can't be empty.")
    names = (request.group_id, request.member_id, request.instance_id, request.rack_id, request.topic_regex)
    if any(name is not None and len(name) > TEXT_LENGTH_MAX for name in names):
        raise _invalid(f"A name or pattern has more than {TEXT_LENGTH_MAX} characters.")
    if request.member_epoch == JOIN_EPOCH:
        _check_join(request)
    elif request.member_epoch == STATIC_LEAVE_EPOCH and request.instance_id is None:
        raise _invalid("InstanceId can't be null.")
    elif request.member_epoch < STATIC_LEAVE_EPOCH:
        raise _invalid(f"MemberEpoch {request.member_epoch} is invalid.")
    if request.server_assignor is not None and request.server_assignor not in ASSIGNORS:
        raise Refusal(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(ASSIGNORS)}.",
        )


def _check_join(request: ConsumerHeartbeat) -> None:
    if request.rebalance_timeout_ms == -1:
        raise _invalid("RebalanceTimeoutMs must be provided in first request.")
    if request.owned_partitions is None or any(request.owned_partitions.values()):
        raise _invalid("TopicPartitions must be empty when (re-)joining.")
    if request.topic_names is None and request.topic_regex is None:
        raise _invalid("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")


def _invalid(why: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REQUEST, why)


def check_epoch(member: Member, request: ConsumerHeartbeat) -> None:
    """Refuses a heartbeat with an unexpected member epoch.

    A member that is one epoch behind has missed the last response; it may continue if it owns no partition that it has
    lost since.
    """
    epoch = request.member_epoch
    if epoch in (JOIN_EPOCH, member.member_epoch):
        return
    is_retry = epoch == member.previous_member_epoch and owns_only(request.owned_partitions, member.assigned)
    if epoch > member.member_epoch or not is_retry:
        raise Refusal(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"Member {member.member_id} says that its epoch is {epoch}, which is "
            f"{'greater' if epoch > member.member_epoch else 'smaller'} than the {member.member_epoch} that the group "
            "coordinator knows. It must give up all its partitions and join again.",
        )


def check_static(member: Member | None, member_id: str, instance_id: str) -> Member:
    """Refuses an instance id that is unknown or belongs to another member."""
    if member is None:
        raise Refusal(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if member.member_id != member_id:
        raise Refusal(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}.",
        )
    return member
