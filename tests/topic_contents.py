"""What a topic holds, read by a consumer."""

import itertools
from collections import Counter

from ottla.client.consumer.blocking_consumer import Consumer
from ottla.client.values import ConsumerRecord
from ottla.model.ids import TopicPartition
from tests.waiting import PATIENCE_SECONDS, tries


def first_records(bootstrap: str, topic: str, count: int) -> list[ConsumerRecord]:
    """The first committed records of a topic, once there are that many; fewer if they do not come in time."""
    with Consumer(
        topic,
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        consumer_timeout_ms=PATIENCE_SECONDS * 1000,
    ) as consumer:
        return list(itertools.islice(consumer, count))


def read_committed(bootstrap: str, topic: str) -> list[ConsumerRecord]:
    """The committed records up to the end of a topic at this moment; waits for the transactions in it to end."""
    with (
        Consumer(bootstrap_servers=bootstrap) as everything,
        Consumer(
            bootstrap_servers=bootstrap, auto_offset_reset="earliest", isolation_level="read_committed"
        ) as consumer,
    ):
        partitions = [TopicPartition(topic, at) for at in sorted(everything.partitions_for_topic(topic) or ())]
        ends = everything.end_offsets(partitions)
        consumer.assign(partitions)
        found: list[ConsumerRecord] = []
        for _ in tries("all transactions have ended"):
            if all(consumer.position(each) >= ends[each] for each in partitions):
                break
            for records in consumer.poll(1000).values():
                found += records
        return found


def contents(bootstrap: str, topic: str) -> list[ConsumerRecord]:
    """All committed records of a topic up to its present end, partition by partition."""
    found: list[ConsumerRecord] = []
    with Consumer(
        bootstrap_servers=bootstrap, auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        indexes = consumer.partitions_for_topic(topic) or ()
        partitions = [TopicPartition(topic, index) for index in sorted(indexes)]
        ends = consumer.end_offsets(partitions)
        consumer.assign(partitions)
        while any(consumer.position(each) < ends[each] for each in partitions):
            found += [record for records in consumer.poll(1000).values() for record in records]
    return sorted(found, key=lambda record: (record.partition, record.offset))


def values_in(bootstrap: str, topic: str) -> Counter[bytes]:
    """How often each value is in a topic."""
    return Counter(record.value for record in contents(bootstrap, topic))
