"""Every codec: round trips, what other writers send, damage, and bombs that must not go off."""

import gzip
import subprocess
import sys
import zlib
from contextlib import suppress
from random import Random
from typing import Final

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.errors import BatchTooLargeError, CorruptBatchError, UnsupportedCodecError
from ottla.records.compression import DECOMPRESSED_BYTES_MAX, compress, decompress
from ottla.records.layout import Codec

XERIAL: Final = b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
PACKING: Final = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
MIB: Final = 1024 * 1024


@given(st.sampled_from(Codec), st.binary(max_size=1000), st.integers(1, 300))
def test_round_trip(codec: Codec, data: bytes, times: int) -> None:
    assert data * times == bytes(decompress(codec, compress(codec, data * times), len(data) * times))


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("wrap", [bytearray, memoryview])
def test_any_buffer(codec: Codec, wrap: type[bytearray] | type[memoryview]) -> None:
    packed = compress(codec, wrap(b"abc" * 1000))
    assert b"abc" * 1000 == bytes(decompress(codec, wrap(packed)))


@pytest.mark.parametrize(("codec", "levels"), [(Codec.GZIP, (1, 9)), (Codec.LZ4, (1, 12)), (Codec.ZSTD, (1, 19))])
def test_levels(codec: Codec, levels: tuple[int, int]) -> None:
    words = [b"log", b"batch", b"record", b"offset", b"epoch", b"leader", b"follower", b"marker"]
    chance = Random(1)
    data = b" ".join(chance.choice(words) for _ in range(30_000))
    low, high = (compress(codec, data, level) for level in levels)
    assert len(high) < len(low)
    assert data == bytes(decompress(codec, high))


def test_snappy_is_written_in_the_frames_of_java() -> None:
    packed = compress(Codec.SNAPPY, bytes(70_000))
    assert XERIAL == packed[:16]
    first = int.from_bytes(packed[16:20], "big")
    assert bytes(32768) == bytes(cramjam.snappy.decompress_raw(packed[20 : 20 + first]))


def test_raw_snappy_is_read() -> None:
    assert b"xyz" * 999 == bytes(decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(b"xyz" * 999))))


def test_lz4_blocks_are_independent() -> None:
    flags = compress(Codec.LZ4, bytes(200_000))[4]
    assert 0x20 == flags & 0x20


def test_lz4_with_linked_blocks_and_checksums_is_read() -> None:
    packed = bytes(cramjam.lz4.compress(b"0123456789" * 50_000))
    assert 0 == packed[4] & 0x20
    assert b"0123456789" * 50_000 == bytes(decompress(Codec.LZ4, packed))


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_frames_one_behind_the_other(codec: Codec) -> None:
    packed = compress(codec, b"one" * 100) + compress(codec, b"two" * 100)
    assert b"one" * 100 + b"two" * 100 == bytes(decompress(codec, packed))


def test_gzip_of_the_standard_library_is_read() -> None:
    assert b"q" * 12345 == bytes(decompress(Codec.GZIP, gzip.compress(b"q" * 12345)))


def test_none_is_not_copied() -> None:
    data = bytearray(b"abc")
    decompress(Codec.NONE, data)[0] = ord("x")
    assert b"xbc" == data


@pytest.mark.parametrize("codec", Codec)
def test_the_limit_is_exact(codec: Codec) -> None:
    data = b"0123456789" * 1000
    packed = compress(codec, data)
    assert data == bytes(decompress(codec, packed, 10_000))
    with pytest.raises(BatchTooLargeError, match="more than 9999 bytes"):
        decompress(codec, packed, 9999)


@pytest.mark.parametrize("codec", PACKING)
@pytest.mark.parametrize("garbage", [b"", b"\x01", b"garbage" * 20, b"\xff" * 64])
def test_garbage(codec: Codec, garbage: bytes) -> None:
    with pytest.raises(CorruptBatchError, match="cannot be decompressed"):
        decompress(codec, garbage)


@pytest.mark.parametrize("codec", PACKING)
def test_every_cut_is_damage(codec: Codec) -> None:
    packed = compress(codec, bytes(range(256)) * 4)
    whole = {len(packed), 16} if codec is Codec.SNAPPY else {len(packed)}  # a snappy stream may have no blocks at all
    for size in set(range(len(packed))) - whole:
        with pytest.raises(CorruptBatchError):
            decompress(codec, packed[:size])


