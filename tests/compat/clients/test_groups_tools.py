"""Kafka's tools about groups, of two versions, and kcat as a member: what people type to see and to mend groups."""

import re
from collections.abc import Iterator

import pytest

from tests.compat.clients.broker_under_test import Broker
from tests.compat.clients.catalogue import JAVA, NAMES
from tests.compat.clients.conftest import ClientOf
from tests.compat.clients.group_flavours import BY_NAME
from tests.compat.clients.group_members import (
    ROUND,
    Member,
    committed,
    leaving,
    places,
    send_round,
    wait_committed,
    wait_shared,
)
from tests.compat.clients.kafka_tools import Tools
from tests.compat.clients.shapes import KEEP_ALL, small
from tests.compat.clients.test_kcat import kcat

PARTITIONS = 2
MEMBERS = {"classic": "confluent-kafka-range", "consumer": "confluent-kafka-consumer"}
"""A flavour of each kind of group."""


@pytest.fixture(scope="module", params=MEMBERS)
def kind(request: pytest.FixtureRequest) -> str:
    """The kind of group."""
    return str(request.param)


@pytest.fixture(scope="module")
def busy(client_of: ClientOf, kind: str) -> Iterator[str]:
    """A group with two members, which has read and committed all of the topic of its name."""
    group = topic = f"busy-{kind}"
    client = client_of(NAMES[0])
    client.create_topic(topic, partitions=PARTITIONS, configs=KEEP_ALL)
    flavour = BY_NAME[MEMBERS[kind]]
    with leaving([Member(client, flavour, group, topics=[topic]) for _ in range(2)]) as members:
        wait_shared(members, places(topic, PARTITIONS))
        send_round(client, topic, PARTITIONS)
        wait_committed(client, group, topic, [ROUND] * PARTITIONS)
        yield group


@pytest.fixture
def idle(client_of: ClientOf, topic: str) -> str:
    """A group without members that has committed the end of the topic of its name."""
    client = client_of(NAMES[0])
    client.create_topic(topic, partitions=PARTITIONS, configs=KEEP_ALL)
    send_round(client, topic, PARTITIONS)
    with leaving([Member(client, BY_NAME["confluent-kafka-range"], topic, topics=[topic])]):
        wait_committed(client, topic, topic, [ROUND] * PARTITIONS)
    return topic


def rows(shown: str, group: str) -> list[list[str]]:
    """The columns of the lines about a group."""
    return [line.split() for line in shown.splitlines() if line.startswith(group)]


def test_listing(tools: Tools, busy: str, kind: str) -> None:
    assert [[busy, "Stable"]] == rows(tools.run("kafka-consumer-groups", "--list", "--state"), busy)
    by_type = ("--list", "--type", kind)
    assert [[busy, kind.capitalize()]] == rows(tools.run("kafka-consumer-groups", *by_type), busy)


def test_describing_offsets(tools: Tools, busy: str) -> None:
    shown = rows(tools.run("kafka-consumer-groups", "--describe", "--group", busy), busy)
    offsets = [[busy, str(partition), str(ROUND), str(ROUND), "0"] for partition in range(PARTITIONS)]
    assert offsets == sorted(row[1:6] for row in shown)
    assert all(row[6].startswith("rdkafka") or len(row[6]) == 22 for row in shown)
    assert {("/127.0.0.1", "rdkafka")} == {(row[7], row[8]) for row in shown}


def test_describing_members(tools: Tools, busy: str) -> None:
    found = rows(tools.run("kafka-consumer-groups", "--describe", "--members", "--verbose", "--group", busy), busy)
    assert [["/127.0.0.1", "rdkafka", "1"]] * 2 == [row[2:5] for row in found]
    # The older tool shows `(0)`, the newer one an epoch and `topic:0`.
    assigned = [row[6] if len(row) > 6 else row[5] for row in found]
    assert ["0", "1"] == sorted(re.findall(r"\d", "".join(assigned)))


def test_describing_the_state(tools: Tools, broker: Broker, busy: str, kind: str) -> None:
    (row,) = rows(tools.run("kafka-consumer-groups", "--describe", "--state", "--group", busy), busy)
    assert broker.bootstrap == row[1]
    assert {"range" if kind == "classic" else "uniform", "Stable", "2"} <= set(row[2:])


