"""The part of a run that uses a share group: topic, settings, clients, and the wait until the group is done."""

import asyncio
from collections.abc import Iterable
from functools import partial
from math import inf
from typing import Final

from ottla.client.admin.config_requests import ResourceType
from ottla.client.admin.values import ConfigResource, NewTopic
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.sim.random import SimRandom
from ottla.sim.shares.history import StartOffset
from ottla.sim.simulated_world import Program, SimulatedWorld
from ottla.sim.workloads.producing import produce
from ottla.sim.workloads.share_consuming import GROUP, TOPIC, ShareGroup

PARTITIONS: Final = 2
LOCKS_MS: Final = (1_500, 3_000)
LIMITS: Final = (2, 3, 5)
WATCH_SECONDS: Final = 0.5
PRODUCERS: Final = {"share producer-1": True, "share producer-2": False}
"""And whether they may be killed."""
SETTINGS: Final = {
    "group.share.session.timeout.ms": "6000",
    "group.share.min.session.timeout.ms": "6000",
    "group.share.heartbeat.interval.ms": "1000",
    "group.share.min.heartbeat.interval.ms": "1000",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.initialize.retry.interval.ms": "3000",
    "share.coordinator.state.topic.num.partitions": "2",
    "share.coordinator.snapshot.update.records.per.snapshot": "10",
    "share.coordinator.state.topic.prune.interval.ms": "3000",
    "share.coordinator.cold.partition.snapshot.interval.ms": "4000",
}
"""Short timeouts, and a log of the share coordinator that is pruned while the run lasts."""


class ShareWork:
    """The share group of one run; to be made before the brokers start."""

    def __init__(self, world: SimulatedWorld, random: SimRandom) -> None:
        self._world = world
        self._lock_ms = LOCKS_MS[random.randrange(len(LOCKS_MS))]
        self._limit = LIMITS[random.randrange(len(LIMITS))]
        world.history.shares.topic = TOPIC
        world.history.shares.delivery_count_limit = self._limit
        for machine in world.machines:
            machine.settings |= SETTINGS
            machine.settings["group.share.record.lock.duration.ms"] = str(self._lock_ms)

    @property
    def partitions(self) -> list[TopicPartition]:
        """The partitions of the group's topic."""
        return [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]

    def topics(self) -> Iterable[NewTopic]:
        """The topics to create."""
        return [NewTopic(TOPIC, PARTITIONS, 3)]

    def configs(self) -> Iterable[ConfigResource]:
        """The configs to set before the group begins."""
        configs = {"share.auto.offset.reset": "earliest", "share.delivery.count.limit": str(self._limit)}
        return [ConfigResource(ResourceType.GROUP, GROUP, configs)]

    def begin(self) -> None:
        """Starts the clients."""
        world = self._world
        world.history.note(f"share group: locks of {self._lock_ms} ms, {self._limit} deliveries")
        for name, may_be_killed in PRODUCERS.items():
            making = partial(produce, world, name, TOPIC, PARTITIONS, 0.2, until_calm=True)
            world.begin(name, making, may_be_killed=may_be_killed)
        world.begin("share watcher", self._watch)
        group = ShareGroup(world, self._lock_ms)
        world.programs[GROUP] = Program(None, world.run_beside(group.run()), group.run, may_be_killed=False)

    async def _watch(self) -> None:
        """Asks for the group's start offsets again and again."""
        world, client = self._world, self._world.client("share watcher")
        while not world.is_over:
            admin = client.admin()
            try:
                while not world.is_over:
                    asked_at = world.loop.time()
                    found = await admin.list_share_group_offsets(GROUP)
                    for partition, told in found.items():
                        start = StartOffset(told.start_offset, asked_at, world.loop.time())
                        world.history.shares.start_offsets[partition].append(start)
                    await client.clock.sleep(WATCH_SECONDS)
            except OttlaError as error:
                world.history.note(f"share watcher: {type(error).__name__}")
                await client.clock.sleep(WATCH_SECONDS)
            await admin.close()

    async def wait_done(self, seconds: float) -> bool:
        """Whether the group was done with all records within this time."""
        programs = [self._world.programs[name] for name in PRODUCERS]
        is_done = await self._world.wait_until(lambda: all(each.task.done() for each in programs), seconds)
        is_done = is_done and await self._world.wait_until(lambda: not self.missing(), seconds)
        # Time for what should not be delivered any more.
        await asyncio.sleep(self._lock_ms / 1000)
        return is_done

    def missing(self) -> list[str]:
        """The partitions with records that the group is not done with."""
        told = self._world.history.shares.start_offsets
        found = []
        for partition in self.partitions:
            start = told[partition][-1].offset if told[partition] else -1
            end = self._end_offset(partition)
            if start < end:
                found.append(f"{partition} starts at {start} and ends at {end}")
        return found

    def _end_offset(self, partition: TopicPartition) -> float:
        leader = self._world.truth().topics[TOPIC].partitions[partition.partition].leader
        for machine in self._world.machines:
            if machine.id == leader and machine.broker is not None:
                held = machine.broker.partitions.held.get(partition)
                return inf if held is None else held.high_watermark
        return inf
