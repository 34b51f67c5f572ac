"""What protoc and Confluent's registry say about random schemas, and that we say the same; see tests/vectors/protobuf.

Every difference is a named case below.
"""

import base64
import re
from contextlib import suppress
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from ottla.registry.schemas.parsed_schema import InvalidSchemaError
from ottla.registry.schemas.protobuf.protobuf_schema import ProtobufSchema
from ottla.registry.schemas.protobuf.protobuf_schema import parse_new as parse
from tests.vectors.protobuf.generate import read

ACCEPTED_BY_US_ALONE = {
    "a map that is written out, as Confluent's registry prints it": "message A{option map_entry=true;}",
    "a default of bytes without quotes, as Confluent's registry prints it": "optional bytes a=1[default=abc]",
}


IMPORT_WITHOUT_REFERENCE = "was not found or had errors"
"""We accept an import that is missing if no type is needed from it, as Confluent's registry does."""


def _parsed(schema: dict[str, Any]) -> ProtobufSchema:
    return parse(schema["text"], schema["references"])


@pytest.fixture(scope="module")
def texts() -> list[dict[str, Any]]:
    return read("texts.jsonl.gz")


@pytest.mark.parametrize("format", ["canonical", "normalized", "ignore_extensions"])
def test_texts_are_those_of_confluents_registry(texts: list[dict[str, Any]], format: str) -> None:
    assert len(texts) > 200
    for vector in texts:
        schema = _parsed(vector)
        if format == "normalized":
            ours = schema.normalized_text()
        else:
            ours = schema.formatted("" if format == "canonical" else format)
        assert vector[format] == ours, f"seed {vector['seed']}"


def test_texts_are_read_again_as_the_same_schema(texts: list[dict[str, Any]]) -> None:
    for vector in texts:
        schema = _parsed(vector)
        for text in (schema.canonical_text, schema.normalized_text()):
            again = parse(text, vector["references"])
            assert schema.normalized_text() == again.normalized_text()
        assert schema.canonical_text == parse(schema.canonical_text, vector["references"]).canonical_text


def test_texts_of_descriptors_are_those_of_confluents_registry(texts: list[dict[str, Any]]) -> None:
    """Clients in Python register descriptors."""
    for vector in texts:
        schema = parse(vector["descriptor"], vector["references"])
        assert vector["descriptor_canonical"] == schema.canonical_text, f"seed {vector['seed']}"


def test_a_descriptor_is_read_as_the_schema_that_it_was_made_from(texts: list[dict[str, Any]]) -> None:
    for vector in texts:
        schema = _parsed(vector)
        serialized = schema.formatted("serialized")
        again = parse(serialized, vector["references"])
        # Custom options are left out when a descriptor is read, and Confluent's become literals: compare without.
        assert _plain(schema) == _plain(again), f"seed {vector['seed']}"


def _plain(schema: ProtobufSchema) -> descriptor_pb2.FileDescriptorProto:
    proto = schema.file_descriptor("x.proto")
    _clear_options(proto)
    _sort(proto.message_type)
    return proto


def _clear_options(message: Any) -> None:
    for field, value in message.ListFields():
        if field.name == "options":
            map_entry = field.message_type.name == "MessageOptions" and value.map_entry
            message.ClearField("options")
            if map_entry:
                message.options.map_entry = True
        elif field.message_type is not None:
            for item in value if hasattr(value, "__len__") else [value]:
                _clear_options(item)


def test_descriptors_are_protocs(texts: list[dict[str, Any]]) -> None:
    for vector in texts:
        schema = _parsed(vector)
        imports = list(schema.import_descriptors())
        _assert_equal_descriptors(vector["descriptor"], schema, imports, f"seed {vector['seed']}")