def test_a_group_with_members_is_not_touched(tools: Tools, client_of: ClientOf, busy: str) -> None:
    everything = ("--reset-offsets", "--all-topics", "--to-earliest", "--execute", "--group", busy)
    for args in (everything, ("--delete", "--group", busy)):
        shown = "".join(tools.run_anyhow("kafka-consumer-groups", *args))
        assert re.search(r"Error: |not empty|inactive", shown), shown
    assert [(0, ROUND, ""), (1, ROUND, "")] == committed(client_of(JAVA), busy, busy, PARTITIONS)


def test_resetting_offsets(tools: Tools, client_of: ClientOf, idle: str) -> None:
    client = client_of(JAVA)

    def reset(*how: str) -> list[int]:
        shown = tools.run("kafka-consumer-groups", "--reset-offsets", "--group", idle, "--topic", idle, *how)
        # The older tool has no line ends.
        assert ["0", "1"] == sorted(re.findall(rf"{idle}\s+{idle}\s+(\d+)", shown))
        return [offset for _, offset, _ in committed(client, idle, idle, PARTITIONS)]

    assert [ROUND, ROUND] == reset("--to-earliest", "--dry-run")
    assert [4, 4] == reset("--to-offset", "4", "--execute")
    assert [6, 6] == reset("--shift-by", "2", "--execute")


def test_deleting_offsets_and_groups(tools: Tools, client_of: ClientOf, idle: str) -> None:
    client = client_of(JAVA)
    one = ("--group", idle)
    tools.run("kafka-consumer-groups", "--delete-offsets", *one, "--topic", f"{idle}:1")
    assert [(0, ROUND, ""), (1, -1, "")] == committed(client, idle, idle, PARTITIONS)
    assert "was successful" in tools.run("kafka-consumer-groups", "--delete", *one)
    assert [] == rows(tools.run("kafka-consumer-groups", "--list"), idle)
    assert [(0, -1, ""), (1, -1, "")] == committed(client, idle, idle, PARTITIONS)


def test_console_consumer_as_a_member(tools: Tools, client_of: ClientOf, topic: str) -> None:
    """The second time it goes on behind what it read the first time."""
    client = client_of(NAMES[0])
    client.create_topic(topic, configs=KEEP_ALL)
    client.send(topic, small(ROUND))
    args = ("--topic", topic, "--group", topic, "--from-beginning", "--max-messages")
    first = tools.run("kafka-console-consumer", *args, "6").splitlines()
    second = tools.run("kafka-console-consumer", *args, "4").splitlines()
    assert [f"value-{index}" for index in range(ROUND)] == first + second


def test_consumer_perf_test(tools: Tools, client_of: ClientOf, topic: str) -> None:
    client = client_of(NAMES[0])
    client.create_topic(topic, partitions=PARTITIONS, configs=KEEP_ALL)
    client.send(topic, [record for partition in range(PARTITIONS) for record in small(2000, partition=partition)])
    args = ("--topic", topic, "--messages", "4000", "--group", topic, "--hide-header")
    *_, last = tools.run("kafka-consumer-perf-test", *args).splitlines()
    assert "4000" == last.split(", ")[4]
    assert [(0, 2000, ""), (1, 2000, "")] == committed(client, topic, topic, PARTITIONS)


def test_kcat_as_a_member(broker: Broker, client_of: ClientOf, topic: str) -> None:
    """It reads to the end, commits when it leaves, and reads what is new the next time."""
    client = client_of(NAMES[0])
    client.create_topic(topic, partitions=PARTITIONS, configs=KEEP_ALL)

    def read() -> list[str]:
        settings = ("-X", "auto.offset.reset=earliest", "-X", "session.timeout.ms=6000")
        return sorted(kcat(broker, *settings, "-e", "-q", "-f", "%p:%o\n", "-G", topic, topic).splitlines())

    for count in (1, 2):
        send_round(client, topic, PARTITIONS)
        offsets = range((count - 1) * ROUND, count * ROUND)
        assert sorted(f"{partition}:{offset}" for partition in range(PARTITIONS) for offset in offsets) == read()
        wait_committed(client, topic, topic, [count * ROUND] * PARTITIONS)
