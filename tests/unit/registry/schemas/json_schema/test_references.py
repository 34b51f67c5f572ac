"""What a `$ref` names: ids, anchors, pointers, registered references."""

import json
from typing import Any

import pytest

from ottla.registry.schemas.json_schema.json_schema import JsonSchema, parse, parse_new
from ottla.registry.schemas.json_schema.uris import resolve_uri
from ottla.registry.schemas.parsed_schema import InvalidSchemaError

MODERN = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
DRAFT_4 = {"$schema": "http://json-schema.org/draft-04/schema#"}
INTEGER = {"type": "integer"}


def parsed(schema: Any, **references: Any) -> JsonSchema:
    return parse(json.dumps(schema), {name: json.dumps(value) for name, value in references.items()})


def kinds(schema: JsonSchema, writer: JsonSchema) -> list[str]:
    return [f"{found.kind} {found.path}" for found in schema.incompatibilities(writer)]


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/definitions/a", "definitions": {"a": INTEGER}},
        {"$ref": "#/$defs/a", "definitions": {"a": INTEGER}},
        {"$ref": "#/$defs/a", "$defs": {"a": INTEGER}},
        {"$ref": "#/definitions/a~1b%20~0c", "definitions": {"a/b ~c": INTEGER}},
        {"$ref": "#/x/0", "x": [INTEGER]},
        {"$ref": "#named", "definitions": {"a": {"$id": "#named", **INTEGER}}},
        {"$ref": "http://a.example/b", "definitions": {"a": {"$id": "http://a.example/b", **INTEGER}}},
        {
            "allOf": [{"$ref": "c"}],
            "$id": "http://a.example/b",
            "$defs": {"d": {"$id": "http://a.example/c", **INTEGER}},
        },
        {"allOf": [{"$ref": "http://a.example/b#/$defs/d"}], "$id": "http://a.example/b", "$defs": {"d": INTEGER}},
        {"$ref": "#/definitions/a", "definitions": {"a": {"$ref": "#/definitions/b"}, "b": INTEGER}},
        {**DRAFT_4, "$ref": "#named", "definitions": {"a": {"id": "#named", **INTEGER}}},
        {**MODERN, "$ref": "#named", "$defs": {"a": {"$anchor": "named", **INTEGER}}},
        {**MODERN, "$dynamicRef": "#named", "$defs": {"a": {"$dynamicAnchor": "named", **INTEGER}}},
        {**MODERN, "$ref": "b", "$defs": {"a": {"$id": "b", "$ref": "#/$defs/c", "$defs": {"c": INTEGER}}}},
        {**MODERN, "$ref": "urn:a:b", "$defs": {"a": {"$id": "urn:a:b", **INTEGER}}},
    ],
    ids=json.dumps,
)
def test_references_inside_a_schema(schema: dict[str, Any]) -> None:
    # An object is added, so that a reference to something else would show.
    assert ["TYPE_CHANGED #/"] == kinds(parsed(schema), parsed({"type": "string"}))
    assert [] == kinds(parsed(schema), parsed(INTEGER))


@pytest.mark.parametrize("draft", [{}, DRAFT_4, MODERN], ids=["7", "4", "2020-12"])
@pytest.mark.parametrize(
    ("reference", "name", "target"),
    [
        ("other.json", "other.json", INTEGER),
        ("./other.json", "other.json", INTEGER),
        ("other.json#", "other.json", INTEGER),
        ("other.json#/definitions/a", "other.json", {"definitions": {"a": INTEGER}}),
        ("other.json#/$defs/a", "other.json", {"definitions": {"a": INTEGER}}),
        ("http://a.example/other", "http://a.example/other", INTEGER),
        ("http://a.example/other#/definitions/a", "http://a.example/other", {"definitions": {"a": INTEGER}}),
        ("com.example.Other", "com.example.Other", INTEGER),
    ],
)
def test_registered_references(draft: dict[str, str], reference: str, name: str, target: dict[str, Any]) -> None:
    schema = parsed({**draft, "properties": {"a": {"$ref": reference}}}, **{name: target})
    assert ["TYPE_CHANGED #/properties/a"] == kinds(schema, parsed({**draft, "properties": {"a": {"type": "null"}}}))
    assert [] == kinds(schema, parsed({**draft, "properties": {"a": INTEGER}}))


