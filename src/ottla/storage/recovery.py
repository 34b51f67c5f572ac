"""Opening a partition's folder: what a crash, a kill or a clean shutdown left, made into the parts of a log.

After a clean shutdown nothing is scanned. Otherwise every segment that reaches beyond the recovery point is read batch
by batch; the log ends at the first batch that is not whole, valid and in order, and indexes, producers and epochs are
built anew on the way. Below the recovery point nothing is ever cut: those bytes were on disk, so a bad one is damage,
not an unfinished write; it is stepped over where its length can be believed, and refused when it is read.
"""

from bisect import bisect_right
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
from ottla.storage.epoch_rebuild import epochs_agree, epochs_of
from ottla.storage.log import LogParts
from ottla.storage.producer_files import load_producers, remove_snapshots_after, write_snapshot
from ottla.storage.producer_state import ProducerStates
from ottla.storage.scanner import BatchOrder, DamagedSegmentError, scan_file
from ottla.storage.segment import RELATIVE_OFFSET_MAX, Segment
from ottla.storage.swap import finish_swaps
from ottla.storage.transaction_rebuild import replay_indexed

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
    on_loss: Callable[[], None] = lambda: None
    """Told before something is cut off: it may be an unfinished write, or have been there, and nobody can tell."""


def open_parts(opening: Opening) -> LogParts:
    """Reads a partition's folder, mends what a crash left, and answers the parts of its log. Blocks."""
    disk, folder = opening.disk, opening.folder
    finish_swaps(disk, folder)
    bases = _tidy(disk, folder, Offset(0) if opening.is_clean else opening.start_offset)
    segments = [Segment.open(disk, folder, base, opening.config, opening.now) for base in bases]
    if not segments:
        segments = [Segment.create(disk, folder, opening.start_offset, opening.config, opening.now)]
    epochs = _read_epochs(opening, segments)
    resumed = _resume(opening, segments) if opening.is_clean else None
    recovery = _Recovery(opening, segments, epochs)
    producers = resumed if resumed is not None else recovery.run()
    end = segments[-1].next_offset
    start = max(opening.start_offset, segments[0].base_offset)
    _check_bounds(opening, start, end, is_clean=resumed is not None)
    if start > end:
        # The tail was lost, but the log had been told to start behind it: offsets that were given out stay given out.
        segments = _start_anew(opening, segments, start)
        end, producers = start, ProducerStates()
    if not epochs_agree(epochs, segments):
        epochs = epochs_of(segments)
    epochs.truncate_from_end(end)
    epochs.truncate_from_start(start)
    for segment in segments:
        segment.release()
    return LogParts(
        segments=segments,
        epochs=epochs,
        producers=producers,
        start_offset=start,
        recovery_point=min(opening.recovery_point, end),  # Not the start, which need not be where a batch begins.
        is_settled=opening.is_clean and bool(bases),
        damage=recovery.damage,
        has_segments=bool(bases),
    )


def _resume(opening: Opening, segments: list[Segment]) -> ProducerStates | None:
    """Goes on after a clean shutdown, without a scan; None if what is there contradicts that it was one."""
    try:
        segments[-1].resume()
        end = segments[-1].next_offset
        if end != opening.recovery_point:
            return None
        return load_producers(opening.disk, opening.folder, segments, end)
    except DamagedSegmentError:
        return None


def _check_bounds(opening: Opening, start: Offset, end: Offset, *, is_clean: bool) -> None:
    """Refuses a log that ends before what was flushed, or whose start was checkpointed beyond a clean end."""
    if start > end and is_clean:
        raise CorruptError(
            f"{opening.folder}: {names.LOG_STARTS} says that it starts at offset {start}, but it was closed at {end}; "
            "take the partition's line out of that file if it is wrong, or move the folder away"
        )
    if opening.recovery_point > end >= start:
        raise CorruptError(
            f"{opening.folder}: ends at offset {end}, but {names.RECOVERY_POINTS} says that it was flushed up to "
            f"{opening.recovery_point}: restore the partition from a replica, or take its line out of that file"
        )


