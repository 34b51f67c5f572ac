"""What a topic holds, read back record by record, for tests of producers."""

import asyncio
from collections.abc import Iterable

from ottla.client.admin.topic_requests import create_topic
from ottla.client.fetch.range_fetch import OffsetRange, RangeFetch, RangeRules
from ottla.client.network.cluster import Cluster
from ottla.client.network.list_offsets import END, list_offsets
from ottla.model.ids import TopicPartition
from ottla.protocol.fetch_frames import READ_COMMITTED, READ_UNCOMMITTED
from ottla.records.record import Record
from ottla.transport.addresses import Address, parse_address


def make_topic(address: Address | str, topic: str, partitions: int = 1, **configs: str) -> None:
    """A topic; configs have underscores for Kafka's dots."""

    async def make() -> None:
        async with Cluster([_address(address)]) as cluster:
            given = {name.replace("_", "."): value for name, value in configs.items()}
            await create_topic(cluster, topic, partitions=partitions, configs=given)

    asyncio.run(make())


def read_topic(
    address: Address | str, topic: str, partitions: int = 1, *, committed: bool = False
) -> dict[int, list[Record]]:
    """Every record, by partition; with `committed`, without those of transactions that were aborted."""

    async def read() -> dict[int, list[Record]]:
        async with Cluster([_address(address)]) as cluster:
            indexes = [TopicPartition(topic, index) for index in range(partitions)]
            ends = await list_offsets(cluster, dict.fromkeys(indexes, END))
            ranges = {each: OffsetRange(start=0, end=ends[each].offset) for each in indexes}
            found: dict[int, list[Record]] = {index: [] for index in range(partitions)}
            level = READ_COMMITTED if committed else READ_UNCOMMITTED
            async for chunk in RangeFetch(cluster, ranges, RangeRules(isolation_level=level)).chunks():
                found[chunk.partition.partition] += chunk.records()
            return found

    return asyncio.run(asyncio.wait_for(read(), 60))


def values(records: Iterable[Record]) -> list[bytes | None]:
    """Only the values."""
    return [None if record.value is None else bytes(record.value) for record in records]


def _address(given: Address | str) -> Address:
    return parse_address(given) if isinstance(given, str) else given
