"""What a log does for queues: progress in control batches, and producers that it never forgets."""

from dataclasses import replace

import pytest

from ottla.model.errors import InvalidRecordError, InvalidTimestampError, OttlaError
from ottla.model.ids import QUEUE_PRODUCER_BIT, LeaderEpoch, Offset, ProducerId, TimestampMs
from ottla.records.batch import Batch, scan
from ottla.records.builder import build_batch
from ottla.records.control import progress_batch, read_marker, read_progress
from ottla.records.decode import decode_records
from ottla.records.layout import Codec, TimestampType
from ottla.records.record import Record
from ottla.sim.disk import SimDisk
from ottla.storage.log import Appended, Log
from ottla.storage.log_config import LogConfig
from ottla.storage.retention import delete_expired
from tests.unit.storage.cleaning.cleaner_model import History
from tests.unit.storage.rig import CONFIG, EPOCH, NOW, P0, append, batch, close, fill, new_log, open_store, placed

DAY_MS = 86_400_000
QUEUE = QUEUE_PRODUCER_BIT | 7


def progress(*values: bytes) -> Batch:
    return Batch(progress_batch(values, NOW))


def stored_batches(log: Log) -> list[Batch]:
    found = log.read(log.start_offset, 1 << 20, upper=log.end_offset)
    assert found is not None
    batches, _, problem = scan(found.file.read_at(found.position, found.size))
    assert problem is None
    return batches


def append_own(log: Log, content: Batch) -> Appended | OttlaError:
    (outcome,) = log.append([content], leader_epoch=EPOCH, now=NOW, is_own=True)
    return outcome


def stored(log: Log) -> list[list[tuple[int, bytes]]]:
    """The progress in a log."""
    return [read_progress(each) for each in stored_batches(log) if each.is_control]


@pytest.mark.parametrize(
    "config",
    [
        CONFIG,
        replace(CONFIG, compression=Codec.ZSTD),
        replace(CONFIG, cleanup_compact=True),
        replace(CONFIG, timestamp_type=TimestampType.LOG_APPEND_TIME),
    ],
)
def test_only_the_broker_appends_progress(config: LogConfig) -> None:
    log = new_log(config=config)
    (refused,) = log.append([progress(b"forged")], leader_epoch=EPOCH, now=NOW)
    assert isinstance(refused, InvalidRecordError)
    assert append_own(log, progress(b"one", b"two")) == placed(0, 1) or config.timestamp_type
    assert stored(log) == [[(0, b"one"), (1, b"two")]]


def test_progress_is_not_a_marker_and_has_no_producer() -> None:
    found = progress(b"one")
    assert (read_marker(found), found.has_producer_id) == (None, False)


def test_progress_is_copied_by_followers_and_survives_recovery() -> None:
    disk, config = SimDisk(), replace(CONFIG, segment_bytes=10_000)
    log = new_log(disk, config)
    fill(log, 2)
    append_own(log, progress(b"one"))
    follower = new_log(SimDisk(), config)
    found = log.read(log.start_offset, 1 << 20, upper=log.end_offset)
    assert found is not None
    follower.append_as_follower(memoryview(found.file.read_at(found.position, found.size)), now=NOW)
    assert stored(follower) == stored(log) == [[(2, b"one")]]
    recovered = open_store(disk.kill(), config=config).find(P0)
    assert recovered is not None
    assert stored(recovered) == [[(2, b"one")]]


def test_the_cleaner_keeps_progress() -> None:
    history = History(map_bytes=1 << 16)
    history.append([(b"a", b"x")], producer=None, codec=Codec.NONE)
    history.log.append([progress(b"one")], leader_epoch=LeaderEpoch(1), now=history.now, is_own=True)
    history.append([(b"a", b"y")], producer=None, codec=Codec.NONE)
    history.roll()
    history.clean()
    assert [(1, b"one")] in stored(history.log)


