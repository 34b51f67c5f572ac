"""The generations of one classic group: rebalances, sessions, and the records that are written.

Pure. The members' requests and their checks are in `group_state.py`, the members themselves in `members.py`. A group is
written when it becomes stable and when it becomes empty: only `replay` enters these states. The states in between are
lost in a failover; the members then join again.

| state | what goes on | exits |
|---|---|---|
| Empty | no members; offsets may be committed without a generation | a join → PreparingRebalance |
| PreparingRebalance | joins wait until all members have joined, or the longest rebalance timeout has passed; the first
  members of an empty group wait a little for others | a new generation → CompletingRebalance; no members left → Empty |
| CompletingRebalance | members know their generation and wait for the leader's assignments | the leader's sync →
  Stable; a change of members → PreparingRebalance |
| Stable | members have their assignments | a change of members, the leader joins again → PreparingRebalance |
| Dead | deleted, or this broker is no longer its coordinator | none |
"""

from collections.abc import Hashable
from enum import Enum
from typing import Final, NamedTuple

from ottla.coordination.groups.classic.members import ClassicMember, ClassicMembers
from ottla.coordination.groups.records import GroupValue, group_record
from ottla.coordination.groups.requests import (
    NO_MEMBER_ID,
    GroupSettings,
    JoinedMember,
    JoinResponse,
    MemberProtocol,
    SyncResponse,
)
from ottla.coordination.runtime.deadlines import Deadlines
from ottla.coordination.runtime.effects import Effect, Respond, Write
from ottla.model.error_codes import ErrorCode
from ottla.model.invariants import violated
from ottla.protocol.consumer_protocol import CONSUMER_PROTOCOL_TYPE

_GENERATION_MAX: Final = 2**31 - 1
_RETRY_MS: Final = 5_000


class GroupState(Enum):
    """The states, by the names that clients know."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class ClassicDeadline(Enum):
    """What a deadline is for."""

    SESSION = "session"
    JOIN = "join"
    SYNC = "sync"

    # That of an Enum is Python code, and each request needs it several times.
    __hash__ = object.__hash__


class ClassicDeadlineKey(NamedTuple):
    """A deadline of a group, or of one of its members."""

    deadline: ClassicDeadline
    group_id: str
    member_id: str = ""

    @classmethod
    def session(cls, group_id: str, member_id: str) -> "ClassicDeadlineKey":
        """The deadline of a member's session."""
        return cls(ClassicDeadline.SESSION, group_id, member_id)


_NEXT_STATES: Final = {
    GroupState.EMPTY: (GroupState.PREPARING_REBALANCE,),
    GroupState.PREPARING_REBALANCE: (GroupState.COMPLETING_REBALANCE,),
    GroupState.COMPLETING_REBALANCE: (GroupState.PREPARING_REBALANCE,),
    GroupState.STABLE: (GroupState.PREPARING_REBALANCE,),
    GroupState.DEAD: (),
}
"""Transitions without a record; Stable and Empty are entered with one."""


