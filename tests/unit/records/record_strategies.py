"""Hypothesis strategies for records, shared by the tests of this room, and the ways to break a batch on purpose."""

from struct import pack_into

from hypothesis import strategies as st

from ottla.records.batch import crc32c
from ottla.records.layout import ATTRIBUTES_AT, COUNT_AT, CRC_AT, HEADER_BYTES, LENGTH_AT, Codec
from ottla.records.record import Record

timestamps = st.integers(-(2**62), 2**62) | st.integers(1_700_000_000_000, 1_700_000_100_000)
fields = st.none() | st.binary(max_size=40) | st.integers(100, 5000).map(lambda size: b"\x5a" * size)
header_lists = st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=8)), max_size=4).map(tuple)
codecs = st.sampled_from(Codec)


@st.composite
def record_lists(draw: st.DrawFn, *, min_size: int = 1, max_size: int = 30) -> list[Record]:
    """Records at growing offsets, with gaps as compaction leaves them."""
    offset = draw(st.integers(0, 2**40))
    records = []
    for _ in range(draw(st.integers(min_size, max_size))):
        records.append(Record(offset, draw(timestamps), draw(fields), draw(fields), draw(header_lists)))
        offset += draw(st.integers(1, 3))
    return records


def broken(batch: bytes, at: int, layout: str, value: int) -> bytes:
    """The batch with another value in a field, and a CRC that fits it."""
    return resealed(_written(batch, at, layout, value))


def resealed(batch: bytes) -> bytes:
    """The batch with the CRC that its bytes give."""
    result = bytearray(batch)
    pack_into(">I", result, CRC_AT, crc32c(result[ATTRIBUTES_AT:]))
    return bytes(result)


def with_payload(batch: bytes, payload: bytes, *, count: int | None = None) -> bytes:
    """The batch's header in front of other records."""
    result = bytearray(batch[:HEADER_BYTES] + payload)
    pack_into(">i", result, LENGTH_AT, len(result) - 12)
    if count is not None:
        pack_into(">i", result, COUNT_AT, count)
    return resealed(bytes(result))


def _written(batch: bytes, at: int, layout: str, value: int) -> bytes:
    result = bytearray(batch)
    pack_into(layout, result, at, value)
    return bytes(result)
