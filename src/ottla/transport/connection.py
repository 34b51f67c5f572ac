"""One client's connection, as the broker sees it: requests come out in order, responses go in by their slot.

Reading and writing are callbacks of the event loop on a raw socket; a whole readable event is scanned by one compiled
call. Any number of requests may be in the works; their responses leave in the order of the requests. Who does not read
its responses, or has too many requests in the works, is not read from. What requests mean is `serve`'s business.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from ottla.env.ports import Clock, Socket
from ottla.protocol.scan import BrokenRequest, Request, scan_requests
from ottla.transport.outbox import Outbox, Piece
from ottla.transport.receive_buffers import SMALL_BYTES, ReceiveBuffers
from ottla.transport.request_times import RequestTimes
from ottla.transport.turn import Turn

IN_FLIGHT_MAX: Final = 256
"""Requests of one connection that may wait for their responses."""

UNSENT_BYTES_MAX: Final = 1024 * 1024
"""Responses of one connection that may wait in memory for its socket before no more requests are served."""

UNSENT_FILE_BYTES_MAX: Final = 32 * 1024 * 1024
"""The same with ranges of files, which wait on disk."""

UNSENT_PIECES_MAX: Final = 512
"""The same for pieces of responses, whatever their size: a range of a file takes little memory, but not none."""

_COLLECTED_AT_ONCE: Final = 16
"""Responses that may be complete before they are counted as waiting for the socket."""

_STASH_BYTES_MAX: Final = 4096
"""The beginning of a request that is put aside so that its buffer can serve others meanwhile."""

_LARGEST_READ_BYTES: Final = 1024 * 1024

_TRUSTED_BYTES_MAX: Final = 2 * 1024 * 1024
"""The buffer that a connection gets for a request before that has arrived, if it has sent a request as large before."""

PROGRESS_SHARE: Final = 64
"""In each window an incomplete request must grow by the memory that it holds, divided by this."""

_DISCARDED_BYTES_MAX: Final = 1024 * 1024
"""What one may send that nobody reads any more, while its last responses are waited for."""
_DISCARD: Final = bytearray(SMALL_BYTES)
"""Where that goes."""


class Slot:
    """The place of one response in its connection's order. `api_key` and `received_at` say under which API, and from
    when on, the time of the request is counted."""

    __slots__ = ("api_key", "connection", "failure", "on_abandoned", "pieces", "received_at")

    def __init__(self, connection: "Connection", api_key: int = -1, received_at: float = 0.0) -> None:
        self.connection = connection
        self.api_key = api_key
        self.received_at = received_at
        self.pieces: Sequence[Piece] | None = None
        self.failure: str | None = None
        self.on_abandoned: Callable[[], None] | None = None
        """Called if the connection ends before the response is there, so that nobody goes on for nothing."""

    def complete(self, pieces: Sequence[Piece]) -> None:
        """The response; nothing for a request that wants none."""
        self.pieces = pieces
        self.connection.on_completed()

    def fail(self, reason: str) -> None:
        """There can be no response: the connection ends once the requests before this one are answered."""
        self.failure = reason
        self.complete(())


class Serve(Protocol):
    """Takes each request in turn: completes the slot now or later. The buffer is the request's until the turn ends.

    If it answers False it did nothing: the request is offered again, with another slot, after `Connection.resume`.
    """

    def __call__(self, request: Request, buffer: bytearray, slot: Slot, /) -> bool | None: ...


class Connection:
    """See the module's docstring. Made by the listener; `on_closed` is called once."""

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
        "_is_deferred",
        "_is_reading",
        "_is_starved",
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
        "_times",
        "_trusted_bytes",
        "_turn",
        "_window_began",
        "_window_bytes",
        "bytes_in",
        "bytes_out",
        "closed_because",
        "host",
        "last_active",
        "peer",
        "refused_because",
    )

    def __init__(
        self,
        socket: Socket,
        *,
        serve: Serve,
        turn: Turn,
        clock: Clock,
        buffers: ReceiveBuffers,
        frame_bytes_max: int,
        times: RequestTimes,
        on_closed: Callable[["Connection"], None],
    ) -> None:
        self.peer = socket.peer()
        self.host = self.peer.rpartition(":")[0]
        self.last_active = clock.monotonic()
        self.closed_because: str | None = None
        self.refused_because: str | None = None
        """Why a request could not be served, for which the connection ends."""
        self._drained_because: str | None = None
        """If set, no new requests are served, and it closes when what is in the works has been answered."""
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
        """When what was scanned last was received."""
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
        self._is_deferred = False
        """Whether the next request waits until whoever serves has time for it."""
        self._is_reading = True
        self._is_starved = False
        """Whether it waits for memory; if so it is not read from, whatever else would allow it."""
        self._is_writing = False
        socket.on_readable(self._on_readable)

    def is_closed(self) -> bool:
        """Whether it has ended; `closed_because` says why."""
        return self.closed_because is not None

    # Reading

    def _on_readable(self) -> None:
        if self._has_joined:
            # Batches of the last read may still lie in the buffer, waiting for the turn's end.
            self._turn.finish()
            if self.is_closed() or not self._is_reading:
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
            self.close("the other side closed it")
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

    def _room(self) -> bytearray | None:
        """A buffer with room for what comes; None if it must be waited for.

        It doubles when it is full of an incomplete request, so that a claimed size alone takes no memory. A connection
        whose requests have arrived whole gets room for the next one at once.
        """
        buffer = self._buffer
        held_bytes = 0 if buffer is None else len(buffer)
        if buffer is None:
            needed = SMALL_BYTES
        else:
            needed = 2 * held_bytes if self._end - self._start == held_bytes else held_bytes
        wanted = max(needed, self._read_bytes, min(self._frame_bytes, self._trusted_bytes))
        if held_bytes < wanted:
            lent = self._buffers.lend(wanted, self.host, held_bytes=held_bytes)
            if lent is None and needed < wanted:
                # Reading far ahead is a luxury; what is needed is room for the next bytes.
                self._read_bytes = SMALL_BYTES
                if held_bytes < needed:
                    lent = self._buffers.lend(needed, self.host, held_bytes=held_bytes)
            if lent is not None:
                self._move_to(lent)
                return lent
        if buffer is None or held_bytes < needed:
            self._is_starved = True
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
        """What has arrived of the next request goes to the beginning of another buffer."""
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
        self._is_starved = False
        self._window_began = self._clock.monotonic()
        self._update_reading()

    def _serve_scanned(self) -> None:
        """Serves what was scanned, as far as this connection may have more in the works."""
        scanned, slots, serve = self._scanned, self._slots, self._serve
        buffer = self._buffer
        while scanned and self._may_serve():
            enough = min(len(slots) + _COLLECTED_AT_ONCE, IN_FLIGHT_MAX)
            while scanned and len(slots) < enough:
                request = scanned.popleft()
                if isinstance(request, BrokenRequest):
                    self._refuse(request.reason)
                    return
                if self._drained_because is not None or buffer is None:
                    scanned.clear()
                    return
                slot = Slot(self, request.api_key, self._received_at)
                slots.append(slot)
                if serve(request, buffer, slot) is False:
                    slots.pop()
                    scanned.appendleft(request)
                    self._is_deferred = True
                    break
                if self.closed_because is not None:
                    return
            # Now rather than at the turn's end, so that what waits to be sent is counted as it grows.
            self._collect()
        self._update_reading()

    def _may_serve(self) -> bool:
        return (
            len(self._slots) < IN_FLIGHT_MAX
            and self._outbox.memory_bytes < UNSENT_BYTES_MAX
            and self._outbox.bytes_waiting < UNSENT_FILE_BYTES_MAX
            and len(self._outbox) < UNSENT_PIECES_MAX
            and not self._is_deferred
        )

    def resume(self) -> None:
        """Offers the request again that was not served, and what came behind it."""
        self._is_deferred = False
        if not self.is_closed() and self._scanned:
            self._join_turn()
            self._serve_scanned()

    def _refuse(self, reason: str) -> None:
        self.refused_because = reason
        self._drain(reason)

    def _drain(self, reason: str) -> None:
        """What was asked before is answered; then the connection ends."""
        self._scanned.clear()
        self._drained_because = reason
        self._pause_reading()
        if self._slots:
            # Some may take long, and whoever waits for them may hang up.
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
            self.close("the other side closed it")
        elif self._discarded_bytes > _DISCARDED_BYTES_MAX:
            self._socket.on_readable(None)

    def drain(self) -> None:
        """Answers what is in the works, serves nothing more, then closes."""
        if not self.is_closed() and self._drained_because is None:
            self._drain("the broker is shutting down")

    def _update_reading(self) -> None:
        if (
            self._is_reading
            and not self._scanned
            and not self._outbox.bytes_waiting
            and len(self._slots) < IN_FLIGHT_MAX
            and not self._is_deferred
            and self._drained_because is None
        ):
            return  # As it mostly is; whoever starves or closes it also ends the reading.
        if self.is_closed():
            return
        wants = not self._scanned and not self._is_starved and self._drained_because is None and self._may_serve()
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
        """What to say if a request that is held here made too little progress in the last window; None if it did.

        Bytes received and sent both count. Memory that the broker has not granted is not the client's fault, and
        neither are responses that the broker has not completed.
        """
        held_bytes = SMALL_BYTES if self._buffer is None else len(self._buffer)
        is_unread = self._outbox.bytes_waiting > 0 and held_bytes > SMALL_BYTES and not self._is_starved
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
        """Exchanges a buffer that is much larger than what has arrived; answers what is held then.

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
        """A slot has its response; what is complete from the oldest on goes out when the turn ends."""
        # There are no slots if an earlier request has failed and the connection only finishes sending.
        if self._slots and self._slots[0].pieces is not None:
            self._join_turn()

    def _join_turn(self) -> None:
        if not self._has_joined:
            self._has_joined = True
            self._turn.join(self)

    def end_turn(self) -> None:
        """Sends what is complete, and gives the buffer back if nothing of it is needed."""
        self._has_joined = False
        if self.is_closed():
            return
        self._collect()
        if self._outbox.bytes_waiting and not self._is_writing:
            self._send()
            if self.is_closed():
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
        if self._drained_because is not None and not self._slots and not self._outbox.bytes_waiting:
            self.close(self._drained_because)

    def _collect(self) -> None:
        """Takes what is complete, from the oldest request on."""
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
            if slot.failure is not None:
                slots.clear()
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

    def close(self, reason: str) -> None:
        """Ends it at once; what was not sent is dropped. Closing twice is harmless."""
        if self.is_closed():
            return
        self.closed_because = reason
        self._socket.close()
        self._scanned.clear()
        for slot in self._slots:
            if slot.on_abandoned is not None and slot.pieces is None:
                slot.on_abandoned()
        self._slots.clear()
        if self._buffer is not None:
            if self._has_joined:
                # Batches in it may still be waiting for the turn's end: it goes with its last reader.
                self._buffers.forget(self._buffer, self.host)
            else:
                self._buffers.give_back(self._buffer, self.host)
            self._buffer = None
        self._on_closed(self)
