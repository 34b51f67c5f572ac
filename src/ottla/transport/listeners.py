"""The listeners of a broker and all their connections: limits, idle and stalled connections, an orderly end.

Limits hold for all listeners together. One connection is `connection.py`; the port itself is `env`'s.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ottla.env.ports import Clock, Network, Socket
from ottla.env.ports import Listener as PortListener
from ottla.model.errors import MisuseError
from ottla.security.connection_context import ConnectionContext
from ottla.security.principals import ANONYMOUS, Principal
from ottla.security.security_protocol import SecurityProtocol
from ottla.transport.authentication import ListenerLogin, Logins, SessionGuard
from ottla.transport.connection import Connection, Serve
from ottla.transport.receive_buffers import ReceiveBuffers
from ottla.transport.refusal_log import RefusalKind, RefusalLog
from ottla.transport.request_times import RequestTimes
from ottla.transport.tls_handshakes import AcceptingTls, Handshakes
from ottla.transport.turn import Turn

_LOGGER: Final = logging.getLogger(__name__)

_WITH_SASL: Final = frozenset({SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL})
_SWEEPS_PER_IDLE_SPAN: Final = 4
_SWEEP_SECONDS_MIN: Final = 0.05
_SWEEP_SECONDS_MAX: Final = 30.0
_STALL_SWEEPS_PER_WINDOW: Final = 3
_MEMORY_WARNING_SECONDS: Final = 60.0
_HOSTS_NAMED_MAX: Final = 5
_THROTTLED_MAX: Final = 1000
"""Connections over the quota of their address that wait to be closed; with more, they are closed at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerLimits:
    """Kafka's broker configs of these names."""

    request_bytes_max: int = 100 * 1024 * 1024
    queued_bytes_max: int = 256 * 1024 * 1024
    connections_max: int = 2**31 - 1
    connections_per_ip_max: int = 2**31 - 1
    connections_of_ip_max: Mapping[str, int] = field(default_factory=dict)
    """max.connections.per.ip.overrides: limits of single addresses, in place of the one above."""
    idle_ms: int = 600_000
    """Below 0 there is no limit."""
    stall_seconds: float = 30.0
    """The window in which an incomplete request must make progress."""


class Listener(NamedTuple):
    """One listener. Clients of a protected listener get a connection even if max.connections is reached."""

    name: str = "PLAINTEXT"
    security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    tls: AcceptingTls | None = None
    """For a listener with TLS: its certificates, and the principals of its clients."""
    is_protected: bool = False
    login: ListenerLogin | None = None
    """For a listener with SASL: the mechanisms."""


_PLAINTEXT: Final = Listener()


