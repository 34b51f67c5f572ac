"""Transaction markers into the partitions that this broker leads, whoever decided on them.

Covers partitions of every topic; one of `__consumer_offsets` goes by way of its shard, which keeps offsets that wait
for their transaction. Which markers are due is the transaction coordinator's business.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ottla.broker.group_coordinator import TOPIC as OFFSETS_TOPIC
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import OttlaError, UnknownPartitionError
from ottla.model.ids import TopicPartition
from ottla.replication.partition import TransactionEnd
from ottla.storage.log import Appended

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

MarkerOutcomes = dict[TopicPartition, ErrorCode]


class Markers:
    """Writes markers, and tells how each fared once it is committed."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker

    def write(
        self, end: TransactionEnd, partitions: Sequence[TopicPartition], on_done: Callable[[MarkerOutcomes], None]
    ) -> None:
        """Writes a marker to each partition; `on_done` hears of all together, perhaps before this returns.

        UNKNOWN_TOPIC_OR_PARTITION is for a partition that the cluster does not have.
        """
        gathering = _Gathering(partitions, on_done)
        for at, name in enumerate(partitions):
            try:
                self._append(end, name, gathering, at)
            except UnknownPartitionError as error:
                gathering.note(at, error.code if self._is_gone(name) else ErrorCode.NOT_LEADER_OR_FOLLOWER)
            except OttlaError as error:
                gathering.note(at, error.code)
        if not partitions:
            on_done({})

    async def write_and_wait(self, end: TransactionEnd, partitions: Sequence[TopicPartition]) -> MarkerOutcomes:
        """The same, for one who can wait."""
        done: asyncio.Future[MarkerOutcomes] = asyncio.get_running_loop().create_future()
        self.write(end, partitions, lambda outcomes: None if done.done() else done.set_result(outcomes))
        return await done

    def _append(self, end: TransactionEnd, name: TopicPartition, gathering: "_Gathering", at: int) -> None:
        shard = self._broker.groups.shard_at(name.partition) if name.topic == OFFSETS_TOPIC else None
        if shard is not None:
            shard.append_marker(end, gathering, at)
        else:
            self._broker.partitions.find(*name).append_marker(end, gathering, at)

    def _is_gone(self, name: TopicPartition) -> bool:
        topic = self._broker.image.topics.get(name.topic)
        return topic is None or name.partition >= len(topic.partitions)


class _Gathering:
    """The outcomes of one `write`."""

    def __init__(self, partitions: Sequence[TopicPartition], on_done: Callable[[MarkerOutcomes], None]) -> None:
        self._partitions = partitions
        self._on_done = on_done
        self._outcomes: MarkerOutcomes = {}
        self._missing = len(partitions)

    def on_outcome(self, at: int, outcome: Appended | OttlaError) -> None:
        """A marker is committed, or has failed."""
        self.note(at, ErrorCode.NONE if isinstance(outcome, Appended) else outcome.code)

    def on_waiting(self) -> None:
        """A marker is written; that is not enough."""

    def note(self, at: int, error: ErrorCode) -> None:
        """One more is decided."""
        self._outcomes[self._partitions[at]] = error
        self._missing -= 1
        if self._missing == 0:
            self._on_done(self._outcomes)
