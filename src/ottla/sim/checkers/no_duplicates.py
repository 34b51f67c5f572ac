"""An idempotent producer's records are there once each, in the order in which it sent them."""

from ottla.sim.checkers import Contents
from ottla.sim.life import Life


class NoDuplicates:
    """See the module's docstring. Values are `producer:number`."""

    name = "no duplicates"

    def look(self, life: Life) -> None:
        """Nothing to see before the end."""

    def finish(self, life: Life, contents: Contents) -> None:
        """Every producer's numbers must rise in every partition."""
        for partition, records in contents.everything.items():
            latest: dict[bytes, tuple[int, int]] = {}
            for offset, value in records:
                producer, colon, number = value.rpartition(b":")
                if not colon or not number.isdigit() or value.startswith(b"copy of "):
                    continue
                before, where = latest.get(producer, (0, -1))
                life.history.check(
                    int(number) > before,
                    self.name,
                    f"{partition} offset {offset} has {value!r}, after number {before} at offset {where}",
                )
                latest[producer] = (int(number), offset)
