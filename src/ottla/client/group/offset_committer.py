"""Commits a consumer's offsets, one commit after the other, and reads the committed offsets of its group.

Retriable errors are retried until the timeout. An error about the membership is not: only a poll helps then.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final, TypeVar

from ottla.client.consumer.errors import CommitFailedError
from ottla.client.consumer.interceptors import ConsumerInterceptors
from ottla.client.consumer.options import ConsumerConfig
from ottla.client.errors import AnswerError, DeadlineError, answer_error, error_code_of
from ottla.client.group.consumer_membership_state import ConsumerMembershipState
from ottla.client.group.group_member import GroupMember, is_about_coordinator
from ottla.client.group.offset_requests import ask_commit, ask_committed
from ottla.client.network.cluster import Cluster
from ottla.client.values import OffsetAndMetadata
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import MisuseError, OttlaError, RetriableError
from ottla.model.ids import TopicPartition

T = TypeVar("T")
Offsets = Mapping[TopicPartition, OffsetAndMetadata]

_NOT_A_MEMBER: Final = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.REBALANCE_IN_PROGRESS,
    }
)
_WORDS: Final = {
    ErrorCode.REBALANCE_IN_PROGRESS: "the group is rebalancing; poll, then commit what is still assigned",
    ErrorCode.FENCED_INSTANCE_ID: "another consumer has joined with the same group_instance_id",
}
_GONE: Final = (
    "the consumer is no longer a member of the group, and its partitions may have other owners; poll to join again."
    " If the time between polls was too long, poll more often or raise max_poll_interval_ms"
)


class OffsetCommitter:
    """The commits of one consumer."""

    def __init__(
        self, cluster: Cluster, member: GroupMember, config: ConsumerConfig, interceptors: ConsumerInterceptors
    ) -> None:
        self._cluster = cluster
        self._member = member
        self._config = config
        self._interceptors = interceptors
        self._turn = asyncio.Lock()
        self.commits = 0
        self.failures = 0

    async def commit(self, offsets: Offsets, *, by_member: bool, timeout_ms: int) -> None:
        """Commits offsets. Raises `CommitFailedError`, and `DeadlineError` with the last error after the timeout.

        `by_member` is for partitions that the group assigned; else the commit does not name a member.
        """
        group_id = self._group_id()
        if not offsets:
            return
        async with self._turn:
            try:
                await self._retry(lambda: self._commit_once(group_id, offsets, by_member, timeout_ms), timeout_ms)
            except OttlaError:
                self.failures += 1
                raise
        self.commits += 1
        self._interceptors.on_commit(offsets)

    async def committed(
        self, partitions: Collection[TopicPartition], timeout_ms: int
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The committed offsets, None for a partition without one."""
        self._group_id()
        return await self._retry(lambda: self.committed_once(partitions), timeout_ms)

    async def committed_once(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The same, without retries."""
        state = self._member.state
        member = None
        if isinstance(state, ConsumerMembershipState) and state.is_member:
            member = state.member_id, state.generation
        try:
            connection = await self._cluster.broker_connection(await self._member.coordinator())
            return await ask_committed(
                connection,
                self._group_id(),
                member,
                partitions,
                self._config.request_timeout_ms,
                stable_only=self._config.isolation_level == "read_committed",
            )
        except RetriableError as error:
            if is_about_coordinator(error):
                self._member.forget_coordinator()
            raise
        except AnswerError as error:
            if member is None or error.error_code not in _NOT_A_MEMBER:
                raise
            # The membership has changed; the next heartbeat finds out how.
            state.on_commit_refused(error.error_code, member[1])
            self._member.wake()
            raise DeadlineError(str(error)) from error

    def _group_id(self) -> str:
        if self._config.group_id is None:
            raise MisuseError("the consumer has no group_id; commits need one")
        return self._config.group_id

    async def _commit_once(self, group_id: str, offsets: Offsets, by_member: bool, timeout_ms: int) -> None:
        state = self._member.state
        member: tuple[str, int, str | None] = ("", -1, None)
        if by_member:
            if not state.is_member:
                raise CommitFailedError(f"group {group_id}: {_GONE}")
            member = state.member_id, state.generation, self._config.group_instance_id
        try:
            connection = await self._cluster.broker_connection(await self._member.coordinator())
            refused = await ask_commit(
                connection, group_id, member, offsets, min(timeout_ms, self._config.request_timeout_ms)
            )
            self._refuse(group_id, refused, member[1])
        except RetriableError as error:
            if is_about_coordinator(error):
                self._member.forget_coordinator()
            raise

    def _refuse(self, group_id: str, refused: Mapping[TopicPartition, int], generation: int) -> None:
        for partition, code in refused.items():
            error_code = error_code_of(code)
            what = f"committing for group {group_id} in {partition}"
            if error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise AnswerError(error_code, f"{what}: unknown topic or partition ({error_code.name}, {code})")
            if error_code not in _NOT_A_MEMBER:
                raise answer_error(code, what)
            self._member.state.on_commit_refused(code, generation)
            self._member.wake()
            if error_code is ErrorCode.STALE_MEMBER_EPOCH and self._member.state.is_member:
                # The coordinator has a newer epoch for this member, which the next heartbeat tells.
                raise DeadlineError(f"{what}: the member epoch is stale")
            raise CommitFailedError(f"{what}: {_WORDS.get(error_code, _GONE)} ({error_code.name}, {code})")

    async def _retry(self, operation: Callable[[], Awaitable[T]], timeout_ms: int) -> T:
        clock = self._cluster.clock
        deadline = clock.monotonic() + timeout_ms / 1000
        tries = 0
        while True:
            try:
                return await operation()
            except RetriableError as error:
                tries += 1
                wait = self._config.backoff.wait_ms(tries, self._cluster.random) / 1000
                if clock.monotonic() + wait > deadline:
                    raise DeadlineError(f"{error} (tried {tries} times in {timeout_ms} ms)") from error
                await clock.sleep(wait)
