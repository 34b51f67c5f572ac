"""How long a broker waits for its own registration: longer than the session of an earlier life may last."""

import asyncio
from pathlib import Path

from ottla.broker.broker_lifecycle import BrokerLifecycle
from ottla.controller.registration import register_broker
from ottla.metadata.image import BrokerImage
from ottla.metadata.image_follower import ImageFollower
from ottla.metadata.sqlite.sqlite_store import SqliteStore
from ottla.model.ids import BrokerId
from ottla.sim.clock import SimClock

ME = BrokerImage(id=BrokerId(7), host="h", port=1)


async def test_the_session_of_a_life_that_was_killed_may_end_first(tmp_path: Path) -> None:
    clock = SimClock()
    store = SqliteStore(str(tmp_path / "metadata.db"), clock)
    await store.open()
    killed = await register_broker(store, ME, clock)
    lifecycle = BrokerLifecycle(ME.id, store, ImageFollower(store), clock, session_timeout_ms=30_000)
    waiting = asyncio.create_task(lifecycle.register(ME))
    end = clock.monotonic() + 31
    while clock.monotonic() < end:
        clock.advance(0.2)
        await store.snapshot()
        assert not waiting.done()
    await killed.release()
    while not waiting.done():
        clock.advance(0.2)
        await store.snapshot()
    await waiting
    assert lifecycle.is_registered
    assert lifecycle.epoch > killed.revision
    await lifecycle.leave()
    assert -1 == lifecycle.epoch
    await store.close()
