"""Logs that fail or are damaged while others have what they had: the others lead, and the copy is mended."""

import asyncio
import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ottla.client.admin.async_admin import AsyncAdmin
from ottla.client.admin.config_requests import ResourceType
from ottla.client.admin.values import ConfigResource
from ottla.client.consumer.async_consumer import AsyncConsumer
from ottla.client.producer.async_producer import AsyncProducer
from ottla.client.values import OffsetAndTimestamp
from ottla.model.ids import TopicPartition
from ottla.storage.data_dirs import names
from tests.broker.replicated import ReplicatedBrokers
from tests.broker.sick_disk import SickDisk
from tests.broker.test_replication import read_all

VALUES = [b"value %d" % number for number in range(500)]
TIME = 1_700_000_000_000


@asynccontextmanager
async def replicated(tmp_path: Path, *, sick: bool = False, **settings: str) -> AsyncIterator[ReplicatedBrokers]:
    brokers = ReplicatedBrokers(tmp_path, settings)
    if sick:
        brokers.disks = {number: SickDisk() for number in range(3)}
    async with brokers:
        yield brokers
    for disk in brokers.disks.values():
        disk.close()


def strays(brokers: ReplicatedBrokers, broker: int) -> list[str]:
    return [path.name for path in brokers.data(broker).glob("t-0.*-stray")]


def log_file(brokers: ReplicatedBrokers, broker: int) -> Path:
    (path,) = (brokers.data(broker) / "t-0").glob("*.log")
    return path


def rot(path: Path) -> None:
    """Changes one byte within the records of a batch in the middle of a file."""
    content = bytearray(path.read_bytes())
    at = content.index(b"value 250")
    content[at] ^= 0xFF
    path.write_bytes(content)


def rot_in_place(folder: Path) -> None:
    """The same under a broker that runs."""
    (path,) = (each for each in folder.glob("*.log") if b"value 250" in each.read_bytes())
    with path.open("r+b") as file:
        file.seek(path.read_bytes().index(b"value 250"))
        file.write(b"V")


async def make_and_fill(brokers: ReplicatedBrokers, **configs: str) -> None:
    """In batches of a few records each, so that one that rots is in the middle; a millisecond and a key for each."""
    await brokers.make_topic("t", 1, 3, **{"retention_ms": "-1", **configs})
    async with AsyncProducer(bootstrap_servers=brokers.bootstrap, acks="all", batch_size=500) as producer:
        for number, value in enumerate(VALUES):
            await producer.send("t", value=value, key=b"%d" % number, partition=0, timestamp_ms=TIME + number)
        await producer.flush()
    await brokers.wait_in_sync("t")


def follower_of(brokers: ReplicatedBrokers) -> int:
    return next(number for number in brokers.brokers if number != brokers.leader("t"))


async def wait_withdrawn(brokers: ReplicatedBrokers, broker: int) -> None:
    """Until everybody knows that it is neither in sync nor the leader."""

    def is_so() -> bool:
        images = [each.image.topics["t"].partitions[0] for each in brokers.brokers.values()]
        return all(broker not in image.isr and broker != image.leader for image in images)

    await brokers.wait(is_so)


async def check_mended(brokers: ReplicatedBrokers, broker: int, count: int = 500, *, are_equal: bool = True) -> None:
    await brokers.wait(lambda: bool(brokers.copies("t").get(broker)))
    await brokers.wait_in_sync("t")
    if are_equal:
        assert 1 == len(set(brokers.contents("t").values()))
    assert 1 == len(strays(brokers, broker))
    assert VALUES == (await read_all(brokers, "t", count))[:500]


async def test_a_log_that_cannot_be_opened_is_set_aside_and_copied_anew(tmp_path: Path) -> None:
    async with replicated(tmp_path) as brokers:
        await make_and_fill(brokers)
        broken = follower_of(brokers)
        await brokers.stop(broken)
        path = log_file(brokers, broken)
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        (brokers.data(broken) / names.CLEAN_SHUTDOWN).unlink()
        await brokers.start(broken)
        await check_mended(brokers, broken)
        assert {} == brokers.brokers[broken].health.offline_partitions()


