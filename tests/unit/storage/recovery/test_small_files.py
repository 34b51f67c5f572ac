"""Small files that say what is deleted, truncated or visible: whatever is in them, the log's only replica keeps all
committed records, shows them and nothing that was aborted, and names the file.

Each file is damaged, emptied, removed, and replaced by an older one, by another partition's, and by one with numbers
that are too large or too small, after a clean stop and after a kill.
"""

import logging
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from ottla.model.ids import LeaderEpoch, Offset, TimestampMs
from ottla.records.batch import Batch, scan
from ottla.records.decode import decode_records
from ottla.records.layout import LEADER_EPOCH_AT, Marker
from ottla.sim.disk import SimDisk
from ottla.storage.data_dirs import names
from ottla.storage.data_dirs.checkpoints import encode_offsets
from ottla.storage.log import Log
from tests.unit.storage.rig import (
    DATA,
    P0,
    P1,
    Image,
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
)

pytestmark = pytest.mark.slow

FOLDER = f"{DATA}/t-0"
OTHER = f"{DATA}/t-1"
START = Offset(2)
"""Records below it were deleted by a client; their segment has others."""
OFFSET_FILES = [names.LOG_STARTS, names.RECOVERY_POINTS, names.HIGH_WATERMARKS, names.CLEANER_OFFSETS]


def write_transactions(log: Log, first: int) -> None:
    """Two transactions in turn: one is aborted, with another record behind its marker, and one is committed."""
    epoch = LeaderEpoch(5)
    for number in range(3):
        aborted, committed = (
            batch(f"{what} {first + number}".encode(), producer_id=producer, sequence=number, transactional=True)
            for producer, what in ((7, "aborted"), (8, "committed"))
        )
        append(log, aborted, committed, epoch=epoch)
    mark(log, Marker.ABORT, 7, leader_epoch=epoch)
    mark(log, Marker.COMMIT, 8, leader_epoch=epoch)
    fill(log, 6, first=first, epoch=epoch)


@cache
def written(*, is_clean: bool) -> tuple[Image, Image]:
    """A data dir as it was stopped or killed, and as it had been before its last use."""
    disk = SimDisk()
    store = open_store(disk)
    for partition, count in ((P0, 10), (P1, 7)):
        fill(store.create(partition), count)
    close(store)
    older = image_of(disk)
    store = open_store(disk)
    for partition, first in ((P1, 50), (P0, 20)):
        write_transactions(store.get(partition), first)
    store.get(P0).advance_start(START)
    if is_clean:
        close(store)
    else:
        for log in store:
            log.flush()
        store.checkpoints.save()
        disk = disk.kill()
    return image_of(disk), older


def batches_of(log: Log, upper: Offset) -> Iterator[tuple[Batch, bool]]:
    """What a consumer that reads up to an offset gets, and whether it is told that it was aborted."""
    offset = log.start_offset
    while offset < upper:
        found = log.read(offset, 400, upper=upper)
        if found is None:
            return
        aborted = log.aborted_transactions(offset, upper, found)
        batches, _, _ = scan(found.file.read_at(found.position, found.size))
        assert batches
        for each in batches:
            yield (
                each,
                any(
                    each.producer_id == done.producer_id and done.first_offset <= each.base_offset <= done.last_offset
                    for done in aborted
                ),
            )
        offset = batches[-1].next_offset


def committed_values(log: Log) -> list[bytes | None]:
    """What a read_committed consumer gets."""
    return [
        record.value
        for each, is_aborted in batches_of(log, log.last_stable_offset)
        if not each.is_control and not is_aborted
        for record in decode_records(each)
        if record.offset >= START
    ]


def log_files(image: Image) -> Image:
    return {path: content for path, content in image.items() if path.endswith(names.LOG)}


@cache
def truth() -> tuple[list[bytes | None], int]:
    log = open_store(disk_of(written(is_clean=True)[0])).get(P0)
    values = committed_values(log)
    assert [b"value %04d" % number for number in range(2, 10)] == values[:8]
    assert [b"committed 20", b"committed 21", b"committed 22"] == values[8:11]
    assert [b"value %04d" % number for number in range(20, 26)] == values[11:]
    return values, log.end_offset


