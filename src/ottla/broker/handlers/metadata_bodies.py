"""Metadata responses as bytes: each topic is encoded once for each version and kept while it stays as it is.

A client with all topics in view asks for all of them every few minutes, and every client does when a broker goes. Ten
thousand partitions take kio a tenth of a second each time; images are immutable, so that the bytes of a topic can be
kept by the identity of its picture. `metadata.py` decides which topics are in an answer.
"""

import asyncio
from collections.abc import Sequence
from struct import Struct
from typing import Final, cast

from kio.schema.metadata.v13.response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kio.schema.types import BrokerId as WireBrokerId
from kio.schema.types import TopicName
from kio.static.primitive import i32

from ottla.broker.handlers.availability import (
    CLUSTER_OPERATIONS,
    OPERATIONS_NOT_ASKED,
    TOPIC_OPERATIONS,
    availability,
)
from ottla.metadata.image import ClusterImage, TopicImage
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import BrokerId
from ottla.protocol.apis import ApiKey
from ottla.protocol.messages import LAST_WITH_CLUSTER_OPERATIONS, milliseconds, wire_error, write_response
from ottla.protocol.varints import unsigned_varint

_FLEXIBLE_SINCE: Final = 9
_HEADER_BYTES: Final = 8
_COUNT: Final = Struct(">i")
_TAIL_BYTES: Final = {8: 4, 9: 5, 10: 5, 11: 1, 12: 1, 13: 3}
"""What follows the list of topics: authorized operations of the cluster, an error code, tagged fields."""
_CLUSTER_OPERATIONS_IN: Final = range(8, LAST_WITH_CLUSTER_OPERATIONS + 1)
_OPERATIONS: Final = Struct(">i")
_PARTITIONS_AT_ONCE: Final = 250
"""How many partitions are encoded before the event loop gets its turn: 3 ms."""
_SPARE_TOPICS: Final = 100

_NONE: Final = wire_error(ErrorCode.NONE)


class MetadataBodies:
    """What was encoded for one broker's clients, as long as it is true.

    Of topics that are gone, a few more than there are topics may be kept.
    """

    def __init__(self) -> None:
        self._cluster: tuple[object, ...] = ()
        self._frames: dict[tuple[int, bool], tuple[bytes, bytes]] = {}
        self._topics: dict[tuple[int, bool], dict[str, tuple[TopicImage, bytes]]] = {}
        self._everything: dict[tuple[int, bool, bool], tuple[ClusterImage, bytes]] = {}

    async def everything(
        self, image: ClusterImage, version: int, *, with_operations: bool, with_cluster_operations: bool
    ) -> bytes:
        """The body with all topics of an image; gives way to other work while much of it is new."""
        asked = version, with_operations, with_cluster_operations
        known = self._everything.get(asked)
        if known is not None and known[0] is image:
            return known[1]
        entries = []
        fresh = 0
        for topic in image.topics.values():
            entry = self._known(image, topic, version, with_operations)
            if entry is None:
                entry = self.topic(image, topic, version, with_operations=with_operations)
                fresh += len(topic.partitions)
            entries.append(entry)
            if fresh >= _PARTITIONS_AT_ONCE:
                fresh = 0
                await asyncio.sleep(0)
        body = self.assemble(image, version, entries, with_cluster_operations=with_cluster_operations)
        self._everything[asked] = image, body
        return body

    def topic(self, image: ClusterImage, topic: TopicImage, version: int, *, with_operations: bool) -> bytes:
        """One existing topic's entry."""
        known = self._known(image, topic, version, with_operations)
        if known is not None:
            return known
        entry = encode_topic(_topic_entity(image, topic, with_operations=with_operations), version)
        kept = self._topics.setdefault((version, with_operations), {})
        if len(kept) > len(image.topics) + _SPARE_TOPICS:
            kept.clear()
        kept[topic.name] = topic, entry
        return entry

    def assemble(
        self, image: ClusterImage, version: int, topics: Sequence[bytes], *, with_cluster_operations: bool
    ) -> bytes:
        """A response's body: the image's brokers, and these entries."""
        self._forget_if_changed(image)
        frame = self._frames.get((version, with_cluster_operations))
        if frame is None:
            frame = _frame(image, version, with_cluster_operations=with_cluster_operations)
            self._frames[version, with_cluster_operations] = frame
        head, tail = frame
        count = unsigned_varint(len(topics) + 1) if version >= _FLEXIBLE_SINCE else _COUNT.pack(len(topics))
        return b"".join((head, count, *topics, tail))

    def _known(self, image: ClusterImage, topic: TopicImage, version: int, with_operations: bool) -> bytes | None:
        self._forget_if_changed(image)
        kept = self._topics.get((version, with_operations), {}).get(topic.name)
        return kept[1] if kept is not None and kept[0] is topic else None

    def _forget_if_changed(self, image: ClusterImage) -> None:
        """Every entry says which replicas are offline, so that it holds for one set of brokers only."""
        cluster = (image.brokers, image.controller, image.cluster_id)
        if cluster != self._cluster:
            self._cluster = cluster
            self._frames.clear()
            self._topics.clear()
            self._everything.clear()


