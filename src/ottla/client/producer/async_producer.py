"""The producer for asyncio programs: `send` returns deliveries that can be awaited.

Sending is in `send_path.py`, everything else in `core.py`; both run in the program's event loop.
"""

import asyncio
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack, cast

from ottla.client.arguments import checks_arguments
from ottla.client.producer.batching.deliveries import AsyncDelivery
from ottla.client.producer.core import ProducerCore
from ottla.client.producer.options import ProducerOptions, producer_config
from ottla.client.values import ConsumerGroupMetadata, Header, OffsetAndMetadata, RecordMetadata
from ottla.model.ids import TopicPartition

if TYPE_CHECKING:
    from ottla.client.producer.tables.table_delivery import AsyncTableDelivery
    from ottla.client.producer.tables.table_sending import Rows


@checks_arguments(skip=("send", "send_and_wait"))
class AsyncProducer:
    """Sends records from an event loop. An async context manager; call `start` or use `async with` before `send`.

    `ProducerOptions` has its arguments. One producer can serve a whole program: all tasks may share it.

    Every method raises `ProducerClosedError` after `close`, and `ArgumentError` for an argument of the wrong type.
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
        """Binds the producer to the running event loop. It connects at the first `send`."""
        self._core.sender.start()

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Sequence[Header] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> AsyncDelivery:
        """Appends a record to the batch of its partition. Await the returned delivery to wait until it is written.

        Waits only for the first metadata of a topic and for room in `buffer_memory`, up to `max_block_ms` each. Raises
        `MisuseError` or `RecordTooLargeError` if the record cannot be sent, `BufferFullError`, `DeadlineError`, or
        `AnswerError` if a broker refuses the topic; the record was not sent then.
        """
        path = self._core.path
        sent = path.send(topic, value, key, headers, partition, timestamp_ms)
        if type(sent) is not AsyncDelivery:
            return cast(AsyncDelivery, await sent)  # type: ignore[misc]  # a coroutine then
        if path.accumulator.wants_wake:
            path.wake()
            # Without this the sender would never run in a program that only sends.
            await asyncio.sleep(0)
        return sent

    async def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Sequence[Header] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> RecordMetadata:
        """Sends a record, waits until it is written, and returns where. Raises what `send` and its delivery raise."""
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
        """Sends the rows of a pyarrow Table, RecordBatch or RecordBatchReader as records.

        The arguments name columns: `key` and `value` (binary, text, or what Arrow casts to binary), `timestamp`,
        `headers` (lists or maps of text to binary) and `partition`. A column with the default name may be missing; a
        column that is named must exist. A number as `partition` is the partition of all rows. Otherwise a row goes to
        the partition of its `partition` column, else of its key; rows without a key go to the partitions in turn. Rows
        of one partition keep their order, after what was sent there before. Serializers with schemas of a registry
        write the columns `key` and `value`, whatever their types; others are not called.

        Waits for metadata and for room in `buffer_memory`, up to `max_block_ms` each time. Raises `MisuseError` for a
        table that cannot be sent; rows before the part at fault may have been sent. Raises `MissingArrowError` without
        pyarrow.
        """
        from ottla.client.producer.tables.table_delivery import AsyncTableDelivery
        from ottla.client.producer.tables.table_sending import TableColumns, send_table

        columns = TableColumns(key=key, value=value, timestamp=timestamp, headers=headers, partition=partition)
        path = self._core.path
        return AsyncTableDelivery(await send_table(path, topic, table, columns), path.clock.monotonic)

    async def flush(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  # as in kafka-python
        """Waits until every record sent so far is delivered or failed; failures are in the deliveries.

        Raises `DeadlineError` after `timeout` seconds; the producer keeps trying.
        """
        self._core.check_open()
        await self._core.flush(timeout)

    async def close(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  # as in kafka-python
        """Delivers what was sent, aborts an open transaction, and closes all connections.

        Records that are not delivered after `timeout` seconds fail with `ProducerClosedError`. Calling it again does
        nothing.
        """
        await self._core.close(timeout)

    async def partitions_for(self, topic: str) -> set[int]:
        """The partitions of a topic; the brokers may create the topic.

        Raises `AnswerError`, `CannotConnectError` or `DeadlineError` after `max_block_ms`.
        """
        return set((await self._core.path.wait_topic(topic)).all)

    def metrics(self) -> dict[str, dict[str, Any]]:
        """Counts and averages so far, under Kafka's names."""
        return self._core.metrics()

    async def init_transactions(self) -> None:
        """Registers the transactional id; call it once, before the first transaction.

        Fences any other producer with the same id and aborts its open transaction.
        """
        await self._core.transactions().init_transactions()

    def begin_transaction(self) -> None:
        """Starts a transaction: all records sent until commit or abort belong to it."""
        self._core.transactions().call("begin_transaction")

    async def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group_metadata: ConsumerGroupMetadata | str
    ) -> None:
        """Commits offsets of a consumer group as part of the transaction.

        Pass the consumer's `group_metadata()`: with it, a consumer that left the group is fenced.
        """
        await self._core.transactions().send_offsets(offsets, group_metadata)

    async def commit_transaction(self) -> None:
        """Waits for all records of the transaction, then commits it.

        Raises `TransactionFailedError` if a record or an offset failed: abort, then begin a new transaction. Raises
        `DeadlineError` if it is unknown whether the commit succeeded: call again, or abort.
        """
        await self._core.transactions().commit()

    async def abort_transaction(self) -> None:
        """Aborts the transaction. Deliveries of records not sent yet raise `TransactionAbortedError`."""
        await self._core.transactions().abort()
