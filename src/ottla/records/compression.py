"""Compressing and decompressing a batch's records, with a bound on what comes out.

Covers Kafka's five codecs as other clients write and read them. Memory stays near the smaller of the bound and what
really comes out, whatever size the compressed bytes claim. It knows nothing of batches: `recompress` does, and the
kernels in `columns` and `decode` call this for the payload.
"""

import zlib
from collections.abc import Callable
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from struct import Struct
from typing import TYPE_CHECKING, Final

import cramjam

from ottla.model.errors import CorruptBatchError, DecompressionLimitError, UnsupportedCodecError
from ottla.records.layout import Codec

if TYPE_CHECKING:
    from typing_extensions import Buffer

DECOMPRESSED_BYTES_MAX: Final = 128 * 1024 * 1024
"""The default bound: over a hundred times the default `max.message.bytes`, and still an acceptable size in memory."""

_OUTPUT_FULL: Final = "failed to write whole buffer"
"""How the codec library says that the output did not fit; its other complaints mean damage."""

_GZIP_WBITS: Final = 31
_GZIP_SIZE: Final = Struct("<I")
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_SIZE: Final = Struct(">i")
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
"""What Java's writer puts into one block; readers may hold a buffer of just that size."""

_FIRST_GUESS_BYTES: Final = 64 * 1024
_FIRST_GUESS_RATIO: Final = 8
_FILLED_BYTES_MIN: Final = 256 * 1024
"""Up to this size, to fill a buffer with zeros takes no longer than to map it."""
_FILLED_BYTES_MAX: Final = 8 * 1024 * 1024
"""Larger buffers are not filled with zeros, which would hold the GIL."""
_RATIOS_MAX: Final = {Codec.GZIP: 1032, Codec.LZ4: 255, Codec.ZSTD: 32768}
"""How many bytes a compressed byte can stand for."""
_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"


def compress(codec: Codec, data: "Buffer", level: int | None = None) -> bytes:
    """The data as a producer with that codec writes it; the level, where the codec has one, counts as in Kafka."""
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            deflate = zlib.compressobj(6 if level is None else level, zlib.DEFLATED, _GZIP_WBITS)
            return deflate.compress(data) + deflate.flush()
        case Codec.SNAPPY:
            return _compress_xerial(memoryview(data).cast("B"))
        case Codec.LZ4:
            return _compress_lz4(data, 1 if level is None else level)
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(data, level=3 if level is None else level))
    raise UnsupportedCodecError(f"codec {codec} does not exist; use one of {', '.join(Codec.__members__)}")


def decompress(codec: int, data: "Buffer", limit: int = DECOMPRESSED_BYTES_MAX) -> memoryview:
    """What was compressed; for `Codec.NONE` the very bytes that were given.

    Raises `DecompressionLimitError` if it is more than `limit` bytes, `CorruptBatchError` if the data is damaged or cut
    off, `UnsupportedCodecError` for a codec that does not exist.
    """
    source = memoryview(data).cast("B")
    match codec:
        case Codec.NONE:
            if len(source) > limit:
                raise _too_large(Codec.NONE, limit)
            return source
        case Codec.GZIP:
            return _decompress_claimed(Codec.GZIP, cramjam.gzip.decompress_into, source, limit, _gzip_size(source))
        case Codec.SNAPPY:
            return _decompress_snappy(source, limit)
        case Codec.LZ4:
            return _decompress_claimed(Codec.LZ4, cramjam.lz4.decompress_into, source, limit, _lz4_size(source))
        case Codec.ZSTD:
            return _decompress_claimed(Codec.ZSTD, cramjam.zstd.decompress_into, source, limit, _zstd_size(source))
    raise UnsupportedCodecError(f"codec {codec} does not exist; the batch cannot be read")


def _compress_lz4(data: "Buffer", level: int) -> bytes:
    # Java's reader refuses frames whose blocks refer to each other, which is the library's default.
    writer = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    writer.compress(data if isinstance(data, bytes) else bytes(data))
    return bytes(writer.finish())


def _compress_xerial(data: memoryview) -> bytes:
    parts = [_XERIAL_HEADER]
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (_XERIAL_SIZE.pack(len(block)), block)
    return b"".join(parts)


