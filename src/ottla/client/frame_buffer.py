"""Splits the bytes that arrive on a connection into response frames. Pure: no socket, no clock.

Bytes are received into `room()`; a small frame is copied out, a large one takes its whole buffer with it, so that
records are not copied on their way to whoever decodes them. Memory is bounded by the largest frame allowed.
"""

from typing import Final

from ottla.model.errors import CorruptError

START_BYTES: Final = 64 * 1024
COPY_BYTES_MAX: Final = 16 * 1024
"""A frame up to this size is copied, so that a small answer does not keep a large buffer alive."""
_LENGTH_BYTES: Final = 4
_FRAME_BYTES_MIN: Final = 4
"""A response has at least its correlation id."""


class BrokenFrameError(CorruptError):
    """A length that cannot be one: whoever is at the other end does not speak Kafka's protocol."""


class FrameBuffer:
    """Bytes `[_start, _end)` of `_buffer` have arrived and were not yet taken; frames begin with an int32 length."""

    __slots__ = ("_buffer", "_bytes_max", "_end", "_start")

    def __init__(self, bytes_max: int) -> None:
        self._buffer = bytearray(START_BYTES)
        self._bytes_max = bytes_max
        self._start = 0
        self._end = 0

    def room(self) -> memoryview:
        """Where to receive to, never empty. Release it before the next call of anything here."""
        if self._start == self._end:
            self._start = self._end = 0
        missing = self._start + self._needed() - len(self._buffer)
        if missing > 0 or self._end == len(self._buffer):
            self._move(max(START_BYTES, self._needed()))
        return memoryview(self._buffer)[self._end :]

    def received(self, size: int) -> None:
        """Says how many bytes of `room()` were filled."""
        self._end += size

    def next_frame(self) -> memoryview | None:
        """The next whole frame without its length; None if it has not arrived. Raises `BrokenFrameError`."""
        if self._end - self._start < _LENGTH_BYTES:
            return None
        size = self._needed() - _LENGTH_BYTES
        if not _FRAME_BYTES_MIN <= size <= self._bytes_max:
            raise BrokenFrameError(
                f"a response of {size} bytes is announced, where 4 to {self._bytes_max} are possible; "
                "is this a Kafka port without TLS?"
            )
        start = self._start + _LENGTH_BYTES
        if self._end - start < size:
            return None
        self._start = start + size
        if size <= COPY_BYTES_MAX:
            return memoryview(bytes(memoryview(self._buffer)[start : start + size]))
        frame = memoryview(self._buffer)[start : start + size]
        self._move(max(START_BYTES, self._end - self._start))
        return frame

    def _needed(self) -> int:
        """How many bytes from `_start` on the next frame takes, as far as that is known."""
        if self._end - self._start < _LENGTH_BYTES:
            return _LENGTH_BYTES
        length = int.from_bytes(self._buffer[self._start : self._start + _LENGTH_BYTES], "big", signed=True)
        return length + _LENGTH_BYTES

    def _move(self, size: int) -> None:
        """Goes on in a new buffer; the old one belongs to the frames that were handed out of it."""
        left = memoryview(self._buffer)[self._start : self._end]
        buffer = bytearray(size)
        buffer[: len(left)] = left
        self._buffer, self._start, self._end = buffer, 0, len(left)
