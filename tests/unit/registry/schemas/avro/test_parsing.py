"""Which texts are Avro schemas. `tests/compat/registry` compares the same with Avro's Java library."""

import json
from typing import Any

import pytest

from ottla.registry.schemas.avro.avro_schema import parse, parse_new
from ottla.registry.schemas.avro.avro_types import NESTING_MAX
from ottla.registry.schemas.parsed_schema import InvalidSchemaError


def record(*fields: Any, name: str = "R", **more: Any) -> str:
    return json.dumps({"type": "record", "name": name, "fields": list(fields), **more})


def field(type: Any, **more: Any) -> dict[str, Any]:
    return {"name": "f", "type": type, **more}


REFUSED = {
    "null": ("null", "is not a type"),
    "half a surrogate pair": (record(doc="\ud800"), "half of a surrogate pair"),
    "half a surrogate pair in a default": (record(field("string", default="a\udfffb")), "half of a surrogate pair"),
    "number": ("5", "is not a type"),
    "unknown name": ('"Order"', "type Order is not defined"),
    "no type": ("{}", "has no type"),
    "type is an object": ('{"type":{"type":"int"}}', "has no type"),
    "unknown type": ('{"type":"decimal"}', "type decimal is not defined"),
    "no name": ('{"type":"record","fields":[]}', "has no name"),
    "name is a number": ('{"type":"record","name":5,"fields":[]}', "has no name"),
    "no fields": ('{"type":"record","name":"R"}', "no list of fields"),
    "field without name": (record({"type": "int"}), "has no name"),
    "field is a string": (record("int"), "has no name"),
    "field without type": (record({"name": "f"}), "field f of record R has no type"),
    "field of unknown type": (record(field("Other")), "type Other is not defined"),
    "field twice": (record(field("int"), field("long")), "two fields f"),
    "order": (record(field("int", order="up")), "ascending, descending or ignore"),
    "aliases": (record(field("int", aliases="a")), "not a list"),
    "alias": (record(aliases=[1]), "alias that is not a string"),
    "array without items": ('{"type":"array"}', "no items"),
    "map without values": ('{"type":"map"}', "no values"),
    "enum without symbols": ('{"type":"enum","name":"E"}', "no list of symbols"),
    "symbol twice": ('{"type":"enum","name":"E","symbols":["A","A"]}', "symbol A twice"),
    "symbol is a number": ('{"type":"enum","name":"E","symbols":[1]}', "not a string"),
    "enum default": ('{"type":"enum","name":"E","symbols":["A"],"default":"B"}', "not one of its symbols"),
    "fixed without size": ('{"type":"fixed","name":"F"}', "has no size"),
    "fixed of negative size": ('{"type":"fixed","name":"F","size":-1}', "has no size"),
    "fixed of half a byte": ('{"type":"fixed","name":"F","size":0.5}', "has no size"),
    "fixed of true": ('{"type":"fixed","name":"F","size":true}', "has no size"),
    "union in a union": ('["int",["string"]]', "must not contain a union"),
    "union with a type twice": ('["int","int"]', "contains int twice"),
    "union with two arrays": ('[{"type":"array","items":"int"},{"type":"array","items":"long"}]', "array twice"),
    "union with itself twice": (record(field(["R", "R"])), "contains R twice"),
    "primitive name": (record(name="int"), "primitive type int"),
    "defined twice": (record(field({"type": "fixed", "name": "R", "size": 1})), "defined twice"),
    "float default": (record(field("float", default="x")), "is not a number"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "reason"), REFUSED.values(), ids=REFUSED)
def test_refused(text: str, reason: str) -> None:
    for parser in (parse_new, parse):
        with pytest.raises(InvalidSchemaError, match=reason):
            parser(text, {})


REFUSED_IF_NEW = {
    "name": record(name="ä"),
    "namespace": record(name="a-b.R"),
    "empty part of a namespace": record(name="a..R"),
    "field name": record(field("int", name="f") | {"name": "é"}),
    "symbol": '{"type":"enum","name":"E","symbols":["ß"]}',
    "alias": record(aliases=["a-b"]),
    "default of another type": record(field("int", default="x")),
    "default beyond 32 bits": record(field("int", default=2**31)),
    "default that is a fraction": record(field("long", default=1.0)),
    "default null without null": record(field("string", default=None)),
    "default of no branch": record(field(["null", "int"], default="x")),
    "default of an array": record(field({"type": "array", "items": "int"}, default=["x"])),
    "default of a map": record(field({"type": "map", "values": "int"}, default={"k": "x"})),
    "default without a field": record(field(json.loads(record(field("int"), name="In")), default={})),
    "default without end": record(field("R", default={})),
}


@pytest.mark.parametrize("text", REFUSED_IF_NEW.values(), ids=REFUSED_IF_NEW)
def test_refused_only_if_new(text: str) -> None:
    with pytest.raises(InvalidSchemaError):
        parse_new(text, {})
    parse(text, {})


