"""The broker's side of SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677). Pure.

An unknown user gets the same messages as a user with a wrong password: a salt that is always the same for the name, and
a failure only after the proof. Clients may log in with a delegation token (`tokenauth=true`); the lookup knows
whose it is.
"""

import base64
import hashlib
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
    ITERATIONS_MIN,
    ScramCredential,
    ScramMechanism,
    scram_hash,
    scram_hmac,
)

_TOKEN_EXTENSION: Final = "tokenauth"  # the name of an extension, not a secret


class KnownUser(NamedTuple):
    """A user, or a delegation token, that can log in with SCRAM."""

    credential: ScramCredential
    identity: Identity


class ScramUsers(NamedTuple):
    """Where a mechanism finds users."""

    find_user: Callable[[str], KnownUser | None]
    find_token: Callable[[str, int], KnownUser | None]
    """By the token's id, and the time in milliseconds: an expired token is not found."""
    decoy: Callable[[str], ScramCredential]
    """A credential for a name that does not exist, always the same for a name; no password matches it."""


def decoy_credential(
    mechanism: ScramMechanism, name: str, *, secret: bytes, like: ScramCredential | None = None
) -> ScramCredential:
    """A credential that no client can log in with. Equal arguments give equal credentials.

    Its salt is as long as that of `like` and asks for as many iterations, so that it looks as others do. `secret` must
    be unknown to clients, or they could tell such credentials from others.
    """
    salt_bytes = len(like.salt) if like is not None else 26
    key_bytes = mechanism.key_bytes
    seed = hmac.digest(secret, f"{mechanism.value}\0{name}".encode(), "sha512")
    random = hashlib.shake_256(seed).digest(salt_bytes + 2 * key_bytes)
    return ScramCredential(
        salt=random[:salt_bytes],
        stored_key=random[salt_bytes : salt_bytes + key_bytes],
        server_key=random[salt_bytes + key_bytes :],
        iterations=like.iterations if like is not None else ITERATIONS_MIN,
    )


def _xor(one: bytes, other: bytes) -> bytes:
    """Of two texts of the same length."""
    return (int.from_bytes(one, "big") ^ int.from_bytes(other, "big")).to_bytes(len(one), "big")


class ScramLogin:
    """One login. `new_nonce` returns a new random text of printable ASCII without commas."""

    __slots__ = (
        "_broker_first",
        "_credential",
        "_first_bare",
        "_identity",
        "_is_done",
        "_mechanism",
        "_new_nonce",
        "_users",
    )

    def __init__(self, mechanism: ScramMechanism, users: ScramUsers, *, new_nonce: Callable[[], str]) -> None:
        self._mechanism = mechanism
        self._users = users
        self._new_nonce = new_nonce
        self._is_done = False
        self._first_bare = ""
        self._broker_first: BrokerFirst | None = None
        self._credential: ScramCredential | None = None
        self._identity: Identity | None = None
        """None if the user does not exist: then the login fails at its end."""

    def step(self, message: bytes, now_ms: int) -> Step:
        """The server-first message, then the server-final message."""
        if self._is_done:
            raise AuthenticationError(f"{self._mechanism} has only two messages")
        if self._broker_first is None or self._credential is None:
            try:
                return self._begin(read_client_first(message), now_ms)
            except AuthenticationError:
                self._is_done = True
                raise
        self._is_done = True
        final = read_client_final(message)
        if not hmac.compare_digest(final.nonce.encode(), self._broker_first.nonce.encode()):
            raise self._refusal()
        mechanism, credential = self._mechanism, self._credential
        signed = f"{self._first_bare},{self._broker_first.text},{final.bare}".encode()
        signature = scram_hmac(mechanism, credential.stored_key, signed)
        if len(final.proof) != len(signature):
            raise self._refusal()
        client_key = _xor(signature, final.proof)
        is_proven = hmac.compare_digest(scram_hash(mechanism, client_key), credential.stored_key)
        if not is_proven or self._identity is None:
            raise self._refusal()
        answer = base64.b64encode(scram_hmac(mechanism, credential.server_key, signed)).decode()
        return Step(f"v={answer}".encode(), self._identity)

    def _begin(self, first: ClientFirst, now_ms: int) -> Step:
        if first.authzid and first.authzid != first.name:
            raise AuthenticationError(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        # Always computed, so that known and unknown users take the same time.
        credential = self._users.decoy(first.name)
        if first.extensions.get(_TOKEN_EXTENSION, "").lower() == "true":
            known = self._users.find_token(first.name, now_ms)
        else:
            known = self._users.find_user(first.name)
        if known is not None and known.credential.iterations >= ITERATIONS_MIN:
            credential, self._identity = known
        self._credential = credential
        self._first_bare = first.bare
        nonce = first.nonce + self._new_nonce()
        self._broker_first = BrokerFirst.of(nonce, credential.salt, credential.iterations)
        return Step(self._broker_first.text.encode())

    def _refusal(self) -> AuthenticationError:
        return AuthenticationError(
            "Authentication failed during authentication due to invalid credentials with SASL mechanism"
            f" {self._mechanism}"
        )
