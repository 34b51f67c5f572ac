"""Tells a service manager such as systemd when the broker is ready, that it stops, and that its event loop runs.

This is the protocol of sd_notify: datagrams of `NAME=VALUE` lines to the socket that `NOTIFY_SOCKET` names. Without
this variable nothing is sent. A message that cannot be sent is logged; the broker runs on.
"""

import asyncio
import logging
import socket
from collections.abc import MutableMapping
from typing import Final

_LOGGER: Final = logging.getLogger(__name__)
_SOCKET: Final = "NOTIFY_SOCKET"
_WATCHDOG: Final = "WATCHDOG_USEC"
_WATCHDOG_PROCESS: Final = "WATCHDOG_PID"
_ABSTRACT: Final = "@"
_PINGS_PER_TIMEOUT: Final = 3


class ServiceNotifier:
    """Sends nothing without a socket. With `watchdog_seconds`, `ping` must be called more often than that."""

    def __init__(self, socket_path: str | None = None, watchdog_seconds: float | None = None) -> None:
        self._path = socket_path
        self.ping_seconds: Final = (
            None if socket_path is None or watchdog_seconds is None else watchdog_seconds / _PINGS_PER_TIMEOUT
        )
        """How often to call `ping`; None if the service manager does not watch."""

    def ready(self, status: str) -> None:
        """The broker serves clients."""
        self._send("READY=1", f"STATUS={status}")

    def status(self, status: str) -> None:
        """One line about what the broker does, for people."""
        self._send(f"STATUS={status}")

    def stopping(self) -> None:
        """The broker has begun to stop."""
        self._send("STOPPING=1", "STATUS=stopping")

    def ping(self) -> None:
        """The process is alive."""
        self._send("WATCHDOG=1")

    async def ping_forever(self) -> None:
        """Pings from the event loop, until it is cancelled: a loop that hangs is noticed."""
        while self.ping_seconds is not None:
            self.ping()
            await asyncio.sleep(self.ping_seconds)

    def _send(self, *lines: str) -> None:
        if self._path is None:
            return
        # An abstract socket begins with a zero byte, which cannot be in a variable.
        address = f"\0{self._path[1:]}" if self._path.startswith(_ABSTRACT) else self._path
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sending:
                sending.sendto("\n".join(lines).encode(), socket.MSG_DONTWAIT, address)
        except OSError as error:
            _LOGGER.warning("cannot notify the service manager at %s: %s", self._path, error.strerror or error)


SILENT: Final = ServiceNotifier()
"""For a process whose service manager hears from another one."""


def take_notifier(environment: MutableMapping[str, str], process: int) -> ServiceNotifier:
    """The notifier that the environment asks for. Removes the variables, so that child processes send nothing."""
    path = environment.pop(_SOCKET, None)
    timeout, watched = environment.pop(_WATCHDOG, ""), environment.pop(_WATCHDOG_PROCESS, "")
    is_watched = timeout.isdecimal() and watched in ("", str(process))
    return ServiceNotifier(path or None, int(timeout) / 1e6 if is_watched else None)
