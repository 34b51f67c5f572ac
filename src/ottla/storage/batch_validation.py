"""What a leader checks in a produced batch before it is appended, and what it changes in the batch.

The header is not trusted. As in Kafka, a compiled kernel walks the records, after decompression if necessary, so that
the largest timestamp, which retention and ListOffsets use, is that of the records. A valid batch is stored as it
arrived, except for offset, leader epoch and timestamps that the broker writes.

A record that a queue delivers keeps its timestamp, which may be older than the retention of its topic by then. So the
largest timestamp of such a batch is the time of its append: retention, and searches by time, count from the delivery.
"""

from typing import Final

from ottla.model.errors import (
    BatchTooLargeError,
    CorruptBatchError,
    InvalidRecordError,
    InvalidTimestampError,
    SegmentTooSmallError,
    UnsupportedCodecError,
)
from ottla.model.ids import QUEUE_PRODUCER_BIT, TimestampMs
from ottla.records.batch import Batch
from ottla.records.layout import APPEND_TIME_BIT, CODEC_BITS, CONTROL_BIT, Codec, TimestampType
from ottla.records.payload import read_payload
from ottla.records.recompress import recompress
from ottla.records.survey import find_faults, survey
from ottla.storage.log_config import UNLIMITED, LogConfig

_CODEC_MAX: Final = int(max(Codec))


def validate(batch: Batch, config: LogConfig, now: TimestampMs, *, is_own: bool = False) -> Batch:
    """Checks a batch of a client (or with `is_own` of the broker) and returns the batch to store: the same or a
    recompressed one.

    The batch must be in a writable buffer: wrong header fields about its records are corrected there.
    """
    oldest, newest = now - config.timestamp_before_max_ms, min(now + config.timestamp_after_max_ms, UNLIMITED)
    is_delivery = batch.producer_id >= QUEUE_PRODUCER_BIT
    if (
        (config.takes_own_as_is if is_own else config.takes_as_is)
        and not is_delivery
        and batch.passes(config.batch_bytes_max, oldest, newest)
    ):
        return batch
    batch.check()
    _check_header(batch, config, is_own=is_own)
    try:
        payload = read_payload(batch)
    except CorruptBatchError as error:
        # The checksum was right, so that sending the batch again would not help.
        raise InvalidRecordError(str(error)) from error
    by_append_time = config.timestamp_type is TimestampType.LOG_APPEND_TIME
    if by_append_time:
        oldest, newest = -UNLIMITED, UNLIMITED
    max_timestamp, keyless, untimely = survey(payload, batch.count, batch.base_timestamp, oldest, newest)
    if is_delivery:
        max_timestamp = max(max_timestamp, now)
    claims_append_time = bool(batch.attributes & APPEND_TIME_BIT)
    if untimely or (keyless and config.cleanup_compact) or (claims_append_time and by_append_time):
        _refuse(batch, payload, config, oldest, newest)
    if not by_append_time and (claims_append_time or max_timestamp != batch.max_timestamp):
        batch.stamp_create_time(max_timestamp)
    if config.compression is not None and batch.codec != config.compression and not batch.is_control:
        batch = Batch(bytearray(recompress(batch, config.compression, config.compression_level, payload=payload)))
    if by_append_time:
        batch.stamp_append_time(now)
    return batch


def _check_header(batch: Batch, config: LogConfig, *, is_own: bool) -> None:
    if batch.size_bytes > config.max_message_bytes:
        raise BatchTooLargeError(
            f"a batch of {batch.size_bytes} bytes exceeds max.message.bytes={config.max_message_bytes}"
        )
    if batch.size_bytes > config.segment_bytes:
        raise SegmentTooSmallError(f"a batch of {batch.size_bytes} bytes exceeds segment.bytes={config.segment_bytes}")
    attributes, count = batch.attributes, batch.count
    if attributes & CONTROL_BIT and not is_own:
        raise InvalidRecordError("clients may not write control batches")
    if count != batch.last_offset_delta + 1 or count == 0:
        raise InvalidRecordError(f"a batch of {count} records has a last offset delta of {batch.last_offset_delta}")
    codec = attributes & CODEC_BITS
    if codec > _CODEC_MAX:
        raise UnsupportedCodecError(f"compression codec {codec} does not exist")


def _refuse(batch: Batch, payload: memoryview, config: LogConfig, oldest: int, newest: int) -> None:
    """Raises with the records at fault: InvalidTimestampError if one has a bad timestamp, else InvalidRecordError."""
    count = batch.count
    if config.timestamp_type is TimestampType.LOG_APPEND_TIME and batch.attributes & APPEND_TIME_BIT:
        why = "a producer may not set the timestamp type to LogAppendTime"
        raise InvalidTimestampError(why, [(index, why) for index in range(count)])
    faults = find_faults(payload, count, batch.base_timestamp, oldest, newest, needs_keys=config.cleanup_compact)
    limits = (
        f"outside of [{oldest}, {newest}]: message.timestamp.before.max.ms={config.timestamp_before_max_ms},"
        f" message.timestamp.after.max.ms={config.timestamp_after_max_ms}"
    )
    record_errors = [
        (index, "compacted topics need a key on every record" if found is None else f"timestamp {found} is {limits}")
        for index, found in faults
    ]
    first, why = record_errors[0]
    message = f"{len(faults)} of {count} records are invalid; record {first}: {why}"
    if any(found is not None for _, found in faults):
        raise InvalidTimestampError(message, record_errors)
    raise InvalidRecordError(message, record_errors)
