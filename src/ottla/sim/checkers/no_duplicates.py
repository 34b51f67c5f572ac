"""Each record of an idempotent producer is in the log once, in the order of sending."""

from ottla.sim.checkers import Contents
from ottla.sim.simulated_world import SimulatedWorld


class NoDuplicates:
    """Checks values of the form `producer:number`."""

    name = "no duplicates"

    def look(self, world: SimulatedWorld) -> None:
        """Nothing to see before the end."""

    def finish(self, world: SimulatedWorld, contents: Contents) -> None:
        """Every producer's numbers must rise in every partition."""
        for partition, records in contents.everything.items():
            latest: dict[bytes, tuple[int, int]] = {}
            for offset, value in records:
                producer, colon, number = value.rpartition(b":")
                if not colon or not number.isdigit() or value.startswith(b"copy of "):
                    continue
                before, where = latest.get(producer, (0, -1))
                world.history.check(
                    int(number) > before,
                    self.name,
                    f"{partition} offset {offset} has {value!r}, after number {before} at offset {where}",
                )
                latest[producer] = (int(number), offset)
