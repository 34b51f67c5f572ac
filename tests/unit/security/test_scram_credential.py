"""Credentials are derived as RFC 5802 says, and never show what they are made of."""

import base64

import pytest
from scramp.core import ScramMechanism as OtherMechanism

from ottla.model.errors import InvalidRequestError
from ottla.security.scram_credential import (
    ScramCredential,
    ScramMechanism,
    credential_of_salted,
    is_password,
    make_credential,
    salted_password,
)


@pytest.mark.parametrize("mechanism", ScramMechanism)
@pytest.mark.parametrize("password", ["pencil", "pass,word=x", "pässwörd", "x" * 300])
def test_another_library_derives_the_same_keys(mechanism: ScramMechanism, password: str) -> None:
    credential = make_credential(mechanism, password, salt=b"some long salt", iterations=4096)

    salt, stored_key, server_key, iterations = OtherMechanism(mechanism.value).make_auth_info(
        password, iteration_count=4096, salt=b"some long salt"
    )

    assert (salt, stored_key, server_key, iterations) == (
        credential.salt,
        credential.stored_key,
        credential.server_key,
        credential.iterations,
    )


def test_rfc_7677_vector() -> None:
    """The example of SCRAM-SHA-256: user, pencil."""
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    salted = salted_password(ScramMechanism.SHA_256, "pencil", salt, 4096)

    assert make_credential(ScramMechanism.SHA_256, "pencil", salt=salt, iterations=4096) == credential_of_salted(
        ScramMechanism.SHA_256, salted, salt, 4096
    )


@pytest.mark.parametrize("iterations", [0, 1, 4095, 16385])
def test_iterations_are_bounded(iterations: int) -> None:
    with pytest.raises(InvalidRequestError, match="from 4096 to 16384"):
        make_credential(ScramMechanism.SHA_256, "p", salt=b"s", iterations=iterations)


def test_an_empty_password_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="empty"):
        make_credential(ScramMechanism.SHA_512, "", salt=b"s", iterations=4096)


def test_a_password_is_recognised() -> None:
    credential = make_credential(ScramMechanism.SHA_512, "secret", salt=b"s", iterations=4096)

    assert is_password(ScramMechanism.SHA_512, credential, "secret")
    assert not is_password(ScramMechanism.SHA_512, credential, "Secret")


def test_keys_are_not_shown() -> None:
    credential = ScramCredential(b"salt", b"stored", b"server", 4096)

    assert "ScramCredential(iterations=4096)" == repr(credential)
