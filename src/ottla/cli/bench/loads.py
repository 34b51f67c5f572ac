"""The loads of `ottla bench` that move bytes: prebuilt batches by raw frames, and fetches counted by batch headers.

No work is done per record, so that the broker is measured and not this program. One process drives all connections;
if it is the limit, `client_cpu_seconds` is close to the elapsed seconds. `latency.py` measures single records.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from typing import Final

from ottla.cli.bench.results import BenchResult, Latencies
from ottla.client.errors import answer_error
from ottla.client.fetch.range_fetch import OffsetRange, RangeFetch, RangeRules
from ottla.client.network.cluster import Cluster
from ottla.env.ports import Random
from ottla.model.buffer import Buffer
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.protocol.apis import ApiKey
from ottla.protocol.produce_frames import VERSION_MAX, produce_body, read_produce_answer
from ottla.records.builder import BatchBuilder
from ottla.records.layout import Codec
from ottla.transport.client_connection import Connection

REQUEST_TIMEOUT_MS: Final = 60_000
_RECORD_OVERHEAD_BYTES: Final = 20
"""An upper bound for the lengths, deltas and attributes of a record."""
BROKER_TIMEOUT_MS: Final = 30_000
Tick = Callable[[int, int], None]
"""Called with the records and bytes so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadShape:
    """What is sent: a number of records of one size, in batches; or for some time, if `seconds` is given."""

    records: int
    record_bytes: int
    batch_bytes: int
    acks: int = -1
    codec: Codec = Codec.NONE
    in_flight: int = 5
    connections: int = 1
    rate: float = 0.0
    """Records per second; 0 for no limit."""
    seconds: float = 0.0


