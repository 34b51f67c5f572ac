"""Share consumers against a plain broker: answers get lost, sessions forgotten, locks time out, in any order.

The broker keeps for each offset whether it is available, locked, or done. Whatever happens, an acknowledgement is
answered once, the broker never finds a wrong epoch unless something was lost, and never an acknowledgement of a record
that the consumer does not hold unless a lock timed out. Left alone, the consumers get everything done.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ottla.client.errors import ConnectionLostError
from ottla.client.share.acquired_records_state import AcquiredRecordsState, Lock
from ottla.client.share.share_session_state import (
    EPOCH_MAX,
    FINAL_EPOCH,
    Acknowledgements,
    FetchRequest,
    Outcome,
    Request,
    Settled,
    ShareSessionState,
    batches_by_partition,
)
from ottla.client.share.values import AcknowledgeType, ShareRecord
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.protocol.share_frames import (
    GAP,
    Acknowledged,
    AcknowledgementBatch,
    AcquiredRange,
    ShareAnswer,
    ShareFetched,
    TopicIdPartition,
)
from tests.effort import effort

TOPIC_ID = UUID(int=1)
PARTITIONS = [TopicIdPartition(TOPIC_ID, index) for index in range(3)]
OFFSETS = range(12)
LOCK_SECONDS = 10.0
BACKOFF = 0.5


def name_of(partition: TopicIdPartition) -> TopicPartition:
    return TopicPartition("t", partition.partition)


@dataclass
class Entry:
    """One offset: nobody has it, or a member until a time, or it is done."""

    member: str | None = None
    until: float = 0.0
    count: int = 0
    is_done: bool = False


@dataclass
class Session:
    epoch: int
    partitions: set[TopicIdPartition] = field(default_factory=set)


class Broker:
    """A leader of all partitions."""

    def __init__(self) -> None:
        self.log = {partition: {offset: Entry() for offset in OFFSETS} for partition in PARTITIONS}
        self.sessions: dict[str, Session] = {}
        self.refused_epochs = 0
        self.refused_records = 0
        self.stores = True
        """Whether acknowledgements can be stored."""

    def release(self, member: str) -> None:
        for entry in (entry for some in self.log.values() for entry in some.values()):
            if entry.member == member:
                entry.member = None

    def expire(self, now: float) -> None:
        for entry in (entry for some in self.log.values() for entry in some.values()):
            if entry.member is not None and entry.until <= now:
                entry.member = None

    def forget(self, member: str) -> None:
        self.sessions.pop(member, None)
        self.release(member)

    def serve(self, member: str, request: Request, now: float) -> ShareAnswer:
        self.expire(now)
        refusal = self._refusal(member, request)
        if refusal is not None:
            self.refused_epochs += 1
            return ShareAnswer(refusal, None, 0, [], [])
        results = {
            partition: self._acknowledge(member, partition, dict(_types(batches)), now)
            for partition, batches in batches_by_partition(request).items()
        }
        if request.epoch == FINAL_EPOCH:
            self.forget(member)
        if not isinstance(request, FetchRequest):
            answered = [Acknowledged(partition, int(code), None) for partition, code in results.items()]
            return ShareAnswer(0, None, int(LOCK_SECONDS * 1000), [], answered)
        session = self.sessions[member]
        session.partitions = (session.partitions | request.added) - request.forgotten
        assert set(results) <= session.partitions
        assert not any(each.renews for each in request.acknowledgements)
        fetched = [
            ShareFetched(partition, 0, None, int(results.get(partition, 0)), None, memoryview(b""), acquired)
            for partition in sorted(session.partitions | set(results))
            if (acquired := self._acquire(member, partition, now)) or partition in results
        ]
        return ShareAnswer(0, None, int(LOCK_SECONDS * 1000), fetched, [])

    def _refusal(self, member: str, request: Request) -> ErrorCode | None:
        if request.epoch == 0:
            assert isinstance(request, FetchRequest)
            assert not request.acknowledgements
            assert not request.forgotten
            self.release(member)
            self.sessions[member] = Session(1)
            return None
        session = self.sessions.get(member)
        if session is None:
            return ErrorCode.SHARE_SESSION_NOT_FOUND
        if request.epoch not in (session.epoch, FINAL_EPOCH):
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        session.epoch = session.epoch % EPOCH_MAX + 1
        return None

    def _acquire(self, member: str, partition: TopicIdPartition, now: float) -> list[AcquiredRange]:
        if partition not in self.sessions[member].partitions:
            return []
        found: list[AcquiredRange] = []
        for offset, entry in list(self.log[partition].items()):
            if not entry.is_done and entry.member is None and len(found) < 3:
                entry.member, entry.until, entry.count = member, now + LOCK_SECONDS, entry.count + 1
                found.append(AcquiredRange(offset, offset, entry.count))
        return found

    def _acknowledge(self, member: str, partition: TopicIdPartition, types: dict[int, int], now: float) -> ErrorCode:
        entries = {offset: self.log[partition][offset] for offset in types}
        if any(entry.member != member or entry.is_done for entry in entries.values()):
            self.refused_records += 1
            return ErrorCode.INVALID_RECORD_STATE
        if not self.stores:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        for offset, kind in types.items():
            if kind == AcknowledgeType.RENEW:
                entries[offset].until = now + LOCK_SECONDS
            else:
                entries[offset].member = None
                entries[offset].is_done = kind != AcknowledgeType.RELEASE
        return ErrorCode.NONE


def _types(batches: Sequence[tuple[int, int, int]]) -> list[tuple[int, int]]:
    return [(offset, kind) for first, last, kind in batches for offset in range(first, last + 1)]


def _renewed(acknowledgements: Acknowledgements) -> set[tuple[TopicPartition, int]]:
    types = acknowledgements.types
    return {(acknowledgements.name, offset) for offset, kind in types.items() if kind == AcknowledgeType.RENEW}


class Consumer:
    """The two cores of one consumer, put together as the shell does."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.session = ShareSessionState(broker=1, wanted=frozenset(PARTITIONS))
        self.acquired = AcquiredRecordsState()
        self.open: dict[int, Acknowledgements] = {}
        """Acknowledgements that were not settled yet, by identity."""
        self.numbers: dict[int, int] = {}
        """The sessions in which their records were acquired."""
        self.failed = 0

    def send_acknowledgements(self, now: float) -> None:
        sending, expired = self.acquired.take(now)
        for each in sending:
            assert not each.acknowledgements.types or each.acknowledgements.deadline > now
            self.open[id(each.acknowledgements)] = each.acknowledgements
            self.numbers[id(each.acknowledgements)] = each.session
            refused = self.session.acknowledge(each.acknowledgements, each.session)
            if refused is not None:
                self.settle(refused, now)
        for late in expired:
            self.acquired.on_settled(late, now)
            self.failed += 1

    def settle(self, settled: Settled, now: float) -> None:
        del self.open[id(settled.acknowledgements)]
        self.failed += settled.error is not None
        held = self.held()
        self.acquired.on_settled(settled, now + LOCK_SECONDS)
        renewed = set() if settled.error else _renewed(settled.acknowledgements)
        assert {*held, *renewed} == set(self.held())

    def on_outcome(self, outcome: Outcome, number: int, now: float) -> None:
        for settled in outcome.settled:
            self.settle(settled, now)
        for fetched in outcome.fetched:
            lock = Lock(1, number, fetched.partition, now + LOCK_SECONDS)
            name = name_of(fetched.partition)
            records = [
                ShareRecord(*name, None, each.first_offset, 0, 0, None, None, (), -1, -1, each.delivery_count)
                for each in fetched.acquired
            ]
            self.acquired.deliver(name, lock, records)

    def held(self) -> list[tuple[TopicPartition, int]]:
        return [(partition, offset) for partition, some in self.acquired._held.items() for offset in some]


