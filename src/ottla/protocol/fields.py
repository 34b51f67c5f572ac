"""The few field types that the raw Produce and Fetch frames are made of, read with bounds and written.

Everything else on the wire goes through kio (`ottla.protocol.messages`).
"""

from collections.abc import Iterator
from struct import Struct
from struct import error as StructError
from typing import Any, Final, Self

from ottla.model.errors import CorruptError
from ottla.protocol.varints import unsigned_varint

_CORRELATION_BYTES: Final = 4


class BrokenAnswerError(CorruptError):
    """An answer whose lengths do not fit its bytes."""


def compact_string(text: str | None) -> bytes:
    """A string with its length plus one in front; 0 for None."""
    if text is None:
        return b"\0"
    encoded = text.encode()
    return unsigned_varint(len(encoded) + 1) + encoded


class FieldReader:
    """Reads one frame from front to back; raises `BrokenAnswerError` rather than beyond its end."""

    __slots__ = ("_frame", "_position")

    def __init__(self, frame: memoryview, position: int = 0) -> None:
        self._frame = frame
        self._position = position

    @classmethod
    def of_response(cls, frame: memoryview) -> Self:
        """Reads the body of a response in a flexible version; the caller has matched the correlation id."""
        reader = cls(frame, _CORRELATION_BYTES)
        reader.skip_tags()
        return reader

    def unpack(self, fields: Struct) -> tuple[Any, ...]:
        """Fixed-size fields."""
        try:
            values = fields.unpack_from(self._frame, self._position)
        except StructError as error:
            raise BrokenAnswerError(f"the response ends at byte {len(self._frame)}, within a field") from error
        self._position += fields.size
        return values

    def varint(self) -> int:
        """An unsigned varint of at most 32 bits."""
        value = shift = 0
        while True:
            if self._position >= len(self._frame) or shift > 28:
                raise BrokenAnswerError(f"a varint at byte {self._position} does not end")
            byte = self._frame[self._position]
            self._position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def count(self) -> int:
        """How many elements a compact array has; 0 for null. Never more than could fit."""
        count = max(self.varint() - 1, 0)
        if count > len(self._frame) - self._position:
            raise BrokenAnswerError(f"invalid element count {count} at byte {self._position}")
        return count

    def bytes(self) -> memoryview | None:
        """A compact nullable byte string, as a view."""
        size = self.varint() - 1
        return None if size < 0 else self.take(size)

    def take(self, size: int) -> memoryview:
        """That many bytes, as a view."""
        if size > len(self._frame) - self._position:
            raise BrokenAnswerError(f"invalid size {size} at byte {self._position}")
        view = self._frame[self._position : self._position + size]
        self._position += size
        return view

    def string(self) -> str | None:
        """A compact nullable string."""
        view = self.bytes()
        return None if view is None else str(view, "utf-8", "replace")

    def tags(self) -> Iterator[tuple[int, memoryview]]:
        """Tagged fields: number and content of each."""
        for _ in range(self.varint()):
            tag, size = self.varint(), self.varint()
            yield tag, self.take(size)

    def skip_tags(self) -> None:
        """Passes over tagged fields."""
        for _ in range(self.varint()):
            self.varint()
            size = self.varint()
            if size > len(self._frame) - self._position:
                raise BrokenAnswerError(f"a tagged field of {size} bytes at byte {self._position} does not end")
            self._position += size
