"""Requests that no well-behaved client sends, and some that are unusual: over a real port."""

import json
import socket
from collections.abc import Iterator

import pytest

from ottla.registry.service import http_protocol
from ottla.testing import InProcessBroker
from tests.broker.registry.service.registry_thread import RegistryThread

BODY = json.dumps({"schema": '"string"'}).encode()
UPGRADE = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with InProcessBroker(tmp_path_factory.mktemp("broker")) as broker, RegistryThread(broker.bootstrap) as running:
        yield int(running.url.rpartition(":")[2])


class Connection:
    """A client that sends what it likes."""

    def __init__(self, port: int) -> None:
        # Less than HEAD_SECONDS, after which the server ends silent connections.
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=25)
        self._reader = self._socket.makefile("rb")

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *error: object) -> None:
        self._reader.close()
        self._socket.close()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def answer(self) -> tuple[int, bytes]:
        """Status and body of the next answer."""
        status = int(self._reader.readline().split()[1])
        length = 0
        while (line := self._reader.readline()) != b"\r\n":
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        return status, self._reader.read(length)

    def is_closed(self) -> bool:
        """Whether the server ends the connection."""
        try:
            return self._reader.read(1) == b""
        except ConnectionResetError:
            return True


def post(subject: str, headers: bytes = b"") -> bytes:
    """The head of a request that registers a schema."""
    length = b"" if b"chunked" in headers else b"Content-Length: %d\r\n" % len(BODY)
    return b"POST /subjects/%s/versions HTTP/1.1\r\nHost: x\r\n%s%s\r\n" % (subject.encode(), length, headers)


def test_a_request_that_offers_http2_is_served_with_its_body(port: int) -> None:
    """Java's HttpClient offers an upgrade with its first request, whatever its method."""
    with Connection(port) as connection:
        connection.send(post("upgrade", UPGRADE) + BODY)
        status, body = connection.answer()
        assert (200, 1) == (status, json.loads(body).get("version")), body
        connection.send(b"GET /subjects/upgrade/versions HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (200, b"[1]") == connection.answer()


def test_the_body_of_a_request_that_offers_http2_may_come_later(port: int) -> None:
    with Connection(port) as connection:
        head = post("slow-upgrade", UPGRADE)
        for at in range(0, len(head), 7):
            connection.send(head[at : at + 7])
        for each in BODY:
            connection.send(bytes([each]))
        assert 200 == connection.answer()[0]


def test_a_chunked_body_of_a_request_that_offers_http2(port: int) -> None:
    with Connection(port) as connection:
        connection.send(post("chunked-upgrade", UPGRADE + b"Transfer-Encoding: chunked\r\n"))
        connection.send(b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY))
        assert 200 == connection.answer()[0]


def test_pipelined_requests_are_answered_in_order(port: int) -> None:
    with Connection(port) as connection:
        paths = (b"/subjects", b"/nothing", b"/schemas/types")
        connection.send(b"".join(b"GET %s HTTP/1.1\r\nHost: x\r\n\r\n" % path for path in paths) * 20)
        assert [200, 404, 200] * 20 == [connection.answer()[0] for _ in range(60)]


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"CONNECT a:80 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /subjects/\xc3\xa9 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST /subjects/a HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /subjects/a HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n{}",
        b"POST /subjects/a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
    ],
)
def test_what_is_not_http_gets_an_error_with_a_body(port: int, data: bytes) -> None:
    with Connection(port) as connection:
        connection.send(data)
        status, body = connection.answer()
        assert (400, 400) == (status, json.loads(body)["error_code"])
        assert connection.is_closed()


@pytest.mark.parametrize(
    "data",
    [
        b"GET /subjects HTTP/1.1\r\nHost: x\r\nLong: " + b"a" * 300_000,
        b"GET /subjects HTTP/1.1\r\nHost: x\r\n" + b"a: b\r\n" * 50_000,
        b"GET /" + b"a" * 300_000,
        b"POST /subjects/a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + b"a: b\r\n" * 50_000,
        b"POST /subjects/a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1;" + b"a" * 300_000,
    ],
    ids=["one header", "many headers", "path", "trailers", "chunk extension"],
)
def test_headers_are_limited(port: int, data: bytes) -> None:
    """They are kept in memory until they are complete."""
    with Connection(port) as connection:
        try:
            connection.send(data)
            status, body = connection.answer()
        except (BrokenPipeError, ConnectionResetError):
            return  # Closed before everything was sent.
        assert (431, 431) == (status, json.loads(body)["error_code"])
        assert connection.is_closed()


@pytest.mark.parametrize(
    "data",
    [
        b"GET /subjects HTTP/1.1\r\nHost: x\r\nLong: " + b"a" * 70_000 + b"\r\n\r\n",
        b"GET /subjects HTTP/1.1\r\nHost: x\r\n" + b"abcdef: b\r\n" * 6_500 + b"\r\n",
        b"POST /subjects/a/versions?x=" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}",
    ],
    ids=["one header", "many headers", "path and a body"],
)
def test_headers_are_limited_in_a_request_that_arrives_at_once(port: int, data: bytes) -> None:
    with Connection(port) as connection:
        connection.send(b"GET /subjects HTTP/1.1\r\nHost: x\r\n\r\n")
        assert 200 == connection.answer()[0]
        connection.send(data)
        status, body = connection.answer()
        assert (431, 431) == (status, json.loads(body)["error_code"])
        assert connection.is_closed()


def test_a_body_in_small_chunks_is_read(port: int) -> None:
    text = json.dumps({"schema": json.dumps({"type": "fixed", "name": "F", "size": 1, "doc": "a" * 100_000})}).encode()
    with Connection(port) as connection:
        connection.send(post("small-chunks", b"Transfer-Encoding: chunked\r\n"))
        connection.send(b"".join(b"8\r\n%s\r\n" % text[at : at + 8].ljust(8) for at in range(0, len(text), 8)))
        connection.send(b"0\r\n\r\n")
        assert 200 == connection.answer()[0]


def test_a_client_that_never_completes_its_headers_is_disconnected(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "HEAD_SECONDS", 0.5)
    with Connection(port) as silent, Connection(port) as slow:
        slow.send(b"GET /subjects HTTP/1.1\r\n")
        assert silent.is_closed()
        assert slow.is_closed()