def _assert_equal_descriptors(theirs: str, schema: ProtobufSchema, imports: list[Any], where: str) -> None:
    # In a pool with the imports, custom options are fields; as unknown fields they could differ in their order.
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(descriptor_pb2.DESCRIPTOR.serialized_pb)
    for file in imports:
        if file.name != "google/protobuf/descriptor.proto":
            pool.AddSerializedFile(file.SerializeToString())
    ours_bytes = schema.file_descriptor("main.proto").SerializeToString()
    # The runtime refuses a few files that protoc accepts, none of them with custom options.
    with suppress(TypeError):
        pool.AddSerializedFile(ours_bytes)
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName("google.protobuf.FileDescriptorProto"))
    expected = kind.FromString(base64.b64decode(theirs))
    actual = kind.FromString(ours_bytes)
    for file in (expected, actual):
        _sort(file.message_type)
        for service in file.service:
            for method in service.method:
                if not method.options.ByteSize():
                    method.ClearField("options")  # protoc sets them, empty, for the body {}.
        _with_json_names(file)
    if expected != actual:
        # A NaN is not equal to itself, but its bytes are.
        assert expected.SerializeToString(deterministic=True) == actual.SerializeToString(deterministic=True), where


def _sort(messages: Any) -> None:
    """Messages that maps and groups stand for have another place among the others in ours."""
    copies = [type(one)() for one in messages]
    for copy, one in zip(copies, sorted(messages, key=lambda one: str(one.name)), strict=True):
        copy.CopyFrom(one)
        _sort(copy.nested_type)
    del messages[:]
    messages.extend(copies)


def _with_json_names(file: Any) -> None:
    """protoc sets the name in JSON of every field; ours only where the schema does."""

    def visit(message: Any) -> None:
        for field in [*message.field, *message.extension]:
            field.json_name = field.json_name or _json_name(field.name)
        for nested in message.nested_type:
            visit(nested)

    for field in file.extension:
        field.json_name = field.json_name or _json_name(field.name)
    for message in file.message_type:
        visit(message)


def _json_name(name: str) -> str:
    return re.sub(r"_+(.?)", lambda match: match.group(1).upper(), name)


def test_what_protoc_refuses_we_refuse_and_the_other_way_round() -> None:
    vectors = read("validity.jsonl.gz")
    assert len(vectors) > 3000
    accepted = 0
    disagreements = []
    for vector in vectors:
        if any(text in vector["text"] for text in ACCEPTED_BY_US_ALONE.values()):
            _parsed(vector)
            continue
        try:
            schema = _parsed(vector)
        except InvalidSchemaError as error:
            if "error" not in vector:
                disagreements.append((vector["text"], f"we: {error}"))
        else:
            accepted += 1
            schema.normalized_text()
            if "error" in vector and IMPORT_WITHOUT_REFERENCE not in vector["error"]:
                disagreements.append((vector["text"], f"protoc: {vector['error']}"))
    assert [] == disagreements
    assert accepted > 300


def test_the_descriptors_of_small_schemas_are_protocs() -> None:
    for vector in read("validity.jsonl.gz"):
        # The sign of a NaN, and strings that are not UTF-8, are not worth being equal.
        if "descriptor" in vector and "\\xff" not in vector["text"] and "-nan" not in vector["text"]:
            schema = _parsed(vector)
            _assert_equal_descriptors(vector["descriptor"], schema, list(schema.import_descriptors()), vector["text"])


def test_differences_are_those_of_confluents_registry() -> None:
    vectors = read("pairs.jsonl.gz")
    assert len(vectors) >= 2500
    incompatible = 0
    for vector in vectors:
        writer, reader = _parsed(vector["writer"]), _parsed(vector["reader"])
        theirs = {tuple(difference) for difference in vector["differences"]}
        ours = {(found.kind, found.path) for found in reader.incompatibilities(writer)}
        incompatible += bool(theirs)
        assert bool(theirs) == bool(ours), f"seed {vector['seed']}"
        assert theirs <= ours, f"seed {vector['seed']}"
        # In messages of imports that contain themselves, we name the recursive field too: its type did change.
        assert {kind for kind, _ in ours - theirs} <= {"FIELD_NAMED_TYPE_CHANGED"}, f"seed {vector['seed']}"
        if ours != theirs:
            assert vector["writer"]["references"], f"seed {vector['seed']}"
    assert incompatible > 500


def test_a_schema_can_read_itself(texts: list[dict[str, Any]]) -> None:
    for vector in texts:
        assert [] == list(_parsed(vector).incompatibilities(_parsed(vector)))
