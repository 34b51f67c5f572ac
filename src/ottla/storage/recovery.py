"""Opening a partition's folder: what a crash, a kill or a clean shutdown left, made into the parts of a log.

After a clean shutdown nothing is scanned. Otherwise every segment that reaches beyond the recovery point is read batch by
batch; the log ends at the first batch that is not whole, valid and in order, and indexes, producers and epochs are built
anew on the way. Below the recovery point nothing is ever cut: those bytes were on disk, so a bad one is damage, not an
unfinished write; it is stepped over where its length can be believed, and refused when it is read.
"""

from collections.abc import Callable
from dataclasses import dataclass

from ottla.env.ports import Disk
from ottla.model.errors import CorruptError
from ottla.model.ids import NO_LEADER_EPOCH, Offset, TimestampMs
from ottla.records.batch import Batch
from ottla.storage import names
from ottla.storage.checkpoints import read_epochs
from ottla.storage.config import LogConfig
from ottla.storage.epoch_history import EpochHistory
from ottla.storage.log import LogParts
from ottla.storage.producer_files import load_producers, remove_snapshots_after, replay, write_snapshot
from ottla.storage.producer_state import ProducerStates
from ottla.storage.scanner import DamagedSegmentError, scan_file
from ottla.storage.segment import Segment
from ottla.storage.swap import finish_swaps
from ottla.storage.transaction_index import AbortedTransaction

