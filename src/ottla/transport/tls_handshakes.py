"""The TLS handshakes of accepted connections: bounded in number and in time, before any request is read.

A connection is created when its handshake is complete, with the principal of the client's certificate. Clients that
connect and stay silent, or send bytes that are not TLS, therefore hold little memory, and not for long.
"""

import asyncio
import ssl
from collections import Counter
from collections.abc import Callable
from typing import Final, Protocol

from ottla.env.ports import Socket
from ottla.security.principals import Principal
from ottla.security.sasl.authentication_error import AuthenticationError
from ottla.transport.kernel_tls import accept_tls
from ottla.transport.tls_errors import words_for_broker

HANDSHAKE_SECONDS: Final = 30.0
"""How long a handshake may take."""
HANDSHAKES_MAX: Final = 1000
"""How many may be under way; with more, the oldest one of the address that has most of them ends."""


class AcceptingTls(Protocol):
    """What a listener with TLS needs; both may change while it is open."""

    @property
    def context(self) -> ssl.SSLContext:
        """For new connections."""

    def principal_of(self, certificate: bytes | None) -> Principal:
        """The principal of a client with this certificate, in DER. Raises `AuthenticationError`."""


class Handshakes:
    """All handshakes that are under way."""

    def __init__(self, *, seconds: float = HANDSHAKE_SECONDS, count_max: int = HANDSHAKES_MAX) -> None:
        self._seconds = seconds
        self._count_max = count_max
        self._under_way: dict[_Handshake, None] = {}

    def __len__(self) -> int:
        return len(self._under_way)

    def begin(
        self,
        socket: Socket,
        tls: AcceptingTls,
        protocol: str,
        *,
        on_done: Callable[[Socket, Principal], None],
        on_failed: Callable[[str, bool], None],
    ) -> None:
        """Begins a handshake; one of the callbacks is called when it ends.

        A failure has its reason, and whether it is worth a line in the log: a client that disconnects before it has
        sent anything is not.
        """
        if len(self._under_way) >= self._count_max:
            self._make_room()
        handshake = _Handshake(socket, tls, protocol, on_done, on_failed, self._forget, self._seconds)
        self._under_way[handshake] = None
        handshake.start()

    def close(self, reason: str) -> None:
        """Ends all of them."""
        for each in list(self._under_way):
            each.fail(reason, is_notable=False)

    def _make_room(self) -> None:
        busiest = Counter(each.host for each in self._under_way).most_common(1)[0][0]
        oldest = next(each for each in self._under_way if each.host == busiest)
        oldest.fail(f"{self._count_max} TLS handshakes are in progress, most of them from {busiest}", is_notable=True)

    def _forget(self, handshake: "_Handshake") -> None:
        self._under_way.pop(handshake, None)


class _Handshake:
    __slots__ = (
        "_forget",
        "_has_heard",
        "_on_done",
        "_on_failed",
        "_protocol",
        "_seconds",
        "_socket",
        "_timer",
        "_tls",
        "host",
    )

    def __init__(
        self,
        socket: Socket,
        tls: AcceptingTls,
        protocol: str,
        on_done: Callable[[Socket, Principal], None],
        on_failed: Callable[[str, bool], None],
        forget: Callable[["_Handshake"], None],
        seconds: float,
    ) -> None:
        self.host = socket.peer().rpartition(":")[0]
        self._tls = tls
        self._socket = accept_tls(socket, tls.context)
        self._protocol = protocol
        self._on_done = on_done
        self._on_failed = on_failed
        self._forget = forget
        self._seconds = seconds
        self._timer: asyncio.TimerHandle | None = None
        self._has_heard = False
        """Whether the client has sent something; one that only looks whether the port is open has not."""

    def start(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._on_timeout)
        self._socket.on_readable(self._on_readable)

    def _on_readable(self) -> None:
        try:
            if not self._socket.shake_hands():
                self._has_heard = True
                return
            principal = self._tls.principal_of(self._socket.peer_certificate())
        except ssl.SSLError as error:
            self.fail(words_for_broker(error, self._protocol), is_notable=True)
        except OSError as error:
            what = f"{error.strerror or error}; perhaps the client does not trust this broker's certificate"
            self.fail(what, is_notable=self._has_heard)
        except AuthenticationError as error:
            self.fail(str(error), is_notable=True)
        else:
            self._end()
            self._on_done(self._socket, principal)

    def _on_timeout(self) -> None:
        self.fail(f"the TLS handshake was not complete within {self._seconds:g} s", is_notable=True)

    def fail(self, reason: str, *, is_notable: bool) -> None:
        self._end()
        self._socket.close()
        self._on_failed(reason, is_notable)

    def _end(self) -> None:
        self._forget(self)
        self._socket.on_readable(None)
        if self._timer is not None:
            self._timer.cancel()
