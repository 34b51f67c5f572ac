"""Named cases: the rules in short, what differs from other registries, and what must stay bounded."""

import base64
import time

import pytest
from google.protobuf import descriptor_pb2

from ottla.registry.schemas.parsed_schema import InvalidSchemaError, SchemaEntity
from ottla.registry.schemas.protobuf.known_files import KNOWN_PATHS, known_file
from ottla.registry.schemas.protobuf.protobuf_schema import parse as parse_registered
from ottla.registry.schemas.protobuf.protobuf_schema import parse_new as parse

SECONDS_MAX = 20.0
"""Far above what any text here takes on an idle machine, far below what a quadratic algorithm would take."""


def _findings(writer: str, reader: str) -> list[tuple[str, str]]:
    return [(f.kind, f.path) for f in parse(reader, {}).incompatibilities(parse(writer, {}))]


# Texts


def test_the_layout() -> None:
    text = """
    // A comment.
    syntax = "proto3"; package shop;
    import "google/protobuf/timestamp.proto";
    option java_package = "com.shop";
    enum Kind { NEW = 0; }
    message Order {
      message Line { string sku = 1; int32 count = 2; }
      repeated Line lines = 2; string id = 1 [deprecated = true, json_name = "ID"];
      oneof paid { google.protobuf.Timestamp at = 3; bool never = 4; }
      map<string, Line> by_sku = 5;
    }
    """
    expected = """\
syntax = "proto3";
package shop;

import "google/protobuf/timestamp.proto";

option java_package = "com.shop";

message Order {
  repeated Line lines = 2;
  string id = 1 [
    deprecated = true,
    json_name = "ID"
  ];
  map<string, Line> by_sku = 5;

  oneof paid {
    google.protobuf.Timestamp at = 3;
    bool never = 4;
  }

  message Line {
    string sku = 1;
    int32 count = 2;
  }
}
enum Kind {
  NEW = 0;
}
"""
    assert expected == parse(text, {}).canonical_text


def test_normalized_texts_of_equal_schemas_are_equal() -> None:
    one = parse('syntax = "proto2"; package p; message A { optional B b = 2; optional int32 a = 1; } message B {}', {})
    two = parse("package p; message A { optional int32 a = 0x1; optional .p.B b = 2; } message B {}", {})
    assert one.canonical_text != two.canonical_text
    assert one.normalized_text() == two.normalized_text()


@pytest.mark.parametrize("format", ["", "default", "resolved", "DEFAULT", "unknown"])
def test_an_unknown_format_is_the_canonical_text(format: str) -> None:
    schema = parse("message A{}", {})
    assert schema.canonical_text == schema.formatted(format)


def test_names_of_formats_may_be_in_upper_case() -> None:
    schema = parse("message A{}", {})
    assert schema.canonical_text != schema.formatted("SERIALIZED") == schema.formatted("serialized")


def test_an_empty_text_is_an_empty_file() -> None:
    assert "" == parse("", {}).canonical_text


# Where our texts differ from those of Confluent's registry, which would be another schema


def test_weak_imports_are_kept() -> None:
    text = 'import weak "google/protobuf/any.proto"; message A { optional google.protobuf.Any a = 1; }'
    again = parse(parse(text, {}).canonical_text, {})
    assert 'import weak "google/protobuf/any.proto";' in again.canonical_text


def test_editions_are_kept() -> None:
    schema = parse('edition = "2023"; message A { int32 a = 1 [features.field_presence = IMPLICIT]; reserved b; }', {})
    for text in (schema.canonical_text, schema.normalized_text()):
        assert text.startswith('edition = "2023";\n')
        assert "reserved b;" in text
        assert parse(text, {}).canonical_text == text


def test_defaults_of_bytes_are_quoted() -> None:
    schema = parse('message A { optional bytes a = 1 [default = "x\\377\\000"]; }', {})
    assert '[default = "x\\377\0"]' in schema.canonical_text
    assert "x\\377\\000" == schema.file_descriptor("a").message_type[0].field[0].default_value


def test_normalized_numbers_keep_their_digits() -> None:
    schema = parse(
        "message A { optional double a = 1 [default = 3.14159265]; optional int32 b = 2 [default = 0x10]; }", {}
    )
    assert "default = 3.14159265" in schema.normalized_text()
    assert "default = 16" in schema.normalized_text()