_REMAINS = (names.DELETED, names.CLEANED, names.SWAP, ".tmp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """What is known of a folder before it is opened."""

    disk: Disk
    folder: str
    config: LogConfig
    start_offset: Offset
    """From the log-start checkpoint; 0 if it has none."""
    recovery_point: Offset
    """From the recovery-point checkpoint; 0 if it has none."""
    is_clean: bool
    """Whether the data dir was shut down cleanly."""
    now: TimestampMs
    on_bytes: Callable[[int], None] = lambda count: None
    """Told how many bytes have been scanned, as it goes."""


def open_parts(opening: Opening) -> LogParts:
    """Reads a partition's folder, mends what a crash left, and answers the parts of its log. Blocks."""
    disk, folder = opening.disk, opening.folder
    finish_swaps(disk, folder)
    bases = _tidy(disk, folder)
    segments = [Segment.open(disk, folder, base, opening.config, opening.now) for base in bases]
    if not segments:
        segments = [Segment.create(disk, folder, opening.start_offset, opening.config, opening.now)]
    epochs = _read_epochs(opening, segments)
    if opening.is_clean:
        segments[-1].resume()
        producers = load_producers(disk, folder, segments, segments[-1].next_offset)
    else:
        producers = _Recovery(opening, segments, epochs).run()
    end = segments[-1].next_offset
    start = max(opening.start_offset, segments[0].base_offset)
    if start > end:
        # The tail was lost, but the log had been told to start behind it: offsets that were given out stay given out.
        segments = _start_anew(opening, segments, start)
        end, producers = start, ProducerStates()
    epochs.truncate_from_end(end)
    epochs.truncate_from_start(start)
    return LogParts(
        segments=segments,
        epochs=epochs,
        producers=producers,
        start_offset=start,
        recovery_point=min(max(opening.recovery_point, start), end),
    )


def rebuild_transaction_index(disk: Disk, folder: str, segments: list[Segment], at: int) -> None:
    """Fills a damaged transaction index anew from the batches of segment `at`."""
    segment = segments[at]
    producers = load_producers(disk, folder, segments, segment.base_offset)
    segment.transaction_index.reset()
    for piece in scan_file(segment.file, 0, segment.size_bytes, check_crc=False):
        for batch in piece.batches:
            replay_indexed(producers, batch, segment)


def replay_indexed(producers: ProducerStates, batch: Batch, segment: Segment) -> None:
    """Takes over a batch's effect on the producers, and indexes the transaction that it aborted."""
    done = replay(producers, batch)
    if done is not None and done.is_aborted:
        stable = producers.last_stable_offset_after(done)
        segment.transaction_index.append(
            AbortedTransaction(done.producer_id, done.first_offset, done.last_offset, stable)
        )


class _Recovery:
    """One unclean opening: walks the segments that were not wholly flushed, and ends the log where it stops making sense."""

    def __init__(self, opening: Opening, segments: list[Segment], epochs: EpochHistory) -> None:
        self._opening = opening
        self._segments = segments
        self._epochs = epochs
        self._last_epoch = NO_LEADER_EPOCH
        self._expected = segments[0].base_offset

    def run(self) -> ProducerStates:
        """Mends `segments` in place and answers the producers as of the log's end."""
        disk, folder = self._opening.disk, self._opening.folder
        remove_snapshots_after(disk, folder, self._opening.recovery_point)
        first = self._first_unflushed()
        self._expected = self._segments[first].base_offset
        producers = load_producers(disk, folder, self._segments, self._expected)
        for at in range(first, len(self._segments)):
            segment = self._segments[at]
            if at > first:
                if segment.base_offset < self._expected:
                    self._drop_from(at)
                    break
                segment_start = self._expected = segment.base_offset
                write_snapshot(disk, folder, segment_start, producers)
            if not self._recover_segment(segment, producers):
                self._drop_from(at + 1)
                break
            if at < len(self._segments) - 1:
                segment.seal()
        self._segments[-1].resume()
        return producers

    def _first_unflushed(self) -> int:
        later = [at for at, segment in enumerate(self._segments) if segment.base_offset > self._opening.recovery_point]
        return max((later[0] if later else len(self._segments)) - 1, 0)

    def _recover_segment(self, segment: Segment, producers: ProducerStates) -> bool:
        """Scans one segment and rebuilds its indexes; False if it had to be cut."""
        segment.reset_indexes()
        segment.transaction_index.reset()
        position = 0
        while position < segment.size_bytes:
            try:
                for piece in scan_file(segment.file, position, segment.size_bytes):
                    for batch in piece.batches:
                        self._take(segment, batch, piece.position + batch.position, producers)
                    segment.mark_verified(position, piece.end)
                    self._opening.on_bytes(piece.end - position)
                    position = piece.end
            except DamagedSegmentError as damage:
                if self._expected >= self._opening.recovery_point:
                    segment.cut(damage.position)
                    segment.file.sync()
                    return False
                position = self._step_over(segment, damage)
        return True

    def _take(self, segment: Segment, batch: Batch, position: int, producers: ProducerStates) -> None:
        """Accepts one batch, or raises: offsets and epochs only grow, so older ones are left-overs of a cut log."""
        if batch.base_offset < self._expected:
            what = f"offset {batch.base_offset} stands where {self._expected} or more belongs"
            raise DamagedSegmentError(segment.log_path, position, what)
        if batch.leader_epoch < self._last_epoch:
            what = f"leader epoch {batch.leader_epoch} stands behind epoch {self._last_epoch}"
            raise DamagedSegmentError(segment.log_path, position, what)
        segment.index_batch(batch, position)
        if batch.leader_epoch != self._last_epoch:
            self._last_epoch = batch.leader_epoch
            self._epochs.assign(batch.leader_epoch, batch.base_offset)
        replay_indexed(producers, batch, segment)
        self._expected = batch.next_offset

    def _step_over(self, segment: Segment, damage: DamagedSegmentError) -> int:
        """The position behind a damaged batch that had been flushed, if its header can be believed."""
        place = segment.place_at(damage.position)
        if place is not None and place.base_offset >= self._expected:
            following = segment.place_at(place.position + place.size_bytes)
            if following is None or following.base_offset > place.last_offset:
                self._expected = Offset(place.last_offset + 1)
                return place.position + place.size_bytes
        raise CorruptError(
            f"{damage}; this had been flushed up to offset {self._opening.recovery_point}, so it is damage and not an "
            "unfinished write: restore the partition from a replica, or move its folder away"
        ) from damage

    def _drop_from(self, at: int) -> None:
        """Removes segments behind the log's end, the newest first."""
        for segment in reversed(self._segments[at:]):
            segment.release()
            for path in segment.paths():
                self._opening.disk.remove(path)
        del self._segments[at:]
        self._opening.disk.sync_dir(self._opening.folder)
        remove_snapshots_after(self._opening.disk, self._opening.folder, self._expected)


def _tidy(disk: Disk, folder: str) -> list[Offset]:
    """Removes what belongs to no log any more; answers the base offsets of the segments that are there."""
    found = disk.list_dir(folder)
    bases = sorted({base for name in found if name.endswith(names.LOG) and (base := names.base_offset_of(name)) is not None})
    for name in found:
        base = names.base_offset_of(name)
        orphan = base is not None and base not in bases and name.endswith(names.SEGMENT_SUFFIXES)
        if name.endswith(_REMAINS) or orphan:
            disk.remove(f"{folder}/{name}")
    return bases


def _read_epochs(opening: Opening, segments: list[Segment]) -> EpochHistory:
    try:
        return EpochHistory(read_epochs(opening.disk, f"{opening.folder}/{names.EPOCHS}"))
    except CorruptError:
        epochs = EpochHistory()
        for segment in segments:
            try:
                for piece in scan_file(segment.file, 0, segment.size_bytes, check_crc=False):
                    for batch in piece.batches:
                        epochs.assign(batch.leader_epoch, batch.base_offset)
            except DamagedSegmentError:
                break  # The recovery that follows decides what this is.
        epochs.dirty = True
        return epochs


def _start_anew(opening: Opening, segments: list[Segment], start: Offset) -> list[Segment]:
    for segment in reversed(segments):
        segment.release()
        for path in segment.paths():
            opening.disk.remove(path)
    opening.disk.sync_dir(opening.folder)
    return [Segment.create(opening.disk, opening.folder, start, opening.config, opening.now)]
