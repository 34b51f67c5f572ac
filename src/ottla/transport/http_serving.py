"""uvicorn in an event loop that belongs to the caller: for the schema registry and the console.

uvicorn is not a dependency of brokers and clients; only those two import this module.
"""

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn

from ottla.transport.addresses import Address


class EmbeddedUvicorn(uvicorn.Server):
    """Leaves signals to the process that it runs in, and says when it serves."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Captures nothing."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Opens the listeners."""
        await super().startup(sockets=sockets)
        if self.started:
            self._on_ready()


def bound_socket(listen: Address) -> socket.socket:
    """A socket bound to the address. Raises `OSError` that names it."""
    family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((listen.host, listen.port))
    except OSError as error:
        made.close()
        raise OSError(error.errno, f"cannot listen on {listen}: {error.strerror}") from error
    made.set_inheritable(False)
    return made
