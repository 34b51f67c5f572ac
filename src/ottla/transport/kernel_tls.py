"""A TLS connection that the kernel encrypts: ranges of files are sent without passing through the process.

For the connections that a broker accepts, on machines with kernel TLS (`has_kernel_tls`). OpenSSL shakes hands on the
socket's descriptor and gives the keys to the kernel, for each cipher suite that the kernel has; otherwise it encrypts
itself. It decrypts what is received, by itself or through the kernel. The same port as `TlsSocket`, which works on
memory and therefore on any `Socket`.
"""

import os
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from errno import EAGAIN, ECONNRESET
from typing import Final

from ottla.env.ports import File, Socket
from ottla.model.buffer import Buffer
from ottla.transport.tls import TlsSocket
from ottla.transport.tls_stream import RECORD_BYTES, RECORD_BYTES_MAX, RECORDS_AT_ONCE, TlsStream

ENABLE_KERNEL_TLS: Final[int] = getattr(ssl, "OP_ENABLE_KTLS", 1 << 3)
"""The option of a context whose connections the kernel may encrypt. OpenSSL 3 has it, Python names it since 3.12."""
OPENSSL_HAS_KERNEL_TLS: Final = ssl.OPENSSL_VERSION_INFO >= (3, 0)

_SOL_TLS: Final = 282
_TLS_TX: Final = 1
_TLS_RX: Final = 2
_VERSION_AND_CIPHER_BYTES: Final = 4
"""Asked for no more than that, the kernel does not return the key."""


def accept_tls(accepted: Socket, context: ssl.SSLContext) -> "TlsSocket | KernelTlsSocket":
    """The server's side of an accepted connection: encrypted by the kernel if the context permits it and the socket
    is one of the operating system's, or else in the process."""
    if context.options & ENABLE_KERNEL_TLS:
        descriptor = accepted.descriptor()
        if descriptor is not None:
            # Without a second descriptor the connection can still be served. Nor is a client that has disconnected
            # already, as some health checks do, a failure of the listener: the handshake finds out.
            with suppress(OSError):
                return KernelTlsSocket(accepted, descriptor, context)
    return TlsSocket(accepted, context, server_side=True)


class KernelTlsSocket(TlsStream):
    """The server's side of a TLS connection, on a descriptor.

    Without the kernel's help, `send` encrypts a record at a time. If the socket has no room for the whole record,
    `send` reports one byte less than it took, so that the caller comes back, as with `TlsSocket`.
    """

    __slots__ = (
        "_is_sent_by_kernel",
        "_tls",
        "_unsent",
    )

    def __init__(self, accepted: Socket, descriptor: int, context: ssl.SSLContext) -> None:
        super().__init__(accepted)
        # OpenSSL gets a descriptor of its own for the connection, which it can close: `accepted` keeps the other.
        own = socket.socket(fileno=os.dup(descriptor))
        own.setblocking(False)
        self._tls = context.wrap_socket(
            own, server_side=True, do_handshake_on_connect=False, suppress_ragged_eofs=False
        )
        self._is_sent_by_kernel = False
        self._unsent = b""
        """The record that OpenSSL has begun to send, and must be given again."""

    @property
    def is_sent_by_kernel(self) -> bool:
        """Whether the kernel encrypts what is sent; known after the handshake."""
        return self._is_sent_by_kernel

    def shake_hands(self) -> bool:
        """Continues the handshake with what has arrived; True when it is complete. To be called while the socket is
        readable. Raises `ssl.SSLError` if it fails, and `ConnectionResetError` if the peer disconnects."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._socket.on_writable(None)
            return False
        except ssl.SSLWantWriteError:
            self._socket.on_writable(self._readable)
            return False
        except ssl.SSLEOFError:
            raise ConnectionResetError(ECONNRESET, "disconnected during the TLS handshake") from None
        self._socket.on_writable(None)
        self._is_sent_by_kernel = self._kernel_has(_TLS_TX)
        return True

    def _kernel_has(self, direction: int) -> bool:
        """Whether the kernel has the keys of this direction."""
        try:
            self._tls.getsockopt(_SOL_TLS, direction, _VERSION_AND_CIPHER_BYTES)
        except OSError:
            return False
        return True

    def peer_certificate(self) -> bytes | None:
        """The certificate that the peer authenticated with, in DER; None if it has none."""
        return self._tls.getpeercert(True)

    def recv_into(self, buffer: memoryview) -> int:
        """Decrypted bytes, of as many records as have arrived and fit; 0 at the end of the stream. Raises
        BlockingIOError when there are none yet."""
        self._has_received = False
        if self._broken is not None:
            raise self._broken
        filled = records = 0
        try:
            while filled < len(buffer) and records < RECORDS_AT_ONCE:
                # At most one record; 0 if the peer has closed the stream.
                room = buffer[filled:] if filled else buffer
                count: int = self._tls.read(len(room), room)  # type: ignore[assignment]  # a count, with a buffer
                if count == 0:
                    break
                filled += count
                records += 1
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            if not filled:
                raise BlockingIOError(EAGAIN, os.strerror(EAGAIN)) from None
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            pass
        except OSError as error:
            if not filled:
                raise
            self._broken = error
        self._has_received = filled > 0
        return filled

    def send(self, buffers: Sequence[Buffer], *, more: bool = False) -> int:
        """Sends what fits and returns the number of bytes; `more` promises that another send follows at once."""
        if self._is_sent_by_kernel:
            return self._socket.send(buffers, more=more)
        return super().send(buffers, more=more)

    def send_file(self, file: File, position: int, size: int) -> int:
        """The same for a range of a file, without copying it through the process if the kernel encrypts."""
        if self._is_sent_by_kernel:
            return self._socket.send_file(file, position, size)
        return super().send_file(file, position, size)

    def _taken(self, count: int) -> int:
        """What to report for this number of bytes that were taken."""
        if not self._unsent or self._finish_record():
            self._kept_back = 0
        else:
            self._kept_back = 1 if count else 0
        return count - self._kept_back

    def _encrypt(self, content: memoryview) -> int:
        """Sends records until the socket is full; the last one may be taken but not sent."""
        taken = 0
        while taken < len(content) and (not self._unsent or self._finish_record()):
            self._unsent = bytes(content[taken : taken + RECORD_BYTES])
            taken += len(self._unsent)
        return taken

    def _finish_record(self) -> bool:
        """Whether the record that waits is sent now."""
        try:
            self._tls.write(self._unsent)
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            return False
        self._unsent = b""
        return True

    def _has_pending(self) -> bool:
        return self._tls.pending() > 0 or self._broken is not None

    def expect(self, size: int) -> None:
        """Waits for at least as many encrypted bytes, except for a record of which a part may be here already."""
        if not self._kernel_has(_TLS_RX):
            self._socket.expect(max(1, size - RECORD_BYTES_MAX))

    def on_writable(self, callback: Callable[[], None] | None) -> None:
        """Calls back while there is room to send."""
        self._socket.on_writable(callback)

    def close(self) -> None:
        """Sends a close alert if that does not block, and closes the connection."""
        self._on_readable = None
        with suppress(OSError, ValueError):
            self._tls.unwrap()
        self._tls.close()
        self._socket.close()
