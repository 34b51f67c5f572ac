"""How a broker reaches the share coordinator of a share-partition: its own shard, or another broker by request.

Retries while the coordinator moves or loads. Used by the leaders of share-partitions, and by the group coordinator.
Translates to and from kio's messages, which are imported with the first request to another broker.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar
from uuid import UUID

from ottla.coordination.share_state.coordinator import ShareCoordinator
from ottla.env.ports import Clock
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import LeaderNotAvailableError, OttlaError, RetriableError
from ottla.model.ids import BrokerId
from ottla.protocol.apis import ApiKey
from ottla.security.authorizer import BrokerDeniedError

if TYPE_CHECKING:
    from ottla.coordination.share_state.records import ShareKey
    from ottla.coordination.share_state.requests import StateOutcome, StateRead, StateSummary, StateWrite

_LOGGER: Final = logging.getLogger(__name__)
_ATTEMPTS_MAX: Final = 6
_BACKOFF_SECONDS: Final = 0.1
_RETRIED: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""The last: the coordinator may learn of a new topic a moment later than the leader of its partition."""

A = TypeVar("A", "StateOutcome", "StateRead", "StateSummary")
AskPeer = Callable[[BrokerId, ApiKey, Any], Awaitable[Any]]
_Outcomes = dict[UUID, dict[int, ErrorCode]]


