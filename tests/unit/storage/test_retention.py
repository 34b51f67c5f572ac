"""Which segments go: by age, by size, behind the log's start; never past the high watermark."""

import dataclasses
from struct import pack_into

import pytest

from ottla.model.ids import Offset, TimestampMs
from ottla.records.batch import Batch, crc32c
from ottla.records.layout import ATTRIBUTES_AT, CRC_AT, MAX_TIMESTAMP_AT
from ottla.sim.clock import SimClock
from ottla.sim.disk import SimDisk
from ottla.storage.log import Log
from ottla.storage.log_config import LogConfig
from ottla.storage.retention import delete_expired
from tests.unit.storage.rig import CONFIG, NOW, P0, append, batch, close, fill, new_log, open_store, values

KEEP = dataclasses.replace(CONFIG, retention_ms=-1)


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def filled(config: LogConfig) -> Log:
    """Ten batches, 1000 ms apart, in segments at 0, 4 and 8."""
    log = new_log(config=config)
    fill(log, 10, step_ms=1000)
    return log


@pytest.mark.parametrize(
    ("age_ms", "deleted", "left"),
    [
        (0, 0, [0, 4, 8]),
        (3000 + 5000, 0, [0, 4, 8]),
        (3001 + 5000, 1, [4, 8]),
        (7001 + 5000, 2, [8]),
        (9001 + 5000, 3, [10]),
    ],
)
def test_by_age_of_the_newest_record(age_ms: int, deleted: int, left: list[int]) -> None:
    log = filled(dataclasses.replace(CONFIG, retention_ms=5000))
    assert deleted == delete_expired(log, TimestampMs(NOW + age_ms))
    assert (left, left[0]) == (bases(log), log.start_offset)


@pytest.mark.parametrize(
    ("limit", "left"), [(10**6, [0, 4, 8]), (475, [0, 4, 8]), (474, [4, 8]), (159, [4, 8]), (158, [8]), (0, [8])]
)
def test_by_size(limit: int, left: list[int]) -> None:
    log = filled(dataclasses.replace(KEEP, retention_bytes=limit))
    delete_expired(log, NOW)
    assert left == bases(log)


def test_behind_the_start() -> None:
    log = filled(KEEP)
    log.start_offset = Offset(8)
    assert 2 == delete_expired(log, NOW)
    assert [8] == bases(log)


def test_not_past_the_high_watermark() -> None:
    log = new_log(config=dataclasses.replace(CONFIG, retention_ms=0))
    append(log, *(batch(b"value %04d" % number) for number in range(10)))
    log.advance_high_watermark(Offset(6))
    assert 1 == delete_expired(log, TimestampMs(NOW + 10**9))
    assert [4, 8] == bases(log)
    assert [b"value %04d" % number for number in range(4, 10)] == values(log)


def test_a_silent_log_empties_and_keeps_its_offsets() -> None:
    log = filled(dataclasses.replace(CONFIG, retention_ms=5000))
    delete_expired(log, TimestampMs(NOW + 10**6))
    assert (10, 10, 0) == (log.start_offset, log.end_offset, log.size_bytes)
    assert 0 == delete_expired(log, TimestampMs(NOW + 10**7))


def test_a_compacted_log_keeps_all() -> None:
    log = filled(
        dataclasses.replace(CONFIG, retention_ms=0, retention_bytes=0, cleanup_delete=False, cleanup_compact=True)
    )
    assert 0 == delete_expired(log, TimestampMs(NOW + 10**9))


@pytest.mark.parametrize("claim", [-1, 0])
def test_records_without_timestamps_live_from_when_their_file_was_last_written(claim: int) -> None:
    """Not from 1970, as librdkafka's header says, and not from the broker's start, which may come more often."""
    config = dataclasses.replace(CONFIG, retention_ms=5000)
    clock, disk = SimClock(), SimDisk()
    disk.now_ms = clock.now_ms
    store = open_store(disk, config=config)
    log = store.create(P0)
    for _ in range(2):
        clock.jump(2000)
        untimed = bytearray(batch(b"a", b"b", timestamp=-1).buffer)
        pack_into(">q", untimed, MAX_TIMESTAMP_AT, claim)
        pack_into(">I", untimed, CRC_AT, crc32c(memoryview(untimed)[ATTRIBUTES_AT:]))
        append(log, Batch(untimed))
    log.advance_high_watermark(log.end_offset)
    assert 0 == delete_expired(log, TimestampMs(NOW + 4000 + 5000))
    close(store)
    clock.jump(3000)

    log = open_store(disk, config=config, clock=clock).get(P0)
    log.advance_high_watermark(log.end_offset)
    assert 0 == delete_expired(log, TimestampMs(NOW + 4000 + 5000))
    assert 1 == delete_expired(log, TimestampMs(NOW + 4000 + 5001))
