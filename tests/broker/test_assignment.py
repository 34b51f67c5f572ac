"""A partition folder is what its own files say: swapped, damaged and unknown folders never cost a record."""

import errno
import logging
import os
from pathlib import Path

import pytest

from ottla import AsyncAdmin
from ottla.broker.broker import Broker
from ottla.env.real_disk import RealDisk, RealFile
from ottla.metadata.records import (
    partition_key,
    topic_key,
)
from ottla.metadata.store import Delete
from ottla.model.ids import LeaderEpoch, TopicPartition
from tests.broker.inside import append, elect_again
from tests.broker.replicated import ReplicatedBrokers
from tests.broker.running_broker import change_metadata, make_topic, running, with_broker
from tests.unit.storage.rig import batch


def swap(one: Path, two: Path) -> None:
    """Renames two folders into each other."""
    aside = one.with_name("aside")
    one.rename(aside)
    two.rename(one)
    aside.rename(two)


async def written(folder: Path, **counts: int) -> Path:
    """A data dir of topics `a` and `b` with two partitions each, and so many records in those that are named."""

    async def write(broker: Broker) -> None:
        for topic in ("a", "b"):
            await make_topic(broker, topic, 2)
        for name, count in counts.items():
            topic, _, index = name.partition("_")
            append(broker.partitions.find(topic, int(index)), *[batch(name.encode())] * count)

    await with_broker(folder, write)
    return folder / "data"


async def end_offsets(broker: Broker) -> dict[str, int]:
    return {f"{each.topic}-{each.index}": each.end_offset for each in broker.partitions}


class FullDisk(RealDisk):
    """Takes no `partition.metadata` while it is full."""

    is_full = True

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> RealFile:
        if self.is_full and create and "/partition.metadata" in path:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        return super().open(path, create=create, writable=writable)


