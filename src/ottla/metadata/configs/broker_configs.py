"""The broker configs that have an effect here or that Kafka's tools expect: type, default, range, and when they may
change.

Names, types and defaults are those of Kafka 4.3. A known config without an effect says so in its documentation, so that
files and tools that set it keep working. `topic_configs.py` has the configs that a topic may override;
`ottla.broker.configs.configuration` combines the values.
"""

import re
from collections.abc import Mapping
from ipaddress import ip_address
from types import MappingProxyType
from typing import Final

from ottla.metadata.configs.authorization_configs import AUTHORIZATION_CONFIGS
from ottla.metadata.configs.definition import ConfigDefinition, ConfigType, ConfigValue, Rule, UpdateMode
from ottla.metadata.configs.definition import define as _define
from ottla.metadata.configs.sasl_configs import SASL_CONFIGS
from ottla.metadata.configs.share_configs import SHARE_CONFIGS
from ottla.metadata.configs.ssl_configs import SSL_CONFIGS
from ottla.metadata.configs.streams_group_configs import STREAMS_BROKER_CONFIGS
from ottla.metadata.configs.topic_configs import BROKER_SYNONYMS, TOPIC_CONFIGS
from ottla.metadata.configs.zookeeper_configs import ZOOKEEPER_CONFIGS

_LISTENER: Final = re.compile(
    r"(?P<name>[A-Za-z0-9_]+)://(?P<host>\[[0-9A-Fa-f:.%]*\]|[A-Za-z0-9._-]*):(?P<port>[0-9]{1,5})"
)
_URL: Final = re.compile(r"https?://[^\s/,]+(?:/[^\s,]*)?")
_PORT_MAX: Final = 65535
_DOUBLE_MAX_TEXT: Final = "1.7976931348623157E308"
_INT_MAX_TEXT: Final = str(2**31 - 1)
_LONG_MAX_TEXT: Final = str(2**63 - 1)
_MIB: Final = 1024 * 1024

_IDLE: Final = "It has no effect in Ottla: one event loop does all the work."
_UNUSED: Final = "It has no effect in Ottla."


def split_listener(text: str) -> tuple[str, str, int] | None:
    """`NAME://host:port` as its parts, an IPv6 host without its brackets; None if it is not one."""
    found = _LISTENER.fullmatch(text)
    if found is None or int(found["port"]) > _PORT_MAX:
        return None
    return found["name"].upper(), found["host"].strip("[]"), int(found["port"])


def _are_listeners(value: ConfigValue) -> bool:
    return isinstance(value, tuple) and bool(value) and all(map(split_listener, value))


def ip_limits(text: str) -> dict[str, int]:
    """The limits of max.connections.per.ip.overrides by address, as the system spells it. Raises ValueError."""
    found = {}
    for pair in filter(str.strip, text.split(",")):
        address, _, count = pair.strip().rpartition(":")
        if not count.isascii() or not count.isdigit():
            raise ValueError(pair)
        found[str(ip_address(address.strip("[]")))] = int(count)
    return found


def _are_ip_limits(value: ConfigValue) -> bool:
    try:
        return isinstance(value, str) and ip_limits(value) is not None
    except ValueError:
        return False


def _is_load_factor(value: ConfigValue) -> bool:
    return isinstance(value, float) and 0 < value <= 1


def _are_urls(value: ConfigValue) -> bool:
    return isinstance(value, tuple) and all(map(_URL.fullmatch, value))


_LISTENERS_RULE: Final = Rule(_are_listeners, "a list of NAME://host:port separated by commas")
_IP_LIMITS_RULE: Final = Rule(_are_ip_limits, "IP:count pairs separated by commas, such as 10.0.0.1:100")
_URLS_RULE: Final = Rule(_are_urls, "a list of http:// or https:// URLs separated by commas")
_RETENTION_RULE: Final = Rule(bool, "a whole number other than 0; negative means no limit")
_LOAD_FACTOR_RULE: Final = Rule(_is_load_factor, "a number above 0 and at most 1")

_BOOLEAN, _INT, _LONG, _LIST = ConfigType.BOOLEAN, ConfigType.INT, ConfigType.LONG, ConfigType.LIST
_STRING, _DOUBLE, _SHORT = ConfigType.STRING, ConfigType.DOUBLE, ConfigType.SHORT
_ANY, _ONE = UpdateMode.CLUSTER_WIDE, UpdateMode.PER_BROKER


