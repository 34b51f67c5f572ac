"""One queue on the leader of a companion partition: follows its log, and moves records when they are due.

The decisions are in `delivery_state.py`, the meaning of records in `kinds/`. This is the shell: it reads the log up to
the high watermark like a consumer, which is also how it loads, waits for the next due time, reads parked records back,
writes progress records, and appends batches to their sinks. It registers with the partition as a waiting fetch, so
nothing is added to the path of Produce. Which shards a broker has is in `queue_shards.py`.
"""

import asyncio
import logging
from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from ottla.env.ports import Clock, Disk
from ottla.model.dead_letters import RETRY_NAMES, STORY_NAMES
from ottla.model.errors import CorruptError, NotEnoughReplicasAfterAppendError, OttlaError, StorageError
from ottla.model.ids import NO_PRODUCER_ID, QUEUE_PRODUCER_BIT, Offset, ProducerId, TopicPartition
from ottla.model.queue_names import CANCEL, ORIGIN, RELEASE
from ottla.queues.delivery_state import (
    Apply,
    DeliveryEffect,
    DeliveryState,
    Instructed,
    Note,
    Owe,
    Parcel,
    Repartition,
    Send,
)
from ottla.queues.due_index import DueIndex
from ottla.queues.due_soon import DueSoon
from ottla.queues.kinds.kind import Ask, DeadLetter, Deliver, Drop, Found, Kind, Later, Verdict
from ottla.queues.offset_runs import runs_of
from ottla.queues.parked_records import ParkedRecords
from ottla.queues.progress_records import Action, Grew, Plan, ProgressRecord, Settled, decode, encode
from ottla.queues.sinks import Outcome, Sinks
from ottla.records.batch import Batch, scan
from ottla.records.builder import BatchBuilder
from ottla.records.control import progress_batch, read_marker, read_progress
from ottla.records.header_edit import HeaderNames
from ottla.records.header_stamp import Stamp
from ottla.records.layout import Codec, Marker
from ottla.records.payload import unpack
from ottla.records.picking import RecordBlock, count_fitting, pick_batch
from ottla.replication.partition import Partition
from ottla.replication.timers import Timers
from ottla.replication.timing_wheel import Deadline
from ottla.storage.log import Appended

_LOGGER: Final = logging.getLogger(__name__)

_FOLLOWED_BYTES: Final = 1024 * 1024
"""Read, or decompressed, at a time; in between the event loop may do something else."""
_BLOCKS_BYTES_MAX: Final = 32 * 1024 * 1024
"""Of the records that are read back at a time: a few bytes of a log may hold megabytes."""
_INLINE_BYTES: Final = 128 * 1024
"""What was just written is in the page cache: up to this size it is read on the event loop."""
_TAKEN_MAX: Final = 16_384
"""Records that are taken from the due index at a time."""
_PLANNED_MAX: Final = 8_192
"""Records of one plan."""
_BATCH_BYTES_MAX: Final = 1024 * 1024
"""Of a delivery, or less where the sink's max.message.bytes says so: a larger batch would hold up what is due next."""
_STAMPED_BYTES: Final = 1_000
"""What a kind's headers may add to a record, more or less; a batch that gets too large is refused and halved."""
_LOOK_AHEAD_MS: Final = 2_000
"""Records are read back this long before they are due, so that many that are due together only have to be moved."""
_LOOKED_AT_ONCE: Final = 4_096
_LOOK_AGAIN_MS: Final = 100
"""How often is looked ahead at most."""
_NOTE_MS: Final = 1_000
"""How long after a delivery the log says that it is done, if no other delivery to the same sink says so earlier."""
_SNAPSHOT_OFFSETS: Final = 10_000
"""The log start moves when this many offsets are not needed any more."""
_RETRY_SECONDS: Final = 0.05
_RETRY_SECONDS_MAX: Final = 5.0
_LETTER_RETRY_SECONDS: Final = 1.0
_LETTER_RETRY_SECONDS_MAX: Final = 300.0
"""Between attempts to append a single dead letter that its topic refuses; each is noted in the log."""
_WAIT_MS: Final = 1_000
_TELL_SECONDS: Final = 10.0
"""Between warnings about instructions of clients that have no effect."""
_RELOAD_SECONDS: Final = 1.0
_RELOAD_SECONDS_MAX: Final = 60.0

_SET_BACK_MS: Final = 1_000
"""If the clock was set back by less, records that were due wait until it is there again; otherwise the log is read
again."""

_SEQUENCES_USED: Final = (
    "it already has a batch with the sequences of a new delivery, so the end of this queue's log was lost; the records"
    " are delivered in a new producer epoch"
)

_DEAD_LETTER_DROP: Final = HeaderNames(*RETRY_NAMES, *STORY_NAMES)
"""A dead letter has its own headers and a new story, and nothing of earlier deliveries."""


@dataclass(slots=True)
class QueueCounts:
    """What a shard has done since it was loaded."""

    delivered: int = 0
    dead: int = 0
    dropped: int = 0
    asked: int = 0
    contradicted: int = 0
    """Instructions that contradict what was decided before."""
    unmatched: int = 0
    """Decisions about half messages that no partition knows."""
    refused_batches: int = 0
    failed_attempts: int = 0
    late_ms: int = 0
    """How late the last delivery was."""
    late_ms_max: int = 0

    def add(self, other: "QueueCounts") -> None:
        """Counts another shard's together with these."""
        self.delivered += other.delivered
        self.dead += other.dead
        self.dropped += other.dropped
        self.asked += other.asked
        self.contradicted += other.contradicted
        self.unmatched += other.unmatched
        self.refused_batches += other.refused_batches
        self.failed_attempts += other.failed_attempts
        self.late_ms_max = max(self.late_ms_max, other.late_ms_max)


