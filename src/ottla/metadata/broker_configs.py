"""The broker configs that act here or that Kafka's tools look at: type, default, range, and when they may change.

Names, types and defaults are Kafka 4.3's. A config that is known but has nothing to act on says so in its
documentation: a file or a tool that sets it goes on working. `topic_configs.py` has what a topic may override;
`ottla.broker.configuration` puts the values together.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from ottla.metadata.config_types import ConfigDefinition, ConfigType, ConfigValue, Rule, UpdateMode
from ottla.metadata.topic_configs import BROKER_SYNONYMS, TOPIC_CONFIGS

_LISTENER: Final = re.compile(
    r"(?P<name>[A-Za-z0-9_]+)://(?P<host>\[[0-9A-Fa-f:.%]*\]|[A-Za-z0-9._-]*):(?P<port>[0-9]{1,5})"
)
_PORT_MAX: Final = 65535
_IP_LIMIT: Final = re.compile(r"\s*[^\s,]+:[0-9]{1,10}\s*")
_DOUBLE_MAX_TEXT: Final = "1.7976931348623157E308"
_INT_MAX_TEXT: Final = str(2**31 - 1)
_LONG_MAX_TEXT: Final = str(2**63 - 1)
_MIB: Final = 1024 * 1024

_IDLE: Final = "It has nothing to act on here: one event loop does all the work."
_UNUSED: Final = "It has nothing to act on here."


def split_listener(text: str) -> tuple[str, str, int] | None:
    """`NAME://host:port` as its parts, an IPv6 host without its brackets; None if it is not one."""
    found = _LISTENER.fullmatch(text)
    if found is None or int(found["port"]) > _PORT_MAX:
        return None
    return found["name"].upper(), found["host"].strip("[]"), int(found["port"])


def _are_listeners(value: ConfigValue) -> bool:
    return isinstance(value, tuple) and bool(value) and all(map(split_listener, value))


def _are_ip_limits(value: ConfigValue) -> bool:
    return isinstance(value, str) and (not value or all(map(_IP_LIMIT.fullmatch, value.split(","))))


def _is_load_factor(value: ConfigValue) -> bool:
    return isinstance(value, float) and 0 < value <= 1


_LISTENERS_RULE: Final = Rule(_are_listeners, "NAME://host:port, more of them separated by commas")
_IP_LIMITS_RULE: Final = Rule(_are_ip_limits, "address:count pairs separated by commas, such as 10.0.0.1:100")
_RETENTION_RULE: Final = Rule(bool, "a whole number other than 0; any below 0 means no limit")
_LOAD_FACTOR_RULE: Final = Rule(_is_load_factor, "a number above 0 and at most 1")

_BOOLEAN, _INT, _LONG, _LIST = ConfigType.BOOLEAN, ConfigType.INT, ConfigType.LONG, ConfigType.LIST
_STRING, _DOUBLE, _SHORT = ConfigType.STRING, ConfigType.DOUBLE, ConfigType.SHORT
_ANY, _ONE = UpdateMode.CLUSTER_WIDE, UpdateMode.PER_BROKER


def _define(
    name: str,
    type_: ConfigType,
    default: str | None,
    documentation: str,
    lowest: float | None = None,
    highest: float | None = None,
    *,
    allowed: tuple[str, ...] = (),
    rule: Rule | None = None,
    update_mode: UpdateMode = UpdateMode.AT_START,
    is_hidden: bool = False,
) -> ConfigDefinition:
    return ConfigDefinition(
        name=name,
        type=type_,
        default=default,
        documentation=documentation,
        lowest=lowest,
        highest=highest,
        allowed=allowed,
        rule=rule,
        update_mode=update_mode,
        is_hidden=is_hidden,
    )


_FOR_TOPICS: Final = tuple(
    _define(
        synonyms[0].name, topic.type, None if len(synonyms) > 1 else topic.default,
        f"What {name} is for topics that do not set it. {topic.documentation}",
        None if name == "retention.ms" else topic.lowest, topic.highest,
        allowed=topic.allowed, rule=_RETENTION_RULE if name == "retention.ms" else topic.rule, update_mode=_ANY,
    )
    for name, synonyms in BROKER_SYNONYMS.items()
    for topic in [TOPIC_CONFIGS[name]]
)  # fmt: skip
"""The broker's side of each topic config; where there are several units, the finest, which has no default."""

