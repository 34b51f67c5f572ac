"""A real broker in the test's own event loop, on a folder of its own, and requests that it answers over a socket."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeVar

from kio.static.constants import EntityType

from ottla.broker.broker import METADATA_FILE, Broker
from ottla.broker.configs.configuration import BrokerConfig
from ottla.client.loop_thread import LoopThread
from ottla.env.real_clock import RealClock
from ottla.metadata.sqlite.sqlite_store import SqliteStore
from ottla.metadata.store import Operation
from ottla.protocol.apis import SERVED, ApiKey
from ottla.records.batch import Batch
from tests.wire.exchange import LENGTH, fill, message_class, read_response, request_frame

SOON: Final = timedelta(seconds=20)
T = TypeVar("T")


@asynccontextmanager
async def running(folder: Path, **settings: str) -> AsyncIterator[Broker]:
    """A broker that serves; settings have underscores for Kafka's dots."""
    async with broker_on(folder, dotted(settings)) as broker:
        yield broker


def dotted(settings: Mapping[str, str]) -> dict[str, str]:
    """Python's names of configs as Kafka's."""
    return {name.replace("_", "."): value for name, value in settings.items()}


def broker_on(folder: Path, settings: Mapping[str, str] = MappingProxyType({}), **own: Any) -> Broker:
    """A broker that is not started, with a store, world or authorizer of its own."""
    config = {"log.dirs": str(folder / "data"), "listeners": "PLAINTEXT://127.0.0.1:0", **settings}
    return Broker(BrokerConfig.parse(settings=config), **own)


@contextmanager
def serving_in_thread(folder: Path, settings: Mapping[str, str] = MappingProxyType({}), **own: Any) -> Iterator[Broker]:
    """The broker of `broker_on` in a thread of its own, for clients that block."""

    async def start() -> Broker:
        broker = broker_on(folder, settings, **own)
        await broker.start()
        return broker

    thread = LoopThread("a broker of a test")
    try:
        broker = thread.call(start())
        try:
            yield broker
        finally:
            thread.call(broker.stop())
    finally:
        thread.close()


async def with_broker(folder: Path, work: Callable[[Broker], Awaitable[T]], **settings: str) -> T:
    """Does some work with a broker that runs no longer than that, and returns its result."""
    async with running(folder, **settings) as broker:
        return await work(broker)


async def make_topic(broker: Broker, name: str, partitions: int = 1, **configs: str) -> None:
    """A topic that is served."""
    topic = {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": 1,
        "configs": [{"name": key, "value": value} for key, value in dotted(configs).items()],
    }
    response = await ask(broker, ApiKey.CREATE_TOPICS, {"topics": [topic], "timeout": SOON})
    assert [(name, None)] == [(topic.name, topic.error_message) for topic in response.topics]


def metadata_store(folder: Path) -> SqliteStore:
    """The store of a broker on this folder that does not run, or that is started with it."""
    return SqliteStore(str(folder / "data" / METADATA_FILE), RealClock())


async def change_metadata(folder: Path, *operations: Operation) -> None:
    """Commits this while the broker on the folder does not run."""
    store = metadata_store(folder)
    await store.open()
    await store.commit(operations)
    await store.close()


def request_of(api_key: ApiKey, values: Mapping[str, Any]) -> Any:
    """A request as handlers get it, in the newest served version's class."""
    return fill(message_class(api_key, SERVED[api_key].highest, EntityType.request), values)


class Client:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def ask_frame(self, api_key: ApiKey, values: Mapping[str, Any], version: int) -> bytes:
        """The response as it comes, without its length."""
        self._writer.write(request_frame(api_key, version, values, client_id=b"test"))
        return await self._reader.readexactly(int.from_bytes(await self._reader.readexactly(LENGTH.size)))

    async def ask(self, api_key: ApiKey, values: Mapping[str, Any], version: int | None = None) -> Any:
        """The response to a request in this version, by default the newest."""
        version = SERVED[api_key].highest if version is None else version
        return read_response(api_key, version, await self.ask_frame(api_key, values, version))[1]


@asynccontextmanager
async def connected(broker: Broker, source: str = "127.0.0.1") -> AsyncIterator[Client]:
    """A connection to the broker's first listener, from an address of loopback."""
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.port, local_addr=(source, 0))
    try:
        yield Client(reader, writer)
    finally:
        writer.close()


async def ask(broker: Broker, api_key: ApiKey, values: Mapping[str, Any], version: int | None = None) -> Any:
    """`Client.ask` on a connection of its own."""
    async with connected(broker) as client:
        return await client.ask(api_key, values, version)


async def ask_frame(broker: Broker, api_key: ApiKey, values: Mapping[str, Any], version: int) -> bytes:
    """`Client.ask_frame` on a connection of its own."""
    async with connected(broker) as client:
        return await client.ask_frame(api_key, values, version)


async def produce(broker: Broker, topic: str, batch: Batch, partition: int = 0) -> Any:
    """The response of one partition to a batch, once that is committed."""
    content = {"index": partition, "records": bytes(batch.buffer)}
    topics = [{"topic_id": broker.image.topics[topic].id, "partition_data": [content]}]
    response = await ask(broker, ApiKey.PRODUCE, {"acks": -1, "timeout": SOON, "topic_data": topics})
    ((outcome,),) = (topic.partition_responses for topic in response.responses)
    return outcome


async def find_coordinator(broker: Broker, key: str, *, of_transactions: bool = False) -> int:
    """The broker that coordinates a group or a transactional id; its internal topic is created if it must be."""
    request = {"coordinator_keys": [key], "key_type": int(of_transactions)}
    (found,) = (await ask(broker, ApiKey.FIND_COORDINATOR, request)).coordinators
    assert 0 == found.error_code.value, found.error_message
    return int(found.node_id)
