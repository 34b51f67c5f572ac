"""Kafka's log dump tool reads what Ottla wrote: every batch, record, index entry, aborted transaction and producer."""

import shutil
import struct
from pathlib import Path

import pytest

from ottla.model.ids import LeaderEpoch, TopicPartition
from ottla.records.batch import scan
from ottla.records.decode import decode_records
from ottla.storage.log_config import LogConfig
from tests.compat import ottla_logs
from tests.compat.kafka_dump import Dump, DumpedAbort, DumpedBatch, DumpedProducer, dump, log_files, verify_indexes
from tests.golden import readings, stores
from tests.golden.manifest import FOLDERS, load, unpack
from tests.golden.record_set import odd_records

TOPICS = tuple(ottla_logs.STORIES)


@pytest.fixture(scope="session")
def dumped(written: Path) -> Dump:
    """What the tool says about everything that Ottla wrote."""
    return dump(_all_files(written))


def _all_files(data: Path) -> list[Path]:
    return [path for folder in sorted(data.glob("*-0")) for path in log_files(folder)]


def _batches(found: Dump, folder: Path) -> list[DumpedBatch]:
    return [batch for path in sorted(found.batches) if path.parent == folder for batch in found.batches[path]]


def test_kafka_has_no_complaint(written: Path, dumped: Dump) -> None:
    assert [] == dumped.complaints
    assert {"compacted-0"} == {path.parent.name for path in dumped.gaps}
    assert [] == verify_indexes(_all_files(written))


def test_there_is_enough_to_judge(dumped: Dump) -> None:
    """The other tests would pass over empty files, too."""
    segments = {topic: sum(path.parent.name == f"{topic}-0" for path in dumped.batches) for topic in TOPICS}
    assert {} == {topic: count for topic, count in segments.items() if count < 2}
    assert {"none", "gzip", "snappy", "lz4", "zstd"} == {
        batch.codec for rows in dumped.batches.values() for batch in rows
    }
    assert 100 < sum(len(rows) for rows in dumped.offset_entries.values())
    assert 100 < sum(len(rows) for rows in dumped.time_entries.values())


@pytest.mark.parametrize("topic", TOPICS)
def test_headers(written: Path, dumped: Dump, topic: str) -> None:
    for path in sorted((written / f"{topic}-0").glob("*.log")):
        batches, _, problem = scan(path.read_bytes())
        assert problem is None
        for batch, theirs in zip(batches, dumped.batches[path], strict=True):
            assert {name: getattr(theirs, name) for name in readings.header(batch, 0)} == readings.header(
                batch, batch.position
            )


@pytest.mark.parametrize("topic", TOPICS)
def test_records(written: Path, dumped: Dump, topic: str) -> None:
    """Kafka's decoder and ours agree on every record."""
    for path in sorted((written / f"{topic}-0").glob("*.log")):
        ours = [
            (record.offset, record.timestamp, record.key, record.value, ",".join(name for name, _ in record.headers))
            for batch in scan(path.read_bytes())[0]
            if not batch.is_control
            for record in decode_records(batch)
        ]
        theirs = [
            (record.offset, record.timestamp, record.key, record.value, record.header_names)
            for batch in dumped.batches[path]
            if not batch.is_control
            for record in batch.records
        ]
        assert theirs == ours


def test_odd_records_arrive_as_they_were_built(written: Path, dumped: Dump) -> None:
    """Not only do both decoders agree: what Kafka sees is what was put in, in each codec."""
    batches = [batch for batch in _batches(dumped, written / "codecs-0") if batch.count == len(odd_records(0))]
    assert ["none", "gzip", "snappy", "lz4", "zstd"] == [batch.codec for batch in batches]
    for number, batch in enumerate(batches):
        put_in = odd_records(ottla_logs.START_MS + number * 60_000)
        assert [(new.timestamp, new.key, new.value) for new in put_in] == [
            (record.timestamp, record.key, record.value) for record in batch.records
        ]
        assert [",".join(name for name, _ in new.headers) for new in put_in] == [
            record.header_names for record in batch.records
        ]


@pytest.mark.parametrize("topic", TOPICS)
def test_every_index_entry_is_seen(written: Path, dumped: Dump, topic: str) -> None:
    """The tool stops at an entry that it takes for unwritten, so none must look so."""
    for path in (written / f"{topic}-0").iterdir():
        base = int(path.stem) if path.stem.isdigit() else 0
        if path.suffix == ".index":
            entries = [(base + offset, position) for offset, position in struct.iter_unpack(">ii", path.read_bytes())]
            assert entries == dumped.offset_entries[path]
        elif path.suffix == ".timeindex":
            times = [(timestamp, base + offset) for timestamp, offset in struct.iter_unpack(">qi", path.read_bytes())]
            assert times == dumped.time_entries[path]


