"""What a crash and a kill leave on the simulated disk: each sentence of its fault model, both ways.

"Both ways" means that a test shows over many seeds that the forbidden never comes and that the allowed does come.
"""

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.sim.disk import Moment, NameOrder, SimDisk, SimulatedCrash
from ottla.sim.inode import UNSYNCED_CHANGES_MAX
from ottla.sim.random import SimRandom
from tests.unit.sim.crashes import SEEDS, names, outcomes, put, with_synced_file


class TestBytes:
    def test_synced_bytes_survive(self) -> None:
        disk = with_synced_file(bytes(range(256)) * 20)
        assert {bytes(range(256)) * 20} == outcomes(lambda: disk, lambda found: found.read("/d/a"))

    def test_an_unsynced_append_survives_whole_cut_zeroed_or_not_at_all(self) -> None:
        def build() -> SimDisk:
            disk = with_synced_file(b"s" * 100)
            put(disk, "/d/a", b"u" * 2000, position=100)
            return disk

        found = outcomes(build, lambda disk: disk.read("/d/a"))
        for image in found:
            assert isinstance(image, bytes)
            assert b"s" * 100 == image[:100]
            assert set(image[100:]) <= set(b"u\0")
        assert b"s" * 100 in found
        assert b"s" * 100 + b"u" * 2000 in found
        sizes = {len(image) for image in found if isinstance(image, bytes)}
        assert any((size - 100) % 512 and size < 2100 for size in sizes), "a tail cut inside a sector"
        assert any(b"\0u" in image for image in found if isinstance(image, bytes)), "a hole before surviving bytes"

    def test_overwritten_sectors_survive_in_any_combination_but_whole(self) -> None:
        def build() -> SimDisk:
            disk = with_synced_file(b"o" * 1536)
            put(disk, "/d/a", b"n" * 1536)
            return disk

        found = outcomes(build, lambda disk: disk.read("/d/a"))
        expected = {bytes([x]) * 512 + bytes([y]) * 512 + bytes([z]) * 512 for x in b"on" for y in b"on" for z in b"on"}
        assert expected == found

    def test_a_sector_never_shows_a_later_write_without_an_earlier_one(self) -> None:
        def build() -> SimDisk:
            disk = with_synced_file(b"..")
            put(disk, "/d/a", b"1")
            put(disk, "/d/a", b"2", position=1)
            return disk

        assert {b"..", b"1.", b"12"} == outcomes(build, lambda disk: disk.read("/d/a"))

    def test_truncations_and_appends_survive_in_order(self) -> None:
        def build() -> SimDisk:
            disk = with_synced_file(b"o" * 1024)
            disk.truncate("/d/a", 512)
            put(disk, "/d/a", b"n" * 512, position=512)
            return disk

        found = outcomes(build, lambda disk: disk.read("/d/a"))
        for image in found:
            assert isinstance(image, bytes)
            assert b"o" * 512 == image[:512]
            regrown = image[512:]
            assert regrown == b"o" * 512 or set(regrown) <= set(b"n") or set(regrown) <= set(b"\0")
        assert {b"o" * 1024, b"o" * 512, b"o" * 512 + b"n" * 512} < found

    def test_a_block_that_was_cut_off_does_not_come_back_with_new_bytes(self) -> None:
        def build() -> SimDisk:
            disk = with_synced_file(b"o" * 1024)
            disk.truncate("/d/a", 512)
            put(disk, "/d/a", b"n" * 256, position=512)
            return disk

        found = outcomes(build, lambda disk: disk.read("/d/a"))
        assert set() == {image for image in found if isinstance(image, bytes) and b"no" in image}
        assert {b"o" * 1024, b"o" * 512, b"o" * 512 + b"n" * 256} < found

    def test_a_sync_covers_what_was_written_before_it_only(self) -> None:
        def build() -> SimDisk:
            disk = SimDisk()
            disk.make_dirs("/d")
            put(disk, "/d/a", b"1" * 600, synced=True)
            disk.sync_dir("/d")
            put(disk, "/d/a", b"2" * 600, position=600)
            return disk

        assert {b"1" * 600} == outcomes(build, lambda disk: disk.read("/d/a")[:600])
        assert b"" in outcomes(build, lambda disk: disk.read("/d/a")[600:])

    @pytest.mark.parametrize("moment", Moment)
    def test_a_failed_sync_is_not_made_good_by_the_next(self, moment: Moment) -> None:
        def build(seed: int) -> bytes:
            disk = SimDisk(seed)
            disk.make_dirs("/d")
            file = disk.open("/d/a", create=True)
            disk.sync_dir("/d")
            file.write_at(0, [b"x" * 1024])
            disk.fail_at(disk.operation_count, OSError(errno.EIO, "broken"), moment)
            with pytest.raises(OSError, match="broken"):
                file.sync()
            assert b"x" * 1024 == file.read_at(0, 2000)
            file.sync()
            return disk.crash().read("/d/a")

        found = {build(seed) for seed in SEEDS}
        assert {1024} == {len(image) for image in found}
        assert {bytes(1024), b"x" * 1024} < found

    def test_a_crash_in_a_sync_may_keep_all_or_any_part(self) -> None:
        def build(moment: Moment) -> SimDisk:
            disk = with_synced_file(b"o" * 1024)
            put(disk, "/d/a", b"n" * 1024)
            disk.fail_at(disk.operation_count, SimulatedCrash, moment)
            with pytest.raises(SimulatedCrash):
                disk.open("/d/a").sync()
            return disk

        old, new = b"o" * 512, b"n" * 512
        expected = {old + old, old + new, new + old, new + new}
        assert expected == outcomes(lambda: build(Moment.BEFORE), lambda disk: disk.read("/d/a"))
        assert {new + new} == outcomes(lambda: build(Moment.MIDDLE), lambda disk: disk.read("/d/a"))
        assert new + new == build(Moment.BEFORE).kill().read("/d/a")

    def test_a_long_life_without_sync_keeps_memory_bounded(self) -> None:
        disk = with_synced_file(b"")
        file = disk.open("/d/a")
        for number in range(2 * UNSYNCED_CHANGES_MAX):
            file.write_at(number * 4, [b"%04d" % number])
        inode = disk._tree.file("/d/a")
        assert len(inode.unsynced) <= UNSYNCED_CHANGES_MAX
        survived = disk.crash().read("/d/a")
        assert b"".join(b"%04d" % number for number in range(100)) == survived[:400]