def _decompress_claimed(
    codec: Codec,
    decompress_into: Callable[[memoryview, bytearray | mmap], int],
    data: memoryview,
    limit: int,
    claim: int,
) -> memoryview:
    """Decompresses into a buffer of the claimed size, or of a plausible one; if it is too small, of the limit.

    A claim beyond the limit is refused before there is any buffer. Whatever else the data claims, only what comes out
    takes time and memory: the pages of a buffer that is larger than plausible have none before they are written.
    """
    if claim > len(data) * _RATIOS_MAX[codec]:
        raise _damaged(codec, data, f"it claims {claim} bytes, which its size does not allow")
    if claim > limit:
        raise _too_large(codec, limit)
    plausible = max(_FIRST_GUESS_BYTES, len(data) * _FIRST_GUESS_RATIO)
    capacity = min(limit, claim or plausible)
    while True:
        is_filled = capacity <= _FILLED_BYTES_MIN or capacity <= min(plausible, _FILLED_BYTES_MAX)
        output = bytearray(capacity) if is_filled else _mapped(capacity)
        try:
            size = decompress_into(data, output)
        except cramjam.DecompressionError as error:
            if str(error) != _OUTPUT_FULL:
                raise _damaged(codec, data, error) from error
            if capacity >= limit:
                raise _too_large(codec, limit) from error
            capacity = limit
            continue
        if type(output) is not bytearray:
            return memoryview(output)[:size]
        del output[size:]
        return memoryview(output)


def _mapped(size: int) -> mmap:
    """A buffer whose pages take memory as they are written."""
    return mmap(-1, size, MAP_PRIVATE | MAP_ANONYMOUS)


def _decompress_snappy(data: memoryview, limit: int) -> memoryview:
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        size = _bounded(_snappy_size(data), limit)
        raw = memoryview(bytearray(size) if size <= _FILLED_BYTES_MAX else _mapped(size))
        _snappy_block(data, raw)
        return raw
    blocks: list[tuple[memoryview, int]] = []
    total, at = 0, len(_XERIAL_HEADER)
    while at < len(data):
        if len(data) - at < _XERIAL_SIZE.size:
            raise _damaged(Codec.SNAPPY, data, "a block's size is truncated")
        (size,) = _XERIAL_SIZE.unpack_from(data, at)
        at += _XERIAL_SIZE.size
        if not 0 <= size <= len(data) - at:
            raise _damaged(Codec.SNAPPY, data, f"a block of {size} bytes at {at} reaches past the end")
        block = data[at : at + size]
        blocks.append((block, _snappy_size(block)))
        total = _bounded(total + blocks[-1][1], limit)
        at += size
    if at > len(data):
        raise _damaged(Codec.SNAPPY, data, "the stream header is truncated")
    output, start = memoryview(bytearray(total) if total <= _FILLED_BYTES_MAX else _mapped(total)), 0
    for block, size in blocks:
        _snappy_block(block, output[start : start + size])
        start += size
    return output


def _bounded(size: int, limit: int) -> int:
    if size > limit:
        raise _too_large(Codec.SNAPPY, limit)
    return size


def _snappy_size(block: memoryview) -> int:
    """The size that a block's preamble claims, once it is known to be possible: a copy makes at most 64 bytes of 3."""
    try:
        claim: int = cramjam.snappy.decompress_raw_len(block)
    except cramjam.DecompressionError as error:
        raise _damaged(Codec.SNAPPY, block, error) from error
    if claim > 22 * len(block):
        raise _damaged(Codec.SNAPPY, block, f"it claims {claim} bytes, which its size does not allow")
    return claim


def _snappy_block(block: memoryview, output: memoryview) -> None:
    try:
        cramjam.snappy.decompress_raw_into(block, output)
    except cramjam.DecompressionError as error:
        raise _damaged(Codec.SNAPPY, block, error) from error


def _gzip_size(data: memoryview) -> int:
    """The last member's size modulo 2^32, which ends the stream; 0 if unknown."""
    return int(_GZIP_SIZE.unpack_from(data, len(data) - 4)[0]) if len(data) >= 18 else 0


def _lz4_size(data: memoryview) -> int:
    """The content size of the frame header, if it has one; 0 if unknown."""
    if len(data) < 15 or not data[4] & 0x08 or bytes(data[:4]) != _LZ4_MAGIC:
        return 0
    return int.from_bytes(data[6:14], "little")


def _zstd_size(data: memoryview) -> int:
    """The content size of the frame header, if it has one; 0 if unknown."""
    # Java writes frames without a size: neither its bytes nor the bit that a single segment sets.
    if len(data) < 5 or not data[4] & 0xE0 or bytes(data[:4]) != _ZSTD_MAGIC:
        return 0
    flags = data[4]
    single_segment = flags >> 5 & 1
    start = 5 + (1 - single_segment) + (0, 1, 2, 4)[flags & 3]
    size = (single_segment, 2, 4, 8)[flags >> 6]
    value = int.from_bytes(data[start : start + size], "little")
    return value + 256 if size == 2 else value


def _too_large(codec: Codec, limit: int) -> DecompressionLimitError:
    return DecompressionLimitError(
        f"{codec.name.lower()} data decompresses to more than {limit} bytes; raise the limit or send less"
    )


def _damaged(codec: Codec, data: memoryview, why: object) -> CorruptBatchError:
    return CorruptBatchError(f"{len(data)} bytes of {codec.name.lower()} data cannot be decompressed: {why}")
