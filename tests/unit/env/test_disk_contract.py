"""What every disk guarantees, tested on the real and on the simulated one."""

import asyncio
import errno
import gc
from pathlib import Path

import pytest

from ottla.env import real_disk
from ottla.env.ports import Disk, File, Lock, Mapping
from ottla.env.real_disk import IOV_MAX, RealDisk
from ottla.env.system_calls import preadv_by_pread, pwritev_by_pwrite, sync_data_by_fsync
from ottla.sim.disk import SimDisk


@pytest.fixture(params=["real", "real without Linux's calls", "simulated"])
def disk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Disk:
    if request.param == "real without Linux's calls":
        monkeypatch.setattr(real_disk, "preadv", preadv_by_pread)
        monkeypatch.setattr(real_disk, "pwritev", pwritev_by_pwrite)
        monkeypatch.setattr(real_disk, "sync_data", sync_data_by_fsync)
        monkeypatch.setattr(real_disk, "UNNAMED_FILE", 0)
        return RealDisk()
    return RealDisk() if request.param == "real" else SimDisk(seed=1)


@pytest.fixture
def root(disk: Disk, tmp_path: Path) -> str:
    path = str(tmp_path / "data")
    disk.make_dirs(path)
    return path


def write(disk: Disk, path: str, data: bytes) -> None:
    file = disk.open(path, create=True)
    file.write_at(0, [data])
    file.close()


def error_code(caught: pytest.ExceptionInfo[OSError]) -> str:
    return errno.errorcode[caught.value.errno or 0]


class TestFiles:
    def test_reads_back_what_was_written(self, disk: Disk, root: str) -> None:
        file: File = disk.open(f"{root}/a", create=True)
        file.write_at(0, [b"hello ", bytearray(b"wor"), memoryview(b"ld")])
        assert b"hello world" == file.read_at(0, 100)
        assert b"wor" == file.read_at(6, 3)
        assert b"" == file.read_at(11, 5)
        assert b"" == file.read_at(1000, 5)
        assert b"" == file.read_at(0, 0)
        assert 11 == file.size() == disk.size(f"{root}/a")
        assert f"{root}/a" == file.path

    def test_writing_nothing_changes_nothing(self, disk: Disk, root: str) -> None:
        file = disk.open(f"{root}/a", create=True)
        file.write_at(100, [])
        file.write_at(100, [b"", b""])
        assert 0 == file.size()

    def test_more_buffers_than_one_call_takes(self, disk: Disk, root: str) -> None:
        buffers = [b"" if number % 7 == 0 else b"%d," % number for number in range(3 * IOV_MAX + 5)]
        file = disk.open(f"{root}/a", create=True)
        file.write_at(3, buffers)
        assert b"\0\0\0" + b"".join(buffers) == file.read_at(0, 1 << 20)

    def test_a_gap_reads_as_zeros(self, disk: Disk, root: str) -> None:
        file = disk.open(f"{root}/a", create=True)
        file.write_at(5000, [b"x"])
        assert bytes(5000) + b"x" == disk.read(f"{root}/a")

    def test_overwrites_in_the_middle(self, disk: Disk, root: str) -> None:
        write(disk, f"{root}/a", b"0123456789")
        file = disk.open(f"{root}/a")
        file.write_at(3, [b"abc"])
        assert b"012abc6789" == file.read_at(0, 99)

    def test_read_into_says_how_far(self, disk: Disk, root: str) -> None:
        write(disk, f"{root}/a", b"0123456789")
        file = disk.open(f"{root}/a", writable=False)
        buffer = bytearray(b"......")
        assert 6 == file.read_into(0, buffer)
        assert b"012345" == buffer
        assert 2 == file.read_into(8, memoryview(buffer)[1:5])
        assert b"089345" == buffer
        assert 0 == file.read_into(10, buffer)

    def test_an_absurd_read_takes_no_absurd_memory(self, disk: Disk, root: str) -> None:
        write(disk, f"{root}/a", b"0123456789")
        assert b"789" == disk.open(f"{root}/a").read_at(7, 1 << 60)
        assert b"" == disk.open(f"{root}/a").read_at(1 << 40, 1 << 60)

    def test_truncate_cuts_and_extends_with_zeros(self, disk: Disk, root: str) -> None:
        file = disk.open(f"{root}/a", create=True)
        file.write_at(0, [b"0123456789"])
        file.truncate(4)
        file.truncate(6)
        assert b"0123\0\0" == file.read_at(0, 99)
        disk.truncate(f"{root}/a", 2)
        assert 2 == file.size()

    def test_a_file_opened_for_reading_refuses_changes(self, disk: Disk, root: str) -> None:
        write(disk, f"{root}/a", b"abc")
        file = disk.open(f"{root}/a", writable=False)
        with pytest.raises(OSError, match="a'") as caught:
            file.write_at(0, [b"x"])
        assert "EBADF" == error_code(caught)
        with pytest.raises(OSError, match="a'") as caught:
            file.truncate(0)
        assert "EINVAL" == error_code(caught)
        assert b"abc" == file.read_at(0, 9)

    def test_negative_positions_are_refused(self, disk: Disk, root: str) -> None:
        file = disk.open(f"{root}/a", create=True)
        for attempt in (
            lambda: file.write_at(-1, [b"x"]),
            lambda: file.read_at(-1, 1),
            lambda: file.read_into(-1, bytearray(1)),
            lambda: file.truncate(-1),
            lambda: disk.truncate(f"{root}/a", -1),
        ):
            with pytest.raises(OSError, match="a'") as caught:
                attempt()
            assert "EINVAL" == error_code(caught)

    def test_a_closed_file_is_refused_and_named(self, disk: Disk, root: str) -> None:
        file = disk.open(f"{root}/a", create=True)
        file.close()
        file.close()
        for attempt in (
            lambda: file.write_at(0, [b"x"]),
            lambda: file.read_at(0, 1),
            lambda: file.read_into(0, bytearray(1)),
            file.size,
            file.sync,
            lambda: file.truncate(0),
        ):
            with pytest.raises(OSError, match="a'") as caught:
                attempt()
            assert "EBADF" == error_code(caught)

    def test_opening_keeps_what_is_there(self, disk: Disk, root: str) -> None:
        write(disk, f"{root}/a", b"abc")
        assert b"abc" == disk.open(f"{root}/a", create=True).read_at(0, 9)

    def test_a_removed_file_stays_readable_while_open(self, disk: Disk, root: str) -> None:
        write(disk, f"{root}/a", b"abc")
        file = disk.open(f"{root}/a")
        disk.remove(f"{root}/a")
        assert b"abc" == file.read_at(0, 9)
        assert not disk.exists(f"{root}/a")
        file.sync()

    def test_a_renamed_file_is_the_same_file(self, disk: Disk, root: str) -> None:
        write(disk, f"{root}/a", b"abc")
        file = disk.open(f"{root}/a")
        disk.rename(f"{root}/a", f"{root}/b")
        file.write_at(3, [b"d"])
        assert b"abcd" == disk.read(f"{root}/b")