@pytest.mark.parametrize("which", [0, 2], ids=["first", "middle"])
async def test_a_leader_that_lacks_a_segment_after_a_clean_stop_gets_it_from_a_follower(
    tmp_path: Path, which: int
) -> None:
    async with replicated(tmp_path) as brokers:
        await make_and_fill(brokers, segment_ms="100")
        broken = brokers.leader("t")
        await brokers.stop(broken)
        path = sorted((brokers.data(broken) / "t-0").glob("*.log"))[which]
        for each in path.parent.glob(f"{path.stem}.*"):
            each.unlink()
        await brokers.start(broken)
        await check_mended(brokers, broken)


async def test_a_batch_that_has_rotten_is_found_by_the_recovery_and_the_log_copied_anew(tmp_path: Path) -> None:
    async with replicated(tmp_path) as brokers:
        await make_and_fill(brokers)
        broken = follower_of(brokers)
        await brokers.stop(broken)
        rot(log_file(brokers, broken))
        (brokers.data(broken) / names.CLEAN_SHUTDOWN).unlink()
        await brokers.start(broken)
        await check_mended(brokers, broken)


async def test_a_batch_that_has_rotten_is_found_by_a_reader_who_gets_it_from_another_one(tmp_path: Path) -> None:
    async with replicated(tmp_path) as brokers:
        await make_and_fill(brokers)
        broken = follower_of(brokers)
        await brokers.stop(broken)
        rot(log_file(brokers, broken))
        await brokers.start(broken)
        await brokers.wait_in_sync("t")
        # Both at once: one that is back in the ISR might take over from the other.
        others = [number for number in brokers.brokers if number != broken]
        for other in others:
            await brokers.stop(other)
        await brokers.wait(lambda: brokers.leader("t") == broken)
        for other in others:
            await brokers.start(other)
        await brokers.wait_in_sync("t")
        assert [] == strays(brokers, broken)
        assert VALUES == await read_all(brokers, "t", 500)
        await brokers.wait(lambda: brokers.leader("t") != broken)
        await check_mended(brokers, broken)


async def test_a_batch_that_has_rotten_is_found_by_a_search_for_a_time_and_another_one_finds_it(tmp_path: Path) -> None:
    async with replicated(tmp_path) as brokers:
        await make_and_fill(brokers)
        broken = brokers.leader("t")
        # Opened anew, it trusts nothing that it has not looked at.
        await brokers.stop(broken)
        await brokers.start(broken)
        await brokers.wait_in_sync("t")
        rot_in_place(brokers.data(broken) / "t-0")
        async with AsyncAdmin(bootstrap_servers=brokers.bootstrap) as admin:
            await admin.elect_leaders(topic_partitions=[TopicPartition("t", 0)])
        await brokers.wait(lambda: brokers.leader("t") == broken)
        async with AsyncConsumer(bootstrap_servers=brokers.bootstrap) as consumer:
            found = await consumer.offsets_for_times({TopicPartition("t", 0): TIME + 250})
        assert {TopicPartition("t", 0): OffsetAndTimestamp(250, TIME + 250, 0)} == found
        await brokers.wait(lambda: len(strays(brokers, broken)) == 1)
        await check_mended(brokers, broken)


async def test_a_batch_that_has_rotten_is_found_by_the_cleaner_and_the_copy_is_cleaned_in_the_end(
    tmp_path: Path,
) -> None:
    async with replicated(tmp_path, sick=False, **{"log.cleaner.backoff.ms": "100"}) as brokers:
        await make_and_fill(brokers, segment_ms="100")
        broken = follower_of(brokers)
        rot_in_place(brokers.data(broken) / "t-0")
        compacted = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
        async with AsyncAdmin(bootstrap_servers=brokers.bootstrap) as admin:
            await admin.alter_configs([ConfigResource(ResourceType.TOPIC, "t", compacted)])
        await brokers.wait(lambda: len(strays(brokers, broken)) == 1)
        await check_mended(brokers, broken, are_equal=False)
        await brokers.wait(lambda: brokers.copies("t")[broken].log.cleaned_offset > 250)


