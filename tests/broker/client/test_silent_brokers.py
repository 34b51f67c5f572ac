"""Brokers that hang with their connections open: clients find who leads now long before their requests' time is over.

Times are given such that no test could end in its own if a client waited for one who is silent.
"""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.client.consumer.blocking_consumer import Consumer
from ottla.client.errors import CannotConnectError, ConnectionLostError
from ottla.client.network.cluster import Cluster
from ottla.client.producer.async_producer import AsyncProducer
from ottla.client.producer.blocking_producer import Producer
from ottla.protocol.apis import ApiKey
from ottla.protocol.messages import milliseconds
from ottla.testing import BrokerCluster
from ottla.testing.process_broker import ProcessBroker
from tests.broker.client.scripted_leaders import TOPIC, ScriptedLeaders, scripted_leaders
from tests.waiting import PATIENCE_SECONDS

LONG_MS = 600_000


def cluster_of(leaders: ScriptedLeaders) -> Cluster:
    return Cluster(leaders.addresses, connect_timeout_ms=LONG_MS, request_timeout_ms=LONG_MS)


def producer_of(leaders: ScriptedLeaders, **options: Any) -> AsyncProducer:
    given = {
        "linger_ms": 0,
        "batch_size": 0,
        "request_timeout_ms": LONG_MS,
        "delivery_timeout_ms": 2 * LONG_MS,
        "socket_connection_setup_timeout_ms": LONG_MS,
        **options,
    }
    return AsyncProducer(bootstrap_servers=[str(address) for address in leaders.addresses], **given)


async def test_a_question_for_anybody_is_asked_of_another() -> None:
    async with scripted_leaders() as leaders, cluster_of(leaders) as cluster:
        assert {0, 1} == set((await cluster.refresh([])).brokers)
        leaders.hung.add(0)
        assert {0, 1} == set((await cluster.refresh([])).brokers)
    async with scripted_leaders() as leaders, cluster_of(leaders) as cluster:
        leaders.hung.add(0)
        # It does not even say what it speaks.
        assert {0, 1} == set((await cluster.refresh([])).brokers)


async def test_who_waits_for_one_that_left_the_cluster_is_told() -> None:
    async with scripted_leaders() as leaders, cluster_of(leaders) as cluster:
        await cluster.refresh([])
        await cluster.broker_connection(0)
        leaders.hung.add(0)
        waiting = asyncio.create_task(cluster.to_broker(0, ApiKey.INIT_PRODUCER_ID, identity_request()))
        await leaders.wait_metadata_asked(2)
        # Others say that it is there: it may be slow.
        assert not waiting.done()
        leaders.gone.add(0)
        with pytest.raises(ConnectionLostError, match="it does not respond and has left the cluster"):
            await waiting


def identity_request() -> Any:
    from kio.schema.init_producer_id.v5.request import InitProducerIdRequest

    return InitProducerIdRequest(transactional_id=None, transaction_timeout=milliseconds(0))


async def test_who_connects_to_one_that_left_the_cluster_is_told() -> None:
    async with scripted_leaders() as leaders, cluster_of(leaders) as cluster:
        await cluster.refresh([])
        leaders.hung.add(0)
        opening = asyncio.create_task(cluster.own_connection(0))
        await asyncio.sleep(0)
        leaders.gone.add(0)
        with pytest.raises(CannotConnectError, match="no response, and its broker has left the cluster"):
            await opening


@pytest.mark.parametrize("options", [{}, {"enable_idempotence": False, "max_in_flight_requests_per_connection": 1}])
async def test_a_producer_goes_on_in_order_at_the_new_leader(options: dict[str, Any]) -> None:
    async with scripted_leaders() as leaders, producer_of(leaders, **options) as producer:
        await producer.send_and_wait(TOPIC, b"first")
        leaders.hung.add(0)
        deliveries = [await producer.send(TOPIC, b"%d" % number) for number in range(8)]
        leaders.leader, leaders.leader_epoch, leaders.gone = 1, 2, {0}
        for delivery in deliveries:
            await delivery
        assert [b"first", *(b"%d" % number for number in range(8))] == leaders.log


async def test_what_is_on_the_wire_to_an_old_leader_comes_back_before_more_is_sent() -> None:
    given = {"enable_idempotence": False, "max_in_flight_requests_per_connection": 1, "metadata_max_age_ms": 1}
    async with scripted_leaders() as leaders, producer_of(leaders, **given) as producer:
        await producer.send_and_wait(TOPIC, b"first")
        leaders.fates.append("hang")
        slow = await producer.send(TOPIC, b"slow")
        leaders.leader, leaders.leader_epoch = 1, 2
        following = []
        for number in range(3):
            # Each turn of the sender asks who leads, and finds that it is the other one.
            following.append(await producer.send(TOPIC, b"%d" % number))
            await leaders.wait_metadata_asked(1)
        assert [0, 0] == [broker for broker, _, _ in leaders.attempts]
        leaders.gone = {0}
        await slow
        for delivery in following:
            await delivery
        assert [b"first", b"slow", b"0", b"1", b"2"] == leaders.log


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[BrokerCluster]:
    with BrokerCluster(tmp_path, {"broker.session.timeout.ms": "3000"}, kind=ProcessBroker) as made:
        made.create_topic("t")
        yield made


@pytest.mark.slow
def test_producer_and_group_go_on_when_leader_and_coordinator_hang(cluster: BrokerCluster) -> None:
    given: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap, "request_timeout_ms": LONG_MS}
    with (
        Producer(delivery_timeout_ms=2 * LONG_MS, **given) as producer,
        Consumer("t", group_id="g", auto_offset_reset="earliest", enable_auto_commit=False, **given) as consumer,
    ):
        producer.send("t", b"1").get(PATIENCE_SECONDS)
        assert b"1" == next(consumer).value
        consumer.commit()
        hung = {cluster.leader_of("t").id, cluster.leader_of("__consumer_offsets").id}
        for number, each in enumerate(sorted(hung)):
            leader = cluster.brokers[each]
            leader.pause()
            start = time.monotonic()
            producer.send("t", b"more %d" % number).get(PATIENCE_SECONDS)
            assert b"more %d" % number == next(consumer).value
            consumer.commit(timeout_ms=PATIENCE_SECONDS * 1000)
            assert time.monotonic() - start < PATIENCE_SECONDS
            leader.resume()
            cluster.wait_brokers()
            cluster.wait_in_sync()
