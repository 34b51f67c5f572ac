"""Consumers that name their rack read the replica there, as far as it knows what is committed."""

import threading
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest

from ottla.client.consumer.blocking_consumer import Consumer
from ottla.client.producer.blocking_producer import Producer
from ottla.metadata.configs.broker_configs import RACK_AWARE_SELECTOR
from ottla.model.ids import TopicPartition
from ottla.replication.partition import Partition
from ottla.testing import BrokerCluster, InProcessBroker
from tests.waiting import wait_until

SECONDS = 60
PATIENT = {"broker.session.timeout.ms": "60000", "replica.lag.time.max.ms": "60000"}
"""On a machine that stalls, every replica stays in the ISR, and the leader stays the leader."""


@pytest.fixture
def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[BrokerCluster]:
    settings = getattr(request, "param", {"replica.selector.class": RACK_AWARE_SELECTOR})
    made = BrokerCluster(tmp_path, {**PATIENT, **settings})
    for each in made.brokers:
        each.settings["broker.rack"] = f"rack {each.id}"
    with made:
        made.create_topic("t")
        yield made


def copies(cluster: BrokerCluster) -> dict[int, Partition]:
    found = {}
    for each in cluster.brokers:
        assert isinstance(each, InProcessBroker)
        found[each.id] = each.broker.partitions.held[TopicPartition("t", 0)]
    return found


def readers(cluster: BrokerCluster) -> set[int]:
    """The brokers from which consumers have read."""
    return {broker for broker, copy in copies(cluster).items() if copy.fetched_bytes}


def test_a_consumer_reads_in_its_rack_and_is_woken_there(cluster: BrokerCluster) -> None:
    near = cluster.followers_of("t")[0].id
    with (
        Producer(bootstrap_servers=cluster.bootstrap, acks="all", linger_ms=0) as producer,
        Consumer(
            "t",
            bootstrap_servers=cluster.bootstrap,
            auto_offset_reset="earliest",
            client_rack=f"rack {near}",
            fetch_max_wait_ms=SECONDS * 1000,
            request_timeout_ms=2 * SECONDS * 1000,
            consumer_timeout_ms=SECONDS * 500,
        ) as consumer,
    ):
        producer.send("t", b"1").get(SECONDS)
        assert b"1" == next(consumer).value
        # It waits at the follower by now, or soon: for longer than the test does, unless it is woken.
        found: list[bytes] = []
        reading = threading.Thread(target=lambda: found.extend(next(consumer).value for _ in range(2)))
        reading.start()
        while not copies(cluster)[near].fetch_waiters and reading.is_alive():
            reading.join(0.01)
        producer.send("t", b"2").get(SECONDS)
        producer.send("t", b"3").get(SECONDS)
        reading.join(SECONDS)
    assert ([b"2", b"3"], {near}) == (found, readers(cluster))


def test_who_names_no_rack_or_the_leaders_reads_the_leader(cluster: BrokerCluster) -> None:
    leader = cluster.leader_of("t").id
    with Producer(bootstrap_servers=cluster.bootstrap, acks="all") as producer:
        producer.send("t", b"1").get(SECONDS)
    for rack in ("", f"rack {leader}", "elsewhere"):
        with Consumer(
            "t", bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest", client_rack=rack
        ) as consumer:
            assert b"1" == next(consumer).value
    assert {leader} == readers(cluster)


@pytest.mark.parametrize("cluster", [{}], indirect=True)
def test_without_the_selector_the_leader_is_read(cluster: BrokerCluster) -> None:
    near = cluster.followers_of("t")[0].id
    with Producer(bootstrap_servers=cluster.bootstrap, acks="all") as producer:
        producer.send("t", b"1").get(SECONDS)
    with Consumer(
        "t", bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest", client_rack=f"rack {near}"
    ) as consumer:
        assert b"1" == next(consumer).value
    assert {cluster.leader_of("t").id} == readers(cluster)


def test_librdkafka_reads_there_too_and_goes_back_when_it_dies(cluster: BrokerCluster) -> None:
    near = cluster.followers_of("t")[0]
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "client.rack": f"rack {near.id}",
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    consumer.subscribe(["t"])

    def poll() -> bytes | None:
        record = consumer.poll(1)
        return None if record is None or record.error() is not None else bytes(record.value())

    def value() -> bytes | None:
        return wait_until(poll, "a record comes")

    try:
        with Producer(bootstrap_servers=cluster.bootstrap, acks="all") as producer:
            producer.send("t", b"1").get(SECONDS)
            assert (b"1", {near.id}) == (value(), readers(cluster))
            near.kill()
            producer.send("t", b"2").get(SECONDS)
            assert b"2" == value()
    finally:
        consumer.close()


def test_our_consumer_goes_back_to_the_leader_when_the_follower_dies(cluster: BrokerCluster) -> None:
    near = cluster.followers_of("t")[0]
    with (
        Producer(bootstrap_servers=cluster.bootstrap, acks="all") as producer,
        Consumer(
            "t",
            bootstrap_servers=cluster.bootstrap,
            auto_offset_reset="earliest",
            client_rack=f"rack {near.id}",
            consumer_timeout_ms=SECONDS * 1000,
        ) as consumer,
    ):
        producer.send("t", b"1").get(SECONDS)
        assert (b"1", {near.id}) == (next(consumer).value, readers(cluster))
        near.kill()
        producer.send("t", b"2").get(SECONDS)
        assert b"2" == next(consumer).value
