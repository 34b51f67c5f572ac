"""A consumer that begins after a record expired does not get it."""

import pytest

from ottla.sim.clock import START_MS
from ottla.sim.simulated_world import SimulatedWorld
from ottla.sim.workloads.expiring import check_unexpired

BEGAN_AT = 10.0
BEGAN_MS = START_MS + 10_000


@pytest.mark.parametrize(
    ("behind_ms", "expiry_ms", "violations"),
    [
        (0, BEGAN_MS + 1, []),
        (0, BEGAN_MS, ["expired records are not seen: a expired 0 ms before browser began to read"]),
        (500, BEGAN_MS - 499, []),
        (500, BEGAN_MS - 700, ["expired records are not seen: a expired 200 ms before browser began to read"]),
    ],
)
def test_a_record_that_some_broker_may_hold_for_unexpired(
    behind_ms: int, expiry_ms: int, violations: list[str], world: SimulatedWorld
) -> None:
    world.loop.now = BEGAN_AT
    world.machines[1].clock.jump(-behind_ms)
    world.history.queues.expiry_ms[b"a"] = expiry_ms
    check_unexpired(world, b"a", BEGAN_AT, "browser")
    assert violations == world.history.violations
