"""Which replicas of a cluster have a log that cannot be used, or that holds a corrupt batch, and why.

Brokers say so in the error messages of DescribeProducers, the only answer of Kafka's protocol about a replica's log
that has room for words. Brokers that do not answer are left out: that they are silent is another finding.
"""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ottla.client.admin.transaction_requests import producers_request
from ottla.client.network.cluster import Cluster
from ottla.client.network.cluster_view import ClusterView
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.protocol.apis import ApiKey

_PARTITIONS_AT_ONCE: Final = 10_000
_TROUBLES: Final = frozenset({ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.CORRUPT_MESSAGE})
"""With a message, these speak of the log; other codes, such as NOT_LEADER_OR_FOLLOWER, do not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTrouble:
    """One replica's log. With `is_served`, everything except the corrupt batch can be read and written."""

    broker: int
    partition: TopicPartition
    reason: str
    is_served: bool

    def __str__(self) -> str:
        if self.is_served:
            return (
                f"partition {self.partition} has a corrupt batch on broker {self.broker}: {self.reason}; restore it"
                " from a backup, or let consumers skip it"
            )
        return f"partition {self.partition} is offline on broker {self.broker}: {self.reason}"


async def log_troubles(cluster: Cluster, view: ClusterView, brokers: Collection[int]) -> list[LogTrouble]:
    """Of all replicas on these brokers, which are asked at the same time; by broker and partition."""
    held: dict[int, list[TopicPartition]] = defaultdict(list)
    for name in sorted(view.topics):
        for each in view.topics[name].partitions:
            for broker in each.replicas:
                held[broker].append(TopicPartition(name, each.index))
    found = await asyncio.gather(*(_of_broker(cluster, each, held[each]) for each in sorted(brokers)))
    return [trouble for troubles in found for trouble in troubles]


async def _of_broker(cluster: Cluster, broker: int, held: Sequence[TopicPartition]) -> list[LogTrouble]:
    found: list[LogTrouble] = []
    for start in range(0, len(held), _PARTITIONS_AT_ONCE):
        request = producers_request(held[start : start + _PARTITIONS_AT_ONCE])
        try:
            response = await cluster.to_broker(broker, ApiKey.DESCRIBE_PRODUCERS, request)
        except OttlaError:
            break
        found += _troubles(broker, response.topics)
    return found


def _troubles(broker: int, topics: object) -> Iterator[LogTrouble]:
    for topic in topics:  # type: ignore[attr-defined]  # kio's classes have no common type
        for each in topic.partitions:
            if each.error_message is not None and ErrorCode(int(each.error_code)) in _TROUBLES:
                yield LogTrouble(
                    broker=broker,
                    partition=TopicPartition(topic.name, int(each.partition_index)),
                    reason=each.error_message,
                    is_served=int(each.error_code) != ErrorCode.KAFKA_STORAGE_ERROR,
                )
