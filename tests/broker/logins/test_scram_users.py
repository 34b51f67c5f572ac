"""Users and delegation tokens of the metadata store, and the users that `ottla serve --add-scram` creates."""

import asyncio
import logging
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer

from ottla import AsyncAdmin
from ottla.broker.broker import Broker
from ottla.broker.configs.configuration import BrokerConfig
from ottla.client.admin.user_requests import UserScramCredentialDeletion, UserScramCredentialUpsertion
from ottla.env.real_network import RealNetwork
from ottla.metadata.image import ClusterImage
from ottla.security.delegation_token import TokenInfo, token_password
from ottla.security.principals import Principal
from ottla.security.sasl.authentication_error import AuthenticationError
from ottla.security.scram_argument import ScramUser, parse_scram_user
from ottla.security.scram_credential import ScramCredential, ScramMechanism, make_credential
from ottla.security.security_protocol import SecurityProtocol
from ottla.transport.addresses import Address
from ottla.transport.client_connection import Connection
from ottla.transport.client_security import ClientSecurity, sasl_login
from tests.broker.inside import connections
from tests.unit.broker.logins.secured import bootstrap, sasl_settings, secured

ALICE = Principal("User", "alice")
MECHANISM = ScramMechanism.SHA_256
TOKEN = TokenInfo(id="token", owner=ALICE, requester=ALICE, renewers=(), issued_ms=0, expiry_ms=1000, max_ms=2000)


def credential(salt: bytes = b"salt", iterations: int = 4096) -> ScramCredential:
    return make_credential(MECHANISM, "secret", salt=salt, iterations=iterations)


def image(**users: ScramCredential) -> ClusterImage:
    return replace(ClusterImage(), scram_credentials={(MECHANISM, name): each for name, each in users.items()})


def admin_of(broker: Broker) -> AsyncAdmin:
    """A client that logs in as bob, whose password is in the broker's configs."""
    return AsyncAdmin(
        bootstrap_servers=bootstrap(broker),
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_plain_username="bob",
        sasl_plain_password="b",
    )


async def alter_user(broker: Broker, change: UserScramCredentialUpsertion | UserScramCredentialDeletion) -> None:
    async with admin_of(broker) as admin:
        await admin.alter_user_scram_credentials([change])


async def test_users_that_change_while_the_broker_runs(tmp_path: Path) -> None:
    def can_log_in(broker: Broker, name: str, password: str) -> bool:
        errors: list[Any] = []
        configs = {
            "bootstrap.servers": bootstrap(broker),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": name,
            "sasl.password": password,
            "error_cb": errors.append,
        }
        producer = Producer(configs)
        for _ in range(200):
            producer.poll(0.05)
            if errors:
                return False
            with suppress(KafkaException):
                producer.list_topics(timeout=0.2)
                return True
        raise AssertionError("neither an error nor a connection")

    async with secured(sasl_settings(tmp_path)) as broker:
        assert not await asyncio.to_thread(can_log_in, broker, "carol", "one")
        await alter_user(broker, UserScramCredentialUpsertion("carol", "SCRAM-SHA-512", "one"))
        assert await asyncio.to_thread(can_log_in, broker, "carol", "one")
        await alter_user(broker, UserScramCredentialUpsertion("carol", "SCRAM-SHA-512", "two"))
        assert not await asyncio.to_thread(can_log_in, broker, "carol", "one")
        assert await asyncio.to_thread(can_log_in, broker, "carol", "two")
        await alter_user(broker, UserScramCredentialDeletion("carol", "SCRAM-SHA-512"))
        assert not await asyncio.to_thread(can_log_in, broker, "carol", "two")


def user(password: str, salt: bytes = b"salt") -> ScramUser:
    return parse_scram_user(f"SCRAM-SHA-256=[name=alice,password={password}]", lambda size: salt.ljust(size))


def test_first_users_are_created_but_never_changed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def stored(*users: ScramUser) -> ScramCredential | None:
        config = BrokerConfig.parse(settings=sasl_settings(tmp_path))
        async with Broker(config, first_users=users) as broker:
            return broker.image.scram_credentials.get((MECHANISM, "alice"))

    with caplog.at_level(logging.INFO):
        assert asyncio.run(stored()) is None
        assert user("one").credential == asyncio.run(stored(user("one")))
        assert user("one").credential == asyncio.run(stored(user("one", b"another salt")))
        assert "does not change" not in caplog.text
        assert user("one").credential == asyncio.run(stored(user("two")))
    assert "user alice already has another SCRAM-SHA-256 credential, which --add-scram does not change" in caplog.text
    assert "created user alice (SCRAM-SHA-256)" in caplog.text


@pytest.mark.parametrize("mechanism", ScramMechanism)
async def test_a_client_logs_in_with_a_delegation_token(tmp_path: Path, mechanism: ScramMechanism) -> None:
    """As its owner, until the token expires or is removed."""
    async with secured(sasl_settings(tmp_path, **{"delegation.token.secret.key": "shared secret"})) as broker:
        async with admin_of(broker) as admin:
            token = await admin.create_delegation_token(owner="User:alice")

        async def connect(password: str) -> Connection:
            login = sasl_login(mechanism, username=token.token_id, password=password, is_token=True)
            return await Connection.open(
                RealNetwork(),
                Address("127.0.0.1", broker.port),
                client_id="test",
                timeout_ms=10_000,
                security=ClientSecurity(security_protocol=SecurityProtocol.SASL_PLAINTEXT, sasl=login),
            )

        connection = await connect(token_password("shared secret", token.token_id))
        (client,) = connections(broker)
        assert (ALICE, True) == (client.principal, client.is_token_login)
        connection.close()
        with pytest.raises(AuthenticationError):
            await connect(token_password("another secret", token.token_id))
