"""A broker that finds logs missing when it starts: it says so, it does not lead them, and others mend it."""

import json
import logging
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ottla.client.admin.async_admin import AsyncAdmin
from ottla.client.admin.replica_requests import ElectionType, elect_leaders
from ottla.controller.replica_assignment import first_image
from ottla.metadata.image import PartitionImage
from ottla.metadata.records import TopicRecord, encode, partition_key, partition_record, topic_key
from ottla.metadata.store import Put
from ottla.model.base64_ids import new_id
from ottla.model.ids import Offset, TopicPartition
from ottla.sim.random import SimRandom
from ottla.storage.data_dirs import names
from ottla.storage.data_dirs.checkpoints import encode_offsets
from tests.broker.http_client import HOST, endpoint_of, get
from tests.broker.replicated import ReplicatedBrokers
from tests.broker.test_replication import read_all

VALUES = [b"value %d" % number for number in range(500)]
MORE = [b"more %d" % number for number in range(100)]
T0 = TopicPartition("t", 0)
CHECKPOINTS = (names.RECOVERY_POINTS, names.HIGH_WATERMARKS, names.LOG_STARTS)


@asynccontextmanager
async def replicated(tmp_path: Path, *, dirs: int = 1, **settings: str) -> AsyncIterator[ReplicatedBrokers]:
    async with ReplicatedBrokers(tmp_path, settings, dirs=dirs) as brokers:
        yield brokers


async def make_and_fill(brokers: ReplicatedBrokers, **configs: str) -> None:
    await brokers.make_topic("t", 1, 3, **configs)
    await brokers.send("t", VALUES)
    await brokers.wait_in_sync("t")


def record(brokers: ReplicatedBrokers) -> PartitionImage:
    return next(iter(brokers.brokers.values())).image.topics["t"].partitions[0]


def folder(brokers: ReplicatedBrokers, broker: int) -> Path:
    (found,) = brokers.data(broker).parent.glob(f"{brokers.data(broker).name}*/t-0")
    return found


def errors(caplog: pytest.LogCaptureFixture, what: str) -> list[str]:
    found = [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR]
    return [each for each in found if each.startswith("partition t-0: ") and what in each]


async def check_mended(brokers: ReplicatedBrokers, broker: int) -> None:
    await brokers.wait(lambda: bool(brokers.copies("t").get(broker)))
    await brokers.wait_in_sync("t")
    assert VALUES == await read_all(brokers, "t", 500)
    assert 1 == len(set(brokers.contents("t").values()))
    assert () == record(brokers).lost


async def leave_one(brokers: ReplicatedBrokers) -> int:
    """Stops all but one, which is then alone in the ISR, and that one too when it has more than the others."""
    last = 2
    for number in (0, 1):
        await brokers.stop(number)
    await brokers.wait(lambda: record(brokers).isr == (last,))
    await brokers.send("t", MORE)
    await brokers.stop(last)
    return last


async def test_the_last_member_without_its_folder_waits_for_an_eligible_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with replicated(tmp_path) as brokers:
        await make_and_fill(brokers)
        for number in (0, 1, 2):
            await brokers.stop(number)
        shutil.rmtree(folder(brokers, 2))
        await brokers.start(2)
        assert ((2,), (1,)) == (record(brokers).lost, record(brokers).isr)
        assert -1 == record(brokers).leader
        assert 1 == len(errors(caplog, "offsets 0 to 499 are missing (500 records)"))
        await brokers.start(0)
        assert -1 == record(brokers).leader
        await brokers.start(1)
        await check_mended(brokers, 2)


@pytest.mark.parametrize("has_checkpoints", [True, False])
async def test_the_only_member_without_its_folder_does_not_lead_until_it_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, has_checkpoints: bool
) -> None:
    async with replicated(tmp_path) as brokers:
        await make_and_fill(brokers, min_insync_replicas="1")
        last = await leave_one(brokers)
        shutil.move(folder(brokers, last), tmp_path / "kept")
        if not has_checkpoints:
            for name in CHECKPOINTS:
                (brokers.data(last) / name).unlink()
        for number in (last, 0, 1):
            await brokers.start(number)
        for _ in range(2):
            await brokers.wait(lambda: all(len(each.image.brokers) == 3 for each in brokers.brokers.values()))
            assert (-1, (last,), (last,)) == (record(brokers).leader, record(brokers).isr, record(brokers).lost)
            assert [500, 500] == [brokers.copies("t")[each].end_offset for each in (0, 1)]
            assert not (brokers.data(last) / "t-0").exists()
            assert errors(caplog, "ottla cluster elect --unclean --topic t --partition 0")
            caplog.clear()
            await brokers.stop(last)
            await brokers.start(last)
        await brokers.stop(last)
        shutil.move(tmp_path / "kept", brokers.data(last) / "t-0")
        await brokers.start(last)
        await brokers.wait_in_sync("t")
        assert [*VALUES, *MORE] == await read_all(brokers, "t", 600)
        assert () == record(brokers).lost


