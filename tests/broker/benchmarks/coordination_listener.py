"""A listener that speaks for a broker: reads every request with kio, answers with kio what a table says.

One thread for each connection, one lock around all answers. Requests with bytes left over are kept as bytes, so that a
test that looks at them fails.
"""

import io
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from tests.wire.exchange import fill, message_class

Answers = Mapping[tuple[int, int], Callable[[Any], Mapping[str, Any] | None]]
"""By API key and version: the fields of the answer; those that are not named get a default. None: never answered."""


class Listener:
    """What came, in the order in which it was read."""

    def __init__(self, answers: Answers) -> None:
        self.port = 0
        self.seen: list[tuple[int, Any]] = []
        self._answers = answers
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []

    def requests(self, api_key: int) -> list[Any]:
        """The requests of one API."""
        return [request for key, request in self.seen if key == api_key]

    def serve(self, server: socket.socket) -> None:
        """Takes connections until the server is closed."""
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve_one, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def join(self) -> None:
        """The clients have gone: so do the threads."""
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()

    def _serve_one(self, connection: socket.socket) -> None:
        # A load that ends in the middle leaves its connections behind.
        with suppress(ConnectionError), connection, connection.makefile("rb") as incoming:
            while len(length := incoming.read(4)) == 4:
                frame = incoming.read(struct.unpack(">i", length)[0])
                if len(frame) < struct.unpack(">i", length)[0]:
                    return
                with self._lock:
                    answer = self._answer(frame)
                if answer:
                    connection.sendall(struct.pack(">i", len(answer)) + answer)

    def _answer(self, frame: bytes) -> bytes:
        api_key, version = struct.unpack(">hh", frame[:4])
        request_class: Any = message_class(api_key, version, EntityType.request)
        response_class: Any = message_class(api_key, version, EntityType.response)
        header, header_size = entity_reader(request_class.__header_schema__)(frame, 0)
        request, body_size = entity_reader(request_class)(frame, header_size)
        self.seen.append((api_key, request if header_size + body_size == len(frame) else frame))
        fields = self._answers[api_key, version](request)
        if fields is None:
            return b""
        out = io.BytesIO()
        response_header = response_class.__header_schema__(correlation_id=header.correlation_id)
        entity_writer(response_class.__header_schema__)(out, response_header)
        entity_writer(response_class)(out, fill(response_class, fields))
        return out.getvalue()


@contextmanager
def listener(answers: Answers) -> Iterator[Listener]:
    """Serves until the clients have gone."""
    made = Listener(answers)
    with socket.create_server(("127.0.0.1", 0), backlog=200) as server:
        made.port = server.getsockname()[1]
        accepting = threading.Thread(target=made.serve, args=(server,))
        accepting.start()
        try:
            yield made
        finally:
            server.shutdown(socket.SHUT_RDWR)
            accepting.join(60)
            made.join()
