"""The leader epochs of a log: which epoch began at which offset. Truncation by epoch relies on it.

Pure: the log decides when the history is written (`leader-epoch-checkpoint`, before the recovery point passes).
"""

from collections.abc import Mapping

from ottla.model.ids import NO_LEADER_EPOCH, NO_OFFSET, LeaderEpoch, Offset


class EpochHistory:
    """Entries (epoch, start offset); both only increase."""

    __slots__ = ("_starts", "dirty", "latest")

    def __init__(self, starts: Mapping[LeaderEpoch, Offset] | None = None) -> None:
        self._starts: dict[LeaderEpoch, Offset] = dict(starts or {})
        self.latest = _newest(self._starts)
        """The newest epoch; -1 if there is none."""
        self.dirty = False
        """Whether there are changes to write."""

    @property
    def starts(self) -> dict[LeaderEpoch, Offset]:
        """A copy of the entries, in order."""
        return dict(self._starts)

    def assign(self, epoch: LeaderEpoch, start: Offset) -> None:
        """A batch of `epoch` is at `start`; removes entries of a truncated past that contradict this.

        An epoch that is known to begin earlier keeps its start.
        """
        if epoch < 0 or (epoch == self.latest and self._starts[epoch] <= start):
            return
        kept = {known: begin for known, begin in self._starts.items() if known <= epoch and begin < start}
        kept.setdefault(epoch, start)
        self._replace(kept)

    def end_offset_for(self, epoch: LeaderEpoch, end_offset: Offset) -> tuple[LeaderEpoch, Offset]:
        """The largest epoch up to `epoch`, and where it ended.

        An epoch before the first known one ended where that one began; an epoch after the last one is unknown: (-1,
        -1).
        """
        if epoch < 0:
            return NO_LEADER_EPOCH, NO_OFFSET
        if epoch == self.latest:
            return epoch, end_offset
        floor = epoch
        for known, start in self._starts.items():
            if known > epoch:
                return floor, start
            floor = known
        return NO_LEADER_EPOCH, NO_OFFSET

    def epoch_at(self, offset: Offset) -> LeaderEpoch:
        """The epoch that `offset` was written in; -1 if unknown."""
        found = NO_LEADER_EPOCH
        for epoch, start in self._starts.items():
            if start > offset:
                break
            found = epoch
        return found

    def truncate_from_end(self, end_offset: Offset) -> None:
        """Forgets the epochs that begin at or beyond the log's new end."""
        kept = {epoch: start for epoch, start in self._starts.items() if start < end_offset}
        self._replace(kept)

    def truncate_from_start(self, start_offset: Offset) -> None:
        """Forgets the epochs that ended before the new log start; the epoch that contains it now begins there."""
        holder = self.epoch_at(start_offset)
        self._replace({epoch: max(start, start_offset) for epoch, start in self._starts.items() if epoch >= holder})

    def clear(self) -> None:
        """Forgets everything."""
        self._replace({})

    def _replace(self, starts: dict[LeaderEpoch, Offset]) -> None:
        if starts != self._starts:
            self._starts = starts
            self.latest = _newest(starts)
            self.dirty = True


def _newest(starts: dict[LeaderEpoch, Offset]) -> LeaderEpoch:
    return next(reversed(starts), NO_LEADER_EPOCH)
