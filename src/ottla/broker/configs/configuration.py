"""A broker's configuration: parsed once from its sources, with all errors reported at once.

A value comes from the first of: the dynamic configs of this broker, the dynamic configs of all brokers, the operator's
file and `--set` options, and Kafka's default. What the configs are is in `ottla.metadata.configs.broker_configs`; what
a topic makes of them in `topic_settings.py`; how clients change them in `handlers/topics/configs.py`.
"""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, Final, Self

from ottla.broker.configs.listener_config import (
    Endpoint,
    ListenerConfig,
    endpoints_of,
    inter_broker_listener,
    listener_errors,
    listeners_of,
)
from ottla.metadata.configs.broker_configs import (
    BROKER_CONFIGS,
    DEFAULTS,
    FIXED_WHILE_RUNNING,
    SYNONYMS,
)
from ottla.metadata.configs.definition import (
    COMPLAINTS_MAX,
    ConfigDefinition,
    ConfigSource,
    ConfigValue,
    DescribedConfig,
    Synonym,
    UpdateMode,
    undefined,
    unknown_config,
)
from ottla.metadata.configs.listener_overrides import definition_of, is_only_per_listener, value_for_listener
from ottla.metadata.configs.share_configs import ORDERED as ORDERED_SHARE_CONFIGS
from ottla.metadata.configs.topic_configs import BROKER_SYNONYMS
from ottla.model.errors import InvalidConfigError, InvalidRequestError
from ottla.model.ids import BrokerId
from ottla.storage.cleaning.cleaner import CleanerConfig
from ottla.storage.housekeeping import HousekeepingConfig

_LOGGER: Final = logging.getLogger(__name__)
_NO_LIMIT_BYTES_PER_SECOND: Final = 1e300
_DEFAULT_BROKER_ID: Final = 0
UNKNOWN_CONFIGS_MAX: Final = 100
"""Dynamic configs that are not known, of a broker or of all brokers."""
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """A broker's parsed configs. Each field is the Kafka config of that name; `values` has all of them.

    Replaced whole when a dynamic config changes: read values again instead of keeping them.
    """

    broker_id: BrokerId
    """Kafka's node.id; 0 if it is not set."""
    broker_rack: str | None
    log_dirs: tuple[str, ...]
    """Empty if it is not set."""
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
    max_connections_per_ip_overrides: str
    queued_max_request_bytes: int
    request_timeout_ms: int
    fetch_max_bytes: int
    max_incremental_fetch_session_cache_slots: int
    max_request_partition_size_limit: int
    telemetry_max_bytes: int
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
    authorizer_class_name: str
    super_users: str
    allow_everyone_if_no_acl_found: bool
    delegation_token_secret_key: str | None = field(repr=False)
    delegation_token_max_lifetime_ms: int
    delegation_token_expiry_time_ms: int
    delegation_token_expiry_check_interval_ms: int

    values: Mapping[str, ConfigValue | None] = field(repr=False)
    """Every config's value by its Kafka name; None where it has none."""
    static: Mapping[str, str] = field(repr=False)
    """The operator's configs, as text."""
    cluster_wide: Mapping[str, str] = field(repr=False)
    """Dynamic configs of all brokers, as text."""
    per_broker: Mapping[str, str] = field(repr=False)
    """Dynamic configs of this broker, as text."""

    @classmethod
    def parse(cls, file: Mapping[str, object] | None = None, settings: Mapping[str, str] | None = None) -> Self:
        """The static configuration, from a file's tables and the command line's settings on top.

        Raises `InvalidConfigError` with a line for each problem.
        """
        texts: dict[str, str] = {}
        complaints: list[str] = []
        for name, value in _flattened(file or {}):
            if name in texts:
                complaints.append(f"{name} is in the file twice; remove one of them")
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
            complaints = [*_contradictions(config.values), *listener_errors(config.values, texts)]
            if not complaints:
                return config
        raise InvalidConfigError("\n".join(complaints))

    def with_dynamic(self, cluster_wide: Mapping[str, str], per_broker: Mapping[str, str]) -> Self:
        """The same static configuration under other dynamic configs.

        A stored value that this version does not understand is ignored with a warning: another version of the
        broker may have written it, and this one must run.
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
        values |= {name: _defined(name).parse(text) for name, text in texts.items() if name not in BROKER_CONFIGS}
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
    def unknown_configs(self) -> frozenset[str]:
        """The names of the dynamic configs that nothing here knows."""
        return frozenset(name for name in (*self.cluster_wide, *self.per_broker) if definition_of(name) is None)

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """Names and addresses of the listeners, as configured."""
        return endpoints_of(self.values, "listeners")

    @property
    def listeners(self) -> tuple[ListenerConfig, ...]:
        """The listeners with their security protocols and advertised addresses; at least one."""
        return listeners_of(self.values)

    @property
    def inter_broker_listener(self) -> str:
        """The name of the listener that brokers use among themselves."""
        return inter_broker_listener(self.values)

    def for_listener(self, listener: str, name: str, *, mechanism: str | None = None) -> ConfigValue | None:
        """The value of a config for a listener: with its prefix (and that of a SASL mechanism), or else without."""
        return value_for_listener(self.values, listener, name, mechanism=mechanism)

    @property
    def advertised_endpoints(self) -> tuple[Endpoint, ...]:
        """The addresses that clients are told, by listener name; empty if they are those of the listeners."""
        return endpoints_of(self.values, "advertised.listeners")

    @property
    def schema_registry_urls(self) -> tuple[str, ...]:
        """The registry that is asked for topics with schema validation; empty if there is none."""
        urls = self.values["confluent.schema.registry.url"]
        return urls if isinstance(urls, tuple) else ()

    @property
    def housekeeping(self) -> HousekeepingConfig:
        """How often the recurring work of a log store is done."""
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
    """Raises `InvalidRequestError`, as Kafka does, if these cannot be dynamic configs of a broker or of all brokers.

    The error has a line for each problem, `COMPLAINTS_MAX` at most. As in Kafka, a config need not be known.
    """
    complaints: list[str] = []
    unknown = [name for name in configs if definition_of(name) is None]
    if len(unknown) > UNKNOWN_CONFIGS_MAX:
        complaints.append(f"{len(unknown)} of the configs are not known; the limit is {UNKNOWN_CONFIGS_MAX}")
    for name, text in configs.items():
        if len(complaints) == COMPLAINTS_MAX:
            break
        try:
            definition = definition_of(name)
            if definition is None:
                continue
            definition.parse(text)
        except InvalidConfigError as error:
            complaints.append(str(error))
            continue
        if definition.update_mode is UpdateMode.AT_START or name in FIXED_WHILE_RUNNING:
            complaints.append(f"{name} cannot be changed while the broker runs; set it where the broker is started")
        elif is_only_per_listener(name):
            complaints.append(
                f"{name} can be changed while the broker runs only for one listener, as listener.name.<listener>.{name}"
            )
        elif definition.update_mode is UpdateMode.PER_BROKER and is_cluster_wide:
            complaints.append(f"{name} cannot be set for all brokers at once; name the broker")
    if not complaints:
        layers = (configs, config.per_broker) if is_cluster_wide else (config.cluster_wide, configs)
        complaints = list(_contradictions(config.with_dynamic(*layers).values))
    if complaints:
        raise InvalidRequestError("\n".join(complaints))


def describe_broker(config: BrokerConfig) -> list[DescribedConfig]:
    """Every config of this broker with its value and its source; hidden ones only if they were set."""
    set_somewhere = config.static.keys() | config.cluster_wide.keys() | config.per_broker.keys()
    return [
        _described(definition, config.values[name], synonyms_of(config, name))
        for name, definition in {**BROKER_CONFIGS, **{name: _defined(name) for name in sorted(set_somewhere)}}.items()
        if not definition.is_hidden or name in set_somewhere
    ]


def describe_cluster_wide(config: BrokerConfig) -> list[DescribedConfig]:
    """The dynamic configs that all brokers share."""
    found = []
    for name, text in config.cluster_wide.items():
        definition = _defined(name)
        shown = None if definition.is_sensitive else text
        synonyms = (Synonym(name, shown, ConfigSource.DYNAMIC_DEFAULT_BROKER),)
        found.append(_described(definition, definition.parse(text), synonyms))
    return found


def synonyms_of(config: BrokerConfig, name: str) -> tuple[Synonym, ...]:
    """Every value that is set for a broker config, the effective one first.

    As in Kafka, a config that is only set in another unit has none.
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
                shown = None if _defined(each).is_sensitive else texts[each]
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
    """The definition of a broker config."""
    found = definition_of(name)
    if found is None:
        raise unknown_broker_config(name)
    return found


