import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec
import pydantic
import pytest

from ottla.registry.schemas.json_schema.json_schema import parse
from ottla.registry.schemas.parsed_schema import InvalidSchemaError
from ottla.registry.serde.json_values import InvalidValueError, JsonValidator, decoder_for, encode, schema_of


@dataclass
class Line:
    sku: str
    count: int = 1


@dataclass
class Order:
    id: UUID
    lines: list[Line] = field(default_factory=list)
    parent: "Order | None" = None


class OrderStruct(msgspec.Struct):
    id: UUID
    lines: list[Line] = []
    parent: "OrderStruct | None" = None


class LineModel(pydantic.BaseModel):
    sku: str
    count: int = pydantic.Field(default=1, alias="number")


class OrderModel(pydantic.BaseModel):
    id: UUID
    lines: list[LineModel] = []
    placed: datetime | None = None


ID = UUID("12345678-1234-5678-1234-567812345678")
VALUES: dict[str, tuple[Any, dict[str, Any]]] = {
    "dataclass": (
        Order(ID, [Line("a")], Order(ID)),
        {"id": str(ID), "lines": [{"sku": "a", "count": 1}], "parent": {"id": str(ID), "lines": [], "parent": None}},
    ),
    "struct": (OrderStruct(ID, [Line("a", 2)]), {"id": str(ID), "lines": [{"sku": "a", "count": 2}], "parent": None}),
    "model": (
        OrderModel(id=ID, lines=[LineModel(sku="é", number=3)], placed=datetime(2026, 1, 2, tzinfo=UTC)),
        {"id": str(ID), "lines": [{"sku": "é", "number": 3}], "placed": "2026-01-02T00:00:00Z"},
    ),
}


@pytest.mark.parametrize(("value", "plain"), VALUES.values(), ids=VALUES)
def test_values_become_json_and_come_back(value: Any, plain: dict[str, Any]) -> None:
    data = encode(value)
    assert plain == json.loads(data)
    assert value == decoder_for(type(value))(data)
    assert plain == decoder_for()(data)


@pytest.mark.parametrize(("value", "plain"), VALUES.values(), ids=VALUES)
def test_a_schema_is_derived_that_its_values_match(value: Any, plain: dict[str, Any]) -> None:
    text = schema_of(type(value))
    schema = json.loads(text)
    parse(text, {})
    assert (type(value).__name__, "object", False) == (schema["title"], schema["type"], schema["additionalProperties"])
    JsonValidator(text, {}).check(value)
    with pytest.raises(InvalidValueError, match="/id"):
        JsonValidator(text, {}).check({**plain, "id": 7})
    with pytest.raises(InvalidValueError):
        JsonValidator(text, {}).check({**plain, "other": 7})


def test_a_derived_schema_evolves_by_a_field_with_a_default() -> None:
    old = msgspec.defstruct("Order", [("id", int)])
    new = msgspec.defstruct("Order", [("id", int), ("note", str, "")])
    assert [] == list(parse(schema_of(new), {}).incompatibilities(parse(schema_of(old), {})))


def test_simple_types_have_schemas() -> None:
    assert {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "integer"} == json.loads(schema_of(int))
    with pytest.raises(TypeError, match="cannot derive"):
        schema_of(object)


@pytest.mark.parametrize(
    "value",
    [
        {"b": 1, "a": [1.0, 0.1, -2.5e-3, True, None, 'é\x1f"/\\ \u2028😀'], "": {}},
        [],
        "text",
        12345678901234567890,
        {"nested": {"deep": [[[]]]}},
    ],
)
def test_the_bytes_are_compact_json(value: Any) -> None:
    assert json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode() == encode(value)


def test_other_values_are_refused() -> None:
    with pytest.raises(InvalidValueError, match="object"):
        encode(object())
    with pytest.raises(InvalidValueError, match="object"):
        JsonValidator("{}", {}).check({"a": object()})
    with pytest.raises(InvalidValueError, match="/a"):
        JsonValidator('{"properties":{"a":{"type":"number"}}}', {}).check({"a": float("nan")})
    with pytest.raises(InvalidValueError):
        decoder_for(Order)(b'{"id":1}')
    with pytest.raises(InvalidValueError):
        decoder_for(OrderModel)(b'{"id":1}')
    with pytest.raises(InvalidValueError):
        decoder_for()(b"{")


@pytest.mark.parametrize("uri", [None, "http://a.example/b/order.json"])
@pytest.mark.parametrize(
    "draft", ["http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema"]
)
def test_values_are_checked_against_references(uri: str | None, draft: str) -> None:
    schema: dict[str, Any] = {"$schema": draft, "properties": {"line": {"$ref": "line.json#/definitions/line"}}}
    if uri is not None:
        schema["$id"] = uri
    references = {
        "line.json": '{"definitions":{"line":{"properties":{"sku":{"$ref":"sku.json"}}}}}',
        "sku.json": '{"type":"string"}',
    }
    validator = JsonValidator(json.dumps(schema), references)
    validator.check({"line": {"sku": "a"}})
    with pytest.raises(InvalidValueError, match="/line/sku"):
        validator.check({"line": {"sku": 7}})


@pytest.mark.parametrize("text", ['{"$ref":"missing.json"}', '{"minLength":-1}', "{", "7"])
def test_schemas_that_cannot_check_anything_are_refused(text: str) -> None:
    with pytest.raises(InvalidSchemaError):
        JsonValidator(text, {})


def test_a_schema_without_a_dialect_is_of_draft_7() -> None:
    JsonValidator('{"$ref":"#/definitions/a","type":"integer","definitions":{"a":{}}}', {}).check("text")
