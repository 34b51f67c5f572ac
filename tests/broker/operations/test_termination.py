"""An open transaction that an operator ends."""

import pytest

from ottla.client.network.cluster import Cluster
from ottla.client.network.list_offsets import END, list_offsets
from ottla.client.producer.async_producer import AsyncProducer
from ottla.model.ids import TopicPartition
from ottla.operations.termination import NothingToTerminateError, terminate_transaction
from ottla.protocol.fetch_frames import READ_COMMITTED
from ottla.testing import InProcessBroker
from tests.waiting import until


async def test_a_transaction_is_aborted_and_its_producer_fenced(
    cluster: Cluster, ottla_shared_broker: InProcessBroker
) -> None:
    partition = TopicPartition(ottla_shared_broker.create_topic("operations-terminated"), 0)
    bootstrap, name = ottla_shared_broker.bootstrap, "operations-terminated"

    def new_producer(transactional_id: str) -> AsyncProducer:
        return AsyncProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id)

    async def is_stable_to(offset: int) -> bool:
        found = await list_offsets(cluster, {partition: END}, isolation_level=READ_COMMITTED)
        return offset == found[partition].offset

    async with new_producer(name) as hanging:
        await hanging.init_transactions()
        hanging.begin_transaction()
        await hanging.send_and_wait(partition.topic, b"never committed", partition=0)
        assert await is_stable_to(0)
        found = await terminate_transaction(cluster, name, new_producer)
        assert (name, "Ongoing", (partition,)) == (found.transactional_id, found.state, found.partitions)
        await until(lambda: is_stable_to(2))
        with pytest.raises(NothingToTerminateError) as refused:
            await terminate_transaction(cluster, name, new_producer)
    assert f"transactional id {name} has no open transaction (Empty)" == str(refused.value)
