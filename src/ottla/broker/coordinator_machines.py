"""The coordinators' state machines as this broker's configs make them, and the cluster as they know it.

Imported with the first shard: a broker without groups and transactions starts a third faster without the machines.
"""

from types import MappingProxyType
from typing import TYPE_CHECKING

from ottla.coordination.groups.consumer.group import Topic, Topics
from ottla.coordination.groups.consumer.requests import ConsumerGroupConfig, MigrationPolicy
from ottla.coordination.groups.consumer_offsets_shard_state import ConsumerOffsetsShard
from ottla.coordination.groups.requests import GroupSettings
from ottla.coordination.transactions.requests import TransactionSettings
from ottla.coordination.transactions.shard_state import TransactionShard
from ottla.env.ports import Random
from ottla.metadata.image import ClusterImage
from ottla.model.ids import LeaderEpoch

if TYPE_CHECKING:
    from ottla.broker.configuration import BrokerConfig


def group_machine(config: "BrokerConfig", random: Random) -> ConsumerOffsetsShard:
    """For a partition of `__consumer_offsets`."""
    return ConsumerOffsetsShard(_group_settings(config), _consumer_group_config(config), random)


def configure_groups(machine: ConsumerOffsetsShard, config: "BrokerConfig") -> None:
    """An operator has changed something; it holds from the next event on."""
    machine.on_settings(_group_settings(config))
    machine.consumers.config = _consumer_group_config(config)


def transaction_machine(config: "BrokerConfig", leader_epoch: LeaderEpoch) -> TransactionShard:
    """For a partition of `__transaction_state`, led in this epoch."""
    settings = TransactionSettings(
        timeout_max_ms=config.transaction_max_timeout_ms, id_expiration_ms=config.transactional_id_expiration_ms
    )
    return TransactionShard(coordinator_epoch=leader_epoch, settings=settings)


def topics_of(image: ClusterImage) -> Topics:
    """What groups need to know of the topics."""
    return MappingProxyType({name: Topic(topic.id, len(topic.partitions)) for name, topic in image.topics.items()})


def _group_settings(config: "BrokerConfig") -> GroupSettings:
    return GroupSettings(
        session_timeout_min_ms=config.group_min_session_timeout_ms,
        session_timeout_max_ms=config.group_max_session_timeout_ms,
        initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        group_size_max=config.group_max_size,
        offset_metadata_size_max=config.offset_metadata_max_bytes,
        offsets_retention_ms=config.offsets_retention_minutes * 60_000,
        offsets_check_interval_ms=config.offsets_retention_check_interval_ms,
    )


def _consumer_group_config(config: "BrokerConfig") -> ConsumerGroupConfig:
    return ConsumerGroupConfig(
        session_timeout_ms=config.group_consumer_session_timeout_ms,
        heartbeat_interval_ms=config.group_consumer_heartbeat_interval_ms,
        max_size=config.group_consumer_max_size,
        assignment_interval_ms=config.group_consumer_assignment_interval_ms,
        classic_max_size=config.group_max_size,
        migration_policy=MigrationPolicy(config.group_consumer_migration_policy.lower()),
    )
