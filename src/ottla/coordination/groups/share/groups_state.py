"""All share groups of one partition of `__consumer_offsets`.

Pure. A heartbeat is the only request of their members: it creates or changes the member, bumps the group epoch if a
subscription or a topic changed, computes the target for that epoch, and moves the member to it at once: partitions are
shared, so that no member has to give one up first. A partition is assigned once the share coordinator has initialized
its state; until then the group asks for that, by effect. Silent members are removed by their session deadline.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple
from uuid import UUID

from ottla.coordination.groups.consumer.group import metadata_hash
from ottla.coordination.groups.consumer.group_change import Refusal
from ottla.coordination.groups.consumer.heartbeat_checks import TEXT_LENGTH_MAX
from ottla.coordination.groups.group_kind import AnyCommit, CommitVerdict, ExpiringGroup, Subscribes, Topics
from ottla.coordination.groups.requests import DeleteGroupResponse, ListedGroup, OffsetFetchRequest
from ottla.coordination.groups.share.group import NOTHING, GroupState, Member, ShareGroup
from ottla.coordination.groups.share.records import (
    RECORD_TYPES,
    CurrentRecord,
    EpochRecord,
    EpochValue,
    GroupRecord,
    MemberRecord,
    MemberValue,
    StatePartitionsRecord,
    StatePartitionsValue,
    TargetEpochRecord,
    TargetEpochValue,
    TargetRecord,
    TopicPartitions,
    decode,
    encode,
)
from ottla.coordination.groups.share.requests import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    MEMBER_ID_LENGTH_MAX,
    AlteredShareState,
    AlterShareState,
    ConfigOf,
    DeleteShareState,
    DescribedPartitions,
    DescribedShareGroup,
    DescribedShareMember,
    InitializeShareState,
    ShareEffect,
    ShareHeartbeat,
    ShareHeartbeatResponse,
)
from ottla.coordination.groups.share.simple_assignor import SIMPLE, AssignedMember, assign
from ottla.coordination.runtime.deadlines import Deadlines
from ottla.coordination.runtime.effects import CoordinatorRecord, Effect, Respond, Write
from ottla.model.error_codes import ErrorCode

SHARE_TYPE: Final = "share"
NOT_WRITTEN: Final = ErrorCode.COORDINATOR_NOT_AVAILABLE
_NOT_FOR_OFFSETS: Final = CommitVerdict(error=ErrorCode.GROUP_ID_NOT_FOUND)
Partitions = Mapping[UUID, Mapping[int, ErrorCode]]
"""The outcome of each share-partition at the share coordinator."""


class SessionKey(NamedTuple):
    """A member's session."""

    group_id: str
    member_id: str


class _Change:
    """Collects records; `group` is the group with them applied. The group that was passed in is not changed."""

    def __init__(self, group: ShareGroup) -> None:
        self.group = group.copy()
        self.records: list[CoordinatorRecord] = []

    def write(self, record: GroupRecord) -> None:
        self.records.append(encode(record))
        self.group.apply(record)

    def remove_member(self, member_id: str, topics: Topics) -> None:
        group_id = self.group.group_id
        # In this order: a reader that stops in between finds a member without partitions, not partitions without one.
        self.write(CurrentRecord(group_id, member_id, None))
        self.write(TargetRecord(group_id, member_id, None))
        self.write(MemberRecord(group_id, member_id, None))
        self.bump_epoch(topics)

    def bump_epoch(self, topics: Topics) -> None:
        digest = metadata_hash(self.group.subscribed_topics(), topics)
        value = EpochValue(epoch=self.group.epoch + 1, metadata_hash=digest)
        self.write(EpochRecord(self.group.group_id, value))

    def update_target(self, topics: Topics, now_ms: int, interval_ms: int) -> None:
        group = self.group
        age_ms = now_ms - group.target_ms
        # A clock that was set back must not stop the group for as long.
        is_too_young = group.target_ms != 0 and 0 <= age_ms < interval_ms
        if group.target_epoch >= group.epoch or is_too_young:
            return
        partitions = {topic_id: topic.partitions for topic_id, topic in group.states.initialized.items()}
        members = [
            AssignedMember(
                member_id=member.member_id,
                topic_ids=_topic_ids(member.said, topics),
                last_target=group.targets.get(member.member_id, NOTHING),
            )
            for member in group.members.values()
        ]
        for member_id, target in assign(members, partitions).items():
            if target != group.targets.get(member_id):
                self.write(TargetRecord(group.group_id, member_id, target))
        epoch = TargetEpochValue(epoch=group.epoch, timestamp_ms=now_ms)
        self.write(TargetEpochRecord(group.group_id, epoch))

    def reconcile(self, member_id: str, topics: Topics, *, is_changed: bool) -> Member:
        """Moves the member to its target."""
        group = self.group
        member = group.members[member_id]
        is_behind = member.member_epoch != group.target_epoch
        if not is_behind and not is_changed:
            return member
        subscribed = _topic_ids(member.said, topics)
        target = group.targets.get(member_id, NOTHING)
        moved = replace(
            member, assigned={topic_id: each for topic_id, each in target.items() if topic_id in subscribed}
        )
        if is_behind:
            moved = replace(moved, member_epoch=group.target_epoch, previous_member_epoch=member.member_epoch)
        if moved != member:
            self.write(CurrentRecord(group.group_id, member_id, moved.current))
        return moved


