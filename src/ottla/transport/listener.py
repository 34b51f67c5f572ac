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
from ottla.transport.request_times import RequestTimes
from ottla.transport.turn import Turn

_LOGGER: Final = logging.getLogger(__name__)

_SWEEPS_PER_IDLE_SPAN: Final = 4
_SWEEP_SECONDS_MIN: Final = 0.05
_SWEEP_SECONDS_MAX: Final = 30.0
_STALL_SWEEPS_PER_WINDOW: Final = 3
_MEMORY_WARNING_SECONDS: Final = 60.0
_HOSTS_NAMED_MAX: Final = 5
_REFUSAL_WARNING_SECONDS: Final = 60.0
_REFUSED_HOSTS_MAX: Final = 1000
"""Addresses whose last warning is remembered; beyond them, all may be warned of again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerLimits:
    """Kafka's broker configs of these names."""

    request_bytes_max: int = 100 * 1024 * 1024
    queued_bytes_max: int = 256 * 1024 * 1024
    connections_max: int = 2**31 - 1
    connections_per_ip_max: int = 2**31 - 1
    idle_ms: int = 600_000
    """Below 0 a connection may be silent for ever."""
    stall_seconds: float = 30.0
    """The window in which an incomplete request must make progress."""


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
        self.times = RequestTimes()
        # Ordered, as wherever many are ended at once: the order must not depend on where they lie in memory.
        self.connections: dict[Connection, None] = {}
        self.accepted = 0
        self.refused = 0
        self.stalled = 0
        """Connections closed because a request made too little progress."""
        self._refused_hosts: dict[str, tuple[float, int]] = {}
        """When a request of this address that could not be served was last logged, and how many came since."""
        self.bytes_in = 0
        """Of connections that are closed; open ones have their own count."""
        self.bytes_out = 0

    async def open(self, host: str, port: int) -> int:
        """Begins to accept; answers the port, which was chosen if 0 was asked for."""
        self._port = await self._network.listen(host, port, self._on_accept)
        return self._port.port

    def _on_accept(self, socket: Socket) -> None:
        host = socket.peer().rpartition(":")[0]
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
            times=self.times,
            on_closed=lambda connection: self._on_closed(connection, host),
        )
        self.accepted += 1
        self._per_host[host] += 1
        self._all_closed.clear()
        self.connections[connection] = None

    def _on_closed(self, connection: Connection, host: str) -> None:
        _LOGGER.debug("connection from %s ended: %s", connection.peer, connection.closed_because)
        if connection.refused_because is not None:
            self._warn_of_refusal(connection, connection.refused_because)
        self.connections.pop(connection, None)
        self.bytes_in += connection.bytes_in
        self.bytes_out += connection.bytes_out
        self._per_host[host] -= 1
        if self._per_host[host] <= 0:
            del self._per_host[host]
        if not self.connections:
            self._all_closed.set()

    def _warn_of_refusal(self, connection: Connection, reason: str) -> None:
        """One line a minute for each address."""
        now = self._clock.monotonic()
        warned_at, count = self._refused_hosts.get(connection.host, (float("-inf"), 0))
        if now - warned_at < _REFUSAL_WARNING_SECONDS:
            self._refused_hosts[connection.host] = warned_at, count + 1
            return
        if len(self._refused_hosts) >= _REFUSED_HOSTS_MAX:
            self._refused_hosts.clear()
        self._refused_hosts[connection.host] = now, 0
        more = (
            f" (and {count} more connections from {connection.host} in the last {now - warned_at:.0f} s)"
            if count
            else ""
        )
        _LOGGER.warning("closed connection from %s%s: %s", connection.peer, more, reason)

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

    async def close_stalled_forever(self) -> None:
        """Ends connections whose incomplete request makes too little progress, until cancelled.

        Also warns when connections wait for receive memory, and says which addresses hold it.
        """
        warned_at = float("-inf")
        while True:
            await self._clock.sleep(self.limits.stall_seconds / _STALL_SWEEPS_PER_WINDOW)
            now = self._clock.monotonic()
            if self._buffers.waiting and now - warned_at >= _MEMORY_WARNING_SECONDS:
                warned_at = now
                self._warn_of_memory()
            self._close_stalled(now)

    def _close_stalled(self, now: float) -> None:
        stalls: dict[str, list[tuple[Connection, str]]] = {}
        for connection in self.connections:
            reason = connection.stall(now, self.limits.stall_seconds)
            if reason is not None:
                stalls.setdefault(connection.host, []).append((connection, reason))
        for host, found in stalls.items():
            # One line for each address, however many connections it has.
            self.stalled += len(found)
            first, reason = found[0]
            more = f" (and {len(found) - 1} more connections from {host})" if len(found) > 1 else ""
            _LOGGER.warning("closed connection from %s%s: %s", first.peer, more, reason)
            for connection, reason in found:
                connection.close(reason)

    def _warn_of_memory(self) -> None:
        held = ", ".join(f"{host}: {count} bytes" for host, count in self._buffers.largest_hosts(_HOSTS_NAMED_MAX))
        _LOGGER.warning(
            "%d connections wait for receive memory: %d of %d bytes (queued.max.request.bytes) are in use, at most %d"
            " for each address; most is held by %s",
            self._buffers.waiting,
            self._buffers.lent_bytes,
            self._buffers.bytes_max,
            self._buffers.host_bytes_max,
            held,
        )

    @property
    def receive_memory(self) -> ReceiveBuffers:
        """The memory that requests arrive in."""
        return self._buffers

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
