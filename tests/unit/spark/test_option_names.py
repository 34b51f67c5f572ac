"""Settings of Kafka's Java clients as our clients' keyword arguments."""

from typing import Any

import pytest

from ottla.client.admin.options import AdminConfig
from ottla.client.consumer.options import ConsumerConfig
from ottla.client.options import OptionError
from ottla.client.producer.options import ProducerConfig
from ottla.spark.option_names import bootstrap_of, chosen_for, client_options, refuse_unknown


@pytest.mark.parametrize(
    ("setting", "text", "expected"),
    [
        ("bootstrap.servers", "a:1,b:2", {"bootstrap_servers": "a:1,b:2"}),
        ("request.timeout.ms", " 5000 ", {"request_timeout_ms": 5000}),
        ("isolation.level", "READ_COMMITTED", {"isolation_level": "read_committed"}),
        ("acks", "all", {"acks": "all"}),
        ("acks", "-1", {"acks": -1}),
        ("linger.ms", "7", {"linger_ms": 7}),
        ("enable.idempotence", "False", {"enable_idempotence": False}),
        ("group.id", "billing", {"group_id": "billing"}),
        ("compression.type", "zstd", {"compression_type": "zstd"}),
        ("max.partition.fetch.bytes", "65536", {"max_partition_fetch_bytes": 65536}),
        ("receive.buffer.bytes", "65536", {}),
        ("metric.reporters", "x", {}),
        ("security.protocol", "plaintext", {"security_properties": (("security.protocol", "plaintext"),)}),
        ("sasl.jaas.config", "x", {"security_properties": (("sasl.jaas.config", "x"),)}),
    ],
)
def test_a_setting_becomes_an_argument(setting: str, text: str, expected: dict[str, Any]) -> None:
    assert expected == client_options({f"kafka.{setting}": text, "subscribe": "orders"})


def test_names_are_compared_without_case() -> None:
    assert {"request_timeout_ms": 1} == client_options({"KAFKA.Request.Timeout.MS": "1"})


@pytest.mark.parametrize(
    ("setting", "text", "words"),
    [
        ("request.timeot.ms", "5", "did you mean kafka.request.timeout.ms?"),
        ("acks", "7", "one of -1, 0, 1, all"),
        ("request.timeout.ms", "soon", "a whole number"),
        ("enable.idempotence", "yes", "true or false"),
        ("ssl.trustore.location", "x", "kafka.ssl.trustore.location is not a security config of clients; did you mean"),
        ("sasl.login.callback.handler.class", "org.example.X", "Java class"),
        ("key.serializer", "org.example.X", "Java class"),
        ("partitioner.class", "org.example.X", "Java class"),
    ],
)
def test_what_cannot_be_is_refused(setting: str, text: str, words: str) -> None:
    with pytest.raises(OptionError) as refusal:
        client_options({f"kafka.{setting}": text})
    assert words in str(refusal.value)


def test_the_level_of_the_codec_in_use_counts() -> None:
    given = {"kafka.compression.type": "zstd", "kafka.compression.zstd.level": "9", "kafka.compression.gzip.level": "1"}
    assert {"compression_type": "zstd", "compression_level": 9} == client_options(given)


def test_each_kind_of_client_gets_its_own() -> None:
    found = client_options({"kafka.acks": "1", "kafka.client.id": "me", "kafka.isolation.level": "read_committed"})
    assert {"client_id": "me"} == chosen_for(AdminConfig, found)
    assert {"client_id": "me", "acks": 1} == chosen_for(ProducerConfig, found)
    assert {"client_id": "me", "isolation_level": "read_committed"} == chosen_for(ConsumerConfig, found)


def test_an_unknown_option_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(OptionError, match=r"the source ottla has no option startingoffset; did you mean startingOffs"):
        refuse_unknown({"startingoffset": "x"}, ["subscribe", "startingOffsets"], "the source ottla")
    refuse_unknown({"startingoffsets": "x", "kafka.what.ever": "y"}, ["startingOffsets"], "the source ottla")


def test_brokers_must_be_named() -> None:
    assert "a:1" == bootstrap_of({"Kafka.Bootstrap.Servers": "a:1"})
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers is missing"):
        bootstrap_of({"kafka.bootstrap.servers": " "})
