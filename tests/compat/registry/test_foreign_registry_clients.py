"""Foreign registry clients and serializers: Confluent's for Python, Java and JavaScript, and franz-go's.

With `OTTLA_COMPAT_REGISTRY` set to a URL, the same tests ask another registry. Confluent's own, in its community
edition, passes all but the test of rules, which it drops.
"""

import base64
import itertools
import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from confluent_kafka.schema_registry.common.schema_registry_client import MetadataTags

from ottla.client.serializers import NotPreparedError
from ottla.registry.schemas.languages import LANGUAGES
from ottla.registry.schemas.protobuf.protobuf_schema import ProtobufSchema
from ottla.registry.serde import (
    AvroDeserializer,
    AvroSerializer,
    JsonSchemaDeserializer,
    JsonSchemaSerializer,
    ProtobufDeserializer,
    ProtobufSerializer,
    RegistryClient,
    Schema,
)
from ottla.testing import InProcessBroker
from tests.broker.registry.service.registry_thread import RegistryThread
from tests.compat.clients.foreign_client import ClientError, ForeignClient
from tests.compat.registry.client_programs import COMMANDS, FORMATS, WRITE_HEADERS, start


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The registry under test."""
    other = os.environ.get("OTTLA_COMPAT_REGISTRY")
    if other:
        yield other
        return
    with InProcessBroker(tmp_path_factory.mktemp("broker")) as broker, RegistryThread(broker.bootstrap) as registry:
        yield registry.url


@pytest.fixture(scope="module")
def registry(url: str) -> Iterator[RegistryClient]:
    with RegistryClient(url) as registry:
        yield registry


@pytest.fixture(scope="module")
def running(url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, ForeignClient]]:
    """All programs; they start at the same time."""
    logs = tmp_path_factory.mktemp("clients")
    clients = {name: start(name, url, logs / f"{name}.log") for name in COMMANDS}
    yield clients
    for each in clients.values():
        each.close()


@pytest.fixture(params=COMMANDS)
def client(request: pytest.FixtureRequest, running: dict[str, ForeignClient]) -> ForeignClient:
    """Each client in turn."""
    return running[request.param]


_numbers = itertools.count()


@pytest.fixture
def subject() -> str:
    """A name that no other test uses, also in a registry that was tested before."""
    return f"s{os.getpid()}-{next(_numbers)}"


def record(name: str, *fields: tuple[str, str] | tuple[str, str, Any]) -> str:
    return json.dumps(
        {
            "type": "record",
            "name": name,
            "fields": [dict(zip(("name", "type", "default"), each, strict=False)) for each in fields],
        },
        separators=(",", ":"),
    )


def closed(**properties: str) -> str:
    """A JSON Schema that can grow."""
    kinds = {name: {"type": kind} for name, kind in properties.items()}
    return json.dumps(
        {"type": "object", "title": "Order", "properties": kinds, "additionalProperties": False}, separators=(",", ":")
    )


def message(*fields: str) -> str:
    lines = "".join(f"  {each} = {number};\n" for number, each in enumerate(fields, 1))
    return f'syntax = "proto3";\npackage shop;\n\nmessage Order {{\n{lines}}}\n'


VERSIONS = {
    "AVRO": (
        record("Order", ("id", "long")),
        record("Order", ("id", "long"), ("note", "string", "")),
        record("Order", ("id", "long"), ("price", "double")),
    ),
    "JSON": (closed(id="integer"), closed(id="integer", note="string"), closed(id="string")),
    "PROTOBUF": (message("int64 id"), message("int64 id", "string note"), message("string id")),
}
"""For each language a schema, one that evolves from it, and one that may not."""


def body(format: str, text: str, **more: Any) -> dict[str, Any]:
    return {"schema": text, "schemaType": format, **more}


def refusal(client: ForeignClient, command: str, **arguments: Any) -> int | None:
    with pytest.raises(ClientError) as refused:
        client.call(command, **arguments)
    return refused.value.code


@pytest.mark.parametrize("format", VERSIONS)
def test_a_subject_through_its_life(client: ForeignClient, subject: str, format: str) -> None:
    first, second, bad = (body(format, text) for text in VERSIONS[format])
    assert 40401 == refusal(client, "versions", subject=subject)
    id = client.call("register", subject=subject, schema=first)["id"]
    assert id == client.call("register", subject=subject, schema=first)["id"]
    second_id = client.call("register", subject=subject, schema=second)["id"]
    assert id != second_id
    assert {"id": second_id, "version": 2} == client.call("look_up", subject=subject, schema=second)
    assert 40403 == refusal(client, "look_up", subject=subject, schema=bad)
    assert [1, 2] == client.call("versions", subject=subject)["versions"]
    assert client.call("compatible", subject=subject, schema=second)["compatible"]
    assert not client.call("compatible", subject=subject, schema=bad)["compatible"]
    assert 40901 == refusal(client, "register", subject=subject, schema=bad)
    assert 42201 == refusal(client, "register", subject=subject, schema=body(format, "{ this is not"))
    client.call("set_level", subject=subject, level="NONE")
    assert second_id != client.call("register", subject=subject, schema=bad)["id"]
    assert second["schema"] == client.call("schema", subject=subject, id=second_id)["text"]
    found = client.call("version", subject=subject, version=2)
    assert (second_id, second["schema"]) == (found["id"], found["schema"]["schema"])
    assert 40402 == refusal(client, "version", subject=subject, version=9)

    assert 40407 == refusal(client, "delete_version", subject=subject, version=1, permanent=True)
    client.call("delete_version", subject=subject, version=1, permanent=False)
    assert 40406 == refusal(client, "delete_version", subject=subject, version=1, permanent=False)
    client.call("delete_version", subject=subject, version=1, permanent=True)
    assert [2, 3] == client.call("versions", subject=subject)["versions"]
    assert 40405 == refusal(client, "delete_subject", subject=subject, permanent=True)
    assert [2, 3] == client.call("delete_subject", subject=subject, permanent=False)["versions"]
    assert 40404 == refusal(client, "delete_subject", subject=subject, permanent=False)
    assert [2, 3] == client.call("delete_subject", subject=subject, permanent=True)["versions"]
    assert 40401 == refusal(client, "delete_subject", subject=subject, permanent=True)


REFERRING = {
    "AVRO": ("Order", record("Parcel", ("order", "Order"))),
    "JSON": ("order.json", '{"type":"object","properties":{"order":{"$ref":"order.json"}}}'),
    "PROTOBUF": (
        "order.proto",
        'syntax = "proto3";\npackage shop;\n\nimport "order.proto";\n\nmessage Parcel {\n  Order order = 1;\n}\n',
    ),
}


@pytest.mark.parametrize("format", REFERRING)
def test_references(client: ForeignClient, subject: str, format: str) -> None:
    name, text = REFERRING[format]
    client.call("register", subject=subject, schema=body(format, VERSIONS[format][0]))
    parcel = body(format, text, references=[{"name": name, "subject": subject, "version": 1}])
    assert 42201 == refusal(client, "register", subject=f"{subject}-parcel", schema=body(format, text))
    client.call("register", subject=f"{subject}-parcel", schema=parcel)
    found = client.call("version", subject=f"{subject}-parcel", version=1)["schema"]
    assert (text, parcel["references"]) == (found["schema"], found["references"])
    assert 42206 == refusal(client, "delete_version", subject=subject, version=1, permanent=False)


def confluent_python_knows_tags() -> bool:
    """Version 2.16.0 of the client fails with a TypeError for any metadata with tags."""
    try:
        hash(MetadataTags.from_dict({"Order.id": ["PII"]}))
    except TypeError:
        return False
    return True


def test_metadata_and_rules_pass_through(client: ForeignClient, subject: str) -> None:
    metadata: dict[str, Any] = {"properties": {"owner": "shop"}, "sensitive": ["owner"]}
    if client.name != "confluent-python" or confluent_python_knows_tags():
        metadata["tags"] = {"Order.id": ["PII"]}
    rule = {
        "name": "positive",
        "kind": "CONDITION",
        "mode": "WRITE",
        "type": "CEL",
        "expr": "message.id > 0",
        "onFailure": "ERROR",
    }
    schema = body("AVRO", VERSIONS["AVRO"][0], metadata=metadata, ruleSet={"domainRules": [rule]})
    client.call("register", subject=subject, schema=schema)
    found = client.call("version", subject=subject, version=1)["schema"]
    assert metadata == {key: found["metadata"][key] for key in metadata}
    (kept,) = found["ruleSet"]["domainRules"]
    assert rule == {key: kept[key] for key in rule}


def test_contexts_have_ids_of_their_own(client: ForeignClient, subject: str) -> None:
    schema = body("AVRO", record(f"R{subject.replace('-', 'x')}", ("id", "long")))
    inside = f":.{subject}:order"
    client.call("register", subject=subject, schema=schema)
    assert 1 == client.call("register", subject=inside, schema=schema)["id"]
    assert schema["schema"] == client.call("schema", subject=inside, id=1)["text"]
    assert [1] == client.call("versions", subject=inside)["versions"]


# Serializers

SCHEMAS = {
    "AVRO": json.dumps(
        {
            "type": "record",
            "name": "Order",
            "fields": [
                {"name": "id", "type": "long"},
                {"name": "customer", "type": "string"},
                {"name": "amount", "type": "double"},
                {"name": "tags", "type": {"type": "array", "items": "string"}},
            ],
        }
    ),
    "JSON": json.dumps(
        {
            "type": "object",
            "title": "Order",
            "properties": {
                "id": {"type": "integer"},
                "customer": {"type": "string"},
                "amount": {"type": "number"},
                "tags": {"type": "array", "items": {"type": "string"}},
            },
        }
    ),
    "PROTOBUF": message("int32 id", "string customer", "double amount", "repeated string tags"),
}
VALUE = {"id": 123_456, "customer": "Milena Jesenská", "amount": 12.5, "tags": ["new", "paper"]}
SERIALIZERS = {
    "AVRO": (AvroSerializer, AvroDeserializer),
    "JSON": (JsonSchemaSerializer, JsonSchemaDeserializer),
    "PROTOBUF": (ProtobufSerializer, ProtobufDeserializer),
}
PAIRS = [
    (name, format, place)
    for name, formats in FORMATS.items()
    for format in formats
    for place in ("prefix", "header")
    if place == "prefix" or name in WRITE_HEADERS
]


def written(serializer: Any, topic: str) -> tuple[bytes, Sequence[tuple[str, bytes]]]:
    try:
        serializer.serialize_record(topic, VALUE, False)
    except NotPreparedError as missing:
        missing.prepare()
    data, headers = serializer.serialize_record(topic, VALUE, False)
    return data, headers


def descriptor_of(text: str) -> str:
    """What protoc would make of a file, for clients that need generated classes."""
    file = LANGUAGES["PROTOBUF"].parse(text, {})
    assert isinstance(file, ProtobufSchema)
    return base64.b64encode(file.file_descriptor("order.proto").SerializeToString()).decode()


@pytest.mark.parametrize(("name", "format", "place"), PAIRS)
def test_serializers_write_the_same_bytes_and_read_each_other(
    running: dict[str, ForeignClient], registry: RegistryClient, subject: str, name: str, format: str, place: Any
) -> None:
    client, topic = running[name], subject
    writing, reading = SERIALIZERS[format]
    registry.register(f"{topic}-value", Schema(text=SCHEMAS[format], type=format))
    descriptor = descriptor_of(SCHEMAS[format]) if format == "PROTOBUF" else ""
    ours, headers = written(writing(registry, SCHEMAS[format], id_place=place), topic)
    schema = body(format, SCHEMAS[format])
    arguments = {"topic": topic, "format": format, "descriptor": descriptor}
    theirs = client.call("serialize", place=place, schema=schema, value=VALUE, **arguments)
    their_headers = [(each, base64.b64decode(data)) for each, data in theirs["headers"]]
    assert (ours, list(headers)) == (base64.b64decode(theirs["data"]), their_headers)
    read = reading(registry, into=dict).deserialize(topic, base64.b64decode(theirs["data"]), headers=their_headers)
    assert read == VALUE
    sent = {"data": base64.b64encode(ours).decode(), "headers": theirs["headers"]}
    assert VALUE == client.call("deserialize", **sent, **arguments)["value"]


@pytest.mark.parametrize(("format", "indexes"), [("AVRO", []), ("JSON", []), ("PROTOBUF", [0]), ("PROTOBUF", [1, 2])])
def test_franz_go_frames_as_we_do(
    running: dict[str, ForeignClient], registry: RegistryClient, subject: str, format: str, indexes: list[int]
) -> None:
    client, text = running["franz-go"], SCHEMAS[format]
    options = {}
    if indexes == [1, 2]:
        fields = "int32 id = 1; string customer = 2; double amount = 3; repeated string tags = 4;"
        text = (
            'syntax = "proto3"; package shop; message A {} message B { message C {} message D {}'
            f" message Order {{ {fields} }} }}"
        )
        options["message"] = "shop.B.Order"
    ours = SERIALIZERS[format][0](registry, text, **options).serialize(subject, VALUE)
    assert ours is not None
    sent = base64.b64encode(ours).decode()
    taken = client.call("unframe", data=sent, indexes=indexes)
    assert registry.version(f"{subject}-value").id == taken["id"]
    assert indexes == taken.get("indexes", [])
    framed = client.call("frame", id=taken["id"], payload=taken["payload"], indexes=indexes)
    assert sent == framed["data"]
