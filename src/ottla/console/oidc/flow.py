"""Binds a login to the browser that began it: a signed cookie with the state, from which nonce and verifier follow.

The cookie is `SameSite=Lax`, because the provider's redirect comes from another site; it says nothing but the state,
where to go afterwards and until when. Each login has its own, so that several tabs can sign in at once. Nothing is kept
in memory for logins that are never finished.
"""

import base64
import binascii
import hashlib
import hmac
import json
import re
import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from ottla.model.errors import DeniedError

LOGIN_SECONDS: Final = 600
"""How long a person may take to sign in at the provider."""
_USED_MAX: Final = 10_000
_AFTER_BYTES_MAX: Final = 1500
"""Of the address to go to: browsers refuse cookies of more than 4 KB, and proxies headers of more than 8 KB."""
_COOKIES_MAX: Final = 4
"""Logins that a browser can have begun at once."""
_NAME: Final = re.compile("[A-Za-z0-9_-]{16}")


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
        """A new login and its cookie. Of an address that is too long for a cookie, only the path is kept."""
        if len(after.encode()) > _AFTER_BYTES_MAX:
            after = after.partition("?")[0]
        login = self._login(secrets.token_urlsafe(32), after if len(after.encode()) <= _AFTER_BYTES_MAX else "/")
        expires = int(self._now()) + LOGIN_SECONDS
        content = json.dumps([login.state, login.after, expires], ensure_ascii=False).encode()
        return login, f"{_text(content)}.{self._mac('cookie', content)}"

    def finish(self, cookie: str, state: str) -> Login:
        """The login of a cookie; each one is finished once. Raises `WrongLoginFlowError`."""
        given, mac = _content(cookie)
        if not cookie or not hmac.compare_digest(self._mac("cookie", given).encode(), mac.encode()):
            raise WrongLoginFlowError("this browser did not begin this login, or the console was started again since")
        begun, after, expires = json.loads(given)
        if not hmac.compare_digest(str(begun).encode(), state.encode()):
            raise WrongLoginFlowError("the answer belongs to another login than the one that this browser began")
        if self._now() >= expires:
            raise WrongLoginFlowError(f"the login took longer than {LOGIN_SECONDS // 60} minutes")
        while self._used and (len(self._used) >= _USED_MAX or next(iter(self._used.values())) <= self._now()):
            self._used.popitem(last=False)
        if begun in self._used:
            raise WrongLoginFlowError("this login was finished before")
        self._used[begun] = expires
        return self._login(begun, after)

    @staticmethod
    def cookie_suffix(state: str) -> str:
        """How the name of a login's cookie ends."""
        return state[:16]

    @staticmethod
    def abandoned(cookies: Mapping[str, str], prefix: str) -> list[str]:
        """The names of the cookies that must go so that there is room for one more: the oldest. All cookies of a
        browser are given; those of logins begin with `prefix`."""
        own = [name for name in cookies if name.startswith(prefix) and _NAME.fullmatch(name.removeprefix(prefix))]
        own.sort(key=lambda name: _claimed(cookies[name])[1])
        return own[: max(0, len(own) + 1 - _COOKIES_MAX)]

    @staticmethod
    def claimed_after(cookie: str) -> str:
        """Where to go, as a cookie says whose signature was not checked: the address must be."""
        return _claimed(cookie)[0]

    def _login(self, state: str, after: str) -> Login:
        return Login(
            state=state,
            nonce=self._mac("nonce", state.encode()),
            verifier=self._mac("verifier", state.encode()),
            after=after,
        )

    def _mac(self, purpose: str, content: bytes) -> str:
        return _text(hmac.new(self._key, purpose.encode() + b"\0" + content, hashlib.sha256).digest())


def _content(cookie: str) -> tuple[bytes, str]:
    """What a cookie says, and its signature."""
    content, _, mac = cookie.partition(".")
    try:
        return base64.urlsafe_b64decode(content + "=" * (-len(content) % 4)), mac
    except (binascii.Error, ValueError):
        return b"", mac


def _claimed(cookie: str) -> tuple[str, float]:
    """The address and the time of expiry in a cookie; its signature is not checked."""
    try:
        _, after, expires = json.loads(_content(cookie)[0])
    except (ValueError, TypeError, RecursionError):
        return "", 0.0
    return str(after), expires if isinstance(expires, int | float) else 0.0


def _text(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")
