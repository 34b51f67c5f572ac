"""OAUTHBEARER: its messages, and the two steps of a refusal."""

import asyncio

import pytest

from ottla.security.principals import Principal
from ottla.security.sasl.authentication_error import AuthenticationError
from ottla.security.sasl.broker_mechanism import Identity, Step
from ottla.security.sasl.jwt_validation import BadTokenError, VerifiedToken
from ottla.security.sasl.oauthbearer import OAuthBearerLogin
from ottla.security.sasl.oauthbearer_client import OAuthBearerClient


def verify(token: str, now_ms: int) -> VerifiedToken:
    if token != "good":
        raise BadTokenError("it is bad")
    return VerifiedToken("alice", now_ms + 1000, frozenset())


def server() -> OAuthBearerLogin:
    return OAuthBearerLogin(verify)


ACCEPTED = Step(b"", Identity(Principal("User", "alice"), expires_ms=1005))


@pytest.mark.parametrize(
    "message",
    [
        b"n,,\x01auth=Bearer good\x01\x01",
        b"n,a=alice,\x01auth=bearer  good\x01\x01",
        b"n,,\x01traceId=1 2\x01auth=Bearer good\x01logical=x\x01\x01",
    ],
)
def test_a_good_token(message: bytes) -> None:
    assert ACCEPTED == server().step(message, 5)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,\x01\x01",
        b"n,,\x01auth=good\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Bearer good\x01",
        b"n,,\x01auth=Bearer good\x01auth=Bearer good\x01\x01",
        b"n,,\x01auth=Bearer good\x01trace-id=1\x01\x01",
        b"n,,\x01auth=Bearer good\x01a1=1\x01\x01",
        b"n,,\x01auth=Bearer g\xc3\xb6od\x01\x01",
        b"y,,\x01auth=Bearer good\x01\x01",
        b"n,a=bob,\x01auth=Bearer good\x01\x01",
        b"n,,\x01auth=Bearer good\x01\x01extra",
    ],
)
def test_crafted_messages_are_refused(message: bytes) -> None:
    with pytest.raises(AuthenticationError):
        server().step(message, 5)


def test_a_bad_token_is_told_and_then_fails() -> None:
    refusing = server()

    assert Step(b'{"status":"invalid_token"}') == refusing.step(b"n,,\x01auth=Bearer bad\x01\x01", 5)
    with pytest.raises(AuthenticationError, match="it is bad"):
        refusing.step(b"\x01", 5)


def test_a_good_token_after_a_bad_one_is_refused() -> None:
    refusing = server()
    refusing.step(b"n,,\x01auth=Bearer bad\x01\x01", 5)

    with pytest.raises(AuthenticationError):
        refusing.step(b"n,,\x01auth=Bearer good\x01\x01", 5)
    with pytest.raises(AuthenticationError):
        refusing.step(b"n,,\x01auth=Bearer good\x01\x01", 5)


async def late() -> str:
    await asyncio.sleep(0)
    return "good"


@pytest.mark.parametrize("provider", [lambda: "good", late])
async def test_the_client_asks_its_provider(provider: object) -> None:
    client = OAuthBearerClient(provider, extensions={"traceId": "1"})  # type: ignore[arg-type]
    await client.prepare()
    assert client.next(b"") is None
    assert ACCEPTED == server().step((client.first()), 5)


async def test_the_client_is_told_of_a_refusal() -> None:
    client = OAuthBearerClient(lambda: "bad")
    await client.prepare()

    assert b"\x01" == client.next(server().step(client.first(), 5).reply)
    with pytest.raises(AuthenticationError, match="invalid_token"):
        client.next(b"")


@pytest.mark.parametrize("token", ["", "a b", "x\x01", None])
async def test_what_a_provider_may_not_return(token: str) -> None:
    with pytest.raises(AuthenticationError):
        await OAuthBearerClient(lambda: token).prepare()


@pytest.mark.parametrize("extensions", [{"auth": "x"}, {"a-b": "x"}, {"a": "x\x01auth=Bearer y"}])
def test_extensions_cannot_carry_other_fields(extensions: dict[str, str]) -> None:
    with pytest.raises(AuthenticationError):
        OAuthBearerClient(lambda: "good", extensions=extensions)
