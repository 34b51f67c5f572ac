"""Finds replicas whose log is offline or holds a corrupt batch, with the reason.

Brokers report this in the error messages of DescribeProducers, the only response of Kafka's protocol about the log of
a replica that has a message. Brokers that do not respond are left out.
"""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ottla.client.admin.transaction_requests import producers_request
from ottla.client.network.cluster import Cluster
from ottla.client.network.cluster_view import ClusterView
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.protocol.apis import ApiKey

_PARTITIONS_AT_ONCE: Final = 10_000
_LOG_CODES: Final = frozenset({ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.CORRUPT_MESSAGE})
"""Codes whose message is about the log; others, such as NOT_LEADER_OR_FOLLOWER, are not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedLog:
    """One replica's log. With `is_served`, everything except corrupt or lost batches can be read and written."""

    broker: int
    partition: TopicPartition
    reason: str
    is_served: bool

    def __str__(self) -> str:
        if self.is_served:
            return (
                f"partition {self.partition} is damaged on broker {self.broker}: {self.reason}; restore the log from"
                " a backup, or let consumers skip these offsets"
            )
        return f"partition {self.partition} is offline on broker {self.broker}: {self.reason}"


async def damaged_logs(cluster: Cluster, view: ClusterView, brokers: Collection[int]) -> list[DamagedLog]:
    """The damaged logs among all replicas on these brokers, by broker and partition."""
    held: dict[int, list[TopicPartition]] = defaultdict(list)
    for name in sorted(view.topics):
        for each in view.topics[name].partitions:
            for broker in each.replicas:
                held[broker].append(TopicPartition(name, each.index))
    found = await asyncio.gather(*(_of_broker(cluster, each, held[each]) for each in sorted(brokers)))
    return [log for logs in found for log in logs]


async def _of_broker(cluster: Cluster, broker: int, held: Sequence[TopicPartition]) -> list[DamagedLog]:
    found: list[DamagedLog] = []
    for start in range(0, len(held), _PARTITIONS_AT_ONCE):
        request = producers_request(held[start : start + _PARTITIONS_AT_ONCE])
        try:
            response = await cluster.to_broker(broker, ApiKey.DESCRIBE_PRODUCERS, request)
        except OttlaError:
            break
        found += _damaged(broker, response.topics)
    return found


def _damaged(broker: int, topics: Iterable[Any]) -> Iterator[DamagedLog]:
    # The classes of kio have no common type.
    for topic in topics:
        for each in topic.partitions:
            if each.error_message is not None and ErrorCode(int(each.error_code)) in _LOG_CODES:
                yield DamagedLog(
                    broker=broker,
                    partition=TopicPartition(topic.name, int(each.partition_index)),
                    reason=each.error_message,
                    is_served=int(each.error_code) != ErrorCode.KAFKA_STORAGE_ERROR,
                )
