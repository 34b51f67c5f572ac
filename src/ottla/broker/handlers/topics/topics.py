"""CreateTopics, DeleteTopics and CreatePartitions: requests for the controller, and its outcomes as responses.

The rules are the controller's (`ottla.controller.topics_state`). A change is answered once this broker serves it, or
with REQUEST_TIMED_OUT if the client's time is up before: it was made all the same.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final
from uuid import UUID

from kio.schema.create_partitions.v3.request import CreatePartitionsRequest
from kio.schema.create_partitions.v3.response import CreatePartitionsResponse, CreatePartitionsTopicResult
from kio.schema.create_topics.v7.request import CreatableTopic, CreateTopicsRequest
from kio.schema.create_topics.v7.response import CreatableTopicConfigs, CreatableTopicResult, CreateTopicsResponse
from kio.schema.delete_topics.v6.request import DeleteTopicsRequest
from kio.schema.delete_topics.v6.response import DeletableTopicResult, DeleteTopicsResponse
from kio.schema.types import TopicName
from kio.static.primitive import i8, i16, i32

from ottla.broker.configs.topic_settings import describe_topic
from ottla.broker.handlers.topics.dead_letter_permission import check_dead_letters
from ottla.broker.handlers.topics.mutation_quota import MutationQuota
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.services import Services
from ottla.controller.decisions import (
    Committed,
    NewPartitions,
    NewTopic,
    ReplicaAssignment,
    TopicOutcome,
    TopicReference,
)
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import DeniedError, OttlaError
from ottla.model.ids import BrokerId
from ottla.protocol.messages import milliseconds, wire_error
from ottla.security.resources import Operation, ResourceType

_CONFIGS_SINCE: Final = 5
_CREATE_STRICT_SINCE: Final = 6
_DELETE_STRICT_SINCE: Final = 5
_PARTITIONS_STRICT_SINCE: Final = 3
"""The first versions whose clients know THROTTLING_QUOTA_EXCEEDED."""
_COUNTED: Final = frozenset({ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT})
"""The outcomes of changes that were made: they count for the quota."""
_DELETION_DISABLED_SINCE: Final = 3
_DENIED: Final = "the client is not authorized for this topic"


# CreateTopics


async def create_topics(
    services: Services, context: RequestContext, request: CreateTopicsRequest
) -> CreateTopicsResponse:
    """Makes the topics that can be made, or with `validate_only` says which could be; each has its own outcome."""
    may_create_all = context.sees_cluster(Operation.CREATE)
    denied = [
        TopicOutcome(name=topic.name, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED, message=_DENIED)
        for topic in request.topics
        if not may_create_all and not context.allows(Operation.CREATE, ResourceType.TOPIC, topic.name)
    ]
    refused = {outcome.name for outcome in denied}
    wishes = [_new_topic(topic) for topic in request.topics if topic.name not in refused]
    elsewhere = {
        wish.name: why for wish in wishes if (why := _dead_letter_refusal(services, context, wish)) is not None
    }
    wishes = [wish for wish in wishes if wish.name not in elsewhere]
    denied += elsewhere.values()
    quota = MutationQuota(services, context, strict_since=_CREATE_STRICT_SINCE)
    over = {wish.name: refusal for wish in wishes if (refusal := _creation_refusal(services, quota, wish)) is not None}
    wishes = [wish for wish in wishes if wish.name not in over]
    denied += over.values()
    outcomes = await _settled(
        services,
        lambda: services.controller.create_topics(wishes, validate_only=request.validate_only),
        [(wish.name, None) for wish in wishes],
        request.timeout,
        denied,
    )
    for outcome in outcomes:
        if outcome.error not in _COUNTED:
            quota.take_back(outcome.name)
    shown = _Configs(services) if context.version >= _CONFIGS_SINCE else None
    return CreateTopicsResponse(
        throttle_time=milliseconds(quota.throttle_ms),
        topics=tuple(
            _created(outcome, shown, context.sees(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, outcome.name or ""))
            for outcome in outcomes
        ),
    )


def _dead_letter_refusal(services: Services, context: RequestContext, wish: NewTopic) -> TopicOutcome | None:
    if wish.name in services.image.topics:
        return None
    try:
        configs = {name: value for name, value in wish.configs.items() if value is not None}
        check_dead_letters(context, services.image, wish.name, configs)
    except DeniedError as error:
        return TopicOutcome(name=wish.name, error=error.code, message=str(error))
    return None


def _creation_refusal(services: Services, quota: MutationQuota, wish: NewTopic) -> TopicOutcome | None:
    if wish.name in services.image.topics:
        return None
    count = len(wish.assignments) or wish.partition_count
    return quota.refusal(wish.name, wish.name, count if count > 0 else services.config.num_partitions)


def _created(outcome: TopicOutcome, shown: "_Configs | None", may_describe: bool) -> CreatableTopicResult:
    if not may_describe and not outcome.error:
        return CreatableTopicResult(
            name=TopicName(outcome.name or ""),
            topic_id=outcome.id,
            error_code=wire_error(ErrorCode.NONE),
            error_message=None,
            topic_config_error_code=i16(ErrorCode.TOPIC_AUTHORIZATION_FAILED),
            configs=(),
        )
    return CreatableTopicResult(
        name=TopicName(outcome.name or ""),
        topic_id=outcome.id,
        error_code=wire_error(outcome.error),
        error_message=outcome.message,
        num_partitions=i32(outcome.partition_count),
        replication_factor=i16(outcome.replication_factor),
        configs=() if outcome.error or shown is None else shown.of(outcome.configs),
    )


def _new_topic(topic: CreatableTopic) -> NewTopic:
    return NewTopic(
        name=topic.name,
        partition_count=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=tuple(
            ReplicaAssignment(each.partition_index, tuple(map(BrokerId, each.broker_ids))) for each in topic.assignments
        ),
        configs={config.name: config.value for config in topic.configs},
    )


class _Configs:
    """The configs of new topics as the answer shows them; most topics of one request have the same."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._known: dict[frozenset[tuple[str, str]], tuple[CreatableTopicConfigs, ...]] = {}

    def of(self, overrides: Mapping[str, str]) -> tuple[CreatableTopicConfigs, ...]:
        key = frozenset(overrides.items())
        if key not in self._known:
            self._known[key] = tuple(
                CreatableTopicConfigs(
                    name=config.name,
                    value=config.value,
                    read_only=config.is_read_only,
                    config_source=i8(config.source),
                    is_sensitive=config.is_sensitive,
                )
                for config in describe_topic(self._services.config, overrides)
            )
        return self._known[key]