_LOG: Final = (
    _define("log.dirs", _LIST, None, "The folders that partitions are kept in; new ones go where the fewest are."),
    _define("log.retention.minutes", _INT, None, "retention.ms in minutes; log.retention.ms goes before it.",
            rule=_RETENTION_RULE),
    _define("log.retention.hours", _INT, "168", "retention.ms in hours; minutes and milliseconds go before it.",
            rule=_RETENTION_RULE),
    _define("log.roll.hours", _INT, "168", "segment.ms in hours; log.roll.ms goes before it.", 1),
    _define("log.roll.jitter.hours", _INT, "0", "segment.jitter.ms in hours; log.roll.jitter.ms goes before it.", 0),
    _define("log.retention.check.interval.ms", _LONG, "300000", "How often logs are looked at for old segments.", 1),
    _define(
        "log.flush.scheduler.interval.ms", _LONG, _LONG_MAX_TEXT,
        "flush.ms for topics that do not set it, where log.flush.interval.ms is not set either.",
    ),
    _define(
        "log.flush.offset.checkpoint.interval.ms", _INT, "60000",
        "How often the recovery points are written down: the less a recovery has to scan.", 0,
    ),
    _define(
        "log.flush.start.offset.checkpoint.interval.ms", _INT, "60000",
        "How often the logs' starts are written down; here this is done along with the recovery points.", 0,
    ),
    _define(
        "log.dir.failure.timeout.ms", _LONG, "30000",
        f"How long a broker may fail to report a broken log dir before it stops. {_UNUSED}", 1,
    ),
    _define(
        "num.recovery.threads.per.data.dir", _INT, "2",
        "How many partitions of one folder are recovered at a time after a crash.", 1, update_mode=_ANY,
    ),
    _define("log.cleaner.enable", _BOOLEAN, "true", "Whether logs are compacted at all."),
    _define("log.cleaner.threads", _INT, "1", "How many logs are compacted at a time. Here it is always one.", 0,
            update_mode=_ANY),
    _define("log.cleaner.backoff.ms", _LONG, "15000", "How long the cleaner waits when there is nothing to clean.", 0,
            update_mode=_ANY),
    _define(
        "log.cleaner.dedupe.buffer.size", _LONG, "134217728",
        "The most memory for the map from keys to offsets. What does not fit waits for the next round.", _MIB,
        update_mode=_ANY,
    ),
    _define("log.cleaner.io.buffer.load.factor", _DOUBLE, "0.9", "How full the cleaner's map of keys may become.",
            rule=_LOAD_FACTOR_RULE, update_mode=_ANY),
    _define("log.cleaner.io.buffer.size", _INT, "524288",
            "The cleaner's read and write buffers together. Here their size is fixed.", 0, update_mode=_ANY),
    _define("log.cleaner.io.max.bytes.per.second", _DOUBLE, _DOUBLE_MAX_TEXT,
            "The most bytes that the cleaner reads and writes together in a second.", 1, update_mode=_ANY),
    _define(
        "producer.id.expiration.ms", _INT, "86400000",
        "How long a partition remembers a silent producer's sequence numbers.", 1, update_mode=_ANY,
    ),
    _define("producer.id.expiration.check.interval.ms", _INT, "600000",
            "How often silent producers are looked for; here this is done along with retention.", 1, is_hidden=True),
)  # fmt: skip

_TOPICS: Final = (
    _define("num.partitions", _INT, "1", "How many partitions a topic gets that does not ask for a number.", 1),
    _define("default.replication.factor", _INT, "1",
            "How many replicas a partition gets if nobody asks for a number.", 1),
    _define("auto.create.topics.enable", _BOOLEAN, "true",
            "Whether a topic comes into being when a client that allows it asks for its metadata."),
    _define("delete.topic.enable", _BOOLEAN, "true", "Whether topics may be deleted."),
    _define("auto.leader.rebalance.enable", _BOOLEAN, "true",
            "Whether leadership goes back by itself to the first replica of each partition."),
    _define("leader.imbalance.check.interval.seconds", _LONG, "300", "How often leadership is looked at for that.", 1),
    _define("controlled.shutdown.enable", _BOOLEAN, "true",
            "Whether a broker that is asked to stop hands its leaderships over first."),
)  # fmt: skip

