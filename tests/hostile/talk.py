"""Sends bytes on a connection of their own and waits until the broker answered or closed: one of both it must do."""

import select
import socket
import ssl
import time
from collections.abc import Callable
from typing import Final

from ottla.protocol.apis import ApiKey
from tests.hostile.sockets import connect
from tests.wire.exchange import request_frame

PING_ID: Final = 0x7E57
PING: Final = request_frame(ApiKey.API_VERSIONS, 0, {}, correlation_id=PING_ID)
PATIENCE_SECONDS: Final = 0.3
"""A mutated fetch may wait for hours, a mutated length for bytes that never come: then we hang up first."""
ANSWER_SECONDS: Final = 60.0
"""For what must be answered: a busy machine may be slow."""
CLOSING_SECONDS: Final = 60.0


def exchange(
    address: str,
    content: bytes,
    *,
    patience: float = PATIENCE_SECONDS,
    open_socket: Callable[[str], socket.socket] = connect,
) -> tuple[bool, bytes]:
    """(whether the broker answered our last request or closed, what it sent); afterwards the connection is closed."""
    with open_socket(address) as connection:
        try:
            connection.sendall(content + PING)
        except OSError:
            return True, b""
        received, is_settled = _receive(connection, patience)
        if not is_settled:
            hang_up(connection)
            rest, is_settled = _receive(connection, CLOSING_SECONDS, until_closed=True)
            assert is_settled, "we hung up, and the broker did not"
            return False, received + rest
        return True, received


def hang_up(connection: socket.socket) -> None:
    """Closes our half of the connection, below TLS if there is any."""
    if isinstance(connection, ssl.SSLSocket):
        socket.socket.shutdown(connection, socket.SHUT_WR)
    else:
        connection.shutdown(socket.SHUT_WR)


def _receive(connection: socket.socket, patience: float, *, until_closed: bool = False) -> tuple[bytes, bool]:
    received = bytearray()
    deadline = time.monotonic() + patience
    while True:
        if not until_closed and has_ping(received):
            return bytes(received), True
        has_more = isinstance(connection, ssl.SSLSocket) and connection.pending() > 0
        if not has_more and not select.select([connection], [], [], max(0.0, deadline - time.monotonic()))[0]:
            return bytes(received), False
        try:
            piece = connection.recv(1 << 16)
        except OSError:
            return bytes(received), True
        if not piece:
            return bytes(received), True
        received += piece


def has_ping(received: bytes | bytearray) -> bool:
    """Whether a whole frame with our last request's correlation id is among what came."""
    at = 0
    while at + 8 <= len(received):
        size = int.from_bytes(received[at : at + 4], "big")
        if int.from_bytes(received[at + 4 : at + 8], "big") == PING_ID and at + 4 + size <= len(received):
            return True
        at += 4 + size
    return False
