"""A broker's configuration: the sources in their order, parsed once, with every error told at once.

A value comes from the first of: the dynamic configs of this broker, the dynamic configs of all brokers, what the
operator wrote (file and `--set`), and Kafka's default. What the configs are is in `ottla.metadata.broker_configs`; what
a topic makes of them in `topic_settings.py`; how clients change them in `handlers/configs.py`.
"""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Self

from ottla.metadata.broker_configs import BROKER_CONFIGS, DEFAULTS, FIXED_WHILE_RUNNING, SYNONYMS, split_listener
from ottla.metadata.config_types import (
    COMPLAINTS_MAX,
    ConfigDefinition,
    ConfigSource,
    ConfigValue,
    DescribedConfig,
    Synonym,
    UpdateMode,
    unknown_config,
)
from ottla.metadata.topic_configs import BROKER_SYNONYMS
from ottla.model.errors import InvalidConfigError, InvalidRequestError
from ottla.model.ids import BrokerId
from ottla.storage.cleaner import CleanerConfig
from ottla.storage.housekeeping import HousekeepingConfig

_LOGGER: Final = logging.getLogger(__name__)
_NO_LIMIT_BYTES_PER_SECOND: Final = 1e300
_DEFAULT_BROKER_ID: Final = 0
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


class Endpoint(NamedTuple):
    """One of the listeners: its name, and the address; an empty host means every interface."""

    name: str
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """What a broker was told, parsed. Each field is the Kafka config of that name; `values` has them all.

    Replaced whole when a dynamic config changes: whoever keeps a value must take it anew.
    """

    broker_id: BrokerId
    """Kafka's node.id; 0 if nobody chose."""
    broker_rack: str | None
    log_dirs: tuple[str, ...]
    """Empty if nobody chose."""
    num_partitions: int
    default_replication_factor: int
    auto_create_topics_enable: bool
    delete_topic_enable: bool
    auto_leader_rebalance_enable: bool
    leader_imbalance_check_interval_seconds: int
    controlled_shutdown_enable: bool
    min_insync_replicas: int
    unclean_leader_election_enable: bool
    message_max_bytes: int
    log_cleaner_enable: bool
    log_retention_check_interval_ms: int
    log_flush_offset_checkpoint_interval_ms: int
    num_recovery_threads_per_data_dir: int
    producer_id_expiration_ms: int
    socket_request_max_bytes: int
    socket_send_buffer_bytes: int
    socket_receive_buffer_bytes: int
    socket_listen_backlog_size: int
    connections_max_idle_ms: int
    max_connections: int
    max_connections_per_ip: int
    max_connection_creation_rate: int
    queued_max_request_bytes: int
    request_timeout_ms: int
    fetch_max_bytes: int
    max_incremental_fetch_session_cache_slots: int
    max_request_partition_size_limit: int
    replica_lag_time_max_ms: int
    replica_fetch_max_bytes: int
    replica_fetch_min_bytes: int
    replica_fetch_response_max_bytes: int
    replica_fetch_wait_max_ms: int
    replica_fetch_backoff_ms: int
    replica_high_watermark_checkpoint_interval_ms: int
    broker_heartbeat_interval_ms: int
    broker_session_timeout_ms: int
    group_initial_rebalance_delay_ms: int
    group_min_session_timeout_ms: int
    group_max_session_timeout_ms: int
    group_max_size: int
    group_consumer_session_timeout_ms: int
    group_consumer_heartbeat_interval_ms: int
    group_consumer_max_size: int
    group_consumer_assignment_interval_ms: int
    group_consumer_migration_policy: str
    offset_metadata_max_bytes: int
    offsets_commit_timeout_ms: int
    offsets_retention_check_interval_ms: int
    offsets_retention_minutes: int
    offsets_topic_num_partitions: int
    offsets_topic_replication_factor: int
    offsets_topic_segment_bytes: int
    transaction_max_timeout_ms: int
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int
    transaction_remove_expired_transaction_cleanup_interval_ms: int
    transactional_id_expiration_ms: int
    transaction_partition_verification_enable: bool
    transaction_state_log_min_isr: int
    transaction_state_log_num_partitions: int
    transaction_state_log_replication_factor: int
    transaction_state_log_segment_bytes: int

    values: Mapping[str, ConfigValue | None]
    """Every config's value by its Kafka name; None where it has none."""
    static: Mapping[str, str]
    """What the operator wrote, as text."""
    cluster_wide: Mapping[str, str]
    """Dynamic configs of all brokers, as text."""
    per_broker: Mapping[str, str]
    """Dynamic configs of this broker, as text."""

    @classmethod
    def parse(cls, file: Mapping[str, object] | None = None, settings: Mapping[str, str] | None = None) -> Self:
        """The configuration of a broker that starts, from a file's tables and the command line's settings on top.

        Raises `InvalidConfigError` with everything that is wrong, a line for each.
        """
        texts: dict[str, str] = {}
        complaints: list[str] = []
        for name, value in _flattened(file or {}):
            if name in texts:
                complaints.append(f"{name} is in the file twice; keep one of them")
            try:
                texts[name] = _as_text(name, value)
            except InvalidConfigError as error:
                complaints.append(str(error))
        texts |= settings or {}
        for name, text in texts.items():
            try:
                _known(name).parse(text)
            except InvalidConfigError as error:
                complaints.append(str(error))
        if not complaints:
            config = cls._assemble(texts, _NOTHING, _NOTHING)
            complaints = list(_contradictions(config.values))
            if not complaints:
                return config
        raise InvalidConfigError("\n".join(complaints))

    def with_dynamic(self, cluster_wide: Mapping[str, str], per_broker: Mapping[str, str]) -> Self:
        """The same static configuration under other dynamic configs.

        What is stored but not understood here is left out with a warning: another version of the broker may have
        written it, and this one must run.
        """
        return self._assemble(self.static, _understood(cluster_wide), _understood(per_broker))

    @classmethod
    def _assemble(
        cls, static: Mapping[str, str], cluster_wide: Mapping[str, str], per_broker: Mapping[str, str]
    ) -> Self:
        texts = {**DEFAULTS, **static, **cluster_wide, **per_broker}
        values: dict[str, ConfigValue | None] = {
            name: definition.parse(texts[name]) if name in texts else None
            for name, definition in BROKER_CONFIGS.items()
        }
        chosen: dict[str, Any] = {name: values[key] for name, key in _KEY_OF_FIELD.items()}
        chosen["broker_id"] = BrokerId(_DEFAULT_BROKER_ID if chosen["broker_id"] is None else chosen["broker_id"])
        chosen["log_dirs"] = chosen["log_dirs"] or ()
        return cls(
            **chosen,
            values=MappingProxyType(values),
            static=MappingProxyType(dict(static)),
            cluster_wide=MappingProxyType(dict(cluster_wide)),
            per_broker=MappingProxyType(dict(per_broker)),
        )

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """Where the broker listens."""
        return _endpoints(self.values["listeners"])

    @property
    def advertised_endpoints(self) -> tuple[Endpoint, ...]:
        """Where clients are told to connect to; empty if they should use the addresses that the broker listens on."""
        return _endpoints(self.values["advertised.listeners"])

    @property
    def housekeeping(self) -> HousekeepingConfig:
        """How often a log store does its recurring work."""
        return HousekeepingConfig(
            retention_check_interval_ms=self.log_retention_check_interval_ms,
            flush_checkpoint_interval_ms=self.log_flush_offset_checkpoint_interval_ms,
            high_watermark_checkpoint_interval_ms=self.replica_high_watermark_checkpoint_interval_ms,
            cleaner_backoff_ms=self._whole("log.cleaner.backoff.ms"),
        )

    def cleaner(self, hash_key: bytes) -> CleanerConfig:
        """How the cleaner works; `hash_key` is 16 random bytes of this broker."""
        rate = self._number("log.cleaner.io.max.bytes.per.second")
        return CleanerConfig(
            dedupe_buffer_bytes=self._whole("log.cleaner.dedupe.buffer.size"),
            dedupe_buffer_load_factor=self._number("log.cleaner.io.buffer.load.factor"),
            io_max_bytes_per_second=None if rate > _NO_LIMIT_BYTES_PER_SECOND else rate,
            hash_key=hash_key,
        )

    def _whole(self, name: str) -> int:
        value = self.values[name]
        return value if isinstance(value, int) else 0

    def _number(self, name: str) -> float:
        value = self.values[name]
        return float(value) if isinstance(value, int | float) else 0.0


