"""The batch view: fields, checks and stamps."""

import gc
import mmap
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.errors import CorruptBatchError, MisuseError
from ottla.records.batch import Batch, crc32c, scan, spanned
from ottla.records.builder import BatchBuilder, build_batch
from ottla.records.layout import (
    ATTRIBUTES_AT,
    BASE_OFFSET_AT,
    BASE_SEQUENCE_AT,
    COUNT_AT,
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    LAST_OFFSET_DELTA_AT,
    LENGTH_AT,
    MAGIC_AT,
    Codec,
)
from ottla.records.record import Record
from tests.unit.records.record_strategies import broken

RECORDS = [Record(1000, 50, b"k", b"v"), Record(1001, 70, None, b"w"), Record(1004, 60, b"k", None)]


def sample(**options: Any) -> bytes:
    return build_batch(
        RECORDS, producer_id=77, producer_epoch=3, base_sequence=12, leader_epoch=9, transactional=True, **options
    )


def test_fields() -> None:
    data = sample()
    batch = Batch(b"\xff" * 5 + data, 5)
    assert (5, len(data)) == (batch.position, batch.size_bytes)
    assert (1000, 1004, 1005, 4) == (batch.base_offset, batch.last_offset, batch.next_offset, batch.last_offset_delta)
    assert (50, 70, 0) == (batch.base_timestamp, batch.max_timestamp, batch.timestamp_type)
    assert (77, 3, 12, 16) == (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.last_sequence)
    assert (9, 2, 3, 0x10, Codec.NONE) == (
        batch.leader_epoch,
        batch.magic,
        batch.count,
        batch.attributes,
        batch.codec,
    )
    assert (True, False, True) == (batch.is_transactional, batch.is_control, batch.has_producer_id)
    assert (False, -1) == (batch.has_delete_horizon, batch.delete_horizon)
    assert data == batch.buffer
    assert data[HEADER_BYTES:] == batch.payload
    assert batch.crc_valid()


def test_no_producer() -> None:
    batch = Batch(build_batch(RECORDS))
    assert (False, -1, -1, -1) == (
        batch.has_producer_id,
        batch.producer_id,
        batch.base_sequence,
        batch.last_sequence,
    )


def test_last_sequence_wraps() -> None:
    assert 3 == Batch(broken(sample(), BASE_SEQUENCE_AT, ">i", 2**31 - 1)).last_sequence


def test_delete_horizon() -> None:
    batch = Batch(broken(sample(), ATTRIBUTES_AT, ">h", DELETE_HORIZON_BIT))
    assert (True, 50) == (batch.has_delete_horizon, batch.delete_horizon)


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview])
def test_any_buffer(wrap: Any) -> None:
    Batch(wrap(sample())).check()


def test_buffer_of_wider_items() -> None:
    data = sample() + bytes(-len(sample()) % 8)
    batch = Batch(memoryview(data).cast("q"))
    assert sample() == batch.buffer


def test_mapped_memory() -> None:
    with mmap.mmap(-1, 4096) as mapped:
        mapped[100 : 100 + len(sample())] = sample()
        batch = Batch(mapped, 100)
        batch.stamp(5, 6)
        assert (5, 6) == (batch.base_offset, batch.leader_epoch)
        with pytest.raises(BufferError):
            mapped.close()
        del batch


@pytest.mark.parametrize("size", [0, 11, 12, 60])
def test_shorter_than_a_header(size: int) -> None:
    with pytest.raises(CorruptBatchError, match=f"position 0 is cut off: {size} bytes left"):
        Batch(sample()[:size])


def test_cut_off() -> None:
    with pytest.raises(CorruptBatchError, match="base offset 1000 at position 0 is cut off"):
        Batch(sample()[:-1])


@pytest.mark.parametrize(
    ("at", "layout", "value", "text"),
    [
        (MAGIC_AT, ">b", 1, "base offset 1000 at position 0 has magic 1"),
        (LENGTH_AT, ">i", 48, "has length 48"),
        (LENGTH_AT, ">i", -1, "has length -1"),
        (LENGTH_AT, ">i", 2**31 - 1, "it says 2147483659 bytes"),
    ],
)
def test_lying_header(at: int, layout: str, value: int, text: str) -> None:
    with pytest.raises(CorruptBatchError, match=text):
        Batch(broken(sample(), at, layout, value))


@pytest.mark.parametrize("position", [-1, -(2**62)])
def test_negative_position(position: int) -> None:
    with pytest.raises(MisuseError, match="negative"):
        Batch(sample(), position)


def test_position_past_the_end() -> None:
    with pytest.raises(CorruptBatchError, match="0 bytes left"):
        Batch(sample(), 10**9)


def test_no_buffer_at_all() -> None:
    with pytest.raises(TypeError):
        Batch("text")  # type: ignore[arg-type]  # that is the point


