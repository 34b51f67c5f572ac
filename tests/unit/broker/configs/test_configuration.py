"""A broker's configuration from its sources, and what it refuses."""

import logging
import tomllib

import pytest

from ottla.broker.configs.configuration import (
    BrokerConfig,
    describe_broker,
    describe_cluster_wide,
    validate_dynamic,
)
from ottla.broker.configs.listener_config import Endpoint
from ottla.metadata.configs.definition import COMPLAINTS_MAX, ConfigSource, ConfigType, DescribedConfig, Synonym
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import InvalidConfigError, InvalidRequestError


def complaints(file: dict[str, object] | None = None, settings: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(InvalidConfigError) as caught:
        BrokerConfig.parse(file, settings)
    return str(caught.value).splitlines()


def described(config: BrokerConfig, name: str) -> DescribedConfig:
    (found,) = (each for each in describe_broker(config) if each.name == name)
    return found


def test_without_any_source_the_defaults_are_kafkas() -> None:
    config = BrokerConfig.parse()
    assert (0, (), 1, True, 104857600, None) == (
        config.broker_id,
        config.log_dirs,
        config.num_partitions,
        config.auto_create_topics_enable,
        config.socket_request_max_bytes,
        config.broker_rack,
    )
    assert (Endpoint("PLAINTEXT", "", 9092),) == config.endpoints
    assert () == config.advertised_endpoints


def test_a_file_may_be_flat_or_nested_and_the_command_line_goes_before_it() -> None:
    file = tomllib.loads(
        """
        "num.partitions" = 3
        node.id = 7
        broker.rack = "a"
        listeners = ["PLAINTEXT://127.0.0.1:1", "OTHER://[::1]:2"]
        listener.security.protocol.map = "PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT"
        [log]
        retention.ms = 5
        cleaner.enable = false
        cleaner.min.cleanable.ratio = 0.25
        """
    )
    config = BrokerConfig.parse(file, {"log.retention.ms": "6", "log.dirs": "x, y"})
    assert (3, 7, "a", False, ("x", "y")) == (
        config.num_partitions,
        config.broker_id,
        config.broker_rack,
        config.log_cleaner_enable,
        config.log_dirs,
    )
    assert (6, 0.25) == (config.values["log.retention.ms"], config.values["log.cleaner.min.cleanable.ratio"])
    assert (Endpoint("PLAINTEXT", "127.0.0.1", 1), Endpoint("OTHER", "::1", 2)) == config.endpoints


def test_every_error_is_told_at_once() -> None:
    assert [
        "x.y: its value in the file is not text, a number, true, false, or a list of these",
        "Unknown broker config name: num.partition; did you mean num.partitions?",
        "retention.ms is a config of a topic; for all topics of a broker set log.retention.ms",
        "Invalid value 0 for configuration num.partitions: it must be a whole number of 32 bits, at least 1",
    ] == complaints(
        {"x": {"y": None}, "num": {"partition": 5}}, {"retention.ms": "1", "num.partitions": "0"}
    )  # fmt: skip


def test_a_key_that_is_written_twice_is_refused() -> None:
    assert ["node.id is in the file twice; remove one of them"] == complaints({"node": {"id": 1}, "node.id": 2})


def test_values_that_contradict_each_other_are_refused() -> None:
    assert [
        "log.cleaner.min.compaction.lag.ms=9 is more than log.cleaner.max.compaction.lag.ms=5; "
        "lower the one or raise the other"
    ] == complaints(settings={"log.cleaner.min.compaction.lag.ms": "9", "log.cleaner.max.compaction.lag.ms": "5"})


def test_what_storage_is_told() -> None:
    config = BrokerConfig.parse(
        settings={
            "log.retention.check.interval.ms": "11",
            "log.flush.offset.checkpoint.interval.ms": "12",
            "log.cleaner.backoff.ms": "13",
            "log.cleaner.dedupe.buffer.size": "1048577",
            "log.cleaner.io.buffer.load.factor": "0.5",
            "log.cleaner.io.max.bytes.per.second": "1000",
        }
    )
    housekeeping, cleaner = config.housekeeping, config.cleaner(b"k" * 16)
    assert (11, 12, 13) == (
        housekeeping.retention_check_interval_ms,
        housekeeping.flush_checkpoint_interval_ms,
        housekeeping.cleaner_backoff_ms,
    )
    assert (1048577, 0.5, 1000.0, b"k" * 16) == (
        cleaner.dedupe_buffer_bytes,
        cleaner.dedupe_buffer_load_factor,
        cleaner.io_max_bytes_per_second,
        cleaner.hash_key,
    )
    assert None is BrokerConfig.parse().cleaner(bytes(16)).io_max_bytes_per_second


def test_dynamic_configs_go_before_static_ones_and_the_brokers_own_before_all() -> None:
    static = BrokerConfig.parse(settings={"message.max.bytes": "1", "min.insync.replicas": "1"})
    config = static.with_dynamic({"message.max.bytes": "2", "min.insync.replicas": "2"}, {"message.max.bytes": "3"})
    assert (3, 2) == (config.message_max_bytes, config.min_insync_replicas)
    assert static == config.with_dynamic({}, {})


def test_stored_configs_that_are_not_understood_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        config = BrokerConfig.parse().with_dynamic({"num.io.threads": "many"}, {"message.max.bytes": "x"})
    assert BrokerConfig.parse() == config
    assert 2 == len(caplog.records)


def test_configs_that_are_not_known_are_kept_and_described_without_their_value() -> None:
    """As in Kafka: a plugin's config, such as a password, may be set for all brokers."""
    configs = {"a.plugin.password": "secret"}
    validate_dynamic(BrokerConfig.parse(), configs, is_cluster_wide=True)
    config = BrokerConfig.parse().with_dynamic(configs, {"max.message.bytes": "5"})
    assert {"a.plugin.password", "max.message.bytes"} == config.unknown_configs
    source = ConfigSource.DYNAMIC_DEFAULT_BROKER
    expected = DescribedConfig(
        name="a.plugin.password",
        value=None,
        source=source,
        type=ConfigType.UNKNOWN,
        is_read_only=True,
        is_sensitive=True,
        synonyms=(Synonym("a.plugin.password", None, source),),
        documentation="Not a known config; it has no effect in Ottla.",
    )
    assert [expected] == describe_cluster_wide(config)
    assert expected == described(config, "a.plugin.password")


def test_only_some_configs_need_not_be_known() -> None:
    configs = {f"unknown.{number}": "1" for number in range(101)}
    with pytest.raises(InvalidRequestError, match="101 of the configs are not known; the limit is 100"):
        validate_dynamic(BrokerConfig.parse(), configs, is_cluster_wide=True)


def test_a_described_config_tells_where_its_value_comes_from() -> None:
    config = BrokerConfig.parse(settings={"message.max.bytes": "1"}).with_dynamic({"message.max.bytes": "2"}, {})
    config = config.with_dynamic(config.cluster_wide, {"message.max.bytes": "3"})
    found = described(config, "message.max.bytes")
    assert ("3", ConfigSource.DYNAMIC_BROKER, ConfigType.INT, False, False) == (
        found.value,
        found.source,
        found.type,
        found.is_read_only,
        found.is_sensitive,
    )
    assert (
        Synonym("message.max.bytes", "3", ConfigSource.DYNAMIC_BROKER),
        Synonym("message.max.bytes", "2", ConfigSource.DYNAMIC_DEFAULT_BROKER),
        Synonym("message.max.bytes", "1", ConfigSource.STATIC_BROKER),
        Synonym("message.max.bytes", "1048588", ConfigSource.DEFAULT),
    ) == found.synonyms


def test_a_value_in_another_unit_is_a_synonym_only_behind_the_name_itself() -> None:
    static = BrokerConfig.parse(settings={"log.retention.hours": "24"})
    assert (None, ConfigSource.DEFAULT, ()) == (
        described(static, "log.retention.ms").value,
        described(static, "log.retention.ms").source,
        described(static, "log.retention.ms").synonyms,
    )
    assert (
        Synonym("log.retention.ms", "5", ConfigSource.DYNAMIC_BROKER),
        Synonym("log.retention.hours", "24", ConfigSource.STATIC_BROKER),
        Synonym("log.retention.hours", "168", ConfigSource.DEFAULT),
    ) == described(static.with_dynamic({}, {"log.retention.ms": "5"}), "log.retention.ms").synonyms


def test_hidden_configs_show_up_once_they_are_set() -> None:
    name = "leader.replication.throttled.rate"
    assert name not in {each.name for each in describe_broker(BrokerConfig.parse())}
    assert "5" == described(BrokerConfig.parse().with_dynamic({}, {name: "5"}), name).value


def test_the_cluster_wide_configs_are_described_alone() -> None:
    config = BrokerConfig.parse(settings={"num.partitions": "3"}).with_dynamic({"log.retention.ms": "5"}, {})
    (found,) = describe_cluster_wide(config)
    synonym = Synonym("log.retention.ms", "5", ConfigSource.DYNAMIC_DEFAULT_BROKER)
    assert ("log.retention.ms", "5", (synonym,)) == (found.name, found.value, found.synonyms)


@pytest.mark.parametrize(
    ("configs", "is_cluster_wide", "complaint"),
    [
        ({"num.partitions": "5"}, True, "num.partitions cannot be changed while the broker runs"),
        ({"listeners": "A://:1"}, False, "listeners cannot be changed while the broker runs"),
        ({"message.max.bytes": "x"}, True, "Invalid value x for configuration message.max.bytes"),
        (
            {"log.cleaner.min.compaction.lag.ms": "9", "log.cleaner.max.compaction.lag.ms": "5"},
            True,
            "lower the one or raise the other",
        ),
    ],
)
def test_dynamic_configs_that_are_refused(configs: dict[str, str], is_cluster_wide: bool, complaint: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        validate_dynamic(BrokerConfig.parse(), configs, is_cluster_wide=is_cluster_wide)
    assert ErrorCode.INVALID_REQUEST == caught.value.code
    assert complaint in str(caught.value)


def test_thousands_of_errors_are_not_told() -> None:
    configs = {f"listener.name.l{number}.ssl.protocol": "TLSv1.3" for number in range(100_000)}
    with pytest.raises(InvalidRequestError) as caught:
        validate_dynamic(BrokerConfig.parse(), configs, is_cluster_wide=True)
    assert COMPLAINTS_MAX == len(str(caught.value).splitlines())


def test_a_dynamic_config_is_held_against_those_of_the_other_layer() -> None:
    config = BrokerConfig.parse().with_dynamic({"log.cleaner.min.compaction.lag.ms": "9"}, {})
    with pytest.raises(InvalidRequestError):
        validate_dynamic(config, {"log.cleaner.max.compaction.lag.ms": "5"}, is_cluster_wide=False)
    validate_dynamic(config, {"log.cleaner.max.compaction.lag.ms": "5"}, is_cluster_wide=True)
