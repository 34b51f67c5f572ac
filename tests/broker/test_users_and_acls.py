"""Users with passwords and ACLs, end to end: a real broker with SASL and an authorizer, and Ottla's own clients."""

import os
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.broker import Broker
from ottla.broker.configs.configuration import BrokerConfig
from ottla.client.admin.acls import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ACLResourceType,
    ResourcePattern,
)
from ottla.client.admin.async_admin import AsyncAdmin
from ottla.client.admin.values import NewTopic
from ottla.client.producer.async_producer import AsyncProducer
from ottla.metadata.configs.authorization_configs import STANDARD_AUTHORIZER
from ottla.model.errors import OttlaError
from ottla.security.scram_argument import parse_scram_user


def client(broker: Broker, user: str, password: str, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap_servers": f"127.0.0.1:{broker.port}",
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_plain_username": user,
        "sasl_plain_password": password,
        **more,
    }


async def test_users_do_what_their_acls_allow(tmp_path: Path) -> None:
    """Also with a delegation token, with which a client is the token's owner."""
    settings = {
        "log.dirs": str(tmp_path),
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
        "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": (
            'org.apache.kafka.common.security.scram.ScramLoginModule required username="admin" password="admin-pw";'
        ),
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:admin",
        "delegation.token.secret.key": "cluster secret",
    }
    users = [
        parse_scram_user(f"SCRAM-SHA-256=[name={name},password={name}-pw]", os.urandom) for name in ("admin", "alice")
    ]
    async with Broker(BrokerConfig.parse(settings=settings), first_users=users) as broker:
        async with AsyncAdmin(**client(broker, "admin", "admin-pw")) as admin:
            await admin.create_topics([NewTopic("orders-1", 1, 1), NewTopic("secrets", 1, 1)])
            await admin.create_acls([WRITING])
        alice = client(broker, "alice", "alice-pw")
        await check_alice(alice)
        async with AsyncAdmin(**alice) as user:
            token = await user.create_delegation_token()
        by_token = client(broker, token.token_id, token.password, sasl_delegation_token=True)
        await check_alice(by_token)
        async with AsyncAdmin(**by_token) as user:
            with pytest.raises(OttlaError, match=r"(?i)delegation.token"):
                await user.create_delegation_token()


WRITING = ACL(
    "User:alice",
    "*",
    ACLOperation.WRITE,
    ACLPermissionType.ALLOW,
    ResourcePattern(ACLResourceType.TOPIC, "orders-", ACLResourcePatternType.PREFIXED),
)


async def check_alice(options: dict[str, Any]) -> None:
    """Sees and writes what begins with `orders-`, and nothing else."""
    async with AsyncAdmin(**options) as user:
        assert ["orders-1"] == sorted(await user.list_topics())
        with pytest.raises(OttlaError, match=r"(?i)authoriz"):
            await user.describe_acls()
    async with AsyncProducer(**options, acks="all") as producer:
        await producer.send_and_wait("orders-1", value=b"x")
        with pytest.raises(OttlaError, match=r"(?i)authoriz"):
            await producer.send_and_wait("secrets", value=b"x")
