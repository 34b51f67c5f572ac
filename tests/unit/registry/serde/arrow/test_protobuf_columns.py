"""Protobuf values to columns: the same rows as the Protobuf runtime gives; bad values disturb no other."""

from collections.abc import Sequence
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from ottla.registry.serde.arrow.avro_plan import NoColumnsError
from ottla.registry.serde.arrow.protobuf_plan import ProtobufColumns
from tests.effort import effort
from tests.unit.registry.serde.arrow.protobuf_messages import PROTO2, PROTO3, message_class, random_message, row_of
from tests.unit.registry.serde.arrow.test_avro_columns import rows_of

CLASSES = {"proto3": message_class(PROTO3), "proto2": message_class(PROTO2)}
COLUMNS = {name: ProtobufColumns(kind.DESCRIPTOR) for name, kind in CLASSES.items()}


def decoded(name: str, values: Sequence[bytes]) -> tuple[list[Any], list[tuple[int, str]]]:
    found, bad = COLUMNS[name].decode(pa.array(values, pa.binary()))
    return rows_of(found), bad


def agrees(expected: Any, found: Any) -> bool:
    """Equal; NaN too. The Python runtime drops entries of maps that have unknown fields; Java's and C++'s keep them."""
    if isinstance(expected, dict) and isinstance(found, dict):
        return all(key in found and agrees(each, found[key]) for key, each in expected.items())
    if isinstance(expected, list) and isinstance(found, list):
        return len(expected) == len(found) and all(map(agrees, expected, found))
    return bool(expected == found) or (expected != expected and found != found)


def small(fields: str, data: bytes, *, syntax: str = "proto3") -> Any:
    """The row of one value of a message with these fields."""
    kind = message_class(f'syntax = "{syntax}"; {fields}', "M")
    found, bad = ProtobufColumns(kind.DESCRIPTOR).decode(pa.array([data], pa.binary()))
    assert not bad, bad
    assert row_of(kind.FromString(data)) == rows_of(found)[0]
    return rows_of(found)[0]


def problem(fields: str, data: bytes) -> str:
    kind = message_class(f'syntax = "proto3"; {fields}', "M")
    found, bad = ProtobufColumns(kind.DESCRIPTOR).decode(pa.array([b"", data, b""], pa.binary()))
    good, null, other = rows_of(found)
    assert null is None
    assert good == other == row_of(kind())
    ((row, reason),) = bad
    assert 1 == row
    with pytest.raises(DecodeError):
        kind.FromString(data)
    return reason


@pytest.mark.parametrize("name", CLASSES)
@effort(150)
@given(seed=st.integers(0, 2**32))
def test_rows_are_those_of_the_runtime(name: str, seed: int) -> None:
    chance = Random(seed)
    messages = [random_message(CLASSES[name], chance) for _ in range(chance.randint(0, 6))]
    rows, bad = decoded(name, [each.SerializeToString() for each in messages])
    assert [] == bad
    assert [row_of(each) for each in messages] == rows


@pytest.mark.parametrize("name", CLASSES)
@effort(150)
@given(seed=st.integers(0, 2**32))
def test_concatenated_values_are_merged(name: str, seed: int) -> None:
    """Repeated fields and maps in several places, messages in parts, oneofs that change, all of them nested too."""
    chance = Random(seed)
    values = [b"".join(random_message(CLASSES[name], chance).SerializeToString() for _ in range(3)) for _ in range(3)]
    rows, bad = decoded(name, values)
    assert [] == bad
    assert [row_of(CLASSES[name].FromString(each)) for each in values] == rows


