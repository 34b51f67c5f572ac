"""The compaction kernel against a plain dict, record by record."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.errors import CorruptBatchError, MisuseError
from ottla.records.batch import Batch
from ottla.records.builder import build_batch
from ottla.records.compaction import OffsetMap, compact_batch, empty_batch, key_digest, stamp_horizon
from ottla.records.decode import decode_records
from ottla.records.layout import ATTRIBUTES_AT, COUNT_AT, HEADER_BYTES, Codec
from ottla.records.record import Record
from tests.unit.records.record_strategies import broken, with_payload

HASH_KEY = bytes(range(16))
FAR = 2**40


def new_map(memory_bytes: int = 1 << 20, load_factor: float = 0.9) -> OffsetMap:
    return OffsetMap(memory_bytes, HASH_KEY, load_factor)


def batch_of(*records: tuple[int, bytes | None, bytes | None], **options: Any) -> Batch:
    """A batch of (offset, key, value); a record's timestamp is 1000 and its offset."""
    made = [Record(offset, 1000 + offset, key, value) for offset, key, value in records]
    return Batch(build_batch(made, **options))


def compacted(
    batch: Batch, offset_map: OffsetMap, *, end: int = FAR, now: int = 0, horizon: int = 5_000
) -> tuple[int, Batch | None]:
    kept, rebuilt = compact_batch(batch, offset_map, end_offset=end, now=now, horizon=horizon)
    return kept, None if rebuilt is None else Batch(rebuilt)


def mapped(*batches: Batch) -> OffsetMap:
    offset_map = new_map()
    for batch in batches:
        assert batch.next_offset == offset_map.add(batch, 0)
    return offset_map


# The digest


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (0, "a3817f04ba25a8e66df67214c7550293"),
        (1, "da87c1d86b99af44347659119b22fc45"),
        (15, "5493e99933b0a8117e08ec0f97cfc3d9"),
    ],
)
def test_the_digest_is_siphash_2_4_with_128_bits(size: int, expected: str) -> None:
    """The reference vectors of its authors: key 0..15, input 0..size-1."""
    assert bytes.fromhex(expected) == key_digest(bytes(range(size)), HASH_KEY)


def test_another_hash_key_makes_other_digests() -> None:
    assert key_digest(b"key", HASH_KEY) != key_digest(b"key", bytes(16))


# The map


@given(st.lists(st.binary(max_size=3) | st.none(), min_size=1, max_size=300), st.sampled_from(Codec))
def test_the_map_has_the_last_offset_of_every_key(keys: list[bytes | None], codec: Codec) -> None:
    batch = batch_of(*((offset, key, b"v") for offset, key in enumerate(keys)), codec=codec)
    offset_map = mapped(batch)
    expected = {key: offset for offset, key in enumerate(keys) if key is not None}
    assert len(expected) == len(offset_map)
    assert expected == {key: offset_map.get(key) for key in expected}
    assert -1 == offset_map.get(b"longer than any")


def test_a_map_that_grew_has_forgotten_nothing() -> None:
    offset_map = new_map(64 << 20)
    keys = [b"%d" % number for number in range(50_000)]
    offset_map.add(batch_of(*((offset, key, None) for offset, key in enumerate(keys))), 0)
    assert list(range(50_000)) == [offset_map.get(key) for key in keys]


def test_records_before_the_start_are_not_mapped() -> None:
    offset_map = new_map()
    batch = batch_of((3, b"a", b"1"), (4, b"b", b"2"), (5, b"c", b"3"))
    assert 6 == offset_map.add(batch, 4)
    assert [-1, 4, 5] == [offset_map.get(key) for key in (b"a", b"b", b"c")]


