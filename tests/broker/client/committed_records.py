"""What a consumer of a topic gets, up to the end of the topic at this moment."""

from ottla.client.consumer.blocking_consumer import Consumer
from ottla.client.values import ConsumerRecord
from ottla.model.ids import TopicPartition
from tests.waiting import tries


def read_committed(bootstrap: str, topic: str) -> list[ConsumerRecord]:
    """The committed records of a topic; waits for the transactions that are in it to end."""
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
