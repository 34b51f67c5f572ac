"""The real network for a broker that is killed in process: all connections that it opened can be closed at once.

A follower that continued to fetch while its files are reset to the moment of the kill would make the leader count on
records that are gone. The listener closes the connections of clients.
"""

import errno
from typing import Final

from ottla.env.real_network import RealNetwork, RealSocket


class KillableNetwork(RealNetwork):
    """TCP until `die`."""

    __slots__ = ("_is_dead", "_opened")

    def __init__(self) -> None:
        self._opened: Final[list[RealSocket]] = []
        self._is_dead = False

    async def connect(self, host: str, port: int) -> RealSocket:
        """Connects; refused after `die`."""
        opened = await super().connect(host, port)
        if self._is_dead:
            opened.close()
            raise OSError(errno.ENETDOWN, f"cannot connect to {host}:{port}: the broker is killed")
        self._opened.append(opened)
        return opened

    def die(self) -> None:
        """Closes every connection that the broker opened, and refuses new ones."""
        self._is_dead = True
        for each in self._opened:
            each.close()
        self._opened.clear()
