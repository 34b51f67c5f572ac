"""No broker serves with a metadata store that is older than what it has seen."""

from ottla.sim.checkers import Contents
from ottla.sim.simulated_world import SimulatedWorld


class StoreNotOlder:
    """Reads the state of brokers while they have an older store."""

    name = "an older store is refused"

    def __init__(self) -> None:
        self._reported: set[str] = set()

    def look(self, world: SimulatedWorld) -> None:
        """Every process that serves, once."""
        if not world.fault_limits.is_store_old:
            return
        for machine in world.machines:
            if machine.process is None or machine.process.name in self._reported:
                continue
            world.history.check(
                not machine.is_serving, self.name, f"{machine.process.name} serves with an older metadata store"
            )
            if machine.is_serving:
                self._reported.add(machine.process.name)

    def finish(self, world: SimulatedWorld, contents: Contents) -> None:
        """Nothing to see at the end, when the right store is back."""
