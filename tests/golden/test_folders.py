"""Whole data dirs that Kafka wrote, opened by Ottla: what it reads, and what it leaves behind, is what Kafka said."""

import os
import shutil
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ottla.model.ids import Offset, TimestampMs, TopicPartition
from ottla.records.layout import TimestampType
from ottla.storage.log_config import LogConfig
from ottla.storage.producers.producer_snapshot import decode_snapshot
from ottla.storage.segments.scanner import DamagedSegmentError
from tests.golden import stores
from tests.golden.manifest import BATCHES, FOLDERS, ExpectedPartition, load, unpack

DIRS = ("clean", "killed")
TOPICS = ("append-time", "compacted", "segments", "transactions", "trimmed")
INTERNAL = ("__consumer_offsets", "__transaction_state")
FOREVER_MS = 10**12


def config_of(partition: TopicPartition) -> LogConfig:
    """The topics' configs, as the manifest's Kafka had them."""
    match partition.topic:
        case "append-time":
            return LogConfig(timestamp_type=TimestampType.LOG_APPEND_TIME)
        case "trimmed":
            return LogConfig(index_interval_bytes=1, segment_index_bytes=96, segment_ms=FOREVER_MS, retention_ms=-1)
        case "compacted":
            return LogConfig(
                index_interval_bytes=1,
                segment_index_bytes=4096,
                segment_ms=8_000,
                retention_ms=-1,
                cleanup_compact=True,
                cleanup_delete=False,
            )
        case "segments" | "transactions":
            return LogConfig(index_interval_bytes=1, segment_index_bytes=4096, segment_ms=8_000, retention_ms=-1)
    return LogConfig()


@pytest.fixture(params=DIRS)
def name(request: pytest.FixtureRequest) -> str:
    """Each data dir."""
    found: str = request.param
    return found


@pytest.fixture
def data(name: str, tmp_path: Path) -> Path:
    """A fresh copy of it."""
    unpack(FOLDERS / f"{name}.tar.xz", tmp_path / "data")
    return tmp_path / "data"


@pytest.fixture
def manifest(name: str) -> dict[str, ExpectedPartition]:
    """What Kafka said about it."""
    return load(FOLDERS / f"{name}.json")


def test_every_partition_opens(data: Path) -> None:
    with stores.opened(data, config_of) as store:
        assert {} == store.offline
        assert {} == {log.partition: log.health.damage for log in store if log.health.damage is not None}
        assert {TopicPartition(topic, 0) for topic in (*TOPICS, *INTERNAL)} == {log.partition for log in store}


@pytest.mark.parametrize("topic", TOPICS)
def test_bounds_and_records(data: Path, manifest: dict[str, ExpectedPartition], topic: str) -> None:
    expected = manifest[f"{topic}-0"]
    with stores.opened(data, config_of) as store:
        log = store.get(TopicPartition(topic, 0))
        log.advance_high_watermark(log.end_offset)

        assert expected.log_start_offset == log.start_offset
        assert expected.end_offset == log.end_offset
        assert expected.last_stable_offset == log.last_stable_offset
        assert list(expected.records) == stores.read_records(log)
        assert list(expected.committed_offsets) == [record.offset for record in stores.read_committed(log)]


@pytest.mark.parametrize("topic", TOPICS)
def test_reading_from_every_offset(data: Path, manifest: dict[str, ExpectedPartition], topic: str) -> None:
    """Each offset is found through index and walk, compacted gaps included: the next record that is there follows."""
    expected = manifest[f"{topic}-0"]
    starts = {row["base_offset"]: row for row in expected.batches}
    with stores.opened(data, config_of) as store:
        log = store.get(TopicPartition(topic, 0))
        for offset in range(expected.log_start_offset, expected.end_offset):
            piece = log.read(Offset(offset), 1, upper=log.end_offset)
            holder = min(base for base, row in starts.items() if row["last_offset"] >= offset)
            assert piece is not None
            assert starts[holder]["position"] == piece.position
            assert starts[holder]["size_bytes"] == piece.size
            assert starts[holder]["file"] == os.path.basename(piece.file.path)


