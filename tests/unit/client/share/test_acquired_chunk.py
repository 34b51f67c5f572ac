"""The acquired records of a fetched chunk, as records and as Arrow batches: gaps, foreign records, and bad ones."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.consumer.errors import RecordDeserializationError, UnreadableRecordError
from ottla.client.serializers import NotPreparedError
from ottla.client.share.acquired_chunk import AcquiredChunk, AcquiredReader, sorted_ranges
from ottla.client.share.acquired_records_state import Lock
from ottla.client.share.arrow_acquired import acquired_columns
from ottla.client.share.values import AcknowledgeType
from ottla.model.ids import TopicPartition
from ottla.protocol.share_frames import GAP, AcknowledgementBatch, AcquiredRange, TopicIdPartition
from ottla.records.batch import Batch
from ottla.records.builder import BatchBuilder, build_batch
from ottla.records.record import Record

PARTITION = TopicPartition("t", 0)
LOCK = Lock(1, 0, TopicIdPartition(UUID(int=1), 0), 9.0)
RELEASE, REJECT = AcknowledgeType.RELEASE, AcknowledgeType.REJECT


def batch(*offsets: int) -> bytearray:
    """A batch with records at these offsets; the first is its base offset."""
    builder = BatchBuilder(base_offset=offsets[0])
    for offset in offsets:
        builder.append(offset, b"k%d" % offset, b"%d" % offset, offset_delta=offset - offsets[0])
    return bytearray(builder.build())


def chunk(batches: Sequence[bytearray], *ranges: tuple[int, int, int]) -> AcquiredChunk:
    return AcquiredChunk(
        partition=PARTITION,
        lock=LOCK,
        batches=[Batch(each) for each in batches],
        ranges=sorted_ranges(AcquiredRange(*each) for each in ranges),
    )


def read_all(reader: AcquiredReader, count: int = 100) -> list[tuple[int, Any, int]]:
    found = []
    while not reader.is_done:
        found += [(each.offset, each.value, each.delivery_count) for each in reader.read(count)]
    return found


def test_only_acquired_records_are_returned() -> None:
    reader = AcquiredReader(chunk([batch(0, 1, 2, 3), batch(4, 5)], (1, 1, 1), (3, 4, 2)))
    assert [(1, b"1", 1), (3, b"3", 2), (4, b"4", 2)] == read_all(reader)
    assert [] == reader.take_own()


def test_acquired_offsets_without_a_record_are_gaps() -> None:
    reader = AcquiredReader(chunk([batch(0, 3), batch(6, 7)], (0, 9, 1)))
    assert [0, 3, 6, 7] == [offset for offset, _, _ in read_all(reader, count=1)]
    assert [(1, 2, GAP), (4, 5, GAP), (8, 9, GAP)] == reader.take_own()


def test_without_any_batch_all_is_a_gap() -> None:
    reader = AcquiredReader(chunk([], (5, 8, 1)))
    assert [] == reader.read(10)
    assert (True, [(5, 8, GAP)]) == (reader.is_done, reader.take_own())


def test_a_record_that_cannot_be_deserialized_comes_after_those_before_it() -> None:
    def deserialize(data: bytes) -> int:
        if data == b"1":
            raise ValueError("not this one")
        return int(data)

    # The record at 3 is not acquired, so it is not deserialized either.
    reader = AcquiredReader(chunk([batch(0, 1, 2)], (0, 2, 1)), value_deserializer=deserialize)
    assert [0] == [each.value for each in reader.read(10)]
    with pytest.raises(RecordDeserializationError, match="not this one") as caught:
        reader.read(10)
    assert (PARTITION, 1) == (caught.value.partition, caught.value.offset)
    assert [(1, 1, RELEASE)] == reader.take_own()
    assert [2] == [each.value for each in reader.read(10)]
    assert reader.is_done


def test_a_corrupt_batch_is_rejected_as_far_as_it_is_acquired() -> None:
    bad = batch(2, 3, 4)
    bad[-1] ^= 1
    reader = AcquiredReader(chunk([batch(0, 1), bad, batch(5, 6)], (1, 3, 1), (5, 5, 1)))
    assert [1] == [each.offset for each in reader.read(10)]
    with pytest.raises(UnreadableRecordError):
        reader.read(10)
    assert [(2, 3, REJECT)] == reader.take_own()
    assert [(5, b"5", 1)] == read_all(reader)


def test_gaps_before_a_corrupt_batch_are_not_rejected() -> None:
    """A rejected offset may get a dead letter."""
    compacted = bytearray(build_batch([Record(0, 0, None, b"0")], last_offset_delta=2))
    bad = batch(3, 4)
    bad[-1] ^= 1
    reader = AcquiredReader(chunk([compacted, bad], (0, 4, 1)))
    assert [0] == [each.offset for each in reader.read(10)]
    with pytest.raises(UnreadableRecordError, match="at offset 3"):
        reader.read(10)
    assert [(1, 2, GAP), (3, 4, REJECT)] == reader.take_own()
    assert reader.is_done


def test_a_deserializer_is_prepared_and_then_goes_on() -> None:
    schemas: set[bytes] = set()

    def deserialize(data: bytes) -> bytes:
        if data not in schemas:
            raise NotPreparedError(lambda: schemas.add(data))
        return data

    reader = AcquiredReader(chunk([batch(0, 1)], (0, 1, 1)), value_deserializer=deserialize)
    for offset in (0, 1):
        with pytest.raises(NotPreparedError) as caught:
            reader.read(10)
        caught.value.prepare()
        assert [offset] == [each.offset for each in reader.read(1)]
    assert reader.is_done


def test_a_deserializer_that_cannot_be_prepared_releases_the_record() -> None:
    def deserialize(data: bytes) -> bytes:
        raise NotPreparedError(lambda: None)

    reader = AcquiredReader(chunk([batch(0)], (0, 0, 1)), value_deserializer=deserialize)
    with pytest.raises(NotPreparedError):
        reader.read(10)
    reader.refuse(ConnectionError("no registry"))
    with pytest.raises(RecordDeserializationError, match="no registry"):
        reader.read(10)
    assert ([(0, 0, RELEASE)], True) == (reader.take_own(), reader.is_done)


def test_overlapping_ranges_count_once() -> None:
    assert [(0, 4, 1), (5, 6, 2)] == sorted_ranges([AcquiredRange(3, 6, 2), AcquiredRange(0, 4, 1)])


@given(
    offsets=st.sets(st.integers(0, 20), min_size=1),
    acquired=st.dictionaries(st.integers(0, 20), st.integers(1, 3), min_size=1),
    cuts=st.sets(st.integers(1, 20)),
    count=st.integers(1, 5),
)
def test_records_and_gaps_are_all_that_was_acquired(
    offsets: set[int], acquired: dict[int, int], cuts: set[int], count: int
) -> None:
    """However the log is cut into batches, and whatever was compacted away, in both forms."""
    batches: list[list[int]] = []
    for offset in sorted(offsets):
        if not batches or any(batches[-1][-1] < cut <= offset for cut in cuts):
            batches.append([])
        batches[-1].append(offset)
    fetched = chunk([batch(*each) for each in batches], *((at, at, times) for at, times in acquired.items()))
    expected = [(at, b"%d" % at, acquired[at]) for at in sorted(offsets & acquired.keys())]
    gaps = acquired.keys() - offsets
    reader = AcquiredReader(fetched)
    assert expected == read_all(reader, count)
    assert gaps == spread(reader.take_own())
    columns = acquired_columns(fetched, headers=False)
    rows = [
        (row["offset"], row["value"], row["delivery_count"]) for each in columns.batches for row in each.to_pylist()
    ]
    assert (expected, gaps, None, None) == (rows, spread(columns.own), columns.rest, columns.error)
    assert [at for at, _, _ in expected] == columns.offsets


def spread(own: Sequence[AcknowledgementBatch]) -> set[int]:
    assert all(each.type == GAP for each in own)
    found = [offset for first, last, _ in own for offset in range(first, last + 1)]
    assert len(set(found)) == len(found)
    return set(found)


def test_arrow_stops_before_a_corrupt_batch_and_then_rejects_it() -> None:
    bad = batch(2, 3)
    bad[-1] ^= 1
    first = acquired_columns(chunk([batch(0, 1), bad, batch(4)], (1, 4, 1)), headers=True)
    assert ([1], [], None) == (first.offsets, first.own, first.error)
    assert first.rest is not None
    second = acquired_columns(first.rest, headers=True)
    assert ([], [(2, 3, REJECT)]) == (second.offsets, second.own)
    assert isinstance(second.error, UnreadableRecordError)
    assert second.rest is not None
    assert [4] == acquired_columns(second.rest, headers=True).offsets
