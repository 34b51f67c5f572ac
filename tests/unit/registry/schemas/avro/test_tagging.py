"""Tags inside Avro schemas, and which schemas are equivalent."""

import json
from typing import Any

import pytest

from ottla.registry.schemas.avro.avro_schema import parse_new
from ottla.registry.schemas.parsed_schema import InvalidSchemaError, SchemaEntity

INNER: dict[str, Any] = {
    "type": "record",
    "name": "Inner",
    "fields": [{"name": "secret", "type": "string", "confluent:tags": ["PII", "PII"]}],
}
ORDER: dict[str, Any] = {
    "type": "record",
    "name": "shop.Order",
    "confluent:tags": ["A"],
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "inner", "type": ["null", {"type": "array", "items": INNER}], "confluent:tags": ["B", "C"]},
    ],
}


def record(path: str) -> SchemaEntity:
    return SchemaEntity(path, "sr_record")


def field(path: str) -> SchemaEntity:
    return SchemaEntity(path, "sr_field")


def test_tags_are_found() -> None:
    assert [
        (record("shop.Order"), ["A"]),
        (field("shop.Order.inner"), ["B", "C"]),
        (field("shop.Inner.secret"), ["PII"]),
    ] == list(parse_new(json.dumps(ORDER), {}).tags().items())


def test_tags_are_added_and_removed() -> None:
    schema = parse_new(json.dumps(ORDER), {})
    before = schema.canonical_text
    text = schema.with_tags(
        {record("Inner"): ["NEW"], field("shop.Order.id"): ["X", "Y"], field("shop.Order.inner"): ["D"]},
        {record("shop.Order"): ["A"], field("shop.Order.inner"): ["B", "D"], field("shop.Order.id"): ["Y"]},
    )
    assert {
        record("shop.Inner"): ["NEW"],
        field("shop.Order.id"): ["X"],
        field("shop.Order.inner"): ["C"],
        field("shop.Inner.secret"): ["PII"],
    } == parse_new(text, {}).tags()
    assert before == schema.canonical_text
    assert text == parse_new(text, {}).canonical_text


@pytest.mark.parametrize("entity", [record("Other"), field("shop.Order.missing"), record("x.Order"), field("id")])
def test_places_that_do_not_exist(entity: SchemaEntity) -> None:
    with pytest.raises(InvalidSchemaError, match=f"the schema has no (record|field) {entity.entity_path}"):
        parse_new(json.dumps(ORDER), {}).with_tags({entity: ["X"]}, {})


def test_types_of_references_cannot_be_tagged() -> None:
    main = '{"type":"record","name":"Main","fields":[{"name":"i","type":"Inner"}]}'
    schema = parse_new(main, {"Inner": json.dumps(INNER)})
    assert [field("Inner.secret")] == list(schema.tags())
    with pytest.raises(InvalidSchemaError, match="has no record Inner"):
        schema.with_tags({record("Inner"): ["X"]}, {})


def test_fields_of_the_outermost_record() -> None:
    schema = parse_new(json.dumps(ORDER), {})
    assert [True, False] == [schema.has_top_level_field(each) for each in ("id", "secret")]
    assert not parse_new('"int"', {}).has_top_level_field("id")


SAME = {
    "order of properties": ('{"type":"int","a":1,"b":{"x":1,"y":2}}', '{"type":"int","b":{"y":2,"x":1},"a":1}'),
    "order of aliases": (
        '{"type":"fixed","name":"F","size":1,"aliases":["A","B"]}',
        '{"type":"fixed","name":"F","size":1,"aliases":["B","A"]}',
    ),
    "error and record": ('{"type":"error","name":"E","fields":[]}', '{"type":"record","name":"E","fields":[]}'),
    "order of a default": (
        '{"type":"record","name":"R","fields":[{"name":"f","type":{"type":"map","values":"int"},"default":{"a":1,"b":2}}]}',
        '{"type":"record","name":"R","fields":[{"name":"f","type":{"type":"map","values":"int"},"default":{"b":2,"a":1}}]}',
    ),
}  # fmt: skip
DIFFERENT = {
    "a doc": ('{"type":"fixed","name":"F","size":1}', '{"type":"fixed","name":"F","size":1,"doc":""}'),
    "a property": ('{"type":"int","a":1}', '{"type":"int","a":1.0}'),
    "a namespace": ('{"type":"fixed","name":"a.F","size":1}', '{"type":"fixed","name":"F","size":1}'),
    "order of fields": (
        '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"b","type":"int"}]}',
        '{"type":"record","name":"R","fields":[{"name":"b","type":"int"},{"name":"a","type":"int"}]}',
    ),
}


@pytest.mark.parametrize(("one", "other"), SAME.values(), ids=SAME)
def test_equivalent(one: str, other: str) -> None:
    assert parse_new(one, {}).is_equivalent(parse_new(other, {}))
    assert parse_new(one, {}).canonical_text != parse_new(other, {}).canonical_text


@pytest.mark.parametrize(("one", "other"), DIFFERENT.values(), ids=DIFFERENT)
def test_not_equivalent(one: str, other: str) -> None:
    assert not parse_new(one, {}).is_equivalent(parse_new(other, {}))


def test_references_resolved_differently_are_equivalent() -> None:
    inline = {"type": "record", "name": "Main", "fields": [{"name": "i", "type": INNER}]}
    by_name = {"type": "record", "name": "Main", "fields": [{"name": "i", "type": "Inner"}]}
    one = parse_new(json.dumps(inline), {})
    other = parse_new(json.dumps(by_name), {"Inner": json.dumps(INNER)})
    assert one.is_equivalent(other)
    assert one.canonical_text != other.canonical_text


def test_the_same_text_with_other_references_is_another_schema() -> None:
    main = '{"type":"record","name":"Main","fields":[{"name":"i","type":"F"}]}'
    one, other = (parse_new(main, {"F": f'{{"type":"fixed","name":"F","size":{size}}}'}) for size in (1, 2))
    assert one.canonical_text == other.canonical_text
    assert not one.is_equivalent(other)
