"""The topic `_schemas` on a real broker: created, refused, read, written and fenced."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from ottla.client.admin.config_requests import Resource, ResourceType, alter_configs, describe_configs
from ottla.client.admin.topic_requests import create_topic, delete_records, delete_topic
from ottla.client.network.cluster import Cluster
from ottla.client.producer.errors import ProducerFencedError
from ottla.model.ids import TopicPartition
from ottla.registry.service.schemas_topic import (
    SchemasTopic,
    SchemasTopicError,
    SchemasTopicLostError,
    SchemasTopicMissingError,
)
from ottla.registry.service.schemas_writer import SchemasWriter
from ottla.testing import InProcessBroker
from ottla.transport.addresses import parse_bootstrap


@asynccontextmanager
async def connected(broker: InProcessBroker) -> AsyncIterator[Cluster]:
    async with Cluster(parse_bootstrap(broker.bootstrap)) as cluster:
        yield cluster


async def opened(cluster: Cluster, name: str = "_schemas", *, may_create: bool = True) -> SchemasTopic:
    return await SchemasTopic.open(cluster, name, replication_factor=3, may_create=may_create)


@asynccontextmanager
async def writing(broker: InProcessBroker, topic: str = "_schemas") -> AsyncIterator[SchemasWriter]:
    writer = SchemasWriter(broker.bootstrap, topic, transactional_id="schema-registry", client_id="test")
    try:
        await writer.open()
        yield writer
    finally:
        await writer.close()


async def read_all(topic: SchemasTopic) -> list[tuple[bytes | None, bytes | None]]:
    start, end = await topic.bounds()
    return [(each.key, each.value) async for chunk in topic.read(start, end) for each in chunk.records]


async def test_the_topic_is_created_compacted_with_one_partition(ottla_broker: InProcessBroker) -> None:
    async with connected(ottla_broker) as cluster:
        topic = await opened(cluster)
        assert topic.id is not None
        view = await cluster.topic("_schemas", fresh=True)
        assert 1 == len(view.partitions)
        resource = Resource(type=ResourceType.TOPIC, name="_schemas")
        (policy,) = await describe_configs(cluster, resource, ["cleanup.policy"])
        assert "compact" == policy.value
        again = await opened(cluster)
        assert topic.id == again.id
        assert topic.batch_bytes_max > 10_000_000


@pytest.mark.parametrize(
    ("partitions", "policy", "words"),
    [(2, "compact", "exactly 1"), (1, "delete", "cleanup.policy=delete"), (1, "compact,delete", "compact")],
)
async def test_a_topic_that_cannot_keep_schemas_is_refused(
    ottla_shared_broker: InProcessBroker, partitions: int, policy: str, words: str
) -> None:
    name = f"unfit-{partitions}-{policy.replace(',', '-')}"
    async with connected(ottla_shared_broker) as cluster:
        await create_topic(
            cluster, name, partitions=partitions, replication_factor=1, configs={"cleanup.policy": policy}
        )
        with pytest.raises(SchemasTopicError, match=words):
            await opened(cluster, name)


async def test_a_reader_does_not_create_the_topic(ottla_broker: InProcessBroker) -> None:
    async with connected(ottla_broker) as cluster:
        with pytest.raises(SchemasTopicError, match="does not exist"):
            await opened(cluster, may_create=False)
        assert "_schemas" not in (await cluster.refresh()).topics


async def test_what_was_written_is_read(ottla_broker: InProcessBroker) -> None:
    async with connected(ottla_broker) as cluster, writing_after(cluster, ottla_broker) as (topic, writer):
        assert 2 == await writer.write([(b"a", b"1"), (b"b", b"2")])
        end = await writer.write([(b"a", None)])
        await until_end(topic, end)
        assert [(b"a", b"1"), (b"b", b"2"), (b"a", None)] == await read_all(topic)


async def test_a_second_writer_fences_the_first(ottla_broker: InProcessBroker) -> None:
    async with connected(ottla_broker) as cluster, writing_after(cluster, ottla_broker) as (topic, old):
        await old.write([(b"a", b"old")])
        async with writing(ottla_broker) as new:
            with pytest.raises(ProducerFencedError):
                await old.write([(b"b", b"zombie")])
            end = await new.write([(b"c", b"new")])
            await until_end(topic, end)
            assert [(b"a", b"old"), (b"c", b"new")] == await read_all(topic)


async def test_a_deleted_topic_is_lost_and_a_recreated_one_is_another(ottla_broker: InProcessBroker) -> None:
    async with connected(ottla_broker) as cluster:
        topic = await opened(cluster)
        following = asyncio.create_task(follow(topic, 0))
        await delete_topic(cluster, "_schemas")
        with pytest.raises(SchemasTopicMissingError):
            await topic.bounds()
        with pytest.raises(SchemasTopicMissingError, match="deleted or recreated"):
            await following
        recreated = await opened(cluster)
        assert topic.id != recreated.id
        with pytest.raises(SchemasTopicMissingError):
            await topic.bounds()
        with pytest.raises(SchemasTopicMissingError):
            await follow(topic, 0)


async def test_deleted_records_are_lost(ottla_broker: InProcessBroker) -> None:
    async with connected(ottla_broker) as cluster, writing_after(cluster, ottla_broker) as (topic, writer):
        await writer.write([(b"a", b"1")])
        resource = Resource(type=ResourceType.TOPIC, name="_schemas")
        await alter_configs(cluster, resource, {"cleanup.policy": "delete"})
        await delete_records(cluster, {TopicPartition("_schemas", 0): -1})
        with pytest.raises(SchemasTopicLostError, match="lost records"):
            await follow(topic, 0)


async def follow(topic: SchemasTopic, start: int) -> None:
    async for _ in topic.read(start):
        pass


async def until_end(topic: SchemasTopic, end: int) -> None:
    """Waits until the markers are written and everything below `end` can be read."""
    async for chunk in topic.read(0):
        if chunk.next_offset >= end:
            return


@asynccontextmanager
async def writing_after(cluster: Cluster, broker: InProcessBroker) -> AsyncIterator[tuple[SchemasTopic, SchemasWriter]]:
    topic = await opened(cluster)
    async with writing(broker) as writer:
        yield topic, writer
