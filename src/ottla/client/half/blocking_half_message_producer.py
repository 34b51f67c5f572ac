"""`HalfMessageProducer`: half messages for programs without an event loop.

Everything but the callbacks happens in an event loop of its own. `execute` runs in the thread that calls `send`, so
that it can use that thread's database connection; `check` runs in threads of its own.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Final, Self, Unpack

from ottla.client.arguments import checks_arguments
from ottla.client.half.core import Decide as AsyncDecide
from ottla.client.half.core import HalfMessageCore, closed_error
from ottla.client.half.options import CHECKS_AT_ONCE, HalfMessageProducerOptions
from ottla.client.half.values import HalfDecision, HalfMessage, HalfResult
from ottla.client.loop_thread import LoopThread
from ottla.client.values import Header

Decide = Callable[[HalfMessage], HalfDecision]


@checks_arguments()
class HalfMessageProducer:
    """Sends records that are delivered only if a local transaction succeeded.

    `send` writes a half message, calls `execute`, which runs the local transaction, and tells the broker its decision.
    If the broker gets no decision, it asks; `check` answers, in any member of the group `group_id`, by checking whether
    the local transaction exists. `HalfMessageProducerOptions` has the other arguments. All threads may share one
    producer. A context manager:

        with HalfMessageProducer("orders", execute, check, group_id="shop") as producer:
            producer.send(b"order 7", key=b"customer 3")

    The topic needs the config `ottla.half.enable=true`. Every method raises `MisuseError` after `close`.
    """

    def __init__(
        self,
        topic: str,
        execute: Decide,
        check: Decide | None = None,
        **options: Unpack[HalfMessageProducerOptions],
    ) -> None:
        self._execute = execute
        self._pool = ThreadPoolExecutor(CHECKS_AT_ONCE, thread_name_prefix="ottla-half-check")
        self._thread = LoopThread("ottla half message producer", closed_error)
        self._is_closed = False

        def in_thread(function: Decide) -> AsyncDecide:
            async def call(message: HalfMessage) -> HalfDecision:
                return await self._thread.loop.run_in_executor(self._pool, function, message)

            return call

        async def make() -> HalfMessageCore:
            made = HalfMessageCore(topic, None if check is None else in_thread(check), options)
            await made.start()
            return made

        try:
            self._core = self._thread.call(make())
        except BaseException:
            self._thread.close()
            raise
        self.topic: Final = topic
        self.config: Final = self._core.config

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def send(
        self,
        value: Any = None,
        key: Any = None,
        headers: Sequence[Header] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        *,
        id: str | None = None,
        check_after_ms: int | None = None,
        execute: Decide | None = None,
    ) -> HalfResult:
        """Writes a half message, calls `execute` in this thread, and sends its decision.

        `id` names the message, a random one unless it is given; an id that is open is refused. `check_after_ms` is when
        the broker asks for the first time. `execute` replaces that of the constructor.

        Raises what a delivery of `Producer` raises if the half message was not written, or perhaps not: `execute` was
        not called then. Raises what `execute` raises: the message is not decided then, and the broker will ask. If only
        the decision cannot be sent, `is_acknowledged` is False, and the broker will ask as well.
        """
        core, call = self._core, self._thread.call
        call(core.begin())
        try:
            message, prepared = call(core.prepare(value, key, headers, partition, timestamp_ms, id, check_after_ms))
            decision = (execute or self._execute)(message)
            return call(core.finish(message, prepared, decision))
        finally:
            call(core.end())

    def close(self) -> None:
        """Waits for running calls of `send` and `check`, leaves the group, and ends all threads.

        Calling it again does nothing.
        """
        if not self._is_closed:
            self._is_closed = True
            self._thread.call(self._core.close())
        self._thread.close()
        self._pool.shutdown()
