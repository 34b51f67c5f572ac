"""What a batch may decompress to by the headers of its blocks: never less than what it does decompress to."""

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.errors import OttlaError
from ottla.records.batch import Batch
from ottla.records.compression import compress
from ottla.records.layout import Codec
from ottla.records.payload import read_payload
from tests.hostile.batches import batch_around

CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]


def batch_of(codec: Codec, content: bytes) -> Batch:
    return Batch(bytearray(batch_around(codec, content)))


@pytest.mark.parametrize("codec", CODECS)
@given(pieces=st.lists(st.tuples(st.binary(max_size=50), st.integers(1, 20_000)), max_size=4))
def test_it_is_a_bound(codec: Codec, pieces: list[tuple[bytes, int]]) -> None:
    content = b"".join(piece * count for piece, count in pieces)
    assert len(content) <= batch_of(codec, compress(codec, content)).decompressed_bytes_max


def test_streams_and_frames_behind_each_other_are_counted() -> None:
    content = bytes(300_000)
    writer = cramjam.zstd.Compressor(level=3)
    writer.compress(content)
    stream, linked = bytes(writer.finish()), bytes(cramjam.lz4.compress(content))
    for codec, frames in ((Codec.ZSTD, stream + compress(Codec.ZSTD, content)), (Codec.LZ4, 2 * linked)):
        batch = batch_of(codec, frames)
        assert 2 * len(content) <= batch.decompressed_bytes_max < 1 << 24
    assert 128 * 1024 == batch_of(Codec.ZSTD, compress(Codec.ZSTD, content[:100_000])).decompressed_bytes_max


@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZSTD])
@given(data=st.data())
def test_damaged_frames_are_no_exception(codec: Codec, data: st.DataObject) -> None:
    frame = bytearray(compress(codec, data.draw(st.binary(max_size=200)) * 100))
    for _ in range(data.draw(st.integers(1, 3))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    del frame[data.draw(st.integers(1, len(frame))) :]
    batch = batch_of(codec, bytes(frame))
    try:
        size = len(read_payload(batch))
    except OttlaError:
        return
    assert size <= batch.decompressed_bytes_max
