"""Every topic config of Kafka 4.3: type, default, range, and the broker configs that stand in for it.

A topic that has no value of its own takes the broker's, under the name that `BROKER_SYNONYMS` gives; some of those
exist in several units. What the values do is in `ottla.broker.topic_settings`; a broker's configs in
`broker_configs.py`.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from ottla.metadata.config_types import ConfigDefinition, ConfigType, ConfigValue, Rule, UpdateMode

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 3_600_000
LONG_MAX_TEXT: Final = str(2**63 - 1)

COMPRESSION_TYPES: Final = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
CLEANUP_POLICIES: Final = ("compact", "delete")
TIMESTAMP_TYPES: Final = ("CreateTime", "LogAppendTime")

_REPLICA: Final = re.compile(r"[0-9]+:[0-9]+")


def _is_gzip_level(value: ConfigValue) -> bool:
    return isinstance(value, int) and (value == -1 or 1 <= value <= 9)


def _are_replicas(value: ConfigValue) -> bool:
    return isinstance(value, tuple) and (value == ("*",) or all(map(_REPLICA.fullmatch, value)))


GZIP_LEVEL_RULE: Final = Rule(_is_gzip_level, "a whole number from 1 to 9, or -1 for the codec's own choice")
REPLICAS_RULE: Final = Rule(_are_replicas, "* for all, or partition:broker pairs separated by commas, such as 0:1,1:2")


def _define(
    name: str,
    type_: ConfigType,
    default: str | None,
    documentation: str,
    *,
    lowest: float | None = None,
    highest: float | None = None,
    allowed: tuple[str, ...] = (),
    rule: Rule | None = None,
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
        update_mode=UpdateMode.CLUSTER_WIDE,
        is_hidden=is_hidden,
    )


_BOOLEAN, _INT, _LONG, _LIST = ConfigType.BOOLEAN, ConfigType.INT, ConfigType.LONG, ConfigType.LIST
_STRING, _DOUBLE = ConfigType.STRING, ConfigType.DOUBLE
_TIERED: Final = "Segments are not moved to other storage here, so this has no effect."

_DEFINITIONS: Final = (
    _define(
        "cleanup.policy", _LIST, "delete",
        "What becomes of old segments: delete removes them by age and size, compact keeps the last record of each key. "
        "Both may be given; with neither, everything is kept.",
        allowed=CLEANUP_POLICIES,
    ),
    _define(
        "compression.gzip.level", _INT, "-1",
        "How hard gzip tries when the topic's compression type is gzip; -1 leaves it to the codec.",
        rule=GZIP_LEVEL_RULE,
    ),
    _define(
        "compression.lz4.level", _INT, "9", "How hard lz4 tries when the topic's compression type is lz4.",
        lowest=1, highest=17,
    ),
    _define(
        "compression.type", _STRING, "producer",
        "The codec that batches are stored with: producer keeps what the producer chose, uncompressed takes any codec "
        "off, a codec's name compresses anew what came otherwise.",
        allowed=COMPRESSION_TYPES,
    ),
    _define(
        "compression.zstd.level", _INT, "3", "How hard zstd tries when the topic's compression type is zstd.",
        lowest=-131072, highest=22,
    ),
    _define(
        "delete.retention.ms", _LONG, "86400000",
        "How long a compacted topic keeps the tombstone of a deleted key, so that slow readers still meet it.",
        lowest=0,
    ),
    _define(
        "file.delete.delay.ms", _LONG, "60000",
        "How long a deleted segment's file stays on disk, so that reads that are under way may end.",
        lowest=0,
    ),
    _define(
        "flush.messages", _LONG, LONG_MAX_TEXT,
        "Force the log to disk after this many records; 1 makes every append wait for the disk.",
        lowest=1,
    ),
    _define(
        "flush.ms", _LONG, LONG_MAX_TEXT, "Force the log to disk when its oldest unflushed record is this old.",
        lowest=0,
    ),
    _define(
        "follower.replication.throttled.replicas", _LIST, "",
        "The replicas whose copying is slowed down on the follower's side: partition:broker pairs, or * for all.",
        rule=REPLICAS_RULE,
    ),
    _define(
        "index.interval.bytes", _INT, "4096",
        "How many bytes of log lie between two entries of the offset index. Smaller finds offsets sooner and makes the "
        "index larger.",
        lowest=0,
    ),
    _define(
        "internal.segment.bytes", _INT, None, "A segment's size for tests, without the lower bound of segment.bytes.",
        is_hidden=True,
    ),
    _define(
        "leader.replication.throttled.replicas", _LIST, "",
        "The replicas whose copying is slowed down on the leader's side: partition:broker pairs, or * for all.",
        rule=REPLICAS_RULE,
    ),
    _define(
        "local.retention.bytes", _LONG, "-2",
        f"What stays on local disk of a topic with tiered storage, in bytes; -2 means retention.bytes. {_TIERED}",
        lowest=-2,
    ),
    _define(
        "local.retention.ms", _LONG, "-2",
        f"What stays on local disk of a topic with tiered storage, by age; -2 means retention.ms. {_TIERED}",
        lowest=-2,
    ),
    _define(
        "max.compaction.lag.ms", _LONG, LONG_MAX_TEXT,
        "The longest that a record of a compacted topic may escape compaction.",
        lowest=1,
    ),
    _define(
        "max.message.bytes", _INT, "1048588",
        "The largest batch that producers may send, compressed, with its header.",
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
        "Whose clock a record's timestamp shows: the producer's (CreateTime) or the broker's (LogAppendTime).",
        allowed=TIMESTAMP_TYPES,
    ),
    _define(
        "min.cleanable.dirty.ratio", _DOUBLE, "0.5",
        "Compact the log once this share of it was written since it was last compacted. Lower saves disk space, and "
        "compacts more often.",
        lowest=0, highest=1,
    ),
    _define(
        "min.compaction.lag.ms", _LONG, "0", "How long a record of a compacted topic is sure to stay.",
        lowest=0,
    ),
    _define(
        "min.insync.replicas", _INT, "1",
        "How many replicas must have a batch before a producer that asked for acks=all hears of success; with fewer in "
        "sync, its batches are refused.",
        lowest=1,
    ),
    _define(
        "preallocate", _BOOLEAN, "false",
        "Whether a new segment's file takes its whole space at once. Files grow as they are written here, so this has "
        "no effect.",
    ),
    _define(
        "remote.log.copy.disable", _BOOLEAN, "false", f"Stop copying segments to tiered storage. {_TIERED}",
    ),
    _define(
        "remote.log.delete.on.disable", _BOOLEAN, "false",
        f"Delete what lies in tiered storage when it is switched off for the topic. {_TIERED}",
    ),
    _define(
        "remote.storage.enable", _BOOLEAN, "false",
        "Whether the topic uses tiered storage. This broker has none, and refuses true.",
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
        "segment.index.bytes", _INT, "10485760", "How large a segment's offset index may become; a full one ends it.",
        lowest=4,
    ),
    _define(
        "segment.jitter.ms", _LONG, "0",
        "By how much the end of a segment's time is brought forward at most, so that not all segments end at once.",
        lowest=0,
    ),
    _define(
        "segment.ms", _LONG, "604800000",
        "How long a segment is written to before the next one begins, even if it is not full.",
        lowest=1,
    ),
    _define(
        "unclean.leader.election.enable", _BOOLEAN, "false",
        "Whether a replica that missed records may become leader when no other is alive. Those records are then lost.",
    ),
)  # fmt: skip

TOPIC_CONFIGS: Final[Mapping[str, ConfigDefinition]] = MappingProxyType({each.name: each for each in _DEFINITIONS})
"""Every topic config by its name."""


class BrokerSynonym(NamedTuple):
    """A broker config that a topic's config falls back to, and how many of the topic's units one of its own is."""

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
"""Where a topic's config is looked for when the topic does not have it, the first that is set first."""
