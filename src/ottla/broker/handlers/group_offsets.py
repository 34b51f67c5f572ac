"""OffsetCommit, OffsetFetch and OffsetDelete: the offsets that groups have committed.

Whether a topic exists is for the image of the cluster to say, and is decided here; all else is the group's shard's. The
newest versions know topics by their ids, the others by their names; groups know names.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby, islice
from operator import attrgetter
from typing import TYPE_CHECKING, Final, TypeVar
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

from ottla.broker.context import Context
from ottla.broker.handlers.turns import in_turns
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
from ottla.metadata.image import ClusterImage, TopicImage
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import BatchTooLargeError, OttlaError, SegmentTooSmallError
from ottla.protocol.messages import milliseconds, wire_error
from ottla.protocol.offset_commits import OffsetCommit, TopicCommits

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

_GROUP_NOT_FOUND_SINCE: Final = 9
"""The version of OffsetCommit whose clients know that a group may be missing."""
_GROUP_ERROR_SINCE: Final = 2
"""The version of OffsetFetch that can say what is wrong with the group; before, each partition has to."""


# OffsetCommit


async def offset_commit(broker: "Broker", context: Context, request: OffsetCommit) -> bytes:
    """Commits the offsets of partitions that exist; the others have their error, and do not harm these."""
    known = [_committed_topic(broker.image, topic) for topic in request.topics]
    if all(found is not None and _has_all(found, topic) for found, topic in zip(known, request.topics, strict=True)):
        return await _commit_all(broker, request, known)
    outcomes: list[list[int]] = []
    offsets: list[NewOffset] = []
    for topic, found in zip(request.topics, known, strict=True):
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
        _fill(outcomes, await _commit_some(broker, request, tuple(offsets)))
    return request.answer(outcomes)


_NOT_YET: Final = -2
"""In the place of an outcome that the group has to decide."""


def _committed_topic(image: ClusterImage, topic: TopicCommits) -> TopicImage | None:
    if topic.name is not None:
        return image.topics.get(topic.name)
    return None if topic.topic_id is None else image.topics_by_id.get(topic.topic_id)


def _has_all(topic: TopicImage, commits: TopicCommits) -> bool:
    return commits.lowest >= 0 and commits.highest < len(topic.partitions)


async def _commit_all(broker: "Broker", request: OffsetCommit, known: Sequence[TopicImage | None]) -> bytes:
    """As nearly always: all partitions exist, and one outcome is that of all."""
    if not request.topics:
        return request.answer_all(ErrorCode.NONE)
    asked = WholeCommitRequest(
        group_id=request.group_id,
        generation=request.generation,
        member_id=request.member_id,
        instance_id=request.instance_id,
        retention_ms=request.retention_ms,
        topics=tuple(
            TopicOffsets(found.name, topic.topic_id, topic.partitions)
            for found, topic in zip(known, request.topics, strict=True)
            if found is not None
        ),
        metadata_bytes_max=request.metadata_bytes_max,
        knows_group_not_found=request.version >= _GROUP_NOT_FOUND_SINCE,
    )
    try:
        shard = broker.groups.shard_of(asked.group_id)
        answer: WholeCommitResponse | OffsetCommitResponse = await shard.ask(
            lambda now_ms, token: shard.machine.commit_whole(asked, now_ms, token)
        )
    except OttlaError as error:
        return request.answer_all(_commit_code(error))
    if isinstance(answer, WholeCommitResponse):
        return request.answer_all(answer.error)
    decided = (int(outcome.error) for outcome in answer.partitions)
    return request.answer([list(islice(decided, len(topic.partitions))) for topic in request.topics])


async def _commit_some(broker: "Broker", request: OffsetCommit, offsets: tuple[NewOffset, ...]) -> Iterator[int]:
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
        shard = broker.groups.shard_of(asked.group_id)
        answer: OffsetCommitResponse = await shard.ask(
            lambda now_ms, token: shard.machine.commit_offsets(asked, now_ms, token)
        )
    except OttlaError as error:
        return iter([int(_commit_code(error))] * len(offsets))
    return (outcome.error for outcome in answer.partitions)


def _commit_code(error: OttlaError) -> ErrorCode:
    """What is told of offsets that were not committed; those that no batch can hold must not be tried again."""
    is_too_large = isinstance(error, BatchTooLargeError | SegmentTooSmallError)
    return ErrorCode.INVALID_COMMIT_OFFSET_SIZE if is_too_large else error.code


def _fill(outcomes: list[list[int]], decided: Iterator[int]) -> None:
    for errors in outcomes:
        for at, error in enumerate(errors):
            if error == _NOT_YET:
                errors[at] = next(decided)


# OffsetFetch


async def offset_fetch(
    broker: "Broker", context: Context, request: by_name_request.OffsetFetchRequest | by_id_request.OffsetFetchRequest
) -> by_name.OffsetFetchResponse | by_id.OffsetFetchResponse:
    """The committed offsets of each group: of the partitions that it names, or (null) of all."""
    if isinstance(request, by_id_request.OffsetFetchRequest):
        groups_by_id = [
            await _fetch_by_id(broker, group, request.require_stable) async for group in in_turns(request.groups)
        ]
        return by_id.OffsetFetchResponse(throttle_time=milliseconds(0), groups=tuple(groups_by_id))
    groups = [
        await _fetch_by_name(broker, context, group, request.require_stable) async for group in in_turns(request.groups)
    ]
    return by_name.OffsetFetchResponse(throttle_time=milliseconds(0), groups=tuple(groups))


async def _fetch_by_name(
    broker: "Broker", context: Context, group: by_name_request.OffsetFetchRequestGroup, require_stable: bool
) -> by_name.OffsetFetchResponseGroup:
    wanted = None if group.topics is None else [(topic.name, topic.partition_indexes) for topic in group.topics]
    answer = await _fetch(broker, group, wanted, require_stable)
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
    broker: "Broker", group: by_id_request.OffsetFetchRequestGroup, require_stable: bool
) -> by_id.OffsetFetchResponseGroup:
    """Ids that nobody has get their error; of all offsets, those of topics that are gone are left out."""
    image = broker.image
    names: dict[UUID | None, str] = {}
    wanted = None
    if group.topics is not None:
        ids = {topic.topic_id for topic in group.topics if topic.topic_id is not None}
        names = {each: image.topics_by_id[each].name for each in ids if each in image.topics_by_id}
        wanted = [(names[each.topic_id], each.partition_indexes) for each in group.topics if each.topic_id in names]
    answer = await _fetch(broker, group, wanted, require_stable)
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
    broker: "Broker",
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
        shard = broker.groups.shard_of(asked.group_id)
        answer: OffsetFetchResponse = await shard.ask(
            lambda now_ms, token: shard.machine.fetch_offsets(asked, now_ms, token)
        )
    except OttlaError as error:
        answer = OffsetFetchResponse(group_id=asked.group_id, error=error.code)
    if answer.error is ErrorCode.COORDINATOR_NOT_AVAILABLE:
        # Consumers before Kafka 3.9 do not expect this one here; the other makes them do the same.
        return OffsetFetchResponse(group_id=asked.group_id, error=ErrorCode.NOT_COORDINATOR)
    return answer


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
    broker: "Broker", context: Context, request: WireOffsetDeleteRequest
) -> WireOffsetDeleteResponse:
    """Forgets the offsets of partitions that exist, and that nobody in the group subscribes."""
    topics = broker.image.topics
    wanted = [
        WantedPartition(topic.name, part.partition_index)
        for topic in request.topics
        for part in topic.partitions
        if topic.name in topics and 0 <= part.partition_index < len(topics[topic.name].partitions)
    ]
    asked = OffsetDeleteRequest(group_id=request.group_id, partitions=tuple(wanted))
    if not asked.group_id:
        return _deleted(ErrorCode.INVALID_GROUP_ID)
    try:
        shard = broker.groups.shard_of(asked.group_id)
        answer: OffsetDeleteResponse = await shard.ask(
            lambda now_ms, token: shard.machine.delete_offsets(asked, now_ms, token)
        )
    except OttlaError as error:
        return _deleted(error.code)
    if answer.error is not ErrorCode.NONE:
        return _deleted(answer.error)
    outcomes = {(each.topic, each.partition): each.error for each in answer.partitions}
    return _deleted(
        ErrorCode.NONE,
        tuple(
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=tuple(
                    OffsetDeleteResponsePartition(
                        partition_index=part.partition_index,
                        error_code=wire_error(
                            outcomes.get((topic.name, part.partition_index), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                        ),
                    )
                    for part in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )


def _deleted(error: ErrorCode, topics: tuple[OffsetDeleteResponseTopic, ...] = ()) -> WireOffsetDeleteResponse:
    return WireOffsetDeleteResponse(error_code=wire_error(error), throttle_time=milliseconds(0), topics=topics)
