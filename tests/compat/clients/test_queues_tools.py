"""Kafka's own tools on topics with queues: configs, companions, and the log of a companion."""

import re
from pathlib import Path

import pytest

from tests.compat.clients.broker_under_test import TARGET
from tests.compat.clients.catalogue import NAMES
from tests.compat.clients.client_builds import JAVA_VERSIONS
from tests.compat.clients.conftest import ClientOf
from tests.compat.clients.foreign_client import EARLIEST, Sent
from tests.compat.clients.kafka_tools import Tools
from tests.compat.kafka_dump import dump

pytestmark = pytest.mark.skipif(TARGET != "ottla", reason="Apache Kafka has no such queues")

QUEUES = {"ottla.delay.enable": "true", "ottla.retry.enable": "true", "ottla.half.enable": "true"}
DEFAULTS = {
    "ottla.delay.ms": "0",
    "ottla.delay.cancelled.max": "100000",
    "ottla.delay.max.ms": "31622400000",
    "ottla.ttl.enable": "false",
    "ottla.ttl.ms": "-1",
    "ottla.retry.backoff.ms": "1000",
    "ottla.retry.backoff.max.ms": "300000",
    "ottla.retry.backoff.jitter": "0.2",
    "ottla.retry.max.attempts": "5",
    "ottla.retry.order": "none",
    "ottla.half.check.after.ms": "60000",
    "ottla.half.check.interval.ms": "60000",
    "ottla.half.check.max": "15",
    "ottla.deadletter.headers": "kip1191",
    "errors.deadletterqueue.topic.name": "",
}


def shown(printed: str) -> dict[str, str]:
    """The configs that kafka-configs printed."""
    return dict(re.findall(r"^  (\S+?)=(\S*) sensitive=", printed, re.MULTILINE))


@pytest.fixture
def plain(client_of: ClientOf, topic: str) -> str:
    """A topic without queues."""
    client_of(NAMES[0]).create_topic(topic)
    return topic


@pytest.mark.parametrize("tools", JAVA_VERSIONS[:1], indirect=True)
def test_configs(tools: Tools, plain: str) -> None:
    """kafka-configs enables queues, shows their configs, and is told which ones it may not change."""
    entity = ("--entity-type", "topics", "--entity-name", plain)
    wanted = {**QUEUES, "ottla.delay.ms": "500"}
    add = ",".join(f"{name}={value}" for name, value in wanted.items())
    tools.run("kafka-configs", "--alter", *entity, "--add-config", add)
    found = shown(tools.run("kafka-configs", "--describe", "--all", *entity))
    assert {**DEFAULTS, **wanted} == {name: found.get(name) for name in {**DEFAULTS, **wanted}}
    assert wanted == shown(tools.run("kafka-configs", "--describe", *entity))

    tools.run("kafka-configs", "--alter", *entity, "--delete-config", "ottla.delay.ms")
    assert QUEUES == shown(tools.run("kafka-configs", "--describe", *entity))
    assert "ottla.delay.ms=soon" in tools.fail(
        "kafka-configs", "--alter", *entity, "--add-config", "ottla.delay.ms=soon"
    )
    companion = ("--entity-type", "topics", "--entity-name", f"{plain}.delayed")
    assert f"a companion of topic {plain}" in tools.fail(
        "kafka-configs", "--alter", *companion, "--add-config", "ottla.companion.kind=half"
    )


@pytest.mark.parametrize("tools", JAVA_VERSIONS[:1], indirect=True)
def test_companions(tools: Tools, client_of: ClientOf, topic: str) -> None:
    """kafka-topics shows companions as the topics that they are, and may not delete them."""
    client_of(NAMES[0]).create_topic(topic, partitions=2, configs=QUEUES)
    tools.run("kafka-topics", "--alter", "--topic", topic, "--partitions", "3")
    described = tools.run("kafka-topics", "--describe", "--topic", rf"(dlq\.)?{topic}.*")
    rows = re.findall(r"^Topic: (\S+)\s.*PartitionCount: (\d+)\s.*Configs: (\S+)", described, re.MULTILINE)
    kinds = {
        name: (int(partitions), *re.findall(r"ottla\.companion\.kind=([^,]+)", configs))
        for name, partitions, configs in rows
    }
    assert {
        topic: (3,),
        f"{topic}.delayed": (3, "delayed"),
        f"{topic}.half": (3, "half"),
        f"{topic}.half-checks": (3, "half-checks"),
        f"dlq.{topic}": (3, "dead-letters"),
    } == kinds
    assert f"belongs to topic '{topic}'" in tools.fail("kafka-topics", "--delete", "--topic", f"{topic}.delayed")
    tools.run("kafka-topics", "--delete", "--topic", topic)
    left = tools.run("kafka-topics", "--list").splitlines()
    assert [f"dlq.{topic}"] == [name for name in left if topic in name]


@pytest.mark.parametrize("tools", JAVA_VERSIONS[:1], indirect=True)
def test_kafka_topics_knows_only_the_configs_of_kafka(tools: Tools, topic: str) -> None:
    """It refuses others before it asks a broker, so queues are enabled with kafka-configs."""
    enable = ("--config", "ottla.delay.enable=true")
    assert "Unknown topic config name" in tools.fail("kafka-topics", "--create", "--topic", topic, *enable)


def test_the_log_of_a_companion_can_be_dumped(data: Path, client_of: ClientOf, topic: str) -> None:
    client = client_of(NAMES[0])
    client.create_topic(topic, configs={"ottla.delay.enable": "true"})
    headers = ((("ottla.delay-ms", b"100"),), (("ottla.delay-ms", b"3600000"),))
    with client.consumer(topic, {0: EARLIEST}) as consumer:
        client.send(f"{topic}.delayed", [Sent(value=b"parked", headers=each, partition=0) for each in headers])
        assert 1 == len(consumer.poll(1))
    (segment,) = (data / f"{topic}.delayed-0").glob("*.log")
    found = dump([segment])
    assert [] == found.complaints
    records = [record for batch in found.batches[segment] for record in batch.records]
    assert [b"parked", b"parked"] == [record.value for record in records if record.control_type is None]
    assert {"UNKNOWN(100)"} == {record.control_type for record in records} - {None}
