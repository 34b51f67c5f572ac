"""Transaction markers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.errors import CorruptBatchError
from ottla.records.batch import Batch
from ottla.records.builder import BatchBuilder, build_batch
from ottla.records.control import marker_batch, read_marker
from ottla.records.decode import decode_records
from ottla.records.layout import Codec, Marker
from ottla.records.record import Record


@given(st.sampled_from(Marker), st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1), st.integers(-1, 2**31 - 1))
def test_round_trip(marker: Marker, producer_id: int, producer_epoch: int, coordinator_epoch: int) -> None:
    batch = Batch(
        marker_batch(
            marker,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=coordinator_epoch,
            timestamp=5,
            base_offset=9,
            leader_epoch=2,
        )
    )
    batch.check()
    assert (marker, coordinator_epoch) == read_marker(batch)
    assert (producer_id, producer_epoch, -1) == (batch.producer_id, batch.producer_epoch, batch.base_sequence)
    assert (0x30, 1, 9, 2, 5) == (
        batch.attributes,
        batch.count,
        batch.base_offset,
        batch.leader_epoch,
        batch.max_timestamp,
    )


def test_known_bytes() -> None:
    batch = Batch(marker_batch(Marker.COMMIT, producer_id=1, producer_epoch=0, coordinator_epoch=7, timestamp=0))
    assert Record(0, 0, bytes.fromhex("00000001"), bytes.fromhex("000000000007")) == decode_records(batch)[0]


def control(key: bytes | None, value: bytes | None) -> Batch:
    builder = BatchBuilder(control=True, producer_id=1, producer_epoch=0, base_offset=33)
    builder.append(0, key, value)
    return Batch(builder.build())


def test_other_kinds_are_passed_over() -> None:
    assert read_marker(control(bytes.fromhex("00000002"), b"")) is None
    assert read_marker(control(bytes.fromhex("0000ffff"), None)) is None


def test_later_versions_may_be_longer() -> None:
    assert (Marker.ABORT, 3) == read_marker(control(bytes.fromhex("00010000aa"), bytes.fromhex("000100000003bb")))


@pytest.mark.parametrize(
    ("key", "value"), [(None, None), (b"\x00\x00\x00", b"\x00" * 6), (bytes(4), b"\x00" * 5), (bytes(4), None)]
)
def test_damage(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(CorruptBatchError, match="marker with base offset 33"):
        read_marker(control(key, value))


def test_an_emptied_control_batch() -> None:
    assert read_marker(Batch(BatchBuilder(control=True).build(last_offset_delta=0))) is None


def test_data_is_no_marker() -> None:
    with pytest.raises(CorruptBatchError, match="base offset 3 holds data"):
        read_marker(Batch(build_batch([Record(3, 0, b"k", b"v")], codec=Codec.ZSTD)))
