"""The columnar kernel's reading side, against the record reader."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.errors import BatchTooLargeError, CorruptBatchError, MisuseError
from ottla.records.batch import Batch
from ottla.records.builder import BatchBuilder, build_batch
from ottla.records.columns import decode
from ottla.records.control import marker_batch
from ottla.records.layout import COUNT_AT, Codec, Marker
from ottla.records.record import Record
from tests.unit.records.record_strategies import broken, codecs, record_lists
from tests.unit.records.unpacked_columns import records_of

pytestmark = pytest.mark.slow


def batch_at(offset: int, count: int = 3, *, codec: Codec = Codec.NONE) -> bytes:
    records = [Record(offset + index, 100 + index, b"k%d" % index, b"value") for index in range(count)]
    return build_batch(records, codec=codec)


@given(st.lists(st.tuples(record_lists(max_size=10), codecs), max_size=6))
def test_all_records_of_all_batches(parts: list[tuple[list[Record], Codec]]) -> None:
    log = b"".join(build_batch(records, codec=codec) for records, codec in parts)
    columns = decode(log)
    assert [record for records, _ in parts for record in records] == records_of(columns)
    assert (len(log), None) == (columns.consumed_bytes, columns.error)


@given(record_lists(), codecs, st.integers(-3, 70), st.integers(-3, 70))
def test_a_range_of_offsets(records: list[Record], codec: Codec, first: int, end: int) -> None:
    base = records[0].offset
    start_offset, end_offset = max(base + first, 0), max(base + end, 0)
    columns = decode(build_batch(records, codec=codec), start_offset=start_offset, end_offset=end_offset)
    assert [record for record in records if start_offset <= record.offset < end_offset] == records_of(columns)


@given(record_lists(), codecs)
def test_without_headers(records: list[Record], codec: Codec) -> None:
    columns = decode(build_batch(records, codec=codec), headers=False)
    assert columns.headers is None
    assert [record._replace(headers=()) for record in records] == records_of(columns)


def test_nothing() -> None:
    columns = decode(b"", start_offset=17)
    assert ([], 17, 0, None) == (records_of(columns), columns.next_offset, columns.consumed_bytes, columns.error)


@pytest.mark.parametrize("cut", [0, 5, 40, 61, 80])
def test_a_cut_off_batch_waits_for_the_next_fetch(cut: int) -> None:
    first, second = batch_at(10), batch_at(13)
    columns = decode(first + second[:cut])
    assert (3, 13, len(first), None) == (columns.count, columns.next_offset, columns.consumed_bytes, columns.error)


def test_from_a_position() -> None:
    columns = decode(b"junk" + batch_at(10), 4)
    assert (3, len(batch_at(10))) == (columns.count, columns.consumed_bytes)
    with pytest.raises(MisuseError, match="position 5 lies outside the buffer of 4 bytes"):
        decode(b"junk", 5)


def test_the_next_offset_is_behind_gaps_and_emptied_batches() -> None:
    emptied = BatchBuilder(base_offset=13).build(last_offset_delta=9)
    columns = decode(batch_at(10) + emptied)
    assert (3, 23) == (columns.count, columns.next_offset)


def test_a_batch_before_the_wanted_offset_is_passed_over() -> None:
    columns = decode(batch_at(10) + batch_at(13), start_offset=14)
    assert ([14, 15], 16) == ([record.offset for record in records_of(columns)], columns.next_offset)
    assert 20 == decode(batch_at(10), start_offset=20).next_offset


def test_the_end_offset_ends_the_walk() -> None:
    log = batch_at(10) + batch_at(13) + b"\xff" * 200
    columns = decode(log, end_offset=13)
    assert ([10, 11, 12], 13) == ([record.offset for record in records_of(columns)], columns.next_offset)
    assert len(batch_at(10)) == columns.consumed_bytes
    columns = decode(batch_at(10) + batch_at(13), end_offset=14)
    assert (4, 14) == (columns.count, columns.next_offset)


def test_append_time_counts_for_all_records() -> None:
    data = bytearray(batch_at(0))
    Batch(data).stamp_append_time(777)
    assert [777] * 3 == [record.timestamp for record in records_of(decode(data))]


def test_control_batches_are_left_out() -> None:
    marker = marker_batch(
        Marker.COMMIT, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp=0, base_offset=13
    )
    columns = decode(batch_at(10) + marker)
    assert (3, 14, len(batch_at(10)) + len(marker)) == (columns.count, columns.next_offset, columns.consumed_bytes)


@pytest.mark.parametrize("codec", Codec)
def test_damage_behind_good_batches_stops_there_and_is_raised_next(codec: Codec) -> None:
    good, bad = batch_at(10, codec=codec), bytearray(batch_at(13, codec=codec))
    bad[-1] ^= 0xFF
    columns = decode(good + bad + batch_at(16))
    assert (3, 13, len(good)) == (columns.count, columns.next_offset, columns.consumed_bytes)
    assert isinstance(columns.error, CorruptBatchError)
    with pytest.raises(CorruptBatchError, match="base offset 13"):
        decode(good + bad, columns.consumed_bytes)


def test_damage_in_the_middle_of_a_batch_leaves_nothing_of_it() -> None:
    records = [Record(13 + index, 0, None, None, (("h", None),)) for index in range(20)]
    bad = broken(build_batch(records), COUNT_AT, ">i", 19)
    columns = decode(batch_at(10) + bad)
    assert [10, 11, 12] == [record.offset for record in records_of(columns)]
    assert (0, 0, 0) == (columns.keys.null_count, columns.values.null_count, columns.headers and columns.headers.count)


def test_the_checksum_is_looked_at_only_if_asked() -> None:
    data = bytearray(batch_at(10))
    data[17] ^= 1
    with pytest.raises(CorruptBatchError, match="fails its checksum"):
        decode(data)
    assert 3 == decode(data, check_crc=False).count


@pytest.mark.parametrize("codec", Codec)
def test_the_limit_is_for_all_batches_together(codec: Codec) -> None:
    size = len(batch_at(10)) - 61
    log = b"".join(batch_at(10 * index, codec=codec) for index in range(1, 5))
    columns = decode(log, limit=2 * size + 1)
    assert (6, 23) == (columns.count, columns.next_offset)
    assert isinstance(columns.error, BatchTooLargeError)
    again = decode(log, columns.consumed_bytes, limit=2 * size)
    assert (6, 43, None) == (again.count, again.next_offset, again.error)
    with pytest.raises(BatchTooLargeError, match="base offset 10"):
        decode(log, limit=size - 1)


def test_aborted_transactions_are_left_out() -> None:
    def data(offset: int, producer_id: int) -> bytes:
        return build_batch([Record(offset, 0, None, b"x")], producer_id=producer_id, transactional=True)

    def marker(offset: int, producer_id: int, kind: Marker) -> bytes:
        return marker_batch(
            kind, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp=0, base_offset=offset
        )

    log = (
        data(0, 1) + data(1, 2) + marker(2, 1, Marker.ABORT) + data(3, 1) + marker(4, 2, Marker.COMMIT) + batch_at(5, 1)
    )
    assert [0, 1, 3, 5] == [record.offset for record in records_of(decode(log))]
    columns = decode(log, aborted=[(1, 0)])
    assert ([1, 3, 5], 6) == ([record.offset for record in records_of(columns)], columns.next_offset)
    assert [0, 1, 5] == [record.offset for record in records_of(decode(log, aborted=[(1, 3)]))]


def test_many_batches_make_one_set_of_columns() -> None:
    log = b"".join(batch_at(3 * index, codec=Codec.ZSTD if index % 7 == 0 else Codec.NONE) for index in range(3000))
    columns = decode(log)
    assert list(range(9000)) == memoryview(columns.offsets).cast("B").cast("q").tolist()


def test_large_records() -> None:
    value = bytes(range(256)) * 20_000
    records = [Record(index, 0, value[:index], value, (("h" * 300, value[:1000]),)) for index in range(3)]
    assert records == records_of(decode(build_batch(records)))


def test_columns_outlive_what_they_came_from_and_each_other() -> None:
    """Memory is reused, but never while anybody looks at it."""
    kept = []
    for round_number in range(20):
        records = [Record(index, round_number, None, b"%d" % round_number * 500) for index in range(400)]
        kept.append((records, decode(bytearray(build_batch(records)))))
        if round_number % 3 == 0:
            kept.pop(0)
    for records, columns in kept:
        assert records == records_of(columns)


def test_threads_may_decode_at_once() -> None:
    def work(number: int) -> bool:
        records = [Record(index, number, b"%d" % number, b"v" * 1000) for index in range(300)]
        data = build_batch(records)
        return all(records == records_of(decode(data)) for _ in range(10))

    with ThreadPoolExecutor(4) as pool:
        assert [True] * 8 == list(pool.map(work, range(8)))
