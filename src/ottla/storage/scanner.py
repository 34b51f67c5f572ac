"""Reads a segment batch by batch, in large pieces: what recovery, verification and replay are made of."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from ottla.env.ports import File
from ottla.model.errors import CorruptBatchError
from ottla.records.batch import Batch, scan
from ottla.records.layout import HEADER_BYTES, LENGTH_AT, LENGTH_PREFIX_BYTES

PIECE_BYTES: Final = 1 << 20


class DamagedSegmentError(CorruptBatchError):
    """What stands at `position` of the file at `path` is not a whole, valid batch."""

    def __init__(self, path: str, position: int, what: str) -> None:
        super().__init__(f"{path}, byte {position}: {what}")
        self.path = path
        self.position = position


class Piece(NamedTuple):
    """Some whole batches, whose `position` counts from that of the piece in the file.

    They lie in a buffer that the next piece overwrites.
    """

    position: int
    batches: list[Batch]
    end: int
    """The position in the file after the last of them."""


def scan_file(file: File, start: int, end: int, *, check_crc: bool = True) -> Iterator[Piece]:
    """Yields the batches between two positions of a segment.

    Raises DamagedSegmentError at the first that is damaged or cut off, after those before it.
    """
    buffer = bytearray(min(PIECE_BYTES, max(end - start, HEADER_BYTES)))
    position = start
    while position < end:
        wanted = min(len(buffer), end - position)
        view = memoryview(buffer)[:wanted]
        got = file.read_into(position, view)
        batches, consumed, problem = scan(view[:got], check_crc=check_crc)
        if batches:
            yield Piece(position, batches, position + consumed)
            del batches
        if problem is not None:
            raise DamagedSegmentError(file.path, position + consumed, problem)
        if consumed == 0:
            if got < wanted or wanted == end - position:
                raise DamagedSegmentError(file.path, position, f"a batch is cut off after {got} bytes")
            buffer = _larger(buffer, end - position, file.path, position)
        position += consumed


def _larger(buffer: bytearray, room: int, path: str, position: int) -> bytearray:
    """A buffer that holds the whole of a batch that the present one begins with, and the same beginning."""
    size = int.from_bytes(buffer[LENGTH_AT : LENGTH_AT + 4], "big", signed=True) + LENGTH_PREFIX_BYTES
    if size > room:
        raise DamagedSegmentError(path, position, f"a batch of {size} bytes is cut off after {room}")
    return bytearray(max(size, len(buffer)))
