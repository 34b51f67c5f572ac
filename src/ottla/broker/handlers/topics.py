"""CreateTopics, DeleteTopics and CreatePartitions: wishes for the controller, and its outcomes as answers.

The rules are the controller's (`ottla.controller.topics_state`). A change is answered once this broker serves it, or
with REQUEST_TIMED_OUT if the client's time is up before: it was made all the same.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final
from uuid import UUID

from kio.schema.create_partitions.v3.request import CreatePartitionsRequest
from kio.schema.create_partitions.v3.response import CreatePartitionsResponse, CreatePartitionsTopicResult
from kio.schema.create_topics.v7.request import CreatableTopic, CreateTopicsRequest
from kio.schema.create_topics.v7.response import CreatableTopicConfigs, CreatableTopicResult, CreateTopicsResponse
from kio.schema.delete_topics.v6.request import DeleteTopicsRequest
from kio.schema.delete_topics.v6.response import DeletableTopicResult, DeleteTopicsResponse
from kio.schema.types import TopicName
from kio.static.primitive import i8, i16, i32

from ottla.broker.context import Context
from ottla.broker.topic_settings import describe_topic
from ottla.controller.decisions import Assignment, Committed, NewPartitions, NewTopic, TopicOutcome, TopicReference
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import OttlaError
from ottla.model.ids import BrokerId
from ottla.protocol.messages import milliseconds, wire_error

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

_CONFIGS_SINCE: Final = 5
_DELETION_DISABLED_SINCE: Final = 3


# CreateTopics


async def create_topics(broker: "Broker", context: Context, request: CreateTopicsRequest) -> CreateTopicsResponse:
    """Makes the topics that can be made, or with `validate_only` says which could be; each has its own outcome."""
    wishes = [_wish(topic) for topic in request.topics]
    outcomes = await _settled(
        broker,
        lambda: broker.controller.create_topics(wishes, validate_only=request.validate_only),
        [(wish.name, None) for wish in wishes],
        request.timeout,
    )
    shown = _Configs(broker) if context.version >= _CONFIGS_SINCE else None
    return CreateTopicsResponse(
        throttle_time=milliseconds(0),
        topics=tuple(
            CreatableTopicResult(
                name=TopicName(outcome.name or ""),
                topic_id=outcome.id,
                error_code=wire_error(outcome.error),
                error_message=outcome.message,
                num_partitions=i32(outcome.partition_count),
                replication_factor=i16(outcome.replication_factor),
                configs=() if outcome.error or shown is None else shown.of(outcome.configs),
            )
            for outcome in outcomes
        ),
    )


def _wish(topic: CreatableTopic) -> NewTopic:
    return NewTopic(
        name=topic.name,
        partition_count=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=tuple(
            Assignment(each.partition_index, tuple(map(BrokerId, each.broker_ids))) for each in topic.assignments
        ),
        configs={config.name: config.value for config in topic.configs},
    )


class _Configs:
    """The configs of new topics as the answer shows them; most topics of one request have the same."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
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
                for config in describe_topic(self._broker.config, overrides)
            )
        return self._known[key]


# DeleteTopics


async def delete_topics(broker: "Broker", context: Context, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    """Removes topics, by name or by id, unless the broker was told never to."""
    references = [TopicReference(name=topic.name, id=topic.topic_id) for topic in request.topics]
    asked = [(reference.name, reference.id) for reference in references]
    if broker.config.delete_topic_enable:
        outcomes = await _settled(broker, lambda: broker.controller.delete_topics(references), asked, request.timeout)
    else:
        is_known = context.version >= _DELETION_DISABLED_SINCE
        error = ErrorCode.TOPIC_DELETION_DISABLED if is_known else ErrorCode.INVALID_REQUEST
        outcomes = _refused(asked, error, "topics cannot be deleted here: delete.topic.enable is false")
    return DeleteTopicsResponse(
        throttle_time=milliseconds(0),
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


# CreatePartitions


async def create_partitions(
    broker: "Broker", context: Context, request: CreatePartitionsRequest
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
    ]
    outcomes = await _settled(
        broker,
        lambda: broker.controller.create_partitions(wishes, validate_only=request.validate_only),
        [(wish.topic, None) for wish in wishes],
        request.timeout,
    )
    return CreatePartitionsResponse(
        throttle_time=milliseconds(0),
        results=tuple(
            CreatePartitionsTopicResult(
                name=TopicName(outcome.name or ""),
                error_code=wire_error(outcome.error),
                error_message=outcome.message,
            )
            for outcome in outcomes
        ),
    )


# What the three share


async def _settled(
    broker: "Broker",
    change: Callable[[], Awaitable[Committed[TopicOutcome]]],
    asked: Sequence[tuple[str | None, UUID | None]],
    patience: timedelta,
) -> list[TopicOutcome]:
    """The outcomes of a change once this broker has it; one for a topic that was asked for twice."""
    outcomes: Iterable[TopicOutcome]
    try:
        committed = await change()
        outcomes = committed.outcomes
    except OttlaError as error:
        return _refused(asked, error.code, str(error))
    try:
        async with asyncio.timeout(max(0.0, patience.total_seconds())):
            await broker.wait_revision(committed.revision)
    except TimeoutError:
        late = "the change is made, but this broker does not serve it yet; wait, and look at the metadata"
        outcomes = [
            outcome if outcome.error else replace(outcome, error=ErrorCode.REQUEST_TIMED_OUT, message=late)
            for outcome in outcomes
        ]
    return list({(outcome.name, outcome.id): outcome for outcome in outcomes}.values())


def _refused(asked: Iterable[tuple[str | None, UUID | None]], error: ErrorCode, why: str) -> list[TopicOutcome]:
    return [TopicOutcome(name=name, id=topic_id, error=error, message=why) for name, topic_id in dict.fromkeys(asked)]
