"""Warnings about connections or requests that were refused because of what their clients did. Pure but for the log.

Clients may fail thousands of times a second, so each address gets one line a minute for each kind of failure: a failed
login does not go unnoticed because a handshake failed before. What was not logged is counted, and reported when
the minute is over, also if nothing more comes from that address.
"""

import logging
from enum import Enum
from typing import Final, NamedTuple

_LOGGER: Final = logging.getLogger(__name__)

WARNING_SECONDS: Final = 60.0
WARNINGS_KEPT_MAX: Final = 1000
"""Addresses and kinds whose last warning is remembered; with more, all are reported and forgotten."""


class RefusalKind(Enum):
    """What failed."""

    HANDSHAKE = "TLS handshakes"
    LOGIN = "logins"
    REQUEST = "requests"


class _Warned(NamedTuple):
    """The last warning about an address."""

    at: float
    unlogged: int = 0
    """Failures since then, which were not logged."""
    reason: str = ""
    """Of the last one of them."""


class RefusalLog:
    """The warnings about all clients. `now` is the monotonic clock."""

    def __init__(self, *, what: str = "connection") -> None:
        """`what` is refused: a connection, which is closed, or a request."""
        self._what = what
        self._done = "closed" if what == "connection" else "refused"
        self._warned: dict[tuple[str, RefusalKind], _Warned] = {}

    def add(self, kind: RefusalKind, host: str, address: str, reason: str, now: float) -> None:
        """A connection was closed, or a request refused: logged now, or counted."""
        key = host, kind
        warned = self._warned.get(key)
        if warned is not None and now - warned.at < WARNING_SECONDS:
            self._warned[key] = _Warned(warned.at, warned.unlogged + 1, reason)
            return
        if warned is None and len(self._warned) >= WARNINGS_KEPT_MAX:
            self._report_all(now)
        count, seconds = (warned.unlogged, now - warned.at) if warned is not None else (0, 0.0)
        more = f" (and {count} more {self._what}s from {host} in the last {seconds:.0f} s)" if count else ""
        _LOGGER.warning("%s %s from %s%s: %s", self._done, self._what, address, more, reason)
        self._warned[key] = _Warned(now)

    def report_counted(self, now: float) -> None:
        """Logs what was counted more than a minute ago and not logged since. To be called now and then."""
        for key, warned in list(self._warned.items()):
            if now - warned.at >= WARNING_SECONDS:
                del self._warned[key]
                self._report(*key, warned, now)

    def _report_all(self, now: float) -> None:
        for key, warned in self._warned.items():
            self._report(*key, warned, now)
        self._warned.clear()

    def _report(self, host: str, kind: RefusalKind, warned: _Warned, now: float) -> None:
        if warned.unlogged:
            _LOGGER.warning(
                "%s %d more %ss from %s in the last %.0f s because of their %s; the last one: %s",
                self._done,
                warned.unlogged,
                self._what,
                host,
                now - warned.at,
                kind.value,
                warned.reason,
            )
