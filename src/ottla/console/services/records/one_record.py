"""One record by partition and offset, with all its bytes."""

from contextlib import aclosing
from typing import TYPE_CHECKING

from ottla.client.fetch.range_fetch import OffsetRange, RangeFetch, RangeRules
from ottla.client.network.cluster import Cluster
from ottla.client.network.list_offsets import offset_bounds
from ottla.console.errors import NotFoundError
from ottla.console.services.records.rows import ReadRecord
from ottla.model.ids import TopicPartition
from ottla.operations.position_offsets import chosen_partitions
from ottla.protocol.fetch_frames import READ_COMMITTED, READ_UNCOMMITTED
from ottla.records.record import Headers, Record

if TYPE_CHECKING:
    from ottla.registry.serde.schema_reader import SchemaReader


async def read_record(
    cluster: Cluster,
    partition: TopicPartition,
    offset: int,
    *,
    reader: "SchemaReader | None" = None,
    uncommitted: bool = False,
) -> tuple[ReadRecord, int]:
    """The record and the type of its timestamp. Raises `NotFoundError` if there is none at this offset."""
    await chosen_partitions(cluster, partition.topic, [partition.partition])
    level = READ_UNCOMMITTED if uncommitted else READ_COMMITTED
    start, end = (await offset_bounds(cluster, [partition], isolation_level=level))[partition]
    if not start <= offset < end:
        raise NotFoundError(f"{partition} has no record at offset {offset}; its offsets are {start} to {end - 1}")
    rules = RangeRules(isolation_level=level, skips_deleted=True)
    wanted = {partition: OffsetRange(start=offset, end=offset + 1)}
    async with aclosing(RangeFetch(cluster, wanted, rules).chunks()) as chunks:
        async for chunk in chunks:
            for record in chunk.records():
                if record.offset == offset:
                    kind = next(each.timestamp_type for each in chunk.batches if each.next_offset > offset)
                    return _read(partition, record, reader), kind
    raise NotFoundError(
        f"{partition} has no record at offset {offset}: it was compacted away, belongs to an aborted transaction, or"
        " is a transaction marker"
    )


def _read(partition: TopicPartition, record: Record, reader: "SchemaReader | None") -> ReadRecord:
    headers: Headers = record.headers
    return ReadRecord(partition, record.offset, record.timestamp, record.key, record.value, lambda: headers, reader)
