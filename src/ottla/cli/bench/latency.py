"""The load of `ottla bench latency`: single records at a rate, timed from when each is due to its arrival.

One process sends and reads, so both times come from one clock.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from itertools import cycle
from struct import Struct
from typing import Final

from ottla.cli.bench.loads import BROKER_TIMEOUT_MS, REQUEST_TIMEOUT_MS, LoadShape, Tick
from ottla.cli.bench.results import BenchResult, Latencies
from ottla.client.errors import DeadlineError, answer_error
from ottla.client.fetch.chunk import Chunk
from ottla.client.fetch.range_fetch import OffsetRange, RangeFetch
from ottla.client.network.cluster import Cluster
from ottla.model.ids import TopicPartition
from ottla.protocol.apis import ApiKey
from ottla.protocol.produce_frames import VERSION_MAX, produce_body, read_produce_answer
from ottla.records.builder import BatchBuilder
from ottla.transport.client_connection import Connection

_STAMP: Final = Struct(">q")
_WARM_UP: Final = 0
"""The stamp of a record that only shows that both sides are ready."""
_ARRIVAL_SECONDS: Final = 10.0


class LatencyLoad:
    """Sends single records, round robin over the partitions; each carries the time at which it is due."""

    def __init__(self, cluster: Cluster, partitions: Sequence[TopicPartition], shape: LoadShape, tick: Tick) -> None:
        self._cluster = cluster
        self._partitions = partitions
        self._shape = shape
        self._tick = tick
        self._latencies = Latencies()
        self._wire_bytes = 0
        self._warm = 0
        self._changed = asyncio.Event()
        self._expected = int(shape.seconds * shape.rate) if shape.seconds else shape.records
        self._connections: dict[TopicPartition, Connection] = {}

    async def run(self, ends: dict[TopicPartition, int]) -> BenchResult:
        """Sends and reads from these offsets; raises if a record does not arrive within ten seconds."""
        for partition in self._partitions:
            leader = await self._cluster.leader_of(partition)
            self._connections[partition] = await self._cluster.broker_connection(leader)
        chunks = RangeFetch(self._cluster, {each: OffsetRange(start=end) for each, end in ends.items()}).chunks()
        reading = asyncio.create_task(self._read(chunks))
        try:
            await asyncio.gather(*(self._send(each, _WARM_UP) for each in self._partitions))
            await self._wait(reading, lambda: self._warm >= len(self._partitions))
            cpu, start = time.process_time(), time.perf_counter()
            await self._send_all(start)
            await self._wait(reading, lambda: self._latencies.count >= self._expected)
            seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        return BenchResult(
            what="latency",
            records=self._latencies.count,
            wire_bytes=self._wire_bytes,
            payload_bytes=self._latencies.count * self._shape.record_bytes,
            requests=self._expected,
            seconds=seconds,
            client_cpu_seconds=cpu,
            latencies=self._latencies,
        )

    async def _send_all(self, start: float) -> None:
        sending: set[asyncio.Task[None]] = set()
        for number, partition in zip(range(self._expected), cycle(self._partitions), strict=False):
            due = start + number / self._shape.rate
            if (wait := due - time.perf_counter()) > 0:
                await asyncio.sleep(wait)
            task = asyncio.create_task(self._send(partition, int(due * 1e9)))
            sending.add(task)
            task.add_done_callback(sending.discard)
        await asyncio.gather(*sending)

    async def _send(self, partition: TopicPartition, stamp: int) -> None:
        connection = self._connections[partition]
        builder = BatchBuilder(codec=self._shape.codec)
        filling = bytes(max(self._shape.record_bytes - _STAMP.size, 0))
        builder.append(time.time_ns() // 1_000_000, None, _STAMP.pack(stamp) + filling)
        body = produce_body([(partition, builder.build())], acks=self._shape.acks, timeout_ms=BROKER_TIMEOUT_MS)
        version = connection.version_for(ApiKey.PRODUCE, VERSION_MAX)
        if self._shape.acks == 0:
            connection.send_unanswered(ApiKey.PRODUCE, version, body)
            return
        answer = await connection.request_bytes(ApiKey.PRODUCE, version, body, timeout_ms=REQUEST_TIMEOUT_MS)
        for produced in read_produce_answer(answer):
            if produced.error_code:
                raise answer_error(produced.error_code, f"writing to {partition}", produced.error_message)

    async def _read(self, chunks: AsyncGenerator[Chunk, None]) -> None:
        try:
            async for chunk in chunks:
                now = time.perf_counter()
                self._wire_bytes += chunk.size_bytes
                for record in chunk.records():
                    stamp = _STAMP.unpack_from(record.value or bytes(_STAMP.size), 0)[0]
                    if stamp == _WARM_UP:
                        self._warm += 1
                    else:
                        self._latencies.add(now - stamp / 1e9)
                self._tick(self._latencies.count, self._wire_bytes)
                self._changed.set()
        finally:
            await chunks.aclose()

    async def _wait(self, reading: "asyncio.Task[None]", condition: Callable[[], bool]) -> None:
        """Returns once the condition holds. Raises the error of the reading side, or that nothing arrives."""
        while not condition():
            self._changed.clear()
            changing = asyncio.create_task(self._changed.wait())
            done, _ = await asyncio.wait(
                (changing, reading), timeout=_ARRIVAL_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
            changing.cancel()
            if reading in done:
                reading.result()
            if not done:
                raise DeadlineError(f"records did not arrive within {_ARRIVAL_SECONDS:.0f} s after they were written")
