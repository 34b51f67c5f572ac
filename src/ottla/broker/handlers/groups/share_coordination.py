"""The requests of brokers to the share coordinator: Initialize, Read, Write, Delete and ReadSummary ShareGroupState.

From the wire to the shard of each share-partition and back; the rules are in
`ottla.coordination.share_state.shard_state`.
"""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from kio.schema.delete_share_group_state.v0 import response as deleted
from kio.schema.delete_share_group_state.v0.request import DeleteShareGroupStateRequest
from kio.schema.initialize_share_group_state.v0 import response as initialized
from kio.schema.initialize_share_group_state.v0.request import InitializeShareGroupStateRequest
from kio.schema.read_share_group_state.v0 import response as read
from kio.schema.read_share_group_state.v0.request import ReadShareGroupStateRequest
from kio.schema.read_share_group_state_summary.v1 import response as summarized
from kio.schema.read_share_group_state_summary.v1.request import ReadShareGroupStateSummaryRequest
from kio.schema.write_share_group_state.v1 import response as written
from kio.schema.write_share_group_state.v1.request import WriteShareGroupStateRequest
from kio.static.primitive import i8, i16, i32, i64

from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.services import Services
from ottla.coordination.share_state.records import ShareKey
from ottla.coordination.share_state.requests import StateOutcome, StateRead, StateSummary, StateWrite
from ottla.coordination.share_state.state_batches import StateBatch
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import InvalidRequestError, OttlaError
from ottla.protocol.messages import wire_error
from ottla.security.resources import Operation

A = TypeVar("A", StateOutcome, StateRead, StateSummary)


async def initialize_share_group_state(
    services: Services, context: RequestContext, request: InitializeShareGroupStateRequest
) -> initialized.InitializeShareGroupStateResponse:
    """Begins new states of share-partitions."""

    def event(machine: Any, key: ShareKey, part: Any, now_ms: int, token: Any) -> Any:
        return machine.initialize(key, part.state_epoch, part.start_offset, now_ms, token)

    results = await _ask_each(services, context, request, event, StateOutcome)
    return initialized.InitializeShareGroupStateResponse(
        results=tuple(
            initialized.InitializeStateResult(
                topic_id=topic.topic_id,
                partitions=tuple(
                    initialized.PartitionResult(
                        partition=part.partition,
                        error_code=wire_error(answer.error),
                        error_message=_message(answer.error, answer.message),
                    )
                    for part, answer in answers
                ),
            )
            for topic, answers in results
        )
    )


async def read_share_group_state(
    services: Services, context: RequestContext, request: ReadShareGroupStateRequest
) -> read.ReadShareGroupStateResponse:
    """The state of share-partitions, for their leader."""

    def event(machine: Any, key: ShareKey, part: Any, now_ms: int, token: Any) -> Any:
        return machine.read(key, part.leader_epoch, now_ms, token)

    results = await _ask_each(services, context, request, event, StateRead)
    return read.ReadShareGroupStateResponse(
        results=tuple(
            read.ReadStateResult(
                topic_id=topic.topic_id,
                partitions=tuple(
                    read.PartitionResult(
                        partition=part.partition,
                        error_code=wire_error(answer.error),
                        error_message=_message(answer.error, answer.message),
                        state_epoch=i32(answer.state_epoch),
                        start_offset=i64(answer.start_offset),
                        state_batches=tuple(
                            read.StateBatch(
                                first_offset=i64(each.first_offset),
                                last_offset=i64(each.last_offset),
                                delivery_state=i8(each.delivery_state),
                                delivery_count=i16(each.delivery_count),
                            )
                            for each in answer.batches
                        ),
                    )
                    for part, answer in answers
                ),
            )
            for topic, answers in results
        )
    )