@given(st.sampled_from(PACKING), st.data())
def test_damaged_bytes_never_crash(codec: Codec, data: st.DataObject) -> None:
    packed = bytearray(compress(codec, b"some text that repeats, some text that repeats" * 20))
    for _ in range(data.draw(st.integers(1, 4))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    with suppress(CorruptBatchError, BatchTooLargeError):
        assert 100_000 >= len(decompress(codec, packed, 100_000))


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_codecs_that_do_not_exist(codec: int) -> None:
    with pytest.raises(UnsupportedCodecError, match=f"codec {codec} does not exist"):
        decompress(codec, b"data")
    with pytest.raises(UnsupportedCodecError, match=f"codec {codec} does not exist"):
        compress(codec, b"data")  # type: ignore[arg-type]  # as a configuration might have it


@pytest.mark.parametrize(
    "liar",
    [
        b"\xff\xff\xff\xff\x0f" + b"\x00" * 20,
        XERIAL + b"\x00\x00\x00\x0a" + b"\xff\xff\xff\xff\x0f" + b"\x00" * 5,
        XERIAL + b"\x7f\xff\xff\xff" + b"\x00" * 20,
        XERIAL + b"\xff\xff\xff\xff" + b"\x00" * 20,
        XERIAL + b"\x00\x00",
        XERIAL[:12],
    ],
)
def test_lying_sizes_of_snappy(liar: bytes) -> None:
    with pytest.raises(CorruptBatchError):
        decompress(Codec.SNAPPY, liar)


# The frames below claim 2^62 bytes and hold one block of one byte.
ZSTD_LIAR: Final = b"\x28\xb5\x2f\xfd\xe0" + (2**62).to_bytes(8, "little") + b"\x09\x00\x00x"
LZ4_LIAR: Final = b"\x04\x22\x4d\x18\x68\x40" + (2**62).to_bytes(8, "little")


def test_lying_size_of_a_zstd_frame() -> None:
    with pytest.raises(CorruptBatchError):
        decompress(Codec.ZSTD, ZSTD_LIAR)


def test_lying_size_of_an_lz4_frame() -> None:
    # The byte behind the header is its checksum; one of the 256 is right, and the frame must fail for its size alone.
    for checksum in range(256):
        with pytest.raises(CorruptBatchError):
            decompress(Codec.LZ4, LZ4_LIAR + bytes([checksum]) + b"\x01\x00\x00\x80x" + b"\x00" * 4)


def test_lying_size_of_gzip_is_damage() -> None:
    packed = bytearray(compress(Codec.GZIP, b"abc" * 100))
    packed[-4:] = (2**32 - 1).to_bytes(4, "little")
    with pytest.raises(CorruptBatchError):
        decompress(Codec.GZIP, packed)


# Run in a process of its own, whose peak of memory belongs to nobody else.
BOMB_RUNNER: Final = """
import resource, sys
from ottla.model.errors import BatchTooLargeError
from ottla.records.compression import decompress
bomb = open(sys.argv[2], "rb").read()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    decompress(int(sys.argv[1]), bomb, 16 * 1024 * 1024)
except BatchTooLargeError:
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def bomb(codec: Codec) -> bytes:
    """A gibibyte of zeros, compressed piece by piece where the codec lets streams follow each other."""
    piece = bytes(64 * MIB)
    match codec:
        case Codec.GZIP:
            writer = zlib.compressobj(1, zlib.DEFLATED, 31)
            return b"".join(writer.compress(piece) for _ in range(16)) + writer.flush()
        case Codec.SNAPPY:
            block = bytes(cramjam.snappy.compress_raw(piece))
            return XERIAL + (len(block).to_bytes(4, "big") + block) * 16
        case Codec.LZ4:
            return compress(Codec.LZ4, piece) * 16
        case _:
            return compress(codec, piece) * 16


@pytest.mark.parametrize("codec", PACKING)
def test_bombs_are_refused_within_the_limit_of_memory(codec: Codec, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("bombs") / codec.name
    path.write_bytes(bomb(codec))
    ran = subprocess.run(
        [sys.executable, "-c", BOMB_RUNNER, str(int(codec)), str(path)], capture_output=True, text=True, check=True
    )
    # The limit is 16 MiB; the attempt before the last may still be held while the last one is made.
    assert 24 >= int(ran.stdout)


def test_the_default_limit() -> None:
    assert 128 * MIB == DECOMPRESSED_BYTES_MAX
    with pytest.raises(BatchTooLargeError):
        decompress(Codec.ZSTD, compress(Codec.ZSTD, bytes(DECOMPRESSED_BYTES_MAX + 1)))
