"""What a topic's configs mean on a broker."""

import logging

import pytest

from ottla.broker.configs.configuration import BrokerConfig
from ottla.broker.configs.topic_settings import TopicSettings, describe_topic, validate_topic_configs
from ottla.metadata.configs.definition import COMPLAINTS_MAX, ConfigSource, DescribedConfig, Synonym
from ottla.metadata.configs.queue_settings import CompanionMark, QueueSettings
from ottla.model.errors import InvalidConfigError
from ottla.model.ids import TopicPartition
from ottla.model.queue_names import CompanionKind
from ottla.records.layout import Codec, TimestampType
from ottla.storage.log_config import LogConfig

DEFAULT = BrokerConfig.parse()


def described(config: BrokerConfig, overrides: dict[str, str], name: str) -> DescribedConfig:
    (found,) = (each for each in describe_topic(config, overrides) if each.name == name)
    return found


def test_without_any_config_a_log_has_its_defaults() -> None:
    settings = TopicSettings.resolve(DEFAULT, {})
    assert LogConfig() == settings.log
    assert (1, False, 1048588, (), ()) == (
        settings.min_insync_replicas,
        settings.unclean_leader_election_enable,
        settings.max_message_bytes,
        settings.leader_throttled_replicas,
        settings.follower_throttled_replicas,
    )


def test_every_config_reaches_its_setting() -> None:
    overrides = {
        "segment.bytes": "1048577",
        "segment.ms": "102",
        "segment.index.bytes": "104",
        "index.interval.bytes": "105",
        "flush.messages": "106",
        "flush.ms": "107",
        "retention.ms": "108",
        "retention.bytes": "109",
        "cleanup.policy": "compact",
        "delete.retention.ms": "110",
        "min.compaction.lag.ms": "111",
        "max.compaction.lag.ms": "112",
        "min.cleanable.dirty.ratio": "0.125",
        "file.delete.delay.ms": "113",
        "max.message.bytes": "114",
        "compression.type": "zstd",
        "compression.zstd.level": "7",
        "message.timestamp.type": "LogAppendTime",
        "message.timestamp.before.max.ms": "115",
        "message.timestamp.after.max.ms": "116",
        "min.insync.replicas": "2",
        "unclean.leader.election.enable": "true",
        "leader.replication.throttled.replicas": "0:1",
        "follower.replication.throttled.replicas": "*",
    }
    validate_topic_configs(overrides, DEFAULT)
    config = BrokerConfig.parse(settings={"producer.id.expiration.ms": "117"})
    assert TopicSettings(
        log=LogConfig(
            segment_bytes=1048577,
            segment_ms=102,
            segment_index_bytes=104,
            index_interval_bytes=105,
            flush_messages=106,
            flush_ms=107,
            retention_ms=108,
            retention_bytes=109,
            cleanup_compact=True,
            cleanup_delete=False,
            delete_retention_ms=110,
            min_compaction_lag_ms=111,
            max_compaction_lag_ms=112,
            min_cleanable_dirty_ratio=0.125,
            file_delete_delay_ms=113,
            max_message_bytes=114,
            compression=Codec.ZSTD,
            compression_level=7,
            timestamp_type=TimestampType.LOG_APPEND_TIME,
            timestamp_before_max_ms=115,
            timestamp_after_max_ms=116,
            producer_id_expiration_ms=117,
        ),
        segment_jitter_ms=0,
        min_insync_replicas=2,
        unclean_leader_election_enable=True,
        max_message_bytes=114,
        leader_throttled_replicas=("0:1",),
        follower_throttled_replicas=("*",),
    ) == TopicSettings.resolve(config, overrides)


@pytest.mark.parametrize(
    ("settings", "retention_ms"),
    [
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.ms": "-5"}, -1),
    ],
)
def test_the_finest_unit_that_is_set_counts(settings: dict[str, str], retention_ms: int) -> None:
    assert retention_ms == TopicSettings.resolve(BrokerConfig.parse(settings=settings), {}).log.retention_ms


def test_other_synonyms() -> None:
    config = BrokerConfig.parse(
        settings={"log.roll.hours": "2", "log.roll.jitter.hours": "1", "log.flush.scheduler.interval.ms": "5"}
    )
    settings = TopicSettings.resolve(config, {})
    assert (7_200_000, 3_600_000, 5) == (settings.log.segment_ms, settings.segment_jitter_ms, settings.log.flush_ms)


@pytest.mark.parametrize(
    ("overrides", "compression", "level"),
    [
        ({}, None, None),
        ({"compression.type": "uncompressed"}, Codec.NONE, None),
        ({"compression.type": "snappy"}, Codec.SNAPPY, None),
        ({"compression.type": "gzip"}, Codec.GZIP, None),
        ({"compression.type": "gzip", "compression.gzip.level": "9"}, Codec.GZIP, 9),
        ({"compression.type": "lz4", "compression.gzip.level": "9"}, Codec.LZ4, None),
        ({"compression.type": "lz4", "compression.lz4.level": "12"}, Codec.LZ4, 12),
    ],
)
def test_codecs_and_their_levels(overrides: dict[str, str], compression: Codec | None, level: int | None) -> None:
    log = TopicSettings.resolve(DEFAULT, overrides).log
    assert (compression, level) == (log.compression, log.compression_level)


def test_neither_policy_keeps_everything() -> None:
    log = TopicSettings.resolve(DEFAULT, {"cleanup.policy": ""}).log
    assert (False, False) == (log.cleanup_compact, log.cleanup_delete)