class TestNames:
    def test_a_synced_file_needs_its_name_synced(self) -> None:
        def build() -> SimDisk:
            disk = SimDisk()
            disk.make_dirs("/d")
            put(disk, "/d/a", b"abc", synced=True)
            return disk

        assert {"", "a"} == outcomes(build, names)

    def test_make_dirs_is_durable(self) -> None:
        disk = SimDisk()
        disk.make_dirs("/d/e/f")
        assert {True} == outcomes(lambda: disk, lambda found: found.is_dir("/d/e/f"))

    def test_a_rename_is_old_or_new(self) -> None:
        def build() -> SimDisk:
            disk = with_synced_file(b"old")
            put(disk, "/d/tmp", b"new", synced=True)
            disk.sync_dir("/d")
            disk.rename("/d/tmp", "/d/a")
            return disk

        def look(disk: SimDisk) -> str:
            return f"{names(disk)}: {disk.read('/d/a').decode()}"

        assert {"a tmp: old", "a: new"} == outcomes(build, look)

    def test_a_rename_between_folders_is_one_step(self) -> None:
        for order in NameOrder:
            disk = with_synced_file(b"abc", order)
            disk.make_dirs("/e")
            put(disk, "/e/other", b"")
            disk.rename("/d/a", "/e/a")
            synced = disk.kill()
            assert {("a", ""), ("a", "other"), ("", "a other")} | (
                {("", "a")} if order is NameOrder.NAME else set()
            ) == {
                (names(found), names(found, "/e")) for found in (disk.kill().crash(SimRandom(seed)) for seed in SEEDS)
            }
            synced.sync_dir("/d")
            survived = [synced.kill().crash(SimRandom(seed)) for seed in SEEDS]
            assert {("", "a other")} == {(names(found), names(found, "/e")) for found in survived}

    def test_changes_of_a_folder_survive_as_a_prefix(self) -> None:
        def build() -> SimDisk:
            disk = SimDisk()
            disk.make_dirs("/d")
            for name in "abc":
                put(disk, f"/d/{name}", b"")
            disk.remove("/d/a")
            return disk

        assert {"", "a", "a b", "a b c", "b c"} == outcomes(build, names)

    def test_in_the_harsher_order_names_overtake_each_other_but_not_themselves(self) -> None:
        def build() -> SimDisk:
            disk = SimDisk(order=NameOrder.NAME)
            disk.make_dirs("/d")
            put(disk, "/d/a", b"")
            put(disk, "/d/b", b"")
            disk.remove("/d/a")
            return disk

        assert {"", "a", "b", "a b"} == outcomes(build, names)
        disk = with_synced_file(b"abc", NameOrder.NAME)
        disk.rename("/d/a", "/d/b")
        disk.rename("/d/b", "/d/c")
        assert {"a", "b", "c"} == {names(disk.kill().crash(SimRandom(seed))) for seed in SEEDS}

    def test_a_removed_file_may_come_back_with_its_bytes(self) -> None:
        def build() -> SimDisk:
            disk = with_synced_file(b"abc")
            disk.remove("/d/a")
            return disk

        assert {b"abc", None} == outcomes(build, lambda disk: disk.read("/d/a") if disk.exists("/d/a") else None)

    def test_a_synced_removal_stays(self) -> None:
        disk = with_synced_file(b"abc")
        disk.remove_tree("/d")
        disk.sync_dir("/")
        assert {False} == outcomes(lambda: disk, lambda found: found.exists("/d"))

    def test_what_vanished_is_gone_for_good(self) -> None:
        def build() -> SimDisk:
            disk = with_synced_file(b"abc")
            put(disk, "/d/b", b"abc")
            disk.rename("/d/a", "/d/c")
            disk.vanish("/d/b")
            disk.vanish("/d/c")
            return disk

        assert {"", "a"} == outcomes(build, names)
        disk = build()
        file = disk.open("/d/e", create=True)
        file.write_at(0, [b"abc"])
        disk.vanish("/d")
        assert b"abc" == file.read_at(0, 9)
        with pytest.raises(FileNotFoundError):
            disk.open("/d/e", create=True)
        assert not disk.crash().exists("/d")


