"""The record reader on damaged records: each kind of damage is named, none is read past."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.errors import BatchTooLargeError, CorruptBatchError, UnsupportedCodecError
from ottla.records.batch import Batch
from ottla.records.builder import build_batch
from ottla.records.columns import decode
from ottla.records.decode import decode_records, find_time
from ottla.records.layout import ATTRIBUTES_AT, COUNT_AT, LAST_OFFSET_DELTA_AT, Codec
from ottla.records.record import Record
from tests.unit.records.record_strategies import broken, record_lists, with_payload

RECORDS = [Record(40, 1, b"key", b"value", (("h", b"x"),)), Record(41, 2, None, b"w")]
BATCH = build_batch(RECORDS)

# A record of the fields: attributes, timestamp delta, offset delta, key "k", value "v", no headers.
GOOD = bytes.fromhex("10000000026b027600")
DAMAGED = {
    "length cut off": (b"\x80", "is cut off"),
    "length over-long": (b"\x80\x80\x80\x80\x80\x00" + GOOD[1:], "is cut off"),
    "length of 33 bits": (b"\xff\xff\xff\xff\x1f" + GOOD[1:], "is cut off"),
    "length negative": (b"\x01" + GOOD[1:], "length"),
    "length zero": (b"\x00" + GOOD[1:], "length"),
    "length too long": (b"\x12" + GOOD[1:], "is cut off"),
    "length too short": (b"\x0e" + GOOD[1:], "record 0"),
    "timestamp over-long": (b"\x24\x00" + b"\xff" * 10 + b"\x01" + GOOD[3:], "number that is too long"),
    "key reaches outside": (bytes.fromhex("10000000206b027600"), "reaches outside"),
    "key below null": (bytes.fromhex("10000000036b027600"), "reaches outside"),
    "value reaches outside": (bytes.fromhex("10000000026b7e7600"), "reaches outside"),
    "header count negative": (bytes.fromhex("10000000026b027601"), "headers"),
    "header count too large": (bytes.fromhex("10000000026b027602"), "headers"),
    "header count huge": (bytes.fromhex("18000000026b0276feffffff0f"), "headers"),
    "header key null": (bytes.fromhex("14000000026b0276020100"), "headers"),
    "header value outside": (bytes.fromhex("16000000026b027602006110"), "headers"),
    "bytes behind the headers": (bytes.fromhex("18000000026b02760202610100"), "headers"),
    "bytes behind no headers": (bytes.fromhex("12000000026b02760000"), "length"),
    "offset outside the batch": (bytes.fromhex("10000004026b027600"), "offset outside"),
    "offset negative": (bytes.fromhex("10000001026b027600"), "offset outside"),
}


def test_the_good_record_is_good() -> None:
    batch = Batch(with_payload(BATCH, GOOD, count=1))
    assert [Record(40, 1, b"k", b"v")] == decode_records(batch)
    assert 1 == decode(batch.buffer).count


@pytest.mark.parametrize("name", DAMAGED)
def test_damage(name: str) -> None:
    payload, text = DAMAGED[name]
    data = with_payload(BATCH, payload, count=1)
    with pytest.raises(CorruptBatchError, match=f"base offset 40: record 0 .*{text}|base offset 40: {text}") as found:
        decode_records(Batch(data))
    with pytest.raises(CorruptBatchError) as found_in_columns:
        decode(data)
    assert str(found.value) == str(found_in_columns.value)


def test_over_long_but_harmless_numbers_are_read() -> None:
    payload = bytes.fromhex("1200800000026b027600")
    assert [Record(40, 1, b"k", b"v")] == decode_records(Batch(with_payload(BATCH, payload, count=1)))


def test_offsets_must_grow() -> None:
    data = with_payload(BATCH, GOOD + GOOD, count=2)
    with pytest.raises(CorruptBatchError, match="record 1 has an offset"):
        decode_records(Batch(data))
    with pytest.raises(CorruptBatchError, match="record 1 has an offset"):
        decode(data)


def test_count_says_more() -> None:
    data = broken(broken(BATCH, COUNT_AT, ">i", 3), LAST_OFFSET_DELTA_AT, ">i", 9)
    with pytest.raises(CorruptBatchError, match="record 2 is cut off"):
        decode_records(Batch(data))
    with pytest.raises(CorruptBatchError, match="record 2 is cut off"):
        decode(data)


def test_count_says_less() -> None:
    data = broken(BATCH, COUNT_AT, ">i", 1)
    for read in (lambda: decode_records(Batch(data)), lambda: decode(data)):
        with pytest.raises(CorruptBatchError, match="record 1 does not exist by the batch's count"):
            read()


def test_a_count_that_no_payload_could_hold() -> None:
    data = broken(broken(BATCH, COUNT_AT, ">i", 2**31 - 1), LAST_OFFSET_DELTA_AT, ">i", 2**31 - 1)
    with pytest.raises(CorruptBatchError, match="cut off"):
        decode(data)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_damaged_compression_names_the_batch(codec: Codec) -> None:
    data = broken(BATCH, ATTRIBUTES_AT, ">h", codec)
    for read in (lambda: decode_records(Batch(data)), lambda: decode(data)):
        with pytest.raises(CorruptBatchError, match=r"base offset 40: .* bytes of .* cannot be decompressed"):
            read()


def test_unknown_codec_names_the_batch() -> None:
    data = broken(BATCH, ATTRIBUTES_AT, ">h", 6)
    for read in (lambda: decode_records(Batch(data)), lambda: decode(data)):
        with pytest.raises(UnsupportedCodecError, match="base offset 40: codec 6"):
            read()


@pytest.mark.parametrize("codec", Codec)
def test_limit(codec: Codec) -> None:
    batch = Batch(build_batch([Record(3, 0, None, bytes(1000))], codec=codec))
    assert 1 == len(decode_records(batch, 1100))
    with pytest.raises(BatchTooLargeError, match="base offset 3"):
        decode_records(batch, 1000)


@given(st.binary(max_size=30))
def test_header_keys_that_are_not_text_are_shown_with_replacements(key: bytes) -> None:
    body = b"\x00\x00\x00\x01\x01\x02" + bytes([2 * len(key)]) + key + b"\x01"
    data = with_payload(BATCH, bytes([2 * len(body)]) + body, count=1)
    expected = key.decode("utf-8", "replace")
    assert ((expected, None),) == decode_records(Batch(data))[0].headers
    headers = decode(data).headers
    assert headers is not None
    assert expected == bytes(headers.keys.data).decode()


@given(record_lists(), st.sampled_from(Codec), st.data())
def test_a_search_by_time_finds_the_record_that_is_decoded_first(
    records: list[Record], codec: Codec, data: st.DataObject
) -> None:
    batch = Batch(build_batch(records, codec=codec))
    decoded = decode_records(batch)
    start = data.draw(st.sampled_from([record.offset for record in decoded])) + data.draw(st.integers(-1, 1))
    timestamp = data.draw(st.sampled_from([record.timestamp for record in decoded])) + data.draw(st.integers(-1, 1))
    behind = [(record.timestamp, record.offset) for record in decoded if record.offset >= start]
    late = [found for found in behind if found[0] >= timestamp]
    assert (late[0] if late else None) == find_time(batch, start, timestamp)
    assert max(behind, key=lambda found: found[0], default=None) == find_time(batch, start)
