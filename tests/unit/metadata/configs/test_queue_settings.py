"""What the queue configs of a topic mean."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.metadata.configs.queue_settings import (
    QUEUE_CONFIGS,
    CompanionMark,
    QueueSettings,
    queue_config_faults,
    queue_settings_of,
)
from ottla.metadata.configs.topic_configs import TOPIC_CONFIGS
from ottla.model.queue_names import CompanionKind


@pytest.mark.parametrize(
    "configs",
    [{}, {"retention.ms": "5"}, {"ottla.delay.ms": "5"}, {"ottla.ttl.ms": "-1", "ottla.retry.enable": "false"}],
)
def test_a_topic_that_enables_nothing_is_plain(configs: dict[str, str]) -> None:
    assert None is queue_settings_of(configs)


@pytest.mark.parametrize(
    ("configs", "settings"),
    [
        ({"ottla.delay.enable": "true"}, QueueSettings(delay_enable=True)),
        ({"ottla.ttl.enable": "true"}, QueueSettings(ttl_enable=True)),
        ({"ottla.ttl.ms": "0"}, QueueSettings(ttl_ms=0)),
        ({"ottla.retry.enable": "true"}, QueueSettings(retry_enable=True)),
        ({"ottla.half.enable": "true"}, QueueSettings(half_enable=True)),
        ({"errors.deadletterqueue.topic.name": "d"}, QueueSettings(dead_letter_name="d")),
    ],
)
def test_each_feature_is_enabled_by_one_config(configs: dict[str, str], settings: QueueSettings) -> None:
    assert settings == queue_settings_of(configs)


def test_every_config_reaches_its_setting() -> None:
    configs = {
        "ottla.delay.enable": "true",
        "ottla.delay.ms": "1",
        "ottla.delay.max.ms": "2",
        "ottla.ttl.enable": "true",
        "ottla.ttl.ms": "3",
        "ottla.retry.enable": "true",
        "ottla.retry.backoff.ms": "4",
        "ottla.retry.backoff.max.ms": "5",
        "ottla.retry.backoff.jitter": "0.5",
        "ottla.retry.max.attempts": "6",
        "ottla.retry.order": "key",
        "ottla.half.enable": "true",
        "ottla.half.check.after.ms": "7",
        "ottla.half.check.interval.ms": "8",
        "ottla.half.check.max": "9",
        "ottla.half.open.max": "10",
        "ottla.delay.cancelled.max": "11",
        "errors.deadletterqueue.topic.name": "dead",
        "ottla.deadletter.headers": "spring",
    }
    assert configs.keys() == QUEUE_CONFIGS
    assert QueueSettings(
        delay_enable=True,
        delay_ms=1,
        delay_max_ms=2,
        ttl_enable=True,
        ttl_ms=3,
        retry_enable=True,
        retry_backoff_ms=4,
        retry_backoff_max_ms=5,
        retry_backoff_jitter=0.5,
        retry_max_attempts=6,
        retry_keeps_key_order=True,
        half_enable=True,
        half_check_after_ms=7,
        half_check_interval_ms=8,
        half_check_max=9,
        half_open_max=10,
        delay_cancelled_max=11,
        dead_letter_name="dead",
        has_spring_headers=True,
    ) == queue_settings_of(configs)


def test_a_companion_has_only_its_mark() -> None:
    configs = {"ottla.companion.of": "orders", "ottla.companion.kind": "half-checks", "retention.ms": "5"}
    assert QueueSettings(companion=CompanionMark("orders", CompanionKind.HALF_CHECKS)) == queue_settings_of(configs)


def test_a_stored_value_that_is_not_understood_counts_as_not_set() -> None:
    configs = {"ottla.retry.enable": "true", "ottla.retry.backoff.ms": "999999", "ottla.retry.backoff.max.ms": "soon"}
    settings = QueueSettings(retry_enable=True, retry_backoff_ms=999_999, retry_backoff_max_ms=999_999)
    assert settings == queue_settings_of({**configs, "ottla.future.enable": "true"})


def test_where_dead_letters_go() -> None:
    assert "dlq.orders" == QueueSettings(retry_enable=True).dead_letters_of("orders")
    assert "dead" == QueueSettings(dead_letter_name="dead").dead_letters_of("orders")


@pytest.mark.parametrize(
    ("settings", "kinds"),
    [
        (QueueSettings(ttl_ms=5), set()),
        (QueueSettings(delay_enable=True), {"delayed", "dead-letters"}),
        (QueueSettings(retry_enable=True), {"retry", "redelivery", "dead-letters"}),
        (QueueSettings(half_enable=True), {"half", "half-checks", "dead-letters"}),
        (QueueSettings(ttl_ms=5, dead_letter_name="d"), {"dead-letters"}),
    ],
)
def test_the_kinds_that_are_enabled(settings: QueueSettings, kinds: set[str]) -> None:
    assert kinds == {kind.value for kind in CompanionKind if settings.enables(kind)}


@pytest.mark.parametrize(
    ("configs", "faults"),
    [
        ({"ottla.delay.ms": 5, "ottla.delay.max.ms": 5}, []),
        (
            {"ottla.delay.ms": 6, "ottla.delay.max.ms": 5},
            ["ottla.delay.ms=6 is more than ottla.delay.max.ms=5; lower the one or raise the other"],
        ),
        (
            {"ottla.retry.backoff.ms": 300_001},
            [
                "ottla.retry.backoff.ms=300001 is more than ottla.retry.backoff.max.ms=300000; "
                "lower the one or raise the other"
            ],
        ),
        (
            {"ottla.companion.of": "orders", "ottla.companion.kind": "delayed", "ottla.ttl.ms": 5},
            ["ottla.ttl.ms cannot be set on a companion; set it on topic orders"],
        ),
        ({"ottla.companion.of": "orders", "ottla.companion.kind": "delayed", "retention.ms": 5}, []),
    ],
)
def test_configs_that_do_not_go_together(configs: dict[str, bool | int | str], faults: list[str]) -> None:
    assert faults == queue_config_faults(configs)


@given(
    st.dictionaries(st.sampled_from(sorted(QUEUE_CONFIGS)), st.text() | st.sampled_from(["true", "5", "key", "0.5"]))
)
def test_any_stored_configs_can_be_resolved(configs: dict[str, str]) -> None:
    settings = queue_settings_of(configs)
    assert settings is None or settings.retry_backoff_ms <= settings.retry_backoff_max_ms


def test_every_queue_config_has_a_default() -> None:
    assert [] == [name for name in QUEUE_CONFIGS if TOPIC_CONFIGS[name].default is None]
