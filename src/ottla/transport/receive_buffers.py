"""The memory that requests arrive in: lent to a connection while it has something to read, bounded in all.

A connection that is silent holds nothing. One that sends a large request is lent one buffer for the whole of it, and
the sum of what is lent has a bound: who would exceed it waits, unread, until others are done, and the kernel tells the
sender to slow down. If all who hold something wait for something larger, one of them is let through beyond the bound,
since nobody else could ever finish.
"""

import ctypes
from collections import deque
from collections.abc import Callable
from typing import Final

SMALL_BYTES: Final = 64 * 1024
"""What a connection is lent before it is known how much comes; these are not counted, a silent connection has none."""

_SMALL_OUT_MAX: Final = 64
"""Up to so many small ones may stay with connections that have nothing in them, to be used again at once."""

_KEPT_BYTES_MAX: Final = 16 * 1024 * 1024
"""How much is kept for the next borrower rather than given back to the system."""

# `bytearray(size)` writes zeros to every page: a quarter of a second for the largest request, at its first four bytes.
# This way a page exists once something has arrived in it, and nobody looks beyond what has arrived.
_new_bytearray = ctypes.pythonapi.PyByteArray_FromStringAndSize
_new_bytearray.argtypes = (ctypes.c_char_p, ctypes.c_ssize_t)
_new_bytearray.restype = ctypes.py_object


class ReceiveBuffers:
    """Lends byte arrays; `bytes_max` bounds those larger than `SMALL_BYTES`, but for one that is larger alone."""

    __slots__ = ("_free", "_kept_bytes", "_lent_bytes", "_small_out", "_stuck_bytes", "_waiting", "bytes_max")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self._lent_bytes = 0
        self._stuck_bytes = 0
        """Of those that are lent, held by somebody who waits for a larger one."""
        self._kept_bytes = 0
        self._small_out = 0
        self._free: dict[int, list[bytearray]] = {}
        self._waiting: deque[Callable[[], None]] = deque()

    @property
    def lent_bytes(self) -> int:
        """The size of all large buffers that are out."""
        return self._lent_bytes

    def lend(self, size: int, *, held_bytes: int = 0) -> bytearray | None:
        """A buffer of at least that size; None if others must finish first: then ask for `when_free`.

        `held_bytes` is the size of the buffer that will be given back for it. What is in the new one is anything.
        """
        rounded = SMALL_BYTES if size <= SMALL_BYTES else 1 << (size - 1).bit_length()
        if rounded > SMALL_BYTES:
            others = self._lent_bytes - (held_bytes if held_bytes > SMALL_BYTES else 0)
            if others > self._stuck_bytes and others + rounded > self.bytes_max:
                return None
            self._lent_bytes += rounded
        else:
            self._small_out += 1
        free = self._free.get(rounded)
        if free:
            self._kept_bytes -= rounded
            return free.pop()
        made: bytearray = _new_bytearray(None, rounded)
        return made

    def when_free(self, callback: Callable[[], None], *, held_bytes: int = 0) -> None:
        """Calls back once, when something large was given back; `held_bytes` as for `lend`."""
        self._waiting.append(callback)
        if held_bytes > SMALL_BYTES:
            self._stuck_bytes += held_bytes

    def give_back(self, buffer: bytearray) -> None:
        """Takes a lent buffer; nobody may look into it any more."""
        size = len(buffer)
        if self._kept_bytes + size <= _KEPT_BYTES_MAX:
            self._free.setdefault(size, []).append(buffer)
            self._kept_bytes += size
        self._return(size)

    def forget(self, buffer: bytearray) -> None:
        """Takes a lent buffer out of the count that somebody may still look into; it is not lent again."""
        self._return(len(buffer))

    def is_wanted(self, buffer: bytearray) -> bool:
        """Whether a lent buffer that nothing is in should be given back."""
        return len(buffer) > SMALL_BYTES or self._small_out > _SMALL_OUT_MAX

    def _return(self, size: int) -> None:
        if size <= SMALL_BYTES:
            self._small_out -= 1
        else:
            self._lent_bytes -= size
            self._stuck_bytes = 0
            for _ in range(len(self._waiting)):
                self._waiting.popleft()()
