"""read_committed consumers see all or nothing of a transaction, in order, and nothing of an aborted one."""

from ottla.sim.checkers import Contents
from ottla.sim.simulated_world import SimulatedWorld


class TransactionsWhole:
    """Checks values of the form `name/number/place`."""

    name = "transactions are whole"

    def look(self, world: SimulatedWorld) -> None:
        """Nothing to see before the end."""

    def finish(self, world: SimulatedWorld, contents: Contents) -> None:
        """Every transaction against what is read as committed, and was read as committed on the way."""
        seen: dict[bytes, int] = {}
        for partition, records in contents.committed.items():
            for offset, value in records:
                world.history.check(
                    value not in seen,
                    self.name,
                    f"{value!r} is committed twice, again at {partition} {offset}",
                )
                seen[value] = offset
        early = {value for found in world.history.committed_reads.values() for value in found.values()}
        for transaction in world.history.transactions.values():
            values = [value for _, value in transaction.records]
            there = [value for value in values if value in seen]
            if transaction.outcome == "committed":
                is_right = there == values
            elif transaction.outcome == "aborted":
                is_right = not there
            else:
                is_right = not there or there == values
            world.history.check(
                is_right,
                self.name,
                f"{transaction.name} is {transaction.outcome}; of its {len(values)} records {len(there)} can be read",
            )
            shown = [value for value in values if value in early]
            world.history.check(
                all(value in seen for value in shown),
                self.name,
                f"{transaction.name} was shown as committed to a reader, and is not",
            )
            for partition in {where: None for where, _ in transaction.records}:
                offsets = [seen[value] for where, value in transaction.records if where == partition and value in seen]
                world.history.check(offsets == sorted(offsets), self.name, f"{transaction.name} is out of order")
