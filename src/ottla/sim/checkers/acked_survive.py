"""A record that was acknowledged with acks=all is there, at the offset that was told."""

from ottla.sim.checkers import Contents
from ottla.sim.life import Life


class AckedSurvive:
    """See the module's docstring."""

    name = "acked records survive"

    def look(self, life: Life) -> None:
        """Nothing to see before the end."""

    def finish(self, life: Life, contents: Contents) -> None:
        """Every acknowledged record against what was read back."""
        for partition, acked in life.history.acked.items():
            found = dict(contents.everything.get(partition, []))
            for value, offset in acked:
                now = found.get(offset)
                life.history.check(
                    now == value,
                    self.name,
                    f"{partition} offset {offset} was acknowledged as {value!r}, and is {now!r}",
                )
