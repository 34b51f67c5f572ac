"""One streams group as its records made it: members, epochs, topology, targets, and what is derived from them.

Pure data, changed only by `apply`. Decisions are made in `groups_state.py`, on a copy to which each record of a change
is applied at once (`group_change.py`), so that every step sees the one before it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Final

from ottla.coordination.groups.group_kind import Topics
from ottla.coordination.groups.streams.records import (
    NOT_VALIDATED,
    CurrentRecord,
    CurrentValue,
    EpochRecord,
    EpochValue,
    GroupRecord,
    MemberRecord,
    MemberState,
    MemberValue,
    TargetEpochRecord,
    TargetRecord,
    TopologyRecord,
)
from ottla.coordination.groups.streams.requests import LEAVE_EPOCH, GroupState
from ottla.coordination.groups.streams.tasks import NOTHING_HELD, HeldTasks, TaskId, TaskSet, task_ids
from ottla.coordination.groups.streams.topology import Topology
from ottla.model.invariants import violated

FIRST_GROUP_EPOCH: Final = 1
FIRST_TARGET_EPOCH: Final = 1
_DELETED_TARGET_EPOCH: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A member: what it sent about itself, and how far it has reconciled.

    `member_epoch` never exceeds the target's epoch; no other member has an active task of `assigned` or `revoking`.
    """

    member_id: str
    said: MemberValue = field(default_factory=MemberValue)
    member_epoch: int = 0
    previous_member_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: HeldTasks = NOTHING_HELD
    revoking: HeldTasks = NOTHING_HELD

    @property
    def current(self) -> CurrentValue:
        """The part of the member that its current assignment's record has."""
        return CurrentValue(
            member_epoch=self.member_epoch,
            previous_member_epoch=self.previous_member_epoch,
            state=self.state,
            assigned=self.assigned,
            revoking=self.revoking,
        )

    def with_current(self, current: CurrentValue) -> "Member":
        """The member after its current assignment became this."""
        return replace(
            self,
            member_epoch=current.member_epoch,
            previous_member_epoch=current.previous_member_epoch,
            state=current.state,
            assigned=current.assigned,
            revoking=current.revoking,
        )

    def is_reconciled_to(self, target_epoch: int) -> bool:
        """Whether the member has reached this target."""
        return self.state is MemberState.STABLE and self.member_epoch == target_epoch


_GONE: Final = CurrentValue(
    member_epoch=LEAVE_EPOCH,
    previous_member_epoch=LEAVE_EPOCH,
    state=MemberState.STABLE,
    assigned=NOTHING_HELD,
    revoking=NOTHING_HELD,
)


