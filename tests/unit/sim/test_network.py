"""Half-open connections of the simulated network: when the side that is left hears of it."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ottla.env.ports import Socket
from ottla.sim.loop import VirtualLoop
from ottla.sim.network import SimNetwork, SimSocket, Wire
from ottla.sim.random import SimRandom

Story = Callable[[Wire, SimSocket, SimSocket], Awaitable[None]]
NEVER = -1.0
PATIENCE_SECONDS = 120.0


def seconds_until_reset(story: Story) -> float:
    """How long after the last byte a client that only waits is told that its connection is gone; NEVER if it is not.

    The story happens 4 s after that byte.
    """
    loop = VirtualLoop()

    async def run() -> float:
        wire = Wire(loop, SimRandom(1))
        accepted: list[Socket] = []
        await SimNetwork(wire, "broker").listen("broker", 9092, accepted.append)
        near = await SimNetwork(wire, "client").connect("broker", 9092)
        await asyncio.sleep(30)
        near.send([b"question"])
        began = loop.time()
        told = asyncio.Event()
        near.on_readable(told.set)
        await asyncio.sleep(4)
        far = accepted[0]
        assert isinstance(far, SimSocket)
        await story(wire, near, far)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await told.wait()
        except TimeoutError:
            return NEVER
        near.on_readable(None)
        with pytest.raises(ConnectionResetError):
            near.recv_into(memoryview(bytearray(10)))
        return loop.time() - began

    try:
        return loop.run_until_complete(run())
    finally:
        loop.close()


async def goes_down_and_comes_back(wire: Wire, near: SimSocket, far: SimSocket) -> None:
    wire.set_down("broker")
    await asyncio.sleep(1)
    wire.set_up("broker")


async def goes_down(wire: Wire, near: SimSocket, far: SimSocket) -> None:
    wire.set_down("broker")


async def comes_back_late(wire: Wire, near: SimSocket, far: SimSocket) -> None:
    wire.set_down("broker")
    await asyncio.sleep(12)
    wire.set_up("broker")


async def goes_down_and_is_sent_something(wire: Wire, near: SimSocket, far: SimSocket) -> None:
    await goes_down_and_comes_back(wire, near, far)
    near.send([b"again"])


async def answers_into_a_cut(wire: Wire, near: SimSocket, far: SimSocket) -> None:
    """The broker's side is gone while nothing passes to the client, which sends, and misses the reset that answers."""
    wire.cut("broker", "client")
    far.lose_all()
    far.is_closed = True
    near.send([b"again"])
    await asyncio.sleep(2)
    wire.heal("broker", "client")


async def nothing(wire: Wire, near: SimSocket, far: SimSocket) -> None:
    pass


@pytest.mark.parametrize(
    ("story", "seconds"),
    [
        (goes_down_and_comes_back, 10),
        (goes_down, 25),
        (comes_back_late, 20),
        (goes_down_and_is_sent_something, 5),
        (answers_into_a_cut, 10),
        (nothing, NEVER),
    ],
)
def test_a_side_that_waits_hears_of_a_connection_that_is_gone(story: Story, seconds: float) -> None:
    assert pytest.approx(seconds, abs=0.1) == seconds_until_reset(story)


def test_a_connection_that_broke_for_one_side_only() -> None:
    """Whichever side does not know: if it is the client, it hears of it by asking, else at once."""

    def broken(seed: int) -> float:
        async def story(wire: Wire, near: SimSocket, far: SimSocket) -> None:
            wire._random = SimRandom(seed)
            wire.break_connection(far)

        return round(seconds_until_reset(story))

    assert {4, 10} == {broken(seed) for seed in range(12)}
