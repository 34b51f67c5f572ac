"""The transaction coordinator: one shard for each partition of `__transaction_state` that this broker leads.

Carries out what the shards need besides writing: transaction markers and producer ids. Also adds partitions to a
transaction wherever its coordinator is. What a transaction's requests mean is decided by the shards' machines, the wire
format is in `broker/handlers/`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from ottla.coordination.runtime.coordinator_shards import CoordinatorShards
from ottla.coordination.runtime.internal_topic import InternalTopic
from ottla.coordination.runtime.shard import Shard
from ottla.coordination.transactions.marker_writer import MarkerWriter
from ottla.coordination.transactions.peer_requests import AskPeer, add_partitions_at, all_failed
from ottla.coordination.transactions.requests import (
    EPOCH_BUMP_VERSION,
    AddPartitions,
    AddPartitionsResponse,
    NeedProducerId,
    SendMarkers,
)
from ottla.env.ports import Clock, Disk
from ottla.model.errors import NotCoordinatorError, OttlaError
from ottla.model.ids import BrokerId, LeaderEpoch, ProducerId
from ottla.records.layout import Marker
from ottla.replication.partition import Partition, TransactionEnd
from ottla.replication.partition_table import PartitionTable
from ottla.replication.timers import Timers

if TYPE_CHECKING:
    # The machine is imported with the first shard: a broker without transactions starts faster without it.
    from ottla.coordination.transactions.shard_state import TransactionShard

_LOGGER: Final = logging.getLogger(__name__)
TOPIC: Final = "__transaction_state"

TransactionsShard = Shard["TransactionShard"]


class TransactionCoordinator:
    """The shards of all transactional ids coordinated by this broker, and which broker coordinates an id.

    `make_machine` builds the state machine of a shard, for the leader epoch of its partition.
    """

    def __init__(
        self,
        broker_id: BrokerId,
        topic: InternalTopic,
        partitions: PartitionTable,
        *,
        clock: Clock,
        disk: Disk,
        timers: Timers,
        make_machine: "Callable[[LeaderEpoch], TransactionShard]",
        markers: MarkerWriter,
        next_producer_id: Callable[[], Awaitable[ProducerId]],
        ask_peer: AskPeer,
    ) -> None:
        self._broker_id = broker_id
        self._topic = topic
        self._clock = clock
        self._disk = disk
        self._timers = timers
        self._make_machine = make_machine
        self._markers = markers
        self._next_producer_id = next_producer_id
        self._ask_peer = ask_peer
        # A partition with a corrupt batch is not served: without one of its records an id would have an older state
        # again, and a decided transaction could be decided otherwise. Which ids are concerned is not known.
        self._shards: CoordinatorShards[TransactionShard] = CoordinatorShards(
            topic, partitions, clock, self._make_shard
        )
        self.shards: Final = self._shards.all
        self.shard_of: Final = self._shards.of
        self.find: Final = topic.find
        self._tasks: dict[asyncio.Task[None], None] = {}

    def coordinator_of(self, transactional_id: str) -> BrokerId | None:
        """The other broker that coordinates a transactional id, if it is alive."""
        leader = self._topic.leader_of(transactional_id)
        return None if leader == self._broker_id else leader

    # Adding partitions

    def add_partitions(self, request: AddPartitions) -> "asyncio.Future[AddPartitionsResponse]":
        """AddPartitionsToTxn at the coordinator, on this broker or another; a failure is every partition's error.

        If the coordinator is on this broker the answer is mostly there at once.
        """
        return self._add_partitions(request, elsewhere=True)

    def add_partitions_here(self, request: AddPartitions) -> "asyncio.Future[AddPartitionsResponse]":
        """`add_partitions` for a request that a client or another broker sent to this broker as the coordinator.

        It must not be passed on: it may be older than what its client has done since, and two brokers that take each
        other for the coordinator would never stop.
        """
        return self._add_partitions(request, elsewhere=False)

    def _add_partitions(self, request: AddPartitions, *, elsewhere: bool) -> "asyncio.Future[AddPartitionsResponse]":
        answer: asyncio.Future[AddPartitionsResponse] = asyncio.get_running_loop().create_future()
        try:
            shard = self.shard_of(request.transactional_id)
            shard.check_active()
        except NotCoordinatorError as error:
            coordinator = self.coordinator_of(request.transactional_id) if elsewhere else None
            if coordinator is not None:
                asked = add_partitions_at(self._ask_peer, coordinator, request)
                return asyncio.get_running_loop().create_task(asked)
            answer.set_result(all_failed(request, error.code))
        except OttlaError as error:
            answer.set_result(all_failed(request, error.code))
        else:
            shard.carry_out(shard.machine.add_partitions(request, shard.now_ms(), answer))
        return answer

    # Life

    def on_image(self) -> None:
        """The image has changed, and this broker's partitions match it already."""
        self._shards.refresh()

    async def close(self) -> None:
        """Unloads every shard; open transactions continue at the next leaders of the partitions."""
        await self._shards.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _make_shard(self, partition: Partition) -> TransactionsShard:
        shard = Shard(
            partition,
            self._make_machine(partition.leader_epoch),
            clock=self._clock,
            disk=self._disk,
            timers=self._timers,
            perform=lambda effect: self._perform(shard, effect),
            leave_out=lambda effect: self._leave_out(shard, effect),
        )
        return shard

    # What shards ask for

    def _perform(self, shard: TransactionsShard, effect: Any) -> None:
        match effect:
            case SendMarkers():
                self._send_markers(shard, effect)
            case NeedProducerId():
                task = asyncio.get_running_loop().create_task(self._give_producer_id(shard, effect))
                self._tasks[task] = None
                task.add_done_callback(self._tasks.pop)

    def _leave_out(self, shard: TransactionsShard, effect: Any) -> None:
        """The records that the effect depends on are not committed: markers are retried, the client gets an error."""
        match effect:
            case SendMarkers():
                shard.tell(lambda now: shard.machine.on_markers_written(effect, {}, now))
            case NeedProducerId():
                shard.carry_out(effect.on_failure)

    def _send_markers(self, shard: TransactionsShard, sent: SendMarkers) -> None:
        end = TransactionEnd(
            marker=Marker.COMMIT if sent.commit else Marker.ABORT,
            producer_id=sent.producer_id,
            producer_epoch=sent.producer_epoch,
            coordinator_epoch=sent.coordinator_epoch,
            must_exceed_epoch=sent.transaction_version >= EPOCH_BUMP_VERSION,
        )
        self._markers.write(
            end,
            sent.partitions,
            lambda outcomes: shard.tell(lambda now: shard.machine.on_markers_written(sent, outcomes, now)),
        )

    async def _give_producer_id(self, shard: TransactionsShard, need: NeedProducerId) -> None:
        try:
            producer_id = await self._next_producer_id()
            shard.check_active()
        except OttlaError as error:
            _LOGGER.warning("cannot allocate a producer id for %r: %s", need.request.transactional_id, error)
            shard.carry_out(need.on_failure)
        else:
            shard.tell(lambda now: shard.machine.on_producer_id(need, producer_id, now))
