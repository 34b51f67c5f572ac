"""Admin requests about the brokers that decide: the metadata quorum, and brokers that are gone for good."""

from dataclasses import dataclass
from typing import Any, Final

from ottla.client.errors import answer_error
from ottla.client.network.cluster import Cluster
from ottla.protocol.apis import ApiKey

_TOPIC: Final = "__cluster_metadata"


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumReplica:
    """A broker or controller that has the cluster's metadata. Timestamps are None if they are not known."""

    replica_id: int
    log_end_offset: int
    last_fetch_ms: int | None
    last_caught_up_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumInfo:
    """Which brokers or controllers write the cluster's metadata, and how far the others have followed.

    A cluster of Ottla has one voter, the controller, and counts revisions of its metadata store as offsets.
    """

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]


async def describe_quorum(cluster: Cluster) -> QuorumInfo:
    """The quorum of the cluster's metadata."""
    from kio.schema.describe_quorum.v2.request import DescribeQuorumRequest, PartitionData, TopicData
    from kio.schema.types import TopicName
    from kio.static.primitive import i32

    partitions = (PartitionData(partition_index=i32(0)),)
    message = DescribeQuorumRequest(topics=(TopicData(topic_name=TopicName(_TOPIC), partitions=partitions),))

    async def ask() -> QuorumInfo:
        response = await cluster.to_any(ApiKey.DESCRIBE_QUORUM, message)
        if response.error_code:
            raise answer_error(int(response.error_code), "the metadata quorum", response.error_message)
        found = response.topics[0].partitions[0]
        if found.error_code:
            raise answer_error(int(found.error_code), "the metadata quorum", found.error_message)
        return QuorumInfo(
            leader_id=int(found.leader_id),
            leader_epoch=int(found.leader_epoch),
            high_watermark=int(found.high_watermark),
            voters=tuple(map(_replica, found.current_voters)),
            observers=tuple(map(_replica, found.observers)),
        )

    return await cluster.retry(ask)


async def unregister_broker(cluster: Cluster, broker: int) -> None:
    """Unregisters a broker that will not come back."""
    from kio.schema.types import BrokerId
    from kio.schema.unregister_broker.v0.request import UnregisterBrokerRequest

    message = UnregisterBrokerRequest(broker_id=BrokerId(broker))

    async def ask() -> None:
        response = await cluster.to_controller(ApiKey.UNREGISTER_BROKER, message)
        if response.error_code:
            raise answer_error(int(response.error_code), f"broker {broker}", response.error_message)

    await cluster.retry(ask)


def _replica(found: Any) -> QuorumReplica:
    fetched, caught_up = int(found.last_fetch_timestamp), int(found.last_caught_up_timestamp)
    return QuorumReplica(
        replica_id=int(found.replica_id),
        log_end_offset=int(found.log_end_offset),
        last_fetch_ms=fetched if fetched >= 0 else None,
        last_caught_up_ms=caught_up if caught_up >= 0 else None,
    )
