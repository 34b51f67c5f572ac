"""Avro values to columns: the same rows as fastavro gives, by any schema; bad values disturb no other."""

import io
import json
import random
import string
from collections.abc import Callable
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from ottla.registry.schemas.avro.avro_schema import parse
from ottla.registry.serde.arrow.avro_plan import AvroColumns, NoColumnsError

SEEDS = range(60)
ROWS = 40


def columns(writer: Any, reader: Any = None) -> AvroColumns:
    return AvroColumns(
        parse(json.dumps(writer), {}).root, None if reader is None else parse(json.dumps(reader), {}).root
    )


def record(*fields: tuple[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": name, "type": kind} for name, kind in fields], **more}


def encoded(schema: Any, rows: list[Any]) -> pa.Array:
    parsed = fastavro.parse_schema(schema)
    values = []
    for row in rows:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, row)
        values.append(out.getvalue())
    return pa.array(values, pa.binary())


def as_python(value: Any, kind: pa.DataType) -> Any:
    """What Arrow gives, with maps as dicts, as fastavro has them."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {each.name: as_python(value[each.name], each.type) for each in kind}
    if pa.types.is_map(kind):
        return {key: as_python(each, kind.item_type) for key, each in value}
    if pa.types.is_list(kind):
        return [as_python(each, kind.value_type) for each in value]
    return value


def rows_of(found: pa.Array) -> list[Any]:
    found.validate(full=True)
    return [as_python(each, found.type) for each in found.to_pylist()]


class Making:
    """Random schemas and values that fit them."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.names = iter(range(10_000))

    def schema(self) -> dict[str, Any]:
        return self.record(3)

    def record(self, depth: int) -> dict[str, Any]:
        count = self.random.randint(1, 5)
        fields = [{"name": f"f{at}", "type": self.type(depth - 1)} for at in range(count)]
        return {"type": "record", "name": f"R{next(self.names)}", "fields": fields}

    def type(self, depth: int) -> Any:
        plain: list[Callable[[], Any]] = [
            lambda: self.random.choice(["boolean", "int", "long", "float", "double", "bytes", "string"]),
            lambda: {"type": "enum", "name": f"E{next(self.names)}", "symbols": ["A", "B", "C"]},
            lambda: {"type": "fixed", "name": f"F{next(self.names)}", "size": self.random.randint(1, 20)},
        ]
        nested: list[Callable[[], Any]] = [
            lambda: {"type": "array", "items": self.type(depth - 1)},
            lambda: {"type": "map", "values": self.type(depth - 1)},
            lambda: self.record(depth),
        ]
        made = self.random.choice(plain + nested if depth > 0 else plain)()
        return self.random.choice([["null", made], [made, "null"]]) if self.random.random() < 0.4 else made

    def value(self, schema: Any) -> Any:
        pick = self.random
        match schema:
            case list():
                other = next(each for each in schema if each != "null")
                return None if pick.random() < 0.3 else self.value(other)
            case {"type": "record"}:
                return {each["name"]: self.value(each["type"]) for each in schema["fields"]}
            case {"type": "array"}:
                return [self.value(schema["items"]) for _ in range(pick.randint(0, 4))]
            case {"type": "map"}:
                return {f"k{at}": self.value(schema["values"]) for at in range(pick.randint(0, 3))}
            case {"type": "enum"}:
                return pick.choice(schema["symbols"])
            case {"type": "fixed"}:
                return pick.randbytes(schema["size"])
            case "boolean":
                return pick.random() < 0.5
            case "int":
                return pick.choice([0, -1, 2**31 - 1, -(2**31), pick.randint(-1000, 1000)])
            case "long":
                return pick.choice([0, -1, 2**63 - 1, -(2**63), pick.randint(-(2**40), 2**40)])
            case "float":
                return float(pick.randint(-100, 100)) / 4
            case "double":
                return pick.uniform(-1e9, 1e9)
            case "bytes":
                return pick.randbytes(pick.randint(0, 40))
        return "".join(pick.choice(string.ascii_letters + "äß€😀") for _ in range(pick.randint(0, 50)))


@pytest.mark.parametrize("seed", SEEDS)
def test_columns_have_what_was_written(seed: int) -> None:
    making = Making(seed)
    schema = making.schema()
    rows = [making.value(schema) for _ in range(ROWS)]
    found, bad = columns(schema).decode(encoded(schema, rows))
    assert [] == bad
    assert rows == rows_of(found)


@pytest.mark.parametrize("seed", SEEDS)
def test_bad_values_are_null_and_disturb_no_other(seed: int) -> None:
    making = Making(seed)
    schema = making.schema()
    rows = [making.value(schema) for _ in range(ROWS)]
    values = encoded(schema, rows).to_pylist()
    damaged = dict.fromkeys(making.random.sample(range(ROWS), 10))
    for at in damaged:
        piece = bytearray(values[at])
        for _ in range(making.random.randint(1, 3)):
            match making.random.randint(0, 2):
                case 0:
                    piece = piece[: making.random.randint(0, len(piece))]
                case 1:
                    piece += making.random.randbytes(making.random.randint(1, 9))
                case _ if piece:
                    piece[making.random.randrange(len(piece))] = making.random.randrange(256)
        values[at] = bytes(piece)
    found, bad = columns(schema).decode(pa.array(values, pa.binary()))
    reasons = dict(bad)
    assert set(reasons) <= set(damaged)
    for at, row in enumerate(rows_of(found)):
        if at in reasons:
            assert row is None
            assert reasons[at]
        elif at not in damaged:
            assert rows[at] == row


def test_a_slice_of_values_is_decoded() -> None:
    schema = record(("a", "long"))
    values = encoded(schema, [{"a": at} for at in range(10)])
    found, _ = columns(schema).decode(values.slice(3, 4))
    assert [{"a": at} for at in range(3, 7)] == rows_of(found)
    assert [] == rows_of(columns(schema).decode(values.slice(3, 0))[0])


EVOLUTIONS: dict[str, tuple[Any, Any, list[Any]]] = {
    "a field added with a default": (
        record(("a", "int")),
        {
            **record(("a", "int")),
            "fields": [{"name": "b", "type": "string", "default": "x"}, {"name": "a", "type": "int"}],
        },
        [{"a": 1}, {"a": 2}],
    ),
    "a nullable field added": (
        record(("a", "int")),
        {
            **record(),
            "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": ["null", "long"], "default": None}],
        },
        [{"a": 1}],
    ),
    "a nested default": (
        record(("a", "int")),
        {
            **record(),
            "fields": [
                {
                    "name": "p",
                    "type": {
                        "type": "record",
                        "name": "P",
                        "fields": [{"name": "x", "type": {"type": "array", "items": "int"}}],
                    },
                    "default": {"x": [1, 2]},
                }
            ],
        },
        [{"a": 1}, {"a": 2}],
    ),
    "fields removed, reordered": (
        record(("a", "int"), ("b", {"type": "map", "values": {"type": "array", "items": "string"}}), ("c", "string")),
        record(("c", "string"), ("a", "int")),
        [{"a": 1, "b": {"k": ["x", "y"]}, "c": "z"}],
    ),
    "numbers promoted": (
        record(("a", "int"), ("b", "int"), ("c", "long"), ("d", "float"), ("e", "int")),
        record(("a", "long"), ("b", "double"), ("c", "float"), ("d", "double"), ("e", "float")),
        [{"a": -5, "b": 7, "c": 1 << 20, "d": 0.25, "e": 3}],
    ),
    "bytes and strings": (
        record(("a", "string"), ("b", "bytes")),
        record(("a", "bytes"), ("b", "string")),
        [{"a": "ä", "b": b"text"}],
    ),
    "an alias": (
        record(("old", "int")),
        {**record(), "fields": [{"name": "new", "type": "int", "aliases": ["old"]}]},
        [{"old": 4}],
    ),
    "became nullable": (record(("a", "int")), record(("a", ["null", "long"])), [{"a": 4}]),
    "an enum with a default": (
        record(("e", {"type": "enum", "name": "E", "symbols": ["A", "B", "C"]})),
        record(("e", {"type": "enum", "name": "E", "symbols": ["C", "A", "Z"], "default": "Z"})),
        [{"e": "A"}, {"e": "B"}, {"e": "C"}],
    ),
    "a recursive type skipped": (
        {
            "type": "record",
            "name": "R",
            "fields": [{"name": "next", "type": ["null", "R"]}, {"name": "a", "type": "int"}],
        },
        record(("a", "int")),
        [{"next": {"next": {"next": None, "a": 3}, "a": 2}, "a": 1}],
    ),
}