async def test_the_health_endpoint_tells_of_it(tmp_path: Path) -> None:
    async def warnings(brokers: ReplicatedBrokers, broker: int) -> list[str]:
        endpoint = endpoint_of(brokers.brokers[broker])
        try:
            answer = await get(await endpoint.start(HOST, 0), "/health/ready")
        finally:
            await endpoint.stop()
        found = json.loads(answer.body)
        assert (200, "ready") == (answer.status, found["status"])
        return list(found.get("warnings", []))

    async with replicated(tmp_path) as brokers:
        await make_and_fill(brokers)
        assert [] == await warnings(brokers, 2)
        for number in (0, 1, 2):
            await brokers.stop(number)
        shutil.rmtree(folder(brokers, 2))
        await brokers.start(2)
        assert ["partition t-0: the log was lost; waiting for a leader to copy it from"] == await warnings(brokers, 2)
        await brokers.start(1)
        await brokers.start(0)
        assert [] == await warnings(brokers, 1)
        await brokers.wait_in_sync("t")
        assert [] == await warnings(brokers, 2)
        for number in (0, 1):
            await brokers.stop(number)
        await brokers.stop(2)
        for number in (1, 2):
            shutil.rmtree(folder(brokers, number))
            await brokers.start(number)
        (warning,) = await warnings(brokers, 2)
        assert "ottla cluster elect --unclean --topic t --partition 0" in warning


async def test_an_unclean_election_gives_it_to_a_replica_that_has_its_log(tmp_path: Path) -> None:
    async with replicated(tmp_path) as brokers:
        await make_and_fill(brokers, min_insync_replicas="1")
        last = await leave_one(brokers)
        shutil.rmtree(folder(brokers, last))
        for number in (last, 0, 1):
            await brokers.start(number)
        await brokers.wait(lambda: all(len(each.image.brokers) == 3 for each in brokers.brokers.values()))
        async with AsyncAdmin(bootstrap_servers=brokers.bootstrap) as admin:
            await elect_leaders(admin.cluster, ElectionType.UNCLEAN, [T0], timeout_ms=10_000)
        await check_mended(brokers, last)


