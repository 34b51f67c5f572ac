"""One share-partition on the leader of its partition: the shell around `share_partition_state.py`.

Loads the state from the share coordinator, reads the log for members, stores what members say of their records, and
ends locks in time. Writes to the share coordinator are sent one after the other; what comes in meanwhile goes together
with the next one. Dead letters are written beside that (`dead_letter_delivery.py`). Belongs to one leader epoch of the
partition.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from ottla.coordination.share_partitions.dead_letter_delivery import DeadLetterDelivery, WriteDeadLetters
from ottla.coordination.share_partitions.settings import SettingsOf, SharePartitionSettings
from ottla.coordination.share_partitions.share_counts import ShareCounts
from ottla.coordination.share_partitions.share_partition_state import (
    Acknowledgement,
    AcknowledgeRefusedError,
    AcknowledgeType,
    Acquired,
    AcquireMode,
    Persist,
    SharePartitionState,
    Span,
)
from ottla.coordination.share_state.client import ShareStateAccess
from ottla.coordination.share_state.records import NOT_SET, ShareKey
from ottla.coordination.share_state.requests import StateOutcome, StateWrite
from ottla.coordination.share_state.state_batches import StateBatch
from ottla.env.ports import Clock, Disk
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import CorruptError, OffsetOutOfRangeError, OttlaError
from ottla.model.ids import Offset, TimestampMs
from ottla.records.batch import Batch, scan
from ottla.replication.partition import Partition
from ottla.replication.timers import Timers
from ottla.replication.timing_wheel import Deadline
from ottla.storage.segments.segment import FileRange

_LOGGER: Final = logging.getLogger(__name__)
_READS_MAX: Final = 8
"""Reads of one fetch that find nothing to deliver, such as aborted transactions, before the client asks again."""
_READ_BYTES_MIN: Final = 64 * 1024
_READ_BYTES_MIN_AFTER_NOTHING: Final = 1024 * 1024
"""After a read that found nothing to deliver: a long aborted transaction is passed in few reads."""
_READ_MARGIN: Final = 1.25
"""Of bytes beyond the average size of the records that a fetch wants."""
_RECORD_BYTES: Final = 1024
"""The size of a record that a share-partition expects before it has read one."""
_ERRORS: Final = {
    ErrorCode.NOT_COORDINATOR: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_STATE_EPOCH: ErrorCode.FENCED_STATE_EPOCH,
}
"""What clients are told of the share coordinator's errors; of any other that it is unknown."""
_FENCING: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_STATE_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
"""After these the state here is not the one that counts: it is loaded again."""