def test_queues_are_never_forgotten() -> None:
    log = new_log()
    append(log, batch(producer_id=7, sequence=0), batch(producer_id=QUEUE, sequence=0))
    assert log.producers.expire(TimestampMs(NOW + 1000 * DAY_MS), DAY_MS) == 1
    assert log.producers.get(ProducerId(7)) is None
    assert append(log, batch(producer_id=QUEUE, sequence=0)) == [placed(1, 1, is_duplicate=True)]


def test_queues_are_known_after_a_restart_years_later() -> None:
    disk = SimDisk()
    store = open_store(disk)
    append(store.create(P0), batch(producer_id=QUEUE, sequence=0))
    close(store)
    log = open_store(disk).find(P0)
    assert log is not None
    log.producers.expire(TimestampMs(NOW + 1000 * DAY_MS), DAY_MS)
    assert append(log, batch(producer_id=QUEUE, sequence=0)) == [placed(0, 0, is_duplicate=True)]


def test_a_repeated_batch_of_a_queue_is_recognised_though_its_records_are_too_old_by_now() -> None:
    log = new_log(config=replace(CONFIG, timestamp_before_max_ms=1000))
    append(log, batch(producer_id=QUEUE, sequence=0), batch(producer_id=7, sequence=0))
    later = TimestampMs(NOW + 2000)
    again = [
        batch(producer_id=QUEUE, sequence=0),
        batch(producer_id=7, sequence=0),
        batch(producer_id=QUEUE, sequence=1),
    ]
    known, client, unknown = log.append(again, leader_epoch=EPOCH, now=later)
    assert known == placed(0, 0, is_duplicate=True)
    assert isinstance(client, InvalidTimestampError)
    assert isinstance(unknown, InvalidTimestampError)


@pytest.mark.parametrize("codec", [None, Codec.NONE, Codec.ZSTD])
@pytest.mark.parametrize("by_append_time", [False, True])
def test_the_retention_of_delivered_records_counts_from_their_append(codec: Codec | None, by_append_time: bool) -> None:
    kind = TimestampType.LOG_APPEND_TIME if by_append_time else TimestampType.CREATE_TIME
    disk, config = SimDisk(), replace(CONFIG, compression=codec, timestamp_type=kind, retention_ms=DAY_MS)
    log, later = new_log(disk, config), TimestampMs(NOW + 8 * DAY_MS)
    append(log, batch(producer_id=QUEUE, sequence=0), now=later)
    (stored_batch,) = stored_batches(log)
    stored_batch.check()
    (record,) = decode_records(stored_batch)
    assert (later if by_append_time else NOW, later) == (record.timestamp, stored_batch.max_timestamp)
    follower = new_log(SimDisk(), config)
    follower.append_as_follower(stored_batch.buffer, now=later)
    recovered = open_store(disk.kill(), config=config).find(P0)
    assert recovered is not None
    for replica in (follower, recovered):
        replica.advance_high_watermark(replica.end_offset)
        assert (0, 0) == (delete_expired(replica, TimestampMs(later + DAY_MS)), replica.start_offset)
        assert (1, 1) == (delete_expired(replica, TimestampMs(later + DAY_MS + 1)), replica.start_offset)


def test_compaction_keeps_the_time_of_delivery() -> None:
    history = History(map_bytes=1 << 16)
    records = [Record(Offset(0), NOW, b"a", b"x", ()), Record(Offset(1), NOW, b"b", b"y", ())]
    delivery = build_batch(records, producer_id=QUEUE, producer_epoch=0, base_sequence=0)
    later = TimestampMs(NOW + 8 * DAY_MS)
    append(history.log, Batch(bytearray(delivery)), now=later)
    history.append([(b"a", b"z")], producer=None, codec=Codec.NONE)
    history.roll()
    history.clean()
    kept = [(each.offset, batch.max_timestamp) for batch in history.batches()[:1] for each in decode_records(batch)]
    assert [(1, later)] == kept
