"""Binds a login to the browser that began it: a signed cookie with the state, from which nonce and verifier follow.

The cookie is `SameSite=Lax`, because the provider's redirect comes from another site; it says nothing but the state,
where to go afterwards and until when. Nothing is kept in memory for logins that are never finished.
"""

import base64
import binascii
import hashlib
import hmac
import json
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ottla.model.errors import DeniedError

LOGIN_SECONDS: Final = 600
"""How long a person may take to sign in at the provider."""
_USED_MAX: Final = 10_000


class WrongLoginFlowError(DeniedError):
    """The answer of the provider does not belong to a login that this browser began."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """A login that was begun."""

    state: str
    nonce: str
    verifier: str
    """PKCE: what only this console can show for the code."""
    after: str
    """The page to go to."""

    @property
    def challenge(self) -> str:
        """The verifier's hash (S256)."""
        return _text(hashlib.sha256(self.verifier.encode()).digest())


class LoginFlow:
    """Begins and finishes logins. `now` is a clock in seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._key = secrets.token_bytes(32)
        self._used: OrderedDict[str, float] = OrderedDict()
        """States of finished logins, with the time at which their cookies expire."""

    def begin(self, after: str) -> tuple[Login, str]:
        """A new login and its cookie."""
        login = self._login(secrets.token_urlsafe(32), after)
        content = json.dumps([login.state, after, int(self._now()) + LOGIN_SECONDS]).encode()
        return login, f"{_text(content)}.{self._mac('cookie', content)}"

    def finish(self, cookie: str, state: str) -> Login:
        """The login of a cookie; each one is finished once. Raises `WrongLoginFlowError`."""
        content, _, mac = cookie.partition(".")
        try:
            given = base64.urlsafe_b64decode(content + "=" * (-len(content) % 4))
        except (binascii.Error, ValueError):
            given = b""
        if not cookie or not hmac.compare_digest(self._mac("cookie", given).encode(), mac.encode()):
            raise WrongLoginFlowError("this browser did not begin a login here, or the console was started again")
        begun, after, expires = json.loads(given)
        if not hmac.compare_digest(str(begun).encode(), state.encode()):
            raise WrongLoginFlowError("the answer belongs to another login than the one that this browser began last")
        if self._now() >= expires:
            raise WrongLoginFlowError(f"the login took longer than {LOGIN_SECONDS // 60} minutes")
        while self._used and (len(self._used) >= _USED_MAX or next(iter(self._used.values())) <= self._now()):
            self._used.popitem(last=False)
        if begun in self._used:
            raise WrongLoginFlowError("this login was finished before")
        self._used[begun] = expires
        return self._login(begun, after)

    def _login(self, state: str, after: str) -> Login:
        return Login(
            state=state,
            nonce=self._mac("nonce", state.encode()),
            verifier=self._mac("verifier", state.encode()),
            after=after,
        )

    def _mac(self, purpose: str, content: bytes) -> str:
        return _text(hmac.new(self._key, purpose.encode() + b"\0" + content, hashlib.sha256).digest())


def _text(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")
