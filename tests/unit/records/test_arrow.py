"""Arrow arrays over the kernels' memory, and batches made of Arrow arrays."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given

from ottla.model.errors import MisuseError
from ottla.records.arrow import HEADERS, SCHEMA, decode_arrow, encode_arrow
from ottla.records.batch import Batch
from ottla.records.builder import build_batch
from ottla.records.decode import decode_records
from ottla.records.layout import Codec
from ottla.records.record import Record
from tests.unit.records.record_strategies import codecs, record_lists

pytestmark = pytest.mark.slow


def rows_of(table: pa.RecordBatch) -> list[Record]:
    columns = table.set_column(1, "timestamp", table.column("timestamp").cast(pa.int64())).to_pylist()
    return [
        Record(
            row["offset"],
            row["timestamp"],
            row["key"],
            row["value"],
            tuple((header["key"], header["value"]) for header in row.get("headers", ())),
        )
        for row in columns
    ]


def read_all(batches: list[memoryview]) -> list[Record]:
    for batch in batches:
        Batch(batch).check()
    return [record for batch in batches for record in decode_records(Batch(batch))]


@given(record_lists(), codecs)
def test_decode(records: list[Record], codec: Codec) -> None:
    table, columns = decode_arrow(build_batch(records, codec=codec))
    table.validate(full=True)
    assert SCHEMA == table.schema
    assert records == rows_of(table)
    assert records[-1].offset + 1 == columns.next_offset


@given(record_lists(), codecs)
def test_there_and_back(records: list[Record], codec: Codec) -> None:
    table, _ = decode_arrow(build_batch(records, codec=codec))
    for first in (0, len(records) // 2):
        expected = [record._replace(offset=row) for row, record in enumerate(records[first:])]
        assert expected == read_all(encode_arrow(table.slice(first), codec=codec))


def test_decode_without_headers() -> None:
    table, _ = decode_arrow(build_batch([Record(0, 0, b"k", None, (("h", b""),))]), headers=False)
    table.validate(full=True)
    assert ["offset", "timestamp", "key", "value"] == table.schema.names


def test_decode_nothing() -> None:
    table, _ = decode_arrow(b"")
    table.validate(full=True)
    assert (0, SCHEMA) == (table.num_rows, table.schema)


def test_arrays_outlive_the_batch() -> None:
    data = bytearray(build_batch([Record(0, 0, b"k" * 100, b"v" * 100_000)]))
    table, columns = decode_arrow(data)
    del columns
    data[:] = bytes(len(data))
    for _ in range(5):
        decode_arrow(build_batch([Record(0, 0, None, b"w" * 100_000)]))
    assert [Record(0, 0, b"k" * 100, b"v" * 100_000)] == rows_of(table)


@pytest.mark.parametrize(
    "kind", [pa.binary(), pa.string(), pa.large_binary(), pa.large_string(), pa.binary_view(), pa.string_view()]
)
def test_types_of_keys_and_values(kind: pa.DataType) -> None:
    texts = ["a", None, "", "long" * 100]
    array = pa.array(texts, pa.string()).cast(kind)
    records = read_all(encode_arrow(pa.record_batch({"key": array, "value": array})))
    expected = [None if text is None else text.encode() for text in texts]
    assert expected == [record.key for record in records] == [record.value for record in records]


def test_other_types_that_cast_to_binary() -> None:
    fixed = pa.array([b"abcd", None], pa.binary(4))
    words = pa.array(["x", "y"]).dictionary_encode()
    records = read_all(encode_arrow(pa.record_batch({"key": fixed, "value": words})))
    assert [(b"abcd", b"x"), (None, b"y")] == [(record.key, record.value) for record in records]


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (pa.array([1, None, 3]), [1, 99, 3]),
        (pa.array([1, 2, 3], pa.int32()), [1, 2, 3]),
        (pa.array([1, None, 3], pa.timestamp("ms")), [1, 99, 3]),
        (pa.array([1999, 2000, 2001], pa.timestamp("us", "UTC")), [1, 2, 2]),
        (pa.array([1, 2, 3], pa.timestamp("s")), [1000, 2000, 3000]),
        (pa.nulls(3), [99, 99, 99]),
    ],
)
def test_timestamps(array: pa.Array, expected: list[int]) -> None:
    rows = pa.record_batch({"timestamp": array})
    assert expected == [record.timestamp for record in read_all(encode_arrow(rows, default_timestamp=99))]
    assert expected[1:] == [record.timestamp for record in read_all(encode_arrow(rows.slice(1), default_timestamp=99))]


@pytest.mark.parametrize(
    "kind",
    [
        HEADERS,
        pa.map_(pa.string(), pa.binary()),
        pa.large_list(pa.struct([("key", pa.string()), ("value", pa.binary())])),
        pa.list_(pa.struct([("key", pa.large_string()), ("value", pa.large_binary())])),
    ],
)
def test_types_of_headers(kind: pa.DataType) -> None:
    rows: list[Any] = [[("a", b"1"), ("b", None)], None, [], [("c", b"3")]]
    if not pa.types.is_map(kind):
        rows = [row and [{"key": key, "value": value} for key, value in row] for row in rows]
    array = pa.array(rows, kind)
    records = read_all(encode_arrow(pa.record_batch({"headers": array}).slice(0, 4)))
    assert [(("a", b"1"), ("b", None)), (), (), (("c", b"3"),)] == [record.headers for record in records]
    records = read_all(encode_arrow(pa.record_batch({"headers": array}).slice(2)))
    assert [(), (("c", b"3"),)] == [record.headers for record in records]


def test_null_columns() -> None:
    rows = pa.record_batch({"key": pa.nulls(2), "value": pa.nulls(2), "headers": pa.nulls(2)})
    assert [Record(0, -1, None, None), Record(1, -1, None, None)] == read_all(encode_arrow(rows))


def test_names_of_columns_can_be_chosen() -> None:
    rows = pa.record_batch({"id": [b"1"], "body": ["x"], "at": [5]})
    assert [Record(0, 5, b"1", b"x")] == read_all(encode_arrow(rows, key="id", value="body", timestamp="at"))


def test_pieces_of_a_table_run_on() -> None:
    piece = pa.table({"value": ["a", "b"]})
    batches = encode_arrow(pa.concat_tables([piece, piece]), base_sequence=2**31 - 1, base_offset=5)
    assert [(5, 2**31 - 1), (7, 1)] == [(Batch(batch).base_offset, Batch(batch).base_sequence) for batch in batches]


@pytest.mark.parametrize(
    "column",
    [
        {"value": pa.array([[1]])},
        {"timestamp": pa.array(["no time"])},
        {"headers": pa.array([[1, 2]])},
        {"headers": pa.array(["text"])},
        {"headers": pa.array([[{"key": None, "value": b""}]])},
        {"headers": pa.array([[{"key": b"\xff", "value": b""}]])},
        {"headers": pa.array([[None]], pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))},
    ],
)
def test_columns_that_cannot_be_sent(column: dict[str, pa.Array]) -> None:
    with pytest.raises(MisuseError):
        encode_arrow(pa.record_batch(column))
