"""The producers of a log: sequences, so that a retry is not appended twice, and open transactions.

Pure. `Appends` collects what a group of batches would change, so that nothing changes before the bytes are written.
`producer_snapshot.py` has the file format, `log.py` the callers.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from ottla.model.errors import (
    CoordinatorFencedError,
    InvalidProducerEpochError,
    InvalidTransactionStateError,
    OutOfOrderSequenceError,
)
from ottla.model.ids import (
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    QUEUE_PRODUCER_BIT,
    Offset,
    ProducerEpoch,
    ProducerId,
    Sequence,
    TimestampMs,
)
from ottla.model.invariants import violated
from ottla.records.batch import Batch
from ottla.records.layout import Marker

BATCHES_REMEMBERED: Final = 5
"""A producer may have this many requests in flight; the retry of any of them is recognised."""
SEQUENCE_MAX: Final = 2**31 - 1


class BatchSpan(NamedTuple):
    """One appended batch of a producer. `last_offset` - `offset_delta` is its first offset."""

    last_sequence: Sequence
    last_offset: Offset
    offset_delta: int
    timestamp: TimestampMs

    @property
    def first_sequence(self) -> int:
        """Wraps below 0 to 2^31-1, as the producer counts."""
        first = self.last_sequence - self.offset_delta
        return first if first >= 0 else first + SEQUENCE_MAX + 1

    @property
    def first_offset(self) -> Offset:
        """The offset in the producer's acknowledgement."""
        return Offset(self.last_offset - self.offset_delta)


