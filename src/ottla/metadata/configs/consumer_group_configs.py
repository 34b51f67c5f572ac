"""The configs that one consumer group may override, and the broker configs behind them.

Names, types and defaults are those of Kafka 4.4. A group's value must be within the broker's minimum and maximum;
`ottla.broker.configs.group_settings` combines both.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from ottla.metadata.configs.broker_limits import BrokerLimits
from ottla.metadata.configs.definition import ConfigType
from ottla.metadata.configs.definition import define as _define

_INT: Final = ConfigType.INT

CONSUMER_GROUP_CONFIGS: Final = (
    _define("consumer.session.timeout.ms", _INT, "45000", "The session timeout of the consumer group.", 1),
    _define("consumer.heartbeat.interval.ms", _INT, "5000", "The heartbeat interval of the consumer group.", 1),
    _define("consumer.assignment.interval.ms", _INT, "1000",
            "The shortest time between two assignments of the consumer group; 0 for no limit.", 0),
    _define("consumer.assignor.offload.enable", ConfigType.BOOLEAN, "true",
            "Whether assignments are computed in a background thread. It has no effect in Ottla."),
)  # fmt: skip

CONSUMER_LIMITS: Final[Mapping[str, BrokerLimits]] = MappingProxyType(
    {
        **{
            f"consumer.{name}": BrokerLimits(
                f"group.consumer.{name}", f"group.consumer.min.{name}", f"group.consumer.max.{name}"
            )
            for name in ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms")
        },
        "consumer.assignor.offload.enable": BrokerLimits("group.consumer.assignor.offload.enable"),
    }
)
"""The broker configs behind the configs of a consumer group."""
