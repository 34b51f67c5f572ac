"""Ranges read from brokers that answer as a test tells them to: gaps, errors in their place, and patience that ends."""

import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from struct import pack
from typing import Any

import pytest

from ottla.client.errors import AnswerError, CannotConnectError, DeadlineError
from ottla.client.fetch.fetch_plan_state import FetchLimits, FetchPlanState, Leader
from ottla.client.fetch.partition_state import PartitionState, Phase
from ottla.client.fetch.range_fetch import OffsetRange, RangeFetch, RangeRules
from ottla.client.network.backoff import Backoff
from ottla.client.network.cluster import Cluster
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.protocol.apis import ApiKey
from ottla.protocol.fetch_frames import READ_UNCOMMITTED, Fetched
from ottla.protocol.messages import wire_error, write_response
from ottla.records.builder import BatchBuilder
from ottla.transport.addresses import Address
from tests.broker.client.scripted_broker import response, scripted, versions_answer

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)
QUICK = Backoff(first_ms=1, most_ms=1)

Part = tuple[int, int, int, bytes]
"""Partition, error code, high watermark, records."""


def records(base_offset: int, count: int) -> bytes:
    builder = BatchBuilder(base_offset=base_offset)
    for offset in range(base_offset, base_offset + count):
        builder.append(1, None, b"%d" % offset)
    return builder.build()


def fetch_response(correlation_id: int, parts: Sequence[Part]) -> bytes:
    """A response of version 12 about the topic `t`."""
    body = pack(">i", correlation_id) + b"\0" + pack(">ihi", 0, 0, 0) + b"\2\2t" + bytes([len(parts) + 1])
    for index, code, high_watermark, data in parts:
        size = len(data) + 1
        varint = bytes([size & 0x7F | 0x80, size >> 7 & 0x7F | 0x80, size >> 14])
        body += pack(">ihqqq", index, code, high_watermark, high_watermark, 0) + b"\1" + pack(">i", -1)
        body += varint + data + b"\0"
    body += b"\0\0"
    return pack(">i", len(body)) + body


def metadata_response(address: Address, version: int, correlation_id: int, partitions: int) -> bytes:
    code = ErrorCode.NONE if partitions else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    parts = [{"partition_index": index, "leader_id": 5, "leader_epoch": 1} for index in range(partitions)]
    topic = {"error_code": wire_error(code), "name": "t", "topic_id": None, "partitions": parts}
    broker = {"node_id": 5, "host": address.host, "port": address.port}
    found = response(ApiKey.METADATA, 13, brokers=[broker], topics=[topic])
    return write_response(ApiKey.METADATA, version, correlation_id, found)


@asynccontextmanager
async def cluster_of(answer: Callable[[int], Sequence[Part]], partitions: int = 2) -> AsyncIterator[Cluster]:
    """One broker that leads everything; `answer` gets the number of the fetch."""
    here: list[Address] = []
    fetches = 0

    def script(api_key: int, version: int, correlation_id: int, body: bytes) -> bytes | None:
        nonlocal fetches
        if api_key == ApiKey.API_VERSIONS:
            return versions_answer(version, correlation_id)
        if api_key == ApiKey.METADATA:
            return metadata_response(here[0], version, correlation_id, partitions)
        fetches += 1
        return fetch_response(correlation_id, answer(fetches))

    async with scripted(script) as (_, address), Cluster([address], backoff=QUICK) as cluster:
        here.append(address)
        yield cluster


async def read(cluster: Cluster, ranges: dict[TopicPartition, OffsetRange], **rules: Any) -> list[tuple[int, int]]:
    """(partition, offset) of every record, as it came."""
    fetch = RangeFetch(cluster, ranges, RangeRules(**rules))
    return [(chunk.partition.partition, each.offset) async for chunk in fetch.chunks() for each in chunk.records()]


async def test_a_range_whose_last_offsets_hold_no_records_ends() -> None:
    def answer(number: int) -> list[Part]:
        return [(0, 0, 10, records(0, 4) if number == 1 else b"")]

    async with cluster_of(answer) as cluster:
        # The log goes on to 10, and compaction left nothing from 4 on.
        assert [(0, offset) for offset in range(4)] == await read(cluster, {FIRST: OffsetRange(start=0, end=8)})
        assert [] == await read(cluster, {FIRST: OffsetRange(start=4, end=10)})


