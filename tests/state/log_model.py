"""What a log should hold, in the simplest Python that can say it: lists of batches, and rules read off the protocol.

The model shares no code with the storage. It is told what was asked of the log and says what must come of it; the
comparison is `log_checks.py`, the driving `log_rig.py`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from struct import Struct
from typing import Final

from ottla.model.errors import (
    CoordinatorFencedError,
    InvalidProducerEpochError,
    InvalidTransactionStateError,
    OttlaError,
    OutOfOrderSequenceError,
)
from ottla.records.batch import Batch, crc32c
from ottla.records.decode import decode_records
from ottla.records.layout import (
    APPEND_TIME_BIT,
    ATTRIBUTES_AT,
    BASE_OFFSET_AT,
    CRC_AT,
    LEADER_EPOCH_AT,
    MAX_TIMESTAMP_AT,
    Marker,
)

SEQUENCE_MAX: Final = 2**31 - 1
REMEMBERED: Final = 5
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_UINT32: Final = Struct(">I")
_INT64: Final = Struct(">q")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBatch:
    """A batch as it must lie in the log, byte for byte, with what the model needs to know of it."""

    data: bytes
    base_offset: int
    last_offset: int
    leader_epoch: int
    max_timestamp: int
    times: tuple[tuple[int, int], ...]
    """Each record's offset and timestamp."""
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    transactional: bool = False
    marker: Marker | None = None
    coordinator_epoch: int = -1

    @property
    def next_offset(self) -> int:
        return self.last_offset + 1

    @property
    def last_sequence(self) -> int:
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset - self.base_offset) % (SEQUENCE_MAX + 1)


def stored(data: bytes, marker: Marker | None = None, coordinator_epoch: int = -1) -> StoredBatch:
    """Looks a batch's bytes over; the reading of headers and records is tested elsewhere."""
    batch = Batch(data)
    batch.check()
    return StoredBatch(
        data=data,
        base_offset=batch.base_offset,
        last_offset=batch.last_offset,
        leader_epoch=batch.leader_epoch,
        max_timestamp=batch.max_timestamp,
        times=tuple((record.offset, record.timestamp) for record in decode_records(batch)),
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        transactional=batch.is_transactional,
        marker=marker,
        coordinator_epoch=coordinator_epoch,
    )


def stamped(data: bytes, base_offset: int, leader_epoch: int, append_time: int | None = None) -> bytes:
    """What a leader makes of a client's batch."""
    image = bytearray(data)
    _INT64.pack_into(image, BASE_OFFSET_AT, base_offset)
    _INT32.pack_into(image, LEADER_EPOCH_AT, leader_epoch)
    if append_time is not None:
        attributes = _INT16.unpack_from(image, ATTRIBUTES_AT)[0] | APPEND_TIME_BIT
        _INT16.pack_into(image, ATTRIBUTES_AT, attributes)
        _INT64.pack_into(image, MAX_TIMESTAMP_AT, append_time)
        _UINT32.pack_into(image, CRC_AT, crc32c(image[ATTRIBUTES_AT:]))
    return bytes(image)


