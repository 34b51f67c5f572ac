"""The real network: TCP on raw non-blocking sockets, watched by the running event loop.

Covers the `Network` port. Never transports: uvloop's have no `sendfile`, and a transport's socket cannot be waited for
after it was full. TLS and the protocol's frames are further up, in `ottla.transport`.
"""

import asyncio
import errno
import os
import socket
from collections.abc import Callable, Sequence
from typing import Any, Final

from ottla.env.ports import File
from ottla.env.ports import Socket as SocketPort
from ottla.model.buffer import Buffer

IOV_MAX: Final = 1024
"""How many buffers Linux takes in one gathered send."""

BACKLOG: Final = 1024
"""Connections that may wait to be accepted; the system's own limit may be lower."""

ACCEPTS_PER_TURN_MAX: Final = 64
"""A flood of connections must not keep the loop from those that are open."""

ACCEPT_PAUSE_SECONDS: Final = 1.0
"""How long to wait when the process has no descriptor left for another connection."""

LOCAL_SEND_BUFFER_BYTES: Final = 192 * 1024
"""For a peer on the same machine, which answers at once: what waits for it stays in the processor's cache. The kernel
would let megabytes wait, which is right for a peer far away, and costs a local one half of its speed."""

ALIVE_ASKED_AFTER_SECONDS: Final = 10
ALIVE_ASKED_EVERY_SECONDS: Final = 5
ALIVE_ASKED_TIMES: Final = 3
"""A machine that died, or came back without knowing the connection, is noticed after so long also by one who only
waits, as a member does whose group is being formed; by itself the kernel would ask after two hours."""

OUT_OF_RESOURCES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class RealSocket:
    """One connection. Its callbacks belong to the event loop that runs when it is made."""

    __slots__ = ("_descriptor", "_loop", "_peer", "_socket")

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _notice_the_dead(connected)
        peer = connected.getpeername()
        if _is_local(peer):
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LOCAL_SEND_BUFFER_BYTES)
        self._socket = connected
        self._descriptor = connected.fileno()
        self._loop = asyncio.get_running_loop()
        self._peer = _spell(peer)

    def recv_into(self, buffer: memoryview) -> int:
        """What has arrived, 0 at the end of the stream; raises BlockingIOError when there is nothing."""
        return self._socket.recv_into(buffer)

    def send(self, buffers: Sequence[Buffer], *, more: bool = False) -> int:
        """Sends what fits and says how much, 0 when nothing does; `more` promises that another send follows at once."""
        if len(buffers) > IOV_MAX:
            buffers, more = buffers[:IOV_MAX], True
        flags = socket.MSG_MORE if more else 0
        try:
            if len(buffers) == 1:
                return self._socket.send(buffers[0], flags)
            return self._socket.sendmsg(buffers, (), flags)
        except BlockingIOError:
            return 0

    def send_file(self, file: File, position: int, size: int) -> int:
        """Sends a range of a file without copying it through the process, as much as fits, 0 when nothing does."""
        if size == 0:
            return 0
        try:
            sent = os.sendfile(self._descriptor, file.fileno(), position, size)
        except BlockingIOError:
            return 0
        if sent == 0:
            # Silence here would have the caller wait forever for room that is there.
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
        """Until told otherwise, `on_readable` calls only once so many bytes, or the end of the stream, are there."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)

    def on_writable(self, callback: Callable[[], None] | None) -> None:
        """Calls back from the event loop while there is room to send; None stops it."""
        if callback is not None:
            self._loop.add_writer(self._descriptor, callback)
        elif self._descriptor >= 0:
            self._loop.remove_writer(self._descriptor)

    def peer(self) -> str:
        """The other side's address, for people."""
        return self._peer

    def close(self) -> None:
        """Ends the connection and its callbacks; closing twice is harmless."""
        if self._descriptor < 0:
            return
        if not self._loop.is_closed():
            self._loop.remove_reader(self._descriptor)
            self._loop.remove_writer(self._descriptor)
        self._descriptor = -1
        self._socket.close()


class RealListener:
    """An open port, on every address that its host name means."""

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
                connected, _ = listening.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                self._report("a connection could not be accepted", error)
                if error.errno in OUT_OF_RESOURCES and self._pause is None:
                    # It stays readable, and asking again at once would only burn the processor.
                    self._unwatch()
                    self._pause = self._loop.call_later(ACCEPT_PAUSE_SECONDS, self._watch)
                return
            self._hand_over(connected)
            if not self._sockets:
                return

    def _hand_over(self, connected: socket.socket) -> None:
        try:
            accepted = RealSocket(connected)
        except OSError:
            # The other side left before we looked.
            connected.close()
            return
        try:
            self._on_accept(accepted)
        except Exception as error:
            accepted.close()
            self._report(f"the connection from {accepted.peer()} was refused by a failing handler", error)

    def _report(self, message: str, error: Exception) -> None:
        self._loop.call_exception_handler({"message": f"{message} on port {self.port}: {error}", "exception": error})

    def close(self) -> None:
        """Stops accepting; connections that were accepted stay. Closing twice is harmless."""
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
        if not self._loop.is_closed():
            self._unwatch()
        for listening in self._sockets:
            listening.close()
        self._sockets = []


class RealNetwork:
    """TCP, by name or address, over IPv4 and IPv6."""

    __slots__ = ()

    async def connect(self, host: str, port: int) -> RealSocket:
        """Tries each address of the host in turn. A time limit is the caller's: cancelling leaves nothing behind."""
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
                    # A machine may know a name's IPv6 address without having IPv6; one address is enough.
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
        raise OSError(errno.EADDRNOTAVAIL, f"the host name {host!r} cannot be resolved: {error.strerror}") from error


async def _connect(family: int, kind: int, protocol: int, address: Any) -> RealSocket:
    connecting = socket.socket(family, kind, protocol)
    try:
        connecting.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connecting, address)
        if connecting.getsockname() == connecting.getpeername():
            # On one machine, a connect to a free port can meet itself when the system picks that very port for it.
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        return RealSocket(connecting)
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
    """The same kind of error, told in full."""
    if error is None:
        return OSError(errno.EADDRNOTAVAIL, f"{what}: the name has no address")
    return OSError(error.errno or errno.EIO, f"{what}: {error.strerror or error}")


def _spell(address: Any) -> str:
    host, port = address[0], address[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _notice_the_dead(connected: socket.socket) -> None:
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, ALIVE_ASKED_AFTER_SECONDS)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, ALIVE_ASKED_EVERY_SECONDS)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, ALIVE_ASKED_TIMES)


def _is_local(address: Any) -> bool:
    return str(address[0]).startswith(("127.", "::ffff:127.")) or address[0] == "::1"
