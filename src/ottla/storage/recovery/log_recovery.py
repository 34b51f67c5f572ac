"""Opens a partition's folder after a clean shutdown, a kill, a power cut or damage, and returns the parts of its log.

After a clean shutdown nothing is scanned; the segments are compared with the list of closed segments. Otherwise every
segment that reaches beyond the recovery point is read batch by batch, and its indexes, producers and epochs are
rebuilt.

A torn tail is what a crash leaves of the last writes, and only a torn tail is truncated. A killed process loses only
the rest of its last write, so that the torn tail is one incomplete batch at the end of the file. A machine that goes
down can lose any part of what was not flushed, so that everything from the first bad batch beyond the recovery point on
is a torn tail. Anything else that cannot be read is damage: it stays in its file, the records behind it are kept, its
offsets are never assigned again, and the log is marked as damaged, so that it is copied from another replica. Nothing
that holds a whole batch is deleted: it is kept under a name that ends with `.aside`. See
docs/decisions/0013-damage-is-not-a-torn-tail.md.
"""

import logging
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from ottla.env.ports import Disk
from ottla.model.errors import CorruptError
from ottla.model.ids import NO_LEADER_EPOCH, LeaderEpoch, Offset, TimestampMs
from ottla.records.batch import Batch
from ottla.records.layout import HEADER_BYTES
from ottla.storage.cleaning.swap import finish_swaps
from ottla.storage.data_dirs import names
from ottla.storage.data_dirs.checkpoints import read_epochs
from ottla.storage.epoch_history import EpochHistory
from ottla.storage.log import LogParts
from ottla.storage.log_config import LogConfig
from ottla.storage.producers.producer_files import load_producers, remove_snapshots_after, write_snapshot
from ottla.storage.producers.producer_state import ProducerStates
from ottla.storage.recovery.epoch_rebuild import epoch_in, epochs_agree, epochs_of, restore_epoch
from ottla.storage.recovery.transaction_rebuild import ended_segment, replay_indexed
from ottla.storage.segments.closed_segments import ClosedLog, OffsetRange
from ottla.storage.segments.scanner import (
    EPOCH_MAX,
    PIECE_BYTES,
    BatchEpoch,
    BatchOrder,
    DamagedSegmentError,
    find_batch,
    scan_file,
)
from ottla.storage.segments.segment import RELATIVE_OFFSET_MAX, BatchPlace, Hole, Segment, free_aside, set_aside

