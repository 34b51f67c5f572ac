"""Listeners from the configs: names, protocols, advertised addresses, the one for brokers, and what is refused."""

import pytest

from ottla.broker.configs.configuration import BrokerConfig
from ottla.broker.configs.listener_config import Endpoint, ListenerConfig
from ottla.metadata.image import BrokerImage, ListenerEndpoint
from ottla.metadata.records import BrokerRecord, broker_record, decode, encode
from ottla.model.errors import InvalidConfigError
from ottla.model.ids import BrokerId
from ottla.security.security_protocol import SecurityProtocol

MAP = "CLIENT:PLAINTEXT,BROKERS:PLAINTEXT"
NAMELESS = {"listeners": "client://:9092,BROKERS://10.0.0.1:9093", "listener.security.protocol.map": MAP}
"""Two listeners, and none is named for the brokers."""
TWO = {**NAMELESS, "inter.broker.listener.name": "brokers"}


def test_listeners_with_their_protocols_and_advertised_addresses() -> None:
    config = BrokerConfig.parse(settings={**NAMELESS, "advertised.listeners": "CLIENT://one.example:19092"})
    assert (
        ListenerConfig("CLIENT", SecurityProtocol.PLAINTEXT, "", 9092, Endpoint("CLIENT", "one.example", 19092)),
        ListenerConfig("BROKERS", SecurityProtocol.PLAINTEXT, "10.0.0.1", 9093, None),
    ) == config.listeners


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({}, "PLAINTEXT"),
        (TWO, "BROKERS"),
        ({"listeners": "CLIENT://:9092", "listener.security.protocol.map": MAP}, "CLIENT"),
        ({**NAMELESS, "advertised.listeners": "BROKERS://10.0.0.1:9093"}, "BROKERS"),
        (
            {
                "listeners": "CLIENT://:9092,PLAINTEXT://:9093",
                "listener.security.protocol.map": f"{MAP},plaintext:plaintext",
            },
            "PLAINTEXT",
        ),
    ],
)
def test_the_listener_of_brokers(settings: dict[str, str], name: str) -> None:
    assert name == BrokerConfig.parse(settings=settings).inter_broker_listener


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        (
            {"listeners": "PLAINTEXT://:9092,plaintext://:9093"},
            "listeners: the name PLAINTEXT is used 2 times; listener names must be unique",
        ),
        (
            {**TWO, "listeners": "CLIENT://:9092,BROKERS://127.0.0.1:9092"},
            "listeners: port 9092 is used 2 times; each listener needs its own port",
        ),
        (
            {**TWO, "listeners": "CLIENT://10.0.0.1:9092,BROKERS://127.0.0.1:9092"},
            "listeners: port 9092 is used 2 times; each listener needs its own port",
        ),
        (
            {"listeners": "CLIENT://:9092"},
            "listeners: CLIENT has no security protocol; set one in listener.security.protocol.map",
        ),
        (
            {"listeners": "SSL://:9092", "ssl.keystore.type": "PEM"},
            "listener SSL: a listener with TLS needs a private key and a certificate: set ssl.keystore.type=PEM and"
            " ssl.keystore.location (a file with both), or ssl.keystore.key and ssl.keystore.certificate.chain",
        ),
        (
            {"listeners": "SSL://:9092", "ssl.keystore.location": "x", "listener.name.ssl.ssl.keystore.type": "DER"},
            "listener SSL: listener.name.ssl.ssl.keystore.type=DER is not allowed: it must be PEM or PKCS12",
        ),
        (
            {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,X:TLS"},
            "listener.security.protocol.map: 'X:TLS' is not a listener name, a colon and one of PLAINTEXT, SSL,"
            " SASL_PLAINTEXT, SASL_SSL",
        ),
        (
            {**NAMELESS, "advertised.listeners": "PLAINTEXT://one.example:9092,CLIENT://one.example:9092"},
            "advertised.listeners: PLAINTEXT is not a name in listeners",
        ),
        (
            {"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"},
            "advertised.listeners: clients cannot connect to 0.0.0.0; write a name or address",
        ),
        (
            {"advertised.listeners": "PLAINTEXT://one:1,PLAINTEXT://two:1"},
            "advertised.listeners: the name PLAINTEXT is used 2 times; listener names must be unique",
        ),
        (
            {**TWO, "inter.broker.listener.name": "BROKERS", "security.inter.broker.protocol": "PLAINTEXT"},
            "inter.broker.listener.name and security.inter.broker.protocol cannot both be set",
        ),
        (
            NAMELESS,
            "inter.broker.listener.name is not set, and several listeners qualify: CLIENT, BROKERS; set it to"
            " one of them",
        ),
        (
            {**NAMELESS, "security.inter.broker.protocol": "PLAINTEXT"},
            "inter.broker.listener.name is not set, and several listeners qualify: CLIENT, BROKERS; set it to"
            " one of them",
        ),
        (
            {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,plaintext:SSL"},
            "listener.security.protocol.map: PLAINTEXT has two security protocols, PLAINTEXT and SSL",
        ),
        (
            {**TWO, "inter.broker.listener.name": "OTHER"},
            "inter.broker.listener.name: OTHER is not an advertised listener",
        ),
        (
            {**NAMELESS, "security.inter.broker.protocol": "SSL"},
            "security.inter.broker.protocol: no advertised listener has SSL",
        ),
    ],
)
def test_refused(settings: dict[str, str], error: str) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        BrokerConfig.parse(settings=settings)
    assert [error] == str(caught.value).splitlines()


def test_an_ipv4_and_an_ipv6_listener_may_share_a_port() -> None:
    config = BrokerConfig.parse(settings={**TWO, "listeners": "CLIENT://127.0.0.1:9092,BROKERS://[::1]:9092"})
    assert [9092, 9092] == [each.port for each in config.listeners]


class TestRegistrations:
    TWO_LISTENERS = BrokerImage(
        id=BrokerId(1),
        host="one",
        port=9092,
        listeners=(
            ListenerEndpoint("CLIENT", "PLAINTEXT", "one", 9092),
            ListenerEndpoint("BROKERS", "PLAINTEXT", "inner", 9093),
        ),
    )

    def test_of_a_version_with_one_listener(self) -> None:
        """Such a broker serves every client on the address that it has."""
        record = decode("brokers/1", b'{"host":"one","port":9092,"rack":"r"}', BrokerRecord)
        assert ("one", 9092, ()) == (record.host, record.port, record.listeners)
        image = BrokerImage(id=BrokerId(1), host="one", port=9092)
        endpoint = image.endpoint("ANY")
        assert endpoint is not None
        assert ("one", 9092) == (endpoint.host, endpoint.port)

    def test_can_be_read_by_a_version_with_one_listener(self) -> None:
        written = encode(broker_record(self.TWO_LISTENERS))
        assert b'"host":"one","port":9092' in written
        record = decode("brokers/1", written, BrokerRecord)
        assert ["CLIENT", "BROKERS"] == [each.name for each in record.listeners]

    def test_endpoints_by_listener(self) -> None:
        endpoint = self.TWO_LISTENERS.endpoint("BROKERS")
        assert endpoint is not None
        assert ("inner", 9093) == endpoint[2:]
        assert None is self.TWO_LISTENERS.endpoint("PLAINTEXT")
