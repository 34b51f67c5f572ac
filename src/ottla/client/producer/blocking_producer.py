"""The producer for programs without an event loop: `send` in any thread, the sender in a thread of its own.

`send` appends in the caller's thread, under one lock. The sender's thread is woken when a batch is full or the first
record of an idle partition arrives, not for each record. Sending is in `send_path.py`, everything else in `core.py`.
"""

import os
import threading
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self, Unpack, cast
from weakref import WeakSet

from ottla.client.arguments import checks_arguments
from ottla.client.loop_thread import LoopThread
from ottla.client.producer.batching.deliveries import Delivery
from ottla.client.producer.core import ProducerCore
from ottla.client.producer.errors import producer_closed
from ottla.client.producer.options import ProducerConfig, ProducerOptions, producer_config
from ottla.client.producer.send_path import completed
from ottla.client.values import ConsumerGroupMetadata, Header, OffsetAndMetadata
from ottla.model.errors import MisuseError
from ottla.model.ids import TopicPartition

if TYPE_CHECKING:
    from ottla.client.producer.tables.table_delivery import TableDelivery
    from ottla.client.producer.tables.table_sending import Rows


class _ForkedCore:
    """The core of a producer in a forked child process: every use is refused.

    The sender's thread does not exist in the child, and no thread there will release the lock.
    """

    is_closed = True

    def __init__(self, process: int) -> None:
        self.__process = process

    def __getattr__(self, name: str) -> NoReturn:
        raise MisuseError(
            f"the producer was created by process {self.__process} and cannot send in process {os.getpid()}, which was"
            " forked from it; create a producer in each process, after the fork"
        )


@checks_arguments(skip=("send",))
class Producer:
    """Sends records from any thread. A context manager; call `close` at the end, or records may be lost.

    `ProducerOptions` has its arguments. One producer can serve a whole program: all threads may share it.

    Every method raises `ProducerClosedError` after `close`, and `ArgumentError` for an argument of the wrong type.
    """

    def __init__(self, **options: Unpack[ProducerOptions]) -> None:
        config = producer_config("Producer", **options)
        self._thread = LoopThread("ottla producer", producer_closed)
        try:
            self._core = self._thread.call(self._make(config))
        except BaseException:
            self._thread.close()
            raise
        _PRODUCERS.add(self)

    async def _make(self, config: ProducerConfig) -> ProducerCore:
        core = ProducerCore(config, is_async=False, thread=self._thread, home=threading.get_ident())
        core.sender.start()
        return core

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Sequence[Header] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """Appends a record to the batch of its partition. The returned delivery tells when and where it is written.

        Blocks only for the first metadata of a topic and for room in `buffer_memory`, up to `max_block_ms` each. Raises
        `MisuseError` or `RecordTooLargeError` if the record cannot be sent, `BufferFullError`, `DeadlineError`, or
        `AnswerError` if a broker refuses the topic; the record was not sent then.
        """
        path = self._core.path
        sent = path.send(topic, value, key, headers, partition, timestamp_ms)
        if type(sent) is not Delivery:
            return completed(sent)  # type: ignore[arg-type]  # a coroutine then
        if path.accumulator.wants_wake:
            path.wake()
        return sent

    def send_table(
        self,
        topic: str,
        table: "Rows",
        *,
        key: str = "key",
        value: str = "value",
        timestamp: str = "timestamp",
        headers: str = "headers",
        partition: int | str = "partition",
    ) -> "TableDelivery":
        """Sends the rows of a pyarrow Table, RecordBatch or RecordBatchReader as records.

        The arguments name columns: `key` and `value` (binary, text, or what Arrow casts to binary), `timestamp`,
        `headers` (lists or maps of text to binary) and `partition`. A column with the default name may be missing; a
        column that is named must exist. A number as `partition` is the partition of all rows. Otherwise a row goes to
        the partition of its `partition` column, else of its key; rows without a key go to the partitions in turn. Rows
        of one partition keep their order, after what was sent there before. Serializers with schemas of a registry
        write the columns `key` and `value`, whatever their types; others are not called.

        Blocks for metadata and for room in `buffer_memory`, up to `max_block_ms` each time. Raises `MisuseError` for a
        table that cannot be sent; rows before the part at fault may have been sent. Raises `MissingArrowError` without
        pyarrow.
        """
        from ottla.client.producer.tables.table_delivery import TableDelivery
        from ottla.client.producer.tables.table_sending import TableColumns, send_table

        columns = TableColumns(key=key, value=value, timestamp=timestamp, headers=headers, partition=partition)
        path = self._core.path
        return TableDelivery(completed(send_table(path, topic, table, columns)), path.clock.monotonic)

    def flush(self, timeout: float | None = None) -> None:
        """Waits until every record sent so far is delivered or failed; failures are in the deliveries.

        Raises `DeadlineError` after `timeout` seconds; the producer keeps trying.
        """
        self._core.check_open()
        self._thread.call(self._core.flush(timeout))

    def close(self, timeout: float | None = None) -> None:
        """Delivers what was sent, aborts an open transaction, closes all connections and ends the thread.

        Records that are not delivered after `timeout` seconds fail with `ProducerClosedError`. Calling it again does
        nothing.
        """
        if not self._core.is_closed:
            self._thread.call(self._core.close(timeout))
        self._thread.close()

    def partitions_for(self, topic: str) -> set[int]:
        """The partitions of a topic; the brokers may create the topic.

        Raises `AnswerError`, `CannotConnectError` or `DeadlineError` after `max_block_ms`.
        """
        return set(completed(self._core.path.wait_topic(topic)).all)

    def metrics(self) -> dict[str, dict[str, Any]]:
        """Counts and averages so far, under Kafka's names."""
        return self._core.metrics()

    def init_transactions(self) -> None:
        """Registers the transactional id; call it once, before the first transaction.

        Fences any other producer with the same id and aborts its open transaction.
        """
        self._thread.call(self._core.transactions().init_transactions())

    def begin_transaction(self) -> None:
        """Starts a transaction: all records sent until commit or abort belong to it."""
        self._core.transactions().call("begin_transaction")

    def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group_metadata: ConsumerGroupMetadata | str
    ) -> None:
        """Commits offsets of a consumer group as part of the transaction.

        Pass the consumer's `group_metadata()`: with it, a consumer that left the group is fenced.
        """
        self._thread.call(self._core.transactions().send_offsets(offsets, group_metadata))

    def commit_transaction(self) -> None:
        """Waits for all records of the transaction, then commits it.

        Raises `TransactionFailedError` if a record or an offset failed: abort, then begin a new transaction. Raises
        `DeadlineError` if it is unknown whether the commit succeeded: call again, or abort.
        """
        self._thread.call(self._core.transactions().commit())

    def abort_transaction(self) -> None:
        """Aborts the transaction. Deliveries of records not sent yet raise `TransactionAbortedError`."""
        self._thread.call(self._core.transactions().abort())


_PRODUCERS: Final[WeakSet[Producer]] = WeakSet()
"""All producers of this process."""


def _after_fork() -> None:
    for producer in list(_PRODUCERS):
        producer._core = cast(ProducerCore, _ForkedCore(os.getppid()))


os.register_at_fork(after_in_child=_after_fork)
