"""SCRAM between this package and itself, another library as the judge, and the RFC's own messages; and every way to
cheat that has hurt others."""

import base64
import hashlib
import hmac
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scramp import ScramClient as OtherClient
from scramp import ScramMechanism as OtherMechanism

from ottla.security.principals import Principal
from ottla.security.sasl.authentication_error import AuthenticationError
from ottla.security.sasl.broker_mechanism import Identity
from ottla.security.sasl.scram import FoundLogin, ScramLogin
from ottla.security.sasl.scram_client import ScramClient
from ottla.security.sasl.scram_decoys import decoy_credential
from ottla.security.scram_credential import ScramCredential, ScramMechanism, make_credential

ALICE = Principal("User", "alice")
NOW_MS = 1_000_000


def nonces(text: str = "nonce") -> Callable[[], str]:
    numbers = count()
    return lambda: f"{text}{next(numbers)}"


def server(
    mechanism: ScramMechanism,
    users: dict[str, ScramCredential],
    tokens: dict[str, FoundLogin] | None = None,
    nonce: str = "server",
) -> ScramLogin:
    def find(name: str, is_token: bool, now_ms: int) -> FoundLogin:
        decoy = FoundLogin(decoy_credential(mechanism, name, secret=b"secret"), None)
        if is_token:
            return (tokens or {}).get(name, decoy)
        return FoundLogin(users[name], Identity(Principal("User", name))) if name in users else decoy

    return ScramLogin(mechanism, find, new_nonce=nonces(nonce))


def credential(mechanism: ScramMechanism, password: str = "secret") -> ScramCredential:
    return make_credential(mechanism, password, salt=b"the salt of twenty-six by", iterations=4096)


def log_in(client: ScramClient, broker: ScramLogin) -> Identity:
    challenge = broker.step(client.first(), NOW_MS)
    assert challenge.identity is None
    final = client.next(challenge.reply)
    assert final is not None
    outcome = broker.step(final, NOW_MS)
    assert client.next(outcome.reply) is None
    assert outcome.identity is not None
    return outcome.identity


@pytest.mark.parametrize("mechanism", ScramMechanism)
@pytest.mark.parametrize("name", ["alice", "a,b=c", "=2C", "CN=x,OU=y"])
def test_both_sides_agree(mechanism: ScramMechanism, name: str) -> None:
    client = ScramClient(mechanism, name, "secret", new_nonce=nonces("client"))

    found = log_in(client, server(mechanism, {name: credential(mechanism)}))

    assert Identity(Principal("User", name)) == found


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_another_library_logs_in(mechanism: ScramMechanism) -> None:
    broker = server(mechanism, {"alice": credential(mechanism)})
    client = OtherClient([mechanism.value], "alice", "secret")
    challenge = broker.step(client.get_client_first().encode(), NOW_MS)
    client.set_server_first(challenge.reply.decode())
    outcome = broker.step(client.get_client_final().encode(), NOW_MS)
    client.set_server_final(outcome.reply.decode())

    assert Identity(ALICE) == outcome.identity


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_another_library_accepts_our_client(mechanism: ScramMechanism) -> None:
    other = OtherMechanism(mechanism.value)
    names: list[str] = []

    def find(name: str) -> Any:
        names.append(name)
        return other.make_auth_info("secret")

    broker = other.make_server(find)
    client = ScramClient(mechanism, "alice", "secret", new_nonce=nonces("client"))
    broker.set_client_first(client.first().decode())
    final = client.next(broker.get_server_first().encode())
    assert final is not None
    broker.set_client_final(final.decode())

    assert client.next(broker.get_server_final().encode()) is None
    assert ["alice"] == names


