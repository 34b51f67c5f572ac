"""Images for the controller's tests, made the way real ones are: by applying decisions."""

from collections.abc import Sequence
from typing import TypeVar

from ottla.controller.decisions import ControllerDecision
from ottla.metadata.changes import apply, changes_of
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import BrokerRecord, broker_key, encode
from ottla.metadata.store import Change, Check, Operation, Put
from ottla.model.ids import BrokerId

T = TypeVar("T")


def cluster(brokers: int = 1, racks: Sequence[str | None] = ()) -> ClusterImage:
    """A cluster of so many brokers, numbered from 0, and nothing else."""
    return apply(
        ClusterImage(),
        changes_of(
            1,
            [
                Put(
                    broker_key(BrokerId(broker)),
                    encode(BrokerRecord(host="h", port=9092, rack=racks[broker] if racks else None)),
                )
                for broker in range(brokers)
            ],
        ),
    )


def without_broker(image: ClusterImage, broker: int) -> ClusterImage:
    """The cluster after that broker's lease ended."""
    gone = image.brokers[BrokerId(broker)].id
    return apply(image, [Change(image.revision + 1, broker_key(gone), None)])


def after(image: ClusterImage, decision: ControllerDecision[T]) -> ClusterImage:
    """The image once a decision is committed; checks what it expects of the keys."""
    return after_operations(image, decision.operations)


def after_operations(image: ClusterImage, operations: Sequence[Operation]) -> ClusterImage:
    """The image once these operations are committed; checks what they expect of the keys."""
    for operation in operations:
        if operation.expected is not None:
            assert operation.expected == image.revision_of(operation.key), operation
    writes = [operation for operation in operations if not isinstance(operation, Check)]
    return apply(image, changes_of(image.revision + 1, writes)) if writes else image


def brokers(*numbers: int) -> tuple[BrokerId, ...]:
    """Broker ids of plain numbers."""
    return tuple(map(BrokerId, numbers))
