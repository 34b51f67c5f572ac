"""The clock that is moved by hand, and the randomness that repeats itself."""

import asyncio

import pytest

from ottla.env.ports import Clock, Random
from ottla.sim.clock import START_MS, SimClock
from ottla.sim.random import SimRandom


class TestClock:
    def test_it_stands_still_until_it_is_moved(self) -> None:
        clock = SimClock()
        port: Clock = clock
        assert (START_MS, 0.0) == (port.now_ms(), port.monotonic())
        clock.advance(1.5)
        assert (START_MS + 1500, 1.5) == (port.now_ms(), port.monotonic())
        clock.jump(-3000)
        assert (START_MS - 1500, 1.5) == (port.now_ms(), port.monotonic())
        with pytest.raises(ValueError, match="cannot go back"):
            clock.advance(-1)

    async def test_sleepers_wake_in_the_order_of_their_deadlines(self) -> None:
        clock = SimClock()
        woken: list[str] = []

        async def sleeper(name: str, seconds: float) -> None:
            await clock.sleep(seconds)
            woken.append(f"{name} at {clock.monotonic():g}")

        async with asyncio.TaskGroup() as group:
            for name, seconds in (("late", 3), ("early", 1), ("early too", 1), ("now", 0), ("cancelled", 2)):
                task = group.create_task(sleeper(name, seconds))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.sleep(0)
            clock.advance(0.5)
            await asyncio.sleep(0)
            woken.append("half a second")
            clock.advance(0.5)
            await asyncio.sleep(0)
            clock.advance(5)
        assert ["now at 0", "half a second", "early at 1", "early too at 1", "late at 6"] == (woken)


class TestRandom:
    def test_one_seed_gives_one_order(self) -> None:
        def numbers(random: Random) -> tuple[float, int, bytes]:
            return random.random(), random.randrange(1000), random.randbytes(8)

        assert numbers(SimRandom(7)) == numbers(SimRandom(7))
        assert numbers(SimRandom(7)) != numbers(SimRandom(8))

    def test_a_fork_has_its_own_order(self) -> None:
        random, other = SimRandom(7), SimRandom(7)
        forked = random.fork()
        assert other.fork().randbytes(8) == forked.randbytes(8)
        forked.randbytes(1000)
        assert other.randbytes(8) == random.randbytes(8)
