"""The shards of one internal topic on this broker: loaded when a partition is led here, unloaded when it is not.

What a shard decides is up to its state machine; which partition an id belongs to is in `internal_topic.py`.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Generic

from ottla.coordination.runtime.internal_topic import InternalTopic
from ottla.coordination.runtime.shard import M, Shard
from ottla.env.ports import Clock
from ottla.model.errors import CorruptError, NotCoordinatorError, OttlaError
from ottla.replication.partition import Partition
from ottla.replication.partition_table import PartitionTable

_LOGGER: Final = logging.getLogger(__name__)
_RETRY_SECONDS: Final = 1.0
_RETRY_SECONDS_MAX: Final = 60.0


class CoordinatorShards(Generic[M]):
    """`make` builds a new shard for a partition; `on_active` is called when a shard has been loaded.

    `serves_without_corrupt_batches(partition)` decides about a partition with a corrupt batch: if true, the shard is
    loaded from the intact batches and the lost records are logged; if false, the partition is not served and loading is
    retried.
    """

    def __init__(
        self,
        topic: InternalTopic,
        partitions: PartitionTable,
        clock: Clock,
        make: Callable[[Partition], Shard[M]],
        *,
        on_active: Callable[[Shard[M]], None] = lambda shard: None,
        serves_without_corrupt_batches: Callable[[Partition], bool] = lambda partition: False,
    ) -> None:
        self._topic = topic
        self._partitions = partitions
        self._clock = clock
        self._make = make
        self._on_active = on_active
        self._serves_without_corrupt_batches = serves_without_corrupt_batches
        self._shards: dict[int, Shard[M]] = {}
        self._loads: dict[int, asyncio.Task[None]] = {}
        self._is_closed = False

    # Finding

    def all(self) -> list[Shard[M]]:
        """The shards on this broker, by partition; some may still be loading."""
        return [self._shards[index] for index in sorted(self._shards)]

    def get(self, index: int) -> Shard[M] | None:
        """The shard of a partition, if this broker leads it."""
        return self._shards.get(index)

    def of(self, id: str) -> Shard[M]:
        """The shard that an id belongs to. Raises CoordinatorNotAvailableError or NotCoordinatorError."""
        index = self._topic.partition_of(id)
        shard = self._shards.get(index)
        if shard is None:
            raise NotCoordinatorError(
                f"{id!r} is coordinated by another broker: this broker does not lead {self._topic.name}-{index}"
            )
        return shard

    # Coming and going

    def refresh(self) -> None:
        """Loads shards of partitions that this broker now leads, and unloads those that it no longer leads."""
        if self._is_closed:
            return
        led = {partition.index: partition for partition in self._partitions.of_topic(self._topic.name)}
        for index, shard in list(self._shards.items()):
            partition = led.get(index)
            if partition is not shard.partition or partition.leader_epoch != shard.leader_epoch:
                self._unload(index)
        for index, partition in led.items():
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
                _LOGGER.exception("partition %s-%d: unexpected error while loading", self._topic.name, index)
                failure = CorruptError(f"unexpected error while loading: {error!r}")
            if isinstance(failure, CorruptError) and self._serves_without_corrupt_batches(shard.partition):
                shard.unload()
                shard = self._shards[index] = self._make(shard.partition)
                if await self._load_intact(index, shard):
                    return
            shard.fail(failure)
            _LOGGER.error(
                "partition %s-%d: coordinator cannot be loaded; its ids are answered COORDINATOR_NOT_AVAILABLE;"
                " next try in %g s: %s",
                self._topic.name, index, pause, failure,
            )  # fmt: skip
            await self._clock.sleep(pause)
            pause = min(2 * pause, _RETRY_SECONDS_MAX)
            shard.unload()
            shard = self._shards[index] = self._make(shard.partition)

    async def _load_intact(self, index: int, shard: Shard[M]) -> bool:
        """Loads the intact batches of a corrupt partition; returns whether that worked."""
        try:
            await shard.load_intact()
            self._on_active(shard)
            return True
        except Exception:
            _LOGGER.exception("partition %s-%d: the intact batches cannot be loaded either", self._topic.name, index)
            return False

    def _unload(self, index: int) -> None:
        self._shards.pop(index).unload()
        load = self._loads.pop(index, None)
        if load is not None:
            load.cancel()

    async def close(self) -> None:
        """Unloads every shard; waiting requests are answered NOT_COORDINATOR."""
        self._is_closed = True
        loads = list(self._loads.values())
        for index in list(self._shards):
            self._unload(index)
        await asyncio.gather(*loads, return_exceptions=True)
