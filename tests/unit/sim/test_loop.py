"""The event loop on virtual time: what is left of a process that was killed."""

import asyncio
import gc
from contextlib import AsyncExitStack

import pytest

from ottla.sim.loop import VirtualLoop
from ottla.sim.simulated_world import SimulatedWorld, run


@pytest.mark.filterwarnings("error")
def test_a_task_that_never_began_leaves_no_warning(capsys: pytest.CaptureFixture[str]) -> None:
    began: list[str] = []

    def live_and_end() -> None:
        loop = VirtualLoop()
        process = loop.process("broker")

        async def work() -> None:
            began.append("work")

        async def live() -> None:
            asyncio.get_running_loop().create_task(work())
            process.end()

        process.spawn(live())
        over = loop.create_future()
        loop.call_later(1, over.set_result, None)
        loop.run_until_complete(over)
        loop.forget()
        loop.close()

    live_and_end()
    gc.collect()
    assert [] == began
    assert "never awaited" not in capsys.readouterr().err


@pytest.mark.filterwarnings("error")
def test_a_run_unwinds_everything_before_it_ends(capsys: pytest.CaptureFixture[str]) -> None:
    """What a killed process would have awaited when it is unwound is not left to a later garbage collection."""
    unwound: list[str] = []

    async def close() -> None:
        unwound.append("close")
        await asyncio.wait_for(asyncio.Event().wait(), 1)

    async def wait() -> None:
        async with AsyncExitStack() as parts:
            parts.push_async_callback(close)
            await asyncio.get_running_loop().create_future()

    async def story(world: SimulatedWorld) -> None:
        world.spawn("p", wait())
        await asyncio.sleep(1)

    run(story, 1)
    assert ["close"] == unwound
    gc.collect()
    assert "never awaited" not in capsys.readouterr().err
