"""Names of companions: those that only the broker reads are internal topics, and none is created by mistake."""

import re
import time

import pytest

from tests.compat.clients.broker_under_test import TARGET
from tests.compat.clients.catalogue import AUTO_CREATE, NAMES, having
from tests.compat.clients.client_builds import JAVA_VERSIONS
from tests.compat.clients.conftest import ClientOf
from tests.compat.clients.foreign_client import ClientError, ForeignClient, Sent
from tests.compat.clients.group_flavours import CONSUMER, FLAVOURS, PATTERNS, Flavour, names
from tests.compat.clients.group_members import Member, Outcomes, leaving, side_by_side, wait_shared
from tests.compat.clients.kafka_tools import Tools

pytestmark = pytest.mark.skipif(TARGET != "ottla", reason="Apache Kafka has no such queues")

QUEUES = {"ottla.delay.enable": "true", "ottla.retry.enable": "true", "ottla.half.enable": "true"}
READ = ("", ".g.redelivery", ".half-checks")
"""Companions that applications read, and the topic itself."""
PARKING = (".delayed", ".g.retry", ".half")
INVALID_TOPIC = 17
UNKNOWN_TOPIC = 3
GIVEN_UP_S = 20
RETRY_ALL = ("aiokafka",)
"""Libraries that retry every error of a topic's metadata until their timeout."""
IGNORE_THE_FLAG = ("confluent-kafka", "kafkajs")
"""Libraries that match their patterns themselves and do not look whether a topic is internal."""


def matches_itself(flavour: Flavour) -> bool:
    return flavour.client in IGNORE_THE_FLAG and flavour.protocol != CONSUMER


MEMBERS = (*PATTERNS, *(each for each in FLAVOURS if each.client == "kafkajs"))


@pytest.fixture(scope="module")
def matched(client_of: ClientOf) -> Outcomes[set[str]]:
    """The companions that a member has by a pattern which matches the names of all."""
    writer = client_of(NAMES[0])

    def story(flavour: Flavour) -> set[str]:
        topic = f"parked-{flavour.name}"
        writer.create_topic(topic, configs=QUEUES)
        writer.create_topic(f"{topic}.g.retry")
        expected = {topic + each for each in (*READ, *(PARKING if matches_itself(flavour) else ()))}
        with leaving([]) as members:
            members.append(Member(client_of(flavour.client), flavour, f"all-{topic}", pattern=rf"{topic}.*"))
            wait_shared(members, {(name, 0) for name in expected})
        return expected

    return side_by_side(story, MEMBERS)


@pytest.mark.parametrize("flavour", names(MEMBERS))
def test_patterns(matched: Outcomes[set[str]], flavour: str) -> None:
    assert len(READ) <= len(matched[flavour].result())


@pytest.mark.parametrize("client", NAMES, indirect=True)
def test_every_client_produces_to_them_and_reads_them_by_name(client: ForeignClient, topic: str) -> None:
    client.create_topic(topic, configs=QUEUES)
    parked = f"{topic}.delayed"
    assert [(0, 0)] == client.send(parked, [Sent(value=b"v", headers=(("ottla.delay-ms", b"600000"),), partition=0)])
    assert [b"v"] == [each.value for each in client.read(parked, 1)]


@pytest.mark.parametrize("client", having(AUTO_CREATE), indirect=True)
def test_a_name_that_a_companion_would_have_is_not_created_by_writing(client: ForeignClient, topic: str) -> None:
    client.create_topic(topic)
    started = time.monotonic()
    with pytest.raises(ClientError) as caught:
        client.send(f"{topic}.delayed", [Sent(value=b"v", partition=0)])
    assert client.name in RETRY_ALL or time.monotonic() - started < GIVEN_UP_S, "the client retried until its timeout"
    # Some libraries only say that there is no such topic, and not why.
    assert caught.value.code in (INVALID_TOPIC, UNKNOWN_TOPIC if client.name in RETRY_ALL else None)
    client.create_topic(f"{topic}.delayed")
    assert [(0, 0)] == client.send(f"{topic}.delayed", [Sent(value=b"v", partition=0)])


@pytest.mark.parametrize("tools", JAVA_VERSIONS, indirect=True)
def test_kafka_topics(tools: Tools, client_of: ClientOf, topic: str) -> None:
    writer = client_of(NAMES[0])
    writer.create_topic(topic, configs=QUEUES)
    writer.create_topic(f"{topic}.g.retry")
    everything = {topic + each for each in (*READ, *PARKING)}
    for internal, options in ((True, ()), (False, ("--exclude-internal",))):
        expected = everything if internal else {topic + each for each in READ}
        listed = tools.run("kafka-topics", "--list", *options).split()
        assert expected == {each for each in listed if each.startswith(topic)}
        described = tools.run("kafka-topics", "--describe", "--topic", rf"{topic}.*", *options)
        assert expected == set(re.findall(r"^Topic: (\S+)\s.*PartitionCount:", described, re.MULTILINE))
    tools.run("kafka-topics", "--delete", "--topic", f"{topic}.g.retry")
    entity = ("--entity-type", "topics", "--entity-name", f"{topic}.delayed")
    tools.run("kafka-configs", "--alter", *entity, "--add-config", "segment.bytes=2097152")
    assert "segment.bytes=2097152" in tools.run("kafka-configs", "--describe", *entity)
