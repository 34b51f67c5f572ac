"""A log under test with a plain model beside it: every record that was ever appended, and what became of it.

`History` appends, rolls, cleans, closes and crashes a real log on the simulated disk; `check` compares what is left of
the log with what compaction may leave, by the rules as a user knows them and not as the cleaner is built.
"""

import asyncio
from dataclasses import dataclass, field

from ottla.env.inline_helper import InlineHelper
from ottla.model.ids import LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs, TopicPartition
from ottla.records.aborted import AbortedTransactions
from ottla.records.batch import Batch, scan
from ottla.records.builder import build_batch
from ottla.records.decode import decode_records
from ottla.records.layout import Codec, Marker
from ottla.records.record import Record
from ottla.sim.clock import SimClock
from ottla.sim.disk import SimDisk
from ottla.storage.cleaning.cleaner import Cleaner, CleanerConfig, CleaningReport
from ottla.storage.log import Appended, Log
from ottla.storage.log_config import LogConfig
from ottla.storage.recovery.log_recovery import Opening, open_parts

PARTITION = TopicPartition("events", 0)
FOLDER = "/data/events-0"
RETENTION_MS = 1_000
LEADER_EPOCH = LeaderEpoch(1)
CONFIG = LogConfig(
    segment_bytes=700,
    segment_index_bytes=1_200,
    index_interval_bytes=128,
    cleanup_compact=True,
    cleanup_delete=False,
    delete_retention_ms=RETENTION_MS,
    file_delete_delay_ms=0,
)
Pair = tuple[bytes | None, bytes | None]


@dataclass(slots=True)
class Fate:
    """A record that was appended, and what is known of it."""

    record: Record
    transaction: tuple[int, int] | None = None
    """The producer and the number of its transaction."""
    covered_at: int | None = None
    """When the first cleaning ran whose map had it."""


@dataclass(slots=True)
class Producer:
    """A producer as its client sees it."""

    sequence: int = 0
    transaction: int = 0
    is_open: bool = False
    last: tuple[bytes, Offset] | None = None
    """Its last batch as it was sent, and the offset it got."""


