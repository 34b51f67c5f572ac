"""The metadata of a cluster as a client knows it: brokers, topics, partitions and leaders. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from ottla.client.errors import answer_error
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.transport.addresses import Address


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerView:
    """One broker, with its advertised address."""

    id: int
    address: Address
    rack: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionView:
    """One partition. `leader` is None while it has none; all ids are broker ids."""

    index: int
    leader: int | None
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicView:
    """One topic; its partitions are in order, without gaps."""

    name: str
    id: UUID | None
    is_internal: bool
    partitions: tuple[PartitionView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """The metadata received so far. A response about some topics leaves the others as they were."""

    cluster_id: str | None = None
    controller: int | None = None
    brokers: Mapping[int, BrokerView] = field(default_factory=dict)
    topics: Mapping[str, TopicView] = field(default_factory=dict)
    errors: Mapping[str, ErrorCode] = field(default_factory=dict)
    """Why a requested topic is not in `topics`."""

    def merge(self, response: Any, *, whole: bool) -> "ClusterView":
        """The view after a Metadata response of the newest version; `whole` if all topics were requested."""
        if response.error_code:
            raise answer_error(int(response.error_code), "the cluster's metadata")
        topics: dict[str, TopicView] = {} if whole else dict(self.topics)
        errors: dict[str, ErrorCode] = {} if whole else dict(self.errors)
        for topic in response.topics:
            name = topic.name
            if name is None:
                continue
            topics.pop(name, None)
            errors.pop(name, None)
            if topic.error_code:
                errors[name] = ErrorCode(int(topic.error_code))
            else:
                topics[name] = _newest(_topic_view(topic), self.topics.get(name))
        return ClusterView(
            cluster_id=response.cluster_id,
            controller=None if response.controller_id < 0 else int(response.controller_id),
            brokers={
                int(each.node_id): BrokerView(
                    id=int(each.node_id), address=Address(each.host, int(each.port)), rack=each.rack
                )
                for each in response.brokers
            },
            topics=topics,
            errors=errors,
        )

    def racks(self, topics: Iterable[str]) -> dict[TopicPartition, frozenset[str]]:
        """The racks in which partitions of these topics have replicas; empty if no broker has a rack."""
        rack_of = {each.id: each.rack for each in self.brokers.values() if each.rack is not None}
        if not rack_of:
            return {}
        return {
            TopicPartition(name, partition.index): frozenset(
                rack_of[broker] for broker in partition.replicas if broker in rack_of
            )
            for name in topics
            if name in self.topics
            for partition in self.topics[name].partitions
        }


def _newest(told: TopicView, known: TopicView | None) -> TopicView:
    """The new metadata, except where its leader epoch is lower: brokers receive changes at different times."""
    if known is None or known.id is None or known.id != told.id:
        return told
    if known == told:
        # Kept, so that a refresh of many topics replaces only what has changed.
        return known
    partitions = list(told.partitions)
    for index, (new, old) in enumerate(zip(told.partitions, known.partitions, strict=False)):
        if new.leader_epoch < old.leader_epoch:
            partitions[index] = old
    # Brokers call parking companions internal in responses with all topics, not if the request names them.
    return replace(told, partitions=tuple(partitions), is_internal=told.is_internal or known.is_internal)


def _topic_view(topic: Any) -> TopicView:
    partitions = [
        PartitionView(
            index=int(each.partition_index),
            leader=None if each.leader_id < 0 else int(each.leader_id),
            leader_epoch=int(each.leader_epoch),
            replicas=tuple(map(int, each.replica_nodes)),
            isr=tuple(map(int, each.isr_nodes)),
            offline=tuple(map(int, each.offline_replicas)),
        )
        for each in sorted(topic.partitions, key=lambda each: int(each.partition_index))
    ]
    return TopicView(
        name=topic.name, id=topic.topic_id, is_internal=bool(topic.is_internal), partitions=tuple(partitions)
    )
