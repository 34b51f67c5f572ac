"""Batches to a broker and back: order, bounds, limits, and what a reader leaves out."""

from collections.abc import Sequence
from typing import Any

import pytest

from ottla.client.admin.config_requests import Resource, ResourceType, alter_configs
from ottla.client.admin.topic_requests import create_topic, delete_records
from ottla.client.errors import AnswerError, NotSentError
from ottla.client.fetch.chunk import Chunk
from ottla.client.fetch.range_fetch import OffsetRange, RangeFetch, RangeRules
from ottla.client.network.cluster import Cluster
from ottla.client.network.list_offsets import END, MAX_TIMESTAMP, START, FoundOffset, list_offsets, offset_bounds
from ottla.client.producer.batch_sender import BatchSender
from ottla.client.producer.produce_request import ACKS_NONE
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import MisuseError
from ottla.model.ids import TopicPartition
from ottla.records.batch import scan
from ottla.records.builder import BatchBuilder
from ottla.records.control import marker_batch
from ottla.records.layout import Codec, Marker
from ottla.transport.addresses import Address

T0 = 1_700_000_000_000


def batch(values: Sequence[bytes], *, timestamp: int = T0, codec: Codec = Codec.NONE) -> bytes:
    builder = BatchBuilder(codec=codec)
    for number, value in enumerate(values):
        builder.append(timestamp + number, None, value)
    return builder.build()


Values = dict[TopicPartition, list[bytes]]


async def read(cluster: Cluster, ranges: dict[TopicPartition, OffsetRange], **more: Any) -> Values:
    found: Values = {partition: [] for partition in ranges}
    async for chunk in RangeFetch(cluster, ranges, RangeRules(**more)).chunks():
        found[chunk.partition] += [record.value or b"" for record in chunk.records()]
    return found


async def test_what_is_sent_is_read_in_order_from_every_partition(address: Address) -> None:
    async with Cluster([address]) as cluster:
        await create_topic(cluster, "in-order", partitions=3)
        partitions = [TopicPartition("in-order", index) for index in range(3)]
        sent: dict[TopicPartition, list[bytes]] = {partition: [] for partition in partitions}
        async with BatchSender(cluster, buffer_bytes_max=2000) as sender:
            for number in range(90):
                partition = partitions[number % 3]
                values = [b"%d.%d" % (number, at) for at in range(10)]
                sent[partition] += values
                await sender.send(partition, batch(values, codec=Codec(number % 5)))
        ends = {partition: OffsetRange(start=0, end=300) for partition in partitions}
        assert sent == await read(cluster, ends)
        # And the same through answers that hold no more than a batch of each.
        assert sent == await read(cluster, ends, partition_bytes_max=1, fetch_bytes_max=1)


async def test_a_range_keeps_to_its_bounds_within_batches(address: Address) -> None:
    async with Cluster([address]) as cluster:
        await create_topic(cluster, "bounds", partitions=1)
        partition = TopicPartition("bounds", 0)
        async with BatchSender(cluster) as sender:
            first = await sender.send(partition, batch([b"%d" % number for number in range(10)]))
            second = await sender.send(partition, batch([b"%d" % number for number in range(10, 20)]))
            assert (0, 10) == ((await first).base_offset, (await second).base_offset)
        assert [b"7", b"8", b"9", b"10", b"11"] == (await read(cluster, {partition: OffsetRange(start=7, end=12)}))[
            partition
        ]
        assert [] == (await read(cluster, {partition: OffsetRange(start=20, end=20)}))[partition]
        chunks = RangeFetch(cluster, {partition: OffsetRange(start=7, end=12)}).chunks()
        counts = [(chunk.count(), chunk.columns().count) async for chunk in chunks]
        assert [20, 5] == [sum(count) for count in zip(*counts, strict=True)]


async def test_following_sees_what_comes_later(address: Address) -> None:
    async with Cluster([address]) as cluster:
        await create_topic(cluster, "followed", partitions=2)
        partitions = [TopicPartition("followed", index) for index in range(2)]
        chunks = RangeFetch(cluster, {each: OffsetRange(start=0) for each in partitions}).chunks()
        async with BatchSender(cluster) as sender:
            for number in range(6):
                await (await sender.send(partitions[number % 2], batch([b"%d" % number])))
                chunk = await anext(chunks)
                assert [b"%d" % number] == [record.value for record in chunk.records()]
        await chunks.aclose()


async def test_an_offset_that_is_gone_is_an_error_in_words(address: Address) -> None:
    async with Cluster([address]) as cluster:
        await create_topic(cluster, "gone", partitions=1)
        partition = TopicPartition("gone", 0)
        async with BatchSender(cluster) as sender:
            await sender.send(partition, batch([b"a", b"b", b"c"]))
        assert {partition: 2} == await delete_records(cluster, {partition: 2})
        with pytest.raises(AnswerError, match="reading gone-0 at offset 0: the offset does not exist"):
            await read(cluster, {partition: OffsetRange(start=0, end=3)})
        assert [b"c"] == (await read(cluster, {partition: OffsetRange(start=2, end=3)}))[partition]


