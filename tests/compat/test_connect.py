"""Kafka Connect with an exactly-once source on Ottla, and MirrorMaker 2 from Apache Kafka to Ottla and back."""

import json
import urllib.error
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing.free_ports import free_port
from tests.compat.connect_process import DISTRIBUTED, MIRROR_MAKER, ConnectProcess
from tests.compat.kafka_broker import KafkaBroker
from tests.compat.ottla_broker import OttlaBroker
from tests.waiting import tries, wait_until

COUNT: Final = 200
MIRROR: Final = {
    "clusters": "kafka,ottla",
    "replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
    "replication.factor": "1",
    "checkpoints.topic.replication.factor": "1",
    "heartbeats.topic.replication.factor": "1",
    "offset-syncs.topic.replication.factor": "1",
    "config.storage.replication.factor": "1",
    "offset.storage.replication.factor": "1",
    "status.storage.replication.factor": "1",
    "offset.storage.partitions": "1",
    "status.storage.partitions": "1",
    "sync.group.offsets.enabled": "true",
    "emit.checkpoints.interval.seconds": "1",
    "sync.group.offsets.interval.seconds": "1",
    "refresh.topics.interval.seconds": "2",
    "refresh.groups.interval.seconds": "2",
    "offset.lag.max": "0",
    "emit.heartbeats.enabled": "false",
    "dedicated.mode.enable.internal.rest": "false",
    "scheduled.rebalance.max.delay.ms": "0",
}
"""What docs/migration.md has, with intervals for a test."""


def wait(condition: Callable[[], bool], process: ConnectProcess) -> None:
    """Returns when it is so; fails at once when the process has ended."""

    def look() -> bool:
        assert process.is_running(), "the process ended"
        return condition()

    wait_until(look)


def values(bootstrap: str, topic: str, count: int) -> list[bytes]:
    """The committed records of a topic, in order of partition and offset; at least `count` if they come in time."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": "false",
            "isolation.level": "read_committed",
        }
    )
    try:
        # A task is RUNNING before it creates its topic: it does so for its first records.
        found = wait_until(
            lambda: consumer.list_topics(topic, timeout=10).topics[topic].partitions, f"there is a topic {topic}"
        )
        consumer.assign([TopicPartition(topic, index, 0) for index in found])
        read: list[tuple[int, int, bytes]] = []
        for _ in tries(f"{count} records are read"):
            if len(read) >= count:
                break
            for each in consumer.consume(500, 1.0):
                assert each.error() is None
                read.append((each.partition() or 0, each.offset() or 0, each.value() or b""))
        return [value for _, _, value in sorted(read)]
    finally:
        consumer.close()


def ask(port: int, method: str, path: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", data, {"Content-Type": "application/json"}, method=method
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read() or b"null")


def test_connect_with_an_exactly_once_source(ottla: OttlaBroker, tmp_path: Path) -> None:
    port = free_port()
    source = tmp_path / "lines.txt"
    source.write_text("".join(f"line {number}\n" for number in range(COUNT)))
    properties = {
        "bootstrap.servers": ottla.bootstrap,
        "group.id": "connect-cluster",
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        "exactly.once.source.support": "enabled",
        "listeners": f"http://127.0.0.1:{port}",
        "offset.flush.interval.ms": "1000",
        **{f"{kind}.storage.topic": f"connect-{kind}" for kind in ("config", "offset", "status")},
        **{f"{kind}.storage.replication.factor": "1" for kind in ("config", "offset", "status")},
        "offset.storage.partitions": "1",
        "status.storage.partitions": "1",
    }
    connector = {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "tasks.max": "1",
        "file": str(source),
        "topic": "lines",
        "exactly.once.support": "required",
        "transaction.boundary": "poll",
    }

    def state(*expected: str) -> bool:
        try:
            found = ask(port, "GET", "/connectors/lines/status")
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False
        assert "FAILED" not in [each["state"] for each in found["tasks"]], found
        return list(expected) == [each["state"] for each in found["tasks"]]

    def created() -> bool:
        try:
            ask(port, "PUT", "/connectors/lines/config", connector)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False
        return True

    with ConnectProcess(DISTRIBUTED, tmp_path / "first", properties) as process:
        wait(created, process)
        wait(lambda: state("RUNNING"), process)
        assert COUNT == len(values(ottla.bootstrap, "lines", COUNT))
    with source.open("a") as file:
        file.write("".join(f"line {number}\n" for number in range(COUNT, COUNT + 10)))
    # Another worker fences the first one's transactions and goes on where it had committed.
    with ConnectProcess(DISTRIBUTED, tmp_path / "second", properties) as process:
        wait(lambda: state("RUNNING"), process)
        found = values(ottla.bootstrap, "lines", COUNT + 10)
    assert [b"line %d" % number for number in range(COUNT + 10)] == found


def group_offset(bootstrap: str, group: str, topic: str) -> int:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    asked = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0)])
    (found,) = admin.list_consumer_group_offsets([asked])[group].result(30).topic_partitions
    return int(found.offset)


def has_topic(admin: AdminClient, topic: str) -> bool:
    return topic in admin.list_topics(timeout=10).topics


def has_offset(bootstrap: str, group: str, topic: str) -> bool:
    return group_offset(bootstrap, group, topic) == COUNT


def fill(bootstrap: str, topic: str, first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(first, first + count):
        producer.produce(topic, b"value %d" % number, key=b"key %d" % number, partition=0)
    assert 0 == producer.flush(60)


def read_in_group(bootstrap: str, group: str, topic: str, count: int) -> list[bytes]:
    """Joins, reads so many records, commits and leaves."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": "false",
        }
    )
    consumer.subscribe([topic])
    found: list[bytes] = []
    try:
        for _ in tries(f"{count} records are read"):
            if len(found) >= count:
                break
            for each in consumer.consume(count - len(found), 1.0):
                assert each.error() is None
                found.append(each.value() or b"")
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return found


