"""What a topic's queues are, by its configs and its companions."""

import pytest

from ottla.metadata.configs.queue_settings import queue_settings_of
from ottla.model.queue_names import CompanionKind
from ottla.operations.queues.queue_topics import QueueTopic


def topic(companions: dict[str, CompanionKind] | None = None, **enabled: str) -> QueueTopic:
    """A topic with the configs `ottla.<name>`, where `_` stands for a dot."""
    configs = {f"ottla.{name.replace('_', '.')}": value for name, value in enabled.items()}
    return QueueTopic(name="orders", settings=queue_settings_of(configs), configs=configs, companions=companions or {})


@pytest.mark.parametrize(
    ("enabled", "queues", "dead_letters"),
    [
        ({}, [], None),
        ({"delay_enable": "true"}, ["delay"], "dlq.orders"),
        ({"retry_enable": "true"}, ["retry"], "dlq.orders"),
        ({"half_enable": "true"}, ["half"], "dlq.orders"),
        ({"ttl_ms": "0"}, ["ttl"], None),
        ({"ttl_enable": "true", "half_enable": "true", "delay_enable": "true"}, ["delay", "half", "ttl"], "dlq.orders"),
    ],
)
def test_enabled_queues(enabled: dict[str, str], queues: list[str], dead_letters: str | None) -> None:
    chosen = topic({}, **enabled)
    assert (queues, dead_letters) == (chosen.queues, chosen.dead_letters)


def test_companions_that_park_records() -> None:
    companions = {
        "orders.half": CompanionKind.HALF,
        "orders.half-checks": CompanionKind.HALF_CHECKS,
        "orders.delayed": CompanionKind.DELAYED,
        "orders.g.retry": CompanionKind.RETRY,
        "orders.g.redelivery": CompanionKind.REDELIVERY,
        "dlq.orders": CompanionKind.DEAD_LETTERS,
    }
    assert ["orders.delayed", "orders.g.retry", "orders.half"] == topic(companions).parking
