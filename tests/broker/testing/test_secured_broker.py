"""A broker with TLS, logins and ACLs: who gets in, as which user, and that it is the same after a restart or a kill."""

import stat
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from ottla import Admin, Consumer, Producer
from ottla.client.properties import parse_properties, security_options
from ottla.model.errors import MisuseError, OttlaError
from ottla.testing import CertificateAuthority, SecuredBroker
from ottla.transport.client_security import TlsError
from tests.broker.inside import connections


def principals(broker: SecuredBroker) -> set[str]:
    return {str(client.principal) for client in connections(broker.broker)}


@pytest.mark.parametrize("protocol", ["SASL_SSL", "SSL"])
def test_users_are_the_same_on_both_listeners(secured: SecuredBroker, protocol: str) -> None:
    topic = secured.create_topic(f"orders-{protocol}")
    secured.allow("alice", "Write", "Read", topic=topic)
    secured.allow("alice", "read", group="readers")
    alice: dict[str, Any] = secured.client_options("alice", protocol=protocol)
    with Producer(**alice) as producer:
        assert 0 == producer.send(topic, b"v").get(60).offset
        assert "User:alice" in principals(secured)
    with Consumer(topic, group_id="readers", auto_offset_reset="earliest", **alice) as consumer:
        assert b"v" == next(consumer).value
    with (
        Producer(**secured.client_options("bob", protocol=protocol)) as producer,
        pytest.raises(OttlaError, match="TOPIC_AUTHORIZATION_FAILED"),
    ):
        producer.send(topic, b"v").get(60)
    with Admin(**secured.client_options("bob", protocol=protocol)) as admin:
        assert [] == admin.list_topics()


@pytest.mark.parametrize("protocol", ["SASL_SSL", "SSL"])
def test_properties_are_understood(secured: SecuredBroker, protocol: str) -> None:
    properties = parse_properties(secured.client_properties(protocol=protocol))
    options = security_options(properties)
    with Admin(bootstrap_servers=properties["bootstrap.servers"], **options) as admin:
        admin.list_topics()
        assert "User:admin" in principals(secured)


@pytest.mark.parametrize("protocol", ["SASL_SSL", "SSL"])
def test_librdkafka(secured: SecuredBroker, protocol: str) -> None:
    topic = secured.create_topic(f"librdkafka-{protocol}")
    admin = AdminClient(secured.librdkafka_options(protocol=protocol))
    assert topic in admin.list_topics(timeout=20).topics


def test_strangers_do_not_get_in(secured: SecuredBroker, tmp_path: Path) -> None:
    options = secured.client_options("alice")
    with pytest.raises(OttlaError), Admin(**{**options, "sasl_plain_password": "wrong"}) as admin:
        admin.list_topics()
    forged = str(CertificateAuthority(tmp_path).issue("admin"))
    stranger = {**secured.client_options(protocol="SSL"), "ssl_certfile": forged, "ssl_keyfile": forged}
    with pytest.raises(TlsError), Admin(**stranger) as admin:
        admin.list_topics()
    other = {**options, "ssl_cafile": str(CertificateAuthority(tmp_path / "other").file)}
    with pytest.raises(TlsError), Admin(**other) as admin:
        admin.list_topics()


def test_users_topics_and_addresses_outlive_the_process(tmp_path: Path) -> None:
    with SecuredBroker(tmp_path) as broker:
        before = broker.client_options("alice"), broker.client_options("alice", protocol="SSL")
        broker.create_topic("t")
        broker.restart()
        broker.kill()
        assert 0o700 == stat.S_IMODE(broker.data.stat().st_mode)
        broker.start()
        assert before == (broker.client_options("alice"), broker.client_options("alice", protocol="SSL"))
        with Admin(**before[0]) as admin:
            assert [] == admin.list_topics()
        with Admin(**broker.client_options()) as admin:
            assert ["t"] == admin.list_topics()


def test_settings_take_precedence(tmp_path: Path) -> None:
    with SecuredBroker(tmp_path, {"allow.everyone.if.no.acl.found": "true"}) as broker:
        broker.create_topic("t")
        with Admin(**broker.client_options("alice")) as admin:
            assert ["t"] == admin.list_topics()


def test_mistakes(secured: SecuredBroker, tmp_path: Path) -> None:
    with pytest.raises(MisuseError, match="no listener with protocol PLAINTEXT"):
        secured.client_options(protocol="PLAINTEXT")
    with pytest.raises(MisuseError, match="names of users"):
        secured.client_options("../alice", protocol="SSL")
    with pytest.raises(MisuseError, match="'Reed' is not an operation"):
        secured.allow("alice", "Reed", topic="t")
    with pytest.raises(MisuseError, match="name at least one operation"):
        secured.allow("alice", "Read")
    with pytest.raises(MisuseError, match="never started"):
        SecuredBroker(tmp_path).client_options()


def test_private_keys_are_for_their_owner(secured: SecuredBroker) -> None:
    assert 0o600 == stat.S_IMODE(secured.certificate_of("alice").stat().st_mode)
