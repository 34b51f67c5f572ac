"""Metadata that was lost, or restored from an older backup, costs no record."""

import asyncio
import errno
import logging
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from ottla import AsyncAdmin, AsyncProducer
from ottla.broker.broker import METADATA_FILE, Broker
from ottla.broker.startup.metadata_recovery import StartStoppedError
from ottla.env.real_clock import RealClock
from ottla.env.real_disk import RealDisk
from ottla.env.world import real_world
from ottla.metadata.image import NO_LEADER
from ottla.metadata.sqlite.sqlite_store import SqliteStore
from ottla.metadata.store import Put
from ottla.model.errors import OlderMetadataError
from ottla.model.ids import QUEUE_PRODUCER_BIT, BrokerId, LeaderEpoch, TopicPartition
from ottla.protocol.apis import ApiKey
from ottla.records.layout import LEADER_EPOCH_AT
from ottla.storage.data_dirs.metadata_seen import MetadataSeen, encode_seen, read_seen
from tests.broker.inside import append, elect_again
from tests.broker.replicated import ReplicatedBrokers
from tests.broker.running_broker import ask, broker_on, make_topic, running, with_broker
from tests.broker.sick_disk import SickDisk
from tests.unit.storage.rig import batch, flipped
from tests.waiting import PATIENCE_SECONDS, until

ALL = (0, 1, 2)


def forget_metadata(folder: Path) -> None:
    for path in folder.glob(f"{METADATA_FILE}*"):
        path.unlink()


def back_up(folder: Path, to: Path) -> None:
    """A copy of the metadata, of stopped brokers."""
    to.mkdir(exist_ok=True)
    for path in folder.glob(f"{METADATA_FILE}*"):
        shutil.copy(path, to)


def back_up_of_running(folder: Path, to: Path) -> None:
    """A copy of the metadata of running brokers, whose sessions have ended when it is restored."""
    to.mkdir()
    with (
        closing(sqlite3.connect(folder / METADATA_FILE)) as source,
        closing(sqlite3.connect(to / METADATA_FILE)) as copy,
    ):
        source.backup(copy)
        copy.execute("DELETE FROM leases")
        copy.execute("DELETE FROM keys WHERE key LIKE 'brokers/%' OR key = 'controller'")
        copy.commit()


def restore(folder: Path, backup: Path) -> None:
    forget_metadata(folder)
    for path in backup.iterdir():
        shutil.copy(path, folder)


def found(folder: Path, pattern: str) -> list[Path]:
    return sorted(folder.glob(pattern))


async def start_all(cluster: ReplicatedBrokers, *brokers: int, **options: bool) -> None:
    await asyncio.gather(*(cluster.start(each, **options) for each in brokers or ALL))


async def start_one_by_one(cluster: ReplicatedBrokers) -> None:
    for each in ALL:
        await cluster.start(each)


async def stop_all(cluster: ReplicatedBrokers) -> None:
    for each in list(cluster.brokers):
        await cluster.stop(each)


async def in_sync(cluster: ReplicatedBrokers, topic: str) -> None:
    await cluster.wait(
        lambda: all(
            set(ALL) == set(partition.isr)
            for broker in cluster.brokers.values()
            for partition in broker.image.topics[topic].partitions
        )
    )


def end_offsets(cluster: ReplicatedBrokers, topic: str) -> dict[int, int]:
    return {number: copy.end_offset for number, copy in cluster.copies(topic).items()}


async def producer_id(broker: Broker) -> int:
    """A new one."""
    return int((await ask(broker, ApiKey.INIT_PRODUCER_ID, {"producer_id": -1, "producer_epoch": -1})).producer_id)


async def nothing(broker: Broker) -> None:
    assert broker.is_ready