_OWN_FIELDS: Final = frozenset({"values", "static", "cluster_wide", "per_broker"})
_KEY_OF_FIELD: Final[Mapping[str, str]] = {
    each.name: "node.id" if each.name == "broker_id" else each.name.replace("_", ".")
    for each in fields(BrokerConfig)
    if each.name not in _OWN_FIELDS
}


def validate_dynamic(config: BrokerConfig, configs: Mapping[str, str], *, is_cluster_wide: bool) -> None:
    """Whether these may become a broker's, or all brokers', dynamic configs.

    Raises `InvalidRequestError`, which is what Kafka answers here, with what is wrong, `COMPLAINTS_MAX` lines at most.
    """
    complaints: list[str] = []
    for name, text in configs.items():
        if len(complaints) == COMPLAINTS_MAX:
            break
        try:
            definition = _known(name)
            definition.parse(text)
        except InvalidConfigError as error:
            complaints.append(str(error))
            continue
        if definition.update_mode is UpdateMode.AT_START or name in FIXED_WHILE_RUNNING:
            complaints.append(f"{name} cannot be changed while the broker runs; set it where the broker is started")
        elif definition.update_mode is UpdateMode.PER_BROKER and is_cluster_wide:
            complaints.append(f"{name} cannot be set for all brokers at once; name the broker")
    if not complaints:
        layers = (configs, config.per_broker) if is_cluster_wide else (config.cluster_wide, configs)
        complaints = list(_contradictions(config.with_dynamic(*layers).values))
    if complaints:
        raise InvalidRequestError("\n".join(complaints))


