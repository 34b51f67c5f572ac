"""The producer for asyncio programs: records in, deliveries to await.

All of the work is `producer_core.py`'s, in the program's own event loop.
"""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack, cast

from ottla.client.producer.core import Prepared, ProducerCore
from ottla.client.producer.deliveries import AsyncDelivery
from ottla.client.producer.interceptors import ProducerRecord
from ottla.client.producer.options import ProducerOptions, producer_config
from ottla.client.producer.record_fields import check_target
from ottla.client.values import ConsumerGroupMetadata, Header, OffsetAndMetadata, RecordMetadata
from ottla.model.ids import TopicPartition

if TYPE_CHECKING:
    from ottla.client.producer.table_delivery import AsyncTableDelivery
    from ottla.client.producer.table_sending import Rows


class AsyncProducer:
    """Sends records from an event loop. An async context manager; `start` or `async with` before the first `send`.

    `ProducerOptions` has its arguments. One producer serves a whole program: it is made to be shared by all tasks.
    """

    def __init__(self, **options: Unpack[ProducerOptions]) -> None:
        self._core = ProducerCore(producer_config("AsyncProducer", **options), is_async=True)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Binds it to the running event loop. Nothing is asked of a broker before it must."""
        self._core.loop.start()

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Sequence[Header] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> AsyncDelivery:
        """Puts a record with the others for its partition; await the delivery to know that it is written.

        Waits only for a topic's first metadata and for room in `buffer_memory`, up to `max_block_ms` each. Raises what
        is wrong with the record, `BufferFullError`, `DeadlineError` or the broker's refusal; then nothing was sent.
        """
        core = self._core
        try:
            if core.has_interceptors:
                record = core.intercepted(
                    ProducerRecord(
                        topic=topic,
                        value=value,
                        key=key,
                        headers=headers or (),
                        partition=partition,
                        timestamp_ms=timestamp_ms,
                    )
                )
                topic, value, key, headers = record.topic, record.value, record.key, record.headers
                partition, timestamp_ms = record.partition, record.timestamp_ms
            if type(topic) is not str or (partition is not None and type(partition) is not int):
                check_target(topic, partition)
            routes = core.routes.get(topic)
            if routes is None or (partition is not None and not 0 <= partition < len(routes.queues)):
                routes = await core.wait_topic(topic, partition)
            prepared = core.prepare(routes, value, key, headers, partition, timestamp_ms)
            delivery = core.append(prepared)
            if delivery is None:
                return await self._wait_room(prepared)
        except Exception as error:
            core.interceptors.on_refused(error)
            raise
        if core.accumulator.wants_wake:
            core.accumulator.wants_wake = False
            core.loop.wake()
            # A program that only sends would never let the sender run.
            await asyncio.sleep(0)
        return cast(AsyncDelivery, delivery)

    async def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Sequence[Header] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> RecordMetadata:
        """Sends a record and waits until it is written; where it is."""
        return await (await self.send(topic, value, key, headers, partition, timestamp_ms))

    async def send_table(
        self,
        topic: str,
        table: "Rows",
        *,
        key: str = "key",
        value: str = "value",
        timestamp: str = "timestamp",
        headers: str = "headers",
        partition: int | str = "partition",
    ) -> "AsyncTableDelivery":
        """Puts the rows of a pyarrow Table, RecordBatch or RecordBatchReader with what waits for their partitions.

        Columns are found by name: `key` and `value` (binary, text, or what Arrow casts to binary), `timestamp`,
        `headers` (lists or maps of text to binary) and `partition` may be missing, a column that is named here must be
        there. A number as `partition` is for all rows; else rows go by their key, as other records do, and without one
        to partitions in turn. Rows of a partition keep their order, and follow what was sent there before.

        Waits for metadata and for room in `buffer_memory`, up to `max_block_ms` each time. Raises what is wrong with
        the table; rows before the piece that is wrong may have been sent. Needs pyarrow.
        """
        import ottla.client.needed_arrow  # noqa: F401  # says what to install, if anything
        from ottla.client.producer.table_sending import TableColumns, send_table

        columns = TableColumns(key=key, value=value, timestamp=timestamp, headers=headers, partition=partition)
        return await send_table(self._core, topic, table, columns)

    async def _wait_room(self, prepared: Prepared) -> AsyncDelivery:
        core = self._core
        started = core.cluster.clock.monotonic()
        try:
            async with asyncio.timeout(core.config.max_block_ms / 1000):
                while True:
                    room: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                    core.add_room_waiter(partial(_set, room))
                    core.loop.wake()
                    await room
                    delivery = core.append(prepared)
                    if delivery is not None:
                        core.loop.wake()
                        return cast(AsyncDelivery, delivery)
        except TimeoutError:
            raise core.no_room(prepared[0], core.cluster.clock.monotonic() - started) from None

    async def flush(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  # as in kafka-python
        """Returns once it is known what became of every record sent before; failures are in their deliveries.

        Raises `DeadlineError` after `timeout` seconds; the records are still under way then.
        """
        await self._core.flush(timeout)

    async def close(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  # as in kafka-python
        """Waits for what was sent, aborts an open transaction, and closes all connections. Harmless if closed.

        After `timeout` seconds it gives up the rest, whose deliveries then raise `ProducerClosedError`.
        """
        await self._core.close(timeout)

    async def partitions_for(self, topic: str) -> set[int]:
        """The partitions that a topic has; makes the topic where brokers do that by themselves."""
        return set((await self._core.wait_topic(topic)).all)

    def metrics(self) -> dict[str, dict[str, Any]]:
        """What it did so far, in numbers, under Kafka's names."""
        return self._core.metrics()

    async def init_transactions(self) -> None:
        """Takes the transactional id, once, before the first transaction.

        Any other producer of that id is fenced, and what it left open is aborted.
        """
        await self._core.transactional().init_transactions()

    def begin_transaction(self) -> None:
        """From now on, until commit or abort, what is sent belongs to one transaction."""
        self._core.transactional().call("begin_transaction")

    async def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group_metadata: ConsumerGroupMetadata | str
    ) -> None:
        """Commits a group's offsets with the transaction, or not at all. Give the consumer's `group_metadata()`."""
        await self._core.transactional().send_offsets(offsets, group_metadata)

    async def commit_transaction(self) -> None:
        """Waits for every record of the transaction, then makes all of it visible at once.

        Raises `TransactionFailedError` if a record or an offset of it failed: abort it, then begin again. Raises
        `DeadlineError` if nobody knows yet whether it is committed: call again, or abort.
        """
        await self._core.transactional().commit()

    async def abort_transaction(self) -> None:
        """Makes nothing of it visible, ever. Deliveries of what had not been sent raise `TransactionAbortedError`."""
        await self._core.transactional().abort()


def _set(room: "asyncio.Future[None]") -> None:
    if not room.done():
        room.set_result(None)
