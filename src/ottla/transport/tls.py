"""A socket that encrypts: the same port as the one it wraps, so that nobody above it notices.

Covers both sides of a TLS stream over any `Socket`. File ranges are read and encrypted, since the kernel cannot. The
handshake happens inside the first reads and writes. Which certificates, and who is let in, is the `SSLContext`'s.
"""

import asyncio
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from ottla.env.ports import File, Socket
from ottla.model.buffer import Buffer

_CHUNK_BYTES: Final = 64 * 1024
_BACKLOG_BYTES_MAX: Final = 256 * 1024
"""Encrypted bytes that may wait for the socket before `send` takes no more."""


class TlsSocket:
    """Encrypts what is sent and decrypts what is received.

    As long as encrypted bytes wait for the socket, `send` keeps one byte back in what it says: whoever was told that
    all is sent may close. As with any stream, a caller goes on with the first byte that was not taken.
    """

    __slots__ = (
        "_has_received",
        "_incoming",
        "_is_watching",
        "_kept_back",
        "_on_readable",
        "_on_writable",
        "_outgoing",
        "_socket",
        "_tls",
        "_unsent",
    )

    def __init__(self, socket: Socket, context: ssl.SSLContext, *, server_side: bool, host: str | None = None) -> None:
        self._socket = socket
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=server_side, server_hostname=host)
        self._unsent: memoryview = memoryview(b"")
        self._kept_back = 0
        """Bytes at the start of what is sent next that are encrypted already."""
        self._has_received = False
        """Whether the last `recv_into` had something."""
        self._is_watching = False
        self._on_readable: Callable[[], None] | None = None
        self._on_writable: Callable[[], None] | None = None
        if not server_side:
            self._shake_hands()

    def recv_into(self, buffer: memoryview) -> int:
        """Decrypted bytes, 0 at the end of the stream; raises BlockingIOError when there are none yet."""
        self._has_received = False
        while True:
            try:
                count: int = self._tls.read(len(buffer), buffer)  # type: ignore[assignment]  # a count, with a buffer
            except ssl.SSLWantReadError:
                self._push()
                # Made for each call, since a silent connection should hold no memory.
                encrypted = memoryview(bytearray(_CHUNK_BYTES))
                received = self._socket.recv_into(encrypted)
                if received == 0:
                    self._incoming.write_eof()
                    return 0
                self._incoming.write(encrypted[:received])
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                return 0
            except ssl.SSLError:
                self._push()  # What is wrong, for the other side.
                raise
            else:
                self._has_received = True
                self._push()
                return count

    def send(self, buffers: Sequence[Buffer], *, more: bool = False) -> int:
        """Encrypts and sends; what the socket does not take at once waits here, and `send` then takes no more."""
        taken, skipped = self._kept_back, self._kept_back
        for buffer in buffers:
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
        while taken < size:
            content = file.read_at(position + taken, min(_CHUNK_BYTES, size - taken))
            if not content:
                raise OSError(f"{file.path} ends before {position + size}, as far as it was to be sent")
            count = self._encrypt(memoryview(content))
            taken += count
            if count < len(content):
                break
        return self._taken(taken)

    def _taken(self, count: int) -> int:
        """Pushes, and answers what to say of so many bytes that are encrypted."""
        self._push()
        self._kept_back = 1 if count and len(self._unsent) else 0
        return count - self._kept_back

    def _encrypt(self, content: memoryview) -> int:
        taken = 0
        while taken < len(content):
            if len(self._unsent) + self._outgoing.pending >= _BACKLOG_BYTES_MAX:
                self._push()
                if len(self._unsent) + self._outgoing.pending >= _BACKLOG_BYTES_MAX:
                    break
            try:
                taken += self._tls.write(content[taken : taken + _CHUNK_BYTES])
            except ssl.SSLWantReadError:
                break  # The handshake needs the other side first.
        return taken

    def _shake_hands(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            pass
        finally:
            self._push()

    def _push(self) -> None:
        """Hands encrypted bytes to the socket, as many as it takes."""
        while len(self._unsent) or self._outgoing.pending:
            if not len(self._unsent):
                self._unsent = memoryview(self._outgoing.read())
            sent = self._socket.send([self._unsent])
            self._unsent = self._unsent[sent:]
            if sent == 0:
                break
        self._watch_writable()

    def _watch_writable(self) -> None:
        # Before the handshake is over there is room, but nothing can be sent: to call back would be to spin.
        wants = len(self._unsent) > 0 or (self._on_writable is not None and self._tls.version() is not None)
        if wants != self._is_watching:
            self._is_watching = wants
            self._socket.on_writable(self._writable if wants else None)

    def _writable(self) -> None:
        try:
            self._push()
        except OSError:
            if self._on_writable is not None:
                self._on_writable()  # It hears the same from its own next send.
            else:
                # Nobody waits to send, and who receives is told by the socket itself.
                self._unsent = memoryview(b"")
                self._watch_writable()
            return
        if self._on_writable is not None and not len(self._unsent) and self._tls.version() is not None:
            self._on_writable()

    def on_readable(self, callback: Callable[[], None] | None) -> None:
        """Calls back while there is something to receive, also if it was received but not yet taken."""
        self._on_readable = callback
        self._socket.on_readable(None if callback is None else self._readable)
        if callback is not None and self._has_pending():
            asyncio.get_running_loop().call_soon(self._readable)

    def _has_pending(self) -> bool:
        return self._tls.pending() > 0 or self._incoming.pending > 0

    def _readable(self) -> None:
        if self._on_readable is None:
            return
        self._has_received = False
        self._on_readable()
        # The kernel will not call again for bytes that were read from it already.
        while self._has_received and self._on_readable is not None and self._has_pending():
            self._has_received = False
            self._on_readable()

    def expect(self, size: int) -> None:
        """Passed over: how many bytes are under way says little about how many will be decrypted."""

    def on_writable(self, callback: Callable[[], None] | None) -> None:
        """Calls back while there is room to send, once the handshake is over."""
        self._on_writable = callback
        self._watch_writable()

    def peer(self) -> str:
        """The other side's address, for people."""
        return self._socket.peer()

    def close(self) -> None:
        """Says goodbye if that does not block, and ends the connection."""
        with suppress(ssl.SSLError, ValueError):
            self._tls.unwrap()
        with suppress(OSError):
            self._push()
        self._on_readable = self._on_writable = None
        self._socket.close()
