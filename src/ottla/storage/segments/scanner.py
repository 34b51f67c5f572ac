"""Reads a segment batch by batch, in large pieces; used by recovery, verification and replay."""

import re
from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from ottla.env.ports import File
from ottla.model.errors import CorruptBatchError
from ottla.model.ids import NO_LEADER_EPOCH, LeaderEpoch, Offset
from ottla.records.batch import Batch, scan
from ottla.records.layout import HEADER_BYTES, LENGTH_AT, LENGTH_PREFIX_BYTES, MAGIC_AT

PIECE_BYTES: Final = 1 << 20
_BASE_AND_LENGTH: Final = Struct(">qi")
_MAGIC: Final = 2
_ALL_FLUSHED: Final = Offset(2**63 - 1)
EPOCH_MAX: Final = LeaderEpoch(2**31 - 1)


class DamagedSegmentError(CorruptBatchError):
    """The bytes at `position` of the file at `path` are not a whole, valid batch."""

    def __init__(self, path: str, position: int, what: str) -> None:
        super().__init__(f"{path}, byte {position}: {what}")
        self.path = path
        self.position = position
        self._what = what

    def __reduce__(self) -> tuple[type["DamagedSegmentError"], tuple[str, int, str]]:
        # The helper process raises it too, so that it must be picklable.
        return type(self), (self.path, self.position, self._what)


class Piece(NamedTuple):
    """Some whole batches; their `position` is relative to that of the piece in the file.

    They are in a buffer that the next piece overwrites.
    """

    position: int
    batches: list[Batch]
    end: int
    """The position in the file behind the last batch."""


class BatchEpoch(NamedTuple):
    """The leader epoch in the header of the batch at a position of its segment."""

    position: int
    base_offset: Offset
    epoch: LeaderEpoch


class BatchOrder:
    """Follows the batches of one segment and finds where their offsets or leader epochs decrease.

    A batch's checksum covers neither, so only their order shows that a bit has flipped. Of two batches that contradict
    each other, the later is at fault if it also contradicts the batch before both, or if the earlier begins exactly
    where the batch before it ended; otherwise the earlier is. Behind `flushed_end` it is always the later: a power cut
    leaves unfinished batches at the end of what was written. A leader epoch above `epoch_max` never existed.
    """

    __slots__ = ("_before", "_epoch_max", "_expected", "_flushed_end", "_path")

    def __init__(
        self,
        path: str,
        expected: Offset,
        epoch: LeaderEpoch = NO_LEADER_EPOCH,
        *,
        flushed_end: Offset = _ALL_FLUSHED,
        epoch_max: LeaderEpoch = EPOCH_MAX,
    ) -> None:
        self._path = path
        self._expected = self._before = (expected, epoch)
        self._flushed_end = flushed_end
        self._epoch_max = epoch_max

    def follow(
        self, piece: Piece, following: tuple[Offset, LeaderEpoch] | None
    ) -> tuple[list[Batch], DamagedSegmentError | None]:
        """The batches of the next piece up to the first that is at fault, and what is wrong with it.

        `following` is the offset and epoch of the batch behind the piece; the piece's last batch must not exceed them.
        """
        batches = piece.batches
        for at, batch in enumerate(batches):
            base_offset, epoch = batch.base_offset, batch.leader_epoch
            if epoch > self._epoch_max:
                what = f"leader epoch {epoch} never existed: this data dir has seen epochs up to {self._epoch_max}"
                return batches[:at], DamagedSegmentError(self._path, piece.position + batch.position, what)
            if base_offset < self._expected[0] or epoch < self._expected[1]:
                fits = at > 0 and self._fits_before(base_offset, epoch)
                is_placed = fits and base_offset < self._expected[0] and batches[at - 1].base_offset == self._before[0]
                guilty = at - 1 if fits and not is_placed else at
                return batches[:guilty], self._damage(piece, guilty, base_offset, epoch)
            self._before, self._expected = self._expected, (batch.next_offset, epoch)
        if following is None or (following[0] >= self._expected[0] and following[1] >= self._expected[1]):
            return batches, None
        if self._fits_before(*following):
            return batches[:-1], self._damage(piece, len(batches) - 1, *following)
        return batches, None

    def _fits_before(self, base_offset: Offset, epoch: LeaderEpoch) -> bool:
        return self._expected[0] <= self._flushed_end and base_offset >= self._before[0] and epoch >= self._before[1]

    def _damage(self, piece: Piece, at: int, base_offset: Offset, epoch: LeaderEpoch) -> DamagedSegmentError:
        ends, of = self._expected
        what = f"offset {base_offset} of epoch {epoch} follows a batch of epoch {of} that ends at offset {ends}"
        return DamagedSegmentError(self._path, piece.position + piece.batches[at].position, what)


def scan_file(file: File, start: int, end: int, *, check_crc: bool = True) -> Iterator[Piece]:
    """Yields the batches between two positions of a segment.

    Raises DamagedSegmentError at the first batch that is damaged or incomplete, after yielding those before it.
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
                raise DamagedSegmentError(file.path, position, f"a batch is incomplete: it ends after {got} bytes")
            buffer = _larger(buffer, end - position, file.path, position)
        position += consumed


def _larger(buffer: bytearray, room: int, path: str, position: int) -> bytearray:
    """A buffer large enough for the whole batch that the given one begins with, with the same first bytes."""
    size = int.from_bytes(buffer[LENGTH_AT : LENGTH_AT + 4], "big", signed=True) + LENGTH_PREFIX_BYTES
    if size > room:
        raise DamagedSegmentError(path, position, f"a batch of {size} bytes is incomplete: it ends after {room}")
    return bytearray(max(size, len(buffer)))


def find_batch(file: File, start: int, end: int, *, lowest: Offset, below: Offset) -> int | None:
    """The position of the next whole and valid batch at or behind `start`, at any byte; None if there is none.

    Its offsets are in [lowest, below). A record value may contain the bytes of a batch, so a batch must be followed by
    another batch or by the end.
    """
    # Offsets in this range begin with the same bytes, so that almost nothing but a batch matches.
    prefix = lowest.to_bytes(8, "big")[: 8 - ((lowest ^ below).bit_length() + 7) // 8]
    candidates = re.compile(b"(?s)(?=%s.{%d}%c)" % (re.escape(prefix), MAGIC_AT - len(prefix), _MAGIC))
    for position in range(start, end - HEADER_BYTES + 1, PIECE_BYTES):
        piece = file.read_at(position, min(PIECE_BYTES + MAGIC_AT, end - position))
        for candidate in candidates.finditer(piece):
            at = position + candidate.start()
            batch = _valid_at(file, at, end)
            if batch is None or not (lowest <= batch.base_offset and batch.last_offset < below):
                continue
            behind = file.read_at(at + batch.size_bytes, min(MAGIC_AT + 1, end - at - batch.size_bytes))
            if len(behind) <= MAGIC_AT or (
                behind[MAGIC_AT] == _MAGIC and _BASE_AND_LENGTH.unpack_from(behind)[0] >= batch.next_offset
            ):
                return at
    return None


def _valid_at(file: File, position: int, end: int) -> Batch | None:
    header = file.read_at(position, HEADER_BYTES)
    if len(header) < HEADER_BYTES:
        return None
    _, length = _BASE_AND_LENGTH.unpack_from(header)
    size = length + LENGTH_PREFIX_BYTES
    if size < HEADER_BYTES or position + size > end:
        return None
    batches, _, problem = scan(file.read_at(position, size))
    return batches[0] if problem is None and len(batches) == 1 else None
