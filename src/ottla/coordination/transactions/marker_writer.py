"""Writes transaction markers into partitions, led by this broker or by others.

A marker for a partition of `__consumer_offsets` goes through its shard, which holds the offsets committed in the
transaction. Partitions led by other brokers get theirs by WriteTxnMarkers. Which markers are due, and retries, are
up to the transaction coordinator.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from ottla.coordination.groups.coordinator import TOPIC as OFFSETS_TOPIC
from ottla.coordination.groups.coordinator import GroupsShard
from ottla.coordination.transactions.peer_requests import AskPeer, write_markers_at
from ottla.metadata.image import ClusterImage, PartitionImage
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import NotLeaderError, OttlaError
from ottla.model.ids import BrokerId, TopicPartition
from ottla.replication.partition import TransactionEnd
from ottla.replication.partition_table import PartitionTable
from ottla.storage.log import Appended

_LOGGER: Final = logging.getLogger(__name__)

_GONE: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})

MarkerOutcomes = dict[TopicPartition, ErrorCode]


class MarkerWriter:
    """Writes markers, and reports the outcome of each once it is committed.

    `offsets_shard` gives the shard of a partition of `__consumer_offsets`, if this broker has it.
    """

    def __init__(
        self,
        broker_id: BrokerId,
        partitions: PartitionTable,
        *,
        image: Callable[[], ClusterImage],
        offsets_shard: Callable[[int], GroupsShard | None],
        ask_peer: AskPeer,
    ) -> None:
        self._broker_id = broker_id
        self._partitions = partitions
        self._image = image
        self._offsets_shard = offsets_shard
        self._ask_peer = ask_peer
        self._tasks: set[asyncio.Task[None]] = set()

    def write(
        self,
        end: TransactionEnd,
        partitions: Sequence[TopicPartition],
        on_done: Callable[[MarkerOutcomes], None],
        *,
        only_here: bool = False,
    ) -> None:
        """Writes a marker to each partition and calls `on_done` once with all outcomes, possibly before it returns.

        UNKNOWN_TOPIC_OR_PARTITION means that the partition is not in the cluster as this broker knows it. A partition
        that its leader does not have yet, or no longer, is NOT_LEADER_OR_FOLLOWER. With `only_here` no other broker is
        asked, and a partition led by another broker is NOT_LEADER_OR_FOLLOWER.
        """
        gathering = _Gathering(partitions, lambda outcomes: on_done(self._checked(outcomes)))
        elsewhere: dict[BrokerId, list[int]] = {}
        for at, name in enumerate(partitions):
            try:
                self._append(end, name, gathering, at)
            except NotLeaderError as error:
                leader = None if only_here else self._leader_of(name)
                if leader is None:
                    gathering.note(at, error.code)
                else:
                    elsewhere.setdefault(leader, []).append(at)
            except OttlaError as error:
                gathering.note(at, error.code)
        for leader, places in elsewhere.items():
            task = asyncio.get_running_loop().create_task(self._ask(leader, end, partitions, places, gathering))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if not partitions:
            on_done({})

    async def _ask(
        self,
        leader: BrokerId,
        end: TransactionEnd,
        partitions: Sequence[TopicPartition],
        places: Sequence[int],
        gathering: "_Gathering",
    ) -> None:
        outcomes: MarkerOutcomes = {}
        try:
            outcomes = await write_markers_at(self._ask_peer, leader, end, [partitions[at] for at in places])
        except OttlaError as error:
            _LOGGER.info(
                "cannot send transaction markers of producer %d to broker %d: %s", end.producer_id, leader, error
            )
        for at in places:
            gathering.note(at, outcomes.get(partitions[at], ErrorCode.NOT_LEADER_OR_FOLLOWER))

    async def write_and_wait(self, end: TransactionEnd, partitions: Sequence[TopicPartition]) -> MarkerOutcomes:
        """`write` for WriteTxnMarkers from another broker: only to partitions led here."""
        done: asyncio.Future[MarkerOutcomes] = asyncio.get_running_loop().create_future()
        self.write(end, partitions, lambda outcomes: None if done.done() else done.set_result(outcomes), only_here=True)
        return await done

    def _append(self, end: TransactionEnd, name: TopicPartition, gathering: "_Gathering", at: int) -> None:
        shard = self._offsets_shard(name.partition) if name.topic == OFFSETS_TOPIC else None
        if shard is not None:
            shard.append_marker(end, gathering, at)
        else:
            self._partitions.find(*name).append_marker(end, gathering, at)

    def _checked(self, outcomes: MarkerOutcomes) -> MarkerOutcomes:
        """Turns "unknown partition" into a retriable error while the image has the partition.

        The coordinator gives up the marker of an unknown partition. If the partition does exist, the records of an
        aborted transaction would then be committed by the producer's next one. One broker may know an older or newer
        image, so its word alone is not enough.
        """
        return {
            name: ErrorCode.NOT_LEADER_OR_FOLLOWER if error in _GONE and self._partition(name) is not None else error
            for name, error in outcomes.items()
        }

    def _partition(self, name: TopicPartition) -> PartitionImage | None:
        topic = self._image().topics.get(name.topic)
        return topic.partitions[name.partition] if topic and 0 <= name.partition < len(topic.partitions) else None

    def _leader_of(self, name: TopicPartition) -> BrokerId | None:
        """The other live broker that leads a partition, as far as this broker knows."""
        partition = self._partition(name)
        if partition is None:
            return None
        leader = partition.leader
        return leader if leader != self._broker_id and leader in self._image().brokers else None


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
        """A marker is in the log but not yet committed: keep waiting."""

    def note(self, at: int, error: ErrorCode) -> None:
        """Records the outcome of one marker; the last one completes the write."""
        self._outcomes[self._partitions[at]] = error
        self._missing -= 1
        if self._missing == 0:
            self._on_done(self._outcomes)
