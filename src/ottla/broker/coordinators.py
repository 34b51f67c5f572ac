"""Assembles the coordinators of groups, share groups and transactions, with the settings of the configs.

The machines are imported with the first shard (`coordinator_machines.py`); `internal_topics.py` has the topics.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from ottla.broker.configs.config_view import ConfigView
from ottla.broker.configs.configuration import BrokerConfig
from ottla.broker.configs.group_settings import (
    consumer_group_config,
    share_group_config,
    share_partition_settings,
    streams_group_config,
)
from ottla.broker.internal_topics import CreateTopic, build_internal_topics
from ottla.broker.share_dead_letters import ShareDeadLetters
from ottla.coordination.groups.coordinator import GroupCoordinator
from ottla.coordination.runtime.internal_topic import InternalTopic
from ottla.coordination.share_partitions.settings import SharePartitionSettings
from ottla.coordination.share_partitions.share_counts import ShareCounts
from ottla.coordination.share_partitions.share_fetching import ShareFetching
from ottla.coordination.share_partitions.share_partitions import SharePartitions
from ottla.coordination.share_state.client import ShareStateAccess
from ottla.coordination.share_state.coordinator import ShareCoordinator
from ottla.coordination.transactions.coordinator import TransactionCoordinator
from ottla.coordination.transactions.marker_writer import MarkerWriter
from ottla.coordination.transactions.peer_requests import AskPeer
from ottla.coordination.transactions.producer_ids import ProducerIds
from ottla.coordination.transactions.verification import TransactionVerification
from ottla.env.world import World
from ottla.metadata.features import SHARE_VERSION, SHARE_VERSION_OF_DEAD_LETTERS
from ottla.metadata.image import ClusterImage
from ottla.model.ids import BrokerId, LeaderEpoch
from ottla.queues.sinks import Sinks
from ottla.replication.partition_table import PartitionTable
from ottla.replication.timers import Timers

if TYPE_CHECKING:
    from ottla.coordination.groups.consumer.requests import ConsumerGroupConfig
    from ottla.coordination.groups.group_shard_state import GroupShard
    from ottla.coordination.groups.share.requests import ShareGroupConfig
    from ottla.coordination.groups.streams.requests import StreamsGroupConfig
    from ottla.coordination.share_state.shard_state import ShareStateShard
    from ottla.coordination.transactions.shard_state import TransactionShard

_NO_CONFIGS: Final[Mapping[str, str]] = MappingProxyType({})
_SETTINGS_KEPT_MAX: Final = 1000

Config = Callable[[], BrokerConfig]
"""The broker's configs as they are now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coordinators:
    """What a broker coordinates, and what writes of transactions need."""

    groups: GroupCoordinator
    shares: ShareCoordinator
    share_state: ShareStateAccess
    share_fetching: ShareFetching
    transactions: TransactionCoordinator
    markers: MarkerWriter
    verification: TransactionVerification
    producer_ids: ProducerIds


