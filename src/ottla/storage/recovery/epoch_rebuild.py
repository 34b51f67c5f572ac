"""Checks a leader epoch history against the batches, and rebuilds it from them when it is damaged.

`leader-epoch-checkpoint` has no checksum, and a wrong or missing entry would make a follower keep or truncate the wrong
records. So each time a log is opened, the two batches around each entry are read, and the last one. The history itself
is in `epoch_history.py`.

The checksum of a batch does not cover its leader epoch either. Where a single batch contradicts the batches around it,
or a history that was flushed after it, its header is restored (`restore_epoch`): no record is lost for it.
"""

import logging
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from ottla.env.ports import Disk
from ottla.model.ids import LeaderEpoch, Offset
from ottla.records.layout import LEADER_EPOCH_AT
from ottla.storage.epoch_history import EpochHistory
from ottla.storage.segments.scanner import BatchEpoch, DamagedSegmentError
from ottla.storage.segments.segment import Segment

_LOGGER: Final = logging.getLogger(__name__)


def epochs_agree(
    epochs: EpochHistory, segments: Sequence[Segment], start_offset: Offset, last: BatchEpoch | None
) -> bool:
    """Whether each epoch begins where the history says and follows the one before it, up to that of the last batch.

    The history begins at the log start, even if the segment has older batches of the same epoch.
    """
    for epoch, start in epochs.starts.items():
        before = epoch_in(segments, Offset(start - 1)) if start > start_offset else None
        behind = epoch_in(segments, start)
        if before not in (None, epochs.epoch_at(Offset(start - 1))) or behind not in (None, epoch):
            return False
    return last is None or last.base_offset < start_offset or epochs.epoch_at(last.base_offset) == last.epoch


def restore_epoch(disk: Disk, path: str, batch: BatchEpoch, epoch: LeaderEpoch, witness: str) -> None:
    """Writes the right leader epoch into the header of a batch, durably; its checksum does not cover it."""
    file = disk.open(path)
    try:
        file.write_at(batch.position + LEADER_EPOCH_AT, [epoch.to_bytes(4, "big", signed=True)])
        file.sync()
    finally:
        file.close()
    _LOGGER.warning(
        "%s, byte %d: the header of the batch at offset %d had leader epoch %d, but %s; restored leader epoch %d",
        path, batch.position, batch.base_offset, batch.epoch, witness, epoch,
    )  # fmt: skip


def epochs_of(segments: Sequence[Segment]) -> EpochHistory:
    """The history according to the batch headers, not written yet; damaged batches are left out."""
    epochs = EpochHistory()
    for segment in segments:
        for piece in segment.batches(0, segment.size_bytes, is_lenient=True):
            for batch in piece.batches:
                epochs.assign(batch.leader_epoch, batch.base_offset)
    epochs.dirty = True
    return epochs


def epoch_in(segments: Sequence[Segment], offset: Offset) -> LeaderEpoch | None:
    """The epoch of the batch that contains `offset`; None if there is none or it cannot be read."""
    at = bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1
    if at < 0:
        return None
    try:
        place = segments[at].locate(offset)
    except DamagedSegmentError:
        return None
    if place is None or place.base_offset > offset:
        return None
    return segments[at].following(place.position)[1]