class TestErrors:
    def test_missing_files(self, disk: Disk, root: str) -> None:
        for attempt in (
            lambda: disk.open(f"{root}/a"),
            lambda: disk.open(f"{root}/no/a", create=True),
            lambda: disk.map(f"{root}/a"),
            lambda: disk.read(f"{root}/a"),
            lambda: disk.size(f"{root}/a"),
            lambda: disk.truncate(f"{root}/a", 0),
            lambda: disk.remove(f"{root}/a"),
            lambda: disk.list_dir(f"{root}/a"),
            lambda: disk.rename(f"{root}/a", f"{root}/b"),
            lambda: disk.sync_dir(f"{root}/a"),
            lambda: disk.free_bytes(f"{root}/a"),
            lambda: disk.total_bytes(f"{root}/a"),
        ):
            with pytest.raises(FileNotFoundError) as caught:
                attempt()
            assert caught.value.filename is not None

    def test_a_folder_is_no_file(self, disk: Disk, root: str) -> None:
        disk.make_dirs(f"{root}/folder")
        with pytest.raises(IsADirectoryError):
            disk.open(f"{root}/folder")
        with pytest.raises(IsADirectoryError):
            disk.map(f"{root}/folder")
        with pytest.raises(IsADirectoryError):
            disk.remove(f"{root}/folder")

    def test_a_file_is_no_folder(self, disk: Disk, root: str) -> None:
        write(disk, f"{root}/a", b"abc")
        for attempt in (
            lambda: disk.list_dir(f"{root}/a"),
            lambda: disk.open(f"{root}/a/b", create=True),
            lambda: disk.sync_dir(f"{root}/a"),
            lambda: disk.remove_tree(f"{root}/a"),
        ):
            with pytest.raises(NotADirectoryError):
                attempt()
        with pytest.raises(FileExistsError):
            disk.make_dirs(f"{root}/a")
        with pytest.raises(FileExistsError):
            disk.make_dirs(f"{root}/a/b")


