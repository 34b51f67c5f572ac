"""All transactional ids that this broker coordinates: one shard for each partition of `__transaction_state` it leads.

Carries out what the shards ask for beyond writing: markers, and producer ids. What a transaction's requests mean is in
`ottla.coordination`, what they look like on the wire in `handlers/transactions.py`.
"""

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

from ottla.broker.coordinator_shards import CoordinatorShards
from ottla.controller.decisions import NewTopic
from ottla.coordination.runtime.shard import Shard
from ottla.coordination.transactions.requests import EPOCH_BUMP_VERSION, NeedProducerId, SendMarkers
from ottla.metadata.image import BrokerImage
from ottla.model.errors import OttlaError
from ottla.model.ids import BrokerId
from ottla.records.layout import Marker
from ottla.replication.partition import Partition, TransactionEnd

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.coordination.transactions.shard_state import TransactionShard

_LOGGER: Final = logging.getLogger(__name__)
TOPIC: Final = "__transaction_state"

TransactionsShard = Shard["TransactionShard"]


class TransactionCoordinator:
    """See the module's docstring."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        # Without one of its records an id would have an older state again: a decided transaction could be decided
        # otherwise. Which ids are concerned is not known, so that none of the partition is served.
        self._shards: CoordinatorShards[TransactionShard] = CoordinatorShards(
            broker, TOPIC, self._make_shard, skips_corrupt=False
        )
        self._tasks: dict[asyncio.Task[None], None] = {}

    def shards(self) -> list[TransactionsShard]:
        """Those that are here, by partition; some may still be loading."""
        return self._shards.all()

    def shard_of(self, transactional_id: str) -> TransactionsShard:
        """The shard of a transactional id. Raises CoordinatorNotAvailableError or NotCoordinatorError."""
        return self._shards.of(transactional_id)

    def coordinator_of(self, transactional_id: str) -> BrokerId | None:
        """The other broker that coordinates a transactional id, if it is alive."""
        leader = self._shards.leader_of(transactional_id)
        return None if leader == self._broker.id else leader

    async def find(self, transactional_id: str) -> BrokerImage:
        """The broker that coordinates a transactional id; the first ever makes the topic."""
        return await self._shards.find(transactional_id, self._new_topic)

    # Life

    def on_image(self) -> None:
        """The cluster has changed, and what concerns this broker is true already."""
        self._shards.refresh()

    async def close(self) -> None:
        """Gives up every shard; transactions go on with whoever leads the partitions next."""
        await self._shards.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _make_shard(self, partition: Partition) -> TransactionsShard:
        from ottla.broker.coordinator_machines import transaction_machine

        broker = self._broker
        machine = transaction_machine(broker.config, partition.leader_epoch)
        shard = Shard(
            partition,
            machine,
            clock=broker.clock,
            disk=broker.world.disk,
            timers=broker.timers,
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
        """What the effect rests on is not safe yet, or never will be: markers are tried again, who asked is told."""
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
        self._broker.markers.write(
            end,
            sent.partitions,
            lambda outcomes: shard.tell(lambda now: shard.machine.on_markers_written(sent, outcomes, now)),
        )

    async def _give_producer_id(self, shard: TransactionsShard, need: NeedProducerId) -> None:
        try:
            producer_id = await self._broker.producer_ids.next()
            shard.check_active()
        except OttlaError as error:
            _LOGGER.warning("transactional id %r gets no producer id: %s", need.request.transactional_id, error)
            shard.carry_out(need.on_failure)
        else:
            shard.tell(lambda now: shard.machine.on_producer_id(need, producer_id, now))

    def _new_topic(self, broker_count: int) -> NewTopic:
        config = self._broker.config
        replicas = min(config.transaction_state_log_replication_factor, broker_count)
        return NewTopic(
            name=TOPIC,
            partition_count=config.transaction_state_log_num_partitions,
            replication_factor=replicas,
            configs={
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": str(min(config.transaction_state_log_min_isr, replicas)),
                "segment.bytes": str(config.transaction_state_log_segment_bytes),
                "unclean.leader.election.enable": "false",
            },
        )
