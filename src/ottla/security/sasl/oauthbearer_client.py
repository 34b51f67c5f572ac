"""The client's side of OAUTHBEARER (RFC 7628): a bearer token from a provider. Pure but for the provider."""

from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable
from typing import Final

from ottla.security.sasl.authentication_error import AuthenticationError
from ottla.security.sasl.oauthbearer_messages import KVSEP, check_extensions, is_token_text

TokenProvider = Callable[[], str | Awaitable[str]]
"""Returns a token that is valid now; a plain function or a coroutine function."""


class OAuthBearerClient:
    """One login. The provider is asked for a token by `prepare`; `extensions` are sent to the broker as they are."""

    name: Final = "OAUTHBEARER"

    def __init__(self, token_provider: TokenProvider, *, extensions: Mapping[str, str] | None = None) -> None:
        self._token_provider = token_provider
        self._extensions = dict(extensions or {})
        check_extensions(self._extensions)
        self._token: str | None = None
        self._refusal: str | None = None

    async def prepare(self) -> None:
        """Asks the provider. Raises `AuthenticationError` if what it returns is not a token."""
        answer = self._token_provider()
        token = await answer if isawaitable(answer) else answer
        if not isinstance(token, str) or not is_token_text(token):
            raise AuthenticationError("the token provider returned no bearer token (base64url text)")
        self._token = token

    def first(self) -> bytes:
        """The token with its extensions."""
        if self._token is None:
            raise AuthenticationError("OAUTHBEARER: prepare() must get a token before first()")
        extensions = "".join(f"{key}={value}{KVSEP}" for key, value in self._extensions.items())
        return f"n,,{KVSEP}auth=Bearer {self._token}{KVSEP}{extensions}{KVSEP}".encode()

    def next(self, challenge: bytes) -> bytes | None:
        """None if the broker accepted; a control-A if it refused, after which it fails the login."""
        if self._refusal is not None:
            raise AuthenticationError(f"the broker refused the token: {self._refusal}")
        if not challenge:
            return None
        self._refusal = challenge[:200].decode(errors="replace")
        return KVSEP.encode()
