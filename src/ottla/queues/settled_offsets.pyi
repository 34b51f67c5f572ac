"""Types and promises of the compiled set of settled offsets."""

from array import array

class SettledOffsets:
    """Offsets of a log from `start` on; those below count as settled. One bit each, as far as they are needed."""

    def __init__(self, start: int) -> None: ...
    @property
    def first_unsettled(self) -> int:
        """The lowest offset that is not settled; it may be the end of the log."""
    @property
    def size_bytes(self) -> int:
        """The memory that the bits take."""
    def __contains__(self, offset: object) -> bool: ...
    def settle(self, first: int, count: int = 1) -> None:
        """Adds `count` offsets from `first` on."""
    def unsettled(self, offsets: array[int]) -> array[int]:
        """The positions in `offsets` (64-bit) of those that are not settled, in order."""