class TestLost:
    async def test_every_broker_keeps_its_replicas(self, tmp_path: Path) -> None:
        async with ReplicatedBrokers(tmp_path) as cluster:
            await cluster.make_topic("t")
            await cluster.send("t", [b"a", b"b", b"c"])
            topic_id = cluster.brokers[0].image.topics["t"].id
            await stop_all(cluster)
            forget_metadata(tmp_path)
            await start_all(cluster)
            await in_sync(cluster, "t")
            assert topic_id == cluster.brokers[0].image.topics["t"].id
            assert {0: 3, 1: 3, 2: 3} == end_offsets(cluster, "t")
            assert [] == found(tmp_path, "data*/*-stray")
            await cluster.send("t", [b"d"])
            # What was recovered is an ordinary cluster: each broker starts again by itself.
            await cluster.stop(1)
            await cluster.start(1)
            await in_sync(cluster, "t")
            assert {0: 4, 1: 4, 2: 4} == end_offsets(cluster, "t")

    async def test_the_replica_with_all_committed_records_leads(self, tmp_path: Path) -> None:
        async with ReplicatedBrokers(tmp_path, {"min.insync.replicas": "1"}) as cluster:
            await cluster.make_topic("t")
            await cluster.send("t", [b"a"])
            await cluster.stop(0)
            await cluster.send("t", [b"b"])
            await cluster.stop(1)
            await cluster.send("t", [b"c"])
            await cluster.stop(2)
            forget_metadata(tmp_path)
            await start_all(cluster)
            await cluster.wait(lambda: cluster.leader("t") != NO_LEADER)
            assert 2 == cluster.leader("t")
            await in_sync(cluster, "t")
            assert {0: 3, 1: 3, 2: 3} == end_offsets(cluster, "t")

    async def test_brokers_wait_for_those_that_may_have_more(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.WARNING):
            async with ReplicatedBrokers(tmp_path) as cluster:
                await cluster.make_topic("t")
                await cluster.send("t", [b"a"])
                await stop_all(cluster)
                forget_metadata(tmp_path)
                two = asyncio.gather(cluster.start(0), cluster.start(1))
                await until(lambda: "waiting for broker 2" in caplog.text)
                assert not two.done()
                await cluster.start(2)
                await two
                assert {0: 1, 1: 1, 2: 1} == end_offsets(cluster, "t")

    async def test_a_broker_whose_data_is_lost_is_left_out(self, tmp_path: Path) -> None:
        async with ReplicatedBrokers(tmp_path) as cluster:
            await cluster.make_topic("t")
            await cluster.send("t", [b"a"])
            await stop_all(cluster)
            forget_metadata(tmp_path)
            one = asyncio.create_task(cluster.start(1))
            await cluster.start(0, recover_without=(BrokerId(2),))
            await one
            assert {0, 1} == set(cluster.brokers[0].image.topics["t"].partitions[0].replicas)
            # It comes back after all: its copy is not a replica any more, and is not deleted either.
            await cluster.start(2)
            assert {0: 1, 1: 1} == end_offsets(cluster, "t")
            assert 1 == len(found(tmp_path, "data2/t-0.*-stray"))

    async def test_a_start_that_waits_can_be_stopped(self, tmp_path: Path) -> None:
        async with ReplicatedBrokers(tmp_path) as cluster:
            await cluster.make_topic("t")
            await stop_all(cluster)
            forget_metadata(tmp_path)
            waits = asyncio.Event()
            made = cluster.made(0, on_waiting=waits.set)
            starting = asyncio.create_task(made.start())
            await waits.wait()
            made.stop_waiting()
            with pytest.raises(StartStoppedError, match="brokers 1, 2"):
                await starting

    async def test_a_topic_made_after_the_recovery_is_not_taken_for_lost(self, tmp_path: Path) -> None:
        """Its revision is below those that the data dir remembers from before."""
        async with running(tmp_path) as broker:
            for number in range(20):
                await make_topic(broker, f"t{number}")
            before = broker.image.revision
        forget_metadata(tmp_path / "data")
        async with running(tmp_path) as broker:
            assert broker.image.revision < before
        seen = read_seen(RealDisk(), str(tmp_path / "data" / ".ottla-metadata-seen"))
        assert seen is not None
        assert seen.revision < before

    async def test_a_partition_that_cannot_be_opened_does_not_make_the_recovered_metadata_look_older(
        self, tmp_path: Path
    ) -> None:
        """The data dirs remember the recovered metadata, also while not every partition can be served."""
        async with running(tmp_path) as broker:
            for number in range(20):
                await make_topic(broker, f"t{number}")
            append(broker.partitions.find("t0", 0), batch(b"x"))
            before = broker.image.revision
        forget_metadata(tmp_path / "data")
        disk = SickDisk()
        disk.fail("open", "t0-0", errno.EMFILE)
        async with broker_on(tmp_path, world=replace(real_world(), disk=disk)) as broker:
            assert [TopicPartition("t0", 0)] == list(broker.health.offline_partitions())
            assert broker.image.revision < before
        disk.heal()
        async with broker_on(tmp_path, world=replace(real_world(), disk=disk)) as broker:
            assert {} == broker.health.offline_partitions()
            assert {f"t{number}" for number in range(20)} == set(broker.image.topics)
        disk.close()

    async def test_producer_ids_are_not_given_out_again(self, tmp_path: Path) -> None:
        first = await with_broker(tmp_path, producer_id)
        forget_metadata(tmp_path / "data")
        assert await with_broker(tmp_path, producer_id) > first + 1_000

    async def test_producer_ids_of_queues_are_recovered_without_their_mark(self, tmp_path: Path) -> None:
        async with running(tmp_path) as broker:
            await make_topic(broker, "t", ottla_delay_enable="true")
            async with AsyncProducer(bootstrap_servers=f"127.0.0.1:{broker.port}") as producer:
                await producer.send_and_wait("t.delayed", b"x", partition=0)
            (target,) = broker.partitions.of_topic("t")
            await until(lambda: target.end_offset > 0)
            (entry,) = target.log.producers
            queue_id = int(entry.producer_id)
        assert queue_id & QUEUE_PRODUCER_BIT
        forget_metadata(tmp_path / "data")
        async with running(tmp_path) as broker:
            assert queue_id & ~QUEUE_PRODUCER_BIT < await producer_id(broker) < QUEUE_PRODUCER_BIT


