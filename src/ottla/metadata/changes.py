"""Turns the store's entries and changes into images. Pure: no store, no clock.

`image_of` builds an image from a snapshot; `apply` adds one commit at a time. Both give the same image for the same
keys. A commit leaves every topic complete: partitions numbered from 0 without a gap, and no partition or config without
its topic. Otherwise someone edited the store by hand, or a writer has a bug, and CorruptError names the key. Keys of
unknown kinds only count in `revisions`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeVar
from uuid import UUID

from ottla.metadata.features import FIRST_LEVELS
from ottla.metadata.image import NO_LEADER, BrokerImage, ClusterImage, ListenerEndpoint, PartitionImage, TopicImage
from ottla.metadata.records import (
    DEFAULT_BROKER,
    AclRecord,
    BrokerRecord,
    ClientQuotaRecord,
    ClusterRecord,
    ConfigsRecord,
    ControllerRecord,
    DelegationTokenRecord,
    DeletedTopicRecord,
    FeaturesRecord,
    LoginSecretRecord,
    PartitionRecord,
    ProducerIdsRecord,
    ScramCredentialRecord,
    StartsRecord,
    TopicRecord,
    client_metrics_of_key,
    decode,
    group_of_configs_key,
    partition_image,
    partition_key,
    scram_credential,
    token_info,
    topic_configs_key,
    topic_key,
)
from ottla.metadata.security_keys import (
    ACLS,
    CLIENT_QUOTAS,
    DELEGATION_TOKENS,
    SCRAM_CREDENTIALS,
    acl_of,
    quota_entity_of,
    scram_user_of,
    token_id_of,
)
from ottla.metadata.store import Change, Delete, Entry, Operation, Put
from ottla.model.errors import CorruptError, MisuseError
from ottla.model.ids import BrokerId
from ottla.security.acls import AclBinding
from ottla.security.delegation_token import TokenInfo
from ottla.security.quota_entity import QuotaEntity
from ottla.security.scram_credential import ScramCredential, ScramMechanism

K = TypeVar("K")
V = TypeVar("V")

_NO_CONFIGS: Final[Mapping[str, str]] = MappingProxyType({})


def image_of(revision: int, entries: Iterable[Entry]) -> ClusterImage:
    """The cluster according to a snapshot of the store."""
    draft = _Draft(ClusterImage())
    for entry in entries:
        draft.change(entry.key, entry.value, entry.revision)
    return draft.finish(revision)


def apply(image: ClusterImage, changes: Sequence[Change]) -> ClusterImage:
    """The image after one commit; `changes` are all changes of that commit. Everything else is shared, not copied."""
    if not changes:
        return image
    revision = changes[0].revision
    if revision <= image.revision or changes[-1].revision != revision:
        raise MisuseError(
            f"changes of revisions {revision} to {changes[-1].revision} on an image of revision {image.revision}: "
            "apply each commit once, in order"
        )
    draft = _Draft(image)
    for _, key, value in changes:
        draft.change(key, value, revision)
    return draft.finish(revision)


def changes_of(revision: int, operations: Iterable[Operation]) -> list[Change]:
    """The changes that followers get for a successful commit."""
    return [
        Change(revision, operation.key, operation.value if isinstance(operation, Put) else None)
        for operation in operations
        if isinstance(operation, Put | Delete)
    ]


class _TopicDraft:
    """A topic whose keys are being changed."""

    __slots__ = ("configs", "id", "partitions")

    def __init__(self, topic: TopicImage | None) -> None:
        self.id: UUID | None = topic.id if topic else None
        self.partitions: dict[int, PartitionImage] = dict(enumerate(topic.partitions)) if topic else {}
        self.configs: Mapping[str, str] = topic.configs if topic else _NO_CONFIGS


class _Draft:
    """An image under construction. Each mapping is copied at its first change."""

    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._revisions = _copy(image.revisions)
        self._topics: dict[str, _TopicDraft] = {}
        self._brokers: dict[BrokerId, BrokerImage] | None = None
        self._broker_configs: dict[str, Mapping[str, str]] | None = None
        self._group_configs: dict[str, Mapping[str, str]] | None = None
        self._client_metrics: dict[str, Mapping[str, str]] | None = None
        self._deleted_topics: dict[UUID, str] | None = None
        self._starts: dict[BrokerId, int] | None = None
        self._acls: set[AclBinding] | None = None
        self._scram_credentials: dict[tuple[ScramMechanism, str], ScramCredential] | None = None
        self._client_quotas: dict[QuotaEntity, Mapping[str, float]] | None = None
        self._delegation_tokens: dict[str, TokenInfo] | None = None
        self._cluster_id = image.cluster_id
        self._history = image.history
        self._controller = image.controller
        self._next_producer_id = image.next_producer_id
        self._features = image.features
        self._login_secret = image.login_secret

    def change(self, key: str, value: bytes | None, revision: int) -> None:
        if value is not None:
            self._revisions[key] = revision
        elif self._revisions.pop(key, None) is None:
            return
        kind, _, rest = key.partition("/")
        on_change = _ON_CHANGE.get(kind)
        if on_change is not None:
            on_change(self, key, rest, value)

    def finish(self, revision: int) -> ClusterImage:
        topics, topics_by_id = self._image.topics, self._image.topics_by_id
        if self._topics:
            topics, topics_by_id = self._finish_topics(_copy(topics), _copy(topics_by_id))
        return ClusterImage(
            revision=revision,
            cluster_id=self._cluster_id,
            history=self._history,
            controller=self._controller,
            brokers=self._image.brokers if self._brokers is None else MappingProxyType(self._brokers),
            topics=topics,
            topics_by_id=topics_by_id,
            broker_configs=(
                self._image.broker_configs if self._broker_configs is None else MappingProxyType(self._broker_configs)
            ),
            group_configs=(
                self._image.group_configs if self._group_configs is None else MappingProxyType(self._group_configs)
            ),
            client_metrics=(
                self._image.client_metrics if self._client_metrics is None else MappingProxyType(self._client_metrics)
            ),
            deleted_topics=(
                self._image.deleted_topics if self._deleted_topics is None else MappingProxyType(self._deleted_topics)
            ),
            starts=self._image.starts if self._starts is None else MappingProxyType(self._starts),
            next_producer_id=self._next_producer_id,
            features=self._features,
            login_secret=self._login_secret,
            acls=self._image.acls if self._acls is None else frozenset(self._acls),
            scram_credentials=(
                self._image.scram_credentials
                if self._scram_credentials is None
                else MappingProxyType(self._scram_credentials)
            ),
            client_quotas=(
                self._image.client_quotas if self._client_quotas is None else MappingProxyType(self._client_quotas)
            ),
            delegation_tokens=(
                self._image.delegation_tokens
                if self._delegation_tokens is None
                else MappingProxyType(self._delegation_tokens)
            ),
            revisions=MappingProxyType(self._revisions),
        )

    def _finish_topics(
        self, topics: dict[str, TopicImage], topics_by_id: dict[UUID, TopicImage]
    ) -> tuple[Mapping[str, TopicImage], Mapping[UUID, TopicImage]]:
        for name in self._topics:
            if name in topics:
                del topics_by_id[topics[name].id]
        for name, draft in self._topics.items():
            topic = _finish_topic(name, draft)
            if topic is None:
                topics.pop(name, None)
                continue
            if topic.id in topics_by_id:
                twin = topics_by_id[topic.id].name
                raise CorruptError(f"{topic_key(name)!r} has the id {topic.id} of {topic_key(twin)!r}: delete one")
            topics[name] = topics_by_id[topic.id] = topic
        return MappingProxyType(topics), MappingProxyType(topics_by_id)

    def _topic(self, name: str) -> _TopicDraft:
        draft = self._topics.get(name)
        if draft is None:
            draft = self._topics[name] = _TopicDraft(self._image.topics.get(name))
        return draft

    def on_cluster(self, key: str, _: str, value: bytes | None) -> None:
        record = decode(key, value, ClusterRecord) if value is not None else ClusterRecord(id="")
        self._cluster_id, self._history = record.id, record.history

    def on_controller(self, key: str, _: str, value: bytes | None) -> None:
        self._controller = decode(key, value, ControllerRecord).broker if value is not None else NO_LEADER

    def on_producer_ids(self, key: str, _: str, value: bytes | None) -> None:
        self._next_producer_id = decode(key, value, ProducerIdsRecord).next_id if value is not None else 0

    def on_features(self, key: str, _: str, value: bytes | None) -> None:
        levels = FIRST_LEVELS if value is None else decode(key, value, FeaturesRecord).levels
        self._features = MappingProxyType(dict(levels))

    def on_login_secret(self, key: str, _: str, value: bytes | None) -> None:
        self._login_secret = decode(key, value, LoginSecretRecord).secret if value is not None else b""

    def on_deleted_topic(self, key: str, rest: str, value: bytes | None) -> None:
        if self._deleted_topics is None:
            self._deleted_topics = _copy(self._image.deleted_topics)
        try:
            topic_id = UUID(rest)
        except ValueError as error:
            raise CorruptError(f"{key!r} in the metadata store does not end in a topic id: remove it") from error
        if value is None:
            self._deleted_topics.pop(topic_id, None)
        else:
            self._deleted_topics[topic_id] = decode(key, value, DeletedTopicRecord).name

    def on_broker(self, key: str, rest: str, value: bytes | None) -> None:
        if self._brokers is None:
            self._brokers = _copy(self._image.brokers)
        broker = BrokerId(_number(key, rest))
        if value is None:
            self._brokers.pop(broker, None)
            return
        record = decode(key, value, BrokerRecord)
        self._brokers[broker] = BrokerImage(
            id=broker,
            host=record.host,
            port=record.port,
            rack=record.rack,
            is_intact=record.is_intact,
            listeners=tuple(
                ListenerEndpoint(each.name, each.security_protocol, each.host, each.port) for each in record.listeners
            ),
            features=record.features,
        )

    def on_starts(self, key: str, rest: str, value: bytes | None) -> None:
        if self._starts is None:
            self._starts = _copy(self._image.starts)
        broker = BrokerId(_number(key, rest))
        if value is None:
            self._starts.pop(broker, None)
        else:
            self._starts[broker] = decode(key, value, StartsRecord).count

    def on_topic(self, key: str, name: str, value: bytes | None) -> None:
        self._topic(name).id = decode(key, value, TopicRecord).id if value is not None else None

    def on_partition(self, key: str, rest: str, value: bytes | None) -> None:
        name, _, text = rest.rpartition("/")
        partitions = self._topic(name).partitions
        index = _number(key, text)
        if value is None:
            partitions.pop(index, None)
        else:
            partitions[index] = partition_image(decode(key, value, PartitionRecord))

    def on_configs(self, key: str, rest: str, value: bytes | None) -> None:
        kind, _, name = rest.partition("/")
        configs = _NO_CONFIGS if value is None else MappingProxyType(decode(key, value, ConfigsRecord).configs)
        if kind == "topics":
            self._topic(name).configs = configs
        elif kind == "brokers":
            if self._broker_configs is None:
                self._broker_configs = _copy(self._image.broker_configs)
            broker = "" if name == DEFAULT_BROKER else name
            if value is None:
                self._broker_configs.pop(broker, None)
            else:
                self._broker_configs[broker] = configs
        elif kind == "groups":
            if self._group_configs is None:
                self._group_configs = _copy(self._image.group_configs)
            if value is None:
                self._group_configs.pop(group_of_configs_key(name), None)
            else:
                self._group_configs[group_of_configs_key(name)] = configs
        elif kind == "client-metrics":
            if self._client_metrics is None:
                self._client_metrics = _copy(self._image.client_metrics)
            if value is None:
                self._client_metrics.pop(client_metrics_of_key(name), None)
            else:
                self._client_metrics[client_metrics_of_key(name)] = configs

    def on_acl(self, key: str, _: str, value: bytes | None) -> None:
        if self._acls is None:
            self._acls = set(self._image.acls)
        binding = acl_of(key)
        if value is None:
            self._acls.discard(binding)
        else:
            decode(key, value, AclRecord)
            self._acls.add(binding)

    def on_scram_credential(self, key: str, _: str, value: bytes | None) -> None:
        if self._scram_credentials is None:
            self._scram_credentials = _copy(self._image.scram_credentials)
        user = scram_user_of(key)
        if value is None:
            self._scram_credentials.pop(user, None)
        else:
            self._scram_credentials[user] = scram_credential(decode(key, value, ScramCredentialRecord))

    def on_client_quota(self, key: str, _: str, value: bytes | None) -> None:
        if self._client_quotas is None:
            self._client_quotas = _copy(self._image.client_quotas)
        entity = quota_entity_of(key)
        if value is None:
            self._client_quotas.pop(entity, None)
        else:
            self._client_quotas[entity] = MappingProxyType(decode(key, value, ClientQuotaRecord).quotas)

    def on_delegation_token(self, key: str, _: str, value: bytes | None) -> None:
        if self._delegation_tokens is None:
            self._delegation_tokens = _copy(self._image.delegation_tokens)
        token_id = token_id_of(key)
        if value is None:
            self._delegation_tokens.pop(token_id, None)
        else:
            self._delegation_tokens[token_id] = token_info(token_id, decode(key, value, DelegationTokenRecord))


_ON_CHANGE: Final[Mapping[str, Callable[[_Draft, str, str, bytes | None], None]]] = {
    "cluster": _Draft.on_cluster,
    "controller": _Draft.on_controller,
    "producer-ids": _Draft.on_producer_ids,
    "features": _Draft.on_features,
    "login-secret": _Draft.on_login_secret,
    "deleted-topics": _Draft.on_deleted_topic,
    "brokers": _Draft.on_broker,
    "starts": _Draft.on_starts,
    "topics": _Draft.on_topic,
    "partitions": _Draft.on_partition,
    "configs": _Draft.on_configs,
    ACLS: _Draft.on_acl,
    SCRAM_CREDENTIALS: _Draft.on_scram_credential,
    CLIENT_QUOTAS: _Draft.on_client_quota,
    DELEGATION_TOKENS: _Draft.on_delegation_token,
}
"""How to apply a change, by the first part of its key."""


def _finish_topic(name: str, draft: _TopicDraft) -> TopicImage | None:
    """None for a deleted topic, CorruptError for an incomplete one."""
    if draft.id is None:
        left = [partition_key(name, index) for index in draft.partitions]
        left += [topic_configs_key(name)] if draft.configs else []
        if left:
            raise CorruptError(f"{left[0]!r} is in the metadata store, but {topic_key(name)!r} is not: remove it")
        return None
    count = len(draft.partitions)
    missing = [index for index in range(max(count, 1)) if index not in draft.partitions]
    if missing:
        raise CorruptError(
            f"{topic_key(name)!r} has {count} partitions, but {partition_key(name, missing[0])!r} is not in the "
            "metadata store: restore it from a backup, or delete all keys of the topic"
        )
    return TopicImage(
        name=name,
        id=draft.id,
        partitions=tuple([draft.partitions[index] for index in range(count)]),
        configs=draft.configs,
    )


def _number(key: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and str(int(text)) == text):
        raise CorruptError(f"{key!r} in the metadata store ends in {text!r}, which is not a number: remove it")
    return int(text)


def _copy(mapping: Mapping[K, V]) -> dict[K, V]:
    """A plain copy; a proxy's own `copy` is many times faster than iterating over its items."""
    copied: dict[K, V] = mapping.copy() if isinstance(mapping, MappingProxyType) else dict(mapping)
    return copied