class StreamsGroup:
    """A group, changed only by `apply`. Its members and targets are never changed in place."""

    __slots__ = (
        "assignment_configs",
        "copies",
        "epoch",
        "group_id",
        "members",
        "metadata_hash",
        "owners",
        "target_epoch",
        "target_ms",
        "targets",
        "topology",
        "validated_topology_epoch",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = FIRST_GROUP_EPOCH
        self.metadata_hash = 0
        self.validated_topology_epoch = NOT_VALIDATED
        self.assignment_configs: Mapping[str, str] = {}
        self.target_epoch = FIRST_TARGET_EPOCH
        self.target_ms = 0
        self.topology: Topology | None = None
        self.members: dict[str, Member] = {}
        self.targets: dict[str, TaskSet] = {}
        self.owners: dict[TaskId, str] = {}
        """The member that has a task as an active one, or is still giving it up."""
        self.copies: dict[TaskId, frozenset[str]] = {}
        """The members that have a task as standby or warm-up, or are still giving it up."""

    def copy(self) -> "StreamsGroup":
        """An independent copy of the group."""
        twin = StreamsGroup(self.group_id)
        for name in self.__slots__:
            value = getattr(self, name)
            setattr(twin, name, value.copy() if isinstance(value, dict) else value)
        return twin

    def apply(self, record: GroupRecord) -> None:
        """Applies a record, the only way to change the group. A tombstone of a missing record changes nothing."""
        match record:
            case EpochRecord(_, value) if value is not None:
                self._apply_epoch(value)
            case TopologyRecord(_, topology):
                self.topology = topology
            case MemberRecord(_, member_id, None):
                self._disown(self.members.pop(member_id, None))
            case MemberRecord(_, member_id, said) if said is not None:
                self._put(replace(self.members.get(member_id) or Member(member_id=member_id), said=said))
            case TargetEpochRecord(_, None):
                self.target_epoch, self.target_ms = _DELETED_TARGET_EPOCH, 0
            case TargetEpochRecord(_, target) if target is not None:
                self.target_epoch, self.target_ms = target.epoch, target.timestamp_ms
            case TargetRecord(_, member_id, None):
                self.targets.pop(member_id, None)
            case TargetRecord(_, member_id, tasks) if tasks is not None:
                self.targets[member_id] = tasks
            case CurrentRecord(_, member_id, current):
                known = self.members.get(member_id)
                if current is not None or known is not None:
                    self._put((known or Member(member_id=member_id)).with_current(current or _GONE))

    def _apply_epoch(self, value: EpochValue) -> None:
        self.epoch = value.epoch
        self.metadata_hash = value.metadata_hash
        self.validated_topology_epoch = value.validated_topology_epoch
        self.assignment_configs = value.assignment_configs

    def _put(self, member: Member) -> None:
        self._disown(self.members.get(member.member_id))
        self.members[member.member_id] = member
        for task in _active(member):
            self.owners[task] = member.member_id
        for task in _copies(member):
            self.copies[task] = self.copies.get(task, frozenset()) | {member.member_id}

    def _disown(self, member: Member | None) -> None:
        if member is None:
            return
        for task in _active(member):
            if self.owners.get(task) == member.member_id:
                del self.owners[task]
        for task in _copies(member):
            left = self.copies.get(task, frozenset()) - {member.member_id}
            if left:
                self.copies[task] = left
            else:
                self.copies.pop(task, None)

    @property
    def state(self) -> GroupState:
        """The state, derived from epochs, topology and members."""
        if not self.members:
            return GroupState.EMPTY
        if self.topology is None or self.topology.epoch != self.validated_topology_epoch:
            return GroupState.NOT_READY
        if self.epoch > self.target_epoch:
            return GroupState.ASSIGNING
        if all(member.is_reconciled_to(self.target_epoch) for member in self.members.values()):
            return GroupState.STABLE
        return GroupState.RECONCILING

    def is_active_elsewhere(self, task: TaskId, member_id: str) -> bool:
        """Whether another member has the task as an active one, or is giving it up."""
        return self.owners.get(task, member_id) != member_id

    def is_in_process(self, task: TaskId, member_id: str) -> bool:
        """Whether another member of this member's process has the task in any role, or is giving it up."""
        process_id = self.members[member_id].said.process_id
        holders = {*self.copies.get(task, ()), self.owners.get(task, member_id)} - {member_id}
        return any(self.members[each].said.process_id == process_id for each in holders)

    def check(self) -> None:
        """Raises when an invariant does not hold."""
        owners: dict[TaskId, str] = {}
        copies: dict[TaskId, frozenset[str]] = {}
        for member_id, member in self.members.items():
            for task in _active(member):
                other = owners.setdefault(task, member_id)
                if other != member_id:
                    violated(f"group {self.group_id}: active task {task} belongs to {other} and to {member_id}")
            for task in _copies(member):
                copies[task] = copies.get(task, frozenset()) | {member_id}
            if not LEAVE_EPOCH <= member.member_epoch <= max(self.target_epoch, 0):
                violated(
                    f"group {self.group_id}: member {member_id} is at epoch {member.member_epoch}, "
                    f"the target at {self.target_epoch}"
                )
        if owners != self.owners or copies != self.copies:
            violated(f"group {self.group_id}: the owners of tasks are not what the members have")
        if self.target_epoch > self.epoch:
            violated(f"group {self.group_id}: the target's epoch {self.target_epoch} is beyond {self.epoch}")
        self._check_target()

    def _check_target(self) -> None:
        promised: dict[TaskId, str] = {}
        for member_id, tasks in self.targets.items():
            if member_id not in self.members:
                violated(f"group {self.group_id}: {member_id} has a target but is not a member")
            for task in task_ids(tasks.active):
                other = promised.setdefault(task, member_id)
                if other != member_id:
                    violated(f"group {self.group_id}: active task {task} is promised to {other} and to {member_id}")


def _active(member: Member) -> Iterable[TaskId]:
    """Every active task that the member has or is giving up."""
    yield from member.assigned.active_ids()
    yield from member.revoking.active_ids()


def _copies(member: Member) -> Iterable[TaskId]:
    """Every standby and warm-up task that the member has or is giving up."""
    yield from member.assigned.copy_ids()
    yield from member.revoking.copy_ids()


def metadata_hash(names: Iterable[str], topics: Topics) -> int:
    """A digest of those topics that exist: it changes when one is created, deleted, recreated, or gets partitions.

    0 if none exists. It is only compared with earlier results of this function and need not be equal to Kafka's: a
    group written by Kafka computes a new target once.
    """
    digest = blake2b(digest_size=8)
    is_empty = True
    for name in sorted(names):
        topic = topics.get(name)
        if topic is not None:
            is_empty = False
            digest.update(topic.topic_id.bytes + topic.partition_count.to_bytes(4) + name.encode() + b"\0")
    return 0 if is_empty else int.from_bytes(digest.digest(), signed=True)
