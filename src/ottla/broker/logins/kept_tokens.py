"""The tokens of a token endpoint with which this broker logs in at others: fetched once, kept, and renewed in time.

All connections of the broker share a token. It is renewed before it expires, so that a token endpoint that is
unreachable for a while does not stop replication.
"""

import asyncio
import base64
import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from ottla.env.ports import Clock
from ottla.security.sasl.authentication_error import AuthenticationError

_LOGGER: Final = logging.getLogger(__name__)

RENEW_SHARE: Final = 0.8
"""The part of a token's lifetime after which another one is fetched."""
_EXPIRY_MAX: Final = 1e12
"""Seconds: a later time is not a date."""
_BACKOFF_SECONDS: Final = 0.5
_BACKOFF_SECONDS_MAX: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    text: str = field(repr=False)
    renew_ms: int
    expires_ms: int


class KeptTokens:
    """The token of one endpoint; `fetch` asks it, and raises `AuthenticationError`. `renew_forever` must run."""

    def __init__(self, fetch: Callable[[], Awaitable[str]], clock: Clock) -> None:
        self._fetch = fetch
        self._clock = clock
        self._kept: _Kept | None = None
        self._has_kept = asyncio.Event()
        self._lock = asyncio.Lock()
        """Only one request to the endpoint at a time, however many connections are opened."""

    async def token(self) -> str:
        """A token that has not expired. Raises `AuthenticationError` if there is none and none can be fetched."""
        kept = self._valid()
        if kept is not None:
            return kept.text
        async with self._lock:
            kept = self._valid()
            return kept.text if kept is not None else await self._renew()

    async def renew_forever(self) -> None:
        """Fetches another token when the kept one is old, until cancelled. Does nothing until one is kept."""
        while True:
            await self._has_kept.wait()
            kept = self._kept
            if kept is None:
                self._has_kept.clear()
                continue
            await self._clock.sleep(max(kept.renew_ms - self._clock.now_ms(), 0) / 1000)
            failures = 0
            while self._kept is kept:
                try:
                    async with self._lock:
                        await self._renew()
                except AuthenticationError as error:
                    failures += 1
                    self._warn(failures, error)
                    await self._clock.sleep(min(_BACKOFF_SECONDS * 2 ** min(failures - 1, 30), _BACKOFF_SECONDS_MAX))

    def _valid(self) -> _Kept | None:
        kept = self._kept
        return kept if kept is not None and self._clock.now_ms() < kept.expires_ms else None

    async def _renew(self) -> str:
        asked_ms = self._clock.now_ms()
        text = await self._fetch()
        expires_ms = expiry_ms(text)
        if expires_ms is None or expires_ms <= asked_ms:
            # When it expires is not known: it is good for the login that asked for it.
            self._kept = None
        else:
            renew_ms = asked_ms + int(RENEW_SHARE * (expires_ms - asked_ms))
            self._kept = _Kept(text=text, renew_ms=renew_ms, expires_ms=expires_ms)
            self._has_kept.set()
        return text

    def _warn(self, failures: int, error: AuthenticationError) -> None:
        if failures & (failures - 1) == 0:
            kept = (
                "the one fetched before is still used" if self._valid() else "logins to other brokers are not possible"
            )
            _LOGGER.warning(
                "cannot fetch a token for logins to other brokers (attempt %d): %s; %s", failures, error, kept
            )


def expiry_ms(token: str) -> int | None:
    """When a JWT expires, by its own claim, which is not checked here; None if it does not say."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except ValueError:
        return None
    expires = claims.get("exp") if isinstance(claims, dict) else None
    if not isinstance(expires, int | float) or isinstance(expires, bool) or not abs(expires) < _EXPIRY_MAX:
        return None
    return int(expires * 1000)
