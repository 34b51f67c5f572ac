"""Checks of a heartbeat of a streams group. Raise `Refusal`, which becomes the response.

What Kafka 4.3 does not support yet is refused as Kafka refuses it: static members, warm-up tasks, reported changelog
offsets, and patterns as source topics.
"""

from collections.abc import Mapping
from typing import Final

from ottla.coordination.groups.streams.group import Member
from ottla.coordination.groups.streams.requests import (
    JOIN_EPOCH,
    STATIC_LEAVE_EPOCH,
    Refusal,
    StreamsHeartbeat,
)
from ottla.coordination.groups.streams.tasks import TaskSet, owns_only, task_ids
from ottla.coordination.groups.streams.topology_configuration import ConfiguredSubtopology, check_topology
from ottla.model.error_codes import ErrorCode

TEXT_LENGTH_MAX: Final = 8_000
"""Longer names are refused; up to this length any encoding fits into a record's key."""


def check_heartbeat(request: StreamsHeartbeat) -> None:
    """Refuses a heartbeat that is invalid for any group."""
    _check_supported(request)
    if not request.member_id:
        raise _invalid("MemberId can't be empty.")
    if not request.group_id:
        raise _invalid("GroupId can't be empty.")
    if request.rack_id == "":
        raise _invalid("RackId can't be empty.")
    names = (request.group_id, request.member_id, request.rack_id, request.process_id)
    if any(name is not None and len(name) > TEXT_LENGTH_MAX for name in names):
        raise _invalid(f"A name has more than {TEXT_LENGTH_MAX} characters.")
    if request.member_epoch == JOIN_EPOCH:
        _check_join(request)
    elif request.member_epoch == STATIC_LEAVE_EPOCH:
        raise _invalid("InstanceId can't be null.")
    elif request.member_epoch < STATIC_LEAVE_EPOCH:
        raise _invalid(f"MemberEpoch is {request.member_epoch}, but must be greater than or equal to -2.")
    reports = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    if len({report is None for report in reports}) > 1:
        raise _invalid("If one task-type is non-null, all must be non-null.")
    if request.member_epoch != JOIN_EPOCH and request.topology is not None:
        raise _invalid("Topology can only be provided when (re-)joining.")


def _check_supported(request: StreamsHeartbeat) -> None:
    if request.instance_id is not None:
        raise _invalid("Static membership is not yet supported.")
    if request.has_task_offsets:
        raise _invalid("TaskOffsets and TaskEndOffsets are not supported yet.")
    if request.warmup_tasks:
        raise _invalid("WarmupTasks are not supported yet.")
    if request.topology is not None and any(each.source_topic_regex for each in request.topology.subtopologies):
        raise _invalid("Regular expressions for source topics are not supported yet.")


def _check_join(request: StreamsHeartbeat) -> None:
    if request.rebalance_timeout_ms == -1:
        raise _invalid("RebalanceTimeoutMs must be provided in first request.")
    if request.active_tasks:
        raise _invalid("ActiveTasks must be empty when (re-)joining.")
    if request.standby_tasks:
        raise _invalid("StandbyTasks must be empty when (re-)joining.")
    if request.topology is None:
        raise _invalid("Topology must be non-null when (re-)joining.")
    check_topology(request.topology)


def check_epoch(member: Member, request: StreamsHeartbeat) -> None:
    """Refuses a heartbeat with an unexpected member epoch.

    A member that is one epoch behind has missed the last response; it may continue if it owns no task that it has lost
    since.
    """
    epoch = request.member_epoch
    if epoch in (JOIN_EPOCH, member.member_epoch):
        return
    is_retry = epoch == member.previous_member_epoch and owns_only(request.owned, member.assigned)
    if epoch > member.member_epoch or not is_retry:
        raise Refusal(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"Member {member.member_id} says that its epoch is {epoch}, which is "
            f"{'greater' if epoch > member.member_epoch else 'smaller'} than the {member.member_epoch} that the group "
            "coordinator knows. It must give up all its tasks and join again.",
        )


def check_owned(owned: TaskSet | None, subtopologies: Mapping[str, ConfiguredSubtopology]) -> None:
    """Refuses a report of tasks that the topology does not have."""
    if owned is None:
        return
    for tasks in (owned.active, owned.standby, owned.warmup):
        for subtopology_id, partition in task_ids(tasks):
            found = subtopologies.get(subtopology_id)
            if found is None:
                raise _invalid(f"Subtopology {subtopology_id} does not exist in the topology.")
            if not 0 <= partition < found.task_count:
                raise _invalid(
                    f"Task {partition} for subtopology {subtopology_id} is invalid. Number of tasks for this "
                    f"subtopology: {found.task_count}"
                )


def _invalid(why: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REQUEST, why)
