"""Real randomness: seeded by the operating system. The simulated one is in `ottla.sim.random`."""

import random


class RealRandom:
    """A fast generator, seeded by the operating system; suitable for ids and jitter, not for secrets."""

    __slots__ = ("_generator",)

    def __init__(self) -> None:
        self._generator = random.Random()

    def random(self) -> float:
        """A float in [0, 1)."""
        return self._generator.random()

    def randrange(self, stop: int) -> int:
        """An integer in [0, stop)."""
        return self._generator.randrange(stop)

    def randbytes(self, size: int) -> bytes:
        """This many random bytes."""
        return self._generator.randbytes(size)
