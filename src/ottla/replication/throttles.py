"""Which partitions' replication is throttled on this broker, and at which rate, as the configs say.

The rates are dynamic configs of brokers (`leader.` and `follower.replication.throttled.rate`), the partitions are
configs of topics (`….throttled.replicas`). `throttle.py` counts the bytes.
"""

from collections.abc import Callable
from enum import StrEnum

from ottla.env.ports import Clock
from ottla.model.ids import BrokerId
from ottla.replication.partition import Partition
from ottla.replication.throttle import Throttle, is_named


class ThrottledSide(StrEnum):
    """Which side of replication a throttle is for."""

    LEADER = "leader"
    FOLLOWER = "follower"


class ReplicationThrottles:
    """One throttle for all bytes that this broker sends to followers, one for all that it fetches from leaders.

    `rate_of` is the configured rate of a side in bytes per second, None without one; `replicas_of` the throttled
    replicas of a topic.
    """

    def __init__(
        self,
        me: BrokerId,
        clock: Clock,
        rate_of: Callable[[ThrottledSide], int | None],
        replicas_of: Callable[[ThrottledSide, str], tuple[str, ...]],
    ) -> None:
        self._me = me
        self._clock = clock
        self._rate_of = rate_of
        self._replicas_of = replicas_of
        self._throttles: dict[ThrottledSide, Throttle] = {}

    def of_leader(self, partition: Partition) -> Throttle | None:
        """The throttle of the followers of a partition that is led here; mostly None."""
        return self._throttle(ThrottledSide.LEADER, partition)

    def of_follower(self, partition: Partition) -> Throttle | None:
        """The throttle of a partition that is followed here; mostly None."""
        return self._throttle(ThrottledSide.FOLLOWER, partition)

    def _throttle(self, side: ThrottledSide, partition: Partition) -> Throttle | None:
        rate = self._rate_of(side)
        if rate is None or not is_named(self._replicas_of(side, partition.topic), partition.index, self._me):
            return None
        known = self._throttles.get(side)
        if known is None or known.bytes_per_second != rate:
            known = self._throttles[side] = Throttle(rate, self._clock.monotonic())
        return known