def check(image: Image, told: str | None, caplog: pytest.LogCaptureFixture) -> None:
    """The log's committed records are all there, can be read up to its end, and the file is named if it is to be."""
    expected, end = truth()
    caplog.clear()
    caplog.set_level(logging.WARNING)
    disk = disk_of(image)
    store = open_store(disk)
    assert {} == store.offline
    log = store.get(P0)
    log.advance_high_watermark(log.readable_end)  # As the leader of a single replica.
    assert (end, None, ()) == (log.end_offset, log.health.damage, log.lost)
    assert log.start_offset <= START
    assert expected == committed_values(log)
    assert log_files(image) == log_files(image_of(disk))
    assert {} == store.shortfalls
    if told is not None:
        assert [each for each in caplog.messages if told in each], caplog.messages
    append(log, batch(b"next"), epoch=LeaderEpoch(9))
    log.advance_high_watermark(log.end_offset)
    assert [*expected, b"next"] == committed_values(log)
    close(store)
    # What was repaired stays repaired.
    caplog.clear()
    log = open_store(disk).get(P0)
    assert [*expected, b"next"] == committed_values(log)
    assert [] == [each for each in caplog.messages if FOLDER in each]


def with_digits_changed(content: bytes) -> Iterator[bytes]:
    """The content with one digit changed, in each place where there is one."""
    for found in re.finditer(rb"[0-9]", content):
        at = found.start()
        for digit in {b"0", b"1", b"9"} - {content[at : at + 1]}:
            yield content[:at] + digit + content[at + 1 :]


