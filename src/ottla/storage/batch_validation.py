"""What a leader checks in a produced batch before it is appended, and what it changes in the batch.

The header is not trusted. As in Kafka, a compiled kernel walks the records, after decompression if necessary, so that
the largest timestamp, which retention and ListOffsets use, is that of the records. A valid batch is stored as it
arrived, except for offset, leader epoch and timestamps that the broker writes.

A record that a queue delivers keeps its timestamp, which may be older than the retention of its topic by then. So the
largest timestamp of such a batch is the time of its append: retention, and searches by time, count from the delivery.
"""

from copy import copy
from typing import Final

from ottla.model.errors import (
    RECORD_ERRORS_MAX,
    BatchTooLargeError,
    CorruptBatchError,
    DecompressionLimitError,
    InvalidRecordError,
    InvalidTimestampError,
    OttlaError,
    SegmentTooSmallError,
    UnsupportedCodecError,
)
from ottla.model.ids import QUEUE_PRODUCER_BIT, TimestampMs
from ottla.records.batch import Batch
from ottla.records.compression import DECOMPRESSED_BYTES_MAX
from ottla.records.layout import APPEND_TIME_BIT, CODEC_BITS, CONTROL_BIT, Codec, TimestampType
from ottla.records.payload import read_payload
from ottla.records.recompress import recompress
from ottla.records.survey import find_faults, survey
from ottla.storage.log_config import UNLIMITED, LogConfig

_CODEC_MAX: Final = int(max(Codec))


def validate(batch: Batch, config: LogConfig, now: TimestampMs, *, is_own: bool = False) -> Batch:
    """Checks a batch of a client (or with `is_own` of the broker) and returns the batch to store: the same or a
    recompressed one.

    The batch must be in a writable buffer: wrong header fields about its records are corrected there. A batch with a
    verdict for this config is not looked into again.
    """
    oldest, newest = now - config.timestamp_before_max_ms, min(now + config.timestamp_after_max_ms, UNLIMITED)
    if (
        (config.takes_own_as_is if is_own else config.takes_as_is)
        and batch.producer_id < QUEUE_PRODUCER_BIT
        and batch.passes(config.batch_bytes_max, oldest, newest)
    ):
        return batch
    verdict = batch.verdict
    if verdict is config:
        if config.timestamp_type is TimestampType.LOG_APPEND_TIME:
            batch.stamp_append_time(now)
        return batch
    if isinstance(verdict, OttlaError):
        # A copy, since a raised error refers to the batch by its traceback.
        raise copy(verdict)
    try:
        return _validate(batch, config, now, oldest, newest, DECOMPRESSED_BYTES_MAX, is_own=is_own)[0]
    finally:
        batch.unpacked = None


def validate_ahead(
    batch: Batch, config: LogConfig, now: TimestampMs, limit: int = DECOMPRESSED_BYTES_MAX
) -> tuple[Batch, int]:
    """Validates a client's batch before it is appended: returns the batch to append, whose verdict `validate` goes by,
    and the size of its records when decompressed. May run in a thread.

    Raises `DecompressionLimitError` if they take more than `limit`, unless no batch may take as much. If they cannot be
    decompressed, which may be found out late, the size is the limit.
    """
    oldest, newest = now - config.timestamp_before_max_ms, min(now + config.timestamp_after_max_ms, UNLIMITED)
    try:
        validated, size = _validate(batch, config, now, oldest, newest, limit, is_own=False)
    except OttlaError as error:
        if isinstance(error, DecompressionLimitError) and limit < DECOMPRESSED_BYTES_MAX:
            raise
        size = batch.size_bytes if batch.unpacked is None else len(batch.unpacked)
        if isinstance(error, DecompressionLimitError) or isinstance(error.__cause__, CorruptBatchError):
            size = limit
        error.__cause__ = error.__context__ = None
        batch.verdict = error.with_traceback(None)
        return batch, size
    finally:
        batch.unpacked = None
    validated.verdict = config
    return validated, size


def _validate(
    batch: Batch, config: LogConfig, now: TimestampMs, oldest: int, newest: int, limit: int, *, is_own: bool
) -> tuple[Batch, int]:
    batch.check()
    _check_header(batch, config, is_own=is_own)
    try:
        payload = batch.unpacked = read_payload(batch, limit)
    except CorruptBatchError as error:
        # The checksum was right, so that sending the batch again would not help.
        raise InvalidRecordError(str(error)) from error
    by_append_time = config.timestamp_type is TimestampType.LOG_APPEND_TIME
    if by_append_time:
        oldest, newest = -UNLIMITED, UNLIMITED
    max_timestamp, keyless, untimely = survey(payload, batch.count, batch.base_timestamp, oldest, newest)
    if batch.producer_id >= QUEUE_PRODUCER_BIT:
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
    return batch, len(payload)


def is_malformed(batch: Batch) -> bool:
    """Whether no log accepts a batch from a client, whatever its records are."""
    count = batch.count
    return batch.is_control or batch.codec > _CODEC_MAX or count <= 0 or count != batch.last_offset_delta + 1


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
        raise InvalidTimestampError(why, [(index, why) for index in range(min(count, RECORD_ERRORS_MAX))])
    faults = find_faults(
        payload,
        count,
        batch.base_timestamp,
        oldest,
        newest,
        needs_keys=config.cleanup_compact,
        faults_max=RECORD_ERRORS_MAX,
    )
    limits = (
        f"outside of [{oldest}, {newest}]: message.timestamp.before.max.ms={config.timestamp_before_max_ms},"
        f" message.timestamp.after.max.ms={config.timestamp_after_max_ms}"
    )
    record_errors = [
        (index, "compacted topics need a key on every record" if found is None else f"timestamp {found} is {limits}")
        for index, found in faults
    ]
    first, why = record_errors[0]
    found_count = f"{len(faults)} or more" if len(faults) == RECORD_ERRORS_MAX else len(faults)
    message = f"{found_count} of {count} records are invalid; record {first}: {why}"
    if any(found is not None for _, found in faults):
        raise InvalidTimestampError(message, record_errors)
    raise InvalidRecordError(message, record_errors)
