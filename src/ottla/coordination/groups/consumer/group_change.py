"""A change to a consumer group under way: the records so far, and the group as it will be once they are written.

Pure. Has the steps that several events share: removing members, bumping the group epoch, computing a target, bringing a
member nearer to it. Which steps an event takes is decided in `groups_state.py`.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from uuid import UUID

from ottla.coordination.groups.consumer.group import ConsumerGroup, Member, metadata_hash
from ottla.coordination.groups.consumer.member_reconciliation import Goal, reconcile
from ottla.coordination.groups.consumer.records import (
    CurrentRecord,
    EpochRecord,
    EpochValue,
    GroupRecord,
    MemberRecord,
    PartitionMetadataRecord,
    RegexRecord,
    TargetEpochRecord,
    TargetEpochValue,
    TargetRecord,
    encode,
)
from ottla.coordination.groups.consumer.target_assignor import ASSIGNORS, DEFAULT_ASSIGNOR, AssignedMember, assign
from ottla.coordination.groups.group_kind import Topics
from ottla.coordination.groups.record_values import Assignment
from ottla.coordination.runtime.effects import CoordinatorRecord, Effect, Respond, Write
from ottla.model.error_codes import ErrorCode

NOTHING: Assignment = {}


class Refusal(Exception):
    """The request is invalid; becomes its error response."""

    def __init__(self, code: ErrorCode, why: str) -> None:
        super().__init__(why)
        self.code = code


class GroupChange:
    """Collects records; `group` is the group with them applied, except for those of `reconcile`, the last step. The
    group that was passed in is not changed."""

    def __init__(self, group: ConsumerGroup) -> None:
        self.group = group
        self.records: list[CoordinatorRecord] = []
        self.on_taken: list[Callable[[], list[Effect]]] = []
        """Called when the change is taken, after every check has passed."""
        self._is_copied = False

    def write(self, record: GroupRecord) -> None:
        """Adds a record and applies it, so that the next step sees it."""
        if not self._is_copied:
            self.group = self.group.copy()
            self._is_copied = True
        self.records.append(encode(record))
        self.group.apply(record)

    def write_foreign(self, records: Iterable[CoordinatorRecord]) -> None:
        """Adds records of another kind of group, written in the same batch."""
        self.records += records

    def effects(self, *responses: Respond, on_failure: tuple[Respond, ...] = ()) -> list[Effect]:
        """Takes the change. The responses leave when everything written so far is committed."""
        others = [effect for call in self.on_taken for effect in call()]
        return [*others, Write(tuple(self.records), responses, on_failure)]

    def remove_members(self, member_ids: Iterable[str], topics: Topics) -> None:
        """Removes members with their assignments, and bumps the group epoch."""
        group_id = self.group.group_id
        regexes: dict[str | None, None] = {}
        for member_id in member_ids:
            regexes[self.group.members[member_id].said.topic_regex] = None
            self._remove(member_id)
        for regex in regexes:
            if regex in self.group.regexes and regex is not None and not self.group.subscribers_of_regex(regex):
                self.write(RegexRecord(group_id, regex, None))
        self.bump_epoch(topics)

    def _remove(self, member_id: str) -> None:
        # In this order: a reader that stops in between finds a member without partitions, not partitions without one.
        self.write(CurrentRecord(self.group.group_id, member_id, None))
        self.write(TargetRecord(self.group.group_id, member_id, None))
        self.write(MemberRecord(self.group.group_id, member_id, None))

    def replace_static(self, old: Member, member_id: str) -> Member:
        """A static member is back, mostly under a new id; it keeps its target and partitions."""
        group_id = self.group.group_id
        target = self.group.targets.get(old.member_id, NOTHING)
        new = replace(old, member_id=member_id, member_epoch=0, previous_member_epoch=0)
        if old.member_id != member_id:
            self._remove(old.member_id)
            self.write(MemberRecord(group_id, member_id, new.said))
            self.write(TargetRecord(group_id, member_id, target))
        self.write(CurrentRecord(group_id, member_id, new.current))
        return new

    def bump_epoch(self, topics: Topics) -> None:
        """Bumps the group epoch: a new target is due."""
        digest = metadata_hash(self.group.subscribed_topics(), topics)
        value = EpochValue(epoch=self.group.epoch + 1, metadata_hash=digest)
        self.write(EpochRecord(self.group.group_id, value))
        if self.group.has_partition_metadata:
            self.write(PartitionMetadataRecord(self.group.group_id, False))

    def has_new_metadata(self, topics: Topics) -> bool:
        """Whether the subscribed topics have changed since the group epoch was last bumped."""
        return self.group.metadata_hash != metadata_hash(self.group.subscribed_topics(), topics)

    def update_target(self, topics: Topics, now_ms: int, interval_ms: int) -> None:
        """Computes the target for the group epoch, unless it exists or the last one is too recent."""
        group = self.group
        age_ms = now_ms - group.target_ms
        # A clock that was set back must not stop the group for as long.
        is_too_young = group.target_ms != 0 and 0 <= age_ms < interval_ms
        if group.target_epoch >= group.epoch or is_too_young:
            return
        counts: dict[UUID, int] = {}
        members = []
        ids_of: dict[tuple[tuple[str, ...], str | None], tuple[UUID, ...]] = {}
        """By subscription: most members have the same one."""
        for member_id, member in group.members.items():
            said = member.said
            topic_ids = ids_of.get((said.topic_names, said.topic_regex))
            if topic_ids is None:
                found = [topics[name] for name in group.topics_of(said) if name in topics]
                counts.update((topic.topic_id, topic.partition_count) for topic in found)
                topic_ids = tuple(sorted(topic.topic_id for topic in found))
                ids_of[said.topic_names, said.topic_regex] = topic_ids
            last_target = group.targets.get(member_id, NOTHING)
            members.append(AssignedMember(member_id, said.instance_id, topic_ids, last_target))
        for member_id, target in assign(preferred_assignor(group), members, counts).items():
            known = group.targets.get(member_id)
            if target is not known and target != known:
                self.write(TargetRecord(group.group_id, member_id, target))
        epoch = TargetEpochValue(epoch=group.epoch, timestamp_ms=now_ms)
        self.write(TargetEpochRecord(group.group_id, epoch))

    def reconcile(
        self, member_id: str, topics: Topics, owned: Assignment | None, *, subscription_changed: bool
    ) -> Member:
        """Brings the member a step nearer to its target, if possible; returns the member after that.

        The last step for this member: `group` still has it as it was. Other members that are reconciled by the same
        change find partitions that it releases taken, and get them later.
        """
        group = self.group
        member = group.members[member_id]
        if not subscription_changed and member.is_reconciled_to(group.target_epoch):
            return member
        names = group.topics_of(member.said)
        goal = Goal(
            target_epoch=group.target_epoch,
            target=group.targets.get(member_id, NOTHING),
            subscribed_ids={topics[name].topic_id for name in names if name in topics},
            subscription_changed=subscription_changed,
            owners=group.owners,
        )
        reconciled = reconcile(member, goal, owned)
        if reconciled is None:
            raise Refusal(
                ErrorCode.FENCED_MEMBER_EPOCH,
                f"Member {member_id} is in a state that this broker does not know; it must give up all its partitions "
                "and join again.",
            )
        if not reconciled.has_moved_from(member):
            return member
        self.records.append(encode(CurrentRecord(group.group_id, member_id, reconciled.current)))
        return reconciled


def preferred_assignor(group: ConsumerGroup) -> str:
    """The assignor that most members ask for; the default one if none asks."""
    votes = dict.fromkeys(ASSIGNORS, 0)
    for member in group.members.values():
        if member.said.server_assignor in votes:
            votes[member.said.server_assignor] += 1
    best = max(votes, key=votes.__getitem__)
    return best if votes[best] else DEFAULT_ASSIGNOR


def tombstones(group: ConsumerGroup) -> list[GroupRecord]:
    """The tombstones of all records of the group, without its offsets."""
    group_id = group.group_id
    records: list[GroupRecord] = [CurrentRecord(group_id, member_id, None) for member_id in group.members]
    records += [TargetRecord(group_id, member_id, None) for member_id in group.members]
    records.append(TargetEpochRecord(group_id, None))
    records += [MemberRecord(group_id, member_id, None) for member_id in group.members]
    records += [RegexRecord(group_id, regex, None) for regex in group.regexes]
    records.append(PartitionMetadataRecord(group_id, False))
    records.append(EpochRecord(group_id, None))
    return records
