"""Logs that Ottla writes for Kafka to judge, one per thing that can differ: codecs, sequences, transactions, epochs, …

`write_all` fills a data dir through the log store, as a broker would, and shuts it down cleanly. Each story is a
function from an empty log to a full one; what it wrote is read back through Ottla and compared with what Kafka reads.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from ottla.env.inline_helper import InlineHelper
from ottla.env.real_clock import RealClock
from ottla.env.real_disk import RealDisk
from ottla.model.errors import OttlaError
from ottla.model.ids import LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs, TopicPartition
from ottla.records.batch import Batch
from ottla.records.builder import build_batch
from ottla.records.layout import Codec, Marker, TimestampType
from ottla.records.record import Record
from ottla.storage.cleaning.cleaner import Cleaner, CleanerConfig
from ottla.storage.log import Log
from ottla.storage.log_config import UNLIMITED, LogConfig
from tests.golden import stores
from tests.golden.record_set import ODD_HEADERS, odd_records

START_MS: Final = 1_700_000_000_000
SEQUENCE_MAX: Final = 2**31 - 1

SMALL: Final = LogConfig(
    segment_bytes=3_000, index_interval_bytes=300, segment_index_bytes=4_096, timestamp_after_max_ms=UNLIMITED
)
EVERY_BATCH_INDEXED: Final = LogConfig(segment_bytes=3_000, index_interval_bytes=1, segment_index_bytes=4_096)
INDEX_SOON_FULL: Final = LogConfig(index_interval_bytes=1, segment_index_bytes=96)
APPEND_TIME: Final = LogConfig(
    segment_bytes=1_000, index_interval_bytes=1, segment_index_bytes=4_096, timestamp_type=TimestampType.LOG_APPEND_TIME
)

COMPACTED: Final = replace(EVERY_BATCH_INDEXED, cleanup_compact=True, cleanup_delete=False)

FIRST_EPOCH: Final = LeaderEpoch(0)
SECOND_EPOCH: Final = LeaderEpoch(1)


def append(log: Log, *batches: bytes, leader_epoch: LeaderEpoch = FIRST_EPOCH, now: int = START_MS) -> None:
    """Appends batches in one call; each must be taken."""
    results = log.append(
        [Batch(bytearray(batch)) for batch in batches], leader_epoch=leader_epoch, now=TimestampMs(now)
    )
    for result in results:
        if isinstance(result, OttlaError):
            raise result


def plain(number: int, count: int = 3, codec: Codec = Codec.NONE) -> bytes:
    """A batch of `count` records whose content and timestamps tell their numbers."""
    records = [
        Record(
            offset=at,
            timestamp=START_MS + (number * 10 + at) * 1_000,
            key=f"key {number}".encode(),
            value=f"batch {number} record {at} ".encode() * 4,
            headers=ODD_HEADERS[:3] if at == 1 else (),
        )
        for at in range(count)
    ]
    return build_batch(records, codec=codec)


def sequenced(
    number: int,
    producer_id: int,
    base_sequence: int,
    *,
    count: int = 3,
    transactional: bool = False,
    key: bytes = b"key",
) -> bytes:
    """The same from an idempotent producer."""
    records = [
        Record(offset=at, timestamp=START_MS + (number * 10 + at) * 1_000, key=key, value=f"{number} {at}".encode())
        for at in range(count)
    ]
    return build_batch(
        records,
        codec=Codec.LZ4 if number % 2 else Codec.NONE,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=base_sequence,
        transactional=transactional,
    )


def write_codecs(log: Log) -> None:
    """Odd records in every codec, several batches per call, over several segments."""
    for codec in Codec:
        odd = [
            Record(offset=at, timestamp=new.timestamp, key=new.key, value=new.value, headers=new.headers)
            for at, new in enumerate(odd_records(START_MS + codec * 60_000))
        ]
        append(log, build_batch(odd, codec=codec), plain(codec, 20, codec))
        append(log, *(plain(codec * 10 + number, codec=codec) for number in range(5)))


def write_producers(log: Log) -> None:
    """Idempotent producers side by side, one of them around the end of its sequence numbers, and retries."""
    for number in range(12):
        append(log, sequenced(number, 7, number * 3), sequenced(number, 8, number * 2, count=2), plain(number))
    for number in range(4):
        wrapped = (SEQUENCE_MAX - 4 + number * 3) % (SEQUENCE_MAX + 1)
        append(log, sequenced(20 + number, 9, wrapped))
        append(log, sequenced(20 + number, 9, wrapped))


def write_transactions(log: Log) -> None:
    """Two producers' transactions, interleaved; every other one aborts; the last is left open."""
    for number in range(6):
        for part in range(3):
            append(log, sequenced(number, 11, number * 9 + part * 3, transactional=True))
            append(log, sequenced(number, 12, number * 9 + part * 3, transactional=True))
        _end(log, Marker.ABORT if number % 2 else Marker.COMMIT, 11)
        append(log, plain(number))
        _end(log, Marker.COMMIT if number % 2 else Marker.ABORT, 12)
    append(log, sequenced(60, 13, 0, transactional=True), plain(61), plain(62))


