"""Invalid batches sent to a log: each is refused with the right error, and does not affect the batches around it."""

import dataclasses
from struct import pack_into

import pytest

from ottla.model.error_codes import ErrorCode
from ottla.model.errors import (
    BatchTooLargeError,
    CorruptBatchError,
    DecompressionLimitError,
    InvalidRecordError,
    InvalidTimestampError,
    OttlaError,
    SegmentTooSmallError,
    UnsupportedCodecError,
)
from ottla.model.ids import TimestampMs
from ottla.records.batch import Batch, crc32c, scan
from ottla.records.builder import BatchBuilder
from ottla.records.layout import (
    ATTRIBUTES_AT,
    COUNT_AT,
    CRC_AT,
    HEADER_BYTES,
    LAST_OFFSET_DELTA_AT,
    MAX_TIMESTAMP_AT,
    Codec,
    TimestampType,
)
from ottla.sim.disk import SimDisk
from ottla.storage.batch_validation import validate, validate_ahead
from ottla.storage.log_config import LogConfig
from tests.unit.storage.rig import CONFIG, EPOCH, NOW, batch, new_log, placed, values

HOUR = 3_600_000


def patched(at: int, form: str, value: int, *, of: Batch | None = None) -> Batch:
    """A batch with one header field changed and a checksum that agrees."""
    content = bytearray((of or batch(b"bad")).buffer)
    pack_into(form, content, at, value)
    pack_into(">I", content, CRC_AT, crc32c(memoryview(content)[ATTRIBUTES_AT:]))
    return Batch(content)


def wrong_crc() -> Batch:
    content = bytearray(batch(b"bad").buffer)
    content[-1] ^= 1
    return Batch(content)


def without_records() -> Batch:
    return Batch(bytearray(BatchBuilder().build(last_offset_delta=0)))


def recounted(of: Batch, count: int) -> Batch:
    return patched(COUNT_AT, ">i", count, of=patched(LAST_OFFSET_DELTA_AT, ">i", count - 1, of=of))


def with_gap() -> Batch:
    builder = BatchBuilder()
    builder.append(NOW, b"k", b"bad")
    builder.append(NOW, b"k", b"worse", offset_delta=2)
    return recounted(Batch(bytearray(builder.build())), 2)