class Listeners:
    """The open ports and their connections. `on_closed` is told of every client connection that has ended."""

    def __init__(
        self,
        network: Network,
        clock: Clock,
        turn: Turn,
        serve: Serve,
        limits: ListenerLimits,
        *,
        throttle_connection: Callable[[str], int] = lambda host: 0,
        on_closed: Callable[[ConnectionContext], None] = lambda context: None,
    ) -> None:
        self._network = network
        self._clock = clock
        self._turn = turn
        self._serve = serve
        self._throttle_connection = throttle_connection
        self._tell_closed = on_closed
        self._throttled: dict[Socket, asyncio.TimerHandle] = {}
        """Connections that exceeded a quota: not read, and closed when their time is up."""
        self._buffers = ReceiveBuffers(limits.queued_bytes_max)
        self._ports: list[PortListener] = []
        self._per_host: Counter[str] = Counter()
        """Open connections and handshakes by their address."""
        self.handshakes: Final = Handshakes()
        self.logins: Final = Logins(clock)
        self._all_closed = asyncio.Event()
        self.limits = limits
        self.times = RequestTimes()
        # A dict, not a set: connections are closed in the order in which they came.
        self.connections: dict[Connection, None] = {}
        self._guards: dict[Connection, SessionGuard] = {}
        """Of connections whose sessions expire."""
        self.accepted = 0
        self.refused = 0
        self.failed_handshakes = 0
        """TLS handshakes that failed, for whatever reason."""
        self.stalled = 0
        """Connections closed because a request made too little progress."""
        self._refusals = RefusalLog()
        self.bytes_in = 0
        """Of closed connections; open ones have their own count."""
        self.bytes_out = 0

    async def open(self, host: str, port: int, listener: Listener = _PLAINTEXT) -> int:
        """Starts to accept connections for a listener; returns the port, which the system chose if it was 0."""
        if (listener.tls is not None) != listener.security_protocol.is_encrypted:
            raise MisuseError(f"listener {listener.name}: certificates are required with TLS, and not allowed without")
        if (listener.login is not None) != (listener.security_protocol in _WITH_SASL):
            raise MisuseError(f"listener {listener.name}: a login is required with SASL, and not allowed without")
        opened = await self._network.listen(host, port, lambda socket: self._on_accept(socket, listener))
        self._ports.append(opened)
        return opened.port

    def _on_accept(self, socket: Socket, listener: Listener) -> None:
        address = socket.peer()
        host = address.rpartition(":")[0]
        limits = self.limits
        throttle_ms = self._throttle_connection(host)
        if throttle_ms:
            self._close_later(socket, throttle_ms)
            return
        opened = len(self.connections) + len(self.handshakes) + len(self.logins)
        if opened >= limits.connections_max and listener.is_protected and self._make_room(listener):
            opened -= 1
        per_ip_max = limits.connections_per_ip_max
        if limits.connections_of_ip_max:
            per_ip_max = limits.connections_of_ip_max.get(host.strip("[]"), per_ip_max)
        if opened >= limits.connections_max or self._per_host[host] >= per_ip_max:
            self.refused += 1
            if self.refused & (self.refused - 1) == 0:
                _LOGGER.warning(
                    "listener %s: refused a connection from %s: %d connections are open, %d from this address;"
                    " max.connections=%d, max.connections.per.ip=%d; %d refused so far",
                    listener.name,
                    host,
                    opened,
                    self._per_host[host],
                    limits.connections_max,
                    per_ip_max,
                    self.refused,
                )
            socket.close()
            return
        if listener.tls is None:
            self._begin(socket, listener, address, ANONYMOUS)
        else:
            self.handshakes.begin(
                socket,
                listener.tls,
                listener.security_protocol,
                on_done=lambda encrypted, principal: self._begin(encrypted, listener, address, principal),
                on_failed=lambda reason, is_notable: self._on_handshake_failed(listener, address, reason, is_notable),
            )
        self.accepted += 1
        self._per_host[host] += 1

    def _begin(self, socket: Socket, listener: Listener, address: str, principal: Principal) -> None:
        """Serves a client whose TLS handshake, if any, is complete: first its login, with SASL, then its requests."""
        context = ConnectionContext(
            listener=listener.name,
            security_protocol=listener.security_protocol,
            address=address,
            principal=principal,
        )
        login = listener.login
        if login is None:
            self._connect(socket, context)
            return
        self.logins.begin(
            socket,
            context,
            login,
            on_done=lambda socket, context, session: self._connect(
                socket,
                context,
                SessionGuard(self._serve, session, login, self._clock, self.logins.counts) if session.expires else None,
            ),
            on_failed=lambda reason, is_notable: self._on_login_failed(listener, address, reason, is_notable),
        )

    def _connect(self, socket: Socket, context: ConnectionContext, guard: SessionGuard | None = None) -> None:
        """Serves the requests of a client, which has logged in if it must; the guard is for a session that expires."""
        host = context.address.rpartition(":")[0]
        connection = Connection(
            socket,
            context,
            serve=self._serve if guard is None else guard.serve,
            turn=self._turn,
            clock=self._clock,
            buffers=self._buffers,
            frame_bytes_max=self.limits.request_bytes_max,
            times=self.times,
            on_closed=lambda connection: self._on_closed(connection, host),
        )
        self._all_closed.clear()
        self.connections[connection] = None
        if guard is not None:
            self._guards[connection] = guard

    def _on_login_failed(self, listener: Listener, address: str, reason: str, is_notable: bool) -> None:
        host = address.rpartition(":")[0]
        self._forget_host(host)
        if is_notable:
            self._refusals.add(
                RefusalKind.LOGIN, host, address, f"listener {listener.name}: {reason}", self._clock.monotonic()
            )
        else:
            _LOGGER.debug("login of %s ended: %s", address, reason)

    def _on_handshake_failed(self, listener: Listener, address: str, reason: str, is_notable: bool) -> None:
        host = address.rpartition(":")[0]
        self.failed_handshakes += 1
        self._forget_host(host)
        if is_notable:
            self._refusals.add(
                RefusalKind.HANDSHAKE, host, address, f"listener {listener.name}: {reason}", self._clock.monotonic()
            )
        else:
            _LOGGER.debug("handshake with %s ended: %s", address, reason)

    def _close_later(self, socket: Socket, throttle_ms: int) -> None:
        """As Kafka does: a client that connects again at once has to wait."""
        if len(self._throttled) >= _THROTTLED_MAX:
            socket.close()
            return

        def close() -> None:
            del self._throttled[socket]
            socket.close()

        self._throttled[socket] = asyncio.get_running_loop().call_later(throttle_ms / 1000, close)

    def _make_room(self, listener: Listener) -> bool:
        """Closes the connection of another listener that was idle for the longest time; whether there was one."""
        others = [each for each in self.connections if each.context.listener != listener.name]
        if others:
            oldest = min(others, key=lambda each: each.last_active)
            oldest.close(f"max.connections={self.limits.connections_max} reached; listener {listener.name} needs one")
        return bool(others)

    def _on_closed(self, connection: Connection, host: str) -> None:
        _LOGGER.debug("connection from %s ended: %s", connection.context.address, connection.closed_because)
        if connection.refused_because is not None:
            now, reason = self._clock.monotonic(), connection.refused_because
            self._refusals.add(RefusalKind.REQUEST, connection.host, connection.context.address, reason, now)
        self.connections.pop(connection, None)
        self._guards.pop(connection, None)
        self.bytes_in += connection.bytes_in
        self.bytes_out += connection.bytes_out
        self._forget_host(host)
        self._tell_closed(connection.context)

    def _forget_host(self, host: str) -> None:
        self._per_host[host] -= 1
        if self._per_host[host] <= 0:
            del self._per_host[host]
        if not self.connections:
            self._all_closed.set()

    async def close_idle_forever(self) -> None:
        """Closes connections that were idle for too long, until cancelled."""
        while True:
            idle_seconds = self.limits.idle_ms / 1000
            span = idle_seconds / _SWEEPS_PER_IDLE_SPAN if idle_seconds >= 0 else _SWEEP_SECONDS_MAX
            await self._clock.sleep(min(max(span, _SWEEP_SECONDS_MIN), _SWEEP_SECONDS_MAX))
            if idle_seconds < 0:
                continue
            silent_since = self._clock.monotonic() - idle_seconds
            for connection in [each for each in self.connections if each.last_active < silent_since]:
                connection.close(f"idle for more than connections.max.idle.ms={self.limits.idle_ms}")

    async def close_stalled_forever(self) -> None:
        """Closes connections whose incomplete request makes too little progress, until cancelled.

        Also warns when connections wait for receive memory, with the addresses that hold it; reports failures of
        clients that were not logged one by one; and ends the waiting of clients whose session has expired: a fetch may
        wait for weeks.
        """
        warned_at = float("-inf")
        while True:
            await self._clock.sleep(self.limits.stall_seconds / _STALL_SWEEPS_PER_WINDOW)
            now = self._clock.monotonic()
            if self._buffers.waiting and now - warned_at >= _MEMORY_WARNING_SECONDS:
                warned_at = now
                self._warn_of_memory()
            self._close_stalled(now)
            self._refusals.report_counted(now)
            for connection in [each for each, guard in self._guards.items() if guard.is_expired(now)]:
                connection.hurry()

    def _close_stalled(self, now: float) -> None:
        stalls: dict[str, list[tuple[Connection, str]]] = {}
        for connection in self.connections:
            reason = connection.stall(now, self.limits.stall_seconds)
            if reason is not None:
                stalls.setdefault(connection.host, []).append((connection, reason))
        for host, found in stalls.items():
            # One log line for each address, however many connections it has.
            self.stalled += len(found)
            first, reason = found[0]
            more = f" (and {len(found) - 1} more connections from {host})" if len(found) > 1 else ""
            _LOGGER.warning("closed connection from %s%s: %s", first.context.address, more, reason)
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
        """Closes the ports and ends handshakes; open connections stay."""
        for port in self._ports:
            port.close()
        self._ports.clear()
        self.handshakes.close("the broker is shutting down")
        self.logins.close("the broker is shutting down")
        for socket, timer in self._throttled.items():
            timer.cancel()
            socket.close()
        self._throttled.clear()

    def drain(self) -> None:
        """Accepts no more connections and no more requests; requests that are being served will be answered."""
        self.stop_accepting()
        for connection in list(self.connections):
            connection.drain()

    async def close(self, timeout_seconds: float) -> None:
        """Drains for `timeout_seconds` at most, then closes every connection."""
        self.drain()
        if self.connections:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._all_closed.wait(), timeout_seconds)
        if self.connections:
            _LOGGER.warning(
                "shutting down: closing %d connections whose requests were not answered within %g s",
                len(self.connections), timeout_seconds,
            )  # fmt: skip
        for connection in list(self.connections):
            connection.close("the broker is shutting down")
