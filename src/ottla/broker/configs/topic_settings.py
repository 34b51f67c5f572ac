"""What a topic's configs mean on top of the broker's: the effective settings, and the list for DescribeConfigs.

A topic's own value takes precedence over the broker's, which may have another unit (`log.retention.hours`). The
definitions are in `ottla.metadata.configs.topic_configs`, the broker's values in `configuration.py`.
"""

import logging
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Final, Self, TypeVar

from ottla.broker.configs.configuration import BrokerConfig, synonyms_of
from ottla.metadata.configs.definition import (
    COMPLAINTS_MAX,
    ConfigSource,
    ConfigValue,
    DescribedConfig,
    Synonym,
    unknown_config,
)
from ottla.metadata.configs.queue_settings import QueueSettings, queue_config_faults
from ottla.metadata.configs.schema_settings import SchemaSettings
from ottla.metadata.configs.topic_configs import BROKER_SYNONYMS, CONTROLLER_CONFIGS, TOPIC_CONFIGS
from ottla.model.errors import InvalidConfigError
from ottla.model.ids import TopicPartition
from ottla.model.queue_names import PARKING_KINDS
from ottla.records.layout import Codec, TimestampType
from ottla.storage.log_config import LogConfig

_LOGGER: Final = logging.getLogger(__name__)
T = TypeVar("T", bool, int, float, str, tuple[str, ...])

