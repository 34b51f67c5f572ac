"""No two brokers ever lead the same partition in the same leader epoch."""

from ottla.sim.checkers import Contents
from ottla.sim.simulated_world import SimulatedWorld


class OneLeader:
    """Reads the state of the brokers."""

    name = "one leader per epoch"

    def __init__(self) -> None:
        self._leaders: dict[tuple[bytes, int, int], int] = {}

    def look(self, world: SimulatedWorld) -> None:
        """Which broker leads, in the view of each broker."""
        for machine in world.machines:
            broker = machine.broker
            if broker is None or not broker.is_ready:
                continue
            for partition in broker.partitions:
                if partition.leader is None:
                    continue
                key = (partition.topic_id.bytes, partition.index, partition.leader_epoch)
                before = self._leaders.setdefault(key, machine.id)
                world.history.check(
                    before == machine.id,
                    self.name,
                    f"{partition.topic}-{partition.index} epoch {partition.leader_epoch} is led by brokers "
                    f"{before} and {machine.id}",
                )

    def finish(self, world: SimulatedWorld, contents: Contents) -> None:
        """One more look."""
        self.look(world)
