"""Fetches of share consumers: waits until a member can acquire enough, and releases what it has when it goes.

The wire format is in `broker/handlers/groups/share_fetch.py`.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from ottla.coordination.share_partitions.share_partition import (
    Delivery,
    FetchLimits,
    ShareOutcome,
    SharePartition,
    SharePartitionError,
)
from ottla.coordination.share_partitions.share_partitions import SharePartitions
from ottla.coordination.share_partitions.share_sessions import Place, ShareSession, ShareSessions
from ottla.coordination.share_state.records import ShareKey
from ottla.env.ports import Clock
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import OttlaError
from ottla.replication.fetch_waiter import FetchWaiter
from ottla.replication.timers import Timers

_LOGGER: Final = logging.getLogger(__name__)


class ShareFetchWish(NamedTuple):
    """What a member wants of all its partitions together."""

    limits: FetchLimits
    min_bytes: int
    max_wait_ms: int


Found = dict[Place, Delivery | ShareOutcome]
"""What was acquired of a partition, or why nothing can be."""


class ShareFetching:
    """Serves the sessions of share consumers."""

    def __init__(self, partitions: SharePartitions, clock: Clock, timers: Timers) -> None:
        self.partitions: Final = partitions
        self.sessions: Final = ShareSessions()
        self._clock = clock
        self._timers = timers
        self._tasks: dict[asyncio.Task[None], None] = {}

    # Fetching

    async def fetch(self, session: ShareSession, places: Sequence[Place], wish: ShareFetchWish) -> Found:
        """Acquires records of these partitions; waits for some if there are none.

        As in Kafka, the records of the first partition that is loaded do not wait until others are: a later fetch has
        theirs.
        """
        deadline_ms = self._now_ms() + wish.max_wait_ms
        is_over = asyncio.Event()
        loads = _Loads(is_over.set)
        found: Found = {}
        loaded = self._load(session.key.group_id, places, loads, found)
        # Where to look for records: where none were looked for yet, then in all, since some may have come meanwhile.
        tried = loaded
        waits = False
        while True:
            is_over.clear()
            left_ms = deadline_ms - self._now_ms()
            is_last = left_ms <= 0 or bool(found) or not (loaded or loads.pending)
            waiting = (
                _Waiting(list(loaded.values()), left_ms, self._timers, is_over.set) if waits and not is_last else None
            )
            try:
                if is_last or self._has_enough(loaded, wish.min_bytes):
                    await self._acquire(session, loaded if is_last else tried, wish.limits, found)
                if is_last or found or not self.sessions.has(session):
                    return found
                if waiting is not None:
                    await is_over.wait()
            finally:
                if waiting is not None:
                    waiting.cancel()
            # One by one; but a count of bytes is of all that are loaded, and they are not counted again for each.
            tried = loads.take(1 if wish.min_bytes <= 1 else loads.pending, found)
            waits = not tried
            loaded.update(tried)
            if waits or wish.min_bytes > 1:
                tried = loaded

    def _load(
        self, group_id: str, places: Sequence[Place], loads: "_Loads", failed: Found
    ) -> dict[Place, SharePartition]:
        """Those that are loaded; begins to load the others."""
        loaded: dict[Place, SharePartition] = {}
        for place in places:
            key = ShareKey(group_id, *place)
            partition = self.partitions.get(key)
            if partition is not None:
                loaded[place] = partition
                continue
            try:
                loads.add(place, self.partitions.load(key))
            except OttlaError as error:
                failed[place] = _outcome(error)
        return loaded

    def _has_enough(self, loaded: dict[Place, SharePartition], min_bytes: int) -> bool:
        if min_bytes <= 1:
            return True
        readable = 0
        for partition in loaded.values():
            try:
                readable += partition.readable_bytes()
            except OttlaError:
                # The fetch tells.
                return True
            if readable >= min_bytes:
                return True
        return False

    async def _acquire(
        self, session: ShareSession, loaded: dict[Place, SharePartition], limits: FetchLimits, found: Found
    ) -> None:
        left_bytes, left_records = limits.max_bytes, limits.max_records
        for place, partition in loaded.items():
            if left_bytes <= 0 or left_records <= 0:
                return
            if not partition.is_current:
                found[place] = ShareOutcome(ErrorCode.NOT_LEADER_OR_FOLLOWER)
                continue
            part = limits._replace(max_bytes=left_bytes, max_records=left_records)
            try:
                delivery = await partition.fetch(session.key.member_id, part, lambda: self.sessions.has(session))
            except OttlaError as error:
                found[place] = _outcome(error)
                continue
            if delivery.acquired:
                found[place] = delivery
                left_bytes -= len(delivery.records)
                left_records -= sum(each.last - each.first + 1 for each in delivery.acquired)

    # Sessions that end

    async def end_session(self, session: ShareSession) -> None:
        """Ends a session and releases what its member has acquired here."""
        self.sessions.end(session)
        group_id, member_id = session.key
        released = [each.release_member(member_id) for each in self.partitions.of_group(group_id)]
        for outcome in await asyncio.gather(*released):
            if outcome.error is not ErrorCode.NONE:
                _LOGGER.info(
                    "share group %s: cannot release the records of member %s: %s; their locks expire",
                    group_id, member_id, outcome.error.name,
                )  # fmt: skip
        if not self.sessions.has_group(group_id):
            self.partitions.drop_group(group_id)

    def on_connection_closed(self, connection: object) -> None:
        """A client has gone: so have the sessions that it opened on this connection."""
        for session in self.sessions.of_connection(connection):
            # At once, so that a fetch that still waits acquires nothing.
            self.sessions.end(session)
            task = asyncio.get_running_loop().create_task(self.end_session(session))
            self._tasks[task] = None
            task.add_done_callback(self._tasks.pop)

    async def close(self) -> None:
        """Stops; locks of records that are not acknowledged are forgotten with the share-partitions."""
        await self.partitions.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)


class _Loads:
    """Share-partitions that a fetch has begun to load, in the order in which they are done."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self.pending = 0
        """How many were not taken yet."""
        self._done: deque[tuple[Place, asyncio.Task[SharePartition]]] = deque()
        self._wake = wake

    def add(self, place: Place, load: asyncio.Task[SharePartition]) -> None:
        self.pending += 1
        load.add_done_callback(partial(self._on_done, place))

    def _on_done(self, place: Place, load: asyncio.Task[SharePartition]) -> None:
        self._done.append((place, load))
        self._wake()

    def take(self, count: int, failed: Found) -> dict[Place, SharePartition]:
        """At most this number of those that are loaded; what cannot be loaded is added to `failed`."""
        loaded: dict[Place, SharePartition] = {}
        while self._done and len(loaded) < count:
            place, load = self._done.popleft()
            self.pending -= 1
            try:
                loaded[place] = load.result()
            except OttlaError as error:
                failed[place] = _outcome(error)
        return loaded


class _Waiting:
    """Waits until the log of a partition grows, a record can be acquired again, or the time is up."""

    def __init__(
        self, partitions: Sequence[SharePartition], max_wait_ms: int, timers: Timers, wake: Callable[[], None]
    ) -> None:
        self._partitions = partitions
        self._wake = wake
        self._waiter = FetchWaiter(
            [each.partition for each in partitions],
            missing_bytes=1,
            is_committed=bool(partitions) and all(each.state.settings.is_read_committed for each in partitions),
            max_wait_ms=max_wait_ms,
            timers=timers,
            on_ready=wake,
        )
        for each in partitions:
            each.waiters[wake] = None

    def cancel(self) -> None:
        self._waiter.cancel()
        for each in self._partitions:
            each.waiters.pop(self._wake, None)


def _outcome(error: OttlaError) -> ShareOutcome:
    return error.outcome if isinstance(error, SharePartitionError) else ShareOutcome(error.code, str(error))