class TestOlder:
    @staticmethod
    async def with_older_store(cluster: ReplicatedBrokers, folder: Path) -> None:
        """Topic `t` is in the backup; what happened to it later, and topic `u`, are not."""
        await cluster.make_topic("t")
        await cluster.send("t", [b"a"])
        await stop_all(cluster)
        back_up(folder, folder / "backup")
        await start_one_by_one(cluster)
        await cluster.make_topic("u")
        await cluster.send("u", [b"x", b"y"])
        await cluster.send("t", [b"b"])
        await stop_all(cluster)
        restore(folder, folder / "backup")

    async def test_it_is_refused(self, tmp_path: Path) -> None:
        async with ReplicatedBrokers(tmp_path) as cluster:
            await self.with_older_store(cluster, tmp_path)
            for _ in range(2):
                for broker in ALL:
                    with pytest.raises(OlderMetadataError, match="--accept-older-metadata"):
                        await cluster.start(broker)
            assert 3 == len(found(tmp_path, "data*/u-0"))

    async def test_where_it_is_accepted_unknown_topics_are_set_aside(self, tmp_path: Path) -> None:
        async with ReplicatedBrokers(tmp_path) as cluster:
            await self.with_older_store(cluster, tmp_path)
            await start_all(cluster, accept_older_metadata=True)
            await in_sync(cluster, "t")
            assert {0: 2, 1: 2, 2: 2} == end_offsets(cluster, "t")
            strays = found(tmp_path, "data*/u-0.*-stray")
            assert 3 == len(strays)
            assert all((each / f"{0:020}.log").stat().st_size > 0 for each in strays)
            await cluster.send("t", [b"c"])
            # Once is enough.
            await stop_all(cluster)
            await start_one_by_one(cluster)
            await in_sync(cluster, "t")

    @pytest.mark.parametrize("count", [1, 3])
    async def test_a_topic_that_was_recreated_after_the_backup_is_set_aside(
        self, count: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.ERROR):
            async with ReplicatedBrokers(tmp_path, count=count) as cluster:
                brokers = range(count)
                await cluster.make_topic("t", replicas=count)
                await cluster.send("t", [b"a"])
                await stop_all(cluster)
                back_up(tmp_path, tmp_path / "backup")
                for each in brokers:
                    await cluster.start(each)
                await cluster.wait(lambda: cluster.leader("t") != NO_LEADER)
                async with AsyncAdmin(bootstrap_servers=cluster.bootstrap) as admin:
                    await admin.delete_topics(["t"])
                await cluster.wait(lambda: all("t" not in each.image.topics for each in cluster.brokers.values()))
                await cluster.make_topic("t", replicas=count)
                await cluster.send("t", [b"x", b"y"])
                await stop_all(cluster)
                restore(tmp_path, tmp_path / "backup")
                await asyncio.gather(*(cluster.start(each, accept_older_metadata=True) for each in brokers))
                strays = found(tmp_path, "data*/t-0.*-stray")
                assert count == len(strays)
                assert all((each / f"{0:020}.log").stat().st_size > 0 for each in strays)
                assert "is set aside: it belongs to another topic named t" in caplog.text
                await cluster.wait(lambda: cluster.leader("t") != NO_LEADER)
                await cluster.send("t", [b"z"])
                # A replica that is not in the ISR yet catches up.
                await cluster.wait(lambda: dict.fromkeys(brokers, 1) == end_offsets(cluster, "t"))
                # Once is enough.
                await stop_all(cluster)
                for each in brokers:
                    await cluster.start(each)
                await cluster.wait(lambda: cluster.leader("t") != NO_LEADER)
                assert count == len(found(tmp_path, "data*/t-0.*-stray"))

    async def test_a_replica_that_was_in_sync_then_does_not_lead(self, tmp_path: Path) -> None:
        async with ReplicatedBrokers(tmp_path) as cluster:
            await cluster.make_topic("t")
            await cluster.send("t", [b"a"])
            back_up_of_running(tmp_path, tmp_path / "backup")
            await cluster.stop(0)
            await cluster.send("t", [b"b", b"c"])
            await stop_all(cluster)
            restore(tmp_path, tmp_path / "backup")
            await start_all(cluster, accept_older_metadata=True)
            await cluster.wait(lambda: cluster.leader("t") != NO_LEADER)
            assert cluster.leader("t") in (1, 2)
            await in_sync(cluster, "t")
            assert {0: 3, 1: 3, 2: 3} == end_offsets(cluster, "t")

    async def test_a_store_from_before_a_recovery_is_refused(self, tmp_path: Path) -> None:
        """Its revision may be far ahead: after the recovery they are counted from the start."""
        data = tmp_path / "data"
        async with running(tmp_path) as broker:
            for number in range(5):
                await make_topic(broker, f"t{number}")
        back_up(data, tmp_path / "backup")
        forget_metadata(data)
        await with_broker(tmp_path, nothing)
        restore(data, tmp_path / "backup")
        with pytest.raises(OlderMetadataError, match=r"has seen revision \d+ after recovery 1"):
            await with_broker(tmp_path, nothing)

    async def test_a_backup_whose_revision_has_grown_since_is_refused(self, tmp_path: Path) -> None:
        """As it does when the sessions in it end, or another broker has used it."""

        async def other_commits(folder: Path) -> None:
            store = SqliteStore(str(folder / METADATA_FILE), RealClock())
            await store.open()
            for number in range(50):
                await store.commit([Put("configs/brokers/7", b'{"configs":{"a":"%d"}}' % number)])
            await store.close()

        data = tmp_path / "data"
        await with_broker(tmp_path, nothing)
        back_up(data, tmp_path / "backup")
        async with running(tmp_path) as broker:
            await make_topic(broker, "u")
        back_up(data, tmp_path / "newest")
        restore(data, tmp_path / "backup")
        await other_commits(data)
        with pytest.raises(OlderMetadataError, match=r"does not have (topics|partitions)/u"):
            await with_broker(tmp_path, nothing)
        # A topic that was deleted while this broker was away is missing, too.
        restore(data, tmp_path / "newest")
        await other_commits(data)
        shutil.copytree(data, tmp_path / "away")
        async with running(tmp_path) as broker, AsyncAdmin(bootstrap_servers=f"127.0.0.1:{broker.port}") as admin:
            await admin.delete_topics(["u"])
        (data / ".ottla-metadata-seen").unlink()
        shutil.copy(tmp_path / "away" / ".ottla-metadata-seen", data)
        await with_broker(tmp_path, nothing)

    async def test_brokers_that_serve_with_it_must_stop_first(self, tmp_path: Path) -> None:
        settings = {"broker.session.timeout.ms": "1000"}
        async with ReplicatedBrokers(tmp_path, settings) as cluster:
            await self.with_older_store(cluster, tmp_path)
            shutil.rmtree(cluster.data(0))
            await cluster.start(0)
            with pytest.raises(OlderMetadataError, match="broker 0 is running with it: stop all brokers"):
                await cluster.start(1, accept_older_metadata=True)

    async def test_a_log_of_a_newer_epoch_shows_it_too(self, tmp_path: Path) -> None:
        """What the data dir remembers may be lost, or a little older than a kill."""
        async with running(tmp_path) as broker:
            await make_topic(broker, "t")
            partition = broker.partitions.find("t", 0)
            elect_again(partition, LeaderEpoch(partition.leader_epoch + 7))
            append(partition, batch(b"a"))
        (tmp_path / "data" / ".ottla-metadata-seen").unlink()
        with pytest.raises(OlderMetadataError, match="t-0 has leader epoch 7, and the store knows only 0"):
            async with running(tmp_path):
                pass
        assert (tmp_path / "data" / "t-0").is_dir()

    async def test_a_corrupt_leader_epoch_does_not_show_it(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """One batch header is damaged; the data dir never saw metadata with that epoch."""

        async def write(broker: Broker) -> None:
            for topic in ("t", "u"):
                await make_topic(broker, topic)
                append(broker.partitions.find(topic, 0), batch(b"a"))

        async def served(broker: Broker) -> dict[str, int]:
            assert {} == broker.health.damaged_partitions()
            return {each.topic: each.end_offset for each in broker.partitions}

        await with_broker(tmp_path, write)
        path = tmp_path / "data" / "t-0" / f"{0:020}.log"
        path.write_bytes(flipped(path.read_bytes(), LEADER_EPOCH_AT + 1, 4))
        flawed = path.read_bytes()
        with caplog.at_level(logging.WARNING):
            assert {"t": 1, "u": 1} == await with_broker(tmp_path, served)
        assert f"{path}, byte 0: the header of the batch at offset 0 had leader epoch 1048576, but" in caplog.text
        assert flipped(flawed, LEADER_EPOCH_AT + 1, 4) == path.read_bytes()

    async def test_a_replica_with_a_corrupt_leader_epoch_restores_it(self, tmp_path: Path) -> None:
        async with ReplicatedBrokers(tmp_path) as cluster:
            await cluster.make_topic("t")
            await cluster.send("t", [b"a"])
            await in_sync(cluster, "t")
            broken = cluster.leader("t")
            await cluster.stop(broken)
            path = cluster.data(broken) / "t-0" / f"{0:020}.log"
            path.write_bytes(flipped(path.read_bytes(), LEADER_EPOCH_AT + 1, 4))
            await cluster.start(broken)
            await in_sync(cluster, "t")
            assert {0: 1, 1: 1, 2: 1} == end_offsets(cluster, "t")
            assert 1 == len(set(cluster.contents("t").values()))
            assert [] == found(cluster.data(broken), "t-0.*-stray")

    async def test_a_store_that_goes_back_under_a_broker_ends_it(self, tmp_path: Path) -> None:
        async with ReplicatedBrokers(tmp_path, count=1) as cluster:
            with (
                closing(sqlite3.connect(tmp_path / METADATA_FILE)) as live,
                closing(sqlite3.connect(":memory:")) as old,
            ):
                live.backup(old)
                await cluster.make_topic("t", replicas=1)
                old.backup(live)
            failure = await asyncio.wait_for(cluster.brokers[0].wait_failure(), PATIENCE_SECONDS)
            assert isinstance(failure, OlderMetadataError)
            assert "the metadata store went back from revision" in str(failure)
            assert (cluster.data(0) / "t-0").is_dir()


class TestMovedAway:
    async def test_a_partition_that_was_moved_while_the_broker_was_down_is_removed(self, tmp_path: Path) -> None:
        async with ReplicatedBrokers(tmp_path) as cluster:
            await cluster.make_topic("t", replicas=2)
            await cluster.send("t", [b"a"])
            holders = cluster.brokers[0].image.topics["t"].partitions[0].replicas
            gone, stays = holders[0], holders[1]
            (free,) = set(ALL) - set(holders)
            await cluster.stop(gone)
            await cluster.move("t", 0, [stays, free])
            await cluster.start(gone)
            assert {stays: 1, free: 1} == end_offsets(cluster, "t")
            assert [] == found(cluster.data(gone), "t-0")
            assert [] == found(cluster.data(gone), "*-stray")

    async def test_it_is_kept_where_the_data_dir_does_not_know_the_metadata(self, tmp_path: Path) -> None:
        async with ReplicatedBrokers(tmp_path) as cluster:
            await cluster.make_topic("t", replicas=2)
            await cluster.send("t", [b"a"])
            holders = cluster.brokers[0].image.topics["t"].partitions[0].replicas
            gone, stays = holders[0], holders[1]
            (free,) = set(ALL) - set(holders)
            await cluster.stop(gone)
            await cluster.move("t", 0, [stays, free])
            other = MetadataSeen(history="another", revision=1)
            (cluster.data(gone) / ".ottla-metadata-seen").write_bytes(encode_seen(other))
            await cluster.start(gone)
            assert 1 == len(found(cluster.data(gone), "t-0.*-stray"))
