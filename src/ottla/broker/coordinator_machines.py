"""The coordinators' state machines with the settings of this broker's configs.

Imported with the first shard: a broker without groups and transactions starts a third faster without the machines.
"""

from typing import TYPE_CHECKING

from ottla.broker.configs.group_settings import consumer_group_config
from ottla.coordination.groups.consumer.requests import OwnConfigOf
from ottla.coordination.groups.group_shard_state import GroupShard
from ottla.coordination.groups.requests import GroupSettings
from ottla.coordination.groups.share.requests import ConfigOf as ShareConfigOf
from ottla.coordination.groups.streams.requests import ConfigOf as StreamsConfigOf
from ottla.coordination.share_state.requests import ShareStateSettings
from ottla.coordination.share_state.shard_state import ShareStateShard
from ottla.coordination.transactions.requests import TransactionSettings
from ottla.coordination.transactions.shard_state import TransactionShard
from ottla.env.ports import Random
from ottla.model.ids import LeaderEpoch

if TYPE_CHECKING:
    from ottla.broker.configs.configuration import BrokerConfig


def group_machine(
    config: "BrokerConfig",
    random: Random,
    share_config_of: ShareConfigOf,
    streams_config_of: StreamsConfigOf,
    consumer_config_of: OwnConfigOf,
) -> GroupShard:
    """The machine for a partition of `__consumer_offsets`."""
    return GroupShard(
        _group_settings(config),
        consumer_group_config(config, {}),
        random,
        share_config_of,
        streams_config_of,
        consumer_config_of,
    )


def share_machine(config: "BrokerConfig") -> ShareStateShard:
    """The machine for a partition of `__share_group_state`."""
    values = config.values
    settings = ShareStateSettings(
        updates_per_snapshot=int(str(values["share.coordinator.snapshot.update.records.per.snapshot"])),
        prune_interval_ms=int(str(values["share.coordinator.state.topic.prune.interval.ms"])),
        cold_snapshot_interval_ms=int(str(values["share.coordinator.cold.partition.snapshot.interval.ms"])),
    )
    return ShareStateShard(settings)


def configure_groups(machine: GroupShard, config: "BrokerConfig") -> None:
    """Gives a machine the current configs; they apply from the next event on."""
    machine.on_settings(_group_settings(config), consumer_group_config(config, {}))


def transaction_machine(config: "BrokerConfig", leader_epoch: LeaderEpoch) -> TransactionShard:
    """The machine for a partition of `__transaction_state`, led in this epoch."""
    settings = TransactionSettings(
        timeout_max_ms=config.transaction_max_timeout_ms, id_expiration_ms=config.transactional_id_expiration_ms
    )
    return TransactionShard(coordinator_epoch=leader_epoch, settings=settings)


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