# DeleteTopics


async def delete_topics(
    services: Services, context: RequestContext, request: DeleteTopicsRequest
) -> DeleteTopicsResponse:
    """Deletes topics, by name or by id, unless delete.topic.enable is false."""
    references = [TopicReference(name=topic.name, id=topic.topic_id) for topic in request.topics]
    asked = [(reference.name, reference.id) for reference in references]
    quota = MutationQuota(services, context, strict_since=_DELETE_STRICT_SINCE)
    if services.config.delete_topic_enable:
        denied = _denied_deletions(services, context, references)
        references = [each for each in references if each not in denied]
        for reference in references:
            refusal = _deletion_refusal(services, quota, reference)
            if refusal is not None:
                denied[reference] = refusal
        references = [each for each in references if each not in denied]
        asked = [(reference.name, reference.id) for reference in references]
        outcomes = await _settled(
            services,
            lambda: services.controller.delete_topics(references),
            asked,
            request.timeout,
            list(denied.values()),
        )
        for outcome in outcomes:
            if outcome.error not in _COUNTED:
                quota.take_back((outcome.name, outcome.id))
    else:
        is_known = context.version >= _DELETION_DISABLED_SINCE
        error = ErrorCode.TOPIC_DELETION_DISABLED if is_known else ErrorCode.INVALID_REQUEST
        outcomes = _refused(asked, error, "topics cannot be deleted: delete.topic.enable is false")
    return DeleteTopicsResponse(
        throttle_time=milliseconds(quota.throttle_ms),
        responses=tuple(
            DeletableTopicResult(
                name=None if outcome.name is None else TopicName(outcome.name),
                topic_id=outcome.id,
                error_code=wire_error(outcome.error),
                error_message=outcome.message,
            )
            for outcome in outcomes
        ),
    )


def _deletion_refusal(services: Services, quota: MutationQuota, reference: TopicReference) -> TopicOutcome | None:
    image = services.image
    topic = image.topics_by_id.get(reference.id) if reference.id is not None else image.topics.get(reference.name or "")
    if topic is None:
        return None
    refusal = quota.refusal((reference.name, reference.id), reference.name, len(topic.partitions))
    return None if refusal is None else replace(refusal, id=reference.id)