def encode_topic(topic: MetadataResponseTopic, version: int) -> bytes:
    """One topic's entry in a version's form: what a response with it has more than a response without any."""
    tail_bytes = _TAIL_BYTES.get(version, 0)
    alone = encode_bare((topic,), version)
    return alone[len(encode_bare((), version)) - tail_bytes : len(alone) - tail_bytes]


def encode_bare(topics: tuple[MetadataResponseTopic, ...], version: int, error: ErrorCode = ErrorCode.NONE) -> bytes:
    """A body that names no broker: how a request is refused as a whole."""
    response = MetadataResponse(
        throttle_time=milliseconds(0), brokers=(), cluster_id=None, topics=topics, error_code=wire_error(error)
    )
    return _encode(response, version)


def _frame(image: ClusterImage, version: int, *, with_cluster_operations: bool) -> tuple[bytes, bytes]:
    """What stands before the number of topics, and what behind the last one."""
    response = MetadataResponse(
        throttle_time=milliseconds(0),
        brokers=tuple(
            MetadataResponseBroker(
                node_id=_wire_id(broker.id), host=broker.host, port=i32(broker.port), rack=broker.rack
            )
            for broker in image.brokers.values()
        ),
        cluster_id=image.cluster_id,
        controller_id=_wire_id(image.controller),
        topics=(),
        error_code=_NONE,
    )
    body = _encode(response, version)
    end = len(body) - _TAIL_BYTES.get(version, 0)
    head, tail = body[: end - (1 if version >= _FLEXIBLE_SINCE else _COUNT.size)], body[end:]
    if with_cluster_operations and version in _CLUSTER_OPERATIONS_IN:
        tail = _OPERATIONS.pack(CLUSTER_OPERATIONS) + tail[_OPERATIONS.size :]
    return head, tail


def _encode(response: MetadataResponse, version: int) -> bytes:
    header_bytes = _HEADER_BYTES + (version >= _FLEXIBLE_SINCE)
    return write_response(ApiKey.METADATA, version, 0, response)[header_bytes:]


def _topic_entity(image: ClusterImage, topic: TopicImage, *, with_operations: bool) -> MetadataResponseTopic:
    partitions = []
    for index, partition in enumerate(topic.partitions):
        error, leader, offline = availability(partition, image.brokers)
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
        is_internal=topic.is_internal,
        partitions=tuple(partitions),
        topic_authorized_operations=i32(TOPIC_OPERATIONS if with_operations else OPERATIONS_NOT_ASKED),
    )


def _wire_id(broker: BrokerId) -> WireBrokerId:
    return cast(WireBrokerId, broker)


def _wire_ids(brokers: tuple[BrokerId, ...]) -> tuple[WireBrokerId, ...]:
    return cast(tuple[WireBrokerId, ...], brokers)