async def write_share_group_state(
    services: Services, context: RequestContext, request: WriteShareGroupStateRequest
) -> written.WriteShareGroupStateResponse:
    """Changes the state of share-partitions."""

    def event(machine: Any, key: ShareKey, part: Any, now_ms: int, token: Any) -> Any:
        change = StateWrite(
            state_epoch=part.state_epoch,
            leader_epoch=part.leader_epoch,
            start_offset=part.start_offset,
            delivery_complete_count=part.delivery_complete_count,
            batches=tuple(
                StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
                for each in part.state_batches
            ),
        )
        return machine.write(key, change, now_ms, token)

    results = await _ask_each(services, context, request, event, StateOutcome)
    return written.WriteShareGroupStateResponse(
        results=tuple(
            written.WriteStateResult(
                topic_id=topic.topic_id,
                partitions=tuple(
                    written.PartitionResult(
                        partition=part.partition,
                        error_code=wire_error(answer.error),
                        error_message=_message(answer.error, answer.message),
                    )
                    for part, answer in answers
                ),
            )
            for topic, answers in results
        )
    )


async def delete_share_group_state(
    services: Services, context: RequestContext, request: DeleteShareGroupStateRequest
) -> deleted.DeleteShareGroupStateResponse:
    """Deletes the state of share-partitions."""

    def event(machine: Any, key: ShareKey, part: Any, now_ms: int, token: Any) -> Any:
        return machine.delete(key, now_ms, token)

    results = await _ask_each(services, context, request, event, StateOutcome)
    return deleted.DeleteShareGroupStateResponse(
        results=tuple(
            deleted.DeleteStateResult(
                topic_id=topic.topic_id,
                partitions=tuple(
                    deleted.PartitionResult(
                        partition=part.partition,
                        error_code=wire_error(answer.error),
                        error_message=_message(answer.error, answer.message),
                    )
                    for part, answer in answers
                ),
            )
            for topic, answers in results
        )
    )


async def read_share_group_state_summary(
    services: Services, context: RequestContext, request: ReadShareGroupStateSummaryRequest
) -> summarized.ReadShareGroupStateSummaryResponse:
    """Start offsets and epochs of share-partitions."""

    def event(machine: Any, key: ShareKey, part: Any, now_ms: int, token: Any) -> Any:
        return machine.summarize(key, now_ms, token)

    results = await _ask_each(services, context, request, event, StateSummary)
    return summarized.ReadShareGroupStateSummaryResponse(
        results=tuple(
            summarized.ReadStateSummaryResult(
                topic_id=topic.topic_id,
                partitions=tuple(
                    summarized.PartitionResult(
                        partition=part.partition,
                        error_code=wire_error(answer.error),
                        error_message=_message(answer.error, answer.message),
                        state_epoch=i32(answer.state_epoch),
                        leader_epoch=i32(answer.leader_epoch),
                        start_offset=i64(answer.start_offset),
                        delivery_complete_count=i32(answer.delivery_complete_count),
                    )
                    for part, answer in answers
                ),
            )
            for topic, answers in results
        )
    )


async def _ask_each(
    services: Services,
    context: RequestContext,
    request: Any,
    event: Callable[[Any, ShareKey, Any, int, Any], Any],
    kind: Callable[..., A],
) -> list[tuple[Any, list[tuple[Any, A]]]]:
    """Each topic of the request with its partitions and their answers."""

    async def ask(topic: Any, part: Any) -> A:
        try:
            context.check_cluster(Operation.CLUSTER_ACTION)
            if not request.group_id or topic.topic_id is None:
                raise InvalidRequestError("The group id and the topic id must be set.")
            key = ShareKey(request.group_id, topic.topic_id, part.partition)
            shard = services.share_coordinator.shard_of(key.text)
            answer: A = await shard.ask(lambda now_ms, token: event(shard.machine, key, part, now_ms, token))
        except OttlaError as error:
            return kind(error=error.code, message=str(error))
        return answer

    parts = [(topic, part) for topic in request.topics for part in topic.partitions]
    answers = iter(await asyncio.gather(*[ask(topic, part) for topic, part in parts]))
    return [(topic, [(part, next(answers)) for part in topic.partitions]) for topic in request.topics]


def _message(error: ErrorCode, message: str | None) -> str | None:
    return None if error is ErrorCode.NONE else message or error.name
