"""Which offsets of a dead-letter partition were redriven. Pure.

Kept as the committed offset of a group: everything below it was redriven, and its metadata lists what was redriven
above. So letters that a filter left out are redriven later, and no letter twice, whatever the filters were.
"""

import base64
import binascii
import zlib
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import Final

from ottla.model.errors import InvalidRequestError, MisuseError

METADATA_BYTES_MAX: Final = 4096
"""A broker accepts no longer metadata, unless `offset.metadata.max.bytes` is changed."""
_PREFIX: Final = "redriven:"
_TEXT_BYTES_MAX: Final = 1 << 20


class TooScatteredError(MisuseError):
    """The redriven letters lie among too many others to be noted."""


class UnreadableProgressError(InvalidRequestError):
    """The group's metadata was not written by this command."""


@dataclass(slots=True)
class RedriveProgress:
    """One partition."""

    offset: int
    """All offsets below it are done, and this one is not."""
    ranges: list[tuple[int, int]] = field(default_factory=list)
    """Offsets above it that are done: in order, and apart from each other."""

    def copy(self) -> "RedriveProgress":
        """The same, to be changed on its own."""
        return RedriveProgress(self.offset, list(self.ranges))

    def is_done(self, offset: int) -> bool:
        """Whether this offset was redriven, or has no letter."""
        if offset < self.offset:
            return True
        at = bisect_right(self.ranges, offset, key=lambda each: each[0]) - 1
        return at >= 0 and offset < self.ranges[at][1]

    def add(self, start: int, end: int) -> None:
        """Offsets from `start` to `end`, exclusive, are done."""
        if start >= end:
            return
        ranges = self.ranges
        first = bisect_left(ranges, start, key=lambda each: each[1])
        behind = bisect_right(ranges, end, key=lambda each: each[0])
        if first < behind:
            start, end = min(start, ranges[first][0]), max(end, ranges[behind - 1][1])
        ranges[first:behind] = [(start, end)]
        while ranges and ranges[0][0] <= self.offset:
            self.offset = max(self.offset, ranges.pop(0)[1])

    def metadata(self) -> str:
        """The text to commit with `offset`. Raises `TooScatteredError`."""
        if not self.ranges:
            return ""
        numbers: list[str] = []
        last = self.offset
        for low, high in self.ranges:
            numbers += [str(low - last), str(high - low)]
            last = high
        packed = zlib.compress(",".join(numbers).encode(), 9)
        text = _PREFIX + base64.b64encode(packed).decode()
        if len(text) > METADATA_BYTES_MAX:
            raise TooScatteredError(
                f"the redriven letters are in {len(self.ranges)} separate offset ranges, too many to record; redrive or"
                " purge older letters first"
            )
        return text


def parse_progress(offset: int, metadata: str) -> RedriveProgress:
    """The progress that was committed. Raises `UnreadableProgressError`."""
    if not metadata:
        return RedriveProgress(offset)
    if not metadata.startswith(_PREFIX):
        raise UnreadableProgressError(f"unknown metadata {metadata[:40]!r} in the offsets of the redrive group")
    try:
        packed = base64.b64decode(metadata[len(_PREFIX) :], validate=True)
        text = zlib.decompressobj().decompress(packed, _TEXT_BYTES_MAX).decode()
        numbers = [int(part) for part in text.split(",")]
        pairs = list(zip(numbers[::2], numbers[1::2], strict=True))
    except (ValueError, binascii.Error, zlib.error) as error:
        raise UnreadableProgressError("the metadata of the redrive group cannot be read") from error
    found = RedriveProgress(offset)
    last = offset
    for gap, length in pairs:
        if gap < 0 or length < 1:
            raise UnreadableProgressError("the metadata of the redrive group cannot be read")
        found.add(last + gap, last + gap + length)
        last += gap + length
    return found
