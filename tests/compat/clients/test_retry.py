"""Each client hands records back by producing them: they return to its group, and in the end they are dead letters."""

import pytest

from ottla.model.dead_letters import Origin, read_dead_letter
from tests.compat.clients.broker_under_test import TARGET
from tests.compat.clients.foreign_client import ClientError, ForeignClient, Sent

pytestmark = pytest.mark.skipif(TARGET != "ottla", reason="Apache Kafka does not take records back")

INVALID_RECORD = {"aiokafka": -1}
"""Kafka's code is 87, which not every client knows."""
RETRY = {
    "ottla.retry.enable": "true",
    "ottla.retry.backoff.ms": "20",
    "ottla.retry.backoff.jitter": "0",
    "ottla.retry.max.attempts": "2",
}


def create(client: ForeignClient, topic: str) -> None:
    """A topic with retry. Most clients let the broker create its companions when they first name one."""
    client.create_topic(topic, configs=RETRY)
    if client.name == "franz-go":
        client.create_topic(f"{topic}.g.retry")


def test_a_record_returns_until_it_is_dead(client: ForeignClient, topic: str) -> None:
    create(client, topic)
    client.send(topic, [Sent(key=b"k", value=b"v", headers=(("trace", b"t"),), partition=0)])
    (record,) = client.read(topic, 1)
    reason = ("ottla.retry.reason", b"no stock")
    for attempt in (1, 2, 3):
        headers = (*(header for header in record.headers if header[0] != reason[0]), reason)
        again = Sent(key=record.key, value=record.value, headers=headers, timestamp=record.timestamp, partition=0)
        client.send(f"{topic}.g.retry", [again])
        if attempt < 3:
            *_, record = client.read(f"{topic}.g.redelivery", attempt)
            told = dict(record.headers)
            assert (b"k", b"v", b"t", b"%d" % attempt) == (
                record.key, record.value, told["trace"], told["ottla.retry.attempt"],
            )  # fmt: skip
    (dead,) = client.read(f"dlq.{topic}", 1)
    letter = read_dead_letter(dead.headers)
    assert letter is not None
    assert (b"k", b"v", Origin(topic=topic, partition=0), "no stock", "g", 3) == (
        dead.key, dead.value, letter.origin, letter.reason, letter.group, letter.attempts,
    )  # fmt: skip


def test_an_edited_count_and_a_rejection_lead_to_the_dead_letters(client: ForeignClient, topic: str) -> None:
    create(client, topic)
    origin = ("ottla.retry.origin", f"{topic}/0/7".encode())
    edited = Sent(value=b"edited", headers=(("ottla.retry.attempt", b"0"),), partition=0)
    rejected = Sent(value=b"rejected", headers=(("ottla.retry.reject", b"never"), origin), partition=0)
    client.send(f"{topic}.g.retry", [edited, rejected])
    found = {each.value: read_dead_letter(each.headers) for each in client.read(f"dlq.{topic}", 2)}
    first, second = found[b"edited"], found[b"rejected"]
    assert first is not None
    assert second is not None
    assert "were changed by a client" in first.reason
    assert ("never", Origin(topic=topic, partition=0, offset=7)) == (second.reason, second.origin)


def test_a_header_that_makes_no_sense_is_refused(client: ForeignClient, topic: str) -> None:
    create(client, topic)
    with pytest.raises(ClientError) as caught:
        client.send(f"{topic}.g.retry", [Sent(value=b"v", headers=(("ottla.retry.origin", b"x"),), partition=0)])
    assert INVALID_RECORD.get(client.name, 87) == caught.value.code
