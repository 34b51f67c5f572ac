"""Values that fastavro must not be given."""

import io
import json
import time
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.registry.schemas.avro.avro_schema import parse_new
from ottla.registry.serde.avro_limits import FREE_ITEMS_MAX, VALUE_NESTING_MAX, read_check, write_check
from ottla.registry.serde.errors import ValueNotReadableError, ValueNotSerializableError

LIST = {"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}
TREE = {
    "type": "record",
    "name": "T",
    "fields": [
        {"name": "name", "type": "string"},
        {"name": "kids", "type": {"type": "array", "items": "T"}},
        {"name": "by", "type": {"type": "map", "values": ["null", "T", "double"]}},
        {"name": "x", "type": {"type": "fixed", "name": "X", "size": 2}},
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}},
        {"name": "b", "type": "boolean"},
    ],
}
NULLS = {"type": "array", "items": "null"}


def check(schema: Any, data: bytes) -> None:
    checking = read_check(parse_new(json.dumps(schema), {}).root)
    assert checking is not None
    checking(data, 0)


def number(value: int) -> bytes:
    value, out = value << 1, b""
    while value > 127:
        value, out = value >> 7, out + bytes([value & 127 | 128])
    return out + bytes([value])


def test_most_schemas_need_no_check() -> None:
    for text in ('"int"', '{"type":"array","items":["null","int"]}', '{"type":"map","values":"null"}'):
        assert read_check(parse_new(text, {}).root) is None
    inner = '{"type":"record","name":"I","fields":[]}'
    twice = f'{{"type":"record","name":"R","fields":[{{"name":"a","type":{inner}}},{{"name":"b","type":"I"}}]}}'
    assert read_check(parse_new(twice, {}).root) is None


def test_values_nested_too_deep() -> None:
    deepest = (VALUE_NESTING_MAX - 3) // 2
    check(LIST, b"\x02" * deepest + b"\0")
    fastavro.schemaless_reader(io.BytesIO(b"\x02" * deepest + b"\0"), fastavro.parse_schema(LIST), None)
    for depth in (deepest + 1, 5_000, 1_000_000):
        with pytest.raises(ValueNotReadableError, match="nested more than"):
            check(LIST, b"\x02" * depth + b"\0")


def test_arrays_of_nothing() -> None:
    check(NULLS, number(FREE_ITEMS_MAX) + b"\0")
    with pytest.raises(ValueNotReadableError, match="items that take no bytes"):
        check(NULLS, number(2**60) + b"\0")


def test_a_count_that_is_too_large_takes_no_time() -> None:
    start = time.process_time()
    for _ in range(500):
        with pytest.raises(ValueNotReadableError, match="items that take no bytes"):
            check(NULLS, number(2**60) + b"\0")
    assert time.process_time() - start < 5


Trees = st.recursive(
    st.fixed_dictionaries({"name": st.text(max_size=4), "kids": st.just([]), "by": st.just({})}),
    lambda inner: st.fixed_dictionaries(
        {
            "name": st.text(max_size=3),
            "kids": st.lists(inner, max_size=3),
            "by": st.dictionaries(st.text(max_size=2), st.none() | st.floats(allow_nan=False) | inner, max_size=2),
        }
    ),
    max_leaves=10,
)


def _filled(tree: Any) -> Any:
    if not isinstance(tree, dict):
        return tree
    by = {key: _filled(value) for key, value in tree["by"].items()}
    return {**tree, "kids": [_filled(each) for each in tree["kids"]], "by": by, "x": b"ab", "e": "B", "b": True}


@given(Trees, st.binary(max_size=30))
def test_the_walk_agrees_with_fastavro(tree: Any, noise: bytes) -> None:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, TREE, _filled(tree))
    data = out.getvalue()
    check(TREE, data)
    for bad in (data[:-1], noise):
        try:
            fastavro.schemaless_reader(io.BytesIO(bad), fastavro.parse_schema(TREE), None)
        except Exception:
            continue
        check(TREE, bad)


INTS = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "a", "type": "int"},
        {"name": "l", "type": {"type": "array", "items": {"type": "map", "values": "int"}}},
        {"name": "d", "type": {"type": "int", "logicalType": "date"}},
        {"name": "u", "type": ["null", "int"]},
    ],
}


@pytest.mark.parametrize("field", [{"a": 2**31}, {"a": -(2**31) - 1}, {"l": [{"x": 2**31}]}, {"d": 2**31}])
def test_ints_beyond_32_bits(field: Any) -> None:
    checking = write_check(parse_new(json.dumps(INTS), {}).root)
    assert checking is not None
    good = {"a": 2**31 - 1, "l": [{"x": -(2**31)}], "d": 5, "u": None}
    checking(good)
    checking({"a": "x", "l": 5})  # refused when it is written
    with pytest.raises(ValueNotSerializableError, match="is too large for the int"):
        checking({**good, **field})
    assert write_check(parse_new('"long"', {}).root) is None


def test_fastavro_checks_the_branches_of_unions() -> None:
    with pytest.raises(ValueError, match="do not match"):
        fastavro.schemaless_writer(io.BytesIO(), INTS, {"a": 1, "l": [], "d": 1, "u": 2**31})
