"""One simulated file's bytes: what the page cache holds, and what would survive a power cut.

Covers writes, resizes, mapped stores, syncs, and the image a crash leaves. Names and folders are in `folders.py`, the
fault model as a whole in `disk.py`.
"""

import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.env.ports import Random
from ottla.model.errors import MisuseError

if TYPE_CHECKING:
    from ottla.sim.handles import SimMapping

SECTOR_BYTES: Final = 512
"""What a drive writes whole or not at all."""

PAGE_BYTES: Final = 4096
"""What the page cache writes back, and what a file's room on disk is counted in."""

UNSYNCED_CHANGES_MAX: Final = 4096
"""Beyond this many the older half is written back, as a kernel does after a while; bounds the memory of long runs."""

SURVIVAL_ODDS: Final = (0.0, 0.1, 0.5, 0.9, 1.0)
"""A crash picks one per file, so that all, nothing, and every mixture of its unsynced bytes come up often."""


@dataclass(frozen=True, slots=True)
class Write:
    """Bytes put at a position; extends the file if they reach beyond its end."""

    position: int
    data: bytes

    def size_after(self, size: int) -> int:
        """The file's size once this is done."""
        return max(size, self.position + len(self.data))


@dataclass(frozen=True, slots=True)
class Resize:
    """The file cut, or extended with zeros."""

    size: int

    def size_after(self, size: int) -> int:
        """The file's size once this is done."""
        return self.size


Change = Write | Resize


def resize(image: bytearray, size: int) -> None:
    """Cuts, or extends with zeros."""
    if size < len(image):
        del image[size:]
    else:
        image.extend(bytes(size - len(image)))


def apply(image: bytearray, change: Change) -> None:
    """Does the whole change."""
    size = change.size_after(len(image))
    if size != len(image):
        resize(image, size)
    if isinstance(change, Write):
        image[change.position : change.position + len(change.data)] = change.data