async def test_offsets_by_name_and_by_time(address: Address) -> None:
    async with Cluster([address]) as cluster:
        await create_topic(cluster, "timed", partitions=2)
        full, empty = TopicPartition("timed", 0), TopicPartition("timed", 1)
        async with BatchSender(cluster) as sender:
            await sender.send(full, batch([b"a", b"b", b"c"]))
        assert {full: (0, 3), empty: (0, 0)} == await offset_bounds(cluster, [full, empty])
        asked = {full: T0 + 1, empty: T0}
        assert {full: FoundOffset(1, T0 + 1), empty: FoundOffset(-1, -1)} == await list_offsets(cluster, asked)
        for name, expected in [(START, 0), (END, 3), (MAX_TIMESTAMP, 2)]:
            assert expected == (await list_offsets(cluster, {full: name}))[full].offset


async def test_a_refused_batch_fails_its_future_and_everything_behind_it(address: Address) -> None:
    async with Cluster([address]) as cluster:
        await create_topic(cluster, "small", partitions=1)
        resource = Resource(type=ResourceType.TOPIC, name="small")
        await alter_configs(cluster, resource, {"max.message.bytes": "1000"})
        partition = TopicPartition("small", 0)
        sender = BatchSender(cluster)
        fine = await sender.send(partition, batch([b"fits"]))
        large = await sender.send(partition, batch([b"x" * 2000]))
        behind = await sender.send(partition, batch([b"fits too"]))
        with pytest.raises(AnswerError, match="writing 2070 bytes to small-0") as refused:
            await sender.flush()
        assert ErrorCode.MESSAGE_TOO_LARGE is refused.value.error_code
        assert 0 == (await fine).base_offset
        with pytest.raises(AnswerError):
            await large
        with pytest.raises(NotSentError, match="not sent because an earlier batch failed: writing 2070 bytes"):
            await behind
        with pytest.raises(AnswerError):
            await sender.send(partition, batch([b"never"]))
        await sender.close()
        assert [b"fits"] == (await read(cluster, {partition: OffsetRange(start=0, end=1)}))[partition]


async def test_a_refusal_in_one_partition_lets_what_is_under_way_in_others_end(address: Address) -> None:
    async with Cluster([address]) as cluster:
        await create_topic(cluster, "two-ways", partitions=2)
        resource = Resource(type=ResourceType.TOPIC, name="two-ways")
        await alter_configs(cluster, resource, {"max.message.bytes": "1000"})
        refusing, taking = TopicPartition("two-ways", 0), TopicPartition("two-ways", 1)
        sender = BatchSender(cluster)
        # Both leave in the same turn of the loop, so that the refusal comes while the other is under way.
        large = await sender.send(refusing, batch([b"x" * 2000]))
        fine = await sender.send(taking, batch([b"fits"]))
        with pytest.raises(AnswerError, match="writing 2070 bytes to two-ways-0"):
            await sender.flush()
        assert large.exception() is not None
        assert 0 == (await fine).base_offset
        await sender.close()


async def test_without_acks_everything_is_handed_to_the_system_before_the_end(address: Address) -> None:
    async with Cluster([address]) as cluster:
        await create_topic(cluster, "unanswered", partitions=1)
        partition = TopicPartition("unanswered", 0)
    async with Cluster([address]) as cluster, BatchSender(cluster, acks=ACKS_NONE) as sender:
        for _ in range(40):
            await sender.send(partition, batch([b"x" * 500_000]))
    async with Cluster([address]) as cluster:
        chunks = RangeFetch(cluster, {partition: OffsetRange(start=0, end=40)}).chunks()
        assert 40 == sum([chunk.count() async for chunk in chunks])


async def test_a_closed_sender_takes_nothing(address: Address) -> None:
    async with Cluster([address]) as cluster:
        sender = BatchSender(cluster)
        await sender.close()
        with pytest.raises(MisuseError, match="the sender is closed"):
            await sender.send(TopicPartition("any", 0), batch([b"x"]))


def transactional(values: Sequence[bytes], producer_id: int, base_offset: int) -> bytes:
    builder = BatchBuilder(
        producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True, base_offset=base_offset
    )
    for value in values:
        builder.append(T0, None, value)
    return builder.build()


def marker(kind: Marker, producer_id: int, base_offset: int) -> bytes:
    return marker_batch(
        kind, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp=T0, base_offset=base_offset
    )


def test_a_committed_reader_leaves_out_aborted_records_and_markers() -> None:
    data = b"".join(
        [
            transactional([b"aborted"], 1, 0),
            transactional([b"committed"], 2, 1),
            marker(Marker.ABORT, 1, 2),
            transactional([b"after"], 1, 3),
            marker(Marker.COMMIT, 2, 4),
        ]
    )
    batches, _, _ = scan(data)

    def chunk(aborted: list[tuple[int, int]] | None) -> Chunk:
        return Chunk(
            partition=TopicPartition("t", 0),
            batches=batches,
            start=0,
            end=None,
            aborted=aborted,
            high_watermark=5,
            size_bytes=len(data),
        )

    assert [b"committed", b"after"] == [record.value for record in chunk([(1, 0)]).records()]
    assert [b"aborted", b"committed", b"after"] == [record.value for record in chunk(None).records()]
    assert (2, 3) == (chunk([(1, 0)]).columns().count, chunk(None).columns().count)
    assert 3 == chunk([(1, 0)]).count()