class ProduceLoad:
    """Sends one prebuilt batch per request, round robin over the partitions, with a limit of requests in flight."""

    def __init__(self, cluster: Cluster, partitions: Sequence[TopicPartition], shape: LoadShape, tick: Tick) -> None:
        self._cluster = cluster
        self._partitions = partitions
        self._shape = shape
        self._tick = tick
        self._batch, self._batch_records = make_batch(shape, cluster.random)
        self._left = shape.records if shape.seconds == 0 else 2**62
        self._deadline = 0.0
        self._start = 0.0
        self._sent_requests = 0
        self._done_records = 0
        self._done_requests = 0
        self._latencies = Latencies()
        self._failure: OttlaError | None = None

    async def run(self) -> BenchResult:
        """Sends everything and waits for all responses; raises the first error."""
        leaders = {each: await self._cluster.leader_of(each) for each in self._partitions}
        connections = [
            await self._cluster.own_connection(leader)
            for leader in sorted(set(leaders.values()))
            for _ in range(self._shape.connections)
        ]
        by_connection = self._spread(connections, leaders)
        cpu = time.process_time()
        self._start = time.perf_counter()
        self._deadline = self._start + self._shape.seconds if self._shape.seconds else float("inf")
        await asyncio.gather(*(self._drive(each, bodies) for each, bodies in by_connection if bodies))
        if self._failure is not None:
            raise self._failure
        return BenchResult(
            what="produce",
            records=self._done_records,
            wire_bytes=self._done_requests * len(self._batch),
            payload_bytes=self._done_records * self._shape.record_bytes,
            requests=self._done_requests,
            seconds=time.perf_counter() - self._start,
            client_cpu_seconds=time.process_time() - cpu,
            latencies=self._latencies,
        )

    def _spread(
        self, connections: Sequence[Connection], leaders: dict[TopicPartition, int]
    ) -> list[tuple[Connection, list[list[Buffer]]]]:
        """For each connection the request bodies that it sends in turn: those of the partitions of its broker."""
        per_broker = self._shape.connections
        brokers = sorted(set(leaders.values()))
        return [
            (
                connection,
                [self._body(each) for each in self._partitions if leaders[each] == brokers[at // per_broker]],
            )
            for at, connection in enumerate(connections)
        ]

    def _body(self, partition: TopicPartition) -> list[Buffer]:
        return produce_body([(partition, self._batch)], acks=self._shape.acks, timeout_ms=BROKER_TIMEOUT_MS)

    async def _drive(self, connection: Connection, bodies: list[list[Buffer]]) -> None:
        """Keeps one connection busy until nothing is left to send, then waits for the last responses."""
        version = connection.version_for(ApiKey.PRODUCE, VERSION_MAX)
        slots = asyncio.Semaphore(self._shape.in_flight)
        interval = self._batch_records / self._shape.rate if self._shape.rate else 0.0

        def on_answer(answer: "asyncio.Future[memoryview]", began: float) -> None:
            slots.release()
            self._on_answer(answer, began)

        for body in cycle(bodies):
            if self._left <= 0 or self._failure is not None or time.perf_counter() >= self._deadline:
                break
            self._left -= self._batch_records
            # With a rate, latency counts from when the request was due, or a slow broker would look fast.
            due = self._start + self._sent_requests * interval if interval else 0.0
            self._sent_requests += 1
            if interval and due > time.perf_counter():
                await asyncio.sleep(due - time.perf_counter())
            await slots.acquire()
            began = due or time.perf_counter()
            if self._shape.acks == 0:
                connection.send_unanswered(ApiKey.PRODUCE, version, body)
                await connection.wait_sent()
                self._on_done(time.perf_counter() - began)
                slots.release()
                # Lets other tasks run: writing to a socket that has room never waits.
                await asyncio.sleep(0)
                continue
            answer = connection.request_bytes(ApiKey.PRODUCE, version, body, timeout_ms=REQUEST_TIMEOUT_MS)
            answer.add_done_callback(partial(on_answer, began=began))
        for _ in range(self._shape.in_flight):
            await slots.acquire()

    def _on_answer(self, answer: "asyncio.Future[memoryview]", began: float) -> None:
        if answer.cancelled():
            return
        error = answer.exception()
        if error is not None:
            if isinstance(error, OttlaError):
                self._failure = self._failure or error
            return
        for produced in read_produce_answer(answer.result()):
            if produced.error_code:
                refusal = answer_error(produced.error_code, f"writing to {produced.partition}", produced.error_message)
                self._failure = self._failure or refusal
        self._on_done(time.perf_counter() - began)

    def _on_done(self, seconds: float) -> None:
        self._latencies.add(seconds)
        self._done_requests += 1
        self._done_records += self._batch_records
        self._tick(self._done_records, self._done_requests * len(self._batch))


def make_batch(shape: LoadShape, random: Random) -> tuple[bytes, int]:
    """One batch and its number of records: as many as fit, at least one."""
    builder = BatchBuilder(codec=shape.codec)
    now = time.time_ns() // 1_000_000
    # Half of each value is random, so that a codec compresses it to about half.
    noise_bytes = shape.record_bytes - shape.record_bytes // 2
    filling = b"." * (shape.record_bytes // 2)
    count = 0
    whole_bytes = shape.record_bytes + _RECORD_OVERHEAD_BYTES
    while count == 0 or (builder.size_bytes + whole_bytes <= shape.batch_bytes and count < shape.records):
        builder.append(now, None, random.randbytes(noise_bytes) + filling)
        count += 1
    return builder.build(), count


async def consume_load(
    cluster: Cluster,
    ranges: dict[TopicPartition, OffsetRange],
    *,
    records: int,
    seconds: float,
    connections: int,
    tick: Tick,
) -> BenchResult:
    """Reads the ranges, up to a number of records or for some time, and counts by batch headers."""
    counted = [0, 0, 0]
    cpu = time.process_time()
    start = time.perf_counter()
    deadline = start + seconds if seconds else float("inf")

    async def read_some(some: dict[TopicPartition, OffsetRange]) -> None:
        rules = RangeRules(fetch_bytes_max=50 * 1024 * 1024, partition_bytes_max=8 * 1024 * 1024)
        chunks = RangeFetch(cluster, some, rules).chunks()
        try:
            async for chunk in chunks:
                counted[0] += chunk.count()
                counted[1] += chunk.size_bytes
                counted[2] += 1
                tick(counted[0], counted[1])
                if counted[0] >= records > 0 or time.perf_counter() >= deadline:
                    return
        finally:
            await chunks.aclose()

    shares = [dict(list(ranges.items())[at::connections]) for at in range(connections)]
    await asyncio.gather(*(read_some(share) for share in shares if share))
    return BenchResult(
        what="consume",
        records=counted[0],
        wire_bytes=counted[1],
        payload_bytes=counted[1],
        requests=counted[2],
        seconds=time.perf_counter() - start,
        client_cpu_seconds=time.process_time() - cpu,
        latencies=Latencies(),
    )
