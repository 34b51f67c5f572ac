"""The producer for programs without an event loop: `send` in any thread, the sender in a thread of its own.

`send` appends in the caller's thread, under one lock; the sender's thread is woken when a batch is full or the first
record of an idle partition arrives, not for each record. All else is `producer_core.py`'s, called in the sender's loop.
"""

import os
import threading
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self, Unpack, cast
from weakref import WeakSet

from ottla.client.loop_thread import LoopThread
from ottla.client.producer.core import Prepared, ProducerCore
from ottla.client.producer.deliveries import Delivery
from ottla.client.producer.interceptors import ProducerRecord
from ottla.client.producer.options import ProducerConfig, ProducerOptions, producer_config
from ottla.client.producer.record_fields import check_target
from ottla.client.values import ConsumerGroupMetadata, Header, OffsetAndMetadata
from ottla.model.errors import MisuseError
from ottla.model.ids import TopicPartition

if TYPE_CHECKING:
    from ottla.client.producer.table_delivery import TableDelivery
    from ottla.client.producer.table_sending import Rows


class _Disowned:
    """The core of a producer in a process that was forked from its own: whatever is asked of it is refused.

    Its sender's thread does not exist there, and its lock may be held by nobody who will ever let go of it.
    """

    is_closed = True

    def __init__(self, process: int) -> None:
        self.__process = process

    def __getattr__(self, name: str) -> NoReturn:
        raise MisuseError(
            f"this producer was made by process {self.__process}, and this is {os.getpid()}, forked from it: nothing"
            " would be sent; make a producer in each process, after the fork"
        )


class Producer:
    """Sends records from any thread. A context manager; `close` at the end, or records may be lost.

    `ProducerOptions` has its arguments. One producer serves a whole program: it is made to be shared by all threads.
    """

    def __init__(self, **options: Unpack[ProducerOptions]) -> None:
        config = producer_config("Producer", **options)
        self._thread = LoopThread("ottla producer")
        try:
            self._core = self._thread.call(self._make(config))
        except BaseException:
            self._thread.close()
            raise
        _MADE.add(self)

    @staticmethod
    async def _make(config: ProducerConfig) -> ProducerCore:
        core = ProducerCore(config, is_async=False, home=threading.get_ident())
        core.loop.start()
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
        """Puts a record with the others for its partition and returns; `get` of the delivery waits until it is written.

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
                if core.is_closed:
                    raise core.closed_error()
                routes = self._thread.call(core.wait_topic(topic, partition))
            prepared = core.prepare(routes, value, key, headers, partition, timestamp_ms)
            delivery = core.append(prepared)
            if delivery is None:
                return self._wait_room(prepared)
        except Exception as error:
            core.interceptors.on_refused(error)
            raise
        if core.accumulator.wants_wake:
            core.accumulator.wants_wake = False
            self._thread.post(core.loop.wake)
        return delivery

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
        """Puts the rows of a pyarrow Table, RecordBatch or RecordBatchReader with what waits for their partitions.

        Columns are found by name: `key` and `value` (binary, text, or what Arrow casts to binary), `timestamp`,
        `headers` (lists or maps of text to binary) and `partition` may be missing, a column that is named here must be
        there. A number as `partition` is for all rows; else rows go by their key, as other records do, and without one
        to partitions in turn. Rows of a partition keep their order, and follow what was sent there before.

        Waits for metadata and for room in `buffer_memory`, up to `max_block_ms` each time. Raises what is wrong with
        the table; rows before the piece that is wrong may have been sent. Needs pyarrow.
        """
        import ottla.client.needed_arrow  # noqa: F401  # says what to install, if anything
        from ottla.client.producer.table_sending import TableColumns, send_table_blocking

        columns = TableColumns(key=key, value=value, timestamp=timestamp, headers=headers, partition=partition)
        return send_table_blocking(self._core, self._thread, topic, table, columns)

    def _wait_room(self, prepared: Prepared) -> Delivery:
        core = self._core
        monotonic = core.cluster.clock.monotonic
        started = monotonic()
        while True:
            room = threading.Event()
            core.add_room_waiter(room.set)
            self._thread.post(core.loop.wake)
            left = started + core.config.max_block_ms / 1000 - monotonic()
            if not room.wait(max(left, 0)):
                raise core.no_room(prepared[0], monotonic() - started)
            delivery = core.append(prepared)
            if delivery is not None:
                core.loop.counts.buffer_wait_ms += (monotonic() - started) * 1000
                self._thread.post(core.loop.wake)
                return delivery

    def flush(self, timeout: float | None = None) -> None:
        """Returns once it is known what became of every record sent before; failures are in their deliveries.

        Raises `DeadlineError` after `timeout` seconds; the records are still under way then.
        """
        self._thread.call(self._core.flush(timeout))

    def close(self, timeout: float | None = None) -> None:
        """Waits for what was sent, aborts an open transaction, closes all connections and ends the thread.

        After `timeout` seconds it gives up the rest, whose deliveries then raise `ProducerClosedError`. Closing twice
        is harmless.
        """
        if not self._core.is_closed:
            self._thread.call(self._core.close(timeout))
        self._thread.close()

    def partitions_for(self, topic: str) -> set[int]:
        """The partitions that a topic has; makes the topic where brokers do that by themselves."""
        return set(self._thread.call(self._core.wait_topic(topic)).all)

    def metrics(self) -> dict[str, dict[str, Any]]:
        """What it did so far, in numbers, under Kafka's names."""
        return self._core.metrics()

    def init_transactions(self) -> None:
        """Takes the transactional id, once, before the first transaction.

        Any other producer of that id is fenced, and what it left open is aborted.
        """
        self._thread.call(self._core.transactional().init_transactions())

    def begin_transaction(self) -> None:
        """From now on, until commit or abort, what is sent belongs to one transaction."""
        self._core.transactional().call("begin_transaction")

    def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group_metadata: ConsumerGroupMetadata | str
    ) -> None:
        """Commits a group's offsets with the transaction, or not at all. Give the consumer's `group_metadata()`."""
        self._thread.call(self._core.transactional().send_offsets(offsets, group_metadata))

    def commit_transaction(self) -> None:
        """Waits for every record of the transaction, then makes all of it visible at once.

        Raises `TransactionFailedError` if a record or an offset of it failed: abort it, then begin again. Raises
        `DeadlineError` if nobody knows yet whether it is committed: call again, or abort.
        """
        self._thread.call(self._core.transactional().commit())

    def abort_transaction(self) -> None:
        """Makes nothing of it visible, ever. Deliveries of what had not been sent raise `TransactionAbortedError`."""
        self._thread.call(self._core.transactional().abort())


_MADE: Final[WeakSet[Producer]] = WeakSet()


def _disown() -> None:
    """In a process that was just forked: no producer of the other process can be used."""
    for producer in list(_MADE):
        producer._core = cast(ProducerCore, _Disowned(os.getppid()))


os.register_at_fork(after_in_child=_disown)