def test_the_messages_of_rfc_7677() -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    users = {"user": make_credential(ScramMechanism.SHA_256, "pencil", salt=salt, iterations=4096)}
    broker = ScramLogin(
        ScramMechanism.SHA_256,
        lambda name, is_token, now_ms: FoundLogin(users[name], Identity(Principal("User", name))),
        new_nonce=lambda: "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
    )

    first = broker.step(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO", NOW_MS)
    final = broker.step(
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        NOW_MS,
    )

    assert b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096" == first.reply
    assert b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=" == final.reply


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_a_wrong_password_is_refused(mechanism: ScramMechanism) -> None:
    client = ScramClient(mechanism, "alice", "wrong", new_nonce=nonces("client"))

    with pytest.raises(AuthenticationError, match="invalid credentials"):
        log_in(client, server(mechanism, {"alice": credential(mechanism)}))


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_unknown_users_cannot_be_told_from_wrong_passwords(mechanism: ScramMechanism) -> None:
    """The same kinds of messages, the same salt at each attempt, and the same error at the same time."""
    users = {"alice": credential(mechanism)}

    def attempt(name: str) -> tuple[str, str]:
        broker = server(mechanism, users)
        client = ScramClient(mechanism, name, "wrong", new_nonce=nonces("client"))
        first = broker.step(client.first(), NOW_MS).reply
        final = client.next(first)
        assert final is not None
        with pytest.raises(AuthenticationError) as error:
            broker.step(final, NOW_MS)
        return first.decode(), str(error.value)

    known, unknown, again, other = (attempt(name) for name in ("alice", "mallory", "mallory", "mallory2"))

    assert known[1] == unknown[1]
    assert unknown == again
    assert unknown[0] != other[0], "each name has its own salt"
    assert len(known[0]) == len(unknown[0])
    assert known[0].rpartition(",i=")[2] == unknown[0].rpartition(",i=")[2]


def test_the_decoy_of_an_unknown_user_never_logs_in() -> None:
    """Not even a client that knows the decoy's keys: the login of an unknown user fails at its end."""
    mechanism = ScramMechanism.SHA_256
    known = credential(mechanism)
    broker = ScramLogin(
        mechanism,
        lambda name, is_token, now_ms: FoundLogin(known, None),
        new_nonce=nonces("server"),
    )

    with pytest.raises(AuthenticationError, match="invalid credentials"):
        log_in(ScramClient(mechanism, "mallory", "secret", new_nonce=nonces("client")), broker)


@pytest.mark.parametrize(
    "change",
    [lambda nonce: nonce + "x", lambda nonce: nonce[:-1], lambda nonce: "client0", lambda nonce: nonce.upper()],
)
def test_another_nonce_is_refused_even_with_a_correct_proof(change: Callable[[str], str]) -> None:
    """The nonce is compared, not only covered by the proof: an old exchange cannot be replayed."""
    mechanism = ScramMechanism.SHA_256
    known = credential(mechanism)
    broker = server(mechanism, {"alice": known})
    first = broker.step(b"n,,n=alice,r=client0", NOW_MS).reply.decode()
    nonce = change(first.partition(",")[0].removeprefix("r="))
    bare = f"c=biws,r={nonce}"
    salted = hashlib.pbkdf2_hmac("sha256", b"secret", known.salt, 4096)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    signature = hmac.digest(known.stored_key, f"n=alice,r=client0,{first},{bare}".encode(), "sha256")
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True))).decode()

    with pytest.raises(AuthenticationError, match="invalid credentials"):
        broker.step(f"{bare},p={proof}".encode(), NOW_MS)


def test_a_recorded_login_cannot_be_replayed() -> None:
    mechanism = ScramMechanism.SHA_512
    users = {"alice": credential(mechanism)}
    client = ScramClient(mechanism, "alice", "secret", new_nonce=nonces("client"))
    broker = server(mechanism, users)
    first = client.first()
    final = client.next(broker.step(first, NOW_MS).reply)
    assert final is not None
    broker.step(final, NOW_MS)
    later = server(mechanism, users, nonce="later")
    later.step(first, NOW_MS)

    with pytest.raises(AuthenticationError, match="invalid credentials"):
        later.step(final, NOW_MS)


