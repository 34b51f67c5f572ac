"""The youngest of the records that were found in each partition."""

from ottla.model.ids import TopicPartition
from ottla.operations.last_records import youngest
from ottla.records.record import Record

P0, P1 = TopicPartition("events", 0), TopicPartition("events", 1)


def record(offset: int, timestamp: int) -> Record:
    return Record(offset, timestamp, None, None)


FOUND = {P1: [record(0, 5), record(1, 9)], P0: [record(3, 9), record(4, 9), record(5, 1)]}
ORDER = [
    (P0, record(5, 1)),
    (P1, record(0, 5)),
    (P0, record(3, 9)),
    (P0, record(4, 9)),
    (P1, record(1, 9)),
]


def test_the_youngest_are_in_the_order_of_time_then_of_partition_and_offset() -> None:
    assert [ORDER[-1:], ORDER[-3:], ORDER, ORDER] == [youngest(FOUND, count) for count in (1, 3, 5, 9)]