@pytest.mark.parametrize("name", CLASSES)
@effort(300)
@given(seed=st.integers(0, 2**32))
def test_damaged_values_are_judged_as_by_the_runtime(name: str, seed: int) -> None:
    chance = Random(seed)
    values = []
    for _ in range(4):
        value = bytearray(random_message(CLASSES[name], chance, map_entries_max=0).SerializeToString())
        for _ in range(chance.randint(0, 3)):
            if value:
                value[chance.randrange(len(value))] = chance.choice((0, 0x80, 0xFF, chance.randrange(256)))
        values.append(bytes(value[: chance.randint(0, len(value))] if chance.random() < 0.3 else value))
    rows, bad = decoded(name, values)
    reasons = dict(bad)
    for row, data in enumerate(values):
        try:
            message = CLASSES[name].FromString(data)
        except DecodeError:
            assert row in reasons, data.hex()
            continue
        if row in reasons:
            # Columns are stricter: text of proto2 must be UTF-8, and times in range.
            assert reasons[row] in (
                "a string is not valid UTF-8",
                "a Timestamp or a Duration is out of range",
            ), data.hex()
            continue
        assert agrees(row_of(message), rows[row]), data.hex()


@given(values=st.lists(st.binary(max_size=60), max_size=5))
def test_random_bytes_do_no_harm(values: list[bytes]) -> None:
    for name in CLASSES:
        rows, bad = decoded(name, values)
        assert len(values) == len(rows)
        assert [row for row, _ in bad] == [at for at, each in enumerate(rows) if each is None]


def test_the_last_value_counts() -> None:
    assert {"a": 2} == small("message M { int32 a = 1; }", b"\x08\x01\x08\x02")
    assert {"a": None, "b": "x"} == small("message M { oneof o { int32 a = 1; string b = 2; } }", b"\x08\x01\x12\x01x")
    inner = "message M { oneof o { N a = 1; int32 b = 2; } message N { int32 x = 1; int32 y = 2; } }"
    assert {"a": {"x": 1, "y": 2}, "b": None} == small(inner, b"\x0a\x02\x08\x01\x0a\x02\x10\x02")
    # Another member of the oneof in between removes what was there.
    assert {"a": {"x": 0, "y": 2}, "b": None} == small(inner, b"\x0a\x02\x08\x01\x10\x05\x0a\x02\x10\x02")


def test_lists_are_read_packed_and_unpacked() -> None:
    both = b"\x08\x01\x0a\x02\x02\x03\x08\x04"
    assert {"a": [1, 2, 3, 4]} == small("message M { repeated int32 a = 1; }", both)
    assert {"a": [1, 2, 3, 4]} == small("message M { repeated int32 a = 1; }", both, syntax="proto2")


def test_equal_keys_of_a_map_count_once() -> None:
    entry = b"\x0a\x05\x0a\x01%c\x10%c"
    data = b"".join(entry % (97 + each % 5, each) for each in range(100))
    assert {"m": {"a": 95, "b": 96, "c": 97, "d": 98, "e": 99}} == small(
        "message M { map<string, int32> m = 1; }", data
    )
    assert {"m": {0: "", 1: ""}} == small(
        "message M { map<int32, string> m = 1; }", b"\x0a\x00\x0a\x02\x08\x00\x0a\x02\x08\x01"
    )


def test_unknown_numbers_of_a_closed_enum_are_unknown_fields() -> None:
    enum = "enum E { A = 0; B = 1; } message M { optional E e = 1; repeated E r = 2; map<int32, E> m = 3; }"
    data = (
        b"\x08\x01\x08\x07"
        + b"\x10\x07\x10\x01\x12\x03\x00\x09\x01"
        + b"\x1a\x04\x08\x01\x10\x01\x1a\x04\x08\x01\x10\x09"
    )
    assert {"e": "B", "r": ["B", "A", "B"], "m": {1: "B"}} == small(enum, data, syntax="proto2")


def test_other_wire_types_and_numbers_are_skipped() -> None:
    assert {"a": 0} == small(
        "message M { int32 a = 1; }", b"\x0d\x00\x00\x00\x00\x12\x01x\x1b\x23\x24\x1c\x25abcd\x29abcdefgh"
    )