async def test_a_folder_without_segments_is_a_loss(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with replicated(tmp_path) as brokers:
        await make_and_fill(brokers, min_insync_replicas="1")
        last = await leave_one(brokers)
        for path in folder(brokers, last).glob("0*"):
            path.unlink()
        for name in CHECKPOINTS:
            (brokers.data(last) / name).unlink()
        for number in (last, 0, 1):
            await brokers.start(number)
        assert (-1, (last,), (last,)) == (record(brokers).leader, record(brokers).isr, record(brokers).lost)
        assert errors(caplog, "the log has no segments")
        await brokers.stop(last)
        await brokers.start(last)
        assert (-1, (last,), (last,)) == (record(brokers).leader, record(brokers).isr, record(brokers).lost)


@pytest.mark.parametrize("is_clean", [True, False])
async def test_a_log_that_ends_below_what_was_flushed_does_not_lead(tmp_path: Path, is_clean: bool) -> None:
    async with replicated(tmp_path) as brokers:
        await make_and_fill(brokers, min_insync_replicas="1")
        last = await leave_one(brokers)
        (path,) = folder(brokers, last).glob("*.log")
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        if not is_clean:
            (brokers.data(last) / names.CLEAN_SHUTDOWN).unlink()
        for number in (last, 0, 1):
            await brokers.start(number)
        for _ in range(2):
            assert (-1, (last,), (last,)) == (record(brokers).leader, record(brokers).isr, record(brokers).lost)
            assert [500, 500] == [brokers.copies("t")[each].end_offset for each in (0, 1)]
            await brokers.stop(last)
            await brokers.start(last)


async def test_a_log_that_ends_below_its_high_watermark_is_a_loss(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with replicated(tmp_path) as brokers:
        await make_and_fill(brokers)
        for number in (0, 1, 2):
            await brokers.stop(number)
        (brokers.data(2) / names.HIGH_WATERMARKS).write_bytes(encode_offsets({T0: 700}))
        for _ in range(2):
            await brokers.start(2)
            assert ((2,), (1,)) == (record(brokers).lost, record(brokers).isr)
            await brokers.stop(2)
        assert errors(caplog, "the log ends at offset 500; offsets 500 to 699 are missing (200 records)")
        for number in (2, 0, 1):
            await brokers.start(number)
        await check_mended(brokers, 2)


async def test_one_of_several_data_dirs_that_is_empty_now(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with replicated(tmp_path, dirs=2) as brokers:
        await make_and_fill(brokers)
        for number in (0, 1, 2):
            await brokers.stop(number)
        where = folder(brokers, 2).parent
        shutil.rmtree(where)
        await brokers.start(2)
        assert ((2,), (1,), -1) == (record(brokers).lost, record(brokers).isr, record(brokers).leader)
        assert errors(caplog, "the log folder is missing")
        for number in (0, 1):
            await brokers.start(number)
        await check_mended(brokers, 2)


async def test_a_wiped_broker_that_was_the_only_member_does_not_lead(tmp_path: Path) -> None:
    async with replicated(tmp_path) as brokers:
        await make_and_fill(brokers, min_insync_replicas="1")
        last = await leave_one(brokers)
        brokers.wipe(last)
        for number in (last, 0, 1):
            await brokers.start(number)
        assert (-1, (last,), (last,)) == (record(brokers).leader, record(brokers).isr, record(brokers).lost)
        assert [500, 500] == [brokers.copies("t")[each].end_offset for each in (0, 1)]


async def test_other_partitions_stay_in_sync(tmp_path: Path) -> None:
    async with replicated(tmp_path) as brokers:
        await brokers.make_topic("t", 4, 3)
        for partition in range(4):
            await brokers.send("t", VALUES[:10], partition)
            await brokers.wait_in_sync("t", partition)
        for number in (0, 1, 2):
            await brokers.stop(number)
        shutil.rmtree(folder(brokers, 2))
        await brokers.start(2)
        image = brokers.brokers[2].image
        assert [-1, 2, 2, 2] == [each.leader for each in image.topics["t"].partitions]
        assert image.brokers[image.controller].is_intact


async def test_a_partition_that_never_had_a_folder_has_lost_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is made for a broker that was killed a moment ago, and whose session has not ended."""
    async with replicated(tmp_path) as brokers:
        await make_and_fill(brokers)
        await brokers.stop(2)
        store = brokers.stores[0]
        replicas = record(brokers).replicas
        made = TopicRecord(id=new_id(SimRandom(1).randbytes))
        partition = encode(partition_record(first_image(replicas)))
        await store.commit([Put(topic_key("u"), encode(made), 0), Put(partition_key("u", 0), partition, 0)])
        await brokers.wait(lambda: "u" in brokers.brokers[0].image.topics)
        await brokers.start(2)
        await brokers.wait_in_sync("u")
        await brokers.wait_in_sync("t")
    assert [] == [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR]


async def test_an_empty_partition_has_lost_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with replicated(tmp_path) as brokers:
        await brokers.make_topic("t", 1, 3)
        for number in (0, 1, 2):
            await brokers.stop(number)
        shutil.rmtree(folder(brokers, 2))
        await brokers.start(2)
        assert (2, ()) == (record(brokers).leader, record(brokers).lost)
    assert [] == errors(caplog, "")


async def test_an_only_replica_goes_on_behind_the_offsets_that_were_given_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with replicated(tmp_path) as brokers:
        await brokers.make_topic("t", 1, 1, min_insync_replicas="1")
        await brokers.send("t", VALUES)
        only = brokers.leader("t")
        await brokers.stop(only)
        shutil.rmtree(brokers.data(only) / "t-0")
        await brokers.start(only)
        assert errors(caplog, "offsets 0 to 499 are missing (500 records)")
        await brokers.wait(lambda: brokers.copies("t").get(only) is not None)
        log = brokers.copies("t")[only].log
        # It keeps its start, so that the lost offsets are a gap that every start finds.
        # A control batch lets consumers before the gap reach the end.
        await brokers.wait(lambda: (0, 501, 501) == (log.start_offset, log.high_watermark, log.end_offset))
        assert "offsets 0 to 499 cannot be read" in str(log.health.damage)
        await brokers.send("t", MORE)
        assert MORE == await read_all(brokers, "t", 100)
        await brokers.stop(only)
        (brokers.data(only) / names.HIGH_WATERMARKS).write_bytes(encode_offsets({T0: Offset(900)}))
        await brokers.start(only)
        await brokers.wait(lambda: brokers.copies("t").get(only) is not None)
        await brokers.wait(lambda: 901 == brokers.copies("t")[only].end_offset)
        await brokers.send("t", MORE)
        assert [*MORE, *MORE] == await read_all(brokers, "t", 200)


@pytest.mark.parametrize("is_topic_in_copy", [True, False])
async def test_an_older_copy_of_a_data_dir_replaces_no_other_replica(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_topic_in_copy: bool
) -> None:
    async with replicated(tmp_path) as brokers:
        if is_topic_in_copy:
            await brokers.make_topic("t", 1, 3)
            await brokers.send("t", VALUES[:100])
            await brokers.wait_in_sync("t")
        await brokers.stop(2)
        shutil.copytree(brokers.data(2), tmp_path / "copy")
        await brokers.start(2)
        if not is_topic_in_copy:
            await brokers.make_topic("t", 1, 3)
        await brokers.wait_in_sync("t")
        await brokers.send("t", VALUES[100:] if is_topic_in_copy else VALUES)
        for number in (0, 1, 2):
            await brokers.stop(number)
        shutil.rmtree(brokers.data(2))
        shutil.copytree(tmp_path / "copy", brokers.data(2))
        for _ in range(2):
            # As long as the loss is not made good, each start finds it.
            await brokers.start(2)
            assert ((2,), (1,), -1) == (record(brokers).lost, record(brokers).isr, record(brokers).leader)
            await brokers.stop(2)
        assert errors(caplog, "is a copy from before the last start of this broker" if is_topic_in_copy else "missing")
        for number in (2, 0, 1):
            await brokers.start(number)
        await check_mended(brokers, 2)
        caplog.clear()
        for number in (0, 1, 2):
            await brokers.stop(number)
        for number in (2, 0, 1):
            await brokers.start(number)
        await check_mended(brokers, 2)
        assert [] == errors(caplog, "")


async def test_the_only_member_with_an_older_copy_does_not_lead(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with replicated(tmp_path) as brokers:
        await make_and_fill(brokers, min_insync_replicas="1")
        await brokers.stop(2)
        shutil.copytree(brokers.data(2), tmp_path / "copy")
        await brokers.start(2)
        await brokers.wait_in_sync("t")
        last = await leave_one(brokers)
        shutil.move(brokers.data(last), tmp_path / "kept")
        shutil.copytree(tmp_path / "copy", brokers.data(last))
        for number in (last, 0, 1):
            await brokers.start(number)
        for _ in range(2):
            assert (-1, (last,), (last,)) == (record(brokers).leader, record(brokers).isr, record(brokers).lost)
            assert errors(caplog, "ottla cluster elect --unclean --topic t --partition 0")
            caplog.clear()
            await brokers.stop(last)
            await brokers.start(last)
        await brokers.stop(last)
        shutil.rmtree(brokers.data(last))
        shutil.move(tmp_path / "kept", brokers.data(last))
        await brokers.start(last)
        await brokers.wait_in_sync("t")
        assert [*VALUES, *MORE] == await read_all(brokers, "t", 600)
        assert () == record(brokers).lost


async def test_high_watermarks_are_checkpointed_at_their_own_interval(tmp_path: Path) -> None:
    """A log that was cut after a kill of all brokers must be recognised, also long before the next flush."""
    interval = {"replica.high.watermark.checkpoint.interval.ms": "200"}
    async with ReplicatedBrokers(tmp_path, interval) as brokers:
        await make_and_fill(brokers)
        files = [brokers.data(number) / names.HIGH_WATERMARKS for number in brokers.brokers]
        await brokers.wait(lambda: all(each.exists() and "t 0 500" in each.read_text() for each in files))
