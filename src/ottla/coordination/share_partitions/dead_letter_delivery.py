"""Has the dead letters of one share-partition written, in order and until each is settled.

What a dead letter is and where it goes is known to the writer that is given (`WriteDeadLetters`); it writes one batch
at a time. A batch that cannot be written now is tried again, with a growing wait. This covers neither the states of
records (`share_partition_state.py`) nor storing them (`share_partition.py`).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

from ottla.coordination.share_partitions.share_counts import ShareCounts
from ottla.coordination.share_partitions.share_partition_state import DeadLetters, Span
from ottla.coordination.share_state.records import ShareKey
from ottla.env.ports import Clock
from ottla.model.errors import OttlaError
from ottla.replication.partition import Partition

_LOGGER: Final = logging.getLogger(__name__)
BACKOFF_SECONDS: Final = 1.0
BACKOFF_SECONDS_MAX: Final = 30.0

WriteDeadLetters = Callable[[ShareKey, Partition, Sequence[DeadLetters]], Awaitable[int]]
"""Writes dead letters, from the first on, as many as fit into one batch. Returns for how many offsets that is settled:
the dead letter is committed, or the log of the broker says why there is none. Raises `DeadLettersDelayedError` if it
should be tried again later."""


class DeadLettersDelayedError(Exception):
    """Dead letters cannot be written now."""


class DeadLetterDelivery:
    """The dead letters that one share-partition owes. `on_settled` is called with each range that is settled,
    `on_idle` when nothing is left. Stops by itself when `is_wanted` says so."""

    def __init__(
        self,
        key: ShareKey,
        partition: Partition,
        write: WriteDeadLetters,
        *,
        clock: Clock,
        counts: ShareCounts,
        is_wanted: Callable[[], bool],
        on_settled: Callable[[Span], None],
        on_idle: Callable[[], None],
    ) -> None:
        self._key = key
        self._partition = partition
        self._write = write
        self._clock = clock
        self._counts = counts
        self._is_wanted = is_wanted
        self._on_settled = on_settled
        self._on_idle = on_idle
        self._owed: deque[DeadLetters] = deque()
        self._task: asyncio.Task[None] | None = None

    @property
    def is_idle(self) -> bool:
        """Whether nothing is owed."""
        return self._task is None

    def add(self, letters: Iterable[DeadLetters]) -> None:
        """From now on owes these, too."""
        self._owed.extend(letters)
        if self._owed and self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        """Stops, whatever is owed."""
        if self._task is not None:
            self._task.cancel()

    async def close(self) -> None:
        """Stops, and waits until that is done."""
        task = self._task
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        wait_seconds = BACKOFF_SECONDS
        try:
            while self._owed and self._is_wanted():
                try:
                    settled = await self._write(self._key, self._partition, tuple(self._owed))
                except (DeadLettersDelayedError, OttlaError) as delay:
                    self._counts.dead_letter_retries += 1
                    _LOGGER.warning(
                        "share group %s: cannot write dead letters of partition %s-%d from offset %d on: %s; trying "
                        "again in %g s",
                        self._key.group_id, self._partition.topic, self._partition.index, self._owed[0].first, delay,
                        wait_seconds,
                    )  # fmt: skip
                    await self._clock.sleep(wait_seconds)
                    wait_seconds = min(2 * wait_seconds, BACKOFF_SECONDS_MAX)
                    continue
                wait_seconds = BACKOFF_SECONDS
                for span in self._take(settled):
                    self._on_settled(span)
        finally:
            self._task = None
            if self._owed:
                # They are lost only if the state is: with its group, with its topic, or by a reset of its offsets.
                _LOGGER.warning(
                    "share group %s: stopped before %d dead letters of partition %s-%d, from offset %d on; they are "
                    "written when the stored state of the share-partition is loaded again",
                    self._key.group_id, sum(each.last - each.first + 1 for each in self._owed), self._partition.topic,
                    self._partition.index, self._owed[0].first,
                )  # fmt: skip
            self._on_idle()

    def _take(self, count: int) -> list[Span]:
        """Removes this number of offsets from what is owed."""
        taken: list[Span] = []
        while count > 0 and self._owed:
            each = self._owed.popleft()
            size = each.last - each.first + 1
            if size > count:
                self._owed.appendleft(each._replace(first=each.first + count))
                each = each._replace(last=each.first + count - 1)
            taken.append(Span(each.first, each.last))
            count -= size
        return taken
