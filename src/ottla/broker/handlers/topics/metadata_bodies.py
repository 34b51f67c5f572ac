"""Metadata responses as bytes: each topic is encoded once for each version, and kept until it changes.

Clients ask for all topics every few minutes, and all clients do when a broker fails. Ten thousand partitions take kio a
tenth of a second each time. Images are immutable, so the bytes of a topic are kept by the identity of its image.
`metadata.py` decides which topics are in an answer.
"""

import asyncio
from collections.abc import Sequence
from struct import Struct
from typing import Final, cast
from uuid import UUID

from kio.schema.metadata.v13.response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kio.schema.types import BrokerId as WireBrokerId
from kio.schema.types import TopicName
from kio.static.primitive import i32

from ottla.broker.handlers.availability import availability
from ottla.metadata.image import INTERNAL_TOPICS, ClusterImage, TopicImage
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import BrokerId
from ottla.protocol.apis import ApiKey
from ottla.protocol.messages import LAST_WITH_CLUSTER_OPERATIONS, milliseconds, wire_error, write_response
from ottla.protocol.varints import unsigned_varint
from ottla.security.resources import ALL_OPERATION_BITS, OPERATIONS_NOT_REQUESTED, ResourceType

_FLEXIBLE_SINCE: Final = 9
_HEADER_BYTES: Final = 8
_COUNT: Final = Struct(">i")
_TAIL_BYTES: Final = {8: 4, 9: 5, 10: 5, 11: 1, 12: 1, 13: 3}
"""What follows the list of topics: authorized operations of the cluster, an error code, tagged fields."""
_CLUSTER_OPERATIONS_IN: Final = range(8, LAST_WITH_CLUSTER_OPERATIONS + 1)
_OPERATIONS: Final = Struct(">i")
_IS_INTERNAL_SINCE: Final = 1
_OPERATIONS_SINCE: Final = 8
_TOPIC_IDS_SINCE: Final = 10
_ERROR: Final = Struct(">h")
_ERROR_AND_LENGTH: Final = Struct(">hh")
_IS_INTERNAL_AND_COUNT: Final = Struct(">?i")
_FLEXIBLE_REST: Final = Struct(">?BiB")
_NO_PARTITIONS: Final = 1
_NO_TAGS: Final = 0
_NO_ID: Final = bytes(16)
_PARTITIONS_AT_ONCE: Final = 250
"""How many partitions are encoded before other work may run: 3 ms."""
_SPARE_TOPICS: Final = 100
_KEPT_OPERATIONS: Final = frozenset({OPERATIONS_NOT_REQUESTED, ALL_OPERATION_BITS[ResourceType.TOPIC]})
_LISTENER_NOT_FOUND_SINCE: Final = 6

_NONE: Final = wire_error(ErrorCode.NONE)


class MetadataBodies:
    """What was encoded for the clients of one listener, as long as it is true.

    Operations are given as the bits of the response's fields. Only entries with all operations, or without any, are
    kept. Of deleted topics, some entries may be kept for a while.
    """

    def __init__(self, listener: str) -> None:
        self._listener = listener
        self._cluster: tuple[object, ...] = ()
        self._reachable: frozenset[BrokerId] = frozenset()
        self._frames: dict[tuple[int, int], tuple[bytes, bytes]] = {}
        self._topics: dict[tuple[int, int, bool], dict[str, tuple[TopicImage, bytes]]] = {}
        self._everything: dict[tuple[int, int, int], tuple[ClusterImage, bytes]] = {}

    async def everything(
        self, image: ClusterImage, version: int, *, topic_operations: int, cluster_operations: int
    ) -> bytes:
        """The body with all topics of an image; other work may run in between while much of it is new."""
        asked = version, topic_operations, cluster_operations
        known = self._everything.get(asked)
        if known is not None and known[0] is image:
            return known[1]
        entries = []
        fresh = 0
        for topic in image.topics.values():
            is_internal = topic.is_internal
            entry = self._known(image, topic, version, topic_operations, is_internal)
            if entry is None:
                entry = self.topic(image, topic, version, topic_operations, is_internal=is_internal)
                fresh += len(topic.partitions)
            entries.append(entry)
            if fresh >= _PARTITIONS_AT_ONCE:
                fresh = 0
                await asyncio.sleep(0)
        body = self.assemble(image, version, entries, cluster_operations)
        self._everything[asked] = image, body
        return body

    def topic(
        self, image: ClusterImage, topic: TopicImage, version: int, operations: int, *, is_internal: bool
    ) -> bytes:
        """One existing topic's entry."""
        known = self._known(image, topic, version, operations, is_internal)
        if known is not None:
            return known
        entity = _topic_entity(image, topic, version, self._reachable, operations, is_internal)
        entry = encode_topic(entity, version)
        if operations in _KEPT_OPERATIONS:
            kept = self._topics.setdefault((version, operations, is_internal), {})
            if len(kept) > len(image.topics) + _SPARE_TOPICS:
                kept.clear()
            kept[topic.name] = topic, entry
        return entry

    def assemble(self, image: ClusterImage, version: int, topics: Sequence[bytes], cluster_operations: int) -> bytes:
        """A response's body: the image's brokers, and these entries."""
        self._forget_if_changed(image)
        frame = self._frames.get((version, cluster_operations))
        if frame is None:
            frame = _frame(image, version, self._listener, cluster_operations)
            self._frames[version, cluster_operations] = frame
        head, tail = frame
        count = unsigned_varint(len(topics) + 1) if version >= _FLEXIBLE_SINCE else _COUNT.pack(len(topics))
        return b"".join((head, count, *topics, tail))

    def _known(
        self, image: ClusterImage, topic: TopicImage, version: int, operations: int, is_internal: bool
    ) -> bytes | None:
        self._forget_if_changed(image)
        kept = self._topics.get((version, operations, is_internal), {}).get(topic.name)
        return kept[1] if kept is not None and kept[0] is topic else None

    def _forget_if_changed(self, image: ClusterImage) -> None:
        """Every entry names the offline replicas, so it is valid for one set of brokers only."""
        cluster = (image.brokers, image.controller, image.cluster_id)
        if cluster != self._cluster:
            self._cluster = cluster
            self._reachable = image.reachable(self._listener)
            self._frames.clear()
            self._topics.clear()
            self._everything.clear()


