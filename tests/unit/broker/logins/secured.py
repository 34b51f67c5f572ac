"""What the tests of logins build with: brokers with SASL, users, keys and tokens."""

import json
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from joserfc import jws
from joserfc.jwk import RSAKey

from ottla.broker.broker import Broker
from ottla.broker.configs.configuration import BrokerConfig
from ottla.security.scram_argument import parse_scram_user
from ottla.security.scram_credential import ScramMechanism

ALICE_PASSWORD: Final = "wonder=land,x"
PLAIN_JAAS: Final = (
    f'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="{ALICE_PASSWORD}" user_bob="b";'
)
ISSUER: Final = "https://issuer.example"
AUDIENCE: Final = "kafka"
KEY: Final = RSAKey.generate_key(2048, {"kid": "first", "use": "sig", "alg": "RS256"})
OTHER_KEY: Final = RSAKey.generate_key(2048, {"kid": "second", "use": "sig", "alg": "RS256"})


def jwks_text(*keys: RSAKey) -> str:
    """The public halves, as an issuer publishes them."""
    return json.dumps({"keys": [key.as_dict(private=False) for key in keys]})


def token(key: RSAKey = KEY, *, header: dict[str, Any] | None = None, **claims: Any) -> str:
    """A signed token of alice that is valid for an hour."""
    now = int(time.time())
    payload = {"sub": "alice", "iss": ISSUER, "aud": AUDIENCE, "iat": now, "exp": now + 3600, **claims}
    found = {name: value for name, value in payload.items() if value is not None}
    protected = {"alg": "RS256", "kid": key.get("kid"), **(header or {})}
    return jws.serialize_compact(protected, json.dumps(found).encode(), key)


def sasl_settings(folder: Path, **settings: str) -> dict[str, str]:
    """The configs of a broker whose only listener has SASL without TLS."""
    return {
        "log.dirs": str(folder / "data"),
        "listeners": "CLIENTS://127.0.0.1:0",
        "group.initial.rebalance.delay.ms": "0",
        "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.clients.plain.sasl.jaas.config": PLAIN_JAAS,
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        **settings,
    }


def oauth_settings(folder: Path, *keys: RSAKey, **settings: str) -> dict[str, str]:
    """The same with OAUTHBEARER and keys from a file."""
    (folder / "jwks.json").write_text(jwks_text(*(keys or (KEY,))))
    return sasl_settings(
        folder,
        **{
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "sasl.oauthbearer.jwks.endpoint.url": (folder / "jwks.json").as_uri(),
            "sasl.oauthbearer.expected.issuer": ISSUER,
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            **settings,
        },
    )


@asynccontextmanager
async def secured(settings: dict[str, str]) -> AsyncIterator[Broker]:
    """A running broker with these configs; alice can log in with SCRAM."""
    users = [
        parse_scram_user(f'{mechanism}=[name=alice,password="{ALICE_PASSWORD}"]', os.urandom)
        for mechanism in ScramMechanism
    ]
    async with Broker(BrokerConfig.parse(settings=settings), first_users=users) as broker:
        yield broker


def bootstrap(broker: Broker) -> str:
    """Where the broker listens."""
    return f"127.0.0.1:{broker.port}"