@dataclass
class History:
    """One log's life."""

    config: LogConfig = CONFIG
    map_bytes: int = 1 << 16
    disk: SimDisk = field(default_factory=SimDisk)
    clock: SimClock = field(default_factory=SimClock)

    def __post_init__(self) -> None:
        self.fates: dict[int, Fate] = {}
        self.aborted: set[tuple[int, int]] = set()
        self.producers: dict[int, Producer] = {}
        self.checkpoint: Offset | None = None
        self.bounds = (Offset(0), Offset(0))
        self.doomed: list[str] = []
        self.is_unsure = False
        """Whether a cleaning may have gone further than the checkpoint knows."""
        self.disk.make_dirs(FOLDER)
        self.log = self._open(is_clean=True)
        self.cleaner = self._cleaner()

    @property
    def now(self) -> TimestampMs:
        return self.clock.now_ms()

    # What happens to it

    def append(self, pairs: list[Pair], *, producer: int | None = None, codec: Codec = Codec.NONE) -> None:
        """One batch outside any transaction."""
        self._append(pairs, codec, producer, None)

    def append_in_transaction(self, pairs: list[Pair], *, producer: int, codec: Codec = Codec.NONE) -> None:
        state = self.producers.setdefault(producer, Producer())
        state.is_open = True
        self._append(pairs, codec, producer, (producer, state.transaction))

    def end_transaction(self, producer: int, marker: Marker) -> None:
        state = self.producers.setdefault(producer, Producer())
        if marker is Marker.ABORT:
            self.aborted.add((producer, state.transaction))
        self.log.append_marker(
            marker,
            producer_id=ProducerId(producer),
            producer_epoch=ProducerEpoch(0),
            coordinator_epoch=0,
            leader_epoch=LEADER_EPOCH,
            now=self.now,
        )
        state.transaction += 1
        state.is_open = False
        self.log.advance_high_watermark(self.log.end_offset)

    def roll(self) -> None:
        self.log.roll(self.now)

    def clean(self) -> CleaningReport:
        """One cleaning, applied to the model."""
        active = self.disk.read(self.log.segments.active.log_path)
        report = asyncio.run(self.start_cleaning())
        assert active == self.disk.read(self.log.segments.active.log_path), "the active segment was touched"
        assert not report.is_abandoned
        self.checkpoint = report.next_dirty_offset
        self.is_unsure = False
        for offset, fate in self.fates.items():
            if offset < report.next_dirty_offset and fate.covered_at is None:
                fate.covered_at = self.now
        return report

    async def start_cleaning(self) -> CleaningReport:
        return await self.cleaner.clean(self.log, self.now, discard=lambda paths, delay_ms: self.doomed.extend(paths))

    def cover_everything(self) -> None:
        """Says that a cleaning which did not report may have done its work on any sealed record."""
        self.is_unsure = True
        for fate in self.fates.values():
            fate.covered_at = self.now if fate.covered_at is None else fate.covered_at

    def unlink_doomed(self) -> None:
        for path in set(self.doomed):  # A segment that is cleaned twice leaves the same name twice.
            self.disk.remove(path)
        self.doomed.clear()

    def reopen(self) -> None:
        """Closes the log cleanly and opens it again."""
        self.log.close()
        self.bounds = (self.log.start_offset, self.log.recovery_point)
        self.doomed.clear()
        self._adopt(self.disk.kill(), is_clean=True)

    def crash(self, *, recovery_point: Offset | None = None) -> None:
        """Cuts the power and opens what is left; the checkpoint may be older than the log's own recovery point."""
        self.bounds = (self.log.start_offset, self.log.recovery_point if recovery_point is None else recovery_point)
        self.doomed.clear()
        self._adopt(self.disk.crash(), is_clean=False)

    def flush(self) -> None:
        self.log.flush()

    # What must hold

    def check(self) -> None:
        """Everything that a user of a compacted topic may rely on."""
        self.check_lasting()
        self._check_cleaned_section(self._left(self.batches()))

    def check_lasting(self) -> None:
        """The part of it that holds at any moment, in the middle of a cleaning too."""
        batches = self.batches()
        left = self._left(batches)
        self._check_survivors(left)
        self._check_last_values(left)
        self._check_reads(batches)
        self._check_committed_view(batches, left)

    def _left(self, batches: list[Batch]) -> list[Record]:
        return [record for batch in batches if not batch.is_control for record in decode_records(batch)]

    def batches(self) -> list[Batch]:
        """All batches of the log, from its files."""
        found: list[Batch] = []
        for segment in self.log.segments:
            more, consumed, problem = scan(self.disk.read(segment.log_path))
            assert (segment.size_bytes, None) == (consumed, problem)
            found += more
        offsets = [offset for batch in found for offset in (batch.base_offset, batch.last_offset)]
        assert sorted(offsets) == offsets
        return found

    def is_aborted(self, offset: int) -> bool:
        return self.fates[offset].transaction in self.aborted

    def _check_survivors(self, left: list[Record]) -> None:
        for record in left:
            assert self.fates[record.offset].record == record
        present = {record.offset for record in left}
        active = self.log.segments.active.base_offset
        dirty_from = active if self.is_unsure else self.checkpoint or 0
        due = {offset for offset in self.fates if offset >= dirty_from and not self.is_aborted(offset)}
        assert set() == due - present, "records behind the cleaned section are gone"

    def _check_last_values(self, left: list[Record]) -> None:
        """A key's last value is there; a deleted key shows its tombstone or nothing."""
        expected: dict[bytes, Record] = {}
        for offset, fate in sorted(self.fates.items()):
            if not self.is_aborted(offset) and fate.record.key is not None:
                expected[fate.record.key] = fate.record
        actual: dict[bytes, Record] = {}
        for record in left:
            if not self.is_aborted(record.offset) and record.key is not None:
                actual[record.key] = record
        for key, record in expected.items():
            if record.value is not None or key in actual:
                assert record == actual.get(key)
            else:
                covered_at = self.fates[record.offset].covered_at
                assert covered_at is not None
                assert self.now >= covered_at + RETENTION_MS, "a tombstone went before its time"

    def _check_cleaned_section(self, left: list[Record]) -> None:
        """Below the checkpoint keys are unique, aborted records are gone, and records have keys."""
        cleaned = [record for record in left if record.offset < (self.checkpoint or 0)]
        assert [] == [record for record in cleaned if self.is_aborted(record.offset) or record.key is None]
        keys = [record.key for record in cleaned]
        assert len(set(keys)) == len(keys)

    def _check_reads(self, batches: list[Batch]) -> None:
        log = self.log
        for offset in range(log.start_offset, log.end_offset):
            expected = next((batch for batch in batches if batch.last_offset >= offset), None)
            found = log.read(Offset(offset), 1)
            if expected is None:
                assert found is None
            else:
                assert found is not None
                assert bytes(expected.buffer) == found.file.read_at(found.position, found.size)

    def _check_committed_view(self, batches: list[Batch], left: list[Record]) -> None:
        """A read_committed reader sees what is left of committed records, and nothing else."""
        upper = self.log.last_stable_offset
        listed = self.log.aborted_transactions(self.log.start_offset, upper)
        aborted = AbortedTransactions((entry.producer_id, entry.first_offset) for entry in listed)
        seen = [
            record
            for batch in batches
            if batch.base_offset < upper and not aborted.covers(batch) and not batch.is_control
            for record in decode_records(batch)
        ]
        assert [record for record in left if record.offset < upper and not self.is_aborted(record.offset)] == seen

    def check_retries(self) -> None:
        """Every producer that sends its last batch again gets the offset of the first append."""
        for producer_id, producer in sorted(self.producers.items()):
            if producer.last is None:
                continue
            sent, offset = producer.last
            (answer,) = self.log.append([Batch(bytearray(sent))], leader_epoch=LEADER_EPOCH, now=self.now)
            assert isinstance(answer, Appended), answer
            assert (producer_id, offset, True) == (producer_id, answer.base_offset, answer.is_duplicate)

    # Inside

    def _append(
        self, pairs: list[Pair], codec: Codec, producer: int | None, transaction: tuple[int, int] | None
    ) -> None:
        records = [Record(at, self.now + at, key, value) for at, (key, value) in enumerate(pairs)]
        state = self.producers.setdefault(producer, Producer()) if producer is not None else Producer(sequence=-1)
        sent = build_batch(
            records,
            codec=codec,
            producer_id=-1 if producer is None else producer,
            producer_epoch=-1 if producer is None else 0,
            base_sequence=state.sequence,
            transactional=transaction is not None,
        )
        (answer,) = self.log.append([Batch(bytearray(sent))], leader_epoch=LEADER_EPOCH, now=self.now)
        assert isinstance(answer, Appended), answer
        for record in records:
            offset = record.offset + answer.base_offset
            self.fates[offset] = Fate(record._replace(offset=offset), transaction)
        state.sequence += len(records)
        state.last = (sent, answer.base_offset)
        self.log.advance_high_watermark(self.log.end_offset)

    def _adopt(self, disk: SimDisk, *, is_clean: bool) -> None:
        high_watermark = self.log.high_watermark
        self.disk = disk
        self.log = self._open(is_clean=is_clean)
        self.log.cleaned_offset = self.checkpoint or Offset(0)
        self.log.advance_high_watermark(min(high_watermark, self.log.end_offset))
        self.cleaner = self._cleaner()

    def _open(self, *, is_clean: bool) -> Log:
        opening = Opening(
            disk=self.disk,
            folder=FOLDER,
            config=self.config,
            start_offset=self.bounds[0],
            recovery_point=self.bounds[1],
            is_clean=is_clean,
            now=self.now,
        )
        return Log(
            PARTITION,
            FOLDER,
            self.disk,
            self.config,
            open_parts(opening),
            persist_bounds=lambda: None,
            discard=lambda paths, delay_ms: self.doomed.extend(paths),
        )

    def _cleaner(self) -> Cleaner:
        config = CleanerConfig(dedupe_buffer_bytes=self.map_bytes)
        return Cleaner(self.disk, InlineHelper(), self.clock, config)
