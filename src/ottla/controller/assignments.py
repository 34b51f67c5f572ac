"""Replicas for new partitions: those that a client chose, checked, or placed ones. Pure; raises `Refusal`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ottla.controller.decisions import Refusal
from ottla.controller.placement import place
from ottla.env.ports import Random
from ottla.metadata.image import ClusterImage, PartitionImage
from ottla.metadata.records import encode, partition_key, partition_record
from ottla.metadata.store import Put
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import BrokerId, LeaderEpoch

NEW_PARTITIONS_MAX: Final = 10_000
"""So many partitions one request may make, as in Kafka: a slip of the keyboard must not fill the memory."""

ValidateConfigs = Callable[[Mapping[str, str]], None]
"""Raises an OttlaError for configs that a topic cannot have."""


def check_replicas(image: ClusterImage, replicas: Sequence[BrokerId], partition: int) -> None:
    """Refuses what no partition can have: no replica, one twice, or a broker that is not there."""
    wrong = None
    if not replicas:
        wrong = "has no replica"
    elif len(set(replicas)) != len(replicas):
        wrong = f"names a broker twice: {list(replicas)}"
    elif unknown := [broker for broker in replicas if broker not in image.brokers]:
        wrong = f"names broker {unknown[0]}, which is not registered"
    if wrong:
        raise Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"the assignment of partition {partition} {wrong}")


def check_count(count: int, left: int) -> None:
    """Refuses to make more partitions in one request than are `left` of `NEW_PARTITIONS_MAX`."""
    if count > left:
        raise Refusal(
            ErrorCode.POLICY_VIOLATION,
            f"one request makes at most {NEW_PARTITIONS_MAX} partitions in all: ask for these {count} in another one",
        )


def placed_replicas(
    image: ClusterImage,
    *,
    partition_count: int,
    replication_factor: int,
    random: Random,
    existing: Sequence[PartitionImage] = (),
) -> list[tuple[BrokerId, ...]]:
    """Replicas chosen by `placement`; refuses a factor that the living brokers cannot carry."""
    if replication_factor > len(image.brokers):
        raise Refusal(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"a replication factor of {replication_factor} needs as many brokers, but only {len(image.brokers)} "
            "broker(s) are registered",
        )
    return place(
        image.brokers.values(),
        partition_count=partition_count,
        replication_factor=replication_factor,
        random=random,
        existing=[partition.replicas for partition in existing],
    )


def new_partition(topic: str, index: int, replicas: tuple[BrokerId, ...]) -> Put:
    """Makes a partition that nobody has led yet: all replicas are in sync, the first leads."""
    image = PartitionImage(replicas=replicas, isr=replicas, leader=replicas[0], leader_epoch=LeaderEpoch(0))
    return Put(partition_key(topic, index), encode(partition_record(image)), 0)
