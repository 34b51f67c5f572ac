"""An internal topic whose partitions coordinate ids: `__consumer_offsets` and `__transaction_state`.

Says which partition an id belongs to and which broker leads that partition, and creates the topic when the first id is
looked up. The state of the partitions led by this broker is in `coordinator_shards.py`.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import Final

from ottla.metadata.image import NO_LEADER, BrokerImage, ClusterImage
from ottla.model.errors import CoordinatorNotAvailableError
from ottla.model.ids import BrokerId


class InternalTopic:
    """`create` creates the topic and returns once it is in `image`, also if it existed already."""

    def __init__(
        self,
        name: str,
        *,
        image: Callable[[], ClusterImage],
        create: Callable[[], Awaitable[None]],
    ) -> None:
        self.name: Final = name
        self._image = image
        self._create = create
        self._creation = asyncio.Lock()

    def partition_of(self, id: str) -> int:
        """The partition that an id belongs to. Raises CoordinatorNotAvailableError before the topic exists."""
        topic = self._image().topics.get(self.name)
        if topic is None:
            raise CoordinatorNotAvailableError(f"topic {self.name} does not exist yet; send FindCoordinator first")
        return partition_of(id, len(topic.partitions))

    def leader_of(self, id: str) -> BrokerId | None:
        """The live broker that coordinates an id. Raises CoordinatorNotAvailableError before the topic exists."""
        index, image = self.partition_of(id), self._image()
        leader = image.topics[self.name].partitions[index].leader
        return leader if leader in image.brokers else None

    async def find(self, id: str) -> BrokerImage:
        """The broker that coordinates an id; creates the topic first if it does not exist.

        Raises CoordinatorNotAvailableError if the topic cannot be created or the partition has no leader.
        """
        if self.name not in self._image().topics:
            async with self._creation:
                if self.name not in self._image().topics:
                    await self._create()
        image = self._image()
        index = self.partition_of(id)
        leader = image.topics[self.name].partitions[index].leader
        found = None if leader == NO_LEADER else image.brokers.get(leader)
        if found is None:
            raise CoordinatorNotAvailableError(
                f"partition {self.name}-{index}, which coordinates {id!r}, has no leader; retry"
            )
        return found


def partition_of(id: str, count: int) -> int:
    """The partition that an id belongs to: Java's String.hashCode modulo the partition count, as in Kafka."""
    value = _known_hash(id) if len(id) <= _HASHED_LENGTH_MAX else _hash(id)
    # The smallest int has no positive counterpart; Kafka uses 0.
    return 0 if value == -(2**31) else abs(value) % count


def _hash(id: str) -> int:
    encoded = id.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(encoded), 2):
        value = (31 * value + (encoded[at] << 8 | encoded[at + 1])) & 0xFFFFFFFF
    return value - 2**32 if value >= 2**31 else value


_HASHED_LENGTH_MAX: Final = 256
_known_hash: Final = lru_cache(maxsize=4096)(_hash)
"""Every group request needs the hash. Unusually long ids are not cached, to bound the memory."""
