"""Records that a consumer gives up, on the broker under test: dead letters everywhere, retries only where it can."""

from typing import Any

import pytest

from ottla.client.admin.blocking_admin import Admin
from ottla.client.admin.values import NewTopic
from ottla.client.consumer.blocking_consumer import Consumer
from ottla.client.consumer.errors import RetryNotEnabledError
from ottla.client.producer.blocking_producer import Producer
from ottla.model.dead_letters import DeadLetter, Origin, read_dead_letter


def test_records_are_rejected_to_the_dead_letter_topic_and_not_handed_back(bootstrap: str, topic: str) -> None:
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic(topic, 2, 1), NewTopic(f"dlq.{topic}", 1, 1)], wait_for_metadata=True)
    with Producer(bootstrap_servers=bootstrap) as producer:
        producer.send(topic, b"v", b"k", [("trace", b"t")], partition=1).get(30)
    told: dict[str, Any] = {"bootstrap_servers": bootstrap, "auto_offset_reset": "earliest"}
    with Consumer(topic, group_id=topic, enable_retry=True, **told) as consumer:
        record = next(consumer)
        with pytest.raises(RetryNotEnabledError, match="cannot be handed back"):
            consumer.retry(record, "later")
        consumer.reject(record, ValueError("never"))
        assert {topic, f"dlq.{topic}"} == {name for name in consumer.topics() if topic in name}
    with Consumer(f"dlq.{topic}", **told) as reading:
        letter = next(reading)
    assert (b"k", b"v", b"t") == (letter.key, letter.value, dict(letter.headers)["trace"])
    origin = Origin(topic=topic, partition=1, offset=0)
    expected = DeadLetter(origin=origin, reason="never", exception="builtins.ValueError", group=topic, attempts=1)
    assert expected == read_dead_letter(letter.headers)
