"""Avro schemas of classes, and values of classes as dicts and back."""

import datetime
import enum
import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Annotated, Any

import msgspec
import pydantic
import pytest

from ottla.registry.schemas.avro.avro_schema import parse_new
from ottla.registry.serde.class_schemas import schema_of
from ottla.registry.serde.errors import ValueNotReadableError, ValueNotSerializableError
from ottla.registry.serde.plain_values import converter_into, plain_value

MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}


class Colour(enum.Enum):
    RED = "RED"
    BLUE = "BLUE"


@dataclass
class Item:
    name: str
    colour: Colour = Colour.RED


@dataclass
class Order:
    __avro_namespace__ = "shop"
    id: int
    items: list[Item]
    price: Annotated[Decimal, MONEY]
    at: datetime.datetime
    key: uuid.UUID
    note: str | None = None
    amounts: dict[str, float] = field(default_factory=dict)
    more: "Item | None" = None
    small: Annotated[int, {"type": "int"}] = 5
    data: bytes = b""


class StructOrder(msgspec.Struct, rename="camel"):
    order_id: int
    items: tuple[str, ...] = ()
    next_order: "StructOrder | None" = None


class ModelOrder(pydantic.BaseModel):
    id: int
    day: datetime.date
    note: str | None = None


ORDER = Order(
    1, [Item("a", Colour.BLUE)], Decimal("1.50"), datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC), uuid.UUID(int=1)
)


def test_a_dataclass() -> None:
    colour = {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}
    item = {
        "type": "record",
        "name": "Item",
        "fields": [{"name": "name", "type": "string"}, {"name": "colour", "type": colour, "default": "RED"}],
    }
    expected = {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "items", "type": {"type": "array", "items": item}},
            {"name": "price", "type": MONEY},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "key", "type": {"type": "string", "logicalType": "uuid"}},
            {"name": "note", "type": ["null", "string"], "default": None},
            {"name": "amounts", "type": {"type": "map", "values": "double"}, "default": {}},
            {"name": "more", "type": ["null", "Item"], "default": None},
            {"name": "small", "type": {"type": "int"}, "default": 5},
            {"name": "data", "type": "bytes"},
        ],
    }
    assert expected == schema_of(Order)
    parse_new(json.dumps(expected), {})


def test_a_struct_and_a_model() -> None:
    assert {
        "type": "record",
        "name": "StructOrder",
        "fields": [
            {"name": "orderId", "type": "long"},
            {"name": "items", "type": {"type": "array", "items": "string"}},
            {"name": "nextOrder", "type": ["null", "StructOrder"], "default": None},
        ],
    } == schema_of(StructOrder)
    assert [
        {"name": "id", "type": "long"},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "note", "type": ["null", "string"], "default": None},
    ] == schema_of(ModelOrder)["fields"]


@pytest.mark.parametrize("kind", [Decimal, complex, dict[int, str], object])
def test_fields_without_avro_type(kind: Any) -> None:
    with pytest.raises(ValueNotSerializableError, match=r"Made\.f: .* has no Avro type"):
        schema_of(_made(kind))


def _made(kind: Any) -> type[Any]:
    return dataclass(type("Made", (), {"__annotations__": {"f": kind}}))


@pytest.mark.parametrize(
    "value",
    [ORDER, StructOrder(1, ("a",), StructOrder(2)), ModelOrder(id=1, day=datetime.date(2026, 1, 2))],
    ids=lambda value: type(value).__name__,
)
def test_values_become_dicts_and_objects_again(value: Any) -> None:
    plain = plain_value(value)
    assert type(plain) is dict
    convert: Callable[[Any], Any] = converter_into(type(value))
    assert value == convert({**plain, "unknown": 1})


def test_what_encoders_know_stays_as_it_is() -> None:
    plain = plain_value(ORDER)
    assert (ORDER.price, ORDER.at, ORDER.key, b"", "BLUE") == (
        plain["price"], plain["at"], plain["key"], plain["data"], plain["items"][0]["colour"],
    )  # fmt: skip


def test_values_that_do_not_fit_the_class() -> None:
    with pytest.raises(
        ValueNotReadableError, match="the value does not fit Item: Object missing required field `name`"
    ):
        converter_into(Item)({})
