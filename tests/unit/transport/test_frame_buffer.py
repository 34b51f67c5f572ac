"""Bytes into frames, however they arrive."""

from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.transport.frame_buffer import SHARED_BYTES, BrokenFrameError, FrameBuffer

pytestmark = pytest.mark.slow

BYTES_MAX = 1 << 20
SIZES = st.one_of(st.integers(4, 40), st.integers(SHARED_BYTES - 6, SHARED_BYTES + 2), st.integers(4, 200_000))


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def feed(buffer: FrameBuffer, data: bytes | memoryview) -> list[memoryview]:
    """Receives all of the data as a socket would give it, and takes every frame that becomes whole."""
    frames = []
    data = memoryview(data)
    while data:
        room = buffer.room()
        size = min(len(room), len(data))
        room[:size] = data[:size]
        del room
        buffer.received(size)
        data = data[size:]
        while (frame := buffer.next_frame()) is not None:
            frames.append(frame)
    return frames


@given(sizes=st.lists(SIZES, max_size=8), data=st.data())
def test_frames_come_out_as_they_went_in_whatever_the_pieces(sizes: list[int], data: st.DataObject) -> None:
    bodies = [bytes([number]) * size for number, size in enumerate(sizes)]
    stream = memoryview(b"".join(map(framed, bodies)))
    # Anywhere, and around the ends of frames, where lengths are cut, too.
    ends = list(accumulate(4 + size for size in sizes)) or [0]
    around_ends = st.builds(int.__add__, st.sampled_from(ends), st.integers(-6, 6))
    cuts = data.draw(st.lists(st.integers(0, len(stream)) | around_ends, max_size=30))
    buffer = FrameBuffer(BYTES_MAX)
    frames: list[memoryview] = []
    for start, end in pairwise(sorted({0, len(stream), *(cut for cut in cuts if 0 < cut < len(stream))})):
        frames += feed(buffer, stream[start:end])
    # Compared only at the end: a frame that shared its buffer with a later one would have changed by now.
    assert bodies == [bytes(frame) for frame in frames]


def test_a_large_frame_is_not_copied_and_keeps_its_bytes() -> None:
    buffer = FrameBuffer(BYTES_MAX)
    large = b"x" * (2 * SHARED_BYTES)
    (first,) = feed(buffer, framed(large) + framed(b"tail")[:5])
    (second,) = feed(buffer, framed(b"tail")[5:])
    assert (large, b"tail") == (bytes(first), bytes(second))
    # A view of the buffer that it was received into can be written to; a copy of the frame's bytes cannot.
    assert (False, True) == (first.readonly, second.readonly)


def test_what_is_missing_of_a_large_frame_is_known_and_has_room_for_nothing_else() -> None:
    buffer = FrameBuffer(BYTES_MAX)
    large = framed(b"x" * (2 * SHARED_BYTES))
    found = [buffer.missing]
    for piece in (large[:3], large[3:10], large[10:-1], large[-1:], framed(b"tail")):
        feed(buffer, piece)
        found.append(buffer.missing)
    assert [0, 0, 2 * SHARED_BYTES - 6, 1, 0, 0] == found
    feed(buffer, large[:10])
    assert 2 * SHARED_BYTES - 6 == len(buffer.room())


def test_a_small_frame_that_is_cut_off_has_room_behind_others() -> None:
    buffer = FrameBuffer(BYTES_MAX)
    bodies = [b"a" * (SHARED_BYTES - 100), b"b" * (SHARED_BYTES - 4), b"cccc"]
    frames = feed(buffer, b"".join(map(framed, bodies)))
    assert bodies == [bytes(frame) for frame in frames]
    assert (0, SHARED_BYTES) == (buffer.missing, len(buffer.room()))


@pytest.mark.parametrize("size", [-1, 0, 3, BYTES_MAX + 1, 2**31 - 1, int.from_bytes(b"HTTP", "big")])
def test_a_length_that_cannot_be_is_refused_before_memory_is_taken(size: int) -> None:
    buffer = FrameBuffer(BYTES_MAX)
    with pytest.raises(BrokenFrameError, match="is this a Kafka port without TLS"):
        feed(buffer, size.to_bytes(4, "big", signed=True) + b"/1.1")


def test_the_largest_allowed_frame_is_taken() -> None:
    (frame,) = feed(FrameBuffer(BYTES_MAX), framed(b"y" * BYTES_MAX))
    assert BYTES_MAX == len(frame)