def test_a_number_beyond_all_doubles_keeps_its_spelling() -> None:
    schema = parse("message A { optional double a = 1 [default = 1e999999999]; }", {})
    assert "default = 1e999999999" in schema.normalized_text()


def test_unicode_escapes_are_read() -> None:
    schema = parse('message A { optional string a = 1 [default = "\\u00e9\\xc3\\xa9"]; }', {})
    assert '"éé"' in schema.canonical_text


# Descriptors


def test_a_descriptor_in_base64_is_a_schema() -> None:
    proto = descriptor_pb2.FileDescriptorProto(name="a.proto", package="p", syntax="proto3")
    message = proto.message_type.add(name="A")
    message.field.add(name="ms", number=1, label=3, type=11, type_name=".p.A.MsEntry")
    entry = message.nested_type.add(name="MsEntry")
    entry.field.add(name="key", number=1, label=1, type=9)
    entry.field.add(name="value", number=2, label=1, type=5)
    entry.options.map_entry = True
    blank = "  "  # Empty lines are indented with what is around them.
    schema = parse(base64.b64encode(proto.SerializeToString()).decode(), {})
    expected = f"""\
syntax = "proto3";
package p;

message A {{
  repeated .p.A.MsEntry ms = 1;

  message MsEntry {{
    option map_entry = true;
{blank}
    string key = 1;
    int32 value = 2;
  }}
}}
"""
    assert expected == schema.canonical_text
    assert "map<string, int32> ms = 1;" in schema.normalized_text()
    assert schema.canonical_text == parse(schema.canonical_text, {}).canonical_text
    as_text = parse('syntax = "proto3"; package p; message A { map<string, int32> ms = 1; }', {})
    assert schema.normalized_text() == as_text.normalized_text()
    assert [] == list(schema.incompatibilities(as_text))
    assert [] == list(as_text.incompatibilities(schema))


def test_confluents_options_of_a_descriptor_are_in_the_text() -> None:
    text = """
      syntax = "proto3"; import "confluent/meta.proto";
      message A {
        int32 a = 1 [(confluent.field_meta) = {
          doc: "d"
          params: [{ key: "b", value: "1" }, { key: "a", value: "2" }, { key: "scale", value: "3" }]
          tags: "PII"
        }];
      }
    """
    schema = parse(parse(text, {}).formatted("serialized"), {})
    assert schema.canonical_text.index('key: "b"') < schema.canonical_text.index('key: "a"')
    assert 'value: "3",\n' in schema.canonical_text
    assert '"PII"' in schema.canonical_text


def test_base64_that_is_not_a_descriptor_is_refused() -> None:
    for text in ("abc", "AAAA", "message", base64.b64encode(b"\xff" * 20).decode()):
        with pytest.raises(InvalidSchemaError):
            parse(text, {})


def test_nested_messages_come_before_those_of_maps_and_groups() -> None:
    """The indexes of messages in a record's frame count only what is written as a message."""
    text = "message A { map<string, B> m = 1; optional group G = 2 {} message B {} message C {} }"
    nested = parse(text, {}).file_descriptor("a").message_type[0].nested_type
    assert ["B", "C", "MEntry", "G"] == [message.name for message in nested]


# Imports


def test_references_are_found_by_import_path() -> None:
    text = 'syntax = "proto3"; import "b.proto"; message A { b.B b = 1; }'
    reference = 'syntax = "proto3"; package b; message B {}'
    schema = parse(text, {"b.proto": reference})
    assert "  .b.B b = 1;" in schema.normalized_text()
    assert ["b.proto"] == [file.name for file in schema.import_descriptors()]


def test_a_public_import_passes_on_what_it_imports() -> None:
    references = {"c.proto": "message C {}", "b.proto": 'import public "c.proto";', "d.proto": 'import "c.proto";'}
    text = 'import "%s"; message A { optional C c = 1; }'
    parse(text % "b.proto", references)
    with pytest.raises(InvalidSchemaError, match=r"type C of field c is not defined; C is defined in c\.proto"):
        parse(text % "d.proto", references)


def test_a_missing_import_is_refused_only_if_a_type_is_needed() -> None:
    parse('import "buf/validate.proto"; message A { optional int32 a = 1 [(buf.field).required = true]; }', {})
    with pytest.raises(InvalidSchemaError, match=r"no reference for the import b\.proto"):
        parse('import "b.proto"; message A { optional B b = 1; }', {})


def test_imports_in_a_circle_are_refused() -> None:
    with pytest.raises(InvalidSchemaError, match="import each other"):
        parse('import "a.proto";', {"a.proto": 'import "b.proto";', "b.proto": 'import "a.proto";'})