_FOR_TOPICS: Final = tuple(
    _define(
        synonyms[0].name, topic.type, None if len(synonyms) > 1 else topic.default,
        f"The value of {name} for topics that do not set it. {topic.documentation}",
        None if name == "retention.ms" else topic.lowest, topic.highest,
        allowed=topic.allowed, rule=_RETENTION_RULE if name == "retention.ms" else topic.rule, update_mode=_ANY,
    )
    for name, synonyms in BROKER_SYNONYMS.items()
    for topic in [TOPIC_CONFIGS[name]]
)  # fmt: skip
"""The broker config behind each topic config; if there are several units, the finest, which has no default."""

_LOG: Final = (
    _define("log.dirs", _LIST, None, "The data dirs. A new partition is placed in the one with the fewest partitions."),
    _define("log.retention.minutes", _INT, None, "retention.ms in minutes; log.retention.ms takes precedence.",
            rule=_RETENTION_RULE),
    _define("log.retention.hours", _INT, "168", "retention.ms in hours; minutes and milliseconds take precedence.",
            rule=_RETENTION_RULE),
    _define("log.roll.hours", _INT, "168", "segment.ms in hours; log.roll.ms takes precedence.", 1),
    _define("log.roll.jitter.hours", _INT, "0", "segment.jitter.ms in hours; log.roll.jitter.ms takes precedence.", 0),
    _define("log.retention.check.interval.ms", _LONG, "300000", "How often logs are checked for expired segments.", 1),
    _define(
        "log.flush.scheduler.interval.ms", _LONG, _LONG_MAX_TEXT,
        "flush.ms for topics that do not set it, if log.flush.interval.ms is not set either.",
    ),
    _define(
        "log.flush.offset.checkpoint.interval.ms", _INT, "60000",
        "How often the recovery points are written; more often means faster recovery.", 0,
    ),
    _define(
        "log.flush.start.offset.checkpoint.interval.ms", _INT, "60000",
        f"How often log start offsets are written. {_UNUSED} They are written with the recovery points.", 0,
    ),
    _define(
        "log.dir.failure.timeout.ms", _LONG, "30000",
        f"How long a broker may fail to report a broken log dir before it stops. {_UNUSED}", 1,
    ),
    _define(
        "num.recovery.threads.per.data.dir", _INT, "2",
        f"How many partitions of one folder are recovered in parallel after a crash. {_UNUSED}", 1, update_mode=_ANY,
    ),
    _define("log.cleaner.enable", _BOOLEAN, "true", f"Whether logs are compacted. {_UNUSED}"),
    _define("log.cleaner.threads", _INT, "1", "How many logs are compacted in parallel. In Ottla always one.", 0,
            update_mode=_ANY),
    _define("log.cleaner.backoff.ms", _LONG, "15000", "How long the cleaner waits when there is nothing to clean.", 0,
            update_mode=_ANY),
    _define(
        "log.cleaner.dedupe.buffer.size", _LONG, "134217728",
        "The memory for the map from keys to offsets. Keys that do not fit wait for the next cleaning.", _MIB,
        update_mode=_ANY,
    ),
    _define("log.cleaner.io.buffer.load.factor", _DOUBLE, "0.9", "How full the cleaner's map of keys may become.",
            rule=_LOAD_FACTOR_RULE, update_mode=_ANY),
    _define("log.cleaner.io.buffer.size", _INT, "524288",
            "The cleaner's read and write buffers together. In Ottla their size is fixed.", 0, update_mode=_ANY),
    _define("log.cleaner.io.max.bytes.per.second", _DOUBLE, _DOUBLE_MAX_TEXT,
            "How many bytes the cleaner reads and writes per second at most.", 1, update_mode=_ANY),
    _define(
        "producer.id.expiration.ms", _INT, "86400000",
        "How long a partition remembers the sequence numbers of an idle producer.", 1, update_mode=_ANY,
    ),
    _define("producer.id.expiration.check.interval.ms", _INT, "600000",
            f"How often idle producers are removed. {_UNUSED} They are removed when retention is checked.", 1,
            is_hidden=True),
)  # fmt: skip

_TOPICS: Final = (
    _define("num.partitions", _INT, "1", "The default number of partitions of a topic.", 1),
    _define("default.replication.factor", _INT, "1",
            "The default number of replicas of a partition.", 1),
    _define("auto.create.topics.enable", _BOOLEAN, "true",
            "Whether a topic is created when a client that allows it requests its metadata."),
    _define("confluent.schema.registry.url", _LIST, "",
            "The schema registry for topics with confluent.key.schema.validation or "
            "confluent.value.schema.validation; several URLs are tried in this order.",
            rule=_URLS_RULE, update_mode=_ANY),
    _define("delete.topic.enable", _BOOLEAN, "true", "Whether topics may be deleted."),
    _define("auto.leader.rebalance.enable", _BOOLEAN, "true",
            "Whether leadership moves back to the preferred replicas automatically."),
    _define("leader.imbalance.check.interval.seconds", _LONG, "300",
            "How often the controller checks the leaders for this.", 1),
    _define("controlled.shutdown.enable", _BOOLEAN, "true",
            f"Whether a broker moves its leaderships to others before it stops. {_UNUSED}"),
)  # fmt: skip

