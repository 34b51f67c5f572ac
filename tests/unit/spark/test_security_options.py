"""Spark's security options: they travel to other processes as text, and become connections there."""

import pickle
from pathlib import Path

import trustme

from ottla.client.admin.options import AdminConfig
from ottla.client.options import configured
from ottla.security.security_protocol import SecurityProtocol
from ottla.spark.option_names import chosen_for, client_options
from ottla.spark.sink.options import sink_options
from ottla.spark.source.options import parse_source_options

MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


def given(folder: Path) -> dict[str, str]:
    ca = folder / "ca.pem"
    trustme.CA().cert_pem.write_to_path(ca)
    return {
        "kafka.bootstrap.servers": "localhost:9092",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-256",
        "kafka.sasl.jaas.config": f'{MODULE} required username="alice" password="secret word";',
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(ca),
    }


def test_options_become_connections(tmp_path: Path) -> None:
    options = pickle.loads(pickle.dumps(client_options(given(tmp_path))))
    config = configured(AdminConfig, "test", chosen_for(AdminConfig, options))
    assert isinstance(hash(config), int)  # The driver keeps connections by it.
    assert "secret word" not in repr(config)
    security = config.security
    assert security is not None
    assert SecurityProtocol.SASL_SSL == security.security_protocol
    assert security.ssl_context is not None
    assert security.ssl_context.check_hostname
    assert security.sasl is not None
    assert security.sasl().name == "SCRAM-SHA-256"


def test_source_and_sink_have_them(tmp_path: Path) -> None:
    raw = given(tmp_path)
    source = parse_source_options({**raw, "subscribe": "t"}, is_stream=True)
    assert "security_properties" in source.client
    sink = sink_options({**raw, "topic": "t"}, is_stream=True)
    assert "security_properties" in sink.client
    assert sink.producer.security is not None
    pickle.dumps((source.client, sink.client, sink.producer_arguments))
