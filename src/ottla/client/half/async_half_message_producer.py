"""`AsyncHalfMessageProducer`: half messages for asyncio programs."""

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, Self, Unpack

from ottla.client.arguments import checks_arguments
from ottla.client.half.core import Decide, HalfMessageCore
from ottla.client.half.options import HalfMessageProducerOptions
from ottla.client.half.values import HalfResult
from ottla.client.values import Header


@checks_arguments()
class AsyncHalfMessageProducer:
    """Sends records that are delivered only if a local transaction succeeded.

    `send` writes a half message, calls `execute`, which runs the local transaction, and tells the broker its decision.
    If the broker gets no decision, it asks; `check` answers, in any member of the group `group_id`, by checking whether
    the local transaction exists. Both are coroutine functions. `HalfMessageProducerOptions` has the other arguments. An
    async context manager; call `start` or use `async with` before `send`:

        async with AsyncHalfMessageProducer("orders", execute, check, group_id="shop") as producer:
            await producer.send(b"order 7", key=b"customer 3")

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
        self._core = HalfMessageCore(topic, check, options)
        self.topic: Final = topic
        self.config: Final = self._core.config

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Binds the producer to the running event loop, and begins to answer questions."""
        await self._core.start()

    async def send(
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
        """Writes a half message, calls `execute`, and sends its decision.

        `id` names the message, a random one unless it is given; an id that is open is refused. `check_after_ms` is when
        the broker asks for the first time. `execute` replaces that of the constructor.

        Raises what `AsyncProducer.send_and_wait` raises if the half message was not written, or perhaps not: `execute`
        was not called then. Raises what `execute` raises: the message is not decided then, and the broker will ask. If
        only the decision cannot be sent, `is_acknowledged` is False, and the broker will ask as well.
        """
        core = self._core
        await core.begin()
        try:
            message, prepared = await core.prepare(value, key, headers, partition, timestamp_ms, id, check_after_ms)
            return await core.finish(message, prepared, await (execute or self._execute)(message))
        finally:
            await core.end()

    async def close(self) -> None:
        """Waits for running calls of `send` and `check`, leaves the group, and closes all connections.

        Calling it again does nothing.
        """
        await self._core.close()
