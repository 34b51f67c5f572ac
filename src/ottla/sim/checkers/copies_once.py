"""A program that reads, transforms and writes in transactions does so exactly once for each record."""

from ottla.sim.checkers import Contents
from ottla.sim.simulated_world import SimulatedWorld
from ottla.sim.workloads.copying import GROUP

PREFIX = b"copy of "


class CopiesOnce:
    """Compares the copies with the originals."""

    name = "copies are made once"

    def look(self, world: SimulatedWorld) -> None:
        """Nothing to see before the end."""

    def finish(self, world: SimulatedWorld, contents: Contents) -> None:
        """No copy twice, and none missing below what the group has committed."""
        count: dict[bytes, int] = {}
        for records in contents.committed.values():
            for _, value in records:
                if value.startswith(PREFIX):
                    count[value] = count.get(value, 0) + 1
        for value, times in count.items():
            world.history.check(times == 1, self.name, f"{value!r} was written {times} times")
        for (group, partition), committed in world.history.group_offsets.items():
            if group != GROUP:
                continue
            for offset, value in contents.committed.get(partition, []):
                if offset < committed:
                    world.history.check(
                        PREFIX + value in count, self.name, f"{value!r} at {partition} {offset} was skipped"
                    )
