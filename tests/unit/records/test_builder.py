"""The batch builder, read back by the record reader."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.errors import MisuseError
from ottla.records.batch import Batch
from ottla.records.builder import BatchBuilder, build_batch
from ottla.records.decode import decode_records
from ottla.records.layout import Codec
from ottla.records.record import Record
from tests.unit.records.record_strategies import codecs, record_lists


@given(record_lists(), codecs)
def test_round_trip(records: list[Record], codec: Codec) -> None:
    batch = Batch(build_batch(records, codec=codec))
    batch.check()
    assert records == decode_records(batch)
    assert (records[0].offset, records[-1].offset) == (batch.base_offset, batch.last_offset)
    assert max(record.timestamp for record in records) == batch.max_timestamp
    assert records[0].timestamp == batch.base_timestamp
    assert codec == batch.codec


@given(record_lists())
def test_the_size_is_known_after_each_append(records: list[Record]) -> None:
    builder = BatchBuilder()
    sizes = [builder.append(record.timestamp, record.key, record.value, record.headers) for record in records]
    assert sizes[-1] == builder.size_bytes == len(builder.build())
    assert len(records) == builder.count
    assert sorted(set(sizes)) == sizes


def test_known_bytes() -> None:
    builder = BatchBuilder()
    builder.append(5, b"key", b"value", [("h", b"x"), ("n", None)])
    builder.append(4, None, None)
    assert "2a000000066b65790a76616c75650402680278026e01" + "0c000102010100" == builder.build()[61:].hex()


def test_header_fields() -> None:
    builder = BatchBuilder(
        timestamp_type=1,
        producer_id=2**40,
        producer_epoch=3,
        base_sequence=4,
        transactional=True,
        base_offset=5,
        leader_epoch=6,
    )
    builder.append(1, b"k", b"v")
    batch = Batch(builder.build())
    assert (1, 2**40, 3, 4, True, 5, 6) == (
        batch.timestamp_type,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        batch.is_transactional,
        batch.base_offset,
        batch.leader_epoch,
    )


def test_the_producer_may_come_late_and_change() -> None:
    builder = BatchBuilder()
    builder.append(1, b"k", b"v")
    for producer in [(7, 1, 100), (8, 0, 0)]:
        batch = Batch(builder.build(producer_id=producer[0], producer_epoch=producer[1], base_sequence=producer[2]))
        batch.check()
        assert producer == (batch.producer_id, batch.producer_epoch, batch.base_sequence)
    assert -1 == Batch(builder.build()).producer_id


def test_other_buffers_as_fields() -> None:
    builder = BatchBuilder()
    builder.append(1, bytearray(b"key"), memoryview(b"a value")[2:], [("h", bytearray(b"x"))])
    assert [Record(0, 1, b"key", b"value", (("h", b"x"),))] == decode_records(Batch(builder.build()))


def test_gaps_and_a_last_offset_behind_the_last_record() -> None:
    builder = BatchBuilder(base_offset=100)
    builder.append(1, None, b"a", offset_delta=2)
    builder.append(1, None, b"b", offset_delta=7)
    builder.append(1, None, b"c")
    batch = Batch(builder.build(last_offset_delta=20))
    batch.check()
    assert ([102, 107, 108], 120) == ([record.offset for record in decode_records(batch)], batch.last_offset)


def test_offsets_must_grow() -> None:
    builder = BatchBuilder()
    builder.append(1, None, b"a", offset_delta=3)
    for delta in (3, -1, 2**31):
        with pytest.raises(MisuseError, match=f"offset delta {delta}"):
            builder.append(1, None, b"b", offset_delta=delta)
    with pytest.raises(MisuseError, match="lies before the last record's, 3"):
        builder.build(last_offset_delta=2)
    assert 1 == Batch(builder.build()).count


def test_an_empty_batch_needs_its_last_offset() -> None:
    with pytest.raises(MisuseError, match="empty"):
        BatchBuilder().build()
    with pytest.raises(MisuseError, match="empty"):
        build_batch([])
    assert [] == decode_records(Batch(build_batch([], base_offset=4, last_offset_delta=1)))


@pytest.mark.parametrize("headers", [[(b"bytes", b"x")], [(None, b"x")]])
def test_header_keys_are_text(headers: Any) -> None:
    with pytest.raises(MisuseError, match="text"):
        BatchBuilder().append(1, b"k", b"v", headers)


@pytest.mark.parametrize("field", ["text", 7])
def test_fields_are_bytes(field: Any) -> None:
    builder = BatchBuilder()
    with pytest.raises(TypeError):
        builder.append(1, b"k", field)
    assert (0, 61) == (builder.count, builder.size_bytes)


def test_unknown_codec() -> None:
    with pytest.raises(ValueError, match="5"):
        BatchBuilder(codec=5)  # type: ignore[arg-type]  # that is the point


def test_a_large_record() -> None:
    value = bytes(range(256)) * 40_000
    assert value == decode_records(Batch(build_batch([Record(0, 0, None, value)], codec=Codec.ZSTD)))[0].value


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
def test_any_two_timestamps(first: int, second: int) -> None:
    records = [Record(0, first, None, None), Record(1, second, None, None)]
    assert records == decode_records(Batch(build_batch(records)))
