"""Checks a transaction index against the batches, and rebuilds it from them when it is damaged.

Its file has no checksum, and a wrong entry would hide committed records or show aborted ones. So the first use of an
index from disk replays its segment's batches. Indexes that this process has written, and empty ones, are trusted: an
index that lost all its entries cannot be told from that of a segment without aborted transactions.
"""

import logging
from collections.abc import Sequence
from typing import Final

from ottla.env.ports import Disk
from ottla.model.errors import CorruptError
from ottla.model.ids import Offset
from ottla.records.batch import Batch
from ottla.storage.producers.producer_files import load_producers, replay
from ottla.storage.producers.producer_state import CompletedTransaction, ProducerStates
from ottla.storage.segments.scanner import DamagedSegmentError
from ottla.storage.segments.segment import Segment
from ottla.storage.segments.transaction_index import AbortedTransaction, TransactionIndex

_LOGGER: Final = logging.getLogger(__name__)


def sound_transaction_index(disk: Disk, folder: str, segments: Sequence[Segment], at: int) -> TransactionIndex:
    """The transaction index of segment `at`, repaired if it was damaged."""
    index = segments[at].transaction_index
    if not index.is_checked:
        try:
            entries = index.entries()
        except CorruptError as error:
            index.replace(_replayed(disk, folder, segments, at)[0])
            _LOGGER.warning("%s; rebuilt from the batches", error)
            return index
        if entries:
            try:
                expected, has_gaps = _replayed(disk, folder, segments, at)
            except DamagedSegmentError:
                return index  # The batches cannot show whether it is right.
            if entries != expected and not (has_gaps and _covers(entries, expected)):
                index.replace(expected)
                _LOGGER.warning(
                    "%s: %d aborted transactions contradict the batches; rebuilt with %d",
                    index.path,
                    len(entries),
                    len(expected),
                )
        index.is_checked = True
    return index


def replay_indexed(producers: ProducerStates, batch: Batch, segment: Segment) -> None:
    """Applies a batch to the producers, and indexes the transaction that it aborted."""
    done = replay(producers, batch)
    if done is not None and done.is_aborted:
        segment.transaction_index.append(_aborted(producers, done))


def _replayed(disk: Disk, folder: str, segments: Sequence[Segment], at: int) -> tuple[list[AbortedTransaction], bool]:
    """The entries that the index of segment `at` should have, and whether compaction has removed some of its
    batches."""
    segment = segments[at]
    producers = load_producers(disk, folder, segments, segment.base_offset)
    found: list[AbortedTransaction] = []
    expected, has_gaps = segment.base_offset, False
    for piece in segment.batches(0, segment.size_bytes):
        for batch in piece.batches:
            has_gaps = has_gaps or batch.base_offset != expected or batch.count <= batch.last_offset_delta
            expected = batch.next_offset
            done = replay(producers, batch)
            if done is not None and done.is_aborted:
                found.append(_aborted(producers, done))
    limit = segment.limit_offset
    return found, has_gaps or (limit is not None and expected != limit)


def _aborted(producers: ProducerStates, done: CompletedTransaction) -> AbortedTransaction:
    stable = producers.last_stable_offset_after(done)
    return AbortedTransaction(done.producer_id, done.first_offset, done.last_offset, stable)


def _covers(entries: Sequence[AbortedTransaction], expected: Sequence[AbortedTransaction]) -> bool:
    """Whether the entries of a compacted segment still cover what the remaining batches show.

    Compaction removes a transaction's first batches and keeps its marker, so that only the marker can be compared.
    """
    known: dict[Offset, AbortedTransaction] = {entry.last_offset: entry for entry in entries}
    for aborted in expected:
        entry = known.get(aborted.last_offset)
        if entry is None or entry.producer_id != aborted.producer_id or entry.first_offset > aborted.first_offset:
            return False
    return True
