"""Avro values to rows: what was written is read, and what is damaged is refused, cheaply and one by one."""

import io
import json
import time
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.options import OptionError
from ottla.registry.schemas.avro.avro_schema import parse
from ottla.registry.serde.arrow.avro_plan import AvroColumns
from ottla.registry.serde.arrow.kernel_rows import KernelRows
from ottla.spark.values.value_format import value_schema
from tests.effort import effort
from tests.unit.spark.value_cases import decoded

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "count", "type": "int"},
        {"name": "customer", "type": ["null", "long"]},
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["OPEN", "PAID"]}},
        {
            "name": "items",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Item",
                    "fields": [{"name": "sku", "type": "string"}, {"name": "was", "type": "State"}],
                },
            },
        },
        {"name": "labels", "type": {"type": "map", "values": "double"}},
        {"name": "code", "type": {"type": "fixed", "name": "Code", "size": 2}},
        {"name": "either", "type": ["int", "long", "null"]},
    ],
}
MICROSECONDS = {pa.timestamp("ms", "UTC"): pa.timestamp("us", "UTC")}
ROW: dict[str, Any] = {
    "id": "a",
    "count": 3,
    "customer": None,
    "amount": Decimal("12.50"),
    "at": datetime(2024, 5, 1, 12, 0, 0, 123_000, tzinfo=UTC),
    "day": date(2024, 5, 1),
    "state": "PAID",
    "items": [{"sku": "x", "was": "OPEN"}],
    "labels": {"new": 1.5},
    "code": b"ab",
    "either": 2**40,
}


def written(schema: Any, row: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), row)
    return stream.getvalue()


def columns(writer: Any, reader: Any = None) -> AvroColumns:
    return AvroColumns(
        parse(json.dumps(writer), {}).root, None if reader is None else parse(json.dumps(reader), {}).root
    )


def values_of(schema: Any, *names: str) -> KernelRows:
    """With all columns that the schema knows, or with those."""
    found = columns(schema)
    kind = pa.struct([(each.name, MICROSECONDS.get(each.type, each.type)) for each in found.type])
    return KernelRows(found, pa.struct([each for each in kind if not names or each.name in names]))


def record(kind: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}]}


def varint(number: int) -> bytes:
    left = (number << 1) ^ (number >> 63)
    found = bytearray()
    while left > 127:
        found.append(left & 127 | 128)
        left >>= 7
    return bytes([*found, left])


def test_columns_are_those_that_sparks_own_reader_makes() -> None:
    assert (
        "`id` STRING, `count` INT, `customer` BIGINT, `amount` DECIMAL(10,2), `at` TIMESTAMP, `day` DATE, "
        "`state` STRING, `items` ARRAY<STRUCT<`sku`: STRING, `was`: STRING>>, `labels` MAP<STRING, DOUBLE>, "
        "`code` BINARY, `either` BIGINT"
    ) == value_schema({"valueFormat": "avro", "valueSchema": json.dumps(ORDER)})


def test_an_order_becomes_a_row_in_a_block_and_alone() -> None:
    value = written(ORDER, ROW)
    expected = {**ROW, "labels": [("new", 1.5)]}
    assert [expected, expected] == values_of(ORDER).decode_block(pa.array([value, value], pa.binary())).to_pylist()
    assert expected == values_of(ORDER).decode_row(value)


def test_columns_are_chosen_converted_and_filled_up() -> None:
    wanted = [("at", pa.timestamp("us", "UTC")), ("count", pa.int64()), ("more", pa.string()), ("id", pa.string())]
    rows = decoded(KernelRows(columns(ORDER), pa.struct(wanted)), [written(ORDER, ROW), None])
    assert [{"at": ROW["at"], "count": 3, "more": None, "id": "a"}, None] == rows


