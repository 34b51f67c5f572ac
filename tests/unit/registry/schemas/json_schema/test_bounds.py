"""Large, recursive and hostile schemas: parsed and compared in bounded time, never by recursion."""

import json
import tracemalloc
from typing import Any

import pytest

from ottla.registry.schemas.json_schema import comparison, compatibility
from ottla.registry.schemas.json_schema.json_schema import JsonSchema, parse
from ottla.registry.schemas.parsed_schema import InvalidSchemaError

pytestmark = pytest.mark.slow


def parsed(schema: Any) -> JsonSchema:
    return parse(json.dumps(schema), {})


def kinds(reader: Any, writer: Any) -> list[str]:
    return [f"{found.kind} {found.path}" for found in parsed(reader).incompatibilities(parsed(writer))]


def chain(length: int, end: Any) -> dict[str, Any]:
    """Each definition has a property whose schema is the next definition."""
    definitions = {f"d{i}": {"properties": {"n": {"$ref": f"#/definitions/d{i + 1}"}}} for i in range(length)}
    return {"$ref": "#/definitions/d0", "definitions": {**definitions, f"d{length}": end}}


def test_a_long_chain_of_references() -> None:
    found = kinds(chain(5000, {"type": "string"}), chain(5000, {"type": "integer"}))
    assert ["TYPE_CHANGED #/" + ("properties/n/" * 5000)[:1998] + "..."] == found


def test_a_long_chain_of_references_to_references() -> None:
    definitions = {f"d{i}": {"$ref": f"#/definitions/d{i + 1}"} for i in range(20_000)}
    schema = {"$ref": "#/definitions/d0", "definitions": {**definitions, "d20000": {"type": "string"}}}
    assert ["TYPE_CHANGED #/"] == kinds(schema, {"type": "integer"})


def test_exponentially_many_paths_to_one_difference() -> None:
    def doubled(end: Any) -> dict[str, Any]:
        definitions = {
            f"d{i}": {"properties": {name: {"$ref": f"#/definitions/d{i + 1}"} for name in "ab"}} for i in range(60)
        }
        return {"$ref": "#/definitions/d0", "definitions": {**definitions, "d60": end}}

    found = kinds(doubled({"type": "string"}), doubled({"type": "integer"}))
    assert comparison.DIFFERENCES_MAX == len(found)
    assert {"TYPE_CHANGED"} == {text.split()[0] for text in found}


def event(index: int, **more: Any) -> dict[str, Any]:
    properties = {"kind": {"const": index}, f"field{index}": {"type": "string", **more}}
    return {"type": "object", "properties": properties, "additionalProperties": False}


def test_a_union_of_a_thousand_schemas_grows() -> None:
    old = {"oneOf": [event(index) for index in range(1000)]}
    new = {"oneOf": [*(event(index) for index in range(1000)), {"type": "null"}]}
    assert [] == kinds(new, old)
    assert ["SUM_TYPE_NARROWED #/"] == kinds(old, new)


def test_a_union_of_which_a_few_schemas_change() -> None:
    old = {"oneOf": [event(index) for index in range(200)]}
    wider = {"oneOf": [event(index, title="x") if index % 20 == 0 else event(index) for index in range(200)]}
    narrower = {"oneOf": [event(index, maxLength=3) if index == 77 else event(index) for index in range(200)]}
    assert [] == kinds(wider, old)
    assert ["COMBINED_TYPE_SUBSCHEMAS_CHANGED #/"] == kinds(narrower, old)


def test_too_many_pairs_count_as_incompatible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compatibility, "STEPS_MAX", 10_000)
    old = {"oneOf": [event(index, maxLength=5) for index in range(300)]}
    new = {"oneOf": [event(index, maxLength=9) for index in range(300)]}
    assert ["SCHEMAS_TOO_COMPLEX #/"] == kinds(new, old)
    assert [] == kinds(new, new)


def recursive(count: int) -> dict[str, Any]:
    """Definitions that all refer to all."""
    definitions = {
        f"d{i}": {
            "anyOf": [{"type": "object", "properties": {"x": {"$ref": f"#/definitions/d{j}"}}} for j in range(count)]
        }
        for i in range(count)
    }
    return {"$ref": "#/definitions/d0", "definitions": definitions}


def test_definitions_that_all_refer_to_all() -> None:
    changed = recursive(6)
    changed["definitions"]["d5"]["anyOf"][0] = {"type": "null"}
    assert ["COMBINED_TYPE_SUBSCHEMAS_CHANGED #/"] == kinds(changed, recursive(6))
    assert [] == kinds({**recursive(6), "title": "x"}, recursive(6))


