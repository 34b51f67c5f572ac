"""Topics that come and go leave nothing behind in a broker's memory but a bounded list of their names."""

import gc
from pathlib import Path
from weakref import ref

from ottla import AsyncAdmin, AsyncConsumer, AsyncProducer
from ottla.broker.broker import Broker
from ottla.storage.data_dirs.partition_identity import PartitionIdentity
from ottla.storage.log import Log
from tests.broker.running_broker import make_topic, running
from tests.waiting import until

TOPICS = 5


async def come_and_go(broker: Broker, number: int) -> list["ref[Log]"]:
    """Creates topics with a queue and a TTL, produces and fetches, and deletes them; their logs."""
    bootstrap = f"127.0.0.1:{broker.port}"
    names = [f"t-{number}-{at}" for at in range(TOPICS)]
    for name in names:
        await make_topic(broker, name, 2, ottla_delay_enable="true", ottla_ttl_enable="true")
    async with AsyncProducer(bootstrap_servers=bootstrap) as producer:
        for name in names:
            for topic in (name, f"{name}.delayed"):
                await producer.send_and_wait(topic, b"v", partition=0)
    async with AsyncConsumer(
        *names, bootstrap_servers=bootstrap, group_id=None, auto_offset_reset="earliest"
    ) as consumer:
        seen = 0
        async for _ in consumer:
            seen += 1
            if seen == 2 * TOPICS:
                break
    logs = [ref(partition.log) for partition in broker.partitions]
    async with AsyncAdmin(bootstrap_servers=bootstrap) as admin:
        for topics in (names, [f"dlq.{name}" for name in names]):
            (await admin.delete_topics(topics)).checked()
    await until(lambda: not len(list(broker.partitions)))
    return logs


def count(kind: type) -> int:
    gc.collect()
    return sum(isinstance(each, kind) for each in gc.get_objects())


async def test_topics_that_come_and_go(tmp_path: Path) -> None:
    def count_left() -> int:
        gc.collect()
        return sum(log() is not None for log in logs)

    async with running(tmp_path, log_segment_delete_delay_ms="1") as broker:
        identities = count(PartitionIdentity)
        logs = [log for number in range(3) for log in await come_and_go(broker, number)]
        assert identities == count(PartitionIdentity)
        # A task of the broker that waits for its next turn may still have the last one in a variable.
        await until(lambda: count_left() <= 1)
