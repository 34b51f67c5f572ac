"""One share group as its records made it: members, epochs, targets, and which share-partitions have state.

Pure data, changed only by `apply`. Decisions are made in `groups_state.py`, on a copy to which each record of a change
is applied at once, so that every step sees the one before it.
"""

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from ottla.coordination.groups.record_values import Assignment
from ottla.coordination.groups.share.records import (
    CurrentRecord,
    CurrentValue,
    EpochRecord,
    GroupRecord,
    MemberRecord,
    MemberValue,
    StatePartitionsRecord,
    StatePartitionsValue,
    TargetEpochRecord,
    TargetRecord,
)
from ottla.coordination.groups.share.requests import LEAVE_EPOCH
from ottla.model.invariants import violated

FIRST_GROUP_EPOCH: Final = 1
FIRST_TARGET_EPOCH: Final = 1
_DELETED_TARGET_EPOCH: Final = -1
NOTHING: Assignment = {}


class GroupState(Enum):
    """What a group is doing, derived from its members."""

    EMPTY = "Empty"
    """No members. Exit: a member joins."""
    STABLE = "Stable"
    """Has members. Exit: the last member leaves."""
    DEAD = "Dead"
    """The group does not exist; only seen in a description."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A member: what it sent about itself, and what it may fetch. `member_epoch` never exceeds the target's epoch."""

    member_id: str
    said: MemberValue = field(default_factory=MemberValue)
    member_epoch: int = 0
    previous_member_epoch: int = -1
    assigned: Assignment = field(default_factory=dict)

    @property
    def current(self) -> CurrentValue:
        """The part of the member that its current assignment's record has."""
        return CurrentValue(
            member_epoch=self.member_epoch,
            previous_member_epoch=self.previous_member_epoch,
            assigned=self.assigned,
        )


_GONE: Final = CurrentValue(member_epoch=LEAVE_EPOCH, previous_member_epoch=LEAVE_EPOCH, assigned={})


class ShareGroup:
    """A group, changed only by `apply`. Its members, targets and states are never changed in place."""

    __slots__ = ("epoch", "group_id", "members", "metadata_hash", "states", "target_epoch", "target_ms", "targets")

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = FIRST_GROUP_EPOCH
        self.metadata_hash = 0
        self.target_epoch = FIRST_TARGET_EPOCH
        self.target_ms = 0
        self.members: dict[str, Member] = {}
        self.targets: dict[str, Assignment] = {}
        self.states = StatePartitionsValue()

    def copy(self) -> "ShareGroup":
        """An independent copy of the group."""
        twin = ShareGroup(self.group_id)
        for name in ("epoch", "metadata_hash", "target_epoch", "target_ms", "states"):
            setattr(twin, name, getattr(self, name))
        twin.members = self.members.copy()
        twin.targets = self.targets.copy()
        return twin

    def apply(self, record: GroupRecord) -> None:
        """Applies a record, the only way to change the group. A tombstone of a missing record changes nothing."""
        match record:
            case EpochRecord(_, epoch) if epoch is not None:
                self.epoch, self.metadata_hash = epoch.epoch, epoch.metadata_hash
            case MemberRecord(_, member_id, None):
                self.members.pop(member_id, None)
            case MemberRecord(_, member_id, said) if said is not None:
                self.members[member_id] = replace(self._member(member_id), said=said)
            case TargetEpochRecord(_, None):
                self.target_epoch, self.target_ms = _DELETED_TARGET_EPOCH, 0
            case TargetEpochRecord(_, target) if target is not None:
                self.target_epoch, self.target_ms = target.epoch, target.timestamp_ms
            case TargetRecord(_, member_id, None):
                self.targets.pop(member_id, None)
            case TargetRecord(_, member_id, assignment) if assignment is not None:
                self.targets[member_id] = assignment
            case CurrentRecord(_, member_id, current):
                if current is not None or member_id in self.members:
                    value = current or _GONE
                    self.members[member_id] = replace(
                        self._member(member_id),
                        member_epoch=value.member_epoch,
                        previous_member_epoch=value.previous_member_epoch,
                        assigned=value.assigned,
                    )
            case StatePartitionsRecord(_, states):
                self.states = states or StatePartitionsValue()

    def _member(self, member_id: str) -> Member:
        return self.members.get(member_id) or Member(member_id=member_id)

    @property
    def state(self) -> GroupState:
        """The state, derived from the members."""
        return GroupState.STABLE if self.members else GroupState.EMPTY

    def subscribed_topics(self) -> list[str]:
        """The topic names that any member is subscribed to, ascending."""
        return sorted({name for member in self.members.values() for name in member.said.topic_names})

    def has_unassigned_partitions(self) -> bool:
        """Whether a subscribed topic has initialized partitions that the target does not have, or the reverse."""
        subscribed = set(self.subscribed_topics())
        assigned: dict[object, set[int]] = {}
        for target in self.targets.values():
            for topic_id, partitions in target.items():
                assigned.setdefault(topic_id, set()).update(partitions)
        return any(
            topic.name in subscribed and assigned.get(topic_id, set()) != topic.partitions
            for topic_id, topic in self.states.initialized.items()
        )

    def check(self) -> None:
        """Raises when an invariant does not hold."""
        for member_id, member in self.members.items():
            if member.member_epoch > max(self.target_epoch, 0):
                violated(
                    f"share group {self.group_id}: member {member_id} is at epoch {member.member_epoch}, "
                    f"beyond the target's {self.target_epoch}"
                )
        for member_id in self.targets:
            if member_id not in self.members:
                violated(f"share group {self.group_id}: {member_id} has a target but is not a member")
        if self.target_epoch > self.epoch:
            violated(f"share group {self.group_id}: the target's epoch {self.target_epoch} is beyond {self.epoch}")
        for target in self.targets.values():
            for topic_id, partitions in target.items():
                known = self.states.initialized.get(topic_id)
                # A topic that was deleted is forgotten before the next target.
                if known is not None and not known.partitions.issuperset(partitions):
                    violated(f"share group {self.group_id}: {topic_id} {partitions} is assigned without state")