_CODECS: Final[Mapping[str, Codec | None]] = {
    "producer": None,
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
_LEVEL_CONFIGS: Final = {
    Codec.GZIP: "compression.gzip.level",
    Codec.LZ4: "compression.lz4.level",
    Codec.ZSTD: "compression.zstd.level",
}
_TIMESTAMP_TYPES: Final = {
    "CreateTime": TimestampType.CREATE_TIME,
    "LogAppendTime": TimestampType.LOG_APPEND_TIME,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    """The effective configs of a topic on this broker."""

    log: LogConfig
    """The settings of its logs, without jitter, which differs by partition (`log_of`)."""
    segment_jitter_ms: int
    min_insync_replicas: int
    unclean_leader_election_enable: bool
    max_message_bytes: int
    leader_throttled_replicas: tuple[str, ...]
    """`partition:broker` pairs, or `*` alone for all of them."""
    follower_throttled_replicas: tuple[str, ...]
    queue: QueueSettings | None = None
    """None for a plain topic."""
    schemas: SchemaSettings | None = None
    """None if neither keys nor values are validated."""

    @classmethod
    def resolve(cls, config: BrokerConfig, overrides: Mapping[str, str]) -> Self:
        """The settings of a topic with these configs of its own.

        A stored value that this version does not understand is replaced by the broker's, with a warning: another
        version may have written it, and the topic must be served.
        """
        values = topic_values(config, understood(overrides))
        compression = _CODECS[_get(values, "compression.type", str)]
        policies = _get(values, "cleanup.policy", tuple)
        max_message_bytes = _get(values, "max.message.bytes", int)
        log = LogConfig(
            segment_bytes=_get(values, "internal.segment.bytes", int, "segment.bytes"),
            segment_ms=_get(values, "segment.ms", int),
            segment_index_bytes=_get(values, "segment.index.bytes", int),
            index_interval_bytes=_get(values, "index.interval.bytes", int),
            flush_messages=_get(values, "flush.messages", int),
            flush_ms=_get(values, "flush.ms", int),
            retention_ms=_get(values, "retention.ms", int),
            retention_bytes=_get(values, "retention.bytes", int),
            cleanup_compact="compact" in policies,
            cleanup_delete="delete" in policies,
            delete_retention_ms=_get(values, "delete.retention.ms", int),
            min_compaction_lag_ms=_get(values, "min.compaction.lag.ms", int),
            max_compaction_lag_ms=_get(values, "max.compaction.lag.ms", int),
            min_cleanable_dirty_ratio=_get(values, "min.cleanable.dirty.ratio", float),
            file_delete_delay_ms=_get(values, "file.delete.delay.ms", int),
            max_message_bytes=max_message_bytes,
            compression=compression,
            compression_level=_level(values, compression),
            timestamp_type=_TIMESTAMP_TYPES[_get(values, "message.timestamp.type", str)],
            timestamp_before_max_ms=_get(values, "message.timestamp.before.max.ms", int),
            timestamp_after_max_ms=_get(values, "message.timestamp.after.max.ms", int),
            producer_id_expiration_ms=config.producer_id_expiration_ms,
        )
        queue = QueueSettings.resolve(values)
        if queue is not None and queue.companion is not None and queue.companion.kind in PARKING_KINDS:
            # What is still owed must stay. The log start advances as the broker delivers.
            log = replace(log, retention_ms=-1, retention_bytes=-1, cleanup_compact=False, cleanup_delete=True)
        return cls(
            log=log,
            segment_jitter_ms=_get(values, "segment.jitter.ms", int),
            min_insync_replicas=_get(values, "min.insync.replicas", int),
            unclean_leader_election_enable=_get(values, "unclean.leader.election.enable", bool),
            max_message_bytes=max_message_bytes,
            leader_throttled_replicas=_get(values, "leader.replication.throttled.replicas", tuple),
            follower_throttled_replicas=_get(values, "follower.replication.throttled.replicas", tuple),
            queue=queue,
            schemas=SchemaSettings.resolve(values),
        )

    @property
    def ttl_ms(self) -> int | None:
        """None if records do not expire; -1 if only those with a TTL of their own do."""
        return self.queue.ttl_ms if self.queue is not None and self.queue.has_ttl else None

    def log_of(self, partition: TopicPartition) -> LogConfig:
        """The settings of one partition's log: its segments roll earlier by its own share of the jitter.

        The share follows from the partition's name, so that it is the same after a restart and on every replica.
        """
        jitter_max_ms = min(self.segment_jitter_ms, self.log.segment_ms)
        if jitter_max_ms == 0:
            return self.log
        return replace(self.log, segment_jitter_ms=zlib.crc32(str(partition).encode()) % jitter_max_ms)


def validate_topic_configs(configs: Mapping[str, str], config: BrokerConfig | None = None) -> None:
    """Raises `InvalidConfigError` if a topic cannot have these configs, alone or together with the broker's.

    The error has a line for each problem, `COMPLAINTS_MAX` at most.
    """
    complaints: list[str] = []
    own: dict[str, ConfigValue] = {}
    for name, text in configs.items():
        if len(complaints) == COMPLAINTS_MAX:
            break
        try:
            own[name] = _parse(name, text)
        except InvalidConfigError as error:
            complaints.append(str(error))
    values = {**topic_values(config or _default_config(), {}), **own}
    least, most = _get(values, "min.compaction.lag.ms", int), _get(values, "max.compaction.lag.ms", int)
    if least > most:
        complaints.append(
            f"min.compaction.lag.ms={least} is more than max.compaction.lag.ms={most}; lower the one or raise the other"
        )
    if own.get("remote.storage.enable"):
        complaints.append("remote.storage.enable=true is not supported: this broker stores all segments on local disk")
    complaints += queue_config_faults(own)
    if config is not None and not config.schema_registry_urls and SchemaSettings.resolve(values) is not None:
        complaints.append(
            "schema validation needs a registry: set the broker config confluent.schema.registry.url, or start the"
            " broker with `ottla serve --registry`"
        )
    if complaints:
        raise InvalidConfigError("\n".join(complaints))


@cache
def _default_config() -> BrokerConfig:
    return BrokerConfig.parse()


def topic_values(config: BrokerConfig, overrides: Mapping[str, str]) -> dict[str, ConfigValue | None]:
    """The value of every topic config by name, the topic's own or the broker's. The overrides must be valid."""
    return {
        name: _parse(name, overrides[name]) if name in overrides else _inherited(config, name) for name in TOPIC_CONFIGS
    }


def describe_topic(config: BrokerConfig, overrides: Mapping[str, str]) -> list[DescribedConfig]:
    """Every config of a topic with its value and its source; hidden ones only if they were set."""
    own = understood(overrides)
    values = topic_values(config, own)
    found = []
    for name, definition in TOPIC_CONFIGS.items():
        if definition.is_hidden and name not in own:
            continue
        value = definition.render(values[name])
        synonyms = synonyms_of(config, BROKER_SYNONYMS[name][0].name) if name in BROKER_SYNONYMS else ()
        if name in own:
            synonyms = (Synonym(name, value, ConfigSource.TOPIC), *synonyms)
        found.append(
            DescribedConfig(
                name=name,
                value=value,
                source=synonyms[0].source if synonyms else ConfigSource.DEFAULT,
                type=definition.type,
                is_read_only=name in CONTROLLER_CONFIGS,
                synonyms=synonyms,
                documentation=definition.documentation,
            )
        )
    return found


def understood(overrides: Mapping[str, str]) -> dict[str, str]:
    """The stored configs of a topic that this broker knows and can parse; the others are logged."""
    kept = {}
    for name, text in overrides.items():
        try:
            _parse(name, text)
        except InvalidConfigError as error:
            _LOGGER.warning("ignoring a stored topic config: %s", error)
        else:
            kept[name] = text
    return kept


def _parse(name: str, text: str) -> ConfigValue:
    if name not in TOPIC_CONFIGS:
        raise unknown_config(name, TOPIC_CONFIGS, "topic")
    return TOPIC_CONFIGS[name].parse(text)


def _inherited(config: BrokerConfig, name: str) -> ConfigValue | None:
    definition = TOPIC_CONFIGS[name]
    for synonym in BROKER_SYNONYMS.get(name, ()):
        value = config.values[synonym.name]
        if value is None:
            continue
        if synonym.factor != 1 and isinstance(value, int):
            value *= synonym.factor
        # A broker accepts any negative number for "no limit", a topic only -1.
        return max(value, -1) if name == "retention.ms" and isinstance(value, int) else value
    return None if definition.default is None else definition.parse(definition.default)


def _get(values: Mapping[str, ConfigValue | None], name: str, type_: type[T], instead: str = "") -> T:
    """A value, of the type that its definition promises; `instead` is looked up if it has none."""
    value = values[name]
    if value is None and instead:
        value = values[instead]
    if not isinstance(value, type_):
        raise InvalidConfigError(f"{name}={value!r} has the wrong type")
    return value


def _level(values: Mapping[str, ConfigValue | None], codec: Codec | None) -> int | None:
    """The codec's level; None lets the codec choose, which is what Kafka's default of each codec stands for."""
    name = _LEVEL_CONFIGS.get(codec) if codec is not None else None
    if name is None:
        return None
    level = _get(values, name, int)
    return None if str(level) == TOPIC_CONFIGS[name].default else level
