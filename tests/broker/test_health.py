"""Partitions that are not served, or are damaged: health, metrics and readiness say so, and what can come back does."""

import asyncio
import errno
import json
import logging
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from ottla.broker.broker import Broker
from ottla.broker.configs.configuration import BrokerConfig
from ottla.client.admin.async_admin import AsyncAdmin
from ottla.client.admin.damaged_logs import DamagedLog, damaged_logs
from ottla.client.consumer.async_consumer import AsyncConsumer
from ottla.client.consumer.errors import UnreadableRecordError
from ottla.client.errors import CorruptLogError
from ottla.client.fetch.range_fetch import OffsetRange, RangeFetch
from ottla.client.network.cluster import Cluster
from ottla.client.producer.async_producer import AsyncProducer
from ottla.env.world import real_world
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import StorageError
from ottla.model.ids import TopicPartition
from ottla.transport.addresses import Address
from tests.broker.http_client import HOST, endpoint_of, get
from tests.broker.metric_samples import value
from tests.broker.replicated import ReplicatedBrokers
from tests.broker.running_broker import make_topic, running
from tests.broker.sick_disk import SickDisk
from tests.broker.test_metrics import scrape
from tests.waiting import until

T0 = TopicPartition("t", 0)


@asynccontextmanager
async def on_disk(folder: Path, disk: SickDisk) -> AsyncIterator[tuple[Broker, int]]:
    """A broker on that disk, and the port of its HTTP endpoint."""
    config = {"log.dirs": str(folder / "data"), "listeners": "PLAINTEXT://127.0.0.1:0"}
    async with Broker(BrokerConfig.parse(settings=config), world=replace(real_world(), disk=disk)) as broker:
        endpoint = endpoint_of(broker)
        try:
            yield broker, await endpoint.start(HOST, 0)
        finally:
            await endpoint.stop()


async def troubles(broker: Broker) -> list[DamagedLog]:
    """What `ottla cluster health` is told."""
    async with Cluster([Address(HOST, broker.port)]) as cluster:
        view = await cluster.refresh()
        return await damaged_logs(cluster, view, view.brokers.keys())


async def ready(port: int) -> tuple[int, list[str]]:
    answer = await get(port, "/health/ready")
    return answer.status, json.loads(answer.body).get("reasons", [])


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENOSPC])
async def test_a_partition_that_cannot_be_created_is_reported_and_served_later(tmp_path: Path, code: int) -> None:
    disk = SickDisk()
    async with on_disk(tmp_path, disk) as (broker, http):
        disk.fail("make_dir", "t-0", code)
        await make_topic(broker, "t", 2)
        with pytest.raises(StorageError, match="t-0: cannot create the partition"):
            broker.partitions.find("t", 0)
        (trouble,) = await troubles(broker)
        assert (0, T0, False) == (trouble.broker, trouble.partition, trouble.is_served)
        assert "t-0: cannot create the partition" in trouble.reason
        status, reasons = await ready(http)
        assert (503, [f"partition t-0: {trouble.reason}"]) == (status, reasons)
        assert 1 == value(await scrape(http), "ottla_partitions_offline")
        disk.heal()
        await until(lambda: T0 in broker.partitions.held)
        assert 0 == broker.partitions.find("t", 0).end_offset
        assert [] == await troubles(broker)
        assert (200, []) == await ready(http)
        assert 0 == value(await scrape(http), "ottla_partitions_offline")
        async with AsyncProducer(bootstrap_servers=f"127.0.0.1:{broker.port}", acks="all") as producer:
            await producer.send("t", value=b"x", partition=0)
            await producer.flush()
        assert 1 == broker.partitions.find("t", 0).end_offset
    disk.close()


async def test_a_partition_that_was_never_created_is_not_taken_for_lost_after_a_restart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = SickDisk()
    async with on_disk(tmp_path, disk) as (broker, _):
        disk.fail("make_dir", "t-0", errno.ENOSPC)
        await make_topic(broker, "t", 2)
        assert [T0] == list(broker.health.offline_partitions())
    disk.heal()
    caplog.clear()
    async with on_disk(tmp_path, disk) as (broker, http):
        assert (200, []) == await ready(http)
        assert 0 == broker.partitions.find("t", 0).end_offset
    disk.close()
    assert [] == [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR]


