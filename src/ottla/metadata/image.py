"""The cluster as one broker sees it: an immutable picture, replaced whole at every change.

Made by `changes.py` from what the metadata store tells; read by everybody. Nothing here does anything.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final
from uuid import UUID

from ottla.model.ids import BrokerId, LeaderEpoch

NO_LEADER: Final = BrokerId(-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerImage:
    """A broker that is alive, and where clients reach it."""

    id: BrokerId
    host: str
    port: int
    rack: str | None = None
    is_intact: bool = True
    """Whether it has all that it had written when it was last registered: not if the machine went down under it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionImage:
    """Who holds a partition. `leader` is `NO_LEADER` while none of the ISR lives."""

    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    leader: BrokerId
    leader_epoch: LeaderEpoch
    partition_epoch: int = 0
    """Counts the changes of this record; a compare-and-set on it fences stale ones."""
    adding: tuple[BrokerId, ...] = ()
    removing: tuple[BrokerId, ...] = ()
    eligible: tuple[BrokerId, ...] = ()
    """Who left the ISR when it became too small to commit anything, and so has all that is committed, too."""
    lost: tuple[BrokerId, ...] = ()
    """Replicas whose log is missing or ends early, until they are in sync again. None of them leads or counts as in
    sync; one stays in the ISR only while all of `isr` and `eligible` have lost the log, and then there is no leader."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicImage:
    """A topic, its partitions by index, and the configs that were set on it."""

    name: str
    id: UUID
    partitions: tuple[PartitionImage, ...]
    configs: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def is_internal(self) -> bool:
        """Whether it is one of the broker's own, which clients may read but not write."""
        return self.name in INTERNAL_TOPICS


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterImage:
    """The whole cluster at one revision of the store."""

    revision: int = 0
    cluster_id: str = ""
    history: str = ""
    """Which history of the cluster's metadata this is a revision of; another one began where metadata was lost."""
    controller: BrokerId = NO_LEADER
    brokers: Mapping[BrokerId, BrokerImage] = field(default_factory=lambda: MappingProxyType({}))
    topics: Mapping[str, TopicImage] = field(default_factory=lambda: MappingProxyType({}))
    topics_by_id: Mapping[UUID, TopicImage] = field(default_factory=lambda: MappingProxyType({}))
    broker_configs: Mapping[str, Mapping[str, str]] = field(default_factory=lambda: MappingProxyType({}))
    """Dynamic broker configs by broker id as text; "" has the cluster-wide defaults."""
    deleted_topics: Mapping[UUID, str] = field(default_factory=lambda: MappingProxyType({}))
    """Names of topics by the ids under which they were deleted, as far back as the store remembers."""
    starts: Mapping[BrokerId, int] = field(default_factory=lambda: MappingProxyType({}))
    """How often each broker has started, whether or not it is registered."""
    next_producer_id: int = 0
    """The first producer id that nobody was given."""
    revisions: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """The revision of every key of the store, for compare-and-set."""

    def revision_of(self, key: str) -> int:
        """When a key was last changed, as `Put`, `Delete` and `Check` expect it: 0 if it does not exist."""
        return self.revisions.get(key, 0)


INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
