"""The tokens of one session: the access token that clients log in with, renewed in time with the refresh token."""

import asyncio
import time
from typing import Final

from ottla.console.oidc.provider import Grant, LoginRefusedError, Provider, ProviderAwayError
from ottla.console.oidc.shared_call import SharedCall
from ottla.security.sasl.authentication_error import AuthenticationError

_EARLY_MS: Final = 30_000
"""A token is renewed this long before it expires, or in the last fifth of its life if that is shorter."""


class LoginNotRenewedError(AuthenticationError):
    """The access token has expired, and the identity provider cannot be asked for another one now."""


class SessionTokens:
    """Tokens of a signed-in user. `token` is the token provider of the user's clients."""

    def __init__(self, provider: Provider, grant: Grant) -> None:
        self._provider = provider
        self._grant = grant
        self._lock = asyncio.Lock()
        self._renew_ms = _renewal_ms(grant)
        self._is_refused = False
        self._renewal = SharedCall(self._renew)
        self._revocation = SharedCall(self._revoke)

    @property
    def access_token(self) -> str:
        """The newest one, which may have expired."""
        return self._grant.access_token

    @property
    def id_token(self) -> str | None:
        """For signing out at the provider."""
        return self._grant.id_token

    @property
    def is_over(self) -> bool:
        """Whether the provider ended the login: the token has expired and cannot be renewed."""
        can_renew = self._grant.refresh_token is not None and not self._is_refused
        return _now_ms() >= self._grant.expires_ms and not can_renew

    async def token(self) -> str:
        """A valid access token. Raises `AuthenticationError`."""
        try:
            await self.renew()
        except ProviderAwayError as error:
            raise LoginNotRenewedError(f"the login cannot be renewed: {error}") from None
        return self._grant.access_token

    async def renew(self) -> None:
        """Renews the tokens if it is time. Raises `AuthenticationError` if the login is over, and `ProviderAwayError`
        if the provider cannot be asked and the token has expired."""
        if _now_ms() >= self._renew_ms:
            await self._renewal()

    async def revoke(self) -> None:
        """Ends the refresh token at the provider: the login is not renewed any more. Raises `AuthenticationError` and
        `ProviderAwayError`."""
        self._is_refused = True
        await self._revocation()

    async def _renew(self) -> None:
        async with self._lock:
            if _now_ms() < self._renew_ms:
                return
            is_valid = _now_ms() < self._grant.expires_ms
            try:
                if not self._is_refused:
                    self._grant = await self._provider.renew(self._grant)
                    self._renew_ms = _renewal_ms(self._grant)
                    return
            except LoginRefusedError:
                self._is_refused = True
            except ProviderAwayError:
                if not is_valid:
                    raise
            if not is_valid:
                raise AuthenticationError("the login has expired; sign in again")

    async def _revoke(self) -> None:
        # Behind a renewal that was begun: it is the newest refresh token that must be revoked.
        async with self._lock:
            await self._provider.revoke(self._grant)


def _renewal_ms(grant: Grant) -> int:
    now = _now_ms()
    return grant.expires_ms - min(_EARLY_MS, max(0, grant.expires_ms - now) // 5)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
