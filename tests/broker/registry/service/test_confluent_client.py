"""Confluent's Python client against an instance over a port: each understands what the other sends."""

from collections.abc import Iterator
from typing import Any

import confluent_kafka.schema_registry as sr
import pytest
from confluent_kafka.schema_registry import avro
from confluent_kafka.serialization import MessageField, SerializationContext

from ottla.testing import InProcessBroker
from tests.broker.registry.service.instances import ORDER, ORDER_2, ORDER_BAD
from tests.broker.registry.service.registry_thread import RegistryThread


@pytest.fixture
def client(ottla_broker: InProcessBroker) -> Iterator[Any]:
    with RegistryThread(ottla_broker.bootstrap) as registry:
        yield sr.SchemaRegistryClient({"url": registry.url})


def test_register_evolve_look_up_and_delete(client: Any) -> None:
    first = sr.Schema(ORDER["schema"], "AVRO")
    second = sr.Schema(ORDER_2["schema"], "AVRO")
    assert 1 == client.register_schema("orders-value", first)
    assert 2 == client.register_schema("orders-value", second)
    assert ["orders-value"] == client.get_subjects()
    assert [1, 2] == client.get_versions("orders-value")
    latest = client.get_latest_version("orders-value")
    assert (2, 2) == (latest.version, latest.schema_id)
    assert 1 == client.lookup_schema("orders-value", first).version
    assert "Order" in client.get_schema(1).schema_str
    assert 2 == client.get_version("orders-value", 2).schema_id
    assert client.test_compatibility("orders-value", second)
    assert not client.test_compatibility("orders-value", sr.Schema(ORDER_BAD["schema"], "AVRO"))
    with pytest.raises(sr.SchemaRegistryError) as refused:
        client.register_schema("orders-value", sr.Schema(ORDER_BAD["schema"], "AVRO"))
    assert (409, 40901) == (refused.value.http_status_code, refused.value.error_code)
    client.set_compatibility("orders-value", "NONE")
    assert "NONE" == client.get_compatibility("orders-value")
    assert 2 == client.delete_version("orders-value", 2)
    assert [1] == client.delete_subject("orders-value")
    assert [1, 2] == client.delete_subject("orders-value", permanent=True)
    with pytest.raises(sr.SchemaRegistryError) as missing:
        client.get_versions("orders-value")
    assert (404, 40401) == (missing.value.http_status_code, missing.value.error_code)


def test_a_schema_by_its_guid(client: Any) -> None:
    client.register_schema("s", sr.Schema(ORDER["schema"], "AVRO"))
    registered = client.get_latest_version("s")
    assert registered.guid
    assert client.get_schema_by_guid(registered.guid).schema_str == registered.schema.schema_str


def test_avro_serializers_write_and_read_a_record(client: Any) -> None:
    context = SerializationContext("orders", MessageField.VALUE)
    written = avro.AvroSerializer(client, ORDER["schema"])({"id": 7}, context)
    assert b"\x00\x00\x00\x00\x01" == written[:5]
    assert {"id": 7} == avro.AvroDeserializer(client)(written, context)
    assert ["orders-value"] == client.get_subjects()


def test_the_log_of_the_broker_keeps_everything(ottla_broker: InProcessBroker) -> None:
    for round_number in (1, 2):
        with RegistryThread(ottla_broker.bootstrap) as registry:
            client = sr.SchemaRegistryClient({"url": registry.url})
            assert 1 == client.register_schema("s", sr.Schema(ORDER["schema"], "AVRO")), round_number


def test_associations_of_a_topic_name_its_subject(client: Any) -> None:
    from confluent_kafka.schema_registry.common.schema_registry_client import (
        AssociationCreateOrUpdateInfo,
        AssociationCreateOrUpdateRequest,
    )

    assert [] == client.get_associations_by_resource_name("orders", "-", "topic")
    client.register_schema("shop-order", sr.Schema(ORDER["schema"], "AVRO"))
    info = AssociationCreateOrUpdateInfo(subject="shop-order", association_type="value", lifecycle="WEAK")
    request = AssociationCreateOrUpdateRequest(
        resource_name="orders", resource_namespace="c1", resource_id="1", resource_type="topic", associations=[info]
    )
    created = client.create_association(request)
    assert ["shop-order"] == [item.subject for item in created.associations]
    found = client.get_associations_by_resource_name("orders", "-", "topic")
    assert [("shop-order", "value")] == [(item.subject, item.association_type) for item in found]
    with pytest.raises(sr.SchemaRegistryError) as refused:
        client.delete_subject("shop-order")
    assert (409, 40904) == (refused.value.http_status_code, refused.value.error_code)
    client.delete_associations("1")
    assert [] == client.get_associations_by_resource_name("orders", "-", "topic")