def test_an_error_in_a_reference_names_it() -> None:
    with pytest.raises(InvalidSchemaError, match=r"reference b\.proto: line 1, column 1"):
        parse('import "b.proto";', {"b.proto": "mesage B {}"})


@pytest.mark.parametrize("path", sorted(KNOWN_PATHS))
def test_known_files_can_be_imported(path: str) -> None:
    parse(f'syntax = "proto3"; import "{path}";', {})
    assert known_file(path).package


# Errors


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("message A {\n  optional int32 a = 1\n}", "line 3, column 1: expected ';' but found '}'"),
        ("message A {", "line 1, column 12: expected 'required', 'optional' or 'repeated' but the text ends"),
        (
            'message A { optional string a = 1 [default = "x]; }',
            "line 1, column 46: the string is not closed on its line",
        ),
        ("/* ", "line 1, column 1: the comment is not closed"),
        (
            "message A { optional int32 a = 1; optional int32 b = 1; }",
            "line 1, column 35: number 1 of field b is already used by field a",
        ),
        ('syntax = "proto3"; enum E { A = 1; }', "the first value of enum E must be 0"),
        ("message A { optional Nothing a = 1; }", "line 1, column 13: type Nothing of field a is not defined"),
        ("message A { optional int32 a = 1 [(x) = 1]; }", "line 1, column 35: option (x) is not known"),
        ("package a; message B {} message B {}", "the name a.B is already defined"),
    ],
)
def test_errors_say_what_is_wrong_and_where(text: str, message: str) -> None:
    with pytest.raises(InvalidSchemaError) as raised:
        parse(text, {})
    assert message in str(raised.value)


# Compatibility


@pytest.mark.parametrize(
    ("writer", "reader", "expected"),
    [
        ("optional int32 a = 1;", "optional int64 renamed = 1;", []),
        ("optional int32 a = 1;", "optional E a = 1;", []),
        ("optional string a = 1;", "repeated bytes a = 1;", []),
        ("optional int32 a = 1;", "", []),
        ("optional int32 a = 1;", "optional sint32 a = 1;", [("FIELD_SCALAR_KIND_CHANGED", "#/A/1")]),
        ("optional int32 a = 1;", "repeated int32 a = 1;", [("FIELD_NUMERIC_LABEL_CHANGED", "#/A/1")]),
        ("optional int32 a = 1;", "optional B a = 1;", [("FIELD_KIND_CHANGED", "#/A/1")]),
        ("optional B a = 1;", "optional C a = 1;", [("FIELD_NAMED_TYPE_CHANGED", "#/A/1")]),
        ("map<string, B> a = 1;", "map<string, C> a = 1;", [("FIELD_NAMED_TYPE_CHANGED", "#/A/1")]),
        ("map<string, B> a = 1;", "repeated B a = 1;", [("FIELD_KIND_CHANGED", "#/A/1")]),
        ("", "required int32 a = 1;", [("REQUIRED_FIELD_ADDED", "#/A/1")]),
        ("required int32 a = 1;", "", [("REQUIRED_FIELD_REMOVED", "#/A/1")]),
        ("oneof o { int32 a = 1; int32 b = 2; }", "oneof o { int32 a = 1; }", [("ONEOF_FIELD_REMOVED", "#/A/o/2")]),
        ("oneof o { int32 a = 1; int32 b = 2; }", "", []),
        ("optional int32 a = 1;", "oneof o { int32 a = 1; }", []),
        (
            "optional int32 a = 1; optional int32 b = 2;",
            "oneof o { int32 a = 1; int32 b = 2; }",
            [("MULTIPLE_FIELDS_MOVED_TO_ONEOF", "#/A/o")],
        ),
        (
            "optional int32 a = 1; oneof o { int32 b = 2; }",
            "oneof o { int32 a = 1; int32 b = 2; }",
            [("FIELD_MOVED_TO_EXISTING_ONEOF", "#/A/o")],
        ),
        ("message N { }", "", [("MESSAGE_REMOVED", "#/A/N")]),
    ],
)
def test_compatibility(writer: str, reader: str, expected: list[tuple[str, str]]) -> None:
    rest = " message B {} message C {} enum E { X = 0; }"
    assert expected == _findings(f"message A {{ {writer} }}{rest}", f"message A {{ {reader} }}{rest}")


