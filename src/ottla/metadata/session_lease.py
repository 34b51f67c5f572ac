"""A lease that lives as long as a session, for stores with sessions.

The store knows whether the session is alive; this is the owner's view of it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol


class Session(Protocol):
    """The session that a lease belongs to."""

    @property
    def token(self) -> str:
        """Its unique name."""

    @property
    def is_over(self) -> bool:
        """Whether it has ended, or may have by the owner's clock; never goes back to False."""


class SessionLease:
    """`Lease` on a session; `release` removes the key from the store."""

    __slots__ = ("_ended", "_release", "key", "revision", "session")

    def __init__(
        self, key: str, revision: int, session: Session, release: Callable[["SessionLease"], Awaitable[None]]
    ) -> None:
        self.key = key
        self.revision = revision
        self.session = session
        self._release = release
        self._ended = asyncio.Event()

    @property
    def is_lost(self) -> bool:
        """Whether it has ended, or may have."""
        return self._ended.is_set() or self.session.is_over

    async def wait_lost(self) -> None:
        """Returns as soon as `is_lost`."""
        await self._ended.wait()

    async def release(self) -> None:
        """Removes the key; does nothing if the lease is lost."""
        was_lost = self.is_lost
        self.on_ended()
        if not was_lost:
            await self._release(self)

    def on_ended(self) -> None:
        """The store found that the key is gone or has another owner, or that the session is over."""
        self._ended.set()
