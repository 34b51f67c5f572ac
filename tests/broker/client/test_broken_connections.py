"""Connections that break in the middle, again and again: nothing is read twice or not at all, and the order stays."""

from collections.abc import Callable, Sequence
from itertools import groupby

import pytest

from ottla.client.admin.topic_requests import create_topic
from ottla.client.fetch.range_fetch import OffsetRange, RangeFetch, RangeRules
from ottla.client.network.backoff import Backoff
from ottla.client.network.cluster import Cluster
from ottla.client.producer.batch_sender import BatchSender
from ottla.env.ports import File, Listener, Socket
from ottla.env.real_network import RealNetwork
from ottla.model.buffer import Buffer
from ottla.model.ids import TopicPartition
from ottla.records.builder import BatchBuilder
from ottla.sim.random import SimRandom
from ottla.transport.addresses import Address


class CutSocket:
    """A socket that breaks once it has received so many bytes."""

    def __init__(self, socket: Socket, bytes_left: int) -> None:
        self._socket = socket
        self._bytes_left = bytes_left

    def recv_into(self, buffer: memoryview) -> int:
        if self._bytes_left <= 0:
            raise ConnectionResetError(104, "Connection reset by peer")
        size = self._socket.recv_into(buffer[: self._bytes_left])
        self._bytes_left -= size
        return size

    def send(self, buffers: Sequence[Buffer], *, more: bool = False) -> int:
        return self._socket.send(buffers, more=more)

    def send_file(self, file: File, position: int, size: int) -> int:
        return self._socket.send_file(file, position, size)

    def on_readable(self, callback: Callable[[], None] | None) -> None:
        self._socket.on_readable(callback)

    def expect(self, size: int) -> None:
        self._socket.expect(size)

    def on_writable(self, callback: Callable[[], None] | None) -> None:
        self._socket.on_writable(callback)

    def peer(self) -> str:
        return self._socket.peer()

    def descriptor(self) -> int | None:
        return None

    def close(self) -> None:
        self._socket.close()


class CutNetwork:
    """Each connection breaks after a random number of bytes, always enough to say what the broker speaks."""

    def __init__(self, seed: int, bytes_max: int) -> None:
        self._random = SimRandom(seed)
        self._bytes_max = bytes_max
        self._network = RealNetwork()
        self.connections = 0

    async def connect(self, host: str, port: int) -> Socket:
        self.connections += 1
        return CutSocket(await self._network.connect(host, port), 1000 + self._random.randrange(self._bytes_max))

    async def listen(self, host: str, port: int, on_accept: Callable[[Socket], None]) -> Listener:
        return await self._network.listen(host, port, on_accept)


def batch(values: Sequence[bytes]) -> bytes:
    builder = BatchBuilder()
    for value in values:
        builder.append(1_700_000_000_000, None, value)
    return builder.build()


@pytest.mark.parametrize("seed", range(5))
async def test_reading_goes_on_where_it_was(seed: int, address: Address) -> None:
    name = f"cut-reads-{seed}"
    partitions = [TopicPartition(name, index) for index in range(3)]
    async with Cluster([address]) as cluster:
        await create_topic(cluster, name, partitions=3)
        async with BatchSender(cluster) as sender:
            for number in range(300):
                await sender.send(partitions[number % 3], batch([b"%d" % number + b"." * 500]))
    network = CutNetwork(seed, 30_000)
    found: dict[TopicPartition, list[int]] = {each: [] for each in partitions}
    async with Cluster([address], network=network, backoff=Backoff(first_ms=1, most_ms=1)) as cluster:
        ranges = {each: OffsetRange(start=0, end=100) for each in partitions}
        reader = RangeFetch(cluster, ranges, RangeRules(fetch_bytes_max=8000))
        async for chunk in reader.chunks():
            found[chunk.partition] += [record.offset for record in chunk.records()]
    assert {each: list(range(100)) for each in partitions} == found
    assert network.connections > 5, "connections did break"


@pytest.mark.parametrize("seed", range(5))
async def test_sending_again_repeats_but_never_loses_or_reorders(seed: int, address: Address) -> None:
    name = f"cut-writes-{seed}"
    partition = TopicPartition(name, 0)
    async with Cluster([address]) as cluster:
        await create_topic(cluster, name)
    network = CutNetwork(seed, 300)
    async with (
        Cluster([address], network=network, backoff=Backoff(first_ms=1, most_ms=1)) as cluster,
        BatchSender(cluster) as sender,
    ):
        for number in range(100):
            await sender.send(partition, batch([b"%d" % number]))
    assert network.connections > 5, "connections did break"
    async with Cluster([address]) as cluster:
        sent = (await anext(RangeFetch(cluster, {partition: OffsetRange(start=0, end=1)}).chunks())).high_watermark
        chunks = RangeFetch(cluster, {partition: OffsetRange(start=0, end=sent)}).chunks()
        values = [int(record.value or b"") async for chunk in chunks for record in chunk.records()]
    assert list(range(100)) == [value for value, _ in groupby(values)]
