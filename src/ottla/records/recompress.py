"""The same records in another codec, for topics whose `compression.type` differs from what the producer chose.

Decompressing and compressing cost far more than anything else on the way: run this where the event loop does not wait.
"""

from struct import pack_into

from ottla.records.batch import Batch, crc32c
from ottla.records.compression import DECOMPRESSED_BYTES_MAX, compress
from ottla.records.layout import (
    ATTRIBUTES_AT,
    CODEC_BITS,
    CRC_AT,
    HEADER_BYTES,
    LENGTH_AT,
    LENGTH_PREFIX_BYTES,
    Codec,
)
from ottla.records.payload import read_payload


def recompress(
    batch: Batch,
    codec: Codec,
    level: int | None = None,
    limit: int = DECOMPRESSED_BYTES_MAX,
    *,
    payload: memoryview | None = None,
) -> bytes:
    """A batch with the same header fields and records, compressed by `codec`; the records are not looked at.

    `payload` is the batch's decompressed records, if the caller has them already.
    """
    if not batch.payload:
        return bytes(batch.buffer)
    result = bytearray(batch.buffer[:HEADER_BYTES])
    result += compress(codec, read_payload(batch, limit) if payload is None else payload, level)
    pack_into(">i", result, LENGTH_AT, len(result) - LENGTH_PREFIX_BYTES)
    pack_into(">h", result, ATTRIBUTES_AT, batch.attributes & ~CODEC_BITS | codec)
    pack_into(">I", result, CRC_AT, crc32c(memoryview(result)[ATTRIBUTES_AT:]))
    return bytes(result)
