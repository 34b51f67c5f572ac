"""The broker's side of SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677). Pure.

An unknown user gets the same messages as a user with a wrong password: a salt that is always the same for the name, and
a failure only after the proof. Clients may log in with a delegation token (`tokenauth=true`): the salt of a name is
the same with and without it.
"""

import base64
import hmac
from collections.abc import Callable
from typing import Final, NamedTuple

from ottla.security.sasl.authentication_error import AuthenticationError
from ottla.security.sasl.broker_mechanism import Identity, Step
from ottla.security.sasl.scram_messages import (
    BrokerFirst,
    ClientFirst,
    read_client_final,
    read_client_first,
)
from ottla.security.scram_credential import (
    ScramCredential,
    ScramMechanism,
    scram_hash,
    scram_hmac,
)

_TOKEN_EXTENSION: Final = "tokenauth"  # the name of an extension, not a secret


class FoundLogin(NamedTuple):
    """What a login is checked with, and whose it is."""

    credential: ScramCredential
    """Its salt and iterations are the same for a name, whether it exists and whatever else the client sends."""
    identity: Identity | None
    """None if the user or token does not exist: the login fails after the proof."""


FindLogin = Callable[[str, bool, int], FoundLogin]
"""By a name, whether it is the id of a delegation token, and the time in milliseconds: expired tokens do not exist."""


def _xor(one: bytes, other: bytes) -> bytes:
    """Of two texts of the same length."""
    return (int.from_bytes(one, "big") ^ int.from_bytes(other, "big")).to_bytes(len(one), "big")


class ScramLogin:
    """One login. `new_nonce` returns a new random text of printable ASCII without commas."""

    __slots__ = ("_broker_first", "_find", "_first_bare", "_found", "_is_done", "_mechanism", "_new_nonce")

    def __init__(self, mechanism: ScramMechanism, find: FindLogin, *, new_nonce: Callable[[], str]) -> None:
        self._mechanism = mechanism
        self._find = find
        self._new_nonce = new_nonce
        self._is_done = False
        self._first_bare = ""
        self._broker_first: BrokerFirst | None = None
        self._found: FoundLogin | None = None

    def step(self, message: bytes, now_ms: int) -> Step:
        """The server-first message, then the server-final message."""
        if self._is_done:
            raise AuthenticationError(f"{self._mechanism} has only two messages")
        if self._broker_first is None or self._found is None:
            try:
                return self._begin(read_client_first(message), now_ms)
            except AuthenticationError:
                self._is_done = True
                raise
        self._is_done = True
        final = read_client_final(message)
        if not hmac.compare_digest(final.nonce.encode(), self._broker_first.nonce.encode()):
            raise self._refusal()
        mechanism, (credential, identity) = self._mechanism, self._found
        signed = f"{self._first_bare},{self._broker_first.text},{final.bare}".encode()
        signature = scram_hmac(mechanism, credential.stored_key, signed)
        if len(final.proof) != len(signature):
            raise self._refusal()
        client_key = _xor(signature, final.proof)
        is_proven = hmac.compare_digest(scram_hash(mechanism, client_key), credential.stored_key)
        if not is_proven or identity is None:
            raise self._refusal()
        answer = base64.b64encode(scram_hmac(mechanism, credential.server_key, signed)).decode()
        return Step(f"v={answer}".encode(), identity)

    def _begin(self, first: ClientFirst, now_ms: int) -> Step:
        if first.authzid and first.authzid != first.name:
            raise AuthenticationError(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        is_token = first.extensions.get(_TOKEN_EXTENSION, "").lower() == "true"
        self._found = self._find(first.name, is_token, now_ms)
        credential = self._found.credential
        self._first_bare = first.bare
        nonce = first.nonce + self._new_nonce()
        self._broker_first = BrokerFirst.of(nonce, credential.salt, credential.iterations)
        return Step(self._broker_first.text.encode())

    def _refusal(self) -> AuthenticationError:
        return AuthenticationError(
            "Authentication failed during authentication due to invalid credentials with SASL mechanism"
            f" {self._mechanism}"
        )
