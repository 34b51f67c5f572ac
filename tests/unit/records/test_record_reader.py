"""Records of fetched batches, some at a time: all of them, once, in order, whatever the batches are like."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.errors import CorruptBatchError, MisuseError
from ottla.records.batch import Batch, scan
from ottla.records.builder import BatchBuilder
from ottla.records.control import marker_batch
from ottla.records.layout import Codec, Marker
from ottla.records.record_reader import RecordReader

T0 = 1_700_000_000_000


class Row(NamedTuple):
    topic: str
    partition: int
    leader_epoch: int | None
    offset: int
    timestamp: int
    timestamp_type: int
    key: Any
    value: Any
    headers: tuple[tuple[str, bytes | None], ...]
    serialized_key_size: int
    serialized_value_size: int


def batch(values: Sequence[bytes | None], base_offset: int = 0, codec: Codec = Codec.NONE, **more: Any) -> bytes:
    builder = BatchBuilder(codec=codec, base_offset=base_offset, **more)
    for number, value in enumerate(values):
        builder.append(T0 + number, None, value)
    return builder.build()


def batches(*data: bytes) -> list[Batch]:
    found, _, problem = scan(b"".join(data), check_crc=False)
    assert problem is None
    return found


def reader(*data: bytes, start: int = 0, aborted: list[tuple[int, int]] | None = None) -> "RecordReader[Row]":
    return RecordReader(Row, "t", 3, batches(*data), start, aborted)


def test_every_field_is_there() -> None:
    builder = BatchBuilder(base_offset=7, leader_epoch=4)
    builder.append(T0, b"k", b"value", [("h", b"1"), ("n", None)])
    builder.append(T0 + 5, None, None)
    found = reader(builder.build(), start=7).read(10)
    assert [
        Row("t", 3, 4, 7, T0, 0, b"k", b"value", (("h", b"1"), ("n", None)), 1, 5),
        Row("t", 3, 4, 8, T0 + 5, 0, None, None, (), -1, -1),
    ] == found
    assert [Row, Row] == [type(each) for each in found]


def test_the_brokers_time_stands_for_the_producers() -> None:
    data = bytearray(batch([b"a"]))
    Batch(data).stamp_append_time(T0 + 99)
    (record,) = reader(bytes(data)).read(5)
    assert (T0 + 99, 1, None) == (record.timestamp, record.timestamp_type, record.leader_epoch)


@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=6),
    counts=st.lists(st.integers(1, 12), min_size=1, max_size=60),
    start=st.integers(0, 30),
    codec=st.sampled_from(list(Codec)),
)
def test_any_portions_give_all_records_once(sizes: list[int], counts: list[int], start: int, codec: Codec) -> None:
    data, offset = [], 0
    for size in sizes:
        data.append(batch([b"%d" % (offset + index) for index in range(size)], offset, codec))
        offset += size
    reading = reader(*data, start=start)
    found: list[int] = []
    for count in [*counts, *[100] * 2]:
        some = reading.read(count)
        assert len(some) <= count
        found += [int(each.value) for each in some]
        if some:
            assert found[-1] + 1 == some[-1].offset + 1 <= reading.next_offset
    assert list(range(start, offset)) == found
    assert reading.is_done
    assert max(start, offset) == reading.next_offset


def test_aborted_records_and_markers_are_left_out_but_passed() -> None:
    def transactional(value: bytes, producer_id: int, base_offset: int) -> bytes:
        identity: dict[str, Any] = {
            "producer_id": producer_id,
            "producer_epoch": 0,
            "base_sequence": 0,
            "transactional": True,
        }
        return batch([value], base_offset, **identity)

    def marker(kind: Marker, producer_id: int, base_offset: int) -> bytes:
        return marker_batch(
            kind, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp=T0, base_offset=base_offset
        )

    data = [
        transactional(b"aborted", 1, 0),
        transactional(b"committed", 2, 1),
        marker(Marker.ABORT, 1, 2),
        transactional(b"after", 1, 3),
        marker(Marker.COMMIT, 2, 4),
        marker(Marker.COMMIT, 1, 5),
    ]
    committed = reader(*data, aborted=[(1, 0)])
    assert [b"committed", b"after"] == [each.value for each in committed.read(10)]
    assert 6 == committed.next_offset
    assert [b"aborted", b"committed", b"after"] == [each.value for each in reader(*data).read(10)]


def test_what_a_deserializer_raises_comes_after_the_good_records_and_stays() -> None:
    def number(data: bytes) -> int:
        return int(data)

    reading = reader(batch([b"1", b"2", b"x", b"4"]))
    assert [1, 2] == [each.value for each in reading.read(10, None, number)]
    for _ in range(2):
        with pytest.raises(ValueError, match="invalid literal"):
            reading.read(10, None, number)
        assert 2 == reading.next_offset
    assert [b"x", b"4"] == [each.value for each in reading.read(10)]


def test_a_deserializer_may_see_topic_and_headers() -> None:
    class Seeing:
        def deserialize_record(self, topic: str, headers: Any, data: bytes, is_key: bool) -> Any:
            return topic, headers, data, is_key

    builder = BatchBuilder()
    builder.append(T0, b"k", b"v", [("h", b"1")])
    (record,) = reader(builder.build()).read(1, Seeing(), Seeing())
    headers = (("h", b"1"),)
    assert ((record.topic, headers, b"k", True), (record.topic, headers, b"v", False)) == (record.key, record.value)


def test_nulls_are_not_deserialized() -> None:
    def refuse(data: bytes) -> bytes:
        raise AssertionError(data)

    assert [(None, None)] == [(each.key, each.value) for each in reader(batch([None])).read(1, refuse, refuse)]


def test_damage_is_told_after_the_good_records() -> None:
    good, bad = batch([b"1", b"2"]), bytearray(batch([b"3"], 2))
    bad[-3] ^= 1
    reading = reader(good, bytes(bad))
    assert [b"1", b"2"] == [each.value for each in reading.read(10)]
    for _ in range(2):
        with pytest.raises(CorruptBatchError, match="fails its checksum"):
            reading.read(10)
    assert 2 == reading.next_offset


@given(st.data())
def test_damaged_records_never_crash_the_reader(data: st.DataObject) -> None:
    whole = bytearray(batch([b"some", b"value", None, b"more"], codec=data.draw(st.sampled_from(list(Codec)))))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(61, len(whole) - 1))] = data.draw(st.integers(0, 255))
    reading = RecordReader(Row, "t", 0, batches(bytes(whole)), 0, check_crcs=False)
    try:
        while not reading.is_done:
            reading.read(1)
    except Exception as error:
        assert hasattr(error, "code"), error  # noqa: PT017 - whatever is raised must be ours


def test_only_tuples_can_be_made() -> None:
    not_a_tuple: Any = dict
    with pytest.raises(MisuseError):
        RecordReader(not_a_tuple, "t", 0, [], 0)


def test_one_that_is_being_read_from_cannot_be_read_from() -> None:
    found = reader(batch([b"a", b"b"], codec=Codec.GZIP), batch([b"c"], base_offset=2, codec=Codec.GZIP))
    refused: list[str] = []

    def deserialize(value: bytes) -> bytes:
        with pytest.raises(MisuseError) as refusal:
            found.read(100)
        refused.append(str(refusal.value))
        return value

    assert [b"a", b"b", b"c"] == [record.value for record in found.read(100, None, deserialize)]
    assert 3 == len(refused)
    assert found.is_done
