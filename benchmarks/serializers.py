"""Serializers and deserializers with a registry, record by record, against Confluent's and plain fastavro.

Measured is one core: an order with an id, a text, an optional text, two numbers and a list of texts, as a dict; and the
same as a dataclass, which Confluent's serializer converts by a function of the program. All write the same bytes. The
registry is asked once, before the timing. fastavro has neither frame nor registry: it is what others are made of. The
same order as JSON, which both sides validate, and as an object of a Protobuf class.
"""

import dataclasses
import io
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fastavro

from benchmarks.measure import Goal, Result, interleaved, report
from ottla.client.serializers import NotPreparedError
from ottla.registry.serde import (
    AvroDeserializer,
    AvroSerializer,
    JsonSchemaDeserializer,
    JsonSchemaSerializer,
    ProtobufDeserializer,
    ProtobufSerializer,
    RegistryClient,
)
from ottla.testing import InProcessBroker

RECORDS = 5_000
TOPIC = "orders"


@dataclasses.dataclass
class Order:
    """The dataclass."""

    id: int
    customer: str
    amount: float
    count: int
    tags: list[str]
    note: str | None = None


VALUE = {"id": 12345, "customer": "Milena J.", "amount": 12.5, "count": 3, "tags": ["new", "paper"], "note": None}
ORDER = Order(**VALUE)  # type: ignore[arg-type]
JSON_SCHEMA = json.dumps(
    {
        "type": "object",
        "title": "Order",
        "properties": {
            "id": {"type": "integer"},
            "customer": {"type": "string"},
            "amount": {"type": "number"},
            "count": {"type": "integer"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "note": {"type": ["string", "null"]},
        },
        "required": ["id", "customer", "amount", "count", "tags"],
        "additionalProperties": False,
    }
)
GOALS = [Goal(rival="ottla", at_least=2.0), Goal(rival="ottla", at_least=1.5, against="fastavro")]
OBJECT_GOALS = [Goal(rival="ottla", at_least=2.0)]


def run(quick: bool = False) -> list[Result]:
    """Writing and reading."""
    with running_registry() as url, RegistryClient(url) as registry:
        return [*_avro(url, registry, quick), *_json(url, registry, quick), *_protobuf(url, registry, quick)]


def _avro(url: str, registry: RegistryClient, quick: bool) -> list[Result]:
    from confluent_kafka.schema_registry import SchemaRegistryClient, avro
    from confluent_kafka.serialization import MessageField, SerializationContext

    ours = AvroSerializer(registry, Order)
    data = ours.serialize(TOPIC, VALUE) or b""
    reading, reading_objects = AvroDeserializer(registry), AvroDeserializer(registry, into=Order)
    schema = registry.version(f"{TOPIC}-value").schema.text
    client = SchemaRegistryClient({"url": url})
    context = SerializationContext(TOPIC, MessageField.VALUE, [])
    theirs = avro.AvroSerializer(client, schema)
    theirs_objects = avro.AvroSerializer(client, schema, lambda order, _: dataclasses.asdict(order))
    their_reading = avro.AvroDeserializer(client)
    their_reading_objects = avro.AvroDeserializer(client, from_dict=lambda value, _: Order(**value))
    if not data == theirs(VALUE, context) == theirs_objects(ORDER, context) == ours.serialize(TOPIC, ORDER):
        raise ValueError("the serializers write different bytes")
    if not VALUE == reading.deserialize(TOPIC, data) == their_reading(data, context):
        raise ValueError("the deserializers read different values")
    if not ORDER == reading_objects.deserialize(TOPIC, data) == their_reading_objects(data, context):
        raise ValueError("the deserializers read different objects")
    parsed = fastavro.parse_schema(json.loads(schema))

    def write_plainly() -> None:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, VALUE)
        out.getvalue()

    def read_plainly() -> None:
        source = io.BytesIO(data)
        source.seek(5)
        fastavro.schemaless_reader(source, parsed, None)

    return [
        interleaved(
            {
                "ottla": repeated(lambda: ours.serialize_record(TOPIC, VALUE, False)),
                "confluent": repeated(lambda: theirs(VALUE, context)),
                "fastavro": repeated(write_plainly),
            },
            title="write Avro, dicts",
            unit="records",
            baseline="confluent",
            goals=GOALS,
            quick=quick,
        ),
        interleaved(
            {
                "ottla": repeated(lambda: reading.deserialize_record(TOPIC, (), data, False)),
                "confluent": repeated(lambda: their_reading(data, context)),
                "fastavro": repeated(read_plainly),
            },
            title="read Avro, dicts",
            unit="records",
            baseline="confluent",
            goals=GOALS,
            quick=quick,
        ),
        interleaved(
            {
                "ottla": repeated(lambda: ours.serialize_record(TOPIC, ORDER, False)),
                "confluent": repeated(lambda: theirs_objects(ORDER, context)),
            },
            title="write Avro, dataclasses",
            unit="records",
            baseline="confluent",
            goals=OBJECT_GOALS,
            quick=quick,
        ),
        interleaved(
            {
                "ottla": repeated(lambda: reading_objects.deserialize_record(TOPIC, (), data, False)),
                "confluent": repeated(lambda: their_reading_objects(data, context)),
            },
            title="read Avro, dataclasses",
            unit="records",
            baseline="confluent",
            goals=OBJECT_GOALS,
            quick=quick,
        ),
    ]


