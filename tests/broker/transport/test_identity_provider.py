"""Requests to identity providers have bounds, whatever the other side sends, and however slowly."""

import asyncio
import socket
import threading
from collections.abc import Callable
from contextlib import closing, suppress

import pytest

from ottla.transport import identity_provider
from ottla.transport.identity_provider import CannotFetchError, fetch

Answer = Callable[[socket.socket], None]
STOP_SECONDS = 30


def drip(head: bytes, part: bytes) -> Answer:
    """Sends a part again and again, each before the timeout of a socket is over, until the client hangs up."""

    def answer(client: socket.socket) -> None:
        client.sendall(head)
        while True:
            client.sendall(part)
            with suppress(TimeoutError):
                client.settimeout(0.02)
                if not client.recv(4096):
                    return
            client.settimeout(STOP_SECONDS)

    return answer


class DrippingServer:
    """Answers one connection; `is_over` is set when its client has hung up."""

    def __init__(self, answer: Answer) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._answer = answer
        self.is_over = threading.Event()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with closing(self._listener), suppress(OSError), self._listener.accept()[0] as client:
            self._answer(client)
        self.is_over.set()


@pytest.fixture
def _short_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity_provider, "_FETCH_SECONDS", 0.5)


def fetched(port: int, scheme: str = "http") -> bytes:
    url = f"{scheme}://127.0.0.1:{port}/x"
    return asyncio.run(fetch(url, (url,), bytes_max=1000))


@pytest.mark.usefixtures("_short_time")
@pytest.mark.parametrize(
    ("head", "part"),
    [
        pytest.param(b"", b"", id="silence"),
        pytest.param(b"HTTP/1.1 200 OK\r\n", b"X", id="a header without an end"),
        pytest.param(b"", b"HTTP/1.1 100 Continue\r\n\r\n", id="never the final status"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n", b"x", id="a slow body"),
        pytest.param(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n", id="slow chunks"),
        pytest.param(b"HTTP/1.1 400 Bad\r\nContent-Length: 900\r\n\r\n", b"x", id="a slow refusal"),
    ],
)
def test_a_slow_answer_is_given_up(head: bytes, part: bytes) -> None:
    server = DrippingServer(drip(head, part))
    with pytest.raises(CannotFetchError, match=r"no complete response within 0\.5 s"):
        fetched(server.port)
    assert server.is_over.wait(STOP_SECONDS), "the thread does not read on"


@pytest.mark.usefixtures("_short_time")
def test_a_slow_handshake_is_given_up() -> None:
    # The beginning of a record of TLS that is never complete.
    server = DrippingServer(drip(b"\x16\x03\x03\x40\x00", b"\x00"))
    with pytest.raises(CannotFetchError, match=r"no complete response within 0\.5 s"):
        fetched(server.port, "https")
    assert server.is_over.wait(STOP_SECONDS)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\x00" * 100, id="zeros"),
        pytest.param(b"HTTP/9 x y\r\n\r\n", id="another version"),
        pytest.param(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", id="no chunk"),
    ],
)
def test_an_answer_that_is_not_http(answer: bytes) -> None:
    server = DrippingServer(lambda client: client.sendall(answer))
    with pytest.raises((CannotFetchError, OSError)):
        fetched(server.port)


def test_a_huge_answer_is_cut() -> None:
    head = b"HTTP/1.1 200 OK\r\n\r\n"
    server = DrippingServer(drip(head, b"x" * (1 << 20)))
    assert b"x" * 1001 == fetched(server.port)
    assert server.is_over.wait(STOP_SECONDS)
