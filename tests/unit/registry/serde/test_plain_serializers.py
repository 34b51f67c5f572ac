"""Serializers without schemas, against Confluent's and Java's bytes."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

import confluent_kafka.serialization as theirs
import pytest

from ottla.registry.serde import plain_serializers as plain

ID = UUID("01234567-89ab-cdef-0123-456789abcdef")


@pytest.mark.parametrize(
    ("kind", "value", "data"),
    [
        ("string", "ä€", b"\xc3\xa4\xe2\x82\xac"),
        ("bytes", b"\0\xff", b"\0\xff"),
        ("short", -2, b"\xff\xfe"),
        ("integer", 2**31 - 1, b"\x7f\xff\xff\xff"),
        ("long", -1, b"\xff" * 8),
        ("float", 1.5, b"\x3f\xc0\0\0"),
        ("double", -2.0, b"\xc0\0\0\0\0\0\0\0"),
        ("uuid", ID, b"01234567-89ab-cdef-0123-456789abcdef"),
        ("json", {"a": [1, "ä", None]}, '{"a":[1,"ä",null]}'.encode()),
    ],
)
def test_both_ways(kind: str, value: Any, data: bytes) -> None:
    assert data == getattr(plain, f"serialize_{kind}")(value)
    assert value == getattr(plain, f"deserialize_{kind}")(data)
    assert getattr(plain, f"serialize_{kind}")(None) is None


@pytest.mark.parametrize(("kind", "value"), [("short", 2**15), ("integer", 2**31), ("long", 2**63), ("long", "1")])
def test_numbers_that_do_not_fit(kind: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"not a {kind}"):
        getattr(plain, f"serialize_{kind}")(value)


@pytest.mark.parametrize(("kind", "size"), [("short", 2), ("integer", 4), ("long", 8), ("float", 4), ("double", 8)])
def test_numbers_of_another_size(kind: str, size: int) -> None:
    with pytest.raises(ValueError, match=f"a {kind} has {size} bytes, not 3"):
        getattr(plain, f"deserialize_{kind}")(b"123")


def test_the_same_bytes_as_confluents_serializers() -> None:
    assert theirs.StringSerializer()("ä") == plain.serialize_string("ä")
    assert theirs.IntegerSerializer()(-5) == plain.serialize_integer(-5)
    assert theirs.DoubleSerializer()(1.25) == plain.serialize_double(1.25)


def test_json_of_a_class() -> None:
    @dataclass
    class Order:
        id: int
        note: str = ""

    assert Order(1, "x") == plain.json_deserializer(Order)(plain.serialize_json(Order(1, "x")) or b"")
    with pytest.raises(ValueError, match="Expected `int`"):
        plain.json_deserializer(Order)(b'{"id":"1"}')
