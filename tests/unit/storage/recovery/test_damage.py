"""A flipped bit, or a file truncated, emptied or extended, in every kind of file of a log.

Damage is found before it is served, indexes are rebuilt, flushed records are never truncated, other partitions are
served.
"""

from collections.abc import Iterator

import pytest

from ottla.model.errors import CorruptError, StorageError
from ottla.model.ids import LeaderEpoch, Offset, TimestampMs
from ottla.records.layout import HEADER_BYTES, LAST_OFFSET_DELTA_AT, MAGIC_AT, Marker
from ottla.sim.disk import SimDisk
from ottla.storage.data_dirs import names
from ottla.storage.log import Log
from ottla.storage.log_config import LogConfig
from ottla.storage.log_store import LogStore
from ottla.storage.segments.scanner import DamagedSegmentError
from ottla.storage.segments.transaction_index import AbortedTransaction
from tests.unit.storage.rig import (
    DATA,
    NOW,
    P0,
    P1,
    Image,
    Stored,
    append,
    batch,
    close,
    disk_of,
    fill,
    flipped,
    image_of,
    mark,
    open_store,
    put,
    put_checkpoint,
    read_all,
    read_from,
    values,
)

pytestmark = pytest.mark.slow

FOLDER = f"{DATA}/t-0"
FIRST = f"{FOLDER}/{0:020}"
BATCHES = 10


def two_partitions(disk: SimDisk) -> LogStore:
    """Ten batches in three segments, and a neighbour."""
    store = open_store(disk)
    fill(store.create(P0, "AAAAAAAAAAAAAAAAAAAAAA"), BATCHES)
    fill(store.create(P1), 3)
    return store


@pytest.fixture(scope="module")
def clean() -> Image:
    """After a clean shutdown."""
    disk = SimDisk()
    close(two_partitions(disk))
    return image_of(disk)


@pytest.fixture(scope="module")
def flushed() -> Image:
    """Killed after everything was flushed and checkpointed."""
    disk = SimDisk()
    store = two_partitions(disk)
    for log in store:
        log.flush()
    store.checkpoints.save()
    return image_of(disk)


@pytest.fixture(scope="module")
def half_flushed() -> Image:
    """Killed when the recovery point was in the middle: seven of ten batches, in the second segment."""
    disk = SimDisk()
    store = open_store(disk)
    log = store.create(P0)
    fill(log, 7)
    log.flush()
    store.checkpoints.save()
    fill(log, BATCHES - 7, first=7)
    return image_of(disk)


@pytest.fixture(scope="module")
def truth() -> list[Stored]:
    """The batches, undamaged."""
    return read_all(two_partitions(SimDisk()).get(P0))


def log_files(image: Image) -> list[str]:
    return sorted(path for path in image if path.startswith(FOLDER) and path.endswith(names.LOG))


def bits(content: bytes) -> Iterator[tuple[int, int]]:
    """Every byte, and of each another bit."""
    return ((position, (position * 5 + 3) % 8) for position in range(len(content)))


def every_bit(content: bytes) -> Iterator[tuple[int, int]]:
    return ((position, bit) for position in range(len(content)) for bit in range(8))


def opened(image: Image, path: str, content: bytes) -> LogStore:
    """The store over an image in which one file has other content."""
    return open_store(disk_of({**image, path: content}))


def opened_after_power_cut(image: Image, path: str, content: bytes) -> LogStore:
    """The same, and the machine went down since it was written."""
    disk = disk_of({**image, path: content})
    disk.boot_id = "boot 1"
    return open_store(disk)


def read_or_damage(log: Log, offset: int) -> list[Stored] | DamagedSegmentError:
    try:
        return read_from(log, offset)
    except DamagedSegmentError as damage:
        return damage


