"""The real network: TCP on raw non-blocking sockets, watched by the running event loop.

Implements the `Network` port. It does not use asyncio transports: uvloop's have no `sendfile`, and a transport does not
say when its socket has room again. TLS and Kafka's frames are in `ottla.transport`.
"""

import asyncio
import errno
import os
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from ottla.env.ports import File, UnresolvedHostError
from ottla.env.ports import Socket as SocketPort
from ottla.env.system_calls import KEEPALIVE_IDLE, MORE_FOLLOWS, sendfile
from ottla.model.buffer import Buffer

IOV_MAX: Final = 1024
"""The limit of buffers in one gathered send on Linux."""

BACKLOG: Final = 1024
"""How many connections may wait to be accepted; the system's limit may be lower."""

ACCEPTS_PER_TURN_MAX: Final = 64
"""The event loop gets a turn after this many accepted connections, for those that are open."""

ACCEPT_PAUSE_SECONDS: Final = 1.0
"""How long to wait when the process has no descriptor left for another connection."""

LOCAL_SEND_BUFFER_BYTES: Final = 192 * 1024
"""The send buffer for a peer on the same machine, which reads at once, so that the data stays in the CPU's cache. The
kernel would buffer megabytes, which is right for a distant peer, but halves the speed of a local one."""

ALIVE_ASKED_AFTER_SECONDS: Final = 10
ALIVE_ASKED_EVERY_SECONDS: Final = 5
ALIVE_ASKED_TIMES: Final = 3
"""TCP keepalive: after this time a dead or restarted machine is noticed, also by a peer that only waits, such as a
group member during a rebalance. The kernel's default is two hours."""

_DISCARDED: Final = bytearray(64 * 1024)
_DISCARDS_MAX: Final = 16
"""How often a connection that is closed is read: a peer may send faster than that."""

OUT_OF_RESOURCES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class RealSocket:
    """One connection. Its callbacks run in the event loop that is running when it is created."""

    __slots__ = ("_descriptor", "_loop", "_peer", "_socket")

    def __init__(self, connected: socket.socket, peer: Any) -> None:
        connected.setblocking(False)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _notice_the_dead(connected)
        if _is_local(peer):
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LOCAL_SEND_BUFFER_BYTES)
        self._socket = connected
        self._descriptor = connected.fileno()
        self._loop = asyncio.get_running_loop()
        self._peer = _spell(peer)

    def recv_into(self, buffer: memoryview) -> int:
        """Receives what has arrived; 0 at the end of the stream. Raises BlockingIOError if there is nothing."""
        return self._socket.recv_into(buffer)

    def send(self, buffers: Sequence[Buffer], *, more: bool = False) -> int:
        """Sends what fits and returns the number of bytes, perhaps 0; `more` promises that another send follows at
        once."""
        if len(buffers) > IOV_MAX:
            buffers, more = buffers[:IOV_MAX], True
        flags = MORE_FOLLOWS if more else 0
        try:
            if len(buffers) == 1:
                return self._socket.send(buffers[0], flags)
            return self._socket.sendmsg(buffers, (), flags)
        except BlockingIOError:
            return 0

    def send_file(self, file: File, position: int, size: int) -> int:
        """Sends a range of a file without copying it through the process, as much as fits, perhaps 0 bytes."""
        if size == 0:
            return 0
        try:
            sent = sendfile(self._descriptor, file.fileno(), position, size)
        except BlockingIOError:
            return 0
        if sent == 0:
            # Returning 0 would make the caller wait forever for room that is there.
            raise OSError(
                errno.EIO, f"the file ends before position {position}, where {size} bytes were to be sent", file.path
            )
        return sent

    def on_readable(self, callback: Callable[[], None] | None) -> None:
        """Calls back from the event loop while there is something to receive; None stops it."""
        if callback is not None:
            self._loop.add_reader(self._descriptor, callback)
        elif self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)

    def expect(self, size: int) -> None:
        """Until changed, `on_readable` is called only once this many bytes, or the end of the stream, have arrived."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)

    def on_writable(self, callback: Callable[[], None] | None) -> None:
        """Calls back from the event loop while there is room to send; None stops it."""
        if callback is not None:
            self._loop.add_writer(self._descriptor, callback)
        elif self._descriptor >= 0:
            self._loop.remove_writer(self._descriptor)

    def peer(self) -> str:
        """The peer's address as text."""
        return self._peer

    def descriptor(self) -> int | None:
        """The file descriptor."""
        return self._descriptor

    def close(self) -> None:
        """Closes the connection and ends its callbacks; may be called twice."""
        if self._descriptor < 0:
            return
        if not self._loop.is_closed():
            self._loop.remove_reader(self._descriptor)
            self._loop.remove_writer(self._descriptor)
        self._discard_received()
        self._descriptor = -1
        self._socket.close()

    def _discard_received(self) -> None:
        """With unread bytes, the kernel would reset the connection: the peer would lose what it has not read yet, and
        would not know that the connection was closed on purpose."""
        with suppress(OSError):
            for _ in range(_DISCARDS_MAX):
                if not self._socket.recv_into(_DISCARDED):
                    return


