"""No two brokers ever lead the same partition in the same leader epoch."""

from ottla.sim.checkers import Contents
from ottla.sim.life import Life


class OneLeader:
    """See the module's docstring. Looks into the brokers."""

    name = "one leader per epoch"

    def __init__(self) -> None:
        self._leaders: dict[tuple[bytes, int, int], int] = {}

    def look(self, life: Life) -> None:
        """Who leads now, as each broker believes."""
        for machine in life.machines:
            broker = machine.broker
            if broker is None or not broker.is_ready:
                continue
            for partition in broker.partitions:
                if partition.leader is None:
                    continue
                key = (partition.topic_id.bytes, partition.index, partition.leader_epoch)
                before = self._leaders.setdefault(key, machine.id)
                life.history.check(
                    before == machine.id,
                    self.name,
                    f"{partition.topic}-{partition.index} epoch {partition.leader_epoch} is led by brokers "
                    f"{before} and {machine.id}",
                )

    def finish(self, life: Life, contents: Contents) -> None:
        """One more look."""
        self.look(life)
