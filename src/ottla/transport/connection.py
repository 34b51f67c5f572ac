"""One client's connection, as the broker sees it: requests come out in order, responses go in by their slot.

Reading and writing are callbacks of the event loop on a raw socket; a whole readable event is scanned by one compiled
call. Many requests may be in flight; their responses leave in the order of the requests. A client that does not read
its responses, or has too many requests in flight, is not read from. The states are a table in `connection_state.py`;
what requests mean is for `serve` to know.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from ottla.env.ports import Clock, Socket
from ottla.protocol.scan import BrokenRequest, Request, scan_requests
from ottla.security.connection_context import ConnectionContext
from ottla.transport.connection_state import Event, State, next_state
from ottla.transport.outbox import Outbox, Piece
from ottla.transport.receive_buffers import SMALL_BYTES, ReceiveBuffers
from ottla.transport.request_times import RequestTimes
from ottla.transport.turn import Turn

IN_FLIGHT_MAX: Final = 256
"""Requests of one connection that may wait for their responses."""

UNSENT_BYTES_MAX: Final = 1024 * 1024
"""Responses of one connection that may wait in memory for its socket before no more requests are served."""

UNSENT_FILE_BYTES_MAX: Final = 32 * 1024 * 1024
"""The same with ranges of files, which are on disk."""

UNSENT_PIECES_MAX: Final = 512
"""The same for pieces of responses, whatever their size: a range of a file takes little memory, but not none."""

_COLLECTED_AT_ONCE: Final = 16
"""Responses that may be complete before they are counted as waiting for the socket."""

_STASH_BYTES_MAX: Final = 4096
"""The start of an incomplete request up to this size is copied, so that its buffer can be lent to others."""

_LARGEST_READ_BYTES: Final = 1024 * 1024

_TRUSTED_BYTES_MAX: Final = 2 * 1024 * 1024
"""The buffer that a connection gets for a request before that has arrived, if it has sent a request as large before."""

PROGRESS_SHARE: Final = 64
"""In each window an incomplete request must grow by the memory that it holds, divided by this."""

_DISCARDED_BYTES_MAX: Final = 1024 * 1024
"""What a client may send that is discarded while its last responses are waited for."""
_DISCARD: Final = bytearray(SMALL_BYTES)
"""Receives what is discarded."""

_TLS_HANDSHAKE: Final = b"\x16\x03"
_CLIENT_USES_TLS: Final = (
    "the client uses TLS, but this listener does not; set security.protocol=PLAINTEXT or SASL_PLAINTEXT in the client,"
    " or connect it to a listener with TLS"
)

# The members that every turn compares with: an attribute of an Enum takes longer to find than a global.
_OPEN: Final = State.OPEN
_CLOSED: Final = State.CLOSED
_DRAINING: Final = State.DRAINING
_STARVED: Final = frozenset({State.STARVED, State.STARVED_MUTED})


class Slot:
    """The place of one response in its connection's order. The time of the request is counted from `received_at` on,
    for `api_key`."""

    __slots__ = ("api_key", "connection", "failure", "on_abandoned", "pieces", "received_at", "throttle_ms")

    def __init__(self, connection: "Connection", api_key: int = -1, received_at: float = 0.0) -> None:
        self.connection = connection
        self.api_key = api_key
        self.received_at = received_at
        self.pieces: Sequence[Piece] | None = None
        self.failure: str | None = None
        self.on_abandoned: Callable[[], None] | None = None
        """Called if the client sends no more, its session ends, the connection closes, or an earlier request fails,
        before the response is complete. A response that waits for something better should come now; it may be
        needless."""
        self.throttle_ms = 0
        """For how long the connection is muted once this response is on its way."""

    @property
    def client(self) -> ConnectionContext:
        """What is known of the client that waits for the response."""
        return self.connection.context

    @property
    def is_abandoned(self) -> bool:
        """Whether the connection has ended, so that a response is not needed."""
        return self.connection.closed_because is not None

    def complete(self, pieces: Sequence[Piece]) -> None:
        """The response; nothing for a request that wants none."""
        self.pieces = pieces
        self.connection.on_completed()

    def fail(self, reason: str) -> None:
        """There can be no response: the connection closes once the requests before this one are answered."""
        self.failure = reason
        self.complete(())


class Serve(Protocol):
    """Takes each request in turn: completes the slot now or later. The buffer is the request's until the turn ends.

    If it answers False it did nothing: the request is offered again, with another slot, after `Connection.resume`.
    """

    def __call__(self, request: Request, buffer: bytearray, slot: Slot, /) -> bool | None: ...


class Connection:
    """One client's connection. `on_closed` is called once."""

    __slots__ = (
        "_buffer",
        "_buffers",
        "_clock",
        "_discarded_bytes",
        "_drained_because",
        "_end",
        "_frame_bytes",
        "_frame_bytes_max",
        "_has_joined",
        "_is_reading",
        "_is_writing",
        "_on_closed",
        "_outbox",
        "_read_bytes",
        "_received_at",
        "_scanned",
        "_serve",
        "_slots",
        "_socket",
        "_start",
        "_stash",
        "_state",
        "_times",
        "_trusted_bytes",
        "_turn",
        "_unmuting",
        "_window_began",
        "_window_bytes",
        "bytes_in",
        "bytes_out",
        "closed_because",
        "context",
        "host",
        "last_active",
        "refused_because",
    )

    def __init__(
        self,
        socket: Socket,
        context: ConnectionContext,
        *,
        serve: Serve,
        turn: Turn,
        clock: Clock,
        buffers: ReceiveBuffers,
        frame_bytes_max: int,
        times: RequestTimes,
        on_closed: Callable[["Connection"], None],
    ) -> None:
        self.context = context
        """The client; an authentication replaces it."""
        self.host = context.address.rpartition(":")[0]
        self.last_active = clock.monotonic()
        self.closed_because: str | None = None
        self.refused_because: str | None = None
        """Why a request could not be served, for which the connection ends."""
        self._drained_because: str | None = None
        """Why the connection is draining."""
        self._discarded_bytes = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self._socket = socket
        self._serve = serve
        self._turn = turn
        self._clock = clock
        self._buffers = buffers
        self._times = times
        self._received_at = self.last_active
        """When the requests that were scanned last were received."""
        self._frame_bytes_max = frame_bytes_max
        self._on_closed = on_closed
        self._buffer: bytearray | None = None
        self._start = 0
        """Where the first request that is not complete begins in the buffer."""
        self._end = 0
        """Where what has arrived ends."""
        self._frame_bytes = 0
        """The whole size of that request, once it is known."""
        self._trusted_bytes = 0
        """The size of the largest request that has arrived whole."""
        self._window_began = self.last_active
        """When progress was last measured, or a request was complete."""
        self._window_bytes = 0
        """What had been received and sent when progress was last measured."""
        self._stash = b""
        self._read_bytes = SMALL_BYTES
        self._scanned: deque[Request] = deque()
        self._slots: deque[Slot] = deque()
        self._outbox = Outbox()
        self._has_joined = False
        self._state = _OPEN
        self._unmuting: asyncio.TimerHandle | None = None
        self._is_reading = True
        """Whether the socket is watched for requests."""
        self._is_writing = False
        """Whether the socket is watched for room to send."""
        socket.on_readable(self._on_readable)

    def is_closed(self) -> bool:
        """Whether it is closed; `closed_because` says why."""
        return self._state is _CLOSED

    def _on(self, event: Event) -> None:
        self._state = next_state(self._state, event)

    # Reading

    def _on_readable(self) -> None:
        if self._has_joined:
            # Batches of the last read may still be in the buffer, waiting for the turn's end.
            self._turn.finish()
            if self._state is _CLOSED or not self._is_reading:
                return
        buffer = self._room()
        if buffer is None:
            return
        try:
            view = memoryview(buffer)
            count = self._socket.recv_into(view[self._end :] if self._end else view)
        except BlockingIOError:
            self._join_turn()
            return
        except OSError as error:
            self.close(error.strerror or str(error))
            return
        if count == 0:
            self._on_end_of_stream()
            return
        self.last_active = self._clock.monotonic()
        self.bytes_in += count
        self._end += count
        if self._end == len(buffer) and len(buffer) < _LARGEST_READ_BYTES:
            self._read_bytes = 2 * len(buffer)
        awaited_bytes = self._frame_bytes
        requests, self._start, self._frame_bytes = scan_requests(buffer, self._start, self._end, self._frame_bytes_max)
        if requests:
            self._window_began = self._received_at = self.last_active
            if awaited_bytes > self._trusted_bytes:
                self._trusted_bytes = min(awaited_bytes, _TRUSTED_BYTES_MAX)
            self._scanned.extend(requests)
        self._turn.begin_event()
        try:
            self._join_turn()
            self._serve_scanned()
        finally:
            self._turn.end_event()

    def _on_end_of_stream(self) -> None:
        """The client sends no more, but may still read: the requests in flight are answered, as Kafka does."""
        if not self._slots and not self._outbox.bytes_waiting:
            self.close("the client closed it")
            return
        self._start = self._end
        self._drain("the client closed it")
        # The end of the stream stays readable. If the client does not read either, sending fails.
        self._socket.on_readable(None)
        self.hurry()

    def hurry(self) -> None:
        """Asks for the responses that only wait for something better, such as fetches for more records."""
        for slot in list(self._slots):
            if slot.on_abandoned is not None and slot.pieces is None:
                slot.on_abandoned()

    def _room(self) -> bytearray | None:
        """A buffer with room for the next bytes; None if there is no memory for one yet.

        It doubles when it is full of an incomplete request, so that a claimed size alone takes no memory. A connection
        whose requests have arrived whole gets room for the next one at once.
        """
        buffer = self._buffer
        held_bytes = 0 if buffer is None else len(buffer)
        if buffer is None:
            needed = SMALL_BYTES
        else:
            needed = 2 * held_bytes if self._end - self._start == held_bytes else held_bytes
        # Comparisons, as this runs for every read: `min` and `max` cost more than the rest of it.
        wanted = self._frame_bytes if self._frame_bytes < self._trusted_bytes else self._trusted_bytes
        if wanted < needed:
            wanted = needed
        if wanted < self._read_bytes:
            wanted = self._read_bytes
        if held_bytes < wanted:
            lent = self._buffers.lend(wanted, self.host, held_bytes=held_bytes)
            if lent is None and needed < wanted:
                # Reading far ahead is optional; what is needed is room for the next bytes.
                self._read_bytes = SMALL_BYTES
                if held_bytes < needed:
                    lent = self._buffers.lend(needed, self.host, held_bytes=held_bytes)
            if lent is not None:
                self._move_to(lent)
                return lent
        if buffer is None or held_bytes < needed:
            self._on(Event.STARVE)
            self._pause_reading()
            self._buffers.when_free(self._on_memory, self.host, held_bytes=held_bytes)
            return None
        if self._start:
            with memoryview(buffer) as view:
                view[: self._end - self._start] = view[self._start : self._end]
            self._end -= self._start
            self._start = 0
        return buffer

    def _move_to(self, lent: bytearray) -> None:
        """Moves what has arrived of the next request to the start of another buffer."""
        if self._buffer is not None:
            with memoryview(lent) as target, memoryview(self._buffer) as source:
                target[: self._end - self._start] = source[self._start : self._end]
            self._end -= self._start
            self._buffers.give_back(self._buffer, self.host)
        else:
            lent[: len(self._stash)] = self._stash
            self._end = len(self._stash)
            self._stash = b""
        self._start = 0
        self._buffer = lent

    def _on_memory(self) -> None:
        self._on(Event.FEED)
        self._window_began = self._clock.monotonic()
        self._update_reading()

    def _serve_scanned(self) -> None:
        """Serves what was scanned, as far as this connection may have more requests in flight."""
        scanned, slots, serve = self._scanned, self._slots, self._serve
        buffer = self._buffer
        while scanned and self._may_serve():
            enough = len(slots) + _COLLECTED_AT_ONCE
            if enough > IN_FLIGHT_MAX:
                enough = IN_FLIGHT_MAX
            while scanned and len(slots) < enough:
                request = scanned.popleft()
                if isinstance(request, BrokenRequest):
                    is_tls = buffer is not None and buffer.startswith(_TLS_HANDSHAKE, request.start)
                    self._refuse(_CLIENT_USES_TLS if is_tls else request.reason)
                    return
                if buffer is None:
                    scanned.clear()
                    return
                slot = Slot(self, request.api_key, self._received_at)
                slots.append(slot)
                if serve(request, buffer, slot) is False:
                    slots.pop()
                    scanned.appendleft(request)
                    self._on(Event.DEFER)
                    break
                if self._state is not _OPEN:
                    break
            if self._state is _CLOSED:
                return
            # Now rather than at the turn's end, so that what waits to be sent is counted as it grows.
            self._collect()
        self._update_reading()

    def _may_serve(self) -> bool:
        if self._state is not _OPEN or len(self._slots) >= IN_FLIGHT_MAX:
            return False
        outbox = self._outbox
        # No piece is empty, so that this few bytes are few pieces too.
        return outbox.bytes_waiting < UNSENT_PIECES_MAX or (
            outbox.memory_bytes < UNSENT_BYTES_MAX
            and outbox.bytes_waiting < UNSENT_FILE_BYTES_MAX
            and len(outbox) < UNSENT_PIECES_MAX
        )

    def resume(self) -> None:
        """Offers the request again that was not admitted, and those behind it."""
        self._on(Event.RESUME)
        self._serve_again()

    def _serve_again(self) -> None:
        if self._state is not _OPEN:
            return
        if self._scanned:
            self._join_turn()
            self._serve_scanned()
        else:
            self._update_reading()

    def _mute(self, throttle_ms: int) -> None:
        """Serves no request for this time; responses are still sent."""
        self._on(Event.MUTE)
        if self._state is State.DRAINING:
            return
        loop = asyncio.get_running_loop()
        until = loop.time() + throttle_ms / 1000
        if self._unmuting is not None:
            until = max(until, self._unmuting.when())
            self._unmuting.cancel()
        self._unmuting = loop.call_at(until, self._unmute)
        self._pause_reading()

    def _unmute(self) -> None:
        self._unmuting = None
        self._window_began = self._clock.monotonic()
        self._on(Event.UNMUTE)
        self._serve_again()

    def _cancel_unmuting(self) -> None:
        if self._unmuting is not None:
            self._unmuting.cancel()
            self._unmuting = None

    def _refuse(self, reason: str) -> None:
        self.refused_because = reason
        self._drain(reason)

    def _drain(self, reason: str) -> None:
        """Answers the requests in flight; then the connection closes."""
        self._on(Event.DRAIN)
        self._cancel_unmuting()
        self._scanned.clear()
        self._drained_because = reason
        self._pause_reading()
        if self._slots:
            # Some may take long, and the client may hang up meanwhile.
            self._socket.on_readable(self._discard)
        self._join_turn()

    def _discard(self) -> None:
        try:
            count = self._socket.recv_into(memoryview(_DISCARD))
        except BlockingIOError:
            return
        except OSError as error:
            self.close(error.strerror or str(error))
            return
        self._discarded_bytes += count
        if count == 0:
            self.close("the client closed it")
        elif self._discarded_bytes > _DISCARDED_BYTES_MAX:
            self._socket.on_readable(None)

    def drain(self) -> None:
        """Answers the requests in flight, serves no more, then closes."""
        if self._state not in (State.CLOSED, State.DRAINING):
            self._drain("the broker is shutting down")

    def _update_reading(self) -> None:
        if (
            self._is_reading
            and not self._scanned
            and self._outbox.bytes_waiting < UNSENT_PIECES_MAX
            and len(self._slots) < IN_FLIGHT_MAX
            and self._state is _OPEN
        ):
            return  # The most frequent case, in which `_may_serve` is true.
        if self._state is _CLOSED:
            return
        wants = not self._scanned and self._may_serve()
        if wants and not self._is_reading:
            self._is_reading = True
            self._socket.on_readable(self._on_readable)
        elif not wants:
            self._pause_reading()

    def _pause_reading(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._socket.on_readable(None)

    def stall(self, now: float, window_seconds: float) -> str | None:
        """The reason to close the connection if an incomplete request made too little progress in the last window.

        Bytes received and sent both count. The client is not responsible for memory that the broker has not granted,
        nor for responses that the broker has not completed.
        """
        held_bytes = SMALL_BYTES if self._buffer is None else len(self._buffer)
        is_unread = self._outbox.bytes_waiting > 0 and held_bytes > SMALL_BYTES and self._state not in _STARVED
        holds_request = self._end > self._start or len(self._stash) > 0 or len(self._scanned) > 0
        if self.is_closed() or not holds_request or not (self._is_reading or is_unread):
            self._window_began, self._window_bytes = now, self.bytes_in + self.bytes_out
            return None
        if now - self._window_began < window_seconds:
            return None
        moved = self.bytes_in + self.bytes_out - self._window_bytes
        if moved < held_bytes // PROGRESS_SHARE:
            held_bytes = self._give_up_luxury(held_bytes)
        if moved >= held_bytes // PROGRESS_SHARE:
            self._window_began, self._window_bytes = now, self.bytes_in + self.bytes_out
            return None
        arrived = self._end - self._start or len(self._stash)
        return (
            f"an incomplete request ({arrived} of {self._frame_bytes or 'unknown'} bytes received) made too little"
            f" progress: {moved} bytes in {window_seconds:g} s, at least {held_bytes // PROGRESS_SHARE} are required"
        )

    def _give_up_luxury(self, held_bytes: int) -> int:
        """Replaces a buffer that is much larger than what has arrived; returns the size of the new one.

        A slow client keeps what it needs, not the room that it got when it was fast.
        """
        arrived = self._end - self._start
        if self._buffer is None or self._has_joined or self._scanned or 2 * max(arrived, SMALL_BYTES) > held_bytes:
            return held_bytes
        lent = self._buffers.lend(arrived, self.host, held_bytes=held_bytes)
        if lent is None:
            return held_bytes
        self._move_to(lent)
        self._read_bytes = SMALL_BYTES
        self._trusted_bytes = 0
        return len(lent)

    # Writing

    def on_completed(self) -> None:
        """A slot has its response; the oldest complete responses are sent when the turn ends."""
        # There are no slots if an earlier request has failed and the connection only sends what is left.
        if not self._has_joined and self._slots and self._slots[0].pieces is not None:
            self._join_turn()

    def _join_turn(self) -> None:
        if not self._has_joined:
            self._has_joined = True
            self._turn.join(self)

    def end_turn(self) -> None:
        """Sends what is complete, and gives the buffer back if nothing of it is needed."""
        self._has_joined = False
        if self._state is _CLOSED:
            return
        if self._slots:
            self._collect()
        if self._outbox.bytes_waiting and not self._is_writing:
            self._send()
            if self.closed_because is not None:
                return
        if self._scanned:
            if self._may_serve():
                # Joined first: what is served now may leave batches in the buffer until the turn ends once more.
                self._join_turn()
                self._serve_scanned()
                if self.is_closed():
                    return
        elif self._buffer is not None and self._end - self._start <= _STASH_BYTES_MAX:
            if self._start == self._end:
                self._start = self._end = 0
            if self._buffers.is_wanted(self._buffer):
                self._put_aside(self._buffer)
        self._update_reading()
        if self._state is _DRAINING and not self._slots and not self._outbox.bytes_waiting:
            self.close(self._drained_because or "")

    def _collect(self) -> None:
        """Takes the complete responses, from the oldest request on."""
        slots = self._slots
        if not slots or slots[0].pieces is None:
            return
        now = self._clock.monotonic()
        api_key, received_at, count = slots[0].api_key, slots[0].received_at, 0
        while slots and (pieces := slots[0].pieces) is not None:
            slot = slots.popleft()
            self._outbox.add(pieces)
            if slot.api_key != api_key or slot.received_at != received_at:
                self._times.add(api_key, now - received_at, count)
                api_key, received_at, count = slot.api_key, slot.received_at, 0
            count += 1
            if slot.throttle_ms:
                self._mute(slot.throttle_ms)
            if slot.failure is not None:
                self._abandon_slots()
                self._refuse(slot.failure)
        self._times.add(api_key, now - received_at, count)

    def _put_aside(self, buffer: bytearray) -> None:
        self._stash = bytes(memoryview(buffer)[self._start : self._end])
        self._buffers.give_back(buffer, self.host)
        self._buffer = None
        self._start = self._end = 0

    def _send(self) -> None:
        try:
            sent = self._outbox.send(self._socket)
        except OSError as error:
            self.close(error.strerror or str(error))
            return
        if sent:
            self.bytes_out += sent
            self.last_active = self._clock.monotonic()
        if self._outbox.bytes_waiting and not self._is_writing:
            self._is_writing = True
            self._socket.on_writable(self._on_writable)
        elif not self._outbox.bytes_waiting and self._is_writing:
            self._is_writing = False
            self._socket.on_writable(None)

    def _on_writable(self) -> None:
        self._send()
        if not self.is_closed() and not self._outbox.bytes_waiting:
            self._join_turn()
        else:
            self._update_reading()

    # Ending

    def _abandon_slots(self) -> None:
        """Drops the responses that are not sent yet, and tells the requests that still wait."""
        slots = list(self._slots)
        self._slots.clear()
        for slot in slots:
            if slot.on_abandoned is not None and slot.pieces is None:
                slot.on_abandoned()

    def close(self, reason: str) -> None:
        """Closes at once; what was not sent is dropped. Closing twice is harmless."""
        if self._state is State.CLOSED:
            return
        self._on(Event.CLOSE)
        self._cancel_unmuting()
        self.closed_because = reason
        self._socket.close()
        self._scanned.clear()
        self._abandon_slots()
        if self._buffer is not None:
            if self._has_joined:
                # Batches in it may still be waiting for the turn's end: it must not be lent again.
                self._buffers.forget(self._buffer, self.host)
            else:
                self._buffers.give_back(self._buffer, self.host)
            self._buffer = None
        self._on_closed(self)
