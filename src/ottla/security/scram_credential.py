"""SCRAM credentials: what a broker stores of a password, and how it is derived (RFC 5802). Pure.

A credential does not contain the password, and cannot be used to log in by itself. Kafka does not normalize passwords
(no SASLprep): their UTF-8 bytes are used, here as well.
"""

import hashlib
import hmac
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ottla.model.errors import InvalidRequestError

ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 16384
"""Kafka's limits: clients refuse fewer, and more would let a client keep the broker busy."""
SALT_BYTES: Final = 26
"""The size of the salts that this package makes; Kafka's are as long."""


class ScramMechanism(StrEnum):
    """The SCRAM mechanisms, with their SASL names."""

    # An enumeration hashes its member's name, in Python; every login looks one up.
    __hash__ = str.__hash__

    SHA_256 = "SCRAM-SHA-256"
    SHA_512 = "SCRAM-SHA-512"

    @property
    def hash_name(self) -> str:
        """The hash's name in `hashlib`."""
        return "sha256" if self is ScramMechanism.SHA_256 else "sha512"

    @property
    def key_bytes(self) -> int:
        """The size of the hash."""
        return 32 if self is ScramMechanism.SHA_256 else 64

    @property
    def wire_type(self) -> int:
        """The mechanism's number in the APIs that alter and describe credentials."""
        return 1 if self is ScramMechanism.SHA_256 else 2


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """What a broker stores of one user's password for one mechanism."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        # Keys must not appear in logs: a stored key allows an offline search for the password.
        return f"ScramCredential(iterations={self.iterations})"


def scram_hmac(mechanism: ScramMechanism, key: bytes, message: bytes) -> bytes:
    """The mechanism's HMAC."""
    return hmac.digest(key, message, mechanism.hash_name)


def scram_hash(mechanism: ScramMechanism, content: bytes) -> bytes:
    """The mechanism's hash, `H` of RFC 5802."""
    return (hashlib.sha256 if mechanism is ScramMechanism.SHA_256 else hashlib.sha512)(content).digest()


def salted_password(mechanism: ScramMechanism, password: str | bytes, salt: bytes, iterations: int) -> bytes:
    """`Hi` of RFC 5802. Takes milliseconds, on purpose."""
    text = password.encode() if isinstance(password, str) else password
    return hashlib.pbkdf2_hmac(mechanism.hash_name, text, salt, iterations)


def credential_of_salted(
    mechanism: ScramMechanism, salted_password: bytes, salt: bytes, iterations: int
) -> ScramCredential:
    """The credential for a password that a client has salted, as AlterUserScramCredentials sends it."""
    client_key = scram_hmac(mechanism, salted_password, b"Client Key")
    return ScramCredential(
        salt=salt,
        stored_key=scram_hash(mechanism, client_key),
        server_key=scram_hmac(mechanism, salted_password, b"Server Key"),
        iterations=iterations,
    )


def make_credential(mechanism: ScramMechanism, password: str, *, salt: bytes, iterations: int) -> ScramCredential:
    """The credential for a password; `salt` must be random. Raises `InvalidRequestError` for bad iterations."""
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise InvalidRequestError(f"{iterations} iterations; it must be from {ITERATIONS_MIN} to {ITERATIONS_MAX}")
    if not password:
        raise InvalidRequestError("the password is empty")
    return credential_of_salted(mechanism, salted_password(mechanism, password, salt, iterations), salt, iterations)


def is_password(mechanism: ScramMechanism, credential: ScramCredential, password: str) -> bool:
    """Whether this is the credential's password; takes as long for a wrong one. For protocols that send it."""
    salted = salted_password(mechanism, password, credential.salt, credential.iterations)
    found = credential_of_salted(mechanism, salted, credential.salt, credential.iterations)
    return hmac.compare_digest(found.stored_key, credential.stored_key)
