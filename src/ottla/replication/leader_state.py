"""What a leader knows of its replicas, and what follows from it: how far records are replicated, and the ISR. Pure.

    replicated offset = the smallest end offset over the maximal ISR

The high watermark, which `partition_state.py` keeps, follows it and never goes back. Nothing is committed while the
ISR is below the effective min.insync.replicas, or while a replica outside the ISR is eligible to lead, because that
replica has no record above the high watermark: then there is no replicated offset. So every committed record was on
that many replicas, and any of them may become leader.

The ISR is what the cluster has agreed on. The leader proposes a change of it, which counts once it is committed in the
metadata store. Until then a record must reach the maximal ISR: the agreed one and the replicas that are being added.
Whichever of the two turns out to be true, all its members have the record. One proposal is open at a time.

A leader's own end counts only as far as it is safe: where the topic flushes before it acknowledges, that is as far as
the log is flushed. A follower's end is the offset it fetches from, once the fetch has compared its history with the
leader's. `isr_proposals.py` commits the proposals.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ottla.model.ids import BrokerId, LeaderEpoch, Offset
from ottla.model.invariants import violated

UNKNOWN_OFFSET: Final = Offset(-1)
"""The end of a follower that has not fetched from this leader yet."""
FIRST_OFFSET: Final = Offset(0)


class Replica:
    """A follower, as its fetches show it; times are the monotonic clock's seconds."""

    __slots__ = ("broker_epoch", "caught_up_at", "end_offset", "fetched_at", "leader_end", "start_offset")

    def __init__(self, now: float) -> None:
        self.end_offset = UNKNOWN_OFFSET
        self.start_offset = UNKNOWN_OFFSET
        self.broker_epoch = -1
        """Of the last fetch: only the broker in that epoch may be added to the ISR."""
        self.caught_up_at = now
        """When it last had all that the leader had. A new leader assumes that all followers have caught up."""
        self.fetched_at = now
        self.leader_end = UNKNOWN_OFFSET
        """The leader's end at the last fetch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrProposal:
    """The ISR that the leader asks the cluster to agree on, in the order of the replicas."""

    isr: tuple[BrokerId, ...]
    added: tuple[tuple[BrokerId, int], ...] = ()
    """New members, each with the broker epoch in which it caught up."""
    removed: tuple[BrokerId, ...] = ()


class LeaderState:
    """The leader of one partition. `isr` always contains the leader.

    `epoch_start` is the log's end when this leader began: a follower that ends before it may lack records that an
    earlier leader committed.
    """

    __slots__ = (
        "_me",
        "eligible",
        "epoch_start",
        "followers",
        "isr",
        "leader_epoch",
        "local_end",
        "proposal",
        "replicas",
    )

    def __init__(
        self,
        me: BrokerId,
        *,
        replicas: Iterable[BrokerId],
        isr: Iterable[BrokerId],
        leader_epoch: LeaderEpoch,
        eligible: Iterable[BrokerId] = (),
        epoch_start: Offset = FIRST_OFFSET,
        now: float = 0.0,
    ) -> None:
        self._me = me
        self.replicas = tuple(replicas)
        self.isr = frozenset(isr)
        self.eligible = frozenset(eligible)
        self.leader_epoch = leader_epoch
        self.epoch_start = epoch_start
        self.local_end = Offset(0)
        self.followers: dict[BrokerId, Replica] = {each: Replica(now) for each in self.replicas if each != me}
        self.proposal: IsrProposal | None = None
        """The proposal that is open."""
        self.check()

    # Events

    def on_local_end(self, end_offset: Offset) -> None:
        """The leader's own log is safe up to here. Flushes may report late, so an earlier end changes nothing."""
        if end_offset > self.local_end:
            self.local_end = end_offset

    def on_follower_fetch(
        self,
        broker: BrokerId,
        *,
        offset: Offset,
        start_offset: Offset,
        broker_epoch: int,
        leader_end: Offset,
        now: float,
    ) -> None:
        """A follower whose history agrees with the leader's fetches from an offset: it has all records below it.

        `leader_end` is the end of the leader's log, safe or not. Fetches of brokers that are not replicas do not count.
        """
        follower = self.followers.get(broker)
        if follower is None:
            return
        if offset >= leader_end:
            follower.caught_up_at = now
        elif follower.leader_end != UNKNOWN_OFFSET and offset >= follower.leader_end:
            # It has all that there was at its last fetch. While records keep coming, no follower has everything.
            follower.caught_up_at = max(follower.caught_up_at, follower.fetched_at)
        follower.fetched_at = now
        follower.leader_end = leader_end
        # It may go back: a follower that lost its disk starts again, and must not count for what it had.
        follower.end_offset = offset
        follower.start_offset = start_offset
        follower.broker_epoch = broker_epoch

    def on_isr(
        self,
        isr: Iterable[BrokerId],
        leader_epoch: LeaderEpoch,
        replicas: Iterable[BrokerId] | None = None,
        *,
        eligible: Iterable[BrokerId] = (),
        now: float = 0.0,
    ) -> None:
        """The cluster agreed on another ISR or other replicas. This settles the open proposal."""
        if replicas is not None:
            self.replicas = tuple(replicas)
            self.followers = {
                each: self.followers.get(each) or Replica(now) for each in self.replicas if each != self._me
            }
        self.isr = frozenset(isr)
        self.eligible = frozenset(eligible)
        self.leader_epoch = max(self.leader_epoch, leader_epoch)
        self.proposal = None
        self.check()

    def on_refused(self, proposal: IsrProposal) -> None:
        """The cluster did not agree and never will: the partition's record has changed."""
        if self.proposal is proposal:
            self.proposal = None

    # Decisions

    def propose(
        self,
        now: float,
        lag_seconds_max: float,
        alive: dict[BrokerId, int],
        *,
        high_watermark: Offset,
        min_isr: int,
    ) -> IsrProposal | None:
        """The change of the ISR that is due, and marks it as open; None while another proposal is.

        `alive` has the broker epoch of every registered broker. A follower leaves if it has not caught up for too long,
        unless it has all there is. A follower that has caught up comes in, if it is registered in the epoch in which it
        caught up. The same ISR is proposed if it is large enough while replicas outside are eligible, so that they no
        longer are.
        """
        if self.proposal is not None or not self.followers:
            return None
        removed = tuple(
            broker
            for broker, follower in self.followers.items()
            if broker in self.isr and self._is_late(follower, now, lag_seconds_max)
        )
        added = tuple(
            (broker, follower.broker_epoch)
            for broker, follower in self.followers.items()
            if broker not in self.isr
            and alive.get(broker) == follower.broker_epoch
            and self._is_in_sync(follower, high_watermark)
            and not self._is_late(follower, now, lag_seconds_max)
        )
        if not removed and not added and not (self.eligible and len(self.isr) >= min_isr):
            return None
        members = (self.isr - set(removed)) | {broker for broker, _ in added}
        self.proposal = IsrProposal(
            isr=tuple(broker for broker in self.replicas if broker in members), added=added, removed=removed
        )
        return self.proposal

    def replicated_offset(self, min_isr: int) -> Offset:
        """The offset below which the maximal ISR has all records; UNKNOWN_OFFSET while nothing may be committed."""
        if self.eligible or len(self.isr) < min_isr:
            return UNKNOWN_OFFSET
        if len(self.isr) == 1 and self.proposal is None:
            return self.local_end
        return min(
            self.local_end,
            *(self.followers[each].end_offset for each in self.maximal_isr if each != self._me),
        )

    @property
    def maximal_isr(self) -> frozenset[BrokerId]:
        """The ISR, and the replicas that the open proposal adds."""
        if self.proposal is None or not self.proposal.added:
            return self.isr
        return self.isr | {broker for broker, _ in self.proposal.added}

    def low_watermark(self, local_start: Offset, alive: Iterable[BrokerId]) -> Offset:
        """The smallest start offset of the live replicas: all of them have deleted the records below it."""
        starts = [self.followers[each].start_offset for each in alive if each in self.followers]
        return min([local_start, *starts])

    @property
    def start_in_isr(self) -> Offset:
        """The largest start offset of the followers in the ISR; UNKNOWN_OFFSET before they have fetched."""
        starts = (self.followers[each].start_offset for each in self.isr if each in self.followers)
        return max(starts, default=UNKNOWN_OFFSET)

    def _is_in_sync(self, follower: Replica, high_watermark: Offset) -> bool:
        return follower.end_offset >= high_watermark and follower.end_offset >= self.epoch_start

    def _is_late(self, follower: Replica, now: float, lag_seconds_max: float) -> bool:
        return follower.end_offset < self.local_end and now - follower.caught_up_at > lag_seconds_max

    def check(self) -> None:
        """Raises InvariantViolation if the ISR is impossible."""
        if self._me not in self.isr:
            violated(f"leader {self._me} is not in its ISR {sorted(self.isr)}")
        if not self.isr <= set(self.replicas):
            violated(f"ISR {sorted(self.isr)} has brokers that are not replicas, {sorted(self.replicas)}")