def check_lookups(log: Log, truth: list[Stored]) -> None:
    """Every offset and every timestamp is found where it is."""
    for stored in truth:
        assert [stored] == read_from(log, stored.base_offset)
        for timestamp in (NOW + stored.base_offset * 10, NOW + stored.base_offset * 10 - 1):
            found = log.find_timestamp(TimestampMs(timestamp))
            assert found == (NOW + stored.base_offset * 10, stored.base_offset)
    assert log.find_timestamp(TimestampMs(NOW + len(truth) * 10)) is None
    assert (NOW + (len(truth) - 1) * 10, len(truth) - 1) == log.largest_timestamp()


class TestIndexes:
    """A lookup is right, or the index is rebuilt; none goes wrong."""

    @pytest.mark.parametrize("suffix", [names.OFFSET_INDEX, names.TIME_INDEX])
    @pytest.mark.parametrize("at", [0, -1], ids=["sealed", "active"])
    def test_every_bit(self, clean: Image, truth: list[Stored], suffix: str, at: int) -> None:
        path = log_files(clean)[at].removesuffix(names.LOG) + suffix
        assert clean[path]
        for position, bit in every_bit(clean[path]):
            store = opened(clean, path, flipped(clean[path], position, bit))
            assert {} == store.offline
            check_lookups(store.get(P0), truth)

    @pytest.mark.parametrize("suffix", [names.OFFSET_INDEX, names.TIME_INDEX])
    @pytest.mark.parametrize("is_clean", [True, False])
    def test_other_sizes(self, clean: Image, flushed: Image, truth: list[Stored], suffix: str, is_clean: bool) -> None:
        image = clean if is_clean else flushed
        path = FIRST + suffix
        good = image[path]
        for content in (
            *(good[:size] for size in range(len(good))),
            good + b"\0",
            good + bytes(96),
            good * 2,
            b"\xff" * 999,
        ):
            store = opened(image, path, content)
            check_lookups(store.get(P0), truth)

    def test_missing(self, clean: Image, truth: list[Stored]) -> None:
        left = {
            path: content
            for path, content in clean.items()
            if not path.endswith((names.OFFSET_INDEX, names.TIME_INDEX))
        }
        store = open_store(disk_of(left))
        check_lookups(store.get(P0), truth)

    def test_appending_goes_on(self, clean: Image) -> None:
        for suffix in (names.OFFSET_INDEX, names.TIME_INDEX):
            path = log_files(clean)[-1].removesuffix(names.LOG) + suffix
            log = opened(clean, path, b"\xff" * len(clean[path])).get(P0)
            fill(log, 5, first=BATCHES)
            assert [b"value %04d" % number for number in range(BATCHES + 5)] == values(log)
            assert (NOW + 140, 14) == log.largest_timestamp()


