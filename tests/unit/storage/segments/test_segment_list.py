"""Segments in order: which holds an offset, and taking some out while what is left stays whole."""

import pytest

from ottla.model.errors import MisuseError
from ottla.model.ids import Offset
from ottla.sim.disk import SimDisk
from ottla.storage.data_dirs import names
from ottla.storage.segments.segment import Segment
from ottla.storage.segments.segment_list import SegmentList
from tests.unit.storage.rig import CONFIG, NOW, batch

FOLDER = "/p"


class ThreeSegments:
    """Segments at 0, 10 and 20 with three batches each."""

    def __init__(self) -> None:
        self.disk = SimDisk()
        self.disk.make_dirs(FOLDER)
        self.discarded: list[str] = []
        segments = []
        for base in (0, 10, 20):
            segment = self.make(base)
            segment.append([batch(base_offset=base + number) for number in range(3)])
            segment.seal()
            segments.append(segment)
        self.list = SegmentList(self.disk, FOLDER, segments, self.discarded.extend)

    def make(self, base: int) -> Segment:
        return Segment.create(self.disk, FOLDER, Offset(base), CONFIG, NOW)

    def bases(self) -> list[int]:
        return [segment.base_offset for segment in self.list]

    def logs(self) -> list[str]:
        return [name for name in self.disk.list_dir(FOLDER) if name.endswith(names.LOG)]


@pytest.fixture
def rig() -> ThreeSegments:
    return ThreeSegments()


def test_which_holds_an_offset(rig: ThreeSegments) -> None:
    assert [0, 0, 0, 1, 1, 2, 2] == [rig.list.index_of(Offset(offset)) for offset in (-5, 0, 9, 10, 19, 20, 99)]
    assert [10, 20] == [segment.base_offset for segment in rig.list.from_offset(Offset(12))]
    assert [10, 20, 23] == [rig.list.end_of(at) for at in range(3)]
    assert [10, 20, None] == [segment.limit_offset for segment in rig.list]


def test_reading_steps_over_what_compaction_removed(rig: ThreeSegments) -> None:
    for offset, expected in ((2, 2), (3, 10), (9, 10), (13, 20), (22, 22)):
        found = rig.list.read(Offset(offset), 1, Offset(23), at_least_one=True)
        assert found is not None
        assert expected == int.from_bytes(found.file.read_at(found.position, 8), "big")


def test_reading_up_to_a_bound(rig: ThreeSegments) -> None:
    size = rig.list[0].size_bytes // 3
    assert [1, 2, 3, 3] == [
        found.size // size
        for upper in (1, 2, 3, 99)
        if (found := rig.list.read(Offset(0), 10**6, Offset(upper), at_least_one=True))
    ]
    assert rig.list.read(Offset(1), 10**6, Offset(1), at_least_one=True) is None
    assert rig.list.read(Offset(0), 1, Offset(9), at_least_one=False) is None


def test_dropping_from_the_end(rig: ThreeSegments) -> None:
    rig.list.drop_after(Offset(10))
    assert ([0], 1, [f"{0:020}.log"]) == (rig.bases(), len(rig.list), rig.logs())
    assert [f"{FOLDER}/{20:020}.log.deleted", f"{FOLDER}/{10:020}.log.deleted"] == [
        path for path in rig.discarded if ".log" in path
    ]
    assert rig.list.active.limit_offset is None


def test_dropping_from_the_front(rig: ThreeSegments) -> None:
    rig.list.drop_before(2)
    assert ([20], [f"{20:020}.log"]) == (rig.bases(), rig.logs())


def test_dropping_all(rig: ThreeSegments) -> None:
    rig.list.drop_all(lambda: rig.make(70))
    assert ([70], [f"{70:020}.log"]) == (rig.bases(), rig.logs())


def test_adding(rig: ThreeSegments) -> None:
    rig.list.add(rig.make(30))
    assert [0, 10, 20, 30] == rig.bases()
    rig.list.add(rig.make(40))
    assert ([0, 10, 20, 40], 40) == (rig.bases(), rig.list.active.base_offset)


def test_adding_when_the_empty_one_cannot_go(rig: ThreeSegments) -> None:
    rig.list.add(rig.make(30))
    new = rig.make(40)
    rig.disk.make_read_only(f"{FOLDER}/{30:020}.log")
    with pytest.raises(OSError, match="Read-only"):
        rig.list.add(new)
    assert ([0, 10, 20, 30], 30) == (rig.bases(), rig.list.active.base_offset)


def test_replacing(rig: ThreeSegments) -> None:
    first, second, active = rig.list
    with pytest.raises(MisuseError, match="no longer sealed and contiguous"):
        rig.list.replace([second, active], rig.make(5))
    rig.list.replace([first, second], new := rig.make(0))
    assert [new, active] == list(rig.list)


def test_idle_handles_are_given_back(rig: ThreeSegments) -> None:
    rig.list.release_idle()
    rig.list.read(Offset(0), 1, Offset(9), at_least_one=True)
    rig.list.release_idle()
    held = [segment._file is not None for segment in rig.list]
    rig.list.release_idle()
    assert ([True, False, False], [None] * 3) == (held, [segment._file for segment in rig.list])
    assert rig.list.read(Offset(0), 1, Offset(9), at_least_one=True) is not None
