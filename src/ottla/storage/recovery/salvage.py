"""Reads what is left of a damaged log: every intact batch in order, and which bytes were skipped.

For logs that no other replica can repair, if some of the records are better than none. Consumers use `Log.read`, which
raises at the first corrupt batch. Batches are found by their position in the files, not by the indexes, which may be
damaged too.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Final, NamedTuple

from ottla.model.errors import CorruptBatchError, StorageError
from ottla.model.ids import Offset
from ottla.records.batch import Batch, scan
from ottla.records.layout import HEADER_BYTES, MAGIC, MAGIC_AT
from ottla.storage.log import Log
from ottla.storage.segments.segment import Segment

_PIECE_BYTES: Final = 1 << 20
_MAGIC: Final = bytes([MAGIC])


class Intact(NamedTuple):
    """Some batches of a segment; their positions are relative to `position` in the file."""

    path: str
    position: int
    batches: list[Batch]


class Skipped(NamedTuple):
    """Bytes of a segment that are not intact batches, and the offsets that they may have held."""

    path: str
    position: int
    size_bytes: int
    first_offset: Offset
    next_offset: Offset
    """The offset of the next intact batch, or of the log's end."""


def read_intact(log: Log) -> Iterator[Intact | Skipped]:
    """The intact batches from the log start on, in groups, and what was skipped between them.

    Includes batches that are appended in the meantime. Raises StorageError if a file cannot be read at all.
    """
    start = log.start_offset
    expected = log.segments[0].base_offset
    at = 0
    while at < len(log.segments):
        segment = log.segments[at]
        position = 0
        while position < segment.size_bytes:
            limit = segment.limit_offset if segment.limit_offset is not None else log.end_offset
            batches = _intact_at(segment, position, expected, limit)
            if batches:
                yield Intact(segment.log_path, position, [each for each in batches if each.next_offset > start])
                position += batches[-1].position + batches[-1].size_bytes
                expected = batches[-1].next_offset
                continue
            following = _intact_behind(segment, position, expected, limit)
            end, next_offset = (segment.size_bytes, limit) if following is None else following
            if next_offset > start:
                yield Skipped(segment.log_path, position, end - position, max(expected, start), next_offset)
            position, expected = end, max(expected, next_offset)
        at += 1


def _intact_at(segment: Segment, position: int, expected: Offset, limit: Offset) -> list[Batch]:
    """The batches from `position` up to the first that is corrupt or out of order; at most one piece of them."""
    batches, _, _ = scan(_read(segment, position, _PIECE_BYTES))
    if not batches:
        # A batch that is larger than a piece.
        place = segment.place_at(position)
        batches = [] if place is None else scan(_read(segment, position, place.size_bytes))[0]
    for number, batch in enumerate(batches):
        if batch.base_offset < expected or batch.last_offset >= limit:
            return batches[:number]
        expected = batch.next_offset
    return batches


def _intact_behind(segment: Segment, position: int, expected: Offset, limit: Offset) -> tuple[int, Offset] | None:
    """Position and base offset of the first intact batch behind a corrupt one, found by trying every position."""
    content = _read(segment, position, segment.size_bytes - position)
    at = content.find(_MAGIC, 1 + MAGIC_AT)
    while at >= 0:
        begin = at - MAGIC_AT
        if len(content) - begin < HEADER_BYTES:
            return None
        with suppress(CorruptBatchError):
            batch = Batch(content, begin)
            if expected <= batch.base_offset and batch.last_offset < limit and batch.crc_valid():
                return position + begin, batch.base_offset
        at = content.find(_MAGIC, at + 1)
    return None


def _read(segment: Segment, position: int, size: int) -> bytes:
    try:
        return segment.file.read_at(position, min(size, segment.size_bytes - position))
    except OSError as error:
        raise StorageError(f"{segment.log_path}: cannot read: {error.strerror}") from error
