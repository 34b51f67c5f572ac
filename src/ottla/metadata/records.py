"""What lies under each key of the metadata store: the key layout, and each value as a struct in JSON.

| key | value | lives |
|---|---|---|
| `cluster` | `ClusterRecord` | for ever, written at the first start |
| `brokers/<id>` | `BrokerRecord` | as a lease, while the broker lives |
| `controller` | `ControllerRecord` | as a lease, while the controller holds office; its revision is the fencing epoch |
| `topics/<name>` | `TopicRecord` | from create to delete; rewritten as partitions are added: its revision guards them |
| `partitions/<topic>/<index>` | `PartitionRecord` | with its topic |
| `configs/topics/<name>` | `ConfigsRecord` | while the topic has configs of its own |
| `configs/brokers/<id>`, `configs/brokers/default` | `ConfigsRecord` | while any are set |
| `producer-ids` | `ProducerIdsRecord` | for ever |

Fields that a newer version added are ignored; a value that cannot be read raises CorruptError with its key. How the
values become an image is in `changes.py`.
"""

from collections.abc import Mapping
from typing import Any, Final, TypeVar, cast
from uuid import UUID

import msgspec

from ottla.metadata.image import BrokerImage, PartitionImage
from ottla.model.errors import CorruptError
from ottla.model.ids import BrokerId, LeaderEpoch

CLUSTER_KEY: Final = "cluster"
CONTROLLER_KEY: Final = "controller"
PRODUCER_IDS_KEY: Final = "producer-ids"
DEFAULT_BROKER: Final = "default"
"""Stands in keys for the cluster-wide broker configs: no part of a key is empty, since not every store allows it."""


class ClusterRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Which cluster this is."""

    id: str


class BrokerRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where clients reach a broker."""

    host: str
    port: int
    rack: str | None = None
    is_intact: bool = True


class ControllerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Who is the controller."""

    broker: BrokerId


class TopicRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A topic's identity; its partitions and configs have keys of their own."""

    id: UUID


class PartitionRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Field by field the `PartitionImage`."""

    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    leader: BrokerId
    leader_epoch: LeaderEpoch
    partition_epoch: int = 0
    adding: tuple[BrokerId, ...] = ()
    removing: tuple[BrokerId, ...] = ()
    eligible: tuple[BrokerId, ...] = ()
    lost: tuple[BrokerId, ...] = ()


class ConfigsRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The configs that were set on a topic or a broker."""

    configs: dict[str, str]


class ProducerIdsRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The first producer id that nobody was given."""

    next_id: int


Record = (
    ClusterRecord | BrokerRecord | ControllerRecord | TopicRecord | PartitionRecord | ConfigsRecord | ProducerIdsRecord
)
T = TypeVar("T", bound=Record)

_DECODERS: Final[Mapping[type[Any], msgspec.json.Decoder[Any]]] = {
    kind: msgspec.json.Decoder(kind)
    for kind in (
        ClusterRecord,
        BrokerRecord,
        ControllerRecord,
        TopicRecord,
        PartitionRecord,
        ConfigsRecord,
        ProducerIdsRecord,
    )
}


def encode(record: Record) -> bytes:
    """A value for the store."""
    return msgspec.json.encode(record)


def decode(key: str, value: bytes, kind: type[T]) -> T:
    """What lies under a key; CorruptError, naming it, where that is not a `kind`."""
    try:
        return cast(T, _DECODERS[kind].decode(value))
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CorruptError(
            f"the metadata store's value under {key!r} is not a {kind.__name__}: {error}; restore it from a backup, "
            "or remove the key if what it describes is not needed"
        ) from error


def broker_key(broker: BrokerId) -> str:
    """Where a broker registers."""
    return f"brokers/{broker}"


def topic_key(name: str) -> str:
    """Where a topic's identity lies."""
    return f"topics/{name}"


def partition_key(topic: str, index: int) -> str:
    """Where a partition's replicas and leader lie."""
    return f"partitions/{topic}/{index}"


def topic_configs_key(name: str) -> str:
    """Where a topic's own configs lie."""
    return f"configs/topics/{name}"


def broker_configs_key(broker: str) -> str:
    """Where a broker's dynamic configs lie; "" is for the cluster-wide defaults."""
    return f"configs/brokers/{broker or DEFAULT_BROKER}"


def broker_record(broker: BrokerImage) -> BrokerRecord:
    """A broker as it is stored."""
    return BrokerRecord(host=broker.host, port=broker.port, rack=broker.rack, is_intact=broker.is_intact)


def partition_record(partition: PartitionImage) -> PartitionRecord:
    """A partition as it is stored."""
    return PartitionRecord(
        replicas=partition.replicas,
        isr=partition.isr,
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        adding=partition.adding,
        removing=partition.removing,
        eligible=partition.eligible,
        lost=partition.lost,
    )


def partition_image(record: PartitionRecord) -> PartitionImage:
    """A stored partition as it is seen."""
    return PartitionImage(
        replicas=record.replicas,
        isr=record.isr,
        leader=record.leader,
        leader_epoch=record.leader_epoch,
        partition_epoch=record.partition_epoch,
        adding=record.adding,
        removing=record.removing,
        eligible=record.eligible,
        lost=record.lost,
    )
