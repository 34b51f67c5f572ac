"""Three real brokers end, one of them loses folders, and all start again: nothing that was acknowledged is gone."""

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from ottla.client.consumer.async_consumer import AsyncConsumer
from ottla.client.producer.async_producer import AsyncProducer
from ottla.model.ids import TopicPartition
from ottla.storage.data_dirs import names
from ottla.testing.broker_cluster import BrokerCluster
from ottla.testing.process_broker import ProcessBroker

PARTITIONS: Final = 3
RECORDS: Final = 200
CHECKPOINTS: Final = (names.RECOVERY_POINTS, names.HIGH_WATERMARKS, names.LOG_STARTS)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[BrokerCluster]:
    with BrokerCluster(tmp_path / "cluster", kind=ProcessBroker) as made:
        made.create_topic("t", PARTITIONS)
        yield made


async def write(cluster: BrokerCluster, first: int) -> None:
    """Returns when all records are acknowledged by all in sync."""
    async with AsyncProducer(bootstrap_servers=cluster.bootstrap, acks="all") as producer:
        for number in range(first, first + RECORDS):
            for partition in range(PARTITIONS):
                await producer.send("t", value=b"%d" % number, partition=partition)
        await producer.flush()


async def read(cluster: BrokerCluster, count: int) -> dict[int, list[bytes | None]]:
    found: dict[int, list[bytes | None]] = {partition: [] for partition in range(PARTITIONS)}
    async with AsyncConsumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("t", partition) for partition in range(PARTITIONS)])
        async with asyncio.timeout(60):
            while any(len(each) < count for each in found.values()):
                for partition, records in (await consumer.poll(timeout_ms=500)).items():
                    found[partition.partition] += [record.value for record in records]
    return found


def lose(broker: ProcessBroker, how: str) -> list[str]:
    """Takes away what a broker had; answers the partitions."""
    if how == "the data dir":
        shutil.rmtree(broker.data)
        return [f"t-{partition}" for partition in range(PARTITIONS)]
    # Of one partition each broker is the preferred leader.
    lost = ["t-1"] if how == "one folder" else [f"t-{partition}" for partition in range(PARTITIONS)]
    for each in lost:
        shutil.rmtree(broker.data / each)
    if how == "folders and checkpoints":
        for name in CHECKPOINTS:
            (broker.data / name).unlink(missing_ok=True)
    return lost


@pytest.mark.parametrize("how", ["one folder", "all folders", "folders and checkpoints", "the data dir"])
@pytest.mark.parametrize("end", ["kill", "stop"])
def test_each_broker_in_turn_loses_folders(cluster: BrokerCluster, how: str, end: str) -> None:
    count = 0
    for victim in cluster.brokers:
        assert isinstance(victim, ProcessBroker)
        asyncio.run(write(cluster, count))
        count += RECORDS
        cluster.wait_in_sync()
        # When they are stopped one after the other, the last is alone in sync; it is the one that loses something.
        for each in sorted(cluster.brokers, key=lambda each: each is victim):
            getattr(each, end)()
        told = len(victim.log)
        lost = lose(victim, how)
        victim.start()
        cluster.start()
        cluster.wait_in_sync()
        assert {partition: [b"%d" % number for number in range(count)] for partition in range(PARTITIONS)} == (
            asyncio.run(read(cluster, count))
        )
        errors = [line for line in victim.log[told:].splitlines() if "ERROR" in line]
        assert all(any(f"partition {each}: the log folder is missing" in line for line in errors) for each in lost), (
            victim.log[told:]
        )
        for each in cluster.brokers:
            assert isinstance(each, ProcessBroker)
            assert "truncated" not in each.log, each.log
