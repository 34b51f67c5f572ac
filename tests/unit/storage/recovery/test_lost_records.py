"""Records that were acknowledged and are damaged or gone: never in silence, and never more than that.

Damage in the middle of a log is not a torn tail: what lies behind it stays, its offsets are not given out again, the
log is marked as damaged, and each loss is logged with its place. Only what a crash can leave is cut off, and whole
batches in it are kept beside the log.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ottla.env.ports import Disk
from ottla.env.real_disk import RealDisk
from ottla.model.ids import LeaderEpoch, Offset, TimestampMs
from ottla.records.batch import scan
from ottla.records.layout import LEADER_EPOCH_AT, LENGTH_AT, MAGIC_AT
from ottla.sim.clock import SimClock
from ottla.sim.disk import SimDisk, SimulatedCrash
from ottla.storage.data_dirs import names
from ottla.storage.data_dirs.metadata_seen import MetadataSeen, encode_seen
from ottla.storage.log import Log
from ottla.storage.log_config import LogConfig
from ottla.storage.log_store import LogStore
from ottla.storage.segments.scanner import DamagedSegmentError, find_batch
from tests.unit.storage.rig import (
    CONFIG,
    DATA,
    EPOCH,
    NOW,
    P0,
    append,
    batch,
    close,
    disk_of,
    fill,
    flipped,
    housekeeping,
    image_of,
    open_store,
    put,
    put_checkpoint,
    read_from,
)

pytestmark = pytest.mark.slow

FOLDER = f"{DATA}/t-0"
BATCH = 79
"""The size of each batch that `fill` appends: four to a segment."""
COUNT = 10
COMPACTED = replace(CONFIG, cleanup_compact=True, cleanup_delete=False)
FIELDS = {"body": 70, "checksum": 17, "magic": MAGIC_AT, "length": LENGTH_AT + 2, "offset": 6}


def segment(base: int) -> str:
    return f"{FOLDER}/{base:020}{names.LOG}"


def readable(log: Log) -> list[int]:
    """The offsets that a consumer gets if it skips each one that is refused."""
    found: list[int] = []
    offset: int = log.start_offset
    while offset < log.end_offset:
        try:
            batches = read_from(log, offset)
        except DamagedSegmentError:
            offset += 1
            continue
        if not batches:
            break
        found += range(batches[0].base_offset, batches[0].last_offset + 1)
        offset = found[-1] + 1
    return found


def without(*gone: int) -> list[int]:
    return [offset for offset in range(COUNT) if offset not in gone]


def written(*, flush: bool = False, config: LogConfig = CONFIG) -> SimDisk:
    """A disk with ten batches in three segments, whose broker is still running."""
    disk = SimDisk()
    store = open_store(disk, config=config)
    store.note_intact()
    log = store.create(P0)
    store.checkpoints.save()
    fill(log, COUNT)
    if flush:
        log.flush()
        store.checkpoints.save()
    return disk


def stopped(config: LogConfig = CONFIG) -> SimDisk:
    """The same after a clean stop."""
    disk = SimDisk()
    store = open_store(disk, config=config)
    store.note_intact()
    fill(store.create(P0), COUNT)
    close(store)
    return disk


ENDS: dict[str, Callable[[], SimDisk]] = {
    "stopped": stopped,
    "killed": lambda: written().kill(),
    "killed after a flush": lambda: written(flush=True).kill(),
    "power cut after a flush": lambda: written(flush=True).crash(),
}


@pytest.fixture(params=ENDS)
def disk(request: pytest.FixtureRequest) -> SimDisk:
    """The disk after each way in which a broker can end that keeps all ten batches."""
    return ENDS[request.param]()


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Callable[[str], list[str]]:
    """The log lines from WARNING on with some text in them."""
    caplog.set_level(logging.WARNING)

    def lines(text: str) -> list[str]:
        return [record.getMessage() for record in caplog.records if text in record.getMessage()]

    return lines


def check_goes_on(store: LogStore, end: int = COUNT) -> None:
    """The log is known to be damaged, and the next record gets an offset that no other had."""
    log = store.get(P0)
    assert log.health.damage is not None
    assert (False, {}) == (store.is_intact, store.offline)
    assert end == append(log, batch(b"next"))[0].base_offset
    log.advance_high_watermark(log.end_offset)
    assert [end] == [each.base_offset for each in read_from(log, end)]


class TestDamageInTheMiddle:
    @pytest.mark.parametrize("field", FIELDS)
    @pytest.mark.parametrize("at", range(COUNT - 1))
    def test_after_a_kill_only_what_is_damaged_is_lost(
        self, field: str, at: int, told: Callable[[str], list[str]]
    ) -> None:
        """Also where nothing had been flushed."""
        disk = written().kill()
        path = segment(at - at % 4)
        disk.flip(path, at % 4 * BATCH + FIELDS[field], 2)
        before = image_of(disk, FOLDER)
        store = open_store(disk)
        assert without(at) == readable(store.get(P0))
        with pytest.raises(DamagedSegmentError, match=path):
            read_from(store.get(P0), at)
        assert told(path)
        assert told(f"offsets {at} to {at} cannot be read")
        after = image_of(disk, FOLDER)
        for each in before:
            if each.endswith(names.LOG):
                assert before[each] == after[each], "nothing is cut off or removed"
        check_goes_on(store)

    def test_the_last_batch_was_written_whole(self, told: Callable[[str], list[str]]) -> None:
        """A kill cuts a write short; it does not change bytes."""
        disk = written().kill()
        disk.flip(segment(8), BATCH + 70, 0)
        store = open_store(disk)
        assert without(9) == readable(store.get(P0))
        assert told("offsets 9 to 9 cannot be read")
        check_goes_on(store)

    def test_many_bytes_over_several_batches(self) -> None:
        disk = written().kill()
        whole = disk.read(segment(0))
        put(disk, segment(0), whole[:100] + bytes(100) + whole[200:])
        store = open_store(disk)
        assert without(1, 2) == readable(store.get(P0))
        check_goes_on(store)

    def test_a_whole_segment_of_garbage(self) -> None:
        disk = written().kill()
        put(disk, segment(4), b"\x02" * len(disk.read(segment(4))))
        store = open_store(disk)
        assert without(4, 5, 6, 7) == readable(store.get(P0))
        check_goes_on(store)

    def test_it_is_known_at_each_start_until_the_start_passes_it(self) -> None:
        disk = written().kill()
        disk.flip(segment(0), BATCH + MAGIC_AT, 2)
        for _ in range(3):
            store = open_store(disk)
            assert store.get(P0).health.damage is not None
            assert without(1) == readable(store.get(P0))
            close(store)
        store = open_store(disk)
        store.get(P0).advance_high_watermark(Offset(COUNT))
        store.get(P0).advance_start(Offset(2))
        close(store)
        assert open_store(disk).get(P0).health.damage is None

    def test_a_file_that_is_put_right_heals_the_log(self) -> None:
        disk = written().kill()
        whole = disk.read(segment(0))
        disk.flip(segment(0), BATCH + MAGIC_AT, 2)
        close(open_store(disk))
        put(disk, segment(0), whole)
        store = open_store(disk)
        assert (None, without()) == (store.get(P0).health.damage, readable(store.get(P0)))

    def test_producers_and_epochs_of_what_is_left(self) -> None:
        disk = SimDisk()
        store = open_store(disk)
        log = store.create(P0)
        for number in range(COUNT):
            append(log, batch(producer_id=5, sequence=number), epoch=LeaderEpoch(1 + number // 3))
        disk = disk.kill()
        disk.flip(segment(4), MAGIC_AT, 2)
        put(disk, f"{FOLDER}/{names.EPOCHS}", b"garbage")
        log = open_store(disk).get(P0)
        assert [(5, 9)] == [(entry.producer_id, entry.last_sequence) for entry in log.producers]
        assert {1: 0, 2: 3, 3: 6, 4: 9} == log.epochs.starts


class TestPowerCut:
    def test_what_lies_behind_an_unflushed_hole_is_set_aside(self, told: Callable[[str], list[str]]) -> None:
        """Sectors reach the disk in any order, so a torn tail can hold whole batches; they are kept for a person."""
        image = image_of(written())
        tail = flipped(image[segment(0)], 70 + BATCH, 0)
        disk = disk_of({**image, segment(0): tail})
        disk.boot_id = "boot 1"
        store = open_store(disk)
        log = store.get(P0)
        assert ([0], 1, None) == (readable(log), log.end_offset, log.health.damage)
        assert (True, False) == (store.has_lost, store.is_intact)
        assert tail[BATCH:] == disk.read(f"{segment(0)}.{BATCH}{names.ASIDE}")
        for base in (4, 8):
            assert image[segment(base)] == disk.read(segment(base) + names.ASIDE)
            assert told(f"{segment(base)} renamed to {segment(base)}{names.ASIDE}")
        assert told("4 valid records: behind the log's end")
        assert told(f"{segment(0)}, byte {BATCH}: ")
        assert told("truncated a torn tail of 237 bytes, the log ends at offset 1; 2 valid records in it are kept in")
        fill(log, 1, first=1)
        close(store)
        store = open_store(disk)
        assert image[segment(8)] == disk.read(segment(8) + names.ASIDE), "kept until a person removes it"
        assert [0, 1] == readable(store.get(P0))

    def test_a_second_one_does_not_overwrite_what_the_first_set_aside(self) -> None:
        disk = written()
        kept = []
        for life in range(1, 3):
            kept.append(disk.read(segment(4)))
            put(disk, segment(0), disk.read(segment(0))[: 3 * BATCH])
            disk = disk.kill()
            disk.boot_id = f"boot {life}"
            store = open_store(disk)
            fill(store.get(P0), 7, first=40)
        assert kept == [disk.read(segment(4) + names.ASIDE), disk.read(f"{segment(4)}.1{names.ASIDE}")]

    def test_a_kill_during_the_recovery_does_not_hide_it(self) -> None:
        image = image_of(written())
        disk = disk_of({**image, segment(0): image[segment(0)][:BATCH]})
        disk.boot_id = "boot 1"
        first = disk.operation_count
        torn = open_store(disk).get(P0).end_offset
        for number in range(first, disk.operation_count):
            disk = disk_of({**image, segment(0): image[segment(0)][:BATCH]})
            disk.boot_id = "boot 1"
            disk.fail_at(number)
            with pytest.raises(SimulatedCrash):
                open_store(disk)
            log = open_store(disk.kill()).get(P0)
            assert (torn, None) == (log.end_offset, log.health.damage)

    def test_a_torn_tail_is_logged(self, told: Callable[[str], list[str]]) -> None:
        disk = written(flush=True).kill()
        fill(open_store(disk).get(P0), 1, first=COUNT)
        put(disk, segment(8), disk.read(segment(8))[:-7])
        disk = disk.crash()
        assert without() == readable(open_store(disk).get(P0))
        assert told(
            f"{segment(8)}, byte {2 * BATCH}: a batch is incomplete: it ends after 72 bytes; truncated a torn tail"
        )


class TestMissingSegments:
    def test_in_the_middle(self, disk: SimDisk, told: Callable[[str], list[str]]) -> None:
        for path in [each for each in image_of(disk, FOLDER) if f"{4:020}" in each]:
            disk.vanish(path)
        store = open_store(disk)
        log = store.get(P0)
        assert without(4, 5, 6, 7) == readable(log)
        assert [8] == [each.base_offset for each in read_from(log, 5)], "a reader goes on behind the gap"
        assert told("offsets 4 to 7 cannot be read (4 records at most)")
        check_goes_on(store)
        close(store)
        assert open_store(disk).get(P0).health.damage is not None, "it is still missing"

    def test_the_first(self, disk: SimDisk, told: Callable[[str], list[str]]) -> None:
        for path in [each for each in image_of(disk, FOLDER) if f"{0:020}" in each]:
            disk.vanish(path)
        store = open_store(disk)
        log = store.get(P0)
        assert (0, without(0, 1, 2, 3)) == (log.start_offset, readable(log))
        assert told("offsets 0 to 3 cannot be read")
        check_goes_on(store)
        close(store)
        assert open_store(disk).get(P0).health.damage is not None, "it is still missing"

    @pytest.mark.parametrize("end", ["stopped", "killed after a flush", "power cut after a flush"])
    def test_the_last(self, end: str, told: Callable[[str], list[str]]) -> None:
        disk = ENDS[end]()
        disk.vanish(segment(8))
        store = open_store(disk)
        assert without(8, 9) == readable(store.get(P0))
        assert told("offsets 8 to 9 cannot be read")
        check_goes_on(store)

    @pytest.mark.parametrize("end", ["stopped", "killed after a flush", "power cut after a flush"])
    def test_all(self, end: str) -> None:
        """The whole log is lost: what becomes of it is for the broker to decide, which must know where it had ended."""
        disk = ENDS[end]()
        for path in image_of(disk, FOLDER):
            disk.vanish(path)
        store = open_store(disk)
        assert ({P0}, {P0: (0, COUNT, False)}) == (store.bare, store.shortfalls)

    def test_of_a_compacted_log_after_a_clean_stop(self) -> None:
        disk = stopped(COMPACTED)
        disk.vanish(segment(4))
        store = open_store(disk, config=COMPACTED)
        assert without(4, 5, 6, 7) == readable(store.get(P0))
        check_goes_on(store)

    def test_one_that_is_put_back_heals_the_log(self) -> None:
        disk = stopped()
        content = disk.read(segment(4))
        disk.vanish(segment(4))
        close(open_store(disk))
        put(disk, segment(4), content)
        store = open_store(disk)
        assert (None, without()) == (store.get(P0).health.damage, readable(store.get(P0)))

    def test_a_damaged_list_of_segments_is_done_without(self) -> None:
        disk = stopped()
        path = f"{DATA}/{names.CLOSED_SEGMENTS}"
        for content in (b"", b"0\n", flipped(disk.read(path), 15, 0), disk.read(path)[:-1]):
            image = image_of(disk)
            assert open_store(disk_of({**image, path: content})).get(P0).health.damage is None
            del image[segment(4)]
            assert open_store(disk_of({**image, path: content})).get(P0).health.damage is not None

    def test_in_real_files(self, tmp_path: Path) -> None:
        disk, data = RealDisk(), str(tmp_path)
        store = open_store(disk, [data])
        fill(store.create(P0), COUNT)
        close(store)
        (tmp_path / "t-0" / f"{4:020}.log").unlink()
        store = open_store(disk, [data])
        assert without(4, 5, 6, 7) == readable(store.get(P0))
        check_goes_on(store)
        close(store)
        disk.close()


class TestShortFiles:
    @pytest.mark.parametrize("missing", [1, 7, BATCH - 1, BATCH, BATCH + 1, 2 * BATCH])
    @pytest.mark.parametrize("end", ["stopped", "killed after a flush", "power cut after a flush"])
    def test_the_last_segment(self, end: str, missing: int, told: Callable[[str], list[str]]) -> None:
        """What can be read is served, and the offsets of what is gone are not given out again."""
        disk = ENDS[end]()
        put(disk, segment(8), disk.read(segment(8))[:-missing])
        store = open_store(disk)
        gone = [9] if missing <= BATCH else [8, 9]
        assert without(*gone) == readable(store.get(P0))
        assert told(f"offsets {gone[0]} to 9 cannot be read")
        check_goes_on(store)
        close(store)
        assert [*without(*gone), COUNT] == readable(open_store(disk).get(P0))

    @pytest.mark.parametrize("missing", [7, BATCH])
    def test_a_sealed_segment(self, disk: SimDisk, missing: int, told: Callable[[str], list[str]]) -> None:
        put(disk, segment(4), disk.read(segment(4))[:-missing])
        store = open_store(disk)
        assert without(7) == readable(store.get(P0))
        assert told("offsets 7 to 7 cannot be read")
        check_goes_on(store)

    def test_the_last_two_batches_are_damaged_together(self, told: Callable[[str], list[str]]) -> None:
        """One bad sector can reach over the border of two batches; a kill leaves nothing of the kind."""
        disk = written().kill()
        content = bytearray(disk.read(segment(8)))
        for at in (BATCH - 1, 2 * BATCH - 1):
            content[at] ^= 0xFF
        put(disk, segment(8), bytes(content))
        store = open_store(disk)
        assert without(8, 9) == readable(store.get(P0))
        assert bytes(content) == disk.read(segment(8))
        assert told("offsets 8 to 9 cannot be read")
        check_goes_on(store)

    def test_a_write_that_a_kill_cut_short_is_cut_off_and_logged(self, told: Callable[[str], list[str]]) -> None:
        disk = written().kill()
        torn = disk.read(segment(8))[:-7]
        put(disk, segment(8), torn)
        store = open_store(disk)
        assert (without(9), None) == (readable(store.get(P0)), store.get(P0).health.damage)
        assert torn[BATCH:] == disk.read(f"{segment(8)}.{BATCH}{names.ASIDE}")
        assert told("truncated a torn tail of 72 bytes, the log ends at offset 9; 0 valid records")


class TestNothingIsRemovedInSilence:
    def test_a_start_that_is_checkpointed_far_ahead(self, told: Callable[[str], list[str]]) -> None:
        disk = written(flush=True).kill()
        before = image_of(disk, FOLDER)
        put_checkpoint(disk, names.LOG_STARTS, {P0: 4000})
        log = open_store(disk).get(P0)
        assert (4000, 4000) == (log.start_offset, log.end_offset)
        for base in (0, 4, 8):
            assert before[segment(base)] == disk.read(segment(base) + names.ASIDE)
            assert told(f"{segment(base)} renamed to")

    def test_segments_below_the_start(self, told: Callable[[str], list[str]]) -> None:
        disk = written(flush=True).kill()
        put_checkpoint(disk, names.LOG_STARTS, {P0: 5})
        log = open_store(disk).get(P0)
        assert (5, None) == (log.start_offset, log.health.damage)
        assert told(f"{segment(0)} deleted with 316 bytes: it is below the log start, offset 5")

    def test_a_segment_in_the_way_of_a_new_one(self) -> None:
        disk = written()
        log = open_store(disk.kill()).get(P0)
        disk = log.segments._disk  # type: ignore[assignment]
        put(disk, segment(COUNT), b"something")
        log.roll(NOW)
        assert b"something" == disk.read(segment(COUNT) + names.ASIDE)

    def test_checkpoints_that_are_gone_after_a_clean_stop(self) -> None:
        """Everything had been flushed, so damage is not cut off."""
        disk = stopped()
        disk.vanish(f"{DATA}/{names.RECOVERY_POINTS}")
        disk.flip(segment(4), 70, 0)
        disk = disk.crash()
        store = open_store(disk)
        assert without(4) == readable(store.get(P0))
        check_goes_on(store)

    @pytest.mark.parametrize("name", [names.RECOVERY_POINTS, names.LOG_STARTS, names.HIGH_WATERMARKS])
    def test_a_missing_checkpoint_is_told(self, name: str, told: Callable[[str], list[str]]) -> None:
        disk = stopped()
        disk.vanish(f"{DATA}/{name}")
        store = open_store(disk)
        assert (without(), None) == (readable(store.get(P0)), store.get(P0).health.damage)
        assert told(f"{DATA}/{name} is missing")

    def test_a_cleaned_segment_that_is_damaged_removes_no_source(self) -> None:
        """Where it ends says which sources it replaces."""
        disk = stopped(COMPACTED)
        before = image_of(disk, FOLDER)
        swap = segment(0) + names.SWAP
        put(disk, swap, flipped(before[segment(0)], 3 * BATCH + 24, 1))
        store = open_store(disk, config=COMPACTED)
        assert swap in str(store.offline[P0])
        assert before == {path: content for path, content in image_of(disk, FOLDER).items() if path != swap}

    def test_a_damaged_snapshot_is_told(self, told: Callable[[str], list[str]]) -> None:
        disk = stopped()
        path = f"{FOLDER}/{COUNT:020}{names.SNAPSHOT}"
        put(disk, path, b"garbage")
        open_store(disk)
        assert told(path)

    def test_a_damaged_epoch_checkpoint_is_told(self, told: Callable[[str], list[str]]) -> None:
        disk = stopped()
        path = f"{FOLDER}/{names.EPOCHS}"
        put(disk, path, b"garbage")
        assert {3: 0} == open_store(disk).get(P0).epochs.starts
        assert told(path)


class TestNoFalseAlarm:
    """What a log does in its life leaves nothing that looks like a loss, however the broker ends."""

    def retention(self, log: Log, store: LogStore, disk: Disk) -> None:
        log.advance_start(Offset(6))
        log.delete_below_start()

    def everything_expired(self, log: Log, store: LogStore, disk: Disk) -> None:
        log.roll(NOW)
        log.advance_start(log.end_offset)
        log.delete_below_start()

    def delete_records(self, log: Log, store: LogStore, disk: Disk) -> None:
        log.advance_start(Offset(3))

    def truncate(self, log: Log, store: LogStore, disk: Disk) -> None:
        log.truncate_to(Offset(6), now=NOW)
        fill(log, 1, first=6)

    def truncate_to_a_segment(self, log: Log, store: LogStore, disk: Disk) -> None:
        log.truncate_to(Offset(4), now=NOW)

    def start_higher(self, log: Log, store: LogStore, disk: Disk) -> None:
        log.truncate_fully(Offset(40), now=NOW)
        fill(log, 5, first=40)

    def start_lower(self, log: Log, store: LogStore, disk: Disk) -> None:
        log.truncate_fully(Offset(40), now=NOW)
        fill(log, 5, first=40)
        store.checkpoints.save()
        log.truncate_fully(Offset(20), now=NOW)
        fill(log, 5, first=20)

    def compact(self, log: Log, store: LogStore, disk: Disk) -> None:
        before = log.size_bytes
        log.config = COMPACTED
        log.roll(NOW)
        assert asyncio.run(housekeeping(store, disk, SimClock()).clean_one())
        assert log.size_bytes < before

    def delete_and_create(self, log: Log, store: LogStore, disk: Disk) -> None:
        store.delete(P0)
        fill(store.create(P0), 2)

    LIVES = (
        retention,
        everything_expired,
        delete_records,
        truncate,
        truncate_to_a_segment,
        start_higher,
        start_lower,
        compact,
        delete_and_create,
    )

    @pytest.mark.parametrize("life", LIVES, ids=lambda life: life.__name__)
    def test_after_a_stop_or_a_kill_at_any_operation(
        self, life: Callable[["TestNoFalseAlarm", Log, LogStore, Disk], None]
    ) -> None:
        disk = self.lived(life, None)
        config = COMPACTED if life.__name__ == "compact" else CONFIG
        for number in self.operations(life):
            self.check(self.lived(life, number).kill(), config)
        self.check(disk.kill(), config)
        self.check(self.lived(life, None, is_closed=True), config)

    def operations(self, life: Callable[["TestNoFalseAlarm", Log, LogStore, Disk], None]) -> Iterator[int]:
        return iter(range(written(flush=True).operation_count, self.lived(life, None, is_closed=True).operation_count))

    def lived(
        self,
        life: Callable[["TestNoFalseAlarm", Log, LogStore, Disk], None],
        fails_at: int | None,
        *,
        is_closed: bool = False,
    ) -> SimDisk:
        disk = SimDisk()
        if fails_at is not None:
            disk.fail_at(fails_at)
        try:
            store = open_store(disk)
            store.note_intact()
            log = store.create(P0)
            store.checkpoints.save()
            fill(log, COUNT)
            log.flush()
            store.checkpoints.save()
            life(self, log, store, disk)
            if fails_at is not None or is_closed:
                close(store)
        except SimulatedCrash:
            assert fails_at is not None
        return disk

    def check(self, disk: SimDisk, config: LogConfig) -> None:
        store = open_store(disk, config=config)
        damages = [(log.health.damage, log.lost) for log in store]
        assert [(None, ())] * len(damages) == damages
        close(store)
        store = open_store(disk, config=config)
        assert all(log.health.damage is None for log in store)


class TestFindingBatches:
    def test_from_every_position(self) -> None:
        disk = written()
        content = disk.read(segment(4))
        put(disk, "/x", b"\x00\x02" * 50 + content)
        file = disk.open("/x")
        starts = [100 + BATCH * number for number in range(4)]
        for position in range(len(content) + 100):
            expected = next((start for start in starts if start >= position), None)
            assert expected == find_batch(file, position, file.size(), lowest=Offset(4), below=Offset(8))
        assert starts[2] == find_batch(file, 0, file.size(), lowest=Offset(6), below=Offset(8))
        assert find_batch(file, 0, file.size(), lowest=Offset(8), below=Offset(1000)) is None

    def test_not_one_that_is_part_of_a_value(self) -> None:
        disk = SimDisk()
        inner = bytes(batch(b"inner", base_offset=2).buffer)
        outer = bytes(batch(inner, base_offset=0).buffer)
        last = bytes(batch(b"last", base_offset=3).buffer)
        put(disk, "/x", b"\x00" + outer[1:8] + b"\x7f" + outer[9:] + last)
        file = disk.open("/x")
        found = find_batch(file, 1, file.size(), lowest=Offset(1), below=Offset(1000))
        assert len(outer) == found
        batches, _, problem = scan(file.read_at(found or 0, file.size()))
        assert ([3], None) == ([each.base_offset for each in batches], problem)


def test_timestamps_are_found_behind_damage() -> None:
    disk = written().kill()
    disk.flip(segment(0), BATCH + MAGIC_AT, 2)
    log = open_store(disk).get(P0)
    assert (NOW + 50, 5) == log.find_timestamp(TimestampMs(NOW + 50))


class TestLeaderEpochThatNeverWas:
    """The leader epoch of a batch is outside its checksum. The data dir knows the newest epoch of any partition."""

    @staticmethod
    def reopened(disk: SimDisk, path: str, position: int, bit: int) -> LogStore:
        put(
            disk, f"{DATA}/{names.METADATA_SEEN}", encode_seen(MetadataSeen(history="", revision=9, leader_epoch=EPOCH))
        )
        content = flipped(disk.read(path), position + LEADER_EPOCH_AT + 3 - bit // 8, bit % 8)
        put(disk, path, content)
        return open_store(disk)

    @pytest.mark.parametrize("end", [end for end in ENDS if end != "stopped"])
    @pytest.mark.parametrize("bit", [10, 30])
    def test_the_last_batch_is_restored(self, end: str, bit: int, told: Callable[[str], list[str]]) -> None:
        """Its records are right, and the batch before it has the right epoch."""
        disk = ENDS[end]()
        last = segment(8)
        store = self.reopened(disk, last, BATCH, bit)
        log = store.get(P0)
        assert (EPOCH, None) == (log.epochs.latest, log.health.damage)
        assert without() == readable(log)
        (line,) = told(f"{last}, byte {BATCH}: the header of the batch at offset 9")
        assert f"had leader epoch {EPOCH ^ (1 << bit)}, but" in line

    @pytest.mark.parametrize("bit", [2, 10, 30])
    def test_after_a_clean_stop_the_history_has_the_right_epoch_of_the_only_batch(
        self, bit: int, told: Callable[[str], list[str]]
    ) -> None:
        disk = SimDisk()
        store = open_store(disk)
        store.note_intact()
        fill(store.create(P0), 1)
        close(store)
        store = self.reopened(disk, segment(0), 0, bit)
        log = store.get(P0)
        assert (EPOCH, None, 1) == (log.epochs.latest, log.health.damage, log.end_offset)
        assert [0] == readable(log)
        assert told(f"{names.EPOCHS} has {EPOCH}; restored leader epoch {EPOCH}")

    def test_epochs_of_the_last_moment_before_a_kill_are_believed(self) -> None:
        """The data dir records new metadata once a second."""
        disk = written().kill()
        store = self.reopened(disk, segment(8), BATCH, 3)
        assert EPOCH | 8 == store.get(P0).epochs.latest
        assert without() == readable(store.get(P0))

    def test_without_a_record_of_the_metadata_every_epoch_is_believed(self) -> None:
        disk = written().kill()
        put(disk, segment(8), flipped(disk.read(segment(8)), BATCH + LEADER_EPOCH_AT, 6))
        assert without() == readable(open_store(disk).get(P0))