def _denied_deletions(
    services: Services, context: RequestContext, references: Sequence[TopicReference]
) -> dict[TopicReference, TopicOutcome]:
    """The topics that the client may not delete. One that is asked for by name must also be describable, so that it is
    denied even if it is missing; of one that is asked for by id, the name is shown only if it may be described."""
    if context.authorizer.allows_all or context.sees_cluster(Operation.DELETE):
        return {}
    image = services.image
    denied = {}
    for reference in references:
        topic = image.topics_by_id.get(reference.id) if reference.id is not None else None
        name = reference.name if topic is None else topic.name
        if name is None:
            continue
        may_describe = (context.allows if reference.id is None else context.sees)(
            Operation.DESCRIBE, ResourceType.TOPIC, name
        )
        is_missing = topic is None and name not in image.topics
        may_delete = is_missing or context.allows(Operation.DELETE, ResourceType.TOPIC, name)
        if not may_delete or (reference.id is None and not may_describe):
            denied[reference] = TopicOutcome(
                name=name if may_describe or reference.id is None else None,
                id=reference.id,
                error=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                message=_DENIED,
            )
    return denied


# CreatePartitions


async def create_partitions(
    services: Services, context: RequestContext, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    """Adds partitions to topics, or with `validate_only` says whether they could be."""
    wishes = [
        NewPartitions(
            topic=topic.name,
            partition_count=topic.count,
            assignments=None
            if topic.assignments is None
            else tuple(tuple(map(BrokerId, each.broker_ids)) for each in topic.assignments),
        )
        for topic in request.topics
        if context.allows(Operation.ALTER, ResourceType.TOPIC, topic.name)
    ]
    denied = [
        TopicOutcome(name=topic.name, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED, message=_DENIED)
        for topic in request.topics
        if not context.sees(Operation.ALTER, ResourceType.TOPIC, topic.name)
    ]
    quota = MutationQuota(services, context, strict_since=_PARTITIONS_STRICT_SINCE)
    over = {wish.topic: refusal for wish in wishes if (refusal := _growth_refusal(services, quota, wish)) is not None}
    wishes = [wish for wish in wishes if wish.topic not in over]
    denied += over.values()
    outcomes = await _settled(
        services,
        lambda: services.controller.create_partitions(wishes, validate_only=request.validate_only),
        [(wish.topic, None) for wish in wishes],
        request.timeout,
        denied,
    )
    for outcome in outcomes:
        if outcome.error not in _COUNTED:
            quota.take_back(outcome.name)
    return CreatePartitionsResponse(
        throttle_time=milliseconds(quota.throttle_ms),
        results=tuple(
            CreatePartitionsTopicResult(
                name=TopicName(outcome.name or ""),
                error_code=wire_error(outcome.error),
                error_message=outcome.message,
            )
            for outcome in outcomes
        ),
    )


def _growth_refusal(services: Services, quota: MutationQuota, wish: NewPartitions) -> TopicOutcome | None:
    topic = services.image.topics.get(wish.topic)
    if topic is None:
        return None
    return quota.refusal(wish.topic, wish.topic, wish.partition_count - len(topic.partitions))


# What the three share


async def _settled(
    services: Services,
    change: Callable[[], Awaitable[Committed[TopicOutcome]]],
    asked: Sequence[tuple[str | None, UUID | None]],
    patience: timedelta,
    denied: Sequence[TopicOutcome] = (),
) -> list[TopicOutcome]:
    """The outcomes of a change once this broker has applied it, and of what was denied: one for each topic."""
    outcomes: Iterable[TopicOutcome]
    try:
        committed = await change()
        outcomes = committed.outcomes
    except OttlaError as error:
        return [*_refused(asked, error.code, str(error)), *denied]
    try:
        async with asyncio.timeout(max(0.0, patience.total_seconds())):
            await services.wait_revision(committed.revision)
    except TimeoutError:
        late = "the change is committed, but this broker has not applied it yet; check the metadata later"
        outcomes = [
            outcome if outcome.error else replace(outcome, error=ErrorCode.REQUEST_TIMED_OUT, message=late)
            for outcome in outcomes
        ]
    return list({(outcome.name, outcome.id): outcome for outcome in (*outcomes, *denied)}.values())


def _refused(asked: Iterable[tuple[str | None, UUID | None]], error: ErrorCode, why: str) -> list[TopicOutcome]:
    return [TopicOutcome(name=name, id=topic_id, error=error, message=why) for name, topic_id in dict.fromkeys(asked)]
