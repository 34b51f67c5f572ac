"""Offset and time indexes: in memory while they grow, a file once sealed, and never believed blindly."""

import pytest

from ottla.env.ports import Disk
from ottla.env.real_disk import RealDisk
from ottla.model.errors import CorruptError
from ottla.model.ids import Offset, TimestampMs
from ottla.sim.disk import SimDisk
from ottla.storage.segments.index_file import IndexFile
from ottla.storage.segments.offset_index import OffsetIndex
from ottla.storage.segments.time_index import TimeIndex
from tests.unit.storage.rig import put


@pytest.fixture(params=["real", "simulated"])
def disk(request: pytest.FixtureRequest) -> Disk:
    return RealDisk() if request.param == "real" else SimDisk()


@pytest.fixture
def path(disk: Disk, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = str(tmp_path_factory.mktemp("index"))
    disk.make_dirs(folder)
    return f"{folder}/i"


def offsets(disk: Disk, path: str) -> OffsetIndex:
    return OffsetIndex(disk, path, Offset(1000), 80)


def times(disk: Disk, path: str) -> TimeIndex:
    return TimeIndex(disk, path, Offset(1000), 120)


def test_offsets(disk: Disk, path: str) -> None:
    index = offsets(disk, path)
    assert (1000, 0) == index.look_up(Offset(5000))
    for number in range(1, 4):
        index.append(Offset(1000 + 10 * number), 100 * number)
    asked = (1000, 1009, 1010, 1019, 1020, 9999)
    found = [(1000, 0), (1000, 0), (1010, 100), (1010, 100), (1020, 200), (1030, 300)]
    assert found == [index.look_up(Offset(offset)) for offset in asked]
    assert not disk.exists(path)

    index.entries.seal()
    assert bytes.fromhex("0000000a00000064 00000014000000c8 0000001e0000012c") == disk.read(path)
    assert found == [index.look_up(Offset(offset)) for offset in asked]
    again = offsets(disk, path)
    again.entries.load()
    assert found == [again.look_up(Offset(offset)) for offset in asked]

    again.truncate_to(Offset(1030))
    assert (1020, 200) == again.look_up(Offset(9999))
    again.append(Offset(1025), 250)
    again.entries.seal()
    assert (1025, 250) == again.look_up(Offset(9999))
    assert 24 == disk.size(path)


def test_full(disk: Disk, path: str) -> None:
    index = offsets(disk, path)
    for number in range(10):
        assert not index.is_full
        index.append(Offset(1001 + number), number + 1)
    assert index.is_full
    timed = times(disk, path)
    for number in range(9):
        assert not timed.is_full
        timed.append(TimestampMs(number), Offset(1001 + number))
    assert timed.is_full


def test_times(disk: Disk, path: str) -> None:
    index = times(disk, path)
    assert (-1, 1000) == index.last() == index.look_up(TimestampMs(5))
    index.append(TimestampMs(50), Offset(1003))
    index.append(TimestampMs(50), Offset(1004))
    index.append(TimestampMs(40), Offset(1005))
    index.append(TimestampMs(70), Offset(1006))
    found = [index.look_up(TimestampMs(timestamp)) for timestamp in (49, 50, 69, 70, 99)]
    assert [(-1, 1000), (50, 1003), (50, 1003), (70, 1006), (70, 1006)] == found
    index.entries.seal()
    again = times(disk, path)
    again.load()
    again.append(TimestampMs(70), Offset(1009))
    assert (70, 1006) == again.last()
    again.truncate_to(Offset(1006))
    assert (50, 1003) == again.last()
    again.append(TimestampMs(60), Offset(1007))
    assert (60, 1007) == again.last()


def test_an_empty_one_is_a_file_too(disk: Disk, path: str) -> None:
    index = offsets(disk, path)
    index.entries.seal()
    assert b"" == disk.read(path)
    again = offsets(disk, path)
    again.entries.load()
    assert (1000, 0) == again.look_up(Offset(1500))


def test_damage_is_told(disk: Disk, path: str) -> None:
    index = IndexFile(disk, path, entry_bytes=8, wide=False, bytes_max=800)
    put(disk, path, bytes(7))
    with pytest.raises(CorruptError, match=f"{path}: 7 bytes is not a multiple"):
        index.load()
    put(disk, path, bytes.fromhex("0000000500000001 0000000500000002"))
    index.load()
    for _ in range(2):
        with pytest.raises(CorruptError, match=f"{path}, byte 8: entries are out of order"):
            index.last_slot_at_most(9)
    index.reset()
    assert -1 == index.last_slot_at_most(9)


def test_damage_does_not_keep_the_file_mapped(disk: Disk, path: str) -> None:
    """A rebuild begins while the error is handled, and must be able to unmap what it replaces."""
    index = IndexFile(disk, path, entry_bytes=8, wide=False, bytes_max=800)
    put(disk, path, bytes(16))
    index.load()
    try:
        index.entries()
    except CorruptError:
        index.reset()
    index.append(bytes(7) + b"\1")
    index.seal()
    assert 8 == disk.size(path)
