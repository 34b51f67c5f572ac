"""A middleman between clients and a broker that can keep the broker's answers to itself.

A client that hears nothing does not know whether what it asked for was done; what it does then is up to its library.
Clients must be told the middleman's address only, so the broker has to advertise it.
"""

import contextlib
import socket
import threading
from types import TracebackType
from typing import Final, Self

PIECE_BYTES: Final = 65536


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
        """From now on the broker hears its clients, but they do not hear it."""
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
        threading.Thread(target=self._pass_on, args=(broker, client, self._withholding), daemon=True).start()
        self._pass_on(client, broker, threading.Event())

    def _pass_on(self, source: socket.socket, target: socket.socket, withholding: threading.Event) -> None:
        """Until one side is gone; then the other one goes as well."""
        with contextlib.suppress(OSError):
            while piece := source.recv(PIECE_BYTES):
                if not withholding.is_set():
                    target.sendall(piece)
        with self._lock:
            self._sockets -= {source, target}
        _close(source)
        _close(target)


def _close(end: socket.socket) -> None:
    # Another thread may be receiving from it, which closing alone does not end.
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
