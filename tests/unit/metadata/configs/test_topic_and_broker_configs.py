"""The tables hold together: every default is a valid value, every synonym exists, every config is explained."""

from collections.abc import Mapping

import pytest

from ottla.metadata.configs.broker_configs import (
    BROKER_CONFIGS,
    DEFAULTS,
    FIXED_WHILE_RUNNING,
    SYNONYMS,
    split_listener,
)
from ottla.metadata.configs.definition import ConfigDefinition, ConfigType, UpdateMode
from ottla.metadata.configs.topic_configs import BROKER_SYNONYMS, TOPIC_CONFIGS
from ottla.model.errors import InvalidConfigError

TABLES = [TOPIC_CONFIGS, BROKER_CONFIGS]


@pytest.mark.parametrize("table", TABLES)
def test_every_default_is_a_valid_value_and_shown_as_it_is_written(table: Mapping[str, ConfigDefinition]) -> None:
    defaults = {name: each for name, each in table.items() if each.default is not None}
    assert {name: each.default for name, each in defaults.items()} == {
        name: each.render(each.parse(each.default or "")) for name, each in defaults.items()
    }


@pytest.mark.parametrize("table", TABLES)
def test_every_config_is_explained_in_a_sentence_or_two(table: Mapping[str, ConfigDefinition]) -> None:
    assert [] == [name for name, each in table.items() if not 20 < len(each.documentation) < 400]
    assert [] == [name for name, each in table.items() if not each.documentation.endswith((".", "…"))]


def test_every_synonym_is_a_broker_config_of_a_like_type() -> None:
    whole = {ConfigType.INT, ConfigType.LONG}
    assert [] == [
        (name, synonym.name)
        for name, synonyms in BROKER_SYNONYMS.items()
        for synonym in synonyms
        if {TOPIC_CONFIGS[name].type, BROKER_CONFIGS[synonym.name].type} - whole
        and TOPIC_CONFIGS[name].type is not BROKER_CONFIGS[synonym.name].type
    ]
    assert [] == [name for names in SYNONYMS.values() for name in names if name not in BROKER_CONFIGS]


def test_a_topic_without_configs_is_the_same_with_an_unconfigured_broker() -> None:
    """Each topic default must be what the broker's own defaults make of it, units converted."""
    for name, synonyms in BROKER_SYNONYMS.items():
        found = [each for each in synonyms if each.name in DEFAULTS]
        value = BROKER_CONFIGS[found[0].name].parse(DEFAULTS[found[0].name])
        if isinstance(value, int) and not isinstance(value, bool):
            value *= found[0].factor
        assert (name, TOPIC_CONFIGS[name].default) == (name, TOPIC_CONFIGS[name].render(value))


def test_what_cannot_change_here_could_in_kafka() -> None:
    assert [] == [name for name in FIXED_WHILE_RUNNING if BROKER_CONFIGS[name].update_mode is UpdateMode.AT_START]


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("compression.gzip.level", ["-1", "1", "9"], ["0", "10", "-2"]),
        ("leader.replication.throttled.replicas", ["", "*", "0:1,1:2"], ["x", "*,0:1", "0:", "0:-1"]),
        ("cleanup.policy", ["", "compact", "delete, compact"], ["COMPACT", "keep", "compact,,delete"]),
        ("segment.bytes", ["1048576"], ["1048575", "2147483648"]),
        ("retention.ms", ["-1", "0"], ["-2"]),
    ],
)
def test_topic_values(name: str, good: list[str], bad: list[str]) -> None:
    check(TOPIC_CONFIGS[name], good, bad)


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("listeners", ["PLAINTEXT://:9092", "A://h:1,B://[::1]:0"], ["", "h:1", "A://h", "A://h:65536", "A://h h:1"]),
        (
            "max.connections.per.ip.overrides",
            ["", "10.0.0.1:5, ::1:0,[fe80::1]:2147483647"],
            ["10.0.0.1", "10.0.0.1:", "10.0.0.1:-1", ":5", "10.0.0.1:5,x", "10.0.0.1:٣", "host:7"],
        ),
        ("log.retention.hours", ["-1", "1"], ["0", "x"]),
        ("log.retention.ms", ["-5", "1"], ["0"]),
        ("log.roll.ms", ["1"], ["0", "-1"]),
        ("log.cleaner.io.buffer.load.factor", ["0.1", "1.0"], ["0.0", "1.1"]),
        ("log.cleaner.io.max.bytes.per.second", ["1"], ["0", "-5"]),
        ("offsets.topic.compression.codec", ["0", "4"], ["5"]),
    ],
)
def test_broker_values(name: str, good: list[str], bad: list[str]) -> None:
    check(BROKER_CONFIGS[name], good, bad)


def check(definition: ConfigDefinition, good: list[str], bad: list[str]) -> None:
    for text in good:
        definition.parse(text)
    for text in bad:
        with pytest.raises(InvalidConfigError):
            definition.parse(text)


def test_listeners_are_taken_apart() -> None:
    assert ("PLAINTEXT", "localhost", 9092) == split_listener("plaintext://localhost:9092")
    assert ("TLS", "::1", 1) == split_listener("TLS://[::1]:1")
    assert ("A", "", 0) == split_listener("A://:0")
    assert None is split_listener("A://::1:0")
