"""One partition on a broker, led here or copied from its leader: the shell around `partition_state.py`.

Gathers the appends of one turn, writes them, reads up to what is committed, and carries out what the state decides.
`replica_copy.py` does what a follower does to its log. Storage is the `Log`'s; handlers turn errors into wire codes.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from ottla.env.ports import Clock
from ottla.model.errors import NotEnoughReplicasError, NotLeaderError, OttlaError
from ottla.model.ids import BrokerId, LeaderEpoch, Offset, ProducerEpoch, ProducerId
from ottla.records.batch import Batch
from ottla.records.control import MARKER_BYTES
from ottla.records.layout import Marker
from ottla.replication.follower_state import FollowerState
from ottla.replication.leader_state import UNKNOWN_OFFSET, IsrProposal, LeaderState
from ottla.replication.partition_state import (
    ALL_REPLICAS,
    AdvanceHighWatermark,
    AdvanceStart,
    AppendWaiter,
    FinishFetches,
    Flush,
    Part,
    PartitionEffect,
    PartitionState,
    Tell,
    WaitingFetch,
    WakeFollowers,
)
from ottla.storage.log import Appended, Log
from ottla.storage.segments.segment import FileRange
from ottla.transport.turn import Turn

_LOGGER: Final = logging.getLogger(__name__)

GATHERED_BYTES_MAX: Final = 128 * 1024
"""Appends are gathered up to this size within a turn; larger ones are written at once, while they are in the cache."""

_Queued = tuple[Batch, int, AppendWaiter, int]
"""A `Part` with its batch."""


class TransactionEnd(NamedTuple):
    """How a producer's transaction ended, as its coordinator says.

    With `must_exceed_epoch` a marker in the epoch of the open transaction is an old one, and refused.
    """

    marker: Marker
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    coordinator_epoch: int
    must_exceed_epoch: bool


class Partition:
    """One partition. The broker keeps `min_insync_replicas` and the log's config as the topic's are."""

    __slots__ = (
        "_clock",
        "_next_fetch",
        "_queued",
        "_queued_bytes",
        "_state",
        "_tasks",
        "_turn",
        "appended_bytes",
        "appended_records",
        "copied_bytes",
        "expired_records",
        "fetched_bytes",
        "gate",
        "index",
        "log",
        "record_revision",
        "replicated_bytes",
        "topic",
        "topic_id",
        "ttl_ms",
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
        self.appended_bytes = 0
        self.appended_records = 0
        self.copied_bytes = 0
        """Copied from the leader into this log."""
        self.fetched_bytes = 0
        """Sent to consumers."""
        self.replicated_bytes = 0
        """Sent to followers."""
        self.expired_records = 0
        """Records that expired while this broker led the partition."""
        self.record_revision = -1
        """The revision of its record in the metadata store that was applied last."""
        self.ttl_ms: int | None = None
        """None if records of the topic do not expire; -1 if only those with a TTL of their own do."""
        self.gate: Callable[[Batch], Batch] | None = None
        """Checks and may rewrite what clients produce, before it is appended; None for plain topics."""
        self._state = PartitionState(
            f"{topic}-{index}", high_watermark=log.high_watermark, min_insync_replicas=min_insync_replicas
        )
        self._turn = turn
        self._clock = clock
        self._queued: list[_Queued] = []
        self._queued_bytes = 0
        self._next_fetch: asyncio.Event | None = None
        """Set at the next fetch of a follower, if a task waits for it."""
        self._tasks: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<Partition {self.topic}-{self.index} offsets {self.start_offset} to {self.end_offset}>"

    # What it is

    @property
    def leader(self) -> LeaderState | None:
        """Set while this broker leads the partition."""
        return self._state.leader

    @property
    def follower(self) -> FollowerState | None:
        """Set while this broker follows another one."""
        return self._state.follower

    @property
    def leader_epoch(self) -> LeaderEpoch:
        """Counts the leaders of this partition; new batches carry it."""
        return self._state.leader_epoch

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
        """Everything below it is committed."""
        return self._state.high_watermark

    @property
    def last_stable_offset(self) -> Offset:
        """Every transaction below it is committed or aborted."""
        return self.log.last_stable_offset

    @property
    def min_insync_replicas(self) -> int:
        """As configured; see `effective_min_isr`."""
        return self._state.min_insync_replicas

    @property
    def effective_min_isr(self) -> int:
        """How many replicas must be in sync before anything is committed; 0 unless this broker leads."""
        return self._state.effective_min_isr

    @property
    def is_short(self) -> bool:
        """Whether the ISR is below min.insync.replicas, or this broker does not lead."""
        return self._state.is_short

    @property
    def fetch_waiters(self) -> dict[WaitingFetch, None]:
        """Fetches of consumers that wait here."""
        return self._state.fetch_waiters

    @property
    def replica_waiters(self) -> dict[WaitingFetch, None]:
        """Fetches of followers that wait here."""
        return self._state.replica_waiters

    def check_leader_epoch(self, epoch: int) -> None:
        """Raises unless a request names the present leader epoch, or -1 for none."""
        self._state.check_leader_epoch(epoch)

    # Roles

    def become_leader(self, leader: LeaderState) -> None:
        """Leads from now on, in the state's epoch.

        That epoch starts at the log's end, and is recorded before it has any record: a follower with records of an
        epoch in between can then be told where to truncate.
        """
        log = self.log
        log.epochs.assign(leader.leader_epoch, log.end_offset)
        log.end_gap(leader_epoch=leader.leader_epoch, now=self._clock.now_ms())
        self._carry_out(self._state.become_leader(leader, end_offset=log.end_offset, flush_is_due=log.flush_is_due))

    def become_follower(self, follower: FollowerState) -> None:
        """Follows from now on; requests that wait here are answered with NotLeaderError."""
        effects = self._state.become_follower(follower)
        # An epoch that this broker led without writing anything does not tell where its records come from.
        self.log.epochs.truncate_from_end(self.log.end_offset)
        queued, self._queued = self._queued, []
        self._queued_bytes = 0
        error = NotLeaderError(f"this broker no longer leads {self.topic}-{self.index}; nothing was written")
        for _, _, waiter, at in queued:
            waiter.on_outcome(at, error)
        self._carry_out(effects)

    # Appending

    def append_soon(self, batch: Batch, acks: int, waiter: AppendWaiter, at: int) -> None:
        """Queues a client's batch until the end of this turn; the waiter is told the outcome.

        The batch's memory must be writable, and stay as it is until the turn ends.
        """
        if acks == ALL_REPLICAS:
            try:
                self._state.check_in_sync()
            except NotEnoughReplicasError as error:
                self.log.refused.note(batch, error, self._clock.now_ms())
                raise
        if not self._queued:
            self._turn.add_append(self.append_queued)
        self._queued.append((batch, acks, waiter, at))
        self._queued_bytes += batch.size_bytes
        if self._queued_bytes >= GATHERED_BYTES_MAX:
            self.append_queued()

    def append_queued(self) -> None:
        """Writes what was queued in this turn."""
        queued, self._queued = self._queued, []
        self._queued_bytes = 0
        if queued:
            self._append(queued)

    def append_own(self, batch: Batch, waiter: AppendWaiter) -> None:
        """Writes a batch of the broker's own, after all that was queued; the waiter is told when it is committed."""
        if self._state.is_short:
            self._state.check_in_sync()
        if self._queued:
            self.append_queued()
        self._append([(batch, ALL_REPLICAS, waiter, 0)], is_own=True)

    def _append(self, queued: Sequence[_Queued], *, is_own: bool = False) -> None:
        log = self.log
        before = log.end_offset
        added_bytes = 0
        outcomes: list[Appended | OttlaError]
        try:
            outcomes = log.append(
                [queued[0][0]] if len(queued) == 1 else [each[0] for each in queued],
                leader_epoch=self._state.leader_epoch,
                now=self._clock.now_ms(),
                is_own=is_own,
            )
        except OttlaError as error:
            outcomes = [error] * len(queued)
        end_offset = log.end_offset
        if end_offset > before:
            for number, outcome in enumerate(outcomes):
                if type(outcome) is Appended and not outcome.is_duplicate:
                    added_bytes += queued[number][0].size_bytes
        self._on_append(queued, outcomes, end_offset - before, added_bytes, end_offset)

    def append_marker(self, end: TransactionEnd, waiter: AppendWaiter, at: int) -> None:
        """Ends a producer's transaction, after all that was queued; the waiter is told when that is committed."""
        self._state.check_in_sync()
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
                leader_epoch=self._state.leader_epoch,
                now=self._clock.now_ms(),
            )
        except OttlaError as error:
            outcome = error
        end_offset = log.end_offset
        added_bytes = MARKER_BYTES if end_offset > before else 0
        self._on_append([(end, ALL_REPLICAS, waiter, at)], [outcome], end_offset - before, added_bytes, end_offset)

    def _on_append(
        self,
        parts: Sequence[Part],
        outcomes: Sequence[Appended | OttlaError],
        added_records: int,
        added_bytes: int,
        end_offset: Offset,
    ) -> None:
        log = self.log
        self.appended_records += added_records
        self.appended_bytes += added_bytes
        self._carry_out(
            self._state.on_append(
                parts,
                outcomes,
                added_bytes=added_bytes,
                end_offset=end_offset,
                recovery_point=log.recovery_point,
                flush_is_due=log.flush_is_due,
                failure=log.health.failure,
            )
        )

    def wait_committed(self, waiter: AppendWaiter) -> None:
        """The waiter is told, as part 0, when all that is in the log now is committed; perhaps before this returns."""
        end_offset = self.log.end_offset
        self._carry_out(self._state.wait_committed(waiter, Appended(end_offset, Offset(end_offset - 1))))

    def on_flushed(self, end_offset: Offset) -> None:
        """The log is as safe as the topic asks for, up to here."""
        self._carry_out(self._state.on_flushed(end_offset))

    async def wait_flushed(self) -> None:
        """Returns when the flushes that have begun are over, well or not."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _flush(self, end_offset: Offset) -> None:
        try:
            await self.log.wait_flushed(end_offset)
        except OttlaError as error:
            self.fail_waiting(error)
        else:
            self.on_flushed(end_offset)

    # Effects

    def _carry_out(self, effects: Sequence[PartitionEffect]) -> None:
        """Carries out the effects in order. Waiters that get their outcome may call back in here.

        The two effects of every append are found by identity: a `match` takes three times as long to find them.
        """
        for effect in effects:
            if type(effect) is AdvanceHighWatermark:
                self.log.advance_high_watermark(effect.offset)
                if effect.added_bytes:
                    self._wake_consumers(effect.added_bytes)
            elif type(effect) is Tell:
                for waiter, at, outcome in effect.told:
                    if outcome is None:
                        waiter.on_waiting()
                    else:
                        waiter.on_outcome(at, outcome)
            else:
                self._carry_out_rare(effect)

    def _carry_out_rare(self, effect: PartitionEffect) -> None:
        match effect:
            case WakeFollowers():
                for fetch in list(self._state.replica_waiters):
                    fetch.on_progress(effect.added_bytes)
            case FinishFetches():
                for fetch in effect.waiters:
                    fetch.finish()
            case AdvanceStart():
                self.log.advance_start(effect.offset)
            case Flush():
                task = asyncio.get_running_loop().create_task(self._flush(effect.end_offset))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    def _wake_consumers(self, added_bytes: int) -> None:
        log, state = self.log, self._state
        stable_bytes = added_bytes
        if log.producers.first_unstable_offset is not None or state.unstable:
            stable_bytes = state.stable_bytes(added_bytes, log.last_stable_offset)
        if not state.fetch_waiters:
            return
        for fetch in list(state.fetch_waiters):
            news = stable_bytes if fetch.is_committed else added_bytes
            if news:
                fetch.on_progress(news)

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

    def read_as_replica(self, offset: Offset, max_bytes: int, *, at_least_one: bool) -> FileRange | None:
        """Batches for a follower: all there are, committed or not."""
        return self.log.read(offset, max_bytes, upper=self.log.end_offset, at_least_one=at_least_one)

    # Changing

    def delete_records(self, before: Offset) -> Offset:
        """Deletes the records below an offset, -1 for all that are committed; answers the new start offset."""
        self.log.advance_start(self.high_watermark if before == -1 else before)
        return self.start_offset

    def on_isr(
        self, replicas: tuple[BrokerId, ...], isr: tuple[BrokerId, ...], eligible: tuple[BrokerId, ...] = ()
    ) -> None:
        """The replicas or the ISR changed under the same leader."""
        self._carry_out(self._state.on_isr(replicas, isr, eligible, self._clock.monotonic()))

    def on_min_insync_replicas(self, count: int) -> None:
        """min.insync.replicas of the topic, or the broker's default for it, may have changed."""
        if count != self._state.min_insync_replicas:
            self._carry_out(self._state.on_min_insync_replicas(count))

    def propose_isr(self, now: float, lag_seconds_max: float, alive: dict[BrokerId, int]) -> IsrProposal | None:
        """The ISR change that is due, if this broker leads; see `LeaderState.propose`."""
        return self._state.propose_isr(now, lag_seconds_max, alive)

    def on_isr_refused(self, proposal: IsrProposal) -> None:
        """An ISR proposal was not committed."""
        self._carry_out(self._state.on_isr_refused(proposal))

    # Replicas

    def on_follower_fetch(self, broker: BrokerId, *, offset: Offset, start_offset: Offset, broker_epoch: int) -> None:
        """A follower has everything below an offset."""
        effects = self._state.on_follower_fetch(
            broker,
            offset=offset,
            start_offset=start_offset,
            broker_epoch=broker_epoch,
            leader_end=self.log.end_offset,
            now=self._clock.monotonic(),
        )
        if self._next_fetch is not None:
            self._next_fetch.set()
            self._next_fetch = None
        if effects:
            self._carry_out(effects)
        if self.log.is_start_lost:
            self._restore_start()

    def _restore_start(self) -> None:
        """Takes the log start from the in-sync followers, since the file that had it is damaged or missing."""
        log, before = self.log, self.log.start_offset
        start = UNKNOWN_OFFSET if self.leader is None else self.leader.start_in_isr
        if before < start <= log.high_watermark:
            log.is_start_lost = False
            log.advance_start(start)
            _LOGGER.warning(
                "partition %s: the log starts at offset %d again, as on the in-sync followers, instead of %d",
                log.partition, start, before,
            )  # fmt: skip

    async def wait_follower_fetch(self) -> None:
        """Returns after a follower's next fetch, which says where its log begins and ends."""
        if self._next_fetch is None:
            self._next_fetch = asyncio.Event()
        await self._next_fetch.wait()

    def on_copied(self, added_bytes: int) -> None:
        """Records were copied from the leader; waiting fetches are woken when they are committed."""
        self.copied_bytes += added_bytes
        self._state.on_copied(self.log.end_offset, added_bytes)

    def on_truncated(self) -> None:
        """The log of this follower was truncated."""
        self._state.on_truncated(self.log.high_watermark)

    def on_leader_bounds(self, high_watermark: Offset, start_offset: Offset) -> None:
        """The leader said how far the partition is committed, and where it starts."""
        self._carry_out(self._state.on_leader_bounds(high_watermark, start_offset, end_offset=self.log.end_offset))

    def replace_log(self, log: Log) -> None:
        """Follows with another log from now on, which took the place of one that failed or was damaged."""
        self.log = log
        self._carry_out(self._state.on_log_replaced(log.high_watermark))

    def fail_waiting(self, error: OttlaError) -> None:
        """All requests that wait here are answered: the log failed, or the partition was deleted or moved."""
        self._carry_out(self._state.fail_waiting(error))

    def end_fetch_waits(self) -> None:
        """Waiting fetches are answered with the records that are available."""
        self._carry_out(self._state.end_fetch_waits())
