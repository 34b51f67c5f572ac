"""What a group's configs mean on top of the broker's: the effective settings, and the list for DescribeConfigs.

A group's own value takes precedence over the broker's, within the broker's limits. The definitions are in
`ottla.metadata.configs.group_configs`.
"""

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ottla.broker.configs.configuration import BrokerConfig, synonyms_of
from ottla.metadata.configs.definition import (
    COMPLAINTS_MAX,
    ConfigSource,
    ConfigValue,
    DescribedConfig,
    Synonym,
    unknown_config,
)
from ottla.metadata.configs.group_configs import BROKER_LIMITS, GROUP_CONFIGS
from ottla.metadata.configs.share_group_configs import reset_age_ms
from ottla.model.errors import InvalidConfigError

if TYPE_CHECKING:
    from ottla.coordination.groups.consumer.requests import ConsumerGroupConfig
    from ottla.coordination.groups.share.requests import ShareGroupConfig
    from ottla.coordination.groups.streams.requests import StreamsGroupConfig
    from ottla.coordination.share_partitions.settings import SharePartitionSettings

_LOGGER: Final = logging.getLogger(__name__)


def validate_group_configs(configs: Mapping[str, str], config: BrokerConfig) -> None:
    """Raises `InvalidConfigError` unless a group may have these configs, with a line for each problem."""
    complaints: list[str] = []
    for name, text in configs.items():
        if len(complaints) == COMPLAINTS_MAX:
            break
        try:
            value = _parse(name, text)
        except InvalidConfigError as error:
            complaints.append(str(error))
            continue
        lowest, highest = _limits(name, config)
        if isinstance(value, int) and lowest is not None and value < lowest:
            complaints.append(
                f"{name} must be greater than or equal to {BROKER_LIMITS[name].lowest}: {value} < {lowest}"
            )
        if isinstance(value, int) and highest is not None and value > highest:
            complaints.append(
                f"{name} must be less than or equal to {BROKER_LIMITS[name].highest}: {value} > {highest}"
            )
    if not complaints:
        values = group_values(config, configs)
        complaints += [
            f"{kind}.session.timeout.ms must be greater than {kind}.heartbeat.interval.ms"
            for kind in ("consumer", "share", "streams")
            if any(name.startswith(f"{kind}.") for name in configs)
            and _int(values, f"{kind}.session.timeout.ms") <= _int(values, f"{kind}.heartbeat.interval.ms")
        ]
    if complaints:
        raise InvalidConfigError("\n".join(complaints))


def group_values(config: BrokerConfig, overrides: Mapping[str, str]) -> dict[str, ConfigValue | None]:
    """The effective value of every config of a group. A stored value that this version does not understand is
    ignored."""
    values: dict[str, ConfigValue | None] = {}
    for name, definition in GROUP_CONFIGS.items():
        value: ConfigValue | None = None
        if name in overrides:
            try:
                value = definition.parse(overrides[name])
            except InvalidConfigError as error:
                _LOGGER.warning("ignoring a stored group config: %s", error)
        lowest, highest = _limits(name, config)
        if isinstance(value, int):
            value = value if lowest is None else max(value, lowest)
            value = value if highest is None else min(value, highest)
        if value is None and name in BROKER_LIMITS:
            value = config.values[BROKER_LIMITS[name].default]
        if value is None and definition.default is not None:
            value = definition.parse(definition.default)
        values[name] = value
    return values


def describe_group_configs(config: BrokerConfig, overrides: Mapping[str, str]) -> list[DescribedConfig]:
    """Every config of a group with its value and its source."""
    values = group_values(config, overrides)
    found = []
    for name, definition in GROUP_CONFIGS.items():
        synonyms: list[Synonym] = []
        if name in overrides:
            synonyms.append(Synonym(name, overrides[name], ConfigSource.DYNAMIC_GROUP))
        if name in BROKER_LIMITS:
            synonyms += synonyms_of(config, BROKER_LIMITS[name].default)
        elif definition.default is not None:
            synonyms.append(Synonym(name, definition.default, ConfigSource.DEFAULT))
        found.append(
            DescribedConfig(
                name=name,
                value=definition.render(values[name]),
                source=synonyms[0].source if synonyms else ConfigSource.DEFAULT,
                type=definition.type,
                synonyms=tuple(synonyms),
                documentation=definition.documentation,
            )
        )
    return found


