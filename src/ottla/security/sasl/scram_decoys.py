"""Credentials of users that do not exist: a client that begins a login cannot tell them from those of users. Pure.

A decoy looks like the credentials of some users: as many iterations, and a salt of the same kind. Kafka's tools make
salts of text, the digits of a random number; ours and librdkafka's make random bytes; other tools may make other texts.
"""

import hashlib
import hmac
import string
from typing import Final, NamedTuple

from ottla.security.scram_credential import ITERATIONS_MIN, SALT_BYTES, ScramCredential, ScramMechanism

_DIGITS: Final = (string.digits + string.ascii_lowercase).encode()
_ANY: Final = bytes(range(256))
_ALPHABETS: Final = (
    string.hexdigits[:16].encode(),
    _DIGITS,
    (string.ascii_letters + string.digits + "+/=-_").encode(),
    bytes(range(32, 127)),
    _ANY,
)
"""Each contains the one before, nearly; a salt is taken to come from the first that has all of its bytes."""
_KAFKA_BITS: Final = 130
"""Of the random number whose digits to base 36 Kafka's tools use as a salt: mostly 25 or 26 of them."""
_KAFKA_BITS_MIN: Final = 100


class CredentialShape(NamedTuple):
    """What a client that begins a login sees of a credential, but for the salt's random bytes."""

    alphabet: bytes
    """The bytes that the salt may have."""
    salt_bytes: int
    """0 if the salt is a number, as Kafka's tools make it."""
    iterations: int

    @classmethod
    def of(cls, credential: ScramCredential) -> "CredentialShape":
        """The shape of a user's credential."""
        salt = credential.salt
        alphabet = next(each for each in _ALPHABETS if not salt.translate(None, each))
        if len(salt) <= SALT_BYTES and not salt.translate(None, _DIGITS) and not salt.startswith(b"0"):
            bits = int(salt or b"0", 36).bit_length()
            if _KAFKA_BITS_MIN <= bits <= _KAFKA_BITS:
                return cls(_DIGITS, 0, credential.iterations)
        return cls(alphabet, len(salt), credential.iterations)


USUAL_SHAPE: Final = CredentialShape(_ANY, SALT_BYTES, ITERATIONS_MIN)
"""That of the credentials which this package makes."""


def decoy_credential(
    mechanism: ScramMechanism, name: str, *, secret: bytes, shape: CredentialShape = USUAL_SHAPE
) -> ScramCredential:
    """A credential that no client can log in with. Equal arguments give equal credentials.

    `secret` must be unknown to clients, or they could tell such credentials from others.
    """
    key_bytes = mechanism.key_bytes
    seed = hmac.digest(secret, f"{mechanism.value}\0{name}".encode(), "sha512")
    random = hashlib.shake_256(seed).digest(2 * key_bytes + max(shape.salt_bytes, SALT_BYTES))
    return ScramCredential(
        salt=_salt(random[2 * key_bytes :], shape),
        stored_key=random[:key_bytes],
        server_key=random[key_bytes : 2 * key_bytes],
        iterations=shape.iterations,
    )


def _salt(random: bytes, shape: CredentialShape) -> bytes:
    alphabet = shape.alphabet
    if shape.salt_bytes:
        return bytes(alphabet[each % len(alphabet)] for each in random[: shape.salt_bytes])
    number = int.from_bytes(random[:SALT_BYTES], "big") >> (8 * SALT_BYTES - _KAFKA_BITS)
    digits = bytearray()
    while number:
        number, digit = divmod(number, len(alphabet))
        digits.append(alphabet[digit])
    return bytes(reversed(digits))