class ShareStateAccess:
    """The state of share-partitions, wherever it is coordinated; no method raises an `OttlaError`."""

    def __init__(self, me: BrokerId, coordinator: ShareCoordinator, clock: Clock, ask_peer: AskPeer) -> None:
        self._me = me
        self._coordinator = coordinator
        self._clock = clock
        self.ask_peer: Final = ask_peer
        """Sends a request to another broker."""

    # For groups

    async def initialize(
        self, group_id: str, state_epoch: int, offsets: Mapping[UUID, Mapping[int, int]], /
    ) -> _Outcomes:
        """Initializes share-partitions, each at a start offset, or -1 if the first leader is to choose it."""
        from ottla.coordination.share_state.records import ShareKey
        from ottla.coordination.share_state.requests import StateOutcome

        async def one(key: ShareKey) -> ErrorCode:
            start_offset = offsets[key.topic_id][key.partition]
            outcome = await self._call(
                key,
                lambda shard, now_ms, token: shard.machine.initialize(key, state_epoch, start_offset, now_ms, token),
                lambda peer: initialize_at(self.ask_peer, peer, key, state_epoch, start_offset),
                StateOutcome,
            )
            return outcome.error

        return await self._each(group_id, offsets, one)

    async def delete(self, group_id: str, partitions: Mapping[UUID, tuple[int, ...]], /) -> _Outcomes:
        """Deletes the state of share-partitions."""
        from ottla.coordination.share_state.records import ShareKey
        from ottla.coordination.share_state.requests import StateOutcome

        async def one(key: ShareKey) -> ErrorCode:
            outcome = await self._call(
                key,
                lambda shard, now_ms, token: shard.machine.delete(key, now_ms, token),
                lambda peer: delete_at(self.ask_peer, peer, key),
                StateOutcome,
            )
            return outcome.error

        return await self._each(group_id, partitions, one)

    async def summarize(self, key: "ShareKey") -> "StateSummary":
        """Start offset and delivery complete count of a share-partition."""
        from ottla.coordination.share_state.requests import StateSummary

        return await self._call(
            key,
            lambda shard, now_ms, token: shard.machine.summarize(key, now_ms, token),
            lambda peer: summarize_at(self.ask_peer, peer, key),
            StateSummary,
        )

    # For leaders of share-partitions

    async def read(self, key: "ShareKey", leader_epoch: int) -> "StateRead":
        """The state of a share-partition, for the leader of its partition."""
        from ottla.coordination.share_state.requests import StateRead

        return await self._call(
            key,
            lambda shard, now_ms, token: shard.machine.read(key, leader_epoch, now_ms, token),
            lambda peer: read_at(self.ask_peer, peer, key, leader_epoch),
            StateRead,
        )

    async def write(self, key: "ShareKey", change: "StateWrite") -> "StateOutcome":
        """Changes the state of a share-partition."""
        from ottla.coordination.share_state.requests import StateOutcome

        return await self._call(
            key,
            lambda shard, now_ms, token: shard.machine.write(key, change, now_ms, token),
            lambda peer: write_at(self.ask_peer, peer, key, change),
            StateOutcome,
        )

    # Calling

    async def _each(
        self,
        group_id: str,
        partitions: Mapping[UUID, Mapping[int, Any] | tuple[int, ...]],
        one: Callable[["ShareKey"], Awaitable[ErrorCode]],
    ) -> _Outcomes:
        from ottla.coordination.share_state.records import ShareKey

        keys = [ShareKey(group_id, topic_id, index) for topic_id, each in partitions.items() for index in each]
        outcomes: _Outcomes = {}
        for key, error in zip(keys, await asyncio.gather(*map(one, keys)), strict=True):
            outcomes.setdefault(key.topic_id, {})[key.partition] = error
        return outcomes

    async def _call(
        self,
        key: "ShareKey",
        here: Callable[[Any, int, Any], Any],
        elsewhere: Callable[[BrokerId], Awaitable[A]],
        kind: Callable[..., A],
    ) -> A:
        answer: A | None = None
        id = key.text
        for attempt in range(_ATTEMPTS_MAX):
            if attempt:
                await self._clock.sleep(_BACKOFF_SECONDS * 2**attempt)
            try:
                found = await self._coordinator.find(id)
                if found.id == self._me:
                    shard = self._coordinator.shard_of(id)
                    answer = await shard.ask(partial(here, shard))
                else:
                    answer = await elsewhere(found.id)
            except OttlaError as error:
                is_unreachable = isinstance(error, RetriableError) and error.code is ErrorCode.UNKNOWN_SERVER_ERROR
                code = ErrorCode.COORDINATOR_NOT_AVAILABLE if is_unreachable else error.code
                answer = kind(error=code, message=str(error))
            if answer.error not in _RETRIED:
                return answer
        if answer is None:  # pragma: no cover - there is at least one attempt
            return kind(error=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        _LOGGER.warning("share coordinator of %s: %s %s", key.text, answer.error.name, answer.message or "")
        return answer


# Requests to another broker


async def initialize_at(
    ask: AskPeer, peer: BrokerId, key: "ShareKey", state_epoch: int, start_offset: int
) -> "StateOutcome":
    """InitializeShareGroupState at another broker."""
    from kio.schema.initialize_share_group_state.v0.request import (
        InitializeShareGroupStateRequest,
        InitializeStateData,
        PartitionData,
    )
    from kio.static.primitive import i32, i64

    part = PartitionData(partition=i32(key.partition), state_epoch=i32(state_epoch), start_offset=i64(start_offset))
    message = InitializeShareGroupStateRequest(
        group_id=key.group_id, topics=(InitializeStateData(topic_id=key.topic_id, partitions=(part,)),)
    )
    return _outcome(peer, await ask(peer, ApiKey.INITIALIZE_SHARE_GROUP_STATE, message))


async def delete_at(ask: AskPeer, peer: BrokerId, key: "ShareKey") -> "StateOutcome":
    """DeleteShareGroupState at another broker."""
    from kio.schema.delete_share_group_state.v0.request import (
        DeleteShareGroupStateRequest,
        DeleteStateData,
        PartitionData,
    )
    from kio.static.primitive import i32

    part = PartitionData(partition=i32(key.partition))
    message = DeleteShareGroupStateRequest(
        group_id=key.group_id, topics=(DeleteStateData(topic_id=key.topic_id, partitions=(part,)),)
    )
    return _outcome(peer, await ask(peer, ApiKey.DELETE_SHARE_GROUP_STATE, message))


async def write_at(ask: AskPeer, peer: BrokerId, key: "ShareKey", change: "StateWrite") -> "StateOutcome":
    """WriteShareGroupState at another broker."""
    from kio.schema.write_share_group_state.v1.request import (
        PartitionData,
        StateBatch,
        WriteShareGroupStateRequest,
        WriteStateData,
    )
    from kio.static.primitive import i8, i16, i32, i64

    part = PartitionData(
        partition=i32(key.partition),
        state_epoch=i32(change.state_epoch),
        leader_epoch=i32(change.leader_epoch),
        start_offset=i64(change.start_offset),
        delivery_complete_count=i32(change.delivery_complete_count),
        state_batches=tuple(
            StateBatch(
                first_offset=i64(each.first_offset),
                last_offset=i64(each.last_offset),
                delivery_state=i8(each.delivery_state),
                delivery_count=i16(each.delivery_count),
            )
            for each in change.batches
        ),
    )
    message = WriteShareGroupStateRequest(
        group_id=key.group_id, topics=(WriteStateData(topic_id=key.topic_id, partitions=(part,)),)
    )
    return _outcome(peer, await ask(peer, ApiKey.WRITE_SHARE_GROUP_STATE, message))


async def read_at(ask: AskPeer, peer: BrokerId, key: "ShareKey", leader_epoch: int) -> "StateRead":
    """ReadShareGroupState at another broker."""
    from kio.schema.read_share_group_state.v0.request import PartitionData, ReadShareGroupStateRequest, ReadStateData
    from kio.static.primitive import i32

    from ottla.coordination.share_state.requests import StateRead
    from ottla.coordination.share_state.state_batches import StateBatch

    part = PartitionData(partition=i32(key.partition), leader_epoch=i32(leader_epoch))
    message = ReadShareGroupStateRequest(
        group_id=key.group_id, topics=(ReadStateData(topic_id=key.topic_id, partitions=(part,)),)
    )
    result = _only(peer, await ask(peer, ApiKey.READ_SHARE_GROUP_STATE, message))
    return StateRead(
        error=ErrorCode(int(result.error_code)),
        message=result.error_message,
        state_epoch=result.state_epoch,
        start_offset=result.start_offset,
        batches=tuple(
            StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
            for each in result.state_batches
        ),
    )


async def summarize_at(ask: AskPeer, peer: BrokerId, key: "ShareKey") -> "StateSummary":
    """ReadShareGroupStateSummary at another broker."""
    from kio.schema.read_share_group_state_summary.v1.request import (
        PartitionData,
        ReadShareGroupStateSummaryRequest,
        ReadStateSummaryData,
    )
    from kio.static.primitive import i32

    from ottla.coordination.share_state.requests import StateSummary

    part = PartitionData(partition=i32(key.partition), leader_epoch=i32(0))
    message = ReadShareGroupStateSummaryRequest(
        group_id=key.group_id, topics=(ReadStateSummaryData(topic_id=key.topic_id, partitions=(part,)),)
    )
    result = _only(peer, await ask(peer, ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, message))
    return StateSummary(
        error=ErrorCode(int(result.error_code)),
        message=result.error_message,
        state_epoch=result.state_epoch,
        leader_epoch=result.leader_epoch,
        start_offset=result.start_offset,
        delivery_complete_count=result.delivery_complete_count,
    )


async def end_offset_at(ask: AskPeer, leader: BrokerId, topic: str, index: int) -> int:
    """The high watermark of a partition that another broker leads. Raises an `OttlaError`."""
    from kio.schema.list_offsets.v11.request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
    from kio.schema.types import BrokerId as WireBrokerId
    from kio.schema.types import TopicName
    from kio.static.primitive import i8, i32, i64

    from ottla.protocol.messages import milliseconds

    part = ListOffsetsPartition(partition_index=i32(index), current_leader_epoch=i32(-1), timestamp=i64(-1))
    message = ListOffsetsRequest(
        replica_id=WireBrokerId(-1),
        isolation_level=i8(0),
        topics=(ListOffsetsTopic(name=TopicName(topic), partitions=(part,)),),
        timeout=milliseconds(10_000),
    )
    response = await ask(leader, ApiKey.LIST_OFFSETS, message)
    for listed in response.topics:
        for found in listed.partitions:
            if int(found.error_code) == ErrorCode.NONE:
                return int(found.offset)
    raise LeaderNotAvailableError(f"broker {leader} does not know the end offset of {topic}-{index}")


def _outcome(peer: BrokerId, response: Any) -> "StateOutcome":
    from ottla.coordination.share_state.requests import StateOutcome

    result = _only(peer, response)
    return StateOutcome(error=ErrorCode(int(result.error_code)), message=result.error_message)


def _only(peer: BrokerId, response: Any) -> Any:
    """The result of the one share-partition that was asked for."""
    for topic in response.results:
        for result in topic.partitions:
            if int(result.error_code) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                raise BrokerDeniedError(peer)
            return result
    raise RetriableError(f"broker {peer} sent a response without a share-partition")
