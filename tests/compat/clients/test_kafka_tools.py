"""Kafka's own command line tools, of two versions; those about groups are in `test_groups_tools`."""

import json
import re
from pathlib import Path

import pytest

from tests.compat.clients.broker_under_test import Broker
from tests.compat.clients.catalogue import NAMES
from tests.compat.clients.conftest import ClientOf
from tests.compat.clients.kafka_tools import Tools
from tests.compat.clients.shapes import FIRST_TIMESTAMP, KEEP_ALL, small


@pytest.fixture
def filled(client_of: ClientOf, topic: str) -> str:
    """A topic with ten records in the second of its two partitions."""
    client = client_of(NAMES[0])
    client.create_topic(topic, partitions=2, configs=KEEP_ALL)
    client.send(topic, small(10, partition=1))
    return topic


def test_topics(tools: Tools, topic: str) -> None:
    name = ("--topic", topic)
    tools.run("kafka-topics", "--create", *name, "--partitions", "3", "--config", "retention.ms=1000000")
    assert topic in tools.run("kafka-topics", "--list").splitlines()
    tools.run("kafka-topics", "--alter", *name, "--partitions", "4")

    first, *partitions = tools.run("kafka-topics", "--describe", *name).splitlines()
    assert re.search(rf"Topic: {topic}\s+TopicId: \S{{22}}\s+PartitionCount: 4\s+ReplicationFactor: 1", first)
    assert "retention.ms=1000000" in first
    found = [re.search(r"Partition: (\d+)\s+Leader: (\d+)\s+Replicas: (\d+)\s+Isr: (\d+)", row) for row in partitions]
    rows = [match.groups() for match in found if match]
    assert [str(partition) for partition in range(4)] == [row[0] for row in rows]
    assert all(leader == replicas == isr for _, leader, replicas, isr in rows)

    assert "already exists" in tools.fail("kafka-topics", "--create", *name)
    tools.run("kafka-topics", "--delete", *name)
    assert "does not exist" in tools.fail("kafka-topics", "--describe", *name)


def test_configs(tools: Tools, filled: str) -> None:
    entity = ("--entity-type", "topics", "--entity-name", filled)
    tools.run("kafka-configs", "--alter", *entity, "--add-config", "max.message.bytes=12345,retention.ms=77000")
    shown = tools.run("kafka-configs", "--describe", *entity)
    assert "max.message.bytes=12345" in shown
    assert "retention.ms=77000" in shown

    tools.run("kafka-configs", "--alter", *entity, "--delete-config", "max.message.bytes")
    everything = tools.run("kafka-configs", "--describe", "--all", *entity)
    assert "max.message.bytes=1048588" in everything
    assert "retention.ms=77000" in everything


def test_broker_configs(tools: Tools) -> None:
    args = ("--describe", "--all", "--entity-type", "brokers")
    assert "log.retention.hours=168" in tools.run("kafka-configs", *args)


def test_console_producer_and_consumer(tools: Tools, client_of: ClientOf, topic: str) -> None:
    client_of(NAMES[0]).create_topic(topic, configs=KEEP_ALL)
    given = "one:1\tkey-1\tfirst\ntwo:2,three:3\tkey-2\tsecond ✓\n"
    properties = ["--property", "parse.key=true", "--property", "parse.headers=true"]
    tools.run("kafka-console-producer", "--topic", topic, *properties, given=given)

    shown = ["headers", "key", "offset", "partition"]
    show = [part for name in shown for part in ("--property", f"print.{name}=true")]
    place = ["--topic", topic, "--partition", "0", "--offset", "earliest", "--max-messages", "2"]
    expected = [
        "Partition:0\tOffset:0\tone:1\tkey-1\tfirst",
        "Partition:0\tOffset:1\ttwo:2,three:3\tkey-2\tsecond ✓",
    ]
    # A newer tool may first say that an option has a new name.
    assert expected == tools.run("kafka-console-consumer", *place, *show).splitlines()[-2:]


def test_console_consumer_from_an_offset(tools: Tools, filled: str) -> None:
    place = ["--topic", filled, "--partition", "1", "--offset", "7", "--max-messages", "3"]
    assert ["value-7", "value-8", "value-9"] == tools.run("kafka-console-consumer", *place).splitlines()


def test_get_offsets(tools: Tools, filled: str) -> None:
    moments = {"earliest": (0, 0), "latest": (0, 10), "max-timestamp": (None, 9), str(FIRST_TIMESTAMP + 4): (None, 4)}
    for moment, (first, second) in moments.items():
        shown = tools.run("kafka-get-offsets", "--topic", filled, "--time", moment).splitlines()
        expected = [f"{filled}:{partition}:{offset}" for partition, offset in enumerate((first, second))]
        # A partition without such a record is left out, or has no number behind the colon.
        assert [row for row in expected if not row.endswith("None")] == [
            row for row in shown if not row.endswith((":", ":-1"))
        ], moment


def test_delete_records(tools: Tools, client_of: ClientOf, filled: str, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"partitions": [{"topic": filled, "partition": 1, "offset": 6}], "version": 1}))
    assert "low_watermark: 6" in tools.run("kafka-delete-records", "--offset-json-file", str(plan))
    assert 6 == client_of(NAMES[0]).find_offset(filled, 1, "earliest")[0]


def test_log_dirs(tools: Tools, broker: Broker, filled: str) -> None:
    *_, last = tools.run("kafka-log-dirs", "--describe", "--topic-list", filled).splitlines()
    ((folder,),) = [each["logDirs"] for each in json.loads(last)["brokers"]]
    assert (str(broker.log_dir), None) == (folder["logDir"], folder["error"])
    sizes = {each["partition"]: each["size"] for each in folder["partitions"]}
    assert (0, {f"{filled}-0", f"{filled}-1"}) == (sizes[f"{filled}-0"], set(sizes))
    assert sizes[f"{filled}-1"] > 0


def test_producer_perf_test(tools: Tools, client_of: ClientOf, topic: str) -> None:
    client_of(NAMES[0]).create_topic(topic, partitions=3)
    load = ["--num-records", "5000", "--record-size", "200", "--throughput", "-1"]
    shown = tools.run("kafka-producer-perf-test", "--topic", topic, *load)
    assert "5000 records sent" in shown
    found = [client_of(NAMES[0]).find_offset(topic, partition, "latest")[0] for partition in range(3)]
    assert 5000 == sum(found)


def test_broker_api_versions(tools: Tools, broker: Broker) -> None:
    shown = tools.run("kafka-broker-api-versions")
    assert f"{broker.bootstrap} (id: " in shown
    rows = dict(re.findall(r"\t(\w+)\(\d+\): (.*?),?\n", shown))
    assert all("usable: " in rows[api] for api in ("Produce", "Fetch", "ListOffsets", "Metadata", "CreateTopics"))


def test_cluster_id(tools: Tools, client_of: ClientOf) -> None:
    told = client_of(NAMES[0]).call("describe_cluster")["cluster_id"]
    assert f"Cluster ID: {told}" in tools.run("kafka-cluster", "cluster-id")
