"""What no client of a broker sees: the only module of these tests that looks behind its front door, `Broker.parts`.

A test uses it for what it cannot bring about or observe with requests, metrics, files, clocks, disks and the network.
`tests/test_tidy.py` refuses `.parts` in every other test of a broker.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from ottla.broker.broker import Broker
from ottla.broker.handlers.records.fetch import _follower_of
from ottla.coordination.groups.coordinator import GroupsShard
from ottla.coordination.transactions.coordinator import TransactionCoordinator, TransactionsShard
from ottla.coordination.transactions.verification import TransactionVerification
from ottla.metadata.image import ClusterImage
from ottla.model.errors import OttlaError
from ottla.model.ids import BrokerId, LeaderEpoch, TopicPartition
from ottla.protocol.replica_fetch_frames import Follower
from ottla.protocol.scan import FetchRequest
from ottla.queues.queue_shard import QueueShard
from ottla.records.batch import Batch
from ottla.replication.leader_state import LeaderState
from ottla.replication.partition import Partition
from ottla.replication.replica_fetcher import ReplicaFetchers
from ottla.security.connection_context import ConnectionContext
from ottla.sim.clock import START_MS
from ottla.transport.connection import Slot


def connections(broker: Broker) -> list[ConnectionContext]:
    """Who is connected: principals and listeners."""
    return [connection.context for connection in broker.parts.listeners.connections]


def group_shard(broker: Broker, group_id: str) -> GroupsShard:
    """The shard that coordinates a group."""
    return broker.parts.groups.shard_of(group_id)


def transaction_shard(broker: Broker, transactional_id: str) -> TransactionsShard:
    """The shard that coordinates a transactional id."""
    return broker.parts.transactions.shard_of(transactional_id)


def queue_shard(broker: Broker, topic: str, partition: int = 0) -> QueueShard:
    """The queue of a partition."""
    shard = broker.parts.queues.get(TopicPartition(topic, partition))
    assert shard is not None
    return shard


def transaction_coordinator(broker: Broker) -> TransactionCoordinator:
    """The coordinator of transactions on this broker."""
    return broker.parts.transactions


def verification(broker: Broker) -> TransactionVerification:
    """What decides whether transactional batches are appended."""
    return broker.parts.services.verification


def follower_of(broker: Broker, request: FetchRequest, slot: Slot) -> Follower | None:
    """The follower that a fetch is believed to come from."""
    return _follower_of(broker.parts.services, request, slot)


@contextmanager
def showing(broker: Broker, image: ClusterImage) -> Iterator[None]:
    """Handlers see this image meanwhile."""
    services = broker.parts.services
    read_image = services.read_image
    object.__setattr__(services, "read_image", lambda: image)
    yield
    object.__setattr__(services, "read_image", read_image)


def replica_fetchers(broker: Broker) -> ReplicaFetchers:
    """What copies from the leaders of other brokers."""
    return broker.parts.fetchers


@contextmanager
def unserved(broker: Broker, topic: str) -> Iterator[None]:
    """The first partition of a topic is not served meanwhile, as if it had no leader."""
    partition = broker.partitions.find(topic, 0)
    broker.partitions.remove(partition)
    yield
    broker.partitions.add(partition)


def append(partition: Partition, *batches: Batch, committed: bool = True) -> None:
    """Batches in a partition's log; unless committed, beyond its high watermark."""
    outcomes = partition.log.append(list(batches), leader_epoch=partition.leader_epoch, now=START_MS)
    assert [] == [outcome for outcome in outcomes if isinstance(outcome, OttlaError)]
    if committed:
        partition.on_flushed(partition.end_offset)


def elect_again(partition: Partition, epoch: LeaderEpoch) -> None:
    """The partition leads in this epoch, as if this broker had been elected again."""
    old = partition.leader
    assert old is not None
    partition.become_leader(
        LeaderState(
            BrokerId(0),
            replicas=old.replicas,
            isr=old.isr,
            leader_epoch=epoch,
            epoch_start=partition.end_offset,
        )
    )


def held_batches(broker: Broker) -> int:
    """How many batches wait for the schema registry."""
    return sum(map(len, list(broker.parts.services.held_batches.places.values())))