def build_coordinators(
    broker_id: BrokerId,
    world: World,
    timers: Timers,
    partitions: PartitionTable,
    *,
    configs: ConfigView,
    sinks: Sinks,
    image: Callable[[], ClusterImage],
    create_topic: CreateTopic,
    allocate_producer_ids: Callable[[], Awaitable[range]],
    ask_peer: AskPeer,
    has_other_replicas: Callable[[str, int], bool],
) -> Coordinators:
    """The coordinators without any shard; they load theirs when they are told of an image.

    `has_other_replicas` says whether another in-sync replica can take over a partition.
    """

    def config() -> BrokerConfig:
        return configs.current

    topics = build_internal_topics(config, image, create_topic)
    machines = _Machines(config, world, image)
    sharing = _build_share_groups(
        broker_id,
        world,
        timers,
        partitions,
        machines,
        topics.share_state,
        configs=configs,
        sinks=sinks,
        image=image,
        create_topic=create_topic,
        ask_peer=ask_peer,
        has_other_replicas=has_other_replicas,
    )
    groups = GroupCoordinator(
        topics.offsets,
        partitions,
        clock=world.clock,
        disk=world.disk,
        timers=timers,
        make_machine=machines.for_groups,
        configure=machines.configure_groups,
        has_other_replicas=has_other_replicas,
        share_state=sharing.state,
    )
    transactions = _build_transactions(
        broker_id,
        world,
        timers,
        partitions,
        machines,
        topics.transactions,
        markers=MarkerWriter(broker_id, partitions, image=image, offsets_shard=groups.shard_at, ask_peer=ask_peer),
        config=config,
        allocate_producer_ids=allocate_producer_ids,
        ask_peer=ask_peer,
    )
    return Coordinators(
        groups=groups,
        shares=sharing.coordinator,
        share_state=sharing.state,
        share_fetching=sharing.fetching,
        transactions=transactions.coordinator,
        markers=transactions.markers,
        verification=transactions.verification,
        producer_ids=transactions.producer_ids,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Transactions:
    coordinator: TransactionCoordinator
    markers: MarkerWriter
    verification: TransactionVerification
    producer_ids: ProducerIds


def _build_transactions(
    broker_id: BrokerId,
    world: World,
    timers: Timers,
    partitions: PartitionTable,
    machines: "_Machines",
    topic: InternalTopic,
    *,
    markers: MarkerWriter,
    config: Config,
    allocate_producer_ids: Callable[[], Awaitable[range]],
    ask_peer: AskPeer,
) -> _Transactions:
    producer_ids = ProducerIds(allocate_producer_ids)
    coordinator = TransactionCoordinator(
        broker_id,
        topic,
        partitions,
        clock=world.clock,
        disk=world.disk,
        timers=timers,
        make_machine=machines.for_transactions,
        markers=markers,
        next_producer_id=producer_ids.next,
        ask_peer=ask_peer,
    )
    verification = TransactionVerification(
        partitions,
        clock=world.clock,
        timers=timers,
        add_partitions=coordinator.add_partitions,
        is_enabled=lambda: config().transaction_partition_verification_enable,
    )
    return _Transactions(coordinator=coordinator, markers=markers, verification=verification, producer_ids=producer_ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ShareGroups:
    coordinator: ShareCoordinator
    state: ShareStateAccess
    fetching: ShareFetching


def _build_share_groups(
    broker_id: BrokerId,
    world: World,
    timers: Timers,
    partitions: PartitionTable,
    machines: "_Machines",
    topic: InternalTopic,
    *,
    configs: ConfigView,
    sinks: Sinks,
    image: Callable[[], ClusterImage],
    create_topic: CreateTopic,
    ask_peer: AskPeer,
    has_other_replicas: Callable[[str, int], bool],
) -> _ShareGroups:
    shares = ShareCoordinator(
        topic,
        partitions,
        clock=world.clock,
        disk=world.disk,
        timers=timers,
        make_machine=machines.for_shares,
        has_other_replicas=has_other_replicas,
    )
    share_state = ShareStateAccess(broker_id, shares, world.clock, ask_peer)
    share_counts = ShareCounts()
    dead_letters = ShareDeadLetters(
        sinks,
        configs,
        image=image,
        settings_of=machines.share_settings_of,
        create_topic=create_topic,
        clock=world.clock,
        disk=world.disk,
        counts=share_counts,
    )
    share_fetching = ShareFetching(
        SharePartitions(
            partitions,
            access=share_state,
            settings_of=machines.share_settings_of,
            clock=world.clock,
            disk=world.disk,
            timers=timers,
            write_dead_letters=dead_letters.write,
            counts=share_counts,
        ),
        world.clock,
        timers,
    )
    return _ShareGroups(coordinator=shares, state=share_state, fetching=share_fetching)


class _Machines:
    """Builds the machines, importing them when first needed."""

    def __init__(self, config: Config, world: World, image: Callable[[], ClusterImage]) -> None:
        self._config = config
        self._world = world
        self._image = image
        self._consumer_configs: dict[str, tuple[BrokerConfig, Mapping[str, str], ConsumerGroupConfig]] = {}
        self._share_settings: dict[str, tuple[BrokerConfig, Mapping[str, str], bool, SharePartitionSettings]] = {}

    def for_groups(self) -> "GroupShard":
        from ottla.broker.coordinator_machines import group_machine

        return group_machine(
            self._config(),
            self._world.random,
            self._share_config_of,
            self._streams_config_of,
            self._consumer_config_of,
        )

    def _consumer_config_of(self, group_id: str) -> "ConsumerGroupConfig | None":
        """Asked for at every heartbeat, so that it is kept."""
        overrides = self._image().group_configs.get(group_id)
        if overrides is None:
            return None
        config = self._config()
        kept = self._consumer_configs.get(group_id)
        if kept is not None and kept[0] is config and kept[1] is overrides:
            return kept[2]
        if len(self._consumer_configs) >= _SETTINGS_KEPT_MAX:
            self._consumer_configs.clear()
        own = consumer_group_config(config, overrides)
        self._consumer_configs[group_id] = (config, overrides, own)
        return own

    def _share_config_of(self, group_id: str) -> "ShareGroupConfig":
        return share_group_config(self._config(), self._image().group_configs.get(group_id, _NO_CONFIGS))

    def share_settings_of(self, group_id: str) -> SharePartitionSettings:
        """The settings of a group's share-partitions; asked for at every fetch, so that they are kept."""
        image = self._image()
        config, overrides = self._config(), image.group_configs.get(group_id, _NO_CONFIGS)
        has_dead_letters = image.features.get(SHARE_VERSION, 0) >= SHARE_VERSION_OF_DEAD_LETTERS
        kept = self._share_settings.get(group_id)
        if kept is not None and kept[0] is config and kept[1] is overrides and kept[2] == has_dead_letters:
            return kept[3]
        if len(self._share_settings) >= _SETTINGS_KEPT_MAX:
            self._share_settings.clear()
        settings = share_partition_settings(config, overrides, has_dead_letters=has_dead_letters)
        self._share_settings[group_id] = (config, overrides, has_dead_letters, settings)
        return settings

    def for_shares(self) -> "ShareStateShard":
        from ottla.broker.coordinator_machines import share_machine

        return share_machine(self._config())

    def _streams_config_of(self, group_id: str) -> "StreamsGroupConfig":
        return streams_group_config(self._config(), self._image().group_configs.get(group_id, _NO_CONFIGS))

    def configure_groups(self, machine: "GroupShard") -> None:
        from ottla.broker.coordinator_machines import configure_groups

        configure_groups(machine, self._config())

    def for_transactions(self, leader_epoch: LeaderEpoch) -> "TransactionShard":
        from ottla.broker.coordinator_machines import transaction_machine

        return transaction_machine(self._config(), leader_epoch)
