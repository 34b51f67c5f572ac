"""Batches and ways to damage them, all drawn from one random number generator so that a round can be repeated."""

from array import array
from random import Random
from struct import pack_into

from ottla.records.batch import Batch, crc32c
from ottla.records.builder import BatchBuilder
from ottla.records.compression import compress
from ottla.records.control import marker_batch
from ottla.records.layout import (
    ATTRIBUTES_AT,
    COUNT_AT,
    CRC_AT,
    HEADER_BYTES,
    LAST_OFFSET_DELTA_AT,
    LENGTH_AT,
    Codec,
    Marker,
)
from ottla.records.packed import BinaryColumn, HeadersColumn

ODD_BYTES = (0x00, 0x01, 0x02, 0x7E, 0x7F, 0x80, 0x81, 0xFE, 0xFF)
ODD_NUMBERS = (0, 1, -1, 2, 127, 128, 2**15, 2**31 - 1, -(2**31), 2**31 - 2, 61, 49, 48)


FIELD_SIZES = (0, 1, 3, 31, 32, 33, 63, 64, 65, 200, 255, 256, 257, 300)
"""Empty, short, and around the sizes where copies change their way."""
SMALL_FIELD_SIZES = (0, 1, 2)


def field(chance: Random, sizes: tuple[int, ...]) -> bytes | None:
    """A key or a value, sometimes null."""
    return None if chance.random() < 0.15 else chance.randbytes(chance.choice(sizes))


def good_batch(chance: Random, base_offset: int, *, small: bool) -> bytes:
    """A batch as somebody might send it. Of a small one each byte means something, so damage hits more often."""
    sizes = SMALL_FIELD_SIZES if small else FIELD_SIZES
    if chance.random() < 0.1:
        marker = chance.choice(list(Marker))
        producer_id = chance.randrange(3)
        return marker_batch(
            marker,
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp=1,
            base_offset=base_offset,
        )
    builder = BatchBuilder(
        codec=chance.choice((Codec.NONE, Codec.NONE, *Codec)),
        base_offset=base_offset,
        producer_id=chance.randrange(-1, 3),
        transactional=chance.random() < 0.3,
        timestamp_type=int(chance.random() < 0.2),
    )
    for _ in range(chance.randrange(1, 3 if small else 12)):
        names = ["", "h", "é"] if small else ["", "é", "long" * 20]
        headers = [(chance.choice(names), field(chance, sizes)) for _ in range(chance.choice((0, 0, 1, 3)))]
        timestamp = chance.choice((0, -1, 2**62, -(2**62), 1_700_000_000_000))
        builder.append(timestamp, field(chance, sizes), field(chance, sizes), headers)
    return builder.build()


def damaged_bytes(chance: Random, data: bytes) -> bytes:
    """A few changes anywhere: bytes set, cut out, doubled or put in."""
    result = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 5))):
        at = chance.randrange(len(result) + 1)
        size = chance.choice((1, 1, 2, 5, 20))
        match chance.randrange(6):
            case 0:
                result[at : at + 1] = bytes([chance.choice(ODD_BYTES)])
            case 1 | 2:
                # A length that is one too large or too small is the likeliest to slip through.
                step = chance.choice((-2, 2, 2, -1, 1))
                result[at : at + 1] = bytes((byte + step) & 0xFF for byte in result[at : at + 1])
            case 3:
                del result[at : at + size]
            case 4:
                result[at:at] = result[at : at + size]
            case _:
                result[at:at] = chance.randbytes(size)
    return bytes(result)


def damaged_records(chance: Random, data: bytes) -> bytes:
    """Damage inside the records, with a header, compression and CRC that hide it from all but the record parser."""
    batch = Batch(data)
    payload = damaged_bytes(chance, bytes(batch.payload)) if batch.codec == Codec.NONE else chance.randbytes(30)
    codec = chance.choice((Codec.NONE, Codec.NONE, *Codec))
    result = bytearray(data[:HEADER_BYTES] + compress(codec, payload))
    pack_into(">i", result, LENGTH_AT, len(result) - 12)
    pack_into(">h", result, ATTRIBUTES_AT, batch.attributes & ~7 | codec)
    if chance.random() < 0.2:
        pack_into(">i", result, COUNT_AT, chance.choice(ODD_NUMBERS))
    if chance.random() < 0.2:
        pack_into(">i", result, LAST_OFFSET_DELTA_AT, chance.choice(ODD_NUMBERS))
    return resealed(bytes(result))


def resealed(data: bytes) -> bytes:
    """With the CRC that the bytes give, if there is room for one."""
    if len(data) < HEADER_BYTES:
        return data
    result = bytearray(data)
    pack_into(">I", result, CRC_AT, crc32c(result[ATTRIBUTES_AT:]))
    return bytes(result)


def exact(data: bytes | memoryview) -> "array[int]":
    """The bytes in memory that ends exactly where they do, so that the sanitizer sees the first one read behind them.

    Bytes objects end in a zero byte and arrays made of them have room to grow; a slice of an array has neither.
    """
    return array("B", data)[:]


def log(chance: Random) -> "array[int]":
    """Some batches, most of them damaged somewhere; in memory that ends exactly where they do."""
    parts, offset = [], chance.choice((0, 5, 2**40, 2**63 - 40))
    small = chance.random() < 0.5
    for _ in range(chance.choice((1, 1, 2) if small else (1, 2, 3, 4))):
        batch = good_batch(chance, offset, small=small)
        offset = Batch(batch).next_offset
        match chance.randrange(5):
            case 0:
                batch = damaged_bytes(chance, batch)
            case 1:
                batch = resealed(damaged_bytes(chance, batch))
            case 2 | 3:
                batch = damaged_records(chance, batch)
        parts.append(batch)
    data = b"".join(parts)
    return exact(data[: chance.randrange(len(data) + 1)] if chance.random() < 0.3 else data)


def column(chance: Random, rows: int) -> BinaryColumn:
    """A column whose offsets may lie, in memory that ends exactly where it should."""
    wide = chance.random() < 0.3
    start = chance.choice((0, 0, 1, 9))
    offsets, end = [], 0
    for _ in range(start + rows + 1):
        offsets.append(end)
        end += chance.choice((0, 1, 5, 32, 64, 100))
    data = exact(chance.randbytes(offsets[-1]))
    if chance.random() < 0.4:
        offsets[chance.randrange(len(offsets))] = chance.choice((*ODD_NUMBERS, 2**31 - 1))
    if chance.random() < 0.1:
        offsets.pop()
    bits = exact(chance.randbytes(max(0, (start + rows + 7) // 8 - (chance.random() < 0.1))))
    return BinaryColumn(
        validity=bits if chance.random() < 0.5 else None,
        offsets=array("q" if wide else "i", offsets),
        data=data,
        start=start,
        wide=wide,
    )


def headers_column(chance: Random, rows: int) -> HeadersColumn:
    """A column of headers, of which every part may lie."""
    ends = [0]
    for _ in range(rows):
        ends.append(ends[-1] + chance.choice((0, 0, 1, 3)))
    count = ends[-1]
    if chance.random() < 0.3:
        ends[chance.randrange(len(ends))] = chance.choice(ODD_NUMBERS)
    return HeadersColumn(
        offsets=array("i", ends), keys=column(chance, count), values=column(chance, count), count=count
    )
