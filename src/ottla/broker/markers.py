"""Transaction markers into partitions, wherever those are led.

Covers partitions of every topic; one of `__consumer_offsets` goes by way of its shard, which keeps offsets that wait
for their transaction. What another broker leads is asked of it with WriteTxnMarkers. Which markers are due, and trying
again, is the transaction coordinator's business.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from ottla.broker.group_coordinator import TOPIC as OFFSETS_TOPIC
from ottla.coordination.transactions.requests import EPOCH_BUMP_VERSION
from ottla.metadata.image import PartitionImage
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import NotLeaderError, OttlaError
from ottla.model.ids import BrokerId, TopicPartition
from ottla.protocol.apis import ApiKey
from ottla.records.layout import Marker
from ottla.replication.partition import TransactionEnd
from ottla.storage.log import Appended

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

_LOGGER: Final = logging.getLogger(__name__)

_GONE: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})

MarkerOutcomes = dict[TopicPartition, ErrorCode]


class Markers:
    """Writes markers, and tells how each fared once it is committed."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._tasks: set[asyncio.Task[None]] = set()

    def write(
        self,
        end: TransactionEnd,
        partitions: Sequence[TopicPartition],
        on_done: Callable[[MarkerOutcomes], None],
        *,
        only_here: bool = False,
    ) -> None:
        """Writes a marker to each partition; `on_done` hears of all together, perhaps before this returns.

        UNKNOWN_TOPIC_OR_PARTITION is for a partition that the cluster does not have, as this broker knows it; what its
        leader does not have yet, or no longer, is NOT_LEADER_OR_FOLLOWER. With `only_here` no other broker is asked,
        and what is not led here is NOT_LEADER_OR_FOLLOWER, too.
        """
        gathering = _Gathering(partitions, lambda outcomes: on_done(self._known(outcomes)))
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
            names = [partitions[at] for at in places]
            answer = await self._broker.peers.ask(leader, ApiKey.WRITE_TXN_MARKERS, _request(end, names))
            outcomes = {
                TopicPartition(topic.name, int(part.partition_index)): ErrorCode(int(part.error_code))
                for marker in answer.markers
                for topic in marker.topics
                for part in topic.partitions
            }
        except OttlaError as error:
            _LOGGER.info("broker %d cannot be told of a transaction's end: %s", leader, error)
        for at in places:
            gathering.note(at, outcomes.get(partitions[at], ErrorCode.NOT_LEADER_OR_FOLLOWER))

    async def write_and_wait(self, end: TransactionEnd, partitions: Sequence[TopicPartition]) -> MarkerOutcomes:
        """The same for another broker that asks, and so for what is led here only."""
        done: asyncio.Future[MarkerOutcomes] = asyncio.get_running_loop().create_future()
        self.write(end, partitions, lambda outcomes: None if done.done() else done.set_result(outcomes), only_here=True)
        return await done

    def _append(self, end: TransactionEnd, name: TopicPartition, gathering: "_Gathering", at: int) -> None:
        shard = self._broker.groups.shard_at(name.partition) if name.topic == OFFSETS_TOPIC else None
        if shard is not None:
            shard.append_marker(end, gathering, at)
        else:
            self._broker.partitions.find(*name).append_marker(end, gathering, at)

    def _known(self, outcomes: MarkerOutcomes) -> MarkerOutcomes:
        """Who is told that a partition is gone gives its marker up, and a transaction that was aborted there would be
        committed by the next. So one broker's word for it is not enough: it may know the cluster as it will be or was.
        """
        return {
            name: ErrorCode.NOT_LEADER_OR_FOLLOWER if error in _GONE and self._partition(name) is not None else error
            for name, error in outcomes.items()
        }

    def _partition(self, name: TopicPartition) -> PartitionImage | None:
        topic = self._broker.image.topics.get(name.topic)
        return topic.partitions[name.partition] if topic and 0 <= name.partition < len(topic.partitions) else None

    def _leader_of(self, name: TopicPartition) -> BrokerId | None:
        """Who leads a partition that is not led here, as far as is known."""
        partition = self._partition(name)
        if partition is None:
            return None
        leader = partition.leader
        return leader if leader != self._broker.id and leader in self._broker.image.brokers else None


def _request(end: TransactionEnd, names: Sequence[TopicPartition]) -> Any:
    from kio.schema.types import ProducerId, TopicName
    from kio.schema.write_txn_markers.v2.request import (
        WritableTxnMarker,
        WritableTxnMarkerTopic,
        WriteTxnMarkersRequest,
    )
    from kio.static.primitive import i8, i16, i32

    topics: dict[str, list[int]] = {}
    for name in names:
        topics.setdefault(name.topic, []).append(name.partition)
    marker = WritableTxnMarker(
        producer_id=ProducerId(end.producer_id),
        producer_epoch=i16(end.producer_epoch),
        transaction_result=end.marker is Marker.COMMIT,
        topics=tuple(
            WritableTxnMarkerTopic(name=TopicName(topic), partition_indexes=tuple(i32(index) for index in indexes))
            for topic, indexes in topics.items()
        ),
        coordinator_epoch=i32(end.coordinator_epoch),
        transaction_version=i8(EPOCH_BUMP_VERSION if end.must_exceed_epoch else 0),
    )
    return WriteTxnMarkersRequest(markers=(marker,))


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