def test_the_internal_segment_size_goes_first() -> None:
    overrides = {"segment.bytes": "2000000", "internal.segment.bytes": "100"}
    assert 100 == TopicSettings.resolve(DEFAULT, overrides).log.segment_bytes


def test_partitions_share_the_jitter_out() -> None:
    settings = TopicSettings.resolve(DEFAULT, {"segment.ms": "1000", "segment.jitter.ms": "5000"})
    rolls = [settings.log_of(TopicPartition("t", partition)).roll_ms for partition in range(50)]
    assert all(0 < each <= 1000 for each in rolls)
    assert len(set(rolls)) > 25
    assert rolls[3] == settings.log_of(TopicPartition("t", 3)).roll_ms
    assert 1000 == settings.log.roll_ms


def test_stored_configs_that_are_not_understood_give_way(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        settings = TopicSettings.resolve(DEFAULT, {"from.the.future": "1", "retention.ms": "x", "flush.ms": "7"})
    assert LogConfig(flush_ms=7) == settings.log
    assert 2 == len(caplog.records)


def test_every_error_is_told_at_once() -> None:
    with pytest.raises(InvalidConfigError) as caught:
        validate_topic_configs(
            {
                "retention.mss": "1",
                "retention.ms": "-2",
                "min.compaction.lag.ms": "9",
                "max.compaction.lag.ms": "5",
                "remote.storage.enable": "true",
            },
            DEFAULT,
        )
    assert [
        "Unknown topic config name: retention.mss; did you mean retention.ms?",
        "Invalid value -2 for configuration retention.ms: it must be a whole number of 64 bits, at least -1",
        "min.compaction.lag.ms=9 is more than max.compaction.lag.ms=5; lower the one or raise the other",
        "remote.storage.enable=true is not supported: this broker stores all segments on local disk",
    ] == str(caught.value).splitlines()


def test_thousands_of_errors_are_not_told() -> None:
    with pytest.raises(InvalidConfigError) as caught:
        validate_topic_configs({f"retention.mss{number}": "1" for number in range(100_000)}, DEFAULT)
    assert COMPLAINTS_MAX == len(str(caught.value).splitlines())


def test_a_topics_configs_are_held_against_the_brokers() -> None:
    config = BrokerConfig.parse(settings={"log.cleaner.min.compaction.lag.ms": "9"})
    validate_topic_configs({"max.compaction.lag.ms": "5"})
    with pytest.raises(InvalidConfigError):
        validate_topic_configs({"max.compaction.lag.ms": "5"}, config)


def test_a_described_config_tells_where_its_value_comes_from() -> None:
    config = BrokerConfig.parse(settings={"log.roll.hours": "1"}).with_dynamic({"log.roll.ms": "50"}, {})
    found = described(config, {"segment.ms": " 7 "}, "segment.ms")
    assert ("7", ConfigSource.TOPIC, False) == (found.value, found.source, found.is_read_only)
    assert (
        Synonym("segment.ms", "7", ConfigSource.TOPIC),
        Synonym("log.roll.ms", "50", ConfigSource.DYNAMIC_DEFAULT_BROKER),
        Synonym("log.roll.hours", "1", ConfigSource.STATIC_BROKER),
        Synonym("log.roll.hours", "168", ConfigSource.DEFAULT),
    ) == found.synonyms
    assert ("50", ConfigSource.DYNAMIC_DEFAULT_BROKER) == (
        described(config, {}, "segment.ms").value,
        described(config, {}, "segment.ms").source,
    )


def test_hidden_configs_show_up_once_they_are_set() -> None:
    name = "internal.segment.bytes"
    assert name not in {each.name for each in describe_topic(DEFAULT, {})}
    assert "100" == described(DEFAULT, {name: "100"}, name).value


COMPANION = {"ottla.companion.of": "orders", "ottla.companion.kind": "delayed"}


def test_a_parking_companion_ignores_retention() -> None:
    overrides = {"retention.ms": "1", "retention.bytes": "1", "cleanup.policy": "compact"}
    log = TopicSettings.resolve(DEFAULT, {**COMPANION, **overrides}).log
    assert (-1, -1, False, True) == (log.retention_ms, log.retention_bytes, log.cleanup_compact, log.cleanup_delete)
    letters = TopicSettings.resolve(DEFAULT, {**COMPANION, **overrides, "ottla.companion.kind": "dead-letters"}).log
    assert (1, 1, True, False) == (
        letters.retention_ms,
        letters.retention_bytes,
        letters.cleanup_compact,
        letters.cleanup_delete,
    )


def test_queue_settings_are_part_of_a_topics_settings() -> None:
    assert None is TopicSettings.resolve(DEFAULT, {}).queue
    assert QueueSettings(ttl_ms=5) == TopicSettings.resolve(DEFAULT, {"ottla.ttl.ms": "5"}).queue
    mark = CompanionMark("orders", CompanionKind.DELAYED)
    assert QueueSettings(companion=mark) == TopicSettings.resolve(DEFAULT, COMPANION).queue


def test_marks_of_companions_are_described_as_read_only_and_only_where_they_are_set() -> None:
    shown = {each.name: each.is_read_only for each in describe_topic(DEFAULT, COMPANION)}
    assert {*COMPANION} == {name for name, is_read_only in shown.items() if is_read_only}
    assert set() == {*COMPANION} & {each.name for each in describe_topic(DEFAULT, {})}


def test_queue_configs_that_do_not_go_together_are_refused() -> None:
    with pytest.raises(InvalidConfigError, match=r"ottla\.delay\.ms=9 is more than ottla\.delay\.max\.ms=5"):
        validate_topic_configs({"ottla.delay.ms": "9", "ottla.delay.max.ms": "5"})
