"""Records one by one: what counts as handed out."""

from ottla.client.consumer.record_stream import RecordStream
from ottla.client.values import ConsumerRecord
from ottla.model.ids import TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def record(partition: TopicPartition, offset: int) -> ConsumerRecord:
    return ConsumerRecord(partition.topic, partition.partition, None, offset, 0, 0, None, None, (), -1, -1)


def stream() -> RecordStream:
    made = RecordStream()
    made.feed({A: [record(A, offset) for offset in range(3)], B: [record(B, offset) for offset in range(2)]})
    return made


def test_what_is_left_is_known_at_every_record() -> None:
    records = stream()
    left = []
    while (some := records.some()) is not None:
        for each in some:
            first = {str(partition): found.offset for partition, found in records.undelivered().items()}
            left.append((each.partition, each.offset, first))
    assert [
        (0, 0, {"t-0": 1, "t-1": 0}),
        (0, 1, {"t-0": 2, "t-1": 0}),
        (0, 2, {"t-1": 0}),
        (1, 0, {"t-1": 1}),
        (1, 1, {}),
    ] == left


def test_dropping_ends_an_iteration_that_is_under_way() -> None:
    records = stream()
    some = records.some()
    assert some is not None
    assert 0 == next(some).offset
    records.drop(A)
    assert [] == list(some)
    assert {B: record(B, 0)} == records.undelivered()
    records.drop(B)
    assert records.some() is None


def test_all_that_is_left_can_be_taken() -> None:
    records = stream()
    some = records.some()
    assert some is not None
    next(some)
    assert {A: [record(A, 1), record(A, 2)], B: [record(B, 0), record(B, 1)]} == records.take()
    assert {} == records.take()