def test_what_is_left_of_a_compacted_log(written: Path, dumped: Dump) -> None:
    """In what was cleaned, each key stands once; tombstones wait for their horizon; markers and sequences are kept."""
    batches = _batches(dumped, written / "compacted-0")
    active = max(path for path in dumped.batches if path.parent.name == "compacted-0")
    cleaned = [batch for batch in batches if batch.base_offset < int(active.stem) and not batch.is_control]
    keys = [record.key or b"" for batch in cleaned for record in batch.records]
    assert sorted(set(keys)) == sorted(keys)
    tombstones = [batch for batch in cleaned for record in batch.records if record.value is None]
    assert tombstones
    assert [] == [batch for batch in tombstones if batch.delete_horizon <= ottla_logs.START_MS]


def test_leader_epochs(written: Path, dumped: Dump) -> None:
    batches = _batches(dumped, written / "epochs-0")
    assert [0] * 20 + [1] * 20 == [batch.leader_epoch for batch in batches]
    assert "0\n2\n0 0\n1 60\n" == (written / "epochs-0" / "leader-epoch-checkpoint").read_text()


def test_append_time(written: Path, dumped: Dump) -> None:
    batches = _batches(dumped, written / "append-time-0")
    times = [ottla_logs.START_MS + delay for delay in (0, 1_000, 2_000, 500, 2_500, 3_000)]
    assert times == [batch.max_timestamp for batch in batches]
    assert {"LogAppendTime"} == {batch.timestamp_type for batch in batches}
    assert times == [batch.records[0].timestamp for batch in batches]


def test_markers_and_aborted_transactions(written: Path, dumped: Dump) -> None:
    batches = _batches(dumped, written / "transactions-0")
    ends = [
        (batch.producer_id, record.marker, record.coordinator_epoch, record.offset)
        for batch in batches
        if batch.is_control
        for record in batch.records
    ]
    pattern = [(11, "COMMIT", 3), (12, "ABORT", 3), (11, "ABORT", 3), (12, "COMMIT", 3)] * 3
    assert pattern == [end[:3] for end in ends]

    aborts = [
        row for path in sorted(dumped.aborts) if path.parent.name == "transactions-0" for row in dumped.aborts[path]
    ]
    assert [(producer, offset) for producer, marker, _, offset in ends if marker == "ABORT"] == [
        (row.producer_id, row.last_offset) for row in aborts
    ]
    assert [_abort(batches, row.last_offset) for row in aborts] == aborts


def _abort(batches: list[DumpedBatch], marker_offset: int) -> DumpedAbort:
    """An aborted transaction as it follows from the batches: where it began, and what was still open after it."""
    open_at: dict[int, int] = {}
    for batch in batches:
        if batch.is_control:
            first_offset = open_at.pop(batch.producer_id)
            if batch.base_offset == marker_offset:
                return DumpedAbort(
                    producer_id=batch.producer_id,
                    first_offset=first_offset,
                    last_offset=marker_offset,
                    last_stable_offset=min(open_at.values(), default=marker_offset + 1),
                )
        elif batch.is_transactional:
            open_at.setdefault(batch.producer_id, batch.base_offset)
    raise AssertionError(f"no marker at {marker_offset}")


@pytest.mark.parametrize("topic", ["producers", "transactions"])
def test_producer_snapshots(written: Path, dumped: Dump, topic: str) -> None:
    """Every snapshot has what follows from the batches before its offset."""
    folder = written / f"{topic}-0"
    paths = [path for path in dumped.producers if path.parent == folder]
    assert 2 <= len(paths)
    for path in paths:
        before = [batch for batch in _batches(dumped, folder) if batch.base_offset < int(path.stem)]
        assert _producers(before) == {row.producer_id: row for row in dumped.producers[path]}


def _producers(batches: list[DumpedBatch]) -> dict[int, DumpedProducer]:
    found: dict[int, DumpedProducer] = {}
    for batch in batches:
        if batch.producer_id < 0:
            continue
        earlier = found.get(batch.producer_id)
        open_at = earlier.transaction_first_offset if earlier else -1
        if batch.is_control:
            open_at = -1
        elif batch.is_transactional and open_at < 0:
            open_at = batch.base_offset
        last = batch if not batch.is_control else None
        found[batch.producer_id] = DumpedProducer(
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            coordinator_epoch=batch.records[0].coordinator_epoch or 0
            if batch.is_control
            else (earlier.coordinator_epoch if earlier else -1),
            transaction_first_offset=open_at,
            last_timestamp=batch.max_timestamp,
            last_sequence=last.last_sequence if last else (earlier.last_sequence if earlier else None),
            last_offset=last.last_offset if last else (earlier.last_offset if earlier else None),
            offset_delta=last.last_offset - last.base_offset if last else (earlier.offset_delta if earlier else None),
        )
    return found


