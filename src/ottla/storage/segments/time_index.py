"""The sparse time index of a segment: the offset from which on a timestamp can be found."""

from struct import Struct
from typing import Final, NamedTuple

from ottla.env.ports import Disk
from ottla.model.ids import NO_TIMESTAMP, Offset, TimestampMs
from ottla.storage.segments.index_file import IndexFile

_ENTRY: Final = Struct(">qi")


class TimestampOffset(NamedTuple):
    """The largest timestamp so far, and the last offset of the batch that has it."""

    timestamp: TimestampMs
    offset: Offset


class TimeIndex:
    """12 bytes per entry: the largest timestamp so far, and its batch's last offset relative to the segment's base
    offset."""

    __slots__ = ("_base_offset", "_last_timestamp", "entries")

    def __init__(self, disk: Disk, path: str, base_offset: Offset, bytes_max: int) -> None:
        self._base_offset = base_offset
        self._last_timestamp: TimestampMs | None = NO_TIMESTAMP
        self.entries = IndexFile(disk, path, entry_bytes=_ENTRY.size, wide=True, bytes_max=bytes_max)

    @property
    def is_full(self) -> bool:
        """Whether the segment must be rolled; one slot is reserved for the entry that sealing adds."""
        return self.entries.count >= self.entries.slots_max - 1

    def load(self) -> None:
        """Uses an existing file."""
        self.entries.load()
        self._last_timestamp = None

    def append(self, timestamp: TimestampMs, offset: Offset) -> None:
        """Adds an entry if the timestamp is larger than the last one."""
        if self._last_timestamp is None:
            self._last_timestamp = self.last().timestamp
        if timestamp <= self._last_timestamp:
            return
        self.entries.append(_ENTRY.pack(timestamp, offset - self._base_offset))
        self._last_timestamp = timestamp

    def last(self) -> TimestampOffset:
        """The last entry; (-1, base offset) if there is none."""
        return self._entry(self.entries.count - 1)

    def look_up(self, timestamp: TimestampMs) -> TimestampOffset:
        """The last entry at or below `timestamp`: everything before its batch is older."""
        return self._entry(self.entries.last_slot_at_most(timestamp))

    def reset(self) -> None:
        """Forgets everything."""
        self.entries.reset()
        self._last_timestamp = NO_TIMESTAMP

    def truncate_to(self, offset: Offset) -> None:
        """Forgets every entry at or above `offset`."""
        while self.entries.count and self.last().offset >= offset:
            self.entries.truncate_to(self.entries.count - 1)
        self._last_timestamp = None

    def _entry(self, slot: int) -> TimestampOffset:
        if slot < 0:
            return TimestampOffset(NO_TIMESTAMP, self._base_offset)
        timestamp, relative = _ENTRY.unpack_from(self.entries.entries(), slot * _ENTRY.size)
        return TimestampOffset(TimestampMs(timestamp), Offset(self._base_offset + relative))