_NETWORK: Final = (
    _define("node.id", _INT, None, "The broker's number in its cluster.", 0),
    _define("broker.rack", _STRING, None, "Where the broker stands; replicas are spread over racks."),
    _define("listeners", _LIST, "PLAINTEXT://:9092", "The addresses that the broker listens on.",
            rule=_LISTENERS_RULE, update_mode=_ONE),
    _define("advertised.listeners", _LIST, None,
            "The addresses that clients are told to connect to; if not set, those of listeners.",
            rule=_LISTENERS_RULE),
    _define("socket.request.max.bytes", _INT, "104857600",
            "The largest request; a larger one closes its connection.", 1),
    _define("socket.send.buffer.bytes", _INT, "102400", "A connection's send buffer; -1 for the system's choice."),
    _define("socket.receive.buffer.bytes", _INT, "102400",
            "A connection's receive buffer; -1 for the system's choice."),
    _define("socket.listen.backlog.size", _INT, "50", "How many new connections may wait to be accepted.", 1),
    _define("connections.max.idle.ms", _LONG, "600000", "How long a connection may be silent before it is closed."),
    _define("max.connections", _INT, _INT_MAX_TEXT, "How many connections the broker has at most.", 0,
            update_mode=_ANY),
    _define("max.connections.per.ip", _INT, _INT_MAX_TEXT, "How many connections one address may have.", 0,
            update_mode=_ANY),
    _define("max.connections.per.ip.overrides", _STRING, "", "Other limits for some addresses: address:count,…",
            rule=_IP_LIMITS_RULE, update_mode=_ANY),
    _define("max.connection.creation.rate", _INT, _INT_MAX_TEXT, "How many connections are accepted in a second.", 0,
            update_mode=_ANY),
    _define("queued.max.requests", _INT, "500",
            f"How many requests may wait before connections are no longer read. {_UNUSED}", 1),
    _define("queued.max.request.bytes", _LONG, "-1",
            "How many bytes of requests may be in memory before connections are no longer read; -1 for no limit."),
    _define("num.network.threads", _INT, "3", f"Threads that talk to the network. {_IDLE}", 1, update_mode=_ANY),
    _define("num.io.threads", _INT, "8", f"Threads that answer requests. {_IDLE}", 1, update_mode=_ANY),
    _define("background.threads", _INT, "10", f"Threads for recurring work. {_IDLE}", 1, update_mode=_ANY),
    _define("request.timeout.ms", _INT, "30000", "How long a request to another broker may take."),
    _define("fetch.max.bytes", _INT, "57671680", "The most that one answer to a fetch holds.", 1024),
    _define("max.incremental.fetch.session.cache.slots", _INT, "1000", "How many fetch sessions are remembered.", 0),
    _define("max.request.partition.size.limit", _INT, "2000",
            "How many partitions one answer to DescribeTopicPartitions holds.", 1),
    _define("fetch.purgatory.purge.interval.requests", _INT, "1000",
            f"How often ended fetches leave the waiting list. {_UNUSED}"),
    _define("producer.purgatory.purge.interval.requests", _INT, "1000",
            f"How often ended produce requests leave the waiting list. {_UNUSED}"),
)  # fmt: skip

RACK_AWARE_SELECTOR: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"

_REPLICATION: Final = (
    _define("replica.lag.time.max.ms", _LONG, "30000",
            "How long a follower may lag behind before it is no longer counted as in sync."),
    _define("replica.fetch.max.bytes", _INT, "1048576", "What a follower asks for of one partition at a time.", 0),
    _define("replica.fetch.min.bytes", _INT, "1", "What a leader gathers before it answers a follower."),
    _define("replica.fetch.response.max.bytes", _INT, "10485760", "The most that a follower asks for at a time.", 0),
    _define("replica.fetch.wait.max.ms", _INT, "500", "How long a leader may keep a follower's fetch waiting."),
    _define("replica.fetch.backoff.ms", _INT, "1000", "How long a follower waits after a failed fetch.", 0),
    _define("replica.high.watermark.checkpoint.interval.ms", _LONG, "5000",
            "How often the high watermarks are written down."),
    _define("replica.socket.timeout.ms", _INT, "30000", "How long a follower waits for its leader's answer."),
    _define("replica.socket.receive.buffer.bytes", _INT, "65536", "The receive buffer of a follower's connection."),
    _define("num.replica.fetchers", _INT, "1", f"Threads that follow one leader. {_IDLE}", 1, update_mode=_ANY),
    _define("replica.selector.class", _STRING, None,
            "Which replica a consumer reads that names its rack: with Kafka's rack-aware selector one of that rack, "
            "else the leader.", allowed=(RACK_AWARE_SELECTOR,)),
    _define("broker.heartbeat.interval.ms", _INT, "2000", "How often a broker says that it lives."),
    _define("broker.session.timeout.ms", _INT, "9000", "How long a silent broker is taken to live."),
    _define("leader.replication.throttled.rate", _LONG, None,
            "How many bytes a second a leader sends for the replicas that leader.replication.throttled.replicas names.",
            0, update_mode=_ANY, is_hidden=True),
    _define("follower.replication.throttled.rate", _LONG, None,
            "How many bytes a second a follower takes for the replicas that follower.replication.throttled.replicas "
            "names.", 0, update_mode=_ANY, is_hidden=True),
)  # fmt: skip

