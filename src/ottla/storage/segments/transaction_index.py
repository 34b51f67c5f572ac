"""The transaction index of a segment: the aborted transactions whose marker is in it.

Most segments have none, and then no file. Entries are few, and are read as a whole when a read_committed reader needs
them. `transaction_rebuild.py` checks whether they are right.
"""

from bisect import bisect_left
from collections.abc import Sequence
from operator import attrgetter
from struct import Struct
from typing import Final, NamedTuple

from ottla.env.ports import Disk
from ottla.model.errors import CorruptError
from ottla.model.ids import Offset, ProducerId
from ottla.storage.data_dirs.checkpoints import replace_file

_ENTRY: Final = Struct(">hqqqq")
_VERSION: Final = 0


class AbortedTransaction(NamedTuple):
    """An aborted transaction: its first record's offset, its marker's offset, and the last stable offset after it."""

    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset
    last_stable_offset: Offset


class TransactionIndex:
    """34 bytes per entry, ordered by the marker's offset.

    `_firsts` has, for each entry, the smallest first offset of it and all entries behind it, so that a search can end
    early.
    """

    __slots__ = ("_disk", "_entries", "_firsts", "is_checked", "path")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._entries: list[AbortedTransaction] | None = None
        self._firsts: list[Offset] = []
        self.is_checked = False
        """Whether the entries have been checked against the batches since they were read from disk."""
        self.path = path

    def entries(self) -> list[AbortedTransaction]:
        """All entries. Raises CorruptError if the file cannot be a transaction index."""
        entries = self._entries
        if entries is None:
            entries = self._adopt(self._read() if self._disk.exists(self.path) else [])
        return entries

    def overlapping(self, start: Offset, upper: Offset) -> list[AbortedTransaction]:
        """The transactions that a reader of [start, upper) must leave out."""
        entries = self.entries()
        found: list[AbortedTransaction] = []
        for at in range(bisect_left(entries, start, key=attrgetter("last_offset")), len(entries)):
            if self._firsts[at] >= upper:
                break
            if entries[at].first_offset < upper:
                found.append(entries[at])
        return found

    def append(self, aborted: AbortedTransaction) -> None:
        """Adds an entry; nothing changes if the disk fails."""
        entries = self.entries()
        file = self._disk.open(self.path, create=True)
        try:
            file.write_at(len(entries) * _ENTRY.size, [_ENTRY.pack(_VERSION, *aborted)])
        finally:
            file.close()
        self._add(aborted)

    def replace(self, entries: Sequence[AbortedTransaction]) -> None:
        """Replaces the entries of a damaged index, durably."""
        replace_file(self._disk, self.path, b"".join(_ENTRY.pack(_VERSION, *aborted) for aborted in entries))
        self._adopt(entries)
        self.is_checked = True

    def truncate_to(self, offset: Offset) -> None:
        """Forgets every transaction whose marker is at or above `offset`."""
        entries = self.entries()
        kept = [aborted for aborted in entries if aborted.last_offset < offset]
        if len(kept) < len(entries):
            self._disk.truncate(self.path, len(kept) * _ENTRY.size)
            self._adopt(kept)

    def reset(self) -> None:
        """Forgets everything, including a damaged file; a rebuild follows."""
        if self._disk.exists(self.path):
            self._disk.truncate(self.path, 0)
        self._adopt([])
        self.is_checked = True

    def sync(self) -> None:
        """Makes the entries survive a power cut; does nothing if there is no file."""
        if self._disk.exists(self.path):
            file = self._disk.open(self.path)
            try:
                file.sync()
            finally:
                file.close()

    def _adopt(self, entries: Sequence[AbortedTransaction]) -> list[AbortedTransaction]:
        adopted = self._entries = []
        self._firsts = []
        for aborted in entries:
            self._add(aborted)
        return adopted

    def _add(self, aborted: AbortedTransaction) -> None:
        self.entries().append(aborted)
        self._firsts.append(aborted.first_offset)
        at = len(self._firsts) - 2
        while at >= 0 and self._firsts[at] > aborted.first_offset:
            self._firsts[at] = aborted.first_offset
            at -= 1

    def _read(self) -> list[AbortedTransaction]:
        content = self._disk.read(self.path)
        if len(content) % _ENTRY.size:
            raise CorruptError(f"{self.path}: {len(content)} bytes is not a multiple of the entry size {_ENTRY.size}")
        entries: list[AbortedTransaction] = []
        for at, (version, producer_id, first, last, stable) in enumerate(_ENTRY.iter_unpack(content)):
            before = entries[-1].last_offset if entries else -1
            if version != _VERSION or not 0 <= first <= last or last <= before:
                raise CorruptError(f"{self.path}, byte {at * _ENTRY.size}: not a valid entry")
            entries.append(AbortedTransaction(ProducerId(producer_id), Offset(first), Offset(last), Offset(stable)))
        return entries