def _json(url: str, registry: RegistryClient, quick: bool) -> list[Result]:
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    ours, reading = JsonSchemaSerializer(registry, JSON_SCHEMA), JsonSchemaDeserializer(registry)
    context = SerializationContext("orders-json", MessageField.VALUE, [])
    client = SchemaRegistryClient({"url": url})
    theirs, their_reading = JSONSerializer(JSON_SCHEMA, client), JSONDeserializer(None, schema_registry_client=client)
    data = ours.serialize("orders-json", VALUE) or b""
    if not data == theirs(VALUE, context) or not reading.deserialize("orders-json", data) == VALUE:
        raise ValueError("the serializers write different bytes")
    return _write_and_read(
        "JSON Schema, dicts",
        {
            "ottla": lambda: ours.serialize_record("orders-json", VALUE, False),
            "confluent": lambda: theirs(VALUE, context),
        },
        {
            "ottla": lambda: reading.deserialize_record("orders-json", (), data, False),
            "confluent": lambda: their_reading(data, context),
        },
        quick,
    )


def _protobuf(url: str, registry: RegistryClient, quick: bool) -> list[Result]:
    from confluent_kafka.schema_registry import SchemaRegistryClient, protobuf
    from confluent_kafka.serialization import MessageField, SerializationContext

    kind = message_class()
    value = kind(id=12345, customer="Milena J.", amount=12.5, count=3, tags=["new", "paper"])
    ours, reading = ProtobufSerializer(registry), ProtobufDeserializer(registry, kind)
    context = SerializationContext("orders-protobuf", MessageField.VALUE, [])
    client = SchemaRegistryClient({"url": url})
    theirs = protobuf.ProtobufSerializer(kind, client)
    # With a client of its own: one that has registered a schema does not ask for the form that the deserializer needs.
    reader = SchemaRegistryClient({"url": url})
    their_reading = protobuf.ProtobufDeserializer(kind, schema_registry_client=reader)
    data = ours.serialize("orders-protobuf", value) or b""
    if not data == theirs(value, context) or not value == reading.deserialize("orders-protobuf", data):
        raise ValueError("the serializers write different bytes")
    return _write_and_read(
        "Protobuf, generated classes",
        {
            "ottla": lambda: ours.serialize_record("orders-protobuf", value, False),
            "confluent": lambda: theirs(value, context),
        },
        {
            "ottla": lambda: reading.deserialize_record("orders-protobuf", (), data, False),
            "confluent": lambda: their_reading(data, context),
        },
        quick,
    )


def _write_and_read(
    what: str, writing: dict[str, Callable[[], Any]], reading: dict[str, Callable[[], Any]], quick: bool
) -> list[Result]:
    return [
        interleaved(
            {name: repeated(call) for name, call in rivals.items()},
            title=f"{verb} {what}",
            unit="records",
            baseline="confluent",
            goals=OBJECT_GOALS,
            quick=quick,
        )
        for verb, rivals in (("write", writing), ("read", reading))
    ]


def message_class() -> Any:
    """The class that protoc would generate for the order."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="orders.proto", package="shop", syntax="proto3")
    message = file.message_type.add(name="Order")
    kinds = descriptor_pb2.FieldDescriptorProto
    fields = (
        ("id", kinds.TYPE_INT64), ("customer", kinds.TYPE_STRING), ("amount", kinds.TYPE_DOUBLE),
        ("count", kinds.TYPE_INT32), ("tags", kinds.TYPE_STRING), ("note", kinds.TYPE_STRING),
    )  # fmt: skip
    for number, (name, kind) in enumerate(fields, start=1):
        label = kinds.LABEL_REPEATED if name == "tags" else kinds.LABEL_OPTIONAL
        message.field.add(name=name, number=number, type=kind, label=label)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def repeated(call: Callable[[], Any]) -> Callable[[], float]:
    """The call as often as a rate needs."""
    try:
        call()
    except NotPreparedError as missing:
        missing.prepare()

    def measured() -> float:
        for _ in range(RECORDS):
            call()
        return RECORDS

    return measured


@contextmanager
def running_registry() -> Iterator[str]:
    """The URL of a registry in its own process, on a broker in this one."""
    with tempfile.TemporaryDirectory() as folder, InProcessBroker(Path(folder)) as broker:
        command = [sys.executable, "-m", "ottla", "registry", "serve", "--bootstrap", broker.bootstrap]
        with subprocess.Popen([*command, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True) as process:
            try:
                line = process.stdout.readline() if process.stdout is not None else ""
                if not line.startswith("ready "):
                    raise RuntimeError(f"the registry did not start: {line!r}")
                yield line.split()[1]
            finally:
                process.terminate()


if __name__ == "__main__":
    report(run())
