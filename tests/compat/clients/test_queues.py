"""Queues, driven by plain clients: nothing but topic names, headers and topic configs."""

import time
from collections.abc import Mapping

import pytest

from tests.compat.clients.broker_under_test import TARGET
from tests.compat.clients.catalogue import JAVA
from tests.compat.clients.foreign_client import EARLIEST, ClientError, ForeignClient, Headers, Read, Sent
from tests.compat.clients.transactional import transactional_producer

CLIENTS = ("confluent-kafka", JAVA, "franz-go", "kafkajs")
pytestmark = [
    pytest.mark.skipif(TARGET != "ottla", reason="Apache Kafka has no such queues"),
    pytest.mark.parametrize("client", CLIENTS, indirect=True),
]

SHOW_MESSAGES = frozenset({JAVA})
"""The clients that tell what the broker says about an error; the others only know its code."""
INVALID_RECORD = 87
SILENCE_MS = 300
TTL_MS = 5000
"""A reader that waits for a record reads it before, also on a machine that stalls."""

DELAY = {"ottla.delay.enable": "true"}
HALF = {"ottla.half.enable": "true", "ottla.half.check.interval.ms": "60000"}
RETRY = {"ottla.retry.enable": "true", "ottla.retry.backoff.ms": "200", "ottla.retry.backoff.jitter": "0"}


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def sent(value: bytes, *headers: tuple[str, bytes]) -> Sent:
    return Sent(key=b"key", value=value, headers=headers, timestamp=now_ms(), partition=0)


def told(record: Read) -> dict[str, bytes | None]:
    """The headers by name."""
    return dict(record.headers)


def number(record: Read, header: str) -> int:
    return int(told(record)[header] or b"")


def values(records: list[Read]) -> list[bytes | None]:
    return [record.value for record in records]


# Delayed delivery


def test_records_arrive_when_they_are_due(client: ForeignClient, topic: str) -> None:
    """At a time, after a delay, and after the topic's delay; never early, in the order of their due times."""
    client.create_topic(topic, configs={**DELAY, "ottla.delay.ms": "300"})
    own = ("own", b"header")
    with client.consumer(topic, {0: EARLIEST}) as consumer, client.producer() as producer:
        first = now_ms()
        records = [
            sent(b"relative", own, ("ottla.delay-ms", b"900")),
            sent(b"absolute", own, ("ottla.deliver-at-ms", b"%d" % (first + 600))),
            sent(b"fixed", own),
        ]
        acks = producer.send(f"{topic}.delayed", records)
        last = now_ms()
        found: list[Read] = []
        # Some clients give all that they have, at least one.
        while len(found) < len(records):
            found += consumer.poll(1)
            assert number(found[-1], "ottla.due-ms") <= now_ms()
        assert [] == consumer.poll(1, timeout_ms=SILENCE_MS)
    assert [0, 1, 2] == [record.offset for record in found]
    due = [number(record, "ottla.due-ms") for record in found]
    assert sorted(due) == due
    by_value = {record.value: record for record in found}
    assert first + 900 <= number(by_value[b"relative"], "ottla.due-ms") <= last + 900
    assert first + 300 <= number(by_value[b"fixed"], "ottla.due-ms") <= last + 300
    assert first + 600 <= number(by_value[b"absolute"], "ottla.due-ms") <= max(first + 600, last)
    for record, (partition, offset) in zip(records, acks, strict=True):
        read = by_value[record.value]
        assert (record.key, record.timestamp) == (read.key, read.timestamp)
        assert record.headers == read.headers[: len(record.headers)]
        assert f"{topic}.delayed/{partition}/{offset}".encode() == told(read)["ottla.origin"]


def test_cancel_and_replace(client: ForeignClient, topic: str) -> None:
    client.create_topic(topic, configs=DELAY)
    # So long that the changes arrive before, also on a machine that stalls.
    delay = ("ottla.delay-ms", b"5000")
    with client.consumer(topic, {0: EARLIEST}) as consumer, client.producer() as producer:
        ids = (b"cancelled", b"replaced", b"kept")
        producer.send(f"{topic}.delayed", [sent(id, delay, ("ottla.delay.id", id)) for id in ids])
        replacement = (("ottla.delay-ms", b"100"), ("ottla.delay.id", b"replaced"), ("ottla.delay.replace", b"true"))
        changes = [sent(b"", ("ottla.delay.cancel", b"cancelled")), sent(b"replacement", *replacement)]
        producer.send(f"{topic}.delayed", changes)
        assert [b"replacement", b"kept"] == values(consumer.poll(2))
        assert [] == consumer.poll(1, timeout_ms=SILENCE_MS)