async def test_a_leader_whose_disk_fails_to_sync_gives_up_at_once_and_comes_back(tmp_path: Path) -> None:
    async with replicated(tmp_path, sick=True) as brokers:
        await make_and_fill(brokers, flush_messages="1")
        old = brokers.leader("t")
        disk = brokers.disks[old]
        assert isinstance(disk, SickDisk)
        disk.fail("sync", "t-0")
        await brokers.send("t", [b"meanwhile"] * 20)
        await wait_withdrawn(brokers, old)
        disk.heal()
        await brokers.wait_in_sync("t")
        assert 1 == len(set(brokers.contents("t").values()))
        assert [*VALUES, *[b"meanwhile"] * 20] == await read_all(brokers, "t", 520)
        assert ([], True) == (strays(brokers, old), disk.failed > 0)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
async def test_a_leader_that_cannot_write_gives_up_and_comes_back_when_it_can(tmp_path: Path, code: int) -> None:
    async with replicated(tmp_path, sick=True) as brokers:
        await make_and_fill(brokers)
        old = brokers.leader("t")
        disk = brokers.disks[old]
        assert isinstance(disk, SickDisk)
        disk.fail("write", "t-0", code)
        await brokers.send("t", [b"meanwhile"] * 20)
        await brokers.wait(lambda: brokers.leader("t") != old)
        await brokers.send("t", [b"again"] * 20)
        await wait_withdrawn(brokers, old)
        disk.heal()
        await brokers.wait_in_sync("t")
        assert 1 == len(set(brokers.contents("t").values()))
        assert [*VALUES, *[b"meanwhile"] * 20, *[b"again"] * 20] == await read_all(brokers, "t", 540)
        assert [] == strays(brokers, old)


async def test_a_leader_without_disk_space_stays_eligible(tmp_path: Path) -> None:
    """Its log has all committed records; the replica that takes over may have lost power a moment before."""
    async with replicated(tmp_path, sick=True) as brokers:
        await make_and_fill(brokers)
        old = brokers.leader("t")
        third = follower_of(brokers)
        await brokers.stop(third)
        disk = brokers.disks[old]
        assert isinstance(disk, SickDisk)
        disk.fail("write", "t-0", errno.ENOSPC)
        sending = asyncio.create_task(brokers.send("t", [b"meanwhile"]))
        await wait_withdrawn(brokers, old)
        (other,) = set(range(3)) - {old, third}
        images = [each.image.topics["t"].partitions[0] for each in brokers.brokers.values()]
        assert [(other, (other,), (old,))] * 2 == [(each.leader, each.isr, each.eligible) for each in images]
        disk.heal()
        await sending
        await brokers.start(third)
        await brokers.wait_in_sync("t")
        assert [*VALUES, b"meanwhile"] == await read_all(brokers, "t", 501)


async def test_a_follower_that_cannot_write_does_not_hold_up_the_others(tmp_path: Path) -> None:
    """It leaves the ISR by itself, long before its leader would find it late."""
    async with replicated(tmp_path, sick=True, **{"replica.lag.time.max.ms": "60000"}) as brokers:
        await make_and_fill(brokers)
        broken = follower_of(brokers)
        disk = brokers.disks[broken]
        assert isinstance(disk, SickDisk)
        disk.fail("write", "t-0", errno.ENOSPC)
        async with asyncio.timeout(20):
            await brokers.send("t", [b"meanwhile"] * 20)
        await wait_withdrawn(brokers, broken)
        disk.heal()
        await brokers.wait_in_sync("t")


async def test_the_last_one_in_sync_stays_what_it_is(tmp_path: Path) -> None:
    """Nobody has more; so it says what is wrong, and leads when it can be written again."""
    async with replicated(tmp_path, sick=True) as brokers:
        await make_and_fill(brokers, min_insync_replicas="1")
        old = brokers.leader("t")
        for other in [number for number in brokers.brokers if number != old]:
            await brokers.stop(other)
        disk = brokers.disks[old]
        assert isinstance(disk, SickDisk)
        disk.fail("write", "t-0", errno.ENOSPC)
        partition = brokers.brokers[old].partitions.held[TopicPartition("t", 0)]
        sending = asyncio.create_task(brokers.send("t", [b"meanwhile"]))
        await brokers.wait(lambda: partition.log.health.refusal is not None)
        assert old == brokers.leader("t")
        disk.heal()
        await sending
        assert (old, None) == (brokers.leader("t"), partition.log.health.trouble)
