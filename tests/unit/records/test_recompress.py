"""Other codecs for the same records."""

import pytest
from hypothesis import given

from ottla.model.errors import BatchTooLargeError, CorruptBatchError
from ottla.records.batch import Batch
from ottla.records.builder import BatchBuilder, build_batch
from ottla.records.decode import decode_records
from ottla.records.layout import ATTRIBUTES_AT, Codec
from ottla.records.recompress import recompress
from ottla.records.record import Record
from tests.unit.records.record_strategies import broken, codecs, record_lists

KEPT = (
    "base_offset",
    "leader_epoch",
    "last_offset_delta",
    "base_timestamp",
    "max_timestamp",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "count",
    "is_transactional",
    "timestamp_type",
)


@given(record_lists(), codecs, codecs)
def test_same_records_same_header(records: list[Record], codec: Codec, other: Codec) -> None:
    batch = Batch(
        build_batch(
            records, codec=codec, producer_id=5, producer_epoch=1, base_sequence=3, transactional=True, leader_epoch=8
        )
    )
    result = Batch(recompress(batch, other))
    result.check()
    assert other == result.codec
    assert records == decode_records(result)
    assert [getattr(batch, name) for name in KEPT] == [getattr(result, name) for name in KEPT]


def test_there_and_back_is_the_same_bytes() -> None:
    data = build_batch([Record(index, index, b"k", b"v" * index) for index in range(100)])
    assert data == recompress(Batch(recompress(Batch(data), Codec.ZSTD)), Codec.NONE)


def test_an_empty_batch_stays() -> None:
    data = BatchBuilder(codec=Codec.NONE).build(last_offset_delta=3)
    assert data == recompress(Batch(data), Codec.GZIP)


def test_damage_names_the_batch() -> None:
    data = build_batch([Record(7, 0, b"k", b"v")])
    with pytest.raises(CorruptBatchError, match="base offset 7"):
        recompress(Batch(broken(data, ATTRIBUTES_AT, ">h", Codec.LZ4)), Codec.NONE)


def test_limit() -> None:
    batch = Batch(build_batch([Record(7, 0, None, bytes(10_000))], codec=Codec.ZSTD))
    with pytest.raises(BatchTooLargeError, match="base offset 7"):
        recompress(batch, Codec.NONE, limit=9_999)
