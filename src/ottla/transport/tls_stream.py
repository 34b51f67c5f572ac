"""What both kinds of TLS sockets share: how a caller continues a send, and when there is something to receive.

`TlsSocket` (`tls.py`) works in memory, `KernelTlsSocket` (`kernel_tls.py`) on a descriptor.
"""

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from ottla.env.ports import File, Socket
from ottla.model.buffer import Buffer

CHUNK_BYTES: Final = 64 * 1024
"""How much is read or encrypted at a time."""
RECORD_BYTES: Final = 16 * 1024
"""The content of a TLS record: buffers smaller than that are encrypted together."""
RECORD_BYTES_MAX: Final = 5 + RECORD_BYTES + 256
"""A whole record, with header, padding and tag."""
RECORDS_AT_ONCE: Final = 256
"""A read takes no more records than this, however small: a record of a single byte takes as long as one of hundreds,
and a socket holds hundreds of thousands of them."""


class Passing(threading.local):
    """Where encrypted bytes arrive, and file ranges on their way out: one buffer of each for all connections of an
    event loop, since a silent connection should hold no memory. Nothing keeps them beyond one call, which copies their
    content and does not await."""

    def __init__(self) -> None:
        self.received = memoryview(bytearray(CHUNK_BYTES))
        self.read = memoryview(bytearray(CHUNK_BYTES))


PASSING: Final = Passing()


class TlsStream(ABC):
    """One side of a TLS connection over a socket."""

    __slots__ = ("_broken", "_has_received", "_is_due", "_kept_back", "_on_readable", "_socket")

    def __init__(self, socket: Socket) -> None:
        self._socket = socket
        self._kept_back = 0
        """Bytes at the start of what is sent next that are encrypted already."""
        self._has_received = False
        """Whether the last `recv_into` had something."""
        self._broken: OSError | None = None
        """An error that was found behind bytes that `recv_into` returned; its next call raises it."""
        self._on_readable: Callable[[], None] | None = None
        self._is_due = False
        """Whether the event loop will call `_continue`."""

    @abstractmethod
    def _encrypt(self, content: memoryview) -> int:
        """Encrypts, as long as there is room, and returns the number of bytes."""

    @abstractmethod
    def _taken(self, count: int) -> int:
        """What `send` reports for this number of encrypted bytes; keeps one back while not all of them are sent."""

    @abstractmethod
    def _has_pending(self) -> bool:
        """Whether there is something to receive that the kernel does not know of."""

    def send(self, buffers: Sequence[Buffer], *, more: bool = False) -> int:
        """Encrypts and sends; what the socket does not take at once waits here, and `send` then takes no more."""
        taken, skipped = self._kept_back, self._kept_back
        for buffer in buffers if len(buffers) == 1 else with_small_joined(buffers):
            content = memoryview(buffer).cast("B")
            if skipped:
                content, skipped = content[skipped:], max(skipped - len(content), 0)
            count = self._encrypt(content)
            taken += count
            if count < len(content):
                break
        return self._taken(taken)

    def send_file(self, file: File, position: int, size: int) -> int:
        """The same for a range of a file, by reading it."""
        taken = self._kept_back
        buffer = PASSING.read
        while taken < size:
            read = file.read_into(position + taken, buffer[: min(CHUNK_BYTES, size - taken)])
            if not read:
                raise OSError(f"{file.path} ends before byte {position + size}, which was to be sent")
            count = self._encrypt(buffer[:read])
            taken += count
            if count < read:
                break
        return self._taken(taken)

    def on_readable(self, callback: Callable[[], None] | None) -> None:
        """Calls back while there is something to receive, also if it was received but not yet taken."""
        self._on_readable = callback
        self._socket.on_readable(None if callback is None else self._readable)
        if callback is not None and self._has_pending():
            self._continue_soon()

    def _readable(self) -> None:
        if self._on_readable is None:
            return
        self._has_received = False
        self._on_readable()
        # The kernel will not call again for bytes that were read from it already. Not at once: a client that sends as
        # fast as it is read from would keep the event loop from everything else.
        if self._has_received and self._on_readable is not None and self._has_pending():
            self._continue_soon()

    def _continue_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._continue)

    def _continue(self) -> None:
        self._is_due = False
        if self._on_readable is not None and self._has_pending():
            self._readable()

    def peer(self) -> str:
        """The peer's address and port."""
        return self._socket.peer()

    def descriptor(self) -> int | None:
        """None: what is written to the socket itself would not be encrypted."""
        return None


def with_small_joined(buffers: Sequence[Buffer]) -> Iterator[Buffer]:
    """The same bytes with neighbours joined that fit into one record: each write makes a record of its own."""
    joined: list[Buffer] = []
    size = 0
    for buffer in buffers:
        count = len(buffer)
        if size + count > RECORD_BYTES and joined:
            yield joined[0] if len(joined) == 1 else b"".join(joined)
            joined, size = [], 0
        joined.append(buffer)
        size += count
    if joined:
        yield joined[0] if len(joined) == 1 else b"".join(joined)
