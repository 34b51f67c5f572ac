"""Listeners with TLS on real brokers: our clients and foreign ones, certificates that change, errors that help."""

import asyncio
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from ottla import AsyncAdmin, AsyncConsumer, AsyncProducer, ConfigResource, NewTopic
from ottla.broker.broker import Broker
from ottla.broker.configs.configuration import BrokerConfig
from ottla.model.errors import OttlaError
from ottla.protocol.config_resources import ResourceType
from ottla.security.sasl.authentication_error import AuthenticationError
from ottla.transport.client_security import TlsError
from tests.broker.inside import connections
from tests.broker.secured import Secured, certificate_of
from tests.waiting import until


@pytest.fixture
def certificates(tmp_path: Path) -> Secured:
    return Secured(tmp_path)


def running(certificates: Secured, protocol: str, **more: str) -> Broker:
    configs = {"log.dirs": str(certificates.folder / "data"), **certificates.broker(protocol, **more)}
    return Broker(BrokerConfig.parse(settings={**configs, "offsets.topic.replication.factor": "1"}))


def servers(broker: Broker) -> str:
    return f"127.0.0.1:{broker.advertised[1]}"


async def round_trip(broker: Broker, options: dict[str, Any]) -> None:
    options = {**options, "bootstrap_servers": servers(broker)}
    async with AsyncAdmin(**options) as admin:
        await admin.create_topics([NewTopic("t", 2)])
    async with AsyncProducer(**options) as producer:
        for number in range(100):
            await producer.send("t", str(number).encode() * 500)
    async with AsyncConsumer("t", group_id="g", auto_offset_reset="earliest", **options) as consumer:
        found = [(await consumer.getone()).value for _ in range(100)]
    assert {str(number).encode() * 500 for number in range(100)} == set(found)


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL", "SASL_PLAINTEXT"])
async def test_our_clients(certificates: Secured, protocol: str) -> None:
    async with running(certificates, protocol) as broker:
        await round_trip(broker, certificates.client(protocol))
        principals = {str(client.principal) for client in connections(broker)}
        assert principals <= {"User:alice" if protocol != "SSL" else "User:ANONYMOUS"}


async def test_client_certificates(certificates: Secured) -> None:
    rules = "RULE:^CN=(.*?),.*$/$1/L,DEFAULT"
    async with running(certificates, "SSL", ssl_client_auth="required", ssl_principal_mapping_rules=rules) as broker:
        alice = certificates.client("SSL", ssl_certfile=str(certificates.issue_client("Alice")))
        async with AsyncAdmin(bootstrap_servers=servers(broker), **alice) as admin:
            await admin.list_topics()
            assert {"User:alice"} == {str(client.principal) for client in connections(broker)}
        with pytest.raises(TlsError, match="the broker requires a client certificate; set ssl_certfile"):
            async with AsyncAdmin(bootstrap_servers=servers(broker), **certificates.client("SSL")) as admin:
                await admin.list_topics()
        stranger = Secured(make(certificates.folder / "stranger")).issue_client("mallory")
        other = certificates.client("SSL", ssl_certfile=str(stranger))
        with pytest.raises(TlsError, match="the broker does not accept this client's certificate"):
            async with AsyncAdmin(bootstrap_servers=servers(broker), **other) as admin:
                await admin.list_topics()


def make(folder: Path) -> Path:
    folder.mkdir()
    return folder


class TestErrors:
    """Each says plainly what to do."""

    @pytest.mark.parametrize(
        ("protocol", "change", "kind", "words"),
        [
            ("SSL", {"ssl_cafile": "other/ca.pem"}, TlsError, "certificate is not trusted.*set ssl_cafile"),
            ("SASL_SSL", {"sasl_plain_password": "x"}, AuthenticationError, "check the user name and the password"),
            ("SASL_SSL", {"sasl_mechanism": "SCRAM-SHA-256"}, AuthenticationError, "it enables: PLAIN"),
            ("SASL_SSL", {"security_protocol": "SSL", "sasl_mechanism": None}, OttlaError, "if the listener uses SASL"),
            ("SASL_SSL", {"security_protocol": "PLAINTEXT"}, OttlaError, "if the listener uses TLS"),
            ("SASL_PLAINTEXT", {"security_protocol": "SASL_SSL"}, OttlaError, "the listener does not use TLS"),
            ("SSL", {"security_protocol": "SASL_SSL"}, AuthenticationError, "the listener does not use SASL"),
        ],
    )
    async def test_wrong_options(
        self, certificates: Secured, protocol: str, change: dict[str, Any], kind: type[Exception], words: str
    ) -> None:
        Secured(make(certificates.folder / "other"))
        async with running(certificates, protocol) as broker:
            target = change.get("security_protocol", protocol)
            options = {**certificates.client(protocol), **certificates.client(target), **change}
            if not target.endswith("SSL"):
                options.pop("ssl_cafile", None)
            if not target.startswith("SASL"):
                options = {name: value for name, value in options.items() if not name.startswith("sasl")}
            if "ssl_cafile" in change:
                options["ssl_cafile"] = str(certificates.folder / change["ssl_cafile"])
            with pytest.raises(kind, match=words) as caught:
                async with AsyncAdmin(bootstrap_servers=servers(broker), request_timeout_ms=5000, **options) as it:
                    await it.list_topics()
            assert "alice-pw" not in str(caught.value)

    async def test_wrong_host_name(self, certificates: Secured) -> None:
        certificates.issue_broker("elsewhere.example")
        async with running(certificates, "SSL") as broker:
            options = {"bootstrap_servers": servers(broker), **certificates.client("SSL")}
            with pytest.raises(TlsError, match=r"not valid for the host name '127\.0\.0\.1'"):
                async with AsyncAdmin(**options) as admin:
                    await admin.list_topics()
            async with AsyncAdmin(**options, ssl_check_hostname=False) as admin:
                assert [] == await admin.list_topics()

    async def test_producers_and_consumers_fail_at_once(self, certificates: Secured) -> None:
        async with running(certificates, "SASL_SSL") as broker:
            options = certificates.client("SASL_SSL", sasl_plain_password="x", bootstrap_servers=servers(broker))
            async with asyncio.timeout(60):
                with pytest.raises(AuthenticationError):
                    async with AsyncProducer(**options) as producer:
                        await producer.send_and_wait("t", b"x")
                with pytest.raises(AuthenticationError):
                    async with AsyncConsumer("t", group_id="g", **options) as consumer:
                        await consumer.getone()


