"""The compiled mapping: what the contract of all disks does not say, above all what happens when the disk is full."""

import errno
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.env.mapped_file import MappedFile

TMPFS_BYTES = 256 * 1024


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A real file system with room for 256 KiB."""
    folder = Path(tempfile.mkdtemp(prefix="ottla-full-"))
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={TMPFS_BYTES}", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        folder.rmdir()
        pytest.skip("a full disk needs a small file system, and mounting one needs root")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)
    folder.rmdir()


def run_python(program: str, *args: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(
        [sys.executable, "-c", program, *args], env=environment, capture_output=True, text=True, timeout=30, check=False
    )


FILL = """
import sys
from ottla.env.mapped_file import MappedFile
import os
mapping = MappedFile(sys.argv[1] + "/index", 1 << 20, writable=True)
if sys.argv[2] == "renamed":
    os.rename(sys.argv[1] + "/index", sys.argv[1] + "/other")
view = mapping.view
position = 0
try:
    while True:
        if sys.argv[2] != "unreserved":
            mapping.reserve(position + 8)
        view[position : position + 8] = b"entry..."
        position += 8
except OSError as error:
    whole = bytes(view[:position]) == b"entry..." * (position // 8)
    print(error.errno, position, whole, os.path.basename(error.filename))
"""


class TestFullDisk:
    @pytest.mark.parametrize("kind", ["reserved", "renamed"])
    def test_a_reserve_fails_politely(self, small_disk: Path, kind: str) -> None:
        done = run_python(FILL, str(small_disk), kind)
        assert (0, "") == (done.returncode, done.stderr)
        assert f"{errno.ENOSPC} {TMPFS_BYTES} True index" == done.stdout.strip()

    def test_without_a_reserve_the_process_would_die(self, small_disk: Path) -> None:
        assert -signal.SIGBUS == run_python(FILL, str(small_disk), "unreserved").returncode


class TestResources:
    def test_a_mapping_holds_no_descriptor(self, tmp_path: Path) -> None:
        before = len(os.listdir("/proc/self/fd"))
        mappings = [MappedFile(str(tmp_path / str(number)), 8192, writable=True) for number in range(500)]
        for mapping in mappings:
            mapping.reserve(8192)
            mapping.view[:4] = b"abcd"
        assert before == len(os.listdir("/proc/self/fd"))
        assert sys.getsizeof(mappings[0]) <= 128

    def test_a_dropped_mapping_is_unmapped_once_its_views_are_gone(self, tmp_path: Path) -> None:
        path = str(tmp_path / "dropped")
        view = MappedFile(path, 8192, writable=True).view
        view[:4] = b"abcd"
        assert path in Path("/proc/self/maps").read_text()
        assert b"abcd" == bytes(view[:4])
        del view
        assert path not in Path("/proc/self/maps").read_text()

    def test_close_unmaps(self, tmp_path: Path) -> None:
        path = str(tmp_path / "closed")
        mapping = MappedFile(path, 8192, writable=True)
        assert path in Path("/proc/self/maps").read_text()
        mapping.close()
        assert path not in Path("/proc/self/maps").read_text()

    def test_reserve_takes_room_in_steps(self, tmp_path: Path) -> None:
        path = tmp_path / "sparse"
        mapping = MappedFile(str(path), 10 << 20, writable=True)
        assert 0 == path.stat().st_blocks
        mapping.reserve(1)
        assert 16 * 1024 == path.stat().st_blocks * 512
        mapping.reserve(16 * 1024)
        assert 16 * 1024 == path.stat().st_blocks * 512
        mapping.reserve(16 * 1024 + 1)
        assert 32 * 1024 == path.stat().st_blocks * 512

    def test_a_reserve_keeps_what_is_written(self, tmp_path: Path) -> None:
        path = tmp_path / "kept"
        path.write_bytes(b"x" * 40_000)
        mapping = MappedFile(str(path), 80_000, writable=True)
        mapping.reserve(80_000)
        mapping.close()
        assert b"x" * 40_000 + bytes(40_000) == path.read_bytes()


class TestErrors:
    def test_errors_name_the_path(self, tmp_path: Path) -> None:
        with pytest.raises(IsADirectoryError, match=str(tmp_path)):
            MappedFile(str(tmp_path), writable=True)
        with pytest.raises(OSError, match="huge") as caught:
            MappedFile(str(tmp_path / "huge"), 1 << 62, writable=True)
        assert caught.value.errno in (errno.EFBIG, errno.ENOMEM)
        with pytest.raises(OverflowError):
            MappedFile(str(tmp_path / "huger"), 1 << 64, writable=True)
        with pytest.raises(ValueError, match="zero byte"):
            MappedFile("a\0b")
        with pytest.raises(TypeError):
            MappedFile(None)  # type: ignore[arg-type]

    def test_a_read_only_mapping_gives_no_writable_buffer(self, tmp_path: Path) -> None:
        path = tmp_path / "a"
        path.write_bytes(b"abc")
        mapping = MappedFile(str(path))
        with pytest.raises(TypeError, match="read-write"), path.open("rb") as file:
            file.readinto(mapping)
        assert 3 == len(mapping)
        mapping.close()


class TestThreads:
    def test_syncs_run_beside_each_other(self, tmp_path: Path) -> None:
        mapping = MappedFile(str(tmp_path / "a"), 1 << 20, writable=True)
        mapping.reserve(1 << 20)
        failures: list[BaseException] = []

        def sync() -> None:
            try:
                for number in range(20):
                    mapping.view[number] = number
                    mapping.sync()
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=sync) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [] == failures
        mapping.close()
        assert bytes(range(20)) == (tmp_path / "a").read_bytes()[:20]
