"""Delayed delivery on three broker processes of which one is killed after the other, with and without a target that is
led elsewhere: every record arrives once."""

import asyncio
import time
from pathlib import Path

from ottla import AsyncConsumer, AsyncProducer
from ottla.testing.broker_cluster import BrokerCluster
from ottla.testing.process_broker import ProcessBroker
from tests.waiting import tries

COUNT = 600
SPREAD_MS = 6_000


async def park(bootstrap: str) -> dict[bytes, int]:
    """Records for two partitions that fall due one after the other; answers when each is due."""
    dues: dict[bytes, int] = {}
    async with AsyncProducer(bootstrap_servers=bootstrap, acks="all", linger_ms=20) as producer:
        sends = []
        start_ms = time.time_ns() // 1_000_000 + 1_000
        for number in range(COUNT):
            value, due_ms = b"%d" % number, start_ms + number * SPREAD_MS // COUNT
            dues[value] = due_ms
            headers = [("ottla.deliver-at-ms", b"%d" % due_ms)]
            sends.append(producer.send("t.delayed", value, partition=number % 2, headers=headers))
        await asyncio.gather(*sends)
    return dues


async def read(bootstrap: str, dues: dict[bytes, int]) -> list[bytes]:
    """All that is delivered, until everything is there and nothing more comes for a while."""
    found: list[bytes] = []
    async with AsyncConsumer(
        "t",
        bootstrap_servers=bootstrap,
        group_id=None,
        auto_offset_reset="earliest",
        isolation_level="read_uncommitted",
    ) as consumer:
        quiet_since = time.monotonic()
        for _ in tries("all are delivered, and none again for two seconds"):
            polled = await consumer.poll(500)
            for record in (each for records in polled.values() for each in records):
                value = record.value or b""
                assert time.time_ns() // 1_000_000 >= dues[value], "early"
                found.append(value)
                quiet_since = time.monotonic()
            if len(set(found)) == COUNT and time.monotonic() - quiet_since > 2:
                break
    return found


def test_a_cluster_whose_brokers_are_killed_in_turn_delivers_each_record_once(tmp_path: Path) -> None:
    with BrokerCluster(tmp_path / "cluster", kind=ProcessBroker) as cluster:
        cluster.create_topic("t", 2, {"ottla.delay.enable": "true"})
        dues = asyncio.run(park(cluster.bootstrap))
        for partition in (0, 1, 0):
            time.sleep(1.0)  # some records come due
            victim = cluster.leader_of("t.delayed", partition)
            victim.kill()
            time.sleep(1.0)  # how long it is away
            victim.start()
            cluster.wait_in_sync()
        found = asyncio.run(read(cluster.bootstrap, dues))
    assert len(found) == len(set(found)), "delivered twice"
    assert set(found) == set(dues), "lost"
