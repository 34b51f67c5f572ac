"""Users and delegation tokens of the metadata store, and the users that `ottla serve --add-scram` creates."""

from dataclasses import replace

import pytest

from ottla.broker.logins.scram_users import ScramLookup
from ottla.metadata.image import ClusterImage
from ottla.security.delegation_token import TokenInfo, token_password
from ottla.security.principals import Principal
from ottla.security.sasl.scram import FoundLogin
from ottla.security.scram_credential import ScramCredential, ScramMechanism, is_password, make_credential

ALICE = Principal("User", "alice")
MECHANISM = ScramMechanism.SHA_256
TOKEN = TokenInfo(id="token", owner=ALICE, requester=ALICE, renewers=(), issued_ms=0, expiry_ms=1000, max_ms=2000)


def credential(salt: bytes = b"salt", iterations: int = 4096) -> ScramCredential:
    return make_credential(MECHANISM, "secret", salt=salt, iterations=iterations)


def lookup(image: ClusterImage, secret_key: str | None = "key") -> ScramLookup:
    return ScramLookup(MECHANISM, lambda: image, lambda: secret_key)


def image(secret: bytes = b"secret", **users: ScramCredential) -> ClusterImage:
    credentials = {(MECHANISM, name): each for name, each in users.items()}
    tokens = {"token": TOKEN}
    return replace(ClusterImage(), scram_credentials=credentials, delegation_tokens=tokens, login_secret=secret)


def found(image: ClusterImage, name: str, *, is_token: bool = False, now_ms: int = 0) -> FoundLogin:
    return lookup(image).find(name, is_token, now_ms)


def test_users() -> None:
    users = image(alice=credential())
    assert (credential(), (ALICE, None, False)) == found(users, "alice")
    assert found(users, "mallory").identity is None


def test_decoys_look_like_users_are_stable_and_differ_by_name() -> None:
    """On every broker, and after every restart: otherwise two attempts would tell who exists."""
    users = image(alice=credential(b"a salt of some length", 8192))
    decoy = found(users, "mallory").credential

    assert decoy == found(users, "mallory").credential
    assert decoy.salt != found(users, "trudy").credential.salt
    assert (21, 8192, 32, 32) == (
        len(decoy.salt),
        decoy.iterations,
        len(decoy.stored_key),
        len(decoy.server_key),
    )


def test_decoys_cannot_be_computed_by_clients() -> None:
    users = {"alice": credential()}
    assert found(image(b"one", **users), "x") != found(image(b"other", **users), "x")
    # A store without a secret: each broker has its own.
    assert found(image(b"", **users), "x") != found(image(b"", **users), "x")


def test_decoys_stay_when_other_users_change() -> None:
    weak = replace(credential(b"s" * 40), iterations=4095)
    images = [
        image(mallory=credential()),
        image(alice=credential(b"talk")),
        image(alice=credential(), bob=credential()),
        image(alice=credential(), weak=weak),
    ]
    assert 1 == len({(found(each, "x").credential.salt, found(each, "x").credential.iterations) for each in images})


@pytest.mark.parametrize("is_token", [False, True])
def test_a_salt_is_that_of_the_name(is_token: bool) -> None:
    """Whatever it is the name of, and whatever it is used for."""
    for users in (image(alice=credential()), image(alice=credential(b"other", 8192)), image(token=credential(b"salt"))):
        for name in ("alice", "token", "mallory"):
            one, other = (found(users, name, is_token=is_token, now_ms=now_ms).credential for now_ms in (0, 1000))
            user = found(users, name).credential
            assert {(user.salt, user.iterations)} == {(each.salt, each.iterations) for each in (one, other)}


def test_tokens() -> None:
    for users in (image(), image(alice=credential(b"other", 8192)), image(token=credential(b"salt"))):
        login = found(users, "token", is_token=True, now_ms=999)
        assert (ALICE, 1000, True) == login.identity
        assert is_password(MECHANISM, login.credential, token_password("key", "token"))
        assert login == found(users, "token", is_token=True, now_ms=999)


def test_a_token_follows_the_shape_of_its_name() -> None:
    """Its credential is kept, but not for longer than the salt of its name stays."""
    images = [image(), image(token=credential(b"salt", 8192)), image()]
    logins = ScramLookup(MECHANISM, lambda: images[0], lambda: "key")
    shapes = []
    while images:
        credentials = logins.find("token", True, 0).credential
        assert is_password(MECHANISM, credentials, token_password("key", "token"))
        shapes.append((credentials.salt, credentials.iterations))
        del images[0]
    assert (b"salt", 8192) == shapes[1]
    assert shapes[0] == shapes[2] != shapes[1]


@pytest.mark.parametrize(
    ("token_id", "now_ms", "secret_key"), [("token", 1000, "key"), ("other", 0, "key"), ("token", 0, None)]
)
def test_tokens_that_are_not_accepted(token_id: str, now_ms: int, secret_key: str | None) -> None:
    """Expired, unknown, and without delegation.token.secret.key."""
    assert lookup(image(), secret_key).find(token_id, True, now_ms).identity is None


def test_a_user_is_not_a_token_and_a_token_not_a_user() -> None:
    users = image(alice=credential())
    assert (None, None) == (found(users, "alice", is_token=True).identity, found(users, "token").identity)


def test_a_credential_with_few_iterations_is_not_used() -> None:
    weak = ScramCredential(b"salt", b"k" * 32, b"k" * 32, 100)
    login = found(image(alice=weak), "alice")
    assert (26, 4096, None) == (len(login.credential.salt), login.credential.iterations, login.identity)


def test_users_with_other_iterations_and_salts_cannot_be_told_from_decoys() -> None:
    """A name that asks for other iterations than every decoy would be a user's."""
    salted = make_credential(ScramMechanism.SHA_256, "p", salt=b"a longer salt than others", iterations=4096)
    slow = make_credential(ScramMechanism.SHA_256, "p", salt=b"salt", iterations=8192)

    def shapes(image: ClusterImage) -> list[tuple[int, int]]:
        decoys = (found(image, f"user-{n}").credential for n in range(100))
        return [(len(each.salt), each.iterations) for each in decoys]

    two = shapes(image(alice=credential(), bob=salted))
    three = shapes(image(alice=credential(), bob=salted, carol=slow))
    assert {(len(each.salt), each.iterations) for each in (credential(), salted, slow)} == set(three)
    changed = {shape for shape, before in zip(three, two, strict=True) if shape != before}
    assert {(4, 8192)} == changed, "the others do not show that there is another user"
