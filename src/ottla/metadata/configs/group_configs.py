"""The configs of a group: type, default, range, and the broker configs behind them.

Each kind of group has its own file: `consumer_group_configs.py`, `share_group_configs.py`, `streams_group_configs.py`.
A value outside the range that the broker allows is refused when it is set, and limited to that range when the range has
changed since. `ottla.broker.configs.group_settings` combines the values.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from ottla.metadata.configs.broker_limits import BrokerLimits
from ottla.metadata.configs.consumer_group_configs import CONSUMER_GROUP_CONFIGS, CONSUMER_LIMITS
from ottla.metadata.configs.definition import ConfigDefinition
from ottla.metadata.configs.share_group_configs import SHARE_GROUP_CONFIGS, SHARE_LIMITS
from ottla.metadata.configs.streams_group_configs import STREAMS_GROUP_CONFIGS, STREAMS_LIMITS

GROUP_CONFIGS: Final[Mapping[str, ConfigDefinition]] = MappingProxyType(
    {each.name: each for each in (*CONSUMER_GROUP_CONFIGS, *SHARE_GROUP_CONFIGS, *STREAMS_GROUP_CONFIGS)}
)
"""Every config of a group by its name."""

BROKER_LIMITS: Final[Mapping[str, BrokerLimits]] = MappingProxyType(
    {**CONSUMER_LIMITS, **SHARE_LIMITS, **STREAMS_LIMITS}
)
"""The configs of a group whose default and range are the broker's."""
