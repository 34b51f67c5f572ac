"""Schemas: comparisons without a registry, and all pages on a real registry."""

import json
from typing import Any

import pytest

from ottla.console.services.schema_diff import compare, record_names
from ottla.console.services.schemas import parse_references, topics_using
from ottla.model.errors import InvalidRequestError


def order(*fields: dict[str, Any]) -> str:
    first = {"name": "id", "type": "string"}
    return json.dumps({"type": "record", "name": "Order", "namespace": "shop", "fields": [first, *fields]})


def changes(kind: str, old: str, new: str) -> list[tuple[str, str]]:
    found = compare(kind, old, kind, new).changes
    assert found is not None
    return [(each.kind, each.path) for each in found]


def test_avro_fields_are_compared_by_name() -> None:
    old = order({"name": "amount", "type": "int"}, {"name": "old", "type": "string"})
    new = order({"name": "amount", "type": ["null", "int"], "default": None}, {"name": "at", "type": "long"})
    assert [
        ("changed", "Order.amount.type"),
        ("added", "Order.amount.default"),
        ("removed", "Order.old"),
        ("added", "Order.at"),
    ] == changes("AVRO", old, new)


def test_avro_symbols_branches_and_order() -> None:
    kind = {"type": "enum", "name": "Kind"}
    old = order({"name": "k", "type": {**kind, "symbols": ["A", "B"]}}, {"name": "n", "type": ["null", "string"]})
    new = order(
        {"name": "n", "type": ["null", "string", "long"]}, {"name": "k", "type": {**kind, "symbols": ["A", "C"]}}
    )
    assert [
        ("removed", "Order.k.type.symbols.B"),
        ("added", "Order.k.type.symbols.C"),
        ("added", "Order.n.type.long"),
        ("changed", "Order (order)"),
    ] == changes("AVRO", old, new)


def test_protobuf_is_compared_by_message_and_field() -> None:
    old = 'syntax = "proto3"; package shop; message A { string id = 1; int32 n = 2; message B {} }'
    new = 'syntax = "proto3"; package shop; message A { string id = 1; int64 n = 2; oneof x { string y = 3; } }'
    assert [("changed", "A.n"), ("removed", "A.B"), ("added", "A.y")] == changes("PROTOBUF", old, new)


def test_json_schema_is_compared_by_property() -> None:
    old = '{"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}'
    new = '{"type": "object", "properties": {"a": {"type": "number"}, "b": {}}, "required": []}'
    assert [
        ("changed", "properties.a.type"),
        ("added", "properties.b"),
        ("removed", "required.a"),
    ] == changes("JSON", old, new)


def test_what_is_not_understood_is_compared_by_line() -> None:
    for old, new in (("{", "{}"), ('{"a":1}', "[")):
        diff = compare("AVRO", old, "AVRO", new)
        assert diff.changes is None
        assert diff.lines
    assert compare("AVRO", '"int"', "JSON", "{}").changes is None
    for depth in (200, 100_000):
        deep = '{"a":' * depth + "1" + "}" * depth
        assert compare("JSON", deep, "JSON", deep.replace("1", "2")).changes is None
    assert compare("AVRO", '"int"', "AVRO", ' "int" ').is_empty


def test_lines_have_both_numbers_and_say_what_is_left_out() -> None:
    old = json.dumps([str(each) for each in range(40)])
    new = old.replace('"20"', '"twenty"')
    lines = compare("JSON", old, "JSON", new).lines
    assert "…" == lines[0].sign
    assert [("-", 22, None), ("+", None, 22)] == [
        (each.sign, each.old, each.new) for each in lines if each.sign in "+-"
    ]


def test_topics_by_naming_strategy() -> None:
    def found(subject: str, *names: str) -> list[tuple[str, str, bool | None]]:
        return [
            (each.topic, each.strategy, each.exists) for each in topics_using(subject, names, ["orders", "a-value"])
        ]

    assert [("orders", "TopicNameStrategy", True)] == found("orders-value")
    assert [("payments", "TopicNameStrategy", False)] == found("payments-key")
    assert [("orders", "TopicNameStrategy", True)] == found(":.staging:orders-value", "shop.Order")
    assert [("orders", "TopicRecordNameStrategy", True)] == found("orders-shop.Order", "shop.Order")
    assert [] == found("shop.Order", "shop.Order")
    assert [] == found("-value")
    assert [("x", "TopicNameStrategy", None)] == [
        (each.topic, each.strategy, each.exists) for each in topics_using("x-value", (), None)
    ]


def test_record_names() -> None:
    assert ["shop.Order"] == record_names("AVRO", order())
    assert [] == record_names("AVRO", '"string"')
    assert ["p.A", "p.A.B"] == record_names("PROTOBUF", "package p; message A { message B {} }")
    assert ["T"] == record_names("JSON", '{"title": "T"}')
    assert [] == record_names("AVRO", "{")


def test_references_are_read_one_on_each_line() -> None:
    found = parse_references("other.proto = :.ctx:other : 3\n\na=b:1\n")
    assert [("other.proto", ":.ctx:other", 3), ("a", "b", 1)] == [(e.name, e.subject, e.version) for e in found]
    for wrong in ("a", "a=b", "a=b:x", "=b:1"):
        with pytest.raises(InvalidRequestError, match="NAME=SUBJECT:VERSION"):
            parse_references(wrong)
