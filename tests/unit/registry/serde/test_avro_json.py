"""Avro values as JSON and back: through real bytes, and what a wrong field is told."""

import json
from typing import Any

import msgspec
import pytest

from ottla.registry.schemas.avro.avro_schema import AvroSchema, parse
from ottla.registry.serde.avro_codec import codec_of
from ottla.registry.serde.avro_json import from_json, to_json
from ottla.registry.serde.errors import ValueNotSerializableError


def schema_of(type_: Any) -> AvroSchema:
    found = parse(json.dumps(type_), {})
    assert isinstance(found, AvroSchema)
    return found


def record(**fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": name, "type": kind} for name, kind in fields.items()]}


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("int", -(2**31)),
        ("long", 2**63 - 1),
        ("boolean", True),
        ("double", 1.5),
        ("string", "żółw"),
        ({"type": "fixed", "name": "F", "size": 2}, "\x00ÿ"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B"),
        ({"type": "array", "items": ["null", "int"]}, [1, None]),
        ({"type": "map", "values": {**record(a="string"), "name": "I"}}, {"k": {"a": "x"}}),
        (logical("long", "timestamp-millis"), "2024-05-01T12:00:00.125000+00:00"),
        (logical("long", "local-timestamp-micros"), "2024-05-01T12:00:00.000125"),
        (logical("int", "date"), "2024-05-01"),
        (logical("int", "time-millis"), "12:00:01"),
        (logical("string", "uuid"), "12345678-1234-5678-1234-567812345678"),
        (logical("bytes", "decimal", precision=6, scale=2), "12.50"),
    ],
)
def test_values_come_back(type_: Any, value: Any) -> None:
    root = schema_of(record(field=type_)).root
    codec = codec_of(root)
    assert codec is not None
    document = {"field": value}
    data = codec.encode(from_json(root, document), b"")
    assert document == msgspec.json.decode(msgspec.json.encode(to_json(codec.decode(data, 0))))


def test_other_ways_to_write_values() -> None:
    root = schema_of(record(a=["null", "string"], b="double", c=logical("long", "timestamp-millis"))).root
    assert {"a": "x", "b": float("inf"), "c": 5} == from_json(root, {"a": {"string": "x"}, "b": "Infinity", "c": 5})
    assert {"a": "NaN", "b": ["\xff"]} == to_json({"a": float("nan"), "b": (b"\xff",)})


def test_the_branch_of_a_union_is_named_if_it_is_not_clear() -> None:
    one, two = ({"type": "record", "name": f"n.{name}", "fields": [{"name": "a", "type": "int"}]} for name in "PQ")
    root = schema_of([one, two, "null"]).root
    assert ("n.Q", {"a": 1}) == from_json(root, {"n.Q": {"a": 1}})
    assert ("n.P", {"a": 1}) == from_json(root, {"a": 1})
    with pytest.raises(ValueNotSerializableError, match=r"^7 fits none of n.P, n.Q, null$"):
        from_json(root, 7)


@pytest.mark.parametrize("last", [7, "wrong"])
def test_nested_unions_of_records_with_the_same_fields_take_linear_time(last: Any) -> None:
    fields = [{"name": "next", "type": ["null", "P", "Q"]}, {"name": "a", "type": "int"}]
    two = {"type": "record", "name": "Q", "fields": fields}
    first = [{"name": "next", "type": ["null", "P", two]}, {"name": "a", "type": "int"}]
    root = schema_of({"type": "record", "name": "P", "fields": first}).root
    value: Any = {"next": None, "a": last}
    for _ in range(60):
        value = {"next": value, "a": 1}
    if last == 7:
        assert ("P", {"next": None, "a": 7}) == _innermost(from_json(root, value))
        return
    with pytest.raises(ValueNotSerializableError, match="fits none of"):
        from_json(root, value)


def _innermost(value: Any) -> Any:
    while isinstance(value, dict) or value[1]["next"] is not None:
        value = value["next"] if isinstance(value, dict) else value[1]["next"]
    return value


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": [{"b": 1}, {"b": True}]}, "field a[1].b: expected long, not True"),
        ({"a": [{"b": 2**63}]}, f"field a[0].b: expected long, not {2**63}"),
        ({"a": 7}, "field a: expected array, not 7"),
        ({}, "field a: it is missing, and the schema has no default for it"),
        ({"a": [], "c": 1}, "field c: n.R has no such field; its fields: a"),
        ([], "expected an object with the fields of n.R, not []"),
    ],
)
def test_the_wrong_field_is_named(value: Any, message: str) -> None:
    inner = {"type": "record", "name": "I", "fields": [{"name": "b", "type": "long"}]}
    root = schema_of({**record(a={"type": "array", "items": inner}), "namespace": "n"}).root
    with pytest.raises(ValueNotSerializableError) as raised:
        from_json(root, value)
    assert message == str(raised.value)


@pytest.mark.parametrize(
    ("type_", "value", "message"),
    [
        ({"type": "fixed", "name": "F", "size": 2}, "abc", "field field: expected 2 bytes, not 'abc'"),
        ("bytes", "ż", "field field: expected bytes, not 'ż'"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "C", "field field: 'C' is not one of A, B"),
        (logical("int", "date"), "today", "field field: 'today' is not a date: Invalid isoformat string: 'today'"),
        ("string", {"x": 1}, "field field: expected string, not {'x': 1}"),
        ("null", 1, "field field: expected null, not 1"),
        (["null", "int"], "x", "field field: expected int, not 'x'"),
    ],
)
def test_wrong_values_are_told(type_: Any, value: Any, message: str) -> None:
    with pytest.raises(ValueNotSerializableError) as raised:
        from_json(schema_of(record(field=type_)).root, {"field": value})
    assert message == str(raised.value)


def test_deep_values_are_refused() -> None:
    root = schema_of(record(next=["null", "R"])).root
    value: Any = None
    for _ in range(600):
        value = {"next": value}
    with pytest.raises(ValueNotSerializableError, match="nested more than 200 levels deep"):
        from_json(root, value)
