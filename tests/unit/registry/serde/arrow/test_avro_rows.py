"""Rows of columns to Avro values: the same bytes as fastavro writes."""

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from ottla.registry.schemas.avro.avro_schema import parse
from ottla.registry.serde.arrow.avro_rows import AvroRows, RowError
from tests.unit.registry.serde.arrow.test_avro_columns import ROWS, SEEDS, Making, encoded, record


def rows_of(schema: Any) -> AvroRows:
    return AvroRows(parse(json.dumps(schema), {}).root)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_bytes_are_those_of_fastavro(seed: int) -> None:
    making = Making(seed)
    schema = making.schema()
    rows = [making.value(schema) for _ in range(ROWS)]
    encoder = rows_of(schema)
    table = pa.array(rows, encoder.type)
    expected = encoded(schema, rows).to_pylist()
    assert expected == encoder.encode(table).to_pylist()
    assert expected[7:20] == encoder.encode(table.slice(7, 13)).to_pylist()
    assert [b"\0id" + each for each in expected] == encoder.encode(table, b"\0id").to_pylist()


def test_logical_types() -> None:
    schema = record(
        ("d", {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2}),
        ("f", {"type": "fixed", "name": "F", "size": 20, "logicalType": "decimal", "precision": 20, "scale": 2}),
        ("t", {"type": "long", "logicalType": "timestamp-micros"}),
        ("day", {"type": "int", "logicalType": "date"}),
    )
    decimals = [Decimal(text) for text in ("0", "-0.01", "1.28", "-1.29", "327.68", "123456789012345678.90")]
    rows = [{"d": each, "f": each, "t": None, "day": None} for each in decimals]
    times = pa.array([1_700_000_000_123 + at for at in range(len(rows))], pa.timestamp("ms", "UTC"))
    days = pa.array(range(len(rows)), pa.date32())
    table = pa.StructArray.from_arrays(
        [
            pa.array(decimals, pa.decimal128(20, 2)),
            pa.array(decimals, pa.decimal128(20, 2)),
            times,
            days,
        ],
        ["d", "f", "t", "day"],
    )
    expected = [{**row, "t": times[at].as_py(), "day": days[at].as_py()} for at, row in enumerate(rows)]
    assert encoded(schema, expected).to_pylist() == rows_of(schema).encode(table).to_pylist()


def test_a_decimal_takes_the_fewest_bytes_as_in_java() -> None:
    """fastavro writes -128 in two bytes; Java's BigInteger, and so every Java client, in one."""
    schema = record(("d", {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}))
    table = pa.StructArray.from_arrays([pa.array([Decimal("-1.28")], pa.decimal128(5, 2))], ["d"])
    assert [b"\x02\x80"] == rows_of(schema).encode(table).to_pylist()


def test_columns_are_cast_and_missing_ones_get_their_default() -> None:
    schema = {
        **record(),
        "fields": [
            {"name": "a", "type": "long"},
            {"name": "b", "type": ["null", "string"], "default": None},
            {"name": "c", "type": "string", "default": "x"},
        ],
    }
    table = pa.StructArray.from_arrays([pa.array([1, 2], pa.int16())], ["a"])
    rows = [{"a": 1, "b": None, "c": "x"}, {"a": 2, "b": None, "c": "x"}]
    assert encoded(schema, rows).to_pylist() == rows_of(schema).encode(table).to_pylist()


@pytest.mark.parametrize(
    ("kind", "column", "problem"),
    [
        ("int", pa.array([1, None]), "row 1: field a is null, which the schema does not permit"),
        ("int", pa.array([1, 1 << 40]), "field a of type int64 cannot be written as int32"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, pa.array(["A", "B"]), "row 1: field a is not a symbol"),
        ({"type": "fixed", "name": "F", "size": 2}, pa.array([b"12", b"3"]), "row 1: field a does not have the size"),
        ({"type": "array", "items": "int"}, pa.array([[1], [2, None]]), r"row 1: field a\[\] is null"),
        ({"type": "map", "values": "int"}, pa.array(["x"]), "the schema has a map"),
        ({"type": "array", "items": "int"}, pa.array(["x"]), "the schema has an array"),
        (record(("x", "int")), pa.array(["x"]), "the schema has a record"),
    ],
)
def test_rows_that_do_not_fit_are_named(kind: Any, column: pa.Array, problem: str) -> None:
    schema = {**record(("a", kind)), "name": "Outer"}
    with pytest.raises(RowError, match=problem):
        rows_of(schema).encode(pa.StructArray.from_arrays([column], ["a"]))


def test_columns_without_a_field_and_fields_without_a_column_are_refused() -> None:
    encoder = rows_of(record(("a", "int")))
    both = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["a", "b"])
    with pytest.raises(RowError, match="no field for column b"):
        encoder.encode(both)
    with pytest.raises(RowError, match="field a has no column"):
        encoder.encode(pa.StructArray.from_arrays([], [], mask=None))
