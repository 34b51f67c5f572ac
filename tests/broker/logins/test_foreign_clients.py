"""Clients of other projects log in at a broker with SASL, produce and consume; with wrong secrets they cannot."""

import asyncio
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer

from ottla.broker.broker import Broker
from tests.broker.metric_samples import value_of
from tests.unit.broker.logins.secured import (
    ALICE_PASSWORD,
    KEY,
    OTHER_KEY,
    bootstrap,
    oauth_settings,
    sasl_settings,
    secured,
    token,
)
from tests.waiting import PATIENCE_SECONDS

PASSWORD_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


def librdkafka(broker: Broker, mechanism: str, password: str = ALICE_PASSWORD) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap(broker),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password": password,
    }


def round_trip(configs: dict[str, Any]) -> bytes | None:
    """Produces a record and consumes it with confluent-kafka."""
    producer = Producer(configs)
    producer.produce("t", b"hello")
    assert 0 == producer.flush(PATIENCE_SECONDS)
    consumer = Consumer({**configs, "group.id": "g", "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe(["t"])
        message = consumer.poll(PATIENCE_SECONDS)
        assert message is not None
        assert message.error() is None
        value: bytes | None = message.value()
        return value
    finally:
        consumer.close()


def login_error(configs: dict[str, Any]) -> KafkaError:
    """The first error that confluent-kafka reports."""
    errors: list[KafkaError] = []
    producer = Producer({**configs, "error_cb": errors.append})
    for _ in range(10 * PATIENCE_SECONDS):
        producer.poll(0.1)
        if errors:
            return errors[0]
    raise AssertionError("no error was reported")


@pytest.mark.parametrize("mechanism", PASSWORD_MECHANISMS)
async def test_librdkafka_produces_and_consumes(tmp_path: Path, mechanism: str) -> None:
    async with secured(sasl_settings(tmp_path)) as broker:
        assert b"hello" == (await asyncio.to_thread(round_trip, librdkafka(broker, mechanism)))


@pytest.mark.parametrize("mechanism", PASSWORD_MECHANISMS)
async def test_librdkafka_with_a_wrong_password_is_refused(tmp_path: Path, mechanism: str) -> None:
    async with secured(sasl_settings(tmp_path)) as broker:
        error = await asyncio.to_thread(login_error, librdkafka(broker, mechanism, "wrong"))
        failed = value_of(broker, "ottla_logins_total", listener="CLIENTS", mechanism=mechanism, outcome="failed")
    assert KafkaError._AUTHENTICATION == error.code()
    assert failed >= 1


async def test_librdkafka_with_a_signed_token(tmp_path: Path) -> None:
    async with secured(oauth_settings(tmp_path)) as broker:
        configs = {
            "bootstrap.servers": bootstrap(broker),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": lambda _: (token(KEY), 4102444800.0),
        }
        assert b"hello" == (await asyncio.to_thread(round_trip, configs))


async def test_librdkafka_with_a_token_of_another_key_is_refused(tmp_path: Path) -> None:
    async with secured(oauth_settings(tmp_path)) as broker:
        configs = {
            "bootstrap.servers": bootstrap(broker),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": lambda _: (token(OTHER_KEY), 4102444800.0),
        }
        assert KafkaError._AUTHENTICATION == (await asyncio.to_thread(login_error, configs)).code()


@pytest.mark.parametrize("mechanism", [*PASSWORD_MECHANISMS, "OAUTHBEARER"])
async def test_aiokafka_produces_and_consumes(tmp_path: Path, mechanism: str) -> None:
    aiokafka = pytest.importorskip("aiokafka", reason="only `make test-compat` needs it")

    class Tokens(aiokafka.abc.AbstractTokenProvider):  # type: ignore[misc, name-defined]  # may be missing
        async def token(self) -> str:
            return token(KEY)

    settings = oauth_settings(tmp_path) if mechanism == "OAUTHBEARER" else sasl_settings(tmp_path)
    async with secured(settings) as broker:
        configs: dict[str, Any] = {
            "bootstrap_servers": bootstrap(broker),
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": mechanism,
            "sasl_plain_username": "alice",
            "sasl_plain_password": ALICE_PASSWORD,
        }
        if mechanism == "OAUTHBEARER":
            configs["sasl_oauth_token_provider"] = Tokens()
        producer = aiokafka.AIOKafkaProducer(**configs)
        await producer.start()
        try:
            await producer.send_and_wait("t", b"hello")
        finally:
            await producer.stop()
        consumer = aiokafka.AIOKafkaConsumer("t", auto_offset_reset="earliest", **configs)
        await consumer.start()
        try:
            found = await asyncio.wait_for(consumer.getone(), PATIENCE_SECONDS)
        finally:
            await consumer.stop()
        value: bytes | None = found.value
        assert b"hello" == (value)


@pytest.mark.parametrize("mechanism", [*PASSWORD_MECHANISMS, "OAUTHBEARER"])
async def test_kafka_python_lists_topics(tmp_path: Path, mechanism: str) -> None:
    kafka = pytest.importorskip("kafka", reason="only `make test-compat` needs it")
    oauth = pytest.importorskip("kafka.net.sasl.oauth", reason="the tests are for kafka-python 3")

    class Tokens(oauth.AbstractTokenProvider):  # type: ignore[misc, name-defined]  # may be missing
        def token(self) -> str:
            return token(KEY)

    def topics(broker: Broker) -> set[str]:
        login: dict[str, Any] = {"sasl_plain_username": "alice", "sasl_plain_password": ALICE_PASSWORD}
        if mechanism == "OAUTHBEARER":
            login = {"sasl_oauth_token_provider": Tokens()}
        configs = {
            "bootstrap_servers": bootstrap(broker),
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": mechanism,
            **login,
        }
        with closing(kafka.KafkaAdminClient(**configs)) as admin:
            admin.create_topics([kafka.admin.NewTopic("t", num_partitions=1, replication_factor=1)])
        with closing(kafka.KafkaConsumer(**configs)) as consumer:
            return set(consumer.topics())

    settings = oauth_settings(tmp_path) if mechanism == "OAUTHBEARER" else sasl_settings(tmp_path)
    async with secured(settings) as broker:
        assert "t" in (await asyncio.to_thread(topics, broker))
