"""Replicas for new partitions: chosen by a client and checked, or placed. Pure; raises `ItemRefusedError`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ottla.controller.decisions import ItemRefusedError
from ottla.controller.placement import place
from ottla.env.ports import Random
from ottla.metadata.image import ClusterImage, PartitionImage
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import BrokerId, LeaderEpoch

NEW_PARTITIONS_MAX: Final = 10_000
"""The limit of new partitions in one request, as in Kafka: a typing error must not fill the memory."""

ValidateConfigs = Callable[[Mapping[str, str]], None]
"""Raises an OttlaError for invalid topic configs."""


def check_replicas(image: ClusterImage, replicas: Sequence[BrokerId], partition: int) -> None:
    """Refuses an assignment without replicas, with a broker twice, or with a broker that is not registered."""
    wrong = None
    if not replicas:
        wrong = "has no replica"
    elif len(set(replicas)) != len(replicas):
        wrong = f"names a broker twice: {list(replicas)}"
    elif unknown := [broker for broker in replicas if broker not in image.brokers]:
        wrong = f"names broker {unknown[0]}, which is not registered"
    if wrong:
        raise ItemRefusedError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"the assignment of partition {partition} {wrong}")


def check_count(count: int, left: int) -> None:
    """Refuses to create more partitions in one request than are `left` of `NEW_PARTITIONS_MAX`."""
    if count > left:
        raise ItemRefusedError(
            ErrorCode.POLICY_VIOLATION,
            f"one request may create at most {NEW_PARTITIONS_MAX} partitions: create these {count} in another request",
        )


def placed_replicas(
    image: ClusterImage,
    *,
    partition_count: int,
    replication_factor: int,
    random: Random,
    existing: Sequence[PartitionImage] = (),
) -> list[tuple[BrokerId, ...]]:
    """Replicas chosen by `placement`; refuses a factor above the number of registered brokers."""
    if replication_factor > len(image.brokers):
        raise ItemRefusedError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {replication_factor} needs {replication_factor} brokers, but only"
            f" {len(image.brokers)} broker(s) are registered",
        )
    return place(
        image.brokers.values(),
        partition_count=partition_count,
        replication_factor=replication_factor,
        random=random,
        existing=[partition.replicas for partition in existing],
    )


def first_image(replicas: tuple[BrokerId, ...]) -> PartitionImage:
    """A partition without records: all replicas are in sync, the first leads."""
    return PartitionImage(replicas=replicas, isr=replicas, leader=replicas[0], leader_epoch=LeaderEpoch(0))