class TestScratch:
    def test_a_scratch_file_has_no_name_and_is_like_any_other(self, disk: Disk, root: str) -> None:
        first, second = disk.open_scratch(root), disk.open_scratch(root)
        assert [] == disk.list_dir(root)
        first.write_at(3, [b"abc"])
        second.write_at(0, [b"other"])
        assert (b"\0\0\0abc", b"other") == (first.read_at(0, 99), second.read_at(0, 99))
        first.truncate(1)
        assert (1, 5) == (first.size(), second.size())
        first.close()
        with pytest.raises(OSError, match=root) as caught:
            first.read_at(0, 1)
        assert "EBADF" == error_code(caught)
        assert b"other" == second.read_at(0, 9)
        assert [] == disk.list_dir(root)

    def test_a_scratch_file_needs_a_folder(self, disk: Disk, root: str) -> None:
        with pytest.raises(OSError, match="missing") as caught:
            disk.open_scratch(f"{root}/missing")
        assert "ENOENT" == error_code(caught)


class TestFolders:
    def test_make_dirs_list_and_remove(self, disk: Disk, root: str) -> None:
        disk.make_dirs(f"{root}/x/y/z")
        disk.make_dirs(f"{root}/x/y/z")
        write(disk, f"{root}/x/b", b"1")
        write(disk, f"{root}/x/a", b"2")
        assert ["a", "b", "y"] == disk.list_dir(f"{root}/x")
        assert disk.is_dir(f"{root}/x/y/z")
        assert not disk.is_dir(f"{root}/x/a")
        assert not disk.is_dir(f"{root}/nothing")
        assert not disk.exists(f"{root}/x/a/inside a file")
        assert not disk.is_dir(f"{root}/x/a/inside a file")
        assert disk.exists(f"{root}/x/a")
        disk.remove_tree(f"{root}/x")
        assert not disk.exists(f"{root}/x")
        disk.remove_tree(f"{root}/x")
        assert [] == disk.list_dir(root)

    def test_rename_replaces_a_file(self, disk: Disk, root: str) -> None:
        write(disk, f"{root}/a", b"new")
        write(disk, f"{root}/b", b"old")
        old = disk.open(f"{root}/b")
        disk.rename(f"{root}/a", f"{root}/b")
        assert ["b"] == disk.list_dir(root)
        assert b"new" == disk.read(f"{root}/b")
        assert b"old" == old.read_at(0, 9)

    def test_rename_to_itself_changes_nothing(self, disk: Disk, root: str) -> None:
        write(disk, f"{root}/a", b"abc")
        disk.rename(f"{root}/a", f"{root}/a")
        assert b"abc" == disk.read(f"{root}/a")

    def test_rename_moves_a_folder_with_all_in_it(self, disk: Disk, root: str) -> None:
        disk.make_dirs(f"{root}/x/y")
        write(disk, f"{root}/x/y/a", b"abc")
        disk.make_dirs(f"{root}/elsewhere")
        disk.rename(f"{root}/x", f"{root}/elsewhere/z")
        assert b"abc" == disk.read(f"{root}/elsewhere/z/y/a")
        assert ["elsewhere"] == disk.list_dir(root)

    def test_rename_refuses_what_the_system_refuses(self, disk: Disk, root: str) -> None:
        disk.make_dirs(f"{root}/full/inner")
        disk.make_dirs(f"{root}/folder")
        write(disk, f"{root}/file", b"abc")
        with pytest.raises(OSError, match="not empty"):
            disk.rename(f"{root}/folder", f"{root}/full")
        with pytest.raises(IsADirectoryError):
            disk.rename(f"{root}/file", f"{root}/folder")
        with pytest.raises(NotADirectoryError):
            disk.rename(f"{root}/folder", f"{root}/file")
        with pytest.raises(OSError, match="Invalid") as caught:
            disk.rename(f"{root}/full", f"{root}/full/inner/full")
        assert "EINVAL" == error_code(caught)
        assert ["file", "folder", "full"] == disk.list_dir(root)
        disk.rename(f"{root}/full", f"{root}/folder")
        assert ["inner"] == disk.list_dir(f"{root}/folder")

    def test_syncs_a_folder_and_knows_free_room(self, disk: Disk, root: str) -> None:
        disk.sync_dir(root)
        assert 0 < disk.free_bytes(root) <= disk.total_bytes(root)


