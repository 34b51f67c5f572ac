"""What a store finds missing when it opens: by its checkpoint files, and by data dirs that were away."""

import logging

import pytest

from ottla.model.ids import Offset, TopicPartition
from ottla.sim.disk import SimDisk
from ottla.storage.data_dirs import names
from ottla.storage.data_dirs.checkpoints import encode_offsets, read_offsets
from ottla.storage.log_store import LogStore, Shortfall
from ottla.storage.segments.closed_segments import OffsetRange
from tests.unit.storage.rig import DATA, NOW, P0, P1, append, batch, close, fill, open_store, put, values

OTHER = "/other"
FOLDER = f"{DATA}/{P0}"


def filled(disk: SimDisk, *, flushed: int = 6, committed: int = 6) -> LogStore:
    """A store with P0 of so many records, and its checkpoints written."""
    store = open_store(disk)
    store.note_intact()
    log = store.create(P0)
    fill(log, flushed)
    log.flush()
    fill(log, committed - flushed, first=flushed)
    store.checkpoints.save()
    return store


class TestByCheckpoints:
    def test_nothing_is_missing_after_a_kill_or_a_clean_stop(self) -> None:
        disk = SimDisk()
        filled(disk, flushed=3)
        store = open_store(disk := disk.kill())
        assert {} == store.shortfalls
        close(store)
        store = open_store(disk)
        assert ({}, set()) == (store.shortfalls, store.bare)

    def test_a_folder_that_is_gone(self) -> None:
        disk = SimDisk()
        filled(disk, flushed=3)
        disk = disk.kill()
        disk.remove_tree(FOLDER)
        assert {P0: Shortfall(Offset(0), Offset(6))} == open_store(disk).shortfalls

    def test_after_a_clean_stop_it_is_known_exactly(self) -> None:
        disk = SimDisk()
        store = filled(disk)
        store.create(P1)
        close(store)
        disk.remove_tree(FOLDER)
        disk.remove_tree(f"{DATA}/{P1}")
        expected = {
            P0: Shortfall(Offset(0), Offset(6), is_exact=True),
            P1: Shortfall(Offset(0), Offset(0), is_exact=True),
        }
        assert expected == open_store(disk).shortfalls

    def test_a_folder_without_segments(self) -> None:
        disk = SimDisk()
        open_store(disk).create(P0)
        disk = disk.kill()
        disk.remove(f"{FOLDER}/{0:020}.log")
        assert {P0} == open_store(disk).bare

    def test_a_log_that_ends_below_its_high_watermark(self) -> None:
        disk = SimDisk()
        filled(disk)
        disk = disk.kill()
        put(disk, f"{DATA}/{names.HIGH_WATERMARKS}", encode_offsets({P0: 9}))
        assert {P0: Shortfall(Offset(6), Offset(9))} == open_store(disk).shortfalls

    def test_after_a_power_cut_only_what_was_flushed_is_proven(self, caplog: pytest.LogCaptureFixture) -> None:
        disk = SimDisk()
        filled(disk, flushed=4, committed=6)
        disk = disk.crash()
        put(disk, f"{DATA}/{names.HIGH_WATERMARKS}", encode_offsets({P0: 9}))
        store = open_store(disk)
        lost = 9 - store.get(P0).end_offset
        assert {} == store.shortfalls
        (error,) = [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]
        assert f"{lost} committed records that were not flushed were lost" in error
        disk = disk.crash()
        disk.remove_tree(FOLDER)
        assert {P0: Shortfall(Offset(0), Offset(4))} == open_store(disk).shortfalls

    def test_a_deleted_partition_is_not_missed_in_another_data_dir(self) -> None:
        """Its checkpoint lines stay until the next are written."""
        disk = SimDisk()
        store = open_store(disk, [DATA, OTHER])
        fill(store.create(P0), 6)
        store.checkpoints.save()
        store.delete(P0)
        store.create(P1)
        again = store.create(P0)
        assert again.folder.startswith(OTHER)
        assert {} == open_store(disk.kill(), [DATA, OTHER]).shortfalls

    def test_it_is_found_again_while_it_is_not_settled(self) -> None:
        disk = SimDisk()
        close(filled(disk))
        put(disk, f"{DATA}/{names.HIGH_WATERMARKS}", encode_offsets({P0: 9}))
        store = open_store(disk)
        store.get(P0).lost_end = Offset(9)
        close(store)
        store = open_store(disk)
        assert {P0: Shortfall(Offset(6), Offset(9))} == store.shortfalls
        close(store)
        assert {} == open_store(disk).shortfalls

    def test_the_lines_of_a_missing_folder_are_kept_until_it_is_made(self) -> None:
        disk = SimDisk()
        close(filled(disk))
        disk.remove_tree(FOLDER)
        for _ in range(2):
            store = open_store(disk)
            assert 6 == store.shortfalls[P0].end
            store.keep_checkpoints(P0)
            close(store)
        store = open_store(disk)
        assert (500, 500) == (
            (log := store.create(P0, lost=OffsetRange(Offset(500), Offset(500)))).start_offset,
            log.end_offset,
        )
        close(store)
        store = open_store(disk)
        assert ({}, 500) == (store.shortfalls, store.get(P0).end_offset)

    def test_a_truncation_below_the_high_watermark_is_not_taken_for_a_loss(self) -> None:
        disk = SimDisk()
        store = filled(disk, flushed=0)
        store.get(P0).truncate_to(Offset(2), now=NOW)
        assert {P0: 2} == read_offsets(disk, f"{DATA}/{names.HIGH_WATERMARKS}")
        assert {} == open_store(disk.kill()).shortfalls

    def test_beginning_again_far_below_is_not_taken_for_a_loss(self) -> None:
        disk = SimDisk()
        store = filled(disk)
        store.get(P0).truncate_fully(Offset(0), now=NOW)
        assert {} == open_store(disk.kill()).shortfalls

    def test_offsets_that_were_lost_are_left_out(self) -> None:
        """The gap before a segment that existed at the last flush is not a lost tail."""
        disk = SimDisk()
        store = filled(disk)
        log = store.get(P0)
        log.roll(NOW, base_offset=Offset(9))
        log.flush()
        store.checkpoints.save()
        append(log, batch(b"later"))
        disk = disk.kill()
        store = open_store(disk)
        assert (10, b"later") == (store.get(P0).end_offset, values(store.get(P0))[-1])


