"""Transactions with kafka-python: producing, offsets inside them, and readers of either isolation."""

import time
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition

TIMEOUT_S = 75


class Transactions:
    """The commands; producers and consumers are those of the program, so that it sends, polls and closes them."""

    def __init__(self, bootstrap: str, producers: dict[int, Any], consumers: dict[int, Any]) -> None:
        self._bootstrap = bootstrap
        self._producers = producers
        self._consumers = consumers

    def open_transactional(self, id: int, transactional_id: str, transaction_timeout_ms: int | None) -> None:
        self._producers[id] = self._initialised(transactional_id, transaction_timeout_ms)

    def begin_transaction(self, id: int) -> None:
        self._producers[id].begin_transaction()

    def commit_transaction(self, id: int) -> None:
        self._producers[id].commit_transaction()

    def abort_transaction(self, id: int) -> None:
        self._producers[id].abort_transaction()

    def send_offsets(self, id: int, group: str, offsets: list[list[Any]]) -> None:
        positions = {
            TopicPartition(topic, partition): OffsetAndMetadata(offset, "", -1) for topic, partition, offset in offsets
        }
        self._producers[id].send_offsets_to_transaction(positions, group)

    def open_isolated_consumer(
        self, id: int, topic: str, positions: list[list[int]], committed: bool, fetch_wait_ms: int | None
    ) -> None:
        settings: dict[str, Any] = {} if fetch_wait_ms is None else {"fetch_max_wait_ms": fetch_wait_ms}
        consumer = KafkaConsumer(
            bootstrap_servers=self._bootstrap,
            group_id=None,
            auto_offset_reset="earliest",
            isolation_level="read_committed" if committed else "read_uncommitted",
            **settings,
        )
        places = [TopicPartition(topic, partition) for partition, _ in positions]
        consumer.assign(places)
        for place, (_, offset) in zip(places, positions, strict=True):
            if offset >= 0:
                consumer.seek(place, offset)
        self._consumers[id] = consumer

    def transform(self, transactional_id: str, group: str, source: str, target: str, count: int, commit: bool) -> None:
        producer = self._initialised(transactional_id, None)
        consumer = KafkaConsumer(
            source,
            bootstrap_servers=self._bootstrap,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )
        try:
            found = _consume(consumer, count)
            producer.begin_transaction()
            for record in found:
                producer.send(target, key=record.key, value=record.value + b"!", partition=record.partition)
            positions = {at: OffsetAndMetadata(consumer.position(at), "", -1) for at in consumer.assignment()}
            producer.send_offsets_to_transaction(positions, consumer.group_metadata())
            if commit:
                producer.commit_transaction()
            else:
                producer.flush(TIMEOUT_S)
                producer.abort_transaction()
        finally:
            consumer.close()
            producer.close(timeout=1)

    def _initialised(self, transactional_id: str, transaction_timeout_ms: int | None) -> Any:
        settings: dict[str, Any] = {"transactional_id": transactional_id}
        if transaction_timeout_ms is not None:
            settings["transaction_timeout_ms"] = transaction_timeout_ms
        producer = KafkaProducer(bootstrap_servers=self._bootstrap, **settings)
        producer.init_transactions()
        return producer


def _consume(consumer: Any, count: int) -> list[Any]:
    found: list[Any] = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(found) < count:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(found)} of {count} records came")
        for records in consumer.poll(timeout_ms=200, max_records=count - len(found)).values():
            found.extend(records)
    return found
