"""PLAIN: exactly three parts, and the user that is named is the user that logs in."""

import pytest

from ottla.security.principals import Principal
from ottla.security.sasl.authentication_error import AuthenticationError
from ottla.security.sasl.broker_mechanism import Identity, Step
from ottla.security.sasl.client import PlainClient
from ottla.security.sasl.plain import PlainLogin

USERS = {"alice": "secret", "bob": "pässwörd", "empty": ""}


@pytest.mark.parametrize("message", [b"\0alice\0secret", b"alice\0alice\0secret"])
def test_a_login(message: bytes) -> None:
    assert Step(b"", Identity(Principal("User", "alice"))) == PlainLogin(USERS).step(message, 0)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\0\0",
        b"\0alice\0",
        b"\0\0secret",
        b"\0alice\0wrong",
        b"\0alice\0secret\0",
        b"\0\0alice\0secret",
        b"alice\0secret",
        b"bob\0alice\0secret",
        b"\0Alice\0secret",
        b"\0alice \0secret",
        b"\0alice\0secret\n",
        b"\0mallory\0secret",
        b"\0empty\0\0",
        b"\0empty\0",
        b"\0alice\0\xff",
        b"\xff\0alice\0secret",
    ],
)
def test_crafted_messages_are_refused(message: bytes) -> None:
    """None of them logs in, as alice or as another user."""
    with pytest.raises(AuthenticationError):
        PlainLogin(USERS).step(message, 0)


def test_an_unknown_user_gets_the_error_of_a_wrong_password() -> None:
    errors = []
    for message in (b"\0alice\0wrong", b"\0mallory\0wrong"):
        with pytest.raises(AuthenticationError) as error:
            PlainLogin(USERS).step(message, 0)
        errors.append(str(error.value))

    assert errors[0] == errors[1]
    assert "wrong" not in errors[0]


def test_there_is_one_attempt() -> None:
    server = PlainLogin(USERS)
    with pytest.raises(AuthenticationError):
        server.step(b"\0alice\0wrong", 0)

    with pytest.raises(AuthenticationError):
        server.step(b"\0alice\0secret", 0)


def test_the_client() -> None:
    client = PlainClient("bob", "pässwörd")

    assert PlainLogin(USERS).step(client.first(), 0).identity is not None
    assert client.next(b"") is None
    with pytest.raises(AuthenticationError):
        client.next(b"more")


@pytest.mark.parametrize(("name", "password"), [("", "x"), ("x", ""), ("a\0b", "x"), ("x", "a\0b")])
def test_what_a_client_cannot_send(name: str, password: str) -> None:
    with pytest.raises(AuthenticationError):
        PlainClient(name, password)