class ShareGroups:
    """The groups, by id. `replay` is the only way into them. Not written are deadlines, and since when the share
    coordinator is being asked."""

    type = SHARE_TYPE
    record_types = RECORD_TYPES

    def __init__(self, config_of: ConfigOf) -> None:
        self.config_of = config_of
        self.groups: dict[str, ShareGroup] = {}
        self.topics: Topics = {}
        self._topics_version = 0
        self._seen_version: dict[str, int] = {}
        """The version of the topics that a group was last compared with; without one it has to be compared."""
        self._deadlines: Deadlines[SessionKey] = Deadlines()
        self.next_deadline: Final = self._deadlines.next
        """When `on_tick` must be called next."""
        self.queued_deadlines: Final = self._deadlines.queued
        self._asked_ms: dict[str, int] = {}
        """When the share coordinator was last asked to initialize partitions of a group."""

    def heartbeat(self, request: ShareHeartbeat, now_ms: int, token: Hashable) -> list[Effect | ShareEffect]:
        """ShareGroupHeartbeat."""
        try:
            _check_heartbeat(request)
            if request.member_epoch == LEAVE_EPOCH:
                change, response = self._leave(request)
            else:
                change, response = self._live(request, now_ms)
        except Refusal as refusal:
            return [Respond(token, ShareHeartbeatResponse(error=refusal.code, error_message=str(refusal)))]
        asked = self._initialize(change, now_ms) if request.member_epoch != LEAVE_EPOCH else None
        failure = ShareHeartbeatResponse(error=NOT_WRITTEN)
        write = Write(tuple(change.records), (Respond(token, response),), (Respond(token, failure),))
        return [write] if asked is None else [write, asked]

    # Living

    def _live(self, request: ShareHeartbeat, now_ms: int) -> tuple[_Change, ShareHeartbeatResponse]:
        group_id, member_id = request.group_id, request.member_id
        config = self.config_of(group_id)
        is_joining = request.member_epoch == JOIN_EPOCH
        group = self.groups.get(group_id)
        if group is None:
            if not is_joining:
                raise Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Share group {group_id} not found.")
            group = ShareGroup(group_id)
        change = _Change(group)
        if len(group.members) >= config.max_size and member_id not in group.members:
            raise Refusal(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The share group has reached its maximum capacity of {config.max_size} members.",
            )
        before = group.members.get(member_id)
        if before is None:
            if not is_joining:
                raise Refusal(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group_id}.")
            before = Member(member_id=member_id)
        _check_epoch(before, request)
        is_changed = self._subscribe(change, before, request)
        change.update_target(self.topics, now_ms, config.assignment_interval_ms)
        after = change.reconcile(member_id, self.topics, is_changed=is_changed)
        self._deadlines.set(SessionKey(group_id, member_id), now_ms + config.session_timeout_ms)
        has_news = is_joining or request.topic_names is not None or after.assigned != before.assigned
        return change, ShareHeartbeatResponse(
            member_id=member_id,
            member_epoch=after.member_epoch,
            heartbeat_interval_ms=config.heartbeat_interval_ms,
            assignment=after.assigned if has_news else None,
        )

    def _subscribe(self, change: _Change, before: Member, request: ShareHeartbeat) -> bool:
        """Records what the member says of itself; bumps the group epoch if its subscription, a topic, or what is
        initialized changed. Returns whether it was bumped."""
        said = MemberValue(
            rack_id=before.said.rack_id if request.rack_id is None else request.rack_id,
            client_id=request.client_id,
            client_host=request.client_host,
            topic_names=(
                before.said.topic_names if request.topic_names is None else tuple(sorted(set(request.topic_names)))
            ),
        )
        if said != before.said or before.member_id not in change.group.members:
            change.write(MemberRecord(request.group_id, before.member_id, said))
        group = change.group
        is_changed = said.topic_names != before.said.topic_names
        if group.target_epoch >= group.epoch:
            is_changed = is_changed or group.has_unassigned_partitions()
        is_unseen = self._seen_version.get(request.group_id) != self._topics_version
        if is_unseen and group.metadata_hash != metadata_hash(group.subscribed_topics(), self.topics):
            is_changed = True
        if is_changed:
            change.bump_epoch(self.topics)
        else:
            # Only now: the record of a new epoch may fail to be written.
            self._seen_version[request.group_id] = self._topics_version
        return is_changed

    # State at the share coordinator

    def _initialize(self, change: _Change, now_ms: int) -> InitializeShareState | None:
        """Asks for the state of subscribed partitions that have none; again if there was no confirmation in time."""
        group_id, states = change.group.group_id, change.group.states
        asked_ms = self._asked_ms.get(group_id)
        retry_ms = self.config_of(group_id).initialize_retry_interval_ms
        is_asking = asked_ms is not None and 0 <= now_ms - asked_ms < retry_ms
        missing: dict[UUID, TopicPartitions] = {}
        for name in change.group.subscribed_topics():
            topic = self.topics.get(name)
            if topic is None:
                continue
            known = _partitions_of(states.initialized, topic.topic_id)
            if is_asking:
                known |= _partitions_of(states.initializing, topic.topic_id)
            lacking = frozenset(range(topic.partition_count)) - known
            if lacking:
                missing[topic.topic_id] = TopicPartitions(name, lacking)
        if not missing:
            return None
        self._asked_ms[group_id] = now_ms
        deleting = {topic_id: name for topic_id, name in states.deleting.items() if topic_id not in missing}
        value = replace(states, initializing=_united(states.initializing, missing), deleting=deleting)
        if value != states:
            change.write(StatePartitionsRecord(group_id, value))
        topics = {topic_id: tuple(sorted(topic.partitions)) for topic_id, topic in missing.items()}
        return InitializeShareState(group_id=group_id, state_epoch=change.group.epoch, topics=topics)

    def on_state_initialized(self, group_id: str, outcomes: Partitions) -> list[Effect]:
        """The share coordinator has answered: what it initialized can be assigned, the rest is asked for again."""
        group = self.groups.get(group_id)
        if group is None:
            return []
        done = {
            topic_id: frozenset(index for index, error in each.items() if error is ErrorCode.NONE)
            for topic_id, each in outcomes.items()
        }
        answered = {topic_id: frozenset(each) for topic_id, each in outcomes.items()}
        names = {topic.topic_id: name for name, topic in self.topics.items()}
        ready = {
            topic_id: TopicPartitions(names[topic_id], indexes)
            for topic_id, indexes in done.items()
            if indexes and topic_id in names
        }
        value = StatePartitionsValue(
            initializing=_without(group.states.initializing, answered),
            initialized=_united(group.states.initialized, ready),
            deleting=group.states.deleting,
        )
        if not value.initializing:
            self._asked_ms.pop(group_id, None)
        if value == group.states:
            return []
        return [Write((encode(StatePartitionsRecord(group_id, value)),))]

    def forget_deleted_topics(self) -> list[Effect]:
        """Topics were deleted: the groups forget which of their partitions had state."""
        alive = {topic.topic_id for topic in self.topics.values()}
        records = []
        for group_id, group in self.groups.items():
            states = group.states
            value = StatePartitionsValue(
                initializing=_of_topics(states.initializing, alive),
                initialized=_of_topics(states.initialized, alive),
                deleting={topic_id: name for topic_id, name in states.deleting.items() if topic_id in alive},
            )
            if value != states:
                records.append(encode(StatePartitionsRecord(group_id, value)))
        return [Write(tuple(records))] if records else []

    # Start offsets

    def alter_offsets(
        self, group_id: str, offsets: dict[UUID, dict[int, int]], now_ms: int, token: Hashable
    ) -> list[Effect | ShareEffect]:
        """AlterShareGroupOffsets, of existing partitions. A group that does not exist is created, without members."""
        group = self.groups.get(group_id)
        if group is not None and group.members:
            return [Respond(token, AlteredShareState(error=ErrorCode.NON_EMPTY_GROUP))]
        change = _Change(group or ShareGroup(group_id))
        names = {topic.topic_id: name for name, topic in self.topics.items()}
        wanted = {
            topic_id: TopicPartitions(names[topic_id], frozenset(each))
            for topic_id, each in offsets.items()
            if topic_id in names
        }
        # The epoch moves on, so that leaders that still have the former state are fenced.
        change.bump_epoch(self.topics)
        states = change.group.states
        deleting = {topic_id: name for topic_id, name in states.deleting.items() if topic_id not in wanted}
        value = replace(states, initializing=_united(states.initializing, wanted), deleting=deleting)
        change.write(StatePartitionsRecord(group_id, value))
        effect = AlterShareState(
            group_id=group_id,
            state_epoch=change.group.epoch,
            offsets={topic_id: each for topic_id, each in offsets.items() if topic_id in names},
            token=token,
        )
        failure = Respond(token, AlteredShareState(error=NOT_WRITTEN))
        return [Write(tuple(change.records), (), (failure,)), effect]

    def on_state_altered(self, effect: AlterShareState, outcomes: Partitions, now_ms: int) -> list[Effect]:
        """The share coordinator has answered a change of start offsets."""
        response = Respond(effect.token, AlteredShareState(partitions=_flat(outcomes)))
        written = self.on_state_initialized(effect.group_id, outcomes)
        failure = Respond(effect.token, AlteredShareState(error=NOT_WRITTEN))
        records = tuple(record for each in written if isinstance(each, Write) for record in each.records)
        return [Write(records, (response,), (failure,))]

    def delete_offsets(
        self, group_id: str, topic_ids: Iterable[UUID], now_ms: int, token: Hashable
    ) -> list[Effect | ShareEffect]:
        """DeleteShareGroupOffsets: the state of whole topics; a topic without state is left out of the response."""
        group = self.groups.get(group_id)
        if group is None:
            error = AlteredShareState(
                error=ErrorCode.GROUP_ID_NOT_FOUND,
                error_message=f"Group {group_id} is not a share group, or not found.",
            )
            return [Respond(token, error)]
        if group.members:
            return [Respond(token, AlteredShareState(error=ErrorCode.NON_EMPTY_GROUP))]
        return self._delete_state(group, set(topic_ids), token, deletes_group=False)

    def delete(self, group_id: str, now_ms: int, token: Hashable) -> list[Effect | ShareEffect]:
        """DeleteGroups, of a group without members: first its state, then its records."""
        group = self.groups[group_id]
        states = group.states
        return self._delete_state(
            group, {*states.initializing, *states.initialized, *states.deleting}, token, deletes_group=True
        )

    def _delete_state(
        self, group: ShareGroup, topic_ids: set[UUID], token: Hashable, *, deletes_group: bool
    ) -> list[Effect | ShareEffect]:
        states = group.states
        topics: dict[UUID, tuple[int, ...]] = {}
        deleting = dict(states.deleting)
        for name, topic in self.topics.items():
            topic_id = topic.topic_id
            if topic_id not in topic_ids:
                continue
            known = _partitions_of(states.initialized, topic_id) | _partitions_of(states.initializing, topic_id)
            if topic_id in states.deleting:
                known = frozenset(range(topic.partition_count))
            if known:
                topics[topic_id] = tuple(sorted(known))
                deleting[topic_id] = name
        effect = DeleteShareState(group_id=group.group_id, topics=topics, token=token, deletes_group=deletes_group)
        if not topics:
            return list(self.on_state_deleted(effect, {}))
        value = StatePartitionsValue(
            initializing={key: each for key, each in states.initializing.items() if key not in topics},
            initialized={key: each for key, each in states.initialized.items() if key not in topics},
            deleting=deleting,
        )
        record = encode(StatePartitionsRecord(group.group_id, value))
        return [Write((record,), (), (self._delete_failure(effect),)), effect]

    def on_state_deleted(self, effect: DeleteShareState, outcomes: Partitions) -> list[Effect]:
        """The share coordinator has answered a deletion."""
        group_id = effect.group_id
        group = self.groups.get(group_id)
        errors = [error for each in outcomes.values() for error in each.values() if error is not ErrorCode.NONE]
        if effect.deletes_group:
            error = errors[0] if errors else ErrorCode.NONE
            if group is not None and group.members and not errors:
                error = ErrorCode.NON_EMPTY_GROUP
            response = Respond(effect.token, DeleteGroupResponse(group_id=group_id, error=error))
            if group is None or error is not ErrorCode.NONE:
                return [response]
            return [Write(self.deletion_records(group_id), (response,), (self._delete_failure(effect),))]
        response = Respond(effect.token, AlteredShareState(partitions=_flat(outcomes)))
        failed = {
            topic_id
            for topic_id, each in outcomes.items()
            if any(error is not ErrorCode.NONE for error in each.values())
        }
        records: tuple[CoordinatorRecord, ...] = ()
        if group is not None and effect.topics:
            deleting = {
                topic_id: name
                for topic_id, name in group.states.deleting.items()
                if topic_id not in effect.topics or topic_id in failed
            }
            records = (encode(StatePartitionsRecord(group_id, replace(group.states, deleting=deleting))),)
        return [Write(records, (response,), (self._delete_failure(effect),))]

    def on_effect_failed(self, effect: ShareEffect) -> list[Effect]:
        """The records before the effect were not committed, so that it was left out."""
        match effect:
            case InitializeShareState(group_id=group_id):
                self._asked_ms.pop(group_id, None)
                return []
            case AlterShareState(token=token):
                return [Respond(token, AlteredShareState(error=NOT_WRITTEN))]
            case DeleteShareState():
                return [self._delete_failure(effect)]

    @staticmethod
    def _delete_failure(effect: DeleteShareState) -> Respond:
        failure: Any = AlteredShareState(error=NOT_WRITTEN)
        if effect.deletes_group:
            failure = DeleteGroupResponse(group_id=effect.group_id, error=NOT_WRITTEN)
        return Respond(effect.token, failure)

    def initialized_partitions(self, group_id: str) -> dict[str, tuple[int, ...]]:
        """The share-partitions of a group that have state, by topic name; deleted topics are left out."""
        group = self.groups.get(group_id)
        initialized = {} if group is None else group.states.initialized
        return {
            name: tuple(sorted(initialized[topic.topic_id].partitions))
            for name, topic in self.topics.items()
            if topic.topic_id in initialized
        }

    # Leaving

    def _leave(self, request: ShareHeartbeat) -> tuple[_Change, ShareHeartbeatResponse]:
        group = self.groups.get(request.group_id)
        if group is None:
            raise Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Share group {request.group_id} not found.")
        if request.member_id not in group.members:
            raise Refusal(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Member {request.member_id} is not a member of group {request.group_id}.",
            )
        change = _Change(group)
        change.remove_member(request.member_id, self.topics)
        return change, ShareHeartbeatResponse(member_id=request.member_id, member_epoch=LEAVE_EPOCH)

    # Time

    def on_clock_set(self, by_ms: int) -> None:
        """The clock was moved by this much; all deadlines move with it."""
        self._deadlines.shift(by_ms)
        self._asked_ms = {group_id: asked_ms + by_ms for group_id, asked_ms in self._asked_ms.items()}

    def on_tick(self, now_ms: int) -> list[Effect]:
        """Removes the members whose session has ended, those of one group in one write."""
        late: dict[str, list[str]] = {}
        while (key := self._deadlines.pop(now_ms)) is not None:
            group = self.groups.get(key.group_id)
            if group is None or key.member_id not in group.members:
                continue
            late.setdefault(key.group_id, []).append(key.member_id)
            # If the write fails the member stays, and needs a deadline again.
            self._deadlines.set(key, now_ms + self.config_of(key.group_id).session_timeout_ms)
        effects: list[Effect] = []
        for group_id, member_ids in late.items():
            change = _Change(self.groups[group_id])
            for member_id in member_ids:
                change.remove_member(member_id, self.topics)
            effects.append(Write(tuple(change.records)))
        return effects

    # Life cycle

    def replay(self, record: CoordinatorRecord) -> bool:
        """Applies a record; false if it belongs to another kind."""
        decoded = decode(record)
        match decoded:
            case None:
                return False
            case EpochRecord(group_id, None):
                self.groups.pop(group_id, None)
                self._seen_version.pop(group_id, None)
                self._asked_ms.pop(group_id, None)
                return True
            case MemberRecord(group_id, member_id, None):
                self._deadlines.clear(SessionKey(group_id, member_id))
        group = self.groups.get(decoded.group_id)
        if group is None and decoded.value is not None:
            group = self.groups[decoded.group_id] = ShareGroup(decoded.group_id)
        if group is not None:
            group.apply(decoded)
        return True

    def on_loaded(self, now_ms: int) -> list[Effect]:
        """The whole partition was replayed: all sessions start."""
        for group_id, group in self.groups.items():
            timeout_ms = self.config_of(group_id).session_timeout_ms
            for member_id in group.members:
                self._deadlines.set(SessionKey(group_id, member_id), now_ms + timeout_ms)
        return []

    def on_unloaded(self) -> list[Effect]:
        """What waits for the share coordinator is answered when that answers."""
        return []

    def on_metadata(self, topics: Topics) -> None:
        """The cluster's topics have changed; the same mapping is the same topics. Groups notice with the next
        heartbeat of a member."""
        if topics is not self.topics:
            self._topics_version += 1
        self.topics = topics

    # Offsets: share groups have none

    def commit_verdict(self, request: AnyCommit, *, is_transactional: bool) -> CommitVerdict:
        """A share group commits no offsets."""
        return _NOT_FOR_OFFSETS

    def on_commit(self, group_id: str, member_id: str, now_ms: int) -> None:
        """A share group commits no offsets."""

    def fetch_refusal(self, request: OffsetFetchRequest) -> ErrorCode:
        """A share group has no committed offsets."""
        return ErrorCode.GROUP_ID_NOT_FOUND

    def offset_delete_refusal(self, group_id: str) -> ErrorCode:
        """A share group has no committed offsets."""
        return ErrorCode.GROUP_ID_NOT_FOUND

    def subscription_of(self, group_id: str) -> Subscribes:
        """Which topics a group consumes."""
        return frozenset(self.groups[group_id].subscribed_topics()).__contains__

    def expiring_groups(self) -> Iterator[ExpiringGroup]:
        """None: share groups do not expire."""
        return iter(())

    # Groups

    def delete_refusal(self, group_id: str) -> ErrorCode:
        """Only a group without members can be deleted."""
        return ErrorCode.NON_EMPTY_GROUP if self.groups[group_id].members else ErrorCode.NONE

    def deletion_records(self, group_id: str) -> tuple[CoordinatorRecord, ...]:
        """The tombstones that delete a group."""
        group = self.groups.get(group_id)
        if group is None:
            return ()
        records: list[GroupRecord] = [CurrentRecord(group_id, member_id, None) for member_id in group.members]
        records += [TargetRecord(group_id, member_id, None) for member_id in group.members]
        records.append(TargetEpochRecord(group_id, None))
        records += [MemberRecord(group_id, member_id, None) for member_id in group.members]
        records.append(StatePartitionsRecord(group_id, None))
        records.append(EpochRecord(group_id, None))
        return tuple(map(encode, records))

    def listed(self) -> list[ListedGroup]:
        """All groups, for ListGroups."""
        return [
            ListedGroup(group_id, SHARE_TYPE, group.state.value, SHARE_TYPE) for group_id, group in self.groups.items()
        ]

    def describe(self, group_id: str) -> DescribedShareGroup:
        """ShareGroupDescribe, for one group."""
        group = self.groups.get(group_id)
        if group is None:
            return DescribedShareGroup(
                group_id=group_id,
                error=ErrorCode.GROUP_ID_NOT_FOUND,
                error_message=f"Group {group_id} is not a share group, or not found.",
                group_state=GroupState.DEAD.value,
            )
        names = {topic.topic_id: name for name, topic in self.topics.items()}
        return DescribedShareGroup(
            group_id=group_id,
            group_state=group.state.value,
            group_epoch=group.epoch,
            assignment_epoch=group.target_epoch,
            assignor=SIMPLE,
            members=tuple(_described(member, names) for member in group.members.values()),
        )

    def check(self) -> None:
        """Raises when an invariant does not hold."""
        for group in self.groups.values():
            group.check()