def test_names_that_are_never_valid() -> None:
    for text in (record(name="1a"), record(name="a b"), record({"name": "😀", "type": "int"})):
        with pytest.raises(InvalidSchemaError, match="not a valid"):
            parse(text, {})


ACCEPTED = {
    "a name before its definition": record(
        {"name": "a", "type": ["null", "Later"]}, {"name": "b", "type": {"type": "fixed", "name": "Later", "size": 1}}
    ),
    "defined twice alike": record(
        {"name": "a", "type": {"type": "fixed", "name": "F", "size": 1, "p": {"a": 1, "b": 2}}},
        {"name": "b", "type": {"type": "fixed", "name": "F", "size": 1, "p": {"b": 2, "a": 1}, "doc": "x"}},
    ),
    "default of a later branch": record(field(["null", "int"], default=5)),
    "default from the fields": record(field(json.loads(record(field("int", default=1), name="In")), default={})),
    "default of a recursive type": record(field(["R", "null"], default={"f": None})),
    "empty union": "[]",
    "type of the null namespace": record(
        {"name": "a", "type": {"type": "fixed", "name": "F", "namespace": "", "size": 1}},
        {"name": "b", "type": "F"},
        name="n.R",
    ),
    "doc that is not a string": record(doc=5, namespace=None),
    "enum default that is not a string": '{"type":"enum","name":"E","symbols":["A"],"default":5}',
}


@pytest.mark.parametrize("text", ACCEPTED.values(), ids=ACCEPTED)
def test_accepted(text: str) -> None:
    parse_new(text, {})
    parse(text, {})


def test_types_of_references_can_be_used_by_name() -> None:
    inner = '{"type":"enum","name":"shop.Colour","symbols":["RED"]}'
    outer = '{"type":"record","name":"shop.Item","fields":[{"name":"colour","type":"Colour"}]}'
    schema = parse_new(record(field("shop.Item")), {"shop.Colour": inner, "shop.Item": outer})
    assert record(field("shop.Item")).replace(" ", "") == schema.canonical_text
    assert '"symbols":["RED"]' in schema.formatted("resolved")
    with pytest.raises(InvalidSchemaError, match=r"reference shop\.Item: type shop\.Colour is not defined"):
        parse_new(record(field("shop.Item")), {"shop.Item": outer})


def test_a_reference_that_is_defined_differently_in_the_schema() -> None:
    with pytest.raises(InvalidSchemaError, match="F is defined twice, and differently"):
        parse_new(
            record(field({"type": "fixed", "name": "F", "size": 2})), {"F": '{"type":"fixed","name":"F","size":1}'}
        )


@pytest.mark.parametrize("depth", [NESTING_MAX + 1, 5_000, 200_000])
def test_nested_too_deep(depth: int) -> None:
    for text in (
        '{"type":"array","items":' * depth + '"int"' + "}" * depth,
        "[" * depth + "]" * depth,
        record(field("int", default=json.loads("[" * 101 + "]" * 101))),
    ):
        with pytest.raises(InvalidSchemaError, match="nested"):
            parse(text, {})


def test_nested_as_deep_as_allowed() -> None:
    depth = NESTING_MAX - 1
    text = '{"type":"array","items":' * depth + '"int"' + "}" * depth
    assert text == parse_new(text, {}).normalized_text()


def test_nested_too_deep_by_names() -> None:
    types = [
        {"type": "record", "name": f"R{n}", "fields": [{"name": "f", "type": f"R{n + 1}"}]} for n in range(NESTING_MAX)
    ]
    types.append({"type": "record", "name": f"R{NESTING_MAX}", "fields": []})
    with pytest.raises(InvalidSchemaError, match="nested in each other"):
        parse_new(json.dumps(types), {})
    parse_new(json.dumps(types[::-1]), {})


def test_a_thousand_references_nested_in_each_other() -> None:
    references = {"R0": '{"type":"record","name":"R0","fields":[]}'}
    for n in range(1, 1000):
        references[f"R{n}"] = record(field(f"R{n - 1}"), name=f"R{n}")
    schema = parse_new(record(field("R999"), name="Top"), references)
    assert schema.canonical_text == schema.normalized_text()
    assert 1001 == schema.formatted("resolved").count('"name":"R') + 1


def test_defaults_that_double_with_each_type_are_checked_once() -> None:
    types: list[Any] = [{"type": "record", "name": "R0", "fields": []}]
    for n in range(1, 100):
        fields = [{"name": each, "type": f"R{n - 1}", "default": {}} for each in "ab"]
        types.append({"type": "record", "name": f"R{n}", "fields": fields})
    parse_new(json.dumps(types), {})


def test_defaults_of_unions_of_thousands_end() -> None:
    branches = [{"type": "record", "name": f"R{n}", "fields": [field(["R0", "R1", "R2"])]} for n in range(2000)]
    value: Any = {}
    for _ in range(90):
        value = {"f": value}
    types = {"type": "record", "name": "Top", "fields": [field(branches, default=value)]}
    with pytest.raises(InvalidSchemaError, match=r"does not fit|too complex"):
        parse_new(json.dumps(types), {})
