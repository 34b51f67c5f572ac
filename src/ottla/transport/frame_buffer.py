"""Splits the bytes that arrive on a connection into response frames. Pure: no socket, no clock.

Bytes are received into `room()`. Small frames share one buffer and are copied out of it; a large one is received into
memory of its own, which goes with it, so that records are not copied on their way to the decoder. Memory is
bounded by the largest frame allowed.
"""

from typing import Final

from ottla.model.errors import CorruptError
from ottla.records.packed_buffer import uninitialized

SHARED_BYTES: Final = 64 * 1024
"""A frame up to this size, with its length, arrives in the shared buffer."""
_LENGTH_BYTES: Final = 4
_FRAME_BYTES_MIN: Final = 4
"""A response has at least its correlation id."""


class BrokenFrameError(CorruptError):
    """An impossible length: the peer does not use Kafka's protocol."""


class FrameBuffer:
    """Bytes `[_start, _end)` of `_shared` have arrived and were not yet taken; frames begin with an int32 length.

    While a large frame arrives, nothing is in `_shared`, and `_missing` bytes at the end of `_large` are to come.
    """

    __slots__ = ("_bytes_max", "_end", "_large", "_missing", "_shared", "_start")

    def __init__(self, bytes_max: int) -> None:
        self._shared = memoryview(bytearray(SHARED_BYTES))
        self._bytes_max = bytes_max
        self._start = 0
        self._end = 0
        self._large: memoryview | None = None
        self._missing = 0

    @property
    def missing(self) -> int:
        """How many more bytes of a large frame will come for certain; 0 if none is arriving."""
        return self._missing

    def room(self) -> memoryview:
        """Where to receive to, never empty. To be filled before the next call of anything here."""
        if self._large is not None:
            return self._large[len(self._large) - self._missing :]
        return self._shared[self._end :]

    def received(self, size: int) -> None:
        """Says how many bytes of `room()` were filled. Then take frames until there are none."""
        if self._large is not None:
            self._missing -= size
        else:
            self._end += size

    def next_frame(self) -> memoryview | None:
        """The next whole frame without its length; None if it has not arrived. Raises `BrokenFrameError`."""
        if self._large is not None:
            if self._missing:
                return None
            frame, self._large = self._large, None
            return frame
        arrived = self._end - self._start
        if arrived < _LENGTH_BYTES:
            self._move_to_front()
            return None
        start = self._start + _LENGTH_BYTES
        size = int.from_bytes(self._shared[self._start : start], "big", signed=True)
        if not _FRAME_BYTES_MIN <= size <= self._bytes_max:
            raise BrokenFrameError(
                f"invalid response size {size}, expected {_FRAME_BYTES_MIN} to {self._bytes_max}; "
                "is this a Kafka port without TLS?"
            )
        if arrived - _LENGTH_BYTES < size:
            if size > SHARED_BYTES - _LENGTH_BYTES:
                self._begin_large(start, size)
            else:
                self._move_to_front()
            return None
        self._start = start + size
        # Copied, so that a small answer does not keep a large buffer alive.
        return memoryview(bytes(self._shared[start : self._start]))

    def _begin_large(self, start: int, size: int) -> None:
        """What is there of the frame, all that is left in the shared buffer, goes to memory of its own."""
        self._large = memoryview(uninitialized(size))
        self._missing = size - (self._end - start)
        self._large[: size - self._missing] = self._shared[start : self._end]
        self._start = self._end = 0

    def _move_to_front(self) -> None:
        """So that the rest of the frame at `_start` has room."""
        if self._start:
            left = self._end - self._start
            self._shared[:left] = bytes(self._shared[self._start : self._end])
            self._start, self._end = 0, left
