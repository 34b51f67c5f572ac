"""A log's life: appending as leader and follower, rolling, bounds, transactions, truncating, deleting, closing."""

import dataclasses
import errno
import os

import pytest

from ottla.model.errors import (
    CorruptBatchError,
    InvalidProducerEpochError,
    OffsetOutOfRangeError,
    OttlaError,
    OutOfOrderSequenceError,
    StorageError,
)
from ottla.model.ids import LeaderEpoch, Offset, TimestampMs
from ottla.model.invariants import InvariantViolation
from ottla.records.batch import Batch, scan
from ottla.records.control import read_marker
from ottla.records.layout import Marker, TimestampType
from ottla.sim.disk import SimDisk
from ottla.sim.handles import SimFile
from ottla.storage.log import Log
from ottla.storage.log_config import LogConfig
from ottla.storage.segments.closed_segments import OffsetRange
from ottla.storage.segments.offset_index import OffsetIndex, OffsetPosition
from tests.unit.storage.rig import (
    CONFIG,
    EPOCH,
    NOW,
    P0,
    append,
    batch,
    close,
    fill,
    mark,
    new_log,
    open_store,
    placed,
    read_all,
    read_from,
    values,
)


def numbered(count: int, first: int = 0) -> list[bytes | None]:
    return [b"value %04d" % number for number in range(first, count)]


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


class TestAppending:
    def test_places_and_stamps(self) -> None:
        log = new_log()
        assert [placed(0, 1), placed(2, 2)] == append(log, batch(b"a", b"b"), batch(b"c"))
        assert (3, 0, 0) == (log.end_offset, log.high_watermark, log.start_offset)
        assert [(0, 1), (2, 2)] == [stored[:2] for stored in read_all(log)]
        assert {EPOCH: 0} == log.epochs.starts
        assert [b"a", b"b", b"c"] == values(log)

    def test_nothing(self) -> None:
        assert [] == new_log().append([], leader_epoch=EPOCH, now=NOW)

    def test_append_time(self) -> None:
        log = new_log(config=LogConfig(timestamp_type=TimestampType.LOG_APPEND_TIME))
        (appended,) = append(log, batch(timestamp=5), now=TimestampMs(NOW + 7))
        assert NOW + 7 == appended.append_time
        assert (NOW + 7, 0) == log.largest_timestamp()

    def test_many_batches_in_one_call_over_segments(self) -> None:
        log = new_log()
        append(log, *(batch(b"value %04d" % number, timestamp=NOW + number) for number in range(30)))
        assert list(range(0, 30, 4)) == bases(log)
        assert numbered(30) == values(log)

    @pytest.mark.parametrize("timestamp_type", TimestampType)
    def test_batches_one_by_one_are_stored_as_in_one_call(self, timestamp_type: TimestampType) -> None:
        config = dataclasses.replace(CONFIG, timestamp_type=timestamp_type)
        together, alone = new_log(config=config), new_log(config=config)
        epochs = [LeaderEpoch(3), LeaderEpoch(5)]
        for number, epoch in enumerate(epochs):
            contents = [batch(b"value %04d" % each, timestamp=NOW + each) for each in range(15)]
            copies = [Batch(bytearray(each.buffer)) for each in contents]
            now = TimestampMs(NOW + number)
            results = together.append(contents, leader_epoch=epoch, now=now)
            assert results == [found for each in copies for found in alone.append([each], leader_epoch=epoch, now=now)]
        assert (30, {3: 0, 5: 15}) == (alone.end_offset, alone.epochs.starts)
        assert together.epochs.starts == alone.epochs.starts
        assert bases(together) == bases(alone)
        assert read_all(together) == read_all(alone)

    def test_retries_and_gaps_in_one_call(self) -> None:
        log = new_log()
        results = log.append(
            [
                batch(b"a", producer_id=5, sequence=0),
                batch(b"a", producer_id=5, sequence=0),
                batch(b"x", producer_id=5, sequence=7),
                batch(b"b", producer_id=5, sequence=1),
            ],
            leader_epoch=EPOCH,
            now=NOW,
        )
        assert placed(0, 0) == results[0]
        assert placed(0, 0, is_duplicate=True) == results[1]
        assert isinstance(results[2], OutOfOrderSequenceError)
        assert placed(1, 1) == results[3]
        assert [b"a", b"b"] == values(log)

    def test_the_high_watermark_stays_within_the_log(self) -> None:
        log = new_log()
        append(log, batch())
        log.advance_high_watermark(Offset(1))
        log.advance_high_watermark(Offset(0))
        assert 1 == log.high_watermark
        with pytest.raises(InvariantViolation, match="beyond the end"):
            log.advance_high_watermark(Offset(2))