@pytest.mark.parametrize(
    ("at", "layout", "value", "text"),
    [
        (COUNT_AT, ">i", -1, "counts -1 records"),
        (COUNT_AT, ">i", 6, "counts 6 records, its last offset delta is 4"),
        (LAST_OFFSET_DELTA_AT, ">i", -1, "last offset delta -1"),
        (BASE_OFFSET_AT, ">q", -5, "base offset -5"),
        (BASE_OFFSET_AT, ">q", 2**63 - 2, "no such offsets"),
    ],
)
def test_check_finds_impossible_fields(at: int, layout: str, value: int, text: str) -> None:
    batch = Batch(broken(sample(), at, layout, value))
    assert batch.crc_valid()
    with pytest.raises(CorruptBatchError, match=text):
        batch.check()


@given(st.data())
def test_any_flipped_bit_behind_the_crc_is_found(data: st.DataObject) -> None:
    damaged = bytearray(sample())
    bit = data.draw(st.integers(8 * ATTRIBUTES_AT, 8 * len(damaged) - 1))
    damaged[bit // 8] ^= 1 << bit % 8
    batch = Batch(damaged)
    assert not batch.crc_valid()
    with pytest.raises(CorruptBatchError, match="fails its checksum"):
        batch.check()


def test_a_large_batch_is_checked_too() -> None:
    data = bytearray(build_batch([Record(0, 0, None, bytes(200_000))]))
    batch = Batch(data)
    batch.check()
    assert batch.crc_valid()
    data[-1] ^= 1
    assert not batch.crc_valid()
    with pytest.raises(CorruptBatchError, match="fails its checksum"):
        batch.check()


def test_stamp_keeps_the_crc() -> None:
    data = bytearray(sample())
    batch = Batch(data)
    crc = batch.crc
    batch.stamp(2**40, 17)
    assert (2**40, 2**40 + 4, 17) == (batch.base_offset, batch.last_offset, batch.leader_epoch)
    assert crc == batch.crc
    batch.check()


def test_stamp_append_time() -> None:
    batch = Batch(bytearray(sample()))
    batch.stamp_append_time(123456)
    assert (1, 123456, 50) == (batch.timestamp_type, batch.max_timestamp, batch.base_timestamp)
    assert batch.is_transactional
    batch.check()


def test_stamp_producer() -> None:
    batch = Batch(bytearray(sample()))
    batch.stamp_producer(5, 6, 7)
    assert (5, 6, 7, 11) == (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.last_sequence)
    batch.check()


@given(st.binary(max_size=300), st.integers(0, 40_000), st.integers(-1, 2**62), st.integers(-1, 2**14))
def test_stamping_a_producer_leaves_the_checksum_of_all_bytes(
    some: bytes, more: int, producer_id: int, number: int
) -> None:
    builder = BatchBuilder()
    builder.append(1, b"key", some + bytes(more))
    batch = Batch(bytearray(builder.build()))
    batch.stamp_producer(producer_id, number, number)
    assert (producer_id, number, number) == (batch.producer_id, batch.producer_epoch, batch.base_sequence)
    assert crc32c(batch.buffer[21:]) == batch.crc


def test_stamping_a_producer_does_not_mend_a_checksum() -> None:
    data = bytearray(sample())
    data[-1] ^= 1
    batch = Batch(data)
    batch.stamp_producer(5, 6, 7)
    assert not batch.crc_valid()


def test_the_bytes_of_batches_that_lie_together_are_not_copied() -> None:
    data = bytearray(b"before" + 3 * sample() + b"behind")
    batches, end, _ = scan(data, 6)
    together = spanned(batches)
    assert data[6:end] == together
    data[-7] ^= 1
    assert data[6:end] == together
    assert data[6 + len(sample()) : end] == spanned(batches[1:])


def test_the_bytes_of_batches_that_lie_apart_are_joined() -> None:
    one, other = Batch(sample()), Batch(bytearray(sample()))
    assert 2 * sample() == spanned([one, other])
    batches = scan(3 * sample())[0]
    assert 2 * sample() == spanned([batches[0], batches[2]])


def test_read_only_buffers_are_not_stamped() -> None:
    batch = Batch(sample())
    with pytest.raises(MisuseError, match="read-only"):
        batch.stamp(1, 1)
    with pytest.raises(MisuseError, match="read-only"):
        batch.stamp_append_time(1)
    with pytest.raises(MisuseError, match="read-only"):
        batch.stamp_producer(1, 1, 1)
    assert sample() == batch.buffer


def test_the_buffer_is_let_go() -> None:
    data = bytearray(sample())
    batch = Batch(data)
    with pytest.raises(BufferError):
        data.append(0)
    del batch
    data.append(0)
    with pytest.raises(CorruptBatchError):
        Batch(data[:60])
    assert len(sample()) + 1 == len(data)


def test_a_view_in_a_dead_cycle_lets_its_buffer_go() -> None:
    data = bytearray(sample())
    cycle: list[object] = [Batch(data)]
    cycle.append(cycle)
    del cycle
    gc.collect()
    data.append(0)
    assert len(sample()) + 1 == len(data)


def test_a_view_of_an_empty_batch() -> None:
    batch = Batch(BatchBuilder(base_offset=3).build(last_offset_delta=4))
    batch.check()
    assert (0, 7, b"") == (batch.count, batch.last_offset, bytes(batch.payload))