class CompletedTransaction(NamedTuple):
    """A transaction whose marker has been appended at `last_offset`."""

    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset
    is_aborted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerEntry:
    """One producer's state; immutable."""

    producer_id: ProducerId
    epoch: ProducerEpoch = NO_PRODUCER_EPOCH
    batches: tuple[BatchSpan, ...] = ()
    """The last few of this epoch, oldest first."""
    coordinator_epoch: int = -1
    transaction_start: Offset | None = None
    """The first offset of the open transaction."""
    last_timestamp: TimestampMs = NO_TIMESTAMP

    @property
    def last_sequence(self) -> Sequence:
        """The last sequence of this epoch; -1 if nothing was written in it."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def duplicate_of(self, batch: Batch) -> BatchSpan | None:
        """The remembered batch that this one repeats."""
        if batch.producer_epoch != self.epoch:
            return None
        for span in self.batches:
            if span.last_sequence == batch.last_sequence and span.first_sequence == batch.base_sequence:
                return span
        return None


class Appends:
    """The changes of a group of batches, until their bytes are written."""

    __slots__ = ("completed", "entries")

    def __init__(self) -> None:
        self.entries: dict[ProducerId, ProducerEntry] = {}
        self.completed: list[CompletedTransaction] = []


class ProducerStates:
    """All producers of one log.

    Invariants: an open transaction is in `_open` exactly if its producer's entry has a start; `_open` is ordered by
    start, since offsets are assigned in order.
    """

    __slots__ = ("_entries", "_open", "_unreplicated")

    def __init__(self, entries: Iterable[ProducerEntry] = ()) -> None:
        self._entries: dict[ProducerId, ProducerEntry] = {entry.producer_id: entry for entry in entries}
        starts = ((entry.transaction_start, entry.producer_id) for entry in self._entries.values())
        self._open: dict[ProducerId, Offset] = {
            producer_id: start for start, producer_id in sorted((s, p) for s, p in starts if s is not None)
        }
        self._unreplicated: list[CompletedTransaction] = []

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[ProducerEntry]:
        return iter(self._entries.values())

    def get(self, producer_id: ProducerId) -> ProducerEntry | None:
        """The state of a producer, if it is known."""
        return self._entries.get(producer_id)

    @property
    def first_unstable_offset(self) -> Offset | None:
        """The first offset of any transaction that is open, or whose marker the high watermark has not passed."""
        if not self._open and not self._unreplicated:
            return None  # The most frequent case, asked for by every append and read.
        first_open = next(iter(self._open.values()), None)
        first_unreplicated = min((done.first_offset for done in self._unreplicated), default=None)
        if first_open is None or first_unreplicated is None:
            return first_unreplicated if first_open is None else first_open
        return min(first_open, first_unreplicated)

    def last_stable_offset_after(self, completed: CompletedTransaction) -> Offset:
        """The last stable offset after `completed`: the next open transaction's start, or just behind its marker."""
        others = (start for producer_id, start in self._open.items() if producer_id != completed.producer_id)
        return min(others, default=Offset(completed.last_offset + 1))

    def duplicate_of(self, batch: Batch, pending: Appends) -> BatchSpan | None:
        """The earlier append that this batch repeats, if it is remembered."""
        entry = self.find(batch.producer_id, pending)
        return entry.duplicate_of(batch) if entry is not None else None

    def find(self, producer_id: ProducerId, pending: Appends) -> ProducerEntry | None:
        """The state of a producer after what is pending, if it is known."""
        return pending.entries.get(producer_id) or self._entries.get(producer_id)

    def prepare(self, batch: Batch, pending: Appends, first_offset: Offset, *, check: bool) -> None:
        """Adds to `pending` what appending this data batch at `first_offset` changes.

        With `check`, refuses a fenced epoch, a gap in the sequence, and a write outside the producer's open
        transaction. A follower and a recovery do not check, since the leader did.
        """
        entry = self._pending_entry(batch.producer_id, pending)
        if check:
            _check_epoch(entry, batch.producer_epoch)
            if batch.base_sequence != NO_SEQUENCE:
                _check_sequence(entry, batch)
            if entry.transaction_start is not None and not batch.is_transactional:
                raise InvalidTransactionStateError(
                    f"producer {batch.producer_id} has an open transaction since offset {entry.transaction_start} "
                    "and wrote a non-transactional batch; commit or abort first"
                )
        same_epoch = entry.epoch == batch.producer_epoch
        batches = entry.batches if same_epoch else ()
        last_offset = Offset(first_offset + batch.last_offset_delta)
        span = BatchSpan(Sequence(batch.last_sequence), last_offset, batch.last_offset_delta, batch.max_timestamp)
        start = entry.transaction_start
        pending.entries[batch.producer_id] = ProducerEntry(
            producer_id=batch.producer_id,
            epoch=batch.producer_epoch,
            batches=(*batches, span)[-BATCHES_REMEMBERED:],
            coordinator_epoch=entry.coordinator_epoch,
            transaction_start=first_offset if start is None and batch.is_transactional else start,
            last_timestamp=batch.max_timestamp,
        )

    def prepare_marker(
        self,
        batch: Batch,
        marker: Marker,
        coordinator_epoch: int,
        pending: Appends,
        offset: Offset,
        *,
        check: bool,
        must_exceed_epoch: bool = False,
    ) -> None:
        """Adds to `pending` what appending this transaction marker at `offset` changes.

        With `must_exceed_epoch` its epoch must be higher than that of the open transaction that it ends.
        """
        entry = self._pending_entry(batch.producer_id, pending)
        if check:
            _check_epoch(entry, batch.producer_epoch)
            if must_exceed_epoch and entry.transaction_start is not None and batch.producer_epoch <= entry.epoch:
                raise InvalidProducerEpochError(
                    f"marker of producer {batch.producer_id} has epoch {batch.producer_epoch}, in which the producer"
                    f" has begun another transaction"
                )
            if coordinator_epoch < entry.coordinator_epoch:
                raise CoordinatorFencedError(
                    f"marker of producer {batch.producer_id} from coordinator epoch {coordinator_epoch}; "
                    f"epoch {entry.coordinator_epoch} has taken over"
                )
        if entry.transaction_start is not None:
            done = CompletedTransaction(batch.producer_id, entry.transaction_start, offset, marker is Marker.ABORT)
            pending.completed.append(done)
        pending.entries[batch.producer_id] = replace(
            entry,
            epoch=batch.producer_epoch,
            batches=entry.batches if entry.epoch == batch.producer_epoch else (),
            coordinator_epoch=coordinator_epoch,
            transaction_start=None,
            last_timestamp=batch.max_timestamp,
        )

    def apply(self, pending: Appends) -> None:
        """Applies prepared changes; their bytes are in the log now."""
        for done in pending.completed:
            self._open.pop(done.producer_id, None)
            self._unreplicated.append(done)
        opened: list[tuple[Offset, ProducerId]] = []
        for producer_id, entry in pending.entries.items():
            self._entries[producer_id] = entry
            if entry.transaction_start is not None and self._open.get(producer_id) != entry.transaction_start:
                opened.append((entry.transaction_start, producer_id))
        # A group's producers are in the order of their first batch, which need not be that of their transactions.
        for start, producer_id in sorted(opened):
            self._open[producer_id] = start

    def on_high_watermark(self, high_watermark: Offset) -> None:
        """Drops the completed transactions whose marker is below the high watermark."""
        if self._unreplicated:
            self._unreplicated = [done for done in self._unreplicated if done.last_offset >= high_watermark]

    def expire(self, now: TimestampMs, expiration_ms: int) -> int:
        """Forgets producers without an open transaction that were idle for this long; returns how many.

        Queues are never forgotten: they repeat their last batch after a crash, however long ago it was written.
        """
        old = [
            entry.producer_id
            for entry in self._entries.values()
            if entry.transaction_start is None
            and now - entry.last_timestamp >= expiration_ms
            and not entry.producer_id & QUEUE_PRODUCER_BIT
        ]
        for producer_id in old:
            del self._entries[producer_id]
        return len(old)

    def check(self) -> None:
        """Verifies the invariants."""
        starts = {e.producer_id: e.transaction_start for e in self if e.transaction_start is not None}
        if starts != self._open:
            violated(f"open transactions {self._open} differ from the producers' own {starts}")
        if list(self._open.values()) != sorted(self._open.values()):
            violated(f"open transactions are out of order: {self._open}")

    def _pending_entry(self, producer_id: ProducerId, pending: Appends) -> ProducerEntry:
        return self.find(producer_id, pending) or ProducerEntry(producer_id=producer_id)


def _check_epoch(entry: ProducerEntry, epoch: ProducerEpoch) -> None:
    if epoch < entry.epoch:
        raise InvalidProducerEpochError(
            f"producer {entry.producer_id} wrote with epoch {epoch}; epoch {entry.epoch} has replaced it"
        )


def _check_sequence(entry: ProducerEntry, batch: Batch) -> None:
    if entry.epoch == NO_PRODUCER_EPOCH:
        return
    expected = (
        0 if entry.epoch != batch.producer_epoch or entry.last_sequence == SEQUENCE_MAX else entry.last_sequence + 1
    )
    if batch.base_sequence != expected:
        raise OutOfOrderSequenceError(
            f"producer {entry.producer_id} epoch {batch.producer_epoch} sent sequence {batch.base_sequence} "
            f"instead of {expected}"
        )
