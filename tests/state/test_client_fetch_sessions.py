"""A consumer's fetch session against the broker's own, over real frames: whatever is lost or forgotten on the way, a
request that is accepted has exactly those partitions read, from exactly there, that the consumer wants.
"""

from struct import pack

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from ottla.broker.requests.fetch_sessions import EVICTION_SECONDS, FetchPlan, FetchSessions
from ottla.client.errors import RetriableAnswerError
from ottla.client.fetch.fetch_session_state import EPOCH_MAX, FetchSessionState
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.protocol.fetch_frames import VERSION, Wanted, fetch_body
from ottla.protocol.scan import FetchRequest, scan_requests
from ottla.sim.random import SimRandom
from tests.effort import effort

pytestmark = pytest.mark.slow

PARTITIONS = [TopicPartition(topic, index) for topic in ("a", "b") for index in range(3)]
CONSUMERS = 4
SLOTS_MAX = 2
"""Fewer than consumers: some get no session, and sessions that are not used for long go to others."""

WISHES = st.dictionaries(st.sampled_from(PARTITIONS), st.integers(0, 2), min_size=1)


def on_the_wire(body: list[bytes]) -> FetchRequest:
    """The request as the broker finds it."""
    frame = pack(">hhih", 1, VERSION, 5, -1) + b"\0" + b"".join(body)
    frame = pack(">i", len(frame)) + frame
    (request,), _, _ = scan_requests(bytearray(frame), 0, len(frame), 1 << 20)
    assert isinstance(request, FetchRequest)
    return request


def answer(error: ErrorCode, session_id: int, partitions: list[tuple[str, int]]) -> memoryview:
    """An answer that says of each of these partitions only that it is there."""
    frame = pack(">i", 5) + b"\0" + pack(">ihi", 0, error, session_id) + bytes([len(partitions) + 1])
    for topic, index in partitions:
        frame += bytes([len(topic) + 1]) + topic.encode() + b"\2"
        frame += pack(">ihqqq", index, 0, 9, 9, 0) + b"\0" + pack(">i", -1) + b"\1" + b"\0\0"
    return memoryview(frame + b"\0")


class ClientSessionMachine(RuleBasedStateMachine):
    """Several consumers of one broker."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.random = SimRandom(3)
        self.broker = FetchSessions(self.random, SLOTS_MAX)
        self.consumers = [FetchSessionState() for _ in range(CONSUMERS)]

    @rule(seconds=st.sampled_from([1.0, EVICTION_SECONDS]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def restart_the_broker(self) -> None:
        self.broker = FetchSessions(self.random, SLOTS_MAX)

    def ask(self, consumer: FetchSessionState, wishes: dict[TopicPartition, int]) -> tuple[list[Wanted], FetchPlan]:
        wanted = sorted(Wanted(partition, offset, 1000) for partition, offset in wishes.items())
        asked = consumer.ask(wanted)
        body = fetch_body(
            asked.wanted,
            isolation_level=0,
            wait_ms=1,
            bytes_min=1,
            bytes_max=1,
            session=asked.session,
            forgotten=asked.forgotten,
        )
        return wanted, self.broker.plan(on_the_wire(body), self.now)

    @rule(which=st.integers(0, CONSUMERS - 1), wishes=WISHES, reaches=st.booleans())
    def lose(self, which: int, wishes: dict[TopicPartition, int], reaches: bool) -> None:
        """A request is lost on the way, or its answer is."""
        consumer = self.consumers[which]
        if reaches:
            self.ask(consumer, wishes)
        else:
            consumer.ask(sorted(Wanted(partition, offset, 1000) for partition, offset in wishes.items()))
        consumer.on_lost()

    @rule(which=st.integers(0, CONSUMERS - 1), wishes=WISHES, told=st.integers(0, 6))
    def fetch(self, which: int, wishes: dict[TopicPartition, int], told: int) -> None:
        consumer = self.consumers[which]
        for attempt in range(2):
            wanted, plan = self.ask(consumer, wishes)
            if plan.error is ErrorCode.NONE:
                break
            assert [] == consumer.read(answer(plan.error, 0, []))
            # Whatever happened before, a request that names everything is understood.
            assert 0 == attempt
        read = {(each.topic, each.index): each.fetch_offset for each in plan.partitions}
        assert {(each.partition.topic, each.partition.partition): each.offset for each in wanted} == read
        parts = [(str(topic), index) for topic, index in read]
        if not plan.is_full:
            parts = parts[:told]
        found = consumer.read(answer(ErrorCode.NONE, plan.session_id, parts))
        assert parts == [(each.partition.topic, each.partition.partition) for each in found]

    @rule(which=st.integers(0, CONSUMERS - 1))
    def grow_old(self, which: int) -> None:
        """A session that counted up to the largest epoch goes on at 1, on both sides."""
        consumer = self.consumers[which]
        for session in self.broker:
            if (session.id, session.epoch) == (consumer._id, consumer._epoch):
                session.epoch = consumer._epoch = EPOCH_MAX

    @rule(which=st.integers(0, CONSUMERS - 1), wishes=WISHES)
    def be_refused(self, which: int, wishes: dict[TopicPartition, int]) -> None:
        """What has nothing to do with sessions is raised, and so is a session's refusal that makes no sense."""
        consumer = self.consumers[which]
        wanted = sorted(Wanted(partition, offset, 1000) for partition, offset in wishes.items())
        is_whole = consumer.ask(wanted).session[1] == 0
        code = ErrorCode.FETCH_SESSION_ID_NOT_FOUND if is_whole else ErrorCode.KAFKA_STORAGE_ERROR
        with pytest.raises(RetriableAnswerError) as refused:
            consumer.read(answer(code, 0, []))
        assert code is refused.value.error_code


ClientSessionMachine.TestCase.settings = effort(examples=150, steps=40)
TestClientSessions = ClientSessionMachine.TestCase
