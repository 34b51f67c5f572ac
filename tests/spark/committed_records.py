"""What a reader of committed records finds in a topic: by confluent-kafka, whose code has nothing of ours."""

from time import monotonic
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.waiting import wait_until

TIMEOUT_S = 90


class Found(NamedTuple):
    """One record."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def committed_records(bootstrap: str, topic: str) -> list[Found]:
    """All records of committed transactions up to the present end, by partition and offset."""
    wait_ended(bootstrap)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "nobody",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    try:
        partitions = list(consumer.list_topics(topic, TIMEOUT_S).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        found: list[Found] = []
        ended: set[int] = set()
        deadline = monotonic() + TIMEOUT_S
        while len(ended) < len(partitions):
            assert monotonic() < deadline, f"no end of {topic} after {TIMEOUT_S} s"
            # It waits until so many are there, so it must not wait long.
            for record in consumer.consume(10_000, 0.1):
                error = record.error()
                if error is not None:
                    # Any other error is one that the consumer gets over.
                    if error.code() == KafkaError._PARTITION_EOF:
                        ended.add(record.partition())
                else:
                    headers = tuple(record.headers() or ())
                    found.append(Found(record.partition(), record.offset(), record.key(), record.value(), headers))
        return sorted(found, key=lambda each: (each.partition, each.offset))
    finally:
        consumer.close()


def committed_values(bootstrap: str, topic: str) -> list[bytes | None]:
    """Their values, sorted."""
    return sorted((each.value for each in committed_records(bootstrap, topic)), key=lambda value: value or b"")


def wait_ended(bootstrap: str) -> None:
    """Returns when the decided transactions have their markers: a commit is answered before its records are visible."""
    from ottla import Admin

    with Admin(bootstrap_servers=bootstrap) as admin:
        wait_until(lambda: not admin.list_transactions(state_filters=["PrepareCommit", "PrepareAbort"]))


def open_transactions(bootstrap: str) -> list[str]:
    """The transactional ids of sinks that have a transaction open."""
    from ottla import Admin

    with Admin(bootstrap_servers=bootstrap) as admin:
        return [
            each.transactional_id
            for each in admin.list_transactions(state_filters=["Ongoing"])
            if each.transactional_id.startswith("ottla-spark-")
        ]
