"""Topics with schema validation: what each client is told about a record without a registered schema, and that its
producer goes on."""

from collections.abc import Iterator

import pytest

from ottla.client.admin.blocking_admin import Admin
from ottla.client.admin.values import ConfigResource
from ottla.protocol.config_resources import ResourceType
from ottla.registry.schemas.schema import Schema
from ottla.registry.serde import RegistryClient
from ottla.registry.serde.framing import id_prefix
from tests.broker.registry.service.registry_thread import RegistryThread
from tests.compat.clients.broker_under_test import TARGET, Broker
from tests.compat.clients.foreign_client import ClientError, ForeignClient, Sent

pytestmark = pytest.mark.skipif(TARGET != "ottla", reason="Apache Kafka does not validate schemas")

INVALID_RECORD = 87
CODES = {"aiokafka": -1}
"""aiokafka does not know the code."""
GIVES_UP = {"kafka-python"}
"""Its idempotent producer sends nothing more after a batch that was refused."""
VALIDATED = {"confluent.value.schema.validation": "true"}


@pytest.fixture(scope="module")
def registry(broker: Broker) -> Iterator[RegistryClient]:
    """A registry that the broker uses."""
    with (
        RegistryThread(broker.bootstrap) as running,
        Admin(bootstrap_servers=broker.bootstrap) as admin,
        RegistryClient(running.url) as client,
    ):
        url = {"confluent.schema.registry.url": running.url}
        admin.alter_configs([ConfigResource(ResourceType.BROKER, "", url)])
        yield client
        admin.alter_configs([ConfigResource(ResourceType.BROKER, "", {"confluent.schema.registry.url": ""})])


def test_a_record_without_a_registered_schema(client: ForeignClient, registry: RegistryClient, topic: str) -> None:
    client.create_topic(topic, configs=VALIDATED)
    valid = id_prefix(registry.register(f"{topic}-value", Schema(text='"string"')).id) + b"\2x"
    with client.producer() as producer:
        assert [(0, 0)] == producer.send(topic, [Sent(value=valid, partition=0)])
        for invalid in (b"plain", id_prefix(999_999)):
            with pytest.raises(ClientError) as caught:
                producer.send(topic, [Sent(value=invalid, partition=0)])
            assert CODES.get(client.name, INVALID_RECORD) == caught.value.code
        if client.name not in GIVES_UP:
            assert [(0, 1)] == producer.send(topic, [Sent(value=valid, partition=0)])
    with client.producer() as producer:
        assert [(0, 2 - (client.name in GIVES_UP))] == producer.send(topic, [Sent(value=valid, partition=0)])
