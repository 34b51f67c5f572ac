"""All classic groups and committed offsets of one partition of `__consumer_offsets`.

Pure. Finds the group of an event, checks what needs no group, decides about offsets, and runs every timer. A group's
own life is in `classic_group_state.py`, the offsets are kept in `offsets_state.py`, requests and responses are in
`group_requests.py`. Groups and records of the newer protocols are left to their own machine: `replay` says which it
took, and where the offsets of such a group are concerned, the caller brings what that machine thinks of it.

An answer that tells what was written waits for its commit: a read is a `Write` too, without records, whose response
leaves when all that was written before it is committed.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from typing import Final
from uuid import UUID

from ottla.coordination.groups.classic.generations_state import GroupState, TimerKey
from ottla.coordination.groups.classic.group_state import CLASSIC_TYPE, NOT_WRITTEN, ClassicGroup
from ottla.coordination.groups.offset_records import offset_records, read_offset_records
from ottla.coordination.groups.offsets_state import OffsetsState
from ottla.coordination.groups.records import (
    GroupKey,
    OffsetKey,
    OffsetValue,
    group_tombstone,
    offset_record,
    offset_tombstone,
    read_group,
    read_key,
    read_offset,
)
from ottla.coordination.groups.requests import (
    NO_MEMBER_ID,
    NO_RETENTION,
    DeleteGroupRequest,
    DeleteGroupResponse,
    DescribedGroup,
    GroupEffect,
    GroupSettings,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinRequest,
    JoinResponse,
    LeaveRequest,
    LeaveResponse,
    LeftMember,
    ListedGroup,
    NewOffset,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    PartitionOutcome,
    SyncRequest,
    SyncResponse,
    TransactionalCommitRequest,
    WholeCommitRequest,
    WholeCommitResponse,
)
from ottla.coordination.runtime.deadlines import Deadlines
from ottla.coordination.runtime.effects import CoordinatorRecord, Effect, Respond, TransactionalWrite, Write
from ottla.env.ports import Random
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import NO_PRODUCER_ID, ProducerId, TopicPartition
from ottla.model.invariants import violated

_TEXT_LENGTH_MAX: Final = 8_000
"""Longer names than this, which any encoding of fits into a record, are nobody's; they are refused."""
_NAME_IN_ID_MAX: Final = 200
_RECORDS_PER_WRITE: Final = 1_000
_RETENTION_MAX_MS: Final = 2**62
_COMMITTED: Final = WholeCommitResponse()
_NOT_COMMITTED: Final = WholeCommitResponse(NOT_WRITTEN)


Subscribes = Callable[[str], bool]
"""Whether a group consumes the topic."""


