"""The keys of the metadata store, and their values as structs in JSON.

| key | value | lives |
|---|---|---|
| `cluster` | `ClusterRecord` | forever, written at the first start |
| `brokers/<id>` | `BrokerRecord` | as a lease, while the broker is registered |
| `controller` | `ControllerRecord` | as a lease, of the active controller; its revision is the controller epoch |
| `topics/<name>` | `TopicRecord` | from create to delete; rewritten as partitions are added: its revision guards them |
| `partitions/<topic>/<index>` | `PartitionRecord` | with its topic |
| `configs/topics/<name>` | `ConfigsRecord` | while the topic has its own configs |
| `configs/brokers/<id>`, `configs/brokers/default` | `ConfigsRecord` | while any are set |
| `configs/groups/<name>` | `ConfigsRecord` | while the group has its own configs; the name is percent-encoded |
| `producer-ids` | `ProducerIdsRecord` | forever |
| `deleted-topics/<id>` | `DeletedTopicRecord` | from the topic's deletion until many more were deleted |
| `features` | `FeaturesRecord` | from the first start on |
| `login-secret` | `LoginSecretRecord` | forever, written at the first start that finds none |
| `starts/<id>` | `StartsRecord` | forever, written at each start of the broker |
| `recovery` | `RecoveryRecord` | while lost metadata is being recovered from the partition folders |
| `claims/<id>` | `ClaimsRecord` | during a recovery: the partition folders of a broker |
| `acls/…`, `scram-credentials/…`, `client-quotas/…`, `delegation-tokens/…` | see `security_keys.py` | |

Unknown fields, from a newer version, are ignored; a value that cannot be decoded raises CorruptError with its key.
`changes.py` turns the values into an image.
"""

from collections.abc import Mapping
from typing import Any, Final, TypeVar, cast
from urllib.parse import quote, unquote
from uuid import UUID

import msgspec

from ottla.metadata.image import BrokerImage, PartitionImage
from ottla.model.errors import CorruptError
from ottla.model.ids import BrokerId, LeaderEpoch
from ottla.security.delegation_token import TokenInfo
from ottla.security.principals import Principal
from ottla.security.scram_credential import ScramCredential

CLUSTER_KEY: Final = "cluster"
CONTROLLER_KEY: Final = "controller"
PRODUCER_IDS_KEY: Final = "producer-ids"
RECOVERY_KEY: Final = "recovery"
FEATURES_KEY: Final = "features"
LOGIN_SECRET_KEY: Final = "login-secret"
CLAIMS_PREFIX: Final = "claims/"
TOPIC_PREFIXES: Final = ("topics/", "partitions/")
"""Prefixes of the keys that a topic has from its creation to its deletion."""
DEFAULT_BROKER: Final = "default"
"""Stands for the cluster-wide broker configs: no part of a key may be empty in every store."""


class ClusterRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The cluster's id. Recovered metadata has a new `history`: its revisions cannot be compared with earlier ones."""

    id: str
    history: str = ""


class ListenerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Field by field the `ListenerEndpoint`."""

    name: str
    security_protocol: str
    host: str
    port: int


class BrokerRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where clients reach a broker. `host` and `port` are the first listener's, for versions that know one only."""

    host: str
    port: int
    rack: str | None = None
    is_intact: bool = True
    listeners: tuple[ListenerRecord, ...] = ()
    features: tuple[tuple[str, int, int], ...] = ()


class ControllerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The broker that is the controller."""

    broker: BrokerId


class TopicRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A topic's id; its partitions and configs have their own keys."""

    id: UUID


class PartitionRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The fields of `PartitionImage`."""

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
    """The configs of a topic or a broker."""

    configs: dict[str, str]


class ProducerIdsRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The first producer id that was not allocated."""

    next_id: int


class DeletedTopicRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A deleted topic: brokers that were down may remove its folders."""

    name: str


class FeaturesRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The finalized level of each feature."""

    levels: dict[str, int]


class LoginSecretRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Random bytes, in base64, that no client knows: from them come the salts of users that do not exist."""

    secret: bytes

    def __repr__(self) -> str:
        return "LoginSecretRecord()"


class StartsRecord(msgspec.Struct, frozen=True, kw_only=True):
    """How often a broker has started: a data dir that counts fewer starts is an older copy."""

    count: int


class RecoveryRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Lost metadata is being recovered: no broker serves until all awaited brokers have reported their folders."""

    awaited: tuple[BrokerId, ...]
    adopts_topics: bool
    """Whether topics that the store does not know are adopted from the folders; otherwise their folders are set
    aside."""


class FolderClaim(msgspec.Struct, frozen=True, array_like=True):
    """A partition's folder on a broker: its identity, and how far its log goes."""

    topic: str
    partition: int
    topic_id: UUID | None
    last_epoch: int
    """The newest leader epoch in its log; -1 if there is none."""
    end_offset: int
    known_epoch: int = -1
    """The newest leader epoch that the folder knows of."""


class ClaimsRecord(msgspec.Struct, frozen=True, kw_only=True):
    """All partition folders of a broker."""

    folders: tuple[FolderClaim, ...]
    next_producer_id: int
    """A producer id above all that the broker knows to be allocated."""
    leader_epoch: int = -1
    """The newest leader epoch of any partition that the broker knows of."""


class AclRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An ACL; all of its fields are in the key."""


class ScramCredentialRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of `ScramCredential`; bytes in base64."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        # Keys must not appear in logs.
        return f"ScramCredentialRecord(iterations={self.iterations})"


class ClientQuotaRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The quotas of an entity, by Kafka's names."""

    quotas: dict[str, float]


class DelegationTokenRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of `TokenInfo` except the id; principals as `Type:name`. The secret is not stored."""

    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    expiry_ms: int
    max_ms: int


Record = (
    ClusterRecord
    | BrokerRecord
    | ControllerRecord
    | TopicRecord
    | PartitionRecord
    | ConfigsRecord
    | ProducerIdsRecord
    | DeletedTopicRecord
    | FeaturesRecord
    | LoginSecretRecord
    | StartsRecord
    | RecoveryRecord
    | ClaimsRecord
    | AclRecord
    | ScramCredentialRecord
    | ClientQuotaRecord
    | DelegationTokenRecord
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
        FeaturesRecord,
        LoginSecretRecord,
        StartsRecord,
        RecoveryRecord,
        ClaimsRecord,
        AclRecord,
        ScramCredentialRecord,
        ClientQuotaRecord,
        DelegationTokenRecord,
    )
}


def encode(record: Record) -> bytes:
    """Encodes a value for the store."""
    return msgspec.json.encode(record)


def decode(key: str, value: bytes, kind: type[T]) -> T:
    """Decodes the value of a key. Raises CorruptError, naming the key, if it is not a `kind`."""
    try:
        return cast(T, _DECODERS[kind].decode(value))
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CorruptError(
            f"the metadata store's value under {key!r} is not a {kind.__name__}: {error}; restore it from a backup, "
            "or remove the key if what it describes is not needed"
        ) from error


def broker_key(broker: BrokerId) -> str:
    """The key of a broker's registration."""
    return f"brokers/{broker}"


def topic_key(name: str) -> str:
    """The key of a topic's id."""
    return f"topics/{name}"


def partition_key(topic: str, index: int) -> str:
    """The key of a partition's replicas and leader."""
    return f"partitions/{topic}/{index}"


def topic_configs_key(name: str) -> str:
    """The key of a topic's own configs."""
    return f"configs/topics/{name}"


def broker_configs_key(broker: str) -> str:
    """The key of a broker's dynamic configs; "" is for the cluster-wide defaults."""
    return f"configs/brokers/{broker or DEFAULT_BROKER}"


def group_configs_key(group_id: str) -> str:
    """The key of a group's own configs."""
    return f"configs/groups/{quote(group_id, safe='')}"


def group_of_configs_key(name: str) -> str:
    """The group whose configs have this last part of a key."""
    return unquote(name)


def client_metrics_key(name: str) -> str:
    """The key of a client metrics subscription."""
    return f"configs/client-metrics/{quote(name, safe='')}"


def client_metrics_of_key(name: str) -> str:
    """The client metrics subscription whose configs have this last part of a key."""
    return unquote(name)


def deleted_topic_key(topic_id: UUID) -> str:
    """The key that records the deletion of the topic with this id."""
    return f"deleted-topics/{topic_id}"


def starts_key(broker: BrokerId) -> str:
    """The key that counts the starts of a broker."""
    return f"starts/{broker}"


def claims_key(broker: BrokerId) -> str:
    """The key under which a broker reports its folders while metadata is being recovered."""
    return f"{CLAIMS_PREFIX}{broker}"


def broker_record(broker: BrokerImage) -> BrokerRecord:
    """A broker as it is stored."""
    return BrokerRecord(
        host=broker.host,
        port=broker.port,
        rack=broker.rack,
        is_intact=broker.is_intact,
        listeners=tuple(ListenerRecord(**each._asdict()) for each in broker.listeners),
        features=broker.features,
    )


def partition_record(partition: PartitionImage) -> PartitionRecord:
    """A partition image as a record."""
    return msgspec.convert(partition, PartitionRecord, from_attributes=True)


def partition_image(record: PartitionRecord) -> PartitionImage:
    """A partition record as an image."""
    return msgspec.convert(record, PartitionImage, from_attributes=True)


def scram_record(credential: ScramCredential) -> ScramCredentialRecord:
    """A SCRAM credential as a record."""
    return msgspec.convert(credential, ScramCredentialRecord, from_attributes=True)


def scram_credential(record: ScramCredentialRecord) -> ScramCredential:
    """A record as a SCRAM credential."""
    return msgspec.convert(record, ScramCredential, from_attributes=True)


def token_record(token: TokenInfo) -> DelegationTokenRecord:
    """A delegation token as a record."""
    return DelegationTokenRecord(
        owner=str(token.owner),
        requester=str(token.requester),
        renewers=tuple(map(str, token.renewers)),
        issued_ms=token.issued_ms,
        expiry_ms=token.expiry_ms,
        max_ms=token.max_ms,
    )


def token_info(token_id: str, record: DelegationTokenRecord) -> TokenInfo:
    """A record as the delegation token with this id."""
    return TokenInfo(
        id=token_id,
        owner=_principal(record.owner),
        requester=_principal(record.requester),
        renewers=tuple(map(_principal, record.renewers)),
        issued_ms=record.issued_ms,
        expiry_ms=record.expiry_ms,
        max_ms=record.max_ms,
    )


def _principal(text: str) -> Principal:
    kind, _, name = text.partition(":")
    return Principal(kind, name)
