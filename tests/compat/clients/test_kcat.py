"""kcat, as people type it: metadata, producing with keys, headers and codecs, reading, and asking for offsets.

The distribution's kcat brings a librdkafka that is years older than confluent-kafka's.
"""

import json
import subprocess
from typing import Any

import pytest

from tests.compat.clients.broker_under_test import Broker
from tests.compat.clients.catalogue import CODECS, NAMES
from tests.compat.clients.conftest import ClientOf
from tests.compat.clients.shapes import FIRST_TIMESTAMP, KEEP_ALL, small
from tests.waiting import PATIENCE_SECONDS


def kcat(broker: Broker, *args: str, given: bytes = b"") -> str:
    """What it printed."""
    done = subprocess.run(
        ["kcat", "-b", broker.bootstrap, *args], input=given, capture_output=True, timeout=PATIENCE_SECONDS
    )
    assert 0 == done.returncode, done.stderr.decode()
    return done.stdout.decode()


def read(broker: Broker, topic: str, *args: str) -> list[dict[str, Any]]:
    """The records of partition 0 up to its end, as kcat shows them."""
    lines = kcat(broker, "-C", "-t", topic, "-p", "0", "-e", "-q", "-J", *args).splitlines()
    return [json.loads(line) for line in lines]


@pytest.fixture
def created(client_of: ClientOf, topic: str) -> str:
    """A topic with three partitions."""
    client_of(NAMES[0]).create_topic(topic, partitions=3, configs=KEEP_ALL)
    return topic


def test_metadata(broker: Broker, created: str) -> None:
    found = json.loads(kcat(broker, "-L", "-J", "-t", created))
    assert [broker.bootstrap] == [each["name"] for each in found["brokers"]]
    (topic,) = found["topics"]
    assert (created, [0, 1, 2]) == (topic["topic"], [each["partition"] for each in topic["partitions"]])
    assert {found["brokers"][0]["id"]} == {each["leader"] for each in topic["partitions"]}


@pytest.mark.parametrize("codec", CODECS)
def test_what_it_writes_it_reads(broker: Broker, created: str, codec: str) -> None:
    given = b"".join(b"key-%d:value-%d\n" % (index, index) for index in range(100))
    kcat(broker, "-P", "-t", created, "-p", "0", "-K:", "-z", codec, "-H", "one=1", "-H", "two=2", given=given)
    expected = [
        {"offset": index, "key": f"key-{index}", "payload": f"value-{index}", "headers": ["one", "1", "two", "2"]}
        for index in range(100)
    ]
    assert expected == [{name: record[name] for name in expected[0]} for record in read(broker, created)]


def test_nulls_and_empty_values(broker: Broker, created: str) -> None:
    kcat(broker, "-P", "-t", created, "-p", "0", "-K:", "-Z", given=b"key:\n:value\n")
    assert [("key", None), (None, "value")] == [(record["key"], record["payload"]) for record in read(broker, created)]


def test_reading_from_an_offset_and_from_the_end(broker: Broker, client_of: ClientOf, created: str) -> None:
    client_of(NAMES[0]).send(created, small(20))
    assert list(range(7, 20)) == [record["offset"] for record in read(broker, created, "-o", "7")]
    assert [17, 18, 19] == [record["offset"] for record in read(broker, created, "-o", "-3")]


def test_asking_for_offsets(broker: Broker, client_of: ClientOf, created: str) -> None:
    client_of(NAMES[0]).send(created, small(20))
    asked = ["-2", "-1", str(FIRST_TIMESTAMP + 5)]
    found = [json.loads(kcat(broker, "-Q", "-J", "-t", f"{created}:0:{moment}")) for moment in asked]
    assert [0, 20, 5] == [answer[created]["0"]["offset"] for answer in found]


def test_a_topic_that_does_not_exist(broker: Broker) -> None:
    done = subprocess.run(
        [
            "kcat",
            "-b",
            broker.bootstrap,
            "-C",
            "-t",
            "never-made",
            "-p",
            "0",
            "-e",
            "-X",
            "allow.auto.create.topics=false",
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=PATIENCE_SECONDS,
    )
    assert 1 == done.returncode
    assert b"Unknown topic or partition" in done.stderr