@dataclass(slots=True)
class _Group:
    """Records that are due, with the same verdict, in the order in which they are delivered."""

    action: Action
    detail: str
    again_ms: int
    due_ms: int
    """Of the first one."""
    offsets: "array[int]" = field(default_factory=lambda: array("q"))


@dataclass(slots=True)
class _Built:
    """The batch of a plan, ready to be sent."""

    batch: bytearray
    due_ms: int
    is_question: bool = False
    """Whether it only asks for the real one, which cannot be built any more."""


@dataclass(slots=True)
class _RefusedLetter:
    """A dead letter that its topic refused: it is tried again, after all others."""

    pause: float = _LETTER_RETRY_SECONDS / 2
    next_at: float = 0.0
    """By the monotonic clock."""


class QueueShard:
    """The queue of one partition that is led here, in one leader epoch. `start` it, and `close` it once.

    `next_producer_id` allocates an id; `target_partitions` is the number of partitions of the topic that is delivered
    to, 0 if that does not matter; `batch_bytes_max` is the max.message.bytes of a topic. `is_led` says whether this
    broker serves the partition: its log may be deleted a moment before the shard is closed. With `moves_start`, the
    shard deletes from the log what is not needed any more; otherwise retention does.
    """

    is_committed = False
    """As a waiting fetch: transactions are followed here, so records count before their marker."""

    def __init__(
        self,
        partition: Partition,
        sinks: Sinks,
        *,
        make_kind: Callable[[], Kind],
        clock: Clock,
        disk: Disk,
        timers: Timers,
        next_producer_id: Callable[[], Awaitable[ProducerId]],
        target_partitions: Callable[[], int],
        batch_bytes_max: Callable[[str], int],
        is_led: Callable[[], bool],
        moves_start: bool = True,
    ) -> None:
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.name = TopicPartition(partition.topic, partition.index)
        self.kind = make_kind()
        self.counts = QueueCounts()
        self._sinks = sinks
        self._make_kind = make_kind
        self._clock = clock
        self._disk = disk
        self._timers = timers
        self._next_producer_id = next_producer_id
        self._target_partitions = target_partitions
        self._batch_bytes_max = batch_bytes_max
        self._is_led = is_led
        self._moves_start = moves_start
        self._origin = f"{partition.topic}/{partition.index}/".encode()
        self._added_bytes = len(ORIGIN) + len(self._origin) + 26
        """What the origin adds to a record, at most: an offset has up to 19 digits, lengths take some bytes."""
        self._drop = HeaderNames(ORIGIN, *self.kind.dropped_headers)
        self._drop_of_dead = HeaderNames(*_DEAD_LETTER_DROP.names, *self.kind.dropped_from_dead)
        self._is_closed = False
        self._is_woken = False
        self._is_stuck = False
        """Whether the last progress could not be written: repeated failures are logged once."""
        self._lost_write: OttlaError | None = None
        """Why it is unknown what the log has."""
        self._is_stale = False
        """Whether the log was given up while it was read: if it is served again, it may be another one."""
        self._unmatched_untold = 0
        """Instructions without effect that were not logged yet."""
        self._unmatched_told_at = -_TELL_SECONDS
        self._refused_letters: dict[int, _RefusedLetter] = {}
        """By offset; they are in the state's `returned`, or being sent."""
        self._worker: asyncio.Task[None] | None = None
        self._sends: dict[TopicPartition, asyncio.Task[None]] = {}
        self._timer: Deadline | None = None
        self._looking: asyncio.Task[None] | None = None
        """Reads records ahead of time."""
        self._note_at: float | None = None
        """When what was delivered is to be noted, by the monotonic clock."""
        self._begin()

    def _begin(self) -> None:
        """Knows nothing; the log is read from its start."""
        start = self.partition.start_offset
        self._state = DeliveryState(start, self.leader_epoch)
        self.kind.begin(self._state.settled)
        self._index = DueSoon(DueIndex(lambda: self._disk.open_scratch(self.partition.log.folder)))
        self._parked = ParkedRecords(self.partition.log, self._disk)
        self._load_end = self.partition.end_offset
        """Earlier leaders may have written up to here. What they planned must be known before anything is planned."""
        self._ready: dict[TopicPartition | None, deque[_Group]] = {}
        self._ready_count = 0
        self._built: dict[TopicPartition, _Built] = {}
        self._taken_ms = 0
        """From this time on all ready records are due; 0 if there are none."""
        self._to_note: list[int] = []
        """Records to be noted as settled."""

    # What it is

    @property
    def is_loaded(self) -> bool:
        """Whether it has read what earlier leaders wrote."""
        return self._state.is_loaded

    @property
    def parked(self) -> int:
        """How many records are owed."""
        return self._state.owed

    @property
    def is_up_to_date(self) -> bool:
        """Whether it has read everything that is committed."""
        return self._state.is_loaded and self._state.followed >= self.partition.high_watermark

    @property
    def undelivered(self) -> int:
        """How many records are owed or on their way."""
        return self._state.undelivered

    @property
    def on_their_way(self) -> int:
        """How many of the undelivered records may have arrived all the same, or may still arrive."""
        return self._state.on_their_way

    def late_by_ms(self) -> int:
        """How long the oldest record that is due has waited."""
        dues = [group.due_ms for groups in self._ready.values() for group in groups]
        next_due = self._index.next_due()
        if next_due is not None:
            dues.append(next_due)
        return max(0, self._clock.now_ms() - min(dues)) if dues else 0

    @property
    def due(self) -> int:
        """How many records are due and not planned yet. Cancelled records may count until they would be delivered."""
        try:
            waiting = self._index.count_due(self._clock.now_ms())
        except StorageError:
            waiting = 0  # The next delivery meets the same error, and reads the log again.
        return min(self._state.owed, self._ready_count + waiting)

    # Life

    def start(self) -> None:
        """Follows the partition from now on."""
        self.partition.fetch_waiters[self] = None
        self.wake()

    def close(self) -> None:
        """The partition has another leader, or was deleted, or the broker stops. What is sent may still arrive."""
        self._is_closed = True
        self.partition.fetch_waiters.pop(self, None)
        for task in (self._worker, self._looking, *self._sends.values()):
            if task is not None:
                task.cancel()
        if self._timer is not None:
            self._timer.cancel()
        self._index.close()

    async def wait_closed(self) -> None:
        """Returns when nothing of it runs any more."""
        tasks = [task for task in (self._worker, self._looking, *self._sends.values()) if task is not None]
        await asyncio.gather(*tasks, return_exceptions=True)

    def on_progress(self, added_bytes: int) -> None:
        """More of the log is committed."""
        self.wake()

    def finish(self) -> None:
        """Waiting fetches were ended; a shard goes on until it is closed."""
        self.wake()

    def wake(self) -> None:
        """There may be something to do: the log has grown, a record is due, a delivery is over, the clock was set."""
        self._is_woken = True
        if self._worker is None and not self._is_closed:
            self._worker = asyncio.get_running_loop().create_task(self._work())

    def wake_after(self, span_ms: int) -> None:
        """Wakes it in a while, or in the next turn of the event loop."""
        if not self._is_closed:
            self._timers.after(span_ms, self.wake)

    async def _work(self) -> None:
        pause = _RELOAD_SECONDS
        while self._is_woken and not self._is_closed and self._is_led():
            self._is_woken = False
            try:
                await self._step()
                pause = _RELOAD_SECONDS
            except Exception as error:
                if not self._is_led():
                    self._is_stale = True
                    break
                if isinstance(error, OttlaError):
                    _LOGGER.error("queue %s: stopped, reading its log again in %g s: %s", self.name, pause, error)
                else:
                    _LOGGER.exception("queue %s: unexpected error, reading its log again in %g s", self.name, pause)
                await self._clock.sleep(pause)
                pause = min(2 * pause, _RELOAD_SECONDS_MAX)
                await self._reset()
                self._is_woken = True
        self._worker = None
        if not self._is_closed and self._is_led():
            self._arm()

    async def _reset(self) -> None:
        """Forgets everything that was read; what is being sent stops, and is sent again after the log was read."""
        tasks, self._sends = list(self._sends.values()), {}
        if self._looking is not None:
            tasks.append(self._looking)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._index.close()
        self.kind = self._make_kind()
        self._lost_write = None
        self._is_stale = False
        self._begin()

    async def _step(self) -> None:
        if self._lost_write is not None:
            raise self._lost_write
        if self._is_stale:
            await self._reset()
        if self._early_ms() > _SET_BACK_MS:
            _LOGGER.warning(
                "queue %s: the clock was set back while %d due records waited to be delivered; reading the log again",
                self.name, self._ready_count,
            )  # fmt: skip
            await self._reset()
        await self._follow()
        state = self._state
        if not state.is_loaded:
            if state.followed < self._load_end:
                # Fetches are woken by new records only, not by old ones that are committed at last.
                self.partition.wait_committed(_Wait(self))
                return
            self._carry_out(state.on_loaded())
            _LOGGER.info(
                "queue %s: loaded (leader epoch %d): %d records parked, offsets %d to %d",
                self.name, self.leader_epoch, state.owed, self.partition.start_offset, state.followed,
            )  # fmt: skip
        if await self._prepare():
            await self._deliver()
            self._look_ahead()
            self._note()
            self._move_start()

    # Following

    async def _follow(self) -> None:
        partition, state = self.partition, self._state
        while state.followed < partition.high_watermark and not self._is_closed:
            found = partition.read(state.followed, _FOLLOWED_BYTES, is_committed=False, at_least_one=True)
            if found is None:
                return
            if found.size <= _INLINE_BYTES and state.is_loaded:
                content = found.file.read_at(found.position, found.size)
            else:
                content = await self._disk.in_background(found.file.read_at, found.position, found.size)
            batches, _, problem = scan(content)
            if not batches:
                raise CorruptError(f"{found.file.path}, byte {found.position}, offset {state.followed}: {problem}")
            looked_bytes = 0
            for batch in batches:
                if batch.next_offset > partition.high_watermark:
                    break
                try:
                    if batch.codec:
                        looked_bytes += await unpack(batch, self._disk.in_background)
                    self._follow_batch(batch)
                    batch.unpacked = None
                except CorruptError as error:
                    place = f"{found.file.path}, byte {found.position + batch.position}, offset {batch.base_offset}"
                    raise CorruptError(f"{place}: {error}") from error
                if looked_bytes >= _FOLLOWED_BYTES:
                    looked_bytes = 0
                    await asyncio.sleep(0)

    def _follow_batch(self, batch: Batch) -> None:
        state = self._state
        if batch.last_offset < state.followed:
            return
        if batch.is_control:
            marker = read_marker(batch)
            if marker is not None:
                self._carry_out(
                    state.on_marker(
                        batch.base_offset, ProducerId(batch.producer_id), is_commit=marker[0] is Marker.COMMIT
                    )
                )
                return
            for offset, value in read_progress(batch):
                if offset >= state.followed:
                    self._carry_out(state.on_progress(Offset(offset), decode(value)))
            if state.followed < batch.next_offset:
                state.on_skipped(state.followed, batch.next_offset - state.followed)
            return
        found = self.kind.read(batch)
        first = batch.base_offset
        if first < state.followed:
            # The log starts within this batch.
            first = state.followed
            at = bisect_left(found.offsets, first)
            found = found._replace(due_ms=found.due_ms[at:], offsets=found.offsets[at:])
        producer_id = ProducerId(batch.producer_id) if batch.is_transactional else NO_PRODUCER_ID
        self._carry_out(state.on_data(first, batch.next_offset - first, found, producer_id))

    def _carry_out(self, effects: Sequence[DeliveryEffect]) -> None:
        for effect in effects:
            match effect:
                case Owe():
                    self._index.add(effect.due_ms, effect.offsets)
                case Instructed():
                    self._on_instructed(effect)
                case Apply():
                    self._apply(effect.found)
                case Note():
                    self.kind.on_progress(effect.record)
                case Repartition():
                    self.kind.on_partitions(effect.partitions, effect.grew_at)
                case Send():
                    sink = effect.plan.sink
                    task = asyncio.get_running_loop().create_task(self._send(effect, self._state))
                    self._sends[sink] = task

    def _apply(self, found: Found) -> None:
        due_now, contradictions = self.kind.apply(found)
        # Instructions are not delivered: the log start moves past them even if nothing else is.
        self._note_soon()
        if due_now:
            self._carry_out(self._state.hasten(due_now, self._clock.now_ms()))
        if contradictions and self._state.is_loaded:
            self.counts.contradicted += len(contradictions)
            _LOGGER.warning(
                "queue %s: %d instructions ignored, the first: %s", self.name, len(contradictions), contradictions[0]
            )

    def _on_instructed(self, instructed: Instructed) -> None:
        if not self._state.is_loaded:
            return  # Counted and logged by the leader that read it first.
        self.counts.dropped += instructed.cancelled
        if instructed.ignored:
            _LOGGER.warning(
                "queue %s: ignored %d instructions (headers %s and %s) about records that are not parked or were"
                " delivered already, the first at offset %d",
                self.name, len(instructed.ignored), RELEASE, CANCEL, instructed.ignored[0],
            )  # fmt: skip

    # Planning

    async def _prepare(self) -> bool:
        """Makes sure that the log has a producer id, and says how many partitions the target has.

        Returns whether deliveries can be planned.
        """
        state, partitions = self._state, self._target_partitions()
        if isinstance(self.kind.uniform_verdict(), Drop):
            return True  # Nothing is ever planned, so that nothing is written.
        if state.producer_id is None:
            if not state.owed and not state.returned:
                return False
            producer_id = await self._next_producer_id() | QUEUE_PRODUCER_BIT
            state.partitions = state.partitions or partitions
            self._write([state.snapshot(producer_id)])
            return False
        if partitions > state.partitions > 0:
            _LOGGER.info("queue %s: target grew from %d to %d partitions", self.name, state.partitions, partitions)
            self._write([Grew(partitions)])
            return False
        return True

    async def _deliver(self) -> None:
        """Plans what is due, for all sinks that are free."""
        if self._must_wait():
            return
        await self._take_due()
        plans: list[tuple[Plan, _Group | None]] = []
        state = self._state
        if self._to_note and self._write([Settled(runs_of(array("q", sorted(self._to_note))))]):
            self._to_note.clear()
            self._note_soon()
        try:
            # Without a dead-letter topic expired records are not moved; refused ones wait until there is one again.
            returned = [] if isinstance(self.kind.uniform_verdict(), Drop) else list(state.returned)
            refused = [parcel for parcel in returned if self._refused_letter(parcel) is not None]
            plans += await self._plan_returned([parcel for parcel in returned if parcel not in refused])
            for key in list(self._ready):
                sink = key or self.kind.dead_letter_sink()
                if state.is_free(sink) and await self._still_there(key):
                    plans.append(await self._plan_ready(key, sink))
            plans += await self._plan_returned([parcel for parcel in refused if self._is_tried_again(parcel)])
        finally:
            if plans and (self._must_wait() or not self._write([plan for plan, _ in plans])):
                for plan, group in plans:
                    self._take_back(plan, group)
            if not self._ready_count:
                self._taken_ms = 0

    async def _plan_returned(self, parcels: Sequence[Parcel]) -> list[tuple[Plan, _Group | None]]:
        """Plans records again whose plan was refused, for all sinks that are free."""
        plans: list[tuple[Plan, _Group | None]] = []
        for parcel in parcels:
            sink = parcel.sink or self.kind.dead_letter_sink()
            if self._state.is_free(sink) and (left := await self._left_of(parcel)) is not None:
                plans.append((await self._plan(sink, left, self._clock.now_ms()), None))
        return plans

    def _refused_letter(self, parcel: Parcel) -> _RefusedLetter | None:
        is_single_letter = parcel.action is Action.DEAD and parcel.runs[1:] == (1,)
        return self._refused_letters.get(parcel.runs[0]) if is_single_letter else None

    def _is_tried_again(self, parcel: Parcel) -> bool:
        letter = self._refused_letter(parcel)
        return letter is None or letter.next_at <= self._clock.monotonic()

    async def _take_due(self) -> None:
        """Moves records that are due from the index to `_ready`, as long as few are there."""
        state, kind = self._state, self.kind
        while self._ready_count < _TAKEN_MAX:
            uniform = kind.uniform_verdict()
            if isinstance(uniform, Deliver) and (self._ready_count or not state.is_free(uniform.sink)):
                return  # They would only wait outside of the index.
            now_ms = self._clock.now_ms()
            due_ms, offsets = self._index.pop_due(now_ms, _TAKEN_MAX)
            if not offsets:
                return
            self._taken_ms = max(self._taken_ms, now_ms)
            kept = state.settled.unsettled(offsets)
            if len(kept) != len(offsets) or state.has_stale:
                fresh = {offsets[at]: at for at in kept if not state.is_stale(offsets[at], due_ms[at])}
                kept = array("q", fresh.values())
                due_ms = array("q", (due_ms[at] for at in kept))
                offsets = array("q", (offsets[at] for at in kept))
                if not offsets:
                    continue
            if isinstance(uniform, Drop | DeadLetter):
                self.partition.expired_records += len(offsets)
            if isinstance(uniform, Drop):
                state.drop(offsets)
                self.counts.dropped += len(offsets)
                continue
            if isinstance(uniform, Deliver | DeadLetter):
                self._add_ready(uniform, due_ms[0], offsets)
                return
            while offsets:
                count, blocks = await self._read_back(offsets)
                await self._judge(due_ms[:count], offsets[:count], blocks, now_ms)
                due_ms, offsets = due_ms[count:], offsets[count:]

    async def _judge(
        self, due_ms: "array[int]", offsets: "array[int]", blocks: Sequence[RecordBlock], now_ms: int
    ) -> None:
        """Asks for the verdict about each record."""
        # What was committed meanwhile may be about these records: a cancel that was acknowledged before now counts.
        await self._follow()
        by_offset = _Lookup(blocks)
        dropped: list[int] = []
        state = self._state
        for due, offset in zip(due_ms, offsets, strict=True):
            if state.is_stale(offset, due):
                continue  # By what was just read.
            record = by_offset.block(offset).record(offset)
            verdict = self.kind.verdict(record, now_ms)
            if not isinstance(verdict, Ask | Later):
                state.take(offset)
            match verdict:
                case Drop(is_noted=True):
                    self._to_note.append(offset)
                    if verdict.why:
                        self._on_unmatched(verdict.why)
                case Drop():
                    dropped.append(offset)
                case Later():
                    self._state.postpone(offset, verdict.due_ms)
                    self._index.add(array("q", [verdict.due_ms]), array("q", [offset]))
                case _:
                    self._add_ready(verdict, due, array("q", [offset]))
        if dropped:
            state.drop(dropped)
            self.counts.dropped += len(dropped)
            self._note_soon()

    def _on_unmatched(self, why: str) -> None:
        """A decision that was acknowledged has no effect. Logged now and then: a client may repeat its mistake."""
        self.counts.unmatched += 1
        self._unmatched_untold += 1
        if self._clock.monotonic() >= self._unmatched_told_at + _TELL_SECONDS:
            _LOGGER.warning("queue %s: %d decisions ignored, the last: %s", self.name, self._unmatched_untold, why)
            self._unmatched_told_at, self._unmatched_untold = self._clock.monotonic(), 0

    def _add_ready(self, verdict: Verdict, due_ms: int, offsets: "array[int]") -> None:
        key: TopicPartition | None
        match verdict:
            case Deliver():
                key, group = verdict.sink, _Group(Action.DELIVER, "", -1, due_ms)
            case DeadLetter():
                key, group = None, _Group(Action.DEAD, verdict.reason, -1, due_ms)
            case Ask():
                key, group = verdict.sink, _Group(Action.ASK, verdict.detail, verdict.again_ms, due_ms)
            case _:
                return
        groups = self._ready.setdefault(key, deque())
        last = groups[-1] if groups else None
        if last is None or (last.action, last.detail, last.again_ms) != (group.action, group.detail, group.again_ms):
            groups.append(group)
            last = group
        last.offsets.extend(offsets)
        self._ready_count += len(offsets)

    def _still_ready(self, key: TopicPartition | None) -> bool:
        """Forgets records that were cancelled or decided meanwhile, or are ready twice because they were released.

        Returns whether any of the records that would be planned next are left.
        """
        groups, state = self._ready[key], self._state
        while groups:
            group = groups[0]
            first = group.offsets[:_PLANNED_MAX]
            kept = state.settled.unsettled(first)
            if len(kept) != len(first) or state.has_stale:
                is_question = group.action is Action.ASK
                left = (first[at] for at in kept)
                once = dict.fromkeys(each for each in left if not (is_question and state.is_hastened(each)))
                group.offsets[: len(first)] = array("q", once)
                self._ready_count -= len(first) - len(once)
                if not once and group.offsets:
                    continue
            if group.offsets:
                return True
            groups.popleft()
        del self._ready[key]
        return False

    async def _still_there(self, key: TopicPartition | None) -> bool:
        """The same, and forgets records that retention, DeleteRecords or compaction removed before they were due.

        Only of a log that others delete from; a companion keeps what it owes.
        """
        while self._still_ready(key):
            first = self._ready[key][0].offsets[:_PLANNED_MAX]
            left = first
            if not self._moves_start:
                start = self.partition.start_offset
                left = await self._parked.left(array("q", (offset for offset in first if offset >= start)))
            if len(left) == len(first):
                return True
            self._state.drop(sorted(frozenset(first).difference(left)))
        return False

    async def _plan_ready(self, key: TopicPartition | None, sink: TopicPartition) -> tuple[Plan, _Group]:
        """Plans the first records that are ready for a sink, as many as fit into a batch."""
        group = self._ready[key][0]
        parcel = Parcel(key, group.action, group.detail, (), group.again_ms)
        plan = await self._plan(sink, parcel, group.due_ms, group.offsets[:_PLANNED_MAX])
        count = plan.count
        del group.offsets[:count]
        self._ready_count -= count
        if not group.offsets:
            self._ready[key].popleft()
            if not self._ready[key]:
                del self._ready[key]
        return plan, group

    async def _plan(
        self, sink: TopicPartition, parcel: Parcel, due_ms: int, offsets: "array[int] | None" = None
    ) -> Plan:
        """Drafts a plan for as many of the parcel's records as fit into a batch, and builds the batch."""
        wanted = parcel.offsets() if offsets is None else offsets
        read, blocks = await self._read_back(wanted)
        limit = min(_BATCH_BYTES_MAX, self._batch_bytes_max(sink.topic))
        added_bytes = self._added_bytes
        if self.kind.is_stamping(parcel.action):
            added_bytes += _STAMPED_BYTES + len(parcel.detail)
        count = max(1, count_fitting(blocks, wanted[:read], limit, added_bytes))
        if count < len(wanted):
            if offsets is None:
                # Part of what was refused: the rest is planned after it.
                self._state.split_returned(parcel, count)
            wanted = wanted[:count]
        plan = self._state.draft(sink, parcel._replace(runs=runs_of(wanted)))
        self._built[sink] = _Built(self._build(plan, wanted, blocks), due_ms)
        return plan

    async def _read_back(self, offsets: "array[int]") -> tuple[int, list[RecordBlock]]:
        """How many of these records, from the first on, were read back, and the blocks that have them."""
        ascending = array("q", sorted(offsets))
        blocks = await self._parked.blocks(ascending, bytes_max=_BLOCKS_BYTES_MAX)
        last_offset = blocks[-1].last_offset
        if last_offset >= ascending[-1]:
            return len(offsets), blocks
        count = next(at for at, offset in enumerate(offsets) if offset > last_offset)
        return (count, blocks) if count else (1, await self._parked.blocks(offsets[:1]))

    def _look_ahead(self) -> None:
        """Reads records that are due soon, beside everything else."""
        next_move = self._index.next_move()
        if self._looking is None and next_move is not None and next_move <= self._clock.now_ms() + _LOOK_AHEAD_MS:
            self._looking = asyncio.get_running_loop().create_task(self._read_ahead())

    async def _read_ahead(self) -> None:
        try:
            while not self._parked.is_full and self._index.next_move() is not None:
                moved = self._index.move(self._clock.now_ms() + _LOOK_AHEAD_MS, _LOOKED_AT_ONCE)
                if not moved:
                    return
                kept = (moved[at] for at in self._state.settled.unsettled(moved))
                await self._parked.blocks(array("q", sorted(kept)), bytes_max=_BLOCKS_BYTES_MAX)
                await asyncio.sleep(0)
        except OttlaError as error:
            _LOGGER.info("queue %s: cannot read ahead: %s", self.name, error)
        finally:
            self._looking = None

    async def _left_of(self, parcel: Parcel) -> Parcel | None:
        """A refused parcel without the records that the log does not have any more; None if none is left."""
        offsets = parcel.offsets()
        left = await self._parked.left(offsets)
        if len(left) == len(offsets):
            return parcel
        _LOGGER.warning(
            "queue %s: %d of %d records from offset %d on were deleted before they were delivered",
            self.name, len(offsets) - len(left), len(offsets), min(offsets),
        )  # fmt: skip
        return self._state.shrink_returned(parcel, left)

    def _take_back(self, plan: Plan, group: _Group | None) -> None:
        """A plan could not be written: its records are ready again."""
        self._state.on_draft_failed(plan)
        self._built.pop(plan.sink, None)
        if group is None:
            return
        offsets = plan.offsets()
        key = plan.sink if plan.action is not Action.DEAD else None
        again = _Group(group.action, group.detail, group.again_ms, group.due_ms, offsets)
        self._ready.setdefault(key, deque()).appendleft(again)
        self._ready_count += len(offsets)

    def _build(self, plan: Plan, offsets: "array[int]", blocks: Sequence[RecordBlock]) -> bytearray:
        """The batch of a plan."""
        stamps = [Stamp(ORIGIN, offsets, self._origin)]
        added = None
        if self.kind.is_stamping(plan.action):
            by_offset = _Lookup(blocks)
            added = {
                at: self.kind.added_headers(plan.action, plan.detail, by_offset.block(offset).record(offset))
                for at, offset in enumerate(offsets)
            }
        picked = partial(
            pick_batch,
            blocks,
            offsets,
            drop=self._drop_of_dead if plan.action is Action.DEAD else self._drop,
            stamps=stamps,
            added=added,
            producer_id=plan.producer_id,
            producer_epoch=plan.producer_epoch,
            base_sequence=plan.first_sequence,
        )
        batch = picked()
        if len(batch) > self._batch_bytes_max(plan.topic):
            # It may have come in a compressed batch. Every client can read gzip.
            batch = picked(codec=Codec.GZIP)
        return batch

    # Sending

    async def _send(self, send: Send, state: DeliveryState) -> None:
        """Appends a plan's batch to its sink until it is there, or is refused."""
        plan, asks_first = send
        pause, is_told = _RETRY_SECONDS, False
        try:
            built = self._built.pop(plan.sink, None) or await self._rebuild(plan)
            while True:
                batch = _question(plan) if asks_first else built.batch
                outcome, why = await self._sinks.append(plan.sink, batch)
                if asks_first and outcome in (Outcome.REFUSED, Outcome.UNKNOWN_PRODUCER):
                    asks_first = False
                    continue
                if asks_first and outcome is Outcome.APPENDED:
                    outcome, why = Outcome.UNKNOWN_PRODUCER, _SEQUENCES_USED
                if built.is_question and outcome is Outcome.REFUSED:
                    outcome = Outcome.UNKNOWN_PRODUCER
                if outcome is Outcome.APPENDED:
                    if is_told:
                        _LOGGER.info("queue %s: delivers to %s again", self.name, plan.sink)
                    break
                if outcome is Outcome.MISSING and not self._belongs_elsewhere(plan):
                    outcome = Outcome.FAILED
                if outcome is not Outcome.FAILED and self._refuse(plan, state, why, outcome):
                    return
                self.counts.failed_attempts += 1
                if not is_told and pause > 4 * _RETRY_SECONDS:
                    is_told = True
                    _LOGGER.warning(
                        "queue %s: cannot deliver %d records to %s, retrying: %s",
                        self.name, plan.count, plan.sink, why,
                    )  # fmt: skip
                await self._clock.sleep(pause)
                pause = min(2 * pause, _RETRY_SECONDS_MAX)
        except Exception as error:
            if not self._is_led():
                return
            if isinstance(error, OttlaError):
                _LOGGER.error("queue %s: delivery to %s failed, retrying: %s", self.name, plan.sink, error)
            else:
                _LOGGER.exception("queue %s: unexpected error in a delivery to %s, retrying", self.name, plan.sink)
            await self._clock.sleep(_RELOAD_SECONDS)
            self._carry_out([Send(plan, asks_first)])
            return
        self._on_sent(plan, state, built)

    def _belongs_elsewhere(self, plan: Plan) -> bool:
        """Whether dead letters that were planned for a partition go to another one by now.

        Everything else waits until its sink exists again, and so do expired records while no dead-letter topic is set.
        """
        if plan.action is not Action.DEAD or isinstance(self.kind.uniform_verdict(), Drop):
            return False
        return self.kind.dead_letter_sink() != plan.sink

    async def _rebuild(self, plan: Plan) -> _Built:
        """The batch of a plan that an earlier leader, or this broker before a crash, may or may not have sent.

        If the log does not have all of its records any more, it cannot be sent again, and the sink is asked for it.
        """
        offsets = plan.offsets()
        left = await self._parked.left(offsets)
        if len(left) == len(offsets):
            blocks = await self._parked.blocks(array("q", sorted(offsets)))
            return _Built(self._build(plan, offsets, blocks), self._clock.now_ms())
        return _Built(_question(plan), self._clock.now_ms(), is_question=True)

    def _on_sent(self, plan: Plan, state: DeliveryState, built: _Built) -> None:
        state.on_sent(plan)
        counts = self.counts
        match plan.action:
            case Action.DELIVER if plan.topic != self.name.topic:
                counts.delivered += plan.count
                counts.late_ms = max(0, self._clock.now_ms() - built.due_ms)
                counts.late_ms_max = max(counts.late_ms_max, counts.late_ms)
            case Action.DEAD:
                counts.dead += plan.count
                if plan.count == 1 and self._refused_letters.pop(plan.first_offset, None) is not None:
                    _LOGGER.info(
                        "queue %s: dead-letter topic %s accepted the record of offset %d",
                        self.name, plan.sink.topic, plan.first_offset,
                    )  # fmt: skip
            case Action.ASK:
                counts.asked += plan.count
        self._note_soon()
        self._sends.pop(plan.sink, None)
        self.wake()

    def _refuse(self, plan: Plan, state: DeliveryState, why: str, outcome: Outcome) -> bool:
        """A sink refused a batch: notes it, so that the records are planned otherwise. Returns whether it is noted."""
        refused = state.refusal(plan, why, is_unknown_producer=outcome is not Outcome.REFUSED)
        if plan.action is Action.DEAD and plan.count == 1 and outcome is Outcome.REFUSED:
            self._on_letter_refused(plan, why)
        else:
            _LOGGER.warning("queue %s: %s refused a batch of %d records: %s", self.name, plan.sink, plan.count, why)
        self.counts.refused_batches += 1
        if not self._write([refused]):
            return False
        self._sends.pop(plan.sink, None)
        return True

    def _on_letter_refused(self, plan: Plan, why: str) -> None:
        letter = self._refused_letters.get(plan.first_offset)
        if letter is None:
            letter = self._refused_letters[plan.first_offset] = _RefusedLetter()
            _LOGGER.error(
                "queue %s: dead-letter topic %s refuses the record of offset %d: %s; change the configs of the topic or"
                " set another dead-letter topic; the record stays parked, is tried again at least every %g s, and does"
                " not hold up others",
                self.name, plan.sink.topic, plan.first_offset, why, _LETTER_RETRY_SECONDS_MAX,
            )  # fmt: skip
        letter.pause = min(2 * letter.pause, _LETTER_RETRY_SECONDS_MAX)
        letter.next_at = self._clock.monotonic() + letter.pause

    # Progress

    def _write(self, records: Sequence[ProgressRecord]) -> bool:
        """Appends progress records to the partition; returns whether they are in the log.

        They count when they are read back, after they were committed.
        """
        batch = Batch(progress_batch([encode(record) for record in records], self._clock.now_ms()))
        write = _Write(self)
        try:
            self.partition.append_own(batch, write)
        except OttlaError as error:
            write.on_outcome(0, error)
        if not write.has_failed:
            write.is_in_log = True
            self._is_stuck = False
        return not write.has_failed

    def on_write_failed(self, error: OttlaError, *, is_unsure: bool) -> None:
        """Progress could not be written: the same is tried again in a moment, unless another broker leads by then.

        If it `is_unsure` whether the log has the records, only the log can tell: it is read again.
        """
        if is_unsure:
            self._lost_write = error
        if not self._is_stuck:
            self._is_stuck = True
            _LOGGER.warning("queue %s: progress cannot be written, retrying: %s", self.name, error)
        self.wake_after(_WAIT_MS)

    def _note_soon(self) -> None:
        if self._note_at is None:
            self._note_at = self._clock.monotonic() + _NOTE_MS / 1000

    def _note(self) -> None:
        """Writes what was delivered since the last time, and lets the log start move, now and then."""
        if self._note_at is None or self._clock.monotonic() < self._note_at:
            return
        self._note_at = None
        state = self._state
        records: list[ProgressRecord] = []
        done = state.done()
        if done is not None:
            records.append(done)
            # Once this is committed, the log may be able to start later.
            self._note_at = self._clock.monotonic() + _NOTE_MS / 1000
        if state.producer_id is not None and self._moves_start and self._is_snapshot_due():
            records.append(state.snapshot(state.producer_id))
        if records:
            self._write(records)

    def _is_snapshot_due(self) -> bool:
        state, segments = self._state, self.partition.log.segments
        needed = self._first_needed()
        reached = min(needed, state.snapshot_at if state.snapshot_at is not None else self.partition.start_offset)
        return needed - reached >= _SNAPSHOT_OFFSETS or segments.index_of(needed) > segments.index_of(reached)

    def _first_needed(self) -> Offset:
        """The lowest offset that a reader of the log needs, not counting the last Snapshot."""
        held = self.kind.needed_from()
        needed = self._state.first_needed()
        return needed if held is None else Offset(min(held, needed))

    def _move_start(self) -> None:
        """Lets the log start where a reader finds everything that is needed."""
        state = self._state
        if state.snapshot_at is None or not self._moves_start:
            return
        start = min(self._first_needed(), state.snapshot_at)
        if start > self.partition.start_offset:
            self.partition.delete_records(start)
            self.kind.on_start(start)
            self._parked.forget_below(start)

    # Time

    def _early_ms(self) -> int:
        """How long it takes until all ready records are due, again: more than 0 only if the clock was set back."""
        return max(0, self._taken_ms - self._clock.now_ms())

    def _must_wait(self) -> bool:
        """Whether nothing may be planned for a moment, because the clock was set back."""
        early_ms = self._early_ms()
        if early_ms:
            self.wake_after(min(early_ms, _SET_BACK_MS))
        return early_ms > 0

    def _arm(self) -> None:
        """Sets the timer to the next thing that is due."""
        now_ms = self._clock.now_ms()
        waits: list[int] = []
        uniform = self.kind.uniform_verdict()
        may_take = self._state.producer_id is not None or isinstance(uniform, Drop)
        if self._state.is_loaded and may_take and not self._ready_count:
            next_due = self._index.next_due()
            is_held = isinstance(uniform, Deliver) and not self._state.is_free(uniform.sink)
            if next_due is not None and not is_held:
                waits.append(max(0, next_due - now_ms))
            next_move = self._index.next_move() if self._looking is None else None
            if next_move is not None:
                waits.append(max(_LOOK_AGAIN_MS, next_move - _LOOK_AHEAD_MS - now_ms))
        if self._note_at is not None:
            waits.append(max(0, int((self._note_at - self._clock.monotonic()) * 1000)))
        if self._refused_letters and self._state.is_loaded:
            now = self._clock.monotonic()
            waits += [
                int((letter.next_at - now) * 1000) + 1
                for letter in self._refused_letters.values()
                if letter.next_at > now
            ]
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if waits:
            self._timer = self._timers.after(min(waits), self.wake)