class ShareOutcome(NamedTuple):
    """How a request about a share-partition ended."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


class SharePartitionError(OttlaError):
    """A share-partition cannot be served; `outcome` is what the client is told."""

    def __init__(self, outcome: ShareOutcome) -> None:
        super().__init__(outcome.message or outcome.error.name)
        self.outcome = outcome


class Delivery(NamedTuple):
    """What a member got: whole batches, and which of their records it has acquired."""

    records: bytes = b""
    acquired: tuple[Acquired, ...] = ()


class FetchLimits(NamedTuple):
    """How much one fetch wants."""

    max_bytes: int
    max_records: int
    batch_size: int
    mode: AcquireMode


_NOTHING: Final = Delivery()


class SharePartition:
    """One share-partition. `load` first. `on_fenced` is called once, when it must not be used any more."""

    def __init__(
        self,
        key: ShareKey,
        partition: Partition,
        *,
        access: ShareStateAccess,
        settings_of: SettingsOf,
        clock: Clock,
        disk: Disk,
        timers: Timers,
        write_dead_letters: WriteDeadLetters,
        counts: ShareCounts,
        on_fenced: Callable[["SharePartition"], None],
    ) -> None:
        self.key = key
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.waiters: dict[Callable[[], None], None] = {}
        """Called when a member may find something new."""
        self._access = access
        self._settings_of = settings_of
        self._clock = clock
        self._disk = disk
        self._timers = timers
        self._on_fenced = on_fenced
        self._counts = counts
        self._state = SharePartitionState(SharePartitionSettings(), 0)
        self._state_epoch = 0
        self._is_fenced = False
        self._reading = asyncio.Lock()
        self._queued: list[tuple[Persist, asyncio.Future[ShareOutcome]]] = []
        self.writer: asyncio.Task[None] | None = None
        """Runs while something is being stored."""
        self._dead_letters = DeadLetterDelivery(
            key,
            partition,
            write_dead_letters,
            clock=clock,
            counts=counts,
            is_wanted=lambda: self.is_current,
            on_settled=self._on_dead_letters,
            on_idle=self._retire_if_idle,
        )
        self.is_retiring = False
        """Whether it only finishes what it has begun. Members that come load the state again: while the group was
        empty, its offsets may have been reset."""
        self._timer: Deadline | None = None
        self._timer_ms = 0
        self._record_bytes: float = _RECORD_BYTES
        """Bytes for each offset of the last read."""

    @property
    def state(self) -> SharePartitionState:
        """The runs; for metrics and tests."""
        return self._state

    @property
    def is_current(self) -> bool:
        """Whether it may be used: it is not fenced, and this broker leads the partition in the same epoch."""
        partition = self.partition
        return not self._is_fenced and partition.leader is not None and partition.leader_epoch == self.leader_epoch

    # Life

    async def load(self) -> None:
        """Gets the state from the share coordinator. Raises `SharePartitionError` if it cannot be used."""
        read = await self._access.read(self.key, self.leader_epoch)
        if read.error is not ErrorCode.NONE:
            raise SharePartitionError(_told(read.error, read.message))
        self._state_epoch = read.state_epoch
        settings = self._settings_of(self.key.group_id)
        start_offset = read.start_offset
        if start_offset == NOT_SET:
            start_offset = await self._first_offset(settings)
            # Stored at once: another leader must not choose again, and skip what was produced in between.
            outcome = await self._write((), start_offset, 0)
            if outcome.error is not ErrorCode.NONE:
                raise SharePartitionError(outcome)
        self._state = SharePartitionState(settings, start_offset, read.batches, self._counts)
        # Before the log start: of a record that the log has no more, a dead letter can still tell.
        self._dead_letters.add(self._state.take_dead_letters())
        self._state.on_log_start(self.partition.start_offset)

    async def _first_offset(self, settings: SharePartitionSettings) -> int:
        partition = self.partition
        leader = partition.leader
        if leader is None:
            raise SharePartitionError(ShareOutcome(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        if settings.starts_at_earliest:
            return partition.start_offset
        if partition.high_watermark < leader.epoch_start:
            raise SharePartitionError(
                ShareOutcome(ErrorCode.LEADER_NOT_AVAILABLE, "The followers of a new leader have not caught up.")
            )
        if settings.reset_age_ms is not None:
            oldest = TimestampMs(max(self._clock.now_ms() - settings.reset_age_ms, 0))
            found = await partition.log.search_time(oldest, self._disk.in_background)
            if found is not None:
                return min(found.offset, partition.high_watermark)
        return partition.high_watermark

    def fence(self) -> None:
        """It must not be used any more: waiting members are woken, and find another one."""
        if self._is_fenced:
            return
        self._is_fenced = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        # Whatever is loaded next writes what is left.
        self._dead_letters.stop()
        self._on_fenced(self)
        self._wake()

    def retire(self) -> None:
        """No member needs it any more: it is fenced once everything is stored and all dead letters are written."""
        self.is_retiring = True
        self._retire_if_idle()

    def _retire_if_idle(self) -> None:
        if self.is_retiring and self.writer is None and self._dead_letters.is_idle:
            self.fence()

    # Fetching

    def readable_bytes(self) -> int:
        """How many bytes a fetch would find, at least of the first batches; 0 if there is nothing to acquire."""
        found = self._find(1024 * 1024)[1]
        return 0 if found is None else found.size

    @property
    def _readable_end(self) -> int:
        """Where members cannot read further."""
        partition = self.partition
        is_read_committed = self._state.settings.is_read_committed
        return partition.last_stable_offset if is_read_committed else partition.high_watermark

    def _find(
        self, max_bytes: int, max_records: int | None = None, min_bytes: int = _READ_BYTES_MIN
    ) -> tuple[int, FileRange | None]:
        """Where a member would read, and what is there: with `max_records`, about as much as it can acquire of it."""
        state = self._state
        state.settings = settings = self._settings_of(self.key.group_id)
        partition = self.partition
        state.on_log_start(partition.start_offset)
        offset = state.fetch_offset(self._now_ms())
        if offset is None or offset >= self._readable_end:
            return -1, None
        if max_records is not None:
            max_bytes = min(max_bytes, max(min_bytes, self._expected_bytes(offset, max_records)))
        try:
            found = partition.read(
                Offset(offset), max(max_bytes, 0), is_committed=settings.is_read_committed, at_least_one=True
            )
        except OffsetOutOfRangeError:
            return offset, None
        return offset, found if found is not None and found.size else None

    def _expected_bytes(self, offset: int, max_records: int) -> int:
        """The size of the log from an offset on that has `max_records` beyond those in flight."""
        offsets = min(max_records, self._state.settings.in_flight_max) + self._state.next_offset - offset
        return int(offsets * self._record_bytes * _READ_MARGIN)

    def _needs_more(self, last_offset: int, found: FileRange, limits: FetchLimits) -> bool:
        """Whether the records were larger than expected, so that less was read than the member can acquire."""
        wanted = min(limits.max_records, self._state.settings.in_flight_max)
        missing = self._state.next_offset + wanted - (last_offset + 1)
        if missing <= 0 or last_offset + 1 >= self._readable_end:
            return False
        return min(limits.max_bytes - found.size, int(missing * self._record_bytes)) >= found.size

    async def fetch(self, member_id: str, limits: FetchLimits, is_wanted: Callable[[], bool]) -> Delivery:
        """Acquires records for a member, if there are any. Raises an `OttlaError` if the log cannot be read.

        `is_wanted` is asked once the log was read: a member may have gone meanwhile.
        """
        is_wider = False
        min_bytes = _READ_BYTES_MIN
        async with self._reading:
            for _ in range(_READS_MAX):
                offset, found = self._find(limits.max_bytes, limits.max_records, min_bytes)
                if found is None:
                    return _NOTHING
                content = await self._disk.in_background(found.file.read_at, found.position, found.size)
                if not self.is_current or not is_wanted():
                    return _NOTHING
                batches, _, problem = scan(content, check_crc=False)
                batches = [each for each in batches if each.last_offset >= offset]
                if problem is not None or not batches:
                    where = f"{self.partition.topic}-{self.partition.index} at offset {offset}"
                    raise CorruptError(f"{where}: {problem or 'no batch'}")
                last_offset = batches[-1].last_offset
                self._record_bytes = found.size / (last_offset + 1 - min(offset, batches[0].base_offset))
                if not is_wider and self._needs_more(last_offset, found, limits):
                    is_wider = True
                    continue
                acquired = self._state.acquire(
                    member_id,
                    offset,
                    [Span(each.base_offset, each.last_offset) for each in batches],
                    now_ms=self._now_ms(),
                    max_records=limits.max_records,
                    batch_size=limits.batch_size,
                    mode=limits.mode,
                    skipped=self._skipped(offset, batches, found),
                )
                self._dead_letters.add(self._state.take_dead_letters())
                if acquired:
                    self._arm(self._now_ms() + self._state.settings.lock_duration_ms)
                    records = _sliced(content, batches, acquired)
                    self.partition.fetched_bytes += len(records)
                    self._counts.fetches += 1
                    self._counts.fetched_bytes += len(records)
                    return Delivery(records, tuple(acquired))
                if self._state.fetch_offset(self._now_ms()) == offset:
                    return _NOTHING
                min_bytes = _READ_BYTES_MIN_AFTER_NOTHING
        return _NOTHING

    def _skipped(self, offset: int, batches: Sequence[Batch], found: FileRange) -> list[Span]:
        """With read_committed, the batches of aborted transactions, and markers."""
        if not self._state.settings.is_read_committed:
            return []
        log = self.partition.log
        aborted = log.aborted_transactions(Offset(offset), log.last_stable_offset, found)
        return [
            Span(batch.base_offset, batch.last_offset)
            for batch in batches
            if batch.is_control
            or (
                batch.is_transactional
                and any(
                    each.producer_id == batch.producer_id and each.first_offset <= batch.base_offset <= each.last_offset
                    for each in aborted
                )
            )
        ]

    # Acknowledging

    async def acknowledge(self, member_id: str, acknowledgements: Sequence[Acknowledgement]) -> ShareOutcome:
        """Stores what a member says of its records."""
        if not self.is_current:
            return ShareOutcome(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self._state.settings = self._settings_of(self.key.group_id)
        try:
            persist = self._state.acknowledge(member_id, acknowledgements, self._now_ms())
        except AcknowledgeRefusedError as refusal:
            self._counts.acknowledgements_refused += 1
            return ShareOutcome(refusal.code, str(refusal))
        if any(each.type is AcknowledgeType.RENEW for each in acknowledgements):
            # The lock duration may be shorter than when the timer was set.
            self._arm(self._now_ms() + self._state.settings.lock_duration_ms)
        return ShareOutcome() if persist is None else await self._store(persist)

    async def release_member(self, member_id: str) -> ShareOutcome:
        """A member's session ended: what it has acquired is released."""
        if not self.is_current:
            return ShareOutcome(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        persist = self._state.release_member(member_id, self._now_ms())
        return ShareOutcome() if persist is None else await self._store(persist)

    def _store(self, persist: Persist) -> "asyncio.Future[ShareOutcome]":
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[ShareOutcome] = loop.create_future()
        self._queued.append((persist, answer))
        if self.writer is None:
            self.writer = loop.create_task(self._write_queued())
        return answer

    async def _write_queued(self) -> None:
        try:
            while self._queued:
                taken, self._queued = self._queued, []
                outlook = self._state.outlook({persist.id for persist, _ in taken})
                batches = tuple(batch for persist, _ in taken for batch in persist.batches)
                outcome = await self._write(batches, *outlook)
                now_ms = self._now_ms()
                for persist, answer in taken:
                    self._state.on_persisted(persist.id, now_ms, is_stored=outcome.error is ErrorCode.NONE)
                    if not answer.done():
                        answer.set_result(outcome)
                if outcome.error in _FENCING:
                    _LOGGER.info("share-partition %s is fenced: %s", self.key.text, outcome.error.name)
                    self.fence()
                self._dead_letters.add(self._state.take_dead_letters())
                deadline_ms = self._state.next_deadline()
                if deadline_ms is not None:
                    self._arm(deadline_ms)
                self._wake()
        finally:
            self.writer = None
            for _, answer in self._queued:
                answer.cancel()
            self._retire_if_idle()

    def _on_dead_letters(self, span: Span) -> None:
        """These dead letters are settled: their records are done."""
        if not self.is_current:
            # Whatever is loaded next writes them again.
            return
        persist = self._state.on_dead_letters(span)
        if persist is not None:
            self._store(persist)

    async def _write(
        self, batches: Sequence[StateBatch], start_offset: int, delivery_complete_count: int
    ) -> ShareOutcome:
        change = StateWrite(
            state_epoch=self._state_epoch,
            leader_epoch=self.leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=delivery_complete_count,
            batches=tuple(batches),
        )
        outcome: StateOutcome = await self._access.write(self.key, change)
        return ShareOutcome() if outcome.error is ErrorCode.NONE else _told(outcome.error, outcome.message)

    async def close(self) -> None:
        """Fences it, and waits for what is being stored. The next leader writes the dead letters that are left."""
        self.fence()
        await self._dead_letters.close()
        if self.writer is not None:
            await asyncio.gather(self.writer, return_exceptions=True)

    # Time

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    def _arm(self, deadline_ms: int) -> None:
        """Has the timer fire by then at the latest."""
        if self._is_fenced or (self._timer is not None and self._timer_ms <= deadline_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = deadline_ms
        self._timer = self._timers.after(deadline_ms - self._now_ms(), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if not self.is_current:
            self.fence()
            return
        persist, is_news = self._state.on_tick(self._now_ms())
        if persist is not None:
            self._store(persist)
        self._dead_letters.add(self._state.take_dead_letters())
        deadline_ms = self._state.next_deadline()
        if deadline_ms is not None:
            self._arm(deadline_ms)
        if is_news:
            self._wake()

    def _wake(self) -> None:
        for wake in list(self.waiters):
            wake()


def _told(error: ErrorCode, message: str | None) -> ShareOutcome:
    return ShareOutcome(_ERRORS.get(error, ErrorCode.UNKNOWN_SERVER_ERROR), message)


def _sliced(content: bytes, batches: Sequence[Batch], acquired: Sequence[Acquired]) -> bytes:
    """The batches from the first to the last acquired record."""
    first, last = acquired[0].first, acquired[-1].last
    wanted = [batch for batch in batches if batch.last_offset >= first and batch.base_offset <= last]
    begin, end = wanted[0].position, wanted[-1].position + wanted[-1].size_bytes
    return content if end - begin == len(content) else content[begin:end]
