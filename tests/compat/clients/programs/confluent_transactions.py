"""Transactions with confluent-kafka (librdkafka): producing, offsets inside them, and readers of either isolation."""

import time
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

TIMEOUT_S = 75


class Transactions:
    """The commands; producers and consumers are those of the program, so that it sends, polls and closes them."""

    def __init__(self, settings: dict[str, Any], producers: dict[int, Any], consumers: dict[int, Any]) -> None:
        self._settings = settings
        self._producers = producers
        self._consumers = consumers

    def open_transactional(self, id: int, transactional_id: str, transaction_timeout_ms: int | None) -> None:
        self._producers[id] = self._initialised(transactional_id, transaction_timeout_ms)

    def begin_transaction(self, id: int) -> None:
        self._producers[id].begin_transaction()

    def commit_transaction(self, id: int) -> None:
        self._producers[id].commit_transaction(TIMEOUT_S)

    def abort_transaction(self, id: int) -> None:
        self._producers[id].abort_transaction(TIMEOUT_S)

    def send_offsets(self, id: int, group: str, offsets: list[list[Any]]) -> None:
        consumer = Consumer({**self._settings, "group.id": group})
        positions = [TopicPartition(topic, partition, offset) for topic, partition, offset in offsets]
        try:
            self._producers[id].send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), TIMEOUT_S)
        finally:
            consumer.close()

    def open_isolated_consumer(
        self, id: int, topic: str, positions: list[list[int]], committed: bool, fetch_wait_ms: int | None
    ) -> None:
        settings = {
            **self._settings,
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed" if committed else "read_uncommitted",
        }
        if fetch_wait_ms is not None:
            settings["fetch.wait.max.ms"] = fetch_wait_ms
        consumer = Consumer(settings)
        consumer.assign([TopicPartition(topic, partition, offset) for partition, offset in positions])
        self._consumers[id] = consumer

    def transform(self, transactional_id: str, group: str, source: str, target: str, count: int, commit: bool) -> None:
        producer = self._initialised(transactional_id, None)
        consumer = Consumer(
            {**self._settings, "group.id": group, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        )
        try:
            consumer.subscribe([source])
            found = _consume(consumer, count)
            producer.begin_transaction()
            for record in found:
                producer.produce(target, key=record.key(), value=record.value() + b"!", partition=record.partition())
            positions = [each for each in consumer.position(consumer.assignment()) if each.offset >= 0]
            producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), TIMEOUT_S)
            if commit:
                producer.commit_transaction(TIMEOUT_S)
            else:
                producer.flush(TIMEOUT_S)
                producer.abort_transaction(TIMEOUT_S)
        finally:
            consumer.close()

    def _initialised(self, transactional_id: str, transaction_timeout_ms: int | None) -> Any:
        settings = {**self._settings, "transactional.id": transactional_id}
        if transaction_timeout_ms is not None:
            settings["transaction.timeout.ms"] = transaction_timeout_ms
        producer = Producer(settings)
        producer.init_transactions(TIMEOUT_S)
        return producer


def _consume(consumer: Any, count: int) -> list[Any]:
    found: list[Any] = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(found) < count:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(found)} of {count} records came")
        for record in consumer.consume(count - len(found), timeout=0.2):
            if record.error() is not None:
                raise KafkaException(record.error())
            found.append(record)
    return found
