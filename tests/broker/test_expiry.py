"""Topics with a TTL over a real socket: what each client gets, and that it comes to the end."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import confluent_kafka
import pytest

from ottla.client.admin.blocking_admin import Admin
from ottla.client.admin.values import ConfigResource
from ottla.client.consumer.blocking_consumer import Consumer
from ottla.client.producer.blocking_producer import Producer
from ottla.metadata.configs.broker_configs import RACK_AWARE_SELECTOR
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.model.queue_names import DUE_MS, TTL_MS
from ottla.protocol.answer_errors import AnswerError
from ottla.protocol.config_resources import ResourceType
from ottla.testing import BrokerCluster, InProcessBroker
from tests.waiting import PATIENCE_SECONDS, wait_until

PAST, LONG = b"1000", b"3600000"
"""TTLs of records that are ten seconds old."""
BY_HEADER = {"ottla.ttl.enable": "true"}

Isolation = Literal["read_uncommitted", "read_committed"]
Reader = Callable[[str, str, Isolation], tuple[list[bytes], int]]
"""The values that a consumer of (bootstrap, topic, isolation level) sees up to the end, and its position there."""


pytestmark = pytest.mark.ottla_topic(configs=BY_HEADER)


def send(
    bootstrap: str, topic: str, *records: tuple[bytes, bytes | None], age_ms: int = 10_000, **options: object
) -> None:
    """Sends (value, TTL) as one batch."""
    timestamp = time.time_ns() // 1_000_000 - age_ms
    with Producer(bootstrap_servers=bootstrap, linger_ms=5, **options) as producer:  # type: ignore[arg-type]
        sent = [
            producer.send(topic, value, headers=() if ttl is None else ((TTL_MS, ttl),), timestamp_ms=timestamp)
            for value, ttl in records
        ]
        producer.flush()
        for each in sent:
            each.get(PATIENCE_SECONDS)


def read_ours(bootstrap: str, topic: str, isolation: Isolation) -> tuple[list[bytes], int]:
    partition = TopicPartition(topic, 0)
    with Consumer(bootstrap_servers=bootstrap, isolation_level=isolation, fetch_max_wait_ms=50) as consumer:
        consumer.assign([partition])
        consumer.seek_to_beginning()
        end = consumer.end_offsets([partition])[partition]
        seen: list[bytes] = []

        def is_at_the_end() -> bool:
            seen.extend(record.value for records in consumer.poll(200).values() for record in records)
            return consumer.position(partition) >= end

        wait_until(is_at_the_end, "the consumer is at the end")
        return seen, consumer.position(partition)


def read_arrow(bootstrap: str, topic: str, isolation: Isolation) -> tuple[list[bytes], int]:
    partition = TopicPartition(topic, 0)
    with Consumer(bootstrap_servers=bootstrap, isolation_level=isolation, fetch_max_wait_ms=50) as consumer:
        consumer.assign([partition])
        consumer.seek_to_beginning()
        end = consumer.end_offsets([partition])[partition]
        seen: list[bytes] = []

        def is_at_the_end() -> bool:
            for found in consumer.poll_arrow(200).values():
                seen.extend(found.column("value").to_pylist())
            return consumer.position(partition) >= end

        wait_until(is_at_the_end, "the consumer is at the end")
        return seen, consumer.position(partition)


def read_librdkafka(bootstrap: str, topic: str, isolation: str) -> tuple[list[bytes], int]:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap, "group.id": "g", "isolation.level": isolation,
            "enable.partition.eof": True, "enable.auto.commit": False,
        }
    )  # fmt: skip
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING)])
        seen: list[bytes] = []

        def poll_end() -> confluent_kafka.Message | None:
            message = consumer.poll(1)
            if message is None:
                return None
            if message.error() is None:
                seen.append(message.value())
                return None
            assert confluent_kafka.KafkaError._PARTITION_EOF == message.error().code(), message.error()
            return message

        end = wait_until(poll_end, lambda: f"librdkafka reaches the end; it saw {seen}")
        assert end is not None
        return seen, end.offset()
    finally:
        consumer.close()


READERS: Mapping[str, Reader] = {
    "ours": read_ours,
    "arrow": read_arrow,
    "librdkafka": read_librdkafka,
}


@pytest.fixture(params=READERS)
def read(request: pytest.FixtureRequest) -> Reader:
    return READERS[request.param]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_expired_records_are_not_delivered(broker: InProcessBroker, topic: str, read: Reader, codec: str) -> None:
    records: Sequence[tuple[bytes, bytes | None]] = (
        (b"a", None), (b"b", PAST), (b"c", LONG), (b"d", PAST), (b"e", LONG),
    )  # fmt: skip
    send(broker.bootstrap, topic, *records, compression_type=codec)
    send(broker.bootstrap, topic, (b"f", PAST), (b"g", PAST), compression_type=codec)
    send(broker.bootstrap, topic, (b"h", None), compression_type=codec)
    assert ([b"a", b"c", b"e", b"h"], 8) == read(broker.bootstrap, topic, "read_uncommitted")


def test_the_end_is_reached_if_the_last_records_have_expired(broker: InProcessBroker, topic: str, read: Reader) -> None:
    send(broker.bootstrap, topic, (b"a", None), (b"b", PAST), (b"c", PAST))
    assert ([b"a"], 3) == read(broker.bootstrap, topic, "read_uncommitted")
    send(broker.bootstrap, topic, (b"d", PAST), (b"e", PAST))
    assert ([b"a"], 5) == read(broker.bootstrap, topic, "read_uncommitted")


def test_the_end_is_reached_if_everything_has_expired(broker: InProcessBroker, topic: str, read: Reader) -> None:
    for _ in range(3):
        send(broker.bootstrap, topic, (b"a", PAST), (b"b", PAST))
    assert ([], 6) == read(broker.bootstrap, topic, "read_uncommitted")


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_transactions_among_expired_records(
    broker: InProcessBroker, topic: str, read: Reader, isolation: Isolation
) -> None:
    """Aborted and committed ones, whole and with expired records, in one range."""
    timestamp = time.time_ns() // 1_000_000 - 10_000
    transactions: Sequence[tuple[bool, Sequence[bytes | None]]] = (
        (True, (None, PAST)),
        (False, (PAST, None)),
        (False, (PAST, PAST)),
        (True, (PAST, PAST)),
        (False, (None, None)),
        (True, (PAST, LONG)),
        (False, (PAST,)),
    )
    with Producer(bootstrap_servers=broker.bootstrap, transactional_id=topic, linger_ms=5) as producer:
        producer.init_transactions()
        for number, (is_committed, ttls) in enumerate(transactions):
            producer.begin_transaction()
            for at, ttl in enumerate(ttls):
                headers = () if ttl is None else ((TTL_MS, ttl),)
                producer.send(topic, b"%d%d" % (number, at), headers=headers, timestamp_ms=timestamp)
            producer.flush()
            if is_committed:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
    aborted = [] if isolation == "read_committed" else [b"11", b"40", b"41"]
    assert (sorted([b"00", b"51", *aborted]), 20) == read(broker.bootstrap, topic, isolation)


def test_the_ttl_of_the_topic_and_its_change(
    broker: InProcessBroker, read: Reader, request: pytest.FixtureRequest
) -> None:
    topic = broker.create_topic(f"topic-ttl-{request.node.callspec.id}", configs={"ottla.ttl.ms": "300000"})
    send(broker.bootstrap, topic, (b"a", None), (b"b", LONG), age_ms=600_000)
    send(broker.bootstrap, topic, (b"c", None), (b"d", b"0"), age_ms=0)
    assert ([b"b", b"c"], 4) == read(broker.bootstrap, topic, "read_uncommitted")
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.alter_configs([ConfigResource(ResourceType.TOPIC, topic, {"ottla.ttl.ms": "3600000"})])
        assert ([b"a", b"b", b"c"], 4) == read(broker.bootstrap, topic, "read_uncommitted")
        admin.alter_configs([ConfigResource(ResourceType.TOPIC, topic, {"ottla.ttl.ms": "-1"})])
    assert ([b"a", b"b", b"c", b"d"], 4) == read(broker.bootstrap, topic, "read_uncommitted")


def test_the_ttl_counts_from_the_due_time(broker: InProcessBroker, topic: str) -> None:
    now = time.time_ns() // 1_000_000
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for value, due in ((b"a", now + 100_000), (b"b", now - 400_000)):
            headers = ((TTL_MS, b"300000"), (DUE_MS, str(due).encode()))
            producer.send(topic, value, headers=headers, timestamp_ms=now - 1_000_000).get(PATIENCE_SECONDS)
    assert ([b"a"], 2) == read_ours(broker.bootstrap, topic, "read_uncommitted")


def test_records_that_expire_while_a_fetch_waits(broker: InProcessBroker, topic: str) -> None:
    """The fetch waits for more bytes than there are, and is answered after the record has expired."""
    partition = TopicPartition(topic, 0)
    with Consumer(
        bootstrap_servers=broker.bootstrap, fetch_min_bytes=100_000, fetch_max_wait_ms=1500, max_poll_records=10
    ) as consumer:
        consumer.assign([partition])
        consumer.seek_to_beginning()
        send(broker.bootstrap, topic, (b"a", b"1000"), (b"b", LONG), age_ms=0)
        seen = wait_until(
            lambda: [record.value for records in consumer.poll(500).values() for record in records], "it is answered"
        )
    assert [b"b"] == seen


def test_a_waiting_consumer_gets_a_record_behind_expired_ones(broker: InProcessBroker, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    with Consumer(bootstrap_servers=broker.bootstrap, fetch_max_wait_ms=30_000) as consumer:
        consumer.assign([partition])
        consumer.seek_to_beginning()
        seen: list[bytes] = []

        def poll() -> None:
            while not seen:
                seen.extend(record.value for records in consumer.poll(1000).values() for record in records)

        reading = threading.Thread(target=poll)
        reading.start()
        send(broker.bootstrap, topic, (b"a", PAST))
        send(broker.bootstrap, topic, (b"b", None))
        reading.join(PATIENCE_SECONDS)
    assert [b"b"] == seen


def test_offsets_and_timestamps_are_listed_as_before(broker: InProcessBroker, topic: str) -> None:
    send(broker.bootstrap, topic, (b"a", PAST), (b"b", PAST))
    partition = TopicPartition(topic, 0)
    with Consumer(bootstrap_servers=broker.bootstrap) as consumer:
        assert {partition: 0} == consumer.beginning_offsets([partition])
        assert {partition: 2} == consumer.end_offsets([partition])
        found = consumer.offsets_for_times({partition: 0})[partition]
        assert found is not None
        assert 0 == found.offset


def test_a_plain_topic_keeps_records_with_a_ttl(broker: InProcessBroker, read: Reader) -> None:
    name = f"plain-{read.__name__.replace('_', '-')}"
    broker.create_topic(name)
    send(broker.bootstrap, name, (b"a", PAST), (b"b", None))
    assert ([b"a", b"b"], 2) == read(broker.bootstrap, name, "read_uncommitted")


def test_replicas_have_expired_records_and_serve_the_others(tmp_path: Path) -> None:
    """A consumer that reads a follower does not get them either; the logs of all replicas are the same."""
    # On a machine that stalls, every replica stays in the ISR, and the leader stays the leader.
    patient = {"broker.session.timeout.ms": "60000", "replica.lag.time.max.ms": "60000"}
    made = BrokerCluster(tmp_path, {**patient, "replica.selector.class": RACK_AWARE_SELECTOR})
    for each in made.brokers:
        each.settings["broker.rack"] = f"rack {each.id}"
    with made as cluster:
        cluster.create_topic("t", configs=BY_HEADER)
        send(cluster.bootstrap, "t", (b"a", None), (b"b", PAST), (b"c", None), acks="all")
        send(cluster.bootstrap, "t", (b"d", PAST), acks="all")
        cluster.wait_in_sync("t")
        near = cluster.followers_of("t")[0]
        partition = TopicPartition("t", 0)
        with Consumer(
            bootstrap_servers=cluster.bootstrap, client_rack=f"rack {near.id}", fetch_max_wait_ms=50
        ) as consumer:
            consumer.assign([partition])
            consumer.seek_to_beginning()
            seen: list[bytes] = []

            def is_at_the_end() -> bool:
                seen.extend(record.value for records in consumer.poll(200).values() for record in records)
                return consumer.position(partition) >= 4

            wait_until(is_at_the_end, "the consumer is at the end")
            assert ([b"a", b"c"], 4) == (seen, consumer.position(partition))
        copies = {}
        for each in cluster.brokers:
            assert isinstance(each, InProcessBroker)
            copies[each.id] = each.broker.partitions.held[partition]
        assert copies[near.id].fetched_bytes > 0
        assert 1 == len({copy.log.size_bytes for copy in copies.values()})
        assert {4} == {copy.end_offset for copy in copies.values()}


def test_a_ttl_that_is_not_a_number_is_refused(broker: InProcessBroker) -> None:
    topic = broker.create_topic("checked", configs={"ottla.delay.enable": "true"})
    companion = f"{topic}.delayed"
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        send(broker.bootstrap, topic, (b"plain", b"soon"))
        send(broker.bootstrap, companion, (b"parked", b"soon"))
        admin.alter_configs([ConfigResource(ResourceType.TOPIC, topic, BY_HEADER)])
        for name in (topic, companion):
            for ttl in (b"soon", b"-1", b"9223372036854775808"):
                with pytest.raises(AnswerError, match=r"header ottla\.ttl-ms") as raised:
                    send(broker.bootstrap, name, (b"good", LONG), (b"bad", ttl))
                assert ErrorCode.INVALID_RECORD == raised.value.error_code
        send(broker.bootstrap, topic, (b"good", LONG))
        admin.alter_configs([ConfigResource(ResourceType.TOPIC, topic, {"ottla.ttl.enable": "false"})])
        send(broker.bootstrap, topic, (b"plain again", b"soon"))
    seen, _ = read_ours(broker.bootstrap, topic, "read_uncommitted")
    assert [b"good", b"parked", b"plain", b"plain again"] == sorted(seen)
