"""What a connection still has to send: bytes and ranges of files, in order, kept across a full socket.

Small ranges are read and go out gathered with the bytes around them, in one call. Large ones go from file to socket
without passing through the process, the bytes before them marked as followed by more.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol

from ottla.env.ports import File, Socket

GATHERED_BYTES_MAX: Final = 128 * 1024
"""A gathered send stops growing here."""

COPIED_RANGE_BYTES_MAX: Final = 64 * 1024
"""Up to this size reading a range and sending it with its neighbours is cheaper than a `sendfile` of its own."""

SENT_PER_TURN_BYTES_MAX: Final = 8 * 1024 * 1024
"""A reader that is as fast as we are must not keep the event loop to itself."""


class Range(Protocol):
    """A part of a file, as storage hands it out."""

    @property
    def file(self) -> File: ...

    @property
    def position(self) -> int: ...

    @property
    def size(self) -> int: ...


Piece = bytes | Range


class Outbox:
    """A queue of pieces; `bytes_waiting` is their size, `memory_bytes` of those that are in memory."""

    __slots__ = ("_pieces", "_sent", "bytes_waiting", "memory_bytes")

    def __init__(self) -> None:
        self._pieces: deque[Piece] = deque()
        self._sent = 0
        """How much of the first piece is out already."""
        self.bytes_waiting = 0
        self.memory_bytes = 0

    def __len__(self) -> int:
        return len(self._pieces)

    def add(self, pieces: Sequence[Piece]) -> None:
        """Puts pieces behind what waits."""
        for piece in pieces:
            if isinstance(piece, bytes):
                size = len(piece)
                self.memory_bytes += size
            else:
                size = piece.size
            if size:
                self._pieces.append(piece)
                self.bytes_waiting += size

    def send(self, socket: Socket) -> int:
        """Sends what the socket takes and says how much; raises OSError if it is broken, or a file cannot be read."""
        if len(self._pieces) == 1 and not self._sent and isinstance(only := self._pieces[0], bytes):
            sent = socket.send((only,))
            if sent == self.bytes_waiting:
                self._pieces.clear()
                self.bytes_waiting = self.memory_bytes = 0
            else:
                self._forget(sent)
            return sent
        sent_in_all = 0
        while self._pieces and sent_in_all < SENT_PER_TURN_BYTES_MAX:
            first = self._pieces[0]
            if isinstance(first, bytes) or first.size <= COPIED_RANGE_BYTES_MAX:
                wanted, sent = self._send_gathered(socket)
            else:
                wanted = first.size - self._sent
                sent = socket.send_file(first.file, first.position + self._sent, wanted)
                self._forget(sent)
            sent_in_all += sent
            if sent < wanted:
                break
        return sent_in_all

    def _send_gathered(self, socket: Socket) -> tuple[int, int]:
        buffers: list[bytes | memoryview] = []
        size, index = 0, 0
        for index, piece in enumerate(self._pieces):
            if isinstance(piece, bytes):
                buffers.append(piece)
            elif piece.size <= COPIED_RANGE_BYTES_MAX:
                buffers.append(_read(piece))
            else:
                break
            size += len(buffers[-1])
            if size >= GATHERED_BYTES_MAX:
                index += 1
                break
        else:
            index += 1
        if self._sent:
            buffers[0] = memoryview(buffers[0])[self._sent :]
            size -= self._sent
        sent = socket.send(buffers, more=index < len(self._pieces))
        self._forget(sent)
        return size, sent

    def _forget(self, sent: int) -> None:
        """Drops what is out."""
        pieces = self._pieces
        if sent == self.bytes_waiting:
            pieces.clear()
            self.bytes_waiting = self.memory_bytes = self._sent = 0
            return
        self.bytes_waiting -= sent
        sent += self._sent
        while True:
            first = pieces[0]
            size = len(first) if isinstance(first, bytes) else first.size
            if sent < size:
                break
            sent -= size
            if isinstance(first, bytes):
                self.memory_bytes -= size
            pieces.popleft()
        self._sent = sent


def _read(piece: Range) -> bytes:
    content = piece.file.read_at(piece.position, piece.size)
    if len(content) < piece.size:
        raise OSError(f"{piece.file.path} ends before byte {piece.position + piece.size}, which was to be sent")
    return content
