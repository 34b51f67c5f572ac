"""Which schemas can read what others wrote, and what is said if not."""

import json
from typing import Any

import pytest

from ottla.registry.schemas.avro.avro_schema import parse
from ottla.registry.schemas.parsed_schema import Incompatibility


def found(reader: Any, writer: Any) -> list[tuple[str, str]]:
    return [(each.kind, each.path) for each in reasons(reader, writer)]


def reasons(reader: Any, writer: Any) -> list[Incompatibility]:
    return list(parse(json.dumps(reader), {}).incompatibilities(parse(json.dumps(writer), {})))


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(name: str, type: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": type, **more}


def enum(*symbols: str, name: str = "E", **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": name, "symbols": list(symbols), **more}


def fixed(size: int, name: str = "F", **more: Any) -> dict[str, Any]:
    return {"type": "fixed", "name": name, "size": size, **more}


READABLE = {("long", "int"), ("float", "int"), ("float", "long"), ("double", "int"), ("double", "long"),
            ("double", "float"), ("string", "bytes"), ("bytes", "string")}  # fmt: skip
PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")


@pytest.mark.parametrize("reader", PRIMITIVES)
@pytest.mark.parametrize("writer", PRIMITIVES)
def test_primitives(reader: str, writer: str) -> None:
    expected = [] if reader == writer or (reader, writer) in READABLE else [("TYPE_MISMATCH", "/")]
    assert expected == found(reader, writer)


CASES: dict[str, tuple[Any, Any, list[tuple[str, str]]]] = {
    "a new field with default": (record(field("a", "int", default=1)), record(), []),
    "a new field without default": (
        record(field("a", "int")), record(), [("READER_FIELD_MISSING_DEFAULT_VALUE", "/fields/0")]),
    "a removed field": (record(), record(field("a", "int")), []),
    "a changed field": (
        record(field("a", "int"), field("b", "int")), record(field("b", "string"), field("a", "int")),
        [("TYPE_MISMATCH", "/fields/1/type")]),
    "a renamed field": (record(field("b", "int", aliases=["a"])), record(field("a", "int")), []),
    "a renamed record": (record(name="S"), record(), [("NAME_MISMATCH", "/name")]),
    "a renamed record with alias": (record(name="S", aliases=["R"]), record(), []),
    "another namespace": (record(namespace="x"), record(namespace="y"), []),
    "an alias of the null namespace does not count inside of one": (
        record(name="x.S", aliases=[".R"]), record(), [("NAME_MISMATCH", "/name")]),
    "symbols removed": (enum("A"), enum("A", "B", "C"), [("MISSING_ENUM_SYMBOLS", "/symbols")]),
    "symbols removed with default": (enum("A", default="A"), enum("A", "B"), []),
    "a new field of an enum with default": (
        record(field("a", enum("A", default="A"))), record(), [("TYPE_MISMATCH", "/fields/0/type")]),
    "fixed size": (fixed(2), fixed(4), [("FIXED_SIZE_MISMATCH", "/size")]),
    "fixed name and size": (
        fixed(2, "G"), fixed(4), [("NAME_MISMATCH", "/name"), ("FIXED_SIZE_MISMATCH", "/size")]),
    "items": ({"type": "array", "items": "int"}, {"type": "array", "items": "long"}, [("TYPE_MISMATCH", "/items")]),
    "values": ({"type": "map", "values": "int"}, {"type": "map", "values": "long"}, [("TYPE_MISMATCH", "/values")]),
    "a map for an array": (
        {"type": "map", "values": "int"}, {"type": "array", "items": "int"}, [("TYPE_MISMATCH", "/")]),
    "a union of more": (["null", "int", "string"], ["string", "null"], []),
    "a union of less": (["null"], ["null", "int", "boolean"],
                        [("MISSING_UNION_BRANCH", "/1"), ("MISSING_UNION_BRANCH", "/2")]),
    "a union for one": (["null", "long"], "int", []),
    "a union without the one": (["null", "int"], "long", [("MISSING_UNION_BRANCH", "/")]),
    "one for a union": ("int", ["null", "int"], [("TYPE_MISMATCH", "/0")]),
    "one for a union of one": ("double", ["int", "float"], []),
    "an empty union reads nothing": ([], "int", [("MISSING_UNION_BRANCH", "/")]),
    "everything reads an empty union": ("int", [], []),
    "a branch by its alias": ([record(name="S", aliases=["R"])], [record()], []),
    "a recursive record": (
        record(field("v", "long"), field("next", ["null", "R"])),
        record(field("v", "int"), field("next", ["null", "R"])), []),
    "a recursive record that changed": (
        record(field("v", "int"), field("next", ["null", "R"])),
        record(field("v", "long"), field("next", ["null", "R"])),
        [("TYPE_MISMATCH", "/fields/0/type")]),
    "a pair of types that comes twice has the place of the first time": (
        record(field("a", fixed(1)), field("b", "F")), record(field("a", fixed(2)), field("b", "F")),
        [("FIXED_SIZE_MISMATCH", "/fields/0/type/size")] * 2),
    "a field that could be two fields": (
        record(field("a", "int", aliases=["b"])), record(field("a", "int"), field("b", "int")),
        [("READER_FIELD_AMBIGUOUS", "/fields/0")]),
}  # fmt: skip


@pytest.mark.parametrize(("reader", "writer", "expected"), CASES.values(), ids=CASES)
def test_cases(reader: Any, writer: Any, expected: list[tuple[str, str]]) -> None:
    assert expected == found(reader, writer)


def test_reasons_are_sentences() -> None:
    reader = record(
        field("a", "int"),
        field("c", fixed(1)),
        field("d", enum("A")),
        field("e", ["null"]),
        field("f", "int"),
        name="S",
    )
    writer = record(
        field("c", fixed(2, "G")),
        field("d", enum("A", "B")),
        field("e", enum("X", name="n.Y")),
        field("f", record(name="T")),
    )
    assert [
        "The reader's record S has another name than the writer's R, and no alias for it.",
        "The reader's field a of record S has no default, and the writer's record R has no such field.",
        "The reader's fixed F has another name than the writer's G, and no alias for it.",
        "The reader's fixed F has 1 bytes, the writer's has 2.",
        "The reader's enum E has no default, and lacks symbols that the writer's has: B.",
        "No branch of the reader's union can read the writer's type enum n.Y.",
        "The reader's type int cannot read the writer's type record T.",
    ] == [each.message for each in reasons(reader, writer)]


def test_unions_of_thousands() -> None:
    union = [record(name=f"R{n}") for n in range(5000)]
    assert [] == found(union, list(reversed(union)))
    assert [("MISSING_UNION_BRANCH", "/4999")] == found(union[:-1], union)


def test_types_that_use_each_other_in_cycles() -> None:
    def cycle(length: int) -> list[Any]:
        return [
            record(field("a", ["null", f"R{(n + 1) % length}"]), name=f"R{n}", aliases=[f"R{m}" for m in range(300)])
            for n in range(length)
        ]

    assert [] == found(cycle(71), cycle(67))


@pytest.mark.slow
def test_schemas_that_are_too_complex_are_refused() -> None:
    reader = [enum("A", name=f"n{n}.E") for n in range(1500)]
    writer = [enum("B", name=f"n{n}.E") for n in range(1500)]
    assert [("TOO_COMPLEX", "/")] == found(reader, writer)


def test_reasons_that_double_with_each_type_are_limited() -> None:
    def types(inner: str) -> Any:
        made: list[Any] = [record(field("v", inner), name="R0")]
        made.extend(record(field("a", f"R{n}"), field("b", f"R{n}"), name=f"R{n + 1}") for n in range(39))
        return record(field("types", {"type": "map", "values": made}), field("top", "R39"), name="Top")

    assert 1000 == len(found(types("int"), types("long")))


def test_schemas_of_a_megabyte() -> None:
    fields = [field(f"field_{n}", ["null", "string"], default=None, doc="x" * 40) for n in range(9000)]
    one, other = record(*fields), record(*reversed(fields))
    assert 1_000_000 < len(json.dumps(one))
    assert [] == found(one, other)