class TestRolling:
    def test_by_time_of_the_records(self) -> None:
        log = new_log(config=LogConfig(segment_ms=1000))
        for timestamp in (0, 1000, 1001, 500):
            append(log, batch(timestamp=NOW + timestamp))
        assert [0, 2] == bases(log)

    def test_by_the_clock_without_timestamps(self) -> None:
        log = new_log(config=LogConfig(segment_ms=1000))
        for waited in (0, 1000, 1001):
            append(log, batch(timestamp=-1), now=TimestampMs(NOW + waited))
        assert [0, 2] == bases(log)

    def test_by_a_full_index(self) -> None:
        log = new_log(config=LogConfig(index_interval_bytes=1, segment_index_bytes=48))
        fill(log, 20)
        assert len(bases(log)) > 2
        assert numbered(20) == values(log)

    def test_an_index_too_small_for_anything(self) -> None:
        log = new_log(config=LogConfig(index_interval_bytes=1, segment_index_bytes=4))
        fill(log, 6)
        append(log, *(batch(b"value %04d" % number) for number in range(6, 12)))
        assert numbered(12) == values(log)

    def test_by_offsets_that_do_not_fit(self) -> None:
        log = new_log()
        far = 2**31 + 5
        assert 1 == log.append_as_follower(batch(base_offset=0).buffer, now=NOW)
        assert 1 == log.append_as_follower(batch(base_offset=far).buffer, now=NOW)
        assert ([0, far], far + 1) == (bases(log), log.end_offset)
        assert far == read_from(log, far)[0].base_offset

    def test_an_empty_segment_stays(self) -> None:
        log = new_log()
        log.roll(NOW)
        assert [0] == bases(log)


class TestTheEndOfAGap:
    def test_a_control_batch_follows_lost_records(self) -> None:
        log = new_log()
        fill(log, 3)
        log.end_gap(leader_epoch=EPOCH, now=NOW)
        assert 3 == log.end_offset
        log.lost = (OffsetRange(Offset(3), Offset(9)),)
        log.roll(NOW, base_offset=Offset(9))
        assert (3, 9) == (log.readable_end, log.end_offset)
        for _ in range(2):
            log.end_gap(leader_epoch=EPOCH, now=NOW)
            assert (10, 10) == (log.readable_end, log.end_offset)
        log.advance_high_watermark(log.end_offset)
        (stored,) = read_from(log, 3)
        assert (9, 9, True) == (stored.base_offset, stored.last_offset, Batch(stored.content).is_control)
        assert (0, None) == (len(log.producers), read_marker(Batch(stored.content)))