def test_groups_are_read() -> None:
    group = "message M { repeated group G = 1 { optional fixed32 a = 2; repeated int32 b = 20; } }"
    data = b"\x0b\x15\x01\x00\x00\x80\x0c" + b"\x0b\xa0\x01\x05\xa0\x01\x06\x0c" + b"\x0b\x0c"
    rows = [{"a": 0x80000001, "b": []}, {"a": None, "b": [5, 6]}, {"a": None, "b": []}]
    assert {"g": rows} == small(group, data, syntax="proto2")


FLAT = "message M { int32 a = 1; string b = 2; repeated fixed64 c = 3; M2 d = 4; message M2 { int32 a = 1; } }"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x08", "the value ends too early"),
        (b"\x08\x80", "the value ends too early"),
        (b"\x08" + b"\xff" * 10 + b"\x01", "a number has more than 64 bits"),
        (b"\x12\x05abcd", "a length is larger than the value"),
        (b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "a length is larger than the value"),
        (b"\x12\x01\xff", "a string is not valid UTF-8"),
        (b"\x1a\x09abcdefghi", "the value ends too early"),
        (b"\x19abc", "the value ends too early"),
        (b"\x00\x01", "a field has the number 0, or a wire type that does not exist"),
        (b"\x0e\x01", "a field has the number 0, or a wire type that does not exist"),
        (b"\x22\x02\x08\x80", "the value ends too early"),
        (b"\x3b\x08\x01", "a group has no end, or an end has no group"),
        (b"\x3c", "a group has no end, or an end has no group"),
        (b"\x3b\x44", "a group has no end, or an end has no group"),
        (b"\x3b" * 5000 + b"\x3c" * 5000, "the value is nested too deeply"),
    ],
)
def test_bad_values_are_null_rows_with_a_reason(data: bytes, reason: str) -> None:
    assert reason == problem(FLAT, data)


def test_few_bytes_cannot_fill_many_cells() -> None:
    many = " ".join(f"int64 f{each} = {each};" for each in range(1, 2000))
    kind = message_class(f'syntax = "proto3"; message M {{ repeated N n = 1; message N {{ {many} }} }}', "M")
    columns = ProtobufColumns(kind.DESCRIPTOR)
    found, bad = columns.decode(pa.array([b"\x0a\x00", b"\x0a\x00" * 100_000, b""], pa.binary()))
    assert [(1, "the value has too many columns for its size")] == bad
    assert [True, False, True] == found.is_valid().to_pylist()
    assert 1 == len(found.field("n")[0])
    assert found.nbytes < 100_000


def test_columns_of_bad_values_are_cut_back() -> None:
    """Values of all kinds before the fault, again and again."""
    kind = CLASSES["proto3"]
    chance = Random(1)
    values, rows = [], []
    for each in range(200):
        message = random_message(kind, chance)
        values.append(message.SerializeToString() + (b"\x8a\x01\x09abcdefghi" if each % 3 else b""))
        rows.append(None if each % 3 else row_of(message))
    found, bad = decoded("proto3", values)
    assert rows == found
    assert {"the value ends too early"} == {reason for _, reason in bad}


def test_prefixes_are_skipped() -> None:
    columns = COLUMNS["proto2"]
    found, bad = columns.decode(pa.array([b"12345\x08\x01", b"1234", b"12345"], pa.binary()), skip=5)
    assert [1, None, None] == found.field("id").to_pylist()
    assert [(1, "the value ends too early")] == bad


def test_messages_that_contain_themselves_are_refused() -> None:
    kind = message_class('syntax = "proto3"; message M { N n = 1; message N { repeated M m = 1; } }', "M")
    with pytest.raises(NoColumnsError, match=r"field n\.m\[\] is a M that contains itself"):
        ProtobufColumns(kind.DESCRIPTOR)


def test_types_of_columns() -> None:
    kind = COLUMNS["proto3"].type
    assert pa.uint64() == kind.field("f_uint64").type
    assert pa.string() == kind.field("f_enum").type
    assert pa.timestamp("us", "UTC") == kind.field("time").type
    assert pa.duration("us") == kind.field("span").type
    assert pa.int64() == kind.field("w_int64").type
    assert pa.map_(pa.string(), pa.float32()) == kind.field("m_float").type
