"""Carries a leader's proposals for its ISRs to the metadata store.

`leader_state.py` decides what to propose; here it is committed, fenced by the partition's record and by the
registrations of everybody in it. What comes of it arrives with the image, like every change. A proposal whose fate is
unknown, because the store did not answer, is committed again until it is known: a record that has moved on settles it.
"""

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ottla.controller.elections_state import TopicRules, settled, updates, with_isr
from ottla.metadata.image import ClusterImage, PartitionImage
from ottla.metadata.records import broker_key, partition_key
from ottla.metadata.store import ConflictError
from ottla.model.errors import OttlaError
from ottla.model.ids import BrokerId, TopicPartition
from ottla.replication.leader_state import IsrProposal
from ottla.replication.partition import Partition

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

_LOGGER: Final = logging.getLogger(__name__)

COMMITTED_AT_ONCE_MAX: Final = 1000
_RETRY_SECONDS: Final = 0.2
_TICK_SECONDS_MAX: Final = 1.0


class _Asked:
    """One proposal on its way."""

    __slots__ = ("partition", "proposal")

    def __init__(self, partition: Partition, proposal: IsrProposal) -> None:
        self.partition = partition
        self.proposal = proposal

    @property
    def is_open(self) -> bool:
        """Whether it still matters: neither settled by an image, nor the partition led by another one."""
        leader = self.partition.leader
        return leader is not None and leader.proposal is self.proposal

    def refuse(self) -> None:
        if self.partition.leader is not None:
            self.partition.on_isr_refused(self.proposal)


class IsrChanges:
    """See the module's docstring; `run` until cancelled."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._asked: list[_Asked] = []
        self._news = asyncio.Event()
        self.shrinks = 0
        """ISRs that lost a replica by this broker's word as their leader."""
        self.expansions = 0

    def on_follower_fetch(self, partition: Partition, replica: BrokerId) -> None:
        """A follower has said how far it is; one from outside the ISR may have caught up by it."""
        if partition.leader is not None and replica not in partition.leader.isr:
            self.consider(partition)

    def consider(self, partition: Partition) -> None:
        """Proposes what is due for a partition."""
        leader, broker = partition.leader, self._broker
        if leader is None:
            return
        image = broker.image
        alive = {each: image.revision_of(broker_key(each)) for each in leader.followers if each in image.brokers}
        proposal = leader.propose(broker.clock.monotonic(), broker.config.replica_lag_time_max_ms / 1000, alive)
        if proposal is not None:
            self._asked.append(_Asked(partition, proposal))
            self._news.set()

    async def run(self) -> None:
        """Looks for replicas that have fallen behind, and commits what was proposed."""
        while True:
            tick = min(self._broker.config.replica_lag_time_max_ms / 2000, _TICK_SECONDS_MAX)
            try:
                async with asyncio.timeout(tick):
                    await self._news.wait()
            except TimeoutError:
                for partition in list(self._broker.partitions):
                    if partition.leader is not None and partition.leader.followers:
                        self.consider(partition)
            self._news.clear()
            while self._asked:
                some, self._asked = self._asked[:COMMITTED_AT_ONCE_MAX], self._asked[COMMITTED_AT_ONCE_MAX:]
                await self._commit(some)

    async def _commit(self, some: list[_Asked]) -> None:
        while some := [each for each in some if each.is_open]:
            image = self._broker.image
            changed = []
            for each in some:
                record = self._record(each)
                if record is not None:
                    changed.append((TopicPartition(each.partition.topic, each.partition.index), record))
            some = [each for each in some if each.is_open]
            if not changed:
                return
            try:
                await self._broker.metadata_store.commit(updates(image, changed))
                for where, record in changed:
                    before = image.topics[where.topic].partitions[where.partition].isr
                    self.shrinks += len(record.isr) < len(before)
                    self.expansions += len(record.isr) > len(before)
                return
            except ConflictError:
                # Somebody was faster, with one of the partitions or with a broker in them: the image will say what.
                await self._broker.wait_news(image.revision)
                some = [each for each in some if not self._is_outdated(each, image)]
            except OttlaError as error:
                _LOGGER.warning("%d changes of ISRs are not committed yet: %s", len(some), error)
                await self._broker.clock.sleep(_RETRY_SECONDS)

    def _is_outdated(self, asked: _Asked, decided_on: ClusterImage) -> bool:
        """Whether the record has changed since; then the proposal is refused, and another one may be due."""
        key = partition_key(asked.partition.topic, asked.partition.index)
        if self._broker.image.revision_of(key) == decided_on.revision_of(key):
            return False
        asked.refuse()
        self.consider(asked.partition)
        return True

    def _record(self, asked: _Asked) -> PartitionImage | None:
        """What to write for a proposal; None, and the proposal refused, if the image has moved on without it."""
        broker, partition = self._broker, asked.partition
        where = TopicPartition(partition.topic, partition.index)
        topic = broker.image.topics.get(partition.topic)
        record = None if topic is None else topic.partitions[partition.index]
        rules = TopicRules(min_in_sync=partition.min_insync_replicas)
        if (
            record is None
            or record.leader != broker.id
            or record.leader_epoch != partition.leader_epoch
            # A member that was away must go first: a record that is newer than its return would vouch for it.
            or settled(broker.image, where, record, rules) != record
            or any(broker.image.revision_of(broker_key(each)) != epoch for each, epoch in asked.proposal.added)
        ):
            asked.refuse()
            return None
        _LOGGER.info(
            "%s-%d: the ISR becomes %s, after %s",
            partition.topic, partition.index, list(asked.proposal.isr), list(record.isr),
        )  # fmt: skip
        changed = with_isr(record, asked.proposal.isr, rules)
        # A replica that had lost its log has copied everything by now.
        return replace(changed, lost=tuple(each for each in changed.lost if each not in changed.isr))
