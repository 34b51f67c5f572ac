"""Keeps a consumer in its group: one task that does what the membership's state says, one thing after the other.

Heartbeats go on whatever the program computes; what changes the consumer's partitions waits in `state.handover` until
somebody polls. The decisions are in `membership_state.py` and its twins.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from ottla.client.errors import AnswerError, CannotConnectError, ConnectionLostError
from ottla.client.group import classic_membership_state as classic
from ottla.client.group import consumer_membership_state as newer
from ottla.client.group.classic_membership_state import MembershipState
from ottla.client.group.consumer_membership_state import ConsumerMembershipState
from ottla.client.group.requests import (
    MemberIdentity,
    ask_group_heartbeat,
    ask_heartbeat,
    ask_join,
    ask_leave,
    ask_sync,
)
from ottla.client.group.solo_membership_state import SoloMembershipState
from ottla.client.network.backoff import Backoff
from ottla.client.network.cluster import Cluster
from ottla.client.network.coordinators import CoordinatorType, find_coordinator
from ottla.model.errors import OttlaError, RetriableError
from ottla.transport.client_connection import Connection

log: Final = logging.getLogger(__name__)

GroupState = MembershipState | ConsumerMembershipState | SoloMembershipState


class GroupMembership:
    """See the module's docstring. `on_change` is called after every step: something may wait for whoever polls."""

    def __init__(
        self,
        cluster: Cluster,
        state: GroupState,
        identity: MemberIdentity,
        backoff: Backoff,
        *,
        on_change: Callable[[], None],
        on_unreachable: Callable[[OttlaError], None],
    ) -> None:
        self.state = state
        self._cluster = cluster
        self._identity = identity
        self._backoff = backoff
        self._on_change = on_change
        self._on_unreachable = on_unreachable
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._tries = 0
        self._waiting_room: Connection | None = None
        """A connection for what the coordinator answers late, so that heartbeats and commits do not wait behind it."""

    def start(self) -> "asyncio.Task[None]":
        """Begins; the task goes on until `stop`."""
        self._task = asyncio.create_task(self._run())
        return self._task

    def wake(self) -> None:
        """The state was told something, and may have something to do."""
        self._wake.set()

    async def stop(self) -> None:
        """Ends the task."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        if self._waiting_room is not None:
            self._waiting_room.close()

    async def leave(self, reason: str, timeout_ms: int) -> None:
        """Tells the group that this member goes, in the time given, and forgets it. The task must have ended."""
        coordinator = None if isinstance(self.state, SoloMembershipState) else self.state.coordinator
        farewell = self.state.leave(reason)
        if farewell is None or coordinator is None:
            return
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._farewell(await self._cluster.broker_connection(coordinator), farewell)
        except (OttlaError, TimeoutError) as error:
            log.warning("group %s was left without a word: %s", self._identity.group_id, error)

    async def coordinator(self) -> int:
        """Who coordinates the group, asked for if it is not known. Raises a retriable error while nobody does."""
        state = self.state
        if not isinstance(state, SoloMembershipState) and state.coordinator is not None:
            return state.coordinator
        found = await find_coordinator(self._cluster, CoordinatorType.GROUP, self._identity.group_id)
        if not isinstance(state, SoloMembershipState):
            state.on_coordinator(found, self._cluster.clock.monotonic())
        return found

    def forget_coordinator(self) -> None:
        """Somebody else said that it is not that one any more."""
        if not isinstance(self.state, SoloMembershipState):
            self.state.coordinator = None
            self.wake()

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            now = self._cluster.clock.monotonic()
            action = self.state.next_action(now)
            if isinstance(action, classic.Wait):
                await self._pause(action.until, now)
                continue
            try:
                await self._do(action)
                self._tries = 0
            except RetriableError as error:
                self._on_trouble(error)
            except OttlaError as error:
                if not isinstance(self.state, SoloMembershipState):
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
        log.info("group %s: %s; trying again", self._identity.group_id, error)
        if isinstance(error, CannotConnectError) and not self._cluster.view.brokers:
            self._on_unreachable(error)
        if not isinstance(self.state, SoloMembershipState):
            lost = isinstance(error, CannotConnectError | ConnectionLostError)
            self.state.on_trouble(self._retry_at(), coordinator_lost=lost)

    async def _do(self, action: classic.Action | newer.Action) -> None:
        state, clock = self.state, self._cluster.clock
        if isinstance(state, SoloMembershipState):
            return
        match action:
            case classic.FindCoordinator():
                found = await find_coordinator(self._cluster, CoordinatorType.GROUP, self._identity.group_id)
                state.on_coordinator(found, clock.monotonic())
            case newer.NameTopics():
                view = await self._cluster.refresh(state.watched_topics(), topic_ids=action.topic_ids)
                names = {topic.id: name for name, topic in view.topics.items() if topic.id is not None}
                if isinstance(state, ConsumerMembershipState):
                    state.on_names(names, self._retry_at())
            case classic.CountPartitions():
                await self._count(action)
            case classic.Leave():
                await self._farewell(await self._to_coordinator(), action)
            case newer.GroupHeartbeat() if action.member_epoch < 0:
                await self._farewell(await self._to_coordinator(), action)
            case newer.GroupHeartbeat() if isinstance(state, ConsumerMembershipState):
                connection = await self._to_coordinator()
                answer = await ask_group_heartbeat(connection, self._identity, state.member_id, action)
                state.on_heartbeat(action, answer, self._after(answer.error_code))
            case _ if isinstance(state, MembershipState):
                await self._do_classic(state, action)

    async def _do_classic(self, state: MembershipState, action: classic.Action | newer.Action) -> None:
        clock = self._cluster.clock
        match action:
            case classic.Join():
                joined = await ask_join(await self._to_waiting_room(), self._identity, action)
                state.on_joined(joined, clock.monotonic(), self._after(joined.error_code))
            case classic.Sync():
                code, assignment = await ask_sync(await self._to_waiting_room(), self._identity, action)
                state.on_synced(code, assignment, clock.monotonic(), self._after(code))
            case classic.Heartbeat():
                code = await ask_heartbeat(await self._to_coordinator(), self._identity, action)
                state.on_heartbeat(code, action, clock.monotonic(), self._after(code))

    def _after(self, error_code: int) -> float:
        """When to try again what was refused so."""
        return self._retry_at() if error_code else 0.0

    async def _count(self, action: classic.CountPartitions) -> None:
        view = await self._cluster.refresh(action.topics)
        self.state.on_partition_counts(
            {topic: len(view.topics[topic].partitions) for topic in action.topics if topic in view.topics},
            view.racks(action.topics),
        )

    async def _farewell(self, connection: Connection, action: classic.Leave | newer.GroupHeartbeat) -> None:
        if isinstance(action, classic.Leave):
            await ask_leave(connection, self._identity, action)
        elif isinstance(self.state, ConsumerMembershipState):
            await ask_group_heartbeat(connection, self._identity, self.state.member_id, action)

    async def _to_coordinator(self) -> Connection:
        return await self._cluster.broker_connection(await self.coordinator())

    async def _to_waiting_room(self) -> Connection:
        coordinator = await self.coordinator()
        address = self._cluster.view.brokers.get(coordinator)
        room = self._waiting_room
        if room is None or room.is_closed or address is None or room.address != address.address:
            if room is not None:
                room.close()
            room = self._waiting_room = await self._cluster.own_connection(coordinator)
        return room


def is_about_coordinator(error: OttlaError) -> bool:
    """Whether an error says that the coordinator should be looked for again."""
    if isinstance(error, CannotConnectError | ConnectionLostError):
        return True
    return isinstance(error, AnswerError) and error.error_code in classic.LOST_COORDINATOR
