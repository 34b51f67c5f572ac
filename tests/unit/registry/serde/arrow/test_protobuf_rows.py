"""Rows to Protobuf values: the bytes of the Protobuf runtime, and errors that name row and column."""

import datetime
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.registry.serde.arrow.avro_rows import RowError
from ottla.registry.serde.arrow.protobuf_plan import ProtobufColumns
from ottla.registry.serde.arrow.protobuf_rows import ProtobufRows
from tests.effort import effort
from tests.unit.registry.serde.arrow.protobuf_messages import PROTO2, PROTO3, message_class, random_message

CLASSES = {"proto3": message_class(PROTO3), "proto2": message_class(PROTO2)}


def rows_for(fields: str, *, syntax: str = "proto3") -> ProtobufRows:
    return ProtobufRows(message_class(f'syntax = "{syntax}"; {fields}', "M").DESCRIPTOR)


def written(fields: str, rows: list[dict[str, Any]], kind: pa.DataType | None = None, *, syntax: str = "proto3") -> Any:
    return rows_for(fields, syntax=syntax).encode(pa.array(rows, kind)).to_pylist()


@pytest.mark.parametrize("name", CLASSES)
@effort(150)
@given(seed=st.integers(0, 2**32))
def test_bytes_are_those_of_the_runtime(name: str, seed: int) -> None:
    chance = Random(seed)
    # The order of a map's entries is not defined, so there is one at most.
    messages = [random_message(CLASSES[name], chance, map_entries_max=1) for _ in range(chance.randint(0, 6))]
    values = [each.SerializeToString() for each in messages]
    rows, _ = ProtobufColumns(CLASSES[name].DESCRIPTOR).decode(pa.array(values, pa.binary()))
    found = ProtobufRows(CLASSES[name].DESCRIPTOR).encode(rows, b"prefix")
    found.validate(full=True)
    assert [b"prefix" + each for each in values] == found.to_pylist()


@pytest.mark.parametrize("name", CLASSES)
@effort(80)
@given(seed=st.integers(0, 2**32))
def test_maps_and_slices_are_written(name: str, seed: int) -> None:
    chance = Random(seed)
    messages = [random_message(CLASSES[name], chance, map_entries_max=5) for _ in range(6)]
    columns = ProtobufColumns(CLASSES[name].DESCRIPTOR)
    rows, _ = columns.decode(pa.array([each.SerializeToString() for each in messages], pa.binary()))
    start, end = chance.randint(0, 5), chance.randint(0, 6)
    found = ProtobufRows(CLASSES[name].DESCRIPTOR).encode(rows[start:end])
    assert messages[start:end] == [CLASSES[name].FromString(each) for each in found.to_pylist()]


def test_columns_of_other_types_are_cast() -> None:
    fields = "message M { int32 a = 1; string b = 2; E e = 3; repeated int64 r = 4; } enum E { X = 0; Y = 1; }"
    kind = pa.struct(
        [
            ("e", pa.dictionary(pa.int8(), pa.string())),
            ("a", pa.int64()),
            ("b", pa.large_string()),
            ("r", pa.large_list(pa.int8())),
        ]
    )
    rows: list[dict[str, Any]] = [
        {"a": 1, "b": "x", "e": "Y", "r": [1, 2]},
        {"a": None, "b": None, "e": "9", "r": None},
    ]
    found = rows_for(fields).encode(
        pa.StructArray.from_arrays(
            [pa.array([each[field.name] for each in rows]).cast(field.type) for field in kind], fields=list(kind)
        )
    )
    assert [b"\x08\x01\x12\x01x\x18\x01\x22\x02\x01\x02", b"\x18\x09"] == found.to_pylist()
    assert [b"\x18\x05"] == written(fields, [{"e": 5}])


def test_nulls_and_empty_lists_without_a_type_are_not_set() -> None:
    fields = "message M { N a = 1; repeated N b = 2; map<string, N> c = 3; int32 d = 4; message N { int32 x = 1; } }"
    assert [b"\x20\x01"] == written(fields, [{"a": None, "b": [], "c": None, "d": 1}])


def test_times_keep_their_nanoseconds() -> None:
    fields = """import "google/protobuf/timestamp.proto"; import "google/protobuf/duration.proto";
    message M { google.protobuf.Timestamp t = 1; google.protobuf.Duration d = 2; }"""
    kind = pa.struct([("t", pa.timestamp("ns", "UTC")), ("d", pa.duration("ns"))])
    rows = pa.StructArray.from_arrays(
        [pa.array([-1, 1_000_000_001]).cast(kind[0].type), pa.array([-1, -1_000_000_001]).cast(kind[1].type)],
        fields=list(kind),
    )
    message = message_class(f'syntax = "proto3"; {fields}', "M")
    found = [message.FromString(each) for each in rows_for(fields).encode(rows).to_pylist()]
    assert [(-1, 999_999_999), (1, 1)] == [(each.t.seconds, each.t.nanos) for each in found]
    assert [(0, -1), (-1, -1)] == [(each.d.seconds, each.d.nanos) for each in found]
    date = datetime.datetime(2024, 5, 6, tzinfo=datetime.UTC)
    (seconds,) = written(fields, [{"t": date}], pa.struct([("t", pa.timestamp("s"))]))
    assert date.timestamp() == message.FromString(seconds).t.seconds


CASES: list[tuple[str, Any, str]] = [
    ("optional int32 a = 1;", {"b": 1}, "the schema has no field for column b; drop it, or evolve the schema"),
    ("required int32 a = 1;", {"a": None}, "row 0: field a is null, which the schema does not permit"),
    ("required int32 a = 1; optional int32 b = 2;", {"b": 1}, "field a has no column, and the schema requires it"),
    ("repeated int32 a = 1;", {"a": [1, None]}, "row 0: field a has a null element, which Protobuf does not have"),
    ("repeated int32 a = 1;", {"a": 1}, "field a is of type int64; the schema has a repeated field"),
    ("optional int32 a = 1;", {"a": 2**40}, "field a of type int64 cannot be written as int32"),
    ("optional E a = 1; enum E { X = 0; }", {"a": "Z"}, "field a: enum M.E has no value Z"),
    ("optional E a = 1; enum E { X = 0; }", {"a": 7}, "field a: enum M.E has no value 7"),
    ("optional N a = 1; message N {}", {"a": 7}, "field a is of type int64; the schema has the message M.N"),
    ("oneof o { int32 a = 1; int32 b = 2; }", {"a": 1, "b": 2}, "row 0: field b is set, and so is another member"),
    ("map<string, int32> a = 1;", {"a": 7}, "field a is of type int64; the schema has a map"),
]


@pytest.mark.parametrize(("fields", "row", "reason"), CASES)
def test_rows_that_do_not_fit_are_refused(fields: str, row: Any, reason: str) -> None:
    with pytest.raises(RowError) as refused:
        written(f"message M {{ {fields} }}", [row], syntax="proto2")
    assert reason in str(refused.value)


def test_a_null_value_of_a_map_is_refused() -> None:
    kind = pa.struct([("a", pa.map_(pa.string(), pa.int32()))])
    with pytest.raises(RowError, match=r"row 1: field a\{\} is null"):
        written("message M { map<string, int32> a = 1; }", [{"a": []}, {"a": [("k", None)]}], kind)


def test_a_null_row_is_refused() -> None:
    with pytest.raises(RowError, match="row 1 is null"):
        rows_for("message M { int32 a = 1; }").encode(pa.array([{"a": 1}, None]))
