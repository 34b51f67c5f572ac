"""Users and delegation tokens of the metadata store, and the users that `ottla serve --add-scram` creates."""

from dataclasses import replace

import pytest

from ottla.broker.logins.scram_users import ScramLookup
from ottla.metadata.image import ClusterImage
from ottla.security.delegation_token import TokenInfo, token_password
from ottla.security.principals import Principal
from ottla.security.scram_credential import ScramCredential, ScramMechanism, is_password, make_credential

ALICE = Principal("User", "alice")
MECHANISM = ScramMechanism.SHA_256
TOKEN = TokenInfo(id="token", owner=ALICE, requester=ALICE, renewers=(), issued_ms=0, expiry_ms=1000, max_ms=2000)


def credential(salt: bytes = b"salt", iterations: int = 4096) -> ScramCredential:
    return make_credential(MECHANISM, "secret", salt=salt, iterations=iterations)


def lookup(image: ClusterImage, secret_key: str | None = "key") -> ScramLookup:
    return ScramLookup(MECHANISM, lambda: image, lambda: secret_key)


def image(**users: ScramCredential) -> ClusterImage:
    return replace(ClusterImage(), scram_credentials={(MECHANISM, name): each for name, each in users.items()})


def test_decoys_look_like_users_are_stable_and_differ_by_name() -> None:
    """On every broker, and after every restart: otherwise two attempts would tell who exists."""
    users = image(alice=credential(b"a salt of some length", 8192))
    decoy = lookup(users).decoy("mallory")

    assert decoy == lookup(users).decoy("mallory")
    assert decoy.salt != lookup(users).decoy("trudy").salt
    assert (21, 8192, 32, 32) == (
        len(decoy.salt),
        decoy.iterations,
        len(decoy.stored_key),
        len(decoy.server_key),
    )


def test_decoys_cannot_be_computed_by_clients() -> None:
    assert lookup(image(alice=credential())).decoy("x") != lookup(image(alice=credential(b"other"))).decoy("x")


def test_decoys_stay_when_other_users_are_added() -> None:
    before = lookup(image(alice=credential())).decoy("mallory")

    assert before == lookup(image(zoe=credential(b"other"), alice=credential())).decoy("mallory")


def test_tokens() -> None:
    found = lookup(replace(ClusterImage(), delegation_tokens={"token": TOKEN})).find_token("token", 999)

    assert found is not None
    assert (ALICE, 1000, True) == found.identity
    assert is_password(MECHANISM, found.credential, token_password("key", "token"))


@pytest.mark.parametrize(
    ("token_id", "now_ms", "secret_key"), [("token", 1000, "key"), ("other", 0, "key"), ("token", 0, None)]
)
def test_tokens_that_are_not_accepted(token_id: str, now_ms: int, secret_key: str | None) -> None:
    """Expired, unknown, and without delegation.token.secret.key."""
    tokens = replace(ClusterImage(), delegation_tokens={"token": TOKEN})

    assert lookup(tokens, secret_key).find_token(token_id, now_ms) is None


def test_users_with_other_iterations_and_salts_cannot_be_told_from_decoys() -> None:
    """A name that asks for other iterations than every decoy would be a user's."""
    salted = make_credential(ScramMechanism.SHA_256, "p", salt=b"a longer salt than others", iterations=4096)
    slow = make_credential(ScramMechanism.SHA_256, "p", salt=b"salt", iterations=8192)
    found = lookup(image(alice=credential(), bob=salted, carol=slow))
    shapes = {(len(each.salt), each.iterations) for each in (found.decoy(f"user-{n}") for n in range(100))}
    assert {(len(each.salt), each.iterations) for each in (credential(), salted, slow)} == shapes
    assert found.decoy("x") == found.decoy("x")