def test_many_batches_for_an_index_that_is_almost_full(tmp_path: Path) -> None:
    """An index may run full in the middle of one append."""
    with stores.opened(tmp_path, ottla_logs.config_of) as store:
        log = store.create(TopicPartition("full-indexes", 0))
        ottla_logs.append(log, *(ottla_logs.plain(number, 1) for number in range(30)))
        assert 30 == len(stores.read_records(log))

    found = dump(log_files(tmp_path / "full-indexes-0"))
    assert [] == found.complaints
    assert list(range(30)) == [batch.base_offset for batch in _batches(found, tmp_path / "full-indexes-0")]


def test_what_recovery_leaves(tmp_path: Path) -> None:
    """A copy taken while the logs are open is what a killed broker leaves; Ottla mends it, and Kafka accepts that."""
    source, copy = tmp_path / "data", tmp_path / "copy"
    with stores.opened(source, ottla_logs.config_of) as store:
        for topic in TOPICS:
            ottla_logs.STORIES[topic][1](store.create(TopicPartition(topic, 0)))
        shutil.copytree(source, copy, ignore=shutil.ignore_patterns(".lock"))
        expected = {log.partition: stores.read_records(log) for log in store}
    torn = copy / "epochs-0" / max(path.name for path in (copy / "epochs-0").glob("*.log"))
    torn.write_bytes(torn.read_bytes() + b"\0" * 30 + b"the rest of a write that was cut off")

    with stores.opened(copy, ottla_logs.config_of) as store:
        assert {} == store.offline
        # Where a log starts reaches the disk with the next checkpoint, so a killed broker may forget a moved start.
        topics = [log.partition for log in store if log.partition.topic != "trimmed"]
        assert {each: expected[each] for each in topics} == {
            each: stores.read_records(store.get(each)) for each in topics
        }

    found = dump(_all_files(copy))
    assert [] == found.complaints
    assert {"compacted-0"} == {path.parent.name for path in found.gaps}
    assert [] == verify_indexes(_all_files(copy))


@pytest.mark.parametrize("name", ["clean", "killed"])
def test_ottla_writes_on_where_kafka_stopped(name: str, tmp_path: Path) -> None:
    """Segments that one began and the other continued, indexes included."""
    unpack(FOLDERS / f"{name}.tar.xz", tmp_path)
    manifest = load(FOLDERS / f"{name}.json")
    # The same index interval as Kafka had, so that the continued segments are indexed all along.
    config = LogConfig(segment_bytes=1_500, index_interval_bytes=1, segment_index_bytes=4_096)
    with stores.opened(tmp_path, lambda partition: config) as store:
        for partition, expected in manifest.items():
            log = store.get(TopicPartition(partition.removesuffix("-0"), 0))
            added = [ottla_logs.plain(number) for number in range(20)]
            ottla_logs.append(log, *added, leader_epoch=LeaderEpoch(9), now=2 * ottla_logs.START_MS)
            records = stores.read_records(log)
            assert list(expected.records) == records[: len(expected.records)]
            assert list(range(expected.end_offset, expected.end_offset + 60)) == [
                record.offset for record in records[len(expected.records) :]
            ]

    folders = [tmp_path / partition for partition in manifest]
    files = [path for folder in folders for path in log_files(folder)]
    found = dump(files)
    assert [] == found.complaints
    assert {"compacted-0"} == {path.parent.name for path in found.gaps}
    assert [] == verify_indexes(files)


@pytest.mark.parametrize(
    ("topic", "suffix", "position", "bit"),
    [
        ("epochs", ".log", 80, 0x01),
        ("epochs", ".index", 7, 0x04),
        ("epochs", ".index", 3, 0x01),
        ("epochs", ".timeindex", 7, 0x01),
        ("epochs", ".timeindex", 11, 0x01),
        ("producers", ".snapshot", 20, 0x01),
    ],
)
def test_the_judge_sees_damage(written: Path, tmp_path: Path, topic: str, suffix: str, position: int, bit: int) -> None:
    """One flipped bit in a copy, and the same checks that passed above do not."""
    folder = tmp_path / f"{topic}-0"
    shutil.copytree(written / f"{topic}-0", folder)
    damaged = max(path for path in log_files(folder) if path.suffix == suffix)
    content = bytearray(damaged.read_bytes())
    content[position] ^= bit
    damaged.write_bytes(content)

    assert [] != dump(log_files(folder)).complaints


def test_the_judge_sees_an_unordered_index(written: Path, tmp_path: Path) -> None:
    """The check that a starting broker makes: the last entry of an index must lie behind the first."""
    folder = tmp_path / "epochs-0"
    shutil.copytree(written / "epochs-0", folder)
    index = min(folder.glob("*.index"))
    content = index.read_bytes()
    index.write_bytes(content[:-8] + struct.pack(">ii", -1, 0))

    assert [] != verify_indexes([index])
