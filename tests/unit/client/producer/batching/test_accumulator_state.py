"""The accumulator's decisions one by one: when a batch leaves, how much, where to, and what a full one refuses."""

import re
from typing import Any

import pytest

from ottla.client.network.backoff import Backoff
from ottla.client.producer.batching.accumulator_state import AccumulatorLimits, AccumulatorState, Outgoing
from ottla.client.producer.batching.partition_queue_state import PartitionQueue
from ottla.client.producer.batching.producer_batch import Identity
from ottla.client.producer.errors import NotDeliveredError, RecordTooLargeError
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.records.batch import Batch
from ottla.records.builder import BatchBuilder
from ottla.sim.random import SimRandom

ROOM = {0: 5, 1: 5}


def accumulator(**limits: object) -> AccumulatorState:
    given: dict[str, Any] = {"linger": 0.0, "backoff": Backoff(first_ms=100, most_ms=100, jitter=0.0), **limits}
    state = AccumulatorState(AccumulatorLimits(**given), SimRandom(1))
    if state.limits.is_idempotent:
        state.adopt(Identity(1, 0))
    return state


def queue_of(state: AccumulatorState, index: int = 0, leader: int | None = 0) -> PartitionQueue:
    queue = state.queue(TopicPartition("t", index))
    queue.leader = leader
    return queue


def add(state: AccumulatorState, queue: PartitionQueue, value: bytes = b"v", now: float = 0.0) -> bool:
    return state.append(queue, 0, None, value, (), now) is not None


def sizes(requests: list[Outgoing]) -> list[list[int]]:
    return [[batch.count for _, batch in request.batches] for request in requests]


def test_a_batch_waits_for_its_linger_unless_full_or_urgent() -> None:
    state = accumulator(linger=0.5, batch_size=200)
    queue = queue_of(state)
    add(state, queue, now=10.0)
    assert [] == state.drain(10.4, ROOM)
    assert 10.5 == state.next_deadline(10.4)
    assert [[1]] == sizes(state.drain(10.5, ROOM))
    state.written(queue, queue.on_wire[0], 0)
    add(state, queue, b"x" * 60, now=11.0)
    add(state, queue, b"x" * 60, now=11.0)
    # The second did not fit: the first batch is full, and only it leaves.
    assert [[1]] == sizes(state.drain(11.0, ROOM))
    state.flushes = 1
    assert [[1]] == sizes(state.drain(11.0, ROOM))


def test_waking_is_for_the_first_record_and_for_full_batches() -> None:
    state = accumulator(linger=1.0, batch_size=200)
    queue = queue_of(state)
    woken = []
    for _ in range(5):
        add(state, queue, b"x" * 30)
        woken.append(state.wants_wake)
        state.wants_wake = False
    assert [True, False, True, False, True] == woken


def test_no_more_requests_than_there_is_room_for_and_one_batch_of_a_partition_in_each() -> None:
    state = accumulator(batch_size=0)
    first, second, elsewhere = queue_of(state, 0), queue_of(state, 1), queue_of(state, 2, leader=1)
    first.is_known = second.is_known = elsewhere.is_known = True
    for queue in (first, second, elsewhere):
        queue.identity, queue.producer_id = state.identity, 1
        for _ in range(4):
            add(state, queue)
    requests = state.drain(0.0, {0: 2, 1: 3})
    assert [(0, 2), (0, 2), (1, 1), (1, 1), (1, 1)] == [(each.broker, len(each.batches)) for each in requests]
    assert [0, 1] == [batch.sequence for batch in first.on_wire]
    assert [] == state.drain(0.0, {0: 0, 1: 0})


def test_a_request_stays_within_its_size_and_partitions_take_turns() -> None:
    state = accumulator(request_size=400, batch_size=0)
    queues = [queue_of(state, index) for index in range(4)]
    for queue in queues:
        for _ in range(3):
            add(state, queue, b"x" * 100)
    served = []
    for _ in range(6):
        (request,) = state.drain(0.0, {0: 1})
        assert 2 == len(request.batches)
        for queue, batch in request.batches:
            served.append(queue.partition.partition)
            state.written(queue, batch, 0)
    assert [0, 1, 2, 3] * 3 == served


def test_memory_is_bounded_and_given_back() -> None:
    state = accumulator(buffer_memory=1000, batch_size=100)
    queue = queue_of(state)
    accepted = 0
    while add(state, queue, b"x" * 50):
        accepted += 1
    assert 5 < accepted < 12
    assert state.used_bytes <= 1000
    (request,) = state.drain(0.0, {0: 1})
    for each, batch in request.batches:
        state.written(each, batch, 0)
    assert add(state, queue, b"x" * 50)
    state.check()


@pytest.mark.parametrize(
    ("limits", "name"), [({"request_size": 100}, "max_request_size"), ({"buffer_memory": 100}, "buffer_memory")]
)
def test_what_can_never_fit_is_refused(limits: dict[str, int], name: str) -> None:
    state = accumulator(**limits)
    with pytest.raises(RecordTooLargeError, match=f"takes up to 197 bytes, which exceeds {name}=100"):
        add(state, queue_of(state), b"x" * 100)
    with pytest.raises(RecordTooLargeError):
        state.append_batch(queue_of(state), bytearray(200), 1, 0.0)


def test_headers_count() -> None:
    state = accumulator(request_size=1000)
    with pytest.raises(RecordTooLargeError):
        state.append(queue_of(state), 0, None, None, [("h" * 500, b"x" * 600)], 0.0)


