"""Accepts connections and keeps count of them: limits, idle ones, and an orderly end.

Covers what concerns many connections; one is `connection.py`. The port itself is `env`'s.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from ottla.env.ports import Clock, Network, Socket
from ottla.env.ports import Listener as PortListener
from ottla.transport.connection import Connection, Serve
from ottla.transport.receive_buffers import ReceiveBuffers
from ottla.transport.turn import Turn

_LOGGER: Final = logging.getLogger(__name__)

_SWEEPS_PER_IDLE_SPAN: Final = 4
_SWEEP_SECONDS_MIN: Final = 0.05
_SWEEP_SECONDS_MAX: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerLimits:
    """Kafka's broker configs of these names."""

    request_bytes_max: int = 100 * 1024 * 1024
    queued_bytes_max: int = 256 * 1024 * 1024
    connections_max: int = 2**31 - 1
    connections_per_ip_max: int = 2**31 - 1
    idle_ms: int = 600_000
    """Below 0 a connection may be silent for ever."""


class Listener:
    """An open port and its connections. `encrypt` wraps each accepted socket, for TLS."""

    def __init__(
        self,
        network: Network,
        clock: Clock,
        turn: Turn,
        serve: Serve,
        limits: ListenerLimits,
        *,
        encrypt: Callable[[Socket], Socket] | None = None,
    ) -> None:
        self._network = network
        self._clock = clock
        self._turn = turn
        self._serve = serve
        self._encrypt = encrypt
        self._buffers = ReceiveBuffers(limits.queued_bytes_max)
        self._port: PortListener | None = None
        self._per_host: Counter[str] = Counter()
        self._all_closed = asyncio.Event()
        self.limits = limits
        # Ordered, as wherever many are ended at once: the order must not depend on where they lie in memory.
        self.connections: dict[Connection, None] = {}
        self.accepted = 0
        self.refused = 0
        self.bytes_in = 0
        """Of connections that are closed; open ones have their own count."""
        self.bytes_out = 0

    async def open(self, host: str, port: int) -> int:
        """Begins to accept; answers the port, which was chosen if 0 was asked for."""
        self._port = await self._network.listen(host, port, self._on_accept)
        return self._port.port

    def _on_accept(self, socket: Socket) -> None:
        host = _host_of(socket)
        limits = self.limits
        if len(self.connections) >= limits.connections_max or self._per_host[host] >= limits.connections_per_ip_max:
            self.refused += 1
            if self.refused & (self.refused - 1) == 0:
                _LOGGER.warning(
                    "refused a connection from %s: %d are open, %d from there; max.connections=%d,"
                    " max.connections.per.ip=%d; %d refused so far",
                    host,
                    len(self.connections),
                    self._per_host[host],
                    limits.connections_max,
                    limits.connections_per_ip_max,
                    self.refused,
                )
            socket.close()
            return
        connection = Connection(
            socket if self._encrypt is None else self._encrypt(socket),
            serve=self._serve,
            turn=self._turn,
            clock=self._clock,
            buffers=self._buffers,
            frame_bytes_max=limits.request_bytes_max,
            on_closed=lambda connection: self._on_closed(connection, host),
        )
        self.accepted += 1
        self._per_host[host] += 1
        self._all_closed.clear()
        self.connections[connection] = None

    def _on_closed(self, connection: Connection, host: str) -> None:
        _LOGGER.debug("connection from %s ended: %s", connection.peer, connection.closed_because)
        self.connections.pop(connection, None)
        self.bytes_in += connection.bytes_in
        self.bytes_out += connection.bytes_out
        self._per_host[host] -= 1
        if self._per_host[host] <= 0:
            del self._per_host[host]
        if not self.connections:
            self._all_closed.set()

    async def close_idle_forever(self) -> None:
        """Ends connections that have been silent for too long, until cancelled."""
        while True:
            idle_seconds = self.limits.idle_ms / 1000
            span = idle_seconds / _SWEEPS_PER_IDLE_SPAN if idle_seconds >= 0 else _SWEEP_SECONDS_MAX
            await self._clock.sleep(min(max(span, _SWEEP_SECONDS_MIN), _SWEEP_SECONDS_MAX))
            if idle_seconds < 0:
                continue
            silent_since = self._clock.monotonic() - idle_seconds
            for connection in [each for each in self.connections if each.last_active < silent_since]:
                connection.close(f"silent for more than connections.max.idle.ms={self.limits.idle_ms}")

    def stop_accepting(self) -> None:
        """Closes the port; open connections stay."""
        if self._port is not None:
            self._port.close()
            self._port = None

    def drain(self) -> None:
        """Accepts no more connections and no more requests; what is in the works will be answered."""
        self.stop_accepting()
        for connection in list(self.connections):
            connection.drain()

    async def close(self, timeout_seconds: float) -> None:
        """Drains, for so long at most, then closes every connection."""
        self.drain()
        if self.connections:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._all_closed.wait(), timeout_seconds)
        if self.connections:
            _LOGGER.warning("%d connections did not finish in time and are cut off", len(self.connections))
        for connection in list(self.connections):
            connection.close("the broker is shutting down")


def _host_of(socket: Socket) -> str:
    return socket.peer().rpartition(":")[0]
