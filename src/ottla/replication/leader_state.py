"""What a leader knows of its replicas, and the high watermark that follows from it. Pure.

    high watermark = the smallest end offset in the ISR; it never goes back

A leader's own end counts only as far as it is safe: where the topic flushes before it acknowledges, that is as far as
the disk has it. With one replica the high watermark is that own end.
"""

from collections.abc import Iterable

from ottla.model.ids import BrokerId, LeaderEpoch, Offset
from ottla.model.invariants import violated


class LeaderState:
    """One partition's leader. `ends` has every replica's safe end offset; `isr` is never empty and has the leader."""

    __slots__ = ("_me", "ends", "high_watermark", "isr", "leader_epoch")

    def __init__(
        self,
        me: BrokerId,
        *,
        replicas: Iterable[BrokerId],
        isr: Iterable[BrokerId],
        leader_epoch: LeaderEpoch,
        high_watermark: Offset,
    ) -> None:
        self._me = me
        self.isr = frozenset(isr)
        self.leader_epoch = leader_epoch
        self.high_watermark = high_watermark
        self.ends: dict[BrokerId, Offset] = dict.fromkeys(replicas, Offset(0))
        self.check()

    def on_local_end(self, end_offset: Offset) -> Offset:
        """The leader's own log is safe up to here; answers the high watermark that follows.

        An earlier end than one that is known says nothing: flushes may report late.
        """
        if end_offset > self.ends[self._me]:
            self.ends[self._me] = end_offset
        return self._advance()

    def on_isr(self, isr: Iterable[BrokerId], leader_epoch: LeaderEpoch) -> Offset:
        """The cluster agreed on another ISR, or made this broker leader again; answers the high watermark."""
        self.isr = frozenset(isr)
        self.leader_epoch = max(self.leader_epoch, leader_epoch)
        self.check()
        return self._advance()

    def _advance(self) -> Offset:
        smallest = self.ends[self._me] if len(self.isr) == 1 else min(self.ends[replica] for replica in self.isr)
        self.high_watermark = max(self.high_watermark, smallest)
        return self.high_watermark

    def check(self) -> None:
        """Raises if it is not in a state that it may be in."""
        if self._me not in self.isr:
            violated(f"leader {self._me} is not in its ISR {sorted(self.isr)}")
        if not self.isr <= self.ends.keys():
            violated(f"ISR {sorted(self.isr)} has brokers that are not replicas, {sorted(self.ends)}")