class TestFollowing:
    def run(self, *batches: Batch) -> memoryview:
        return memoryview(b"".join(bytes(each.buffer) for each in batches))

    def test_offsets_and_epochs_are_kept(self) -> None:
        log = new_log()
        run = self.run(batch(base_offset=5, leader_epoch=1), batch(b"a", b"b", base_offset=9, leader_epoch=4))
        assert 2 == log.append_as_follower(run, now=NOW)
        assert ([(5, 5), (9, 10)], {1: 5, 4: 9}) == ([stored[:2] for stored in read_all(log)], log.epochs.starts)

    def test_a_cut_off_last_batch_is_left(self) -> None:
        log = new_log()
        run = self.run(batch(base_offset=0), batch(base_offset=1))
        assert 1 == log.append_as_follower(run[:-1], now=NOW)
        assert 1 == log.append_as_follower(run[len(run) // 2 :], now=NOW)
        assert 2 == log.end_offset

    def test_a_step_back_is_refused(self) -> None:
        """So is the batch before it that left the gap: a disk of the leader wrote both to the wrong place."""
        log = new_log()
        run = self.run(*(batch(base_offset=at) for at in (0, 1, 4, 3)))
        assert 2 == log.append_as_follower(run, now=NOW)
        with pytest.raises(CorruptBatchError, match="offset 3 is below the expected offset 5"):
            log.append_as_follower(run[len(run) // 2 :], now=NOW)
        assert 2 == log.end_offset

    def test_a_repeated_batch_is_refused_in_both_places(self) -> None:
        log = new_log()
        with pytest.raises(CorruptBatchError, match="offset 1 is below the expected offset 2"):
            log.append_as_follower(self.run(*(batch(base_offset=at) for at in (0, 1, 1, 3))), now=NOW)
        assert 1 == log.end_offset

    def test_a_gap_is_accepted_once_the_leader_was_asked_for_it(self) -> None:
        log = new_log()
        run = self.run(*(batch(base_offset=at) for at in (0, 2, 5, 6)))
        assert 1 == log.append_as_follower(run, now=NOW)
        assert 3 == log.append_as_follower(run[len(run) // 4 :], now=NOW)
        assert [0, 2, 5, 6] == [stored.base_offset for stored in read_all(log)]

    def test_damage_is_refused(self) -> None:
        log = new_log()
        rotten = bytearray(self.run(batch(base_offset=0), batch(base_offset=1)))
        rotten[-1] ^= 1
        with pytest.raises(CorruptBatchError, match=r"after offset 1: .*checksum"):
            log.append_as_follower(memoryview(rotten), now=NOW)
        assert 1 == log.end_offset

    def test_the_same_bytes_as_the_leader(self) -> None:
        leader, follower = new_log(), new_log()
        append(leader, batch(producer_id=1, sequence=0, transactional=True), batch(b"plain"))
        mark(leader, Marker.ABORT, 1)
        fill(leader, 9)
        run = b"".join(stored.content for stored in read_all(leader))
        follower.append_as_follower(memoryview(run), now=NOW)
        assert read_all(leader) == read_all(follower)
        assert leader.epochs.starts == follower.epochs.starts
        assert leader.aborted_transactions(Offset(0), Offset(9)) == follower.aborted_transactions(Offset(0), Offset(9))
        assert list(leader.producers) == list(follower.producers)


class TestReading:
    def test_outside(self) -> None:
        log = new_log()
        fill(log, 3)
        for offset in (-1, 4):
            with pytest.raises(OffsetOutOfRangeError, match=f"offset {offset} is outside the log, 0 to 3"):
                log.read(Offset(offset), 100)
        assert log.read(Offset(3), 100) is None

    def test_not_beyond_the_high_watermark(self) -> None:
        log = new_log()
        append(log, batch(b"a"), batch(b"b"))
        assert log.read(Offset(0), 10**6) is None
        log.advance_high_watermark(Offset(1))
        found = log.read(Offset(0), 10**6)
        assert found is not None
        assert log.size_bytes // 2 == found.size
        assert log.read(Offset(1), 10**6) is None

    def test_a_range_outlives_its_segment(self) -> None:
        log = new_log()
        fill(log, 9)
        found = log.read(Offset(0), 10**6)
        assert found is not None
        log.advance_start(log.segments[1].base_offset)
        assert 1 == log.delete_below_start()
        assert found.size == len(found.file.read_at(found.position, found.size))

    def test_timestamps(self) -> None:
        log = new_log()
        assert (None, None) == (log.find_timestamp(TimestampMs(0)), log.largest_timestamp())
        for timestamp in (100, 300, 200, 300, 50):
            append(log, batch(b"a", timestamp=timestamp))
        found = [log.find_timestamp(TimestampMs(timestamp)) for timestamp in (1, 101, 201, 300, 301)]
        assert [(100, 0), (300, 1), (300, 1), (300, 1), None] == found
        assert (300, 1) == log.largest_timestamp()
        log.advance_high_watermark(Offset(5))
        log.advance_start(Offset(2))
        assert (300, 3) == log.largest_timestamp()
        assert (200, 2) == log.find_timestamp(TimestampMs(150))


class TestTransactions:
    def test_the_last_stable_offset(self) -> None:
        log = new_log()
        fill(log, 1)
        append(log, batch(producer_id=1, sequence=0, transactional=True), batch(b"x"))
        log.advance_high_watermark(Offset(3))
        assert 1 == log.last_stable_offset
        mark(log, Marker.COMMIT, 1)
        assert 1 == log.last_stable_offset
        log.advance_high_watermark(Offset(4))
        assert 4 == log.last_stable_offset
        assert [] == log.aborted_transactions(Offset(0), Offset(4))

    def test_an_abort_that_was_cut_off_is_forgotten(self) -> None:
        log = new_log()
        append(log, batch(b"a", producer_id=5, sequence=0, transactional=True))
        mark(log, Marker.ABORT, 5)
        assert [5] == [aborted.producer_id for aborted in log.aborted_transactions(Offset(0), Offset(9))]
        log.truncate_to(Offset(1), now=NOW)
        append(log, batch(b"b"), batch(b"c"))
        assert [] == log.aborted_transactions(Offset(0), Offset(9))
        mark(log, Marker.COMMIT, 5)
        assert [] == log.aborted_transactions(Offset(0), Offset(9))

    def test_fenced_markers_write_nothing(self) -> None:
        log = new_log()
        append(log, batch(producer_id=1, epoch=3, sequence=0, transactional=True))
        with pytest.raises(InvalidProducerEpochError):
            mark(log, Marker.ABORT, 1, epoch=2)
        assert 1 == log.end_offset

    def test_aborted_ones_across_segments(self) -> None:
        log = new_log()
        append(log, batch(producer_id=1, sequence=0, transactional=True))
        fill(log, 9)
        mark(log, Marker.ABORT, 1)
        assert len(log.segments) > 2
        for start, upper, expected in ((0, 1, 1), (0, 99, 1), (10, 99, 1), (11, 99, 0), (0, 0, 0)):
            assert expected == len(log.aborted_transactions(Offset(start), Offset(upper)))

    def test_a_range_comes_with_those_that_it_needs_and_not_with_all_ahead(self) -> None:
        log = new_log(config=LogConfig(index_interval_bytes=200))
        for producer_id in range(1, 101):
            append(log, batch(b"v" * 50, producer_id=producer_id, sequence=0, transactional=True))
            if producer_id > 3:
                mark(log, Marker.ABORT, producer_id - 3)
        everything = log.aborted_transactions(Offset(0), Offset(log.end_offset))
        assert 97 == len(everything)
        for start in range(0, log.end_offset, 7):
            found = log.read(Offset(start), 500, upper=log.end_offset)
            assert found is not None
            batches, _, _ = scan(found.file.read_at(found.position, found.size))
            needed = log.aborted_transactions(Offset(start), Offset(batches[-1].next_offset))
            told = log.aborted_transactions(Offset(start), log.end_offset, found)
            assert needed == told[: len(needed)]
            assert len(told) <= len(needed) + 8
            assert [] == log.aborted_transactions(Offset(start), Offset(0), found)

    def test_an_index_that_lies_hides_no_aborted_transaction(self, monkeypatch: pytest.MonkeyPatch) -> None:
        log = new_log(config=LogConfig(index_interval_bytes=1))
        for producer_id in range(1, 11):
            append(log, batch(b"v", producer_id=producer_id, sequence=0, transactional=True))
        for producer_id in range(1, 11):
            mark(log, Marker.ABORT, producer_id)
        found = log.read(Offset(0), 10_000, upper=Offset(9))
        assert found is not None
        monkeypatch.setattr(OffsetIndex, "behind", lambda self, position: OffsetPosition(Offset(0), 1))
        assert 9 <= len(log.aborted_transactions(Offset(0), Offset(20), found))


class TestTruncating:
    @pytest.mark.parametrize("end", range(1, 10))
    def test_to_every_offset(self, end: int) -> None:
        disk = SimDisk()
        store = open_store(disk)
        log = store.create(P0)
        for number in range(10):
            append(log, batch(b"value %04d" % number, producer_id=1, sequence=number), epoch=LeaderEpoch(number // 3))
        log.advance_high_watermark(Offset(10))
        assert log.truncate_to(Offset(end), now=NOW)
        assert not log.truncate_to(Offset(end), now=NOW)
        assert (end, end) == (log.end_offset, log.high_watermark)
        assert numbered(end) == values(log)
        assert (end - 1) // 3 == log.epochs.latest
        append(log, batch(b"new", producer_id=1, sequence=end), epoch=LeaderEpoch(9))
        assert [*numbered(end), b"new"] == values(log)
        close(store)
        again = open_store(disk).get(P0)
        assert [*numbered(end), b"new"] == values(again)
        assert end == again.epochs.starts[LeaderEpoch(9)]

    def test_fully(self) -> None:
        log = new_log()
        fill(log, 10)
        log.truncate_fully(Offset(500), now=NOW)
        assert (500, 500, 500, 500) == (log.start_offset, log.high_watermark, log.end_offset, log.recovery_point)
        assert ({}, 0) == (log.epochs.starts, len(log.producers))
        fill(log, 2)
        assert [500, 501] == [stored.base_offset for stored in read_all(log)]

    def test_within_a_batch_takes_it_whole(self) -> None:
        log = new_log()
        append(log, batch(b"a"), batch(b"b", b"c"))
        log.truncate_to(Offset(2), now=NOW)
        assert (1, [b"a"]) == (log.end_offset, values(log))


class TestMovingTheStart:
    def test_up_to_the_high_watermark(self) -> None:
        log = new_log()
        fill(log, 10)
        log.advance_start(Offset(6))
        assert (6, [0, 4, 8]) == (log.start_offset, bases(log))
        assert 1 == log.delete_below_start()
        assert (6, [4, 8]) == (log.start_offset, bases(log))
        assert {EPOCH: 6} == log.epochs.starts
        with pytest.raises(OffsetOutOfRangeError):
            log.read(Offset(5), 1)
        assert 6 == read_from(log, 6)[0].base_offset
        with pytest.raises(OffsetOutOfRangeError, match="above the high watermark 10"):
            log.advance_start(Offset(11))
        log.advance_start(Offset(3))
        assert 6 == log.start_offset

    def test_it_survives(self) -> None:
        disk = SimDisk()
        store = open_store(disk)
        log = store.create(P0)
        fill(log, 10)
        log.advance_start(Offset(6))
        close(store)
        assert 6 == open_store(disk).get(P0).start_offset


class TestEnding:
    def test_a_closed_log_refuses_everything(self) -> None:
        store = open_store(SimDisk())
        log = store.create(P0)
        fill(log, 1)
        close(store)
        for use in (
            lambda: log.read(Offset(0), 1),
            lambda: log.append([batch()], leader_epoch=EPOCH, now=NOW),
            lambda: log.truncate_to(Offset(0), now=NOW),
            lambda: log.find_timestamp(NOW),
            lambda: log.aborted_transactions(Offset(0), Offset(1)),
            log.flush,
        ):
            with pytest.raises(StorageError, match="t-0: the log is closed"):
                use()

    def test_flushing_is_due(self) -> None:
        log = new_log(config=dataclasses.replace(CONFIG, flush_messages=3))
        due = []
        for _ in range(3):
            fill(log, 1)
            due.append(log.flush_is_due)
        log.flush()
        assert ([False, False, True], False, 3) == (due, log.flush_is_due, log.recovery_point)


def test_a_refused_batch_is_an_error_in_its_place() -> None:
    (result,) = new_log().append([batch(bytes(1000))], leader_epoch=EPOCH, now=NOW)
    assert isinstance(result, OttlaError)


class OutOfHandles(SimDisk):
    """A disk whose process has no descriptor left while `is_out` is set."""

    is_out = False

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> SimFile:
        """Opens a file, if there is a descriptor for it."""
        if self.is_out:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
        return super().open(path, create=create, writable=writable)


def test_without_a_file_handle_an_append_fails_and_the_next_goes_on() -> None:
    disk = OutOfHandles()
    log = new_log(disk)
    append(log, batch(b"a"))
    log.segments.release()
    disk.is_out = True
    [failed] = log.append([batch(b"b")], leader_epoch=EPOCH, now=NOW)
    assert isinstance(failed, StorageError)
    assert "Too many open files" in str(failed)
    disk.is_out = False
    append(log, batch(b"c"))
    assert [b"a", b"c"] == values(log)