@pytest.mark.parametrize("case", EVOLUTIONS)
def test_values_are_resolved_as_fastavro_resolves_them(case: str) -> None:
    writer, reader, rows = EVOLUTIONS[case]
    values = encoded(writer, rows)
    parsed, wanted = fastavro.parse_schema(writer), fastavro.parse_schema(reader)
    expected = [fastavro.schemaless_reader(io.BytesIO(each), parsed, wanted) for each in values.to_pylist()]
    found, bad = columns(writer, reader).decode(values)
    assert [] == bad
    assert expected == rows_of(found)


def test_a_branch_that_the_reader_does_not_have_makes_a_value_bad() -> None:
    writer, reader = record(("a", ["null", "int"])), record(("a", "int"))
    found, bad = columns(writer, reader).decode(encoded(writer, [{"a": 1}, {"a": None}, {"a": 3}]))
    assert [{"a": 1}, None, {"a": 3}] == rows_of(found)
    assert [(1, "the reader's schema has no type for this branch of a union")] == bad


NESTED = {"type": "record", "name": "R", "fields": [{"name": "next", "type": ["null", "R"]}]}


@pytest.mark.parametrize(
    ("writer", "reader", "problem"),
    [
        ("int", None, "not a record"),
        (NESTED, None, "contains itself"),
        (record(("a", ["int", "string"])), None, r"field a is a union of several types \(int, string\)"),
        (record(("a", {"type": "array", "items": "null"})), None, "take no bytes"),
        (record(("a", "string")), record(("a", "int")), "field a is of type string in the writer's schema"),
        (record(("a", "int")), record(("b", "int")), "field b is not in the writer's schema and has no default"),
        (
            record(("a", {"type": "bytes", "logicalType": "decimal", "precision": 50})),
            None,
            "a decimal of 50 digits",
        ),
    ],
)
def test_schemas_without_columns_are_refused(writer: Any, reader: Any, problem: str) -> None:
    with pytest.raises(NoColumnsError, match=problem):
        columns(writer, reader)


def test_hostile_values_take_no_memory_and_no_time() -> None:
    writer = {**NESTED, "fields": [*NESTED["fields"], {"name": "l", "type": {"type": "array", "items": "int"}}]}
    count = bytes([0xFE, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01])
    deep, many, negative = b"\x02" * 1_000_000, b"\x00" + count, b"\x00\x03\x02\x02\x02\x00"
    _, bad = columns(writer, {**record(("l", {"type": "array", "items": "int"})), "name": "R"}).decode(
        pa.array([deep, many, negative, b""], pa.binary())
    )
    assert {
        0: "the value is nested too deeply",
        1: "a length or a count is negative, or larger than the value",
    } == dict(bad[:2])
    assert 3 == bad[-1][0]