class _Write:
    """Progress records on their way into the log."""

    __slots__ = ("_shard", "has_failed", "is_in_log")

    def __init__(self, shard: QueueShard) -> None:
        self._shard = shard
        self.has_failed = False
        self.is_in_log = False

    def on_waiting(self) -> None:
        """They are in the log; the shard reads them when they are committed."""

    def on_outcome(self, at: int, outcome: Appended | OttlaError) -> None:
        """They are committed, or not written. With too few replicas they are written and will be committed later."""
        if isinstance(outcome, OttlaError) and not isinstance(outcome, NotEnoughReplicasAfterAppendError):
            self.has_failed = True
            self._shard.on_write_failed(outcome, is_unsure=self.is_in_log)


class _Wait:
    """Waits until what earlier leaders wrote is committed."""

    __slots__ = ("_shard",)

    def __init__(self, shard: QueueShard) -> None:
        self._shard = shard

    def on_waiting(self) -> None:
        """Not called: nothing is written."""

    def on_outcome(self, at: int, outcome: Appended | OttlaError) -> None:
        """It is, or cannot be for now; a partition that is led elsewhere by now has another shard."""
        self._shard.wake_after(0 if isinstance(outcome, Appended) else _WAIT_MS)


def _question(plan: Plan) -> bytearray:
    """An empty batch with the sequences of a plan: its sink accepts it only if it has a batch with these already."""
    asking = BatchBuilder(
        producer_id=plan.producer_id, producer_epoch=plan.producer_epoch, base_sequence=plan.first_sequence
    )
    return bytearray(asking.build(last_offset_delta=plan.count - 1))


class _Lookup:
    """The block of an offset."""

    __slots__ = ("_blocks", "_lasts")

    def __init__(self, blocks: Sequence[RecordBlock]) -> None:
        self._blocks = blocks
        self._lasts = [block.last_offset for block in blocks]

    def block(self, offset: int) -> RecordBlock:
        """The block that has the record of an offset."""
        return self._blocks[bisect_left(self._lasts, offset)]