def test_a_retry_waits_and_goes_first() -> None:
    state = accumulator(batch_size=0)
    queue = queue_of(state)
    for value in (b"1", b"2"):
        add(state, queue, value)
    state.drain(0.0, ROOM)
    (batch,) = queue.on_wire
    assert [] == state.refused(queue, batch, ErrorCode.NOT_LEADER_OR_FOLLOWER, None, 1.0)
    assert 1 == state.retried
    assert [] == state.drain(1.05, ROOM)
    assert 1.1 == pytest.approx(state.next_deadline(1.05))
    (request,) = state.drain(1.2, ROOM)
    assert [(queue, batch)] == list(request.batches)
    assert 0 == Batch(batch.encoded()).base_sequence


def test_a_failure_after_the_delivery_timeout_says_that_time_is_over() -> None:
    """Whether the response or the timeout is noticed first makes no difference."""
    state = accumulator(delivery_timeout=0.7)
    queue = queue_of(state)
    delivery = state.append(queue, 0, None, b"v", (), 0.0)
    assert delivery is not None
    ((_, batch),) = state.drain(0.0, ROOM)[0].batches
    for done in state.refused(queue, batch, ErrorCode.NETWORK_EXCEPTION, "not answered", 0.8):
        done.tell()
    assert isinstance(delivery.exception(), NotDeliveredError)
    expected = r"not acknowledged within 700 ms .*: sent once, may be in the log; last problem: .*not answered"
    assert re.search(expected, str(delivery.exception()))


def test_given_up_in_time_says_what_happened() -> None:
    state = accumulator(delivery_timeout=2.0, batch_size=0)
    sent, unsent = queue_of(state, 0), queue_of(state, 1, leader=None)
    deliveries = [state.append(queue, 0, None, b"v", (), 0.0) for queue in (sent, unsent)]
    state.drain(0.0, ROOM)
    assert [] == state.expire(1.9)
    for each in state.expire(2.0):
        each.tell()
    assert [
        "1 record for t-0 not acknowledged within 2000 ms (delivery_timeout_ms): sent once, may be in the log;"
        " last problem: no response",
        "1 record for t-1 not acknowledged within 2000 ms (delivery_timeout_ms): never sent; the partition has no known"
        " leader",
    ] == [str(delivery.exception()) for delivery in deliveries if delivery is not None]
    assert all(isinstance(delivery.exception(), NotDeliveredError) for delivery in deliveries if delivery is not None)
    assert 0 == state.used_bytes
    # Nothing new leaves while it is on the wire, for its number is in doubt; its late answer settles that.
    add(state, sent, b"next")
    assert [] == state.drain(3.0, ROOM)
    assert [] == state.written(sent, sent.on_wire[0], 0)
    (request,) = state.drain(3.0, ROOM)
    assert [1] == [batch.sequence for _, batch in request.batches]


def test_a_whole_batch_is_stamped_in_place_and_keeps_its_place() -> None:
    state = accumulator()
    queue = queue_of(state)
    add(state, queue, b"before")
    builder = BatchBuilder()
    for _ in range(3):
        builder.append(0, None, b"within")
    data = bytearray(builder.build())
    promise = state.append_batch(queue, data, 3, 0.0)
    assert promise is not None
    add(state, queue, b"after")
    sent = []
    while queue.batches:
        (request,) = state.drain(0.0, {0: 1})
        ((_, batch),) = request.batches
        sent.append((Batch(batch.encoded()).base_sequence, batch.count))
        Batch(batch.encoded()).check()
        for each in state.written(queue, batch, len(sent) * 10):
            each.tell()
    assert [(0, 1), (1, 3), (4, 1)] == sent
    assert (20, True) == (promise.base_offset, promise.is_done)
    assert 1 == Batch(data).producer_id


def test_without_idempotence_nothing_is_numbered() -> None:
    state = accumulator(is_idempotent=False, batch_size=0)
    queue = queue_of(state)
    for _ in range(2):
        add(state, queue)
    requests = state.drain(0.0, ROOM)
    assert [-1, -1] == [Batch(batch.encoded()).producer_id for each in requests for _, batch in each.batches]


def test_a_transaction_waits_for_its_partition_to_be_known() -> None:
    state = accumulator(is_transactional=True)
    state.needs_registration = True
    queue = queue_of(state)
    add(state, queue)
    assert [] == state.drain(0.0, ROOM)
    queue.is_in_transaction = True
    (request,) = state.drain(0.0, ROOM)
    assert Batch(request.batches[0][1].encoded()).is_transactional


def test_the_last_epoch_is_followed_by_a_new_identity() -> None:
    state = accumulator()
    state.adopt(Identity(1, 2**15 - 1))
    queue = queue_of(state)
    add(state, queue)
    (request,) = state.drain(0.0, ROOM)
    state.refused(queue, request.batches[0][1], ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, None, 0.0)
    assert [] == state.drain(1.0, ROOM)
    assert state.identity is None
    state.adopt(Identity(2, 0))
    (request,) = state.drain(1.0, ROOM)
    assert (2, 0, 0) == _numbers(request)


def _numbers(request: Outgoing) -> tuple[int, int, int]:
    batch = Batch(request.batches[0][1].encoded())
    return batch.producer_id, batch.producer_epoch, batch.base_sequence
