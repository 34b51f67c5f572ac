"""One partition on a broker: led here, or copied from its leader.

As a leader: gathered appends, reads up to what is committed, and who waits for both; its replicas are as
`leader_state.py` knows them. What a follower does to its log is in `replica_copy.py`. Storage is the `Log`'s; errors
become wire codes in the broker's handlers.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from ottla.env.ports import Clock
from ottla.model.errors import (
    FencedLeaderEpochError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    NotLeaderError,
    OttlaError,
    UnknownLeaderEpochError,
)
from ottla.model.ids import NO_LEADER_EPOCH, BrokerId, Offset, ProducerEpoch, ProducerId
from ottla.records.batch import Batch
from ottla.records.control import MARKER_BYTES
from ottla.records.layout import Marker
from ottla.replication.fetch_waiter import FetchWaiter
from ottla.replication.follower_state import FollowerState
from ottla.replication.leader_state import IsrProposal, LeaderState
from ottla.storage.log import Appended, Log
from ottla.storage.segment import FileRange
from ottla.transport.turn import Turn

_LOGGER: Final = logging.getLogger(__name__)

GATHERED_BYTES_MAX: Final = 128 * 1024
"""Appends are gathered up to this size within a turn; larger ones are written at once, while they are in the cache."""

ALL_REPLICAS: Final = -1

_UNSTABLE_KEPT_MAX: Final = 1000
"""So many writes behind an open transaction are told apart; those after them are counted with the last."""


class AppendWaiter(Protocol):
    """Somebody who asked for an append and is told its outcome."""

    def on_outcome(self, at: int, outcome: Appended | OttlaError) -> None:
        """The outcome of the part that was queued as `at`, now as safe as was asked for."""

    def on_waiting(self) -> None:
        """The part is written, and now waits for replicas or for the disk."""


_Queued = tuple[Batch, int, AppendWaiter, int]
"""(batch, acks, who is told, as which part); a plain tuple, since every produced batch makes one."""


class TransactionEnd(NamedTuple):
    """How a producer's transaction ended, as its coordinator says.

    With `must_exceed_epoch` a marker of the epoch in which the open transaction writes is an old one, and refused.
    """

    marker: Marker
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    coordinator_epoch: int
    must_exceed_epoch: bool


class _Waiting(NamedTuple):
    end_offset: Offset
    waiter: AppendWaiter
    at: int
    outcome: Appended


class Partition:
    """See the module's docstring. The broker keeps `min_insync_replicas` and the log's config as the topic's are."""

    __slots__ = (
        "_clock",
        "_fetch_news",
        "_hidden",
        "_queued",
        "_queued_bytes",
        "_tasks",
        "_told_stable",
        "_turn",
        "_unstable",
        "_waiting_for_commit",
        "_waiting_for_disk",
        "appended_bytes",
        "appended_records",
        "copied_bytes",
        "fetch_waiters",
        "fetched_bytes",
        "follower",
        "index",
        "leader",
        "leader_epoch",
        "log",
        "min_insync_replicas",
        "replica_waiters",
        "replicated_bytes",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        topic: str,
        index: int,
        topic_id: UUID,
        log: Log,
        *,
        min_insync_replicas: int,
        turn: Turn,
        clock: Clock,
    ) -> None:
        self.topic = topic
        self.index = index
        self.topic_id = topic_id
        self.log = log
        self.leader: LeaderState | None = None
        """Set while this broker leads the partition."""
        self.follower: FollowerState | None = None
        """Set while this broker follows another one."""
        self.leader_epoch = NO_LEADER_EPOCH
        """Counts the leaders of this partition; new batches carry it."""
        self.min_insync_replicas = min_insync_replicas
        self.fetch_waiters: dict[FetchWaiter, None] = {}
        """Of consumers, who wait for what is committed."""
        self.replica_waiters: dict[FetchWaiter, None] = {}
        """Of followers, who wait for what is written."""
        self.appended_bytes = 0
        self.appended_records = 0
        self.copied_bytes = 0
        """Copied from the leader into this log."""
        self.fetched_bytes = 0
        """Handed to consumers."""
        self.replicated_bytes = 0
        """Handed to followers."""
        self._turn = turn
        self._clock = clock
        self._queued: list[_Queued] = []
        self._queued_bytes = 0
        self._hidden: deque[tuple[Offset, int]] = deque()
        """(end offset, bytes) of each write above the high watermark: what readers have not been told of."""
        self._unstable: deque[tuple[Offset, int]] = deque()
        """The same for writes that are committed, and yet behind an open transaction: news to some readers only."""
        self._told_stable = Offset(0)
        self._waiting_for_commit: deque[_Waiting] = deque()
        self._waiting_for_disk: deque[_Waiting] = deque()
        self._fetch_news: asyncio.Event | None = None
        """Set at the next fetch of a follower, where somebody waits for that."""
        self._tasks: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<Partition {self.topic}-{self.index} offsets {self.start_offset} to {self.end_offset}>"

    # What it is

    @property
    def start_offset(self) -> Offset:
        """The oldest offset that can be read."""
        return self.log.start_offset

    @property
    def end_offset(self) -> Offset:
        """The offset that the next record gets."""
        return self.log.end_offset

    @property
    def high_watermark(self) -> Offset:
        """Below it everything is committed."""
        return self.log.high_watermark

    @property
    def last_stable_offset(self) -> Offset:
        """Below it every transaction is decided."""
        return self.log.last_stable_offset

    @property
    def is_short(self) -> bool:
        """Whether fewer replicas are in sync than the topic asks for, or this broker does not lead."""
        return self.leader is None or len(self.leader.isr) < self.leader.effective_min_isr

    def check_leader_epoch(self, epoch: int) -> None:
        """Raises unless the asker knows the leader epoch that is; -1 does not say."""
        if epoch == -1 or epoch == self.leader_epoch:
            return
        where = f"{self.topic}-{self.index} is in leader epoch {self.leader_epoch}"
        if epoch < self.leader_epoch:
            raise FencedLeaderEpochError(f"{where}, the request names the older {epoch}; refresh the metadata")
        raise UnknownLeaderEpochError(f"{where}, the request names the newer {epoch}; try again")

    # Roles

    def become_leader(self, leader: LeaderState) -> None:
        """Leads from now on, in the state's epoch.

        That epoch begins at the log's end, and is noted though nothing is in it yet: so a follower with records of an
        epoch in between can be told where to cut.
        """
        self.follower = None
        self.leader = leader
        leader.min_in_sync = self.min_insync_replicas
        self.leader_epoch = leader.leader_epoch
        self.log.epochs.assign(leader.leader_epoch, self.log.end_offset)
        if self.log.flush_is_due:
            self._flush_soon(self.log.end_offset)
        else:
            self._on_safe(self.log.end_offset)

    def become_follower(self, follower: FollowerState) -> None:
        """Follows from now on; whoever waits here learns that another broker leads."""
        was_led = self.leader is not None
        self.leader = None
        self.follower = follower
        self.leader_epoch = follower.leader_epoch
        # An epoch that this broker led without writing anything says nothing of where its records are from.
        self.log.epochs.truncate_from_end(self.log.end_offset)
        if was_led:
            self._refuse_queued()
            self._hidden.clear()
            self._unstable.clear()
            self.fail_waiting(NotLeaderError(f"{self.topic}-{self.index} is led by broker {follower.leader} now"))

    def _refuse_queued(self) -> None:
        queued, self._queued = self._queued, []
        self._queued_bytes = 0
        error = NotLeaderError(f"{self.topic}-{self.index} is no longer led here; nothing was written")
        for _, _, waiter, at in queued:
            waiter.on_outcome(at, error)

    def _led(self) -> LeaderState:
        if self.leader is None:
            raise NotLeaderError(f"{self.topic}-{self.index} is not led here; refresh the metadata")
        return self.leader

    # Appending

    def append_soon(self, batch: Batch, acks: int, waiter: AppendWaiter, at: int) -> None:
        """Queues a client's batch for this turn's end; the waiter is told the outcome.

        The batch's memory must stay as it is until the turn ends, and be writable.
        """
        if acks == ALL_REPLICAS:
            self._check_in_sync()
        if not self._queued:
            self._turn.add_append(self.append_queued)
        self._queued.append((batch, acks, waiter, at))
        self._queued_bytes += batch.size_bytes
        if self._queued_bytes >= GATHERED_BYTES_MAX:
            self.append_queued()

    def append_queued(self) -> None:
        """Writes what was queued in this turn, and tells those whose wishes are fulfilled by that."""
        queued, self._queued = self._queued, []
        self._queued_bytes = 0
        if queued:
            self._append(queued)

    def append_own(self, batch: Batch, waiter: AppendWaiter) -> None:
        """Writes a batch of the broker's own, behind all that was queued; the waiter is told when it is committed."""
        self._check_in_sync()
        self.append_queued()
        self._append([(batch, ALL_REPLICAS, waiter, 0)], is_own=True)

    def _append(self, queued: Sequence[_Queued], *, is_own: bool = False) -> None:
        log = self.log
        before = log.end_offset
        outcomes: list[Appended | OttlaError]
        try:
            outcomes = log.append(
                [each[0] for each in queued],
                leader_epoch=self.leader_epoch,
                now=self._clock.now_ms(),
                is_own=is_own,
            )
        except OttlaError as error:
            outcomes = [error] * len(queued)
        if log.end_offset > before:
            added_bytes = 0
            for each, outcome in zip(queued, outcomes, strict=True):
                if isinstance(outcome, Appended) and not outcome.is_duplicate:
                    added_bytes += each[0].size_bytes
            self._count(before, added_bytes)
        self._settle(queued, outcomes)

    def append_marker(self, end: TransactionEnd, waiter: AppendWaiter, at: int) -> None:
        """Ends a producer's transaction here, behind all that was queued; the waiter is told when that is committed."""
        self._check_in_sync()
        self.append_queued()
        log = self.log
        before = log.end_offset
        outcome: Appended | OttlaError
        try:
            outcome = log.append_marker(
                end.marker,
                producer_id=end.producer_id,
                producer_epoch=end.producer_epoch,
                coordinator_epoch=end.coordinator_epoch,
                must_exceed_epoch=end.must_exceed_epoch,
                leader_epoch=self.leader_epoch,
                now=self._clock.now_ms(),
            )
        except OttlaError as error:
            outcome = error
        if log.end_offset > before:
            self._count(before, MARKER_BYTES)
        self._settle([(end, ALL_REPLICAS, waiter, at)], [outcome])

    def wait_committed(self, waiter: AppendWaiter) -> None:
        """The waiter is told, as part 0, when all that is in the log now is committed; perhaps before this returns."""
        log = self.log
        written = Appended(log.end_offset, Offset(log.end_offset - 1))
        if log.high_watermark >= log.end_offset:
            waiter.on_outcome(0, written)
        else:
            self._waiting_for_commit.append(_Waiting(log.end_offset, waiter, 0, written))

    def _check_in_sync(self) -> None:
        leader = self._led()
        if len(leader.isr) < leader.effective_min_isr:
            raise NotEnoughReplicasError(self._shortage())

    def _count(self, before: Offset, added_bytes: int) -> None:
        end_offset = self.log.end_offset
        self.appended_records += end_offset - before
        self.appended_bytes += added_bytes
        self._hidden.append((end_offset, added_bytes))
        for waiter in list(self.replica_waiters):
            waiter.on_progress(added_bytes)

    def _settle(
        self, askers: Sequence[tuple[object, int, AppendWaiter, int]], outcomes: Sequence[Appended | OttlaError]
    ) -> None:
        """Tells each (what, acks, waiter, at) its outcome, now or when it is as safe as that asks for."""
        log = self.log
        end_offset = log.end_offset
        needs_disk = False
        if log.failure is not None:
            # Safe no further than before: nobody may be told otherwise, and nobody may wait for what cannot come.
            failure = log.failure
            outcomes = [failure if isinstance(outcome, Appended) else outcome for outcome in outcomes]
        elif log.flush_is_due:
            needs_disk = True
        else:
            self._on_safe(end_offset)
        high_watermark = log.high_watermark
        safe_offset = log.recovery_point if needs_disk else end_offset
        for (_, acks, waiter, at), outcome in zip(askers, outcomes, strict=True):
            if isinstance(outcome, OttlaError):
                waiter.on_outcome(at, outcome)
            elif acks == ALL_REPLICAS and outcome.last_offset >= high_watermark:
                self._waiting_for_commit.append(_Waiting(Offset(outcome.last_offset + 1), waiter, at, outcome))
                waiter.on_waiting()
            elif outcome.last_offset >= safe_offset:
                self._waiting_for_disk.append(_Waiting(Offset(outcome.last_offset + 1), waiter, at, outcome))
                waiter.on_waiting()
            else:
                waiter.on_outcome(at, outcome)
        if needs_disk:
            self._flush_soon(end_offset)

    def _flush_soon(self, end_offset: Offset) -> None:
        task = asyncio.get_running_loop().create_task(self._flush(end_offset))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def wait_flushed(self) -> None:
        """Returns when the flushes are over that are under way, well or not."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _flush(self, end_offset: Offset) -> None:
        try:
            await self.log.wait_flushed(end_offset)
        except OttlaError as error:
            self.fail_waiting(error)
        else:
            self._on_safe(end_offset)

    def _on_safe(self, end_offset: Offset) -> None:
        """The log is as safe as the topic asks for, up to here."""
        if self.leader is None:
            # A flush that was begun while it led; what waited for it has been told.
            return
        high_watermark = self.leader.on_local_end(end_offset)
        _tell(self._waiting_for_disk, end_offset)
        self._on_high_watermark(high_watermark)
        self._wake_fetches()

    def _on_high_watermark(self, high_watermark: Offset) -> None:
        if high_watermark > self.log.high_watermark:
            self.log.advance_high_watermark(high_watermark)
            _tell(self._waiting_for_commit, high_watermark)

    def _tell_shortage(self) -> None:
        """Whoever waits for a commit learns that there are too few replicas for one; it may yet come."""
        error = NotEnoughReplicasAfterAppendError(
            f"{self._shortage()}; the records are written, and committed once there are enough"
        )
        _fail(self._waiting_for_commit, error)

    def _shortage(self) -> str:
        return (
            f"{self.topic}-{self.index} has {len(self._led().isr)} replicas in sync,"
            f" min.insync.replicas={self.min_insync_replicas}"
        )

    def _wake_fetches(self) -> None:
        hidden, high_watermark = self._hidden, self.log.high_watermark
        added_bytes = 0
        while hidden and hidden[0][0] <= high_watermark:
            added_bytes += hidden.popleft()[1]
        if not added_bytes:
            return
        stable_bytes = added_bytes
        if self._unstable or self.log.producers.first_unstable_offset is not None:
            stable_bytes = self._count_stable(high_watermark, added_bytes)
        for waiter in list(self.fetch_waiters):
            news = stable_bytes if waiter.is_committed else added_bytes
            if news:
                waiter.on_progress(news)

    def _count_stable(self, high_watermark: Offset, added_bytes: int) -> int:
        """How much has become readable to those who wait for transactions to be decided."""
        unstable, stable_offset = self._unstable, self.log.last_stable_offset
        if len(unstable) >= _UNSTABLE_KEPT_MAX:
            added_bytes += unstable.pop()[1]
        unstable.append((high_watermark, added_bytes))
        stable_bytes = 0
        while unstable and unstable[0][0] <= stable_offset:
            stable_bytes += unstable.popleft()[1]
        # The last stable offset may lie within what was written together; that it moved is news at least.
        if stable_offset > self._told_stable:
            stable_bytes = max(stable_bytes, 1)
            self._told_stable = stable_offset
        return stable_bytes

    # Reading

    def read(self, offset: Offset, max_bytes: int, *, is_committed: bool, at_least_one: bool) -> FileRange | None:
        """Batches from the one that holds `offset` on, below the high watermark or the last stable offset."""
        log = self.log
        return log.read(
            offset,
            max_bytes,
            upper=log.last_stable_offset if is_committed else log.high_watermark,
            at_least_one=at_least_one,
        )

    # Changing

    def delete_records(self, before: Offset) -> Offset:
        """Forgets what lies below an offset, -1 for all that is committed; answers the new start."""
        self.log.advance_start(self.high_watermark if before == -1 else before)
        return self.start_offset

    def on_isr(
        self, replicas: tuple[BrokerId, ...], isr: tuple[BrokerId, ...], eligible: tuple[BrokerId, ...] = ()
    ) -> None:
        """The cluster agreed on other replicas or another ISR under the same leader."""
        leader = self._led()
        has_newcomers = not set(replicas) <= set(leader.replicas)
        now = self._clock.monotonic()
        self._on_high_watermark(leader.on_isr(isr, self.leader_epoch, replicas, eligible=eligible, now=now))
        self._wake_fetches()
        if self.is_short:
            self._tell_shortage()
        if has_newcomers:
            # One that asked before it was known here did not count; it shall ask again.
            for waiter in list(self.replica_waiters):
                waiter.finish()

    def on_min_insync_replicas(self, count: int) -> None:
        """The topic, or the broker for all topics, asks for another number of replicas in sync."""
        if count == self.min_insync_replicas:
            return
        self.min_insync_replicas = count
        if self.leader is not None:
            self._on_high_watermark(self.leader.on_min_in_sync(count))
            self._wake_fetches()

    def on_isr_refused(self, proposal: IsrProposal) -> None:
        """The cluster did not agree to a proposal."""
        self._on_high_watermark(self._led().on_refused(proposal))
        self._wake_fetches()

    # Replicas

    def renew_log(self, log: Log) -> None:
        """Follows with another log from now on, which was made in place of one that failed or was damaged."""
        self.log = log
        self._told_stable = Offset(0)
        self.on_copy_cut()
        self.end_fetch_waits()

    def on_copied(self, added_bytes: int) -> None:
        """So many bytes were copied from the leader; they are news to readers once they are known to be committed."""
        self._hidden.append((self.log.end_offset, added_bytes))

    def on_copy_cut(self) -> None:
        """The copy's end was cut off; whoever waits for what was there waits for what comes instead."""
        self._hidden.clear()

    def on_copy_bounds(self) -> None:
        """The leader said how far the copy is committed."""
        self._wake_fetches()

    def read_as_replica(self, offset: Offset, max_bytes: int, *, at_least_one: bool) -> FileRange | None:
        """Batches for a follower: all there are, committed or not."""
        return self.log.read(offset, max_bytes, upper=self.log.end_offset, at_least_one=at_least_one)

    def on_follower_fetch(self, broker: BrokerId, *, offset: Offset, start_offset: Offset, broker_epoch: int) -> None:
        """A follower has everything below an offset; whoever waited for that is told."""
        leader = self._led()
        high_watermark = leader.on_follower_fetch(
            broker,
            offset=offset,
            start_offset=start_offset,
            broker_epoch=broker_epoch,
            leader_end=self.log.end_offset,
            now=self._clock.monotonic(),
        )
        if self._fetch_news is not None:
            self._fetch_news.set()
            self._fetch_news = None
        if high_watermark > self.log.high_watermark:
            self._on_high_watermark(high_watermark)
            self._wake_fetches()

    async def wait_follower_fetch(self) -> None:
        """Returns after a follower's next fetch, which says where its log begins and ends."""
        if self._fetch_news is None:
            self._fetch_news = asyncio.Event()
        await self._fetch_news.wait()

    def fail_waiting(self, error: OttlaError) -> None:
        """Whoever waits here learns that it was in vain: the log failed, the partition was deleted, or moved."""
        _fail(self._waiting_for_disk, error)
        _fail(self._waiting_for_commit, error)
        self.end_fetch_waits()

    def end_fetch_waits(self) -> None:
        """Whoever waits for more to read gets what there is."""
        for waiter in [*self.fetch_waiters, *self.replica_waiters]:
            waiter.finish()


def _tell(queue: "deque[_Waiting]", end_offset: Offset) -> None:
    while queue and queue[0].end_offset <= end_offset:
        waiting = queue.popleft()
        waiting.waiter.on_outcome(waiting.at, waiting.outcome)


def _fail(queue: "deque[_Waiting]", error: OttlaError) -> None:
    # Whoever is told may wait anew, for what comes later.
    told = list(queue)
    queue.clear()
    for waiting in told:
        waiting.waiter.on_outcome(waiting.at, error)