def test_delayed_records_of_an_aborted_transaction_are_never_delivered(client: ForeignClient, topic: str) -> None:
    client.create_topic(topic, configs=DELAY)
    delay = ("ottla.delay-ms", b"100")
    with client.consumer(topic, {0: EARLIEST}) as consumer, transactional_producer(client, topic) as producer:
        producer.begin()
        producer.send(f"{topic}.delayed", [sent(b"aborted", delay)])
        assert [] == consumer.poll(1, timeout_ms=SILENCE_MS)
        producer.abort()
        producer.begin()
        producer.send(f"{topic}.delayed", [sent(b"committed", delay)])
        producer.commit()
        assert [b"committed"] == values(consumer.poll(1))
        assert [] == consumer.poll(1, timeout_ms=SILENCE_MS)


# Expiry


def test_a_delayed_record_expires_after_it_was_delivered(client: ForeignClient, topic: str) -> None:
    client.create_topic(topic, configs={**DELAY, "ottla.ttl.enable": "true"})
    with client.consumer(topic, {0: EARLIEST}) as consumer:
        short = sent(b"short", ("ottla.delay-ms", b"1000"), ("ottla.ttl-ms", b"%d" % TTL_MS))
        client.send(f"{topic}.delayed", [short, sent(b"lasting", ("ottla.delay-ms", b"1000"))])
        found = consumer.poll(2)
        assert [b"short", b"lasting"] == values(found)
    time.sleep(max(0, number(found[0], "ottla.due-ms") + TTL_MS - now_ms()) / 1000)  # until it expires
    assert found[1:] == client.read(topic, 1)


def test_expired_records_become_dead_letters_once(client: ForeignClient, topic: str) -> None:
    dead_letters = f"dead.{topic}"
    configs = {"ottla.ttl.enable": "true", "errors.deadletterqueue.topic.name": dead_letters}
    client.create_topic(topic, configs=configs)
    client.send(topic, [sent(b"live"), sent(b"expires", ("own", b"header"), ("ottla.ttl-ms", b"300"))])
    with client.consumer(dead_letters, {0: EARLIEST}) as consumer:
        (letter,) = consumer.poll(1)
        assert [] == consumer.poll(1, timeout_ms=SILENCE_MS)
    assert (b"expires", b"header") == (letter.value, told(letter)["own"])
    origin = {name: told(letter)[f"__dlq.errors.{name}"] for name in ("topic", "partition", "offset")}
    assert {"topic": topic.encode(), "partition": b"0", "offset": b"1"} == origin
    assert [b"live"] == values(client.read(topic, 1))


# Retry and dead letters


def hand_back(client: ForeignClient, companion: str, record: Read, **headers: bytes) -> None:
    """Produces a record as a consumer does that cannot process it."""
    added: Headers = tuple((f"ottla.retry.{name}", value) for name, value in headers.items())
    back = Sent(
        key=record.key,
        value=record.value,
        headers=(*record.headers, *added),
        timestamp=record.timestamp,
        partition=record.partition,
    )
    client.send(companion, [back])


def test_a_record_is_redelivered_with_backoff_until_it_is_a_dead_letter(client: ForeignClient, topic: str) -> None:
    client.create_topic(topic, configs={**RETRY, "ottla.retry.max.attempts": "2"})
    client.call("create_topic", topic=f"{topic}.billing.retry", partitions=1, configs={})
    client.send(topic, [sent(b"order", ("own", b"header"))])
    (record,) = client.read(topic, 1)
    with client.consumer(f"{topic}.billing.redelivery", {0: EARLIEST}) as consumer:
        for attempt, backoff in ((1, 200), (2, 400)):
            before = now_ms()
            hand_back(client, f"{topic}.billing.retry", record, reason=b"not now")
            (again,) = consumer.poll(1)
            assert before + backoff <= number(again, "ottla.due-ms") <= now_ms()
            assert attempt == number(again, "ottla.retry.attempt")
            assert (record.key, record.value, record.timestamp) == (again.key, again.value, again.timestamp)
            assert b"header" == told(again)["own"]
            record = again
        hand_back(client, f"{topic}.billing.retry", record, reason=b"never", exception=b"shop.StockError")
        (letter,) = client.read(f"dlq.{topic}", 1)
        assert [] == consumer.poll(1, timeout_ms=SILENCE_MS)
    assert (record.key, record.value, b"header") == (letter.key, letter.value, told(letter)["own"])
    assert story(topic, attempts=3, message=b"never") | {"__dlq.errors.exception": b"shop.StockError"} == errors(letter)
    assert [b"order"] == values(client.read(topic, 1))


