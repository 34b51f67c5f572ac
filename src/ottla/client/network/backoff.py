"""How long to wait before the next try: doubling, bounded, with jitter so that clients do not come back in step."""

from dataclasses import dataclass

from ottla.env.ports import Random


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """The first try to come again waits about `first_ms`, each further one twice as long, never above `most_ms`."""

    first_ms: int = 50
    most_ms: int = 1000
    jitter: float = 0.2

    def wait_ms(self, tries: int, random: Random) -> float:
        """The wait after that many failed tries, one at least, up to `jitter` shorter or longer."""
        plain = min(self.first_ms << min(tries - 1, 30), self.most_ms)
        return plain * (1 + self.jitter * (2 * random.random() - 1))
