"""Ids in contexts: the same id is another schema in each context, and the subject's strategy says which is meant."""

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from ottla.client.serializers import NotPreparedError
from ottla.records.arrow import HEADERS
from ottla.registry.schemas.schema import AVRO, JSON, PROTOBUF, Reference, Schema
from ottla.registry.serde.arrow.framed_rows import FramedRows, registered_reader
from ottla.registry.serde.avro_serde import AvroDeserializer, AvroSerializer
from ottla.registry.serde.framing import id_prefix
from ottla.registry.serde.json_serde import JsonSchemaDeserializer, JsonSchemaSerializer
from ottla.registry.serde.protobuf_serde import ProtobufDeserializer, ProtobufSerializer
from ottla.registry.serde.registry_client import RegistryClient
from ottla.registry.serde.subject_names import SubjectContexts, record_subject, topic_record_subject, topic_subject
from ottla.spark.values.value_format import decoder_for
from tests.unit.spark.value_cases import decoded, spark_schema


def avro(field: str) -> Schema:
    return Schema(text=json.dumps({"type": "record", "name": "Order", "fields": [{"name": field, "type": "long"}]}))


def json_schema(field: str) -> Schema:
    text = {"type": "object", "properties": {field: {"type": "integer"}}, "additionalProperties": False}
    return Schema(text=json.dumps(text), type=JSON)


def protobuf(field: str) -> Schema:
    return Schema(text=f'syntax = "proto3"; message Order {{ int64 {field} = 1; }}', type=PROTOBUF)


LANGUAGES: dict[str, tuple[Callable[[str], Schema], Any, Any, dict[str, Any]]] = {
    AVRO: (avro, AvroSerializer, AvroDeserializer, {}),
    JSON: (json_schema, JsonSchemaSerializer, JsonSchemaDeserializer, {}),
    PROTOBUF: (protobuf, ProtobufSerializer, ProtobufDeserializer, {"into": dict}),
}


def tenant_strategy(context: str) -> Callable[[str, bool, str | None], str]:
    return lambda topic, is_key, name: f":.{context}:{topic_subject(topic, is_key, name)}"


def written_in_context(registry: RegistryClient, language: str) -> tuple[Any, bytes, str]:
    """A strategy for a context, a value that was written there, and its topic. The default context has its id too."""
    make, serializer, _, _ = LANGUAGES[language]
    topic = f"orders-{language.lower()}"
    strategy = tenant_strategy(language.lower())
    data: bytes = serializer(registry, make("theirs"), subject_name=strategy).serialize(topic, {"theirs": 7})
    assert data.startswith(id_prefix(1))
    return strategy, data, topic


@pytest.fixture(autouse=True)
def ids(registry: RegistryClient) -> None:
    """The default context has schemas with the ids 1 to 3: one of each language."""
    for make, _, _, _ in LANGUAGES.values():
        registry.register(f"first-{make('a').type}", make("ours"))


def read_column(deserializer: Any, topic: str, data: bytes) -> Any:
    while True:
        try:
            values, headers = pa.array([data], pa.binary()), pa.array([[]], HEADERS)
            return deserializer.deserialize_column(topic, values, headers, False).values.to_pylist()[0]
        except NotPreparedError as missing:
            missing.prepare()


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_deserializer_reads_with_the_schema_of_the_strategys_context(registry: RegistryClient, language: str) -> None:
    _, _, deserializer, options = LANGUAGES[language]
    strategy, data, topic = written_in_context(registry, language)
    read = deserializer(registry, subject_name=strategy, **options)
    assert {"theirs": 7} == read.deserialize(topic, data)
    assert {"theirs": 7} == read_column(deserializer(registry, subject_name=strategy), topic, data)


@pytest.mark.parametrize("language", LANGUAGES)
def test_one_deserializer_keeps_the_contexts_of_its_topics_apart(registry: RegistryClient, language: str) -> None:
    make, serializer, deserializer, options = LANGUAGES[language]

    def strategy(topic: str, is_key: bool, name: str | None) -> str:
        return f":.{topic.lower()}:{topic}-value"

    read = deserializer(registry, subject_name=strategy, **options)
    for tenant in ("one", "two"):
        topic = f"{tenant}{language}"
        data = serializer(registry, make(tenant), subject_name=strategy).serialize(topic, {tenant: 7})
        assert data.startswith(id_prefix(1))
        assert {tenant: 7} == read.deserialize(topic, data)


def test_a_schema_by_its_id_is_that_of_the_context(registry: RegistryClient) -> None:
    strategy, data, topic = written_in_context(registry, AVRO)
    serializer = AvroSerializer(registry, use_schema_id=1, subject_name=strategy)
    assert data == serializer.serialize(topic, {"theirs": 7})


def test_strategies_that_need_the_name_of_the_record_have_a_context_too() -> None:
    def prefixed(topic: str, is_key: bool, name: str | None) -> str:
        return ":.tenant:" + record_subject(topic, is_key, name)

    assert ":.tenant:" == SubjectContexts(prefixed).find("orders", False)
    for strategy in (topic_subject, record_subject, topic_record_subject):
        assert SubjectContexts(strategy).find("orders", False) is None
    assert SubjectContexts(lambda topic, is_key, name: f":.:{topic}").find("orders", False) is None


def test_a_strategy_that_fails_does_not_mean_the_default_context() -> None:
    def failing(topic: str, is_key: bool, name: str | None) -> str:
        raise ConnectionError("no answer")

    with pytest.raises(ConnectionError):
        SubjectContexts(failing).find("orders", False)


def test_references_are_those_of_the_context(registry: RegistryClient) -> None:
    for subject, field in (("address", "ours"), (":.refs:address", "theirs")):
        text = {"type": "record", "name": "Address", "fields": [{"name": field, "type": "long"}]}
        registry.register(subject, Schema(text=json.dumps(text)))
    text = {"type": "record", "name": "Order", "fields": [{"name": "to", "type": "Address"}]}
    order = Schema(text=json.dumps(text), references=(Reference("Address", "address", 1),))
    strategy = tenant_strategy("refs")
    for place in ("prefix", "header"):
        serializer = AvroSerializer(registry, order, subject_name=strategy, id_place=place)
        while True:
            try:
                data, headers = serializer.serialize_record("orders", {"to": {"theirs": 7}}, False)
                break
            except NotPreparedError as missing:
                missing.prepare()
        assert data is not None
        read = AvroDeserializer(registry, subject_name=strategy)
        assert {"to": {"theirs": 7}} == read.deserialize("orders", data, headers=headers)


def test_rows_are_decoded_in_the_context_of_the_subject(registry: RegistryClient, registry_url: str) -> None:
    _, data, topic = written_in_context(registry, AVRO)
    subject = f":.avro:{topic}-value"
    kind = pa.struct([("theirs", pa.int64())])
    reader = registered_reader(registry, subject)
    assert [{"theirs": 7}] == decoded(FramedRows(registry, kind, reader), [data])
    assert [{"theirs": 7}] == decoded(FramedRows(registry, kind, subject=subject), [data])
    options = {"valueFormat": "avro", "schemaRegistryUrl": registry_url, "valueSubject": subject}
    spark = decoder_for(options, spark_schema(theirs="long"))
    assert spark is not None
    assert [{"theirs": 7}] == decoded(spark._format, [data])
