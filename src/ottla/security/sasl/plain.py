"""The broker's side of PLAIN (RFC 4616): the users are in the broker's configuration. Pure."""

import hashlib
import hmac
from collections.abc import Mapping
from typing import Final

from ottla.security.principals import USER_TYPE, Principal
from ottla.security.sasl.authentication_error import AuthenticationError
from ottla.security.sasl.broker_mechanism import Identity, Step

_INVALID: Final = "Authentication failed: Invalid username or password"


class PlainLogin:
    """One login. `passwords` has the password of each user."""

    __slots__ = ("_is_done", "_passwords")

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = passwords
        self._is_done = False

    def step(self, message: bytes, now_ms: int) -> Step:
        """Exactly three parts: authorization id, user name, password. The first is empty or equal to the second."""
        if self._is_done:
            raise AuthenticationError("PLAIN has only one message")
        self._is_done = True
        try:
            parts = message.decode().split("\0")
        except UnicodeDecodeError:
            parts = []
        if len(parts) != 3:
            raise AuthenticationError("Invalid SASL/PLAIN response: expected 3 tokens")
        authzid, name, password = parts
        if not name or not password:
            raise AuthenticationError("Authentication failed: username and password must not be empty")
        known = self._passwords.get(name, "")
        # Digests have equal lengths, so the time of the comparison says nothing about the password; an unknown user is
        # compared as well. An empty password, which an unknown user has, was refused above.
        expected = hashlib.sha256(known.encode()).digest()
        if not hmac.compare_digest(hashlib.sha256(password.encode()).digest(), expected):
            raise AuthenticationError(_INVALID)
        if authzid and authzid != name:
            raise AuthenticationError(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        return Step(b"", Identity(Principal(USER_TYPE, name)))
