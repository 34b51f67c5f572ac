"""`ParallelConsumer`: a parallel consumer whose handlers are plain functions, called in threads.

It runs an `AsyncParallelConsumer` in an event loop of its own, with a thread for each worker.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self, Unpack

from ottla.client.arguments import checks_arguments
from ottla.client.loop_thread import LoopThread
from ottla.client.parallel.async_parallel_consumer import AsyncParallelConsumer
from ottla.client.parallel.options import ParallelConsumerOptions
from ottla.client.values import ConsumerRecord
from ottla.model.errors import MisuseError


def _closed() -> MisuseError:
    return MisuseError("the parallel consumer is closed; create a new one")


@checks_arguments()
class ParallelConsumer:
    """Calls a function for every record of some topics, in `workers` threads.

    A record is done when the function returned, or when it was handed back or is in the dead-letter topic. Offsets are
    committed up to the oldest record that is not done, so a crash repeats records and loses none.
    `ParallelConsumerOptions` has the arguments. A context manager:

        with ParallelConsumer("orders", group_id="billing", workers=16) as consumer:
            consumer.run(handle)
    """

    def __init__(self, *topics: str, pattern: str | None = None, **options: Unpack[ParallelConsumerOptions]) -> None:
        self._asynchronous = AsyncParallelConsumer(*topics, pattern=pattern, **options)
        self.config = self._asynchronous.config
        self._thread = LoopThread("ottla parallel consumer", _closed)
        self._pool = ThreadPoolExecutor(self.config.workers, thread_name_prefix="ottla-worker")
        self._is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def run(self, handler: Callable[[ConsumerRecord], Any]) -> None:
        """Handles records until `stop` is called, by another thread or by a handler, or until Ctrl-C.

        After Ctrl-C, `close` waits for handlers that are still running. Raises what `AsyncParallelConsumer.run` raises.
        """
        loop, pool = self._thread.loop, self._pool

        async def handle(record: ConsumerRecord) -> None:
            await loop.run_in_executor(pool, handler, record)

        self._thread.call(self._asynchronous.run(handle))

    def stop(self) -> None:
        """Makes `run` return soon. Call it from any thread."""
        self._thread.post(self._asynchronous.stop)

    def metrics(self) -> dict[str, int]:
        """Counts: records handled, failed handler calls, records handed back, dead letters, records buffered and
        handlers running now."""

        async def ask() -> dict[str, int]:
            return self._asynchronous.metrics()

        return self._thread.call(ask())

    def close(self) -> None:
        """Leaves the group, waits for running handlers, and ends all threads. Calling it again does nothing."""
        if not self._is_closed:
            self._is_closed = True
            self._thread.call(self._asynchronous.close())
        self._thread.close()
        self._pool.shutdown(cancel_futures=True)
