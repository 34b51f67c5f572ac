"""Three replicas, one of which finds a damaged small file: no record is deleted anywhere, and the file is named."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.client.admin.async_admin import AsyncAdmin
from ottla.client.admin.topic_requests import delete_records_of
from ottla.client.consumer.async_consumer import AsyncConsumer
from ottla.client.producer.async_producer import AsyncProducer
from ottla.model.ids import Offset, TopicPartition
from ottla.records.batch import scan
from ottla.records.layout import LEADER_EPOCH_AT
from ottla.storage.data_dirs import names
from ottla.storage.data_dirs.checkpoints import encode_offsets
from tests.broker.replicated import ReplicatedBrokers
from tests.broker.test_replication import read_all
from tests.waiting import PATIENCE_SECONDS

VALUES = [b"value %d " % number + bytes(10_000) for number in range(300)]
T0 = TopicPartition("t", 0)
START = 100


async def fill_and_stop(brokers: ReplicatedBrokers, last: int) -> None:
    """Records below START are deleted, and broker `last` stops last."""
    await brokers.make_topic("t", segment_bytes=str(1 << 20))
    await brokers.send("t", VALUES)
    await brokers.wait_in_sync("t")
    async with AsyncAdmin(bootstrap_servers=brokers.bootstrap) as admin:
        assert START == await delete_records_of(admin.cluster, T0, START)
    for number in sorted(brokers.brokers, key=lambda each: each == last):
        await brokers.stop(number)


async def start_all(brokers: ReplicatedBrokers, first: int) -> None:
    for number in sorted(range(3), key=lambda each: each != first):
        await brokers.start(number)
    await brokers.wait_in_sync("t")


@pytest.mark.parametrize(
    ("change", "damaged"),
    [("digit", [0]), ("digit", [0, 1]), ("line", [0]), ("empty", [0, 1]), ("missing", [0]), ("huge", [0])],
)
async def test_a_log_start_in_one_file_deletes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, change: str, damaged: list[int]
) -> None:
    caplog.set_level(logging.WARNING)
    async with ReplicatedBrokers(tmp_path) as brokers:
        await fill_and_stop(brokers, last=0)
        segments = {each.name for each in brokers.data(0).glob("t-0/*.log")}
        for number in damaged:
            path = brokers.data(number) / names.LOG_STARTS
            content = path.read_bytes()
            assert b"t 0 100\n" in content
            match change:
                case "digit":
                    path.write_bytes(content.replace(b"t 0 100\n", b"t 0 250\n"))
                case "line":
                    path.write_bytes(b"0\n1\nt 0 250\n")
                case "huge":
                    path.write_bytes(content.replace(b"t 0 100\n", b"t 0 100000000\n"))
                case "empty":
                    path.write_bytes(b"")
                case "missing":
                    path.unlink()
        caplog.clear()
        await start_all(brokers, first=0)
        assert 0 == brokers.leader("t")
        for number in damaged:
            assert [each for each in caplog.messages if str(brokers.data(number) / names.LOG_STARTS) in each]
        # What a client deleted stays deleted, since the in-sync followers know it.
        await brokers.wait(lambda: [START] * 3 == [each.start_offset for each in brokers.copies("t").values()])
        assert VALUES[START:] == await read_all(brokers, "t", len(VALUES) - START)
        for number in range(3):
            assert segments <= {each.name for each in brokers.data(number).glob("t-0/*.log")}


@pytest.mark.parametrize("name", [names.HIGH_WATERMARKS, names.RECOVERY_POINTS])
async def test_a_consumer_before_lost_records_reaches_the_end(tmp_path: Path, name: str) -> None:
    """The checkpoint is of a newer copy of the only replica, whose last records are lost; nothing is produced."""
    async with ReplicatedBrokers(tmp_path, {"min.insync.replicas": "1"}, count=1) as brokers:
        await brokers.make_topic("t", replicas=1)
        await brokers.send("t", VALUES[:5])
        await brokers.stop(0)
        path = brokers.data(0) / name
        path.write_bytes(encode_offsets({T0: Offset(9)}))
        await brokers.start(0)
        async with AsyncConsumer(bootstrap_servers=brokers.bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([T0])
            found: list[bytes | None] = []
            async with asyncio.timeout(PATIENCE_SECONDS):
                while await consumer.position(T0) < (await consumer.end_offsets([T0]))[T0]:
                    for records in (await consumer.poll(timeout_ms=100)).values():
                        found += [record.value for record in records]
        assert (VALUES[:5], 10) == (found, brokers.copies("t")[0].end_offset)


@pytest.mark.parametrize("bit", [0, 3])
@pytest.mark.parametrize("lost", [(), (names.RECOVERY_POINTS, names.EPOCHS)])
async def test_a_flipped_leader_epoch_in_the_last_batch_stops_no_broker(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, bit: int, lost: tuple[str, ...]
) -> None:
    """After a kill, before or after the batch was flushed: it is not the metadata store that is older."""
    async with ReplicatedBrokers(tmp_path, {"min.insync.replicas": "1"}, count=1) as brokers:
        await brokers.make_topic("t", replicas=1)
        for value in VALUES[:5]:
            await brokers.send("t", [value])
        epoch = brokers.copies("t")[0].leader_epoch
        await brokers.stop(0)
        data = brokers.data(0)
        (path,) = data.glob("t-0/*.log")
        content = bytearray(path.read_bytes())
        content[scan(bytes(content))[0][-1].position + LEADER_EPOCH_AT + 3] ^= 1 << bit
        path.write_bytes(content)
        for each in (names.CLEAN_SHUTDOWN, *lost):
            (data / ("t-0" if each == names.EPOCHS else "") / each).unlink()
        await brokers.start(0)
        await brokers.wait_in_sync("t")
        assert VALUES[:5] == await read_all(brokers, "t", 5)
        assert [
            each for each in caplog.messages if f"{path}, byte" in each and f"restored leader epoch {epoch}" in each
        ]


async def test_a_huge_log_start_of_the_only_replica(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with ReplicatedBrokers(tmp_path, {"min.insync.replicas": "1"}, count=1) as brokers:
        await brokers.make_topic("t", replicas=1)
        await brokers.send("t", VALUES)
        async with AsyncAdmin(bootstrap_servers=brokers.bootstrap) as admin:
            await delete_records_of(admin.cluster, T0, START)
        await brokers.stop(0)
        path = brokers.data(0) / names.LOG_STARTS
        path.write_bytes(path.read_bytes().replace(b"t 0 100\n", b"t 0 100000000\n"))
        await brokers.start(0)
        await brokers.wait_in_sync("t")
        start = brokers.copies("t")[0].start_offset
        assert start <= START
        assert VALUES[start:] == await read_all(brokers, "t", len(VALUES) - start)
        assert [each for each in caplog.messages if str(path) in each]


def last_epoch_flipped(folder: Path) -> Path:
    (path,) = folder.glob("*.log")
    content = bytearray(path.read_bytes())
    content[scan(bytes(content))[0][-1].position + LEADER_EPOCH_AT + 3] ^= 8
    path.write_bytes(content)
    return path


def emptied(pattern: str) -> Callable[[Path], Path]:
    def empty(folder: Path) -> Path:
        path = max(folder.glob(pattern))
        path.write_bytes(b"")
        return path

    return empty


def removed(pattern: str) -> Callable[[Path], Path]:
    def remove(folder: Path) -> Path:
        path = max(folder.glob(pattern))
        path.unlink()
        return path

    return remove


def with_first_digit_changed(name: str) -> Callable[[Path], Path]:
    def change(folder: Path) -> Path:
        path = folder / name
        version, count, first, *rest = path.read_bytes().splitlines()
        path.write_bytes(b"\n".join([version, count, b"9" + first[1:], *rest, b""]))
        return path

    return change


PARTITION_FILES: list[Callable[[Path], Path]] = [
    emptied("*.txnindex"),
    removed("*.txnindex"),
    emptied("*.snapshot"),
    emptied(names.EPOCHS),
    removed(names.EPOCHS),
    with_first_digit_changed(names.EPOCHS),
    last_epoch_flipped,
]


@pytest.mark.parametrize("name", ["", names.HIGH_WATERMARKS, names.RECOVERY_POINTS, names.CLOSED_SEGMENTS])
async def test_files_of_one_replica_of_three(tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str) -> None:
    """Each partition has another damage in its folder, or a file of the data dir is damaged; that broker leads next."""
    count = len(PARTITION_FILES)
    async with ReplicatedBrokers(tmp_path) as brokers:
        await brokers.make_topic("t", count)
        producer = AsyncProducer(bootstrap_servers=brokers.bootstrap, transactional_id="x", acks="all")
        async with producer:
            await producer.init_transactions()
            for what in (b"committed", b"aborted", b"at last"):
                producer.begin_transaction()
                for partition in range(count):
                    await producer.send("t", value=what, partition=partition)
                if what == b"aborted":
                    await producer.flush()
                    await producer.abort_transaction()
                else:
                    await producer.commit_transaction()
        for partition in range(count):
            await brokers.wait_in_sync("t", partition)
        for number in (2, 1, 0):
            await brokers.stop(number)
        folder = brokers.data(0)
        if name:
            path = folder / name
            path.write_bytes(path.read_bytes().replace(b"t 3 6\n", b"t 3 9\n").replace(b"t 3 0:", b"t 3 5:"))
            told = [path]
        else:
            told = [damage(folder / f"t-{partition}") for partition, damage in enumerate(PARTITION_FILES)]
        caplog.clear()
        await start_all(brokers, first=0)
        found: dict[int, list[bytes | None]] = {partition: [] for partition in range(count)}
        async with AsyncConsumer(
            bootstrap_servers=brokers.bootstrap, auto_offset_reset="earliest", isolation_level="read_committed"
        ) as consumer:
            consumer.assign([TopicPartition("t", partition) for partition in range(count)])
            async with asyncio.timeout(PATIENCE_SECONDS):
                while sum(map(len, found.values())) < 2 * count:
                    for where, records in (await consumer.poll(timeout_ms=200)).items():
                        found[where.partition] += [record.value for record in records]
        assert {each: [b"committed", b"at last"] for each in range(count)} == found
        for partition in range(count):
            await brokers.wait_in_sync("t", partition)
            assert 1 == len(set(brokers.contents("t", partition).values()))
        for path in told:
            assert [each for each in caplog.messages if str(path) in each], path
