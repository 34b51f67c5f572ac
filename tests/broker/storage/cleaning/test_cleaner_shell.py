"""The cleaner around its passes: which log is due, logs that change in the meantime, the helper process, throttling."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from ottla.env.helper_process import HelperProcess
from ottla.env.inline_helper import InlineHelper
from ottla.env.real_clock import RealClock
from ottla.env.real_disk import RealDisk
from ottla.model.errors import MisuseError
from ottla.model.ids import LeaderEpoch, Offset, TimestampMs, TopicPartition
from ottla.records.batch import Batch, scan
from ottla.records.builder import build_batch
from ottla.records.decode import decode_records
from ottla.records.layout import Marker
from ottla.records.record import Record
from ottla.sim.clock import SimClock
from ottla.storage.cleaning.cleaner import Cleaner, CleanerConfig
from ottla.storage.cleaning.cleaning_plan import SourceSegment, grouped, look_at
from ottla.storage.log import Appended, Log
from ottla.storage.log_config import LogConfig
from ottla.storage.recovery.log_recovery import Opening, open_parts
from ottla.storage.segments.scanner import DamagedSegmentError
from tests.unit.storage.cleaning.cleaner_model import CONFIG, FOLDER, History

T = TypeVar("T")


class InterruptedHelper(InlineHelper):
    """Does something to the log when the passes are done and their outcome is on its way."""

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        self.meanwhile = meanwhile

    async def run(self, function: Callable[..., T], /, *args: Any) -> T:
        answer = await super().run(function, *args)
        self.meanwhile()
        return answer


def filled() -> History:
    history = History()
    for number in range(30):
        history.append([(b"%d" % (number % 4), b"v" * 30)], producer=1)
    history.roll()
    history.append([(b"x", b"active")])
    return history


# Which log


def test_the_dirty_ratio_counts_the_bytes_that_a_cleaning_would_read() -> None:
    history = filled()
    sizes = [segment.size_bytes for segment in history.log.segments]
    second = history.log.segments[1].base_offset
    fresh = look_at(history.log, history.now)
    assert (0, sum(sizes[:-1]), 1.0, True) == (fresh.clean_bytes, fresh.dirty_bytes, fresh.dirty_ratio, fresh.is_due)
    history.log.cleaned_offset = second
    half = look_at(history.log, history.now)
    assert (sizes[0], sum(sizes[1:-1])) == (half.clean_bytes, half.dirty_bytes)
    history.log.cleaned_offset = history.log.segments.active.base_offset
    clean = look_at(history.log, history.now)
    assert (0, False) == (clean.dirty_bytes, clean.is_due)


def test_a_log_is_dirty_from_its_start_and_from_where_it_was_cut() -> None:
    history = filled()
    history.log.cleaned_offset = Offset(1)
    history.log.advance_start(Offset(3))
    assert 3 == look_at(history.log, history.now).first_dirty_offset
    history.log.cleaned_offset = Offset(6)
    history.log.truncate_to(Offset(5), now=history.now)
    assert 5 == look_at(history.log, history.now).first_dirty_offset


def test_the_dirtiest_log_that_is_due_comes_first() -> None:
    little, much, other = filled(), filled(), filled()
    for at, history in enumerate((little, much, other)):
        history.log.partition = TopicPartition("events", at)
    other.log.config = replace(CONFIG, cleanup_compact=False)
    logs = [history.log for history in (little, much, other)]
    little.log.cleaned_offset = little.log.segments[2].base_offset
    found = little.cleaner.cleanable(logs, little.now)
    assert found is not None
    assert much.log is found.log
    for log in logs:
        log.config = replace(log.config, min_cleanable_dirty_ratio=1.0)
    assert None is little.cleaner.cleanable(logs, little.now)


def test_an_overdue_record_makes_any_log_due() -> None:
    history = filled()
    history.log.config = replace(CONFIG, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=10_000)
    history.clock.advance(9)
    assert not look_at(history.log, history.now).is_due
    history.clock.advance(2)
    assert look_at(history.log, history.now).is_due


def test_young_segments_are_left_alone() -> None:
    history = History(config=replace(CONFIG, min_compaction_lag_ms=5_000))
    history.append([(b"a", b"1")])
    history.roll()
    history.clock.advance(4)
    history.append([(b"a", b"2")])
    history.roll()
    history.clock.advance(2)
    assert 1 == look_at(history.log, history.now).first_uncleanable_offset
    assert 1 == history.clean().next_dirty_offset
    history.check()
    history.clock.advance(4)
    assert 2 == history.clean().next_dirty_offset


def test_nothing_beyond_the_high_watermark_is_touched() -> None:
    history = filled()
    third = history.log.segments[2].base_offset
    history.log.high_watermark = Offset(third + 1)
    assert third == history.clean().next_dirty_offset


def test_segments_are_grouped_by_size_index_and_reach() -> None:
    config = LogConfig(segment_bytes=1_000, segment_index_bytes=1_000, index_interval_bytes=100)
    sources = [
        SourceSegment(base_offset=Offset(base), end_offset=Offset(end), size_bytes=size)
        for base, end, size in [(0, 5, 400), (5, 9, 600), (9, 20, 1), (20, 2**31 + 9, 1), (2**31 + 9, 2**31 + 10, 1)]
    ]
    assert [[0, 5], [9, 20], [2**31 + 9]] == [
        [source.base_offset for source in group] for group in grouped(sources, config)
    ]
    narrow = replace(config, segment_index_bytes=80)
    assert [[0], [5], [9, 20], [2**31 + 9]] == [
        [source.base_offset for source in group] for group in grouped(sources, narrow)
    ]


# Meanwhile


def shorten(log: Log) -> None:
    log.advance_start(log.segments[1].base_offset)
    assert 1 == log.delete_below_start()


@pytest.mark.parametrize(
    "meanwhile",
    [
        lambda history: history.log.truncate_to(Offset(12), now=history.now),
        lambda history: history.log.truncate_fully(Offset(100), now=history.now),
        lambda history: shorten(history.log),
        lambda history: history.log.abandon("closed meanwhile"),
    ],
    ids=["truncated", "emptied", "shortened", "closed"],
)
def test_a_log_that_changed_meanwhile_keeps_its_own_segments(meanwhile: Callable[[History], object]) -> None:
    history = filled()
    history.cleaner = Cleaner(
        history.disk, InterruptedHelper(lambda: meanwhile(history)), history.clock, CleanerConfig()
    )
    report = asyncio.run(history.start_cleaning())
    assert (True, 0) == (report.is_abandoned, report.next_dirty_offset)
    names = history.disk.list_dir(FOLDER)
    assert [] == [name for name in names if name.endswith((".cleaned", ".swap"))]
    expected = filled()
    meanwhile(expected)
    assert [(s.base_offset, s.size_bytes) for s in expected.log.segments] == [
        (s.base_offset, s.size_bytes) for s in history.log.segments
    ]


def test_appends_and_rolls_go_on_meanwhile() -> None:
    history = filled()

    def meanwhile() -> None:
        history.append([(b"0", b"newer")], producer=1)
        history.roll()
        history.append_in_transaction([(b"1", b"open")], producer=11)

    undisturbed = history.cleaner
    history.cleaner = Cleaner(history.disk, InterruptedHelper(meanwhile), history.clock, CleanerConfig())
    report = asyncio.run(history.start_cleaning())
    history.cleaner = undisturbed
    assert not report.is_abandoned
    history.checkpoint = report.next_dirty_offset
    history.check()
    history.end_transaction(11, Marker.COMMIT)
    history.roll()
    history.clean()
    history.check()


async def test_one_log_is_cleaned_once_at_a_time() -> None:
    history = filled()
    first = asyncio.ensure_future(history.start_cleaning())
    await asyncio.sleep(0)
    with pytest.raises(MisuseError, match="being cleaned"):
        await history.start_cleaning()
    assert None is history.cleaner.cleanable([history.log], history.now)
    await first
    history.log.cleaned_offset = Offset(0)
    assert None is not history.cleaner.cleanable([history.log], history.now)


def test_a_range_that_is_being_read_outlives_the_swap() -> None:
    history = filled()
    reading = history.log.read(Offset(0), 300)
    assert reading is not None
    before = reading.file.read_at(reading.position, reading.size)
    history.clean()
    history.unlink_doomed()
    assert before == reading.file.read_at(reading.position, reading.size)


# The pace


def test_the_passes_stay_below_the_byte_rate() -> None:
    clock, paused = SimClock(), []

    def pause(seconds: float) -> None:
        paused.append(seconds)
        clock.advance(seconds)

    history = filled()
    config = CleanerConfig(io_max_bytes_per_second=1_000)
    history.cleaner = Cleaner(history.disk, InlineHelper(), clock, config, pause=pause)
    report = asyncio.run(history.start_cleaning())
    moved = report.bytes_read + report.bytes_written
    assert moved / 1_000 == pytest.approx(sum(paused), abs=0.02)
    with pytest.raises(MisuseError, match="pause"):
        Cleaner(history.disk, InlineHelper(), clock, config)


@pytest.mark.parametrize("config", [CleanerConfig(dedupe_buffer_bytes=100), CleanerConfig(hash_key=b"short")])
def test_settings_that_cannot_work_are_refused_at_once(config: CleanerConfig) -> None:
    history = History()
    with pytest.raises(MisuseError):
        Cleaner(history.disk, InlineHelper(), history.clock, config)


# Real files and a real process


def real_log(folder: str, disk: RealDisk) -> Log:
    config = replace(CONFIG, segment_bytes=20_000, segment_index_bytes=4_096)
    disk.make_dirs(folder)
    opening = Opening(
        disk=disk,
        folder=folder,
        config=config,
        start_offset=Offset(0),
        recovery_point=Offset(0),
        is_clean=True,
        now=TimestampMs(0),
    )
    partition = TopicPartition("events", 0)
    return Log(
        partition,
        folder,
        disk,
        config,
        open_parts(opening),
        persist_bounds=lambda: None,
        discard=lambda paths, ms: None,
    )


def append_rounds(log: Log, rounds: int) -> None:
    for number in range(rounds):
        records = [Record(at, 1_000 + number, b"%d" % (at * (number + 1) % 50), b"v" * 50) for at in range(40)]
        (answer,) = log.append(
            [Batch(bytearray(build_batch(records)))], leader_epoch=LeaderEpoch(0), now=TimestampMs(0)
        )
        assert isinstance(answer, Appended)
    log.advance_high_watermark(log.end_offset)
    log.roll(TimestampMs(0))


async def clean_for_real(log: Log, disk: RealDisk, config: CleanerConfig) -> int:
    helper = HelperProcess()
    try:
        cleaner = Cleaner(disk, helper, RealClock(), config, pause=time.sleep)
        report = await cleaner.clean(log, TimestampMs(5_000), discard=lambda paths, ms: None)
        return report.records_kept
    finally:
        await helper.close()


def test_the_passes_run_in_another_process_on_real_files(tmp_path: Path) -> None:
    disk = RealDisk()
    log = real_log(f"{tmp_path}/events-0", disk)
    append_rounds(log, 60)
    kept = asyncio.run(clean_for_real(log, disk, CleanerConfig(io_max_bytes_per_second=1e9)))
    left = [
        record
        for segment in log.segments
        for batch in scan(disk.read(segment.log_path))[0]
        for record in decode_records(batch)
    ]
    assert (50, 50) == (kept, len({record.key for record in left}))


def test_damage_is_told_across_processes(tmp_path: Path) -> None:
    disk = RealDisk()
    log = real_log(f"{tmp_path}/events-0", disk)
    append_rounds(log, 20)
    file = disk.open(log.segments[0].log_path)
    file.write_at(500, [b"rot"])
    file.close()
    with pytest.raises(DamagedSegmentError, match=r"00000000000000000000\.log, byte 0"):
        asyncio.run(clean_for_real(log, disk, CleanerConfig()))
