"""A partition's leader and offline replicas as the APIs that describe topics show them to clients of a listener."""

from collections.abc import Container
from typing import NamedTuple

from ottla.metadata.image import NO_LEADER, PartitionImage
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import BrokerId


class Availability(NamedTuple):
    """A partition as clients see it; `leader` is `NO_LEADER` with an error if clients cannot reach its broker."""

    error: ErrorCode
    leader: BrokerId
    offline: tuple[BrokerId, ...]


def availability(partition: PartitionImage, alive: Container[BrokerId], reachable: Container[BrokerId]) -> Availability:
    """What clients of one listener can use; `reachable` are those of the live brokers that have that listener."""
    offline = tuple(broker for broker in partition.replicas if broker not in reachable)
    if partition.leader in reachable:
        return Availability(ErrorCode.NONE, partition.leader, offline)
    error = ErrorCode.LISTENER_NOT_FOUND if partition.leader in alive else ErrorCode.LEADER_NOT_AVAILABLE
    return Availability(error, NO_LEADER, offline)
