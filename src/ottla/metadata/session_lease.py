"""A lease that lives as long as a session: what the stores with sessions give out.

Whether the session lives is for the store to say; here is what the lease's owner sees of it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol


class Session(Protocol):
    """What a lease hangs on."""

    @property
    def token(self) -> str:
        """Its name; no other session has had it."""

    @property
    def is_over(self) -> bool:
        """Whether it has ended, or may have by the owner's clock; it stays so."""


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
        """Whether it ended, or may have."""
        return self._ended.is_set() or self.session.is_over

    async def wait_lost(self) -> None:
        """Returns as soon as `is_lost`."""
        await self._ended.wait()

    async def release(self) -> None:
        """Removes the key; nothing happens if the lease is lost."""
        was_lost = self.is_lost
        self.on_ended()
        if not was_lost:
            await self._release(self)

    def on_ended(self) -> None:
        """The store found that the key is gone or another's, or that the session is over."""
        self._ended.set()
