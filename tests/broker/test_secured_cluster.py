"""Three brokers that talk to each other over TLS with certificates, over SASL_SSL, and with tokens: replication,
transactions, certificates that change one broker at a time, and a broker that may not join."""

import asyncio
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from ottla import AsyncAdmin, AsyncConsumer, AsyncProducer, NewTopic
from ottla.broker.broker import Broker
from ottla.broker.configs.sasl_config import UNSECURED_VALIDATOR
from ottla.broker.logins.inter_broker_login import UNSECURED_LOGIN
from ottla.client.oauth_tokens import unsecured_token
from tests.broker.inside import connections
from tests.broker.logins.token_endpoint import CLIENT, SECRET, TokenEndpoint
from tests.broker.replicated import ReplicatedBrokers
from tests.broker.secured import Secured, certificate_of
from tests.unit.broker.logins.secured import oauth_settings, token
from tests.waiting import until

ONE_REPLICA = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}


def options_of(cluster: ReplicatedBrokers, secured: Secured, protocol: str, **more: Any) -> dict[str, Any]:
    servers = ",".join(f"127.0.0.1:{each.advertised[1]}" for each in cluster.brokers.values())
    return {"bootstrap_servers": servers, **secured.client(protocol, **more)}


def principals_of_brokers(broker: Broker) -> set[str]:
    """Those of connections that replicate or ask something as a broker."""
    return {str(client.principal) for client in connections(broker)}


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
async def test_replication_and_transactions(tmp_path: Path, protocol: str) -> None:
    secured = Secured(tmp_path)
    auth = {"ssl_client_auth": "required"} if protocol == "SSL" else {}
    certificate = {"ssl_certfile": str(secured.issue_client("alice"))} if protocol == "SSL" else {}
    settings = {**secured.broker(protocol, **auth), **ONE_REPLICA}
    async with ReplicatedBrokers(tmp_path / "cluster", settings) as cluster:
        options = options_of(cluster, secured, protocol, **certificate)
        async with AsyncAdmin(**options) as admin:
            await admin.create_topics([NewTopic("t", 3, 3)])
        async with AsyncProducer(**options, acks="all") as producer:
            await asyncio.gather(*(producer.send_and_wait("t", b"%d" % number) for number in range(50)))
        async with AsyncProducer(**options, transactional_id="x") as producer:
            await producer.init_transactions()
            producer.begin_transaction()
            for number in range(50, 100):
                await producer.send("t", b"%d" % number)
            await producer.commit_transaction()
        reading: dict[str, Any] = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}
        async with AsyncConsumer("t", group_id="g", **reading, **options) as consumer:
            found = {(await consumer.getone()).value for _ in range(100)}
        assert {b"%d" % number for number in range(100)} == found
        one = cluster.brokers[0]
        await until(lambda: all(len(each.isr) == 3 for topic in one.image.topics.values() for each in topic.partitions))
        seen = set().union(*(principals_of_brokers(each) for each in cluster.brokers.values()))
        if protocol == "SASL_SSL":
            assert {"User:broker"} <= seen <= {"User:broker", "User:alice"}
        else:
            assert any(each.startswith("User:CN=broker,") for each in seen)
            assert "User:ANONYMOUS" not in seen


OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
TOKEN_SECONDS = 6
OAUTH_JAAS = "listener.name.clients.oauthbearer.sasl.jaas.config"


