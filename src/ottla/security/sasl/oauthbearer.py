"""The broker's side of OAUTHBEARER (RFC 7628); `jwt_validation.py` checks the token. Pure."""

import json
from collections.abc import Callable
from typing import Final

from ottla.security.principals import USER_TYPE, Principal
from ottla.security.sasl.authentication_error import AuthenticationError
from ottla.security.sasl.broker_mechanism import Identity, Step
from ottla.security.sasl.jwt_validation import BadTokenError, VerifiedToken
from ottla.security.sasl.oauthbearer_messages import KVSEP, read_bearer_message

_REFUSED: Final = json.dumps({"status": "invalid_token"}, separators=(",", ":")).encode()


class OAuthBearerLogin:
    """One login. `verify` checks a token at a time in milliseconds; it raises `BadTokenError`."""

    __slots__ = ("_is_done", "_refusal", "_verify")

    def __init__(self, verify: Callable[[str, int], VerifiedToken]) -> None:
        self._verify = verify
        self._is_done = False
        self._refusal: str | None = None
        """Why the token was refused: the client is told that it was, and answers before the login fails."""

    def step(self, message: bytes, now_ms: int) -> Step:
        """Accepts, or returns a JSON status; the client acknowledges that, and the login fails."""
        if self._refusal is not None or self._is_done:
            what = self._refusal if message == KVSEP.encode() and not self._is_done else None
            self._is_done = True
            raise AuthenticationError(f"Authentication failed: {what or 'unexpected OAUTHBEARER message'}")
        try:
            first = read_bearer_message(message)
            token = self._verify(first.token, now_ms)
        except BadTokenError as error:
            self._refusal = str(error)
            return Step(_REFUSED)
        except AuthenticationError:
            self._is_done = True
            raise
        self._is_done = True
        if first.authzid and first.authzid != token.name:
            raise AuthenticationError(
                "Authentication failed: Client requested an authorization id that is different from the token's"
                " principal name"
            )
        return Step(b"", Identity(Principal(USER_TYPE, token.name), expires_ms=token.expires_ms))