def _check_heartbeat(request: ShareHeartbeat) -> None:
    """Refuses a heartbeat that is invalid for any group."""
    for name, value in (("MemberId", request.member_id), ("GroupId", request.group_id), ("RackId", request.rack_id)):
        if value is not None and not value.strip():
            raise Refusal(ErrorCode.INVALID_REQUEST, f"{name} can't be empty.")
        if value is not None and len(value) > TEXT_LENGTH_MAX:
            raise Refusal(ErrorCode.INVALID_REQUEST, f"{name} has more than {TEXT_LENGTH_MAX} characters.")
    if len(request.member_id) > MEMBER_ID_LENGTH_MAX:
        raise Refusal(ErrorCode.INVALID_REQUEST, f"MemberId has more than {MEMBER_ID_LENGTH_MAX} characters.")
    if request.member_epoch == JOIN_EPOCH and not request.topic_names:
        raise Refusal(ErrorCode.INVALID_REQUEST, "SubscribedTopicNames must be set in first request.")
    if request.member_epoch < LEAVE_EPOCH:
        raise Refusal(ErrorCode.INVALID_REQUEST, "MemberEpoch is invalid.")


def _check_epoch(member: Member, request: ShareHeartbeat) -> None:
    """Refuses an unexpected member epoch. One epoch behind is a retry: the last response may have been lost."""
    epoch = request.member_epoch
    if epoch in (JOIN_EPOCH, member.member_epoch) or (
        epoch < member.member_epoch and epoch == member.previous_member_epoch
    ):
        return
    raise Refusal(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The share group member has a {'greater' if epoch > member.member_epoch else 'smaller'} member epoch "
        f"({epoch}) than the one known by the group coordinator ({member.member_epoch}). The member must abandon all "
        "its partitions and rejoin.",
    )


