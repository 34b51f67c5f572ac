"""Batches made of picked records, against the decoded records of their sources."""

from array import array

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ottla.model.errors import CorruptBatchError, MisuseError, OttlaError
from ottla.records.batch import Batch
from ottla.records.builder import build_batch
from ottla.records.decode import decode_records
from ottla.records.header_edit import HeaderNames
from ottla.records.header_stamp import Stamp
from ottla.records.layout import Codec
from ottla.records.picking import RecordBlock, count_fitting, pick_batch
from ottla.records.record import Record
from tests.unit.records.record_strategies import broken, codecs, record_lists, with_payload

NOTHING = HeaderNames()
HEADER_NAMES_MAX = 64


def in_order(lists: list[list[Record]]) -> list[list[Record]]:
    """The same records at offsets that grow from list to list."""
    shifted, start = [], 0
    for records in lists:
        first = records[0].offset
        shifted.append([record._replace(offset=start + record.offset - first) for record in records])
        start = shifted[-1][-1].offset + 1
    return shifted


sources = st.lists(record_lists(max_size=10), min_size=1, max_size=5).map(in_order)


@given(sources, st.data())
def test_picks_records_from_several_batches_in_any_order(lists: list[list[Record]], data: st.DataObject) -> None:
    batches = [
        Batch(build_batch(records, codec=data.draw(codecs), timestamp_type=data.draw(st.sampled_from([0, 1]))))
        for records in lists
    ]
    by_offset = {record.offset: record for batch in batches for record in decode_records(batch)}
    picked = data.draw(st.lists(st.sampled_from(sorted(by_offset)), min_size=1, max_size=30))
    names = sorted({name for record in by_offset.values() for name, _ in record.headers} | {""})
    dropped = data.draw(st.lists(st.sampled_from(names), max_size=HEADER_NAMES_MAX))
    added = data.draw(st.dictionaries(st.integers(0, len(picked) - 1), st.just((("why", b"x"), ("w", None)))))
    blocks = [RecordBlock(batch, data.draw(st.none() | st.just(array("q", sorted(set(picked)))))) for batch in batches]

    made = Batch(
        pick_batch(
            blocks,
            array("q", picked),
            drop=HeaderNames(*dropped),
            stamps=[Stamp("origin", array("q", picked), b"t/0/")],
            added=added,
            codec=data.draw(codecs),
            producer_id=2**62 + 1,
            producer_epoch=4,
            base_sequence=2**31 - 1,
        )
    )

    made.check()
    expected = [
        by_offset[offset]._replace(
            offset=index,
            headers=(
                *((name, value) for name, value in by_offset[offset].headers if name not in dropped),
                ("origin", b"t/0/%d" % offset),
                *added.get(index, ()),
            ),
        )
        for index, offset in enumerate(picked)
    ]
    assert expected == decode_records(made)
    assert (2**62 + 1, 4, 2**31 - 1) == (made.producer_id, made.producer_epoch, made.base_sequence)
    assert (0, len(picked) - 1, False, False) == (
        made.base_offset,
        made.last_offset_delta,
        made.is_control,
        made.is_transactional,
    )
    assert expected[0].timestamp == made.base_timestamp
    assert max(record.timestamp for record in expected) == made.max_timestamp


@given(record_lists(), codecs, st.data())
def test_a_block_has_the_records_that_were_asked_for(records: list[Record], codec: Codec, data: st.DataObject) -> None:
    offsets = [record.offset for record in records]
    asked = data.draw(st.none() | st.lists(st.sampled_from(offsets) | st.integers(0, 2**40), unique=True).map(sorted))
    batch = Batch(build_batch(records, codec=codec))
    block = RecordBlock(batch, None if asked is None else array("q", asked))
    expected = [record for record in records if asked is None or record.offset in asked]
    assert len(expected) == len(block) == block.count
    assert expected == [block.record(record.offset) for record in expected]
    assert [record.key for record in expected] == [block.key(record.offset) for record in expected]
    assert [record in expected for record in records] == [record.offset in block for record in records]
    ends = (expected[0].offset, expected[-1].offset) if expected else (-1, -1)
    assert ends == (block.first_offset, block.last_offset)


def simple_block(start: int, count: int, *, value: bytes = b"v") -> RecordBlock:
    return RecordBlock(Batch(build_batch([Record(start + at, 1000, b"k", value) for at in range(count)])))


def test_a_block_does_not_need_its_batch() -> None:
    buffer = bytearray(build_batch([Record(5, 1000, b"key", b"value", (("h", b"x"),))]))
    block = RecordBlock(Batch(buffer))
    buffer[:] = bytes(len(buffer))
    assert Record(5, 1000, b"key", b"value", (("h", b"x"),)) == block.record(5)