class ClassicGenerations:
    """A group and its waiting requests.

    Invariants: a join waits only while PreparingRebalance, a sync only while CompletingRebalance; a member that waits
    for nothing has a session deadline; a stable or completing group has a protocol that all its members speak, and
    knows the topics that they subscribe to; an empty one knows that there are none.
    """

    def __init__(self, group_id: str, settings: GroupSettings, deadlines: Deadlines[ClassicDeadlineKey]) -> None:
        self.group_id = group_id
        self.settings = settings
        self.state = GroupState.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.state_ms: int | None = None
        self.members = ClassicMembers()
        self.subscribed_topics: frozenset[str] | None = None
        # A group with a record of its own or of an offset in the log exists until it is deleted there.
        self.is_written = False
        self._deadlines = deadlines
        self._unsynced: dict[str, None] = {}
        # An initial rebalance waits for more members, as long as more join and time is left.
        self._is_initial = False
        self._more_came = False
        self._initial_left_ms = 0
        # A group without a leader was downgraded from a consumer group: its members have yet to agree on assignments.
        self._has_to_rebalance = False
        # A static member that comes back to a stable group, until its record is replayed.
        self._returning: ClassicMember | None = None

    @property
    def is_consumer_group(self) -> bool:
        """Whether its members are consumers, whose subscriptions can be read."""
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    # Rebalance

    def rebalance(self, now_ms: int) -> list[Effect]:
        """Begins a rebalance, or continues the one in progress."""
        if GroupState.PREPARING_REBALANCE in _NEXT_STATES[self.state]:
            return self._prepare(now_ms)
        return self._complete_if_joined(now_ms)

    def _prepare(self, now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        if self.state is GroupState.COMPLETING_REBALANCE:
            for member in self.members:
                member.assignment = b""
                if member.sync_token is not None:
                    effects += answer_sync(member, ErrorCode.REBALANCE_IN_PROGRESS)
                    self._start_session(member.member_id, member.session_timeout_ms, now_ms)
        self._unsynced = {}
        self._deadlines.clear(ClassicDeadlineKey(ClassicDeadline.SYNC, self.group_id))
        self._is_initial = self.state is GroupState.EMPTY
        self._enter(GroupState.PREPARING_REBALANCE, now_ms)
        if not self._is_initial:
            self._set_deadline(ClassicDeadline.JOIN, now_ms + self.members.rebalance_timeout_ms())
            return effects + self._complete_if_joined(now_ms)
        delay_ms = self.settings.initial_rebalance_delay_ms
        self._more_came = False
        self._initial_left_ms = max(self.members.rebalance_timeout_ms() - delay_ms, 0)
        if delay_ms == 0:
            return effects + self._complete(now_ms)
        self._set_deadline(ClassicDeadline.JOIN, now_ms + delay_ms)
        return effects

    def _complete_if_joined(self, now_ms: int) -> list[Effect]:
        if self.state is not GroupState.PREPARING_REBALANCE or self._is_initial or not self.members.have_all_joined():
            return []
        return self._complete(now_ms)

    def _on_join_deadline(self, now_ms: int) -> list[Effect]:
        if self.state is not GroupState.PREPARING_REBALANCE:
            return []
        if self._is_initial and self._more_came and self._initial_left_ms > 0:
            delay_ms = min(self.settings.initial_rebalance_delay_ms, self._initial_left_ms)
            self._more_came = False
            self._initial_left_ms -= delay_ms
            self._set_deadline(ClassicDeadline.JOIN, now_ms + delay_ms)
            return []
        return self._complete(now_ms)

    def _complete(self, now_ms: int) -> list[Effect]:
        """Ends the join phase: members that have joined form the next generation, static members stay in it."""
        self._deadlines.clear(ClassicDeadlineKey(ClassicDeadline.JOIN, self.group_id))
        for member in self.members:
            if member.join_token is None and member.instance_id is None:
                self._forget(member.member_id)
        if not self.members:
            return [self._write_empty(now_ms)]
        if not self.members.elect_joined_leader():
            # Only static members that have not come back: they stay until their sessions end. Their timeout may be 0.
            self._set_deadline(ClassicDeadline.JOIN, now_ms + max(self.members.rebalance_timeout_ms(), _RETRY_MS))
            return []
        self._is_initial = False
        self.generation = self._next_generation()
        self.protocol = self.members.select_protocol()
        self.subscribed_topics = self._subscribed()
        self._enter(GroupState.COMPLETING_REBALANCE, now_ms)
        joined = self.members.joined(self.protocol)
        effects: list[Effect] = []
        self._unsynced = {}
        for member in self.members:
            members = joined if member.member_id == self.members.leader else ()
            if member.join_token is not None:
                effects.append(Respond(member.join_token, self._joined(member, members=members)))
                member.join_token = None
            member.is_new = False
            self._unsynced[member.member_id] = None
            self._start_session(member.member_id, member.session_timeout_ms, now_ms)
        self._set_deadline(ClassicDeadline.SYNC, now_ms + self.members.rebalance_timeout_ms())
        return effects

    def _write_empty(self, now_ms: int) -> Write:
        value = GroupValue(
            protocol_type=self.protocol_type or "",
            generation=self._next_generation(),
            protocol=None,
            leader=None,
            state_ms=now_ms,
            members=(),
        )
        # If the write fails it is retried at this deadline; `replay` clears it.
        self._set_deadline(ClassicDeadline.JOIN, now_ms + _RETRY_MS)
        return Write((group_record(self.group_id, value),))

    def _on_sync_deadline(self, now_ms: int) -> list[Effect]:
        """Removes members that have got their generation and did not ask for an assignment in time."""
        if self.state not in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE) or not self._unsynced:
            return []
        return self._remove(list(self._unsynced), now_ms)

    def _on_session_deadline(self, member_id: str, now_ms: int) -> list[Effect]:
        member = self.members.get(member_id)
        # A member whose request waits sends no heartbeats; its session restarts with the response.
        if member is not None and member.waits and not member.is_new:
            return []
        return self._remove([member_id], now_ms)

    def _remove(self, member_ids: list[str], now_ms: int) -> list[Effect]:
        """Removes members or promised ids; their waiting requests are answered."""
        effects: list[Effect] = []
        were_members = False
        for member_id in member_ids:
            member = self.members.get(member_id)
            if member is not None:
                were_members = True
                effects += answer_join(member, ErrorCode.UNKNOWN_MEMBER_ID)
                effects += answer_sync(member, ErrorCode.UNKNOWN_MEMBER_ID)
            self._forget(member_id)
        if were_members:
            return effects + self.rebalance(now_ms)
        return effects + self._complete_if_joined(now_ms)

    def _forget(self, member_id: str) -> None:
        self.members.remove(member_id)
        self._unsynced.pop(member_id, None)
        self._deadlines.clear(ClassicDeadlineKey(ClassicDeadline.SESSION, self.group_id, member_id))

    def on_deadline(self, key: ClassicDeadlineKey, now_ms: int) -> list[Effect]:
        """A deadline of this group has passed."""
        match key.deadline:
            case ClassicDeadline.SESSION:
                return self._on_session_deadline(key.member_id, now_ms)
            case ClassicDeadline.JOIN:
                return self._on_join_deadline(now_ms)
            case ClassicDeadline.SYNC:
                return self._on_sync_deadline(now_ms)

    # Records and life cycle

    def replay(self, value: GroupValue) -> None:
        """Applies a record of the group. Waiting requests of its members stay."""
        members = [self._replayed(value, index) for index in range(len(value.members))]
        is_as_it_was = self._is_just_assigned(value, members)
        if not is_as_it_was:
            kept = {member.member_id for member in members}
            for member in self.members:
                if member.member_id not in kept:
                    self._forget(member.member_id)
        self._returning = None
        self.protocol_type = value.protocol_type or None
        self.protocol = value.protocol
        self.generation = value.generation
        self.state_ms = value.state_ms
        if not is_as_it_was:
            self.members.reset(members, value.leader)
            self.subscribed_topics = self._subscribed()
        self._has_to_rebalance = bool(members) and value.leader is None
        self.state = GroupState.STABLE if members else GroupState.EMPTY
        self.is_written = True
        self._is_initial = False
        self._deadlines.clear(ClassicDeadlineKey(ClassicDeadline.JOIN, self.group_id))
        if not self._unsynced:
            self._deadlines.clear(ClassicDeadlineKey(ClassicDeadline.SYNC, self.group_id))

    def _is_just_assigned(self, value: GroupValue, members: list[ClassicMember]) -> bool:
        """Whether a record has the generation that began here, which only got its assignments: `members` are those that
        it already has, and the subscribed topics are known since it began."""
        return (
            self.state is GroupState.COMPLETING_REBALANCE
            and self.members.leader == value.leader
            and self.protocol_type == (value.protocol_type or None)
            and self.protocol == value.protocol
            and self.members.has_just(members)
        )

    def _replayed(self, value: GroupValue, index: int) -> ClassicMember:
        written = value.members[index]
        known = self.members.get(written.member_id)
        if self._returning is not None and self._returning.member_id == written.member_id:
            known = self._returning
        protocols: tuple[MemberProtocol, ...] = (MemberProtocol(value.protocol or "", written.subscription),)
        if known is not None and known.metadata(value.protocol) == written.subscription:
            if known.is_as(written):
                known.assignment = written.assignment
                known.is_new = False
                return known
            protocols = known.protocols
        member = ClassicMember(
            written.member_id,
            instance_id=written.instance_id,
            client_id=written.client_id,
            client_host=written.client_host,
            rebalance_timeout_ms=written.rebalance_timeout_ms,
            session_timeout_ms=written.session_timeout_ms,
            protocols=protocols,
            assignment=written.assignment,
        )
        if known is not None:
            member.join_token, member.sync_token = known.join_token, known.sync_token
        return member

    def on_loaded(self, now_ms: int) -> list[Effect]:
        """All records were replayed: the session of every member starts."""
        for member in self.members:
            self._start_session(member.member_id, member.session_timeout_ms, now_ms)
        if self._has_to_rebalance or len(self.members) > self.settings.group_size_max:
            return self._prepare(now_ms)
        return []

    def on_unloaded(self, error: ErrorCode) -> list[Effect]:
        """The group was deleted, or has another coordinator: waiting requests are answered, and the group is dead."""
        effects: list[Effect] = []
        for member in self.members:
            effects += answer_join(member, error, member.member_id)
            effects += answer_sync(member, error)
        for member_id in [*self.members.promised, *(member.member_id for member in self.members)]:
            self._forget(member_id)
        self._deadlines.clear(ClassicDeadlineKey(ClassicDeadline.JOIN, self.group_id))
        self._deadlines.clear(ClassicDeadlineKey(ClassicDeadline.SYNC, self.group_id))
        self.state = GroupState.DEAD
        return effects

    def check(self) -> None:
        """Raises when an invariant does not hold."""
        self.members.check(self.group_id)
        name = self.group_id
        for member in self.members:
            if member.join_token is not None and self.state is not GroupState.PREPARING_REBALANCE:
                violated(f"a join of {member.member_id} waits in group {name}, which is {self.state.value}")
            if member.sync_token is not None and self.state is not GroupState.COMPLETING_REBALANCE:
                violated(f"a sync of {member.member_id} waits in group {name}, which is {self.state.value}")
            if not member.waits and ClassicDeadlineKey.session(name, member.member_id) not in self._deadlines:
                violated(f"member {member.member_id} of group {name} waits for nothing and has no session")
            if member.member_id in self._unsynced and member.sync_token is not None:
                violated(f"member {member.member_id} of group {name} has synced, but a sync of it is still expected")
        if any(member_id not in self.members for member_id in self._unsynced):
            violated(f"group {name} waits for syncs of {list(self._unsynced)}, which are not all members")
        if self.state in (GroupState.EMPTY, GroupState.DEAD) and self.members:
            violated(f"group {name} is {self.state.value} with {len(self.members)} members")
        has_protocol = self.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE)
        if has_protocol and self.protocol not in self.members.candidates():
            violated(f"group {name} uses {self.protocol}, which not all of its {len(self.members)} members support")
        if (has_protocol or self.state is GroupState.EMPTY) and self.subscribed_topics != self._subscribed():
            violated(f"group {name} knows the topics {self.subscribed_topics}, its members say {self._subscribed()}")
        if (
            self.state is GroupState.PREPARING_REBALANCE
            and ClassicDeadlineKey(ClassicDeadline.JOIN, name) not in self._deadlines
        ):
            violated(f"group {name} is {self.state.value} without a deadline")

    # Small parts

    def _enter(self, state: GroupState, now_ms: int) -> None:
        if state not in _NEXT_STATES[self.state]:
            violated(f"group {self.group_id} cannot go from {self.state.value} to {state.value}")
        self.state = state
        self.state_ms = now_ms

    def _next_generation(self) -> int:
        # Negative generations have another meaning, so the count starts again.
        return self.generation + 1 if self.generation < _GENERATION_MAX else 1

    def _subscribed(self) -> frozenset[str] | None:
        return self.members.subscribed_topics(self.protocol) if self.is_consumer_group else None

    def _start_session(self, member_id: str, timeout_ms: int, now_ms: int) -> None:
        self._deadlines.set(ClassicDeadlineKey(ClassicDeadline.SESSION, self.group_id, member_id), now_ms + timeout_ms)

    def _set_deadline(self, deadline: ClassicDeadline, deadline_ms: int) -> None:
        self._deadlines.set(ClassicDeadlineKey(deadline, self.group_id), deadline_ms)

    def _stable_value(
        self, assignments: dict[str, bytes], members: tuple[ClassicMember, ...], leader: str | None, now_ms: int
    ) -> GroupValue:
        protocol = self.protocol or ""
        return GroupValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=leader,
            state_ms=now_ms,
            members=tuple(member.value(protocol, assignments[member.member_id]) for member in members),
        )

    def _joined(
        self,
        member: ClassicMember,
        *,
        members: tuple[JoinedMember, ...] = (),
        leader: str | None = None,
        skip_assignment: bool = False,
    ) -> JoinResponse:
        return JoinResponse(
            member_id=member.member_id,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            leader=leader or self.members.leader or NO_MEMBER_ID,
            skip_assignment=skip_assignment,
            members=members,
        )


def refuse_join(token: Hashable, error: ErrorCode, member_id: str = NO_MEMBER_ID) -> list[Effect]:
    """Answers a join with an error, and with the member id that the client must use."""
    return [Respond(token, JoinResponse(error=error, member_id=member_id))]


def answer_join(member: ClassicMember, error: ErrorCode, member_id: str = NO_MEMBER_ID) -> list[Effect]:
    """Answers a join that waits with an error."""
    token, member.join_token = member.join_token, None
    return [] if token is None else refuse_join(token, error, member_id)


def answer_sync(member: ClassicMember, error: ErrorCode) -> list[Effect]:
    """Answers a sync that waits with an error."""
    token, member.sync_token = member.sync_token, None
    return [] if token is None else [Respond(token, SyncResponse(error=error))]