def test_a_recursive_schema_that_changes_in_its_depth() -> None:
    def tree(value: Any) -> dict[str, Any]:
        branches = {"type": "array", "items": {"$ref": "#"}}
        return {"type": "object", "properties": {"value": value, "branches": branches}, "additionalProperties": False}

    assert [] == kinds(tree({"type": "number"}), tree({"type": "integer"}))
    assert {"TYPE_NARROWED #/properties/value"} <= set(kinds(tree({"type": "integer"}), tree({"type": "number"})))


def test_recursion_through_not() -> None:
    inner = {"not": {"properties": {"x": {"$ref": "#/definitions/a"}}}}
    once = {"$ref": "#/definitions/a", "definitions": {"a": inner}}
    assert [] == kinds({**once, "title": "x"}, once)


def test_a_schema_of_a_megabyte() -> None:
    def wide(length: int) -> dict[str, Any]:
        return {
            "properties": {f"property{index:06}": {"type": "string", "maxLength": length} for index in range(20_000)}
        }

    assert len(json.dumps(wide(5))) > 1_000_000
    assert [] == kinds(wide(9), wide(5))
    assert comparison.DIFFERENCES_MAX == len(kinds(wide(5), wide(9)))


def test_patterns_are_run_by_an_engine_that_does_not_backtrack() -> None:
    hostile = {"patternProperties": {"^(a|aa|a*)*$b": {"type": "string"}, "(x+x+)+y": {"type": "string"}}}
    assert ["PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"] == [
        text.split()[0] for text in kinds(hostile, {**hostile, "properties": {"a" * 50_000: {"type": "null"}}})
    ]


def test_patterns_cost_what_their_programs_and_the_names_cost() -> None:
    patterns = {f"(?:a?){{900}}x{number}": {"type": "string"} for number in range(20)}
    closed = {"patternProperties": patterns, "additionalProperties": False}
    names = {f"{'a' * 20_000}{number}": {"type": "string"} for number in range(3)}
    assert ["SCHEMAS_TOO_COMPLEX #/"] == kinds({**closed, "properties": names}, closed)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("3", "6", ["MULTIPLE_OF_EXPANDED #/multipleOf"]),
        ("6", "3", []),
        ("6", "4", ["MULTIPLE_OF_CHANGED #/multipleOf"]),
        ("0.5", "0.50", []),
        ("0.1", "0.3", ["MULTIPLE_OF_EXPANDED #/multipleOf"]),
        ("1e2000000000", "1e-2000000000", []),
        ("3e-2000000000", "1e2000000000", ["MULTIPLE_OF_CHANGED #/multipleOf"]),
    ],
)
def test_numbers_of_any_size_are_divided(old: str, new: str, expected: list[str]) -> None:
    reader, writer = (parse(f'{{"type":"number","multipleOf":{number}}}', {}) for number in (new, old))
    assert expected == [f"{found.kind} {found.path}" for found in reader.incompatibilities(writer)]


def test_a_union_of_resources_that_contain_each_other() -> None:
    """As in FHIR's schema: every resource may contain every other one, so one change is a change of all."""

    def resources(**change: Any) -> dict[str, Any]:
        union = {"oneOf": [{"$ref": f"#/definitions/r{index}"} for index in range(60)]}
        definitions: dict[str, Any] = {"any": union, "part": {"properties": {"note": {"type": "string"}}}}
        for index in range(60):
            parts = {f"part{part}": {"$ref": "#/definitions/part"} for part in range(30)}
            properties = {"kind": {"const": index}, **parts, "contained": {"items": {"$ref": "#/definitions/any"}}}
            definitions[f"r{index}"] = {"type": "object", "properties": properties, "additionalProperties": False}
        definitions["r7"]["properties"].update(change)
        return {**union, "definitions": definitions}

    assert [] == kinds(resources(more={"type": "string"}), resources())
    assert ["COMBINED_TYPE_SUBSCHEMAS_CHANGED #/"] == kinds(resources(kind={"const": 60}), resources())


def test_long_names_are_not_repeated_for_every_place() -> None:
    inner = {f"p{index}": {"type": "string", "confluent:tags": ["t"]} for index in range(2_000)}
    schema = {"properties": {"x" * 300_000: {"properties": inner}}}
    text, other = json.dumps(schema), json.dumps(schema).replace("string", "integer")
    tracemalloc.start()
    try:
        reader, writer = parse(text, {}), parse(other, {})
        found = reader.incompatibilities(writer)
        assert ({}, comparison.DIFFERENCES_MAX) == (reader.tags(), len(found))
        assert max(len(difference.message) for difference in found) < 5_000
        with pytest.raises(InvalidSchemaError) as error:
            parse(text.replace('"string"', "7"), {})
        assert len(str(error.value)) < 1_000
        assert tracemalloc.get_traced_memory()[1] < 100_000_000
    finally:
        tracemalloc.stop()
