"""Decoys look like the credentials of users, whichever tool made these."""

import secrets
import string

import pytest

from ottla.security.sasl.scram_decoys import USUAL_SHAPE, CredentialShape, decoy_credential
from ottla.security.scram_credential import SALT_BYTES, ScramCredential, ScramMechanism

NAMES = [f"name-{number}" for number in range(300)]


def credential(salt: bytes, iterations: int = 4096) -> ScramCredential:
    return ScramCredential(salt=salt, stored_key=b"", server_key=b"", iterations=iterations)


def text_of(number: int) -> bytes:
    """A number to base 36, as Java writes it."""
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = (string.digits + string.ascii_lowercase)[digit] + digits
    return digits.encode()


def decoys(shape: CredentialShape) -> list[ScramCredential]:
    return [decoy_credential(ScramMechanism.SHA_256, name, secret=b"secret", shape=shape) for name in NAMES]


@pytest.mark.parametrize(
    "make_salt",
    [
        lambda: secrets.token_bytes(SALT_BYTES),
        lambda: secrets.token_bytes(64),
        lambda: secrets.token_hex(16).encode(),
        lambda: secrets.token_urlsafe(24).encode(),
        lambda: text_of(secrets.randbelow(2**100) + 2**128),
    ],
)
def test_decoys_have_the_shape_of_the_credential(make_salt: object) -> None:
    assert callable(make_salt)
    for iterations in (4096, 8192):
        # A salt of few bytes may happen to have fewer different ones than its tool can make.
        shapes = {CredentialShape.of(credential(make_salt(), iterations)) for _ in range(50)}
        shape = max(shapes, key=lambda each: len(each.alphabet))
        found = decoys(shape)
        assert len(NAMES) == len({each.salt for each in found})
        assert shape == max(map(CredentialShape.of, found), key=lambda each: len(each.alphabet))
        assert {iterations} == {each.iterations for each in found}


def test_salts_of_kafkas_tools_are_numbers() -> None:
    """Their first digit is not as random as the others, and their length is that of the number."""
    shape = CredentialShape.of(credential(text_of(secrets.randbits(127) + 2**129)))
    salts = [each.salt for each in decoys(shape)]
    assert salts == [text_of(int(salt, 36)) for salt in salts]
    assert all(int(salt, 36) < 2**130 for salt in salts)
    lengths = [len(salt) for salt in salts]
    assert 0.45 < lengths.count(25) / len(salts) < 0.7
    assert {b"1"} == {salt[:1] for salt in salts if len(salt) == 26}


def test_salts_that_look_like_numbers() -> None:
    assert (10 + 26, 4) == (len((short := CredentialShape.of(credential(b"salt"))).alphabet), short.salt_bytes)
    assert 26 == CredentialShape.of(credential(b"0" * 26)).salt_bytes
    assert 26 == CredentialShape.of(credential(b"z" * 26)).salt_bytes
    assert CredentialShape(USUAL_SHAPE.alphabet, 2, 4096) == CredentialShape.of(credential(b"\0\xff"))