class RealListener:
    """A listening port, on every address of its host name."""

    def __init__(self, sockets: list[socket.socket], on_accept: Callable[[SocketPort], None]) -> None:
        self._sockets = sockets
        self._on_accept = on_accept
        self._loop = asyncio.get_running_loop()
        self._pause: asyncio.TimerHandle | None = None
        self.port: Final[int] = sockets[0].getsockname()[1]
        self._watch()

    def _watch(self) -> None:
        self._pause = None
        for listening in self._sockets:
            self._loop.add_reader(listening.fileno(), self._accept, listening)

    def _unwatch(self) -> None:
        for listening in self._sockets:
            self._loop.remove_reader(listening.fileno())

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTS_PER_TURN_MAX):
            try:
                connected, peer = listening.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                self._report("a connection could not be accepted", error)
                if error.errno in OUT_OF_RESOURCES and self._pause is None:
                    # The listener stays readable, and trying again at once would only burn CPU time.
                    self._unwatch()
                    self._pause = self._loop.call_later(ACCEPT_PAUSE_SECONDS, self._watch)
                return
            self._hand_over(connected, peer)
            if not self._sockets:
                return

    def _hand_over(self, connected: socket.socket, peer: Any) -> None:
        try:
            accepted = RealSocket(connected, peer)
        except OSError:
            # The peer disconnected before it was accepted.
            connected.close()
            return
        try:
            self._on_accept(accepted)
        except Exception as error:
            accepted.close()
            self._report(f"the connection from {accepted.peer()} was closed because its handler failed", error)

    def _report(self, message: str, error: Exception) -> None:
        self._loop.call_exception_handler({"message": f"{message} on port {self.port}: {error}", "exception": error})

    def close(self) -> None:
        """Stops accepting; accepted connections stay open. May be called twice."""
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
        if not self._loop.is_closed():
            self._unwatch()
        for listening in self._sockets:
            listening.close()
        self._sockets = []


class RealNetwork:
    """TCP over IPv4 and IPv6."""

    __slots__ = ()

    async def connect(self, host: str, port: int) -> RealSocket:
        """Tries each address of the host in turn. The caller sets the time limit: cancelling releases everything."""
        failure: OSError | None = None
        for family, kind, protocol, _, address in await _resolve(host, port):
            try:
                return await _connect(family, kind, protocol, address)
            except OSError as error:
                failure = error
        raise _explained(failure, f"cannot connect to {_spell((host, port))}")

    async def listen(self, host: str, port: int, on_accept: Callable[[SocketPort], None]) -> RealListener:
        """Opens a port, 0 for any free one; an empty host means every address of the machine."""
        sockets: list[socket.socket] = []
        failure: OSError | None = None
        try:
            for family, kind, protocol, _, address in await _resolve(host or None, port, socket.AI_PASSIVE):
                chosen = sockets[0].getsockname()[1] if sockets else port
                try:
                    sockets.append(_listen(family, kind, protocol, (address[0], chosen, *address[2:])))
                except OSError as error:
                    # A name may have an IPv6 address on a machine without IPv6; one working address is enough.
                    failure = error
                    if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                        raise
            if not sockets:
                raise OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL)) from failure
            return RealListener(sockets, on_accept)
        except OSError as error:
            for opened in sockets:
                opened.close()
            raise _explained(error, f"cannot listen on {_spell((host, port))}") from error


Resolved = Sequence[tuple[int, int, int, str, Any]]


async def _resolve(host: str | None, port: int, flags: int = 0) -> Resolved:
    loop = asyncio.get_running_loop()
    try:
        return await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    except socket.gaierror as error:
        what = f"the host name {host!r} cannot be resolved: {error.strerror}"
        raise UnresolvedHostError(errno.EADDRNOTAVAIL, what) from error


async def _connect(family: int, kind: int, protocol: int, address: Any) -> RealSocket:
    connecting = socket.socket(family, kind, protocol)
    try:
        connecting.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connecting, address)
        peer = connecting.getpeername()
        if connecting.getsockname() == peer:
            # On one machine, a connect to a free port can connect to itself if the system chooses that port for it.
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        return RealSocket(connecting, peer)
    except BaseException:
        connecting.close()
        raise


def _listen(family: int, kind: int, protocol: int, address: Any) -> socket.socket:
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setblocking(False)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
        return listening
    except BaseException:
        listening.close()
        raise


def _explained(error: OSError | None, what: str) -> OSError:
    """The same kind of error with a complete message."""
    if error is None:
        return OSError(errno.EADDRNOTAVAIL, f"{what}: the name has no address")
    return OSError(error.errno or errno.EIO, f"{what}: {error.strerror or error}")


def _spell(address: Any) -> str:
    host, port = address[0], address[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _notice_the_dead(connected: socket.socket) -> None:
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connected.setsockopt(socket.IPPROTO_TCP, KEEPALIVE_IDLE, ALIVE_ASKED_AFTER_SECONDS)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, ALIVE_ASKED_EVERY_SECONDS)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, ALIVE_ASKED_TIMES)


def _is_local(address: Any) -> bool:
    return str(address[0]).startswith(("127.", "::ffff:127.")) or address[0] == "::1"