@pytest.mark.parametrize("topic", TOPICS)
def test_finding_every_timestamp(data: Path, manifest: dict[str, ExpectedPartition], topic: str) -> None:
    expected = manifest[f"{topic}-0"]
    with stores.opened(data, config_of) as store:
        log = store.get(TopicPartition(topic, 0))
        for timestamp in {record.timestamp + near for record in expected.records for near in (-1, 0, 1)}:
            wanted = next((record for record in expected.records if record.timestamp >= timestamp), None)
            found = log.find_timestamp(TimestampMs(timestamp))
            expected_place = None if wanted is None else (wanted.timestamp, wanted.offset)
            assert expected_place == (None if found is None else (found.timestamp, found.offset))


def test_leader_epochs_of_a_clean_dir(tmp_path: Path) -> None:
    """As in Kafka's checkpoint, but for an epoch that wrote nothing: like Kafka, opening a log drops that one."""
    unpack(FOLDERS / "clean.tar.xz", tmp_path)
    for topic in TOPICS:
        _, _, *lines = (tmp_path / f"{topic}-0" / "leader-epoch-checkpoint").read_text().splitlines()
        written = {int(epoch): int(start) for epoch, start in map(str.split, lines)}
        with stores.opened(tmp_path, config_of) as store:
            log = store.get(TopicPartition(topic, 0))
            kept = {epoch: start for epoch, start in written.items() if start < log.end_offset}
            assert kept == log.epochs.starts


def test_aborted_transactions(data: Path, manifest: dict[str, ExpectedPartition]) -> None:
    for topic in ("transactions", "compacted"):
        expected = manifest[f"{topic}-0"]
        rows: list[Any] = [row for file, rows in expected.files.items() if file.endswith(".txnindex") for row in rows]
        assert rows
        with stores.opened(data, config_of) as store:
            log = store.get(TopicPartition(topic, 0))
            found = log.aborted_transactions(log.start_offset, log.end_offset)
            assert [tuple(row.values()) for row in rows] == [tuple(each) for each in found]


def _index_rows(path: Path) -> list[list[int]]:
    base = int(path.stem)
    content = path.read_bytes()
    if path.suffix == ".index":
        return [[base + offset, position] for offset, position in struct.iter_unpack(">ii", content)]
    return [[timestamp, base + offset] for timestamp, offset in struct.iter_unpack(">qi", content)]


@pytest.mark.parametrize("topic", TOPICS)
def test_indexes_after_opening_and_closing(data: Path, manifest: dict[str, ExpectedPartition], topic: str) -> None:
    """In the clean dir nothing changes; in the killed one, Ottla's recovery makes the entries that Kafka's made.

    Ottla also looks again at the segment before the recovery point. There it may add an entry that Kafka had left out
    when it reopened the segment, but take none away.
    """
    partition = manifest[f"{topic}-0"]
    folder = data / f"{topic}-0"
    flushed = _recovery_points(data)[topic] if not (data / ".kafka_cleanshutdown").exists() else 0
    expected = {file: rows for file, rows in partition.files.items() if file.endswith((".index", ".timeindex"))}
    with stores.opened(data, config_of) as store:
        store.get(TopicPartition(topic, 0))

    found = {path.name: _index_rows(path) for path in folder.glob("*index") if path.suffix != ".txnindex"}
    assert sorted(expected) == sorted(found)
    for file, rows in expected.items():
        if int(Path(file).stem) < flushed:
            added = [row for row in found[file] if row not in rows]
            assert [] == [row for row in added if row not in _possible_rows(partition, Path(file))]
            assert rows == [row for row in found[file] if row not in added]
        else:
            assert rows == found[file]


def _recovery_points(data: Path) -> dict[str, int]:
    _, _, *lines = (data / "recovery-point-offset-checkpoint").read_text().splitlines()
    return {topic: int(offset) for topic, _, offset in map(str.split, lines)}


def _possible_rows(partition: ExpectedPartition, file: Path) -> list[list[int]]:
    """Every entry that an index of this segment may have."""
    batches = [row for row in partition.batches if row["file"] == f"{file.stem}.log"]
    if file.suffix == ".index":
        return [[row["last_offset"], row["position"]] for row in batches]
    return [[row["max_timestamp"], row["last_offset"]] for row in batches]


