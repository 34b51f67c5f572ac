"""Reads the replica of a partition from a simulated disk, independently of any broker.

Finds folders and segments, and walks their batches, also past damage. It uses only file names of `ottla.storage`:
checkers compare the broker with this.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.records.batch import Batch
from ottla.records.decode import decode_records
from ottla.sim.disk import SimDisk
from ottla.storage.data_dirs.names import LOG, partition_of

FRONT_BYTES: Final = 12
"""Base offset and length of a batch."""
HEADER_BYTES: Final = 61
CHECKED_FROM: Final = 21
"""The position in a batch where the checksum begins."""
LAST_DELTA: Final = slice(23, 27)
"""The position of the last offset delta in a batch."""
BATCHES_REMEMBERED: Final = 20_000
"""A cache: the same batches are read repeatedly."""


class Place(NamedTuple):
    """The place of a batch."""

    path: str
    position: int
    size_bytes: int
    base_offset: int
    next_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """What a folder holds."""

    values: Mapping[int, bytes]
    """By offset, from all batches with a valid checksum."""
    end_offset: int
    is_whole: bool
    """Whether every batch is valid and no offset is missing. Not used for compacted topics."""


def held_by(disk: SimDisk, data_dir: str) -> list[TopicPartition]:
    """The partitions that have a folder in their place, sorted by name."""
    if not disk.is_dir(data_dir):
        return []
    found = [partition_of(name) for name in disk.list_dir(data_dir) if disk.is_dir(f"{data_dir}/{name}")]
    return [each for each in found if each is not None]


def segments(disk: SimDisk, folder: str) -> list[str]:
    """The paths of a folder's segment files, in order."""
    return [f"{folder}/{name}" for name in disk.list_dir(folder) if name.endswith(LOG)]


def values_kept(disk: SimDisk, folder: str) -> Iterator[tuple[int, bytes]]:
    """The records of all valid batches in a folder, also those that recovery has set aside, with their offsets."""
    for name in disk.list_dir(folder):
        if LOG in name:
            path = f"{folder}/{name}"
            content = disk.read(path)
            for place in places(disk, path):
                yield from (_decode(content[place.position : place.position + place.size_bytes]) or {}).items()


def places(disk: SimDisk, path: str) -> Iterator[Place]:
    """Every batch of a segment that is there to its end, as the lengths say."""
    content = disk.read(path)
    position = 0
    while position + FRONT_BYTES <= len(content):
        size = FRONT_BYTES + int.from_bytes(content[position + 8 : position + FRONT_BYTES], "big")
        if size < HEADER_BYTES or position + size > len(content):
            break
        base = int.from_bytes(content[position : position + 8], "big")
        delta = int.from_bytes(content[position : position + HEADER_BYTES][LAST_DELTA], "big")
        yield Place(path, position, size, base, base + delta + 1)
        position += size


def read_copy(disk: SimDisk, folder: str) -> Copy | None:
    """The content of a folder; None if it does not exist."""
    if not disk.is_dir(folder):
        return None
    values: dict[int, bytes] = {}
    is_whole = True
    end = 0
    is_compacted = folder.rpartition("/")[2].startswith("__")
    for path in segments(disk, folder):
        content = disk.read(path)
        walked = 0
        for place in places(disk, path):
            walked = place.position + place.size_bytes
            found = _decode(content[place.position : walked])
            if found is None or (place.base_offset != end and not is_compacted):
                is_whole = False
            values.update(found or {})
            end = place.next_offset
        is_whole = is_whole and walked == len(content)
    return Copy(values=values, end_offset=end, is_whole=is_whole)


@lru_cache(BATCHES_REMEMBERED)
def _decode(content: bytes) -> Mapping[int, bytes] | None:
    """What is in a batch, by offset; None if it is damaged."""
    try:
        batch = Batch(content)
        batch.check()
        records = [] if batch.is_control else decode_records(batch)
    except OttlaError:
        return None
    return {each.offset: bytes(each.value or b"") for each in records}