class _Recovery:
    """One unclean opening: walks segments that were not wholly flushed, and ends the log where sense ends."""

    def __init__(self, opening: Opening, segments: list[Segment], epochs: EpochHistory) -> None:
        self._opening = opening
        self._segments = segments
        self._epochs = epochs
        self._last_epoch = NO_LEADER_EPOCH
        self._expected = segments[0].base_offset
        self.damage: CorruptError | None = None
        """What was stepped over."""

    def run(self) -> ProducerStates:
        """Mends `segments` in place and answers the producers as of the log's end."""
        disk, folder = self._opening.disk, self._opening.folder
        for segment in self._segments:
            segment.is_new = True  # A process that was killed may have made it without syncing its name.
        remove_snapshots_after(disk, folder, self._opening.recovery_point)
        first = self._first_unflushed()
        self._expected = self._segments[first].base_offset
        producers = load_producers(disk, folder, self._segments, self._expected)
        for at in range(first, len(self._segments)):
            segment = self._segments[at]
            if at > first:
                if not self._continues(self._segments[at - 1], segment):
                    self._drop_from(at)
                    break
                segment_start = self._expected = segment.base_offset
                write_snapshot(disk, folder, segment_start, producers)
            if not self._recover_segment(segment, producers):
                break
            if at < len(self._segments) - 1:
                segment.seal()
        self._segments[-1].resume()
        return producers

    def _first_unflushed(self) -> int:
        """The segment of the last flushed record: if it was sealed since, its indexes were not flushed with it."""
        later = [at for at, segment in enumerate(self._segments) if segment.base_offset >= self._opening.recovery_point]
        return max((later[0] if later else len(self._segments)) - 1, 0)

    def _continues(self, previous: Segment, segment: Segment) -> bool:
        """Whether a segment goes on where the one before it ended, or may at least.

        A power cut may keep a younger segment and lose the tail of an older one at a batch's end. The log rolls without
        a gap, except where offsets no longer fit, so a gap tells. Where records were compacted away it need not.
        """
        gap = segment.base_offset - self._expected
        leaps = segment.base_offset - previous.base_offset > RELATIVE_OFFSET_MAX
        # A segment that was there when the log was flushed last follows a gap that was left on purpose.
        is_flushed = segment.base_offset <= self._opening.recovery_point
        return gap == 0 or (gap > 0 and (self._opening.config.cleanup_compact or leaps or is_flushed))

    def _recover_segment(self, segment: Segment, producers: ProducerStates) -> bool:
        """Scans one segment and rebuilds its indexes; False if it had to be cut."""
        segment.reset_indexes()
        segment.transaction_index.reset()
        position = 0
        while position < segment.size_bytes:
            flushed_end = self._opening.recovery_point
            order = BatchOrder(segment.log_path, self._expected, self._last_epoch, flushed_end=flushed_end)
            try:
                for piece in scan_file(segment.file, position, segment.size_bytes):
                    good, problem = order.follow(piece, segment.following(piece.end))
                    for batch in good:
                        self._take(segment, batch, piece.position + batch.position, producers)
                    end = piece.end if problem is None else problem.position
                    segment.mark_verified(position, end)
                    self._opening.on_bytes(end - position)
                    position = end
                    if problem is not None:
                        raise problem
            except DamagedSegmentError as damage:
                if self._expected >= self._opening.recovery_point:
                    # Those behind it go first: without this one's tail, nothing else would tell that they must.
                    self._drop_from(self._segments.index(segment) + 1)
                    segment.cut(damage.position)
                    segment.file.sync()
                    return False
                position = self._step_over(segment, damage)
                self.damage = self.damage or CorruptError(str(damage))
        return True

    def _take(self, segment: Segment, batch: Batch, position: int, producers: ProducerStates) -> None:
        """Accepts one batch whose offset and epoch are in order, or raises if what was flushed says otherwise."""
        flushed = self._opening.recovery_point
        if self._expected < flushed < batch.next_offset and self._expected < batch.base_offset:
            what = f"offset {batch.base_offset} stands where {self._expected} or a little more belongs"
            raise DamagedSegmentError(segment.log_path, position, what)
        if not segment.fits(batch.last_offset):
            what = f"offset {batch.last_offset} is too far from the segment's first, {segment.base_offset}"
            raise DamagedSegmentError(segment.log_path, position, what)
        segment.index_batch(batch, position)
        if batch.leader_epoch != self._last_epoch:
            self._last_epoch = batch.leader_epoch
            self._epochs.assign(batch.leader_epoch, batch.base_offset)
        replay_indexed(producers, batch, segment)
        self._expected = batch.next_offset

    def _step_over(self, segment: Segment, damage: DamagedSegmentError) -> int:
        """The position behind a damaged batch that had been flushed, if its length can be believed."""
        place = segment.place_at(damage.position)
        if place is not None:
            end = place.position + place.size_bytes
            following = segment.place_at(end)
            if following is not None and following.base_offset > self._expected:
                self._expected = following.base_offset
                return end
            if end == segment.size_bytes and place.base_offset == self._expected:
                self._expected = Offset(place.last_offset + 1)
                return end
        raise CorruptError(
            f"{damage}; this had been flushed up to offset {self._opening.recovery_point}, so it is damage and not an "
            "unfinished write: restore the partition from a replica, or move its folder away"
        ) from damage

    def _drop_from(self, at: int) -> None:
        """Removes segments behind the log's end, the newest first."""
        self._opening.on_loss()
        for segment in reversed(self._segments[at:]):
            segment.release()
            for path in segment.paths():
                self._opening.disk.remove(path)
        del self._segments[at:]
        self._opening.disk.sync_dir(self._opening.folder)
        remove_snapshots_after(self._opening.disk, self._opening.folder, self._expected)