async def test_a_partition_that_cannot_be_opened_for_now_is_served_later(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await make_topic(broker, "t")
        async with AsyncProducer(bootstrap_servers=f"127.0.0.1:{broker.port}", acks="all") as producer:
            for number in range(10):
                await producer.send("t", value=b"%d" % number, partition=0)
            await producer.flush()
    disk = SickDisk()
    disk.fail("open", "t-0", errno.EMFILE)
    async with on_disk(tmp_path, disk) as (broker, http):
        (trouble,) = await troubles(broker)
        assert (T0, False) == (trouble.partition, trouble.is_served)
        assert 503 == (await ready(http))[0]
        assert 1 == value(await scrape(http), "ottla_partitions_offline")
        disk.heal()
        await until(lambda: T0 in broker.partitions.held)
        partition = broker.partitions.find("t", 0)
        assert (10, 10) == (partition.end_offset, partition.high_watermark)
        assert ([], (200, [])) == (await troubles(broker), await ready(http))
    disk.close()


async def test_a_topic_that_is_deleted_meanwhile_is_forgotten(tmp_path: Path) -> None:
    disk = SickDisk()
    async with on_disk(tmp_path, disk) as (broker, http):
        disk.fail("make_dir", "t-0", errno.ENOSPC)
        await make_topic(broker, "t")
        assert 503 == (await ready(http))[0]
        async with AsyncAdmin(bootstrap_servers=f"127.0.0.1:{broker.port}") as admin:
            await admin.delete_topics(["t"])
        assert (200, []) == await ready(http)
    disk.close()


async def fill_and_damage(folder: Path) -> None:
    """Ten batches of one record, the fifth of which is corrupt when the broker is stopped."""
    async with running(folder) as broker:
        await make_topic(broker, "t")
        async with AsyncProducer(bootstrap_servers=f"127.0.0.1:{broker.port}", acks="all") as producer:
            for number in range(10):
                await producer.send("t", value=b"value %d" % number, partition=0)
                await producer.flush()
    (path,) = (folder / "data" / "t-0").glob("*.log")
    content = bytearray(path.read_bytes())
    content[content.index(b"value 4")] ^= 0xFF
    path.write_bytes(content)


async def test_a_corrupt_batch_without_another_replica_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        await fill_and_damage(tmp_path)
        async with running(tmp_path) as broker:
            endpoint = endpoint_of(broker)
            http = await endpoint.start(HOST, 0)
            assert 0 == value(await scrape(http), "ottla_partitions_damaged")
            async with Cluster([Address(HOST, broker.port)]) as cluster:
                values: list[bytes | None] = []

                async def read() -> None:
                    async for chunk in RangeFetch(cluster, {T0: OffsetRange(start=0, end=None)}).chunks():
                        values.extend(record.value for record in chunk.records())

                with pytest.raises(CorruptLogError, match="partition t-0: the batch at offset 4 is corrupt") as raised:
                    await asyncio.wait_for(read(), 30)
                assert [b"value %d" % number for number in range(4)] == values
                assert (T0, 4, ErrorCode.CORRUPT_MESSAGE) == (
                    raised.value.partition,
                    raised.value.offset,
                    raised.value.error_code,
                )
            assert 1 == value(await scrape(http), "ottla_partitions_damaged")
            assert 0 == value(await scrape(http), "ottla_partitions_offline")
            (trouble,) = await troubles(broker)
            assert (T0, True) == (trouble.partition, trouble.is_served)
            assert "offsets 4 to 4 cannot be read, the next offset is 5" in trouble.reason
            assert (200, []) == await ready(http)
            await endpoint.stop()
    (line,) = (each.getMessage() for each in caplog.records if "corrupt batch" in each.getMessage())
    assert "partition t-0" in line
    assert "00000000000000000000.log, byte " in line
    assert "offsets 4 to 4" in line


async def test_a_lost_log_without_another_replica_is_reported_until_its_offsets_are_deleted(tmp_path: Path) -> None:
    async def send(broker: Broker, count: int) -> None:
        async with AsyncProducer(bootstrap_servers=f"127.0.0.1:{broker.port}", acks="all") as producer:
            for number in range(count):
                await producer.send("t", value=b"%d" % number, partition=0)
            await producer.flush()

    async def reason(broker: Broker) -> str:
        (trouble,) = await troubles(broker)
        assert (T0, True) == (trouble.partition, trouble.is_served)
        return trouble.reason

    def bounds(broker: Broker) -> tuple[int, int]:
        log = broker.partitions.find("t", 0).log
        return log.start_offset, log.end_offset

    async with running(tmp_path) as broker:
        await make_topic(broker, "t")
        await send(broker, 10)
    shutil.rmtree(tmp_path / "data" / "t-0")
    for _ in range(2):
        async with running(tmp_path) as broker:
            assert "offsets 0 to 9 cannot be read (10 records at most)" in await reason(broker)
            assert (0, 11) == bounds(broker)  # A control batch ends the gap.
    async with running(tmp_path) as broker:
        await send(broker, 3)
    (tmp_path / "data" / ".kafka_cleanshutdown").unlink()
    async with running(tmp_path) as broker:
        assert "offsets 0 to 9" in await reason(broker)
        async with AsyncConsumer(bootstrap_servers=f"127.0.0.1:{broker.port}") as consumer:
            consumer.assign([T0])
            consumer.seek(T0, 0)
            values: list[bytes | None] = []
            async with asyncio.timeout(30):
                while len(values) < 3:
                    polled = await consumer.poll(100)
                    values += [record.value for some in polled.values() for record in some]
            assert [b"0", b"1", b"2"] == values
        # This is how an operator says that the records are not coming back.
        async with AsyncAdmin(bootstrap_servers=f"127.0.0.1:{broker.port}") as admin:
            await admin.delete_records({T0: 10})
        assert [] == await troubles(broker)
    async with running(tmp_path) as broker:
        assert [] == await troubles(broker)
        assert (10, 14) == bounds(broker)


async def test_a_consumer_gets_an_error_and_can_seek_beyond_a_corrupt_batch(tmp_path: Path) -> None:
    await fill_and_damage(tmp_path)
    async with (
        running(tmp_path) as broker,
        AsyncConsumer(bootstrap_servers=f"127.0.0.1:{broker.port}", auto_offset_reset="earliest") as consumer,
    ):
        consumer.assign([T0])
        values: list[bytes | None] = []
        failure: UnreadableRecordError | None = None
        async with asyncio.timeout(30):
            while len(values) < 9:
                try:
                    polled = await consumer.poll(100)
                    values += [record.value for some in polled.values() for record in some]
                except UnreadableRecordError as error:
                    failure = error
                    consumer.seek(error.partition, error.offset + 1)
        assert failure is not None
        assert (T0, 4) == (failure.partition, failure.offset)
        assert [b"value %d" % number for number in range(10) if number != 4] == values


async def test_a_leader_that_cannot_create_its_log_leaves_the_lead_to_others(tmp_path: Path) -> None:
    brokers = ReplicatedBrokers(tmp_path)
    sick = SickDisk()
    brokers.disks = {1: sick}
    async with brokers:
        sick.fail("make_dir", "t-0", errno.ENOSPC)
        sick.fail("make_dir", "t-1", errno.ENOSPC)
        sick.fail("make_dir", "t-2", errno.ENOSPC)
        # Each broker is the preferred leader of one of three partitions.
        await brokers.make_topic("t", 3, 3)
        await brokers.wait(lambda: 1 not in {brokers.leader("t", index) for index in range(3)})
        for index in range(3):
            await brokers.send("t", [b"x"] * 10, index)
        sick.heal()
        for index in range(3):
            await brokers.wait_in_sync("t", index)
            assert 1 == len(set(brokers.contents("t", index).values()))
    sick.close()
