"""The options of the half message producers: those of a producer, and how questions are answered."""

from dataclasses import dataclass, fields
from typing import Any, Final

from ottla.client.options import ClientConfig, OptionError, configured, option
from ottla.client.producer.options import ProducerConfig, ProducerOptions
from ottla.client.serializers import Deserializer

HALF_MESSAGE_PRODUCER: Final = "HalfMessageProducer"
CHECKS_AT_ONCE: Final = 16
"""How many questions are answered at the same time."""
HEARTBEAT_INTERVAL_MS: Final = 3_000
"""Less, if the session timeout is short."""


class HalfMessageProducerOptions(ProducerOptions, total=False):
    """The options of a half message producer; `HalfMessageProducerConfig` documents them."""

    group_id: str | None
    key_deserializer: Deserializer | None
    value_deserializer: Deserializer | None
    session_timeout_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfMessageProducerConfig(ProducerConfig):
    """The options of a half message producer. It needs `acks="all"`, and cannot have a `transactional_id`."""

    group_id: str | None = None
    """The consumer group that answers the broker's questions: the same for all instances of a service. Without it, this
    producer answers none."""
    key_deserializer: Deserializer | None = None
    value_deserializer: Deserializer | None = None
    """For the half messages that `check` gets. A null key or value stays None."""
    session_timeout_ms: int = option(45_000, least=3)
    """If this process dies, the other members of the group take over its questions after this time. Heartbeats are sent
    at least three times as often."""

    def producer_options(self) -> dict[str, Any]:
        """The options of its producer, which does not serialize."""
        ours: dict[str, Any] = {"key_serializer": None, "value_serializer": None}
        return {each.name: getattr(self, each.name) for each in fields(ProducerConfig)} | ours

    def consumer_options(self) -> dict[str, Any]:
        """The options of the consumer that reads questions."""
        shared = {each.name: getattr(self, each.name) for each in fields(ClientConfig)}
        return {
            **shared,
            "group_id": self.group_id,
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "max_poll_records": CHECKS_AT_ONCE,
            "session_timeout_ms": self.session_timeout_ms,
            "heartbeat_interval_ms": min(HEARTBEAT_INTERVAL_MS, self.session_timeout_ms // 3),
        }


def half_message_producer_config(options: HalfMessageProducerOptions, *, has_check: bool) -> HalfMessageProducerConfig:
    """The checked config. Raises `OptionError`."""
    config = configured(HalfMessageProducerConfig, HALF_MESSAGE_PRODUCER, options)
    if config.wire_acks != -1:
        raise OptionError(f"{HALF_MESSAGE_PRODUCER} needs acks='all': a half message must not be lost")
    if config.transactional_id is not None:
        raise OptionError(f"{HALF_MESSAGE_PRODUCER} cannot have a transactional_id; use Producer and headers for that")
    if config.group_id == "":
        raise OptionError(f"{HALF_MESSAGE_PRODUCER}: group_id must not be empty; omit it to answer no checks")
    if (config.group_id is None) is has_check:
        raise OptionError(f"{HALF_MESSAGE_PRODUCER}: pass both check and group_id, or neither")
    return config
