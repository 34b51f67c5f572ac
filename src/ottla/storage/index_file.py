"""Fixed-size entries in a memory-mapped file: the body that the offset index and the time index share.

While it grows the file is preallocated and sparse; `seal` trims it to its entries. Nothing is created or mapped before
the first entry is written or looked at, so that an idle partition costs neither memory nor a map.
"""

from typing import Final

from ottla.env.ports import Disk, Mapping
from ottla.model.errors import CorruptError
from ottla.storage.search import first_disorder, last_slot_at_most

RESERVE_ENTRIES: Final = 64
"""Room on disk is made sure of for this many further entries before a batch is written: a store into a mapping cannot
report a full disk."""


class IndexFile:
    """Entries of `entry_bytes`, ordered by their leading key: an int64 if `wide`, else an int32.

    `count` is the number of entries; slots at and beyond it mean nothing.
    """

    __slots__ = ("_checked", "_disk", "_mapping", "_reserved", "_view", "_writable", "bytes_max", "count", "entry_bytes", "path", "wide")

    def __init__(self, disk: Disk, path: str, *, entry_bytes: int, wide: bool, bytes_max: int) -> None:
        self._disk = disk
        self._mapping: Mapping | None = None
        self._view = memoryview(b"")
        self._writable = False
        self._checked = True
        self._reserved = 0
        self.path = path
        self.entry_bytes = entry_bytes
        self.wide = wide
        self.bytes_max = bytes_max - bytes_max % entry_bytes
        self.count = 0

    @property
    def slots_max(self) -> int:
        """How many entries fit while the file grows."""
        return self.bytes_max // self.entry_bytes

    def load(self) -> None:
        """Takes over an existing file; raises CorruptError if its size cannot be that of an index."""
        size = self._disk.size(self.path)
        if size % self.entry_bytes:
            raise CorruptError(f"{self.path}: {size} bytes is no multiple of an entry's {self.entry_bytes}")
        self.count = size // self.entry_bytes
        self._checked = self.count == 0

    def view(self) -> memoryview:
        """The entries' bytes; the first look at a loaded file checks that they are in order."""
        if self._mapping is None and self.count:
            self._map(writable=False)
        if not self._checked:
            slot = first_disorder(self._view, self.count, self.entry_bytes, self.wide)
            if slot >= 0:
                raise CorruptError(f"{self.path}, byte {slot * self.entry_bytes}: entries are out of order")
            self._checked = True
        return self._view

    def last_slot_at_most(self, key: int) -> int:
        """The last slot whose key is at most `key`, or -1."""
        return last_slot_at_most(self.view(), self.count, self.entry_bytes, self.wide, key) if self.count else -1

    def reserve(self, entries: int) -> None:
        """Makes sure that this many more entries can be stored, mapping the file for writing if need be."""
        needed = min((self.count + entries) * self.entry_bytes, self.bytes_max)
        if needed <= self._reserved:
            return
        if not self._writable:
            self.view()
            self._map(writable=True)
        assert self._mapping is not None  # noqa: S101  # narrows the type; _map has just set it
        ahead = min(needed + RESERVE_ENTRIES * self.entry_bytes, self.bytes_max)
        self._mapping.reserve(ahead)
        self._reserved = ahead

    def next_slot(self) -> tuple[memoryview, int]:
        """Where the next entry is to be packed; the caller then counts it."""
        if (self.count + 1) * self.entry_bytes > self._reserved:
            self.reserve(1)
        return self._view, self.count * self.entry_bytes

    def truncate_to(self, count: int) -> None:
        """Forgets the entries from slot `count` on."""
        if count < self.count:
            self.count = count

    def seal(self) -> None:
        """Trims the file to its entries; it exists afterwards, even if empty."""
        self.close()
        size = self.count * self.entry_bytes
        file = self._disk.open(self.path, create=True)
        try:
            if file.size() != size:
                file.truncate(size)
        finally:
            file.close()

    def sync(self) -> None:
        """Makes a sealed index survive a power cut."""
        file = self._disk.open(self.path)
        try:
            file.sync()
        finally:
            file.close()

    def close(self) -> None:
        """Unmaps; entries stay in the file and the next look maps it again."""
        mapping, self._mapping = self._mapping, None
        if mapping is not None:
            self._view = memoryview(b"")
            mapping.close()
        self._writable = False
        self._reserved = 0

    def _map(self, *, writable: bool) -> None:
        self.close()
        self._mapping = self._disk.map(self.path, self.bytes_max if writable else None, writable=writable)
        self._view = self._mapping.view
        self._writable = writable
