"""The rules for a partition's sequence numbers, each by itself: they are what makes a batch sent twice one batch."""

from typing import Any

from ottla.client.network.backoff import Backoff
from ottla.client.producer.batching.accumulator_state import AccumulatorLimits, AccumulatorState
from ottla.client.producer.batching.partition_queue_state import PartitionQueue
from ottla.client.producer.batching.producer_batch import NO_SEQUENCE, SEQUENCES, Identity, ProducerBatch
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.sim.random import SimRandom

ME = Identity(7, 0)
NEXT = Identity(7, 1)
OTHER = Identity(8, 0)
LATER = 1e6
ROOM = {0: 5}


def accumulator(*, records: int = 1, is_transactional: bool = False, **limits: object) -> AccumulatorState:
    """One that sends at once, in batches of so many records."""
    given: dict[str, Any] = {
        "linger": 0.0,
        "batch_size": 0 if records == 1 else 61 + records * 9,
        "backoff": Backoff(first_ms=1, most_ms=1, jitter=0.0),
        "delivery_timeout": 2 * LATER,
        "is_transactional": is_transactional,
        **limits,
    }
    state = AccumulatorState(AccumulatorLimits(**given), SimRandom(1))
    state.adopt(ME)
    return state


def filled(state: AccumulatorState, count: int, index: int = 0) -> PartitionQueue:
    """A partition with so many batches of one record."""
    queue = state.queue(TopicPartition("t", index))
    queue.leader = 0
    for _ in range(count):
        assert state.append(queue, 0, None, b"v", (), 0.0) is not None
    return queue


def known(state: AccumulatorState, count: int, index: int = 0) -> PartitionQueue:
    """The same, where the broker has a first batch of this producer, sequence 0."""
    queue = filled(state, 1, index)
    state.drain(0.0, ROOM)
    state.written(queue, queue.on_wire[0], 0)
    return filled(state, count, index)


def sequences(batches: "list[ProducerBatch]") -> list[int]:
    return [batch.sequence for batch in batches]


def sent(state: AccumulatorState, now: float = LATER) -> list[tuple[Identity | None, int]]:
    """Who and which number leaves now."""
    requests = state.drain(now, ROOM)
    state.check()
    return [(batch.identity, batch.sequence) for request in requests for _, batch in request.batches]


def refuse(state: AccumulatorState, queue: PartitionQueue, at: int, code: ErrorCode) -> None:
    state.refused(queue, queue.on_wire[at], code, None, 0.0)
    state.check()


def test_numbers_count_records_and_wrap() -> None:
    queue = PartitionQueue(TopicPartition("t", 0))
    state = accumulator(batch_size=1000)
    queue = state.queue(queue.partition)
    queue.identity, queue.producer_id, queue.next_sequence = ME, ME.producer_id, SEQUENCES - 2
    for _ in range(3):
        filled(state, 3)
        state.pending()  # closes the batch
        batch = queue.take(ME)
        state.written(queue, batch, 0)
    assert 7 == queue.next_sequence
    assert (SEQUENCES - 2 + 3 * 2) % SEQUENCES == batch.sequence


def test_one_goes_alone_to_a_broker_that_does_not_know_the_producer() -> None:
    state = accumulator()
    queue = filled(state, 3)
    assert [(ME, 0)] == sent(state)
    assert [] == sent(state)
    state.written(queue, queue.on_wire[0], 0)
    assert [(ME, 1), (ME, 2)] == sent(state)


