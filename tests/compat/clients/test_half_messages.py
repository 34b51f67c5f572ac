"""Each client sends half messages by headers: committed ones arrive, rolled back ones never, and the broker asks."""

import pytest

from ottla.model.dead_letters import read_dead_letter
from tests.compat.clients.broker_under_test import TARGET
from tests.compat.clients.foreign_client import ClientError, ForeignClient, Sent

pytestmark = pytest.mark.skipif(TARGET != "ottla", reason="Apache Kafka has no half messages")

INVALID_RECORD = {"aiokafka": -1}
"""Kafka's code is 87, which not every client knows."""
HALF = {"ottla.half.enable": "true", "ottla.half.check.interval.ms": "50", "ottla.half.check.max": "2"}


def half(id: bytes, state: bytes, value: bytes = b"", check_after_ms: bytes | None = None) -> Sent:
    headers = [("ottla.half.id", id), ("ottla.half.state", state), ("trace", b"t")]
    if check_after_ms is not None:
        headers.append(("ottla.half.check-after-ms", check_after_ms))
    return Sent(key=b"k", value=value, headers=tuple(headers), partition=0)


def test_what_is_committed_arrives_and_what_is_rolled_back_does_not(client: ForeignClient, topic: str) -> None:
    client.create_topic(topic, configs=HALF)
    halves = f"{topic}.half"
    client.send(halves, [half(b"a", b"prepare", b"1"), half(b"b", b"prepare", b"2"), half(b"c", b"prepare", b"3")])
    client.send(halves, [half(b"b", b"rollback")])
    client.send(halves, [half(b"c", b"commit")])
    client.send(halves, [half(b"a", b"commit")])
    first, second = client.read(topic, 2)
    assert {b"1", b"3"} == {first.value, second.value}
    told = dict(first.headers)
    assert (b"k", b"t") == (first.key, told["trace"])
    assert {b"1": b"a", b"3": b"c"}[first.value or b""] == told["ottla.half.id"]


def test_the_broker_asks_and_gives_up(client: ForeignClient, topic: str) -> None:
    client.create_topic(topic, configs=HALF)
    client.send(f"{topic}.half", [half(b"a", b"prepare", b"1", b"10")])
    questions = client.read(f"{topic}.half-checks", 2)
    assert [(b"k", b"1", b"a", b"1"), (b"k", b"1", b"a", b"2")] == [
        (each.key, each.value, dict(each.headers)["ottla.half.id"], dict(each.headers)["ottla.half.checks"])
        for each in questions
    ]
    (dead,) = client.read(f"dlq.{topic}", 1)
    letter = read_dead_letter(dead.headers)
    assert letter is not None
    assert (b"k", b"1", "half message: no decision after 2 checks") == (dead.key, dead.value, letter.reason)


def test_headers_that_make_no_sense_are_refused(client: ForeignClient, topic: str) -> None:
    client.create_topic(topic, configs=HALF)
    for wrong in (half(b"", b"prepare"), half(b"a", b"maybe"), half(b"a", b"prepare", check_after_ms=b"soon")):
        with pytest.raises(ClientError) as caught:
            client.send(f"{topic}.half", [wrong])
        assert INVALID_RECORD.get(client.name, 87) == caught.value.code
