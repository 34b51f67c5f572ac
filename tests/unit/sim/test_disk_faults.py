"""Planned faults of the simulated disk: at every operation, on paths, by capacity, and the mistakes it finds."""

import errno
from collections.abc import Callable

import pytest

from ottla.model.errors import MisuseError
from ottla.sim.disk import Moment, NameOrder, SimDisk, SimulatedCrash
from tests.unit.sim.crashes import put, with_synced_file


def scenario(disk: SimDisk) -> None:
    """Replaces a small file the safe way; every kind of operation is in it."""
    disk.make_dirs("/d")
    disk.remove_tree("/d/rest")
    file = disk.open("/d/tmp", create=True)
    file.truncate(0)
    file.write_at(0, [b"new" * 1000])
    file.sync()
    file.close()
    disk.rename("/d/tmp", "/d/a")
    disk.sync_dir("/d")
    disk.open("/d/i", create=True)
    disk.remove("/d/i")


class TestFaults:
    def test_operations_are_named(self) -> None:
        disk = SimDisk()
        disk.make_dirs("/d")
        start = disk.operation_count
        scenario(disk)
        assert "create truncate write sync rename sync_dir create remove" == " ".join(
            operation.name for operation in disk.trace[start:]
        )
        assert "0 make_dir /d" == str(disk.trace[0])

    def test_a_plan_that_is_forgotten_strikes_nobody(self) -> None:
        disk = SimDisk()
        disk.make_dirs("/d")
        disk.fail_at(disk.operation_count, OSError(errno.EIO, "simulated"))
        disk.faults.forget_plans()
        scenario(disk)
        assert b"new" * 1000 == disk.read("/d/a")

    @pytest.mark.parametrize("moment", Moment)
    @pytest.mark.parametrize("order", NameOrder)
    def test_a_crash_at_every_operation_leaves_old_or_new(self, moment: Moment, order: NameOrder) -> None:
        def prepared(seed: int) -> SimDisk:
            disk = SimDisk(seed, order=order)
            disk.make_dirs("/d")
            put(disk, "/d/a", b"old", synced=True)
            disk.sync_dir("/d")
            return disk

        whole = prepared(0)
        start = whole.operation_count
        scenario(whole)
        found = set()
        for number in range(start, whole.operation_count):
            for seed in range(20):
                disk = prepared(seed)
                disk.fail_at(number, SimulatedCrash, moment)
                with pytest.raises(SimulatedCrash):
                    scenario(disk)
                restarted = disk.crash()
                found.add(restarted.read("/d/a"))
                scenario(restarted)
                assert b"new" * 1000 == restarted.read("/d/a")
        assert {b"old", b"new" * 1000} == found

    def test_an_error_strikes_once_before_or_in_the_middle(self) -> None:
        disk = with_synced_file(b"abc")
        file = disk.open("/d/a")
        disk.fail_at(disk.operation_count, OSError(errno.EIO, "bad"))
        with pytest.raises(OSError, match="bad"):
            file.write_at(3, [b"defg"])
        assert b"abc" == file.read_at(0, 99)
        disk.fail_at(disk.operation_count, OSError(errno.EIO, "bad"), Moment.MIDDLE)
        with pytest.raises(OSError, match="bad"):
            file.write_at(3, [b"defg"])
        assert b"abcde" == file.read_at(0, 99)
        file.write_at(3, [b"defg"])
        assert b"abcdefg" == file.read_at(0, 99)

    def test_broken_and_read_only_paths(self) -> None:
        disk = with_synced_file(b"abc")
        disk.make_dirs("/d2")
        file = disk.open("/d/a")
        disk.break_path("/d")
        for attempt in (lambda: file.read_at(0, 1), lambda: disk.list_dir("/d"), lambda: disk.open("/d/a")):
            with pytest.raises(OSError, match="Input/output error"):
                attempt()
        put(disk, "/d2/b", b"fine")
        disk.heal("/d")
        disk.make_read_only()
        for change in (
            lambda: file.write_at(0, [b"x"]),
            lambda: disk.rename("/d/a", "/d/b"),
            lambda: disk.remove("/d/a"),
            lambda: disk.make_dirs("/e"),
            lambda: disk.open("/d/c", create=True),
        ):
            with pytest.raises(OSError, match="Read-only"):
                change()
        assert b"abc" == disk.open("/d/a", writable=False).read_at(0, 9)
        disk.heal()
        file.write_at(0, [b"x"])

    def test_a_full_disk(self) -> None:
        disk = SimDisk(capacity=10 * 4096)
        disk.make_dirs("/d")
        put(disk, "/d/a", bytes(8 * 4096))
        assert 2 * 4096 == disk.free_bytes("/d")
        file = disk.open("/d/b", create=True)
        with pytest.raises(OSError, match="No space"):
            file.truncate(2 * 4096 + 1)
        assert 0 == file.size()
        with pytest.raises(OSError, match="No space"):
            file.write_at(0, [b"x" * 10_000])
        assert b"x" * 8192 == disk.read("/d/b")
        disk.remove("/d/a")
        file.write_at(0, [b"y" * 10_000])
        assert 7 * 4096 == disk.free_bytes("/d")

    def test_a_flipped_bit_stays_flipped(self) -> None:
        disk = with_synced_file(b"abc")
        disk.flip("/d/a", 1, 0)
        assert (b"acc", b"acc") == (disk.read("/d/a"), disk.crash().read("/d/a"))
        disk = with_synced_file(b"abc")
        put(disk, "/d/a", b"b")
        disk.flip("/d/a", 0, 0)
        disk.open("/d/a").sync()
        assert b"cbc" == disk.crash().read("/d/a")

    def test_a_cut_file_stays_cut(self) -> None:
        disk = with_synced_file(b"abc")
        put(disk, "/d/a", b"xyz")
        disk.cut("/d/a", 2)
        assert (b"xy", b"xy") == (disk.read("/d/a"), disk.crash().read("/d/a"))


class TestMisuse:
    @pytest.mark.parametrize("held", ["mapping", "slice"])
    def test_resizing_a_mapped_file_is_found(self, held: str) -> None:
        disk = with_synced_file(b"abc")
        reader: object = disk.map("/d/a") if held == "mapping" else disk.map("/d/a").view[1:2]
        file = disk.open("/d/a")
        resizes: tuple[Callable[[], None], ...] = (
            lambda: file.truncate(1),
            lambda: disk.truncate("/d/a", 9),
            lambda: file.write_at(2, [b"cd"]),
        )
        for resize in resizes:
            with pytest.raises(MisuseError, match=r"/d/a .*mapped"):
                resize()
            assert b"abc" == disk.read("/d/a")
        file.write_at(0, [b"xyz"])
        del reader
        file.write_at(2, [b"cd"])
        assert b"xycd" == disk.read("/d/a")

    def test_a_mapping_of_a_dead_process_binds_nobody(self) -> None:
        disk = with_synced_file(b"abc")
        mapping = disk.map("/d/a")
        for found in (disk.kill(), disk.crash()):
            found.truncate("/d/a", 1)
            assert b"a" == found.read("/d/a")
        assert b"abc" == bytes(mapping.view)
