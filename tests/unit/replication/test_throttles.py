"""Which partitions are throttled on a broker, by the configs."""

from ottla.replication.throttles import ReplicationThrottles, ThrottledSide
from ottla.sim.clock import SimClock
from tests.unit.replication.rig import ME, PartitionRig


async def test_a_throttle_needs_a_rate_and_a_topic_that_names_the_replica() -> None:
    partition = (await PartitionRig.make()).partition
    rates: dict[ThrottledSide, int] = {}
    named: dict[tuple[ThrottledSide, str], tuple[str, ...]] = {}
    throttles = ReplicationThrottles(ME, SimClock(), rates.get, lambda side, topic: named.get((side, topic), ()))
    named[ThrottledSide.LEADER, "t"] = (f"0:{ME}",)
    named[ThrottledSide.FOLLOWER, "t"] = (f"1:{ME}", "0:77")
    assert (None, None) == (throttles.of_leader(partition), throttles.of_follower(partition))
    rates.update({ThrottledSide.LEADER: 10, ThrottledSide.FOLLOWER: 20})
    throttle = throttles.of_leader(partition)
    assert throttle is not None
    assert (10, None) == (throttle.bytes_per_second, throttles.of_follower(partition))
    assert throttle is throttles.of_leader(partition), "one for all partitions and answers"
    named[ThrottledSide.FOLLOWER, "t"] = ("*",)
    other = throttles.of_follower(partition)
    assert other is not None
    assert 20 == other.bytes_per_second
    rates[ThrottledSide.LEADER] = 11
    changed = throttles.of_leader(partition)
    assert changed is not None
    assert 11 == changed.bytes_per_second