class TestMappings:
    def test_maps_what_is_there_for_reading_only(self, disk: Disk, root: str) -> None:
        write(disk, f"{root}/i", b"0123456789")
        mapping: Mapping = disk.map(f"{root}/i")
        assert b"0123456789" == bytes(mapping.view)
        assert mapping.view.readonly
        with pytest.raises(TypeError):
            mapping.view[0] = 1
        mapping.close()
        mapping.close()

    def test_a_mapping_sees_what_is_written(self, disk: Disk, root: str) -> None:
        write(disk, f"{root}/i", b"0123456789")
        mapping = disk.map(f"{root}/i")
        view = mapping.view
        disk.open(f"{root}/i").write_at(2, [b"xx"])
        assert b"01xx456789" == bytes(view)

    def test_an_empty_file_maps_to_an_empty_view(self, disk: Disk, root: str) -> None:
        write(disk, f"{root}/i", b"")
        mapping = disk.map(f"{root}/i")
        assert b"" == bytes(mapping.view)
        assert mapping.view.readonly
        mapping.close()
        with pytest.raises(ValueError, match="closed"):
            _ = mapping.view

    def test_close_is_refused_while_slices_live(self, disk: Disk, root: str) -> None:
        write(disk, f"{root}/i", b"0123456789")
        mapping = disk.map(f"{root}/i")
        part = mapping.view[2:4]
        with pytest.raises(BufferError, match=r"i cannot be unmapped: .*views"):
            mapping.close()
        assert b"23" == bytes(part)
        assert b"0123456789" == bytes(mapping.view)
        part.release()
        mapping.close()
        with pytest.raises(ValueError, match="closed"):
            _ = mapping.view

    def test_each_mapping_of_a_file_counts_its_own_slices(self, disk: Disk, root: str) -> None:
        write(disk, f"{root}/i", b"0123456789")
        used, idle = disk.map(f"{root}/i"), disk.map(f"{root}/i")
        part = used.view[2:4]
        idle.close()
        with pytest.raises(BufferError):
            used.close()
        assert b"23" == bytes(part)

    def test_a_slice_outlives_a_forgotten_mapping(self, disk: Disk, root: str) -> None:
        write(disk, f"{root}/i", b"0123456789")
        part = disk.map(f"{root}/i").view[2:4]
        gc.collect()
        assert b"23" == bytes(part)

    def test_a_mapping_outlives_the_names_of_its_file(self, disk: Disk, root: str) -> None:
        write(disk, f"{root}/i", b"0123456789")
        mapping = disk.map(f"{root}/i")
        disk.rename(f"{root}/i", f"{root}/j")
        write(disk, f"{root}/i", b"another file")
        disk.remove(f"{root}/j")
        assert b"0123456789" == bytes(mapping.view)
        mapping.close()

    @pytest.mark.parametrize("ended", ["closed", "forgotten"])
    def test_once_unmapped_the_file_may_be_resized(self, disk: Disk, root: str, ended: str) -> None:
        write(disk, f"{root}/i", b"0123456789")
        mapping = disk.map(f"{root}/i")
        assert b"0123456789" == bytes(mapping.view)
        if ended == "closed":
            mapping.close()
        del mapping
        gc.collect()
        disk.truncate(f"{root}/i", 4)
        assert b"0123" == disk.read(f"{root}/i")


class TestModificationTimes:
    def test_a_write_renews_it_and_a_read_does_not(self, disk: Disk, root: str) -> None:
        write(disk, f"{root}/old", b"1")
        file = disk.open(f"{root}/old")
        before = disk.modified_ms(f"{root}/old")
        write(disk, f"{root}/new", b"2")
        file.read_at(0, 1)
        assert before == disk.modified_ms(f"{root}/old") <= disk.modified_ms(f"{root}/new")
        file.write_at(1, [b"3"])
        assert disk.modified_ms(f"{root}/new") <= disk.modified_ms(f"{root}/old")
        file.close()

    def test_of_nothing_is_an_error(self, disk: Disk, root: str) -> None:
        with pytest.raises(FileNotFoundError):
            disk.modified_ms(f"{root}/missing")


class TestLocks:
    def test_says_who_holds_it(self, disk: Disk, root: str) -> None:
        lock = disk.try_lock(f"{root}/.lock", "broker 1, process 7")
        assert not isinstance(lock, str)
        assert "broker 1, process 7" == disk.try_lock(f"{root}/.lock", "broker 2")
        held: Lock = lock
        held.release()
        held.release()
        second = disk.try_lock(f"{root}/.lock", "b2")
        assert not isinstance(second, str)
        assert "b2" == disk.try_lock(f"{root}/.lock", "broker 1, process 7")
        held.release()
        assert "b2" == disk.try_lock(f"{root}/.lock", "broker 3")
        second.release()


class TestBackground:
    async def test_answers_and_raises(self, disk: Disk, root: str) -> None:
        file = disk.open(f"{root}/a", create=True)
        file.write_at(0, [b"abc"])
        await disk.in_background(file.sync)
        with pytest.raises(FileNotFoundError):
            await disk.in_background(disk.remove, f"{root}/nothing")
        assert b"abc" == (await disk.in_background(disk.read, path=f"{root}/a"))

    async def test_other_tasks_run_meanwhile(self, disk: Disk, root: str) -> None:
        events: list[str] = []

        async def sync() -> None:
            events.append("asked")
            await disk.in_background(disk.sync_dir, root)
            events.append("synced")

        task = asyncio.create_task(sync())
        await asyncio.sleep(0)
        events.append("other work")
        await task
        assert ["asked", "other work", "synced"] == (events)
