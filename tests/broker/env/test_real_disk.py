"""The real disk: descriptors, short writes, processes and threads, which the simulated one does not have."""

import asyncio
import errno
import gc
import os
import pickle
import resource
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.env.ports import Clock, Disk, Random
from ottla.env.real_clock import RealClock
from ottla.env.real_disk import RealDisk
from ottla.env.real_random import RealRandom
from ottla.model.buffer import Buffer
from tests.unit.env.open_files import open_below


@pytest.fixture
def file_size_limit() -> Iterator[int]:
    """The system writes up to here and then refuses, which makes writes genuinely short."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    yield 10_000
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


class TestFiles:
    def test_a_short_write_goes_on_until_the_disk_refuses(self, tmp_path: Path, file_size_limit: int) -> None:
        file = RealDisk().open(str(tmp_path / "a"), create=True)
        buffers = [b"%06d" % number for number in range(3000)]
        with pytest.raises(OSError, match=str(tmp_path / "a")) as caught:
            file.write_at(0, buffers)
        assert errno.EFBIG == caught.value.errno
        assert b"".join(buffers)[:file_size_limit] == file.read_at(0, 1 << 20)

    def test_a_write_cut_anywhere_is_continued(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        calls: list[int] = []

        def short(descriptor: int, buffers: list[bytes], position: int) -> int:
            calls.append(position)
            return os.pwrite(descriptor, b"".join(buffers)[:7], position)

        monkeypatch.setattr("ottla.env.real_disk.pwritev", short)
        file = RealDisk().open(str(tmp_path / "a"), create=True)
        buffers: list[Buffer] = [b"ab", b"", memoryview(b"cdefg"), bytearray(b"hijklmnopqrstuv"), b"w", b"", b"xyz"]
        file.write_at(5, buffers)
        assert bytes(5) + b"abcdefghijklmnopqrstuvwxyz" == file.read_at(0, 99)
        assert [5, 12, 19, 26] == calls

    def test_a_disk_that_takes_nothing_is_an_error_not_a_loop(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("ottla.env.real_disk.pwritev", lambda *_: 0)
        file = RealDisk().open(str(tmp_path / "a"), create=True)
        with pytest.raises(OSError, match="accepts no more bytes") as caught:
            file.write_at(0, [b"abc"])
        assert (errno.EIO, str(tmp_path / "a")) == (caught.value.errno, caught.value.filename)

    def test_the_descriptor_goes_with_the_last_reference(self, tmp_path: Path) -> None:
        file = RealDisk().open(str(tmp_path / "a"), create=True)
        assert [str(tmp_path / "a")] == open_below(tmp_path)
        del file
        gc.collect()
        assert [] == open_below(tmp_path)

    def test_what_opens_briefly_leaves_nothing_open(self, tmp_path: Path) -> None:
        disk = RealDisk()
        file = disk.open(str(tmp_path / "a"), create=True)
        assert [str(tmp_path / "a")] == open_below(tmp_path)
        file.close()
        disk.sync_dir(str(tmp_path))
        disk.read(str(tmp_path / "a"))
        held = disk.try_lock(str(tmp_path / "lock"), "me")
        assert "me" == disk.try_lock(str(tmp_path / "lock"), "another")
        assert [str(tmp_path / "lock")] == open_below(tmp_path)
        assert not isinstance(held, str)
        held.release()
        assert [] == open_below(tmp_path)

    def test_a_full_device_is_told_with_its_path(self) -> None:
        file = RealDisk().open("/dev/full")
        with pytest.raises(OSError, match="/dev/full") as caught:
            file.write_at(0, [b"abc", b"def"])
        assert errno.ENOSPC == caught.value.errno

    def test_a_closed_file_has_no_descriptor(self, tmp_path: Path) -> None:
        file = RealDisk().open(str(tmp_path / "a"), create=True)
        file.close()
        with pytest.raises(OSError, match="closed"):
            file.fileno()


HOLD_LOCK = """
import os, sys
from ottla.env.real_disk import RealDisk
lock = RealDisk().try_lock(sys.argv[1], f"process {os.getpid()}")
print("held" if not isinstance(lock, str) else lock, flush=True)
del lock
sys.stdin.read()
"""


class TestLocks:
    def test_a_lock_ends_with_its_process(self, tmp_path: Path) -> None:
        path = str(tmp_path / ".lock")
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        holder = subprocess.Popen(
            [sys.executable, "-c", HOLD_LOCK, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        assert holder.stdin is not None
        assert holder.stdout is not None
        assert b"held\n" == holder.stdout.readline()
        assert f"process {holder.pid}" == RealDisk().try_lock(path, "me")
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        holder.stdin.close()
        holder.stdout.close()
        lock = RealDisk().try_lock(path, "me")
        assert not isinstance(lock, str)
        assert "me" == RealDisk().try_lock(path, "another")
        lock.release()


class TestDisk:
    def test_it_pickles_also_after_its_threads_started(self, tmp_path: Path) -> None:
        disk = RealDisk()
        (tmp_path / "a").write_bytes(b"abc")
        assert b"abc" == asyncio.run(disk.in_background(disk.read, str(tmp_path / "a")))
        copy: Disk = pickle.loads(pickle.dumps(disk))
        assert b"abc" == asyncio.run(copy.in_background(copy.read, str(tmp_path / "a")))

    def test_the_background_is_another_thread(self) -> None:
        assert threading.get_ident() != asyncio.run(RealDisk().in_background(threading.get_ident))

    def test_free_room_is_the_systems(self, tmp_path: Path) -> None:
        status = os.statvfs(tmp_path)
        free = RealDisk().free_bytes(str(tmp_path))
        assert 0 < free <= status.f_blocks * status.f_frsize

    def test_a_disk_that_cannot_tell_does_not_say_no(self, tmp_path: Path) -> None:
        loop = tmp_path / "loop"
        loop.symlink_to(loop)
        disk = RealDisk()
        for ask in (disk.exists, disk.is_dir, disk.make_dirs):
            with pytest.raises(OSError, match="Too many levels of symbolic links"):
                ask(str(loop))
        assert not disk.exists(str(tmp_path / "nothing"))

    def test_relative_paths(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        RealDisk().make_dirs("x/y")
        RealDisk().make_dirs("z")
        assert ["x", "z"] == RealDisk().list_dir(".")


class TestClockAndRandom:
    async def test_the_clock_runs(self) -> None:
        clock: Clock = RealClock()
        start, start_ms = clock.monotonic(), clock.now_ms()
        await clock.sleep(0.02)
        seconds, milliseconds = (clock.monotonic() - start, clock.now_ms() - start_ms)
        assert 0.02 <= seconds < 60
        assert milliseconds >= 19

    def test_random_numbers_differ_and_keep_their_ranges(self) -> None:
        random: Random = RealRandom()
        other: Random = RealRandom()
        assert random.randbytes(16) != other.randbytes(16)
        assert 16 == len(random.randbytes(16))
        assert {0, 1, 2} == {random.randrange(3) for _ in range(200)}
        assert all(0 <= random.random() < 1 for _ in range(100))


class TestScratch:
    def test_a_file_system_without_unnamed_files_gets_a_name_for_a_moment(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(
            os, "O_TMPFILE", os.O_DIRECTORY
        )  # refused with EISDIR, as by a kernel that does not know it
        file = RealDisk().open_scratch(str(tmp_path))
        file.write_at(0, [b"abc"])
        assert b"abc" == file.read_at(0, 9)
        assert [] == list(tmp_path.iterdir())


def test_data_dirs_are_for_their_owner_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    disk = RealDisk()
    disk.make_dirs(f"{tmp_path}/parent/data")
    assert 0o700 == stat.S_IMODE((tmp_path / "parent" / "data").stat().st_mode)
    disk.make_dirs(f"{tmp_path}/parent/data")
    assert [] == caplog.records


def test_a_data_dir_that_others_can_read_is_warned_about_once_and_left(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk, folder = RealDisk(), tmp_path / "data"
    folder.mkdir()
    folder.chmod(0o750)
    for _ in range(2):
        disk.make_dirs(str(folder))
    (record,) = caplog.records
    assert ("WARNING", True) == (record.levelname, f"chmod 700 {folder}" in record.getMessage())
    assert 0o750 == stat.S_IMODE(folder.stat().st_mode)