@pytest.fixture(params=[True, False], ids=["stopped", "killed"])
def is_clean(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.mark.parametrize("name", OFFSET_FILES)
class TestOffsetCheckpoints:
    def test_damaged(self, name: str, is_clean: bool, caplog: pytest.LogCaptureFixture) -> None:
        image, _ = written(is_clean=is_clean)
        path = f"{DATA}/{name}"
        for content in (b"", image[path][:-3], b"\0" * 40, *with_digits_changed(image[path])):
            check({**image, path: content}, path, caplog)

    def test_missing(self, name: str, is_clean: bool, caplog: pytest.LogCaptureFixture) -> None:
        image, _ = written(is_clean=is_clean)
        path = f"{DATA}/{name}"
        check({each: content for each, content in image.items() if each != path}, path if is_clean else None, caplog)

    def test_an_older_one(self, name: str, is_clean: bool, caplog: pytest.LogCaptureFixture) -> None:
        image, older = written(is_clean=is_clean)
        path = f"{DATA}/{name}"
        check({**image, path: older[path]}, None, caplog)

    def test_offsets_of_the_other_partition(self, name: str, is_clean: bool, caplog: pytest.LogCaptureFixture) -> None:
        image, _ = written(is_clean=is_clean)
        path = f"{DATA}/{name}"
        exchanged = image[path].replace(b"t 0", b"t 2").replace(b"t 1", b"t 0").replace(b"t 2", b"t 1")
        check({**image, path: exchanged}, path if exchanged != image[path] else None, caplog)

    def test_the_file_of_another_data_dir(self, name: str, is_clean: bool, caplog: pytest.LogCaptureFixture) -> None:
        image, _ = written(is_clean=is_clean)
        path = f"{DATA}/{name}"
        foreign = encode_offsets({P0: Offset(17), P1: Offset(17)}, name=name, directory_id="another")
        check({**image, path: foreign}, path, caplog)

    def test_a_file_of_another_name(self, name: str, is_clean: bool, caplog: pytest.LogCaptureFixture) -> None:
        image, _ = written(is_clean=is_clean)
        other = names.HIGH_WATERMARKS if name != names.HIGH_WATERMARKS else names.LOG_STARTS
        check({**image, f"{DATA}/{name}": image[f"{DATA}/{other}"]}, f"{DATA}/{name}", caplog)


@pytest.mark.parametrize("start", [5, 17, 4000])
def test_a_log_start_without_a_checksum(start: int, is_clean: bool, caplog: pytest.LogCaptureFixture) -> None:
    """Kafka writes none, but it writes the recovery points together with the log starts."""
    image, _ = written(is_clean=is_clean)
    path = f"{DATA}/{names.LOG_STARTS}"
    check({**image, path: f"0\n1\nt 0 {start}\n".encode()}, f"{path}: the checksum is missing", caplog)


class TestTransactionIndex:
    @pytest.mark.parametrize("without_snapshots", [False, True])
    def test_emptied_or_missing(
        self, is_clean: bool, without_snapshots: bool, caplog: pytest.LogCaptureFixture
    ) -> None:
        image, _ = written(is_clean=is_clean)
        (path,) = (each for each in image if each.startswith(FOLDER) and each.endswith(names.TRANSACTION_INDEX))
        if without_snapshots:
            image = {each: content for each, content in image.items() if not each.endswith(names.SNAPSHOT)}
        check({**image, path: b""}, path, caplog)
        check({each: content for each, content in image.items() if each != path}, path, caplog)

    def test_in_the_last_segment(self, caplog: pytest.LogCaptureFixture) -> None:
        """The snapshot at the end of the log says what the list of segments does not."""
        for count in (0, 1):
            disk = SimDisk()
            store = open_store(disk)
            log = store.create(P0)
            append(log, batch(b"aborted", producer_id=7, sequence=0, transactional=True))
            mark(log, Marker.ABORT, 7)
            fill(log, count)
            # The producer may be forgotten before the segment ends.
            log.producers.expire(TimestampMs(1 << 60), 1)
            close(store)
            for _ in range(2):
                store = open_store(disk)
                close(store)
            path = f"{FOLDER}/{0:020}{names.TRANSACTION_INDEX}"
            disk.remove(path)
            caplog.clear()
            store = open_store(disk)
            log = store.get(P0)
            log.advance_high_watermark(log.end_offset)
            assert [(7, 0, 1)] == [each[:3] for each in log.aborted_transactions(Offset(0), Offset(9))]
            expected = f"{path}: 0 aborted transactions contradict the batches; rebuilt from the batches, with 1"
            assert [expected] == caplog.messages

    def test_a_sealed_segment_whose_producers_are_forgotten(self, caplog: pytest.LogCaptureFixture) -> None:
        disk = SimDisk()
        store = open_store(disk)
        log = store.create(P0)
        append(log, batch(b"aborted", producer_id=7, sequence=0, transactional=True))
        mark(log, Marker.ABORT, 7)
        log.producers.expire(TimestampMs(1 << 60), 1)
        fill(log, 9)
        log.flush()
        store.checkpoints.save()
        disk = disk.kill()
        disk.remove(f"{FOLDER}/{0:020}{names.TRANSACTION_INDEX}")
        log = open_store(disk).get(P0)
        assert [(7, 0, 1)] == [each[:3] for each in log.aborted_transactions(Offset(0), Offset(9))]

    def test_segments_without_aborted_transactions_are_not_read(self) -> None:
        """Their snapshots say so: a first read must not cost as much as the log is large."""
        disk = SimDisk()
        store = open_store(disk)
        fill(store.create(P0), 40)
        close(store)
        log = open_store(disk).get(P0)
        for segment in [*log.segments][:-1]:
            put(disk, segment.log_path, b"\0" * segment.size_bytes)
        assert [] == log.aborted_transactions(Offset(0), Offset(40))


class TestSnapshots:
    def test_damaged(self, is_clean: bool, caplog: pytest.LogCaptureFixture) -> None:
        image, _ = written(is_clean=is_clean)
        paths = [each for each in image if each.startswith(FOLDER) and each.endswith(names.SNAPSHOT)]
        newest = max(paths)
        for content in (b"", image[newest][:-1], flipped(image[newest], 20, 3)):
            check({**image, newest: content}, newest if is_clean else None, caplog)
            check({**image, **dict.fromkeys(paths, content)}, None, caplog)
        check({each: content for each, content in image.items() if each != newest}, None, caplog)
        check({each: content for each, content in image.items() if each not in paths}, None, caplog)

    def test_of_the_other_partition(self, is_clean: bool, caplog: pytest.LogCaptureFixture) -> None:
        """It may know producers with other sequences, or a transaction that never ends here."""
        image, _ = written(is_clean=is_clean)
        newest = max(each for each in image if each.startswith(FOLDER) and each.endswith(names.SNAPSHOT))
        others = [each for each in image if each.startswith(OTHER) and each.endswith(names.SNAPSHOT)]
        for other in others:
            check({**image, newest: image[other]}, newest if is_clean else None, caplog)


class TestLeaderEpochs:
    PATH = f"{FOLDER}/{names.EPOCHS}"
    EPOCHS = {3: 2, 5: 10}  # noqa: RUF012

    def check(self, image: Image, told: str | None, caplog: pytest.LogCaptureFixture, **store: Any) -> None:
        check(image, told, caplog)
        assert self.EPOCHS == open_store(disk_of(image), **store).get(P0).epochs.starts

    def test_damaged_or_missing(self, is_clean: bool, caplog: pytest.LogCaptureFixture) -> None:
        image, older = written(is_clean=is_clean)
        other = image[f"{OTHER}/{names.EPOCHS}"]
        assert older[self.PATH] != image[self.PATH] != other
        emptied = [b"", b"0\n0\n", b"0\n1\n5 10\n", b"0\n1\n3 0\n", b"0\n3\n3 2\n4 8\n5 10\n"]
        for content in (*emptied, older[self.PATH], other, *with_digits_changed(image[self.PATH])):
            # Below the log start it makes no difference where an epoch began.
            told = None if content in (b"0\n2\n3 0\n5 10\n", b"0\n2\n3 1\n5 10\n") else self.PATH
            self.check({**image, self.PATH: content}, told, caplog)
        self.check({each: content for each, content in image.items() if each != self.PATH}, self.PATH, caplog)

    @pytest.mark.parametrize("bit", [0, 1, 2, 3, 9, 20, 31])
    def test_flipped_in_the_last_batch(self, is_clean: bool, bit: int, caplog: pytest.LogCaptureFixture) -> None:
        """Its checksum does not cover the leader epoch, so that the record itself is right."""
        image, _ = written(is_clean=is_clean)
        path = max(log_files(image))
        image = {**image, path: flipped(image[path], self.last_epoch_at(image[path]) + 3 - bit // 8, bit % 8)}
        log = open_store(disk_of(image)).get(P0)
        assert (truth()[1], None, self.EPOCHS) == (log.end_offset, log.health.damage, log.epochs.starts)
        (line,) = (each for each in caplog.messages if path in each)
        assert line.endswith("; restored leader epoch 5")
        log.advance_high_watermark(log.end_offset)
        assert truth()[0] == committed_values(log)

    @pytest.mark.parametrize("bit", [0, 1, 2, 3, 9, 20, 31])
    def test_flipped_in_a_batch_that_was_not_flushed(self, bit: int, caplog: pytest.LogCaptureFixture) -> None:
        """The metadata store knows the newest epoch of the partition."""
        disk = SimDisk()
        store = open_store(disk)
        fill(store.create(P0), 3)
        image = image_of(disk.kill())
        path = max(log_files(image))
        image = {**image, path: flipped(image[path], self.last_epoch_at(image[path]) + 3 - bit // 8, bit % 8)}
        store = open_store(disk_of(image), leader_epoch_of=lambda partition, topic_id: LeaderEpoch(3))
        log = store.get(P0)
        assert (3, None, {3: 0}) == (log.end_offset, log.health.damage, log.epochs.starts)
        (line,) = (each for each in caplog.messages if path in each)
        assert line.endswith("; restored leader epoch 3")

    def test_flipped_in_a_batch_between_others(self, caplog: pytest.LogCaptureFixture) -> None:
        disk = SimDisk()
        store = open_store(disk)
        fill(store.create(P0), 3)
        image = image_of(disk.kill())
        path = max(log_files(image))
        for bit in range(32):
            content = flipped(image[path], 79 + LEADER_EPOCH_AT + 3 - bit // 8, bit % 8)
            log = open_store(disk_of({**image, path: content})).get(P0)
            assert (3, None, {3: 0}) == (log.end_offset, log.health.damage, log.epochs.starts)

    @staticmethod
    def last_epoch_at(content: bytes) -> int:
        batches, _, _ = scan(content)
        return batches[-1].position + LEADER_EPOCH_AT


class TestClosedSegments:
    PATH = f"{DATA}/{names.CLOSED_SEGMENTS}"

    def test_damaged_or_missing(self, caplog: pytest.LogCaptureFixture) -> None:
        image, _ = written(is_clean=True)
        for content in (b"", image[self.PATH][:-4], *list(with_digits_changed(image[self.PATH]))[:60]):
            check({**image, self.PATH: content}, self.PATH, caplog)
        check({each: content for each, content in image.items() if each != self.PATH}, None, caplog)

    def test_of_an_earlier_shutdown(self, caplog: pytest.LogCaptureFixture) -> None:
        disk = SimDisk()
        contents = []
        for number in range(2):
            store = open_store(disk)
            for each in store.dirs:
                each.note_start(number)
            fill(store.create(P0), 9, first=9 * number)
            close(store)
            contents.append(disk.read(self.PATH))
        put(disk, self.PATH, contents[0])
        log = open_store(disk).get(P0)
        assert (18, None, 18) == (log.end_offset, log.health.damage, len(committed_values(log)) + START)
        assert [each for each in caplog.messages if self.PATH in each]


def test_the_first_segment_is_missing_before_any_checkpoint_was_written(caplog: pytest.LogCaptureFixture) -> None:
    """As in the first minute of a broker's life: the log did not begin where its second segment does."""
    disk = SimDisk()
    fill(open_store(disk).create(P0), 10)
    image = image_of(disk.kill())
    first = min(path for path in image if path.endswith(names.LOG))
    log = open_store(disk_of({path: content for path, content in image.items() if path != first})).get(P0)
    assert (0, ((0, 4),)) == (log.start_offset, log.lost)
    expected = (
        f"{FOLDER}: the log starts at offset 0, but its first segment is 4; offsets 0 to 3 cannot be read"
        " (4 records at most)"
    )
    assert expected in [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]
