"""Several real brokers in the test's own event loop, on one shared metadata store, each in a folder of its own."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Final, Self

import pytest

from ottla.broker.broker import Broker
from ottla.broker.configs.configuration import BrokerConfig
from ottla.client.admin.async_admin import AsyncAdmin
from ottla.client.admin.values import NewTopic
from ottla.client.producer.async_producer import AsyncProducer
from ottla.env.real_clock import RealClock
from ottla.env.real_disk import RealDisk
from ottla.env.world import real_world
from ottla.metadata.records import PartitionRecord, decode, partition_key
from ottla.metadata.sqlite.sqlite_store import SqliteStore
from ottla.model.ids import TopicPartition
from ottla.replication.partition import Partition
from tests.broker.inside import replica_fetchers
from tests.waiting import PATIENCE_SECONDS, until

LEASE_TIMEOUT_MS: Final = 120_000
"""No registration ends because the machine stalls: all brokers stop in one process, so none is waited for."""
SOON_LATE: Final = {"replica.lag.time.max.ms": "2000"}
"""For tests in which a follower must leave the ISR because it is late."""
SETTINGS: Final = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    # No follower leaves the ISR because the machine stalls.
    "replica.lag.time.max.ms": "120000",
    "replica.fetch.wait.max.ms": "50",
    "replica.fetch.backoff.ms": "50",
    "group.initial.rebalance.delay.ms": "0",
}


class ReplicatedBrokers:
    """Brokers numbered from 0; use as an async context manager."""

    def __init__(
        self, folder: Path, settings: Mapping[str, str] = MappingProxyType({}), *, count: int = 3, dirs: int = 1
    ) -> None:
        self._folder = folder
        self._dirs = dirs
        self._settings = {**SETTINGS, **settings}
        self.brokers: dict[int, Broker] = {}
        self.disks: dict[int, RealDisk] = {}
        """Where one is to have another disk than the machine's, from its next start on."""
        self.stores: dict[int, SqliteStore] = {}
        """The cluster's metadata as each broker reads and changes it."""
        self._count = count

    async def __aenter__(self) -> Self:
        for broker in range(self._count):
            await self.start(broker)
        await self.wait(lambda: all(len(each.image.brokers) == self._count for each in self.brokers.values()))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for broker in list(self.brokers):
            await self.stop(broker)

    async def start(self, broker: int, **options: Any) -> None:
        """Starts one, also again on what it left; options are the broker's."""
        made = self.made(broker, **options)
        await made.start()
        self.brokers[broker] = made

    def made(self, broker: int, **options: Any) -> Broker:
        """One that is not started."""
        config = BrokerConfig.parse(
            {
                "listeners": "PLAINTEXT://127.0.0.1:0",
                **self._settings,
                "node.id": str(broker),
                "log.dirs": ",".join(f"{self.data(broker)}{'' if not at else f'-{at}'}" for at in range(self._dirs)),
            }
        )
        store = self.stores[broker] = SqliteStore(
            str(self._folder / "metadata.db"), RealClock(), shared=True, lease_timeout_ms=LEASE_TIMEOUT_MS
        )
        world = replace(real_world(), disk=self.disks[broker]) if broker in self.disks else None
        return Broker(config, store=store, world=world, **options)

    async def move(self, topic: str, partition: int, replicas: list[int]) -> None:
        """Moves a partition to other brokers, and waits until it is there."""
        name = TopicPartition(topic, partition)
        async with AsyncAdmin(bootstrap_servers=self.bootstrap) as admin:
            await admin.alter_partition_reassignments({name: replicas})
        await self.wait(
            lambda: all(
                set(each.image.topics[topic].partitions[partition].replicas) == set(replicas)
                for each in self.brokers.values()
            )
        )

    async def stop(self, broker: int) -> None:
        """Stops one in order, as SIGTERM does."""
        await self.brokers.pop(broker).stop()

    def data(self, broker: int) -> Path:
        """Where one keeps its logs; with several data dirs the first of them, and the others beside it."""
        return self._folder / f"data{broker}"

    def wipe(self, broker: int) -> None:
        """Takes away all that a stopped one had."""
        shutil.rmtree(self.data(broker))

    @property
    def bootstrap(self) -> list[str]:
        """Where clients begin."""
        return [f"127.0.0.1:{each.port}" for each in self.brokers.values()]

    async def make_topic(self, name: str, partitions: int = 1, replicas: int = 3, **configs: str) -> None:
        """Creates a topic, and waits until every broker knows it."""
        async with AsyncAdmin(bootstrap_servers=self.bootstrap) as admin:
            wanted = {key.replace("_", "."): value for key, value in configs.items()}
            await admin.create_topics([NewTopic(name, partitions, replicas, topic_configs=wanted)])
        await self.wait(lambda: all(name in each.image.topics for each in self.brokers.values()))

    async def send(self, topic: str, values: list[bytes], partition: int = 0) -> None:
        """Returns when every record is committed."""
        async with AsyncProducer(bootstrap_servers=self.bootstrap, acks="all") as producer:
            for value in values:
                await producer.send(topic, value=value, partition=partition)
            await producer.flush()

    def leader(self, topic: str, partition: int = 0) -> int:
        """Who leads, as everybody says who knows of it."""
        return next(iter(self.brokers.values())).image.topics[topic].partitions[partition].leader

    def copies(self, topic: str, partition: int = 0) -> dict[int, Partition]:
        """The partition on each broker that has it."""
        name = TopicPartition(topic, partition)
        found = {number: broker.partitions.held.get(name) for number, broker in self.brokers.items()}
        return {number: copy for number, copy in found.items() if copy is not None}

    @asynccontextmanager
    async def isrs(self, topic: str, partition: int = 0, *, seen_by: int) -> AsyncIterator[list[tuple[int, ...]]]:
        """Each ISR that the partition has had since, in order and none left out, as one broker's store tells it."""
        store, key = self.stores[seen_by], partition_key(topic, partition)
        seen, _ = await store.snapshot()
        found: list[tuple[int, ...]] = []

        async def follow() -> None:
            nonlocal seen
            async for changes in store.follow(seen):
                found.extend(
                    decode(key, change.value, PartitionRecord).isr
                    for change in changes
                    if change.key == key and change.value is not None
                )
                seen = changes[0].revision

        following = asyncio.create_task(follow())
        try:
            yield found
            last, _ = await store.snapshot()
            await self.wait(lambda: seen >= last)
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    def contents(self, topic: str, partition: int = 0) -> dict[int, bytes]:
        """The bytes of each copy's log."""
        return {
            number: b"".join(
                path.read_bytes()
                for path in sorted(self._folder.glob(f"{self.data(number).name}*/{topic}-{partition}/*.log"))
            )
            for number in self.copies(topic, partition)
        }

    async def wait(self, is_so: Callable[[], bool]) -> None:
        """Returns when it is so; fails if it does not come to be."""
        await until(is_so, PATIENCE_SECONDS)

    async def silence(self, number: int) -> Callable[[], None]:
        """A broker's followers fetch nothing until the function that is returned is called."""
        fetchers, patched = replica_fetchers(self.brokers[number]), pytest.MonkeyPatch()
        patched.setattr(fetchers, "refresh", lambda: None)
        await fetchers.close()

        def resume() -> None:
            patched.undo()
            fetchers.refresh()

        return resume

    async def wait_in_sync(self, topic: str, partition: int = 0) -> None:
        """Until all replicas are in the ISR and know all that is committed."""

        def is_so() -> bool:
            copies = self.copies(topic, partition).values()
            images = [each.image.topics[topic].partitions[partition] for each in self.brokers.values()]
            return (
                all(set(image.isr) == set(image.replicas) for image in images)
                and len({copy.end_offset for copy in copies}) == 1
                and all(copy.high_watermark == copy.end_offset for copy in copies)
            )

        await self.wait(is_so)
