"""The topic `_schemas`: creates it, checks that it can keep schemas, and reads it in order.

The topic is the registry's only storage, so nothing here changes a topic that exists. A topic that was deleted,
recreated, truncated or damaged raises `SchemasTopicLostError`; retriable errors are retried.
`schemas_writer.py` writes to it.
"""

import logging
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from ottla.client.admin.config_requests import Resource, ResourceType, describe_configs
from ottla.client.admin.damaged_logs import damaged_logs
from ottla.client.admin.topic_requests import create_topic, describe_cluster
from ottla.client.errors import AnswerError, RetriableAnswerError
from ottla.client.fetch.range_fetch import OffsetRange, RangeFetch, RangeRules, is_missing
from ottla.client.network.cluster import Cluster
from ottla.client.network.cluster_view import ClusterView
from ottla.client.network.list_offsets import offset_bounds
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import CorruptError, OttlaError
from ottla.model.ids import TopicPartition
from ottla.protocol.fetch_frames import READ_COMMITTED
from ottla.records.record import Record

_LOGGER: Final = logging.getLogger(__name__)

RECORD_BYTES_MAX: Final = 16 * 1024 * 1024
"""The largest record that a topic created here takes: a schema of 1 MB grows when it is written as JSON."""
_POLICY: Final = "cleanup.policy"
_BATCH_BYTES_MAX: Final = "max.message.bytes"
_KAFKA_BATCH_BYTES_MAX: Final = 1_048_588
"""Kafka's default."""
_MISSING_TRIES: Final = 8
"""A broker that restarts may not know the topic for a moment."""
_NOT_ALLOWED: Final = frozenset(
    {ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.UNSUPPORTED_VERSION}
)


class SchemasTopicError(OttlaError):
    """The topic cannot keep schemas as it is; the message says what to change."""


class SchemasTopicLostError(SchemasTopicError):
    """The topic is not the one that was read before, or lost records."""


