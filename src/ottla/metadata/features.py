"""The features of a cluster: the levels that this version of Ottla supports, and how levels are compared. Pure.

Kafka's clients and tools ask for features by name. The level in force, the *finalized* one, is part of the cluster's
metadata and the same for all brokers (`ClusterImage.features`); `controller/features_state.py` decides its changes.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

METADATA_VERSION: Final = "metadata.version"
GROUP_VERSION: Final = "group.version"
TRANSACTION_VERSION: Final = "transaction.version"
ELIGIBLE_LEADER_REPLICAS_VERSION: Final = "eligible.leader.replicas.version"
SHARE_VERSION: Final = "share.version"
STREAMS_VERSION: Final = "streams.version"


class FeatureRange(NamedTuple):
    """The levels of a feature that a broker supports, both ends included. Level 0 means that it is disabled."""

    lowest: int
    highest: int

    def __str__(self) -> str:
        return f"{self.lowest} to {self.highest}" if self.lowest != self.highest else str(self.lowest)

    def supports(self, level: int) -> bool:
        """Whether a cluster at this level can have the broker."""
        return self.lowest <= level <= self.highest


SHARE_VERSION_OF_DEAD_LETTERS: Final = 2
"""From this level of share.version on, share groups have dead-letter topics."""

UNSUPPORTED: Final = FeatureRange(0, 0)
"""Of a feature that a broker does not know."""

SUPPORTED_FEATURES: Final[Mapping[str, FeatureRange]] = MappingProxyType(
    {
        # Tools read Kafka's version from this level: 7 is 3.3, 30 is 4.3.
        METADATA_VERSION: FeatureRange(7, 30),
        # From 1 on the broker assigns the partitions of consumer groups.
        GROUP_VERSION: FeatureRange(0, 1),
        # From 2 on partitions join transactions without being added, and each transaction has its own epoch.
        TRANSACTION_VERSION: FeatureRange(0, 2),
        # From 1 on replicas that left an ISR below min.insync.replicas stay eligible to lead.
        ELIGIBLE_LEADER_REPLICAS_VERSION: FeatureRange(0, 1),
        # From 1 on brokers serve share groups, from 2 on with dead-letter topics (KIP-1191).
        SHARE_VERSION: FeatureRange(0, 2),
        # From 1 on brokers serve streams groups.
        STREAMS_VERSION: FeatureRange(0, 1),
    }
)
"""What this version of Ottla supports. A new cluster starts with the highest level of each."""

FIRST_LEVELS: Final[Mapping[str, int]] = MappingProxyType(
    {METADATA_VERSION: 30, GROUP_VERSION: 1, TRANSACTION_VERSION: 2, ELIGIBLE_LEADER_REPLICAS_VERSION: 1}
)
"""The levels of clusters whose metadata has none: those of the versions of Ottla that did not store them."""

FIRST_SUPPORTED: Final[Mapping[str, FeatureRange]] = MappingProxyType(
    {name: FeatureRange(0, level) for name, level in FIRST_LEVELS.items()}
)
"""What brokers support that do not say so in their registration."""


def levels_of_new_cluster() -> dict[str, int]:
    """The highest level of each supported feature."""
    return {name: supported.highest for name, supported in SUPPORTED_FEATURES.items()}


def unsupported_levels(
    levels: Mapping[str, int], supported: Mapping[str, FeatureRange] = SUPPORTED_FEATURES
) -> list[str]:
    """Which finalized levels a broker does not support, each as a clause for an error message."""
    return [
        f"{name} is {level}, but this broker supports {_spelled(supported.get(name, UNSUPPORTED))}"
        for name, level in sorted(levels.items())
        if not supported.get(name, UNSUPPORTED).supports(level)
    ]


def _spelled(supported: FeatureRange) -> str:
    return "no level of it" if supported == UNSUPPORTED else str(supported)
