"""No broker serves with a metadata store that is older than what it has seen."""

from ottla.sim.checkers import Contents
from ottla.sim.life import Life


class StoreNotOlder:
    """See the module's docstring. Looks at the brokers while they are offered such a store."""

    name = "an older store is refused"

    def __init__(self) -> None:
        self._reported: set[str] = set()

    def look(self, life: Life) -> None:
        """Every process that serves, once."""
        if not life.harm.is_store_old:
            return
        for machine in life.machines:
            if machine.process is None or machine.process.name in self._reported:
                continue
            life.history.check(
                not machine.is_serving, self.name, f"{machine.process.name} serves with a store of the past"
            )
            if machine.is_serving:
                self._reported.add(machine.process.name)

    def finish(self, life: Life, contents: Contents) -> None:
        """Nothing to see at the end, when the right store is back."""
