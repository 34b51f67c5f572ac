"""The clients of the queue benchmark: frames of AMQP over a socket, and the bodies that tell when they are due."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from benchmarks.queue_race.amqp import (
    ACK,
    ACKED,
    BODY,
    CHANNEL_OPEN_OK,
    CONFIRM_SELECT_OK,
    DECLARE_OK,
    FRAME,
    HEADER,
    METHOD,
    METHOD_ID,
    OPEN_OK,
    PUBLISH,
    START,
    TUNE,
    AmqpConnection,
)
from benchmarks.queue_race.rival import VALUE_BYTES, Arrival, body_of, due_of


def frame(kind: int, payload: bytes) -> bytes:
    return FRAME.pack(kind, 1, len(payload)) + payload + b"\xce"


def method(id: tuple[int, int], arguments: bytes = b"") -> bytes:
    return frame(METHOD, METHOD_ID.pack(*id) + arguments)


@contextmanager
def scripted(talk: Callable[[socket.socket], None]) -> Iterator[AmqpConnection]:
    """A connection to a server that opens it in the usual way and then does what the test says."""

    def serve() -> None:
        peer, _ = listener.accept()
        with peer:
            answers = (method(START), method(TUNE, bytes(8)), method(OPEN_OK, b"\0"))
            for answer in (*answers, method(CHANNEL_OPEN_OK, bytes(4)), method(CONFIRM_SELECT_OK)):
                peer.sendall(answer)
            talk(peer)
            while peer.recv(1 << 16):
                pass

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=serve)
        server.start()
        try:
            with AmqpConnection(listener.getsockname()[1]) as connection:
                yield connection
        finally:
            server.join()


def test_a_body_tells_when_it_is_due() -> None:
    assert VALUE_BYTES == len(body_of(1_700_000_000_123))
    assert 1_700_000_000_123 == due_of(body_of(1_700_000_000_123))
    assert -2.5 == Arrival(due_ms=100, arrived_ms=97.5).late_ms


def test_messages_are_published_with_their_ttl_and_wait_for_their_confirms() -> None:
    received = bytearray()

    def talk(peer: socket.socket) -> None:
        while body_of(2) not in received:
            received.extend(peer.recv(1 << 16))
        peer.sendall(method(ACKED, ACK.pack(1, 0)) + method(ACKED, ACK.pack(3, 1)))

    with scripted(talk) as connection:
        connection.publish("parked", [body_of(0), body_of(1), body_of(2)], [5, 60, 700], 0)
    published = bytes(received[received.index(METHOD_ID.pack(*PUBLISH)) :])
    assert 3 == published.count(METHOD_ID.pack(*PUBLISH) + b"\0\0\0\x06parked")
    # Class, weight and size, the flags of delivery mode and expiration, and their values: persistent, and a text.
    for ttl in (b"5", b"60", b"700"):
        content = b"\0\x3c\0\0" + VALUE_BYTES.to_bytes(8, "big") + b"\x11\x00\x02" + bytes([len(ttl)]) + ttl
        assert 1 == published.count(frame(HEADER, content))


@pytest.mark.parametrize("piece", [1, 77, 1 << 20])
@pytest.mark.parametrize("pause_s", [0, 0.05], ids=["at once", "later"])
def test_bodies_are_found_in_pieces_of_any_size(piece: int, pause_s: float) -> None:
    """Without the pause they may arrive together with the answers that open the connection."""
    deliveries = b"".join(
        method((60, 60), bytes(12)) + frame(HEADER, bytes(14)) + frame(BODY, body_of(due)) for due in range(50)
    )

    def talk(peer: socket.socket) -> None:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        time.sleep(pause_s)
        for at in range(0, len(deliveries), piece):
            peer.sendall(deliveries[at : at + piece])

    with scripted(talk) as connection:
        received = connection.receive(50)
    assert list(range(50)) == [due_of(body) for body, _ in received]


def test_bodies_that_came_with_the_opening_answers_are_received() -> None:
    deliveries = b"".join(frame(BODY, body_of(due)) for due in range(3))
    is_sent = threading.Event()

    def talk(peer: socket.socket) -> None:
        peer.sendall(method(DECLARE_OK, b"\0") + deliveries[:-5])
        is_sent.set()
        peer.sendall(deliveries[-5:])

    with scripted(talk) as connection:
        assert is_sent.wait(60)
        connection.declare("parked")
        assert [0, 1, 2] == [due_of(body) for body, _ in connection.receive(3)]


def test_a_server_that_refuses_is_named() -> None:
    refusal = method((20, 40), b"PRECONDITION_FAILED")
    with (
        scripted(lambda peer: peer.sendall(refusal)) as connection,
        pytest.raises(ConnectionError, match="PRECONDITION_FAILED"),
    ):
        connection.declare("parked")