def test_rejected_records_and_changed_counts_become_dead_letters_at_once(client: ForeignClient, topic: str) -> None:
    client.create_topic(topic, configs=RETRY)
    client.call("create_topic", topic=f"{topic}.billing.retry", partitions=1, configs={})
    client.send(topic, [sent(b"rejected"), sent(b"forged")])
    rejected, forged = client.read(topic, 2)
    with client.consumer(f"dlq.{topic}", {0: EARLIEST}) as consumer:
        hand_back(client, f"{topic}.billing.retry", rejected, reject=b"makes no sense")
        (letter,) = consumer.poll(1)
        assert (b"rejected", b"makes no sense") == (letter.value, errors(letter)["__dlq.errors.message"])
        hand_back(client, f"{topic}.billing.retry", forged, attempt=b"1", token=b"0" * 32)
        (letter,) = consumer.poll(1)
        assert b"forged" == letter.value
        assert b"ottla.retry.attempt" in (errors(letter)["__dlq.errors.message"] or b"")


def errors(letter: Read) -> dict[str, bytes | None]:
    """The headers that tell why a record is a dead letter."""
    return {name: value for name, value in letter.headers if name.startswith("__dlq.errors.")}


def story(topic: str, *, attempts: int, message: bytes) -> dict[str, bytes | None]:
    """What these headers say of a record that a plain client handed back too often."""
    facts: Mapping[str, bytes] = {
        "topic": topic.encode(),
        "partition": b"0",
        "group": b"billing",
        "delivery.count": b"%d" % attempts,
        "message": message,
    }
    return {f"__dlq.errors.{name}": value for name, value in facts.items()}


# Half messages


def half(id: bytes, state: bytes, value: bytes = b"", **headers: bytes) -> Sent:
    """A half message, or the decision about it."""
    others = [(f"ottla.half.{name.replace('_', '-')}", text) for name, text in headers.items()]
    return sent(value, ("ottla.half.id", id), ("ottla.half.state", state), *others)


def test_a_half_message_is_seen_when_a_question_was_answered(client: ForeignClient, topic: str) -> None:
    client.create_topic(topic, configs=HALF)
    questions = f"{topic}.half-checks"
    with client.consumer(topic, {0: EARLIEST}) as consumer, client.consumer(questions, {0: EARLIEST}) as checks:
        client.send(f"{topic}.half", [half(b"1", b"prepare", b"paid", check_after_ms=b"200")])
        (question,) = checks.poll(1)
        assert (b"key", b"paid", b"1") == (question.key, question.value, told(question)["ottla.half.id"])
        assert [] == consumer.poll(1, timeout_ms=SILENCE_MS)
        client.send(f"{topic}.half", [half(b"1", b"commit")])
        assert [b"paid"] == values(consumer.poll(1))
        assert [] == checks.poll(1, timeout_ms=SILENCE_MS)


def test_invalid_half_messages_are_refused(client: ForeignClient, topic: str) -> None:
    client.create_topic(topic, configs=HALF)
    client.send(f"{topic}.half", [half(b"1", b"prepare", b"open")])
    invalid = [
        (sent(b"plain"), "ottla.half.id"),
        (half(b"2", b"maybe"), "ottla.half.state"),
        (half(b"2", b"prepare", check_after_ms=b"soon"), "ottla.half.check-after-ms"),
        (half(b"1", b"prepare"), "ottla.half.id"),
    ]
    for record, named in invalid:
        with pytest.raises(ClientError) as caught:
            client.send(f"{topic}.half", [record])
        assert INVALID_RECORD == caught.value.code
        assert client.name not in SHOW_MESSAGES or named in str(caught.value)


# Errors


@pytest.mark.parametrize(
    ("headers", "named"),
    [
        ((("ottla.delay-ms", b"soon"),), "ottla.delay-ms"),
        ((("ottla.deliver-at-ms", b"99999999999999999999"),), "ottla.deliver-at-ms"),
        ((("ottla.delay-ms", b"1"), ("ottla.deliver-at-ms", b"1")), "ottla.deliver-at-ms"),
    ],
)
def test_an_invalid_header_is_refused(client: ForeignClient, topic: str, headers: Headers, named: str) -> None:
    client.create_topic(topic, configs=DELAY)
    with pytest.raises(ClientError) as caught:
        client.send(f"{topic}.delayed", [Sent(value=b"never", headers=headers, partition=0)])
    assert INVALID_RECORD == caught.value.code
    assert client.name not in SHOW_MESSAGES or named in str(caught.value)
    assert [(0, 0)] == client.send(f"{topic}.delayed", [sent(b"valid")])