def test_groups_are_compared() -> None:
    """Confluent's registry does not look at groups, so it misses that these bytes cannot be read."""
    group = "message A { optional group G = 1 { optional int32 a = 1; } }"
    assert [("FIELD_KIND_CHANGED", "#/A/1")] == _findings("message A { optional int32 g = 1; }", group)
    changed = "message A { optional group G = 1 { optional string a = 1; } }"
    assert [("FIELD_SCALAR_KIND_CHANGED", "#/A/G/1")] == _findings(group, changed)


def test_required_fields_and_encodings_of_editions_are_compared() -> None:
    edition = 'edition = "2023"; message B {} message A { %s }'
    assert [("REQUIRED_FIELD_ADDED", "#/A/1")] == _findings(
        edition % "", edition % "int32 a = 1 [features.field_presence = LEGACY_REQUIRED];"
    )
    assert [("FIELD_KIND_CHANGED", "#/A/1")] == _findings(
        edition % "B b = 1;", edition % "B b = 1 [features.message_encoding = DELIMITED];"
    )


def test_a_change_in_an_import_is_found_where_it_is_used() -> None:
    text = 'syntax = "proto3"; import "b.proto"; message A { b.B b = 7; }'
    old = parse(text, {"b.proto": 'syntax = "proto3"; package b; message B { int32 x = 1; }'})
    new = parse(text, {"b.proto": 'syntax = "proto3"; package b; message B { string x = 1; }'})
    found = list(new.incompatibilities(old))
    assert [("FIELD_NAMED_TYPE_CHANGED", "#/A/7"), ("FIELD_SCALAR_KIND_CHANGED", "#/B/1")] == [
        (f.kind, f.path) for f in found
    ]
    assert (
        "field 1 (x) of b.B is string for the reader, but int32 for the writer: the two are encoded differently"
        == found[1].message
    )


# Bounds


@pytest.mark.slow
def test_a_schema_of_one_megabyte_is_read_written_and_compared() -> None:
    fields = "".join(f"  repeated string field_{n} = {n} [deprecated = true];\n" for n in range(1, 30))
    text = "".join(f"message M{n} {{\n{fields}  oneof o {{ M0 a = 40; int32 b = 41; }}\n}}\n" for n in range(800))
    assert len(text) > 1_000_000
    started = time.process_time()
    schema = parse(text, {})
    schema.normalized_text()
    schema.formatted("serialized")
    assert parse(schema.canonical_text, {}).canonical_text == schema.canonical_text
    assert [] == list(schema.incompatibilities(parse(text, {})))
    assert time.process_time() - started < 3 * SECONDS_MAX


def test_a_thousand_references_that_use_each_other() -> None:
    """Each file uses the one before it twice: a comparison that follows every path would never end."""

    def schema(type_: str) -> tuple[str, dict[str, str]]:
        references = {"r0.proto": f'syntax = "proto3"; message R0 {{ {type_} x = 1; }}'}
        for n in range(1, 1000):
            references[f"r{n}.proto"] = (
                f'syntax = "proto3"; import "r{n - 1}.proto"; message R{n} {{ R{n - 1} a = 1; R{n - 1} b = 2; }}'
            )
        return 'syntax = "proto3"; import "r999.proto"; message A { R999 a = 1; }', references

    started = time.process_time()
    old, new = parse(*schema("int32")), parse(*schema("string"))
    assert 1 + 2 * 999 + 1 == len(list(new.incompatibilities(old)))
    assert 1000 == len(list(new.import_descriptors()))
    assert time.process_time() - started < SECONDS_MAX


@pytest.mark.slow
def test_many_oneofs_and_extension_ranges() -> None:
    numbers = range(20_000, 80_000)
    oneofs = "".join(f"oneof o{n} {{ string f{n} = {n}; }}" for n in numbers)
    ranges = ", ".join(str(n) for n in numbers)
    extensions = "".join(f"extend B {{ optional int32 e{n} = {n}; }}" for n in numbers)
    text = f"message A {{ {oneofs} }} message B {{ extensions {ranges}; }} {extensions}"
    started = time.process_time()
    assert [] == list(parse(text, {}).incompatibilities(parse(text.replace("string", "bytes"), {})))
    with pytest.raises(InvalidSchemaError, match="B does not declare 80000 as an extension number"):
        parse(text + "extend B { optional int32 e80000 = 80000; }", {})
    assert time.process_time() - started < SECONDS_MAX


