"""The client's side of a SASL login: the interface of a mechanism, and PLAIN.

The order of calls: `await prepare()`, then `first()`; its message goes into a SaslAuthenticate request. Each response's
bytes go to `next()`, which returns the next message, or None when the login is complete. A mechanism object is good for
one login: a re-authentication needs a new one.
"""

from typing import Final, Protocol

from ottla.security.sasl.authentication_error import AuthenticationError


class ClientMechanism(Protocol):
    """One login of a client."""

    @property
    def name(self) -> str:
        """The mechanism's SASL name, for SaslHandshake."""

    async def prepare(self) -> None:
        """Gets what `first` needs; a token provider may take time. Raises `AuthenticationError`."""

    def first(self) -> bytes:
        """The first message."""

    def next(self, challenge: bytes) -> bytes | None:
        """The message that answers the broker's; None if the login is complete.

        Raises `AuthenticationError` if the broker refuses, or cannot prove that it knows the password.
        """


class PlainClient:
    """PLAIN: the user name and the password in one message. Only for encrypted connections."""

    name: Final = "PLAIN"

    def __init__(self, username: str, password: str, *, authzid: str = "") -> None:
        if not username or not password:
            raise AuthenticationError("PLAIN needs a user name and a password")
        if "\0" in username + password + authzid:
            raise AuthenticationError("a user name or password for PLAIN must not contain NUL")
        self._message = f"{authzid}\0{username}\0{password}".encode()

    async def prepare(self) -> None:
        """Nothing to do."""

    def first(self) -> bytes:
        """The only message."""
        return self._message

    def next(self, challenge: bytes) -> bytes | None:
        """None: the broker's response has no content."""
        if challenge:
            raise AuthenticationError("the broker sent an unexpected message after PLAIN")
        return None
