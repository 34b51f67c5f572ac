"""Logins of registry clients at a real broker: clients with wrong passwords do not keep others out, and are logged."""

import asyncio
import logging
from base64 import b64encode
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ottla import AsyncAdmin, UserScramCredentialUpsertion
from ottla.broker.broker import Broker
from ottla.broker.configs.configuration import BrokerConfig
from ottla.registry.service.authorization import Client
from ottla.registry.service.cluster_access import ClusterAccess
from ottla.registry.state.errors import RegistryError
from ottla.security.security_protocol import SecurityProtocol
from ottla.transport.addresses import Address
from ottla.transport.client_security import ClientSecurity, sasl_login

FAILURE_DELAY_MS = 300
"""How long a broker keeps a wrong login, and so a place."""
ATTACKER, NEIGHBOUR = "192.0.2.66", "192.0.2.7"


def client(user: str, password: str, host: str = NEIGHBOUR) -> Client:
    return Client(host=host, authorization=f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}")


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def access(tmp_path: Path, clock: Clock) -> AsyncIterator[ClusterAccess]:
    settings = {
        "log.dirs": str(tmp_path / "data"),
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "connection.failed.authentication.delay.ms": str(FAILURE_DELAY_MS),
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
    }
    async with Broker(BrokerConfig.parse(settings=settings)) as broker:
        ports = {each.name: each.port for each in broker.endpoints}
        async with AsyncAdmin(bootstrap_servers=f"127.0.0.1:{ports['PLAINTEXT']}") as admin:
            await admin.alter_user_scram_credentials(
                [UserScramCredentialUpsertion("alice", "SCRAM-SHA-512", "alice's")]
            )
        own = sasl_login("SCRAM-SHA-512", username="registry", password="registry's")
        security = ClientSecurity(security_protocol=SecurityProtocol.SASL_PLAINTEXT, sasl=own)
        yield ClusterAccess([Address("127.0.0.1", ports["SASL_PLAINTEXT"])], security, now=clock.now)


async def status(access: ClusterAccess, asking: Client) -> int:
    try:
        await access.identify(asking)
    except RegistryError as error:
        return error.status
    return 200


def guesses(access: ClusterAccess, host: str = ATTACKER, count: int = 90) -> "list[asyncio.Task[int]]":
    return [asyncio.create_task(status(access, client("alice", f"guess {number}", host))) for number in range(count)]


async def test_wrong_passwords_of_one_address_do_not_keep_others_out(access: ClusterAccess) -> None:
    guessing = guesses(access)
    await asyncio.sleep(0)
    assert 200 == await status(access, client("alice", "alice's"))
    assert {401: 16, 429: 74} == Counter(await asyncio.gather(*guessing))


async def test_a_login_that_was_accepted_before_is_not_kept_out_from_the_same_address(
    access: ClusterAccess, clock: Clock
) -> None:
    assert 200 == await status(access, client("alice", "alice's", ATTACKER))
    clock.seconds += 3_600  # it has to be tried again
    guessing = guesses(access)
    await asyncio.sleep(0)
    assert 200 == await status(access, client("alice", "alice's", ATTACKER))
    await asyncio.gather(*guessing)


async def test_many_requests_with_the_same_login_are_one_try(access: ClusterAccess) -> None:
    asking = [status(access, client("alice", "alice's")) for _ in range(200)]
    assert [200] * 200 == await asyncio.gather(*asking)


async def test_a_refused_login_is_logged_with_address_and_user(
    access: ClusterAccess, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert 401 == await status(access, client("mallory\n", "secret", ATTACKER))
        assert 401 == await status(access, Client(host=NEIGHBOUR, authorization="Basic !"))
        assert 401 == await status(access, client("mallory", "secret", ATTACKER))
        assert 401 == await status(access, Client(host=NEIGHBOUR))  # how a client finds out that it has to log in
        clock.seconds += 61
        assert 401 == await status(access, client("bob", "secret", ATTACKER))
    broker = "broker 127.0.0.1:"
    lines = [each.getMessage() for each in caplog.records if each.name.startswith("ottla.transport.refusal_log")]
    first, malformed, later = (line for line in lines if not line.startswith("closed connection"))
    assert first.startswith(f"refused request from {ATTACKER}: login of user 'mallory\\n': {broker}")
    assert f"refused request from {NEIGHBOUR}: login: its Basic credentials are not valid base64 of UTF-8" == malformed
    more = f"refused request from {ATTACKER} (and 1 more requests from {ATTACKER} in the last 61 s)"
    assert later.startswith(f"{more}: login of user 'bob': {broker}")
    assert "secret" not in caplog.text
