"""A change to a streams group under way: the records so far, and the group as it will be once they are written.

Pure. Has the steps that several events share: removing members, bumping the group epoch, computing a target, bringing a
member nearer to it. Which steps an event takes is decided in `groups_state.py`.
"""

from collections.abc import Iterable, Mapping

from ottla.coordination.groups.streams.group import Member, StreamsGroup
from ottla.coordination.groups.streams.member_reconciliation import Goal, reconcile
from ottla.coordination.groups.streams.records import (
    CurrentRecord,
    EpochRecord,
    EpochValue,
    GroupRecord,
    MemberRecord,
    TargetEpochRecord,
    TargetEpochValue,
    TargetRecord,
    TopologyRecord,
    encode,
)
from ottla.coordination.groups.streams.requests import STANDBY_REPLICAS, Refusal
from ottla.coordination.groups.streams.task_assignor import AssignedMember, assign
from ottla.coordination.groups.streams.tasks import NOTHING, TaskSet
from ottla.coordination.groups.streams.topology_configuration import ConfiguredTopology
from ottla.coordination.runtime.effects import CoordinatorRecord, Effect, Respond, Write
from ottla.model.error_codes import ErrorCode


class GroupChange:
    """Collects records; `group` is the group with them applied. The group that was passed in is not changed."""

    def __init__(self, group: StreamsGroup, records: Iterable[CoordinatorRecord] = ()) -> None:
        self.group = group
        self.records = list(records)
        """Starts with records of another kind of group, written in the same batch."""
        self._is_copied = False

    def write(self, record: GroupRecord) -> None:
        """Adds a record and applies it, so that the next step sees it."""
        if not self._is_copied:
            self.group = self.group.copy()
            self._is_copied = True
        self.records.append(encode(record))
        self.group.apply(record)

    def effects(self, *responses: Respond, on_failure: tuple[Respond, ...] = ()) -> list[Effect]:
        """Takes the change. The responses leave when everything written so far is committed."""
        return [Write(tuple(self.records), responses, on_failure)]

    def remove_members(self, member_ids: Iterable[str]) -> None:
        """Removes members with their tasks, and bumps the group epoch."""
        group = self.group
        for member_id in member_ids:
            # In this order: a reader that stops in between finds a member without tasks, not tasks without one.
            self.write(CurrentRecord(group.group_id, member_id, None))
            self.write(TargetRecord(group.group_id, member_id, None))
            self.write(MemberRecord(group.group_id, member_id, None))
        self.bump_epoch(group.metadata_hash, group.validated_topology_epoch, group.assignment_configs)

    def bump_epoch(self, digest: int, validated_topology_epoch: int, configs: Mapping[str, str]) -> None:
        """Bumps the group epoch: a new target is due."""
        value = EpochValue(
            epoch=self.group.epoch + 1,
            metadata_hash=digest,
            validated_topology_epoch=validated_topology_epoch,
            assignment_configs=configs,
        )
        self.write(EpochRecord(self.group.group_id, value))

    def update_target(self, configured: ConfiguredTopology, now_ms: int) -> None:
        """Computes the target for the group epoch. Members of a group that is not ready have no tasks."""
        group = self.group
        targets = dict.fromkeys(group.members, NOTHING)
        if configured.is_ready:
            members = [
                AssignedMember(
                    member_id=member_id,
                    process_id=member.said.process_id,
                    last_target=group.targets.get(member_id, NOTHING),
                )
                for member_id, member in group.members.items()
            ]
            replicas = int(group.assignment_configs.get(STANDBY_REPLICAS, "0"))
            targets = assign(members, configured.subtopologies.values(), replicas)
        for member_id, target in targets.items():
            if target != group.targets.get(member_id):
                self.write(TargetRecord(group.group_id, member_id, target))
        epoch = TargetEpochValue(epoch=group.epoch, timestamp_ms=now_ms)
        self.write(TargetEpochRecord(group.group_id, epoch))

    def reconcile(self, member_id: str, target: TaskSet, owned: TaskSet | None) -> Member:
        """Brings the member a step nearer to its target, if possible; returns the member after that."""
        group = self.group
        member = group.members[member_id]
        goal = Goal(
            target_epoch=group.target_epoch,
            target=target,
            is_active_elsewhere=lambda task: group.is_active_elsewhere(task, member_id),
            is_in_process=lambda task: group.is_in_process(task, member_id),
        )
        reconciled = reconcile(member, goal, owned)
        if reconciled is None:
            raise Refusal(
                ErrorCode.FENCED_MEMBER_EPOCH,
                f"Member {member_id} is in a state that this broker does not know; it must give up all its tasks and "
                "join again.",
            )
        if reconciled != member:
            self.write(CurrentRecord(group.group_id, member_id, reconciled.current))
        return reconciled


def tombstones(group: StreamsGroup) -> list[GroupRecord]:
    """The tombstones of all records of the group, without its offsets."""
    group_id = group.group_id
    records: list[GroupRecord] = [CurrentRecord(group_id, member_id, None) for member_id in group.members]
    records += [TargetRecord(group_id, member_id, None) for member_id in group.members]
    records.append(TargetEpochRecord(group_id, None))
    records += [MemberRecord(group_id, member_id, None) for member_id in group.members]
    records.append(EpochRecord(group_id, None))
    records.append(TopologyRecord(group_id, None))
    return records
