"""What a topic holds at the moment, read by a consumer."""

from collections import Counter

from ottla.client.consumer.blocking_consumer import Consumer
from ottla.client.values import ConsumerRecord
from ottla.model.ids import TopicPartition


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