def _tidy(disk: Disk, folder: str, start: Offset) -> list[Offset]:
    """Removes what belongs to no log any more; answers the base offsets of the segments that are there.

    Segments that end before `start` were on their way out, and perhaps not all of them are left.
    """
    found = [name for name in disk.list_dir(folder) if not disk.is_dir(f"{folder}/{name}")]
    bases = sorted(
        {base for name in found if name.endswith(names.LOG) and (base := names.base_offset_of(name)) is not None}
    )
    bases = bases[max(bisect_right(bases, start) - 1, 0) :]
    snapshots = [
        base for name in found if name.endswith(names.SNAPSHOT) and (base := names.base_offset_of(name)) is not None
    ]
    for name in found:
        base = names.base_offset_of(name)
        orphan = base is not None and base not in bases and name.endswith(names.SEGMENT_SUFFIXES)
        # Each clean shutdown leaves a snapshot at the log's end; only the newest is of use.
        stray = name.endswith(names.SNAPSHOT) and base is not None and base not in bases and base != snapshots[-1]
        if name.endswith(_REMAINS) or orphan or stray:
            disk.remove(f"{folder}/{name}")
    return bases


def _read_epochs(opening: Opening, segments: list[Segment]) -> EpochHistory:
    try:
        return EpochHistory(read_epochs(opening.disk, f"{opening.folder}/{names.EPOCHS}"))
    except CorruptError:
        return epochs_of(segments)


def _start_anew(opening: Opening, segments: list[Segment], start: Offset) -> list[Segment]:
    opening.on_loss()
    for segment in reversed(segments):
        segment.release()
        for path in segment.paths():
            opening.disk.remove(path)
    opening.disk.sync_dir(opening.folder)
    return [Segment.create(opening.disk, opening.folder, start, opening.config, opening.now)]
