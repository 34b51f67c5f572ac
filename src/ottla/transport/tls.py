"""A socket that encrypts: the same port as the one it wraps, so that the code above it needs no change.

Covers both sides of a TLS stream over any `Socket`. File ranges are read and encrypted, since the kernel cannot. The
handshake happens in `shake_hands`, or else inside the first reads and writes. Certificates and client authentication
are the `SSLContext`'s; `tls_context.py` makes one.
"""

import asyncio
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from errno import ECONNRESET
from typing import Final

from ottla.env.ports import File, Socket
from ottla.model.buffer import Buffer

_CHUNK_BYTES: Final = 64 * 1024
_BACKLOG_BYTES_MAX: Final = 256 * 1024
"""Encrypted bytes that may wait for the socket before `send` takes no more."""
RECORD_BYTES: Final = 16 * 1024
"""The content of a TLS record: buffers smaller than that are encrypted together."""
RECORD_BYTES_MAX: Final = 5 + RECORD_BYTES + 256
"""A whole record, with header, padding and tag."""


class _Passing(threading.local):
    """Where encrypted bytes arrive, and file ranges on their way out: one buffer of each for all connections of an
    event loop, since a silent connection should hold no memory. Nothing keeps them beyond one call, which copies their
    content and does not await."""

    def __init__(self) -> None:
        self.received = memoryview(bytearray(_CHUNK_BYTES))
        self.read = memoryview(bytearray(_CHUNK_BYTES))


_PASSING: Final = _Passing()


class TlsSocket:
    """Encrypts what is sent and decrypts what is received.

    As long as encrypted bytes wait for the socket, `send` reports one byte less than it took: a caller that
    sent everything may close. As with any stream, a caller continues with the first byte that was not taken.
    """

    __slots__ = (
        "_broken",
        "_has_received",
        "_incoming",
        "_is_drained",
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
        self._is_drained = True
        """Whether the socket had no more when it was last received from."""
        self._broken: OSError | None = None
        """An error that was found behind bytes that `recv_into` returned; its next call raises it."""
        self._is_watching = False
        self._on_readable: Callable[[], None] | None = None
        self._on_writable: Callable[[], None] | None = None
        if not server_side:
            self._greet()

    def shake_hands(self) -> bool:
        """Continues the handshake with what has arrived; True when it is complete. To be called while the socket is
        readable. Raises `ssl.SSLError` if it fails, and `ConnectionResetError` if the peer disconnects."""
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._push()
                try:
                    self._receive()
                except BlockingIOError:
                    return False
            except ssl.SSLEOFError:
                raise ConnectionResetError(ECONNRESET, "disconnected during the TLS handshake") from None
            except ssl.SSLError:
                self._push()  # What is wrong, for the other side.
                raise
            else:
                self._push()
                return True

    def peer_certificate(self) -> bytes | None:
        """The certificate that the peer authenticated with, in DER; None before the handshake, or if it has none."""
        return self._tls.getpeercert(True)

    def _receive(self) -> bool:
        """Takes encrypted bytes from the socket; False at the end of the stream."""
        encrypted = _PASSING.received
        self._is_drained = True
        received = self._socket.recv_into(encrypted)
        if received == 0:
            self._incoming.write_eof()
            return False
        self._is_drained = received < _CHUNK_BYTES
        self._incoming.write(encrypted[:received])
        return True

    def recv_into(self, buffer: memoryview) -> int:
        """Decrypted bytes, of as many records as have arrived and fit; 0 at the end of the stream. Raises
        BlockingIOError when there are none yet."""
        self._has_received = False
        if self._broken is not None:
            raise self._broken
        filled = 0
        try:
            while filled < len(buffer):
                try:
                    # At most one record; 0 if the peer has closed the stream.
                    room = buffer[filled:] if filled else buffer
                    count: int = self._tls.read(len(room), room)  # type: ignore[assignment]  # a count, with a buffer
                    if count == 0:
                        break
                    filled += count
                except ssl.SSLWantReadError:
                    if filled and self._is_drained:
                        break
                    self._push()
                    if not self._receive():
                        break
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            pass
        except BlockingIOError:
            if not filled:
                raise
        except OSError as error:
            if isinstance(error, ssl.SSLError):
                with suppress(OSError):
                    self._push()  # What is wrong, for the other side.
            if not filled:
                raise
            self._broken = error
        self._has_received = filled > 0
        if filled:
            self._push()
        return filled

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
        buffer = _PASSING.read
        while taken < size:
            read = file.read_into(position + taken, buffer[: min(_CHUNK_BYTES, size - taken)])
            if not read:
                raise OSError(f"{file.path} ends before byte {position + size}, which was to be sent")
            count = self._encrypt(buffer[:read])
            taken += count
            if count < read:
                break
        return self._taken(taken)

    def _taken(self, count: int) -> int:
        """Pushes, and returns what to report for this number of encrypted bytes."""
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

    def _greet(self) -> None:
        """Sends the first message of a client."""
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
                self._on_writable()  # Its next send raises the same error.
            else:
                # No caller waits to send; a caller that receives gets the error from the socket.
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
        return self._tls.pending() > 0 or self._incoming.pending > 0 or self._broken is not None

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
        """Waits for at least as many encrypted bytes, except for a record of which a part may be here already."""
        self._socket.expect(max(1, size - RECORD_BYTES_MAX))

    def on_writable(self, callback: Callable[[], None] | None) -> None:
        """Calls back while there is room to send, once the handshake is over."""
        self._on_writable = callback
        self._watch_writable()

    def peer(self) -> str:
        """The peer's address and port."""
        return self._socket.peer()

    def descriptor(self) -> int | None:
        """None: what is written to the socket itself would not be encrypted."""
        return None

    def close(self) -> None:
        """Sends a close alert if that does not block, and closes the connection."""
        with suppress(ssl.SSLError, ValueError):
            self._tls.unwrap()
        with suppress(OSError):
            self._push()
        self._on_readable = self._on_writable = None
        self._socket.close()


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