@pytest.mark.parametrize("topic", TOPICS)
def test_producers_after_opening_and_closing(data: Path, manifest: dict[str, ExpectedPartition], topic: str) -> None:
    """The snapshot at the log's end has the same producers, in whatever order."""
    expected = manifest[f"{topic}-0"]
    last = f"{expected.end_offset:020}.snapshot"
    with stores.opened(data, config_of) as store:
        store.get(TopicPartition(topic, 0))

    rows: list[Any] = expected.files[last]
    assert {row["producer_id"]: row for row in rows} == _snapshot_rows(data / f"{topic}-0" / last)


def _snapshot_rows(path: Path) -> dict[int, dict[str, int | None]]:
    return {
        entry.producer_id: {
            "producer_id": entry.producer_id,
            "producer_epoch": entry.epoch,
            "coordinator_epoch": entry.coordinator_epoch,
            "transaction_first_offset": -1 if entry.transaction_start is None else entry.transaction_start,
            "last_timestamp": entry.last_timestamp,
            "last_sequence": entry.batches[-1].last_sequence if entry.batches else None,
            "last_offset": entry.batches[-1].last_offset if entry.batches else None,
            "offset_delta": entry.batches[-1].offset_delta if entry.batches else None,
        }
        for entry in decode_snapshot(str(path), path.read_bytes())
    }


def test_logs_are_left_as_they_were(data: Path) -> None:
    """Opening and closing must not change a byte of any batch, nor lose a file that belongs to a log."""
    before = {path: path.read_bytes() for path in data.glob("*/*.log")}

    with stores.opened(data, config_of):
        pass

    assert before == {path: path.read_bytes() for path in data.glob("*/*.log")}
    assert (data / ".kafka_cleanshutdown").exists()


def test_recovery_when_indexes_have_become_too_small(tmp_path: Path) -> None:
    """`segment.index.bytes` can be lowered at any time, so a segment may need more entries than its index can hold."""
    unpack(FOLDERS / "killed.tar.xz", tmp_path)
    manifest = load(FOLDERS / "killed.json")

    with stores.opened(tmp_path, lambda partition: replace(config_of(partition), segment_index_bytes=24)) as store:
        assert {} == store.offline
        for topic in TOPICS:
            log = store.get(TopicPartition(topic, 0))
            assert list(manifest[f"{topic}-0"].records) == stores.read_records(log)


@pytest.mark.parametrize("client", ["aiokafka", "java", "kafka-python", "librdkafka"])
def test_producers_and_aborts_rebuilt_from_a_clients_batches(tmp_path: Path, client: str) -> None:
    """A lone `.log` file, as after the loss of everything else. The Java client raises its epoch with each marker."""
    folder = tmp_path / "lone-0"
    folder.mkdir()
    shutil.copy(BATCHES / f"{client}.log", folder / f"{0:020}.log")
    expected = load(BATCHES / f"{client}.json")[client]

    with stores.opened(tmp_path) as store:
        log = store.get(TopicPartition("lone", 0))
        log.advance_high_watermark(log.end_offset)
        assert list(expected.records) == stores.read_records(log)
        assert list(expected.committed_offsets) == [record.offset for record in stores.read_committed(log)]
        aborts: list[Any] = expected.files[f"{0:020}.txnindex"]
        found = log.aborted_transactions(log.start_offset, log.end_offset)
        assert [tuple(row.values()) for row in aborts] == [tuple(each) for each in found]

    snapshot = f"{expected.end_offset:020}.snapshot"
    rows: list[Any] = expected.files[snapshot]
    assert {row["producer_id"]: row for row in rows} == _snapshot_rows(folder / snapshot)


def test_damage_below_the_recovery_point_is_not_served(tmp_path: Path) -> None:
    """One flipped byte in a sealed segment of a clean dir: neighbours are served, the batch itself is refused."""
    unpack(FOLDERS / "clean.tar.xz", tmp_path)
    path = tmp_path / "segments-0" / f"{0:020}.log"
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)

    with stores.opened(tmp_path, config_of) as store, pytest.raises(DamagedSegmentError):
        stores.read_records(store.get(TopicPartition("segments", 0)))
