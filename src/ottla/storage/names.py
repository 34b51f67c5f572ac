"""File and folder names of a data dir, as Kafka writes them."""

import re
from typing import Final

from ottla.model.ids import Offset, TopicPartition

LOG: Final = ".log"
OFFSET_INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
TRANSACTION_INDEX: Final = ".txnindex"
SNAPSHOT: Final = ".snapshot"
SEGMENT_SUFFIXES: Final = (LOG, OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX)

CLEANED: Final = ".cleaned"
"""A segment the cleaner is still writing; worthless after a crash."""
SWAP: Final = ".swap"
"""A cleaned segment that is whole and durable; a crash after this is rolled forward."""
DELETED: Final = ".deleted"
"""No longer part of the log; unlinked after `file.delete.delay.ms`, or when the log is next opened."""

ASIDE: Final = ".aside"
"""Bytes that recovery took out of a log and keeps for a person to look at; neither Ottla nor Kafka reads or removes
them."""

EPOCHS: Final = "leader-epoch-checkpoint"
KAFKA_METADATA_TOPIC: Final = "__cluster_metadata"
"""Kafka keeps its own metadata beside the topics; it is none of them, and not ours to touch."""
PARTITION_METADATA: Final = "partition.metadata"
META_PROPERTIES: Final = "meta.properties"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
BOOT_ID: Final = ".ottla-boot-id"
APPLIED_REVISION: Final = ".ottla-applied-revision"
"""The revision of the cluster's metadata whose partitions all have had their folder here."""
STARTS: Final = ".ottla-starts"
"""How often the broker had started when the data dir was last used."""
METADATA_SEEN: Final = ".ottla-metadata-seen"
CLOSED_SEGMENTS: Final = ".ottla-segments"
LOCK: Final = ".lock"
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
LOG_STARTS: Final = "log-start-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
CLEANER_OFFSETS: Final = "cleaner-offset-checkpoint"

_NAME_BYTES_MAX: Final = 255
_OFFSET_MAX: Final = 2**63 - 1
_PARTITION_MAX: Final = 2**31 - 1
_PARTITION_FOLDER: Final = re.compile(r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>0|[1-9][0-9]{0,9})")
_DOOMED_FOLDER: Final = re.compile(r".*\.[0-9a-f]{32}-delete")
_STRAY_FOLDER: Final = re.compile(r".*\.[0-9a-f]{32}-stray")
_MOVING_FOLDER: Final = re.compile(r".*\.[0-9a-f]{32}-moving")


def segment_path(folder: str, base_offset: int, suffix: str) -> str:
    """`<folder>/<base offset in 20 digits><suffix>`."""
    return f"{folder}/{base_offset:020d}{suffix}"


def base_offset_of(name: str) -> Offset | None:
    """The base offset in a segment file's name; None if it is not one."""
    stem = name.partition(".")[0]
    if len(stem) != 20 or not (stem.isascii() and stem.isdigit()) or int(stem) > _OFFSET_MAX:
        return None
    return Offset(int(stem))


def partition_of(folder_name: str) -> TopicPartition | None:
    """The partition a folder belongs to; None for anything else, those that are doomed or set aside included."""
    match = _PARTITION_FOLDER.fullmatch(folder_name)
    if match is None or int(match["partition"]) > _PARTITION_MAX:
        return None
    if is_doomed(folder_name) or _STRAY_FOLDER.fullmatch(folder_name) is not None:
        return None
    return TopicPartition(match["topic"], int(match["partition"]))


def is_doomed(folder_name: str) -> bool:
    """Whether a folder was renamed for deletion. A stray is not: it is kept until a person has looked at it."""
    return _DOOMED_FOLDER.fullmatch(folder_name) is not None


def doomed_name(partition: TopicPartition, unique: str) -> str:
    """The name under which a deleted partition's folder waits to be unlinked; `unique` is 32 hex digits."""
    return _renamed(partition, f"{unique}-delete")


def stray_name(partition: TopicPartition, unique: str) -> str:
    """The name under which a folder is kept that belongs to no topic we know; `unique` is 32 hex digits."""
    return _renamed(partition, f"{unique}-stray")


def moving_name(partition: TopicPartition, unique: str) -> str:
    """The name of a folder on its way to the name of its partition, which another folder still has."""
    return _renamed(partition, f"{unique}-moving")


def is_moving(folder_name: str) -> bool:
    """Whether a folder was on its way to another name, and may not have arrived."""
    return _MOVING_FOLDER.fullmatch(folder_name) is not None


def _renamed(partition: TopicPartition, ending: str) -> str:
    suffix = f"-{partition.partition}.{ending}"
    return partition.topic[: _NAME_BYTES_MAX - len(suffix)] + suffix
