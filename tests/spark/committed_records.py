"""What a reader of committed records finds in a topic: by confluent-kafka, whose code has nothing of ours."""

from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.waiting import PATIENCE_SECONDS, wait_until


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
        partitions = list(consumer.list_topics(topic, PATIENCE_SECONDS).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        found: list[Found] = []
        ended: set[int] = set()

        def read_to_the_end() -> bool:
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
            return len(ended) == len(partitions)

        wait_until(read_to_the_end, f"all of {topic} is read")
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

        def decided() -> object:
            return admin.list_transactions(state_filters=["PrepareCommit", "PrepareAbort"])

        wait_until(lambda: not decided(), lambda: f"decided transactions have their markers: {decided()}")


def open_transactions(bootstrap: str) -> list[str]:
    """The transactional ids of sinks that have a transaction open."""
    from ottla import Admin

    with Admin(bootstrap_servers=bootstrap) as admin:
        return [
            each.transactional_id
            for each in admin.list_transactions(state_filters=["Ongoing"])
            if each.transactional_id.startswith("ottla-spark-")
        ]