def unknown_broker_config(name: str) -> InvalidConfigError:
    """The error about a name that is not a broker config; for a topic config, it names the broker's config."""
    if name in BROKER_SYNONYMS:
        broker_name = BROKER_SYNONYMS[name][0].name
        return InvalidConfigError(f"{name} is a config of a topic; for all topics of a broker set {broker_name}")
    return unknown_config(name, BROKER_CONFIGS, "broker")


def _defined(name: str) -> ConfigDefinition:
    """The definition of a broker config that is set, known or not."""
    return definition_of(name) or undefined(name)


def _understood(texts: Mapping[str, str]) -> dict[str, str]:
    understood = {}
    for name, text in texts.items():
        try:
            _defined(name).parse(text)
        except InvalidConfigError as error:
            _LOGGER.warning("ignoring a stored broker config: %s", error)
        else:
            understood[name] = text
    return understood


def _contradictions(values: Mapping[str, ConfigValue | None]) -> Iterator[str]:
    """Values that are valid alone but contradict each other."""
    for lower, upper in _ORDERED:
        least, most = values[lower], values[upper]
        if isinstance(least, int) and isinstance(most, int) and least > most:
            yield f"{lower}={least} is more than {upper}={most}; lower the one or raise the other"


_ORDERED: Final = (
    ("log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"),
    ("group.min.session.timeout.ms", "group.max.session.timeout.ms"),
    ("group.consumer.min.session.timeout.ms", "group.consumer.max.session.timeout.ms"),
    ("group.consumer.min.heartbeat.interval.ms", "group.consumer.max.heartbeat.interval.ms"),
    *ORDERED_SHARE_CONFIGS,
    ("group.streams.min.session.timeout.ms", "group.streams.session.timeout.ms"),
    ("group.streams.session.timeout.ms", "group.streams.max.session.timeout.ms"),
    ("group.streams.min.heartbeat.interval.ms", "group.streams.heartbeat.interval.ms"),
    ("group.streams.heartbeat.interval.ms", "group.streams.max.heartbeat.interval.ms"),
    ("group.streams.min.assignment.interval.ms", "group.streams.assignment.interval.ms"),
    ("group.streams.assignment.interval.ms", "group.streams.max.assignment.interval.ms"),
    ("group.streams.num.standby.replicas", "group.streams.max.standby.replicas"),
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
    raise InvalidConfigError(f"{name}: its value in the file is not text, a number, true, false, or a list of these")