class ShareSessionMachine(RuleBasedStateMachine):
    """Two consumers of one broker."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        self.broker = Broker()
        self.consumers = [Consumer("a"), Consumer("b")]
        self.is_calm = True
        """Whether nothing was lost and no lock can have timed out."""

    @rule(seconds=st.sampled_from([0.1, 1.0, 4.0, LOCK_SECONDS + 1]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.is_calm = self.is_calm and self.now < 100.0 + LOCK_SECONDS

    @rule(which=st.integers(0, 1))
    def forget_session(self, which: int) -> None:
        self.is_calm = False
        self.broker.forget(self.consumers[which].name)

    @rule(stores=st.booleans())
    def lose_the_share_coordinator(self, stores: bool) -> None:
        self.broker.stores = stores

    @rule(which=st.integers(0, 1), wanted=st.sets(st.sampled_from(PARTITIONS)))
    def assign(self, which: int, wanted: set[TopicIdPartition]) -> None:
        self.consumers[which].session.wanted = frozenset(wanted)

    @rule(
        which=st.integers(0, 1),
        types=st.lists(st.sampled_from([*AcknowledgeType, None]), min_size=1),
    )
    def acknowledge(self, which: int, types: list[AcknowledgeType | None]) -> None:
        consumer = self.consumers[which]
        for (partition, offset), kind in zip(consumer.held(), types, strict=False):
            if kind is not None:
                consumer.acquired.acknowledge(partition, offset, kind)

    @rule(which=st.integers(0, 1))
    def take_renewed(self, which: int) -> None:
        acquired = self.consumers[which].acquired
        expected = acquired.has_renewed
        assert expected is bool(acquired.take_renewed())
        assert not acquired.has_renewed

    @rule(which=st.integers(0, 1), wants=st.booleans())
    def send(self, which: int, wants: bool) -> None:
        consumer = self.consumers[which]
        consumer.send_acknowledgements(self.now)
        consumer.session.next_request(self.now, wants_records=wants)

    @rule(which=st.integers(0, 1))
    def answer(self, which: int) -> None:
        consumer = self.consumers[which]
        request, number = consumer.session.in_flight, consumer.session.number
        if request is not None:
            assert {number} >= {consumer.numbers[id(each)] for each in request.acknowledgements}
            answer = self.broker.serve(consumer.name, request, self.now)
            outcome = consumer.session.on_answer(answer, self.now, self.now + BACKOFF)
            if outcome.must_disconnect:
                self.broker.forget(consumer.name)
            consumer.on_outcome(outcome, number, self.now)

    @rule(which=st.integers(0, 1), reaches=st.booleans())
    def lose(self, which: int, reaches: bool) -> None:
        """A request is lost on the way, or its answer is; the connection ends."""
        consumer = self.consumers[which]
        if consumer.session.in_flight is None:
            return
        self.is_calm = False
        if reaches:
            self.broker.serve(consumer.name, consumer.session.in_flight, self.now)
        self.broker.forget(consumer.name)
        consumer.on_outcome(
            consumer.session.on_lost(ConnectionLostError("lost"), self.now + BACKOFF), consumer.session.number, self.now
        )

    @rule(seed=st.integers(0, 1000), count=st.integers(1, 40))
    def go_on(self, seed: int, count: int) -> None:
        rng = Random(seed)
        for _ in range(count):
            self.now += 0.2
            which = rng.randrange(2)
            match rng.randrange(12):
                case 0:
                    self.lose(which, reaches=rng.random() < 0.5)
                case 1:
                    self.assign(which, set(rng.sample(PARTITIONS, rng.randrange(4))))
                case 2 | 3 | 4:
                    self.answer(which)
                case 5 | 6 | 7:
                    self.acknowledge(which, rng.choices([*AcknowledgeType, None], k=4))
                case _:
                    self.send(which, wants=rng.random() < 0.6)
            self.each_is_consistent()
            self.a_calm_broker_refuses_nothing()

    @rule(which=st.integers(0, 1))
    def close(self, which: int) -> None:
        consumer = self.consumers[which]
        if consumer.session.in_flight is not None:
            return
        consumer.send_acknowledgements(self.now)
        request = consumer.session.close()
        if request is not None:
            self.answer(which)
        assert not consumer.session.is_open
        assert {} == consumer.open
        consumer.acquired.forget()
        assert (
            not any(entry.member == consumer.name for some in self.broker.log.values() for entry in some.values())
            or not self.is_calm
        )

    @invariant()
    def each_is_consistent(self) -> None:
        for consumer in self.consumers:
            consumer.session.check()
            consumer.acquired.check()
            waiting = {id(each) for each in consumer.session._pending}
            if consumer.session.in_flight is not None:
                waiting |= {id(each) for each in consumer.session.in_flight.acknowledgements}
            assert waiting == set(consumer.open)
            assert bool(consumer.open) is consumer.session.has_acknowledgements

    @invariant()
    def a_calm_broker_refuses_nothing(self) -> None:
        self.is_calm = self.is_calm and self.now < 100.0 + LOCK_SECONDS
        if self.is_calm:
            assert (0, 0) == (self.broker.refused_epochs, self.broker.refused_records)

    def teardown(self) -> None:
        """Left alone, they get everything done."""
        self.broker.stores = True
        for consumer in self.consumers:
            consumer.session.wanted = frozenset(PARTITIONS)
        for _ in range(200):
            self.now += 0.4
            for which, consumer in enumerate(self.consumers):
                consumer.acquired.acknowledge_all(AcknowledgeType.ACCEPT)
                consumer.acquired.take_renewed()
                self.send(which, wants=True)
                self.answer(which)
                self.each_is_consistent()
            if all(entry.is_done for some in self.broker.log.values() for entry in some.values()):
                return
        raise AssertionError(self.broker.log)


def test_gaps_are_acknowledged_with_the_next_fetch() -> None:
    consumer, broker = Consumer("a"), Broker()
    consumer.session.next_request(0.0, wants_records=True)
    machine = ShareSessionMachine()
    machine.broker, machine.consumers, machine.now = broker, [consumer, consumer], 0.0
    machine.answer(0)
    partition = PARTITIONS[0]
    lock = Lock(1, 0, partition, LOCK_SECONDS)
    consumer.acquired.settle_range(name_of(partition), lock, AcknowledgementBatch(0, 1, GAP))
    machine.send(0, wants=True)
    request = consumer.session.in_flight
    assert isinstance(request, FetchRequest)
    assert {partition: [(0, 1, GAP)]} == batches_by_partition(request)
    machine.answer(0)
    assert [True, True, False] == [broker.log[partition][offset].is_done for offset in range(3)]


TestShareSessions = ShareSessionMachine.TestCase
TestShareSessions.settings = effort(examples=100, steps=20)
