"""Every topic config of Kafka 4.3, and those of queues and schema validation: type, default, range, and its
broker-level defaults.

A topic without a value of its own takes the broker's, under the name in `BROKER_SYNONYMS`; some of those exist in
several units. `ottla.broker.configs.topic_settings` has the effect of the values, `queue_settings.py` that of the queue
configs, `schema_settings.py` that of schema validation; `broker_configs.py` has a broker's.
"""

import re
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Final, NamedTuple

from ottla.metadata.configs.definition import ConfigDefinition, ConfigType, ConfigValue, Rule, UpdateMode, define
from ottla.model.queue_names import CompanionKind

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 3_600_000
LONG_MAX_TEXT: Final = str(2**63 - 1)
DELAY_MS_MAX: Final = 10 * 366 * 86_400_000
"""The largest span in a queue config: added to any present time, it is far from overflowing."""

COMPRESSION_TYPES: Final = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
CLEANUP_POLICIES: Final = ("compact", "delete")
TIMESTAMP_TYPES: Final = ("CreateTime", "LogAppendTime")
RETRY_ORDERS: Final = ("none", "key")
DEAD_LETTER_HEADERS: Final = ("kip1191", "spring")
_SUBJECT_STRATEGIES: Final = ("TopicNameStrategy", "RecordNameStrategy", "TopicRecordNameStrategy")
_STRATEGY_PACKAGE: Final = "io.confluent.kafka.serializers.subject."
SUBJECT_STRATEGIES: Final = (*(_STRATEGY_PACKAGE + each for each in _SUBJECT_STRATEGIES), *_SUBJECT_STRATEGIES)
"""The names of Confluent's classes, with and without their package."""
COMPANION_OF: Final = "ottla.companion.of"
COMPANION_KIND: Final = "ottla.companion.kind"
RECOVERED: Final = "ottla.recovered"
CONTROLLER_CONFIGS: Final = frozenset({COMPANION_OF, COMPANION_KIND, RECOVERED})
"""Only the controller sets these; clients see them, read-only."""

_REPLICA: Final = re.compile(r"[0-9]+:[0-9]+")


def _is_gzip_level(value: ConfigValue) -> bool:
    return isinstance(value, int) and (value == -1 or 1 <= value <= 9)


def _are_replicas(value: ConfigValue) -> bool:
    return isinstance(value, tuple) and (value == ("*",) or all(map(_REPLICA.fullmatch, value)))


GZIP_LEVEL_RULE: Final = Rule(_is_gzip_level, "a whole number from 1 to 9, or -1 for the codec's default")
REPLICAS_RULE: Final = Rule(_are_replicas, "* for all, or partition:broker pairs separated by commas, such as 0:1,1:2")


_define: Final = partial(define, update_mode=UpdateMode.CLUSTER_WIDE)
_BOOLEAN, _INT, _LONG, _LIST = ConfigType.BOOLEAN, ConfigType.INT, ConfigType.LONG, ConfigType.LIST
_STRING, _DOUBLE = ConfigType.STRING, ConfigType.DOUBLE
_TIERED: Final = "Tiered storage is not supported, so this has no effect."

