"""Metadata: which topics a client hears of, and topics that come to be because somebody asked for them.

The answer is bytes, the body as it goes on the wire: `metadata_bodies.py` keeps them. A topic that a client may read
but has to create otherwise is one of the internal ones: their coordinators know how they must look.
"""

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final
from uuid import UUID
from weakref import WeakKeyDictionary

from kio.schema.metadata.v10.request import MetadataRequest as OldRequest
from kio.schema.metadata.v10.request import MetadataRequestTopic as OldRequestTopic
from kio.schema.metadata.v13.request import MetadataRequest, MetadataRequestTopic
from kio.schema.metadata.v13.response import MetadataResponseTopic
from kio.schema.types import TopicName
from kio.static.primitive import i32

from ottla.broker.context import Context
from ottla.broker.handlers.availability import OPERATIONS_NOT_ASKED, TOPIC_OPERATIONS
from ottla.broker.handlers.metadata_bodies import MetadataBodies, encode_bare, encode_topic
from ottla.controller.decisions import NewTopic
from ottla.controller.topic_names import fault_of_name
from ottla.metadata.image import INTERNAL_TOPICS
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import OttlaError, RetriableError
from ottla.protocol.messages import wire_error

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

_IDS_SINCE: Final = 12
_TOPICS_AT_ONCE: Final = 100
"""How many topics are looked up before the event loop gets its turn: some milliseconds if none of them exists."""
_BODIES: "Final[WeakKeyDictionary[Broker, MetadataBodies]]" = WeakKeyDictionary()


async def metadata(broker: "Broker", context: Context, request: MetadataRequest | OldRequest) -> bytes:
    """The body of the answer, encoded in the version that was asked in.

    All topics for null (or, in version 0, an empty list); none for an empty list; else those that are named. Where one
    topic is asked for by id, only the ids count.
    """
    bodies = _BODIES.get(broker)
    if bodies is None:
        bodies = _BODIES[broker] = MetadataBodies()
    version, with_operations = context.version, request.include_topic_authorized_operations
    with_cluster_operations = isinstance(request, OldRequest) and request.include_cluster_authorized_operations
    wanted: tuple[MetadataRequestTopic | OldRequestTopic, ...] | None = request.topics
    if wanted is None or (version == 0 and not wanted):
        return await bodies.everything(
            broker.image,
            version,
            with_operations=with_operations,
            with_cluster_operations=with_cluster_operations,
        )
    if _is_wrong(wanted, version):
        return encode_bare(tuple(_refused(topic) for topic in wanted), version, ErrorCode.INVALID_REQUEST)
    ids = dict.fromkeys(topic.topic_id for topic in wanted if topic.topic_id is not None)
    names = {} if ids else dict.fromkeys(topic.name for topic in wanted if topic.name is not None)
    errors: dict[str, ErrorCode] = {}
    unknown = [name for name in names if name not in broker.image.topics]
    if unknown and request.allow_auto_topic_creation and broker.config.auto_create_topics_enable:
        errors = await _create(broker, unknown)
    image = broker.image
    entries = [encode_topic(_unknown_id(id_), version) for id_ in ids if id_ not in image.topics_by_id]
    found = [image.topics_by_id[id_].name for id_ in ids if id_ in image.topics_by_id]
    for number, name in enumerate((*found, *names), start=1):
        if number % _TOPICS_AT_ONCE == 0:
            await asyncio.sleep(0)
        topic = image.topics.get(name)
        if topic is not None:
            entries.append(bodies.topic(image, topic, version, with_operations=with_operations))
        else:
            error = errors.get(name) or _error_of(name)
            entries.append(encode_topic(_missing(name, error, with_operations=with_operations), version))
    return bodies.assemble(image, version, entries, with_cluster_operations=with_cluster_operations)


def _is_wrong(wanted: Iterable[MetadataRequestTopic | OldRequestTopic], version: int) -> bool:
    if version < _IDS_SINCE:
        return any(topic.name is None or topic.topic_id is not None for topic in wanted)
    return any(topic.name is None and topic.topic_id is None for topic in wanted)


async def _create(broker: "Broker", names: Iterable[str]) -> dict[str, ErrorCode]:
    """Makes the topics that may be made, with the broker's defaults; answers why the others were not."""
    wanted = [NewTopic(name=name) for name in names if name not in INTERNAL_TOPICS and fault_of_name(name) is None]
    if not wanted:
        return {}
    try:
        made = await broker.controller.create_topics(wanted)
        async with asyncio.timeout(broker.config.request_timeout_ms / 1000):
            await broker.wait_revision(made.revision)
    except (RetriableError, TimeoutError):
        return {topic.name: ErrorCode.LEADER_NOT_AVAILABLE for topic in wanted}
    except OttlaError as error:
        return {topic.name: error.code for topic in wanted}
    return {outcome.name: outcome.error for outcome in made.outcomes if outcome.name is not None and outcome.error}


def _error_of(name: str) -> ErrorCode:
    return ErrorCode.INVALID_TOPIC_EXCEPTION if fault_of_name(name) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _missing(name: str, error: ErrorCode, *, with_operations: bool) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=wire_error(error),
        name=TopicName(name),
        topic_id=None,
        is_internal=name in INTERNAL_TOPICS,
        partitions=(),
        topic_authorized_operations=i32(TOPIC_OPERATIONS if with_operations else OPERATIONS_NOT_ASKED),
    )


def _unknown_id(topic_id: UUID) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=wire_error(ErrorCode.UNKNOWN_TOPIC_ID), name=None, topic_id=topic_id, partitions=()
    )


def _refused(topic: MetadataRequestTopic | OldRequestTopic) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=wire_error(ErrorCode.INVALID_REQUEST),
        name=topic.name or TopicName(""),
        topic_id=topic.topic_id,
        partitions=(),
    )
