"""The delivery of a table: one result for all of its batches.

`send_table` returns it. The result of each batch is in its promise (`deliveries.pyx`).
"""

import asyncio
import threading
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any, NamedTuple

from ottla.client.producer.batching.deliveries import BatchPromise
from ottla.client.producer.errors import DeliveryTimeoutError
from ottla.model.errors import MisuseError
from ottla.model.ids import TopicPartition


class WrittenRows(NamedTuple):
    """Rows that were written as one batch: `row_count` records, the first at `offset`.

    With `acks=0` the offset is unknown, and -1.
    """

    topic_partition: TopicPartition
    offset: int
    row_count: int


class TableDelivery:
    """Tells when and where the rows of a table were written; for programs without an event loop."""

    def __init__(self, promises: Sequence[BatchPromise], monotonic: Callable[[], float]) -> None:
        self._promises = promises
        self._monotonic = monotonic

    @property
    def is_done(self) -> bool:
        """Whether every row is written or failed."""
        return all(part.is_done for promise in self._promises for part in promise.parts())

    def done(self) -> bool:
        """The same as `is_done`, as futures call it."""
        return self.is_done

    def result(self, timeout: float | None = None) -> list[WrittenRows]:
        """The same as `get`, as futures call it."""
        return self.get(timeout)

    def get(self, timeout: float | None = None) -> list[WrittenRows]:
        """Waits until every batch is written, and returns where, in the order in which they were sent.

        Raises the first error if a batch failed; other batches may be written then. Raises `DeliveryTimeoutError`, a
        `TimeoutError`, after `timeout` seconds; the producer keeps trying.
        """
        deadline = None if timeout is None else self._monotonic() + timeout
        for promise in self._promises:
            while (waiting := _unfinished(promise)) is not None:
                done = threading.Event()
                waiting.add_waiter(waiting.count - 1, done.set)
                if not done.wait(None if deadline is None else max(deadline - self._monotonic(), 0)):
                    raise DeliveryTimeoutError(
                        f"rows for {waiting.topic_partition} are not delivered after {timeout} s; the producer keeps"
                        " trying for up to delivery_timeout_ms"
                    )
        return self._outcome()

    def _outcome(self) -> list[WrittenRows]:
        written = []
        for promise in self._promises:
            for part in promise.parts():
                if part.error is not None:
                    raise part.error.with_traceback(None)
                written.append(WrittenRows(part.topic_partition, part.base_offset, part.count))
        return written


class AsyncTableDelivery(TableDelivery):
    """Tells when and where the rows of a table were written; await it in the event loop that sent them."""

    def get(self, timeout: float | None = None) -> list[WrittenRows]:
        """The result, without waiting. Raises `MisuseError` if it is not known yet: await the delivery instead."""
        if not self.is_done:
            raise MisuseError(
                "the rows are not delivered yet: await the delivery; waiting here would block the event loop that"
                " delivers them"
            )
        return self._outcome()

    def __await__(self) -> Generator[Any, None, list[WrittenRows]]:
        """The result of `get`."""
        return self._wait().__await__()

    async def _wait(self) -> list[WrittenRows]:
        for promise in self._promises:
            while (waiting := _unfinished(promise)) is not None:
                done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                waiting.add_waiter(waiting.count - 1, partial(_finish, done))
                await done
        return self._outcome()


def _finish(waited: "asyncio.Future[None]") -> None:
    if not waited.done():
        waited.set_result(None)


def _unfinished(promise: BatchPromise) -> BatchPromise | None:
    return next((part for part in promise.parts() if not part.is_done), None)
