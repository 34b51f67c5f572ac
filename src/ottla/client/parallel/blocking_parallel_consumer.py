"""`ParallelConsumer`: the parallel consumer whose handlers are plain functions, called in threads.

`AsyncParallelConsumer` in a loop of its own, with a thread for each worker.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self, Unpack

from ottla.client.loop_thread import LoopThread
from ottla.client.parallel.async_parallel_consumer import AsyncParallelConsumer
from ottla.client.parallel.options import ParallelConsumerOptions, parallel_consumer_config
from ottla.client.values import ConsumerRecord
from ottla.model.errors import MisuseError


class ParallelConsumer:
    """Calls a function for every record of some topics, in `workers` threads.

    A record counts as done when the function returned, or when it is in the dead letter topic; offsets are committed up
    to the oldest that is not done, so that a crash repeats records and loses none. A context manager:

        with ParallelConsumer("orders", group_id="billing", workers=16) as consumer:
            consumer.run(handle)
    """

    def __init__(self, *topics: str, pattern: str | None = None, **options: Unpack[ParallelConsumerOptions]) -> None:
        self.config = parallel_consumer_config(options)
        self._asynchronous = AsyncParallelConsumer(*topics, pattern=pattern, **options)
        self._thread = LoopThread("ottla parallel consumer")
        self._pool = ThreadPoolExecutor(self.config.workers, thread_name_prefix="ottla-worker")
        self._is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def run(self, handler: Callable[[ConsumerRecord], Any]) -> None:
        """Handles records until `stop` is called, by another thread, by a handler or at a signal.

        See `AsyncParallelConsumer.run`. An interruption (Ctrl-C) ends it, too; `close` waits for what then still runs.
        """
        if self._is_closed:
            raise MisuseError("this parallel consumer is closed")
        loop, pool = self._thread.loop, self._pool

        async def handle(record: ConsumerRecord) -> None:
            await loop.run_in_executor(pool, handler, record)

        self._thread.call(self._asynchronous.run(handle))

    def stop(self) -> None:
        """Lets `run` end soon. From any thread; harmless if it does not run."""
        self._thread.post(self._asynchronous.stop)

    def metrics(self) -> dict[str, int]:
        """How many records were handled, how many calls of the handler failed, how many records became dead letters,
        and how many are held or handled now."""

        async def ask() -> dict[str, int]:
            return self._asynchronous.metrics()

        return self._thread.call(ask())

    def close(self) -> None:
        """Leaves the group, waits for handlers that still run, and ends all threads. Closing twice is harmless."""
        if not self._is_closed:
            self._is_closed = True
            self._thread.call(self._asynchronous.close())
        self._thread.close()
        self._pool.shutdown(cancel_futures=True)
