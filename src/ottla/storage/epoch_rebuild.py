"""A leader epoch history held against the batches it speaks of, and built anew from them when it is damaged.

Its file has no checksum, and a wrong entry would make a follower keep or cut the wrong records, so every opening looks
at the two batches around each entry. The history itself is in `epoch_history.py`.
"""

from bisect import bisect_right
from collections.abc import Sequence

from ottla.model.ids import LeaderEpoch, Offset
from ottla.storage.epoch_history import EpochHistory
from ottla.storage.scanner import DamagedSegmentError
from ottla.storage.segment import Segment


def epochs_agree(epochs: EpochHistory, segments: Sequence[Segment]) -> bool:
    """Whether each epoch begins where the history says, with an older one before it."""
    for epoch, start in epochs.starts.items():
        before, behind = _epoch_at(segments, Offset(start - 1)), _epoch_at(segments, start)
        if (before is not None and before >= epoch) or behind not in (None, epoch):
            return False
    return True


def epochs_of(segments: Sequence[Segment]) -> EpochHistory:
    """The history as the batches tell it, yet to be written; damaged batches are left out."""
    epochs = EpochHistory()
    for segment in segments:
        for piece in segment.batches(0, segment.size_bytes, is_lenient=True):
            for batch in piece.batches:
                epochs.assign(batch.leader_epoch, batch.base_offset)
    epochs.dirty = True
    return epochs


def _epoch_at(segments: Sequence[Segment], offset: Offset) -> LeaderEpoch | None:
    """The epoch of the batch that holds `offset`; None if there is none, or it cannot be read."""
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
