"""OffsetCommit, OffsetFetch and OffsetDelete: the offsets that groups have committed.

Whether a topic exists is for the image of the cluster to say, and is decided here; all else is the group's shard's. The
newest versions know topics by their ids, the others by their names; groups know names.
"""

from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby, islice
from operator import attrgetter
from typing import Any, Final, TypeVar
from uuid import UUID

from kio.schema.offset_delete.v0.request import OffsetDeleteRequest as WireOffsetDeleteRequest
from kio.schema.offset_delete.v0.response import (
    OffsetDeleteResponse as WireOffsetDeleteResponse,
)
from kio.schema.offset_delete.v0.response import (
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from kio.schema.offset_fetch.v9 import request as by_name_request
from kio.schema.offset_fetch.v9 import response as by_name
from kio.schema.offset_fetch.v10 import request as by_id_request
from kio.schema.offset_fetch.v10 import response as by_id
from kio.schema.types import TopicName
from kio.static.primitive import i32, i64

from ottla.broker.handlers.long_requests import with_pauses
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.services import Services
from ottla.coordination.groups.requests import (
    FetchedOffset,
    NewOffset,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    TopicOffsets,
    WantedPartition,
    WholeCommitRequest,
    WholeCommitResponse,
)
from ottla.coordination.runtime.reply import Reply
from ottla.metadata.image import ClusterImage, TopicImage
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import BatchTooLargeError, OttlaError, SegmentTooSmallError
from ottla.protocol.messages import milliseconds, wire_error
from ottla.protocol.offset_commits import OffsetCommit, TopicCommits
from ottla.security.resources import Operation, ResourceType

_GROUP_NOT_FOUND_SINCE: Final = 9
"""The version of OffsetCommit whose clients know that a group may be missing."""
_GROUP_ERROR_SINCE: Final = 2
"""The version of OffsetFetch that can say what is wrong with the group; before, each partition has to."""


# OffsetCommit


def offset_commit(
    services: Services, context: RequestContext, request: OffsetCommit
) -> bytes | Reply | Coroutine[Any, Any, bytes]:
    """Commits the offsets of partitions that exist; the others have their error, and do not harm these."""
    image = services.read_image()
    topics = _whole_topics(image, request)
    if topics is not None and context.authorizer.allows_all:
        return _commit_all(services, request, topics)
    known = [_committed_topic(image, topic) for topic in request.topics]
    denied = [False] * len(known)
    if not context.authorizer.allows_all:
        if not context.allows(Operation.READ, ResourceType.GROUP, request.group_id):
            return request.answer_all(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        denied = [_is_denied(context, topic, found) for topic, found in zip(request.topics, known, strict=True)]
    if topics is not None and not any(denied):
        return _commit_all(services, request, topics)
    return _commit_allowed(services, request, known, denied)


def _whole_topics(image: ClusterImage, request: OffsetCommit) -> tuple[TopicOffsets, ...] | None:
    """The offsets with the names of their topics; None unless all partitions exist."""
    topics: list[TopicOffsets] = []
    for topic in request.topics:
        found = _committed_topic(image, topic)
        if found is None or topic.lowest < 0 or topic.highest >= len(found.partitions):
            return None
        # Without the constructor of the named tuple, a function that costs more than the tuple.
        topics.append(tuple.__new__(TopicOffsets, (found.name, topic.topic_id, topic.partitions)))
    return tuple(topics)


def _is_denied(context: RequestContext, topic: TopicCommits, found: TopicImage | None) -> bool:
    """Whether the client may not read the topic; one that is named by an unknown id is unknown, not denied."""
    name = topic.name if found is None else found.name
    return name is not None and not context.allows(Operation.READ, ResourceType.TOPIC, name)


async def _commit_allowed(
    services: Services, request: OffsetCommit, known: Sequence[TopicImage | None], denied: Sequence[bool]
) -> bytes:
    """Commits the offsets of partitions that exist and are allowed; each of the others gets its error."""
    outcomes: list[list[int]] = []
    offsets: list[NewOffset] = []
    for topic, found, is_denied in zip(request.topics, known, denied, strict=True):
        if is_denied:
            outcomes.append([ErrorCode.TOPIC_AUTHORIZATION_FAILED] * len(topic.partitions))
            continue
        missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if found is None and topic.topic_id is not None:
            missing = ErrorCode.UNKNOWN_TOPIC_ID
        errors: list[int] = []
        for partition, offset, leader_epoch, metadata in topic.partitions:
            if found is None or not 0 <= partition < len(found.partitions):
                errors.append(missing)
                continue
            errors.append(_NOT_YET)
            offsets.append(
                NewOffset(
                    topic=found.name,
                    partition=partition,
                    offset=offset,
                    leader_epoch=leader_epoch,
                    metadata=metadata,
                    topic_id=topic.topic_id,
                )
            )
        outcomes.append(errors)
    if offsets:
        _fill(outcomes, await _commit_some(services, request, tuple(offsets)))
    return request.answer(outcomes)


_NOT_YET: Final = -2
"""In the place of an outcome that the group has to decide."""


def _committed_topic(image: ClusterImage, topic: TopicCommits) -> TopicImage | None:
    if topic.name is not None:
        return image.topics.get(topic.name)
    return None if topic.topic_id is None else image.topics_by_id.get(topic.topic_id)


def _commit_all(services: Services, request: OffsetCommit, topics: tuple[TopicOffsets, ...]) -> bytes | Reply:
    """As nearly always: all partitions exist, and one outcome is that of all."""
    if not topics:
        return request.answer_all(ErrorCode.NONE)
    asked = WholeCommitRequest(
        group_id=request.group_id,
        generation=request.generation,
        member_id=request.member_id,
        instance_id=request.instance_id,
        retention_ms=request.retention_ms,
        topics=topics,
        metadata_bytes_max=request.metadata_bytes_max,
        knows_group_not_found=request.version >= _GROUP_NOT_FOUND_SINCE,
    )
    reply = Reply(partial(_commit_answer, request))
    try:
        shard = services.groups.shard_of(asked.group_id)
        shard.hand(shard.machine.commit_whole, asked, reply)
    except OttlaError as error:
        return _commit_answer(request, error)
    return reply


def _commit_answer(request: OffsetCommit, outcome: WholeCommitResponse | OffsetCommitResponse | OttlaError) -> bytes:
    if isinstance(outcome, WholeCommitResponse):
        return request.answer_all(outcome.error)
    if isinstance(outcome, OttlaError):
        return request.answer_all(_commit_code(outcome))
    decided = (int(each.error) for each in outcome.partitions)
    return request.answer([list(islice(decided, len(topic.partitions))) for topic in request.topics])


async def _commit_some(services: Services, request: OffsetCommit, offsets: tuple[NewOffset, ...]) -> Iterator[int]:
    """The outcome of each offset."""
    asked = OffsetCommitRequest(
        group_id=request.group_id,
        generation=request.generation,
        member_id=request.member_id,
        instance_id=request.instance_id,
        retention_ms=request.retention_ms,
        offsets=offsets,
        knows_group_not_found=request.version >= _GROUP_NOT_FOUND_SINCE,
    )
    try:
        shard = services.groups.shard_of(asked.group_id)
        answer: OffsetCommitResponse = await shard.ask(
            lambda now_ms, token: shard.machine.commit_offsets(asked, now_ms, token)
        )
    except OttlaError as error:
        return iter([int(_commit_code(error))] * len(offsets))
    return (outcome.error for outcome in answer.partitions)


def _commit_code(error: OttlaError) -> ErrorCode:
    """The error of offsets that were not committed; those that do not fit into a batch must not be retried."""
    is_too_large = isinstance(error, BatchTooLargeError | SegmentTooSmallError)
    return ErrorCode.INVALID_COMMIT_OFFSET_SIZE if is_too_large else error.code


def _fill(outcomes: list[list[int]], decided: Iterator[int]) -> None:
    for errors in outcomes:
        for at, error in enumerate(errors):
            if error == _NOT_YET:
                errors[at] = next(decided)


# OffsetFetch


async def offset_fetch(
    services: Services,
    context: RequestContext,
    request: by_name_request.OffsetFetchRequest | by_id_request.OffsetFetchRequest,
) -> by_name.OffsetFetchResponse | by_id.OffsetFetchResponse:
    """The committed offsets of each group: of the partitions that it names, or (null) of all."""
    if isinstance(request, by_id_request.OffsetFetchRequest):
        groups_by_id = [
            await _fetch_by_id(services, context, group, request.require_stable)
            async for group in with_pauses(request.groups)
        ]
        return by_id.OffsetFetchResponse(throttle_time=milliseconds(0), groups=tuple(groups_by_id))
    groups = [
        await _fetch_by_name(services, context, group, request.require_stable)
        async for group in with_pauses(request.groups)
    ]
    return by_name.OffsetFetchResponse(throttle_time=milliseconds(0), groups=tuple(groups))


async def _fetch_by_name(
    services: Services, context: RequestContext, group: by_name_request.OffsetFetchRequestGroup, require_stable: bool
) -> by_name.OffsetFetchResponseGroup:
    wanted = None if group.topics is None else [(topic.name, topic.partition_indexes) for topic in group.topics]
    answer = await _fetch(services, context, group, wanted, require_stable)
    if answer.error is not ErrorCode.NONE and context.version < _GROUP_ERROR_SINCE:
        failed = [FetchedOffset(*each, error=answer.error) for each in _flat(wanted or ())]
        answer = OffsetFetchResponse(group_id=group.group_id, offsets=tuple(failed))
    topics = (
        by_name.OffsetFetchResponseTopics(
            name=TopicName(name),
            partitions=tuple(_fetched(by_name.OffsetFetchResponsePartitions, each) for each in offsets),
        )
        for name, offsets in _by_topic(wanted, answer)
    )
    return by_name.OffsetFetchResponseGroup(
        group_id=group.group_id, topics=tuple(topics), error_code=wire_error(answer.error)
    )


async def _fetch_by_id(
    services: Services, context: RequestContext, group: by_id_request.OffsetFetchRequestGroup, require_stable: bool
) -> by_id.OffsetFetchResponseGroup:
    """Unknown ids get their error; if all offsets are asked for, those of deleted topics are left out."""
    image = services.image
    names: dict[UUID | None, str] = {}
    wanted = None
    if group.topics is not None:
        ids = {topic.topic_id for topic in group.topics if topic.topic_id is not None}
        names = {each: image.topics_by_id[each].name for each in ids if each in image.topics_by_id}
        wanted = [(names[each.topic_id], each.partition_indexes) for each in group.topics if each.topic_id in names]
    answer = await _fetch(services, context, group, wanted, require_stable)
    found = iter(_by_topic(wanted, answer))
    topics: list[tuple[UUID | None, list[FetchedOffset]]] = []
    if group.topics is None:
        topics = [(image.topics[name].id, offsets) for name, offsets in found if name in image.topics]
    elif answer.error is ErrorCode.NONE:
        for topic in group.topics:
            if topic.topic_id in names:
                topics.append((topic.topic_id, next(found)[1]))
                continue
            unknown = [FetchedOffset("", each, error=ErrorCode.UNKNOWN_TOPIC_ID) for each in topic.partition_indexes]
            topics.append((topic.topic_id, unknown))
    return by_id.OffsetFetchResponseGroup(
        group_id=group.group_id,
        topics=tuple(
            by_id.OffsetFetchResponseTopics(
                topic_id=topic_id,
                partitions=tuple(_fetched(by_id.OffsetFetchResponsePartitions, each) for each in offsets),
            )
            for topic_id, offsets in topics
        ),
        error_code=wire_error(answer.error),
    )


_Wanted = Sequence[tuple[str, Sequence[int]]]
"""Topics and which of their partitions, in the request's order."""


async def _fetch(
    services: Services,
    context: RequestContext,
    group: by_name_request.OffsetFetchRequestGroup | by_id_request.OffsetFetchRequestGroup,
    wanted: _Wanted | None,
    require_stable: bool,
) -> OffsetFetchResponse:
    asked = OffsetFetchRequest(
        group_id=group.group_id,
        partitions=None if wanted is None else tuple(_flat(wanted)),
        require_stable=require_stable,
        member_id=group.member_id,
        member_epoch=group.member_epoch,
    )
    try:
        context.check(Operation.DESCRIBE, ResourceType.GROUP, asked.group_id)
        shard = services.groups.shard_of(asked.group_id)
        answer: OffsetFetchResponse = await shard.ask(
            lambda now_ms, token: shard.machine.fetch_offsets(asked, now_ms, token)
        )
    except OttlaError as error:
        answer = OffsetFetchResponse(group_id=asked.group_id, error=error.code)
    if answer.error is ErrorCode.COORDINATOR_NOT_AVAILABLE:
        # Consumers before Kafka 3.9 do not expect this one here; the other makes them do the same.
        return OffsetFetchResponse(group_id=asked.group_id, error=ErrorCode.NOT_COORDINATOR)
    return answer if context.authorizer.allows_all else _without_denied(context, answer, is_all=wanted is None)


def _without_denied(context: RequestContext, answer: OffsetFetchResponse, *, is_all: bool) -> OffsetFetchResponse:
    """The answer without offsets of topics that the client may not describe: with an error instead, or left out if
    the client asked for all offsets."""
    topics = {each.topic for each in answer.offsets}
    may_describe = context.sees if is_all else context.allows
    denied = {topic for topic in topics if not may_describe(Operation.DESCRIBE, ResourceType.TOPIC, topic)}
    error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    offsets = (
        FetchedOffset(each.topic, each.partition, error=error) if each.topic in denied else each
        for each in answer.offsets
        if not (is_all and each.topic in denied)
    )
    return replace(answer, offsets=tuple(offsets))


def _flat(wanted: _Wanted) -> Iterator[WantedPartition]:
    return (WantedPartition(name, index) for name, indexes in wanted for index in indexes)


def _by_topic(wanted: _Wanted | None, answer: OffsetFetchResponse) -> Iterator[tuple[str, list[FetchedOffset]]]:
    """The offsets topic by topic: as they were asked for, or, if all were, as they stand together."""
    if answer.error is not ErrorCode.NONE:
        return
    if wanted is None:
        for name, offsets in groupby(answer.offsets, key=attrgetter("topic")):
            yield name, list(offsets)
        return
    found = iter(answer.offsets)
    for name, indexes in wanted:
        yield name, list(islice(found, len(indexes)))


_Part = TypeVar("_Part", by_name.OffsetFetchResponsePartitions, by_id.OffsetFetchResponsePartitions)


def _fetched(part_class: type[_Part], offset: FetchedOffset) -> _Part:
    return part_class(
        partition_index=i32(offset.partition),
        committed_offset=i64(offset.offset),
        committed_leader_epoch=i32(offset.leader_epoch),
        metadata=offset.metadata,
        error_code=wire_error(offset.error),
    )


# OffsetDelete


async def offset_delete(
    services: Services, context: RequestContext, request: WireOffsetDeleteRequest
) -> WireOffsetDeleteResponse:
    """Deletes the offsets of partitions that exist and that no member of the group subscribes to."""
    topics = services.image.topics
    allowed = {topic.name for topic in request.topics if context.allows(Operation.READ, ResourceType.TOPIC, topic.name)}
    wanted = [
        WantedPartition(topic.name, part.partition_index)
        for topic in request.topics
        for part in topic.partitions
        if topic.name in allowed
        and topic.name in topics
        and 0 <= part.partition_index < len(topics[topic.name].partitions)
    ]
    asked = OffsetDeleteRequest(group_id=request.group_id, partitions=tuple(wanted))
    if not context.allows(Operation.DELETE, ResourceType.GROUP, asked.group_id):
        return _deleted(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not asked.group_id:
        return _deleted(ErrorCode.INVALID_GROUP_ID)
    try:
        shard = services.groups.shard_of(asked.group_id)
        answer: OffsetDeleteResponse = await shard.ask(
            lambda now_ms, token: shard.machine.delete_offsets(asked, now_ms, token)
        )
    except OttlaError as error:
        return _deleted(error.code)
    if answer.error is not ErrorCode.NONE:
        return _deleted(answer.error)
    outcomes = {(each.topic, each.partition): each.error for each in answer.partitions}

    def error_of(topic: str, partition: int) -> ErrorCode:
        if topic not in allowed:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return outcomes.get((topic, partition), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    return _deleted(
        ErrorCode.NONE,
        tuple(
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=tuple(
                    OffsetDeleteResponsePartition(
                        partition_index=part.partition_index,
                        error_code=wire_error(error_of(topic.name, part.partition_index)),
                    )
                    for part in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )


def _deleted(error: ErrorCode, topics: tuple[OffsetDeleteResponseTopic, ...] = ()) -> WireOffsetDeleteResponse:
    return WireOffsetDeleteResponse(error_code=wire_error(error), throttle_time=milliseconds(0), topics=topics)
