"""A share group whose members accept, release, reject and renew, work slowly, hang, and are killed."""

import asyncio
from typing import Final, Literal

from ottla.client.share.async_share_consumer import AsyncShareConsumer
from ottla.client.share.values import AcknowledgeType
from ottla.model.errors import MisuseError, OttlaError
from ottla.sim.loop import Process
from ottla.sim.random import SimRandom
from ottla.sim.shares.observed_consumer import share_consumer
from ottla.sim.simulated_world import SimulatedWorld

GROUP: Final = "crew"
TOPIC: Final = "errands"
MEMBERS: Final = 3
SLOW_SHARE: Final = 0.04
"""How often a member works for longer than its locks last."""
KINDS: Final = (
    (AcknowledgeType.ACCEPT, 0.65),
    (AcknowledgeType.RELEASE, 0.83),
    (AcknowledgeType.REJECT, 0.91),
    (AcknowledgeType.RENEW, 1.0),
)
"""How often records are acknowledged so, added up, in explicit mode while there are faults."""


class ShareGroup:
    """Keeps some members of the group alive, and now and then stops or kills one."""

    def __init__(self, world: SimulatedWorld, lock_ms: int) -> None:
        self._world = world
        self._lock_ms = lock_ms
        self._random = world.random.fork()
        self._living: dict[str, tuple[Process, asyncio.Task[None]]] = {}
        self._hanging: list[Process] = []
        self._count = 0

    async def run(self) -> None:
        """Until the run is over."""
        world, random = self._world, self._random
        hangs_at_last = random.random() < 0.5
        while not world.is_over:
            self._man()
            await asyncio.sleep(1 + random.random() * 4)
            if not world.is_calm and random.random() < 0.4:
                self._kill(list(self._living)[random.randrange(len(self._living))])
            elif not world.is_calm and random.random() < 0.3:
                world.run_beside(self._hang(list(self._living)[random.randrange(len(self._living))]))
            elif world.is_calm and hangs_at_last:
                # Its connections stay open, so only its locks tell that it does nothing.
                hangs_at_last = False
                name = list(self._living)[random.randrange(len(self._living))]
                world.history.note(f"{name} hangs until the end")
                process, _ = self._living.pop(name)
                process.stop()
                self._hanging.append(process)
        for process in self._hanging:
            process.end()
            world.wire.end_process(process)
        if self._living:
            await asyncio.wait([task for _, task in self._living.values()], timeout=30)

    def _man(self) -> None:
        for name in [name for name, (_, task) in self._living.items() if task.done()]:
            del self._living[name]
        while len(self._living) < MEMBERS:
            self._count += 1
            name = f"{GROUP}-{self._count}"
            random = self._random.fork()
            self._living[name] = self._world.spawn(name, self._be_member(name, random))

    def _kill(self, name: str) -> None:
        world = self._world
        process, _ = self._living.pop(name)
        world.history.note(f"{name} is killed")
        world.history.fault_counts["share members killed"] += 1
        process.end()
        world.wire.end_process(process)

    async def _hang(self, name: str) -> None:
        world = self._world
        process, _ = self._living[name]
        world.history.note(f"{name} hangs")
        world.history.fault_counts["share members stopped"] += 1
        process.stop()
        await world.wait_until(lambda: world.is_calm, self._lock_ms / 1000 * 2.5 * self._random.random())
        process.resume()

    async def _be_member(self, name: str, random: SimRandom) -> None:
        world, history = self._world, self._world.history
        client = world.client(name)
        mode: Literal["explicit", "implicit"] = "explicit" if random.random() < 0.7 else "implicit"
        consumer = share_consumer(
            client,
            history,
            world.loop.time,
            TOPIC,
            group_id=GROUP,
            share_acknowledgement_mode=mode,
            share_acquire_mode="record_limit" if random.random() < 0.3 else "batch_optimized",
            max_poll_records=1 + random.randrange(8),
            fetch_max_wait_ms=300,
            metadata_max_age_ms=3_000,
            default_api_timeout_ms=10_000,
        )
        try:
            while not world.is_over:
                await self._work(consumer, name, random, is_explicit=mode == "explicit")
        except MisuseError as error:
            history.violated("nothing unexpected", f"{name} failed: {error!r}")
        except OttlaError as error:
            history.note(f"{name} ends: {type(error).__name__}: {error}")
        await consumer.close(timeout_ms=5_000)

    async def _work(self, consumer: AsyncShareConsumer, name: str, random: SimRandom, *, is_explicit: bool) -> None:
        """Polls once and does something with the records."""
        world, clock = self._world, self._world.client(name).clock
        found = await consumer.poll(timeout_ms=500)
        for partition, records in found.items():
            for record in records:
                world.history.on_read(partition, record.offset, record.value, name, committed=False)
                if is_explicit:
                    consumer.acknowledge(record, self._chosen(random))
        if not found:
            return
        is_slow = not world.is_calm and random.random() < SLOW_SHARE
        await clock.sleep(self._lock_ms / 1000 * 1.5 if is_slow else 0.2 * random.random())
        if random.random() < 0.3:
            await consumer.commit()

    def _chosen(self, random: SimRandom) -> AcknowledgeType:
        draw = random.random()
        if self._world.is_calm:
            return AcknowledgeType.ACCEPT
        return next(how for how, upto in KINDS if draw < upto)
