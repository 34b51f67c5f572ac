"""The accumulator against brokers that refuse, lose answers, forget producers: nothing is written twice, all in order.

The model broker keeps a log for each partition and checks producer ids, epochs and sequences as a real one does. Two
brokers lead a partition each, and work on their requests in the order they came, as on one connection; what was sent on
a connection that broke may still arrive later.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ottla.client.errors import AnswerError
from ottla.client.network.backoff import Backoff
from ottla.client.producer.batching.accumulator_state import AccumulatorLimits, AccumulatorState, Finished, Outgoing
from ottla.client.producer.batching.deliveries import Delivery
from ottla.client.producer.batching.producer_batch import Identity, ProducerBatch
from ottla.client.producer.errors import NotDeliveredError, NotEncodedError
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import MisuseError
from ottla.model.ids import TopicPartition
from ottla.records.batch import Batch
from ottla.records.decode import decode_records
from ottla.sim.random import SimRandom
from tests.effort import effort

PARTITIONS = [TopicPartition("t", index) for index in range(2)]
IN_FLIGHT = 5
REMEMBERED = 5


@dataclass
class ModelPartition:
    """A log, and what is remembered of its one producer."""

    log: list[int] = field(default_factory=list)
    identity: tuple[int, int] | None = None
    next_sequence: int = 0
    recent: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    """(first sequence, base offset)"""

    def append(self, data: bytes, largest: int) -> tuple[int, int]:
        """(error code, base offset)"""
        batch = Batch(data)
        batch.check()
        values = [int(record.value or b"") for record in decode_records(batch)]
        if len(values) > largest:
            return ErrorCode.MESSAGE_TOO_LARGE, -1
        if batch.producer_id >= 0:
            who = (int(batch.producer_id), int(batch.producer_epoch))
            if self.identity is not None and who < self.identity:
                return ErrorCode.INVALID_PRODUCER_EPOCH, -1
            if who != self.identity:
                # A producer that nobody knows may begin anywhere, but its next epoch begins at 0.
                is_new = self.identity is None or self.identity[0] != who[0]
                if not is_new and batch.base_sequence != 0:
                    return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
                self.identity, self.next_sequence = who, int(batch.base_sequence)
                self.recent.clear()
            for first, base in self.recent:
                if first == batch.base_sequence:
                    return ErrorCode.NONE, base
            if batch.base_sequence != self.next_sequence:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
            self.next_sequence += len(values)
            self.recent.append((int(batch.base_sequence), len(self.log)))
        self.log += values
        return ErrorCode.NONE, len(self.log) - len(values)


class AccumulatorMachine(RuleBasedStateMachine):
    """An idempotent producer."""

    is_idempotent = True
    in_flight = IN_FLIGHT

    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        limits = AccumulatorLimits(
            batch_size=130,
            linger=0.0,
            buffer_memory=5000,
            request_size=1000,
            delivery_timeout=2.0,
            backoff=Backoff(first_ms=0, most_ms=0),
            is_idempotent=self.is_idempotent,
        )
        self.state = AccumulatorState(limits, SimRandom(1))
        self.state.adopt(Identity(7, 0))
        self.brokers = {partition: ModelPartition() for partition in PARTITIONS}
        self.wire: dict[int, deque[tuple[Outgoing, dict[TopicPartition, bytes]]]] = {0: deque(), 1: deque()}
        self.late: deque[dict[TopicPartition, bytes]] = deque()
        self.sent: dict[int, tuple[TopicPartition, Delivery]] = {}
        self.batch_records_max = 1000
        for partition in PARTITIONS:
            self.state.queue(partition).leader = partition.partition % 2

    # The program and the clock

    @rule(index=st.integers(0, 1), count=st.integers(1, 15))
    def append(self, index: int, count: int) -> None:
        queue = self.state.queue(PARTITIONS[index])
        for _ in range(count):
            number = len(self.sent)
            delivery = self.state.append(queue, 1000, b"k", b"%d" % number, (), self.now)
            if delivery is None:
                assert self.state.used_bytes > 4000
                return
            self.sent[number] = (PARTITIONS[index], delivery)
            self.drain()

    @rule(index=st.integers(0, 1), headers=st.sampled_from([[("h", "text")], [(b"h", b"")], [("\ud800", b"")], [(1,)]]))
    def append_what_cannot_be_encoded(self, index: int, headers: Any) -> None:
        queue = self.state.queue(PARTITIONS[index])
        before = (self.state.used_bytes, self.state.wants_wake, queue.is_idle, [*map(_shape, queue.batches)])
        try:
            added = self.state.append(queue, 1000, b"k", b"0" * 30, headers, self.now)
        except (MisuseError, TypeError, ValueError):
            added = None
        # A full buffer says so before it looks at the record.
        assert added is None
        after = (self.state.used_bytes, self.state.wants_wake, queue.is_idle, [*map(_shape, queue.batches)])
        assert before == after

    @rule(span=st.sampled_from([0.01, 0.01, 0.4, 2.5]))
    def wait(self, span: float) -> None:
        self.now += span
        self.tell(self.state.expire(self.now))

    @rule()
    def drain(self) -> None:
        room = {broker: self.in_flight - len(waiting) for broker, waiting in self.wire.items()}
        for request in self.state.drain(self.now, room):
            # Encoded now, as the sender does: what is on the wire must not change any more.
            data = {queue.partition: bytes(batch.encoded()) for queue, batch in request.batches}
            assert len(data) == len(request.batches)
            self.wire[request.broker].append((request, data))
        if self.state.identity is None:
            self.state.adopt(Identity(8, 0))

    @rule(broker=st.integers(0, 1))
    def fail_to_encode(self, broker: int) -> None:
        """What would leave now cannot be made into bytes, such as for want of memory."""
        room = {broker: self.in_flight - len(self.wire[broker])}
        for request in self.state.drain(self.now, room):
            for queue, batch in request.batches:
                self.tell(self.state.not_encoded(queue, batch, MemoryError()))

    # Brokers

    @rule(broker=st.integers(0, 1), times=st.integers(1, 3))
    def answer(self, broker: int, times: int) -> None:
        for _ in range(times):
            if not self.wire[broker]:
                return
            request, data = self.wire[broker].popleft()
            for queue, batch in request.batches:
                code, offset = self.brokers[queue.partition].append(data[queue.partition], self.batch_records_max)
                if code:
                    self.tell(self.state.refused(queue, batch, code, None, self.now))
                else:
                    self.tell(self.state.written(queue, batch, offset))
            self.drain()

    @rule(
        broker=st.integers(0, 1),
        code=st.sampled_from(
            [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        ),
    )
    def refuse(self, broker: int, code: ErrorCode) -> None:
        """Nothing is written."""
        if self.wire[broker]:
            request, _ = self.wire[broker].popleft()
            for queue, batch in request.batches:
                self.tell(self.state.refused(queue, batch, code, None, self.now))

    @rule(broker=st.integers(0, 1), written=st.integers(0, 3), late=st.integers(0, 3))
    def lose_connection(self, broker: int, written: int, late: int) -> None:
        """Some of what was sent is written, some may be later, nothing is answered."""
        lost = list(self.wire[broker])
        self.wire[broker].clear()
        for _, data in lost[:written]:
            self.write(data)
        self.late += [data for _, data in lost[written : written + late]]
        for request, _ in lost:
            for queue, batch in request.batches:
                self.tell(self.state.refused(queue, batch, ErrorCode.NETWORK_EXCEPTION, None, self.now))

    @rule()
    def arrive_late(self) -> None:
        if self.late:
            self.write(self.late.popleft())

    def write(self, data: dict[TopicPartition, bytes]) -> None:
        for partition, batch in data.items():
            self.brokers[partition].append(batch, self.batch_records_max)

    @rule(index=st.integers(0, 1))
    def forget_producer(self, index: int) -> None:
        """As when the log's start moves on; while batches are undecided it would be a licence to write them twice."""
        self.answer(index, 20)
        self.late.clear()
        if not self.wire[index] and not list(self.state.queue(PARTITIONS[index]).numbered()):
            self.brokers[PARTITIONS[index]].next_sequence = -1

    @rule(most=st.sampled_from([2, 1000, 1000]))
    def change_limit(self, most: int) -> None:
        """The topic's max.message.bytes, in effect."""
        self.batch_records_max = most

    def tell(self, finished: list[Finished]) -> None:
        for each in finished:
            each.tell()

    # What must hold

    @invariant()
    def is_whole(self) -> None:
        self.state.check()

    @invariant()
    def log_has_nothing_twice_and_in_order(self) -> None:
        for partition, broker in self.brokers.items():
            assert sorted(set(broker.log)) == broker.log, partition

    @invariant()
    def acknowledged_is_written(self) -> None:
        for number, (partition, delivery) in self.sent.items():
            if delivery.succeeded():
                metadata = delivery.value
                assert metadata is not None
                assert partition == metadata.topic_partition
                assert number == self.brokers[partition].log[metadata.offset]

    @invariant()
    def given_up_for_a_reason(self) -> None:
        for _, delivery in self.sent.values():
            error = delivery.exception() if delivery.done() else None
            if error is not None and not isinstance(error, NotDeliveredError | NotEncodedError):
                assert isinstance(error, AnswerError)
                # Too large for the topic only if it was written, perhaps, before the limit was lowered.
                assert error.error_code in (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.MESSAGE_TOO_LARGE)

    def teardown(self) -> None:
        """Once all is well, everything comes to its end."""
        self.batch_records_max = 1000
        for _ in range(200):
            self.now += 0.05
            self.drain_all()
        self.is_whole()
        self.log_has_nothing_twice_and_in_order()
        self.acknowledged_is_written()
        assert 0 == self.state.used_bytes
        assert [] == [number for number, (_, delivery) in self.sent.items() if not delivery.is_done]

    def drain_all(self) -> None:
        self.drain()
        for broker in self.wire:
            self.answer(broker, 100)


def _shape(batch: ProducerBatch) -> tuple[int, int, bool]:
    return batch.count, batch.size, batch.is_closed


class CarefulMachine(AccumulatorMachine):
    """Without idempotence there may be duplicates; with one request in flight the order is kept for what is new."""

    is_idempotent = False
    in_flight = 1

    @invariant()
    def log_has_nothing_twice_and_in_order(self) -> None:
        for partition, broker in self.brokers.items():
            first_seen = list(dict.fromkeys(broker.log))
            assert sorted(first_seen) == first_seen, partition


TestAccumulator = AccumulatorMachine.TestCase
TestAccumulator.settings = effort(150, 60)
TestCarefulAccumulator = CarefulMachine.TestCase
TestCarefulAccumulator.settings = effort(50, 50)
