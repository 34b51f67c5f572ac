"""Topics with records in known places, written by the client's own lower parts."""

import asyncio
from collections.abc import Mapping, Sequence

from ottla.client.admin.topic_requests import create_topic
from ottla.client.network.cluster import Cluster
from ottla.client.producer.batch_sender import BatchSender
from ottla.model.ids import TopicPartition
from ottla.records.builder import BatchBuilder
from ottla.transport.addresses import parse_bootstrap
from tests.compat.clients.broker_under_test import wait_led

T0 = 1_700_000_000_000


def make_topic(bootstrap: str, topic: str, partitions: int = 1) -> list[TopicPartition]:
    """A topic that can be written to."""

    async def make() -> None:
        async with Cluster(parse_bootstrap(bootstrap)) as cluster:
            await create_topic(cluster, topic, partitions=partitions)

    asyncio.run(make())
    wait_led(bootstrap, topic, partitions)
    return [TopicPartition(topic, partition) for partition in range(partitions)]


def fill(bootstrap: str, values: Mapping[TopicPartition, Sequence[bytes]], batch_records: int = 10) -> None:
    """Appends values, timestamps counting up from T0 in each call, in batches of so many records."""

    async def send() -> None:
        async with Cluster(parse_bootstrap(bootstrap)) as cluster, BatchSender(cluster) as sender:
            for partition, some in values.items():
                for at in range(0, len(some), batch_records):
                    builder = BatchBuilder()
                    for number, value in enumerate(some[at : at + batch_records], start=at):
                        builder.append(T0 + number, b"k%d" % number, value, [("n", b"%d" % number)])
                    await sender.send(partition, builder.build())

    asyncio.run(send())


def numbered(count: int, prefix: bytes = b"") -> list[bytes]:
    """Values to tell apart."""
    return [b"%s%d" % (prefix, number) for number in range(count)]
