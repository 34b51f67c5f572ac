"""Types and promises of the heap of a due index. An entry is 16 bytes: due and offset, in the machine's byte order."""

from array import array
from typing import Final, final

from typing_extensions import Buffer

ENTRY_BYTES: Final[int]

@final
class DueHeap:
    """Entries (due, offset) of which the first, by due and then by offset, can be taken."""

    def __init__(self) -> None: ...
    def __len__(self) -> int: ...
    @property
    def memory_bytes(self) -> int: ...
    def first(self) -> tuple[int, int] | None:
        """The first entry; None if there is none."""
    def push(self, dues: Buffer, offsets: Buffer) -> None:
        """Adds entries; both are `array("q")` of the same length."""
    def push_entries(self, entries: Buffer) -> None:
        """Adds entries in the form in which `split` returns them."""
    def pop(self, due_max: int, bound_due: int, bound_offset: int, limit: int) -> tuple[array[int], array[int]]:
        """Takes entries in order, at most `limit`, that are due at `due_max` and not behind the bound."""
    def split(self, keep: int) -> bytes:
        """Keeps the first `keep` entries, and returns the others, sorted."""
    def count_before(self, due: int) -> int:
        """How many entries are due before this time."""
    def shrink(self) -> None:
        """Gives back memory that is not used."""

def count_entries_before(entries: Buffer, due: int) -> int:
    """How many of these sorted entries are due before this time."""

def block_firsts(entries: Buffer, block_entries: int) -> tuple[array[int], array[int]]:
    """Due and offset of every `block_entries`-th entry, from the first on."""
