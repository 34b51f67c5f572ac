"""A middleman between clients and a broker that can keep the broker's answers to itself.

A client that hears nothing does not know whether what it asked for was done; what it does then is up to its library.
Only answers to writes are lost: a client that refreshes its metadata at that moment would otherwise wait for them and
not write at all. Clients must be told the middleman's address only, so the broker has to advertise it.
"""

import contextlib
import socket
import threading
from collections.abc import Callable
from struct import Struct
from types import TracebackType
from typing import Final, Self

PIECE_BYTES: Final = 65536
WRITES: Final = frozenset({0, 26})
"""The API keys of Produce and EndTxn."""
_HEAD: Final = Struct(">ih")


class Middleman:
    """Passes bytes on, both ways, from when it is made. Use as a context manager."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.broker_address = ""
        """To be set before the first client comes; it may be known only to a broker that knows the address above."""
        self._withholding = threading.Event()
        self._is_open = True
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()
        self.cut_off()

    def withhold_answers(self) -> None:
        """From now on the broker hears its clients, but a connection that writes does not hear it any more."""
        self._withholding.set()

    def cut_off(self) -> None:
        """Ends all connections, and takes no new ones until `resume`."""
        with self._lock:
            self._is_open = False
            cut, self._sockets = self._sockets, set()
        for each in cut:
            _close(each)

    def resume(self) -> None:
        """Serves whoever connects from now on as at first."""
        with self._lock:
            self._withholding.clear()
            self._is_open = True

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        host, _, port = self.broker_address.rpartition(":")
        try:
            broker = socket.create_connection((host, int(port)))
        except OSError:
            _close(client)
            return
        with self._lock:
            is_open = self._is_open
            if is_open:
                self._sockets |= {client, broker}
        if not is_open:
            _close(client)
            _close(broker)
            return
        is_deaf = threading.Event()
        requests = _Requests()

        def on_requests(piece: bytes) -> bool:
            if requests.has_write(piece) and self._withholding.is_set():
                is_deaf.set()
            return True

        threading.Thread(
            target=self._pass_on, args=(broker, client, lambda _: not is_deaf.is_set()), daemon=True
        ).start()
        self._pass_on(client, broker, on_requests)

    def _pass_on(self, source: socket.socket, target: socket.socket, may_pass: Callable[[bytes], bool]) -> None:
        """Until one side is gone; then the other one goes as well."""
        with contextlib.suppress(OSError):
            while piece := source.recv(PIECE_BYTES):
                if may_pass(piece):
                    target.sendall(piece)
        with self._lock:
            self._sockets -= {source, target}
        _close(source)
        _close(target)


class _Requests:
    """The requests of one connection, found in pieces of any size."""

    def __init__(self) -> None:
        self._head = b""
        self._body_left = 0

    def has_write(self, piece: bytes) -> bool:
        """Whether a request that writes begins in the piece, or is known to only now."""
        found = False
        while piece:
            if self._body_left:
                passed = min(self._body_left, len(piece))
                self._body_left -= passed
                piece = piece[passed:]
                continue
            wanted = _HEAD.size - len(self._head)
            self._head, piece = self._head + piece[:wanted], piece[wanted:]
            if len(self._head) == _HEAD.size:
                size, api_key = _HEAD.unpack(self._head)
                self._head, self._body_left = b"", size - 2
                found |= api_key in WRITES
        return found


def _close(end: socket.socket) -> None:
    # Another thread may be receiving from it, which closing alone does not end.
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