@pytest.mark.parametrize(
    "message",
    [
        b"n,a=bob,n=alice,r=x",
        b"n,,n=alice,n=bob,r=x",
        b"n,,n=alice,r=x,n=bob",
        b"n,,m=ext,n=alice",
        b"y,,n=alice,r=x",
        b"p=tls-unique,,n=alice,r=x",
        b"n,,n=,r=x",
        b"n,,n=alice,r=",
        b"n,,n=al=ice,r=x",
        "n,,n=älice,r=x".encode(),
        b"n,,n=alice\0,r=x",
        b"n,,n=alice,r=a b",
        b"n,,n=alice,r=x,tokenauth=false,tokenauth=true",
        b"n,,n=alice,r=" + b"x" * 20_000,
        b"",
        b"\xff\xfe",
    ],
)
def test_crafted_first_messages_do_not_change_the_user(message: bytes) -> None:
    """A message that could be read in two ways is refused, or is alice's."""
    broker = server(ScramMechanism.SHA_256, {"alice": credential(ScramMechanism.SHA_256)})
    try:
        broker.step(message, NOW_MS)
    except AuthenticationError:
        with pytest.raises(AuthenticationError):
            broker.step(b"n,,n=alice,r=x", NOW_MS)
    else:
        assert message == b"n,,n=alice,r=x,n=bob", "an unknown extension is ignored"


def test_the_authorization_id_may_be_the_name() -> None:
    broker = server(ScramMechanism.SHA_256, {"alice": credential(ScramMechanism.SHA_256)})

    assert b"r=x" == broker.step(b"n,a=alice,n=alice,r=x", NOW_MS).reply[:3]


def test_a_login_with_a_token_is_its_owners() -> None:
    mechanism = ScramMechanism.SHA_512
    owner = Identity(ALICE, expires_ms=NOW_MS + 5000, is_token_login=True)
    tokens = {"token-id": FoundLogin(credential(mechanism, "aG1hYw=="), owner)}
    client = ScramClient(mechanism, "token-id", "aG1hYw==", new_nonce=nonces("client"), is_token=True)

    assert owner == log_in(client, server(mechanism, {}, tokens))


def test_a_token_is_not_a_user_and_a_user_is_not_a_token() -> None:
    mechanism = ScramMechanism.SHA_512
    tokens = {"token-id": FoundLogin(credential(mechanism), Identity(ALICE, is_token_login=True))}
    users = {"alice": credential(mechanism)}
    for name, is_token in (("token-id", False), ("alice", True)):
        client = ScramClient(mechanism, name, "secret", new_nonce=nonces("client"), is_token=is_token)
        with pytest.raises(AuthenticationError, match="invalid credentials"):
            log_in(client, server(mechanism, users, tokens))


@given(st.binary(max_size=200))
def test_no_bytes_break_the_broker(message: bytes) -> None:
    broker = server(ScramMechanism.SHA_256, {"alice": credential(ScramMechanism.SHA_256)})
    for _ in range(2):
        with suppress(AuthenticationError):
            assert broker.step(message, NOW_MS).identity is None


class TestClient:
    """What a client does not accept of a broker."""

    def client(self) -> ScramClient:
        return ScramClient(ScramMechanism.SHA_256, "alice", "secret", new_nonce=lambda: "mine")

    @pytest.mark.parametrize(
        ("challenge", "complaint"),
        [
            (b"r=other,s=c2FsdA==,i=4096", "nonce"),
            (b"r=mine,s=c2FsdA==,i=4096", "nonce"),
            (b"r=mineX,s=c2FsdA==,i=4095", "iterations"),
            (b"r=mineX,s=c2FsdA==,i=999999999", "iterations"),
            (b"r=mineX,s=!,i=4096", "malformed"),
            (b"e=other-error", "malformed"),
            (b"", "malformed"),
        ],
    )
    def test_bad_challenges(self, challenge: bytes, complaint: str) -> None:
        with pytest.raises(AuthenticationError, match=complaint):
            self.client().next(challenge)

    def test_a_broker_that_does_not_know_the_password(self) -> None:
        client = self.client()
        client.next(b"r=mineX,s=c2FsdA==,i=4096")

        with pytest.raises(AuthenticationError, match="could not prove"):
            client.next(b"v=" + base64.b64encode(b"x" * 32))

    def test_an_error_of_the_broker(self) -> None:
        client = self.client()
        client.next(b"r=mineX,s=c2FsdA==,i=4096")

        with pytest.raises(AuthenticationError, match="invalid-proof"):
            client.next(b"e=invalid-proof")

    def test_a_broker_that_skips_its_proof(self) -> None:
        client = self.client()
        client.next(b"r=mineX,s=c2FsdA==,i=4096")

        with pytest.raises(AuthenticationError, match="malformed"):
            client.next(b"")
