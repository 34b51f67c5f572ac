"""Sessions of browsers: a random cookie, and for signed-in users what the server keeps for it, in memory only.

Every browser gets a cookie; the token of its forms is derived from it with a key of this process. A signed-in session
has the user's clients, whose connections hold the password or tokens; it ends after a time without requests, at its
largest age, with a login that the identity provider does not renew, at sign-out, and with the process.
"""

import asyncio
import hashlib
import hmac
import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from ottla.console.cluster.access import UserClients
from ottla.console.oidc.provider import ProviderAwayError
from ottla.console.oidc.tokens import SessionTokens
from ottla.console.settings import ConsoleSettings
from ottla.model.errors import InvalidRequestError
from ottla.security.sasl.authentication_error import AuthenticationError

_SESSIONS_MAX: Final = 500
_SESSIONS_OF_USER_MAX: Final = 20
"""One user cannot keep all others out."""
_COOKIE_BYTES: Final = 32
_RENEWED_AT_ONCE: Final = 10


class TooManySessionsError(InvalidRequestError):
    """As many users are signed in as the console has room for."""


@dataclass(slots=True, kw_only=True)
class Session:
    """A signed-in browser."""

    user: str
    clients: UserClients
    started: float
    used: float
    tokens: SessionTokens | None = None
    """Those of an identity provider, if the user signed in there."""


class Sessions:
    """All sessions, by cookie. `now` is a monotonic clock in seconds."""

    def __init__(self, settings: ConsoleSettings, now: Callable[[], float]) -> None:
        self._settings = settings
        self._now = now
        self._key = secrets.token_bytes(32)
        self._sessions: dict[str, Session] = {}

    @property
    def cookie_name(self) -> str:
        """Differs by port, because browsers share cookies between the ports of a host."""
        name = f"ottla_console_{self._settings.listen.port}"
        return f"__Host-{name}" if self._settings.has_tls else name

    @staticmethod
    def new_cookie() -> str:
        """The value of a cookie that no browser has yet."""
        return secrets.token_urlsafe(_COOKIE_BYTES)

    def csrf_token(self, cookie: str) -> str:
        """The token that forms of this browser must have."""
        return hmac.new(self._key, cookie.encode(), hashlib.sha256).hexdigest()

    def is_csrf_token(self, cookie: str, token: str) -> bool:
        """Whether the token belongs to the cookie; takes the same time for any token."""
        return bool(cookie) and hmac.compare_digest(self.csrf_token(cookie).encode(), token.encode())

    def find(self, cookie: str, *, is_used: bool) -> Session | None:
        """The signed-in session of a cookie; None if there is none. With `is_used`, its idle time begins again."""
        session = self._sessions.get(cookie)
        if session is None or self._is_over(session):
            return None
        if is_used:
            session.used = self._now()
        return session

    def sign_in(self, user: str, clients: UserClients, tokens: SessionTokens | None = None) -> str:
        """Starts a session under a new cookie, which it returns. Raises `TooManySessionsError`."""
        if len(self._sessions) >= _SESSIONS_MAX:
            raise TooManySessionsError(f"{_SESSIONS_MAX} users are signed in; try again later")
        cookie = self.new_cookie()
        self._sessions[cookie] = Session(
            user=user, clients=clients, started=self._now(), used=self._now(), tokens=tokens
        )
        return cookie

    async def make_room(self, user: str) -> None:
        """Ends the sessions of a user who has too many, the ones that were used least recently, before another one."""
        own = [cookie for cookie, each in self._sessions.items() if each.user == user]
        own.sort(key=lambda cookie: self._sessions[cookie].used)
        for cookie in own[: max(0, len(own) + 1 - _SESSIONS_OF_USER_MAX)]:
            await self.sign_out(cookie)

    async def sign_out(self, cookie: str) -> None:
        """Ends a session with its streams, and closes its clients once requests and jobs that use them have ended."""
        session = self._sessions.pop(cookie, None)
        if session is not None:
            session.clients.ended.set()
            await session.clients.release()

    async def renew_tokens(self) -> None:
        """Renews the tokens that expire soon; a session whose login cannot be renewed is over when its token is."""
        limit = asyncio.Semaphore(_RENEWED_AT_ONCE)

        async def renew(tokens: SessionTokens) -> None:
            async with limit:
                with suppress(AuthenticationError, ProviderAwayError):
                    await tokens.renew()

        tokens = [each.tokens for each in self._sessions.values() if each.tokens is not None]
        await asyncio.gather(*map(renew, tokens))

    async def end_expired(self) -> None:
        """Ends the sessions that are over."""
        for cookie in [cookie for cookie, each in self._sessions.items() if self._is_over(each)]:
            await self.sign_out(cookie)

    async def close(self) -> None:
        """Ends all sessions."""
        for cookie in list(self._sessions):
            await self.sign_out(cookie)

    def _is_over(self, session: Session) -> bool:
        now = self._now()
        return (
            now - session.used >= self._settings.session_idle_seconds
            or now - session.started >= self._settings.session_seconds_max
            or (session.tokens is not None and session.tokens.is_over)
        )
