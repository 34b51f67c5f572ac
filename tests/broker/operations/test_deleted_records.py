"""Records that are deleted between the look at a partition's offsets and the reading: what is left is read."""

from contextlib import aclosing

import pytest

from ottla.client.admin.topic_requests import delete_records
from ottla.client.errors import AnswerError
from ottla.client.fetch.range_fetch import OffsetRange, RangeFetch, RangeRules
from ottla.client.network.cluster import Cluster
from ottla.client.producer.async_producer import AsyncProducer
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import Offset, TopicPartition
from ottla.operations.dead_letters.letters import read_letters
from ottla.operations.last_records import last_of_each
from ottla.operations.queues.owed_scan import read_parked
from ottla.protocol.fetch_frames import READ_COMMITTED
from ottla.queues.owed_records import Owed
from ottla.testing import InProcessBroker

DELETED, RECORDS = 2, 4
SKIPPING = RangeRules(skips_deleted=True)


@pytest.fixture
async def places(
    ottla_shared_broker: InProcessBroker, cluster: Cluster, producer: AsyncProducer, request: pytest.FixtureRequest
) -> list[TopicPartition]:
    """Four records each; the first two of the first one are deleted, and all of the last one."""
    topic = ottla_shared_broker.create_topic(request.node.name.replace("_", "-"), 3)
    places = [TopicPartition(topic, index) for index in range(3)]
    for place in places:
        for offset in range(RECORDS):
            await producer.send_and_wait(topic, b"%d" % offset, partition=place.partition)
    await delete_records(cluster, {places[0]: DELETED, places[2]: RECORDS})
    return places


async def values(
    cluster: Cluster, ranges: dict[TopicPartition, OffsetRange], rules: RangeRules | None = None
) -> dict[TopicPartition, list[bytes | None]]:
    found: dict[TopicPartition, list[bytes | None]] = {each: [] for each in ranges}
    async with aclosing(RangeFetch(cluster, ranges, rules).chunks()) as chunks:
        async for chunk in chunks:
            found[chunk.partition] += [record.value for record in chunk.records()]
    return found


async def test_ranges(cluster: Cluster, places: list[TopicPartition]) -> None:
    whole = {each: OffsetRange(start=0, end=RECORDS) for each in places}
    left = dict(zip(places, ([b"2", b"3"], [b"0", b"1", b"2", b"3"], []), strict=True))
    assert left == await values(cluster, whole, SKIPPING)
    with pytest.raises(AnswerError) as error:
        await values(cluster, whole)
    assert ErrorCode.OFFSET_OUT_OF_RANGE is error.value.error_code


async def test_an_offset_behind_the_end_was_not_deleted(cluster: Cluster, places: list[TopicPartition]) -> None:
    with pytest.raises(AnswerError) as error:
        await values(cluster, {places[0]: OffsetRange(start=RECORDS + 1, end=RECORDS + 2)}, SKIPPING)
    assert ErrorCode.OFFSET_OUT_OF_RANGE is error.value.error_code


async def test_readers_of_letters_last_records_and_parked_records(
    cluster: Cluster, places: list[TopicPartition]
) -> None:
    bounds = dict.fromkeys(places, (0, RECORDS))
    last = await last_of_each(cluster, bounds, RECORDS, isolation_level=READ_COMMITTED)
    assert [[2, 3], [0, 1, 2, 3], []] == [[record.offset for record in last[each]] for each in places]
    letters = [letter async for _, _, piece in read_letters(cluster, bounds) for letter in piece]
    offsets = [(each, offset) for each in places[:2] for offset in range(RECORDS)][DELETED:]
    assert offsets == sorted((each.partition, each.record.offset) for each in letters)
    parked = await read_parked(cluster, [(each, Owed(0, Offset(at))) for each in places for at in range(RECORDS)])
    assert offsets == [(each.partition, each.record.offset) for each in parked]
