"""One segment: finding by offset and time, reading as ranges, cutting, and taking a failed write back."""

import errno

import pytest

from ottla.model.errors import StorageError
from ottla.model.ids import Offset, TimestampMs
from ottla.sim.disk import Moment, SimDisk
from ottla.storage.log_config import LogConfig
from ottla.storage.segments.segment import RELATIVE_OFFSET_MAX, Segment
from tests.unit.storage.rig import NOW, batch

FOLDER = "/p"
CONFIG = LogConfig(index_interval_bytes=1, segment_index_bytes=4096)
SPARSE = LogConfig(index_interval_bytes=10_000)
TIMES = [10, 30, 20, 30, 50, 40]


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk()
    disk.make_dirs(FOLDER)
    return disk


def made(disk: SimDisk, config: LogConfig = CONFIG) -> Segment:
    """Six batches of two records from offset 100 on, with timestamps that go up and down."""
    segment = Segment.create(disk, FOLDER, Offset(100), config, NOW)
    for number, timestamp in enumerate(TIMES):
        segment.append([batch(b"a", b"b", timestamp=timestamp, base_offset=100 + 2 * number)])
    return segment


def reopened(disk: SimDisk, segment: Segment, config: LogConfig = CONFIG) -> Segment:
    segment.seal()
    segment.release()
    return Segment.open(disk, FOLDER, Offset(100), config, NOW)


@pytest.mark.parametrize("config", [CONFIG, SPARSE], ids=["dense", "sparse"])
@pytest.mark.parametrize("again", [False, True], ids=["growing", "reopened"])
class TestFinding:
    def segment(self, disk: SimDisk, config: LogConfig, again: bool) -> Segment:
        segment = made(disk, config)
        return reopened(disk, segment, config) if again else segment

    def test_offsets(self, disk: SimDisk, config: LogConfig, again: bool) -> None:
        segment = self.segment(disk, config, again)
        for offset in range(95, 112):
            place = segment.locate(Offset(offset))
            expected = max(100, offset - offset % 2)
            assert place is not None
            assert (expected, expected + 1) == (place.base_offset, place.last_offset)
        assert segment.locate(Offset(112)) is None

    def test_timestamps(self, disk: SimDisk, config: LogConfig, again: bool) -> None:
        segment = self.segment(disk, config, again)
        assert (50, 109) == segment.largest
        assert 50 == segment.newest_ms
        for timestamp in range(5, 51):
            place = segment.locate_timestamp(TimestampMs(timestamp), Offset(100))
            number = next(number for number, time in enumerate(TIMES) if time >= timestamp)
            assert place is not None
            assert 100 + 2 * number == place.base_offset
        assert segment.locate_timestamp(TimestampMs(51), Offset(100)) is None
        later = segment.locate_timestamp(TimestampMs(15), Offset(105))
        assert later is not None
        assert 104 == later.base_offset

    def test_ranges(self, disk: SimDisk, config: LogConfig, again: bool) -> None:
        segment = self.segment(disk, config, again)
        place = segment.locate(Offset(102))
        assert place is not None
        size = place.size_bytes
        assert [(size, size), (size, size), (size, 2 * size + 5), (size, 5 * size), (size, 2 * size)] == [
            segment.read(place, size_max, position_max)[1:]
            for size_max, position_max in (
                (1, 6 * size),
                (size, 6 * size),
                (2 * size + 5, 6 * size),
                (10**9, 6 * size),
                (10**9, 3 * size),
            )
        ]


def test_it_goes_on_after_reopening(disk: SimDisk) -> None:
    segment = reopened(disk, made(disk))
    segment.resume()
    assert (112, 10) == (segment.next_offset, segment.first_timestamp)
    segment.append([batch(timestamp=60, base_offset=112), batch(timestamp=55, base_offset=113)])
    assert (114, (60, 112)) == (segment.next_offset, segment.largest)
    place = segment.locate(Offset(113))
    assert place is not None
    assert 113 == place.base_offset


def test_cutting(disk: SimDisk) -> None:
    segment = made(disk)
    size = segment.size_bytes // 6
    assert 0 == segment.truncate_to(Offset(112))
    assert 2 * size == segment.truncate_to(Offset(109))
    assert (108, 4 * size, (30, 103)) == (segment.next_offset, disk.size(segment.log_path), segment.largest)
    segment.append([batch(timestamp=5, base_offset=108)])
    assert 109 == segment.next_offset
    again = reopened(disk, segment)
    assert (30, 103) == again.largest
    assert disk.size(segment.log_path) == again.truncate_to(Offset(100))
    assert (0, 100) == (disk.size(segment.log_path), again.next_offset)


@pytest.mark.parametrize("moment", Moment)
def test_a_refused_write_is_taken_back(disk: SimDisk, moment: Moment) -> None:
    segment = made(disk)
    before = disk.read(segment.log_path)
    disk.fail_at(disk.operation_count, OSError(errno.ENOSPC, "No space left on device"), moment)
    with pytest.raises(StorageError, match=f"{segment.log_path}, byte {len(before)}: cannot append .*No space left"):
        segment.append([batch(b"x" * 500, base_offset=112)])
    assert (before, 112, len(before)) == (disk.read(segment.log_path), segment.next_offset, segment.size_bytes)


def test_a_sparse_index_has_an_entry_per_interval(disk: SimDisk) -> None:
    segment = Segment.create(disk, FOLDER, Offset(0), LogConfig(index_interval_bytes=400), NOW)
    for number in range(40):
        segment.append([batch(b"x" * 30, base_offset=number)])
    assert 40 * 99 == segment.size_bytes
    assert 40 // 5 - 1 == segment.offset_index.entries.count


def test_how_far_offsets_reach(disk: SimDisk) -> None:
    segment = Segment.create(disk, FOLDER, Offset(100), CONFIG, NOW)
    assert segment.fits(Offset(100 + RELATIVE_OFFSET_MAX))
    assert not segment.fits(Offset(101 + RELATIVE_OFFSET_MAX))


def test_without_timestamps_its_age_counts_from_its_making(disk: SimDisk) -> None:
    segment = Segment.create(disk, FOLDER, Offset(0), CONFIG, NOW)
    segment.append([batch(timestamp=-1, base_offset=0)])
    assert ((-1, 0), NOW) == (segment.largest, segment.newest_ms)
    place = segment.locate(Offset(0))
    assert place is not None


def test_left_overs_of_the_same_name_go(disk: SimDisk) -> None:
    made(disk).seal()
    segment = Segment.create(disk, FOLDER, Offset(100), CONFIG, NOW)
    assert (0, [segment.log_path]) == (disk.size(segment.log_path), segment.paths())