@pytest.mark.parametrize("source", [pytest.param("endpoint", marks=pytest.mark.slow), "file", "unsecured"])
async def test_brokers_log_in_with_tokens(tmp_path: Path, source: str) -> None:
    """Tokens of a few seconds: connections between brokers log in again and again."""
    with TokenEndpoint(TOKEN_SECONDS) as endpoint:
        settings = {
            **oauth_settings(tmp_path),
            **ONE_REPLICA,
            "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:{CLIENT};User:alice",
            "replica.lag.time.max.ms": "30000",
        }
        del settings["log.dirs"], settings["listener.name.clients.plain.sasl.jaas.config"]
        if source == "endpoint":
            settings["sasl.oauthbearer.token.endpoint.url"] = endpoint.url
            settings[OAUTH_JAAS] = f'{OAUTH_MODULE} clientId="{CLIENT}" clientSecret="{SECRET}";'
        elif source == "file":
            (tmp_path / "token").write_text(token(sub=CLIENT))
            settings["sasl.oauthbearer.token.endpoint.url"] = (tmp_path / "token").as_uri()
        else:
            settings[OAUTH_JAAS] = f'{OAUTH_MODULE} unsecuredLoginStringClaim_sub="{CLIENT}";'
            settings["sasl.server.callback.handler.class"] = UNSECURED_VALIDATOR
            settings["sasl.login.callback.handler.class"] = UNSECURED_LOGIN
            del settings["sasl.oauthbearer.expected.issuer"], settings["sasl.oauthbearer.expected.audience"]
        options: dict[str, Any] = {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauth_token_provider": lambda: unsecured_token("alice") if source == "unsecured" else token(),
        }

        async with ReplicatedBrokers(tmp_path / "cluster", settings) as cluster:
            servers = ",".join(f"127.0.0.1:{each.advertised[1]}" for each in cluster.brokers.values())
            async with AsyncAdmin(bootstrap_servers=servers, **options) as admin:
                await admin.create_topics([NewTopic("t", 3, 3)])
            began, sent = asyncio.get_running_loop().time(), 0
            async with AsyncProducer(bootstrap_servers=servers, **options, acks="all") as producer:
                # With tokens of the endpoint until the first ones have expired.
                seconds = TOKEN_SECONDS + 1 if source == "endpoint" else 0
                while sent < 50 or asyncio.get_running_loop().time() - began < seconds:
                    await asyncio.gather(*(producer.send_and_wait("t", b"x", partition=each) for each in range(3)))
                    sent += 1
            one = cluster.brokers[0]

            def seen() -> set[str]:
                return set().union(*(principals_of_brokers(each) for each in cluster.brokers.values()))

            # On a machine that stalls, the sessions of connections end, and they are made again.
            await until(lambda: all(len(each.isr) == 3 for each in one.image.topics["t"].partitions))
            await until(lambda: f"User:{CLIENT}" in seen())
            assert seen() <= {f"User:{CLIENT}", "User:alice"}
            # Each broker has asked for its first token, and for the next one.
            await until(lambda: source != "endpoint" or len(endpoint.asked) >= 6)
        assert source == "endpoint" or not endpoint.asked
        assert 0 == endpoint.refused


async def test_certificates_change_under_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.broker.listener_security.FILES_CHECKED_SECONDS", 0.05)
    secured = Secured(tmp_path)
    settings = {**secured.broker("SASL_SSL"), **ONE_REPLICA}
    async with ReplicatedBrokers(tmp_path / "cluster", settings) as cluster:
        options = options_of(cluster, secured, "SASL_SSL")
        async with AsyncAdmin(**options) as admin:
            await admin.create_topics([NewTopic("t", 3, 3)])
        async with AsyncProducer(**options, acks="all") as producer:
            sent = 0
            for turn in range(3):
                old = await certificate_of(cluster.brokers[0].port)
                secured.issue_broker()
                os.utime(secured.keystore, ns=(0, turn + 1))
                for broker in cluster.brokers.values():
                    while old == await certificate_of(broker.port):
                        for _ in range(5):
                            await producer.send_and_wait("t", b"x")
                            sent += 1
                async with AsyncProducer(**options) as fresh:
                    await fresh.send_and_wait("t", b"x")
                    sent += 1
            assert sent > 3


async def test_broker_with_a_wrong_password_replicates_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    secured = Secured(tmp_path)
    with caplog.at_level(logging.ERROR):
        settings = {**secured.broker("SASL_SSL"), **ONE_REPLICA, "min.insync.replicas": "1"}
        async with ReplicatedBrokers(tmp_path / "cluster", settings, count=2) as cluster:
            name = "listener.name.sasl_ssl.plain.sasl.jaas.config"
            cluster._settings[name] = settings[name].replace('password="broker-pw"', 'password="wrong"', 1)
            await cluster.start(2)
            options = options_of(cluster, secured, "SASL_SSL")
            async with AsyncAdmin(**options) as admin:
                await admin.create_topics([NewTopic("t", 3, 3)])
            await until(lambda: "check the user name and the password" in caplog.text)
    assert "wrong" not in caplog.text
    lines = [each for each in caplog.records if "replica fetcher" in each.getMessage()]
    assert 1 <= len(lines) <= 2, "once for each leader"
