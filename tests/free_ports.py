"""Ports for servers that tests start: below the range that the kernel gives to outgoing connections.

A server that is killed and comes back must find its port free. From the kernel's range, a client that tries to connect
meanwhile may get just this port as its own, and can even connect to itself.
"""

import contextlib
import random
import socket
from typing import Final

LOWEST: Final = 10_000
HIGHEST: Final = 32_000
_CHOICE: Final = random.SystemRandom()
"""Not seeded: tests that run at the same time must not choose the same ports in the same order."""


def free_ports(count: int) -> list[int]:
    """Ports that nothing listens on just now, in no order."""
    found: list[int] = []
    with contextlib.ExitStack() as held:
        while len(found) < count:
            port = _CHOICE.randrange(LOWEST, HIGHEST)
            with contextlib.suppress(OSError):
                held.enter_context(socket.create_server(("127.0.0.1", port)))
                found.append(port)
    return found


def free_port() -> int:
    """One of them."""
    return free_ports(1)[0]


def consecutive_free_ports(count: int) -> int:
    """The first of some free ports in a row."""
    while True:
        first = free_port()
        with contextlib.ExitStack() as held, contextlib.suppress(OSError):
            for port in range(first, first + count):
                held.enter_context(socket.create_server(("127.0.0.1", port)))
            return first