def test_a_full_map_says_which_offset_found_no_room_and_still_updates_known_keys() -> None:
    offset_map = new_map(24 * 20)
    room = offset_map.capacity
    assert 14 == room
    keys = [b"%d" % number for number in range(room)]
    records = [(offset, key, b"v") for offset, key in enumerate(keys)]
    again = [(room, keys[0], b"v"), (room + 1, b"new", b"v"), (room + 2, keys[1], b"v")]
    assert room + 1 == offset_map.add(batch_of(*records, *again), 0)
    assert room == len(offset_map)
    assert room == offset_map.get(keys[0])
    assert 1 == offset_map.get(keys[1])
    assert -1 == offset_map.get(b"new")


@pytest.mark.parametrize(
    ("memory", "hash_key", "load"), [(100, HASH_KEY, 0.9), (4096, b"short", 0.9), (4096, HASH_KEY, 0)]
)
def test_a_map_refuses_settings_that_cannot_work(memory: int, hash_key: bytes, load: float) -> None:
    with pytest.raises(MisuseError):
        OffsetMap(memory, hash_key, load)


# Compacting a batch


def model_of(records: Sequence[Record], last: dict[bytes, int], end: int, tombstones_go: bool) -> list[Record]:
    return [
        record
        for record in records
        if record.offset >= end
        or (
            record.key is not None
            and record.offset >= last.get(record.key, -1)
            and not (tombstones_go and record.value is None)
        )
    ]


small_records = st.lists(
    st.tuples(
        st.integers(1, 3),
        st.integers(-(2**40), 2**40),
        st.sampled_from([b"", b"a", b"b", b"c", None]),
        st.sampled_from([b"v" * 200, b"", None]),
        st.sampled_from([(), (("h", b"x"), ("h", None))]),
    ),
    min_size=1,
    max_size=60,
)


@given(
    drawn=small_records,
    codec=st.sampled_from(Codec),
    end=st.integers(0, 200),
    timestamp_type=st.sampled_from([0, 1]),
    later=st.sets(st.sampled_from([b"", b"a", b"b"])),
)
def test_a_compacted_batch_has_what_the_model_keeps(
    drawn: list[tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]],
    codec: Codec,
    end: int,
    timestamp_type: int,
    later: set[bytes],
) -> None:
    records, offset = [], 9
    for step, timestamp, key, value, headers in drawn:
        offset += step
        records.append(Record(offset, timestamp, key, value, headers))
    batch = Batch(
        build_batch(
            records,
            base_offset=10,
            last_offset_delta=offset - 10 + 2,
            codec=codec,
            timestamp_type=timestamp_type,
            producer_id=7,
            producer_epoch=1,
            base_sequence=40,
            leader_epoch=3,
        )
    )
    superseding = batch_of(*((1000 + at, key, b"new") for at, key in enumerate(sorted(later)))) if later else None
    offset_map = mapped(batch, *([superseding] if superseding else []))
    last = {record.key: record.offset for record in decode_records(batch) if record.key is not None}
    last.update(
        {record.key: record.offset for record in (decode_records(superseding) if superseding else []) if record.key}
    )
    if b"" in later:
        last[b""] = 1000
    expected = model_of(decode_records(batch), last, end, tombstones_go=False)
    horizon = 5_000
    kept, rebuilt = compacted(batch, offset_map, end=end, horizon=horizon)
    assert len(expected) == kept
    stamped = any(record.value is None for record in expected) and batch.last_offset < end
    if not expected or (len(expected) == len(records) and not stamped):
        assert rebuilt is None
        return
    assert rebuilt is not None
    rebuilt.check()
    if timestamp_type == 1:
        expected = [record._replace(timestamp=batch.max_timestamp) for record in expected]
        assert batch.max_timestamp == rebuilt.max_timestamp
    else:
        assert max(record.timestamp for record in expected) == rebuilt.max_timestamp
    assert expected == decode_records(rebuilt)
    assert (horizon if stamped else -1) == rebuilt.delete_horizon
    same = ("base_offset", "last_offset", "producer_id", "producer_epoch", "base_sequence", "leader_epoch", "codec")
    assert [getattr(batch, name) for name in same] == [getattr(rebuilt, name) for name in same]