class TestDeath:
    def test_after_a_crash_everything_from_before_is_dead(self) -> None:
        disk = with_synced_file(b"abc")
        file = disk.open("/d/a")
        mapping = disk.map("/d/a")
        view = mapping.view
        lock = disk.try_lock("/d/.lock", "one")
        assert not isinstance(lock, str)
        restarted = disk.crash()
        for attempt in (
            lambda: file.write_at(0, [b"x"]),
            lambda: file.read_at(0, 1),
            file.sync,
            lambda: disk.open("/d/b", create=True),
            lambda: disk.exists("/d"),
            lambda: disk.sync_dir("/d"),
        ):
            with pytest.raises(SimulatedCrash):
                attempt()
        file.close()
        mapping.close()
        lock.release()
        assert b"abc" == bytes(view)
        assert b"abc" == restarted.read("/d/a")
        assert not isinstance(restarted.try_lock("/d/.lock", "two"), str)

    def test_a_planned_crash_is_the_end_at_once(self) -> None:
        disk = with_synced_file(b"abc")
        file = disk.open("/d/a")
        disk.fail_at(disk.operation_count)
        with pytest.raises(SimulatedCrash):
            file.write_at(3, [b"def"])
        with pytest.raises(SimulatedCrash):
            file.read_at(0, 1)
        with pytest.raises(SimulatedCrash):
            disk.exists("/d")

    def test_a_kill_keeps_every_byte_and_name_but_not_durability(self) -> None:
        disk = SimDisk()
        disk.make_dirs("/d")
        put(disk, "/d/a", b"abc")
        file = disk.open("/d/a")
        assert not isinstance(disk.try_lock("/d/.lock", "one"), str)
        found = disk.kill()
        with pytest.raises(SimulatedCrash):
            file.write_at(0, [b"ghostly"])
        assert b"abc" == found.read("/d/a")
        assert not isinstance(found.try_lock("/d/.lock", "two"), str)
        assert {"", ".lock a"} < {names(found.kill().crash(SimRandom(seed))) for seed in SEEDS}

    def test_the_same_seed_gives_the_same_disk(self) -> None:
        def build(seed: int) -> dict[str, bytes]:
            disk = SimDisk(seed)
            disk.make_dirs("/d")
            for number in range(20):
                put(disk, f"/d/{number}", bytes([number]) * 3000)
            found = disk.crash()
            return {name: found.read(f"/d/{name}") for name in found.list_dir("/d")}

        assert build(7) == build(7)
        assert len({str(build(seed)) for seed in range(20)}) > 10