class TestSwappedFolders:
    @pytest.mark.parametrize(("one", "two"), [("a-0", "a-1"), ("a-0", "b-0"), ("a-0", "b-1")])
    async def test_they_are_set_right(
        self, one: str, two: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        data = await written(tmp_path, a_0=1, a_1=2, b_0=3, b_1=4)
        swap(data / one, data / two)
        with caplog.at_level(logging.ERROR):
            assert {"a-0": 1, "a-1": 2, "b-0": 3, "b-1": 4} == await with_broker(tmp_path, end_offsets)
        told = [record.message for record in caplog.records if record.levelno == logging.ERROR]
        assert any(one in each and two in each for each in told)
        # It is right on disk, too: nothing is left to say at the next start.
        caplog.clear()
        with caplog.at_level(logging.ERROR):
            assert {"a-0": 1, "a-1": 2, "b-0": 3, "b-1": 4} == await with_broker(tmp_path, end_offsets)
        assert [] == [record.message for record in caplog.records if record.levelno >= logging.ERROR]

    async def test_a_cycle_of_three(self, tmp_path: Path) -> None:
        data = await written(tmp_path, a_0=1, a_1=2, b_0=3)
        swap(data / "a-0", data / "a-1")
        swap(data / "a-1", data / "b-0")
        assert {"a-0": 1, "a-1": 2, "b-0": 3, "b-1": 0} == await with_broker(tmp_path, end_offsets)

    async def test_a_folder_of_another_name_goes_back(self, tmp_path: Path) -> None:
        data = await written(tmp_path, a_1=2)
        (data / "a-1").rename(data / "c-7")
        assert {"a-0": 0, "a-1": 2, "b-0": 0, "b-1": 0} == await with_broker(tmp_path, end_offsets)

    async def test_after_a_kill_between_the_renames(self, tmp_path: Path) -> None:
        data = await written(tmp_path, a_0=1, a_1=2)
        (data / "a-0").rename(data / f"a-0.{'0' * 32}-moving")
        (data / "a-1").rename(data / "a-0")
        assert {"a-0": 1, "a-1": 2, "b-0": 0, "b-1": 0} == await with_broker(tmp_path, end_offsets)

    async def test_a_copy_in_the_place_of_another_is_not_served(self, tmp_path: Path) -> None:
        import shutil

        data = await written(tmp_path, a_0=1, a_1=2)
        shutil.rmtree(data / "a-1")
        shutil.copytree(data / "a-0", data / "a-1")
        async with running(tmp_path) as broker:
            error = broker.health.offline_partitions()[TopicPartition("a", 1)]
            assert "find out which of them is right" in str(error)
            assert "a-0" in str(error)
            assert "a-1" in str(error)
            assert [1] == ([each.end_offset for each in broker.partitions.of_topic("a")])
        assert (data / "a-1").is_dir()


class TestDamagedIdentity:
    @pytest.mark.parametrize(
        "content",
        [
            b"",
            b"version: 0\n",
            b"version: 0\ntopic_id: \n",
            b"version: 0\ntopic_id: ?!\n",
            b"\x00\xff\xfe garbage",
            b"version: 0\ntopic_id: abc\npartition: x\n",
            None,
        ],
    )
    async def test_the_log_is_served_and_the_file_written_again(
        self, content: bytes | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        data = await written(tmp_path, a_0=3)
        file = data / "a-0" / "partition.metadata"
        whole = file.read_bytes()
        if content is None:
            file.unlink()
        else:
            file.write_bytes(content)
        with caplog.at_level(logging.WARNING):
            assert {"a-0": 3, "a-1": 0, "b-0": 0, "b-1": 0} == await with_broker(tmp_path, end_offsets)
        assert any("a-0" in record.message and "partition.metadata" in record.message for record in caplog.records)
        assert whole == file.read_bytes()

    async def test_a_full_disk_does_not_keep_the_broker_from_starting(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with ReplicatedBrokers(tmp_path) as cluster:
            await cluster.make_topic("t")
            await cluster.send("t", [b"a"])
            await cluster.wait_in_sync("t")
            await cluster.stop(1)
            file = cluster.data(1) / "t-0" / "partition.metadata"
            file.write_bytes(b"")
            disk = cluster.disks[1] = FullDisk()
            await cluster.start(1)
            assert "partition.metadata: cannot write: No space left on device" in caplog.text
            assert 1 == cluster.copies("t")[1].end_offset
            disk.is_full = False
            await cluster.stop(1)
            await cluster.start(1)
            assert b"topic_id: " in file.read_bytes()

    async def test_a_valid_id_of_another_topic_keeps_the_partition_offline(self, tmp_path: Path) -> None:
        data = await written(tmp_path, a_0=3)
        file = data / "a-0" / "partition.metadata"
        file.write_text("version: 0\ntopic_id: ABCDEFGHIJKLMNOPQRSTUA\n")

        async def served(broker: Broker) -> None:
            assert [1] == [each.index for each in broker.partitions.of_topic("a")]
            assert "ABCDEFGHIJKLMNOPQRSTUA" in str(broker.health.offline_partitions()[TopicPartition("a", 0)])

        for _ in range(2):
            await with_broker(tmp_path, served)
        # Without the wrong id it is served again, and no offset was given out twice.
        file.unlink()
        assert {"a-0": 3, "a-1": 0, "b-0": 0, "b-1": 0} == await with_broker(tmp_path, end_offsets)

    async def test_a_damaged_file_beside_a_log_that_cannot_be_the_topics(self, tmp_path: Path) -> None:
        async with running(tmp_path) as broker:
            await make_topic(broker, "a")
            partition = broker.partitions.find("a", 0)
            elect_again(partition, LeaderEpoch(7))
            append(partition, batch(b"x"))
        (tmp_path / "data" / "a-0" / "partition.metadata").unlink()
        async with running(tmp_path) as broker:
            assert [] == list(broker.partitions)
            assert "leader epoch 7" in str(broker.health.offline_partitions()[TopicPartition("a", 0)])
        assert (tmp_path / "data" / "a-0" / f"{0:020}.log").stat().st_size > 0


class TestOneOfThree:
    """With other replicas, what is wrong with one broker's folders mends itself."""

    async def test_a_wrong_id(self, tmp_path: Path) -> None:
        async with ReplicatedBrokers(tmp_path) as cluster:
            await cluster.make_topic("t")
            await cluster.send("t", [b"a", b"b"])
            await cluster.stop(1)
            file = cluster.data(1) / "t-0" / "partition.metadata"
            file.write_text("version: 0\ntopic_id: ABCDEFGHIJKLMNOPQRSTUA\n")
            await cluster.start(1)
            # The image of another broker may be from before the stop.
            await cluster.wait(lambda: 1 in cluster.copies("t"))
            await cluster.wait_in_sync("t")
            assert 2 == cluster.copies("t")[1].end_offset
            assert 1 == len(sorted(cluster.data(1).glob("t-0.*-stray")))

    async def test_a_swap(self, tmp_path: Path) -> None:
        async with ReplicatedBrokers(tmp_path) as cluster:
            await cluster.make_topic("t", 2)
            await cluster.send("t", [b"a", b"b"], 0)
            await cluster.send("t", [b"c"], 1)
            await cluster.stop(1)
            swap(cluster.data(1) / "t-0", cluster.data(1) / "t-1")
            await cluster.start(1)
            assert [2, 1] == [cluster.copies("t", index)[1].end_offset for index in (0, 1)]
            assert [] == sorted(cluster.data(1).glob("*-stray"))


class TestUnknownFolders:
    async def test_a_topic_that_the_metadata_does_not_know_is_set_aside(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        data = await written(tmp_path, a_0=3)
        content = (data / "a-0" / f"{0:020}.log").read_bytes()
        # As an older store would be, which never heard of the topic.
        await change_metadata(tmp_path, *map(Delete, (topic_key("a"), partition_key("a", 0), partition_key("a", 1))))
        with caplog.at_level(logging.ERROR):
            assert {"b-0": 0, "b-1": 0} == await with_broker(tmp_path, end_offsets)
        (kept,) = data.glob("a-0.*-stray")
        assert content == (kept / f"{0:020}.log").read_bytes()
        assert any(str(kept) in record.message and "3 records" in record.message for record in caplog.records)

    async def test_a_topic_that_was_deleted_meanwhile_is_removed(self, tmp_path: Path) -> None:
        async with ReplicatedBrokers(tmp_path, {"log.segment.delete.delay.ms": "0"}, count=2) as cluster:
            for topic in ("a", "b"):
                await cluster.make_topic(topic, replicas=2)
                await cluster.send(topic, [b"x"])
                await cluster.wait_in_sync(topic)
            await cluster.stop(1)
            async with AsyncAdmin(bootstrap_servers=cluster.bootstrap) as admin:
                await admin.delete_topics(["a"])
            assert (cluster.data(1) / "a-0").is_dir()
            await cluster.start(1)
            await cluster.wait(lambda: 1 in cluster.copies("b"))
            assert [TopicPartition("b", 0)] == list(cluster.brokers[1].partitions.held)
            assert 1 == cluster.copies("b")[1].end_offset
            await cluster.wait(lambda: not list(cluster.data(1).glob("a-0*")))