def describe_broker(config: BrokerConfig) -> list[DescribedConfig]:
    """Every config of this broker with its value and where it comes from; hidden ones only where they were set."""
    set_somewhere = config.static.keys() | config.cluster_wide.keys() | config.per_broker.keys()
    return [
        _described(definition, config.values[name], synonyms_of(config, name))
        for name, definition in BROKER_CONFIGS.items()
        if not definition.is_hidden or name in set_somewhere
    ]


def describe_cluster_wide(config: BrokerConfig) -> list[DescribedConfig]:
    """The dynamic configs that all brokers share."""
    found = []
    for name, text in config.cluster_wide.items():
        definition = BROKER_CONFIGS[name]
        shown = None if definition.is_sensitive else text
        synonyms = (Synonym(name, shown, ConfigSource.DYNAMIC_DEFAULT_BROKER),)
        found.append(_described(definition, definition.parse(text), synonyms))
    return found


def synonyms_of(config: BrokerConfig, name: str) -> tuple[Synonym, ...]:
    """Every value that a broker config could have, the one that counts first.

    As in Kafka, a config whose value is given in another unit only has none.
    """
    found: list[Synonym] = []
    for source, texts in (
        (ConfigSource.DYNAMIC_BROKER, config.per_broker),
        (ConfigSource.DYNAMIC_DEFAULT_BROKER, config.cluster_wide),
        (ConfigSource.STATIC_BROKER, config.static),
        (ConfigSource.DEFAULT, DEFAULTS),
    ):
        for each in SYNONYMS.get(name, (name,)):
            if each in texts and (found or each == name):
                shown = None if BROKER_CONFIGS[each].is_sensitive else texts[each]
                found.append(Synonym(each, shown, source))
    return tuple(found)


def _described(
    definition: ConfigDefinition, value: ConfigValue | None, synonyms: tuple[Synonym, ...]
) -> DescribedConfig:
    return DescribedConfig(
        name=definition.name,
        value=None if definition.is_sensitive else definition.render(value),
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT,
        type=definition.type,
        is_read_only=definition.update_mode is UpdateMode.AT_START,
        is_sensitive=definition.is_sensitive,
        synonyms=synonyms,
        documentation=definition.documentation,
    )


def _known(name: str) -> ConfigDefinition:
    """The definition of a broker config; a topic's name is answered with the broker's name for it."""
    if name in BROKER_CONFIGS:
        return BROKER_CONFIGS[name]
    if name in BROKER_SYNONYMS:
        broker_name = BROKER_SYNONYMS[name][0].name
        raise InvalidConfigError(f"{name} is a config of a topic; for all topics of a broker set {broker_name}")
    raise unknown_config(name, BROKER_CONFIGS, "broker")


def _understood(texts: Mapping[str, str]) -> dict[str, str]:
    understood = {}
    for name, text in texts.items():
        try:
            _known(name).parse(text)
        except InvalidConfigError as error:
            _LOGGER.warning("a stored config of the broker is left out: %s", error)
        else:
            understood[name] = text
    return understood


def _contradictions(values: Mapping[str, ConfigValue | None]) -> Iterator[str]:
    """Values that are good alone and make no sense together."""
    for lower, upper in _ORDERED:
        least, most = values[lower], values[upper]
        if isinstance(least, int) and isinstance(most, int) and least > most:
            yield f"{lower}={least} is more than {upper}={most}; lower the one or raise the other"


_ORDERED: Final = (
    ("log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"),
    ("group.min.session.timeout.ms", "group.max.session.timeout.ms"),
    ("group.consumer.min.session.timeout.ms", "group.consumer.max.session.timeout.ms"),
    ("group.consumer.min.heartbeat.interval.ms", "group.consumer.max.heartbeat.interval.ms"),
)


def _flattened(table: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """A file's tables as dotted names: `[log.retention] ms = 1` and `"log.retention.ms" = 1` are the same."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flattened(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _as_text(name: str, value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str() | int() | float():
            return str(value)
        case [*entries] if all(isinstance(each, str | int) for each in entries):
            return ",".join(map(str, entries))
    raise InvalidConfigError(f"{name} has a value in the file that is no text, number, true, false, or list of these")


def _endpoints(value: ConfigValue | None) -> tuple[Endpoint, ...]:
    listeners = value if isinstance(value, tuple) else ()
    return tuple(Endpoint(*parts) for each in listeners if (parts := split_listener(each)) is not None)
