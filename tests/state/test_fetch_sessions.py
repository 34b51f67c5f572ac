"""Fetch sessions against a plain model: whatever consumers ask, in any order, with any ids and epochs."""

from dataclasses import dataclass, field

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ottla.broker.requests.fetch_sessions import EVICTION_SECONDS, FetchPlan, FetchSessions
from ottla.model.error_codes import ErrorCode
from ottla.sim.random import SimRandom
from tests.effort import effort
from tests.unit.broker.fetch_requests import fetch_request

pytestmark = pytest.mark.slow

SLOTS_MAX = 3
NAMES = ("a", "b", "c")
IDS = tuple(bytes([number] * 16) for number in range(1, 4))
PLACES = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 1000)), max_size=5)
FORGOTTEN = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=4)
Key = tuple[str | bytes, int]


@dataclass
class Known:
    """What the model knows of a session."""

    by_id: bool
    used: float
    epoch: int = 1
    offsets: dict[Key, int] = field(default_factory=dict)
    """In the order in which they are to be served."""


class SessionMachine(RuleBasedStateMachine):
    """Clients that mostly behave, and sometimes do not."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.sessions = FetchSessions(SimRandom(5), SLOTS_MAX)
        self.model: dict[int, Known] = {}
        self.ever: list[int] = [0]
        self.evicted = 0

    def topics(self, by_id: bool) -> tuple[str | bytes, ...]:
        return IDS if by_id else NAMES

    @rule(seconds=st.sampled_from([0.0, 1.0, 60.0, EVICTION_SECONDS]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    @rule(places=PLACES, by_id=st.booleans(), pick=st.integers(0, 20), closing=st.booleans())
    def fetch_in_full(self, places: list[tuple[int, int, int]], by_id: bool, pick: int, closing: bool) -> None:
        """A new session, or the end of one; names any session that ever was, or none."""
        names = self.topics(by_id)
        wanted = [(names[topic], index, offset) for topic, index, offset in places]
        named = self.ever[pick % len(self.ever)]
        request = fetch_request(named, -1 if closing else 0, wanted, version=13 if by_id else 7)
        plan = self.sessions.plan(request, self.now)
        self.model.pop(named, None)
        assert (True, ErrorCode.NONE) == (plan.is_full, plan.error)
        assert wanted == [(each.topic, each.index, each.fetch_offset) for each in plan.partitions]
        if closing or not wanted or not self.makes_room():
            assert (0, None) == (plan.session_id, plan.session)
            return
        assert plan.session_id > 0
        assert plan.session_id not in self.ever
        self.ever.append(plan.session_id)
        offsets = {(topic, index): offset for topic, index, offset in wanted}
        self.model[plan.session_id] = Known(by_id=by_id, used=self.now, offsets=offsets)

    def makes_room(self) -> bool:
        if len(self.model) < SLOTS_MAX:
            return True
        oldest = min(self.model, key=lambda each: self.model[each].used)
        if self.now - self.model[oldest].used < EVICTION_SECONDS:
            return False
        # Of several that are equally old any may go; the model follows.
        gone = set(self.model) - {session.id for session in self.sessions}
        assert len(gone) == 1
        assert self.model[gone.copy().pop()].used == self.model[oldest].used
        del self.model[gone.pop()]
        self.evicted += 1
        return True

    @rule(
        pick=st.integers(0, 20),
        places=PLACES,
        forgotten=FORGOTTEN,
        epoch_error=st.sampled_from([0, 0, 0, 0, 1, -1]),
        other_kind=st.sampled_from([False] * 6 + [True]),
        got_records=st.lists(st.integers(0, 8), max_size=3),
    )
    def continue_session(
        self,
        pick: int,
        places: list[tuple[int, int, int]],
        forgotten: list[tuple[int, int]],
        epoch_error: int,
        other_kind: bool,
        got_records: list[int],
    ) -> None:
        named = self.ever[pick % len(self.ever)]
        known = self.model.get(named)
        by_id = (known.by_id if known else False) != other_kind
        epoch = (known.epoch if known else 1) + epoch_error
        if epoch <= 0:
            return
        names = self.topics(by_id)
        wanted = [(names[topic], index, offset) for topic, index, offset in places]
        gone = [(names[topic], index) for topic, index in forgotten]
        plan = self.sessions.plan(fetch_request(named, epoch, wanted, gone, version=13 if by_id else 7), self.now)
        expected = self.expected_error(known, epoch_error, other_kind)
        assert expected == plan.error
        if expected or known is None:
            assert ([], None, 0) == (plan.partitions, plan.session, plan.session_id)
            return
        known.offsets |= {(topic, index): offset for topic, index, offset in wanted}
        for key in gone:
            known.offsets.pop(key, None)
        if not known.offsets:
            del self.model[named]
            assert (0, []) == (plan.session_id, plan.partitions)
            return
        known.epoch += 1
        known.used = self.now
        self.check_continued(plan, named, known)
        self.serve(plan, known, got_records)

    @staticmethod
    def expected_error(known: Known | None, epoch_error: int, other_kind: bool) -> ErrorCode:
        if known is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if epoch_error:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR if other_kind else ErrorCode.NONE

    @staticmethod
    def check_continued(plan: FetchPlan, named: int, known: Known) -> None:
        assert (named, False) == (plan.session_id, plan.is_full)
        assert list(known.offsets.items()) == [
            ((each.topic, each.index), each.fetch_offset) for each in plan.partitions
        ]

    @staticmethod
    def serve(plan: FetchPlan, known: Known, got_records: list[int]) -> None:
        """Some partitions had records: they go to the end, in the order of the answer."""
        keys = list(known.offsets)
        served = [keys[number] for number in sorted(set(got_records)) if number < len(keys)]
        assert plan.session is not None
        plan.session.rotate(served)
        for key in served:
            known.offsets[key] = known.offsets.pop(key)

    @invariant()
    def the_same_sessions_are_known(self) -> None:
        assert set(self.model) == {session.id for session in self.sessions}
        assert len(self.sessions) == len(self.model) <= SLOTS_MAX
        assert self.evicted == self.sessions.evicted


SessionMachine.TestCase.settings = effort(examples=150, steps=40)
TestFetchSessions = SessionMachine.TestCase