@dataclass(frozen=True, slots=True)
class Span:
    """One remembered batch of a producer."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Producer:
    """One producer as the log must know it."""

    epoch: int = -1
    spans: tuple[Span, ...] = ()
    coordinator_epoch: int = -1
    transaction_start: int | None = None

    @property
    def next_sequence(self) -> int:
        return (self.spans[-1].last_sequence + 1) % (SEQUENCE_MAX + 1) if self.spans else 0


@dataclass(frozen=True, slots=True)
class Decided:
    """A transaction and the offset of its marker."""

    producer_id: int
    first_offset: int
    marker_offset: int
    is_aborted: bool


@dataclass(slots=True)
class Producers:
    """All producers of a log, and the transactions that were decided."""

    known: dict[int, Producer] = field(default_factory=dict)
    decided: list[Decided] = field(default_factory=list)

    def get(self, producer_id: int) -> Producer:
        return self.known.get(producer_id, Producer())

    def duplicate_of(self, producer_id: int, epoch: int, first_sequence: int, count: int) -> Span | None:
        known = self.get(producer_id)
        last_sequence = (first_sequence + count - 1) % (SEQUENCE_MAX + 1)
        for span in known.spans:
            if epoch == known.epoch and (span.first_sequence, span.last_sequence) == (first_sequence, last_sequence):
                return span
        return None

    def refusal(
        self, producer_id: int, epoch: int, first_sequence: int, *, transactional: bool
    ) -> type[OttlaError] | None:
        """Why a leader must not append this, if so."""
        known = self.get(producer_id)
        if epoch < known.epoch:
            return InvalidProducerEpochError
        expected = known.next_sequence if epoch == known.epoch else 0
        if known.epoch >= 0 and first_sequence != expected:
            return OutOfOrderSequenceError
        if known.transaction_start is not None and not transactional:
            return InvalidTransactionStateError
        return None

    def marker_refusal(self, producer_id: int, epoch: int, coordinator_epoch: int) -> type[OttlaError] | None:
        known = self.get(producer_id)
        if epoch < known.epoch:
            return InvalidProducerEpochError
        return CoordinatorFencedError if coordinator_epoch < known.coordinator_epoch else None

    def take(self, batch: StoredBatch) -> None:
        """What a batch that is in the log changes."""
        if batch.producer_id < 0:
            return
        known = self.get(batch.producer_id)
        spans = known.spans if known.epoch == batch.producer_epoch else ()
        if batch.marker is not None:
            if known.transaction_start is not None:
                aborted = batch.marker is Marker.ABORT
                self.decided.append(Decided(batch.producer_id, known.transaction_start, batch.base_offset, aborted))
            changed = replace(known, spans=spans, coordinator_epoch=batch.coordinator_epoch, transaction_start=None)
        else:
            span = Span(batch.base_sequence, batch.last_sequence, batch.base_offset, batch.last_offset)
            start = known.transaction_start
            if start is None and batch.transactional:
                start = batch.base_offset
            changed = replace(known, spans=(*spans, span)[-REMEMBERED:], transaction_start=start)
        self.known[batch.producer_id] = replace(changed, epoch=batch.producer_epoch)


def replayed(batches: Iterable[StoredBatch]) -> Producers:
    """The producers after these batches, from nothing."""
    producers = Producers()
    for batch in batches:
        producers.take(batch)
    return producers


@dataclass(slots=True)
class LogModel:
    """One log. `batches` also keeps those that lie before `start`, which a log may or may not still have."""

    batches: list[StoredBatch] = field(default_factory=list)
    start: int = 0
    end: int = 0
    high_watermark: int = 0
    producers: Producers = field(default_factory=Producers)

    def clone(self) -> "LogModel":
        producers = Producers(dict(self.producers.known), list(self.producers.decided))
        return replace(self, batches=list(self.batches), producers=producers)

    def take(self, batch: StoredBatch) -> None:
        """Appends."""
        self.batches.append(batch)
        self.end = batch.next_offset
        self.producers.take(batch)

    def cut(self, offset: int) -> None:
        """Removes the batch that holds `offset` and all after it."""
        self.batches = [batch for batch in self.batches if batch.last_offset < offset]
        self.end = self.batches[-1].next_offset if self.batches else self.start
        self.end = max(self.end, self.start)
        self.high_watermark = min(self.high_watermark, self.end)
        self.producers = replayed(self.batches)

    def restart_at(self, offset: int) -> None:
        """Removes everything."""
        self.batches = []
        self.start = self.end = self.high_watermark = offset
        self.producers = Producers()

    def visible(self) -> list[StoredBatch]:
        """The batches that hold an offset at or behind the start."""
        return [batch for batch in self.batches if batch.last_offset >= self.start]

    def stable_bounds(self) -> tuple[int, int]:
        """Between which the last stable offset must be.

        The lower one counts transactions whose marker the high watermark has not passed as open; a log that was opened
        again may have forgotten that of those, and only the upper bound holds.
        """
        starts = (each.transaction_start for each in self.producers.known.values())
        open_starts = [start for start in starts if start is not None]
        unpassed = [done.first_offset for done in self.producers.decided if done.marker_offset >= self.high_watermark]
        upper = min([self.high_watermark, *open_starts])
        return max(self.start, min([upper, *unpassed])), max(self.start, upper)

    def aborted(self, start: int, upper: int) -> list[tuple[int, int, int]]:
        """(producer, first offset, marker offset) of the aborted transactions that touch [start, upper)."""
        return [
            (done.producer_id, done.first_offset, done.marker_offset)
            for done in self.producers.decided
            if done.is_aborted and done.marker_offset >= start and done.first_offset < upper
        ]

    def find_timestamp(self, timestamp: int) -> tuple[int, int] | None:
        """(timestamp, offset) of the first record that is at least so young."""
        return next(((time, offset) for offset, time in self._times() if time >= timestamp), None)

    def largest_timestamp(self) -> tuple[int, int] | None:
        """(timestamp, offset) of the first record with the largest one."""
        largest = max((time for _, time in self._times()), default=-1)
        return None if largest < 0 else self.find_timestamp(largest)

    def _times(self) -> Sequence[tuple[int, int]]:
        return [each for batch in self.visible() for each in batch.times if each[0] >= self.start]
