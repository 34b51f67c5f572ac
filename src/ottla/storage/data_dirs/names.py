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
"""A segment that the cleaner is still writing; useless after a crash."""
SWAP: Final = ".swap"
"""A cleaned segment that is complete and durable; after a crash its swap is completed."""
DELETED: Final = ".deleted"
"""No longer part of the log; unlinked after `file.delete.delay.ms`, or when the log is next opened."""

ASIDE: Final = ".aside"
"""Bytes that a recovery removed from a log and keeps for inspection; neither Ottla nor Kafka reads or removes them."""

EPOCHS: Final = "leader-epoch-checkpoint"
KAFKA_METADATA_TOPIC: Final = "__cluster_metadata"
"""The folder of Kafka's own metadata log, which is not a topic and is left alone."""
PARTITION_METADATA: Final = "partition.metadata"
META_PROPERTIES: Final = "meta.properties"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
BOOT_ID: Final = ".ottla-boot-id"
APPLIED_REVISION: Final = ".ottla-applied-revision"
"""The metadata revision of which every partition had its folder here."""
STARTS: Final = ".ottla-starts"
"""How often the broker had started when the data dir was last used."""
METADATA_SEEN: Final = ".ottla-metadata-seen"
CLOSED_SEGMENTS: Final = ".ottla-segments"
LOCK: Final = ".lock"
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
LOG_STARTS: Final = "log-start-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
CLEANER_OFFSETS: Final = "cleaner-offset-checkpoint"

MOVED: Final = ".ottla-moved"
"""In a folder that has taken the place of the partition's folder in another data dir, until that one is gone."""

_NAME_BYTES_MAX: Final = 255
_OFFSET_MAX: Final = 2**63 - 1
_PARTITION_MAX: Final = 2**31 - 1
_PARTITION_FOLDER: Final = re.compile(r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>0|[1-9][0-9]{0,9})")
_DOOMED_FOLDER: Final = re.compile(r".*\.[0-9a-f]{32}-delete")
_STRAY_FOLDER: Final = re.compile(r".*\.[0-9a-f]{32}-stray")
_FUTURE_FOLDER: Final = re.compile(r"(?P<partition>.*)\.[0-9a-f]{32}-future")
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
    """The partition of a folder; None for anything else, including folders that are being deleted or were set aside."""
    match = _PARTITION_FOLDER.fullmatch(folder_name)
    if match is None or int(match["partition"]) > _PARTITION_MAX:
        return None
    if is_doomed(folder_name) or _STRAY_FOLDER.fullmatch(folder_name) is not None:
        return None
    return TopicPartition(match["topic"], int(match["partition"]))


def is_doomed(folder_name: str) -> bool:
    """Whether a folder was renamed for deletion. A stray is not: it is kept until an operator has looked at it."""
    return _DOOMED_FOLDER.fullmatch(folder_name) is not None


def doomed_name(partition: TopicPartition, unique: str) -> str:
    """The name of a deleted partition's folder until it is unlinked; `unique` is 32 hex digits."""
    return _renamed(partition, f"{unique}-delete")


def stray_name(partition: TopicPartition, unique: str) -> str:
    """The name of a folder that was set aside; `unique` is 32 hex digits."""
    return _renamed(partition, f"{unique}-stray")


def future_name(partition: TopicPartition, unique: str) -> str | None:
    """The name of a partition's copy in another data dir; None if the topic's name is too long for that."""
    name = f"{partition}.{unique}-future"
    return name if len(name) <= _NAME_BYTES_MAX else None


def future_of(folder_name: str) -> TopicPartition | None:
    """The partition of which a folder has a copy; None for any other folder."""
    match = _FUTURE_FOLDER.fullmatch(folder_name)
    return None if match is None else partition_of(match["partition"])


def moving_name(partition: TopicPartition, unique: str) -> str:
    """The temporary name of a folder whose own name is still taken by another folder."""
    return _renamed(partition, f"{unique}-moving")


def is_moving(folder_name: str) -> bool:
    """Whether a folder has a temporary name, because a rename was interrupted."""
    return _MOVING_FOLDER.fullmatch(folder_name) is not None


def _renamed(partition: TopicPartition, ending: str) -> str:
    suffix = f"-{partition.partition}.{ending}"
    return partition.topic[: _NAME_BYTES_MAX - len(suffix)] + suffix
