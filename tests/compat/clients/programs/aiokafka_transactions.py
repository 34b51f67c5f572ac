"""Transactions with aiokafka: producing, offsets inside them, and readers of either isolation."""

import asyncio
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

TIMEOUT_S = 75


class Transactions:
    """The commands; producers and consumers are those of the program, so that it sends, polls and closes them."""

    def __init__(self, bootstrap: str, producers: dict[int, Any], consumers: dict[int, Any]) -> None:
        self._bootstrap = bootstrap
        self._producers = producers
        self._consumers = consumers

    async def open_transactional(self, id: int, transactional_id: str, transaction_timeout_ms: int | None) -> None:
        self._producers[id] = await self._initialised(transactional_id, transaction_timeout_ms)

    async def begin_transaction(self, id: int) -> None:
        await self._producers[id].begin_transaction()

    async def commit_transaction(self, id: int) -> None:
        await self._producers[id].commit_transaction()

    async def abort_transaction(self, id: int) -> None:
        await self._producers[id].abort_transaction()

    async def send_offsets(self, id: int, group: str, offsets: list[list[Any]]) -> None:
        positions = {TopicPartition(topic, partition): offset for topic, partition, offset in offsets}
        await self._producers[id].send_offsets_to_transaction(positions, group)

    async def open_isolated_consumer(
        self, id: int, topic: str, positions: list[list[int]], committed: bool, fetch_wait_ms: int | None
    ) -> None:
        settings: dict[str, Any] = {} if fetch_wait_ms is None else {"fetch_max_wait_ms": fetch_wait_ms}
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap,
            group_id=None,
            auto_offset_reset="earliest",
            isolation_level="read_committed" if committed else "read_uncommitted",
            **settings,
        )
        await consumer.start()
        places = [TopicPartition(topic, partition) for partition, _ in positions]
        consumer.assign(places)
        for place, (_, offset) in zip(places, positions, strict=True):
            if offset >= 0:
                consumer.seek(place, offset)
        self._consumers[id] = consumer

    async def transform(
        self, transactional_id: str, group: str, source: str, target: str, count: int, commit: bool
    ) -> None:
        producer = await self._initialised(transactional_id, None)
        consumer = AIOKafkaConsumer(
            source,
            bootstrap_servers=self._bootstrap,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )
        await consumer.start()
        try:
            found = await asyncio.wait_for(_consume(consumer, count), TIMEOUT_S)
            await producer.begin_transaction()
            for record in found:
                await producer.send_and_wait(
                    target, key=record.key, value=record.value + b"!", partition=record.partition
                )
            positions = {at: await consumer.position(at) for at in consumer.assignment()}
            await producer.send_offsets_to_transaction(positions, group)
            await (producer.commit_transaction() if commit else producer.abort_transaction())
        finally:
            await consumer.stop()
            await producer.stop()

    async def _initialised(self, transactional_id: str, transaction_timeout_ms: int | None) -> Any:
        settings: dict[str, Any] = {"transactional_id": transactional_id}
        if transaction_timeout_ms is not None:
            settings["transaction_timeout_ms"] = transaction_timeout_ms
        producer = AIOKafkaProducer(bootstrap_servers=self._bootstrap, **settings)
        await producer.start()
        # Only the first transaction waits for the producer id; an empty one is not told to the broker.
        async with producer.transaction():
            pass
        return producer


async def _consume(consumer: Any, count: int) -> list[Any]:
    found: list[Any] = []
    while len(found) < count:
        for records in (await consumer.getmany(timeout_ms=200, max_records=count - len(found))).values():
            found.extend(records)
    return found
