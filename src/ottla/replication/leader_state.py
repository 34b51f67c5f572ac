"""What a leader knows of its replicas, and what follows from it: the high watermark and the ISR. Pure.

    high watermark = the smallest end offset over the maximal ISR; it never goes back

It stays where it is while the ISR has fewer members than the effective min.insync.replicas, and while a replica outside
of it is eligible to lead, which has nothing beyond it. So what is committed was on that many replicas, and any of them
may be asked for it.

The ISR is what the cluster has agreed on. A change of it is proposed by the leader and counts once it is committed in
the metadata store; until then the maximal ISR, the agreed one with those who are being added, is what a record has to
reach: whichever of the two turns out to be true, it is on all of them. One proposal is under way at a time.

A leader's own end counts only as far as it is safe: where the topic flushes before it acknowledges, that is as far as
the disk has it. A follower's end is where it fetches, and counts only once its history was held against the leader's,
which the fetch itself does. Committing proposals is the broker's duty.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ottla.model.ids import BrokerId, LeaderEpoch, Offset
from ottla.model.invariants import violated
from ottla.model.min_isr import effective_min_isr

UNKNOWN_OFFSET: Final = Offset(-1)
"""Of a follower that has not fetched from this leader yet."""
FIRST_OFFSET: Final = Offset(0)


class Replica:
    """A follower, as its fetches show it; times are the monotonic clock's seconds."""

    __slots__ = ("broker_epoch", "caught_up_at", "end_offset", "fetched_at", "leader_end", "start_offset")

    def __init__(self, now: float) -> None:
        self.end_offset = UNKNOWN_OFFSET
        self.start_offset = UNKNOWN_OFFSET
        self.broker_epoch = -1
        """Which life of the broker fetched last: only that one may be added to the ISR."""
        self.caught_up_at = now
        """When it last had all that the leader had. A new leader gives everybody the benefit of the doubt."""
        self.fetched_at = now
        self.leader_end = UNKNOWN_OFFSET
        """The leader's end when it fetched last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrProposal:
    """The ISR that the leader asks the cluster to agree on, sorted as the replicas are."""

    isr: tuple[BrokerId, ...]
    added: tuple[tuple[BrokerId, int], ...] = ()
    """Those who come in, each with its broker epoch: it must be the same life that caught up."""
    removed: tuple[BrokerId, ...] = ()


class LeaderState:
    """One partition's leader; see the module's docstring. `isr` is never empty and has the leader.

    `epoch_start` is the log's end when this leader began: who is behind it may lack what an earlier one committed.
    """

    __slots__ = (
        "_me",
        "eligible",
        "epoch_start",
        "followers",
        "high_watermark",
        "isr",
        "leader_epoch",
        "local_end",
        "min_in_sync",
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
        high_watermark: Offset,
        min_in_sync: int = 1,
        eligible: Iterable[BrokerId] = (),
        epoch_start: Offset = FIRST_OFFSET,
        now: float = 0.0,
    ) -> None:
        self._me = me
        self.replicas = tuple(replicas)
        self.isr = frozenset(isr)
        self.eligible = frozenset(eligible)
        self.leader_epoch = leader_epoch
        self.high_watermark = high_watermark
        self.min_in_sync = min_in_sync
        self.epoch_start = epoch_start
        self.local_end = Offset(0)
        self.followers: dict[BrokerId, Replica] = {each: Replica(now) for each in self.replicas if each != me}
        self.proposal: IsrProposal | None = None
        """What the cluster has been asked and has not answered."""
        self.check()

    # Events

    def on_local_end(self, end_offset: Offset) -> Offset:
        """The leader's own log is safe up to here; answers the high watermark that follows.

        An earlier end than one that is known says nothing: flushes may report late.
        """
        if end_offset > self.local_end:
            self.local_end = end_offset
        return self._advance()

    def on_follower_fetch(
        self,
        broker: BrokerId,
        *,
        offset: Offset,
        start_offset: Offset,
        broker_epoch: int,
        leader_end: Offset,
        now: float,
    ) -> Offset:
        """A follower whose history agrees with the leader's fetches from an offset, and so has all below it.

        Answers the high watermark that follows. `leader_end` is the log's end now, safe or not.
        """
        follower = self.followers.get(broker)
        if follower is None:
            return self.high_watermark
        if offset >= leader_end:
            follower.caught_up_at = now
        elif follower.leader_end != UNKNOWN_OFFSET and offset >= follower.leader_end:
            # It has what there was at its last fetch: with records coming all the time nobody has everything.
            follower.caught_up_at = max(follower.caught_up_at, follower.fetched_at)
        follower.fetched_at = now
        follower.leader_end = leader_end
        # It may have gone back: a follower that lost its disk begins anew, and must not count for what it had.
        follower.end_offset = offset
        follower.start_offset = start_offset
        follower.broker_epoch = broker_epoch
        return self._advance()

    def on_isr(
        self,
        isr: Iterable[BrokerId],
        leader_epoch: LeaderEpoch,
        replicas: Iterable[BrokerId] | None = None,
        *,
        eligible: Iterable[BrokerId] = (),
        now: float = 0.0,
    ) -> Offset:
        """The cluster agreed on another ISR or other replicas; answers the high watermark.

        Whatever had been proposed is settled by it: an answer that comes later is about the past.
        """
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
        return self._advance()

    def on_min_in_sync(self, count: int) -> Offset:
        """The topic asks for another number of replicas in sync; answers the high watermark."""
        self.min_in_sync = count
        return self._advance()

    def on_refused(self, proposal: IsrProposal) -> Offset:
        """The cluster did not agree, and never will: the state was another one. Answers the high watermark."""
        if self.proposal is proposal:
            self.proposal = None
        return self._advance()

    # Decisions

    def propose(self, now: float, lag_seconds_max: float, alive: dict[BrokerId, int]) -> IsrProposal | None:
        """The change of the ISR that is due, if any, and marks it as under way; None while another one is.

        `alive` has the broker epoch of everybody who is registered. Who has not caught up for too long goes, unless it
        has all there is; who has caught up comes in, if it is alive and still the broker that caught up. The same ISR
        is proposed where it is large enough and yet somebody outside is eligible, who would not be any more.
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
            and self._is_in_sync(follower)
            and not self._is_late(follower, now, lag_seconds_max)
        )
        if not removed and not added and not (self.eligible and self._is_enough()):
            return None
        members = (self.isr - set(removed)) | {broker for broker, _ in added}
        self.proposal = IsrProposal(
            isr=tuple(broker for broker in self.replicas if broker in members), added=added, removed=removed
        )
        return self.proposal

    @property
    def maximal_isr(self) -> frozenset[BrokerId]:
        """Everybody who is in the ISR, or will be if what is under way succeeds."""
        if self.proposal is None or not self.proposal.added:
            return self.isr
        return self.isr | {broker for broker, _ in self.proposal.added}

    def low_watermark(self, local_start: Offset, alive: Iterable[BrokerId]) -> Offset:
        """The smallest start offset of the replicas that live: what lies below is gone from all of them."""
        starts = [self.followers[each].start_offset for each in alive if each in self.followers]
        return min([local_start, *starts])

    @property
    def effective_min_isr(self) -> int:
        """How many replicas must be in sync before anything is committed."""
        return effective_min_isr(self.min_in_sync, len(self.replicas))

    def _is_enough(self) -> bool:
        return len(self.isr) >= self.effective_min_isr

    def _is_in_sync(self, follower: Replica) -> bool:
        return follower.end_offset >= self.high_watermark and follower.end_offset >= self.epoch_start

    def _is_late(self, follower: Replica, now: float, lag_seconds_max: float) -> bool:
        return follower.end_offset < self.local_end and now - follower.caught_up_at > lag_seconds_max

    def _advance(self) -> Offset:
        if self.eligible or not self._is_enough():
            return self.high_watermark
        if len(self.isr) == 1 and self.proposal is None:
            smallest = self.local_end
        else:
            smallest = min(
                self.local_end,
                *(self.followers[each].end_offset for each in self.maximal_isr if each != self._me),
            )
        self.high_watermark = max(self.high_watermark, smallest)
        return self.high_watermark

    def check(self) -> None:
        """Raises if it is not in a state that it may be in."""
        if self._me not in self.isr:
            violated(f"leader {self._me} is not in its ISR {sorted(self.isr)}")
        if not self.isr <= set(self.replicas):
            violated(f"ISR {sorted(self.isr)} has brokers that are not replicas, {sorted(self.replicas)}")
