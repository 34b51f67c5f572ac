"""The network in memory: streams between machines, on virtual time, with a precise fault model.

# The fault model
Connections are TCP's: bytes arrive once, in order, or not at all. So what a packet network does to messages (loss,
duplication, reordering) shows here as it does above TCP:
- **Delay.** Each send takes its time, within the link's bounds; sends of one connection never overtake each other,
  those of different connections do. A *lost* packet is one that takes a retransmission's time longer.
- **Cut.** Nothing passes from one machine to another, in this direction or in both. What was sent waits, and arrives
  when the cut heals, unless the connection broke meanwhile. Connecting waits, too; time limits are the caller's.
- **Break.** A connection is reset: bytes in flight are lost, in both directions, and neither side knows how much
  arrived. A client that sends unanswered requests again makes the duplicates. One side may notice it later, or only
  when it next sends (*half-open*).
- **The end of a process** closes its connections, and the other side hears of it. The end of a machine closes nothing:
  the other side hears of it when it sends and the machine is there again, and does not know the connection.
- **Keep-alive**, as real sockets have it: a side of a half-open connection that waits in silence is told when it asks
  whether the other is alive, 10 s after the last byte; or when there was no answer for 15 s more. That a cut lasts so
  long between two that both know their connection is not simulated.

`Wire` is what lies between the machines; each has a `SimNetwork` on it, the `Network` port.
"""

import asyncio
import contextvars
import errno
import os
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from ottla.env.ports import File
from ottla.env.ports import Socket as SocketPort
from ottla.env.real_network import ALIVE_ASKED_AFTER_SECONDS, ALIVE_ASKED_EVERY_SECONDS, ALIVE_ASKED_TIMES
from ottla.model.buffer import Buffer
from ottla.sim.loop import PROCESS, Process, VirtualLoop
from ottla.sim.random import SimRandom

WINDOW_BYTES: Final = 256 * 1024
"""Bytes that may be in flight or unread on a stream before sending must wait."""
RETRANSMISSION_SECONDS: Final = 0.3
HALF_OPEN_SHARE: Final = 0.3
"""Of the broken connections, how many leave one side that does not know."""
FIRST_FREE_PORT: Final = 40_000


class End(Enum):
    """How a stream ends."""

    CLOSED = auto()
    RESET = auto()


@dataclass(slots=True, kw_only=True)
class NetworkFaults:
    """What may go wrong on the way; to be changed at any time."""

    lost_share: float = 0.0
    """How many sends need a retransmission."""
    break_share: float = 0.0
    """How many sends find their connection broken."""


