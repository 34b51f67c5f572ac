"""The real network for a broker that may be killed in process: what it has opened itself can be cut at once.

A follower that goes on asking its leader while its files are set back to the moment of its death would have the leader
count on records that are gone. Connections that others made to the broker are its listener's.
"""

import errno
from typing import Final

from ottla.env.real_network import RealNetwork, RealSocket


class MortalNetwork(RealNetwork):
    """TCP until `die`."""

    __slots__ = ("_is_dead", "_opened")

    def __init__(self) -> None:
        self._opened: Final[list[RealSocket]] = []
        self._is_dead = False

    async def connect(self, host: str, port: int) -> RealSocket:
        """See `RealNetwork`; refused after `die`."""
        opened = await super().connect(host, port)
        if self._is_dead:
            opened.close()
            raise OSError(errno.ENETDOWN, f"cannot connect to {host}:{port}: the broker is killed")
        self._opened.append(opened)
        return opened

    def die(self) -> None:
        """Closes every connection that was opened from here; nothing is sent from now on."""
        self._is_dead = True
        for each in self._opened:
            each.close()
        self._opened.clear()
