"""What a leader asks of a produced batch before it goes into the log, and what it changes in it.

Per batch, from the header; the records are looked into only where the topic demands it (keys of a compacted topic,
another codec). A batch that passes is stored as it arrived, but for the broker's stamps.
"""

from typing import Final

from ottla.model.errors import (
    BatchTooLargeError,
    InvalidRecordError,
    InvalidTimestampError,
    SegmentTooSmallError,
    UnsupportedCodecError,
)
from ottla.model.ids import NO_TIMESTAMP, TimestampMs
from ottla.records.batch import Batch
from ottla.records.columns import decode
from ottla.records.layout import APPEND_TIME_BIT, CODEC_BITS, CONTROL_BIT, Codec, TimestampType
from ottla.records.recompress import recompress
from ottla.storage.config import LogConfig

_CODEC_MAX: Final = int(max(Codec))


def validate(batch: Batch, config: LogConfig, now: TimestampMs, *, is_own: bool = False) -> Batch:
    """Checks a client's batch and answers the one to store: the same, or a recompressed one. `is_own`: the broker's.

    The batch must lie in a writable buffer if the topic uses LogAppendTime.
    """
    if (config.takes_own_as_is if is_own else config.takes_as_is) and batch.passes(
        config.batch_bytes_max, now, config.timestamp_before_max_ms, config.timestamp_after_max_ms
    ):
        return batch
    batch.check()
    if batch.size_bytes > config.max_message_bytes:
        raise BatchTooLargeError(
            f"a batch of {batch.size_bytes} bytes exceeds max.message.bytes={config.max_message_bytes}"
        )
    if batch.size_bytes > config.segment_bytes:
        raise SegmentTooSmallError(
            f"a batch of {batch.size_bytes} bytes exceeds a whole segment, segment.bytes={config.segment_bytes}"
        )
    attributes, count = batch.attributes, batch.count
    codec = attributes & CODEC_BITS
    if attributes & CONTROL_BIT:
        raise InvalidRecordError("clients may not write control batches")
    if count != batch.last_offset_delta + 1 or count == 0:
        raise InvalidRecordError(f"{count} records with a last offset delta of {batch.last_offset_delta}")
    if codec > _CODEC_MAX:
        raise UnsupportedCodecError(f"compression codec {codec} does not exist")
    if config.cleanup_compact:
        _check_keys(batch)
    by_append_time = config.timestamp_type is TimestampType.LOG_APPEND_TIME
    if not by_append_time:
        _check_timestamps(batch, attributes, config, now)
    if config.compression is not None and codec != config.compression:
        batch = Batch(bytearray(recompress(batch, config.compression, config.compression_level)))
    if by_append_time:
        batch.stamp_append_time(now)
    return batch


def _check_keys(batch: Batch) -> None:
    keys = decode(batch.buffer, headers=False, check_crc=False).keys
    if keys.null_count:
        raise InvalidRecordError(f"a compacted topic needs a key on every record; {keys.null_count} have none")


def _check_timestamps(batch: Batch, attributes: int, config: LogConfig, now: TimestampMs) -> None:
    if attributes & APPEND_TIME_BIT:
        raise InvalidTimestampError("a producer may not claim LogAppendTime on a topic that uses CreateTime")
    newest = batch.max_timestamp
    if newest == NO_TIMESTAMP:
        return
    if newest < 0:
        raise InvalidTimestampError(f"timestamp {newest} is negative, and not -1 for none")
    if newest - now > config.timestamp_after_max_ms:
        raise InvalidTimestampError(
            f"timestamp {newest} is {newest - now} ms ahead of the broker; "
            f"message.timestamp.after.max.ms={config.timestamp_after_max_ms}"
        )
    if config.timestamp_before_max_ms < now - batch.base_timestamp:
        raise InvalidTimestampError(
            f"timestamp {batch.base_timestamp} is {now - batch.base_timestamp} ms behind the broker; "
            f"message.timestamp.before.max.ms={config.timestamp_before_max_ms}"
        )
