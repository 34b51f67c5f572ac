"""How a follower reacts to its leader's answers: where to truncate its log, what to append, when to fetch again. Pure.

A follower fetches from its own end, and names the leader epoch of its last record. If its own history
differs, the leader returns no records, but the largest epoch in its log that is not above that one, and the offset
where that epoch ended. The follower truncates there, or where its own records of that epoch end, and fetches again.
Each round removes at least one epoch of its own, so both agree in the end. The high watermark is not used for this: it
may be outdated, and truncating to it would lose committed records.

    fetches with (end_offset, latest epoch) --> records         appended; then the leader's high watermark and start
                                            --> diverging       truncate, fetch again
                                            --> out of range    behind the leader's start: remove all, start there;
                                                                beyond its end: truncate to it
                                            --> other errors    fetch again later; a fenced epoch waits for metadata

`replica_copy.py` does it to the log, `replica_fetcher.py` fetches.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple

from ottla.model.error_codes import ErrorCode
from ottla.model.ids import NO_OFFSET, BrokerId, LeaderEpoch, Offset
from ottla.protocol.replica_fetch_frames import PartitionAnswer


class NextFetch(Enum):
    """When a follower fetches again."""

    AT_ONCE = auto()
    AFTER_BACKOFF = auto()
    """The leader is not ready, or does not know yet what this broker knows."""
    AFTER_METADATA_CHANGE = auto()
    """This broker's metadata is old: the next image says which broker leads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """The follower's log as it is now. `end_of` is its epoch history: the largest epoch up to one, and its end."""

    start_offset: Offset
    end_offset: Offset
    end_of: Callable[[LeaderEpoch], tuple[LeaderEpoch, Offset]]


class TruncateTo(NamedTuple):
    """Remove the records at and above an offset."""

    offset: Offset


class TruncateFully(NamedTuple):
    """Remove all records; the next record gets this offset."""

    offset: Offset


class AppendRecords(NamedTuple):
    """Append the records of this answer."""


class FollowBounds(NamedTuple):
    """Take over the leader's high watermark, as far as the log goes, and its start."""

    high_watermark: Offset
    start_offset: Offset


CopyEffect = TruncateTo | TruncateFully | AppendRecords | FollowBounds


class Reaction(NamedTuple):
    """The effects, in order, and when to fetch again."""

    effects: tuple[CopyEffect, ...]
    next_fetch: NextFetch = NextFetch.AT_ONCE


_NEXT_FETCH: Final = {
    ErrorCode.FENCED_LEADER_EPOCH: NextFetch.AFTER_METADATA_CHANGE,
    ErrorCode.INCONSISTENT_TOPIC_ID: NextFetch.AFTER_METADATA_CHANGE,
}
"""Errors that a retry does not resolve. After all others the follower fetches again later."""


class FollowerState:
    """One partition's follower: its leader, and in which epoch."""

    __slots__ = ("leader", "leader_epoch")

    def __init__(self, leader: BrokerId, leader_epoch: LeaderEpoch) -> None:
        self.leader = leader
        self.leader_epoch = leader_epoch

    def on_answer(self, answer: PartitionAnswer, copy: Copy) -> Reaction:
        """What to do about the answer to a fetch, which was sent with this copy as it is."""
        if answer.error == ErrorCode.OFFSET_OUT_OF_RANGE:
            return self._on_out_of_range(answer, copy)
        if answer.error:
            return Reaction((), _NEXT_FETCH.get(answer.error, NextFetch.AFTER_BACKOFF))
        if answer.diverging is not None:
            return self._on_diverging(*answer.diverging, copy)
        bounds = FollowBounds(answer.high_watermark, answer.start_offset)
        return Reaction((AppendRecords(), bounds) if answer.has_records else (bounds,))

    def _on_diverging(self, epoch: LeaderEpoch, end_offset: Offset, copy: Copy) -> Reaction:
        own_epoch, own_end = copy.end_of(epoch)
        if own_end == NO_OFFSET:
            # All its records are newer than what the leader has in common with it.
            return Reaction((TruncateFully(copy.start_offset),))
        cut = min(own_end, end_offset) if own_epoch == epoch else own_end
        if cut >= copy.end_offset:
            # Nothing would change, and the same fetch would get the same answer.
            return Reaction((), NextFetch.AFTER_BACKOFF)
        return Reaction((TruncateTo(cut),))

    def _on_out_of_range(self, answer: PartitionAnswer, copy: Copy) -> Reaction:
        if answer.start_offset > copy.end_offset:
            return Reaction((TruncateFully(answer.start_offset),))
        if NO_OFFSET < answer.end_offset < copy.end_offset:
            return Reaction((TruncateTo(answer.end_offset),))
        return Reaction((), NextFetch.AFTER_BACKOFF)
