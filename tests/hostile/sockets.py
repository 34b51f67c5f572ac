"""Sockets for those who do not keep to the rules: opened by the thousand, sent to in drops, never read from."""

import contextlib
import resource
import socket
import time
from collections.abc import Iterator
from typing import Final

CONNECT_TIMEOUT_S: Final = 30.0
SPARE_DESCRIPTORS: Final = 200


def connect(address: str, *, receive_bytes: int | None = None) -> socket.socket:
    """A blocking connection; with `receive_bytes` the system keeps only about so many for it."""
    host, _, port = address.rpartition(":")
    opened = socket.socket()
    if receive_bytes is not None:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    opened.settimeout(CONNECT_TIMEOUT_S)
    opened.connect((host, int(port)))
    return opened


@contextlib.contextmanager
def connections(address: str, count: int, *, receive_bytes: int | None = None) -> Iterator[list[socket.socket]]:
    """Many at once, closed at the end."""
    allow_descriptors(count + SPARE_DESCRIPTORS)
    with contextlib.ExitStack() as opened:
        yield [opened.enter_context(connect(address, receive_bytes=receive_bytes)) for _ in range(count)]


def allow_descriptors(count: int) -> None:
    """Lets this process have so many, if the system does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(count, hard) if hard > 0 else count, hard))


def send_what_is_taken(sender: socket.socket, content: bytes, *, seconds: float) -> int:
    """Sends until the other side takes no more for a while; answers how much it took."""
    sender.settimeout(seconds)
    sent = 0
    view = memoryview(content)
    with contextlib.suppress(TimeoutError):
        while sent < len(content):
            sent += sender.send(view[sent : sent + (1 << 16)])
    return sent


def is_closed_by_peer(receiver: socket.socket, *, seconds: float = CONNECT_TIMEOUT_S) -> bool:
    """Whether the other side ends the connection, whatever it sends before."""
    receiver.settimeout(seconds)
    deadline = time.monotonic() + seconds
    try:
        while time.monotonic() < deadline:
            if not receiver.recv(1 << 16):
                return True
    except ConnectionError:
        return True
    except TimeoutError:
        return False
    return False


def drip(sender: socket.socket, content: bytes, *, pause: float) -> None:
    """One byte at a time."""
    for at in range(len(content)):
        sender.sendall(content[at : at + 1])
        time.sleep(pause)  # what a slow writer is