_DEFINITIONS: Final = (
    _define(
        "cleanup.policy", _LIST, "delete",
        "What happens to old segments: delete removes them by age and size, compact keeps the last record of each key. "
        "Both may be given; with neither, everything is kept.",
        allowed=CLEANUP_POLICIES,
    ),
    _define(
        "compression.gzip.level", _INT, "-1",
        "The gzip level if the topic's compression type is gzip; -1 for the codec's default.",
        rule=GZIP_LEVEL_RULE,
    ),
    _define(
        "compression.lz4.level", _INT, "9", "The lz4 level if the topic's compression type is lz4.",
        lowest=1, highest=17,
    ),
    _define(
        "compression.type", _STRING, "producer",
        "The codec that batches are stored with: producer keeps the producer's codec, uncompressed removes "
        "compression, and a codec's name recompresses batches with that codec.",
        allowed=COMPRESSION_TYPES,
    ),
    _define(
        "compression.zstd.level", _INT, "3", "The zstd level if the topic's compression type is zstd.",
        lowest=-131072, highest=22,
    ),
    _define(
        "confluent.key.schema.validation", _BOOLEAN, "false",
        "Whether the broker refuses records whose key has no id of a schema that is registered under its subject. "
        "Null is accepted. The broker config confluent.schema.registry.url names the registry.",
    ),
    _define(
        "confluent.key.subject.name.strategy", _STRING, SUBJECT_STRATEGIES[0],
        "Which subject the schema of a key must be registered under, if it is validated: TopicNameStrategy for "
        "<topic>-key, RecordNameStrategy for the name of the record, TopicRecordNameStrategy for <topic>-<record>.",
        allowed=SUBJECT_STRATEGIES,
    ),
    _define(
        "confluent.value.schema.validation", _BOOLEAN, "false",
        "Whether the broker refuses records whose value has no id of a schema that is registered under its subject. "
        "Null is accepted. The broker config confluent.schema.registry.url names the registry.",
    ),
    _define(
        "confluent.value.subject.name.strategy", _STRING, SUBJECT_STRATEGIES[0],
        "Which subject the schema of a value must be registered under, if it is validated: TopicNameStrategy for "
        "<topic>-value, RecordNameStrategy for the name of the record, TopicRecordNameStrategy for <topic>-<record>.",
        allowed=SUBJECT_STRATEGIES,
    ),
    _define(
        "delete.retention.ms", _LONG, "86400000",
        "How long a compacted topic keeps the tombstone of a deleted key, so that slow consumers still read it.",
        lowest=0,
    ),
    _define(
        "errors.deadletterqueue.group.enable", _BOOLEAN, "false",
        "Whether the topic may be the dead-letter topic of share groups.",
    ),
    _define(
        "errors.deadletterqueue.topic.name", _STRING, "",
        "The topic for records that cannot be delivered or processed; it is created if it does not exist. By default "
        "dlq.<topic>, and expired records are not kept.",
    ),
    _define(
        "file.delete.delay.ms", _LONG, "60000",
        "How long a deleted segment's file stays on disk, so that reads in progress can finish.",
        lowest=0,
    ),
    _define(
        "flush.messages", _LONG, LONG_MAX_TEXT,
        "Flush the log to disk after this many records; 1 makes every append wait for the disk.",
        lowest=1,
    ),
    _define(
        "flush.ms", _LONG, LONG_MAX_TEXT, "Flush the log to disk when its oldest unflushed record is this old.",
        lowest=0,
    ),
    _define(
        "follower.replication.throttled.replicas", _LIST, "",
        "The replicas whose replication is throttled on the follower: partition:broker pairs, or * for all.",
        rule=REPLICAS_RULE,
    ),
    _define(
        "index.interval.bytes", _INT, "4096",
        "The bytes of log between two entries of the offset index. A smaller value finds offsets faster and makes the "
        "index larger.",
        lowest=0,
    ),
    _define(
        "internal.segment.bytes", _INT, None, "A segment size for tests, without the minimum of segment.bytes.",
        is_hidden=True,
    ),
    _define(
        "leader.replication.throttled.replicas", _LIST, "",
        "The replicas whose replication is throttled on the leader: partition:broker pairs, or * for all.",
        rule=REPLICAS_RULE,
    ),
    _define(
        "local.retention.bytes", _LONG, "-2",
        f"The bytes of a topic with tiered storage that stay on local disk; -2 means retention.bytes. {_TIERED}",
        lowest=-2,
    ),
    _define(
        "local.retention.ms", _LONG, "-2",
        f"The age up to which a topic with tiered storage stays on local disk; -2 means retention.ms. {_TIERED}",
        lowest=-2,
    ),
    _define(
        "max.compaction.lag.ms", _LONG, LONG_MAX_TEXT,
        "The longest time that a record may stay uncompacted in a compacted topic.",
        lowest=1,
    ),
    _define(
        "max.message.bytes", _INT, "1048588",
        "The largest batch that producers may send, after compression and with its header.",
        lowest=0,
    ),
    _define(
        "message.timestamp.after.max.ms", _LONG, "3600000",
        "How far ahead of the broker's clock a producer's timestamp may be before its batch is refused.",
        lowest=0,
    ),
    _define(
        "message.timestamp.before.max.ms", _LONG, LONG_MAX_TEXT,
        "How far behind the broker's clock a producer's timestamp may be before its batch is refused.",
        lowest=0,
    ),
    _define(
        "message.timestamp.type", _STRING, "CreateTime",
        "Whether a record's timestamp is set by the producer (CreateTime) or by the broker (LogAppendTime).",
        allowed=TIMESTAMP_TYPES,
    ),
    _define(
        "min.cleanable.dirty.ratio", _DOUBLE, "0.5",
        "Compact the log once this fraction of it was written since the last compaction. A lower value saves disk "
        "space and compacts more often.",
        lowest=0, highest=1,
    ),
    _define(
        "min.compaction.lag.ms", _LONG, "0", "The shortest time that a record stays uncompacted in a compacted topic.",
        lowest=0,
    ),
    _define(
        "min.insync.replicas", _INT, "1",
        "How many in-sync replicas must have a batch before acks=all is acknowledged; with fewer replicas in "
        "sync, such batches are refused.",
        lowest=1,
    ),
    _define(
        COMPANION_KIND, _STRING, None,
        "What this topic does for the topic in ottla.companion.of. Set by the controller.",
        allowed=tuple(each.value for each in CompanionKind), update_mode=UpdateMode.AT_START, is_hidden=True,
    ),
    _define(
        COMPANION_OF, _STRING, None,
        "The topic that this topic was created for. Set by the controller.",
        update_mode=UpdateMode.AT_START, is_hidden=True,
    ),
    _define(
        "ottla.deadletter.headers", _STRING, "kip1191",
        "The names of the headers that say where a dead letter comes from: kip1191 for __dlq.errors.*, spring for "
        "kafka_dlt-*.",
        allowed=DEAD_LETTER_HEADERS,
    ),
    _define(
        "ottla.delay.cancelled.max", _INT, "100000",
        "How many cancelled or replaced ids the broker remembers for a partition of <topic>.delayed; records that "
        "cancel or replace further ids are refused with THROTTLING_QUOTA_EXCEEDED, a retriable error.",
        lowest=1,
    ),
    _define(
        "ottla.delay.enable", _BOOLEAN, "false",
        "Whether the topic has delayed delivery: records produced to <topic>.delayed are delivered when they are due, "
        "as their header ottla.deliver-at-ms or ottla.delay-ms says.",
    ),
    _define(
        "ottla.delay.max.ms", _LONG, "31622400000",
        "The longest delay of a record; records with a longer one are refused.",
        lowest=0, highest=DELAY_MS_MAX,
    ),
    _define(
        "ottla.delay.ms", _LONG, "0",
        "The delay of records in <topic>.delayed that have no header with a time or a delay.",
        lowest=0, highest=DELAY_MS_MAX,
    ),
    _define(
        "ottla.half.check.after.ms", _LONG, "60000",
        "How long the broker waits for the decision about a half message before it asks on <topic>.half-checks; the "
        "header ottla.half.check-after-ms overrides it.",
        lowest=0, highest=DELAY_MS_MAX,
    ),
    _define(
        "ottla.half.check.interval.ms", _LONG, "60000",
        "The pause before the broker asks again for the decision about a half message.",
        lowest=1, highest=DELAY_MS_MAX,
    ),
    _define(
        "ottla.half.check.max", _INT, "15",
        "How many times the broker asks for the decision about a half message before it becomes a dead letter.",
        lowest=0,
    ),
    _define(
        "ottla.half.enable", _BOOLEAN, "false",
        "Whether the topic has half messages: records produced to <topic>.half are delivered when their producer "
        "commits them, and never if it rolls them back.",
    ),
    _define(
        "ottla.half.open.max", _INT, "100000",
        "How many half messages of a partition may wait for their decision; further ones are refused with "
        "THROTTLING_QUOTA_EXCEEDED, a retriable error.",
        lowest=1,
    ),
    _define(
        "ottla.retry.backoff.jitter", _DOUBLE, "0.2",
        "The fraction by which the backoff is varied at random, so that records do not return all at once.",
        lowest=0, highest=1,
    ),
    _define(
        "ottla.retry.backoff.max.ms", _LONG, "300000", "The longest backoff of a record that was handed back.",
        lowest=0, highest=DELAY_MS_MAX,
    ),
    _define(
        "ottla.retry.backoff.ms", _LONG, "1000",
        "The backoff of a record that is handed back for the first time; it doubles each further time.",
        lowest=0, highest=DELAY_MS_MAX,
    ),
    _define(
        RECOVERED, _BOOLEAN, "false",
        "Whether this topic was recovered from its folders and its configs have not been changed since, so that it may "
        "become a companion again. Set by the controller.",
        update_mode=UpdateMode.AT_START, is_hidden=True,
    ),
    _define(
        "ottla.retry.enable", _BOOLEAN, "false",
        "Whether consumers may hand records back: those produced to <topic>.<group>.retry return after a backoff on "
        "<topic>.<group>.redelivery.",
    ),
    _define(
        "ottla.retry.max.attempts", _INT, "5",
        "How many times a record may be handed back before it becomes a dead letter.",
        lowest=1,
    ),
    _define(
        "ottla.retry.order", _STRING, "none",
        "Which records keep their order when they are handed back: none, or those with the same key.",
        allowed=RETRY_ORDERS,
    ),
    _define(
        "ottla.ttl.enable", _BOOLEAN, "false",
        "Whether records expire by their header ottla.ttl-ms. Expired records are not delivered to consumers.",
    ),
    _define(
        "ottla.ttl.ms", _LONG, "-1",
        "How long after its timestamp a record without the header ottla.ttl-ms expires; -1 for never. Any other value "
        "also enables the header.",
        lowest=-1, highest=DELAY_MS_MAX,
    ),
    _define(
        "preallocate", _BOOLEAN, "false",
        "Whether the file of a new segment is preallocated. Files grow as they are written, so this has no effect.",
    ),
    _define(
        "remote.log.copy.disable", _BOOLEAN, "false", f"Stop copying segments to tiered storage. {_TIERED}",
    ),
    _define(
        "remote.log.delete.on.disable", _BOOLEAN, "false",
        f"Delete the data in tiered storage when it is disabled for the topic. {_TIERED}",
    ),
    _define(
        "remote.storage.enable", _BOOLEAN, "false",
        "Whether the topic uses tiered storage. It is not supported: true is refused.",
    ),
    _define(
        "retention.bytes", _LONG, "-1",
        "How large a partition may grow before its oldest segments are deleted; -1 for no limit.",
    ),
    _define(
        "retention.ms", _LONG, "604800000",
        "How old a segment's newest record may become before the segment is deleted; -1 for no limit.",
        lowest=-1,
    ),
    _define(
        "segment.bytes", _INT, "1073741824", "How large a segment grows before the next one begins.",
        lowest=1_048_576,
    ),
    _define(
        "segment.index.bytes", _INT, "10485760",
        "How large a segment's offset index may become; a full index ends the segment.",
        lowest=4,
    ),
    _define(
        "segment.jitter.ms", _LONG, "0",
        "The largest random reduction of segment.ms, so that not all segments are rolled at once.",
        lowest=0,
    ),
    _define(
        "segment.ms", _LONG, "604800000",
        "How long a segment is written to before the next one begins, even if it is not full.",
        lowest=1,
    ),
    _define(
        "unclean.leader.election.enable", _BOOLEAN, "false",
        "Whether an out-of-sync replica may become leader if no other is alive. Records it lacks are then lost.",
    ),
)  # fmt: skip