class TestDataDirs:
    def test_which_metadata_they_have_applied(self) -> None:
        disk = SimDisk()
        store = open_store(disk, [DATA, OTHER])
        assert None is store.applied_revision
        store.note_applied(70)
        store.note_applied(8)
        disk = disk.kill()
        disk.remove_tree(OTHER)
        store = open_store(disk, [DATA, OTHER])
        assert (8, [False, True]) == (store.applied_revision, [each.is_new for each in store.dirs])

    def test_the_revision_of_recovered_metadata_survives_a_power_cut(self) -> None:
        for seed in range(20):
            disk = SimDisk(seed)
            store = open_store(disk)
            for revision in (70, 8):
                store.note_applied(revision, is_synced=True)
                disk.sync_dir(DATA)
            assert 8 == open_store(disk.crash()).applied_revision

    def test_whether_the_machine_went_down(self) -> None:
        disk = SimDisk()
        store = open_store(disk)
        store.note_intact()
        assert not store.dirs[0].lost_power
        disk = disk.kill()
        assert not open_store(disk).dirs[0].lost_power
        disk = disk.crash()
        store = open_store(disk)
        assert store.dirs[0].lost_power
        store.note_intact()
        close(store)
        assert not open_store(disk.crash()).dirs[0].lost_power

    @pytest.mark.parametrize("is_first", [True, False])
    def test_one_that_comes_back_does_not_bring_old_folders_back(
        self, is_first: bool, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Meanwhile its partitions were copied into another one."""
        disk = SimDisk()
        away, here = (DATA, OTHER) if is_first else (OTHER, DATA)
        old = open_store(disk, [away])
        fill(old.create(P0), 3)
        old.note_applied(10)
        close(old)
        new = open_store(disk, [here])
        fill(new.create(P0), 5)
        new.note_applied(20)
        close(new)
        store = open_store(disk, [DATA, OTHER])
        assert (f"{here}/{P0}", 5) == ((log := store.get(P0)).folder, log.end_offset)
        assert {} == store.shortfalls
        (kept,) = [each for each in disk.list_dir(away) if each.endswith("-stray")]
        assert f"partition t-0 has a newer folder in {here}; the folder in {away} is not used" in caplog.text
        assert kept in caplog.text
        assert 1 == len([each for each in store if each.partition == TopicPartition("t", 0)])
