"""Randomness from a seed: the same seed gives the same numbers on every machine."""

import random


class SimRandom:
    """The `Random` port over one seed; `fork` splits off a generator whose use does not disturb this one's order."""

    __slots__ = ("_generator",)

    def __init__(self, seed: int) -> None:
        self._generator = random.Random(seed)

    def random(self) -> float:
        """A float in [0, 1)."""
        return self._generator.random()

    def randrange(self, stop: int) -> int:
        """An integer in [0, stop)."""
        return self._generator.randrange(stop)

    def randbytes(self, size: int) -> bytes:
        """That many random bytes."""
        return self._generator.randbytes(size)

    def fork(self) -> "SimRandom":
        """A new generator, seeded from this one."""
        return SimRandom(self._generator.getrandbits(64))
