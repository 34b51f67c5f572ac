"""The transaction index of a segment: the aborted transactions whose marker lies in it.

Most segments have none, and then no file. Entries are few, and read whole when a read_committed reader asks.
"""

from struct import Struct
from typing import Final, NamedTuple

from ottla.env.ports import Disk
from ottla.model.errors import CorruptError
from ottla.model.ids import Offset, ProducerId

_ENTRY: Final = Struct(">hqqqq")
_VERSION: Final = 0


class AbortedTransaction(NamedTuple):
    """An aborted transaction: its first record's offset, its marker's offset, and the last stable offset after it."""

    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset
    last_stable_offset: Offset


class TransactionIndex:
    """34 bytes an entry, ordered by the marker's offset."""

    __slots__ = ("_disk", "_entries", "path")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._entries: list[AbortedTransaction] | None = None
        self.path = path

    def entries(self) -> list[AbortedTransaction]:
        """All entries; raises CorruptError if the file cannot be a transaction index."""
        if self._entries is None:
            self._entries = self._read() if self._disk.exists(self.path) else []
        return self._entries

    def append(self, aborted: AbortedTransaction) -> None:
        """Adds an entry behind the last."""
        entries = self.entries()
        file = self._disk.open(self.path, create=True)
        try:
            file.write_at(len(entries) * _ENTRY.size, [_ENTRY.pack(_VERSION, *aborted)])
        finally:
            file.close()
        entries.append(aborted)

    def truncate_to(self, offset: Offset) -> None:
        """Forgets every transaction whose marker is at or above `offset`."""
        entries = self.entries()
        kept = [aborted for aborted in entries if aborted.last_offset < offset]
        if len(kept) < len(entries):
            self._disk.truncate(self.path, len(kept) * _ENTRY.size)
            self._entries = kept

    def reset(self) -> None:
        """Forgets everything, the damaged file included; a rebuild follows."""
        if self._disk.exists(self.path):
            self._disk.truncate(self.path, 0)
        self._entries = []

    def sync(self) -> None:
        """Makes the entries survive a power cut; nothing to do without a file."""
        if self._disk.exists(self.path):
            file = self._disk.open(self.path)
            try:
                file.sync()
            finally:
                file.close()

    def _read(self) -> list[AbortedTransaction]:
        content = self._disk.read(self.path)
        if len(content) % _ENTRY.size:
            raise CorruptError(f"{self.path}: {len(content)} bytes is no multiple of an entry's {_ENTRY.size}")
        entries: list[AbortedTransaction] = []
        for at, (version, producer_id, first, last, stable) in enumerate(_ENTRY.iter_unpack(content)):
            before = entries[-1].last_offset if entries else -1
            if version != _VERSION or not 0 <= first <= last or last <= before:
                raise CorruptError(f"{self.path}, byte {at * _ENTRY.size}: not an aborted transaction")
            entries.append(AbortedTransaction(ProducerId(producer_id), Offset(first), Offset(last), Offset(stable)))
        return entries
