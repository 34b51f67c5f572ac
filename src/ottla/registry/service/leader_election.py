"""Elects the one instance of a registry that writes, by Kafka's group protocol.

All instances join one group; its first member, the elector, names the leader (`election_protocol.py`), and the
coordinator tells everyone. A leader that gets no response for the session timeout gives up by itself. That is not what
keeps two leaders apart: a new leader's writer fences the old one's (`schemas_writer.py`).
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from ottla.client.errors import answer_error, error_code_of
from ottla.client.group.classic_membership_state import Heartbeat, Join, Leave, Sync
from ottla.client.group.membership_requests import (
    MemberIdentity,
    ask_heartbeat,
    ask_join,
    ask_leave,
    ask_sync,
)
from ottla.client.network.backoff import Backoff
from ottla.client.network.cluster import Cluster
from ottla.client.network.coordinators import CoordinatorType, find_coordinator
from ottla.client.values import NO_MEMBER_ID
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import OttlaError, RetriableError
from ottla.registry.service.election_protocol import (
    NO_ERROR,
    PROTOCOL,
    PROTOCOL_TYPE,
    Assignment,
    Instance,
    elect,
    read_assignment,
    read_instance,
    write,
)
from ottla.transport.client_connection import Connection

_LOGGER: Final = logging.getLogger(__name__)

_REJOIN_CODES: Final = frozenset(
    {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID}
)
_BACKOFF: Final = Backoff(first_ms=100, most_ms=3_000)
_LEAVE_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionOptions:
    """The group and its timeouts."""

    group_id: str = "schema-registry"
    session_timeout_ms: int = 10_000
    """After this long without a heartbeat the coordinator removes an instance, and another one leads."""
    heartbeat_interval_ms: int = 3_000
    rebalance_timeout_ms: int = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Elected:
    """The leader of a generation."""

    leader: Instance
    is_this_instance: bool


class LeaderElection:
    """Runs until it is stopped. `me` describes this instance at the moment of each join.

    `on_elected` gets the leader, or None while there is none or this instance cannot know.
    """

    def __init__(
        self,
        cluster: Cluster,
        options: ElectionOptions,
        *,
        me: Callable[[], Instance],
        on_elected: Callable[[Elected | None], None],
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._me = me
        self._on_elected = on_elected
        self._identity = MemberIdentity(
            group_id=options.group_id,
            instance_id=None,
            rack_id=None,
            session_timeout_ms=options.session_timeout_ms,
            rebalance_timeout_ms=options.rebalance_timeout_ms,
            request_timeout_ms=min(options.session_timeout_ms, cluster.request_timeout_ms),
            protocol_type=PROTOCOL_TYPE,
        )
        self._member_id = NO_MEMBER_ID
        self._coordinator: int | None = None
        self._confirmed_at = 0.0
        """When the coordinator last confirmed the membership."""
        self._wants_rejoin = asyncio.Event()

    def rejoin(self) -> None:
        """Joins again, because `me` changed."""
        self._wants_rejoin.set()

    async def run(self) -> None:
        """Keeps this instance in the group, forever."""
        tries = 0
        while True:
            try:
                await self._generation()
                tries = 0
            except OttlaError as error:
                tries += 1
                level = logging.INFO if isinstance(error, RetriableError) else logging.ERROR
                _LOGGER.log(level, "group %s: election failed, retrying: %s", self._options.group_id, error)
                self._coordinator = None
                self._give_up_if_silent()
                await self._cluster.clock.sleep(_BACKOFF.wait_ms(tries, self._cluster.random) / 1000)

    async def leave(self) -> None:
        """Leaves the group, so that another instance can lead at once. A failure is only logged."""
        if self._member_id == NO_MEMBER_ID:
            return
        try:
            async with asyncio.timeout(_LEAVE_SECONDS):
                leaving = Leave(member_id=self._member_id, reason="the registry instance stops")
                await ask_leave(await self._connection(), self._identity, leaving)
        except (OttlaError, TimeoutError) as error:
            _LOGGER.warning("group %s: could not leave: %s", self._options.group_id, error or "timed out")
        self._member_id = NO_MEMBER_ID

    async def _connection(self) -> Connection:
        if self._coordinator is None:
            self._coordinator = await find_coordinator(self._cluster, CoordinatorType.GROUP, self._options.group_id)
        return await self._cluster.broker_connection(self._coordinator)

    async def _generation(self) -> None:
        """Joins, learns the leader, and sends heartbeats until the group rebalances."""
        self._wants_rejoin.clear()
        protocols = ((PROTOCOL, write(self._me())),)
        joined = await ask_join(
            await self._connection(), self._identity, Join(member_id=self._member_id, protocols=protocols)
        )
        code = error_code_of(joined.error_code)
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = joined.member_id
            return
        if self._is_refused(code, "joining"):
            return
        self._member_id = joined.member_id
        assignments: tuple[tuple[str, bytes], ...] = ()
        if joined.leader == joined.member_id:
            members = {member_id: read_instance(metadata) for member_id, _, metadata in joined.members}
            result = write(elect(members))
            assignments = tuple((member_id, result) for member_id in members)
        code_number, data = await ask_sync(
            await self._connection(),
            self._identity,
            Sync(
                member_id=self._member_id,
                generation=joined.generation,
                protocol=joined.protocol,
                assignments=assignments,
            ),
        )
        if self._is_refused(error_code_of(code_number), "learning the leader"):
            return
        self._confirmed_at = self._cluster.clock.monotonic()
        self._tell(read_assignment(data))
        await self._stay(Heartbeat(member_id=self._member_id, generation=joined.generation))

    async def _stay(self, heartbeat: Heartbeat) -> None:
        """Sends heartbeats; returns when this instance must join again."""
        interval = self._options.heartbeat_interval_ms / 1000
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(interval):
                    await self._wants_rejoin.wait()
                return
            try:
                code = error_code_of(await ask_heartbeat(await self._connection(), self._identity, heartbeat))
            except RetriableError as error:
                _LOGGER.info("group %s: heartbeat failed: %s", self._options.group_id, error)
                self._coordinator = None
                if self._give_up_if_silent():
                    return
                continue
            if code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
                self._coordinator = None
                if self._give_up_if_silent():
                    return
                continue
            if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                continue
            if self._is_refused(code, "heartbeat"):
                return
            self._confirmed_at = self._cluster.clock.monotonic()

    def _is_refused(self, code: ErrorCode, step: str) -> bool:
        """Whether this instance must join again. Raises other refusals."""
        if code is ErrorCode.NONE:
            return False
        if code not in _REJOIN_CODES:
            raise answer_error(code, f"group {self._options.group_id}: {step}")
        if code is not ErrorCode.REBALANCE_IN_PROGRESS:
            # The group goes on without this instance.
            self._member_id = NO_MEMBER_ID
            self._on_elected(None)
        return True

    def _give_up_if_silent(self) -> bool:
        """Says that there is no leader if the coordinator has not answered for the session timeout."""
        now = self._cluster.clock.monotonic()
        is_silent = now - self._confirmed_at >= self._options.session_timeout_ms / 1000
        if is_silent:
            self._on_elected(None)
        return is_silent

    def _tell(self, assignment: Assignment) -> None:
        if assignment.error != NO_ERROR:
            _LOGGER.error(
                "group %s: no leader (error %d): several instances advertise the same URL; give each its own with"
                " --advertise",
                self._options.group_id,
                assignment.error,
            )
            self._on_elected(None)
        elif assignment.leader is None:
            _LOGGER.warning(
                "group %s: no instance may lead, so writes are refused; reads are answered", self._options.group_id
            )
            self._on_elected(None)
        else:
            self._on_elected(
                Elected(leader=assignment.leader, is_this_instance=assignment.member_id == self._member_id)
            )
