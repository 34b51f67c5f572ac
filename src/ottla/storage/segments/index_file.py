"""Fixed-size entries ordered by a leading key: the common part of offset index and time index.

While its segment grows, an index is in memory and has no file: after a crash the active segment is scanned in any case,
and the scan rebuilds the index. Sealing writes the file in one piece; from then on it is memory-mapped when it is used.
"""

from ottla.env.ports import Disk, Mapping
from ottla.model.errors import CorruptError
from ottla.storage.data_dirs.checkpoints import write_file
from ottla.storage.segments.search import first_disorder, last_slot_at_most


class IndexFile:
    """Entries of `entry_bytes`; the key is an int64 if `wide`, otherwise an int32. `slots_max` limits a growing index.

    The entries are either in `_grown` or in the file at `path`, which `_mapping` maps when needed.
    """

    __slots__ = ("_checked", "_disk", "_grown", "_mapping", "count", "entry_bytes", "path", "slots_max", "wide")

    def __init__(self, disk: Disk, path: str, *, entry_bytes: int, wide: bool, bytes_max: int) -> None:
        self._disk = disk
        self._grown: bytearray | None = bytearray()
        self._mapping: Mapping | None = None
        self._checked = True
        self.path = path
        self.entry_bytes = entry_bytes
        self.wide = wide
        self.slots_max = bytes_max // entry_bytes
        self.count = 0

    def load(self) -> None:
        """Uses an existing file. Raises CorruptError if its size cannot be that of an index."""
        size = self._disk.size(self.path)
        if size % self.entry_bytes:
            raise CorruptError(f"{self.path}: {size} bytes is not a multiple of the entry size {self.entry_bytes}")
        self.close()
        self._grown = None
        self.count = size // self.entry_bytes
        self._checked = self.count == 0

    def entries(self) -> bytearray | memoryview:
        """The entries' bytes; the first use of a loaded file checks that they are in order."""
        if self._grown is not None:
            return self._grown
        if self._mapping is None:
            if self.count == 0:
                return memoryview(b"")
            self._mapping = self._disk.map(self.path)
        view = self._mapping.view
        if not self._checked:
            slot = first_disorder(view, self.count, self.entry_bytes, self.wide)
            if slot >= 0:
                # Otherwise the error's traceback would hold the view, and the rebuild that follows could not unmap the
                # file.
                del view
                raise CorruptError(f"{self.path}, byte {slot * self.entry_bytes}: entries are out of order")
            self._checked = True
        return view

    def last_slot_at_most(self, key: int) -> int:
        """The last slot whose key is at most `key`, or -1."""
        return last_slot_at_most(self.entries(), self.count, self.entry_bytes, self.wide, key)

    def append(self, entry: bytes) -> None:
        """Adds an entry, whose key must be larger than the last one."""
        grown = self._grown if self._grown is not None else self._grow()
        grown += entry
        self.count += 1

    def truncate_to(self, count: int) -> None:
        """Forgets the entries from slot `count` on."""
        if count < self.count:
            grown = self._grow()
            del grown[count * self.entry_bytes :]
            self.count = count

    def reset(self) -> None:
        """Forgets everything, including a damaged file; the file is replaced when the index is sealed."""
        self.close()
        self._grown = bytearray()
        self._checked = True
        self.count = 0

    def seal(self) -> None:
        """Writes the entries to the file, which exists afterwards even if it is empty."""
        if self._grown is None:
            return
        write_file(self._disk, self.path, self._grown)
        self._grown = None

    def close(self) -> None:
        """Unmaps the file; the next use maps it again."""
        mapping, self._mapping = self._mapping, None
        if mapping is not None:
            mapping.close()

    def _grow(self) -> bytearray:
        """Loads a sealed index into memory."""
        if self._grown is None:
            self._grown = bytearray(self.entries())
            self.close()
        return self._grown
