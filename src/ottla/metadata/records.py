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
| `deleted-topics/<id>` | `DeletedTopicRecord` | from the topic's deletion until many more were deleted |
| `starts/<id>` | `StartsRecord` | for ever, written at each start of the broker |
| `recovery` | `RecoveryRecord` | while metadata that was lost is put together from what brokers have |
| `claims/<id>` | `ClaimsRecord` | meanwhile: the partition folders of a broker |

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
RECOVERY_KEY: Final = "recovery"
CLAIMS_PREFIX: Final = "claims/"
TOPIC_PREFIXES: Final = ("topics/", "partitions/")
"""Of the keys that a topic has from its creation to its deletion."""
DEFAULT_BROKER: Final = "default"
"""Stands in keys for the cluster-wide broker configs: no part of a key is empty, since not every store allows it."""


class ClusterRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which cluster this is. Metadata that was lost and recovered has a new `history`: its revisions cannot be compared
    with those from before."""

    id: str
    history: str = ""


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


class DeletedTopicRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A topic that was deleted: brokers that were down may remove its folders."""

    name: str


class StartsRecord(msgspec.Struct, frozen=True, kw_only=True):
    """How often a broker has started: a data dir that knows of fewer starts is an older copy."""

    count: int


class RecoveryRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Lost metadata is being put together: no broker serves before all that are awaited have told what they have."""

    awaited: tuple[BrokerId, ...]
    adopts_topics: bool
    """Whether topics that the store does not know are adopted from the folders; otherwise these are set aside."""


class FolderClaim(msgspec.Struct, frozen=True, array_like=True):
    """A partition's folder on a broker: what it holds, and how far its log goes."""

    topic: str
    partition: int
    topic_id: UUID | None
    last_epoch: int
    """The newest leader epoch that began within its log; -1 if there is none."""
    end_offset: int
    known_epoch: int = -1
    """The newest leader epoch that it has heard of."""


class ClaimsRecord(msgspec.Struct, frozen=True, kw_only=True):
    """All that a broker has."""

    folders: tuple[FolderClaim, ...]
    next_producer_id: int
    """A producer id above all that the broker knows to have been given out."""
    leader_epoch: int = -1
    """The newest leader epoch of any partition that the broker has heard of."""


Record = (
    ClusterRecord
    | BrokerRecord
    | ControllerRecord
    | TopicRecord
    | PartitionRecord
    | ConfigsRecord
    | ProducerIdsRecord
    | DeletedTopicRecord
    | StartsRecord
    | RecoveryRecord
    | ClaimsRecord
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
        DeletedTopicRecord,
        StartsRecord,
        RecoveryRecord,
        ClaimsRecord,
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


def deleted_topic_key(topic_id: UUID) -> str:
    """Where it is remembered that the topic with this id was deleted."""
    return f"deleted-topics/{topic_id}"


def starts_key(broker: BrokerId) -> str:
    """Where the starts of a broker are counted."""
    return f"starts/{broker}"


def claims_key(broker: BrokerId) -> str:
    """Where a broker tells which folders it has, while metadata is being recovered."""
    return f"{CLAIMS_PREFIX}{broker}"


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
