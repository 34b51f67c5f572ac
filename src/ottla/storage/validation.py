"""What a leader asks of a produced batch before it goes into the log, and what it changes in it.

Per batch, from the header; the records are looked into only where the topic demands it (keys of a compacted topic, another
codec). A batch that passes is stored as it arrived, but for the broker's stamps.
"""

from ottla.model.errors import BatchTooLargeError, InvalidRecordError, InvalidTimestampError, UnsupportedCodecError
from ottla.model.ids import NO_TIMESTAMP, TimestampMs
from ottla.records.batch import Batch
from ottla.records.columns import decode
from ottla.records.layout import Codec, TimestampType
from ottla.records.recompress import recompress
from ottla.storage.config import LogConfig

_CODEC_MAX = max(Codec)


def validate(batch: Batch, config: LogConfig, now: TimestampMs) -> Batch:
    """Checks a client's batch and answers the one to store: the same, or a recompressed one.

    The batch must lie in a writable buffer if the topic uses LogAppendTime.
    """
    batch.check()
    if batch.size_bytes > config.max_message_bytes:
        raise BatchTooLargeError(
            f"a batch of {batch.size_bytes} bytes exceeds max.message.bytes={config.max_message_bytes}"
        )
    if batch.is_control:
        raise InvalidRecordError("clients may not write control batches")
    if batch.count != batch.last_offset_delta + 1 or batch.count == 0:
        raise InvalidRecordError(f"{batch.count} records with a last offset delta of {batch.last_offset_delta}")
    if batch.codec > _CODEC_MAX:
        raise UnsupportedCodecError(f"compression codec {batch.codec} does not exist")
    if config.cleanup_compact:
        _check_keys(batch)
    if config.timestamp_type is TimestampType.CREATE_TIME:
        _check_timestamps(batch, config, now)
    if config.compression is not None and batch.codec != config.compression:
        batch = Batch(bytearray(recompress(batch, config.compression, config.compression_level)))
    if config.timestamp_type is TimestampType.LOG_APPEND_TIME:
        batch.stamp_append_time(now)
    return batch


def _check_keys(batch: Batch) -> None:
    keys = decode(batch.buffer, headers=False, check_crc=False).keys
    if keys.null_count:
        raise InvalidRecordError(f"a compacted topic needs a key on every record; {keys.null_count} have none")


def _check_timestamps(batch: Batch, config: LogConfig, now: TimestampMs) -> None:
    if batch.timestamp_type == TimestampType.LOG_APPEND_TIME:
        raise InvalidTimestampError("a producer may not claim LogAppendTime on a topic that uses CreateTime")
    if batch.max_timestamp == NO_TIMESTAMP:
        return
    if batch.max_timestamp - now > config.timestamp_after_max_ms:
        raise InvalidTimestampError(
            f"timestamp {batch.max_timestamp} is {batch.max_timestamp - now} ms ahead of the broker; "
            f"message.timestamp.after.max.ms={config.timestamp_after_max_ms}"
        )
    if now - batch.base_timestamp > config.timestamp_before_max_ms:
        raise InvalidTimestampError(
            f"timestamp {batch.base_timestamp} is {now - batch.base_timestamp} ms behind the broker; "
            f"message.timestamp.before.max.ms={config.timestamp_before_max_ms}"
        )