class SimSocket:
    """One side of a connection."""

    def __init__(self, wire: "Wire", host: str, peer_host: str, process: Process | None) -> None:
        self.host = host
        self.peer_host = peer_host
        self.process = process
        self.other: SimSocket | None = None
        self.is_closed = False
        self._wire = wire
        self._received = bytearray()
        self._end: End | None = None
        self._expected = 1
        self._readable: Callable[[], None] | None = None
        self._writable: Callable[[], None] | None = None
        self._context: contextvars.Context | None = None
        self._is_called = False
        self._under_way: deque[tuple[float, bytes | End]] = deque()
        """What this side sent and the other has not got."""
        self._under_way_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._heard_at = wire.loop.time()
        """When the other side was last known to live."""
        self._asks: asyncio.TimerHandle | None = None
        self._asked = 0

    # The port

    def recv_into(self, buffer: memoryview) -> int:
        """What has arrived, 0 at the end of the stream; raises BlockingIOError when there is nothing."""
        self._check_open()
        if self._end is End.RESET:
            raise _error(errno.ECONNRESET)
        count = min(len(buffer), len(self._received))
        if count:
            buffer[:count] = self._received[:count]
            del self._received[:count]
            if self.other is not None:
                self.other.call_if_due()
            return count
        if self._end is End.CLOSED:
            return 0
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    def send(self, buffers: Sequence[Buffer], *, more: bool = False) -> int:
        """Sends what fits and says how much."""
        self._check_open()
        if self._end is End.RESET:
            raise _error(errno.ECONNRESET)
        room = self._room
        data = b"".join(buffers)[: max(room, 0)]
        if data:
            self._put(data)
        return len(data)

    def send_file(self, file: File, position: int, size: int) -> int:
        """Sends a range of a file."""
        content = file.read_at(position, min(size, max(self._room, 0)))
        if not content and size and self._room > 0:
            raise OSError(errno.EIO, f"the file ends before position {position}", file.path)
        return self.send([content]) if content else 0

    def on_readable(self, callback: Callable[[], None] | None) -> None:
        """Calls back from the event loop while there is something to receive; None stops it."""
        self._readable = callback
        self._watch(callback)

    def on_writable(self, callback: Callable[[], None] | None) -> None:
        """Calls back from the event loop while there is room to send; None stops it."""
        self._writable = callback
        self._watch(callback)

    def expect(self, size: int) -> None:
        """A hint about how much is worth a call."""
        self._expected = size
        self.call_if_due()

    def peer(self) -> str:
        """The other side's address, for people."""
        return f"{self.peer_host}:0"

    def descriptor(self) -> int | None:
        """None: nothing of the operating system's is behind it."""
        return None

    def close(self) -> None:
        """Ends the connection; what was sent before still arrives. Twice is harmless."""
        if not self.is_closed:
            self._readable = self._writable = None
            self.is_closed = True
            if self._end is End.RESET:
                self._wire.drop(self)
            else:
                self._put(End.RESET if self._received else End.CLOSED)

    # What the wire does

    def vanish(self) -> None:
        """The machine went down: this side is gone, and says nothing."""
        self.is_closed = True
        self._readable = self._writable = None
        self._under_way.clear()

    def reset(self) -> None:
        """This side learns that the connection is broken; what it sent and has not arrived is lost."""
        self._end = End.RESET
        self._received.clear()
        self._under_way.clear()
        self._under_way_bytes = 0
        self.call_if_due()

    def lose_all(self) -> None:
        """What is in flight from this side is lost without notice."""
        self._under_way.clear()
        self._under_way_bytes = 0

    def ask_alive(self) -> None:
        """The other side no longer has this connection: this side learns that from a keep-alive, or when it sends."""
        if self._asks is None:
            self._ask_at(self._heard_at + ALIVE_ASKED_AFTER_SECONDS)

    def _ask_at(self, when: float) -> None:
        wire = self._wire
        self._asks = wire.loop.call_at(max(when, wire.loop.time()), self._ask, context=wire.context)

    def _ask(self) -> None:
        if self.is_closed or self._end is not None:
            return
        wire = self._wire
        if not self._under_way:
            # What was sent and is under way is asked after by itself.
            self._asked += 1
            is_reached = wire.is_open(self.host, self.peer_host) and wire.is_open(self.peer_host, self.host)
            if is_reached or self._asked > ALIVE_ASKED_TIMES:
                self.reset()
                return
        self._ask_at(wire.loop.time() + ALIVE_ASKED_EVERY_SECONDS)

    def pump(self) -> None:
        """Delivers what is due, in order, while the link is open."""
        self._timer = None
        loop = self._wire.loop
        while self._under_way:
            arrival, content = self._under_way[0]
            if arrival > loop.time() + 1e-9:
                self._timer = loop.call_at(arrival, self.pump, context=self._wire.context)
                return
            if not self._wire.is_open(self.host, self.peer_host):
                # Called again when the link heals.
                return
            self._under_way.popleft()
            if isinstance(content, bytes):
                self._under_way_bytes -= len(content)
            if self.other is not None:
                if not self.other.is_closed:
                    self._heard_at = loop.time()
                self.other.arrive(content)
        if self.is_closed:
            self._wire.drop(self)

    def arrive(self, content: bytes | End) -> None:
        """The other side's bytes, or the end of them, are here."""
        if self.is_closed:
            if content is not End.RESET and self.other is not None:
                # This machine does not know the connection, and says so.
                if self._wire.is_open(self.host, self.peer_host):
                    self.other.reset()
                else:
                    self.other.ask_alive()
            return
        self._heard_at = self._wire.loop.time()
        if isinstance(content, bytes):
            self._received += content
        else:
            self._end = content
            if content is End.RESET:
                self.reset()
        self.call_if_due()

    def call_if_due(self) -> None:
        """Wakes the waiters of this side."""
        if self._is_called or self._context is None or not (self._wants_read or self._wants_write):
            return
        self._is_called = True
        self._wire.loop.call_soon(self._call, context=self._context)

    @property
    def _room(self) -> int:
        unread = len(self.other._received) if self.other is not None else 0
        return WINDOW_BYTES - self._under_way_bytes - unread

    @property
    def _wants_read(self) -> bool:
        is_due = len(self._received) >= min(self._expected, WINDOW_BYTES) or self._end is not None
        return self._readable is not None and is_due

    @property
    def _wants_write(self) -> bool:
        return self._writable is not None and (self._end is End.RESET or self._room > 0)

    def _watch(self, callback: Callable[[], None] | None) -> None:
        if callback is not None:
            self._check_open()
            self._context = contextvars.copy_context()
            self.call_if_due()

    def _call(self) -> None:
        self._is_called = False
        if self._wants_read and self._readable is not None:
            self._readable()
        if self._wants_write and self._writable is not None:
            self._writable()
        self.call_if_due()

    def _put(self, content: bytes | End) -> None:
        wire = self._wire
        if isinstance(content, bytes):
            if wire.strikes(wire.faults.break_share, "broken connections", self.host, self.peer_host):
                wire.break_connection(self)
                return
            self._under_way_bytes += len(content)
        arrival = wire.loop.time() + wire.delay(self.host, self.peer_host)
        if self._under_way:
            arrival = max(arrival, self._under_way[-1][0])
        self._under_way.append((arrival, content))
        if self._timer is None:
            self._timer = wire.loop.call_at(arrival, self.pump, context=wire.context)

    def _check_open(self) -> None:
        if self.is_closed:
            raise _error(errno.EBADF)


