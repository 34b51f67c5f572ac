"""Reads parked records back from a companion's log, ahead of time where that is possible.

A cache of blocks, one for each batch that has records which are wanted soon. It is bounded in bytes: what does not fit
is read when it is due.
"""

from array import array
from bisect import bisect_left
from collections import OrderedDict
from typing import Final

from ottla.env.ports import Disk
from ottla.model.errors import CorruptError, OffsetOutOfRangeError
from ottla.model.ids import Offset
from ottla.records.batch import scan
from ottla.records.payload import INLINE_BYTES_MAX, unpack
from ottla.records.picking import RecordBlock
from ottla.storage.log import Log

CACHE_BYTES_MAX: Final = 64 * 1024 * 1024
_READ_BYTES: Final = 64 * 1024
_DENSE_READ_BYTES: Final = 1024 * 1024
_LOOKED_BYTES: Final = 4 * 1024 * 1024
"""Of what is read at a time, only so much is decompressed."""
_DENSE_OFFSETS: Final = 256
"""With this many wanted records close behind each other, more is read at a time."""


class ParkedRecords:
    """The records of one log, by offset."""

    def __init__(self, log: Log, disk: Disk, *, cache_bytes_max: int = CACHE_BYTES_MAX) -> None:
        self._log = log
        self._disk = disk
        self._cache_bytes_max = cache_bytes_max
        self._cached_bytes = 0
        self._blocks: OrderedDict[int, RecordBlock] = OrderedDict()
        """By the base offset of their batch; what was used last is at the end."""
        self._bases: list[int] = []
        """The base offsets of the blocks, sorted."""

    @property
    def size_bytes(self) -> int:
        """The memory that the cache takes."""
        return self._cached_bytes

    @property
    def is_full(self) -> bool:
        """Whether reading ahead would drop what was read ahead before."""
        return 4 * self._cached_bytes > 3 * self._cache_bytes_max

    async def blocks(self, offsets: "array[int]", *, bytes_max: int | None = None) -> list[RecordBlock]:
        """Blocks that have the records of these offsets, which must ascend; the blocks are in the order of offsets.

        With `bytes_max` those of the first offsets, until they take as much memory; at least one block.
        """
        found: dict[int, RecordBlock] = {}
        at = size_bytes = 0
        while at < len(offsets) and (bytes_max is None or size_bytes < bytes_max):
            offset = offsets[at]
            place = bisect_left(self._bases, offset + 1) - 1
            base = self._bases[place] if place >= 0 else -1
            block = self._blocks.get(base)
            if block is None or block.last_offset < offset:
                at, added_bytes = await self._read(offsets, at, found)
                size_bytes += added_bytes
                continue
            self._blocks.move_to_end(base)
            found[base] = block
            size_bytes += block.size_bytes
            at = bisect_left(offsets, block.last_offset + 1, at)
        self._shrink()
        return [found[base] for base in sorted(found)]

    async def left(self, offsets: "array[int]") -> "array[int]":
        """Those of these offsets whose records the log still has.

        Others are below the log start, or were removed by compaction or by a repair.
        """
        try:
            blocks = await self.blocks(array("q", sorted(offsets)))
        except (CorruptError, OffsetOutOfRangeError):
            blocks = []
        lasts = [block.last_offset for block in blocks]
        if blocks and all(
            (at := bisect_left(lasts, offset)) < len(blocks) and offset in blocks[at] for offset in offsets
        ):
            return offsets
        start = self._log.start_offset
        return array("q", [offset for offset in offsets if offset >= start and await self._has(offset)])

    async def _has(self, offset: int) -> bool:
        place = self._log.read(Offset(offset), _READ_BYTES, upper=self._log.end_offset)
        if place is None:
            return False
        content = await self._disk.in_background(place.file.read_at, place.position, place.size)
        batches, _, problem = scan(content)
        if not batches:
            raise CorruptError(f"{place.file.path}, byte {place.position}, offset {offset}: {problem}")
        batch = batches[0]
        await unpack(batch, self._disk.in_background)
        return batch.base_offset <= offset and not batch.is_control and offset in RecordBlock(batch)

    async def _read(self, offsets: "array[int]", at: int, found: dict[int, RecordBlock]) -> tuple[int, int]:
        """Reads the batch of one offset, and others behind it that are wanted; returns the next offset's place, and the
        size of the blocks."""
        first = offsets[at]
        is_dense = at + _DENSE_OFFSETS < len(offsets) and offsets[at + _DENSE_OFFSETS] - first < 4 * _DENSE_OFFSETS
        place = self._log.read(
            Offset(first), _DENSE_READ_BYTES if is_dense else _READ_BYTES, upper=self._log.end_offset
        )
        if place is None:
            raise CorruptError(f"{self._log.partition}: the parked record of offset {first} is missing")
        content = await self._disk.in_background(place.file.read_at, place.position, place.size)
        batches, _, problem = scan(content)
        if not batches or batches[0].base_offset > first:
            why = problem or "the parked record is missing"
            raise CorruptError(f"{place.file.path}, byte {place.position}, offset {first}: {why}")
        looked_bytes = added_bytes = 0
        for batch in batches:
            if at == len(offsets):
                break
            if batch.is_control or batch.last_offset < offsets[at]:
                continue
            size_bytes = await unpack(batch, self._disk.in_background)
            if size_bytes <= INLINE_BYTES_MAX:
                block = RecordBlock(batch)
            else:
                block = await self._disk.in_background(RecordBlock, batch)
            self._add(int(batch.base_offset), block)
            found[int(batch.base_offset)] = block
            added_bytes += block.size_bytes
            at = bisect_left(offsets, batch.next_offset, at)
            looked_bytes += size_bytes
            if looked_bytes >= _LOOKED_BYTES:
                break
        return at, added_bytes

    def _add(self, base: int, block: RecordBlock) -> None:
        if base in self._blocks:
            self._cached_bytes -= self._blocks.pop(base).size_bytes
        else:
            self._bases.insert(bisect_left(self._bases, base), base)
        self._blocks[base] = block
        self._cached_bytes += block.size_bytes

    def _shrink(self) -> None:
        while self._cached_bytes > self._cache_bytes_max and self._blocks:
            self._drop(next(iter(self._blocks)))

    def forget_below(self, offset: int) -> None:
        """Batches that end below this offset are not wanted any more."""
        for base in [base for base in self._bases if self._blocks[base].last_offset < offset]:
            self._drop(base)

    def _drop(self, base: int) -> None:
        self._cached_bytes -= self._blocks.pop(base).size_bytes
        del self._bases[bisect_left(self._bases, base)]