_GROUPS: Final = (
    _define("group.initial.rebalance.delay.ms", _INT, "3000",
            "How long an empty group waits for more members before its first rebalance."),
    _define("group.min.session.timeout.ms", _INT, "6000", "The shortest session timeout that a member may ask for."),
    _define("group.max.session.timeout.ms", _INT, "1800000", "The longest session timeout that a member may ask for."),
    _define("group.max.size", _INT, _INT_MAX_TEXT, "How many members a group may have.", 1),
    _define("group.coordinator.rebalance.protocols", _LIST, "classic,consumer,streams",
            "The kinds of groups that are served.", allowed=("consumer", "classic", "share", "streams")),
    _define("group.consumer.session.timeout.ms", _INT, "45000", "When a silent member of a new group is removed.", 1),
    _define("group.consumer.min.session.timeout.ms", _INT, "45000", "The shortest such time.", 1),
    _define("group.consumer.max.session.timeout.ms", _INT, "60000", "The longest such time.", 1),
    _define("group.consumer.heartbeat.interval.ms", _INT, "5000", "How often a member of a new group speaks.", 1),
    _define("group.consumer.min.heartbeat.interval.ms", _INT, "5000", "The shortest such interval.", 1),
    _define("group.consumer.max.heartbeat.interval.ms", _INT, "15000", "The longest such interval.", 1),
    _define("group.consumer.max.size", _INT, _INT_MAX_TEXT, "How many members a new group may have.", 1),
    _define("group.consumer.assignors", _LIST, "uniform,range", "Who assigns the partitions of new groups."),
    _define("group.consumer.assignment.interval.ms", _INT, "1000",
            "How often the target of a new group is computed at most; 0 for whenever something has changed.", 0,
            update_mode=_ANY),
    _define("group.consumer.migration.policy", _STRING, "bidirectional",
            "In which direction a group may change its kind while it lives.",
            allowed=("disabled", "downgrade", "upgrade", "bidirectional")),
    _define("offset.metadata.max.bytes", _INT, "4096", "How long the text beside a committed offset may be."),
    _define("offsets.commit.timeout.ms", _INT, "5000", "How long a commit waits for its replicas.", 1),
    _define("offsets.load.buffer.size", _INT, "5242880", "What is read at a time when offsets are loaded.", 1),
    _define("offsets.retention.check.interval.ms", _LONG, "600000", "How often old offsets are looked for.", 1),
    _define("offsets.retention.minutes", _INT, "10080", "How long an empty group's offsets are kept.", 1),
    _define("offsets.topic.compression.codec", _INT, "0", "The codec of the topic of offsets, by its number.", 0, 4),
    _define("offsets.topic.num.partitions", _INT, "50", "How many partitions the topic of offsets gets.", 1),
    _define("offsets.topic.replication.factor", _SHORT, "3", "How many replicas the topic of offsets gets.", 1),
    _define("offsets.topic.segment.bytes", _INT, "104857600", "A segment's size in the topic of offsets.", 1),
)  # fmt: skip

_TRANSACTIONS: Final = (
    _define("transaction.max.timeout.ms", _INT, "900000", "The longest timeout that a transaction may ask for.", 1),
    _define("transaction.abort.timed.out.transaction.cleanup.interval.ms", _INT, "10000",
            "How often transactions are looked for whose time has passed.", 1),
    _define("transaction.remove.expired.transaction.cleanup.interval.ms", _INT, "3600000",
            "How often forgotten transactional ids are looked for.", 1),
    _define("transactional.id.expiration.ms", _INT, "604800000",
            "How long a transactional id is remembered without being used.", 1),
    _define("transaction.partition.verification.enable", _BOOLEAN, "true",
            "Whether a write is refused whose partition was not added to its transaction.", update_mode=_ANY),
    _define("transaction.two.phase.commit.enable", _BOOLEAN, "false",
            "Whether transactions may be prepared by one and committed by another."),
    _define("transaction.state.log.load.buffer.size", _INT, "5242880",
            "What is read at a time when transactions are loaded.", 1),
    _define("transaction.state.log.min.isr", _INT, "2", "min.insync.replicas of the topic of transactions.", 1),
    _define("transaction.state.log.num.partitions", _INT, "50",
            "How many partitions the topic of transactions gets.", 1),
    _define("transaction.state.log.replication.factor", _SHORT, "3",
            "How many replicas the topic of transactions gets.", 1),
    _define("transaction.state.log.segment.bytes", _INT, "104857600",
            "A segment's size in the topic of transactions.", 1),
)  # fmt: skip

BROKER_CONFIGS: Final[Mapping[str, ConfigDefinition]] = MappingProxyType(
    {
        each.name: each
        for group in (_NETWORK, _FOR_TOPICS, _LOG, _TOPICS, _REPLICATION, _GROUPS, _TRANSACTIONS)
        for each in group
    }
)
"""Every broker config by its name."""

DEFAULTS: Final[Mapping[str, str]] = MappingProxyType(
    {name: each.default for name, each in BROKER_CONFIGS.items() if each.default is not None}
)
"""What a broker is that nobody configured."""


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
"""Configs that are one and the same in several units, the one that counts first; all others have only their name."""

FIXED_WHILE_RUNNING: Final = frozenset({"listeners"})
"""What Kafka can change in a running broker and this one cannot."""
