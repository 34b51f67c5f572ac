"""The memory that requests arrive in: lent to a connection while it has something to read, bounded in all.

A silent connection holds no buffer. The buffer of a large request grows with the bytes that have arrived, never with
the size that the client claims. The sum of the large buffers has a bound, and each client address may hold only a share
of it: a connection that would exceed either is not read from until others are done, and TCP slows its sender down. If
all connections that hold a buffer wait for a larger one, one of them is let through beyond the bound, since otherwise
none could ever finish.
"""

import ctypes
from collections import Counter, deque
from collections.abc import Callable
from typing import Final

SMALL_BYTES: Final = 64 * 1024
"""What a connection is lent before it is known how much comes; these are not counted, a silent connection has none."""

HOST_SHARE: Final = 4
"""One address may hold the bound divided by this."""

_SMALL_OUT_MAX: Final = 64
"""This many small buffers may stay with connections while they are empty, for the next request."""

_KEPT_BYTES_MAX: Final = 16 * 1024 * 1024
"""How much is kept for the next borrower rather than given back to the system."""

# `bytearray(size)` writes zeros to every page. This way the system provides a page when something arrives in it, and
# nothing reads beyond what has arrived.
_new_bytearray = ctypes.pythonapi.PyByteArray_FromStringAndSize
_new_bytearray.argtypes = (ctypes.c_char_p, ctypes.c_ssize_t)
_new_bytearray.restype = ctypes.py_object


class ReceiveBuffers:
    """Lends byte arrays; `bytes_max` bounds those larger than `SMALL_BYTES`, except for a single one that is larger.

    `host` is the client's address: all its connections together may hold `host_bytes_max`, with the same exception.
    """

    __slots__ = (
        "_free",
        "_kept_bytes",
        "_lent_by_host",
        "_lent_bytes",
        "_small_out",
        "_stuck_by_host",
        "_stuck_bytes",
        "_waiting",
        "bytes_max",
        "host_bytes_max",
    )

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.host_bytes_max = bytes_max // HOST_SHARE
        self._lent_bytes = 0
        self._lent_by_host: Counter[str] = Counter()
        self._stuck_bytes = 0
        """Of those that are lent, held by a connection that waits for a larger one."""
        self._stuck_by_host: Counter[str] = Counter()
        self._kept_bytes = 0
        self._small_out = 0
        self._free: dict[int, list[bytearray]] = {}
        self._waiting: deque[Callable[[], None]] = deque()

    @property
    def lent_bytes(self) -> int:
        """The size of all large buffers that are out."""
        return self._lent_bytes

    @property
    def waiting(self) -> int:
        """How many connections wait for memory."""
        return len(self._waiting)

    def largest_hosts(self, count: int) -> list[tuple[str, int]]:
        """The addresses that hold the most, with their bytes."""
        return self._lent_by_host.most_common(count)

    def lend(self, size: int, host: str, *, held_bytes: int = 0) -> bytearray | None:
        """A buffer of at least that size; None if others must finish first: then ask for `when_free`.

        `held_bytes` is the size of the buffer that will be given back for it. The content of the new one is undefined.
        """
        rounded = SMALL_BYTES if size <= SMALL_BYTES else 1 << (size - 1).bit_length()
        if rounded > SMALL_BYTES:
            held = held_bytes if held_bytes > SMALL_BYTES else 0
            others = self._lent_bytes - held
            if others > self._stuck_bytes and others + rounded > self.bytes_max:
                return None
            neighbours = self._lent_by_host[host] - held
            if neighbours > self._stuck_by_host[host] and neighbours + rounded > self.host_bytes_max:
                return None
            self._lent_bytes += rounded
            self._lent_by_host[host] += rounded
        else:
            self._small_out += 1
        free = self._free.get(rounded)
        if free:
            self._kept_bytes -= rounded
            return free.pop()
        made: bytearray = _new_bytearray(None, rounded)
        return made

    def when_free(self, callback: Callable[[], None], host: str, *, held_bytes: int = 0) -> None:
        """Calls back once, when something large was given back; `held_bytes` as for `lend`."""
        self._waiting.append(callback)
        if held_bytes > SMALL_BYTES:
            self._stuck_bytes += held_bytes
            self._stuck_by_host[host] += held_bytes

    def give_back(self, buffer: bytearray, host: str) -> None:
        """Takes a lent buffer that nothing points into any more."""
        size = len(buffer)
        if self._kept_bytes + size <= _KEPT_BYTES_MAX:
            self._free.setdefault(size, []).append(buffer)
            self._kept_bytes += size
        self._return(size, host)

    def forget(self, buffer: bytearray, host: str) -> None:
        """Takes a lent buffer out of the count although something may still point into it; it is not lent again."""
        self._return(len(buffer), host)

    def is_wanted(self, buffer: bytearray) -> bool:
        """Whether a lent buffer that nothing is in should be given back."""
        return len(buffer) > SMALL_BYTES or self._small_out > _SMALL_OUT_MAX

    def _return(self, size: int, host: str) -> None:
        if size <= SMALL_BYTES:
            self._small_out -= 1
            return
        self._lent_bytes -= size
        self._lent_by_host[host] -= size
        if not self._lent_by_host[host]:
            del self._lent_by_host[host]
        self._stuck_bytes = 0
        self._stuck_by_host.clear()
        for _ in range(len(self._waiting)):
            self._waiting.popleft()()