class SchemasTopicMissingError(SchemasTopicLostError):
    """The topic with this id does not exist now; a broker that restarts may not have known it yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicChunk:
    """Committed records in order. `next_offset` is where the next chunk begins."""

    records: list[Record]
    next_offset: int


class SchemasTopic:
    """The topic as it was opened: one partition, and one id, which a recreated topic does not have."""

    def __init__(self, cluster: Cluster, name: str, topic_id: UUID | None, batch_bytes_max: int) -> None:
        self.name = name
        self.id = topic_id
        """None if the brokers are too old for topic ids."""
        self.batch_bytes_max = batch_bytes_max
        """The largest batch that the topic takes, after compression."""
        self._cluster = cluster
        self._partition = TopicPartition(name, 0)

    @classmethod
    async def open(cls, cluster: Cluster, name: str, *, replication_factor: int, may_create: bool) -> "SchemasTopic":
        """Opens the topic, and creates it if it does not exist and `may_create`.

        Raises `SchemasTopicError` if it does not exist, is not compacted, or has several partitions.
        """
        view = await cluster.retry(lambda: cluster.refresh([name]))
        if name not in view.topics:
            if not may_create:
                raise SchemasTopicError(
                    f"topic {name} does not exist; start a registry that may write first, or create the topic with"
                    " 1 partition and cleanup.policy=compact"
                )
            await _create(cluster, name, replication_factor)
        found = await cluster.retry(lambda: cluster.topic(name, fresh=True))
        count, replicas = len(found.partitions), len(found.partitions[0].replicas)
        if count != 1:
            raise SchemasTopicError(
                f"topic {name} has {count} partitions, and a registry needs exactly 1 to keep the order of its records;"
                " use another topic (--topic)"
            )
        batch_bytes_max = await _check_configs(cluster, name)
        if replicas < min(replication_factor, len(cluster.view.brokers)):
            _LOGGER.warning(
                "topic %s has %d replica(s), less than %d: schemas are lost if the disks of these brokers fail",
                name,
                replicas,
                replication_factor,
            )
        return cls(cluster, name, found.id, batch_bytes_max)

    async def bounds(self) -> tuple[int, int]:
        """The first offset, and the offset after the last committed record. Raises `SchemasTopicLostError`."""
        await self._check_exists()
        bounds = await offset_bounds(self._cluster, [self._partition], isolation_level=READ_COMMITTED)
        return bounds[self._partition]

    async def check_intact(self) -> None:
        """Raises `SchemasTopicLostError` if the leader reports that its log lost records; only Ottla's brokers do."""
        view = await self._cluster.retry(lambda: self._cluster.refresh([self.name]))
        leader = await self._cluster.leader_of(self._partition)
        only = ClusterView(brokers=view.brokers, topics={self.name: view.topics[self.name]})
        for each in await damaged_logs(self._cluster, only, [leader]):
            raise SchemasTopicLostError(str(each))

    async def read(self, start: int, end: int | None = None) -> AsyncGenerator[TopicChunk, None]:
        """Yields the committed records from `start` to `end`, exclusive; without an end it follows the topic.

        Raises `SchemasTopicLostError`, and retriable errors when no broker answered for some time.
        """
        rules = RangeRules(isolation_level=READ_COMMITTED, missing_tries=_MISSING_TRIES, topic_id=self.id)
        chunks = RangeFetch(self._cluster, {self._partition: OffsetRange(start=start, end=end)}, rules).chunks()
        try:
            async for chunk in chunks:
                yield TopicChunk(records=list(chunk.records()), next_offset=chunk.next_offset)
        except CorruptError as error:
            raise SchemasTopicLostError(f"topic {self.name} is damaged: {error}") from error
        except AnswerError as error:
            raise self._lost(error, start) from error
        except OttlaError as error:
            if is_missing(error):
                raise self._missing() from error
            raise
        finally:
            await chunks.aclose()

    async def _check_exists(self) -> None:
        view = await self._cluster.retry(lambda: self._cluster.refresh([self.name]))
        found = view.topics.get(self.name)
        if found is None or (self.id is not None and found.id != self.id):
            raise self._missing()

    def _missing(self) -> SchemasTopicMissingError:
        return SchemasTopicMissingError(
            f"topic {self.name} (id {self.id}) was deleted or recreated; restore it from a backup, or stop all registry"
            " instances and start them again to use the topic that exists now"
        )

    def _lost(self, error: AnswerError, start: int) -> OttlaError:
        if is_missing(error):
            return self._missing()
        if isinstance(error, RetriableAnswerError):
            return error
        if error.error_code is ErrorCode.OFFSET_OUT_OF_RANGE:
            return SchemasTopicLostError(
                f"topic {self.name} lost records that this registry has read (reading on from offset {start}): its log"
                f" was truncated, or records were deleted: {error}"
            )
        return SchemasTopicLostError(f"topic {self.name} is damaged or cannot be read: {error}")


async def _create(cluster: Cluster, name: str, replication_factor: int) -> None:
    brokers = len((await describe_cluster(cluster)).brokers)
    factor = max(min(replication_factor, brokers), 1)
    configs = {_POLICY: "compact", _BATCH_BYTES_MAX: str(RECORD_BYTES_MAX)}
    try:
        await create_topic(cluster, name, partitions=1, replication_factor=factor, configs=configs)
        _LOGGER.info("created topic %s with replication factor %d", name, factor)
    except AnswerError as error:
        if error.error_code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise


async def _check_configs(cluster: Cluster, name: str) -> int:
    """Raises `SchemasTopicError` if the topic is not compacted; returns the size of the largest batch that it takes."""
    try:
        entries = await describe_configs(
            cluster, Resource(type=ResourceType.TOPIC, name=name), [_POLICY, _BATCH_BYTES_MAX], of_any=True
        )
    except AnswerError as error:
        if error.error_code not in _NOT_ALLOWED:
            raise
        _LOGGER.warning("cannot check that topic %s is compacted: %s", name, error)
        return _KAFKA_BATCH_BYTES_MAX
    values = {each.name: each.value for each in entries}
    if values.get(_POLICY) != "compact":
        raise SchemasTopicError(
            f"topic {name} has cleanup.policy={values.get(_POLICY)}, which deletes schemas after some time; set it to"
            f" compact: ottla configs set --topic {name} cleanup.policy=compact"
        )
    return int(values.get(_BATCH_BYTES_MAX) or _KAFKA_BATCH_BYTES_MAX)
