"""Groups whose members join, leave and crash while they consume a topic."""

import asyncio
from collections.abc import Collection
from typing import Literal

from ottla.client.consumer.async_consumer import AsyncConsumer
from ottla.client.group.rebalance_listener import ConsumerRebalanceListener
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.sim.loop import Process
from ottla.sim.simulated_world import SimulatedWorld


class _Owning(ConsumerRebalanceListener):
    """Notes what a member is given, and checks where the group is there."""

    def __init__(self, world: SimulatedWorld, group: str, consumer: AsyncConsumer) -> None:
        self._world = world
        self._group = group
        self._consumer = consumer

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        """See `ConsumerRebalanceListener`."""
        member = self._consumer.group_metadata()
        history = self._world.history
        history.note(f"{self._group} generation {member.generation_id}: {len(assigned)} partitions")
        for partition in assigned:
            history.on_owned(self._group, member.generation_id, member.member_id, partition)
        floors = {each: history.group_offsets[self._group, each] for each in assigned}
        for partition, floor in floors.items():
            try:
                found = await self._consumer.committed(partition, timeout_ms=5_000)
            except OttlaError:
                continue
            history.on_group_offset_read(self._group, partition, found if isinstance(found, int) else 0, floor)


class Group:
    """Keeps some members of a group alive, and now and then ends one."""

    def __init__(
        self, world: SimulatedWorld, name: str, topic: str, members: int, protocol: Literal["classic", "consumer"]
    ) -> None:
        self.name = name
        self.topic = topic
        self.owned: dict[str, set[TopicPartition]] = {}
        """What each living member reads now."""
        self._world = world
        self._members = members
        self._protocol: Literal["classic", "consumer"] = protocol
        self._random = world.random.fork()

    async def run(self) -> None:
        """Until the run is over."""
        world, random = self._world, self._random
        living: dict[str, tuple[Process, asyncio.Task[None]]] = {}
        count = 0
        while not world.is_over:
            while len(living) < self._members:
                count += 1
                name = f"{self.name}-{count}"
                living[name] = world.spawn(name, self._be_member(name))
            await asyncio.sleep(2 + random.random() * 6)
            if not world.is_calm and random.random() < 0.5:
                name = list(living)[random.randrange(len(living))]
                process, _ = living.pop(name)
                world.history.note(f"{name} is killed")
                world.history.fault_counts["members killed"] += 1
                process.end()
                world.wire.end_process(process)
                self.owned.pop(name, None)
            for name in [name for name, (_, task) in living.items() if task.done()]:
                del living[name]
        if living:
            await asyncio.wait([task for _, task in living.values()], timeout=30)

    async def _be_member(self, name: str) -> None:
        world, history = self._world, self._world.history
        client = world.client(name)
        consumer = client.consumer(
            group_id=self.name,
            group_protocol=self._protocol,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=6_000,
            heartbeat_interval_ms=1_000,
            metadata_max_age_ms=3_000,
            default_api_timeout_ms=10_000,
        )
        consumer.subscribe([self.topic], listener=_Owning(world, self.name, consumer))
        while not world.is_over:
            try:
                found = await consumer.poll(timeout_ms=500)
                self.owned[name] = consumer.assignment()
                for partition, records in found.items():
                    for record in records:
                        history.on_read(partition, record.offset, record.value, name, committed=False)
                if found:
                    offsets = {partition: records[-1].offset + 1 for partition, records in found.items()}
                    await consumer.commit(offsets)
                    for partition, offset in offsets.items():
                        history.on_group_offset(self.name, partition, offset)
                    await client.clock.sleep(0.2)
            except OttlaError as error:
                history.note(f"{name}: {type(error).__name__}")
                break
        self.owned.pop(name, None)
        await consumer.close(autocommit=False)
