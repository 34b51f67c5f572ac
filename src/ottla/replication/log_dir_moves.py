"""Moves logs between the data dirs of this broker: copies them piece by piece, in turns, and swaps them.

`storage/future_log.py` has the copy and the swap. Here is the order of the work, the throttle
(`replica.alter.log.dirs.io.max.bytes.per.second`), and what ends a move: a log that fails, is deleted, or is opened
again. A move that was interrupted by a restart begins again.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from ottla.env.ports import Clock
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import OttlaError, RetriableError
from ottla.model.ids import TopicPartition
from ottla.replication.throttle import Throttle
from ottla.storage.data_dirs.data_dir import DataDir
from ottla.storage.future_log import FutureLog
from ottla.storage.log_store import LogStore

_LOGGER: Final = logging.getLogger(__name__)

PIECE_BYTES: Final = 1024 * 1024
_PAUSE_SECONDS: Final = 0.1
"""Between two attempts when no log can be copied: it is being compacted, or the throttle is closed."""


class ReplicaNotAvailableError(RetriableError):
    """The broker has no replica of the partition; if it gets one, it will be in the data dir that was asked for."""

    code = ErrorCode.REPLICA_NOT_AVAILABLE


class LogDirMoves:
    """The moves of one broker. `rate` is the limit of copied bytes per second, None without one."""

    def __init__(self, logs: LogStore, clock: Clock, rate: Callable[[], int | None]) -> None:
        self._logs = logs
        self._clock = clock
        self._rate = rate
        self._throttle: Throttle | None = None
        self._news = asyncio.Event()

    def move(self, partition: TopicPartition, target: DataDir) -> None:
        """Begins to move the log of a partition, unless it is there; a move to another data dir is cancelled.

        Raises ReplicaNotAvailableError, InvalidTopicNameError, or StorageError.
        """
        if target.failure is not None:
            raise target.failure
        if partition in self._logs.offline:
            raise self._logs.offline[partition]
        future = self._logs.futures.get(partition)
        if future is not None and future.target is not target:
            self._logs.cancel_move(partition)
        log = self._logs.find(partition)
        if log is None:
            self._logs.prefer(partition, target)
            raise ReplicaNotAvailableError(f"this broker has no replica of {partition}")
        if partition in self._logs.futures or self._logs.dir_of(partition) is target:
            return
        self._logs.begin_move(partition, target)
        log.is_moving = True
        self._news.set()
        source = log.folder.rpartition("/")[0]
        _LOGGER.info("partition %s: moving the log from %s to %s", partition, source, target.path)

    async def run(self) -> None:
        """Copies and swaps logs until cancelled."""
        for partition, target in self._logs.interrupted_moves.items():
            try:
                self.move(partition, target)
            except OttlaError as error:
                _LOGGER.warning(
                    "partition %s: cannot resume the move to %s, request it again: %s", partition, target.path, error
                )
        self._logs.interrupted_moves.clear()
        while True:
            if not self._logs.futures:
                self._news.clear()
                await self._news.wait()
            progress = [await self._advance(*each) for each in list(self._logs.futures.items())]
            await self._clock.sleep(0 if any(progress) else _PAUSE_SECONDS)

    async def _advance(self, partition: TopicPartition, future: FutureLog) -> bool:
        """Does the next piece of a move; False if nothing can be done at present."""
        log = future.log
        if self._logs.futures.get(partition) is not future:
            return True
        if self._logs.find(partition) is not log or log.failure is not None:
            _LOGGER.warning(
                "partition %s: cancelled the move to %s because the log failed, was deleted or was reopened;"
                " request the move again if it is still wanted",
                partition, future.target.path,
            )  # fmt: skip
            self._logs.cancel_move(partition)
            return True
        if log.is_cleaning or not self._may_copy():
            return False
        try:
            copied = await future.copy_some(PIECE_BYTES, self._clock.now_ms())
            self._count(copied)
            if future.is_nearly_complete:
                await future.flush()
                if self._is_current(partition, future) and future.is_nearly_complete:
                    self._logs.complete_move(partition)
        except OttlaError as error:
            _LOGGER.error("partition %s: move to %s failed: %s", partition, future.target.path, error)
            if self._logs.futures.get(partition) is future:
                self._logs.cancel_move(partition)
        return True

    def _is_current(self, partition: TopicPartition, future: FutureLog) -> bool:
        return self._logs.futures.get(partition) is future and self._logs.find(partition) is future.log

    def _may_copy(self) -> bool:
        rate, now = self._rate(), self._clock.monotonic()
        if rate is None:
            self._throttle = None
            return True
        if self._throttle is None or self._throttle.bytes_per_second != rate:
            self._throttle = Throttle(rate, now)
        return self._throttle.seconds_until_open(now) == 0

    def _count(self, copied: int) -> None:
        if self._throttle is not None:
            self._throttle.record(copied, self._clock.monotonic())
