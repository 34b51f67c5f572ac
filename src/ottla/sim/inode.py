"""One simulated file's bytes: what the page cache holds, and what would survive a power cut.

Covers writes, resizes, syncs, and the image a crash leaves. Names and folders are in `folders.py`, the fault model as a
whole in `disk.py`.
"""

from dataclasses import dataclass
from typing import Final

from ottla.env.ports import Random
from ottla.model.buffer import Buffer
from ottla.model.ids import TimestampMs

SECTOR_BYTES: Final = 512
"""What a drive writes whole or not at all."""

PAGE_BYTES: Final = 4096
"""What a file's room on disk is counted in."""

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

    Invariant: `durable` with every change of `unsynced` applied in order equals `content`; only a failed sync breaks
    it, which forgets changes as Linux does.
    """

    __slots__ = ("content", "durable", "modified_ms", "unsynced")

    def __init__(self, content: Buffer = b"", *, modified_ms: TimestampMs) -> None:
        self.modified_ms = modified_ms
        self.content = bytearray(content)
        self.durable = bytearray(content)
        self.unsynced: list[Change] = []

    @property
    def room_bytes(self) -> int:
        """What the file takes on disk."""
        return -(-len(self.content) // PAGE_BYTES) * PAGE_BYTES

    def change(self, change: Change) -> None:
        """A write or a resize, into the page cache only. A new size while the file is mapped raises BufferError."""
        apply(self.content, change)
        self.unsynced.append(change)
        if len(self.unsynced) > UNSYNCED_CHANGES_MAX:
            self._write_back(UNSYNCED_CHANGES_MAX // 2)

    def _write_back(self, count: int) -> None:
        for change in self.unsynced[:count]:
            apply(self.durable, change)
        del self.unsynced[:count]

    def sync(self) -> None:
        """Everything would now survive."""
        self._write_back(len(self.unsynced))
        # After a failed sync the forgotten changes stay lost, but the size in memory is what the journal writes.
        resize(self.durable, len(self.content))

    def fail_sync(self, random: Random) -> None:
        """A sync that met an error: some bytes arrived; the rest count as clean, so that no later sync saves them."""
        self.durable = self.after_crash(random)
        self.unsynced.clear()

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
        grown = sizes[resizes_kept] - sizes[max(0, resizes_kept - 1)]
        if grown > 0 and isinstance(self.unsynced[resizes_kept - 1], Write) and random.random() < 0.5:
            resize(image, len(image) - random.randrange(grown))
        return image

    def survived_kill(self) -> "Inode":
        """The same page cache after the process died; what was unsynced still is."""
        inode = Inode(self.content, modified_ms=self.modified_ms)
        inode.durable = bytearray(self.durable)
        inode.unsynced = list(self.unsynced)
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