def test_what_comes_back_keeps_its_number_and_goes_alone_before_the_others() -> None:
    state = accumulator()
    queue = known(state, 4)
    assert [(ME, 1), (ME, 2), (ME, 3), (ME, 4)] == sent(state)
    refuse(state, queue, 1, ErrorCode.NETWORK_EXCEPTION)
    refuse(state, queue, 0, ErrorCode.NETWORK_EXCEPTION)
    assert [1, 2] == sequences(list(queue.batches))
    # The others are still on the wire: nothing may overtake them, nor be overtaken.
    assert [] == sent(state)
    refuse(state, queue, 1, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    refuse(state, queue, 0, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    filled(state, 1)
    for number in (1, 2, 3):
        assert [(ME, number)] == sent(state)
        assert [] == sent(state)
        state.written(queue, queue.on_wire[0], number)
    # Behind the last of them, new ones may follow.
    assert [(ME, 4), (ME, 5)] == sent(state)


def test_out_of_order_with_nothing_before_it_takes_a_new_epoch() -> None:
    state = accumulator()
    queue = known(state, 2)
    sent(state)
    refuse(state, queue, 1, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    # One before it is undecided, so this says nothing yet.
    assert not queue.wants_new_epoch
    refuse(state, queue, 0, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    # The broker knows the producer, if not under this epoch: both may leave, numbered anew.
    assert [(NEXT, 0), (NEXT, 1)] == sent(state)


def test_one_new_epoch_serves_all_partitions_that_need_one() -> None:
    state = accumulator()
    queues = [known(state, 1, index) for index in range(3)]
    sent(state)
    for queue in queues:
        refuse(state, queue, 0, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert [(NEXT, 0)] * 3 == sent(state)
    assert NEXT == state.identity


def test_after_a_new_epoch_others_first_empty_their_wire() -> None:
    """Numbers of two epochs side by side would have no order."""
    state = accumulator()
    failing, other = known(state, 1, 0), known(state, 2, 1)
    sent(state)
    filled(state, 1, 1)
    refuse(state, failing, 0, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert [(NEXT, 0)] == sent(state)
    state.written(other, other.on_wire[0], 1)
    assert [] == sent(state)
    state.written(other, other.on_wire[0], 2)
    assert [(NEXT, 0)] == sent(state)


def test_a_new_producer_is_not_known_by_its_former_self() -> None:
    state = accumulator()
    queue = known(state, 2)
    state.adopt(OTHER)
    assert [(OTHER, 0)] == sent(state)
    assert not queue.is_known
    state.written(queue, queue.on_wire[0], 1)
    assert [(OTHER, 1)] == sent(state)


def test_a_number_that_may_be_taken_holds_new_ones_up() -> None:
    state = accumulator()
    queue = known(state, 2)
    sent(state)
    lost, behind = queue.on_wire
    lost.deadline = 1.0
    assert [lost] == [each.batch for each in state.expire(2.0)]
    filled(state, 1)
    # Nobody knows whether number 1 is in the log, so nobody knows which one comes next.
    state.refused(queue, lost, ErrorCode.NETWORK_EXCEPTION, None, 0.0)
    assert [] == sent(state)
    # The one behind it is accepted: then so was it.
    state.written(queue, behind, 2)
    assert not queue.is_unresolved
    assert [(ME, 3)] == sent(state)


def test_with_nothing_left_to_tell_a_doubtful_number_costs_an_epoch() -> None:
    state = accumulator()
    queue = known(state, 1)
    sent(state)
    queue.on_wire[0].deadline = 1.0
    (gone,) = state.expire(2.0)
    filled(state, 1)
    assert [] == sent(state)
    state.refused(queue, gone.batch, ErrorCode.NETWORK_EXCEPTION, None, 0.0)
    assert [(NEXT, 0)] == sent(state)


def test_a_refused_number_is_free_unless_an_earlier_try_is_in_doubt() -> None:
    for is_doubtful in (False, True):
        state = accumulator()
        queue = known(state, 2)
        sent(state)
        first = queue.on_wire[0]
        first.is_doubtful = is_doubtful
        refuse(state, queue, 0, ErrorCode.INVALID_RECORD)
        assert (not is_doubtful, is_doubtful) == (queue.wants_new_epoch, queue.is_unresolved)
        assert first.is_given_up


def test_what_the_broker_has_twice_counts_as_written() -> None:
    state = accumulator()
    queue = known(state, 2)
    sent(state)
    queue.is_unresolved = True
    refuse(state, queue, 0, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
    assert not queue.is_unresolved
    assert [2] == sequences(queue.on_wire)


def test_pieces_of_a_batch_have_its_numbers_in_its_place() -> None:
    state = accumulator(batch_size=1000)
    queue = known(state, 4)
    state.pending()
    filled(state, 1)
    state.pending()
    sent(state)
    assert [1, 5] == sequences(queue.on_wire)
    refuse(state, queue, 1, ErrorCode.NETWORK_EXCEPTION)
    refuse(state, queue, 0, ErrorCode.MESSAGE_TOO_LARGE)
    assert [(1, 2), (3, 2), (5, 1)] == [(batch.sequence, batch.count) for batch in queue.batches]
    assert {ME} == {batch.identity for batch in queue.batches}


def test_a_batch_that_may_be_in_the_log_is_not_split() -> None:
    """Brokers know whole batches again, not parts of them."""
    state = accumulator(batch_size=1000)
    queue = known(state, 4)
    state.pending()
    sent(state)
    queue.on_wire[0].is_doubtful = True
    refuse(state, queue, 0, ErrorCode.MESSAGE_TOO_LARGE)
    assert ([], 0) == (list(queue.batches), state.splits)


def test_the_last_epoch_is_followed_by_another_producer_id() -> None:
    state = accumulator()
    state.adopt(Identity(7, 2**15 - 1))
    queue = known(state, 1)
    sent(state)
    refuse(state, queue, 0, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert [] == sent(state)
    assert state.identity is None
    assert [NO_SEQUENCE] == sequences(list(queue.batches))
    state.adopt(OTHER)
    assert [(OTHER, 0)] == sent(state)


def test_a_transaction_that_is_over_leaves_no_doubt_behind() -> None:
    state = accumulator(is_transactional=True)
    queue = known(state, 1)
    sent(state)
    refuse(state, queue, 0, ErrorCode.INVALID_RECORD)
    assert queue.wants_new_epoch
    filled(state, 1)
    # It must be aborted, which gives the producer its next epoch.
    assert [] == sent(state)
    state.adopt(NEXT)
    assert [(NEXT, 0)] == sent(state)