class SimListener:
    """An open port."""

    def __init__(self, wire: "Wire", host: str, port: int, on_accept: Callable[[SocketPort], None]) -> None:
        self.port: Final[int] = port
        self.host: Final = host
        self.process = PROCESS.get()
        self.context = contextvars.copy_context()
        self.on_accept: Callable[[SocketPort], None] = on_accept
        self._wire = wire

    def close(self) -> None:
        """Accepts no more. Twice is harmless."""
        self._wire.unlisten(self)


class Wire:
    """The network between the machines. Counts the faults in `fault_counts`."""

    def __init__(self, loop: VirtualLoop, random: SimRandom) -> None:
        self.loop = loop
        self.usual_delay_ms = 1.0
        """The longest delay of a healthy link."""
        self.faults = NetworkFaults()
        self.context = contextvars.Context()
        self.fault_counts = {"lost packets": 0, "broken connections": 0, "cuts": 0}
        self._random = random
        self._down: dict[str, None] = {}
        self._cuts: dict[tuple[str, str], int] = {}
        self._slow_ms: dict[tuple[str, str], float] = {}
        self._listeners: dict[tuple[str, int], SimListener] = {}
        self._sockets: dict[SimSocket, None] = {}
        self._next_port = FIRST_FREE_PORT
        self._healed = asyncio.Event()

    # Faults

    def cut(self, source: str, target: str) -> None:
        """Nothing passes from one machine to another, until `heal`."""
        self.fault_counts["cuts"] += 1
        self._cuts[source, target] = self._cuts.get((source, target), 0) + 1

    def heal(self, source: str, target: str) -> None:
        """Undoes one `cut`."""
        left = self._cuts.get((source, target), 0) - 1
        if left > 0:
            self._cuts[source, target] = left
        else:
            self._cuts.pop((source, target), None)
        self._announce()

    def slow(self, source: str, target: str, delay_max_ms: float) -> None:
        """Whatever goes that way takes up to so long; 0 undoes it."""
        self._slow_ms.pop((source, target), None)
        if delay_max_ms:
            self._slow_ms[source, target] = delay_max_ms

    def heal_all(self) -> None:
        """No cut, no slow link, no loss any more."""
        self._cuts.clear()
        self._slow_ms.clear()
        self.faults = NetworkFaults()
        self._announce()

    def set_down(self, host: str) -> None:
        """The machine is off: nothing reaches it, and its peers are not notified."""
        self._down[host] = None
        for socket in [each for each in self._sockets if each.host == host]:
            socket.vanish()
            self.drop(socket)
            if socket.other is not None:
                socket.other.ask_alive()
        for listener in [each for each in self._listeners.values() if each.host == host]:
            self.unlisten(listener)

    def set_up(self, host: str) -> None:
        """The machine is there again."""
        self._down.pop(host, None)
        self._announce()

    def end_process(self, process: Process) -> None:
        """Its connections and ports are closed by the system."""
        for listener in [each for each in self._listeners.values() if each.process is process]:
            self.unlisten(listener)
        for socket in [each for each in self._sockets if each.process is process]:
            socket.close()

    def break_connection(self, socket: SimSocket) -> None:
        """Both sides lose what is in flight; one of them may notice only when it next sends."""
        other = socket.other
        if other is not None and self._random.random() < HALF_OPEN_SHARE:
            # What the other side sends from now on is answered by a reset.
            other.lose_all()
            ghost = SimSocket(self, socket.host, socket.peer_host, None)
            ghost.is_closed = True
            ghost.other, other.other = other, ghost
            socket.reset()
            other.ask_alive()
            return
        for each in (socket, other):
            if each is not None and not each.is_closed:
                each.reset()

    def strikes(self, share: float, kind: str, source: str, target: str) -> bool:
        """Whether a fault of this share happens now."""
        if share and source != target and self._random.random() < share:
            self.fault_counts[kind] += 1
            return True
        return False

    # What passes

    def is_open(self, source: str, target: str) -> bool:
        """Whether something that was sent arrives now."""
        return target not in self._down and source not in self._down and (source, target) not in self._cuts

    def delay(self, source: str, target: str) -> float:
        """How long the next send takes, in seconds."""
        if source == target:
            return 0.00002
        most = self._slow_ms.get((source, target), self.usual_delay_ms)
        seconds = self._random.random() * most / 1000
        if self.strikes(self.faults.lost_share, "lost packets", source, target):
            seconds += RETRANSMISSION_SECONDS * (1 + self._random.random())
        return seconds

    async def pass_once(self, source: str, target: str) -> None:
        """Returns when a small message has arrived."""
        await asyncio.sleep(self.delay(source, target))
        while not self.is_open(source, target):
            await self._healed.wait()
            await asyncio.sleep(self._random.random() * RETRANSMISSION_SECONDS)

    def pair(self, source: str, listener: SimListener) -> SimSocket:
        """A new connection; the listening process accepts it."""
        near = SimSocket(self, source, listener.host, PROCESS.get())
        far = SimSocket(self, listener.host, source, listener.process)
        near.other, far.other = far, near
        self._sockets[near] = self._sockets[far] = None
        self.loop.call_soon(listener.on_accept, far, context=listener.context)
        return near

    def listen(self, host: str, port: int, on_accept: Callable[[SocketPort], None]) -> SimListener:
        """Opens a port of a machine."""
        if not port:
            self._next_port += 1
            port = self._next_port
        if (host, port) in self._listeners:
            raise OSError(errno.EADDRINUSE, f"cannot listen on {host}:{port}: {os.strerror(errno.EADDRINUSE)}")
        listener = self._listeners[host, port] = SimListener(self, host, port, on_accept)
        return listener

    def listener(self, host: str, port: int) -> SimListener | None:
        """The listener at that address."""
        return self._listeners.get((host, port))

    def unlisten(self, listener: SimListener) -> None:
        """Closes a port."""
        if self._listeners.get((listener.host, listener.port)) is listener:
            del self._listeners[listener.host, listener.port]

    def drop(self, socket: SimSocket) -> None:
        """One side has closed; what it sent before still arrives by its timer."""
        self._sockets.pop(socket, None)

    def _announce(self) -> None:
        self._healed.set()
        self._healed = asyncio.Event()
        for socket in list(self._sockets):
            self.loop.call_at(
                self.loop.time() + self._random.random() * RETRANSMISSION_SECONDS, socket.pump, context=self.context
            )


class SimNetwork:
    """The `Network` port of one machine."""

    __slots__ = ("_host", "_wire")

    def __init__(self, wire: Wire, host: str) -> None:
        self._wire = wire
        self._host = host

    async def connect(self, host: str, port: int) -> SimSocket:
        """Connects to a machine by its name."""
        wire = self._wire
        await wire.pass_once(self._host, host)
        listener = wire.listener(host, port)
        if listener is None:
            await wire.pass_once(host, self._host)
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"cannot connect to {host}:{port}: connection refused")
        socket = wire.pair(self._host, listener)
        try:
            await wire.pass_once(host, self._host)
        except BaseException:
            socket.close()
            raise
        return socket

    async def listen(self, host: str, port: int, on_accept: Callable[[SocketPort], None]) -> SimListener:
        """Opens a port of this machine."""
        return self._wire.listen(self._host, port, on_accept)


def _error(code: int) -> OSError:
    return OSError(code, os.strerror(code))