class Inode:
    """A file's bytes, apart from its names.

    Invariant: without mapped stores, `durable` with every change of `unsynced` applied in order equals `content`; only
    a failed sync breaks it, which forgets changes as Linux does.
    """

    __slots__ = ("content", "durable", "mapped", "mappings", "room_bytes", "unsynced")

    def __init__(self, content: bytes = b"") -> None:
        self.content = bytearray(content)
        self.durable = bytearray(content)
        self.unsynced: list[Change] = []
        self.mappings: weakref.WeakSet[SimMapping] = weakref.WeakSet()
        self.mapped = False
        """Whether stores through a writable mapping may have happened since the last sync."""
        self.room_bytes = 0
        """Up to where the file has room on disk; a store into a mapping beyond it waits for a full disk to be fatal."""
        self.take_room(len(content))

    def take_room(self, size: int) -> None:
        """Gives the first `size` bytes room on disk."""
        self.room_bytes = max(self.room_bytes, -(-size // PAGE_BYTES) * PAGE_BYTES)

    def change(self, change: Change) -> None:
        """A write or a resize, into the page cache only."""
        size = change.size_after(len(self.content))
        if size != len(self.content):
            self._make_resizable(size)
        apply(self.content, change)
        self.unsynced.append(change)
        if isinstance(change, Write):
            self.take_room(change.position + len(change.data))
        else:
            self.room_bytes = min(self.room_bytes, -(-size // PAGE_BYTES) * PAGE_BYTES)
        if len(self.unsynced) > UNSYNCED_CHANGES_MAX:
            self._write_back(UNSYNCED_CHANGES_MAX // 2)

    def _make_resizable(self, size: int) -> None:
        """Python pins the size of a buffer that is looked at; a read-only mapping keeps the old bytes when it grows."""
        writable = any(mapping.writable for mapping in self.mappings)
        if self.mappings and (size < len(self.content) or writable):
            raise MisuseError(
                f"{next(iter(self.mappings)).path} is resized from {len(self.content)} to {size} bytes while it is "
                "mapped: a real process could die of SIGBUS; close the mapping first"
            )
        try:
            self.content.append(0)
            self.content.pop()
        except BufferError:
            self.content = bytearray(self.content)

    def _write_back(self, count: int) -> None:
        for change in self.unsynced[:count]:
            apply(self.durable, change)
        del self.unsynced[:count]

    def sync(self) -> None:
        """Everything, mapped stores too, would now survive."""
        if self.mapped:
            self.durable = bytearray(self.content)
            self.mapped = any(mapping.writable for mapping in self.mappings)
        else:
            self._write_back(len(self.unsynced))
            # After a failed sync the forgotten changes stay lost, but the size in memory is what the journal writes.
            resize(self.durable, len(self.content))
        self.unsynced.clear()

    def fail_sync(self, random: Random) -> None:
        """A sync that met an error: some bytes arrived; the rest count as clean, so that no later sync saves them."""
        self.durable = self.after_crash(random)
        self.unsynced.clear()
        self.mapped = any(mapping.writable for mapping in self.mappings)

    def after_crash(self, random: Random) -> bytearray:
        """What the disk holds after a power cut now; see the fault model in `disk.py`."""
        odds = SURVIVAL_ODDS[random.randrange(len(SURVIVAL_ODDS))]
        sizes = [len(self.durable)]
        for change in self.unsynced:
            sizes.append(change.size_after(sizes[-1]))
        resizes_kept = _pick_prefix(len(self.unsynced), odds, random)
        image = bytearray(self.durable)
        stale: set[int] = set()
        floor = sizes[resizes_kept]
        for number, change in enumerate(self.unsynced, 1):
            end = len(image)
            if number <= resizes_kept:
                end = sizes[number]
                if end < len(image):
                    stale = {sector for sector in stale if sector * SECTOR_BYTES < end}
                resize(image, end)
            else:
                floor = min(floor, sizes[number])
                # A block that a lost truncation freed and a later write filled again was never part of the file.
                if floor < end:
                    end = floor // SECTOR_BYTES * SECTOR_BYTES
            if isinstance(change, Write):
                _write_torn(image, change, end, stale, odds, random)
        if self.mapped:
            self._write_mapped_pages(image, odds, random)
        grown = sizes[resizes_kept] - sizes[max(0, resizes_kept - 1)]
        if grown > 0 and isinstance(self.unsynced[resizes_kept - 1], Write) and random.random() < 0.5:
            resize(image, len(image) - random.randrange(grown))
        return image

    def _write_mapped_pages(self, image: bytearray, odds: float, random: Random) -> None:
        """Each page that was stored into survives as it is, up to some byte as it may have been earlier, or not."""
        written = bytearray(self.durable)
        for change in self.unsynced:
            apply(written, change)
        for start in range(0, min(len(image), len(self.content)), PAGE_BYTES):
            page = self.content[start : min(start + PAGE_BYTES, len(image))]
            if page == written[start : start + len(page)] or random.random() >= odds:
                continue
            kept = len(page) if random.random() < 0.5 else random.randrange(len(page))
            image[start : start + kept] = page[:kept]

    def restarted(self, content: bytearray) -> "Inode":
        """A fresh file with these bytes, all of them durable, that no old handle can reach."""
        inode = Inode()
        inode.content = content
        inode.durable = bytearray(content)
        inode.take_room(len(content.rstrip(b"\0")))
        return inode

    def survived_kill(self) -> "Inode":
        """The same page cache after the process died; what was unsynced still is."""
        inode = Inode()
        inode.content = bytearray(self.content)
        inode.durable = bytearray(self.durable)
        inode.unsynced = list(self.unsynced)
        inode.mapped = self.mapped
        inode.room_bytes = self.room_bytes
        return inode


def _pick_prefix(count: int, odds: float, random: Random) -> int:
    """How many of `count` ordered changes made it, by the odds."""
    if odds in (0.0, 1.0) or count == 0:
        return int(odds) * count
    return random.randrange(count + 1)


def _write_torn(image: bytearray, write: Write, end: int, stale: set[int], odds: float, random: Random) -> None:
    """Writes those sectors that made it. A sector holds some earlier moment's bytes: what missed one write of it misses
    all later ones too, which `stale` remembers."""
    by_sector = random.random() < 0.5
    kept = random.random() < odds
    position = write.position
    end = min(end, write.position + len(write.data))
    while position < end:
        sector = position // SECTOR_BYTES
        stop = min(end, (sector + 1) * SECTOR_BYTES)
        if by_sector:
            kept = random.random() < odds
        if not kept:
            stale.add(sector)
        elif sector not in stale:
            image[position:stop] = write.data[position - write.position : stop - write.position]
        position = stop
