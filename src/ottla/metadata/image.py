"""The cluster as one broker sees it: an immutable picture, replaced as a whole at every change.

Built by `changes.py` from the metadata store. Data only.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple
from uuid import UUID

from ottla.metadata.configs.topic_configs import COMPANION_KIND
from ottla.metadata.features import FIRST_LEVELS
from ottla.model.ids import BrokerId, LeaderEpoch
from ottla.model.queue_names import PARKING_KINDS
from ottla.security.acls import AclBinding
from ottla.security.delegation_token import TokenInfo
from ottla.security.quota_entity import QuotaEntity
from ottla.security.scram_credential import ScramCredential, ScramMechanism

NO_LEADER: Final = BrokerId(-1)


class ListenerEndpoint(NamedTuple):
    """Where clients reach a broker's listener."""

    name: str
    security_protocol: str
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerImage:
    """A registered broker, and the address for clients."""

    id: BrokerId
    host: str
    port: int
    """Host and port of the first listener."""
    rack: str | None = None
    is_intact: bool = True
    """Whether it has everything that it had written when it was last registered: not if its machine went down."""
    listeners: tuple[ListenerEndpoint, ...] = ()
    """All listeners; empty if a version of Ottla that had one listener registered the broker."""
    features: tuple[tuple[str, int, int], ...] = ()
    """The features that the broker supports, with the lowest and the highest level; empty if a version of Ottla that
    did not say so registered the broker."""

    def endpoint(self, listener: str) -> ListenerEndpoint | None:
        """Where clients of a listener of this name reach the broker; None if it does not have that listener."""
        if not self.listeners:
            return ListenerEndpoint(listener, "PLAINTEXT", self.host, self.port)
        return next((each for each in self.listeners if each.name == listener), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionImage:
    """The replicas of a partition. `leader` is `NO_LEADER` while no member of the ISR is alive."""

    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    leader: BrokerId
    leader_epoch: LeaderEpoch
    partition_epoch: int = 0
    """Counts the changes of this record; a compare-and-set on it fences stale writers."""
    adding: tuple[BrokerId, ...] = ()
    removing: tuple[BrokerId, ...] = ()
    eligible: tuple[BrokerId, ...] = ()
    """Replicas that left the ISR when it became too small to commit anything, and so have all committed records too."""
    lost: tuple[BrokerId, ...] = ()
    """Replicas whose log is missing or ends early, until they are in sync again. They neither lead nor count as in
    sync. Such a replica stays in the ISR only if all of `isr` and `eligible` have lost the log; then there is no
    leader."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicImage:
    """A topic, its partitions by index, and its own configs."""

    name: str
    id: UUID
    partitions: tuple[PartitionImage, ...]
    configs: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def is_parking(self) -> bool:
        """Whether it is a companion that holds parked records, which only the broker consumes."""
        return COMPANION_KIND in self.configs and self.configs[COMPANION_KIND] in _PARKING

    @property
    def is_internal(self) -> bool:
        """What clients are told, whose patterns do not match internal topics.

        Clients may produce to parking companions, but not to `INTERNAL_TOPICS`.
        """
        return self.name in INTERNAL_TOPICS or self.is_parking


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterImage:
    """The whole cluster at one revision of the store."""

    revision: int = 0
    cluster_id: str = ""
    history: str = ""
    """The history of the metadata that the revision belongs to; each recovery of lost metadata begins another."""
    controller: BrokerId = NO_LEADER
    brokers: Mapping[BrokerId, BrokerImage] = field(default_factory=lambda: MappingProxyType({}))
    topics: Mapping[str, TopicImage] = field(default_factory=lambda: MappingProxyType({}))
    topics_by_id: Mapping[UUID, TopicImage] = field(default_factory=lambda: MappingProxyType({}))
    broker_configs: Mapping[str, Mapping[str, str]] = field(default_factory=lambda: MappingProxyType({}))
    """Dynamic broker configs by broker id as text; "" has the cluster-wide defaults."""
    group_configs: Mapping[str, Mapping[str, str]] = field(default_factory=lambda: MappingProxyType({}))
    """The configs of groups by group id."""
    client_metrics: Mapping[str, Mapping[str, str]] = field(default_factory=lambda: MappingProxyType({}))
    """The configs of client metrics subscriptions by name."""
    deleted_topics: Mapping[UUID, str] = field(default_factory=lambda: MappingProxyType({}))
    """Names of deleted topics by topic id, as far back as the store remembers."""
    starts: Mapping[BrokerId, int] = field(default_factory=lambda: MappingProxyType({}))
    """How often each broker has started, registered or not."""
    next_producer_id: int = 0
    """The first producer id that was not allocated."""
    features: Mapping[str, int] = field(default_factory=lambda: FIRST_LEVELS)
    """The finalized level of each feature; 0 for disabled ones, which may also be missing."""
    login_secret: bytes = field(default=b"", repr=False)
    """Random bytes that no client knows; empty if the store has none."""
    acls: frozenset[AclBinding] = frozenset()
    scram_credentials: Mapping[tuple[ScramMechanism, str], ScramCredential] = field(
        default_factory=lambda: MappingProxyType({})
    )
    """By mechanism and user name."""
    client_quotas: Mapping[QuotaEntity, Mapping[str, float]] = field(default_factory=lambda: MappingProxyType({}))
    """Limits by Kafka's names, as `producer_byte_rate`."""
    delegation_tokens: Mapping[str, TokenInfo] = field(default_factory=lambda: MappingProxyType({}))
    """By token id, expired ones included until they are removed."""
    revisions: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """The revision of every key in the store, for compare-and-set."""

    def revision_of(self, key: str) -> int:
        """The revision of a key's last change, as `Put`, `Delete` and `Check` expect it: 0 if the key does not
        exist."""
        return self.revisions.get(key, 0)

    def reachable(self, listener: str) -> frozenset[BrokerId]:
        """The brokers that have a listener of this name."""
        return frozenset(broker.id for broker in self.brokers.values() if broker.endpoint(listener) is not None)


INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""The topics of coordinators; clients may read them but not write."""
_PARKING: Final = frozenset(kind.value for kind in PARKING_KINDS)