REFUSED = {
    "checksum": (wrong_crc, CONFIG, CorruptBatchError, ErrorCode.CORRUPT_MESSAGE),
    "count above the offsets": (
        lambda: patched(COUNT_AT, ">i", 2),
        CONFIG,
        CorruptBatchError,
        ErrorCode.CORRUPT_MESSAGE,
    ),
    "count below the offsets": (
        lambda: patched(LAST_OFFSET_DELTA_AT, ">i", 1),
        CONFIG,
        InvalidRecordError,
        ErrorCode.INVALID_RECORD,
    ),
    "negative offsets": (
        lambda: patched(LAST_OFFSET_DELTA_AT, ">i", -1),
        CONFIG,
        CorruptBatchError,
        ErrorCode.CORRUPT_MESSAGE,
    ),
    "no records": (without_records, CONFIG, InvalidRecordError, ErrorCode.INVALID_RECORD),
    "control": (
        lambda: batch(b"bad", producer_id=1, sequence=0, transactional=True, control=True),
        CONFIG,
        InvalidRecordError,
        ErrorCode.INVALID_RECORD,
    ),
    "unknown codec": (
        lambda: patched(ATTRIBUTES_AT, ">h", 5),
        CONFIG,
        UnsupportedCodecError,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    ),
    "too large": (
        lambda: batch(bytes(250)),
        dataclasses.replace(CONFIG, max_message_bytes=300),
        BatchTooLargeError,
        ErrorCode.MESSAGE_TOO_LARGE,
    ),
    "larger than a segment": (lambda: batch(bytes(300)), CONFIG, SegmentTooSmallError, ErrorCode.RECORD_LIST_TOO_LARGE),
    "from the future": (
        lambda: batch(b"bad", timestamp=NOW + HOUR + 1),
        CONFIG,
        InvalidTimestampError,
        ErrorCode.INVALID_TIMESTAMP,
    ),
    "from the past": (
        lambda: batch(b"bad", timestamp=NOW - HOUR - 1),
        dataclasses.replace(CONFIG, timestamp_before_max_ms=HOUR),
        InvalidTimestampError,
        ErrorCode.INVALID_TIMESTAMP,
    ),
    "from the future behind a header that hides it": (
        lambda: patched(MAX_TIMESTAMP_AT, ">q", NOW, of=batch(b"bad", timestamp=NOW + HOUR + 1)),
        CONFIG,
        InvalidTimestampError,
        ErrorCode.INVALID_TIMESTAMP,
    ),
    "more records than are there": (
        lambda: recounted(batch(b"bad"), 2),
        CONFIG,
        InvalidRecordError,
        ErrorCode.INVALID_RECORD,
    ),
    "fewer records than are there": (
        lambda: recounted(batch(b"bad", b"worse"), 1),
        CONFIG,
        InvalidRecordError,
        ErrorCode.INVALID_RECORD,
    ),
    "more compressed records than are there": (
        lambda: recounted(batch(b"bad", codec=Codec.LZ4), 2),
        CONFIG,
        InvalidRecordError,
        ErrorCode.INVALID_RECORD,
    ),
    "records that do not decompress": (
        lambda: patched(ATTRIBUTES_AT, ">h", Codec.ZSTD),
        CONFIG,
        InvalidRecordError,
        ErrorCode.INVALID_RECORD,
    ),
    "an offset delta that is not the record's place": (
        with_gap,
        CONFIG,
        InvalidRecordError,
        ErrorCode.INVALID_RECORD,
    ),
    "no key on a compacted topic": (
        lambda: batch(b"bad", key=None),
        dataclasses.replace(CONFIG, cleanup_compact=True),
        InvalidRecordError,
        ErrorCode.INVALID_RECORD,
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_alone_and_among_neighbours(name: str) -> None:
    make, config, expected, code = REFUSED[name]
    disk = SimDisk()
    log = new_log(disk, config)
    (error,) = log.append([make()], leader_epoch=EPOCH, now=NOW)
    assert (expected, code) == (type(error), getattr(error, "code", None))
    assert 0 == log.end_offset == log.size_bytes == disk.size(log.segments.active.log_path)

    first, middle, last = log.append([batch(b"a"), make(), batch(b"b")], leader_epoch=EPOCH, now=NOW)
    assert (placed(0, 0), expected, placed(1, 1)) == (first, type(middle), last)
    assert [b"a", b"b"] == values(log)


@pytest.mark.parametrize("magic", [0, 1, 3, 255])
def test_another_magic_is_no_batch_at_all(magic: int) -> None:
    content = bytearray(batch().buffer)
    content[16] = magic
    with pytest.raises(CorruptBatchError, match="magic"):
        Batch(content)


@pytest.mark.parametrize("size", [0, 11, HEADER_BYTES - 1])
def test_a_cut_header_is_no_batch_at_all(size: int) -> None:
    with pytest.raises(CorruptBatchError):
        Batch(bytearray(batch().buffer[:size]))


def test_a_refused_producer_leaves_no_trace() -> None:
    log = new_log()
    bad = patched(COUNT_AT, ">i", 2, of=batch(producer_id=4, sequence=0))
    assert isinstance(log.append([bad], leader_epoch=EPOCH, now=NOW)[0], OttlaError)
    assert 0 == len(log.producers)


def test_read_only_memory_is_refused_and_leaves_no_trace() -> None:
    log = new_log()
    frozen = Batch(bytes(batch(producer_id=4, sequence=0).buffer))
    error, good = log.append([frozen, batch(producer_id=4, sequence=0)], leader_epoch=EPOCH, now=NOW)
    assert isinstance(error, OttlaError)
    assert placed(0, 0) == good
    assert 1 == log.end_offset


def test_append_time_and_another_codec_are_put_in() -> None:
    config = LogConfig(timestamp_type=TimestampType.LOG_APPEND_TIME, compression=Codec.ZSTD)
    stored = validate(batch(b"x" * 500, timestamp=5), config, NOW)
    stored.check()
    assert (NOW, Codec.ZSTD, TimestampType.LOG_APPEND_TIME) == (
        stored.max_timestamp,
        stored.codec,
        stored.timestamp_type,
    )
    assert stored.size_bytes < 500


def test_a_good_batch_is_stored_as_it_came() -> None:
    came = batch(b"x", codec=Codec.GZIP)
    assert came is validate(came, LogConfig(), NOW)


TIMESTAMPS = {
    "too small": ([NOW - 5, NOW - 2, NOW - 9], 0, NOW - 2),
    "too large": ([NOW - 5, NOW - 2], NOW + 50, NOW - 2),
    "far in the future": ([NOW - 5, NOW - 2], NOW + 999 * HOUR, NOW - 2),
    "-1": ([NOW - 5, NOW - 2], -1, NOW - 2),
    "negative": ([NOW - 5, NOW - 2], -77, NOW - 2),
    "0 for records without timestamps, as librdkafka writes it": ([-1, -1], 0, -1),
    "-1 for records without timestamps": ([-1, -1], -1, -1),
    "negative like the records": ([-700, -500], -500, -1),
    "that of the only record with a timestamp": ([-1, NOW], NOW, NOW),
}


def timed(timestamps: list[int], claim: int, codec: Codec) -> Batch:
    builder = BatchBuilder(codec=codec)
    for timestamp in timestamps:
        builder.append(timestamp, b"k", b"v")
    return patched(MAX_TIMESTAMP_AT, ">q", claim, of=Batch(bytearray(builder.build())))


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("claimed", TIMESTAMPS)
def test_the_largest_timestamp_is_taken_from_the_records(claimed: str, codec: Codec) -> None:
    timestamps, claim, largest = TIMESTAMPS[claimed]
    log = new_log()
    assert [placed(0, len(timestamps) - 1)] == log.append(
        [timed(timestamps, claim, codec)], leader_epoch=EPOCH, now=NOW
    )
    (stored,), _, problem = scan(log.segments.active.file.read_at(0, 1 << 20))
    assert (largest, None) == (stored.max_timestamp, problem)
    assert largest == log.segments.active.largest.timestamp


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_recompressed_batch_has_the_largest_timestamp_of_its_records(codec: Codec) -> None:
    stored = validate(timed([NOW - 5, NOW - 2], 0, codec), LogConfig(compression=Codec.LZ4), NOW)
    stored.check()
    assert (NOW - 2, Codec.LZ4) == (stored.max_timestamp, stored.codec)


def test_append_time_of_a_client_is_taken_off_where_the_client_sets_the_time() -> None:
    stored = validate(patched(ATTRIBUTES_AT, ">h", 8, of=timed([NOW - 5, NOW - 2], 0, Codec.NONE)), LogConfig(), NOW)
    stored.check()
    assert (TimestampType.CREATE_TIME, NOW - 2) == (stored.timestamp_type, stored.max_timestamp)


@pytest.mark.parametrize("is_compacted", [True, False])
def test_append_time_of_a_client_is_refused_where_the_broker_sets_the_time(is_compacted: bool) -> None:
    config = LogConfig(timestamp_type=TimestampType.LOG_APPEND_TIME, cleanup_compact=is_compacted)
    with pytest.raises(InvalidTimestampError) as refused:
        validate(patched(ATTRIBUTES_AT, ">h", 8, of=timed([-1, NOW - 2], 0, Codec.NONE)), config, NOW)
    assert [0, 1] == [index for index, _ in refused.value.record_errors]


@pytest.mark.parametrize("codec", list(Codec))
def test_the_records_at_fault_are_named(codec: Codec) -> None:
    builder = BatchBuilder(codec=codec)
    for timestamp, key in ((NOW, b"k"), (NOW + 2 * HOUR, b"k"), (NOW, None), (-1, b"k"), (NOW - 2 * HOUR, None)):
        builder.append(timestamp, key, b"v")
    came = Batch(bytearray(builder.build()))
    with pytest.raises(InvalidTimestampError) as untimely:
        validate(came, LogConfig(timestamp_before_max_ms=HOUR), NOW)
    assert [1, 4] == [index for index, _ in untimely.value.record_errors]
    with pytest.raises(InvalidTimestampError) as mixed:
        validate(came, LogConfig(cleanup_compact=True), NOW)
    assert [1, 2, 4] == [index for index, _ in mixed.value.record_errors]
    with pytest.raises(InvalidRecordError) as keyless:
        validate(came, LogConfig(cleanup_compact=True, timestamp_after_max_ms=9 * HOUR), NOW)
    assert [2, 4] == [index for index, _ in keyless.value.record_errors]


def compressed(codec: Codec = Codec.ZSTD, size: int = 10_000) -> Batch:
    builder = BatchBuilder(codec=codec)
    builder.append(NOW, b"k", bytes(size))
    return Batch(bytearray(builder.build()))


@pytest.mark.parametrize("name", REFUSED)
def test_a_batch_is_refused_for_the_same_reason_if_it_was_validated_ahead(name: str) -> None:
    make, config, error, _ = REFUSED[name]
    with pytest.raises(error) as at_once:
        validate(make(), config, NOW)
    validated, _ = validate_ahead(make(), config, NOW)
    for _ in range(2):
        with pytest.raises(error) as ahead:
            validate(validated.copied(), config, NOW)
        assert str(at_once.value) == str(ahead.value)


@pytest.mark.parametrize("kind", TimestampType)
@pytest.mark.parametrize("stored", [None, Codec.LZ4])
def test_a_batch_that_was_validated_ahead_is_not_looked_into_again(kind: TimestampType, stored: Codec | None) -> None:
    config = dataclasses.replace(CONFIG, timestamp_type=kind, compression=stored)
    later = TimestampMs(NOW + 1)
    expected = validate(compressed(), config, later)
    validated, size = validate_ahead(compressed(), config, NOW)
    assert size > 10_000
    assert bytes(expected.buffer) == bytes(validate(validated.copied(), config, later).buffer)
    other = dataclasses.replace(config)
    validated.buffer[-1:] = bytes([validated.buffer[-1] ^ 1])
    assert validated is validate(validated, config, NOW)
    if kind is TimestampType.CREATE_TIME:
        with pytest.raises(CorruptBatchError):
            validate(validated, other, NOW)


def test_what_would_decompress_to_more_than_a_limit_is_not_validated_ahead() -> None:
    with pytest.raises(DecompressionLimitError):
        validate_ahead(compressed(), CONFIG, NOW, 10_000)
    assert Codec.ZSTD == validate_ahead(compressed(), CONFIG, NOW, 20_000)[0].codec
