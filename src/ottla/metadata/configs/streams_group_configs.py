"""The broker configs of streams groups, and the configs that one streams group may override.

Names, types, defaults and bounds are those of Kafka 4.3; `group.streams.topology.description.memory.bytes` is not in
Kafka. A group's value must be within the broker's minimum and maximum; `ottla.broker.configs.group_settings` combines
both.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from ottla.metadata.configs.broker_limits import BrokerLimits
from ottla.metadata.configs.definition import ConfigType, UpdateMode
from ottla.metadata.configs.definition import define as _define

_BOOLEAN, _INT = ConfigType.BOOLEAN, ConfigType.INT
_INT_MAX_TEXT: Final = str(2**31 - 1)

STREAMS_BROKER_CONFIGS: Final = (
    _define("group.streams.session.timeout.ms", _INT, "45000", "The session timeout of streams groups.", 1),
    _define("group.streams.min.session.timeout.ms", _INT, "45000",
            "The smallest value of a group's streams.session.timeout.ms.", 1),
    _define("group.streams.max.session.timeout.ms", _INT, "60000",
            "The largest value of a group's streams.session.timeout.ms.", 1),
    _define("group.streams.heartbeat.interval.ms", _INT, "5000", "The heartbeat interval of streams groups.", 1),
    _define("group.streams.min.heartbeat.interval.ms", _INT, "5000",
            "The smallest value of a group's streams.heartbeat.interval.ms.", 1),
    _define("group.streams.max.heartbeat.interval.ms", _INT, "15000",
            "The largest value of a group's streams.heartbeat.interval.ms.", 1),
    _define("group.streams.max.size", _INT, _INT_MAX_TEXT, "How many members a streams group may have.", 1),
    _define("group.streams.num.standby.replicas", _INT, "0", "The number of standby tasks of each stateful task.", 0),
    _define("group.streams.max.standby.replicas", _INT, "2",
            "The largest value of a group's streams.num.standby.replicas.", 0),
    _define("group.streams.initial.rebalance.delay.ms", _INT, "3000",
            "How long a new streams group waits for more members before its first assignment.", 0),
    _define("group.streams.assignment.interval.ms", _INT, "1000",
            "The shortest time between two assignments of a streams group; 0 for no limit.", 0,
            update_mode=UpdateMode.CLUSTER_WIDE),
    _define("group.streams.min.assignment.interval.ms", _INT, "0",
            "The smallest value of a group's streams.assignment.interval.ms.", 0),
    _define("group.streams.max.assignment.interval.ms", _INT, "15000",
            "The largest value of a group's streams.assignment.interval.ms.", 0),
    _define("group.streams.assignor.offload.enable", _BOOLEAN, "true",
            "Whether assignments are computed in a background thread. It has no effect in Ottla.",
            update_mode=UpdateMode.CLUSTER_WIDE),
    _define("group.streams.topology.description.memory.bytes", _INT, "67108864",
            "The memory for the topology descriptions of streams groups; each partition of __consumer_offsets has an"
            " equal part. 0 to keep no descriptions.", 0),
)  # fmt: skip

STREAMS_GROUP_CONFIGS: Final = (
    _define("streams.session.timeout.ms", _INT, "45000", "The session timeout of the streams group.", 1),
    _define("streams.heartbeat.interval.ms", _INT, "5000", "The heartbeat interval of the streams group.", 1),
    _define("streams.num.standby.replicas", _INT, "0",
            "The number of standby tasks of each stateful task of the streams group.", 0),
    _define("streams.initial.rebalance.delay.ms", _INT, "3000",
            "How long the streams group, when it is new, waits for more members before its first assignment.", 0),
    _define("streams.assignment.interval.ms", _INT, "1000",
            "The shortest time between two assignments of the streams group; 0 for no limit.", 0),
    _define("streams.assignor.offload.enable", _BOOLEAN, "true",
            "Whether assignments are computed in a background thread. It has no effect in Ottla."),
)  # fmt: skip


STREAMS_LIMITS: Final[Mapping[str, BrokerLimits]] = MappingProxyType(
    {
        "streams.session.timeout.ms": BrokerLimits(
            "group.streams.session.timeout.ms",
            "group.streams.min.session.timeout.ms",
            "group.streams.max.session.timeout.ms",
        ),
        "streams.heartbeat.interval.ms": BrokerLimits(
            "group.streams.heartbeat.interval.ms",
            "group.streams.min.heartbeat.interval.ms",
            "group.streams.max.heartbeat.interval.ms",
        ),
        "streams.num.standby.replicas": BrokerLimits(
            "group.streams.num.standby.replicas", None, "group.streams.max.standby.replicas"
        ),
        "streams.initial.rebalance.delay.ms": BrokerLimits("group.streams.initial.rebalance.delay.ms"),
        "streams.assignment.interval.ms": BrokerLimits(
            "group.streams.assignment.interval.ms",
            "group.streams.min.assignment.interval.ms",
            "group.streams.max.assignment.interval.ms",
        ),
        "streams.assignor.offload.enable": BrokerLimits("group.streams.assignor.offload.enable"),
    }
)
"""The broker configs behind the configs of a streams group."""
