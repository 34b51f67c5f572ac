"""How texts become values, and values texts."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.metadata.configs.broker_configs import BROKER_CONFIGS
from ottla.metadata.configs.definition import (
    ConfigDefinition,
    ConfigType,
    ConfigValue,
    Rule,
    nearest,
    split_list,
    unknown_config,
)
from ottla.metadata.configs.topic_configs import TOPIC_CONFIGS
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import InvalidConfigError


def define(type_: ConfigType, **more: Any) -> ConfigDefinition:
    return ConfigDefinition(name="a.config", type=type_, default=None, documentation="For tests.", **more)


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        (ConfigType.BOOLEAN, " TRUE ", True),
        (ConfigType.BOOLEAN, "false", False),
        (ConfigType.STRING, " a b ", "a b"),
        (ConfigType.CLASS, "a.B", "a.B"),
        (ConfigType.INT, " +78 ", 78),
        (ConfigType.INT, "-2147483648", -(2**31)),
        (ConfigType.SHORT, "32767", 2**15 - 1),
        (ConfigType.LONG, "9223372036854775807", 2**63 - 1),
        (ConfigType.DOUBLE, "1e-4", 0.0001),
        (ConfigType.DOUBLE, "0.25d", 0.25),
        (ConfigType.DOUBLE, ".5", 0.5),
        (ConfigType.LIST, "", ()),
        (ConfigType.LIST, " a , b,a", ("a", "b")),
        (ConfigType.PASSWORD, " with spaces ", " with spaces "),
    ],
)
def test_texts_that_kafka_takes(type_: ConfigType, text: str, value: ConfigValue) -> None:
    actual = define(type_).parse(text)
    assert value == actual
    assert type(value) is type(actual)


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        (ConfigType.BOOLEAN, "yes"),
        (ConfigType.BOOLEAN, ""),
        (ConfigType.INT, ""),
        (ConfigType.INT, "1.0"),
        (ConfigType.INT, "1_000"),
        (ConfigType.INT, "٣"),
        (ConfigType.INT, "2147483648"),
        (ConfigType.SHORT, "32768"),
        (ConfigType.LONG, "9223372036854775808"),
        (ConfigType.LONG, "9" * 5000),
        (ConfigType.DOUBLE, "NaN"),
        (ConfigType.DOUBLE, "Infinity"),
        (ConfigType.DOUBLE, "1e999"),
        (ConfigType.DOUBLE, "1e"),
        (ConfigType.LIST, "a,,b"),
        (ConfigType.LIST, "a,"),
    ],
)
def test_texts_that_are_refused(type_: ConfigType, text: str) -> None:
    with pytest.raises(InvalidConfigError, match=r"for configuration a\.config: it must be ") as caught:
        define(type_).parse(text)
    assert ErrorCode.INVALID_CONFIG == caught.value.code
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("definition", "text", "allowed"),
    [
        (define(ConfigType.LONG, lowest=-1), "-2", "a whole number of 64 bits, at least -1"),
        (define(ConfigType.INT, lowest=1, highest=17), "18", "a whole number of 32 bits, at least 1 and at most 17"),
        (define(ConfigType.DOUBLE, lowest=0, highest=0.5), "0.6", "a number, at least 0 and at most 0.5"),
        (define(ConfigType.STRING, allowed=("a", "b")), "A", "one of a, b"),
        (define(ConfigType.LIST, allowed=("a", "b")), "a,c", "any of a, b"),
        (define(ConfigType.INT, rule=Rule(lambda value: value == 7, "seven")), "8", "seven"),
    ],
)
def test_a_refusal_names_the_key_the_value_and_what_is_allowed(
    definition: ConfigDefinition, text: str, allowed: str
) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        definition.parse(text)
    assert f"Invalid value {text} for configuration a.config: it must be {allowed}" == str(caught.value)


def test_bounds_belong_to_the_range() -> None:
    definition = define(ConfigType.INT, lowest=1, highest=17)
    assert [1, 17] == [definition.parse("1"), definition.parse("17")]


def test_a_refused_password_is_not_told() -> None:
    definition = define(ConfigType.PASSWORD, rule=Rule(lambda value: False, "another one"))
    with pytest.raises(InvalidConfigError) as caught:
        definition.parse("hunter2")
    assert "Invalid value [hidden] for configuration a.config: it must be another one" == str(caught.value)
    assert definition.is_sensitive


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.5"),
        (0.0, "0.0"),
        (0.001, "0.001"),
        (0.0001, "1.0E-4"),
        (12345678.0, "1.2345678E7"),
        (9999999.0, "9999999.0"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (-2.5e-7, "-2.5E-7"),
    ],
)
def test_doubles_are_shown_as_java_does(value: float, text: str) -> None:
    assert text == define(ConfigType.DOUBLE).render(value)


def test_other_values_are_shown_as_kafka_does() -> None:
    assert ["true", "-1", "a,b", "", "x", None] == [
        define(ConfigType.BOOLEAN).render(True),
        define(ConfigType.LONG).render(-1),
        define(ConfigType.LIST).render(("a", "b")),
        define(ConfigType.LIST).render(()),
        define(ConfigType.STRING).render("x"),
        define(ConfigType.LONG).render(None),
    ]


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_double_that_is_shown_can_be_read_back(value: float) -> None:
    definition = define(ConfigType.DOUBLE)
    assert value == definition.parse(definition.render(value) or "")


@given(st.text(), st.sampled_from([*TOPIC_CONFIGS.values(), *BROKER_CONFIGS.values()]))
def test_any_text_is_read_or_refused(text: str, definition: ConfigDefinition) -> None:
    try:
        value = definition.parse(text)
    except InvalidConfigError:
        return
    assert value == definition.parse(definition.render(value) or "")


def test_the_nearest_name() -> None:
    assert "retention.ms" == nearest("retention.mss", TOPIC_CONFIGS)
    assert "num.partitions" == nearest("num.partition", BROKER_CONFIGS)
    assert None is nearest("zzz", TOPIC_CONFIGS)
    assert "Unknown topic config name: rentention.ms; did you mean retention.ms?" == str(
        unknown_config("rentention.ms", TOPIC_CONFIGS, "topic")
    )
    assert "Unknown topic config name: zzz" == str(unknown_config("zzz", TOPIC_CONFIGS, "topic"))


def test_a_list_is_split_at_commas() -> None:
    assert [(), ("a",), ("a", "", "b")] == [split_list("  "), split_list(" a "), split_list("a, ,b")]
