"""Checks a transaction index against the batches, and rebuilds it from them when it is damaged.

Its file has no checksum, and a wrong entry would hide committed records or show aborted ones. So the first use of an
index from disk replays its segment's batches. Indexes that this process has written are trusted. An index without
entries is trusted if the producer snapshot at the segment's end says that no transaction was aborted in it.
"""

import logging
from collections.abc import Sequence
from contextlib import suppress
from operator import attrgetter
from typing import Final

from ottla.env.ports import Disk
from ottla.model.errors import CorruptError
from ottla.model.ids import Offset
from ottla.records.batch import Batch
from ottla.storage.producers.producer_files import aborted_count, load_producers, partition_crc, replay
from ottla.storage.producers.producer_snapshot import EndedSegment
from ottla.storage.producers.producer_state import CompletedTransaction, ProducerStates
from ottla.storage.segments.scanner import DamagedSegmentError
from ottla.storage.segments.segment import Segment
from ottla.storage.segments.transaction_index import AbortedTransaction, TransactionIndex

_LOGGER: Final = logging.getLogger(__name__)
_MARKER: Final = attrgetter("last_offset")


def sound_transaction_index(disk: Disk, folder: str, segments: Sequence[Segment], at: int) -> TransactionIndex:
    """The transaction index of segment `at`, repaired if it was damaged."""
    index = segments[at].transaction_index
    if index.is_checked:
        return index
    entries: list[AbortedTransaction] | None = None
    try:
        entries = index.entries()
        what = f"{index.path}: {len(entries)} aborted transactions contradict the batches"
    except CorruptError as error:
        what = str(error)
    if not (entries == [] and _aborted_count(disk, folder, segments, at) == 0):
        try:
            expected, is_partial = _replayed(disk, folder, segments, at)
        except DamagedSegmentError:
            if entries is None:
                raise
            expected, is_partial = _replayed(disk, folder, segments, at, is_lenient=True)[0], True
        if entries is None or (entries != expected and not (is_partial and _covers(entries, expected))):
            if is_partial and entries:
                # What the remaining batches do not show may be right.
                known = {each.last_offset for each in expected}
                expected = sorted(
                    [*expected, *(each for each in entries if each.last_offset not in known)], key=_MARKER
                )
            index.replace(expected)
            # A segment that Ottla has compacted has no index, but may have markers of transactions that began earlier.
            level = logging.INFO if is_partial and entries == [] else logging.WARNING
            _LOGGER.log(level, "%s; rebuilt from the batches, with %d", what, len(expected))
    index.is_checked = True
    return index


def ended_segment(disk: Disk, folder: str, segments: Sequence[Segment], at: int) -> EndedSegment:
    """Segment `at` as it is now, for the snapshot at its end. Nothing is replayed."""
    segment, count = segments[at], -1
    with suppress(CorruptError):
        entries = segment.transaction_index.entries()
        if segment.transaction_index.is_checked or _aborted_count(disk, folder, segments, at) == len(entries):
            count = len(entries)
    return EndedSegment(partition_crc(folder), segment.base_offset, segment.size_bytes, count)


def _aborted_count(disk: Disk, folder: str, segments: Sequence[Segment], at: int) -> int | None:
    """How many entries the index of segment `at` had, if that is known."""
    end = segments[at + 1].base_offset if at + 1 < len(segments) else segments[at].closed_at
    if segments[at].opened_bytes == 0:
        return 0
    return None if end is None else aborted_count(disk, folder, segments[at], end)


def replay_indexed(producers: ProducerStates, batch: Batch, segment: Segment) -> None:
    """Applies a batch to the producers, and indexes the transaction that it aborted."""
    done = replay(producers, batch)
    if done is not None and done.is_aborted:
        segment.transaction_index.append(_aborted(producers, done))


def _replayed(
    disk: Disk, folder: str, segments: Sequence[Segment], at: int, *, is_lenient: bool = False
) -> tuple[list[AbortedTransaction], bool]:
    """The entries that the index of segment `at` should have, and whether compaction has removed some of its
    batches."""
    segment = segments[at]
    producers = load_producers(disk, folder, segments, segment.base_offset)
    found: list[AbortedTransaction] = []
    expected, has_gaps = segment.base_offset, False
    for piece in segment.batches(0, segment.size_bytes, is_lenient=is_lenient):
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