def encode_topic(topic: MetadataResponseTopic, version: int) -> bytes:
    """One topic's entry in a version's form: what a response with it has more than a response without any."""
    tail_bytes = _TAIL_BYTES.get(version, 0)
    alone = encode_bare((topic,), version)
    return alone[len(encode_bare((), version)) - tail_bytes : len(alone) - tail_bytes]


def encode_error(
    version: int,
    error: ErrorCode,
    *,
    name: str | None = None,
    topic_id: UUID | None = None,
    operations: int = OPERATIONS_NOT_REQUESTED,
) -> bytes:
    """The entry of a topic that is not shown, whose name is null if it was asked for by its id.

    Written here and not by kio: a request may name thousands of topics that do not exist.
    """
    encoded = b"" if name is None else name.encode()
    is_internal = name in INTERNAL_TOPICS
    if version < _FLEXIBLE_SINCE:
        head = _ERROR_AND_LENGTH.pack(error, len(encoded)) + encoded
        rest = _COUNT.pack(0) if version < _IS_INTERNAL_SINCE else _IS_INTERNAL_AND_COUNT.pack(is_internal, 0)
        return head + rest + (_OPERATIONS.pack(operations) if version >= _OPERATIONS_SINCE else b"")
    length = b"\0" if name is None else unsigned_varint(len(encoded) + 1)
    shown_id = b"" if version < _TOPIC_IDS_SINCE else _NO_ID if topic_id is None else topic_id.bytes
    head = b"".join((_ERROR.pack(error), length, encoded, shown_id))
    return head + _FLEXIBLE_REST.pack(is_internal, _NO_PARTITIONS, operations, _NO_TAGS)


def encode_bare(topics: tuple[MetadataResponseTopic, ...], version: int, error: ErrorCode = ErrorCode.NONE) -> bytes:
    """A body without brokers, for a request that is refused as a whole."""
    response = MetadataResponse(
        throttle_time=milliseconds(0), brokers=(), cluster_id=None, topics=topics, error_code=wire_error(error)
    )
    return _encode(response, version)


def _frame(image: ClusterImage, version: int, listener: str, cluster_operations: int) -> tuple[bytes, bytes]:
    """The bytes before the number of topics, and those after the last topic."""
    response = MetadataResponse(
        throttle_time=milliseconds(0),
        brokers=tuple(
            MetadataResponseBroker(
                node_id=_wire_id(broker.id), host=endpoint.host, port=i32(endpoint.port), rack=broker.rack
            )
            for broker in image.brokers.values()
            if (endpoint := broker.endpoint(listener)) is not None
        ),
        cluster_id=image.cluster_id,
        controller_id=_wire_id(image.controller),
        topics=(),
        error_code=_NONE,
    )
    body = _encode(response, version)
    end = len(body) - _TAIL_BYTES.get(version, 0)
    head, tail = body[: end - (1 if version >= _FLEXIBLE_SINCE else _COUNT.size)], body[end:]
    if version in _CLUSTER_OPERATIONS_IN:
        tail = _OPERATIONS.pack(cluster_operations) + tail[_OPERATIONS.size :]
    return head, tail


def _encode(response: MetadataResponse, version: int) -> bytes:
    header_bytes = _HEADER_BYTES + (version >= _FLEXIBLE_SINCE)
    return write_response(ApiKey.METADATA, version, 0, response)[header_bytes:]


def _topic_entity(
    image: ClusterImage,
    topic: TopicImage,
    version: int,
    reachable: frozenset[BrokerId],
    operations: int,
    is_internal: bool,
) -> MetadataResponseTopic:
    partitions = []
    for index, partition in enumerate(topic.partitions):
        error, leader, offline = availability(partition, image.brokers, reachable)
        if error is ErrorCode.LISTENER_NOT_FOUND and version < _LISTENER_NOT_FOUND_SINCE:
            error = ErrorCode.LEADER_NOT_AVAILABLE
        partitions.append(
            MetadataResponsePartition(
                error_code=wire_error(error),
                partition_index=cast(i32, index),
                leader_id=_wire_id(leader),
                leader_epoch=cast(i32, partition.leader_epoch),
                replica_nodes=_wire_ids(partition.replicas),
                isr_nodes=_wire_ids(partition.isr),
                offline_replicas=_wire_ids(offline),
            )
        )
    return MetadataResponseTopic(
        error_code=_NONE,
        name=TopicName(topic.name),
        topic_id=topic.id,
        is_internal=is_internal,
        partitions=tuple(partitions),
        topic_authorized_operations=i32(operations),
    )


def _wire_id(broker: BrokerId) -> WireBrokerId:
    return cast(WireBrokerId, broker)


def _wire_ids(brokers: tuple[BrokerId, ...]) -> tuple[WireBrokerId, ...]:
    return cast(tuple[WireBrokerId, ...], brokers)