def test_a_reference_is_relative_to_the_id_of_the_schema() -> None:
    schema = parsed({"$id": "http://a.example/b/c.json", "items": {"$ref": "d.json"}}, **{"d.json": INTEGER})
    assert ["TYPE_CHANGED #/items"] == kinds(schema, parsed({"items": {"type": "null"}}))


def test_references_use_each_other() -> None:
    documents = {
        "b.json": {"properties": {"c": {"$ref": "c.json#/definitions/d"}}},
        "c.json": {"definitions": {"d": INTEGER}},
    }
    schema = parsed({"$ref": "b.json"}, **documents)
    assert ["TYPE_CHANGED #/properties/c"] == kinds(schema, parsed({"properties": {"c": {"type": "null"}}}))


def test_a_change_in_a_reference_is_a_change() -> None:
    text = {"$ref": "a.json"}
    assert ["TYPE_CHANGED #/"] == kinds(
        parsed(text, **{"a.json": INTEGER}), parsed(text, **{"a.json": {"type": "null"}})
    )


def test_a_meta_schema_is_known() -> None:
    schema = parsed({"items": {"$ref": "http://json-schema.org/draft-07/schema#"}})
    assert [] == kinds(schema, parsed({"title": "x", "items": {"$ref": "https://json-schema.org/draft-07/schema"}}))
    assert ["TYPE_CHANGED #/items"] == kinds(
        schema, parsed({"items": {"$ref": "http://json-schema.org/draft-04/schema"}})
    )
    assert ["TYPE_CHANGED #/items"] == kinds(schema, parsed({"items": {"type": "object"}}))


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/definitions/a"},
        {"$ref": "#/definitions/a/b", "definitions": {"a": {}}},
        {"$ref": "#/x/1", "x": [{}]},
        {"$ref": "#/x/-1", "x": [{}]},
        {"$ref": "#named"},
        {"$ref": "other.json"},
        {"$ref": "http://a.example/other"},
        {"$ref": "http://[a"},
        {"$ref": "#/definitions/a", "definitions": {"a": 1}},
        {**MODERN, "$ref": "#named"},
        {**MODERN, "$ref": "a.json"},
    ],
    ids=json.dumps,
)
def test_references_to_nothing_are_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(InvalidSchemaError):
        parse_new(json.dumps(schema), {})


def test_what_a_registered_schema_refers_to_may_be_elsewhere() -> None:
    one, two = (parsed({"type": "object", "properties": {"a": {"$ref": f"http://a.example/{name}"}}}) for name in "12")
    again = parsed({"properties": {"a": {"$ref": "http://a.example/1"}}, "type": "object"})
    assert [] == kinds(again, one)
    assert ["TYPE_CHANGED #/properties/a"] == kinds(two, one)


def test_an_invalid_reference_is_named() -> None:
    with pytest.raises(InvalidSchemaError, match=r"^reference 'a\.json': not valid JSON"):
        parse('{"$ref":"a.json"}', {"a.json": "{"})


def test_a_reference_that_is_not_used_is_not_read() -> None:
    parse('{"type":"string"}', {"a.json": "{"})


@pytest.mark.parametrize(
    ("base", "reference", "expected"),
    [
        ("", "a.json#/b", "a.json#/b"),
        ("", "#/b", "#/b"),
        ("http://a.example/b/c.json", "d.json", "http://a.example/b/d.json"),
        ("http://a.example/b/c.json#x", "#y", "http://a.example/b/c.json#y"),
        ("http://a.example/b/c.json", "/d", "http://a.example/d"),
        ("http://a.example/b/c.json", "../d", "http://a.example/d"),
        ("mem://host/a/b", "c", "mem://host/a/c"),
        ("b/c.json", "d.json", "b/d.json"),
        ("urn:a:b", "c", "c"),
        ("urn:a:b", "#c", "urn:a:b#c"),
        ("http://a.example/b", "urn:c:d", "urn:c:d"),
    ],
)
def test_uris_are_joined(base: str, reference: str, expected: str) -> None:
    assert expected == resolve_uri(base, reference)