def _topic_ids(said: MemberValue, topics: Topics) -> frozenset[UUID]:
    return frozenset(topics[name].topic_id for name in said.topic_names if name in topics)


def _partitions_of(topics: Mapping[UUID, TopicPartitions], topic_id: UUID) -> frozenset[int]:
    topic = topics.get(topic_id)
    return frozenset() if topic is None else topic.partitions


def _united(
    first: Mapping[UUID, TopicPartitions], second: Mapping[UUID, TopicPartitions]
) -> dict[UUID, TopicPartitions]:
    united = dict(first)
    for topic_id, topic in second.items():
        united[topic_id] = TopicPartitions(topic.name, topic.partitions | _partitions_of(first, topic_id))
    return united


def _without(
    topics: Mapping[UUID, TopicPartitions], removed: Mapping[UUID, frozenset[int]]
) -> dict[UUID, TopicPartitions]:
    left = {}
    for topic_id, topic in topics.items():
        partitions = topic.partitions - removed.get(topic_id, frozenset())
        if partitions:
            left[topic_id] = TopicPartitions(topic.name, partitions)
    return left


def _of_topics(topics: Mapping[UUID, TopicPartitions], alive: set[UUID]) -> dict[UUID, TopicPartitions]:
    return {topic_id: topic for topic_id, topic in topics.items() if topic_id in alive}


def _flat(outcomes: Partitions) -> tuple[tuple[UUID, int, ErrorCode], ...]:
    return tuple((topic_id, index, error) for topic_id, each in outcomes.items() for index, error in each.items())


def _described(member: Member, names: Mapping[UUID, str]) -> DescribedShareMember:
    return DescribedShareMember(
        member_id=member.member_id,
        rack_id=member.said.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.said.client_id,
        client_host=member.said.client_host,
        topic_names=member.said.topic_names,
        # A topic that was deleted has no name to show.
        assignment=tuple(
            DescribedPartitions(topic_id=topic_id, topic_name=names[topic_id], partitions=partitions)
            for topic_id, partitions in member.assigned.items()
            if topic_id in names
        ),
    )
