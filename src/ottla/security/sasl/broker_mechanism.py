"""The interface of a mechanism on the broker's side: one message in, one reply out, until the client is known."""

from typing import NamedTuple, Protocol

from ottla.security.principals import Principal


class Identity(NamedTuple):
    """A client that has logged in."""

    principal: Principal
    expires_ms: int | None = None
    """When its credential expires, in milliseconds since the epoch; None if it does not."""
    is_token_login: bool = False
    """Whether it used a delegation token."""


class Step(NamedTuple):
    """What a mechanism says to a message."""

    reply: bytes
    identity: Identity | None = None
    """None as long as the exchange is not complete."""


class BrokerMechanism(Protocol):
    """One login of a client, on the broker's side. Messages of a login that failed or is complete are refused."""

    def step(self, message: bytes, now_ms: int) -> Step:
        """Takes the client's next message; `now_ms` is milliseconds since the epoch. Raises `AuthenticationError`."""
