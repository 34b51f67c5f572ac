"""Every client logs in, in every way that it can, over TLS; with a wrong secret it is told so."""

import re
import time
from collections.abc import Iterator

import pytest

from tests.compat.clients.catalogue import BY_NAME, NAMES
from tests.compat.clients.foreign_client import ClientError, ForeignClient, Login, Sent
from tests.compat.clients.secured_broker import LOGINS, SecuredBroker, secured_broker

REFUSED_SECONDS_MAX = 20
REFUSED_LOGIN = "(?i)sasl.?authentication"
UNTOLD = {"kafka-python": f"{REFUSED_LOGIN}|socket disconnected"}
"""It forgets what it received if the connection was closed behind it."""
UNTOLD_TOKENS = {
    **UNTOLD,
    "aiokafka": "Connection at .* closed",
    "franz-go": "unexpected data in oauth response",
    "kafkajs": "Closed connection",
}
"""Clients that do not ask why a token is refused: a broker says so only after the client's next message."""
TOPIC_AUTHORIZATION_FAILED = 29


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with secured_broker(tmp_path_factory.mktemp("secured")) as broker:
        yield broker


@pytest.fixture(scope="module", params=NAMES)
def client(
    request: pytest.FixtureRequest, secured: SecuredBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ForeignClient]:
    program = BY_NAME[request.param].start(secured.bootstrap, tmp_path_factory.mktemp("client") / "log")
    yield program
    program.close()


def round_trip(client: ForeignClient, login: Login) -> None:
    value = f"{client.name} {login.protocol} {login.mechanism} {login.certificate}".encode()
    ((_, offset),) = client.send("alice-topic", [Sent(value=value)], login=login)
    with client.consumer("alice-topic", {0: offset}, login=login) as consumer:
        (read,) = consumer.poll(1)
    assert value == read.value


@pytest.mark.parametrize("kind", LOGINS)
def test_a_client_produces_and_consumes(client: ForeignClient, secured: SecuredBroker, kind: str) -> None:
    round_trip(client, secured.login(kind))


def refusal(client: ForeignClient, login: Login) -> str:
    """What the client said and logged when it could not connect."""
    known = len(client.log_text())
    began = time.monotonic()
    with pytest.raises(ClientError) as refused:
        client.send("alice-topic", [Sent(value=b"x")], login=login)
    assert time.monotonic() - began < REFUSED_SECONDS_MAX
    return f"{refused.value}\n{client.log_text()[known:]}"


@pytest.mark.parametrize("kind", ["PLAIN", "SCRAM-SHA-512", "OAUTHBEARER"])
def test_a_wrong_secret(client: ForeignClient, secured: SecuredBroker, kind: str) -> None:
    told = refusal(client, secured.with_wrong_secret(kind))
    untold = UNTOLD_TOKENS if kind == "OAUTHBEARER" else UNTOLD
    assert re.search(untold.get(client.name, REFUSED_LOGIN), told), told


def test_a_broker_that_is_not_trusted(client: ForeignClient, secured: SecuredBroker) -> None:
    told = refusal(client, secured.with_other_authority())
    assert re.search("(?i)certificate", told), told


def test_a_topic_of_others(client: ForeignClient, secured: SecuredBroker) -> None:
    with pytest.raises(ClientError) as refused:
        client.send("secret", [Sent(value=b"x")], login=secured.login("SCRAM-SHA-256"))
    assert TOPIC_AUTHORIZATION_FAILED == refused.value.code