@pytest.mark.parametrize(
    "text",
    [
        "message A {" * 100_000,
        "option (x) = " + "{ a " * 100_000,
        "/" * 1_000_000,
        "/*" * 500_000,
        '"' * 999_999,
        "message A { optional " + "a." * 400_000 + "a b = 1; }",
        "message A { optional int32 a = " + "9" * 1_000_000 + "; }",
        "message A { optional int32 a = 1 [default = " + "9" * 1_000_000 + "]; }",
        "message " + "M" * 900_000 + " { " + "optional B b = 1; " * 5000 + "}",
        "".join(f"message {'M' * 900}{n} {{" for n in range(20)) + "optional B b = 1; " * 50_000 + "}" * 20,
        "package " + "a." * 400_000 + "a;",
        "message A { reserved " + ", ".join(str(n) for n in range(1, 100_000)) + ", 1; }",
        "\0" * 1_000_000,
        "((((" * 200_000,
    ],
    ids=lambda text: text[:20],
)
def test_hostile_texts_take_bounded_time(text: str) -> None:
    started = time.process_time()
    with pytest.raises(InvalidSchemaError):
        parse(text, {})
    assert time.process_time() - started < SECONDS_MAX


# Schemas that are registered already


@pytest.mark.parametrize(
    "text",
    [
        'syntax = "proto3"; message A { google.protobuf.Timestamp at = 1; }',
        'syntax = "proto3"; message A { int32 a = 1; int32 b = 1; enum E { X = 5; Y = 5; } int32 a_b = 3; }',
        "message A { optional int32 a = 19001 [(nowhere) = 1, nothing = 2]; }",
        "message A {} message A {}",
    ],
)
def test_what_confluents_registry_accepted_is_read_but_not_registered(text: str) -> None:
    with pytest.raises(InvalidSchemaError):
        parse(text, {})
    schema = parse_registered(text, {})
    assert schema.normalized_text()
    assert schema.formatted("serialized")
    assert [] == list(schema.incompatibilities(schema))


def test_registered_schemas_need_their_types() -> None:
    with pytest.raises(InvalidSchemaError, match="type B of field b is not defined"):
        parse_registered("message A { optional B b = 1; }", {})


# Tags


TAGGED = """
syntax = "proto3"; package p; import "confluent/meta.proto";
message A {
  option (confluent.message_meta) = { doc: "d", tags: "ONE" };
  message B { int32 b = 1 [(confluent.field_meta).tags = "TWO", (confluent.field_meta).tags = "THREE"]; }
  oneof o { int32 c = 2; }
}
"""


def test_tags_are_found() -> None:
    expected = {SchemaEntity("A", "sr_record"): ["ONE"], SchemaEntity("A.B.b", "sr_field"): ["TWO", "THREE"]}
    assert expected == parse(TAGGED, {}).tags()


def test_tags_are_added_and_removed() -> None:
    add = {SchemaEntity("A.c", "sr_field"): ["NEW"], SchemaEntity(".A", "sr_record"): ["ONE", "MORE"]}
    remove = {SchemaEntity("A.B.b", "sr_field"): ["TWO", "THREE"], SchemaEntity("A", "sr_record"): ["ONE"]}
    schema = parse(parse(TAGGED, {}).with_tags(add, remove), {})
    assert {SchemaEntity("A", "sr_record"): ["MORE"], SchemaEntity("A.c", "sr_field"): ["NEW"]} == schema.tags()
    assert 'doc: "d"' in schema.canonical_text
    assert "    int32 b = 1;" in schema.canonical_text


def test_the_first_tag_brings_its_import() -> None:
    text = parse('syntax = "proto3"; message A { oneof o { int32 a = 1; } }', {}).with_tags(
        {SchemaEntity("A.o.a", "sr_field"): ["T"]}, {}
    )
    assert {SchemaEntity("A.a", "sr_field"): ["T"]} == parse(text, {}).tags()


def test_tags_of_an_unknown_place_are_refused() -> None:
    with pytest.raises(InvalidSchemaError, match=r"no field A\.x"):
        parse(TAGGED, {}).with_tags({SchemaEntity("A.x", "sr_field"): ["T"]}, {})


def test_fields_of_any_top_level_message_are_top_level_fields() -> None:
    schema = parse(
        "message A { optional int32 a = 1; } message B { optional int32 b = 1; message C { optional A c = 1; } }", {}
    )
    assert [True, True, False] == [schema.has_top_level_field(name) for name in ("a", "b", "c")]
