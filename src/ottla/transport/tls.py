"""A socket that encrypts: the same port as the one it wraps, so that the code above it needs no change.

Covers both sides of a TLS stream over any `Socket`. File ranges are read and encrypted, since the kernel cannot. The
handshake happens in `shake_hands`, or else inside the first reads and writes. Certificates and client authentication
are the `SSLContext`'s; `tls_context.py` makes one.
"""

import ssl
from collections.abc import Callable
from contextlib import suppress
from errno import ECONNRESET
from typing import Final

from ottla.env.ports import Socket
from ottla.transport.tls_stream import CHUNK_BYTES, PASSING, RECORD_BYTES_MAX, RECORDS_AT_ONCE, TlsStream

_BACKLOG_BYTES_MAX: Final = 256 * 1024
"""Encrypted bytes that may wait for the socket before `send` takes no more."""


class TlsSocket(TlsStream):
    """Encrypts what is sent and decrypts what is received.

    As long as encrypted bytes wait for the socket, `send` reports one byte less than it took: a caller that
    sent everything may close. As with any stream, a caller continues with the first byte that was not taken.
    """

    __slots__ = (
        "_incoming",
        "_is_drained",
        "_is_watching",
        "_on_writable",
        "_outgoing",
        "_tls",
        "_unsent",
    )

    def __init__(self, socket: Socket, context: ssl.SSLContext, *, server_side: bool, host: str | None = None) -> None:
        super().__init__(socket)
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=server_side, server_hostname=host)
        self._unsent: memoryview = memoryview(b"")
        self._is_drained = True
        """Whether the socket had no more when it was last received from."""
        self._is_watching = False
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
        encrypted = PASSING.received
        self._is_drained = True
        received = self._socket.recv_into(encrypted)
        if received == 0:
            self._incoming.write_eof()
            return False
        self._is_drained = received < CHUNK_BYTES
        self._incoming.write(encrypted[:received])
        return True

    def recv_into(self, buffer: memoryview) -> int:
        """Decrypted bytes, of as many records as have arrived and fit; 0 at the end of the stream. Raises
        BlockingIOError when there are none yet."""
        self._has_received = False
        if self._broken is not None:
            raise self._broken
        filled = records = 0
        try:
            while filled < len(buffer) and records < RECORDS_AT_ONCE:
                try:
                    # At most one record; 0 if the peer has closed the stream.
                    room = buffer[filled:] if filled else buffer
                    count: int = self._tls.read(len(room), room)  # type: ignore[assignment]  # a count, with a buffer
                    if count == 0:
                        break
                    filled += count
                    records += 1
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
                taken += self._tls.write(content[taken : taken + CHUNK_BYTES])
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

    def _has_pending(self) -> bool:
        return self._tls.pending() > 0 or self._incoming.pending > 0 or self._broken is not None

    def expect(self, size: int) -> None:
        """Waits for at least as many encrypted bytes, except for a record of which a part may be here already."""
        self._socket.expect(max(1, size - RECORD_BYTES_MAX))

    def on_writable(self, callback: Callable[[], None] | None) -> None:
        """Calls back while there is room to send, once the handshake is over."""
        self._on_writable = callback
        self._watch_writable()

    def close(self) -> None:
        """Sends a close alert if that does not block, and closes the connection."""
        with suppress(ssl.SSLError, ValueError):
            self._tls.unwrap()
        with suppress(OSError):
            self._push()
        self._on_readable = self._on_writable = None
        self._socket.close()
