"""What a follower makes of its leader's answers: where to cut its log, what to append, when to ask again. Pure.

A follower asks from its own end, and says in which leader epoch its last record was written. A leader whose history
differs answers, instead of records, the largest epoch up to that one which it knows, and where that ended. The
follower cuts there, or where its own records of that epoch end, and asks again: each round takes at least one epoch of
its own away, so that both agree in the end. The high watermark has no say in it; it may be older than the truth, and
to cut by it is what loses committed records.

    asks with (end_offset, latest epoch) --> records         appended, then the leader's high watermark and start
                                         --> diverging       cut, ask again
                                         --> out of range    behind the leader's start: begin anew there;
                                                             beyond its end: cut to it
                                         --> other errors    wait, ask again; a fenced one waits for the next image

`replica_fetcher.py` is the shell.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple

from ottla.model.error_codes import ErrorCode
from ottla.model.ids import NO_OFFSET, BrokerId, LeaderEpoch, Offset
from ottla.protocol.replica_fetch_frames import Answer


class Patience(Enum):
    """What a follower waits for before it asks again."""

    NOTHING = auto()
    A_WHILE = auto()
    """The leader is not ready, or does not know yet what this broker knows."""
    NEWS = auto()
    """The cluster has moved on: the next image says whom to ask."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """The follower's log as it is now. `end_of` is its epoch history: the largest epoch up to one, and its end."""

    start_offset: Offset
    end_offset: Offset
    end_of: Callable[[LeaderEpoch], tuple[LeaderEpoch, Offset]]


class TruncateTo(NamedTuple):
    """Remove what lies at and above an offset."""

    offset: Offset


class BeginAnew(NamedTuple):
    """Remove everything; the next record comes at this offset."""

    offset: Offset


class AppendRecords(NamedTuple):
    """Append the records of this answer."""


class FollowBounds(NamedTuple):
    """Take over the leader's high watermark, as far as the log goes, and its start."""

    high_watermark: Offset
    start_offset: Offset


Effect = TruncateTo | BeginAnew | AppendRecords | FollowBounds


class Reaction(NamedTuple):
    """The effects, in order, and how long to wait before asking again."""

    effects: tuple[Effect, ...]
    patience: Patience = Patience.NOTHING


_PATIENCE: Final = {
    ErrorCode.FENCED_LEADER_EPOCH: Patience.NEWS,
    ErrorCode.INCONSISTENT_TOPIC_ID: Patience.NEWS,
}
"""Errors that no asking again mends. All others are waited out: who asks too early, or in a bad moment."""


class FollowerState:
    """One partition's follower: whom it follows, in which epoch."""

    __slots__ = ("leader", "leader_epoch")

    def __init__(self, leader: BrokerId, leader_epoch: LeaderEpoch) -> None:
        self.leader = leader
        self.leader_epoch = leader_epoch

    def on_answer(self, answer: Answer, copy: Copy) -> Reaction:
        """What to do about an answer to a fetch that was asked with this copy as it is."""
        if answer.error == ErrorCode.OFFSET_OUT_OF_RANGE:
            return self._on_out_of_range(answer, copy)
        if answer.error:
            return Reaction((), _PATIENCE.get(answer.error, Patience.A_WHILE))
        if answer.diverging is not None:
            return self._on_diverging(*answer.diverging, copy)
        bounds = FollowBounds(answer.high_watermark, answer.start_offset)
        return Reaction((AppendRecords(), bounds) if answer.has_records else (bounds,))

    def _on_diverging(self, epoch: LeaderEpoch, end_offset: Offset, copy: Copy) -> Reaction:
        own_epoch, own_end = copy.end_of(epoch)
        if own_end == NO_OFFSET:
            # It has nothing as old as what the leader has in common with it.
            return Reaction((BeginAnew(copy.start_offset),))
        cut = min(own_end, end_offset) if own_epoch == epoch else own_end
        if cut >= copy.end_offset:
            # Nothing would change, and the same question would get the same answer.
            return Reaction((), Patience.A_WHILE)
        return Reaction((TruncateTo(cut),))

    def _on_out_of_range(self, answer: Answer, copy: Copy) -> Reaction:
        if answer.start_offset > copy.end_offset:
            return Reaction((BeginAnew(answer.start_offset),))
        if NO_OFFSET < answer.end_offset < copy.end_offset:
            return Reaction((TruncateTo(answer.end_offset),))
        return Reaction((), Patience.A_WHILE)
