"""Unlinking what is due, and only that; what the disk refuses does not keep the rest."""

import pytest

from ottla.model.ids import TimestampMs
from ottla.sim.disk import SimDisk
from ottla.storage.data_dirs.trash import Trash
from tests.unit.storage.rig import put


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk()
    for path in ("/d/a", "/d/b", "/d/folder/c"):
        put(disk, path, b"x")
    return disk


def test_by_their_time(disk: SimDisk) -> None:
    trash = Trash(disk)
    trash.discard(["/d/a", "/d/folder"], 100)
    trash.discard(["/d/b", "/d/gone"], 50)
    assert 0 == trash.sweep(TimestampMs(49))
    assert 1 == trash.sweep(TimestampMs(50))
    assert (["a", "folder"], 2) == (disk.list_dir("/d"), len(trash))
    assert 2 == trash.sweep(TimestampMs(100))
    assert ([], 0) == (disk.list_dir("/d"), len(trash))


def test_a_refusal_is_reported(disk: SimDisk, caplog: pytest.LogCaptureFixture) -> None:
    trash = Trash(disk)
    trash.discard(["/d/a", "/d/b"], 0)
    disk.break_path("/d/a")
    assert 1 == trash.sweep(TimestampMs(0))
    disk.heal("/d/a")
    assert ["a", "folder"] == disk.list_dir("/d")
    assert ["/d/a: cannot unlink: Input/output error; the next start tries again"] == caplog.messages


def test_what_is_discarded_meanwhile_is_kept(disk: SimDisk) -> None:
    trash = Trash(disk)
    trash.discard(["/d/a"], 0)
    due = trash.take_due(TimestampMs(0))
    trash.discard(["/d/b"], 0)
    trash.unlink(due)
    assert (1, ["b", "folder"]) == (len(trash), disk.list_dir("/d"))
