"""Metadata: the brokers and topics that a client sees, and topics that are created automatically.

The answer is bytes, the body as it goes on the wire: `metadata_bodies.py` keeps them. Internal topics are not created
here: their coordinators create them with the right configs.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Final
from weakref import WeakKeyDictionary

from kio.schema.metadata.v10.request import MetadataRequest as OldRequest
from kio.schema.metadata.v10.request import MetadataRequestTopic as OldRequestTopic
from kio.schema.metadata.v13.request import MetadataRequest, MetadataRequestTopic
from kio.schema.metadata.v13.response import MetadataResponseTopic
from kio.schema.types import TopicName

from ottla.broker.handlers.topics.metadata_bodies import MetadataBodies, encode_bare, encode_error
from ottla.broker.handlers.topics.mutation_quota import MutationQuota
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.services import Services
from ottla.controller.companions_state import GroupCompanions, ReservedName, group_companions, resembled_by, reserved_by
from ottla.controller.decisions import NewTopic
from ottla.controller.topic_names import fault_of_name
from ottla.metadata.image import INTERNAL_TOPICS
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import OttlaError, RetriableError
from ottla.protocol.messages import wire_error
from ottla.security.resources import CLUSTER_NAME, OPERATIONS_NOT_REQUESTED, Operation, ResourceType

_LOG: Final = logging.getLogger(__name__)
_IDS_SINCE: Final = 12
_TOPICS_AT_ONCE: Final = 100
"""How many topics are looked up before other work may run."""
_BODIES: Final[WeakKeyDictionary[Services, dict[str, MetadataBodies]]] = WeakKeyDictionary()
"""What was encoded, for each listener of each broker."""
_WARNED: Final[WeakKeyDictionary[Services, set[str]]] = WeakKeyDictionary()
"""Names of companions that each broker warned about."""
_REFUSED: Final = (
    "topic {name} not created automatically: it is the name of a companion of topic {topic}, which has not enabled that"
    " queue; set {config}=true on topic {topic}, or create topic {name} explicitly if it is not meant for the queue"
)
_ORDINARY: Final = (
    "topic {name} created automatically as an ordinary topic, though it has the name of a companion: topic {topic} does"
    " not exist. If a queue should deliver its records, delete it, and create topic {topic} with {config}=true"
)
_WARNED_MAX: Final = 1000


async def metadata(services: Services, context: RequestContext, request: MetadataRequest | OldRequest) -> bytes:
    """The body of the answer, encoded in the version that was asked in.

    All topics for null (or, in version 0, an empty list); none for an empty list; else those that are named. Where one
    topic is asked for by id, only the ids count. Companions that hold parked records are internal among all topics, so
    that patterns do not match them, but not if they are named: kafka-python's producer refuses internal topics.
    """
    by_listener = _BODIES.setdefault(services, {})
    bodies = by_listener.get(context.listener)
    if bodies is None:
        bodies = by_listener[context.listener] = MetadataBodies(context.listener)
    version, with_operations = context.version, request.include_topic_authorized_operations
    cluster_operations = _cluster_operations(context, request)
    wanted: tuple[MetadataRequestTopic | OldRequestTopic, ...] | None = request.topics
    is_everything = False
    if wanted is None or (version == 0 and not wanted):
        if context.authorizer.allows_all:
            topic_operations = context.operations(ResourceType.TOPIC, "", requested=with_operations)
            return await bodies.everything(
                services.image, version, topic_operations=topic_operations, cluster_operations=cluster_operations
            )
        is_everything = True
        allowed = [each for each in services.image.topics if context.sees(Operation.DESCRIBE, ResourceType.TOPIC, each)]
        wanted = tuple(MetadataRequestTopic(topic_id=None, name=TopicName(name)) for name in allowed)
    elif _is_wrong(wanted, version):
        return encode_bare(tuple(_refused(topic) for topic in wanted), version, ErrorCode.INVALID_REQUEST)
    ids = dict.fromkeys(topic.topic_id for topic in wanted if topic.topic_id is not None)
    names = {} if ids else dict.fromkeys(topic.name for topic in wanted if topic.name is not None)
    denied: set[str] = set()
    if not is_everything:
        denied = {name for name in names if not context.allows(Operation.DESCRIBE, ResourceType.TOPIC, name)}
    errors: dict[str, ErrorCode] = {}
    unknown = [name for name in names if name not in services.image.topics and name not in denied]
    if unknown and request.allow_auto_topic_creation:
        errors = await _create(services, context, unknown)
    image = services.image
    entries = [
        encode_error(version, ErrorCode.UNKNOWN_TOPIC_ID, topic_id=id_) for id_ in ids if id_ not in image.topics_by_id
    ]
    found = [image.topics_by_id[id_].name for id_ in ids if id_ in image.topics_by_id]
    hidden = {name for name in found if not context.allows(Operation.DESCRIBE, ResourceType.TOPIC, name)}
    for number, name in enumerate((*found, *names), start=1):
        if number % _TOPICS_AT_ONCE == 0:
            await asyncio.sleep(0)
        topic = image.topics.get(name)
        if topic is not None and name in hidden:
            # Its name is not shown to a client that may not describe it.
            entries.append(encode_error(version, ErrorCode.TOPIC_AUTHORIZATION_FAILED, topic_id=topic.id))
            continue
        if name in denied:
            entries.append(encode_error(version, ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name))
            continue
        operations = context.operations(ResourceType.TOPIC, name, requested=with_operations)
        if topic is not None:
            is_internal = topic.is_internal if is_everything else name in INTERNAL_TOPICS
            entries.append(bodies.topic(image, topic, version, operations, is_internal=is_internal))
        else:
            error = errors.get(name) or _error_of(name)
            entries.append(encode_error(version, error, name=name, operations=operations))
    return bodies.assemble(image, version, entries, cluster_operations)


def _cluster_operations(context: RequestContext, request: MetadataRequest | OldRequest) -> int:
    if not (isinstance(request, OldRequest) and request.include_cluster_authorized_operations):
        return OPERATIONS_NOT_REQUESTED
    if not context.sees_cluster(Operation.DESCRIBE):
        return 0
    return context.operations(ResourceType.CLUSTER, CLUSTER_NAME)


def _is_wrong(wanted: Iterable[MetadataRequestTopic | OldRequestTopic], version: int) -> bool:
    if version < _IDS_SINCE:
        return any(topic.name is None or topic.topic_id is not None for topic in wanted)
    return any(topic.name is None and topic.topic_id is None for topic in wanted)


async def _create(services: Services, context: RequestContext, names: Sequence[str]) -> dict[str, ErrorCode]:
    """Creates the topics that may be created; returns the errors of the others.

    Companions of consumer groups are created even if auto.create.topics.enable is false: a client that hands records
    back only knows their name. Other names of companions are refused: records in an ordinary topic of that name would
    never be delivered.
    """
    topics = services.image.topics
    groups = {name: group for name in names if (group := group_companions(topics, name)) is not None}
    if not services.config.auto_create_topics_enable:
        names = list(groups)
    denied: dict[str, ErrorCode] = {}
    if not context.sees_cluster(Operation.CREATE):
        error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        denied = {
            name: error
            for name in names
            if not (name in groups and _may_consume(context, groups[name]))
            and not context.allows(Operation.CREATE, ResourceType.TOPIC, name)
        }
    for name in names:
        reserved = None if name in groups or name in denied else reserved_by(topics, name)
        if reserved is not None:
            denied[name] = ErrorCode.INVALID_TOPIC_EXCEPTION
            _warn_once(services, name, _REFUSED, reserved)
    quota = MutationQuota(services, context, strict_since=0)
    wanted = []
    for name in names:
        if name in INTERNAL_TOPICS or name in denied or fault_of_name(name) is not None:
            continue
        if quota.refusal(name, name, services.config.num_partitions) is None:
            wanted.append(NewTopic(name=name))
        else:
            # Clients ask again after this error; many do not know the quota's own.
            denied[name] = ErrorCode.LEADER_NOT_AVAILABLE
    errors = await _create_allowed(services, wanted)
    for name in errors:
        quota.take_back(name)
    for topic in wanted:
        resembled = None if topic.name in groups or topic.name in errors else resembled_by(topic.name)
        if resembled is not None:
            _warn_once(services, topic.name, _ORDINARY, resembled)
    return denied | errors


def _warn_once(services: Services, name: str, message: str, reserved: ReservedName) -> None:
    """Metadata responses have no error messages, so the log says what became of the topic."""
    warned = _WARNED.setdefault(services, set())
    if name in warned:
        return
    if len(warned) >= _WARNED_MAX:
        warned.clear()
    warned.add(name)
    _LOG.warning("%s", message.format(name=name, topic=reserved.topic, config=reserved.config))


def _may_consume(context: RequestContext, group: GroupCompanions) -> bool:
    """Whether the client may be a member of the group, and so may create the group's companions."""
    return context.sees(Operation.READ, ResourceType.TOPIC, group.topic) and context.sees(
        Operation.READ, ResourceType.GROUP, group.group
    )


async def _create_allowed(services: Services, wanted: Sequence[NewTopic]) -> dict[str, ErrorCode]:
    if not wanted:
        return {}
    try:
        made = await services.controller.create_topics(wanted)
        async with asyncio.timeout(services.config.request_timeout_ms / 1000):
            await services.wait_revision(made.revision)
    except (RetriableError, TimeoutError):
        return {topic.name: ErrorCode.LEADER_NOT_AVAILABLE for topic in wanted}
    except OttlaError as error:
        return {topic.name: error.code for topic in wanted}
    return {
        outcome.name: outcome.error
        for outcome in made.outcomes
        # Created together with another one, or by another request at the same time: it exists.
        if outcome.name is not None and outcome.error not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
    }


def _error_of(name: str) -> ErrorCode:
    return ErrorCode.INVALID_TOPIC_EXCEPTION if fault_of_name(name) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _refused(topic: MetadataRequestTopic | OldRequestTopic) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=wire_error(ErrorCode.INVALID_REQUEST),
        name=topic.name or TopicName(""),
        topic_id=topic.topic_id,
        partitions=(),
    )
