"""Replicas are moved to another broker, with a throttle while they are copied."""

import pytest

from ottla.client.network.cluster import Cluster
from ottla.client.producer.async_producer import AsyncProducer
from ottla.model.ids import TopicPartition
from ottla.operations.reassignment.execution import cancel_moves, clear_throttle_of, start_moves
from ottla.operations.reassignment.progress import Progress, not_there, placement_of, progress_of
from ottla.operations.reassignment.throttle import ThrottleConfigs, find_throttle
from ottla.testing import BrokerCluster
from ottla.transport.addresses import parse_address
from tests.waiting import until


@pytest.mark.ottla_cluster(brokers=2)
async def test_a_partition_is_moved_with_a_throttle(ottla_cluster: BrokerCluster) -> None:
    topic = ottla_cluster.create_topic("moved", replicas=1)
    partition = TopicPartition(topic, 0)
    async with (
        Cluster([parse_address(each.bootstrap) for each in ottla_cluster.brokers]) as cluster,
        AsyncProducer(bootstrap_servers=ottla_cluster.bootstrap) as producer,
    ):
        await producer.send_and_wait(topic, b"x" * 1000, partition=0)
        before = placement_of(await cluster.refresh(), [topic])
        source = before[partition][0]
        (target,) = {each.id for each in ottla_cluster.brokers} - {source}
        plan = {partition: (target,)}

        async def finds(throttle: ThrottleConfigs) -> bool:
            return throttle == await find_throttle(cluster, [topic])

        async def is_moved() -> bool:
            progress = await progress_of(cluster, None)
            return progress == Progress({}, 0, 0) and not not_there(await cluster.refresh(), plan, progress)

        assert (before, {}) == await start_moves(cluster, plan, 1_000_000)
        throttle = ThrottleConfigs({"all brokers": "1000000"}, (topic,))
        await until(lambda: finds(throttle))
        await until(is_moved)
        assert {partition: (target,)} == placement_of(cluster.view, [topic])
        assert await clear_throttle_of(cluster, plan)
        await until(lambda: finds(ThrottleConfigs({}, ())))
        assert [partition] == list(await cancel_moves(cluster, plan))
