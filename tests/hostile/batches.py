"""Batches that lie: about their size, count, codec, checksum, or how much comes out of a few compressed bytes."""

import zlib
from collections.abc import Callable
from functools import cache
from random import Random
from struct import pack, pack_into
from typing import Final

import cramjam
from crc32c import crc32c

from ottla.records.builder import BatchBuilder
from ottla.records.layout import Codec

CRC_AT: Final = 17
ATTRIBUTES_AT: Final = 21
COUNT_AT: Final = 57
RECORDS_AT: Final = 61
TIMESTAMP: Final = 1_700_000_000_000


def small_batch(random: Random, *, codec: Codec = Codec.NONE) -> bytes:
    """A good one."""
    builder = BatchBuilder(codec=codec)
    for number in range(random.randint(1, 5)):
        builder.append(TIMESTAMP + number, random.randbytes(4), random.randbytes(random.randint(0, 60)))
    return bytes(builder.build())


def numbered_batch(first: int, count: int = 1, *, size: int = 40) -> bytes:
    """Records whose values say which they are."""
    builder = BatchBuilder()
    for number in range(first, first + count):
        builder.append(TIMESTAMP + number, b"%d" % number, b"record %d " % number + b"." * size)
    return bytes(builder.build())


def with_right_crc(batch: bytearray) -> bytes:
    """The batch with a checksum that fits it, so that whoever looks only at that believes it."""
    pack_into(">I", batch, CRC_AT, crc32c(bytes(batch[ATTRIBUTES_AT:])))
    return bytes(batch)


def batch_around(codec: int, payload: bytes, count: int = 1) -> bytes:
    """A batch whose header is right, around whatever records."""
    times_and_producer = (TIMESTAMP, TIMESTAMP, -1, -1, -1)
    header = pack(">qiibIhiqqqhii", 0, 49 + len(payload), 0, 2, 0, codec, count - 1, *times_and_producer, count)
    return with_right_crc(bytearray(header + payload))


# Bombs

_ZEROS: Final = bytes(1 << 20)


@cache
def _gzip_bomb(size: int) -> bytes:
    deflate = zlib.compressobj(9, zlib.DEFLATED, 31)
    return b"".join([*(deflate.compress(_ZEROS) for _ in range(size >> 20)), deflate.flush()])


@cache
def _lz4_bomb(size: int) -> bytes:
    writer = cramjam.lz4.Compressor(level=1, content_checksum=False, block_linked=False)
    for _ in range(size >> 20):
        writer.compress(_ZEROS)
    return bytes(writer.finish())


@cache
def _zstd_bomb(size: int) -> bytes:
    writer = cramjam.zstd.Compressor(level=1)
    for _ in range(size >> 20):
        writer.compress(_ZEROS)
    return bytes(writer.finish())


BOMBS: Final[dict[Codec, Callable[[int], bytes]]] = {
    Codec.GZIP: _gzip_bomb,
    # Snappy makes at most 22 bytes of one, so it cannot burst; it can be large.
    Codec.SNAPPY: lambda size: bytes(cramjam.snappy.compress_raw(bytes(min(size, 16 << 20)))),
    Codec.LZ4: _lz4_bomb,
    Codec.ZSTD: _zstd_bomb,
}
"""So many zeros, compressed."""


def lying_batches(random: Random) -> dict[str, bytes]:
    """Batches of which none may be stored; by what is wrong with them."""
    good = small_batch(random)

    def changed(at: int, content: bytes, *, crc: bool = True) -> bytes:
        batch = bytearray(good)
        batch[at : at + len(content)] = content
        return with_right_crc(batch) if crc else bytes(batch)

    return {
        "wrong crc": changed(RECORDS_AT, bytes([good[RECORDS_AT] ^ 1]), crc=False),
        "magic 0": changed(16, b"\0"),
        "magic 1": changed(16, b"\1"),
        "magic 127": changed(16, b"\x7f"),
        "length too small": changed(8, pack(">i", 10)),
        "length negative": changed(8, pack(">i", -1)),
        "length too large": changed(8, pack(">i", len(good))),
        "length at its largest": changed(8, pack(">i", 2**31 - 1)),
        "count too large": changed(COUNT_AT, pack(">i", 2**31 - 1)),
        "count negative": changed(COUNT_AT, pack(">i", -1)),
        "no records": changed(COUNT_AT, pack(">i", 0)),
        "last offset delta at its largest": changed(23, pack(">i", 2**31 - 1)),
        "codec 7": changed(ATTRIBUTES_AT, pack(">h", 7)),
        "control batch": changed(ATTRIBUTES_AT, pack(">h", 0x20)),
        "only a header's beginning": good[:30],
        "two batches": good + good,
        "nothing": b"",
    }
