"""Commits the ISR changes that leaders propose to the metadata store.

`leader_state.py` decides what to propose; here it is committed, fenced by the partition's record and by the
registrations of all its replicas in the ISR. The outcome arrives with the image, like every change. A proposal whose
outcome is unknown, because the store did not answer, is committed again until it is known: a newer record settles it.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from ottla.controller.elections_state import TopicRules, settled, updates, with_isr
from ottla.env.ports import Clock
from ottla.metadata.features import ELIGIBLE_LEADER_REPLICAS_VERSION
from ottla.metadata.image import ClusterImage, PartitionImage
from ottla.metadata.image_follower import ImageFollower
from ottla.metadata.records import broker_key, partition_key
from ottla.metadata.store import ConflictError, MetadataStore
from ottla.model.errors import OttlaError
from ottla.model.ids import BrokerId, TopicPartition
from ottla.replication.leader_state import IsrProposal
from ottla.replication.partition import Partition
from ottla.replication.partition_table import PartitionTable

_LOGGER: Final = logging.getLogger(__name__)

COMMITTED_AT_ONCE_MAX: Final = 1000
_RETRY_SECONDS: Final = 0.2
_TICK_SECONDS_MAX: Final = 1.0


class _Pending:
    """A proposal that is not settled yet."""

    __slots__ = ("partition", "proposal")

    def __init__(self, partition: Partition, proposal: IsrProposal) -> None:
        self.partition = partition
        self.proposal = proposal

    @property
    def is_open(self) -> bool:
        """Whether it still matters: it is not settled by an image, and this broker still leads the partition."""
        leader = self.partition.leader
        return leader is not None and leader.proposal is self.proposal

    def refuse(self) -> None:
        if self.partition.leader is not None:
            self.partition.on_isr_refused(self.proposal)


class IsrProposals:
    """The ISR proposals of one broker's partitions. `run` until cancelled."""

    def __init__(
        self,
        me: BrokerId,
        store: MetadataStore,
        metadata: ImageFollower,
        partitions: PartitionTable,
        clock: Clock,
        *,
        lag_time_max_ms: int,
    ) -> None:
        self._me = me
        self._store = store
        self._metadata = metadata
        self._partitions = partitions
        self._clock = clock
        self._lag_seconds_max = lag_time_max_ms / 1000
        self._pending: list[_Pending] = []
        self._news = asyncio.Event()
        self.shrinks = 0
        """How often this broker, as leader, removed replicas from an ISR."""
        self.expansions = 0

    def on_follower_fetch(self, partition: Partition, replica: BrokerId) -> None:
        """To be called after a follower's fetch: one outside the ISR may have caught up."""
        if partition.leader is not None and replica not in partition.leader.isr:
            self.consider(partition)

    def consider(self, partition: Partition) -> None:
        """Proposes the ISR change that is due for a partition, if any."""
        leader, image = partition.leader, self._metadata.image
        if leader is None:
            return
        alive = {each: image.revision_of(broker_key(each)) for each in leader.followers if each in image.brokers}
        proposal = partition.propose_isr(self._clock.monotonic(), self._lag_seconds_max, alive)
        if proposal is not None:
            self._pending.append(_Pending(partition, proposal))
            self._news.set()

    async def run(self) -> None:
        """Looks for replicas that have fallen behind, and commits what was proposed."""
        tick = min(self._lag_seconds_max / 2, _TICK_SECONDS_MAX)
        while True:
            try:
                async with asyncio.timeout(tick):
                    await self._news.wait()
            except TimeoutError:
                for partition in list(self._partitions):
                    if partition.leader is not None and partition.leader.followers:
                        self.consider(partition)
            self._news.clear()
            while self._pending:
                some, self._pending = self._pending[:COMMITTED_AT_ONCE_MAX], self._pending[COMMITTED_AT_ONCE_MAX:]
                await self._commit(some)

    async def _commit(self, some: list[_Pending]) -> None:
        while some := [each for each in some if each.is_open]:
            image = self._metadata.image
            changed = []
            for each in some:
                record = self._record(each)
                if record is not None:
                    changed.append((TopicPartition(each.partition.topic, each.partition.index), record))
            some = [each for each in some if each.is_open]
            if not changed:
                return
            try:
                await self._store.commit(updates(image, changed))
                for where, record in changed:
                    self._on_committed(where, image.topics[where.topic].partitions[where.partition].isr, record.isr)
                return
            except ConflictError:
                # Another commit changed one of the partitions, or a registration in them; the image will show it.
                await self._metadata.wait_revision(image.revision + 1)
                some = [each for each in some if not self._is_outdated(each, image)]
            except OttlaError as error:
                _LOGGER.warning("%d ISR changes not committed, retrying in %g s: %s", len(some), _RETRY_SECONDS, error)
                await self._clock.sleep(_RETRY_SECONDS)

    def _on_committed(self, where: TopicPartition, before: Sequence[BrokerId], after: Sequence[BrokerId]) -> None:
        change = "changed"
        if len(after) < len(before):
            change = "shrunk"
            self.shrinks += 1
        elif len(after) > len(before):
            change = "expanded"
            self.expansions += 1
        _LOGGER.info("partition %s: ISR %s from %s to %s", where, change, _listed(before), _listed(after))

    def _is_outdated(self, pending: _Pending, decided_on: ClusterImage) -> bool:
        """Whether the record has changed since; if so, the proposal is refused, and another one may be due."""
        key = partition_key(pending.partition.topic, pending.partition.index)
        if self._metadata.image.revision_of(key) == decided_on.revision_of(key):
            return False
        pending.refuse()
        self.consider(pending.partition)
        return True

    def _record(self, pending: _Pending) -> PartitionImage | None:
        """The partition's record after a proposal; None, and the proposal is refused, if the image contradicts it."""
        image, partition = self._metadata.image, pending.partition
        where = TopicPartition(partition.topic, partition.index)
        topic = image.topics.get(partition.topic)
        record = None if topic is None else topic.partitions[partition.index]
        rules = TopicRules(
            min_in_sync=partition.min_insync_replicas,
            keeps_eligible=image.features.get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0) > 0,
        )
        if (
            record is None
            or record.leader != self._me
            or record.leader_epoch != partition.leader_epoch
            # A replica that was away must leave the ISR first: a record newer than its return would vouch for it.
            or settled(image, where, record, rules) != record
            or any(image.revision_of(broker_key(each)) != epoch for each, epoch in pending.proposal.added)
        ):
            pending.refuse()
            return None
        changed = with_isr(record, pending.proposal.isr, rules)
        # A replica that had lost its log has copied all of it by now.
        return replace(changed, lost=tuple(each for each in changed.lost if each not in changed.isr))


def _listed(isr: Sequence[BrokerId]) -> str:
    return f"[{','.join(map(str, isr))}]"
