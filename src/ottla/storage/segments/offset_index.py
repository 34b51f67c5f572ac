"""The sparse offset index of a segment: the positions of batches in its `.log` file."""

from bisect import bisect_left
from struct import Struct
from typing import Final, NamedTuple

from ottla.env.ports import Disk
from ottla.model.ids import Offset
from ottla.storage.segments.index_file import IndexFile

_ENTRY: Final = Struct(">ii")


class OffsetPosition(NamedTuple):
    """A batch's last offset, and the batch's position in the `.log` file."""

    offset: Offset
    position: int


class OffsetIndex:
    """8 bytes per entry: the batch's last offset, relative to the segment's base offset, and its position."""

    __slots__ = ("_base_offset", "entries")

    def __init__(self, disk: Disk, path: str, base_offset: Offset, bytes_max: int) -> None:
        self._base_offset = base_offset
        self.entries = IndexFile(disk, path, entry_bytes=_ENTRY.size, wide=False, bytes_max=bytes_max)

    @property
    def is_full(self) -> bool:
        """Whether the segment must be rolled because no entry fits any more."""
        return self.entries.count >= self.entries.slots_max

    def append(self, offset: Offset, position: int) -> None:
        """Adds an entry; offsets and positions only increase."""
        self.entries.append(_ENTRY.pack(offset - self._base_offset, position))

    def look_up(self, offset: Offset) -> OffsetPosition:
        """The last entry at or below `offset`, or the segment's beginning: the batch at which to start walking."""
        return self._entry(self.entries.last_slot_at_most(offset - self._base_offset))

    def behind(self, position: int) -> OffsetPosition | None:
        """The first entry whose batch begins at or behind `position`; None if there is none."""
        slot = bisect_left(range(self.entries.count), position, key=lambda slot: self._entry(slot).position)
        return self._entry(slot) if slot < self.entries.count else None

    def truncate_to(self, offset: Offset) -> None:
        """Forgets every entry at or above `offset`."""
        self.entries.truncate_to(self.entries.last_slot_at_most(offset - 1 - self._base_offset) + 1)

    def _entry(self, slot: int) -> OffsetPosition:
        if slot < 0:
            return OffsetPosition(self._base_offset, 0)
        relative, position = _ENTRY.unpack_from(self.entries.entries(), slot * _ENTRY.size)
        return OffsetPosition(Offset(self._base_offset + relative), position)