def test_a_missing_record_is_named() -> None:
    block = simple_block(10, 3)
    for offset in (9, 13, -1):
        with pytest.raises(MisuseError, match=f"offset {offset}"):
            block.record(offset)
        with pytest.raises(MisuseError, match=f"offset {offset}"):
            pick_batch([block, simple_block(20, 1)], array("q", [10, offset]), drop=NOTHING)
    with pytest.raises(MisuseError, match="offset 1"):
        pick_batch([], array("q", [1]), drop=NOTHING)


def test_a_batch_needs_a_record() -> None:
    with pytest.raises(MisuseError, match="0 records"):
        pick_batch([simple_block(0, 1)], array("q"), drop=NOTHING)


def test_blocks_must_be_in_order() -> None:
    with pytest.raises(MisuseError, match="overlap or are not in order"):
        pick_batch([simple_block(10, 3), simple_block(12, 3)], array("q", [10]), drop=NOTHING)


@pytest.mark.parametrize("codec", Codec)
def test_an_emptied_batch_makes_an_empty_block(codec: Codec) -> None:
    emptied = build_batch([], base_offset=7, last_offset_delta=4, codec=codec)
    block = RecordBlock(Batch(with_payload(emptied, b"", count=0)))
    assert (0, -1, -1, False) == (len(block), block.first_offset, block.last_offset, 7 in block)
    picked = pick_batch([block, simple_block(20, 1)], array("q", [20]), drop=NOTHING)
    assert [Record(0, 1000, b"k", b"v")] == decode_records(Batch(picked))


@given(st.lists(st.integers(0, 3000), min_size=1, max_size=20), st.integers(0, 20_000), st.integers(0, 100))
@example([0, 0, 0], 20_000, 0)
def test_what_fits_certainly_fits(sizes: list[int], bytes_max: int, added: int) -> None:
    blocks = [simple_block(10 * at, 1, value=b"x" * size) for at, size in enumerate(sizes)]
    offsets = array("q", range(0, 10 * len(sizes), 10))
    fitting = count_fitting(blocks, offsets, bytes_max, added_bytes=added)
    if fitting:
        stamped = Stamp("n", array("q", [1] * fitting), b"x" * max(0, added - 22)) if added >= 22 else None
        made = pick_batch(blocks, offsets[:fitting], drop=NOTHING, stamps=[stamped] if stamped else ())
        assert len(made) <= bytes_max
        assert count_fitting(blocks, offsets, len(made) - 1, added_bytes=added) < fitting
    if fitting < len(sizes):
        assert bytes_max < 61 + sum(sizes[: fitting + 1]) + (fitting + 1) * (added + 40)


@given(record_lists(), st.data())
def test_damaged_records_are_refused_or_read_as_others_read_them(records: list[Record], data: st.DataObject) -> None:
    payload = bytearray(Batch(whole := build_batch(records)).payload)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(payload) - 1))
        payload[at] = data.draw(st.integers(0, 255))
    batch = Batch(with_payload(whole, bytes(payload), count=data.draw(st.sampled_from([None, 0, 1, 2**31 - 1]))))
    try:
        expected = decode_records(batch)
    except OttlaError:
        with pytest.raises(OttlaError):
            RecordBlock(batch)
        return
    block = RecordBlock(batch)
    assert expected == [block.record(record.offset) for record in expected]


def test_damage_is_named() -> None:
    batch = build_batch([Record(7, 1000, b"k", b"v")])
    for count in (2, -1, 2**31 - 1):
        with pytest.raises(CorruptBatchError, match="base offset 7"):
            RecordBlock(Batch(broken(batch, 57, ">i", count)))


def test_numbers_in_more_bytes_than_they_need_are_read() -> None:
    """Varints may be padded: 0x80 0x00 is zero in two bytes."""
    body = b"\x00\x80\x00\x80\x00\x82\x00k\x82\x00v\x82\x00\x82\x00a\x82\x001"
    whole = build_batch([Record(7, 1000, b"k", b"v")])
    block = RecordBlock(Batch(with_payload(whole, bytes([2 * len(body)]) + body)))
    assert Record(7, 1000, b"k", b"v", (("a", b"1"),)) == block.record(7)
    made = pick_batch([block], array("q", [7]), drop=NOTHING)
    assert [Record(0, 1000, b"k", b"v", (("a", b"1"),))] == decode_records(Batch(made))


def test_many_blocks_are_searched_in_any_order() -> None:
    blocks = [simple_block(start, 7) for start in range(0, 10_000, 10)]
    offsets = array("q", [start + start // 10 % 7 for start in range(9_990, -1, -10)])
    made = Batch(pick_batch(blocks, offsets, drop=NOTHING, stamps=[Stamp("o", offsets)]))
    assert [(("o", b"%d" % offset),) for offset in offsets] == [record.headers for record in decode_records(made)]


def test_a_large_batch_is_written_without_the_gil_the_same_way() -> None:
    block = simple_block(0, 3000, value=b"x" * 100)
    made = Batch(pick_batch([block], array("q", range(2999, -1, -1)), drop=NOTHING))
    made.check()
    assert [Record(at, 1000, b"k", b"x" * 100) for at in range(3000)] == decode_records(made)