_LOGGER: Final = logging.getLogger(__name__)
_REMAINS = (names.DELETED, names.CLEANED, names.SWAP, ".tmp")
_OFFSET_MAX: Final = Offset(2**63 - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """What is known about a folder before it is opened."""

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
    keeps_writes: bool = False
    """Whether no completed write can be missing: see `DataDir.keeps_writes`."""
    is_start_known: bool = False
    """Whether the log began at `start_offset` when the checkpoints were last written."""
    is_start_lost: bool = False
    """Whether the log-start checkpoint is missing or damaged."""
    cleaned_offset: int = 0
    """From the cleaner's checkpoint: below it compaction may have left gaps, whatever the config is today."""
    epoch_max: LeaderEpoch = EPOCH_MAX
    """The newest leader epoch that can have existed; a batch with a newer one has a corrupt header."""
    leader_epoch: LeaderEpoch | None = None
    """The partition's leader epoch in the metadata store; None if it is not known."""
    closed: ClosedLog | None = None
    """The log as it was closed; None unless Ottla shut the data dir down cleanly."""
    on_bytes: Callable[[int], None] = lambda count: None
    """Called with the number of bytes that were scanned, as the scan proceeds."""
    on_loss: Callable[[], None] = lambda: None
    """Called before something is truncated: a torn tail cannot always be told from acknowledged records."""


def open_parts(opening: Opening) -> LogParts:
    """Opens a partition's folder, repairs what a crash left, and returns the parts of its log. Blocks."""
    disk, folder = opening.disk, opening.folder
    finish_swaps(disk, folder)
    bases, expired = _tidy(disk, folder, Offset(0) if opening.is_clean else opening.start_offset)
    segments = [Segment.open(disk, folder, base, opening.config, opening.now) for base in bases]
    if not segments:
        segments = [Segment.create(disk, folder, opening.start_offset, opening.config, opening.now)]
    epochs, are_epochs_readable = _read_epochs(opening)
    resumed = _resume(opening, segments) if opening.is_clean else None
    if resumed is not None and opening.start_offset > segments[-1].next_offset:
        _LOGGER.error(
            "%s: ignored log start offset %d in %s, since the log was closed at offset %d; it starts at its first"
            " segment, offset %d",
            folder, opening.start_offset, names.LOG_STARTS, segments[-1].next_offset, segments[0].base_offset,
        )  # fmt: skip
        opening = replace(opening, start_offset=segments[0].base_offset, is_start_lost=True)
    losses = _Losses(opening.start_offset)
    last = None
    if resumed is not None:
        last = _with_right_epoch(opening, segments, epochs)
        are_epochs_readable = are_epochs_readable and epochs_agree(epochs, segments, opening.start_offset, last)
    if resumed is not None and not are_epochs_readable and epochs_of(segments).latest > opening.epoch_max:
        resumed = None  # A batch header is corrupt; the scan finds out which.
    recovery = _Recovery(opening, segments, epochs, losses)
    producers = resumed if resumed is not None else recovery.run()
    if opening.closed is not None:
        _compare(opening, opening.closed, segments, losses)
    elif resumed is not None:
        recovery.check_continuity(len(segments) - 1)
    start, end = _start_of(opening, segments, losses), segments[-1].next_offset
    if start > end:
        # The tail was lost, but the log was to start behind it. Offsets that were assigned stay assigned.
        end = max(start, opening.recovery_point)
        segments = _start_at(opening, [*_opened(opening, expired), *segments], end)
        expired, producers = [], ProducerStates()
        losses.add(start, end, f"{folder} lacks records that were flushed according to {names.RECOVERY_POINTS}")
    elif bases:  # A log without any segment is lost as a whole; the broker decides what to do.
        what = f"{folder} ends at offset {end}, but was flushed up to {opening.recovery_point}"
        losses.add(end, opening.recovery_point, f"{what} according to {names.RECOVERY_POINTS}")
        if max(recovery.given_out, opening.recovery_point) > end:
            end = max(recovery.given_out, opening.recovery_point)
            _continue_at(opening, segments, end, producers)
    _remove_expired(opening, expired, start)
    if not are_epochs_readable or (resumed is None and not epochs_agree(epochs, segments, start, recovery.last)):
        epochs = epochs_of(segments)
        _LOGGER.warning("%s/%s contradicts the batches; rebuilt the leader epochs from them", folder, names.EPOCHS)
    epochs.truncate_from_end(end)
    epochs.truncate_from_start(start)
    for segment in segments:
        segment.release()
    return LogParts(
        segments=segments,
        epochs=epochs,
        producers=producers,
        start_offset=start,
        recovery_point=min(opening.recovery_point, end),  # Not the start, which may be inside a batch.
        is_settled=opening.is_clean and bool(bases),
        damage=losses.damage,
        is_damage_in_lost=not losses.has_unknown,
        has_segments=bool(bases),
        lost=tuple(losses.ranges),
        is_start_lost=opening.is_start_lost,
    )


class _Losses:
    """Offsets of records that were written and cannot be read; each range is logged once."""

    def __init__(self, start: Offset) -> None:
        self.ranges: list[OffsetRange] = []
        self.damage: CorruptError | None = None
        self.has_unknown = False
        """Whether something is damaged that `ranges` does not cover."""
        self._start = start

    def add(self, first: Offset, end: Offset, what: str) -> None:
        """Offsets in [first, end) cannot be read; `what` says where and why. Offsets below the log start are
        ignored."""
        first = max(first, self._start)
        if first >= end or any(known.first <= first and end <= known.end for known in self.ranges):
            return
        lost = OffsetRange(first, end)
        self.ranges.append(lost)
        self._report(f"{what}; {lost.unreadable}")

    def note(self, what: str) -> None:
        """Something is damaged, and the offsets it held are not known."""
        self.has_unknown = True
        self._report(what)

    def _report(self, what: str) -> None:
        _LOGGER.error("%s", what)
        self.damage = self.damage or CorruptError(what)


def _resume(opening: Opening, segments: list[Segment]) -> ProducerStates | None:
    """Continues after a clean shutdown without a scan; None if the files show that the shutdown was not clean."""
    try:
        segments[-1].resume()
        end = segments[-1].next_offset
        if end != opening.recovery_point:
            return None
        segments[-1].closed_at = end
        return load_producers(opening.disk, opening.folder, segments, end)
    except DamagedSegmentError:
        return None


def _with_right_epoch(opening: Opening, segments: list[Segment], epochs: EpochHistory) -> BatchEpoch | None:
    """The last batch after a clean shutdown. If only its header contradicts the history, which was flushed after it,
    the header is restored."""
    segment, last = segments[-1], segments[-1].last_batch
    if last is None:
        return None
    right = epochs.epoch_at(last.base_offset)
    is_impossible = last.epoch > opening.epoch_max >= right
    if right in (NO_LEADER_EPOCH, last.epoch) or not (
        is_impossible or epoch_in(segments, Offset(last.base_offset - 1)) == right
    ):
        return last
    place = segment.place_at(last.position)
    if place is None or not Batch(segment.file.read_at(place.position, place.size_bytes)).crc_valid():
        return last
    restore_epoch(opening.disk, segment.log_path, last, right, f"{names.EPOCHS} has {right}")
    return last._replace(epoch=right)


def _compare(opening: Opening, closed: ClosedLog, segments: list[Segment], losses: _Losses) -> None:
    """Compares the sealed segments with the list of closed ones. The last one is compared with the recovery point."""
    found = {segment.base_offset: segment for segment in segments}
    for (base, size), (end, _) in pairwise(closed.sizes.items()):
        path = names.segment_path(opening.folder, base, names.LOG)
        segment = found.get(base)
        if segment is None:
            losses.add(base, end, f"{path} is missing")
        elif segment.size_bytes != size and end > opening.start_offset:
            losses.note(f"{path} has {segment.size_bytes} bytes, but had {size} when it was closed")
            losses.add(_end_of(segment), end, f"{path} is shorter than when it was closed")
    for first, end in closed.lost:
        if not _has(segments, first):
            losses.add(first, end, f"{opening.folder}: missing since an earlier start")


def _end_of(segment: Segment) -> Offset:
    """The offset behind the last readable batch of a sealed segment."""
    end = segment.base_offset
    for piece in segment.batches(0, segment.size_bytes, is_lenient=True):
        end = piece.batches[-1].next_offset
    return end


def _has(segments: list[Segment], offset: Offset) -> bool:
    """Whether a valid batch contains the offset."""
    at = bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1
    try:
        place = segments[at].locate(offset) if at >= 0 else None
        if place is None or place.base_offset > offset:
            return False
        segments[at].verify(place.position, place.position + place.size_bytes)
    except DamagedSegmentError:
        return False
    return True


def _start_of(opening: Opening, segments: list[Segment], losses: _Losses) -> Offset:
    """The log start: as checkpointed, even if the first segment is missing, so that readers continue behind the gap."""
    start, first = opening.start_offset, segments[0].base_offset
    # A follower's first segment may begin far behind the start if its leader's first batch does.
    if first <= start or not opening.is_start_known or first - start > RELATIVE_OFFSET_MAX:
        return max(start, first)
    losses.add(start, first, f"{opening.folder}: the log starts at offset {start}, but its first segment is {first}")
    return start


class _Recovery:
    """Recovery after an unclean shutdown: scans the segments that were not completely flushed, and truncates a torn
    tail."""

    def __init__(self, opening: Opening, segments: list[Segment], epochs: EpochHistory, losses: _Losses) -> None:
        self._opening = opening
        self._segments = segments
        self._epochs = epochs
        self._losses = losses
        self._known_epochs = EpochHistory(epochs.starts)
        """As the file has them; flushed records are all in it."""
        self._last_epoch = NO_LEADER_EPOCH
        self._epoch_before = NO_LEADER_EPOCH
        self._is_first_of_epoch = False
        self.last: BatchEpoch | None = None
        """The last batch of the log."""
        self._last_segment = segments[0]
        self._expected = segments[0].base_offset
        self.given_out = Offset(0)
        """Offsets below this one belong to records, even if those cannot be read."""

    def run(self) -> ProducerStates:
        """Repairs `segments` in place and returns the producers as of the log's end."""
        disk, folder = self._opening.disk, self._opening.folder
        for segment in self._segments:
            segment.is_new = True  # A killed process may have created it without syncing its name.
        remove_snapshots_after(disk, folder, self._opening.recovery_point)
        for segment, following in pairwise(self._segments):
            if self._opening.keeps_writes or following.base_offset <= self._opening.recovery_point:
                segment.limit_offset = following.base_offset
        first = self._first_unflushed()
        if self._opening.closed is None:
            self.check_continuity(first)
        self._expected = self._segments[first].base_offset
        producers = load_producers(disk, folder, self._segments, self._expected)
        for at in range(first, len(self._segments)):
            segment = self._segments[at]
            if at > first:
                if not self._may_follow(self._segments[at - 1], segment):
                    self._take_out_from(at)
                    break
                self._expected = segment.base_offset
                write_snapshot(
                    disk, folder, self._expected, producers, ended_segment(disk, folder, self._segments, at - 1)
                )
            if not self._recover_segment(segment, producers):
                break
            if at < len(self._segments) - 1:
                segment.seal()
        self._restore_last()
        self.given_out = max(self.given_out, self._expected)
        self._segments[-1].resume()
        return producers

    def check_continuity(self, last: int) -> None:
        """Checks that each segment up to this index begins where the one before it ends."""
        for previous, segment in pairwise(self._segments[: last + 1]):
            if segment.base_offset <= self._opening.start_offset:
                continue
            try:
                end = previous.end_offset()
            except DamagedSegmentError as damage:
                self._losses.note(f"{damage}; in a segment that was flushed")
                end = _end_of(previous)
            if not self._is_gap_allowed(previous, segment, end):
                self._note_gap(previous, segment, end)

    def _first_unflushed(self) -> int:
        """The segment of the last flushed record: if it was sealed later, its indexes were not flushed with it."""
        later = [at for at, segment in enumerate(self._segments) if segment.base_offset >= self._opening.recovery_point]
        return max((later[0] if later else len(self._segments)) - 1, 0)

    def _may_follow(self, previous: Segment, segment: Segment) -> bool:
        """Whether a segment belongs to the log; records that are missing before it are noted."""
        if self._is_gap_allowed(previous, segment, self._expected):
            return True
        if not self._opening.keeps_writes and segment.base_offset > self._opening.recovery_point:
            return False
        self._note_gap(previous, segment, self._expected)
        return True

    def _is_gap_allowed(self, previous: Segment, segment: Segment, end: Offset) -> bool:
        """Whether `segment` begins where the one before it ended, or may begin later.

        The log rolls without a gap, except where offsets no longer fit. Compaction, today or under an earlier config,
        removes records, including the last ones of a segment.
        """
        gap = segment.base_offset - end
        leaps = segment.base_offset - previous.base_offset > RELATIVE_OFFSET_MAX
        compacted = self._opening.config.cleanup_compact or segment.base_offset <= self._opening.cleaned_offset
        return gap == 0 or (gap > 0 and (compacted or leaps))

    def _note_gap(self, previous: Segment, segment: Segment, end: Offset) -> None:
        what = f"{previous.log_path} ends at offset {end}, but the next segment begins at {segment.base_offset}"
        if segment.base_offset < end:
            self.given_out = max(self.given_out, end)
            self._losses.note(f"{what}: they overlap")
        else:
            self._losses.add(end, segment.base_offset, what)

    def _recover_segment(self, segment: Segment, producers: ProducerStates) -> bool:
        """Scans one segment and rebuilds its indexes; False if the log ends in it."""
        segment.reset_indexes()
        segment.transaction_index.reset()
        segment.holes = []
        position = 0
        while position < segment.size_bytes:
            trusted_end = _OFFSET_MAX if self._opening.keeps_writes else self._opening.recovery_point
            order = BatchOrder(
                segment.log_path,
                self._expected,
                self._last_epoch,
                flushed_end=trusted_end,
                epoch_max=self._opening.epoch_max,
            )
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
                if self._restore(segment, damage.position):
                    position = damage.position
                    continue
                if self._is_torn_tail(segment, damage.position):
                    self._cut(segment, damage)
                    return False
                position = self._step_over(segment, damage)
        return True

    def _take(self, segment: Segment, batch: Batch, position: int, producers: ProducerStates) -> None:
        """Accepts one batch whose offset and epoch are in order; raises if it contradicts the recovery point."""
        flushed = self._opening.recovery_point
        if self._expected < flushed < batch.next_offset and self._expected < batch.base_offset:
            what = f"offset {batch.base_offset} is not the expected offset {self._expected}"
            raise DamagedSegmentError(segment.log_path, position, what)
        if not segment.fits(batch.last_offset):
            what = f"offset {batch.last_offset} is too far from the segment's base offset {segment.base_offset}"
            raise DamagedSegmentError(segment.log_path, position, what)
        segment.index_batch(batch, position)
        self._is_first_of_epoch = batch.leader_epoch != self._last_epoch
        if self._is_first_of_epoch:
            self._epoch_before, self._last_epoch = self._last_epoch, batch.leader_epoch
            self._epochs.assign(batch.leader_epoch, batch.base_offset)
        self.last, self._last_segment = BatchEpoch(position, batch.base_offset, batch.leader_epoch), segment
        replay_indexed(producers, batch, segment)
        self._expected = batch.next_offset

    def _restore(self, segment: Segment, position: int) -> bool:
        """Restores the leader epoch of a batch that is otherwise right, if the batches around it show what it was."""
        if not self._opening.keeps_writes and self._expected >= self._opening.recovery_point:
            return False
        expected, right = self._expected, self._last_epoch
        if right < 0:
            right = self._known_epochs.epoch_at(expected)
        for _ in range(2):
            place = segment.place_at(position)
            if place is None or place.base_offset != expected:
                return False
            batch = Batch(segment.file.read_at(position, place.size_bytes))
            behind = self._epoch_behind(segment, position + place.size_bytes)
            if batch.crc_valid() and right not in (NO_LEADER_EPOCH, batch.leader_epoch) and behind in (None, right):
                break
            # If the batch is right, it contradicts the next one.
            position, expected, right = position + place.size_bytes, batch.next_offset, batch.leader_epoch
        else:
            return False
        where = BatchEpoch(position, batch.base_offset, batch.leader_epoch)
        restore_epoch(self._opening.disk, segment.log_path, where, right, f"the batches around it have {right}")
        return True

    def _epoch_behind(self, segment: Segment, position: int) -> LeaderEpoch | None:
        """The leader epoch of the next batch; None at the end of the log."""
        rest = self._segments[self._segments.index(segment) + 1 :]
        for each, at in ((segment, position), *((each, 0) for each in rest)):
            if at < each.size_bytes:
                return each.following(at)[1]
        return None

    def _restore_last(self) -> None:
        """Restores the leader epoch of the last batch if it is the only one of its epoch, and the history that was
        flushed after it, or the metadata store, does not know that epoch."""
        last, opening = self.last, self._opening
        if last is None or not self._is_first_of_epoch:
            return
        before = (
            self._epoch_before if self._epoch_before >= 0 else epoch_in(self._segments, Offset(last.base_offset - 1))
        )
        known = self._known_epochs.epoch_at(last.base_offset)
        if before in (None, NO_LEADER_EPOCH, last.epoch):
            return
        if last.base_offset < opening.recovery_point and known == before:
            witness = f"{names.EPOCHS} has {known}"
        elif opening.leader_epoch is not None and last.epoch > opening.leader_epoch:
            witness = f"the metadata store has {opening.leader_epoch}"
        else:
            return
        restore_epoch(opening.disk, self._last_segment.log_path, last, before, witness)
        self._epochs.truncate_from_end(last.base_offset)
        self.last = last._replace(epoch=before)

    def _is_torn_tail(self, segment: Segment, position: int) -> bool:
        """Whether a crash can have left the bytes at this position, so that the log ends before them."""
        if self._expected < self._opening.recovery_point:
            return False
        if not self._opening.keeps_writes:
            return True
        if segment is not self._segments[-1]:
            return False
        lowest = Offset(self._expected + 1)
        if _next_batch(segment, position + 1, lowest) is not None:
            return False
        place = segment.place_at(position)
        if place is None:
            return True
        if place.position + place.size_bytes != segment.size_bytes:
            # A complete batch in its right place: a kill does not leave such a batch damaged. Nor does it exchange two.
            batch = Batch(segment.file.read_at(position, place.size_bytes))
            return place.base_offset != self._expected and not batch.crc_valid()
        # The batch is complete. If its checksum is right too, its older leader epoch shows that it was truncated.
        batch = Batch(segment.file.read_at(position, place.size_bytes))
        is_known_epoch = batch.leader_epoch <= self._opening.epoch_max
        return batch.crc_valid() and batch.base_offset >= self._expected and is_known_epoch

    def _step_over(self, segment: Segment, damage: DamagedSegmentError) -> int:
        """Notes bytes that cannot be read, and returns the position behind them."""
        first = self._expected
        hole = segment.step_over(damage.position, first)
        following = segment.place_at(hole.end) if hole.end < segment.size_bytes else None
        at = self._segments.index(segment)
        if following is not None:
            self._expected = following.base_offset
        elif at + 1 < len(self._segments):
            self._expected = max(first, self._segments[at + 1].base_offset)
        else:
            self._expected = max(_end_by_headers(segment, damage.position, first), self._opening.recovery_point)
        what = f"{damage}; {hole.end - hole.start} damaged bytes stay in the file"
        if self._expected > first:
            self._losses.add(first, self._expected, what)
        else:
            self._note_misplaced(segment, hole, following, what)
        return hole.end

    def _note_misplaced(self, segment: Segment, hole: Hole, following: BatchPlace | None, what: str) -> None:
        """Notes a batch that should lie behind the one that follows it."""
        place = segment.place_at(hole.start)
        if place is None or following is None or place.base_offset != following.last_offset + 1:
            self._losses.note(what)
            return
        end = Offset(place.last_offset + 1)
        self._losses.add(place.base_offset, end, what)
        self.given_out = max(self.given_out, end)

    def _cut(self, segment: Segment, damage: DamagedSegmentError) -> None:
        """Truncates a torn tail. Whole batches in it, and segments behind it, are set aside."""
        # The segments behind it go first: without this segment's tail, nothing would show that they must be removed.
        self._take_out_from(self._segments.index(segment) + 1)
        position, size = damage.position, segment.size_bytes
        kept = _keep_range(self._opening, segment, position)
        _LOGGER.warning(
            "%s; truncated a torn tail of %d bytes, the log ends at offset %d%s",
            damage,
            size - position,
            self._expected,
            kept,
        )
        segment.cut(position)
        segment.file.sync()

    def _take_out_from(self, at: int) -> None:
        """Removes the segments behind the log's end, the newest first."""
        self._opening.on_loss()
        for segment in reversed(self._segments[at:]):
            _take_out(self._opening, segment, f"behind the log's end, offset {self._expected}")
        del self._segments[at:]
        self._opening.disk.sync_dir(self._opening.folder)
        remove_snapshots_after(self._opening.disk, self._opening.folder, self._expected)


def _end_by_headers(segment: Segment, position: int, first: Offset) -> Offset:
    """Where damaged batches at the end of a log ended according to their headers; each held at least one record."""
    end, place = Offset(first + 1), segment.place_at(position)
    if place is not None:
        end = Offset(first + place.last_offset - place.base_offset + 1)
    while place is not None:
        place = segment.place_at(place.position + place.size_bytes)
        if place is None or place.base_offset != end:
            break
        end = Offset(place.last_offset + 1)
    return end


def _keep_range(opening: Opening, segment: Segment, position: int) -> str:
    """Copies bytes that are about to be truncated, if they may be more than a part of a write; returns where they
    are."""
    size = segment.size_bytes - position
    if _next_batch(segment, position) is None:
        header = segment.file.read_at(position, HEADER_BYTES)
        if not opening.keeps_writes or len(header) < HEADER_BYTES or not any(header):
            return ""
    disk, target = opening.disk, free_aside(opening.disk, f"{segment.log_path}.{position}")
    file = disk.open(target, create=True)
    try:
        for at in range(0, size, PIECE_BYTES):
            file.write_at(at, [segment.file.read_at(position + at, min(PIECE_BYTES, size - at))])
        file.sync()
    finally:
        file.close()
    disk.sync_dir(opening.folder)
    return f"; {_count_records(segment, position)} valid records in it are kept in {target}"


def _take_out(opening: Opening, segment: Segment, why: str) -> None:
    """Removes a segment from the log: its batches are kept under another name, its indexes are deleted."""
    disk, path, size = opening.disk, segment.log_path, segment.size_bytes
    if _next_batch(segment, 0) is not None:
        count = _count_records(segment, 0)
        segment.release()
        kept = set_aside(disk, path)
        _LOGGER.error("%s renamed to %s, with %d bytes and %d valid records: %s", path, kept, size, count, why)
    else:
        _LOGGER.warning("%s deleted, with %d bytes and no valid record: %s", path, size, why)
    segment.release()
    for each in segment.paths():
        disk.remove(each)


def _next_batch(segment: Segment, position: int, lowest: Offset | None = None) -> int | None:
    """The position of the next valid batch at or behind `position`."""
    lowest, below = lowest or segment.base_offset, Offset(segment.base_offset + RELATIVE_OFFSET_MAX)
    return find_batch(segment.file, position, segment.size_bytes, lowest=lowest, below=below)


def _count_records(segment: Segment, start: int) -> int:
    """The number of records in the valid batches from a position on."""
    count, position = 0, start
    while (found := _next_batch(segment, position)) is not None:
        position = found
        try:
            for piece in scan_file(segment.file, position, segment.size_bytes):
                count += sum(batch.count for batch in piece.batches)
                position = piece.end
        except DamagedSegmentError as damage:
            position = damage.position + 1
    return count


def _tidy(disk: Disk, folder: str, start: Offset) -> tuple[list[Offset], list[Offset]]:
    """Deletes files that belong to no segment; returns the base offsets of the segments.

    The second list are the segments that end before `start`: they were being deleted, and some of them may be gone.
    """
    found = [name for name in disk.list_dir(folder) if not disk.is_dir(f"{folder}/{name}")]
    bases = sorted(
        {base for name in found if name.endswith(names.LOG) and (base := names.base_offset_of(name)) is not None}
    )
    snapshots = [
        base for name in found if name.endswith(names.SNAPSHOT) and (base := names.base_offset_of(name)) is not None
    ]
    for name in found:
        base = names.base_offset_of(name)
        orphan = base is not None and base not in bases and name.endswith(names.SEGMENT_SUFFIXES)
        # Each clean shutdown leaves a snapshot at the log's end; only the newest is useful.
        stray = name.endswith(names.SNAPSHOT) and base is not None and base not in bases and base != snapshots[-1]
        if name.endswith(_REMAINS) or orphan or stray:
            _LOGGER.info("%s/%s: deleted, no segment uses it", folder, name)
            disk.remove(f"{folder}/{name}")
    first = max(bisect_right(bases, start) - 1, 0)
    return bases[first:], bases[:first]


def _remove_expired(opening: Opening, expired: list[Offset], start: Offset) -> None:
    """Deletes segments below the log start, completing a deletion that was interrupted."""
    for segment in _opened(opening, expired):
        path, size = segment.log_path, segment.size_bytes
        _LOGGER.warning("%s deleted with %d bytes: it is below the log start, offset %d", path, size, start)
        snapshot = names.segment_path(opening.folder, segment.base_offset, names.SNAPSHOT)
        for path in segment.paths() + ([snapshot] if opening.disk.exists(snapshot) else []):
            opening.disk.remove(path)


def _opened(opening: Opening, bases: list[Offset]) -> list[Segment]:
    return [Segment.open(opening.disk, opening.folder, base, opening.config, opening.now) for base in bases]


def _read_epochs(opening: Opening) -> tuple[EpochHistory, bool]:
    """The leader epochs from the checkpoint, and whether it could be read."""
    try:
        return EpochHistory(read_epochs(opening.disk, f"{opening.folder}/{names.EPOCHS}")), True
    except CorruptError as error:
        _LOGGER.warning("%s", error)
        return EpochHistory(), False


def _start_at(opening: Opening, segments: list[Segment], start: Offset) -> list[Segment]:
    """Removes every segment and continues with an empty one at `start`."""
    opening.on_loss()
    for segment in reversed(segments):
        _take_out(opening, segment, f"the log starts at offset {start} according to {names.LOG_STARTS}, behind its end")
    opening.disk.sync_dir(opening.folder)
    return [Segment.create(opening.disk, opening.folder, start, opening.config, opening.now)]


def _continue_at(opening: Opening, segments: list[Segment], end: Offset, producers: ProducerStates) -> None:
    """Adds an empty segment at `end`, so that the offsets of lost records before it are not assigned again."""
    disk, folder = opening.disk, opening.folder
    segments[-1].seal()
    write_snapshot(disk, folder, end, producers, ended_segment(disk, folder, segments, len(segments) - 1))
    segments.append(Segment.create(disk, folder, end, opening.config, opening.now))
    disk.sync_dir(folder)
    _LOGGER.warning("%s: the log continues at offset %d, after lost records", folder, end)