class GroupShard:
    """The coordinator of the groups that one partition is responsible for.

    `is_elsewhere` says of a group id that another machine has it: then it is no classic group, but its offsets are
    here.
    """

    def __init__(
        self, settings: GroupSettings, random: Random, is_elsewhere: Callable[[str], bool] = lambda group_id: False
    ) -> None:
        self._settings = settings
        self._random = random
        self._is_elsewhere = is_elsewhere
        self._groups: dict[str, ClassicGroup] = {}
        self.offsets = OffsetsState()
        self._deadlines: Deadlines[TimerKey] = Deadlines()
        self._next_sweep_ms: int | None = None

    # Membership

    def join(self, request: JoinRequest, now_ms: int, token: Hashable) -> list[Effect]:
        """JoinGroup. Waits for the others, unless something is wrong or nothing is new."""
        error = self._join_refusal(request)
        if error is not ErrorCode.NONE:
            return [Respond(token, JoinResponse(error=error, member_id=request.member_id))]
        group = self._groups.get(request.group_id)
        if group is None:
            if request.member_id != NO_MEMBER_ID:
                unknown = JoinResponse(error=ErrorCode.UNKNOWN_MEMBER_ID, member_id=request.member_id)
                return [Respond(token, unknown)]
            group = self._group(request.group_id)
        # Only one that has no id yet, and so may be given one, needs a new one.
        new_id = self._new_member_id(request) if request.member_id == NO_MEMBER_ID else NO_MEMBER_ID
        effects = group.join(request, new_id, now_ms, token)
        self._forget_if_unused(group)
        return effects

    def sync(self, request: SyncRequest, now_ms: int, token: Hashable) -> list[Effect]:
        """SyncGroup. Waits for the leader's assignments to be safe."""
        group = self._groups.get(request.group_id)
        error = _id_refusal(request.group_id)
        if error is ErrorCode.NONE and group is None:
            error = ErrorCode.UNKNOWN_MEMBER_ID
        if error is not ErrorCode.NONE or group is None:
            return [Respond(token, SyncResponse(error=error))]
        return group.sync(request, now_ms, token)

    def heartbeat(self, request: HeartbeatRequest, now_ms: int, token: Hashable) -> list[Effect]:
        """Heartbeat."""
        group = self._groups.get(request.group_id)
        error = _id_refusal(request.group_id)
        if error is ErrorCode.NONE and group is None:
            error = ErrorCode.UNKNOWN_MEMBER_ID
        if error is not ErrorCode.NONE or group is None:
            return [Respond(token, HeartbeatResponse(error=error))]
        return group.heartbeat(request, now_ms, token)

    def leave(self, request: LeaveRequest, now_ms: int, token: Hashable) -> list[Effect]:
        """LeaveGroup, of any number of members."""
        error = _id_refusal(request.group_id)
        if error is not ErrorCode.NONE:
            return [Respond(token, LeaveResponse(error=error))]
        group = self._groups.get(request.group_id)
        if group is None:
            unknown = tuple(
                LeftMember(member_id=each.member_id, instance_id=each.instance_id, error=ErrorCode.UNKNOWN_MEMBER_ID)
                for each in request.members
            )
            return [Respond(token, LeaveResponse(members=unknown))]
        effects = group.leave(request, now_ms, token)
        self._forget_if_unused(group)
        return effects

    # Offsets

    def commit_offsets(
        self, request: OffsetCommitRequest, now_ms: int, token: Hashable, refusal: ErrorCode | None = None
    ) -> list[Effect]:
        """OffsetCommit, by a member or by a consumer that assigns its partitions itself.

        With a `refusal`, NONE too, another machine has judged the member.
        """
        error = self._plain_commit_refusal(request) if refusal is None else refusal
        if error is not ErrorCode.NONE:
            return [Respond(token, _all_failed(request.offsets, error))]
        self._touch(request, now_ms)
        expire_ms = None
        if request.retention_ms != NO_RETENTION:
            expire_ms = now_ms + min(max(request.retention_ms, 0), _RETENTION_MAX_MS)
        records, response = self._offset_records(request.group_id, request.offsets, now_ms, expire_ms)
        if not records:
            return [Respond(token, response)]
        failure = _all_failed(request.offsets, NOT_WRITTEN)
        return [Write(records, (Respond(token, response),), (Respond(token, failure),))]

    def commit_whole(
        self, request: WholeCommitRequest, now_ms: int, token: Hashable, refusal: ErrorCode | None = None
    ) -> list[Effect]:
        """`commit_offsets` in bulk. The response is a `WholeCommitResponse`, or, if each offset had to be looked at, an
        `OffsetCommitResponse`."""
        is_plain = request.metadata_bytes_max <= self._settings.offset_metadata_size_max
        if not is_plain or request.retention_ms != NO_RETENTION:
            return self.commit_offsets(request.one_by_one(), now_ms, token, refusal)
        error = self._plain_commit_refusal(request) if refusal is None else refusal
        if error is not ErrorCode.NONE:
            return [Respond(token, WholeCommitResponse(error))]
        self._touch(request, now_ms)
        records = offset_records(request.group_id, request.topics, now_ms)
        return [Write(records, (Respond(token, _COMMITTED),), (Respond(token, _NOT_COMMITTED),))]

    def commit_in_transaction(
        self, request: TransactionalCommitRequest, now_ms: int, token: Hashable, refusal: ErrorCode | None = None
    ) -> list[GroupEffect]:
        """TxnOffsetCommit: the offsets are written now, and in force when `on_marker` says so.

        With a `refusal`, NONE too, another machine has judged the member.
        """
        error = self._commit_refusal(request, is_transactional=True) if refusal is None else refusal
        if error is not ErrorCode.NONE:
            return [Respond(token, _all_failed(request.offsets, error))]
        records, response = self._offset_records(request.group_id, request.offsets, now_ms, None)
        if not records:
            return [Respond(token, response)]
        return [
            TransactionalWrite(
                transactional_id=request.transactional_id,
                producer_id=request.producer_id,
                producer_epoch=request.producer_epoch,
                records=records,
                responses=(Respond(token, response),),
                on_failure=(Respond(token, _all_failed(request.offsets, NOT_WRITTEN)),),
            )
        ]

    def fetch_offsets(self, request: OffsetFetchRequest, now_ms: int, token: Hashable) -> list[Effect]:
        """OffsetFetch, of one group; a group that nobody knows has no offsets, which is no error."""
        error = _id_refusal(request.group_id, may_be_empty=True)
        if error is not ErrorCode.NONE:
            return [Respond(token, OffsetFetchResponse(group_id=request.group_id, error=error))]
        response = OffsetFetchResponse(group_id=request.group_id, offsets=self.offsets.fetch(request))
        failure = OffsetFetchResponse(group_id=request.group_id, error=NOT_WRITTEN)
        return [Write((), (Respond(token, response),), (Respond(token, failure),))]

    def delete_offsets(
        self, request: OffsetDeleteRequest, now_ms: int, token: Hashable, subscribes: Subscribes | None = None
    ) -> list[Effect]:
        """OffsetDelete: those that nobody subscribes. Of a group elsewhere the caller says what it `subscribes`."""
        group = self._groups.get(request.group_id)
        if subscribes is None:
            error = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.offset_delete_refusal()
            if error is not ErrorCode.NONE or group is None:
                return [Respond(token, OffsetDeleteResponse(error=error))]
            subscribes = group.subscribes
        group_id = request.group_id
        outcomes = []
        records: dict[CoordinatorRecord, None] = {}
        for wanted in request.partitions:
            if subscribes(wanted.topic):
                outcomes.append(PartitionOutcome(*wanted, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC))
                continue
            outcomes.append(PartitionOutcome(*wanted))
            partition = TopicPartition(*wanted)
            if self.offsets.get(group_id, partition) or self.offsets.is_pending(group_id, partition):
                records[offset_tombstone(group_id, *partition)] = None
        response = Respond(token, OffsetDeleteResponse(partitions=tuple(outcomes)))
        failure = Respond(token, OffsetDeleteResponse(error=NOT_WRITTEN))
        return [Write(tuple(records), (response,), (failure,))]

    def on_topics_deleted(self, topics: Iterable[str], now_ms: int) -> list[Effect]:
        """The topics are gone, and with them every group's offsets of them."""
        records = [record for topic in topics for record in self.offsets.tombstones_of_topic(topic)]
        return [
            Write(tuple(records[at : at + _RECORDS_PER_WRITE])) for at in range(0, len(records), _RECORDS_PER_WRITE)
        ]

    def expired_offsets(
        self, group_id: str, subscribes: Subscribes, now_ms: int, empty_since_ms: int | None = None
    ) -> list[CoordinatorRecord]:
        """What deletes the offsets of a group that have outlived their time, of topics that it does not consume."""
        old = self.offsets.expired(
            group_id,
            empty_since_ms=empty_since_ms,
            retention_ms=self._settings.offsets_retention_ms,
            now_ms=now_ms,
        )
        return [offset_tombstone(group_id, *partition) for partition in old if not subscribes(partition.topic)]

    # Groups

    def delete_group(self, request: DeleteGroupRequest, now_ms: int, token: Hashable) -> list[Effect]:
        """DeleteGroups, one of them: the group and all its offsets, if it has no members."""
        group = self._groups.get(request.group_id)
        error = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.delete_refusal()
        response = DeleteGroupResponse(group_id=request.group_id, error=error)
        if error is not ErrorCode.NONE:
            return [Respond(token, response)]
        records = (*self.offsets.tombstones(request.group_id), group_tombstone(request.group_id))
        failure = DeleteGroupResponse(group_id=request.group_id, error=NOT_WRITTEN)
        return [Write(records, (Respond(token, response),), (Respond(token, failure),))]

    def group(self, group_id: str) -> ClassicGroup | None:
        """The classic group of that id, for who wants to take it over."""
        return self._groups.get(group_id)

    def give_up(self, group_id: str) -> None:
        """Another machine has the group now, by a record; its offsets stay. Nothing of it may wait here."""
        group = self._groups.pop(group_id, None)
        if group is not None and group.on_unloaded(ErrorCode.NOT_COORDINATOR):
            violated(f"group {group_id} was given up while its members wait")

    def describe_group(self, group_id: str) -> DescribedGroup:
        """DescribeGroups, one of them."""
        group = self._groups.get(group_id)
        if group is not None:
            return group.describe()
        return DescribedGroup(
            group_id=group_id,
            state=GroupState.DEAD.value,
            error=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=f"Group {group_id} not found.",
        )

    def list_groups(self, states: Collection[str] = (), types: Collection[str] = ()) -> list[ListedGroup]:
        """ListGroups: those in one of the states and of one of the types; none given stands for all."""
        if types and CLASSIC_TYPE not in {each.lower() for each in types}:
            return []
        wanted = {each.strip().lower() for each in states}
        listed = [group.listed() for group in self._groups.values()]
        return [group for group in listed if not wanted or group.state.lower() in wanted]

    # Records, time and life cycle

    def replay(self, record: CoordinatorRecord, producer_id: ProducerId = NO_PRODUCER_ID) -> bool:
        """Applies a record; false if it is of a kind that another machine keeps."""
        key = read_key(record.key)
        match key:
            case None:
                return False
            case OffsetKey():
                value = None if record.value is None else read_offset(record.value)
                if value is not None and not self._is_elsewhere(key.group_id):
                    self._group(key.group_id).is_written = True
                self.offsets.replay(key, value, producer_id)
            case GroupKey():
                if record.value is None:
                    gone = self._groups.pop(key.group_id, None)
                    if gone is not None:
                        gone.on_unloaded(ErrorCode.COORDINATOR_NOT_AVAILABLE)
                else:
                    self._group(key.group_id).replay(read_group(record.value))
        return True

    def replay_all(self, records: Sequence[CoordinatorRecord], producer_id: ProducerId = NO_PRODUCER_ID) -> None:
        """`replay` for each of them, in their order; offsets of one group, the most that is written, all at once."""
        found = read_offset_records(records, self.offsets.turn) if producer_id == NO_PRODUCER_ID else None
        if found is None:
            for record in records:
                self.replay(record, producer_id)
            return
        group_id, offsets = found
        if not self._is_elsewhere(group_id):
            self._group(group_id).is_written = True
        self.offsets.put(group_id, offsets)

    def on_marker(self, producer_id: ProducerId, *, commit: bool) -> None:
        """A transaction's marker was appended to the partition, or is replayed."""
        self.offsets.on_marker(producer_id, commit=commit)

    def on_loaded(self, now_ms: int) -> list[Effect]:
        """The whole partition was replayed: timers start."""
        for group_id in self.offsets.group_ids():
            # Its group may have been compacted away before its offsets.
            if not self._is_elsewhere(group_id):
                self._group(group_id).is_written = True
        self._next_sweep_ms = now_ms + self._settings.offsets_check_interval_ms
        return [effect for group in self._groups.values() for effect in group.on_loaded(now_ms)]

    def on_unloaded(self) -> list[Effect]:
        """Another broker leads the partition now: all that waits is answered so. The machine is used no more."""
        effects = [effect for group in self._groups.values() for effect in group.on_unloaded(ErrorCode.NOT_COORDINATOR)]
        self._next_sweep_ms = None
        return effects

    def on_settings(self, settings: GroupSettings) -> None:
        """An operator has changed something; it holds from the next event on."""
        self._settings = settings
        for group in self._groups.values():
            group.settings = settings

    def next_deadline(self) -> int | None:
        """When `on_tick` is next to be called."""
        earliest, sweep_ms = self._deadlines.next(), self._next_sweep_ms
        if earliest is None or sweep_ms is None:
            return sweep_ms if earliest is None else earliest
        return min(earliest, sweep_ms)

    def on_clock_set(self, by_ms: int) -> None:
        """The time that events are told has leapt by so much: nobody's patience is shorter or longer for that.

        How old an offset is goes by the time in its record, and so by the wall clock.
        """
        self._deadlines.shift(by_ms)
        if self._next_sweep_ms is not None:
            self._next_sweep_ms += by_ms

    def on_tick(self, now_ms: int) -> list[Effect]:
        """Does what is due. A group that writes does the rest of what is due when that is applied."""
        effects: list[Effect] = []
        writing: dict[str, None] = {}
        postponed = []
        while (key := self._deadlines.pop(now_ms)) is not None:
            group = self._groups.get(key.group_id)
            if key.group_id in writing:
                postponed.append(key)
            elif group is not None:
                news = group.on_deadline(key, now_ms)
                effects += news
                if any(isinstance(effect, Write) for effect in news):
                    writing[key.group_id] = None
                self._forget_if_unused(group)
        for key in postponed:
            self._deadlines.set(key, now_ms)
        if self._next_sweep_ms is not None and self._next_sweep_ms <= now_ms:
            self._next_sweep_ms = now_ms + self._settings.offsets_check_interval_ms
            for group in self._groups.values():
                if group.group_id not in writing:
                    effects += self._expired(group, now_ms)
        return effects

    def check(self) -> None:
        """Raises when an invariant does not hold."""
        self.offsets.check()
        for group in self._groups.values():
            group.check()

    # Small parts

    def _group(self, group_id: str) -> ClassicGroup:
        """The group; made if there is none, which then has no members and no protocol."""
        group = self._groups.get(group_id)
        if group is None:
            group = self._groups[group_id] = ClassicGroup(group_id, self._settings, self._deadlines)
        return group

    def _forget_if_unused(self, group: ClassicGroup) -> None:
        """A group of which nothing was ever written lives as long as somebody wants to join it."""
        is_idle = group.state is GroupState.EMPTY and not group.members.promised
        if is_idle and not group.is_written and self._groups.get(group.group_id) is group:
            del self._groups[group.group_id]

    def _new_member_id(self, request: JoinRequest) -> str:
        name = request.client_id if request.instance_id is None else request.instance_id
        return f"{name[:_NAME_IN_ID_MAX]}-{UUID(bytes=self._random.randbytes(16), version=4)}"

    def _join_refusal(self, request: JoinRequest) -> ErrorCode:
        error = _id_refusal(request.group_id)
        if error is not ErrorCode.NONE:
            return error
        settings = self._settings
        if not settings.session_timeout_min_ms <= request.session_timeout_ms <= settings.session_timeout_max_ms:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        names = [request.member_id, request.instance_id or "", request.client_id, request.client_host]
        names += [request.protocol_type, *(protocol.name for protocol in request.protocols)]
        return ErrorCode.INVALID_REQUEST if any(map(_is_too_long, names)) else ErrorCode.NONE

    def _touch(self, request: OffsetCommitRequest | WholeCommitRequest, now_ms: int) -> None:
        group = self._groups.get(request.group_id)
        if group is not None:
            group.touch(request.member_id, now_ms)

    def _plain_commit_refusal(self, request: OffsetCommitRequest | WholeCommitRequest) -> ErrorCode:
        error = self._commit_refusal(request, is_transactional=False)
        is_missing = request.group_id not in self._groups
        if error is ErrorCode.ILLEGAL_GENERATION and is_missing and request.knows_group_not_found:
            return ErrorCode.GROUP_ID_NOT_FOUND
        return error

    def _commit_refusal(
        self,
        request: OffsetCommitRequest | WholeCommitRequest | TransactionalCommitRequest,
        *,
        is_transactional: bool,
    ) -> ErrorCode:
        error = _id_refusal(request.group_id, may_be_empty=True)
        if error is not ErrorCode.NONE:
            return error
        group = self._groups.get(request.group_id)
        if group is None:
            # Who commits without a generation brings the group into being.
            return ErrorCode.NONE if request.generation < 0 else ErrorCode.ILLEGAL_GENERATION
        return group.commit_refusal(
            request.member_id, request.instance_id, request.generation, is_transactional=is_transactional
        )

    def _offset_records(
        self, group_id: str, offsets: tuple[NewOffset, ...], now_ms: int, expire_ms: int | None
    ) -> tuple[tuple[CoordinatorRecord, ...], OffsetCommitResponse]:
        records = []
        outcomes = []
        for new in offsets:
            metadata = new.metadata or ""
            error = ErrorCode.NONE
            if len(metadata) > self._settings.offset_metadata_size_max:
                error = ErrorCode.OFFSET_METADATA_TOO_LARGE
            elif _is_too_long(new.topic):
                error = ErrorCode.INVALID_TOPIC_EXCEPTION
            else:
                value = OffsetValue(
                    offset=new.offset,
                    leader_epoch=new.leader_epoch,
                    metadata=metadata,
                    commit_ms=now_ms,
                    expire_ms=expire_ms,
                    topic_id=new.topic_id,
                )
                records.append(offset_record(group_id, new.topic, new.partition, value))
            outcomes.append(PartitionOutcome(new.topic, new.partition, error))
        return tuple(records), OffsetCommitResponse(partitions=tuple(outcomes))

    def _expired(self, group: ClassicGroup, now_ms: int) -> list[Effect]:
        """Deletes the offsets of a group that have outlived their time, and the group with the last of them."""
        if not group.lets_offsets_expire():
            return []
        records = self.expired_offsets(group.group_id, group.subscribes, now_ms, group.empty_since_ms)
        is_idle = group.state is GroupState.EMPTY and not group.members.promised
        if is_idle and len(records) == len(self.offsets.partitions(group.group_id)):
            records.append(group_tombstone(group.group_id))
        return [Write(tuple(records))] if records else []


def _id_refusal(group_id: str, *, may_be_empty: bool = False) -> ErrorCode:
    if _is_too_long(group_id) or (not group_id and not may_be_empty):
        return ErrorCode.INVALID_GROUP_ID
    return ErrorCode.NONE


def _is_too_long(name: str) -> bool:
    return len(name) > _TEXT_LENGTH_MAX


def _all_failed(offsets: tuple[NewOffset, ...], error: ErrorCode) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        partitions=tuple(PartitionOutcome(each.topic, each.partition, error) for each in offsets)
    )