changes = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 3000), st.binary(min_size=1, max_size=1500)),
        st.tuples(st.just("truncate"), st.integers(0, 4000), st.just(b"")),
        st.tuples(st.just("sync"), st.just(0), st.just(b"")),
    ),
    max_size=20,
)


class TestAnyHistory:
    @given(changes, st.integers(0, 1 << 32))
    def test_the_page_cache_is_a_plain_file_and_a_sync_a_promise(
        self, history: list[tuple[str, int, bytes]], seed: int
    ) -> None:
        disk = with_synced_file(b"")
        file = disk.open("/d/a")
        plain = bytearray()
        for kind, number, data in history:
            if kind == "write":
                file.write_at(number, [data])
                plain.extend(bytes(max(0, number + len(data) - len(plain))))
                plain[number : number + len(data)] = data
            elif kind == "truncate":
                file.truncate(number)
                plain = plain[:number] + bytes(max(0, number - len(plain)))
            else:
                file.sync()
        assert bytes(plain) == file.read_at(0, 1 << 20)
        assert bytes(plain) == disk.kill().read("/d/a")
        synced = disk.kill()
        synced.open("/d/a").sync()
        assert bytes(plain) == synced.crash(SimRandom(seed)).read("/d/a")

    @given(changes, st.integers(0, 1 << 32))
    def test_every_surviving_sector_is_from_some_moment(self, history: list[tuple[str, int, bytes]], seed: int) -> None:
        disk = with_synced_file(b"")
        file = disk.open("/d/a")
        moments = [b""]
        for kind, number, data in history:
            if kind == "write":
                file.write_at(number, [data])
            elif kind == "truncate":
                file.truncate(number)
            else:
                file.sync()
                moments.clear()
            moments.append(file.read_at(0, 1 << 20))
        survived = disk.crash(SimRandom(seed)).read("/d/a")
        assert len(survived) <= max(len(moment) for moment in moments)
        for at in range(0, len(survived), 512):
            sector = survived[at : at + 512]
            # A moment's sector shorter than the surviving size reads as zeros behind its end.
            allowed = [moment[at : at + 512].ljust(512, b"\0")[: len(sector)] for moment in moments]
            cut = [
                one[:end].ljust(len(sector), b"\0")[: len(sector)]
                for one in allowed
                for end in {len(m) - at for m in moments}
                if 0 < end < 512
            ]
            assert sector == bytes(len(sector)) or sector in allowed or sector in cut