_NETWORK: Final = (
    _define("node.id", _INT, None, "The broker's id in its cluster.", 0),
    _define("broker.rack", _STRING, None, "The broker's rack; replicas are spread over racks."),
    _define("listeners", _LIST, "PLAINTEXT://:9092", "The names and addresses of the broker's listeners.",
            rule=_LISTENERS_RULE, update_mode=_ONE),
    _define("advertised.listeners", _LIST, None,
            "The addresses that clients are told to connect to, by listener name; if not set, those of listeners.",
            rule=_LISTENERS_RULE),
    _define("listener.security.protocol.map", _STRING,
            "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
            "The security protocol of each listener name, as NAME:PROTOCOL pairs.",
            update_mode=_ONE),
    _define("inter.broker.listener.name", _STRING, None,
            "The listener for connections between brokers; if not set, the listener that is named like"
            " security.inter.broker.protocol, or the only listener with that protocol."),
    _define("security.inter.broker.protocol", _STRING, "PLAINTEXT",
            "The security protocol of connections between brokers; cannot be set with inter.broker.listener.name.",
            allowed=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")),
    _define("socket.request.max.bytes", _INT, "104857600",
            "The largest request in bytes; a connection that sends a larger one is closed.", 1),
    _define("socket.send.buffer.bytes", _INT, "102400",
            f"A connection's send buffer; -1 for the system's default. {_UNUSED}"),
    _define("socket.receive.buffer.bytes", _INT, "102400",
            f"A connection's receive buffer; -1 for the system's default. {_UNUSED}"),
    _define("socket.listen.backlog.size", _INT, "50",
            f"How many new connections may wait to be accepted. {_UNUSED}", 1),
    _define("connections.max.idle.ms", _LONG, "600000", "How long a connection may be idle before it is closed."),
    _define("max.connections", _INT, _INT_MAX_TEXT, "How many connections the broker accepts.", 0,
            update_mode=_ANY),
    _define("max.connections.per.ip", _INT, _INT_MAX_TEXT,
            "How many connections from one client address are accepted.", 0, update_mode=_ANY),
    _define("max.connections.per.ip.overrides", _STRING, "",
            "max.connections.per.ip for single addresses, as IP:count,…; host names are not resolved.",
            rule=_IP_LIMITS_RULE, update_mode=_ANY),
    _define("max.connection.creation.rate", _INT, _INT_MAX_TEXT,
            f"The limit of new connections per second. {_UNUSED} Set the quota connection_creation_rate.", 0,
            update_mode=_ANY),
    _define("queued.max.requests", _INT, "500",
            f"How many requests may wait before connections are no longer read. {_UNUSED}", 1),
    _define("queued.max.request.bytes", _LONG, "-1",
            "How many bytes of requests may be in memory before connections are no longer read; -1 for no limit."),
    _define("num.network.threads", _INT, "3", f"Threads that talk to the network. {_IDLE}", 1, update_mode=_ANY),
    _define("num.io.threads", _INT, "8", f"Threads that answer requests. {_IDLE}", 1, update_mode=_ANY),
    _define("background.threads", _INT, "10", f"Threads for recurring work. {_IDLE}", 1, update_mode=_ANY),
    _define("request.timeout.ms", _INT, "30000", "How long a request to another broker may take."),
    _define("fetch.max.bytes", _INT, "57671680", "The largest fetch response in bytes.", 1024),
    _define("max.incremental.fetch.session.cache.slots", _INT, "1000", "How many fetch sessions a broker keeps.", 0),
    _define("max.request.partition.size.limit", _INT, "2000",
            "How many partitions a DescribeTopicPartitions response has at most.", 1),
    _define("telemetry.max.bytes", _INT, "1048576",
            "The largest push of client metrics in bytes, as it is sent.", 1),
    _define("fetch.purgatory.purge.interval.requests", _INT, "1000",
            f"How often completed fetches are purged. {_UNUSED}"),
    _define("producer.purgatory.purge.interval.requests", _INT, "1000",
            f"How often completed produce requests are purged. {_UNUSED}"),
)  # fmt: skip

RACK_AWARE_SELECTOR: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"

_REPLICATION: Final = (
    _define("replica.lag.time.max.ms", _LONG, "30000",
            "How long a follower may lag behind before it leaves the ISR."),
    _define("replica.fetch.max.bytes", _INT, "1048576", "How many bytes a follower fetches per partition at most.", 0),
    _define("replica.fetch.min.bytes", _INT, "1", "How many bytes a follower's fetch waits for."),
    _define("replica.fetch.response.max.bytes", _INT, "10485760",
            "How many bytes a follower's fetch returns at most.", 0),
    _define("replica.fetch.wait.max.ms", _INT, "500", "How long a leader may delay a follower's fetch."),
    _define("replica.fetch.backoff.ms", _INT, "1000", "How long a follower waits after a failed fetch.", 0),
    _define("replica.high.watermark.checkpoint.interval.ms", _LONG, "5000",
            "How often the high watermarks are written."),
    _define("replica.socket.timeout.ms", _INT, "30000",
            f"How long a follower waits for its leader's answer. {_UNUSED}"),
    _define("replica.socket.receive.buffer.bytes", _INT, "65536",
            f"The receive buffer of a follower's connection. {_UNUSED}"),
    _define("num.replica.fetchers", _INT, "1", f"Threads that follow one leader. {_IDLE}", 1, update_mode=_ANY),
    _define("replica.selector.class", _STRING, None,
            "The replica that a consumer with a rack reads from: with Kafka's rack-aware selector one of that rack, "
            "otherwise the leader.", allowed=(RACK_AWARE_SELECTOR,)),
    _define("broker.heartbeat.interval.ms", _INT, "2000", f"How often a broker sends a heartbeat. {_UNUSED}"),
    _define("broker.session.timeout.ms", _INT, "9000", "How long a broker without heartbeats stays registered."),
    _define("leader.replication.throttled.rate", _LONG, None,
            "The bytes per second that a leader sends to the replicas in leader.replication.throttled.replicas.",
            0, update_mode=_ANY, is_hidden=True),
    _define("follower.replication.throttled.rate", _LONG, None,
            "The bytes per second that a follower fetches for replicas in follower.replication.throttled.replicas.",
            0, update_mode=_ANY, is_hidden=True),
    _define("replica.alter.log.dirs.io.max.bytes.per.second", _LONG, None,
            "The bytes per second that are copied when partitions are moved between the data dirs of a broker.",
            0, update_mode=_ANY, is_hidden=True),
)  # fmt: skip

_GROUPS: Final = (
    _define("group.initial.rebalance.delay.ms", _INT, "3000",
            "How long an empty group waits for more members before its first rebalance."),
    _define("group.min.session.timeout.ms", _INT, "6000", "The shortest session timeout that a member may ask for."),
    _define("group.max.session.timeout.ms", _INT, "1800000", "The longest session timeout that a member may ask for."),
    _define("group.max.size", _INT, _INT_MAX_TEXT, "How many members a group may have.", 1),
    _define("group.coordinator.rebalance.protocols", _LIST, "classic,consumer,streams",
            f"The group protocols that are served. {_UNUSED}", allowed=("consumer", "classic", "share", "streams")),
    _define("group.consumer.session.timeout.ms", _INT, "45000", "The session timeout of consumer groups.", 1),
    _define("group.consumer.min.session.timeout.ms", _INT, "45000",
            "The smallest session timeout of consumer groups.", 1),
    _define("group.consumer.max.session.timeout.ms", _INT, "60000",
            "The largest session timeout of consumer groups.", 1),
    _define("group.consumer.heartbeat.interval.ms", _INT, "5000", "The heartbeat interval of consumer groups.", 1),
    _define("group.consumer.min.heartbeat.interval.ms", _INT, "5000",
            "The smallest heartbeat interval of consumer groups.", 1),
    _define("group.consumer.max.heartbeat.interval.ms", _INT, "15000",
            "The largest heartbeat interval of consumer groups.", 1),
    _define("group.consumer.max.size", _INT, _INT_MAX_TEXT, "How many members a consumer group may have.", 1),
    _define("group.consumer.assignors", _LIST, "uniform,range", f"The assignors of consumer groups. {_UNUSED}"),
    _define("group.consumer.assignment.interval.ms", _INT, "1000",
            "The shortest time between two assignments of a consumer group; 0 for no limit.", 0,
            update_mode=_ANY),
    _define("group.consumer.min.assignment.interval.ms", _INT, "0",
            "The smallest assignment interval of consumer groups.", 0),
    _define("group.consumer.max.assignment.interval.ms", _INT, "15000",
            "The largest assignment interval of consumer groups.", 0),
    _define("group.consumer.assignor.offload.enable", _BOOLEAN, "true",
            f"Whether assignments are computed in a background thread. {_UNUSED}", update_mode=_ANY),
    _define("group.consumer.migration.policy", _STRING, "bidirectional",
            "Which conversions between classic and consumer groups are allowed.",
            allowed=("disabled", "downgrade", "upgrade", "bidirectional")),
    _define("offset.metadata.max.bytes", _INT, "4096", "The largest metadata of a committed offset in bytes."),
    _define("offsets.commit.timeout.ms", _INT, "5000",
            f"How long an offset commit waits for its replicas. {_UNUSED}", 1),
    _define("offsets.load.buffer.size", _INT, "5242880", f"The read buffer for loading offsets. {_UNUSED}", 1),
    _define("offsets.retention.check.interval.ms", _LONG, "600000", "How often expired offsets are removed.", 1),
    _define("offsets.retention.minutes", _INT, "10080", "How long an empty group's offsets are kept.", 1),
    _define("offsets.topic.compression.codec", _INT, "0", f"The codec number of the offsets topic. {_UNUSED}", 0, 4),
    _define("offsets.topic.num.partitions", _INT, "50", "The number of partitions of the offsets topic.", 1),
    _define("offsets.topic.replication.factor", _SHORT, "3", "The number of replicas of the offsets topic.", 1),
    _define("offsets.topic.segment.bytes", _INT, "104857600", "The segment size of the offsets topic.", 1),
)  # fmt: skip

_TRANSACTIONS: Final = (
    _define("transaction.max.timeout.ms", _INT, "900000", "The largest allowed transaction timeout.", 1),
    _define("transaction.abort.timed.out.transaction.cleanup.interval.ms", _INT, "10000",
            "How often timed-out transactions are aborted.", 1),
    _define("transaction.remove.expired.transaction.cleanup.interval.ms", _INT, "3600000",
            f"How often expired transactional ids are removed. {_UNUSED}", 1),
    _define("transactional.id.expiration.ms", _INT, "604800000",
            "How long an unused transactional id is kept.", 1),
    _define("transaction.partition.verification.enable", _BOOLEAN, "true",
            "Whether writes to partitions that were not added to the transaction are refused.", update_mode=_ANY),
    _define("transaction.two.phase.commit.enable", _BOOLEAN, "false",
            f"Whether two-phase commit is allowed. {_UNUSED}"),
    _define("transaction.state.log.load.buffer.size", _INT, "5242880",
            f"The read buffer for loading transactions. {_UNUSED}", 1),
    _define("transaction.state.log.min.isr", _INT, "2", "min.insync.replicas of the transactions topic.", 1),
    _define("transaction.state.log.num.partitions", _INT, "50",
            "The number of partitions of the transactions topic.", 1),
    _define("transaction.state.log.replication.factor", _SHORT, "3",
            "The number of replicas of the transactions topic.", 1),
    _define("transaction.state.log.segment.bytes", _INT, "104857600",
            "The segment size of the transactions topic.", 1),
)  # fmt: skip

BROKER_CONFIGS: Final[Mapping[str, ConfigDefinition]] = MappingProxyType(
    {
        each.name: each
        for group in (
            _NETWORK,
            _FOR_TOPICS,
            _LOG,
            _TOPICS,
            _REPLICATION,
            _GROUPS,
            STREAMS_BROKER_CONFIGS,
            _TRANSACTIONS,
            SHARE_CONFIGS,
            SSL_CONFIGS,
            SASL_CONFIGS,
            AUTHORIZATION_CONFIGS,
            ZOOKEEPER_CONFIGS,
        )
        for each in group
    }
)
"""Every broker config by its name."""

DEFAULTS: Final[Mapping[str, str]] = MappingProxyType(
    {name: each.default for name, each in BROKER_CONFIGS.items() if each.default is not None}
)
"""The values of a broker without any configuration."""


def _units(*names: str) -> dict[str, tuple[str, ...]]:
    return dict.fromkeys(names, names)


SYNONYMS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        **_units("log.roll.ms", "log.roll.hours"),
        **_units("log.roll.jitter.ms", "log.roll.jitter.hours"),
        **_units("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
        "log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    }
)
"""Configs that exist in several units, the one with precedence first; all others have only their name."""

FIXED_WHILE_RUNNING: Final = frozenset({"listeners", "listener.security.protocol.map"})
"""Configs that Kafka can change in a running broker and Ottla cannot."""