def test_a_tombstone_goes_once_its_horizon_has_come_and_not_before() -> None:
    batch = batch_of((0, b"a", None), (1, b"b", b"v"))
    offset_map = mapped(batch)
    kept, stamped = compacted(batch, offset_map, now=100, horizon=600)
    assert (2, 600) == (kept, stamped.delete_horizon if stamped else None)
    assert stamped is not None
    assert decode_records(batch) == decode_records(stamped)
    assert (2, None) == compacted(stamped, offset_map, now=599, horizon=9_999)
    kept, without = compacted(stamped, offset_map, now=600, horizon=9_999)
    assert without is not None
    assert (1, 600) == (kept, without.delete_horizon)
    assert [Record(1, 1001, b"b", b"v")] == decode_records(without)


def test_a_batch_that_reaches_beyond_the_map_gets_no_horizon() -> None:
    batch = batch_of((0, b"a", None), (1, b"b", None))
    assert (2, None) == compacted(batch, mapped(batch), end=1)


def test_stamping_keeps_every_record_and_its_timestamp() -> None:
    batch = batch_of((5, b"a", b"1"), (7, None, None), control=True, transactional=True)
    stamped = Batch(stamp_horizon(batch, 2**41))
    stamped.check()
    assert 2**41 == stamped.delete_horizon
    assert decode_records(batch) == decode_records(stamped)
    assert (True, True) == (stamped.is_control, stamped.is_transactional)
    with pytest.raises(MisuseError):
        stamp_horizon(Batch(empty_batch(batch)), 1)


def test_an_emptied_batch_keeps_its_place_its_sequence_and_its_largest_timestamp() -> None:
    batch = batch_of(
        (5, b"a", b"1"),
        (9, b"b", b"1"),
        codec=Codec.ZSTD,
        producer_id=7,
        producer_epoch=2,
        base_sequence=3,
        transactional=True,
    )
    emptied = Batch(empty_batch(batch))
    emptied.check()
    assert (HEADER_BYTES, 0, 0) == (emptied.size_bytes, emptied.count, emptied.codec)
    same = (
        "base_offset",
        "last_offset",
        "producer_id",
        "producer_epoch",
        "last_sequence",
        "max_timestamp",
        "is_transactional",
    )
    assert [getattr(batch, name) for name in same] == [getattr(emptied, name) for name in same]
    assert (0, None) == compacted(emptied, new_map())


# Damage


@pytest.mark.parametrize(
    ("at", "layout", "value"),
    [
        (HEADER_BYTES, "B", 0x7F),  # the first record's length
        (HEADER_BYTES + 3, "B", 2),  # its offset delta, beyond the last
        (COUNT_AT, ">i", 2),
        (COUNT_AT, ">i", 0),
        (COUNT_AT, ">i", 2**31 - 1),
        (COUNT_AT, ">i", -1),
    ],
)
def test_damage_inside_a_batch_is_an_error_and_not_a_loss(at: int, layout: str, value: int) -> None:
    batch = Batch(broken(bytes(batch_of((0, b"key", b"value")).buffer), at, layout, value))
    with pytest.raises(CorruptBatchError, match="base offset 0"):
        new_map().add(batch, 0)
    with pytest.raises(CorruptBatchError, match="base offset 0"):
        compacted(batch, new_map())


@given(st.binary(max_size=80), st.integers(0, 20), st.sampled_from([0, 3, 4]))
def test_any_bytes_are_read_within_their_bounds(payload: bytes, count: int, codec: int) -> None:
    whole = with_payload(build_batch([Record(0, 0, b"k", b"v")], last_offset_delta=30), payload, count=count)
    batch = Batch(broken(whole, ATTRIBUTES_AT, ">h", codec))
    for work in (lambda: new_map().add(batch, 0), lambda: compacted(batch, new_map()), lambda: stamp_horizon(batch, 9)):
        try:
            work()
        except (CorruptBatchError, MisuseError):
            continue
