"""Checks a leader epoch history against the batches, and rebuilds it from them when it is damaged.

`leader-epoch-checkpoint` has no checksum, and a wrong entry would make a follower keep or truncate the wrong records.
So each time a log is opened, the two batches around each entry are read. The history itself is in `epoch_history.py`.
"""

from bisect import bisect_right
from collections.abc import Sequence

from ottla.model.ids import LeaderEpoch, Offset
from ottla.storage.epoch_history import EpochHistory
from ottla.storage.segments.scanner import DamagedSegmentError
from ottla.storage.segments.segment import Segment


def epochs_agree(epochs: EpochHistory, segments: Sequence[Segment], start_offset: Offset) -> bool:
    """Whether each epoch begins where the history says, and follows an older one.

    The history begins at the log start, even if the segment has older batches of the same epoch.
    """
    for epoch, start in epochs.starts.items():
        before = _epoch_at(segments, Offset(start - 1)) if start > start_offset else None
        behind = _epoch_at(segments, start)
        if (before is not None and before >= epoch) or behind not in (None, epoch):
            return False
    return True


def epochs_of(segments: Sequence[Segment]) -> EpochHistory:
    """The history according to the batch headers, not written yet; damaged batches are left out."""
    epochs = EpochHistory()
    for segment in segments:
        for piece in segment.batches(0, segment.size_bytes, is_lenient=True):
            for batch in piece.batches:
                epochs.assign(batch.leader_epoch, batch.base_offset)
    epochs.dirty = True
    return epochs


def _epoch_at(segments: Sequence[Segment], offset: Offset) -> LeaderEpoch | None:
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