@pytest.mark.long
def test_mirror_maker_from_kafka_to_ottla_and_back(kafka: KafkaBroker, ottla: OttlaBroker, tmp_path: Path) -> None:
    """Each direction with a topic and a group of its own."""
    brokers = {"kafka": kafka.bootstrap, "ottla": ottla.bootstrap}
    ways = (("kafka", "ottla"), ("ottla", "kafka"))
    topics = {source: f"from-{source}" for source, _ in ways}
    groups = {source: f"group-of-{source}" for source, _ in ways}
    properties = {**MIRROR, **{f"{name}.bootstrap.servers": address for name, address in brokers.items()}}
    for source, target in ways:
        wanted = NewTopic(topics[source], 1, 1, config={"retention.ms": "-1"})
        admin = AdminClient({"bootstrap.servers": brokers[source]})
        admin.create_topics([wanted])[topics[source]].result(30)
        fill(brokers[source], topics[source], 0, COUNT)
        assert COUNT == len(read_in_group(brokers[source], groups[source], topics[source], COUNT))
        properties[f"{source}->{target}.enabled"] = "true"
        properties[f"{source}->{target}.topics"] = topics[source]
        properties[f"{source}->{target}.groups"] = groups[source]
    with ConnectProcess(MIRROR_MAKER, tmp_path / "mirror", properties) as process:
        for source, target in ways:
            topic = topics[source]
            admin = AdminClient({"bootstrap.servers": brokers[target]})
            wait(partial(has_topic, admin, topic), process)
            assert [b"value %d" % number for number in range(COUNT)] == values(brokers[target], topic, COUNT)
        for source, target in ways:
            # A group that is caught up is so on the other side too; one that is behind may read some records again.
            wait(partial(has_offset, brokers[target], groups[source], topics[source]), process)
            fill(brokers[source], topics[source], COUNT, 10)
            assert COUNT + 10 == len(values(brokers[target], topics[source], COUNT + 10))
    for source, target in ways:
        rest = read_in_group(brokers[target], groups[source], topics[source], 10)
        assert [b"value %d" % number for number in range(COUNT, COUNT + 10)] == rest
