"""What the leader does: decides one request after the other in a thread, and commits decisions in groups.

The leader decides on an image of its own, which already has the records of decisions that are not committed yet; the
image that answers reads has committed records only. All decisions made while a transaction is under way are committed
together in the next one. A decision is answered when its records were read back from the topic.

After a failed write it is unknown what was written, so leadership ends: the next one starts by reading the topic.
"""

import asyncio
import logging
import zlib
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from ottla.client.stop_task import stop_task
from ottla.model.errors import OttlaError
from ottla.records.record import Record as TopicRecord
from ottla.registry.service.image_access import in_time
from ottla.registry.service.schemas_writer import KeyAndValue, SchemasWriter
from ottla.registry.state.decision import Decision
from ottla.registry.state.errors import SCHEMA_TOO_LARGE, registry_error
from ottla.registry.state.record_formats import NoopKey, encode_key
from ottla.registry.state.registry_image import RegistryImage

_LOGGER: Final = logging.getLogger(__name__)

Decide = Callable[[RegistryImage], Decision[Any]]

_BATCH_OVERHEAD_BYTES: Final = 1024
_NOOP: Final = encode_key(NoopKey())
_RESIGNED: Final = "this registry resigned as leader"


class LeadershipLostError(Exception):
    """This instance does not lead any more. Without `may_be_written` the request surely had no effect."""

    def __init__(self, message: str, *, may_be_written: bool) -> None:
        super().__init__(message)
        self.may_be_written = may_be_written


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The answer of a decision, and the offset up to which the topic must be applied to see its effect."""

    answer: Any
    offset: int


@dataclass(slots=True)
class WrittenCounts:
    """How much an instance wrote, in all its leaderships."""

    records: int = 0
    transactions: int = 0


@dataclass(slots=True, kw_only=True)
class _Pending:
    """A request on its way: queued, decided, sent, answered."""

    decide: Decide
    done: "asyncio.Future[Written]"
    records: list[KeyAndValue] = field(default_factory=list)
    answer: Any = None
    refusal: Exception | None = None
    is_sent: bool = False


class Leadership:
    """From the moment when the topic was read to its end until the first failure. `end` is the end that was read."""

    def __init__(
        self,
        writer: SchemasWriter,
        image: RegistryImage,
        end: int,
        *,
        batch_bytes_max: int,
        wait_applied: Callable[[int], Awaitable[None]],
        now_ms: Callable[[], int],
        counts: WrittenCounts,
    ) -> None:
        self._writer = writer
        self._image = image
        """Belongs to the thread that decides."""
        self._end = end
        self._first_offset = end
        self._batch_bytes_max = batch_bytes_max
        self._wait_applied = wait_applied
        self._now_ms = now_ms
        self._counts = counts
        self._thread = ThreadPoolExecutor(1, "registry-decide")
        self._queued: list[_Pending] = []
        self._decided: list[_Pending] = []
        self._has_queued = asyncio.Event()
        self._has_decided = asyncio.Event()
        self._unseen: deque[KeyAndValue] = deque()
        """The own records that were not read back yet, in order."""
        self._failure: str | None = None
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """The reason, once leadership has ended."""
        self._tasks = [asyncio.create_task(self._decide_forever()), asyncio.create_task(self._commit_forever())]

    async def write(self, decide: Decide) -> Written:
        """Decides, commits and returns the answer. Raises `RegistryError`, or `LeadershipLostError`."""
        if self._failure is not None:
            raise LeadershipLostError(self._failure, may_be_written=False)
        pending = _Pending(decide=decide, done=asyncio.get_running_loop().create_future())
        self._queued.append(pending)
        self._has_queued.set()
        # Shielded: a request whose client goes away is decided and committed all the same.
        return await asyncio.shield(pending.done)

    def on_read(self, records: Sequence[TopicRecord]) -> None:
        """Records were read back from the topic. One that this leader did not write ends its leadership."""
        for record in records:
            if record.offset < self._first_offset or record.key is None:
                continue
            if self._unseen and self._unseen[0] == (record.key, record.value):
                self._unseen.popleft()
            elif record.key != _NOOP and self._failure is None:
                # A registry that does not use transactions wrote it: what was decided may contradict it.
                self._fail(f"another registry wrote the record at offset {record.offset} of the topic")

    async def close(self) -> None:
        """Ends leadership. What was sent may be written, or not."""
        if self._failure is None:
            _LOGGER.info("this registry is resigning as leader")
            self._failure = _RESIGNED
        for task in self._tasks:
            await stop_task(task)
        self._fail(self._failure)
        await self._writer.close()
        self._thread.shutdown(wait=False, cancel_futures=True)

    # Deciding

    async def _decide_forever(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._has_queued.wait()
            self._has_queued.clear()
            group, self._queued = self._queued, []
            try:
                # One hop to the thread for all that wait.
                await loop.run_in_executor(self._thread, self._decide, group)
            except asyncio.CancelledError:
                self._fail(_RESIGNED, group)
                raise
            except Exception as error:
                _LOGGER.exception("the leader's image can no longer be trusted")
                self._fail(f"a decision could not be applied: {error!r}", group)
                return
            for each in group:
                if each.refusal is not None:
                    _settle(each.done, each.refusal)
                else:
                    self._unseen.extend(each.records)
                    self._decided.append(each)
            self._has_decided.set()

    def _decide(self, group: list[_Pending]) -> None:
        """Decides all requests of a group in order; each sees the effects of those before it. Runs in the thread."""
        for each in group:
            try:
                decision = in_time(partial(each.decide, self._image))
                records = [record.encode() for record in decision.records]
                self._check_sizes(records)
            except Exception as refusal:
                each.refusal = refusal
                continue
            now_ms = self._now_ms()
            for record in decision.records:
                self._image.apply(record, now_ms)
            each.records, each.answer = records, decision.answer

    def _check_sizes(self, records: list[KeyAndValue]) -> None:
        limit = self._batch_bytes_max - _BATCH_OVERHEAD_BYTES
        for key, value in records:
            size = len(key) + len(value or b"")
            if size > limit and value is not None:
                size = len(key) + len(zlib.compress(value))
            if size > limit:
                raise registry_error(
                    SCHEMA_TOO_LARGE,
                    f"the schema is too large: its record has {size} bytes after compression, and the topic takes"
                    f" {limit} (max.message.bytes)",
                )

    # Committing

    async def _commit_forever(self) -> None:
        while True:
            await self._has_decided.wait()
            self._has_decided.clear()
            group, self._decided = self._decided, []
            for each in group:
                each.is_sent = True
            try:
                await self._commit(group)
            except (OttlaError, OSError) as error:
                self._fail(f"writing to the topic failed: {error}", group)
                return
            except asyncio.CancelledError:
                self._fail(_RESIGNED, group)
                raise

    async def _commit(self, group: list[_Pending]) -> None:
        records = [record for each in group for record in each.records]
        if records:
            self._end = await self._writer.write(records)
            self._counts.records += len(records)
            self._counts.transactions += 1
        await self._wait_applied(self._end)
        for each in group:
            if not each.done.done():
                each.done.set_result(Written(answer=each.answer, offset=self._end))

    def _fail(self, reason: str, group: Sequence[_Pending] = ()) -> None:
        if self._failure is None:
            self._failure = reason
            _LOGGER.warning("this registry resigned as leader: %s", reason)
        for each in (*group, *self._decided, *self._queued):
            _settle(each.done, LeadershipLostError(reason, may_be_written=each.is_sent and bool(each.records)))
        self._decided, self._queued = [], []
        if not self.ended.done():
            self.ended.set_result(reason)


def _settle(done: "asyncio.Future[Written]", error: Exception) -> None:
    """Ends a request with an error, even if its client has gone away."""
    if not done.done():
        done.set_exception(error)
        done.exception()