def consumer_group_config(config: BrokerConfig, overrides: Mapping[str, str]) -> "ConsumerGroupConfig":
    """The settings of a consumer group."""
    from ottla.coordination.groups.consumer.requests import ConsumerGroupConfig, MigrationPolicy

    values = group_values(config, overrides)
    return ConsumerGroupConfig(
        session_timeout_ms=_int(values, "consumer.session.timeout.ms"),
        heartbeat_interval_ms=_int(values, "consumer.heartbeat.interval.ms"),
        max_size=config.group_consumer_max_size,
        assignment_interval_ms=_int(values, "consumer.assignment.interval.ms"),
        classic_max_size=config.group_max_size,
        migration_policy=MigrationPolicy(config.group_consumer_migration_policy.lower()),
    )


def share_group_config(config: BrokerConfig, overrides: Mapping[str, str]) -> "ShareGroupConfig":
    """The settings of a share group's members."""
    from ottla.coordination.groups.share.requests import ShareGroupConfig

    values = group_values(config, overrides)
    return ShareGroupConfig(
        session_timeout_ms=_int(values, "share.session.timeout.ms"),
        heartbeat_interval_ms=_int(values, "share.heartbeat.interval.ms"),
        max_size=_int(config.values, "group.share.max.size"),
        assignment_interval_ms=_int(values, "share.assignment.interval.ms"),
        initialize_retry_interval_ms=_int(config.values, "group.share.initialize.retry.interval.ms"),
    )


def share_partition_settings(
    config: BrokerConfig, overrides: Mapping[str, str], *, has_dead_letters: bool
) -> "SharePartitionSettings":
    """The settings of the share-partitions of a group; `has_dead_letters` says whether the cluster's share.version
    allows them."""
    from ottla.coordination.share_partitions.settings import SharePartitionSettings

    values = group_values(config, overrides)
    reset = str(values["share.auto.offset.reset"])
    return SharePartitionSettings(
        lock_duration_ms=_int(values, "share.record.lock.duration.ms"),
        delivery_count_limit=_int(values, "share.delivery.count.limit"),
        in_flight_max=_int(values, "share.partition.max.record.locks"),
        allows_renewal=values["share.renew.acknowledge.enable"] is True,
        release_backoff_ms=_int(values, "share.release.backoff.ms"),
        release_backoff_max_ms=_int(values, "share.release.backoff.max.ms"),
        is_read_committed=values["share.isolation.level"] == "read_committed",
        starts_at_earliest=reset == "earliest",
        reset_age_ms=reset_age_ms(reset),
        dead_letter_topic=str(values["errors.deadletterqueue.topic.name"] or "") if has_dead_letters else "",
        copies_dead_letters=values["errors.deadletterqueue.copy.record.enable"] is True,
    )


def streams_group_config(config: BrokerConfig, overrides: Mapping[str, str]) -> "StreamsGroupConfig":
    """The settings of a streams group."""
    from ottla.coordination.groups.streams.requests import StreamsGroupConfig

    values = group_values(config, overrides)
    return StreamsGroupConfig(
        session_timeout_ms=_int(values, "streams.session.timeout.ms"),
        heartbeat_interval_ms=_int(values, "streams.heartbeat.interval.ms"),
        max_size=_int(config.values, "group.streams.max.size"),
        standby_replicas=_int(values, "streams.num.standby.replicas"),
        initial_rebalance_delay_ms=_int(values, "streams.initial.rebalance.delay.ms"),
        assignment_interval_ms=_int(values, "streams.assignment.interval.ms"),
        shard_descriptions_size_max=_int(config.values, "group.streams.topology.description.memory.bytes")
        // _int(config.values, "offsets.topic.num.partitions"),
    )


def _limits(name: str, config: BrokerConfig) -> tuple[int | None, int | None]:
    limits = BROKER_LIMITS.get(name)
    if limits is None:
        return None, None
    return (
        None if limits.lowest is None else _int(config.values, limits.lowest),
        None if limits.highest is None else _int(config.values, limits.highest),
    )


def _parse(name: str, text: str) -> ConfigValue:
    if name not in GROUP_CONFIGS:
        raise unknown_config(name, GROUP_CONFIGS, "group")
    return GROUP_CONFIGS[name].parse(text)


def _int(values: Mapping[str, ConfigValue | None], name: str) -> int:
    value = values[name]
    return value if isinstance(value, int) else 0
