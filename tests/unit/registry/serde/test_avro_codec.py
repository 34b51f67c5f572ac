"""The compiled codec against fastavro, on random schemas and values, and on damaged bytes."""

import io
import json
from random import Random
from typing import Any

import fastavro
import pytest

from ottla.registry.schemas.avro.avro_schema import AvroSchema, parse, parse_new
from ottla.registry.schemas.parsed_schema import InvalidSchemaError
from ottla.registry.serde.avro_codec import codec_of
from ottla.registry.serde.avro_values import UnusualValueError, ValueCodec
from tests.compat.registry.avro_generation import SchemaSource
from tests.unit.registry.serde.random_avro_values import value_of


def by_fastavro(schema: AvroSchema, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(schema.resolved_text)), value)
    return out.getvalue()


def codec(schema: AvroSchema) -> ValueCodec:
    made = codec_of(schema.root)
    assert made is not None
    return made


def test_random_schemas_and_values() -> None:
    compared = encoded = refused = 0
    for seed in range(600):
        random = Random(seed)
        try:
            schema = parse_new(json.dumps(SchemaSource(random).schema()), {})
            value = value_of(schema.root, random)
            expected = by_fastavro(schema, value)
        except (InvalidSchemaError, RecursionError, ValueError, TypeError, fastavro.schema.SchemaParseException):
            continue
        made = codec_of(schema.root)
        if made is None:
            continue
        compared += 1
        try:
            assert b"prefix" + expected == made.encode(value, b"prefix"), (seed, schema.canonical_text, value)
            encoded += 1
        except UnusualValueError:
            pass
        parsed = fastavro.parse_schema(json.loads(schema.resolved_text))
        read = fastavro.schemaless_reader(io.BytesIO(expected), parsed, None)
        assert read == made.decode(b"12345" + expected, 5), (seed, schema.canonical_text)
        for _ in range(10):
            damaged = bytearray(expected)
            for _ in range(random.randrange(1, 4)):
                if damaged:
                    damaged[random.randrange(len(damaged))] = random.randrange(256)
            try:
                made.decode(bytes(damaged[: random.randrange(len(damaged) + 1)]), 0)
            except (ValueError, OverflowError, ArithmeticError):
                refused += 1
    assert compared > 200
    assert encoded > compared // 2
    assert refused > 500


ONE_OF_ALL = parse(
    json.dumps(
        {
            "type": "record",
            "name": "R",
            "fields": [
                {"name": "n", "type": ["null", "string"]},
                {"name": "s", "type": "string"},
                {"name": "i", "type": "int"},
                {"name": "l", "type": "long"},
                {"name": "d", "type": "double"},
                {"name": "t", "type": "boolean"},
                {"name": "b", "type": "bytes"},
                {"name": "x", "type": {"type": "fixed", "name": "X", "size": 2}},
                {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}},
                {"name": "a", "type": {"type": "array", "items": "long"}},
                {"name": "m", "type": {"type": "map", "values": "long"}},
                {"name": "o", "type": "null"},
            ],
        }
    ),
    {},
)
GOOD: dict[str, Any] = {
    "n": "x", "s": "y", "i": 1, "l": 2, "d": 3, "t": True, "b": b"z", "x": b"ab", "e": "B", "a": (1, 2), "m": {"k": 1},
    "o": None,
}  # fmt: skip


def test_a_value_of_all_types() -> None:
    assert by_fastavro(ONE_OF_ALL, GOOD) == codec(ONE_OF_ALL).encode(GOOD, b"")
    assert {**GOOD, "a": [1, 2]} == codec(ONE_OF_ALL).decode(by_fastavro(ONE_OF_ALL, GOOD), 0)


@pytest.mark.parametrize(
    "unusual",
    [{"n": 1}, {"s": b""}, {"i": True}, {"l": 1.0}, {"d": "1"}, {"t": 1}, {"b": bytearray()}, {"x": b"abc"}, {"e": "C"},
     {"e": 1}, {"a": {1}}, {"m": []}, {"m": {1: 1}}, {"o": 0}],
    ids=str,
)  # fmt: skip
def test_values_of_other_classes_are_left_to_fastavro(unusual: dict[str, Any]) -> None:
    with pytest.raises(UnusualValueError):
        codec(ONE_OF_ALL).encode({**GOOD, **unusual}, b"")
    missing = {name: value for name, value in GOOD.items() if name not in unusual}
    with pytest.raises(UnusualValueError):
        codec(ONE_OF_ALL).encode(missing, b"")


def test_unions_of_several_types_are_encoded_by_fastavro() -> None:
    union = parse('["null","int","string"]', {})
    with pytest.raises(UnusualValueError):
        codec(union).encode("x", b"")
    assert "x" == codec(union).decode(by_fastavro(union, "x"), 0)


@pytest.mark.parametrize("value", [{"i": 2**31}, {"i": -(2**31) - 1}, {"l": 2**63}, {"l": -(2**63) - 1}])
def test_numbers_that_are_too_large(value: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="is too large for"):
        codec(ONE_OF_ALL).encode({**GOOD, **value}, b"")


LIST = parse('{"type":"record","name":"L","fields":[{"name":"next","type":["null","L"]}]}', {})


@pytest.mark.parametrize(
    ("schema", "data", "reason"),
    [
        ('"long"', b"", "ends too early"),
        ('"long"', b"\xff" * 11, "too long"),
        ('"long"', b"\xff" * 9 + b"\x02", "too long"),
        ('"string"', b"\x10abc", "ends too early"),
        ('"string"', b"\x01", "ends too early"),
        ('"string"', b"\x02\xff", "utf-8"),
        ('["null","int"]', b"\x04", "no branch 2"),
        ('["null","int"]', b"\x01", "no branch -1"),
        ('{"type":"enum","name":"E","symbols":["A"]}', b"\x02", "no symbol 1"),
        ('{"type":"fixed","name":"F","size":4}', b"abc", "ends too early"),
        ('{"type":"array","items":"null"}', b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", "count"),
        ('{"type":"array","items":"null"}', b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00", "count"),
        ('{"type":"map","values":"null"}', b"\x7f\x00", "ends too early"),
        ('"double"', b"1234567", "ends too early"),
    ],
)
def test_bad_bytes(schema: str, data: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        codec(parse(schema, {})).decode(data, 0)


def test_blocks_with_their_size() -> None:
    data = b"\x03\x04\x02\x04\x01\x02\x06\x00"
    assert [1, 2, 3] == codec(parse('{"type":"array","items":"long"}', {})).decode(data, 0)


def test_values_nested_deep() -> None:
    assert codec(LIST).decode(b"\x02" * 200 + b"\0", 0)
    for depth in (300, 1_000_000):
        with pytest.raises(ValueError, match="nested more than 500"):
            codec(LIST).decode(b"\x02" * depth + b"\0", 0)
    value: Any = {"next": None}
    for _ in range(1000):
        value = {"next": value}
    with pytest.raises(ValueError, match="nested more than 500"):
        codec(LIST).encode(value, b"")


def test_a_start_behind_the_end() -> None:
    with pytest.raises(ValueError, match="ends too early"):
        codec(LIST).decode(b"", 5)