async def test_an_end_that_is_not_written_yet_is_waited_for() -> None:
    def answer(number: int) -> list[Part]:
        return [(0, 0, 4 if number < 3 else 6, {1: records(0, 4), 2: b""}.get(number, records(4, 2)))]

    async with cluster_of(answer) as cluster:
        assert [(0, offset) for offset in range(6)] == await read(cluster, {FIRST: OffsetRange(start=0, end=6)})


def test_a_partition_that_the_size_limit_left_out_has_no_gap() -> None:
    states = {each: PartitionState(phase=Phase.FETCHING, offset=0, end=8) for each in (FIRST, SECOND)}
    limits = FetchLimits(partition_bytes_max=1000, read_ahead_bytes=10_000, isolation_level=READ_UNCOMMITTED)
    plan = FetchPlanState(states, limits)
    leaders = {FIRST: Leader(5, 1), SECOND: Leader(5, 1)}
    (asked,) = plan.plan(leaders, 0.0).values()
    plan.on_sent(asked)
    full = Fetched(FIRST, 0, 10, 10, 0, [], memoryview(records(0, 4)))
    left_out = Fetched(SECOND, 0, 10, 10, 0, [], memoryview(b""))
    assert [] == plan.on_answer(asked, [full, left_out], 0.0)
    assert [(FIRST, 4), (SECOND, 0)] == sorted((each.partition, each.offset) for each in plan.plan(leaders, 0.0)[5])


async def test_an_error_comes_after_the_records_before_it_though_other_partitions_go_on() -> None:
    def answer(number: int) -> list[Part]:
        first = (0, 0, 99, records(0, 2)) if number == 1 else (0, int(ErrorCode.OFFSET_OUT_OF_RANGE), -1, b"")
        return [first, (1, 0, 1 << 40, records(2 * number - 2, 2))]

    async with cluster_of(answer) as cluster:
        found: list[tuple[TopicPartition, int]] = []

        async def collect() -> None:
            fetch = RangeFetch(cluster, {FIRST: OffsetRange(start=0), SECOND: OffsetRange(start=0)})
            async for chunk in fetch.chunks():
                found.append((chunk.partition, chunk.start))  # noqa: PERF401  # all that came before the error

        with pytest.raises(AnswerError, match="reading t-0 at offset 2: the offset does not exist"):
            await collect()
        assert [(FIRST, 0), (SECOND, 0)] == found[:2]
        assert (FIRST, 2) not in found


async def test_garbage_in_place_of_records_is_an_error() -> None:
    async with cluster_of(lambda _: [(0, 0, 9, b"\1" * 100)]) as cluster:
        with pytest.raises(AnswerError, match="reading t-0 at offset 0: ") as raised:
            await read(cluster, {FIRST: OffsetRange(start=0, end=9)})
        assert ErrorCode.CORRUPT_MESSAGE is raised.value.error_code


async def test_records_that_do_not_arrive_in_time_are_an_error_if_that_is_asked_for() -> None:
    async with cluster_of(lambda _: [(0, 0, 3, b"")]) as cluster:
        with pytest.raises(DeadlineError, match="t-0: no records arrived at offset 0 for 50 ms"):
            await read(cluster, {FIRST: OffsetRange(start=0, end=9)}, records_timeout_ms=50)


async def test_a_missing_topic_is_retried_for_the_time_given_or_so_often() -> None:
    async with cluster_of(lambda _: [], partitions=0) as cluster:
        for rules in ({"retry_timeout_ms": 30}, {"missing_tries": 3}):
            with pytest.raises(AnswerError, match="topic t: the topic or partition does not exist"):
                await read(cluster, {FIRST: OffsetRange(start=0, end=9)}, **rules)


async def test_an_address_where_nothing_listens_is_an_error_at_once() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        async with Cluster([Address("127.0.0.1", taken.getsockname()[1])]) as cluster:
            with pytest.raises(CannotConnectError, match="cannot reach any broker"):
                await read(cluster, {FIRST: OffsetRange(start=0, end=9)})
