"""What an image says of a partition's replicas: who leads it for clients, and whose broker is not there.

Also the sets of operations that clients are told they may do. Both are shared by the APIs that describe topics
and groups.
"""

from collections.abc import Container
from typing import Final, NamedTuple

from ottla.metadata.image import NO_LEADER, PartitionImage
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import BrokerId

TOPIC_OPERATIONS: Final = sum(1 << bit for bit in (3, 4, 5, 6, 7, 8, 10, 11))
"""Read, write, create, delete, alter, describe, describe and alter configs: everything, while there are no ACLs."""
CLUSTER_OPERATIONS: Final = sum(1 << bit for bit in (5, 7, 8, 9, 10, 11, 12))
"""Create, alter, describe, cluster action, describe and alter configs, idempotent write."""
GROUP_OPERATIONS: Final = sum(1 << bit for bit in (3, 6, 8, 10, 11))
"""Read, delete, describe, describe and alter configs."""
OPERATIONS_NOT_ASKED: Final = -(2**31)


class Availability(NamedTuple):
    """A partition as clients see it; `leader` is `NO_LEADER` with LEADER_NOT_AVAILABLE while its broker is away."""

    error: ErrorCode
    leader: BrokerId
    offline: tuple[BrokerId, ...]


def availability(partition: PartitionImage, alive: Container[BrokerId]) -> Availability:
    """Who can be reached of a partition's replicas, given the brokers that live."""
    offline = tuple(broker for broker in partition.replicas if broker not in alive)
    if partition.leader not in alive:
        return Availability(ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER, offline)
    return Availability(ErrorCode.NONE, partition.leader, offline)
