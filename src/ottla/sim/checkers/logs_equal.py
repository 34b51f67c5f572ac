"""Below the high watermark all replicas of a partition have the same bytes."""

from ottla.replication.partition import Partition
from ottla.sim.checkers import Contents
from ottla.sim.simulated_world import SimulatedWorld


class LogsEqual:
    """Compares the logs of the brokers at the end, when all replicas are in sync."""

    name = "replicas are equal"

    def look(self, world: SimulatedWorld) -> None:
        """Nothing to see before the end."""

    def finish(self, world: SimulatedWorld, contents: Contents) -> None:
        """Compares every partition's copies, batch by batch, below the smallest high watermark."""
        copies: dict[tuple[str, int], list[tuple[int, Partition]]] = {}
        for machine in world.machines:
            if machine.broker is not None:
                for partition in machine.broker.partitions.held.values():
                    if (machine.id, partition.topic, partition.index) in world.rotten:
                        # That is found only if a process has read it.
                        continue
                    if partition.leader is not None or partition.follower is not None:
                        copies.setdefault((partition.topic, partition.index), []).append((machine.id, partition))
        for (topic, index), held in sorted(copies.items()):
            if topic.startswith("__"):
                # Each replica compacts them by itself.
                continue
            start = max(each.start_offset for _, each in held)
            end = min(each.high_watermark for _, each in held)
            batches = [(broker, _batches(each, start, end)) for broker, each in held]
            for broker, found in batches[1:]:
                first, expected = batches[0]
                world.history.check(
                    found == expected,
                    self.name,
                    f"{topic}-{index}, offsets {start} to {end}: brokers {first} and {broker} differ",
                )


def _batches(partition: Partition, start: int, end: int) -> list[bytes]:
    """The bytes of a log from batch to batch, as they lie in its segments."""
    found: list[bytes] = []
    for segment in partition.log.segments:
        content = segment.file.read_at(0, segment.size_bytes)
        position = 0
        while position + 12 <= len(content):
            base = int.from_bytes(content[position : position + 8], "big")
            size = 12 + int.from_bytes(content[position + 8 : position + 12], "big")
            if start <= base < end:
                found.append(content[position : position + size])
            position += size
    return found
