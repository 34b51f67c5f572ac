"""The parallel consumer against the broker under test: order per key, dead letters, and commits that lose nothing."""

from typing import Any

from ottla.client.admin.blocking_admin import Admin
from ottla.client.admin.values import NewTopic
from ottla.client.consumer.blocking_consumer import Consumer
from ottla.client.parallel.blocking_parallel_consumer import ParallelConsumer
from ottla.client.producer.blocking_producer import Producer
from ottla.client.values import ConsumerRecord
from ottla.model import dead_letters

RECORDS = 400


def test_order_per_key_dead_letters_and_commits(bootstrap: str, topic: str) -> None:
    dead = f"{topic}-dead"
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic(topic, 3, 1), NewTopic(dead, 1, 1)], wait_for_metadata=True)
    with Producer(bootstrap_servers=bootstrap) as producer:
        for at in range(RECORDS):
            producer.send(topic, b"%d" % at, key=b"%d" % (at % 10))
    # With all its keys: a worker that adds one would fail the sum of another, and that record would be handled twice.
    seen: dict[bytes, list[int]] = {b"%d" % key: [] for key in range(10)}
    told: dict[str, Any] = {"bootstrap_servers": bootstrap, "auto_offset_reset": "earliest"}
    with ParallelConsumer(
        topic, group_id=topic, workers=8, dead_letter_topic=dead, handler_retries=1, handler_backoff_ms=1, **told
    ) as consumer:

        def handle(record: ConsumerRecord) -> None:
            if record.value == b"123":
                raise ValueError("bad luck")
            seen[record.key].append(int(record.value))
            if sum(map(len, seen.values())) == RECORDS - 1:
                consumer.stop()

        consumer.run(handle)
    expected = {b"%d" % key: [at for at in range(key, RECORDS, 10) if at != 123] for key in range(10)}
    assert expected == seen
    with Admin(bootstrap_servers=bootstrap) as admin:
        assert RECORDS == sum(each.offset for each in admin.list_consumer_group_offsets(topic).values())
    with Consumer(dead, **told) as reading:
        letter = next(iter(reading))
    headers = dict(letter.headers)
    assert (b"3", b"123") == (letter.key, letter.value)
    assert (topic.encode(), b"bad luck", b"2") == (
        headers[dead_letters.TOPIC],
        headers[dead_letters.MESSAGE],
        headers[dead_letters.DELIVERY_COUNT],
    )