class TestBatches:
    """A damaged batch is refused by name when it is read, and nothing that was flushed is cut."""

    def check(self, image: Image, path: str, truth: list[Stored], position: int, bit: int) -> None:
        store = opened(image, path, flipped(image[path], position, bit))
        inside = [stored for stored in truth if stored.content in image[path]]
        at, hit = 0, inside[0]
        for stored in inside:
            if at <= position:
                hit, start = stored, at
            at += len(stored.content)
        field = position - start
        assert [b"value %04d" % number for number in range(3)] == values(store.get(P1))
        if P0 in store.offline:
            # The header's length, or the last offset, cannot be trusted: then it is unknown what follows.
            assert field < HEADER_BYTES
            assert isinstance(store.offline[P0], CorruptError)
            assert path in str(store.offline[P0]) or FOLDER in str(store.offline[P0])
        else:
            self.check_reads(store.get(P0), path, truth, hit, start, field)

    def check_reads(self, log: Log, path: str, truth: list[Stored], hit: Stored, start: int, field: int) -> None:
        in_walk = field < MAGIC_AT + 1 or LAST_OFFSET_DELTA_AT <= field < LAST_OFFSET_DELTA_AT + 4
        for stored in truth:
            found = read_or_damage(log, stored.base_offset)
            if isinstance(found, DamagedSegmentError):
                assert path == found.path
                if not in_walk:
                    assert (hit, start) == (stored, found.position)
                continue
            if not 12 <= field < 16:  # Nothing else shows the leader epoch of the last batch.
                assert stored != hit
            assert [stored.content[17:]] == [each.content[17:] for each in found]
            assert (stored.base_offset, stored.last_offset) == found[0][:2]

    @pytest.mark.parametrize("at", [0, 1, -1])
    def test_every_byte_after_a_clean_shutdown(self, clean: Image, truth: list[Stored], at: int) -> None:
        path = log_files(clean)[at]
        for position, bit in bits(clean[path]):
            self.check(clean, path, truth, position, bit)

    @pytest.mark.parametrize("at", [0, -1])
    def test_every_flushed_byte_after_a_crash(self, flushed: Image, truth: list[Stored], at: int) -> None:
        path = log_files(flushed)[at]
        for position, bit in bits(flushed[path]):
            self.check(flushed, path, truth, position, bit)

    def test_nothing_flushed_is_cut(self, clean: Image, flushed: Image) -> None:
        for image in (clean, flushed):
            for path in log_files(image):
                for position, bit in bits(image[path]):
                    rotten = {**image, path: flipped(image[path], position, bit)}
                    disk = disk_of(rotten)
                    open_store(disk)
                    # An empty segment may follow, so that the offset of a damaged last batch is not given out again.
                    found = image_of(disk)
                    for each in log_files(image):
                        # A leader epoch that contradicts the batches around it is restored.
                        assert found[each] in (rotten[each], image[each])

    def test_after_a_power_cut_the_tail_that_was_not_flushed_is_cut(
        self, half_flushed: Image, truth: list[Stored]
    ) -> None:
        path = log_files(half_flushed)[-1]
        sizes = [len(stored.content) for stored in truth if stored.base_offset >= 8]
        for position, bit in bits(half_flushed[path]):
            if 12 <= position % sizes[0] < 16:
                continue  # The leader epoch of the last batch may be any.
            log = opened_after_power_cut(half_flushed, path, flipped(half_flushed[path], position, bit)).get(P0)
            if position % sizes[0] < 8 and log.end_offset > BATCHES:
                continue  # A larger offset of the very last batch looks like the gap that compaction leaves.
            whole = truth[: 8 + position // sizes[0]]
            assert whole == read_all(log)
            assert len(whole) == log.end_offset

    def test_after_a_power_cut_the_middle_of_the_log_is_cut_at_the_recovery_point_only(
        self, half_flushed: Image
    ) -> None:
        path = log_files(half_flushed)[1]
        size = len(half_flushed[path]) // 4
        below = opened_after_power_cut(half_flushed, path, flipped(half_flushed[path], size + 70, 0))
        assert BATCHES == below.get(P0).end_offset
        above = opened_after_power_cut(half_flushed, path, flipped(half_flushed[path], 3 * size + 70, 0))
        assert 7 == above.get(P0).end_offset

    def test_headers_that_the_walk_from_a_sparse_index_passes(self) -> None:
        """An offset is found in its own batch or not at all: no corrupt header makes a reader skip records."""
        disk = SimDisk()
        config = LogConfig(index_interval_bytes=250)
        store = open_store(disk, config=config)
        log = store.create(P0)
        for number in range(6):
            append(log, batch(b"a", b"b", b"c", timestamp=NOW + number))
        close(store)
        image = image_of(disk)
        (path,) = log_files(image)
        size = len(image[path]) // 6
        for position in range(2 * size, 2 * size + HEADER_BYTES):
            for bit in range(8):
                rotten = disk_of({**image, path: flipped(image[path], position, bit)})
                store = open_store(rotten, config=config)
                for offset in () if P0 in store.offline else range(18):
                    found = read_or_damage(store.get(P0), offset)
                    if not isinstance(found, DamagedSegmentError):
                        assert (offset - offset % 3, offset - offset % 3 + 2) == found[0][:2]
                        assert not 6 <= offset < 9 or 12 <= position - 2 * size < 16

    def test_a_read_ends_before_the_damaged_batch(self, clean: Image, truth: list[Stored]) -> None:
        path = log_files(clean)[0]
        size = len(truth[0].content)
        log = opened(clean, path, flipped(clean[path], 2 * size + HEADER_BYTES, 0)).get(P0)
        assert truth[:2] == read_from(log, 0, 1 << 20)
        assert truth[3:4] == read_from(log, 3)
        with pytest.raises(DamagedSegmentError, match=f"{path}, byte {2 * size}: .*checksum"):
            read_from(log, 2)

    def test_a_log_cut_short_is_served_as_far_as_it_can_be_read(
        self, clean: Image, flushed: Image, truth: list[Stored]
    ) -> None:
        for image in (clean, flushed):
            path = log_files(image)[-1]
            for size in range(len(image[path])):
                store = opened(image, path, image[path][:size])
                log = store.get(P0)
                assert isinstance(log.health.damage, CorruptError)
                left = 8 + size // len(truth[8].content)
                assert truth[:left] == [each for offset in range(left) for each in read_from(log, offset)]
                assert (BATCHES, [(left, BATCHES)]) == (log.end_offset, list(log.lost))
                assert 3 == store.get(P1).end_offset

    def test_a_sealed_segment_cut_short_or_grown(self, clean: Image, truth: list[Stored]) -> None:
        path = log_files(clean)[0]
        size = len(truth[0].content)
        for content in (clean[path][: 2 * size], clean[path][: 2 * size + 7], clean[path] + bytes(70)):
            log = opened(clean, path, content).get(P0)
            for stored in truth:
                found = read_or_damage(log, stored.base_offset)
                if isinstance(found, DamagedSegmentError):
                    assert path == found.path
                    assert stored.base_offset < 4
                    continue
                # Records missing at a segment's end look like those that compaction removed.
                assert [stored if len(content) > 2 * size or not 2 <= stored.base_offset < 4 else truth[4]] == found


class TestTransactionIndex:
    """Aborted transactions are right, from the index or from the batches."""

    @pytest.fixture
    def transactions(self) -> Image:
        disk = SimDisk()
        store = open_store(disk)
        log = store.create(P0)
        for number in range(3):
            append(log, batch(producer_id=5, sequence=2 * number, transactional=True))
            append(log, batch(producer_id=6, sequence=2 * number, transactional=True))
            append(log, batch(producer_id=5, sequence=2 * number + 1, transactional=True))
            append(log, batch(b"plain"))
            mark(log, Marker.ABORT, 5)
            append(log, batch(producer_id=6, sequence=2 * number + 1, transactional=True))
            mark(log, Marker.COMMIT if number % 2 else Marker.ABORT, 6)
        close(store)
        return image_of(disk)

    def test_every_bit_of_it(self, transactions: Image) -> None:
        expected = self.aborted(open_store(disk_of(transactions)).get(P0))
        assert [(5, 0, 4), (6, 1, 6), (5, 7, 11), (5, 14, 18), (6, 15, 20)] == expected
        paths = [path for path in transactions if path.endswith(names.TRANSACTION_INDEX)]
        assert len(paths) > 1
        for path in paths:
            for position, bit in every_bit(transactions[path]):
                log = opened(transactions, path, flipped(transactions[path], position, bit)).get(P0)
                assert expected == self.aborted(log)
                assert [(5, 7, 11)] == self.aborted(log, 7, 8)

    def test_other_sizes(self, transactions: Image) -> None:
        expected = self.aborted(open_store(disk_of(transactions)).get(P0))
        path = next(path for path in transactions if path.endswith(names.TRANSACTION_INDEX))
        good = transactions[path]
        for content in (*(good[:size] for size in range(1, len(good))), good * 2, good + b"\0", b"\xff" * 340):
            assert expected == self.aborted(opened(transactions, path, content).get(P0))

    def test_the_mended_index_stays(self, transactions: Image) -> None:
        path = next(path for path in transactions if path.endswith(names.TRANSACTION_INDEX))
        disk = disk_of({**transactions, path: b"\xff" * 34})
        self.aborted(open_store(disk).get(P0))
        assert transactions[path] == disk.read(path)

    def test_a_marker_after_the_damage(self, transactions: Image) -> None:
        path = max(path for path in transactions if path.endswith(names.TRANSACTION_INDEX))
        log = opened(transactions, path, b"\xff" * 33).get(P0)
        append(log, batch(producer_id=5, sequence=6, transactional=True))
        mark(log, Marker.ABORT, 5)
        assert [(5, 14, 18), (6, 15, 20), (5, 21, 22)] == self.aborted(log, 15)

    def test_truncation_after_the_damage(self, transactions: Image) -> None:
        path = max(path for path in transactions if path.endswith(names.TRANSACTION_INDEX))
        log = opened(transactions, path, b"\xff" * 33).get(P0)
        log.truncate_to(Offset(20), now=NOW)
        assert [(5, 0, 4), (6, 1, 6), (5, 7, 11), (5, 14, 18)] == self.aborted(log)

    def aborted(self, log: Log, start: int = 0, upper: int = 1 << 40) -> list[tuple[int, int, int]]:
        found: list[AbortedTransaction] = log.aborted_transactions(Offset(start), Offset(upper))
        return [each[:3] for each in found]


class TestSmallFiles:
    """Snapshots, epochs, checkpoints, identity, marks."""

    def test_producer_snapshot(self) -> None:
        disk = SimDisk()
        store = open_store(disk)
        log = store.create(P0)
        for number in range(10):
            append(log, batch(producer_id=9, sequence=number))
        close(store)
        image = image_of(disk)
        newest = f"{FOLDER}/{10:020}{names.SNAPSHOT}"
        for content in (
            *(flipped(image[newest], *where) for where in every_bit(image[newest])),
            b"",
            image[newest] * 2,
        ):
            producers = opened(image, newest, content).get(P0).producers
            assert [(9, 9)] == [(entry.producer_id, entry.last_sequence) for entry in producers]

    def test_leader_epochs(self) -> None:
        disk = SimDisk()
        store = open_store(disk)
        log = store.create(P0)
        for number in range(3):
            fill(log, 4, first=4 * number, epoch=LeaderEpoch(2 * number + 1))
        close(store)
        image = image_of(disk)
        path = f"{FOLDER}/{names.EPOCHS}"
        assert b"0\n3\n1 0\n3 4\n5 8\n" == image[path]
        for content in (
            *(flipped(image[path], *where) for where in every_bit(image[path])),
            b"",
            b"0\n",
            image[path] * 2,
        ):
            assert {1: 0, 3: 4, 5: 8} == opened(image, path, content).get(P0).epochs.starts

    @pytest.mark.parametrize("name", [names.RECOVERY_POINTS, names.LOG_STARTS, names.HIGH_WATERMARKS])
    @pytest.mark.parametrize("is_clean", [True, False])
    def test_checkpoints(self, clean: Image, flushed: Image, truth: list[Stored], name: str, is_clean: bool) -> None:
        """A file that is damaged anywhere is not believed: the log is complete."""
        image = clean if is_clean else flushed
        path = f"{DATA}/{name}"
        good = image[path]
        for content in (
            *(flipped(good, *where) for where in every_bit(good)),
            b"",
            good[:-5],
            good * 2,
            b"\xff" * 4096,
        ):
            disk = disk_of({**image, path: content})
            log = open_store(disk).get(P0)
            assert truth == read_all(log)
            assert (0, BATCHES, None) == (log.start_offset, log.end_offset, log.health.damage)
            assert 0 <= log.high_watermark <= BATCHES
            found = image_of(disk)
            for each in log_files(image):
                assert image[each] == found[each]

    def test_a_log_start_beyond_the_end_deletes_nothing_after_a_clean_shutdown(
        self, clean: Image, truth: list[Stored], caplog: pytest.LogCaptureFixture
    ) -> None:
        """Nor makes it anything unreadable: where the log was closed is known."""
        disk = disk_of(clean)
        put_checkpoint(disk, names.LOG_STARTS, {P0: 400})
        assert truth == read_all(open_store(disk).get(P0))
        assert log_files(clean) == log_files(image_of(disk))
        assert (
            f"{FOLDER}: ignored log start offset 400 in {names.LOG_STARTS}, since the log was closed at offset"
            f" {BATCHES}; it starts at its first segment, offset 0"
        ) in [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]

    def test_meta_properties(self, clean: Image) -> None:
        path = f"{DATA}/{names.META_PROPERTIES}"
        for content in (
            b"",
            b"version=1\n",
            b"\xff\xfe",
            b"no separator\n",
            clean[path].replace(b"node.id=1", b"node.id=2"),
        ):
            with pytest.raises(StorageError, match=names.META_PROPERTIES):
                opened(clean, path, content)

    def test_one_damaged_data_dir_of_two(self, clean: Image) -> None:
        disk = disk_of({**clean, f"/other/{names.META_PROPERTIES}": b"\xff"})
        store = open_store(disk, [DATA, "/other"])
        assert [None, f"/other/{names.META_PROPERTIES}, byte 0: not text; the partitions in /other are offline"] == [
            folder.failure and str(folder.failure) for folder in store.dirs
        ]
        assert BATCHES == store.get(P0).end_offset

    def test_partition_metadata(self, clean: Image) -> None:
        path = f"{FOLDER}/{names.PARTITION_METADATA}"
        assert "AAAAAAAAAAAAAAAAAAAAAA" == open_store(disk_of(clean)).identity(P0).topic_id
        for content in (b"\xff\xff", b"nonsense\n", b""):
            store = opened(clean, path, content)
            assert store.identity(P0).topic_id is None
            assert BATCHES == store.get(P0).end_offset

    @pytest.mark.parametrize("content", [b"", b"\xff" * 100])
    def test_the_clean_shutdown_mark_counts_by_being_there(
        self, clean: Image, truth: list[Stored], content: bytes
    ) -> None:
        store = opened(clean, f"{DATA}/{names.CLEAN_SHUTDOWN}", content)
        assert store.dirs[0].is_clean
        assert truth == read_all(store.get(P0))


class TestForeignNames:
    """Files and folders that are none of ours are left alone, and disturb nothing."""

    def test_in_a_partition(self, clean: Image, truth: list[Stored]) -> None:
        strange = [
            "99999999999999999999.log",
            "0000000000000000000x.log",
            "00000000000000000000.log.bak",
            "notes.txt",
            ".hidden",
            "٠" * 20 + ".log",
        ]
        disk = disk_of(clean)
        for name in strange:
            put(disk, f"{FOLDER}/{name}", b"mine")
        disk.make_dirs(f"{FOLDER}/00000000000000000007.log")
        disk.make_dirs(f"{FOLDER}/folder.tmp")
        store = open_store(disk)
        assert {} == store.offline
        assert truth == read_all(store.get(P0))
        assert set(strange) < set(disk.list_dir(FOLDER))

    def test_in_a_data_dir(self, clean: Image) -> None:
        disk = disk_of(clean)
        for name in (
            "t-01",
            "t-99999999999",
            "t",
            "-5",
            "t-x",
            "lost+found",
            "t-1.0123456789abcdef0123456789abcdef-stray",
        ):
            disk.make_dirs(f"{DATA}/{name}")
        put(disk, f"{DATA}/t-7", b"a file")
        store = open_store(disk)
        assert {P0, P1} == {log.partition for log in store}
        assert {} == store.offline
