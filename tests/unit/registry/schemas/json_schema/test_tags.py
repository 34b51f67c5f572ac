"""Tags inside schemas, at the places that Confluent's registry names."""

import json
from typing import Any, Literal

import pytest

from ottla.registry.schemas.json_schema.json_schema import parse
from ottla.registry.schemas.parsed_schema import InvalidSchemaError, SchemaEntity

TAGS = "confluent:tags"


def tagged(*tags: str, **schema: Any) -> dict[str, Any]:
    return {"type": "string", **schema, TAGS: list(tags)}


def field(path: str) -> SchemaEntity:
    return SchemaEntity(entity_path=path, entity_type="sr_field")


def record(path: str) -> SchemaEntity:
    return SchemaEntity(entity_path=path, entity_type="sr_record")


CASES = {
    "properties": (
        {
            "type": "object",
            TAGS: ["A"],
            "properties": {
                "p": tagged("B", "C"),
                "o": {"type": "object", TAGS: ["D"], "properties": {"q": tagged("E")}},
                "l": {"items": {"type": "object", TAGS: ["F"], "properties": {"z": tagged("G")}}},
            },
        },
        {
            record("object"): ("A",),
            field("object.p"): ("B", "C"),
            field("object.o"): ("D",),
            field("object.o.object.q"): ("E",),
            record("object.l.array.object"): ("F",),
            field("object.l.array.object.z"): ("G",),
        },
    ),
    "union, counted by kind and title": (
        {
            "oneOf": [
                {"type": "string"},
                {"type": "object", "title": "b", TAGS: ["X"], "properties": {"p": tagged("B")}},
                {"type": "object", "title": "a", "properties": {"p": tagged("Y")}},
            ]
        },
        {field("oneof.0.object.p"): ("Y",), record("oneof.1.object"): ("X",), field("oneof.1.object.p"): ("B",)},
    ),
    "several types": (
        {"type": ["null", "object"], "properties": {"p": tagged("B")}},
        {field("anyof.1.object.p"): ("B",)},
    ),
    "definitions, and a name with a dot": (
        {
            "type": "object",
            "properties": {"a.b": tagged("B"), "n": {"$ref": "#/definitions/N"}},
            "definitions": {"N": {"type": "object", "properties": {"x": tagged("Q")}}, "invalid": {"type": 1}},
        },
        {field("object.a.b"): ("B",), field("object.definitions.N.object.x"): ("Q",)},
    ),
    "not": ({"not": {"type": "object", TAGS: ["N"]}}, {record("not.object"): ("N",)}),
}


@pytest.mark.parametrize(("schema", "tags"), CASES.values(), ids=CASES)
def test_tags_are_found_at_their_places(schema: dict[str, Any], tags: dict[SchemaEntity, tuple[str, ...]]) -> None:
    assert tags == parse(json.dumps(schema), {}).tags()


@pytest.mark.parametrize(("schema", "tags"), CASES.values(), ids=CASES)
def test_tags_are_added_and_removed_there(schema: dict[str, Any], tags: dict[SchemaEntity, tuple[str, ...]]) -> None:
    parsed = parse(json.dumps(schema), {})
    more = parse(parsed.with_tags({place: ["new"] for place in tags}, {}), {})
    assert {place: (*old, "new") for place, old in tags.items()} == more.tags()
    none = parse(more.with_tags({}, {place: [*old, "new"] for place, old in tags.items()}), {})
    assert {} == none.tags()
    assert TAGS not in none.canonical_text
    assert parsed.canonical_text == more.with_tags({}, {place: ["new"] for place in tags})


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("object.other", "sr_field"),
        ("object", "sr_field"),
        ("array.object", "sr_record"),
        ("oneof.0.object", "sr_record"),
        ("record", "sr_record"),
        ("", "sr_record"),
    ],
)
def test_other_places_are_refused(path: str, kind: Literal["sr_record", "sr_field"]) -> None:
    schema = parse('{"type":"object","properties":{"a":{"type":"string"}}}', {})
    with pytest.raises(InvalidSchemaError, match="no place"):
        schema.with_tags({SchemaEntity(entity_path=path, entity_type=kind): ["x"]}, {})


def test_fields_of_the_root_are_known() -> None:
    schema = parse('{"properties":{"a":{"properties":{"b":{}}}}}', {})
    assert (True, False) == (schema.has_top_level_field("a"), schema.has_top_level_field("b"))
    assert not parse("true", {}).has_top_level_field("a")
