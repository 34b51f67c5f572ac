"""Spans of a partition from a broker: on a connection that is kept, by the topic's id, and across restarts."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from ottla.client.admin.blocking_admin import Admin
from ottla.client.admin.options import AdminConfig
from ottla.client.fetch.fetch_connections import FetchConnections
from ottla.client.network.cluster import Cluster
from ottla.client.producer.blocking_producer import Producer
from ottla.model.ids import TopicPartition
from ottla.protocol.fetch_frames import READ_UNCOMMITTED
from ottla.spark.source.data_loss import DataLossError
from ottla.spark.source.span_fetch import SpanFetch, SpanRules
from ottla.spark.source.span_plan import OffsetSpan
from ottla.testing import InProcessBroker

T = TypeVar("T")
TOPIC = "numbers"
PARTITION = TopicPartition(TOPIC, 0)
STRICT = SpanRules(isolation_level=READ_UNCOMMITTED, poll_timeout_ms=20_000)
LENIENT = SpanRules(isolation_level=READ_UNCOMMITTED, poll_timeout_ms=20_000, fail_on_data_loss=False)


@pytest.fixture
def filled_broker(tmp_path: Path) -> Iterator[InProcessBroker]:
    with InProcessBroker(tmp_path) as broker:
        broker.create_topic(TOPIC)
        fill(broker, 10)
        yield broker


def fill(broker: InProcessBroker, count: int) -> None:
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for number in range(count):
            producer.send(TOPIC, b"%d" % number, partition=0).get(60)


def connected(broker: InProcessBroker, work: Callable[[Cluster], Awaitable[T]]) -> T:
    async def run() -> T:
        async with AdminConfig(bootstrap_servers=broker.bootstrap).cluster() as cluster:
            return await work(cluster)

    return asyncio.run(run())


async def offsets_of(
    cluster: Cluster,
    connections: FetchConnections,
    start: int,
    end: int,
    rules: SpanRules = STRICT,
    topic_id: str | None = None,
) -> list[int]:
    """The first offset of every batch of a span."""
    found: list[int] = []
    fetch = SpanFetch(cluster, connections, OffsetSpan(PARTITION, start, end), rules, topic_id)
    async for chunk in fetch.chunks():
        found += [batch.base_offset for batch in chunk.batches if batch.next_offset > chunk.start]
    return found


async def id_of(cluster: Cluster) -> str:
    return str((await cluster.topic(TOPIC, fresh=True)).id)


def test_one_connection_serves_span_after_span(filled_broker: InProcessBroker) -> None:
    async def work(cluster: Cluster) -> list[int]:
        connections = FetchConnections(cluster)
        used = []
        for start in range(3):
            assert start == (await offsets_of(cluster, connections, start, 9))[0]
            leader = await cluster.leader_of(PARTITION)
            connection = await connections.take(leader)
            used.append(id(connection))
            connections.give_back(leader, connection)
        return used

    assert 1 == len(set(connected(filled_broker, work)))


def test_a_connection_with_an_answer_to_come_is_not_kept(filled_broker: InProcessBroker) -> None:
    async def work(cluster: Cluster) -> None:
        connections = FetchConnections(cluster)
        # Nothing is there: the broker waits with its answer, and the reader does not.
        fetch = SpanFetch(cluster, connections, OffsetSpan(PARTITION, 10, 12), STRICT)
        chunks = fetch.chunks()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(chunks), 0.2)
        await chunks.aclose()
        leader = await cluster.leader_of(PARTITION)
        connection = await connections.take(leader)
        assert 0 == connection.in_flight
        connections.give_back(leader, connection)
        assert [0] == (await offsets_of(cluster, connections, 0, 10))[:1]

    connected(filled_broker, work)


def test_a_connection_that_broke_between_two_spans_is_no_failure(filled_broker: InProcessBroker) -> None:
    async def work(cluster: Cluster) -> list[int]:
        connections = FetchConnections(cluster)
        await offsets_of(cluster, connections, 0, 10)
        await asyncio.to_thread(filled_broker.restart)
        return await offsets_of(cluster, connections, 5, 10)

    assert [5, 6, 7, 8, 9] == connected(filled_broker, work)


def test_a_topic_made_again_is_not_taken_for_the_old_one(filled_broker: InProcessBroker) -> None:
    async def read(cluster: Cluster) -> tuple[list[int], str]:
        topic_id = await id_of(cluster)
        return await offsets_of(cluster, FetchConnections(cluster), 0, 10, topic_id=topic_id), topic_id

    offsets, old_id = connected(filled_broker, read)
    assert 10 == len(offsets)
    with Admin(bootstrap_servers=filled_broker.bootstrap) as admin:
        admin.delete_topics([TOPIC])
    filled_broker.create_topic(TOPIC)
    fill(filled_broker, 20)

    async def read_again(cluster: Cluster) -> list[int]:
        connections = FetchConnections(cluster)
        assert old_id != await id_of(cluster)
        with pytest.raises(DataLossError, match="numbers-0 was deleted with offsets 0 to 9"):
            await offsets_of(cluster, connections, 0, 10, topic_id=old_id)
        return await offsets_of(cluster, connections, 0, 10, LENIENT, old_id)

    assert [] == connected(filled_broker, read_again)
