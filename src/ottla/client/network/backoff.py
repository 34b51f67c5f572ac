"""The wait before a retry: exponential, bounded, and with jitter, so that clients do not retry in step."""

from dataclasses import dataclass

from ottla.env.ports import Random


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """The first retry waits about `first_ms`, each further one twice as long, up to `most_ms`."""

    first_ms: int = 50
    most_ms: int = 1000
    jitter: float = 0.2

    def wait_ms(self, tries: int, random: Random) -> float:
        """The wait after this number of failed tries, at least one; varied by up to `jitter`."""
        plain = min(self.first_ms << min(tries - 1, 30), self.most_ms)
        return plain * (1 + self.jitter * (2 * random.random() - 1))