def write_epochs(log: Log) -> None:
    """A second leader goes on where the first stopped."""
    append(log, *(plain(number) for number in range(20)))
    append(log, *(plain(number) for number in range(20, 40)), leader_epoch=SECOND_EPOCH)


def write_full_indexes(log: Log) -> None:
    """Segments that roll because an index is full."""
    for number in range(30):
        append(log, plain(number, 1))


def write_append_time(log: Log) -> None:
    """The broker's clock, which here goes back once."""
    for number, now in enumerate((0, 1_000, 2_000, 500, 2_500, 3_000)):
        append(log, plain(number), now=START_MS + now)


def write_truncated(log: Log) -> None:
    """Cut in the middle of an earlier segment, then written on."""
    append(log, *(plain(number) for number in range(30)))
    log.truncate_to(Offset(40), now=TimestampMs(START_MS))
    append(log, *(plain(number) for number in range(40, 60)), leader_epoch=SECOND_EPOCH)


def write_trimmed(log: Log) -> None:
    """The log's start moved into a later segment, as DeleteRecords does."""
    append(log, *(plain(number) for number in range(30)))
    log.advance_high_watermark(log.end_offset)
    log.advance_start(Offset(50))


def write_cleanable(log: Log, *, first_sequence: int = 0) -> None:
    """Keys written again and again in every codec, tombstones, and transactions that committed and aborted."""
    for number in range(40):
        append(log, keyed(number, Codec(number % len(Codec))))
    for number in range(4):
        # Nothing else has the aborted transactions' keys: only their marker says that they must go.
        sequence = first_sequence + number * 3
        append(log, sequenced(41, 21, sequence, transactional=True, key=f"aborted {number}".encode()))
        _end(log, Marker.ABORT, 21)
        append(log, sequenced(42, 22, sequence, transactional=True))
        _end(log, Marker.COMMIT, 22)
    for producer_id in (21, 22):
        append(log, sequenced(43, producer_id, first_sequence + 12, transactional=True, key=b"%d" % producer_id))
        _end(log, Marker.COMMIT, producer_id)
    append(log, keyed(44, tombstones=True))
    for number in range(50, 54):
        append(log, keyed(number, keys=1))
    log.roll(TimestampMs(START_MS))
    append(log, keyed(60, keys=1))
    log.advance_high_watermark(log.end_offset)


def write_compacted(log: Log) -> None:
    """The same, cleaned; then once more, so that a second cleaning meets what the first one left."""
    write_cleanable(log)
    clean(log)
    write_cleanable(log, first_sequence=15)
    clean(log)


def keyed(number: int, codec: Codec = Codec.NONE, *, keys: int = 7, tombstones: bool = False) -> bytes:
    """Three records whose keys come again every `keys` records."""
    records = [
        Record(
            offset=at,
            timestamp=START_MS + (number * 10 + at) * 1_000,
            key=f"key {(number * 3 + at) % keys}".encode(),
            value=None if tombstones else f"batch {number} record {at} ".encode() * 4,
        )
        for at in range(3)
    ]
    return build_batch(records, codec=codec)


def clean(log: Log) -> None:
    """Runs the cleaner over a log."""
    cleaner = Cleaner(RealDisk(), InlineHelper(), RealClock(), CleanerConfig(dedupe_buffer_bytes=1_000_000))
    report = asyncio.run(cleaner.clean(log, TimestampMs(START_MS), discard=lambda paths, delay_ms: None))
    if report.is_abandoned or not report.records_removed:
        raise AssertionError(f"nothing was cleaned: {report}")


STORIES: Final[dict[str, tuple[LogConfig, Callable[[Log], None]]]] = {
    "append-time": (APPEND_TIME, write_append_time),
    "codecs": (SMALL, write_codecs),
    "compacted": (COMPACTED, write_compacted),
    "epochs": (EVERY_BATCH_INDEXED, write_epochs),
    "full-indexes": (INDEX_SOON_FULL, write_full_indexes),
    "producers": (SMALL, write_producers),
    "transactions": (EVERY_BATCH_INDEXED, write_transactions),
    "trimmed": (SMALL, write_trimmed),
    "truncated": (SMALL, write_truncated),
}


def config_of(partition: TopicPartition) -> LogConfig:
    """The settings of a story's log."""
    return STORIES[partition.topic][0]


def write_all(data: Path, topics: Sequence[str] = tuple(STORIES)) -> None:
    """Writes these stories' logs into a data dir and shuts it down cleanly."""
    with stores.opened(data, config_of) as store:
        for topic in topics:
            log = store.create(TopicPartition(topic, 0))
            STORIES[topic][1](log)
            log.advance_high_watermark(log.end_offset)


def _end(log: Log, marker: Marker, producer_id: int) -> None:
    log.append_marker(
        marker,
        producer_id=ProducerId(producer_id),
        producer_epoch=ProducerEpoch(0),
        coordinator_epoch=3,
        leader_epoch=FIRST_EPOCH,
        now=TimestampMs(START_MS),
    )
