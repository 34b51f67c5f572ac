"""One consumer group as its records made it: members, epochs, targets, and what is derived from them.

Pure data, changed only by `apply`. Decisions are made in `groups_state.py`, on a copy to which each record of a change
is applied at once (`group_change.py`), so that every step sees the one before it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import Enum
from hashlib import blake2b
from typing import Final
from uuid import UUID

from ottla.coordination.groups.consumer.records import (
    ClassicMetadata,
    CurrentRecord,
    CurrentValue,
    EpochRecord,
    GroupRecord,
    Holdings,
    MemberRecord,
    MemberState,
    MemberValue,
    PartitionMetadataRecord,
    RegexRecord,
    RegexValue,
    TargetEpochRecord,
    TargetRecord,
)
from ottla.coordination.groups.consumer.requests import LEAVE_EPOCH, STATIC_LEAVE_EPOCH
from ottla.coordination.groups.group_kind import Topics
from ottla.coordination.groups.record_values import Assignment
from ottla.model.invariants import violated

FIRST_GROUP_EPOCH: Final = 1
FIRST_TARGET_EPOCH: Final = 1
_DELETED_TARGET_EPOCH: Final = -1


class GroupState(Enum):
    """What a group is doing, derived from its epochs and members."""

    EMPTY = "Empty"
    """No members. Exit: a member joins."""
    ASSIGNING = "Assigning"
    """The group epoch is ahead of the target epoch. Exit: the next heartbeat that may compute a target."""
    RECONCILING = "Reconciling"
    """A member has not reached its target. Exits: all have, or the group epoch is bumped."""
    STABLE = "Stable"
    """All members have their target. Exits: the group epoch is bumped, or the last member leaves."""
    DEAD = "Dead"
    """The group does not exist; only seen in a description."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A member: what it sent about itself, and how far it has reconciled.

    `member_epoch` never exceeds the target's epoch; `assigned` and `revoking` are disjoint, and no other member has
    any of either.
    """

    member_id: str
    said: MemberValue = field(default_factory=MemberValue)
    member_epoch: int = 0
    previous_member_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Holdings = field(default_factory=dict)
    revoking: Holdings = field(default_factory=dict)

    @property
    def classic(self) -> ClassicMetadata | None:
        """Set for a member that uses the classic protocol."""
        return self.said.classic

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
        return Member(
            member_id=self.member_id,
            said=self.said,
            member_epoch=current.member_epoch,
            previous_member_epoch=current.previous_member_epoch,
            state=current.state,
            assigned=current.assigned,
            revoking=current.revoking,
        )

    def has_moved_from(self, before: "Member") -> bool:
        """Whether the current assignment differs."""
        return self is not before and (
            self.member_epoch != before.member_epoch
            or self.previous_member_epoch != before.previous_member_epoch
            or self.state is not before.state
            or self.assigned != before.assigned
            or self.revoking != before.revoking
        )

    def is_reconciled_to(self, target_epoch: int) -> bool:
        """Whether the member has reached this target."""
        return self.state is MemberState.STABLE and self.member_epoch == target_epoch


_GONE: Final = CurrentValue(
    member_epoch=LEAVE_EPOCH,
    previous_member_epoch=LEAVE_EPOCH,
    state=MemberState.STABLE,
    assigned={},
    revoking={},
)


class ConsumerGroup:
    """A group, changed only by `apply`. Its members, targets and patterns are never changed in place."""

    __slots__ = (
        "epoch",
        "group_id",
        "has_partition_metadata",
        "members",
        "metadata_hash",
        "owners",
        "regexes",
        "static_ids",
        "target_epoch",
        "target_ms",
        "targets",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = FIRST_GROUP_EPOCH
        self.metadata_hash = 0
        self.target_epoch = FIRST_TARGET_EPOCH
        self.target_ms = 0
        self.members: dict[str, Member] = {}
        self.targets: dict[str, Assignment] = {}
        self.regexes: dict[str, RegexValue] = {}
        self.static_ids: dict[str, str] = {}
        """The member id that an instance id belongs to."""
        self.owners: dict[tuple[UUID, int], str] = {}
        """The member that has a partition, or is still giving it up."""
        self.has_partition_metadata = False

    def copy(self) -> "ConsumerGroup":
        """An independent copy of the group."""
        twin = ConsumerGroup(self.group_id)
        twin.epoch, twin.metadata_hash = self.epoch, self.metadata_hash
        twin.target_epoch, twin.target_ms = self.target_epoch, self.target_ms
        twin.has_partition_metadata = self.has_partition_metadata
        twin.members = self.members.copy()
        twin.targets = self.targets.copy()
        twin.regexes = self.regexes.copy()
        twin.static_ids = self.static_ids.copy()
        twin.owners = self.owners.copy()
        return twin

    def apply(self, record: GroupRecord) -> None:
        """Applies a record, the only way to change the group. A tombstone of a missing record changes nothing."""
        match record:
            case CurrentRecord(_, member_id, current):
                known = self.members.get(member_id)
                if current is not None or known is not None:
                    self._put((known or Member(member_id=member_id)).with_current(current or _GONE))
            case TargetRecord(_, member_id, None):
                self.targets.pop(member_id, None)
            case TargetRecord(_, member_id, assignment) if assignment is not None:
                self.targets[member_id] = assignment
            case EpochRecord(_, epoch) if epoch is not None:
                self.epoch, self.metadata_hash = epoch.epoch, epoch.metadata_hash
            case PartitionMetadataRecord(_, exists):
                self.has_partition_metadata = exists
            case MemberRecord(_, member_id, None):
                self._remove(member_id)
            case MemberRecord(_, member_id, said) if said is not None:
                self._put(replace(self.members.get(member_id) or Member(member_id=member_id), said=said))
            case TargetEpochRecord(_, None):
                self.target_epoch, self.target_ms = _DELETED_TARGET_EPOCH, 0
            case TargetEpochRecord(_, target) if target is not None:
                self.target_epoch, self.target_ms = target.epoch, target.timestamp_ms
            case RegexRecord(_, regex, None):
                self.regexes.pop(regex, None)
            case RegexRecord(_, regex, resolved) if resolved is not None:
                self.regexes[regex] = resolved

    def _put(self, member: Member) -> None:
        before = self.members.get(member.member_id)
        self.members[member.member_id] = member
        if before is None or before.assigned != member.assigned or before.revoking != member.revoking:
            self._disown(before)
            for partition in held(member):
                self.owners[partition] = member.member_id
        if member.said.instance_id is not None:
            self.static_ids[member.said.instance_id] = member.member_id

    def _remove(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        self._disown(member)
        if member is not None and self.static_ids.get(member.said.instance_id or "") == member_id:
            del self.static_ids[member.said.instance_id or ""]

    def _disown(self, member: Member | None) -> None:
        if member is None:
            return
        for partition in held(member):
            if self.owners.get(partition) == member.member_id:
                del self.owners[partition]

    @property
    def state(self) -> GroupState:
        """The state, derived from epochs and members."""
        if not self.members:
            return GroupState.EMPTY
        if self.epoch > self.target_epoch:
            return GroupState.ASSIGNING
        if all(member.is_reconciled_to(self.target_epoch) for member in self.members.values()):
            return GroupState.STABLE
        return GroupState.RECONCILING

    def static_member(self, instance_id: str) -> Member | None:
        """The member that has this instance id."""
        return self.members.get(self.static_ids.get(instance_id, ""))

    def subscribers_of_regex(self, regex: str) -> int:
        """How many members have this pattern."""
        return sum(member.said.topic_regex == regex for member in self.members.values())

    def topics_of(self, said: MemberValue) -> tuple[str, ...]:
        """The topic names of a subscription, with those that its pattern matched, ascending; some may not exist."""
        resolved = self.regexes.get(said.topic_regex) if said.topic_regex else None
        if resolved is None or not resolved.topics:
            return said.topic_names
        return tuple(sorted({*said.topic_names, *resolved.topics}))

    def subscribed_topics(self) -> list[str]:
        """The topic names that any member is subscribed to, ascending."""
        # Most members have the same subscription, so comparing whole tuples is cheaper than going through them.
        lists = {member.said.topic_names for member in self.members.values()}
        lists |= {resolved.topics for resolved in self.regexes.values()}
        return sorted({name for names in lists for name in names})

    def check(self) -> None:
        """Raises when an invariant does not hold."""
        seen: dict[tuple[UUID, int], str] = {}
        for member_id, member in self.members.items():
            for partition in held(member):
                other = seen.setdefault(partition, member_id)
                if other != member_id:
                    violated(f"group {self.group_id}: {partition} belongs to {other} and to {member_id}")
            if member.member_epoch > max(self.target_epoch, 0):
                violated(
                    f"group {self.group_id}: member {member_id} is at epoch {member.member_epoch}, "
                    f"beyond the target's {self.target_epoch}"
                )
            if member.member_epoch < STATIC_LEAVE_EPOCH:
                violated(f"group {self.group_id}: member {member_id} is at epoch {member.member_epoch}")
        if seen != self.owners:
            violated(f"group {self.group_id}: the owners {self.owners} are not the members' {seen}")
        if self.target_epoch > self.epoch:
            violated(f"group {self.group_id}: the target's epoch {self.target_epoch} is beyond {self.epoch}")
        self._check_target()

    def _check_target(self) -> None:
        promised: dict[tuple[UUID, int], str] = {}
        for member_id, assignment in self.targets.items():
            if member_id not in self.members:
                violated(f"group {self.group_id}: {member_id} has a target but is not a member")
            for topic_id, partitions in assignment.items():
                for partition in partitions:
                    other = promised.setdefault((topic_id, partition), member_id)
                    if other != member_id:
                        violated(
                            f"group {self.group_id}: {(topic_id, partition)} is promised to {other} and to {member_id}"
                        )


def held(member: Member) -> Iterable[tuple[UUID, int]]:
    """Every partition that the member has or is giving up."""
    for holdings in (member.assigned, member.revoking):
        for topic_id, epochs in holdings.items():
            for partition in epochs:
                yield topic_id, partition


def as_assignment(*holdings: Holdings) -> Assignment:
    """The partitions of all holdings together, without their epochs."""
    partitions: dict[UUID, list[int]] = {}
    for part in holdings:
        for topic_id, epochs in part.items():
            partitions.setdefault(topic_id, []).extend(epochs)
    return {topic_id: tuple(sorted(numbers)) for topic_id, numbers in sorted(partitions.items())}


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
