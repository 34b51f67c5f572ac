"""Types and promises of the kernel for runs of offsets."""

from array import array
from collections.abc import Iterable

def runs_of(offsets: array[int] | Iterable[int]) -> tuple[int, ...]:
    """Offsets, in their order, as pairs of a first offset and a count; fastest for an `array("q")`."""

def offsets_of(runs: tuple[int, ...]) -> array[int]:
    """The offsets of runs, in their order, as `array("q")`."""
