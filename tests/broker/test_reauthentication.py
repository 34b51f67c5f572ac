"""Sessions of a login that end: our clients log in again before, with requests in flight and at work."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ottla import AsyncAdmin, NewTopic
from ottla.broker.broker import Broker
from ottla.broker.configs.configuration import BrokerConfig
from ottla.env.real_disk import RealDisk
from ottla.env.real_network import RealNetwork
from ottla.env.world import real_world
from ottla.model.errors import OttlaError
from ottla.protocol.apis import ApiKey
from ottla.security.sasl.client import PlainClient
from ottla.security.security_protocol import SecurityProtocol
from ottla.transport.addresses import Address
from ottla.transport.client_connection import SILENCE_SECONDS, Connection, ConnectionLostError, seconds_until_login
from ottla.transport.client_security import ClientSecurity, sasl_login
from tests.broker.inside import connections
from tests.broker.metric_samples import value_of
from tests.broker.moved_clock import MovedClock
from tests.broker.secured import Secured

SESSION_SECONDS = 200
NEARLY_SECONDS = 185
"""So much later the client has to log in again, and has some time left for it."""


class CountedLogins:
    """Logs in as alice, and counts how often."""

    def __init__(self) -> None:
        self.count = 0
        self.password = "alice-pw"

    def __call__(self) -> PlainClient:
        self.count += 1
        return PlainClient("alice", self.password)


@asynccontextmanager
async def running(secured: Secured, clock: MovedClock | None = None) -> AsyncIterator[Broker]:
    sessions = {"connections_max_reauth_ms": str(SESSION_SECONDS * 1000)}
    configs = {"log.dirs": str(secured.folder / "data"), **secured.broker("SASL_PLAINTEXT", **sessions)}
    disk = RealDisk()
    world = replace(real_world(), disk=disk, clock=clock or MovedClock())
    try:
        async with Broker(BrokerConfig.parse(settings=configs), world=world) as broker:
            yield broker
    finally:
        disk.close()


async def connected(broker: Broker, logins: Any) -> Connection:
    security = ClientSecurity(security_protocol=SecurityProtocol.SASL_PLAINTEXT, sasl=logins)
    address = Address("127.0.0.1", broker.advertised[1])
    return await Connection.open(RealNetwork(), address, client_id="test", timeout_ms=10_000, security=security)


async def ask(connection: Connection) -> Any:
    from kio.schema.metadata.v13.request import MetadataRequest

    request = MetadataRequest(topics=None, allow_auto_topic_creation=False, include_topic_authorized_operations=False)
    # Longer than any test moves the time by.
    return await connection.request(ApiKey.METADATA, request, timeout_ms=3_600_000)


async def test_client_logs_in_again_before_its_session_ends(tmp_path: Path) -> None:
    clock = MovedClock()
    async with running(Secured(tmp_path), clock) as broker:
        logins = CountedLogins()
        connection = await connected(broker, logins)
        for count in range(1, 5):
            assert count == logins.count
            # Several at once: some are in flight, and some wait for the login.
            asking = [asyncio.create_task(ask(connection)) for _ in range(5)]
            await asyncio.sleep(0)
            assert 5 == connection.in_flight
            clock.move(NEARLY_SECONDS)
            asking += [asyncio.create_task(ask(connection)) for _ in range(5)]
            await asyncio.gather(*asking)
        assert ["User:alice"] == [str(client.principal) for client in connections(broker)]
        connection.close()


async def test_idle_client_logs_in_again_at_its_next_request(tmp_path: Path) -> None:
    clock = MovedClock()
    async with running(Secured(tmp_path), clock) as broker:
        logins = CountedLogins()
        connection = await connected(broker, logins)
        clock.move(NEARLY_SECONDS)
        answers = await asyncio.gather(*(ask(connection) for _ in range(5)))
        assert 2 == logins.count
        assert 5 == len(answers)
        connection.close()


@pytest.mark.both_loops
async def test_requests_that_wait_for_a_slow_login_are_all_sent(tmp_path: Path) -> None:
    """The timers of uvloop differ from asyncio's when their time has passed."""

    class SlowLogin(PlainClient):
        async def prepare(self) -> None:
            await asyncio.sleep(SILENCE_SECONDS + 0.2)

    async with running(Secured(tmp_path)) as broker:
        connection = await connected(broker, lambda: SlowLogin("alice", "alice-pw"))
        connection._login_at = 0.0
        async with asyncio.timeout(60):
            assert 5 == len(await asyncio.gather(*(ask(connection) for _ in range(5))))
        assert 0 == connection.in_flight
        connection.close()


async def test_failed_login_fails_all_that_wait(tmp_path: Path) -> None:
    clock = MovedClock()
    async with running(Secured(tmp_path), clock) as broker:
        logins = CountedLogins()
        connection = await connected(broker, logins)
        logins.password = "wrong"
        clock.move(NEARLY_SECONDS)
        outcomes = await asyncio.gather(*(ask(connection) for _ in range(5)), return_exceptions=True)
        assert all(isinstance(each, ConnectionLostError) for each in outcomes)
        assert all("the re-authentication failed" in str(each) for each in outcomes)
        assert connection.is_closed
        assert 0 == connection.in_flight


async def test_provider_that_raises_fails_the_connection(tmp_path: Path) -> None:
    async with running(Secured(tmp_path)) as broker:
        connection = await connected(broker, CountedLogins())

        def broken() -> str:
            raise ValueError("no token today")

        connection._security = ClientSecurity(
            security_protocol=SecurityProtocol.SASL_PLAINTEXT, sasl=sasl_login("OAUTHBEARER", token_provider=broken)
        )
        connection._login_at = 0.0
        with pytest.raises(ConnectionLostError, match="no token today"):
            await ask(connection)


async def test_clients_work_across_sessions(tmp_path: Path) -> None:
    secured = Secured(tmp_path)
    clock = MovedClock()
    async with running(secured, clock) as broker:
        options = {"bootstrap_servers": f"127.0.0.1:{broker.advertised[1]}", **secured.client("SASL_PLAINTEXT")}
        async with AsyncAdmin(**options) as admin:
            for number in range(4):
                await admin.create_topics([NewTopic(f"t{number}", 1)])
                clock.move(NEARLY_SECONDS)
            assert 4 == len(await admin.list_topics())
        assert 5 <= value_of(
            broker, "ottla_logins_total", listener="SASL_PLAINTEXT", mechanism="PLAIN", outcome="succeeded"
        )


@pytest.mark.parametrize(
    ("lifetime", "seconds"), [(3600, 3240), (60, 54), (20, 18), (10, 8), (4, 2), (3, 1.1), (1.2, 1.08), (0.5, 0.45)]
)
def test_short_sessions_leave_time_for_requests_on_their_way(lifetime: float, seconds: float) -> None:
    assert pytest.approx(seconds) == seconds_until_login(lifetime)


def test_errors_have_no_secret() -> None:
    for mechanism in ("PLAIN", "SCRAM-SHA-256"):
        with pytest.raises(OttlaError) as caught:
            sasl_login(mechanism, username="alice", password="")
        assert "alice" not in str(caught.value)
