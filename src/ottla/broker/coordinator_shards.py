"""The shards of one internal topic: which of them are here, which partition an id belongs to, and who has that one.

Covers what groups and transactions share: making the topic when it is first needed, loading a shard when its partition
comes, giving it up when it goes. What a shard decides is in `ottla.coordination`.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Generic

from ottla.controller.decisions import NewTopic
from ottla.coordination.runtime.shard import M, Shard
from ottla.metadata.image import NO_LEADER, BrokerImage
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import CoordinatorNotAvailableError, CorruptError, NotCoordinatorError, OttlaError
from ottla.model.ids import BrokerId
from ottla.replication.partition import Partition

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

_LOGGER: Final = logging.getLogger(__name__)
_RETRY_SECONDS: Final = 1.0
_RETRY_SECONDS_MAX: Final = 60.0


class CoordinatorShards(Generic[M]):
    """See the module's docstring. `make` gives a new shard for a partition; `on_active` hears when one can be asked.

    `skips_corrupt` says what happens to a partition with a corrupt batch that no other replica can take over: it is
    served without the lost records, which are logged, or not at all.
    """

    def __init__(
        self,
        broker: "Broker",
        topic: str,
        make: Callable[[Partition], Shard[M]],
        on_active: Callable[[Shard[M]], None] = lambda shard: None,
        *,
        skips_corrupt: bool,
    ) -> None:
        self._broker = broker
        self._topic = topic
        self._make = make
        self._on_active = on_active
        self._skips_corrupt = skips_corrupt
        self._shards: dict[int, Shard[M]] = {}
        self._loads: dict[int, asyncio.Task[None]] = {}
        self._creation = asyncio.Lock()
        self._is_closed = False

    # Finding

    def all(self) -> list[Shard[M]]:
        """Those that are here, by partition; some may still be loading."""
        return [self._shards[index] for index in sorted(self._shards)]

    def get(self, index: int) -> Shard[M] | None:
        """The shard of a partition, if it is here."""
        return self._shards.get(index)

    def of(self, id: str) -> Shard[M]:
        """The shard that an id belongs to. Raises CoordinatorNotAvailableError or NotCoordinatorError."""
        index = self.partition_of(id)
        shard = self._shards.get(index)
        if shard is None:
            raise NotCoordinatorError(f"{id!r} is coordinated elsewhere: {self._topic}-{index} is not led here")
        return shard

    def partition_of(self, id: str) -> int:
        """The partition that an id belongs to. Raises CoordinatorNotAvailableError while there is none."""
        topic = self._broker.image.topics.get(self._topic)
        if topic is None:
            raise CoordinatorNotAvailableError(f"{self._topic} does not exist yet; find the coordinator first")
        return partition_of(id, len(topic.partitions))

    def leader_of(self, id: str) -> BrokerId | None:
        """The broker that coordinates an id, if it is alive. Raises CoordinatorNotAvailableError without a topic."""
        index, image = self.partition_of(id), self._broker.image
        leader = image.topics[self._topic].partitions[index].leader
        return leader if leader in image.brokers else None

    async def find(self, id: str, topic: Callable[[int], NewTopic]) -> BrokerImage:
        """The broker that coordinates an id. If this is the first id ever, makes the topic; `topic` says which, for so
        many brokers."""
        if self._topic not in self._broker.image.topics:
            await self._make_topic(topic)
        image = self._broker.image
        index = self.partition_of(id)
        leader = image.topics[self._topic].partitions[index].leader
        found = None if leader == NO_LEADER else image.brokers.get(leader)
        if found is None:
            raise CoordinatorNotAvailableError(f"{self._topic}-{index}, which {id!r} needs, has no leader; try again")
        return found

    async def _make_topic(self, topic: Callable[[int], NewTopic]) -> None:
        broker = self._broker
        async with self._creation:
            if self._topic in broker.image.topics:
                return
            committed = await broker.controller.create_topics([topic(max(len(broker.image.brokers), 1))])
            outcome = committed.outcomes[0]
            if outcome.error not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                raise CoordinatorNotAvailableError(f"{self._topic} cannot be made: {outcome.message}")
            await broker.wait_revision(committed.revision)

    # Coming and going

    def refresh(self) -> None:
        """Loads the shards of partitions that have come here, and gives up those that have gone."""
        if self._is_closed:
            return
        here = {partition.index: partition for partition in self._broker.partitions.of_topic(self._topic)}
        for index, shard in list(self._shards.items()):
            partition = here.get(index)
            if partition is not shard.partition or partition.leader_epoch != shard.leader_epoch:
                self._give_up(index)
        for index, partition in here.items():
            if index not in self._shards:
                self._begin(index, partition)

    def _begin(self, index: int, partition: Partition) -> None:
        shard = self._shards[index] = self._make(partition)
        if partition.start_offset == partition.end_offset:
            shard.activate()
            self._on_active(shard)
        else:
            self._loads[index] = asyncio.get_running_loop().create_task(self._load(index, shard))

    async def _load(self, index: int, shard: Shard[M]) -> None:
        pause = _RETRY_SECONDS
        while True:
            try:
                await shard.load()
                self._on_active(shard)
                return
            except OttlaError as error:
                failure = error
            except Exception as error:
                _LOGGER.exception("partition %s-%d: unexpected error while loading", self._topic, index)
                failure = CorruptError(f"unexpected error while loading: {error!r}")
            if isinstance(failure, CorruptError) and self._skips_corrupt and not self._has_others(index):
                shard.unload()
                shard = self._shards[index] = self._make(shard.partition)
                if await self._load_intact(index, shard):
                    return
            shard.fail(failure)
            _LOGGER.error(
                "partition %s-%d: coordinator cannot be loaded; its ids are answered COORDINATOR_NOT_AVAILABLE;"
                " next try in %g s: %s",
                self._topic, index, pause, failure,
            )  # fmt: skip
            await self._broker.clock.sleep(pause)
            pause = min(2 * pause, _RETRY_SECONDS_MAX)
            shard.unload()
            shard = self._shards[index] = self._make(shard.partition)

    async def _load_intact(self, index: int, shard: Shard[M]) -> bool:
        """Loads what can be read of a corrupt partition; whether that worked."""
        try:
            await shard.load_intact()
            self._on_active(shard)
            return True
        except Exception:
            _LOGGER.exception("partition %s-%d: the intact batches cannot be loaded either", self._topic, index)
            return False

    def _has_others(self, index: int) -> bool:
        """Whether another replica in sync can take over: this broker withdraws then, and repairs its log."""
        return self._broker.repairs.has_others(self._topic, index)

    def _give_up(self, index: int) -> None:
        self._shards.pop(index).unload()
        load = self._loads.pop(index, None)
        if load is not None:
            load.cancel()

    async def close(self) -> None:
        """Gives up every shard; who waits for one is told to ask elsewhere."""
        self._is_closed = True
        loads = list(self._loads.values())
        for index in list(self._shards):
            self._give_up(index)
        await asyncio.gather(*loads, return_exceptions=True)


def partition_of(id: str, count: int) -> int:
    """Which partition an id belongs to: by Java's hash of the text, as in every Kafka."""
    value = _known_hash(id) if len(id) <= _HASHED_LENGTH_MAX else _hash(id)
    # The smallest number has no positive twin; Java takes 0.
    return 0 if value == -(2**31) else abs(value) % count


def _hash(id: str) -> int:
    encoded = id.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(encoded), 2):
        value = (31 * value + (encoded[at] << 8 | encoded[at + 1])) & 0xFFFFFFFF
    return value - 2**32 if value >= 2**31 else value


_HASHED_LENGTH_MAX: Final = 256
_known_hash: Final = lru_cache(maxsize=4096)(_hash)
"""Every request of a group asks for it; ids that nobody would use are not kept."""