TOPIC_CONFIGS: Final[Mapping[str, ConfigDefinition]] = MappingProxyType({each.name: each for each in _DEFINITIONS})
"""Every topic config by its name."""


class BrokerSynonym(NamedTuple):
    """A broker config that is the default of a topic config, and the factor from its unit to the topic config's
    unit."""

    name: str
    factor: int = 1


_OF_ONE_NAME: Final[Mapping[str, str]] = {
    "cleanup.policy": "log.cleanup.policy",
    "compression.gzip.level": "compression.gzip.level",
    "compression.lz4.level": "compression.lz4.level",
    "compression.type": "compression.type",
    "compression.zstd.level": "compression.zstd.level",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "flush.messages": "log.flush.interval.messages",
    "index.interval.bytes": "log.index.interval.bytes",
    "local.retention.bytes": "log.local.retention.bytes",
    "local.retention.ms": "log.local.retention.ms",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "min.insync.replicas": "min.insync.replicas",
    "preallocate": "log.preallocate",
    "retention.bytes": "log.retention.bytes",
    "segment.bytes": "log.segment.bytes",
    "segment.index.bytes": "log.index.size.max.bytes",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}

BROKER_SYNONYMS: Final[Mapping[str, tuple[BrokerSynonym, ...]]] = MappingProxyType(
    {topic_name: (BrokerSynonym(name),) for topic_name, name in _OF_ONE_NAME.items()}
    | {
        "flush.ms": (BrokerSynonym("log.flush.interval.ms"), BrokerSynonym("log.flush.scheduler.interval.ms")),
        "retention.ms": (
            BrokerSynonym("log.retention.ms"),
            BrokerSynonym("log.retention.minutes", MINUTE_MS),
            BrokerSynonym("log.retention.hours", HOUR_MS),
        ),
        "segment.jitter.ms": (
            BrokerSynonym("log.roll.jitter.ms"),
            BrokerSynonym("log.roll.jitter.hours", HOUR_MS),
        ),
        "segment.ms": (BrokerSynonym("log.roll.ms"), BrokerSynonym("log.roll.hours", HOUR_MS)),
    }
)
"""The broker configs that a topic config falls back to, the first with precedence."""
