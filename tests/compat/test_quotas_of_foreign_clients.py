"""Quotas as librdkafka and kafka-python see them: set with their admin clients where they can, and felt by both."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaAdminClient, KafkaProducer
from kafka.errors import ThrottlingQuotaExceededError

from ottla import Admin, QuotaEntity
from tests.compat.ottla_broker import OttlaBroker
from tests.waiting import PATIENCE_SECONDS, tries

RATE = 20_000
RECORD = b"r" * 1000


@pytest.fixture(scope="module")
def limiting_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OttlaBroker]:
    folder: Path = tmp_path_factory.mktemp("quotas")
    with OttlaBroker(folder) as running:
        with Admin(bootstrap_servers=running.bootstrap, client_id="admin") as admin:
            admin.create_topics([], validate_only=True)
            limits: dict[str, float | None] = {"producer_byte_rate": RATE, "consumer_byte_rate": RATE}
            admin.alter_client_quotas({QuotaEntity(client_id="limited"): limits})
            admin.alter_client_quotas({QuotaEntity(client_id="creator"): {"controller_mutation_rate": 0.5}})
        yield running


def test_librdkafka_is_told_that_it_is_throttled(limiting_broker: OttlaBroker) -> None:
    throttled: list[Any] = []
    # Several requests in flight would all be served before the first of them is throttled.
    settings = {"bootstrap.servers": limiting_broker.bootstrap, "linger.ms": 0, "batch.size": 5000, "max.in.flight": 1}
    producer = Producer({**settings, "client.id": "limited", "throttle_cb": throttled.append})
    began = time.monotonic()
    for _ in range(300):
        producer.produce("librdkafka", RECORD)
        producer.poll(0)
    assert 0 == producer.flush(PATIENCE_SECONDS)
    # 300 kB at 20 kB/s, of which ten seconds' worth may be sent at once.
    assert time.monotonic() - began > 2
    assert any(event.throttle_time > 0 for event in throttled)


def test_librdkafka_reads_everything_slowly(limiting_broker: OttlaBroker) -> None:
    producer = Producer({"bootstrap.servers": limiting_broker.bootstrap, "batch.size": 20_000})
    for _ in range(300):
        producer.produce("read", RECORD)
    assert 0 == producer.flush(PATIENCE_SECONDS)
    throttled: list[Any] = []
    consumer = Consumer(
        {
            "bootstrap.servers": limiting_broker.bootstrap,
            "client.id": "limited",
            "group.id": "g",
            "throttle_cb": throttled.append,
        }
    )
    began, seen = time.monotonic(), 0
    consumer.assign([TopicPartition("read", 0, 0)])
    for _ in tries("all is read"):
        if seen >= 300:
            break
        seen += len(consumer.consume(100, timeout=1))
    consumer.close()
    assert 300 == seen
    assert time.monotonic() - began > 2
    assert any(event.throttle_time > 0 for event in throttled)


def test_kafka_python_pauses_while_it_is_throttled(
    limiting_broker: OttlaBroker, caplog: pytest.LogCaptureFixture
) -> None:
    producer = KafkaProducer(
        bootstrap_servers=limiting_broker.bootstrap, client_id="limited", batch_size=5000, linger_ms=0
    )
    try:
        for _ in range(300):
            producer.send("kafka-python", RECORD)
        producer.flush(PATIENCE_SECONDS)
        assert "ProduceResponse throttled by broker" in caplog.text
    finally:
        producer.close()


def test_kafka_python_is_refused_topics_over_the_mutation_quota(limiting_broker: OttlaBroker) -> None:
    admin = KafkaAdminClient(bootstrap_servers=limiting_broker.bootstrap, client_id="creator")
    try:
        # Two topics are within the burst of 5.5 partitions: a topic is let in before its cost is known.
        with pytest.raises(ThrottlingQuotaExceededError):
            admin.create_topics({f"refused-{number}": {"num_partitions": 4} for number in range(4)})
    finally:
        admin.close()


def test_older_clients_are_not_refused(limiting_broker: OttlaBroker) -> None:
    """librdkafka sends CreateTopics in a version without the error."""
    admin = AdminClient({"bootstrap.servers": limiting_broker.bootstrap, "client.id": "creator"})
    wanted = [NewTopic(f"created-{number}", num_partitions=4, replication_factor=1) for number in range(4)]
    assert [None] * 4 == [future.exception(PATIENCE_SECONDS) for future in admin.create_topics(wanted).values()]
