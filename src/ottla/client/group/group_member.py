"""Keeps a consumer in its group: one task that carries out, step by step, what the membership state says.

Heartbeats go on whatever the program computes; a change of partitions waits in `state.handover` for the next poll. The
decisions are in `membership_state.py` and the modules it names.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from ottla.client.errors import AnswerError, CannotConnectError, ConnectionLostError
from ottla.client.group.classic_membership_state import (
    ClassicMembershipState,
    CountPartitions,
    Heartbeat,
    Join,
    Leave,
    Sync,
)
from ottla.client.group.consumer_membership_state import ConsumerMembershipState, GroupHeartbeat, NameTopics
from ottla.client.group.membership_requests import (
    MemberIdentity,
    ask_group_heartbeat,
    ask_heartbeat,
    ask_join,
    ask_leave,
    ask_share_heartbeat,
    ask_sync,
)
from ottla.client.group.membership_state import (
    COORDINATOR_REACTIONS,
    FindCoordinator,
    MembershipState,
    Reaction,
    Wait,
)
from ottla.client.group.share_membership_state import ShareHeartbeat, ShareMembershipState
from ottla.client.network.backoff import Backoff
from ottla.client.network.cluster import Cluster
from ottla.client.network.coordinators import CoordinatorType, find_coordinator
from ottla.client.stop_task import stop_task
from ottla.model.errors import OttlaError, RetriableError
from ottla.transport.client_connection import Connection

log: Final = logging.getLogger(__name__)


class GroupMember:
    """Runs from `start` to `stop`. `on_change` is called after every step: something may wait for the next poll."""

    def __init__(
        self,
        cluster: Cluster,
        state: MembershipState[Any, Any],
        identity: MemberIdentity,
        backoff: Backoff,
        *,
        on_change: Callable[[], None],
        on_error: Callable[[OttlaError], None],
    ) -> None:
        self.state = state
        self._cluster = cluster
        self._identity = identity
        self._backoff = backoff
        self._on_change = on_change
        self._on_error = on_error
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._tries = 0
        self._join_connection: Connection | None = None
        """For JoinGroup and SyncGroup, which the coordinator answers late: heartbeats and commits must not wait."""

    def start(self) -> "asyncio.Task[None]":
        """Starts the task, which runs until `stop`."""
        self._task = asyncio.create_task(self._run())
        return self._task

    def wake(self) -> None:
        """The state changed, and may have something to do."""
        self._wake.set()

    async def stop(self) -> None:
        """Stops the task."""
        task, self._task = self._task, None
        await stop_task(task)
        if self._join_connection is not None:
            self._join_connection.close()

    async def leave(self, reason: str, timeout_ms: int) -> None:
        """Leaves the group and tells the coordinator, within the time given. A failure is only logged."""
        coordinator = self.state.coordinator
        farewell = self.state.leave(reason)
        if farewell is None or coordinator is None:
            return
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._say_farewell(await self._cluster.broker_connection(coordinator), farewell)
        except (OttlaError, TimeoutError) as error:
            log.warning(
                "group %s: could not leave; the coordinator removes this member when its session times out: %s",
                self._identity.group_id,
                error or "timed out",
            )

    async def coordinator(self) -> int:
        """The group's coordinator, looked up if it is not known. Raises a retriable error while there is none."""
        known = self.state.coordinator
        return await self._find_coordinator() if known is None else known

    def forget_coordinator(self) -> None:
        """The coordinator turned out to be another broker, or cannot be reached."""
        self.state.coordinator = None
        self.wake()

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            now = self._cluster.clock.monotonic()
            action = self.state.next_action(now)
            if isinstance(action, Wait):
                await self._pause(action.until, now)
                continue
            try:
                await self._do(action)
                self._tries = 0
            except RetriableError as error:
                self._on_trouble(error)
            except OttlaError as error:
                self.state.fail(error)
            self._on_change()

    async def _pause(self, until: float | None, now: float) -> None:
        seconds = None if until is None or until == float("inf") else max(until - now, 0)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()

    def _retry_at(self) -> float:
        self._tries += 1
        wait = self._backoff.wait_ms(self._tries, self._cluster.random)
        return self._cluster.clock.monotonic() + wait / 1000

    def _on_trouble(self, error: RetriableError) -> None:
        log.info("group %s: request failed, retrying: %s", self._identity.group_id, error)
        self._on_error(error)
        lost = isinstance(error, CannotConnectError | ConnectionLostError)
        self.state.on_trouble(self._retry_at(), coordinator_lost=lost)

    async def _do(self, action: object) -> None:
        state = self.state
        if isinstance(action, FindCoordinator):
            await self._find_coordinator()
        elif isinstance(state, ClassicMembershipState):
            await self._do_classic(state, action)
        elif isinstance(state, ConsumerMembershipState):
            await self._do_consumer(state, action)
        elif isinstance(state, ShareMembershipState):
            await self._do_share(state, action)

    async def _do_classic(self, state: ClassicMembershipState, action: object) -> None:
        clock = self._cluster.clock
        match action:
            case CountPartitions():
                view = await self._cluster.refresh(action.topics)
                counts = {name: len(view.topics[name].partitions) for name in action.topics if name in view.topics}
                state.on_partition_counts(counts, view.racks(action.topics))
            case Join():
                joined = await ask_join(await self._connection_for_joining(), self._identity, action)
                state.on_joined(joined, clock.monotonic(), self._after(joined.error_code))
            case Sync():
                code, assignment = await ask_sync(await self._connection_for_joining(), self._identity, action)
                state.on_synced(code, assignment, clock.monotonic(), self._after(code))
            case Heartbeat():
                code = await ask_heartbeat(await self._connection(), self._identity, action)
                state.on_heartbeat(code, action, clock.monotonic(), self._after(code))
            case Leave():
                await self._say_farewell(await self._connection(), action)

    async def _do_consumer(self, state: ConsumerMembershipState, action: object) -> None:
        match action:
            case NameTopics():
                view = await self._cluster.refresh(state.watched_topics(), topic_ids=action.topic_ids)
                names = {topic.id: name for name, topic in view.topics.items() if topic.id is not None}
                state.on_names(names, self._retry_at())
            case GroupHeartbeat():
                answer = await ask_group_heartbeat(await self._connection(), self._identity, state.member_id, action)
                state.on_heartbeat(action, answer, self._after(answer.error_code))

    async def _do_share(self, state: ShareMembershipState, action: object) -> None:
        match action:
            case NameTopics():
                view = await self._cluster.refresh(state.watched_topics(), topic_ids=action.topic_ids)
                names = {topic.id: name for name, topic in view.topics.items() if topic.id is not None}
                state.on_names(names, self._retry_at())
            case ShareHeartbeat():
                answer = await ask_share_heartbeat(await self._connection(), self._identity, state.member_id, action)
                state.on_heartbeat(action, answer, self._after(answer.error_code))

    async def _find_coordinator(self) -> int:
        found = await find_coordinator(self._cluster, CoordinatorType.GROUP, self._identity.group_id)
        self.state.on_coordinator(found, self._cluster.clock.monotonic())
        return found

    def _after(self, error_code: int) -> float:
        """When a request that got this error code may be sent again."""
        return self._retry_at() if error_code else 0.0

    async def _say_farewell(self, connection: Connection, action: Leave | GroupHeartbeat | ShareHeartbeat) -> None:
        if isinstance(action, Leave):
            await ask_leave(connection, self._identity, action)
        elif isinstance(action, ShareHeartbeat):
            await ask_share_heartbeat(connection, self._identity, self.state.member_id, action)
        else:
            await ask_group_heartbeat(connection, self._identity, self.state.member_id, action)

    async def _connection(self) -> Connection:
        return await self._cluster.broker_connection(await self.coordinator())

    async def _connection_for_joining(self) -> Connection:
        coordinator = await self.coordinator()
        broker = self._cluster.view.brokers.get(coordinator)
        connection = self._join_connection
        if connection is None or connection.is_closed or broker is None or connection.address != broker.address:
            if connection is not None:
                connection.close()
            connection = self._join_connection = await self._cluster.own_connection(coordinator)
        return connection


def is_about_coordinator(error: OttlaError) -> bool:
    """Whether an error means that the coordinator should be looked up again."""
    if isinstance(error, CannotConnectError | ConnectionLostError):
        return True
    if not isinstance(error, AnswerError):
        return False
    return COORDINATOR_REACTIONS.get(error.error_code) is Reaction.FIND_COORDINATOR