class TestRotation:
    async def test_changed_files_are_used_without_a_restart(
        self, certificates: Secured, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("ottla.broker.listener_security.FILES_CHECKED_SECONDS", 0.05)
        async with running(certificates, "SSL") as broker:
            options = {"bootstrap_servers": servers(broker), **certificates.client("SSL")}
            async with AsyncAdmin(**options) as before:
                await before.list_topics()
                old = await certificate_of(broker.port)
                certificates.issue_broker()
                os.utime(certificates.keystore, ns=(0, 1))

                async def is_changed() -> bool:
                    return await certificate_of(broker.port) != old

                await until(is_changed)
                await before.list_topics()
                async with AsyncAdmin(**options) as after:
                    await after.list_topics()

    async def test_changed_configs_are_used_without_a_restart(self, certificates: Secured) -> None:
        newer = certificates.folder / "newer.pem"
        async with running(certificates, "SSL") as broker:
            old = await certificate_of(broker.port)
            options = {"bootstrap_servers": servers(broker), **certificates.client("SSL")}
            name = "listener.name.ssl.ssl.keystore.location"
            async with AsyncAdmin(**options) as admin:

                async def alter(path: str) -> None:
                    await admin.alter_configs([ConfigResource(ResourceType.BROKER, "0", {name: path})])

                with pytest.raises(OttlaError, match="cannot read"):
                    await alter(str(newer))
                assert old == await certificate_of(broker.port)
                certificates.issue_broker()
                newer.write_bytes(certificates.keystore.read_bytes())
                await alter(str(newer))
                assert old != await certificate_of(broker.port)
                await admin.list_topics()


class TestWarnings:
    @pytest.mark.parametrize(
        ("host", "more", "is_warned"),
        [
            ("0.0.0.0", {}, True),
            ("0.0.0.0", {"ssl.client.auth": "required"}, False),
            ("127.0.0.1", {}, False),
            ("localhost", {}, False),
        ],
    )
    async def test_open_to_other_machines(
        self, certificates: Secured, host: str, more: dict[str, str], is_warned: bool, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.WARNING):
            async with running(certificates, "SSL", listeners=f"SSL://{host}:0", **more):
                pass
        assert is_warned == ("WITHOUT AUTHENTICATION" in caplog.text)
        assert not is_warned or "listener.name.ssl.ssl.client.auth=required" in caplog.text

    async def test_plaintext_is_warned_of(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.WARNING):
            configs = {"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://:0"}
            async with Broker(BrokerConfig.parse(settings=configs)):
                pass
        assert "listener PLAINTEXT (PLAINTEXT on all interfaces" in caplog.text


def in_thread(work: Callable[[], None]) -> "asyncio.Future[None]":
    """Foreign clients block; the broker needs its loop."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def run() -> None:
        try:
            work()
        except BaseException as error:
            loop.call_soon_threadsafe(done.set_exception, error)
        else:
            loop.call_soon_threadsafe(done.set_result, None)

    threading.Thread(target=run, daemon=True).start()
    return done


@pytest.mark.parametrize(("protocol", "with_certificate"), [("SSL", False), ("SSL", True), ("SASL_SSL", False)])
async def test_confluent_kafka(certificates: Secured, protocol: str, with_certificate: bool) -> None:
    own = certificates.issue_client("alice")
    auth = {"ssl_client_auth": "required"} if with_certificate else {}
    async with running(certificates, protocol, **auth) as broker:
        common = {
            "bootstrap.servers": servers(broker),
            "security.protocol": protocol,
            "ssl.ca.location": str(certificates.ca),
        }
        if with_certificate:
            common |= {"ssl.certificate.location": str(own), "ssl.key.location": str(own)}
        if protocol == "SASL_SSL":
            common |= {"sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": "alice-pw"}

        def work() -> None:
            producer = confluent_kafka.Producer(common)
            for number in range(100):
                producer.produce("t", str(number).encode())
            assert 0 == producer.flush(60)
            consumer = confluent_kafka.Consumer({**common, "group.id": "g", "auto.offset.reset": "earliest"})
            consumer.subscribe(["t"])
            found: set[bytes] = set()
            while len(found) < 100:
                record = consumer.poll(60)
                assert record is not None
                assert record.error() is None
                found.add(record.value())
            consumer.close()

        await in_thread(work)


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
async def test_kafka_python(certificates: Secured, protocol: str) -> None:
    kafka = pytest.importorskip("kafka", reason="needs kafka-python, as make test-compat installs it")
    async with running(certificates, protocol) as broker:
        options = {"bootstrap_servers": servers(broker), **certificates.client(protocol)}

        def work() -> None:
            producer = kafka.KafkaProducer(**options)
            for number in range(10):
                producer.send("t", str(number).encode())
            producer.flush(30)
            producer.close()
            consumer = kafka.KafkaConsumer("t", auto_offset_reset="earliest", **options)
            assert 10 == len([next(consumer) for _ in range(10)])
            consumer.close()

        await in_thread(work)
