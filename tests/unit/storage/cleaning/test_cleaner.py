"""Compaction of generated histories, judged by the model, and named cases one by one."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.errors import CorruptError
from ottla.model.ids import Offset, ProducerId
from ottla.records.decode import decode_records
from ottla.records.layout import Codec, Marker
from tests.effort import effort
from tests.unit.records.record_strategies import with_payload
from tests.unit.storage.cleaning.cleaner_model import CONFIG, RETENTION_MS, History
from tests.unit.storage.rig import batch

keys = st.sampled_from([b"a", b"b", b"c", b"d", b"e"])
values = st.sampled_from([b"x", b"y" * 40, None])
pair_lists = st.lists(st.tuples(keys, values), min_size=1, max_size=5)
codecs = st.sampled_from([Codec.NONE, Codec.NONE, Codec.LZ4, Codec.ZSTD, Codec.SNAPPY, Codec.GZIP])
plain_steps = st.tuples(st.just("append"), pair_lists, st.sampled_from([None, 1, 2]), codecs)
transaction_steps = st.tuples(st.just("transaction"), pair_lists, st.sampled_from([11, 12]), codecs)
end_steps = st.tuples(st.just("end"), st.sampled_from([11, 12]), st.sampled_from(Marker))
other_steps = st.tuples(st.sampled_from(["roll", "clean", "clean", "reopen", "wait"]))
histories = st.lists(plain_steps | plain_steps | transaction_steps | end_steps | other_steps, max_size=60)


def take(history: History, step: tuple[object, ...]) -> None:
    match step:
        case ("append", list(pairs), int() | None as producer, Codec() as codec):
            history.append(pairs, producer=producer, codec=codec)
        case ("transaction", list(pairs), int(producer), Codec() as codec):
            history.append_in_transaction(pairs, producer=producer, codec=codec)
        case ("end", int(producer), Marker() as marker):
            history.end_transaction(producer, marker)
        case ("roll",):
            history.roll()
        case ("clean",):
            history.clean()
            history.check()
        case ("reopen",):
            history.reopen()
        case ("wait",):
            history.clock.advance(RETENTION_MS / 2000)
        case _:
            raise AssertionError(step)


@effort(150)
@given(histories, st.sampled_from([1 << 16, 24 * 20]))
def test_what_is_left_of_any_history_is_what_the_model_allows(steps: list[tuple[object, ...]], map_bytes: int) -> None:
    history = History(map_bytes=map_bytes)
    for step in steps:
        take(history, step)
    history.roll()
    history.clean()
    history.check()
    history.unlink_doomed()
    history.check_retries()
    history.reopen()
    history.check()
    history.check_retries()


def test_the_last_value_of_each_key_stays_at_its_offset() -> None:
    history = History()
    for round_number in range(5):
        history.append([(key, b"%d" % round_number) for key in (b"a", b"b", b"c")])
    history.append([(b"d", b"once")])
    history.roll()
    report = history.clean()
    history.check()
    left = [record.offset for batch in history.batches() for record in decode_records(batch)]
    assert [12, 13, 14, 15] == left
    assert (16, 4, 12, 4) == (
        report.next_dirty_offset,
        report.records_kept,
        report.records_removed,
        report.keys_mapped,
    )


def test_cleaned_neighbours_become_one_segment_with_the_first_base() -> None:
    history = History()
    for number in range(60):
        history.append([(b"%d" % (number % 5), b"v" * 20)])
    history.append([(b"last", b"v")])
    history.roll()
    history.clean()
    sizes = [segment.size_bytes for segment in history.log.segments]
    report = history.clean()
    history.check()
    bases = [segment.base_offset for segment in history.log.segments]
    assert (len(sizes) - 1, len(bases) - 1) == (report.segments_before, report.segments_after)
    assert len(bases) < len(sizes)
    assert (0, 61) == (bases[0], bases[-1])
    names = {name.partition(".")[0] for name in history.disk.list_dir(history.log.folder) if name.endswith(".snapshot")}
    assert {f"{base:020d}" for base in bases[1:]} == names, "snapshots of segments that are gone must go"


def test_a_second_cleaning_finds_nothing_to_do() -> None:
    history = History()
    for number in range(40):
        history.append([(b"%d" % (number % 7), b"v" * 20)], producer=1)
    history.append_in_transaction([(b"t", b"1")], producer=11)
    history.end_transaction(11, Marker.ABORT)
    history.roll()
    history.clean()
    history.clean()
    before = [bytes(batch.buffer) for batch in history.batches()]
    report = history.clean()
    history.check()
    assert before == [bytes(batch.buffer) for batch in history.batches()]
    assert 0 == report.records_removed
    assert report.segments_before == report.segments_after


def test_a_segment_that_stays_as_it_is_is_not_written() -> None:
    history = History()
    for number in range(40):
        history.append([(b"%d" % number, b"v" * 200)])
    history.append([(b"39", b"w" * 200)])
    history.roll()
    sizes = [segment.size_bytes for segment in history.log.segments]
    first = history.log.segments[0]
    report = history.clean()
    history.check()
    assert first is history.log.segments[0]
    assert sum(sizes) / 10 > report.bytes_written > 0


def test_a_change_late_in_a_large_segment_keeps_what_was_before_it() -> None:
    history = History(config=replace(CONFIG, segment_bytes=8 << 20))
    for key in (b"a", b"b", b"c", b"d", b"e"):
        history.append([(key, key * 600_000)])
    history.append([(b"d", b"new")])
    history.roll()
    history.clean()
    history.check()
    assert [0, 1, 2, 4, 5] == offsets_left(history)


def test_a_tombstone_goes_only_after_its_horizon() -> None:
    history = History()
    history.append([(b"a", b"v"), (b"b", b"v")])
    history.append([(b"a", None)])
    history.roll()
    history.clean()
    assert [1, 2] == offsets_left(history)
    history.clock.advance((RETENTION_MS - 1) / 1000)
    history.clean()
    assert [1, 2] == offsets_left(history)
    history.clock.advance(0.001)
    history.clean()
    history.check()
    assert [1] == offsets_left(history)


def offsets_left(history: History) -> list[int]:
    return [record.offset for batch in history.batches() if not batch.is_control for record in decode_records(batch)]


def markers_left(history: History) -> list[int]:
    return [batch.base_offset for batch in history.batches() if batch.is_control and batch.count]


def test_markers_outlive_their_transactions_records_by_a_horizon() -> None:
    history = History()
    history.append_in_transaction([(b"a", b"1")], producer=11)
    history.end_transaction(11, Marker.ABORT)
    history.append_in_transaction([(b"b", b"1")], producer=11)
    history.end_transaction(11, Marker.COMMIT)
    history.append_in_transaction([(b"b", b"2")], producer=11)
    history.end_transaction(11, Marker.COMMIT)
    history.append([(b"z", b"z")])
    history.roll()
    history.clean()
    assert ([4, 6], [1, 3, 5]) == (offsets_left(history), markers_left(history))
    history.clock.advance(1)
    history.clean()
    assert ([4, 6], [1, 3, 5]) == (offsets_left(history), markers_left(history)), "the horizon is only set now"
    history.clock.advance(1)
    history.clean()
    history.check()
    assert ([4, 6], [5]) == (offsets_left(history), markers_left(history))


def test_a_marker_that_is_all_that_is_known_of_a_producer_stays() -> None:
    history = History()
    history.end_transaction(11, Marker.COMMIT)
    history.append([(b"a", b"1")])
    history.roll()
    for _ in range(4):
        history.clean()
        history.clock.advance(1)
    assert [0] == markers_left(history)
    history.log.producers.expire(history.now, 1)
    for _ in range(4):
        history.clean()
        history.clock.advance(1)
    assert [] == markers_left(history)


def test_an_open_transaction_stops_the_cleaning_where_it_begins() -> None:
    history = History()
    history.append([(b"a", b"1")])
    history.roll()
    history.append([(b"a", b"2")])
    history.append_in_transaction([(b"a", b"3")], producer=11)
    history.append([(b"a", b"4")])
    history.roll()
    assert 1 == history.clean().next_dirty_offset
    history.check()
    history.end_transaction(11, Marker.ABORT)
    history.roll()
    assert 5 == history.clean().next_dirty_offset
    history.check()
    assert [3] == offsets_left(history)


def test_an_aborted_record_whose_marker_lies_beyond_the_cleaned_part_goes() -> None:
    history = History()
    history.append([(b"a", b"1")])
    history.append_in_transaction([(b"a", b"2")], producer=11)
    history.roll()
    history.append_in_transaction([(b"b", b"3")], producer=12)
    history.end_transaction(11, Marker.ABORT)
    assert 2 == history.clean().next_dirty_offset
    history.check()
    assert [0, 2] == offsets_left(history)


def test_the_last_batch_of_a_known_producer_stays_without_its_records() -> None:
    history = History()
    history.append([(b"a", b"1"), (b"b", b"1")], producer=1)
    history.append([(b"a", b"2"), (b"b", b"2")])
    history.roll()
    history.clean()
    history.check()
    emptied, _ = history.batches()
    assert (0, 1, 1, 0) == (emptied.base_offset, emptied.last_offset, emptied.last_sequence, emptied.count)
    entry = history.log.producers.get(ProducerId(1))
    history.disk.remove("/data/events-0/00000000000000000004.snapshot")
    history.flush()
    history.crash(recovery_point=Offset(0))
    assert entry == history.log.producers.get(ProducerId(1))
    history.check_retries()
    history.clock.advance(1)
    history.log.producers.expire(history.now, 1)
    history.clean()
    assert [2] == [batch.base_offset for batch in history.batches()]


def test_a_cleaned_segment_ends_where_its_sources_did() -> None:
    history = History()
    for value in (b"1" * 250, b"2" * 250):
        history.append([(b"a", value)])
        history.append([(b"b", value)])
        history.roll()
    history.clean()
    history.check()
    assert [(1, 1, 0), (2, 2, 1), (3, 3, 1)] == [
        (batch.base_offset, batch.last_offset, batch.count) for batch in history.batches()
    ]


def test_a_small_map_needs_several_rounds_and_ends_at_the_same() -> None:
    large, small = History(), History(map_bytes=24 * 20)
    for history in (large, small):
        for number in range(120):
            history.append([(b"%d" % (number * 7 % 40), b"v"), (b"%d" % (number % 33), b"w")])
        history.roll()
    large.clean()
    rounds = 0
    while small.checkpoint != large.checkpoint:
        small.clean()
        small.check()
        rounds += 1
        assert rounds < 60
    assert rounds > 2
    assert offsets_left(large) == offsets_left(small)


def test_records_without_a_key_go() -> None:
    history = History(config=replace(CONFIG, cleanup_compact=False))
    history.append([(b"a", b"1"), (None, b"x")])
    history.append([(None, b"y"), (b"c", b"1")])
    history.roll()
    history.clean()
    history.check()
    assert [0, 3] == offsets_left(history)


def test_a_damaged_batch_stops_the_cleaning_and_is_named() -> None:
    history = History()
    for number in range(30):
        history.append([(b"%d" % (number % 3), b"v" * 30)])
    history.roll()
    path = history.log.segments[1].log_path
    before = [segment.base_offset for segment in history.log.segments]
    history.disk.flip(path, 150, 3)
    with pytest.raises(CorruptError, match=r"00000000000000000\d+\.log, byte \d+"):
        history.clean()
    assert before == [segment.base_offset for segment in history.log.segments]
    assert [history.log] == list(history.cleaner.uncleanable)
    assert history.log.health.damage is not None
    assert None is history.cleaner.cleanable([history.log], history.now)
    assert [] == [name for name in history.disk.list_dir(history.log.folder) if "cleaned" in name]
    history.append([(b"a", b"still")])


def test_a_batch_that_never_made_sense_stops_the_cleaning_and_is_no_damage() -> None:
    """It is what a client wrote, before the topic was compacted, say; so other replicas have nothing better."""
    history = History()
    history.append([(b"a", b"1")])
    senseless = with_payload(bytes(batch(b"v", codec=Codec.GZIP, base_offset=1, leader_epoch=1).buffer), b"no gzip")
    history.log.append_as_follower(memoryview(senseless), now=history.now)
    history.log.advance_high_watermark(history.log.end_offset)
    history.roll()
    with pytest.raises(CorruptError, match=r"0{20}\.log, byte \d+"):
        history.clean()
    assert ([history.log], None) == (list(history.cleaner.uncleanable), history.log.health.trouble)
    assert None is history.cleaner.cleanable([history.log], history.now)