def test_a_number_that_is_too_large_for_its_column_is_a_bad_row() -> None:
    format = KernelRows(columns(record("long")), pa.struct([("a", pa.int32())]))
    rows = decoded(format, [written(record("long"), {"a": 1}), written(record("long"), {"a": 2**40})])
    assert {"a": 1} == rows[0]
    assert "does not fit the schema of the columns" in rows[1]


def test_a_readers_schema_gives_defaults_and_new_names() -> None:
    old = record("int")
    new = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "b", "type": "long", "aliases": ["a"]}, {"name": "c", "type": "string", "default": "?"}],
    }
    resolved = columns(old, new)
    format = KernelRows(resolved, resolved.type)
    assert [{"b": 5, "c": "?"}] == decoded(format, [written(old, {"a": 5})])


def test_every_cut_and_every_addition_makes_a_bad_row_and_no_other() -> None:
    value = written(ORDER, ROW)
    damaged: list[bytes | None] = [value[:cut] for cut in range(len(value))]
    rows = decoded(values_of(ORDER), [value, *damaged, value + b"\0", value])
    assert rows[0] == rows[-1] == {**ROW, "labels": [("new", 1.5)]}
    assert all("does not fit its schema" in each for each in rows[1:-1])


def test_a_value_does_not_borrow_bytes_from_its_neighbour() -> None:
    rows = decoded(values_of(record("int")), [b"\2", b"\4\6", b"", b"\10"])
    assert [{"a": 1}, {"a": 4}] == [rows[0], rows[3]]
    assert "bytes are left over after the value" in rows[1]
    assert "the value ends too early" in rows[2]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("string", varint(2**60) + b"abc"),
        ("string", varint(-5) + b"abc"),
        ("bytes", varint(2**40) + b"abc"),
        ("string", varint(2) + b"\xff\xff"),
        ("long", b"\xff" * 1_000_000),
        ("int", varint(2**40)),
        (["null", "string"], varint(7)),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, varint(9)),
        ({"type": "array", "items": "long"}, varint(2**60) + b"\2\2"),
        ({"type": "array", "items": "string"}, varint(2**60) + b"\0" * 100),
        ({"type": "array", "items": "long"}, varint(-(2**60)) + varint(5) + b"\2"),
        ({"type": "map", "values": "null"}, varint(2**60) + b"\2a"),
        ({"type": "long", "logicalType": "timestamp-millis"}, varint(2**62)),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, varint(200) + b"\x7f" * 200),
    ],
)
def test_bombs_are_bad_rows_in_bounded_time(kind: Any, value: bytes) -> None:
    begun = time.process_time()
    (row,) = decoded(values_of(record(kind)), [value])
    assert "not fit" in row
    assert time.process_time() - begun < 2


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ("{", "schema is not valid"),
        ('{"type":"record","name":"R","fields":[{"name":"a","type":"nothing"}]}', "schema is not valid"),
        ('"long"', "not a record"),
        (json.dumps(record({"type": "array", "items": "null"})), "take no bytes"),
        (
            json.dumps(record({"type": "array", "items": {"type": "record", "name": "E", "fields": []}})),
            "take no bytes",
        ),
        (json.dumps(record(["null", "R"])), "contains itself"),
        (json.dumps(record(["long", "string"])), "several types"),
        (json.dumps(record({"type": "bytes", "logicalType": "decimal", "precision": 50, "scale": 2})), "50 digits"),
        ("[" * 100_000, "schema is not valid"),
    ],
)
def test_schemas_that_are_wrong_or_cannot_be_bounded_are_refused(schema: str, reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        value_schema({"valueFormat": "avro", "valueSchema": schema})


@effort(200)
@given(
    st.lists(
        st.one_of(st.binary(max_size=8), st.sampled_from([written(ORDER["fields"][0]["type"], "abc")])), max_size=6
    )
)
def test_a_value_means_the_same_alone_and_among_others(values: list[bytes]) -> None:
    format = values_of(record({"type": "array", "items": ["null", "string"]}))
    assert [decoded(format, [each])[0] for each in values] == decoded(format, list(values))
