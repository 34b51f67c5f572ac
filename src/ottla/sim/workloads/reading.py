"""Programs that read topics from the beginning without a group; some read only committed records."""

from typing import Literal

from ottla.client.consumer.async_consumer import AsyncConsumer
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.sim.simulated_world import SimulatedWorld

Isolation = Literal["read_uncommitted", "read_committed"]


async def read(world: SimulatedWorld, name: str, partitions: list[TopicPartition], isolation: Isolation) -> None:
    """Reads until the run ends; restarts from the beginning after a failure."""
    client, history = world.client(name), world.history
    committed = isolation == "read_committed"
    ends: dict[TopicPartition, int] = {}
    while not world.is_over:
        consumer = client.consumer(isolation_level=isolation, auto_offset_reset="none", default_api_timeout_ms=10_000)
        consumer.assign(partitions)
        for partition in partitions:
            consumer.seek(partition, 0)
        after = dict.fromkeys(partitions, -1)
        try:
            while not world.is_over:
                for partition, records in (await consumer.poll(timeout_ms=500)).items():
                    for record in records:
                        history.check(
                            record.offset > after[partition],
                            "offsets ascend",
                            f"{name} read {partition} offset {record.offset} after {after[partition]}",
                        )
                        after[partition] = record.offset
                        history.on_read(partition, record.offset, record.value, name, committed=committed)
                await _ask_ends(world, name, consumer, partitions, ends)
                await client.clock.sleep(0.3)
        except OttlaError as error:
            history.note(f"{name} restarts: {type(error).__name__}")
            await client.clock.sleep(0.5)
            history.check(
                "Truncated" not in type(error).__name__ and "Corrupt" not in type(error).__name__,
                "readers see no truncation",
                f"{name}: {error}",
            )
        await consumer.close()


async def _ask_ends(
    world: SimulatedWorld,
    name: str,
    consumer: AsyncConsumer,
    partitions: list[TopicPartition],
    ends: dict[TopicPartition, int],
) -> None:
    """The end offset of a partition that a client gets never goes back."""
    found = await consumer.end_offsets(partitions)
    for partition, end in found.items():
        before = ends.get(partition, 0)
        world.history.check(
            end >= before,
            "the end never goes back",
            f"{partition} ended at {before} for {name}, then at {end}",
        )
        ends[partition] = max(before, end)
