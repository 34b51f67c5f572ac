"""The columnar kernel's writing side, read back by the record reader."""

from array import array
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.errors import MisuseError
from ottla.records.batch import Batch
from ottla.records.columns import decode
from ottla.records.columns_encode import encode
from ottla.records.decode import decode_records
from ottla.records.layout import Codec
from ottla.records.packed import BinaryColumn, HeadersColumn
from ottla.records.recompress import recompress
from ottla.records.record import Record
from tests.unit.records.record_strategies import codecs, record_lists

pytestmark = pytest.mark.slow


def packed(rows: Sequence[bytes | None], *, wide: bool = False, start: int = 0) -> BinaryColumn:
    """A column of these rows, behind `start` rows that must not be seen."""
    padded = [b"unseen"] * start + list(rows)
    offsets, data, validity = [0], b"", bytearray((len(padded) + 7) // 8)
    for row, field in enumerate(padded):
        data += field or b""
        offsets.append(len(data))
        validity[row >> 3] |= (field is not None) << (row & 7)
    return BinaryColumn(
        validity=validity if None in rows else None,
        offsets=array("q" if wide else "i", offsets),
        data=data,
        start=start,
        wide=wide,
    )


def packed_headers(records: Sequence[Record]) -> HeadersColumn:
    headers = [header for record in records for header in record.headers]
    ends = [0]
    for record in records:
        ends.append(ends[-1] + len(record.headers))
    return HeadersColumn(
        offsets=array("i", ends),
        keys=packed([key.encode() for key, _ in headers]),
        values=packed([value for _, value in headers]),
        count=len(headers),
    )


def read_all(batches: Sequence[memoryview]) -> list[Record]:
    records = []
    for data in batches:
        batch = Batch(data)
        batch.check()
        assert len(data) == batch.size_bytes
        records += decode_records(batch)
    return records


@given(record_lists(), codecs, st.booleans(), st.integers(0, 9), st.integers(100, 6000), st.integers(1, 20))
def test_round_trip(
    records: list[Record], codec: Codec, wide: bool, start: int, batch_bytes_max: int, batch_records_max: int
) -> None:
    batches = encode(
        len(records),
        keys=packed([record.key for record in records], wide=wide, start=start),
        values=packed([record.value for record in records], start=start),
        timestamps=array("q", [record.timestamp for record in records]),
        headers=packed_headers(records),
        batch_bytes_max=batch_bytes_max,
        batch_records_max=batch_records_max,
        codec=codec,
        base_offset=50,
    )
    expected = [record._replace(offset=50 + row) for row, record in enumerate(records)]
    assert expected == read_all(batches)
    for data in batches:
        batch = Batch(data)
        assert 1 <= batch.count <= batch_records_max
        plain = len(recompress(batch, Codec.NONE))
        assert batch.count == 1 or plain <= batch_bytes_max


@pytest.mark.parametrize("codec", Codec)
def test_batches_are_filled_to_the_limit_and_not_beyond(codec: Codec) -> None:
    values = packed([b"x" * 50] * 100)
    batches = encode(100, values=values, batch_bytes_max=1000)
    assert all(1000 - 58 < len(batch) <= 1000 for batch in batches[:-1])
    again = encode(100, values=values, batch_bytes_max=1000, codec=codec)
    assert [Batch(batch).count for batch in batches] == [Batch(batch).count for batch in again]


def test_a_row_larger_than_the_limit_is_a_batch_of_its_own() -> None:
    batches = encode(3, values=packed([b"a", b"b" * 5000, b"c"]), batch_bytes_max=200)
    assert [1, 1, 1] == [Batch(batch).count for batch in batches]


def test_offsets_and_sequences_run_on() -> None:
    batches = encode(
        5,
        batch_records_max=2,
        base_offset=7,
        producer_id=9,
        producer_epoch=1,
        base_sequence=2**31 - 3,
        transactional=True,
    )
    found = [(batch.base_offset, batch.base_sequence, batch.last_sequence) for batch in map(Batch, batches)]
    assert [(7, 2**31 - 3, 2**31 - 2), (9, 2**31 - 1, 0), (11, 1, 1)] == found
    assert all(Batch(batch).is_transactional and Batch(batch).producer_id == 9 for batch in batches)


def test_header_fields() -> None:
    (data,) = encode(2, timestamps=array("q", [9, 4]), timestamp_type=1, leader_epoch=6, codec=Codec.ZSTD)
    batch = Batch(data)
    assert (9, 9, 1, 6, -1, -1, Codec.ZSTD) == (
        batch.base_timestamp,
        batch.max_timestamp,
        batch.timestamp_type,
        batch.leader_epoch,
        batch.producer_id,
        batch.base_sequence,
        batch.codec,
    )


def test_missing_columns_are_null() -> None:
    assert [Record(0, 42, None, None), Record(1, 42, None, None)] == read_all(encode(2, default_timestamp=42))


def test_no_rows() -> None:
    assert [] == encode(0)
    assert [] == encode(0, keys=packed([]), codec=Codec.GZIP)


def test_what_comes_out_can_be_stamped() -> None:
    for codec in (Codec.NONE, Codec.LZ4):
        for data in encode(4, values=packed([b"v"] * 4), batch_records_max=2, codec=codec):
            batch = Batch(data)
            batch.stamp_producer(5, 6, 7)
            batch.check()


def test_null_lists_of_headers_are_empty() -> None:
    headers = HeadersColumn(
        offsets=array("i", [0, 1, 2]), keys=packed([b"a", b"b"]), values=packed([b"1", None]), count=2, validity=b"\x02"
    )
    assert [(), (("b", None),)] == [record.headers for record in read_all(encode(2, headers=headers))]


def test_decoded_columns_can_be_encoded_again() -> None:
    records = [Record(row, row, b"k" * row, None if row % 3 else b"v", (("h", b"%d" % row),)) for row in range(50)]
    columns = decode(
        b"".join(
            encode(
                50,
                keys=packed([record.key for record in records]),
                values=packed([record.value for record in records]),
                timestamps=array("q", range(50)),
                headers=packed_headers(records),
            )
        )
    )
    again = encode(
        columns.count,
        keys=columns.keys,
        values=columns.values,
        timestamps=columns.timestamps,
        headers=columns.headers,
    )
    assert records == read_all(again)


GOOD = packed([b"ab", b"c"])


@pytest.mark.parametrize(
    "column",
    [
        BinaryColumn(validity=None, offsets=array("i", [0, 2]), data=b"abc"),
        BinaryColumn(validity=None, offsets=array("i", [0, 2, 4]), data=b"abc"),
        BinaryColumn(validity=None, offsets=array("i", [0, 2, 1]), data=b"abc"),
        BinaryColumn(validity=None, offsets=array("i", [-1, 2, 3]), data=b"abc"),
        BinaryColumn(validity=b"", offsets=array("i", [0, 2, 3]), data=b"abc"),
        BinaryColumn(validity=None, offsets=array("i", [0, 2, 3]), data=b"abc", start=1),
        BinaryColumn(validity=None, offsets=array("i", [0, 2, 3]), data=b"abc", start=-1),
        BinaryColumn(validity=None, offsets=array("i", [0, 2, 3]), data=b"abc", wide=True),
        BinaryColumn(validity=None, offsets=array("q", [0, 2, 2**62]), data=b"abc", wide=True),
    ],
)
def test_columns_that_lie(column: BinaryColumn) -> None:
    with pytest.raises(MisuseError):
        encode(2, values=column)
    with pytest.raises(MisuseError):
        encode(2, headers=HeadersColumn(offsets=array("i", [0, 1, 2]), keys=GOOD, values=column, count=2))


@pytest.mark.parametrize(
    "headers",
    [
        HeadersColumn(offsets=array("i", [0, 1]), keys=GOOD, values=GOOD, count=2),
        HeadersColumn(offsets=array("i", [0, 1, 3]), keys=GOOD, values=GOOD, count=2),
        HeadersColumn(offsets=array("i", [0, 2, 1]), keys=GOOD, values=GOOD, count=2),
        HeadersColumn(offsets=array("i", [-1, 1, 2]), keys=GOOD, values=GOOD, count=2),
        HeadersColumn(offsets=array("i", [0, 1, 2]), keys=packed([b"a", None]), values=GOOD, count=2),
        HeadersColumn(offsets=array("i", [0, 1, 2]), keys=GOOD, values=GOOD, count=2, validity=b""),
    ],
)
def test_headers_that_lie(headers: HeadersColumn) -> None:
    with pytest.raises(MisuseError):
        encode(2, headers=headers)


def test_too_few_timestamps() -> None:
    with pytest.raises(MisuseError, match="timestamp"):
        encode(3, timestamps=array("q", [1, 2]))


@pytest.mark.parametrize("limits", [{"batch_records_max": 0}, {"batch_bytes_max": 0}, {"batch_bytes_max": -5}])
def test_senseless_limits(limits: dict[str, Any]) -> None:
    with pytest.raises(MisuseError, match="make no sense"):
        encode(1, **limits)


@given(record_lists(), codecs, st.data())
def test_rows_in_an_order_are_those_rows(records: list[Record], codec: Codec, data: st.DataObject) -> None:
    order = data.draw(st.lists(st.integers(0, len(records) - 1), max_size=20)) if records else []
    batches = encode(
        len(records),
        keys=packed([record.key for record in records]),
        values=packed([record.value for record in records], wide=True),
        timestamps=array("q", [record.timestamp for record in records]),
        headers=packed_headers(records),
        batch_bytes_max=200,
        codec=codec,
        order=array("i", order),
    )
    expected = [records[row] for row in order]
    found = read_all(batches)
    assert [(each.timestamp, each.key, each.value, each.headers) for each in expected] == [
        (each.timestamp, each.key, each.value, each.headers) for each in found
    ]
    assert list(range(len(order))) == [each.offset for each in found]


@pytest.mark.parametrize("order", [[0, 3], [-1], [2**31 - 1]])
def test_an_order_with_rows_that_are_not_there(order: list[int]) -> None:
    with pytest.raises(MisuseError, match=f"row {order[-1]} is to be taken, and there are 3"):
        encode(3, values=packed([b"a", b"b", b"c"]), order=array("i", order))


@pytest.mark.parametrize("size", [0, 24_000, 24_576, 24_600, 50_000, 300_000])
def test_the_checksum_that_is_taken_on_the_way(size: int) -> None:
    values = [bytes([row]) * (size // 3) for row in range(9)]
    (batch,) = encode(9, values=packed(values))
    assert values == [record.value for record in read_all([batch])]
