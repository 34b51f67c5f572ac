"""The client's side of SCRAM. Proves that it knows the password, and demands the same of the broker. Pure."""

import base64
import hmac
from collections.abc import Callable
from typing import Final

from ottla.security.sasl.authentication_error import AuthenticationError
from ottla.security.sasl.scram_messages import (
    BrokerFirst,
    read_broker_final,
    read_broker_first,
    sasl_name,
)
from ottla.security.scram_credential import (
    ITERATIONS_MIN,
    ScramMechanism,
    salted_password,
    scram_hash,
    scram_hmac,
)

CLIENT_ITERATIONS_MAX: Final = 1_000_000
"""A broker that asks for more wants to keep the client busy."""
_GS2_HEADER: Final = "n,,"


class ScramClient:
    """One login. `new_nonce` returns a new random text of printable ASCII without commas.

    With `is_token`, user name and password are the id and HMAC of a delegation token.
    """

    def __init__(
        self,
        mechanism: ScramMechanism,
        username: str,
        password: str,
        *,
        new_nonce: Callable[[], str],
        is_token: bool = False,
    ) -> None:
        if not username or not password:
            raise AuthenticationError(f"{mechanism} needs a user name and a password")
        if not username.isascii() or "\0" in username:
            raise AuthenticationError(f"{mechanism}: the user name {username!r} is not ASCII text")
        self._mechanism = mechanism
        self._password = password
        self._nonce = new_nonce()
        extension = ",tokenauth=true" if is_token else ""
        self._first_bare = f"n={sasl_name(username)},r={self._nonce}{extension}"
        self._expected_signature: bytes | None = None
        self._is_complete = False

    @property
    def name(self) -> str:
        """The mechanism's SASL name."""
        return self._mechanism.value

    async def prepare(self) -> None:
        """Nothing to do."""

    def first(self) -> bytes:
        """The client-first message."""
        return (_GS2_HEADER + self._first_bare).encode()

    def next(self, challenge: bytes) -> bytes | None:
        """The client-final message for the server-first message; None for a correct server-final message."""
        if self._is_complete:
            raise AuthenticationError(f"the broker sent a message after the end of {self._mechanism}")
        if self._expected_signature is None:
            return self._prove(read_broker_first(challenge))
        if not hmac.compare_digest(read_broker_final(challenge), self._expected_signature):
            raise AuthenticationError("the broker could not prove that it knows the password; is it the right broker?")
        self._is_complete = True
        return None

    def _prove(self, broker_first: BrokerFirst) -> bytes:
        if not broker_first.nonce.startswith(self._nonce) or len(broker_first.nonce) == len(self._nonce):
            raise AuthenticationError("the broker did not extend the client's nonce")
        if not ITERATIONS_MIN <= broker_first.iterations <= CLIENT_ITERATIONS_MAX:
            raise AuthenticationError(
                f"the broker asks for {broker_first.iterations} iterations; at least {ITERATIONS_MIN} are needed,"
                f" at most {CLIENT_ITERATIONS_MAX} are allowed"
            )
        mechanism = self._mechanism
        salted = salted_password(mechanism, self._password, broker_first.salt, broker_first.iterations)
        client_key = scram_hmac(mechanism, salted, b"Client Key")
        bare = f"c={base64.b64encode(_GS2_HEADER.encode()).decode()},r={broker_first.nonce}"
        signed = f"{self._first_bare},{broker_first.text},{bare}".encode()
        signature = scram_hmac(mechanism, scram_hash(mechanism, client_key), signed)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._expected_signature = scram_hmac(mechanism, scram_hmac(mechanism, salted, b"Server Key"), signed)
        return f"{bare},p={base64.b64encode(proof).decode()}".encode()
