"""Sends the requests that `fetch_plan_state.py` plans: for each broker one long poll after the other.

A broker answers the requests of a connection in order, so a long poll delays the requests behind it. Each broker
therefore has two lanes, connections of their own: while the first waits for records, the second asks for partitions
that were just assigned or sought. The first lane has a fetch session (`fetch_session_state.py`), so that a consumer of
many partitions does not name all of them in every request.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from ottla.client.errors import UnsupportedByBrokerError
from ottla.client.fetch.fetch_connections import FetchConnections
from ottla.client.fetch.fetch_plan_state import NO_LOCK, FetchPlanState, FetchProblem, Leader
from ottla.client.fetch.fetch_session_state import FetchSessionState
from ottla.client.network.backoff import Backoff
from ottla.client.network.cluster import Cluster
from ottla.client.stop_task import stop_task
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.protocol.apis import ApiKey
from ottla.protocol.fetch_frames import VERSION, VERSION_BY_ID, Fetched, Wanted, fetch_body
from ottla.transport.client_connection import Connection

log: Final = logging.getLogger(__name__)

LANES: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchRules:
    """How brokers are asked for records."""

    wait_ms: int
    bytes_min: int
    bytes_max: int
    request_timeout_ms: int
    """How long a response may take beyond `wait_ms`."""
    backoff: Backoff
    rack: str = ""
    has_sessions: bool = True
    """Whether brokers remember what is asked for; pays for long reads of many partitions."""
    topic_id: UUID | None = None
    """The id of the one topic that is read: a topic recreated under the same name is not. Excludes sessions."""


@dataclass(slots=True, eq=False)
class _Lane:
    broker: int
    session: FetchSessionState = field(default_factory=FetchSessionState)
    connection: Connection | None = None
    fetching: asyncio.Task[None] | None = None


class Fetcher:
    """Fetches until `stop`. The plan is only used under `lock`: another thread may take records from it.

    `leaders` returns the known leaders of the partitions to read. `on_answer` is called after every response, with the
    partitions that could not be read; `on_failure` when a broker did not answer; `on_end` with every task that ended.
    """

    def __init__(
        self,
        cluster: Cluster,
        connections: FetchConnections,
        plan: FetchPlanState,
        rules: FetchRules,
        *,
        lock: AbstractContextManager[object] = NO_LOCK,
        leaders: Callable[[], Mapping[TopicPartition, Leader]],
        on_answer: Callable[[Sequence[FetchProblem]], None],
        on_failure: Callable[[OttlaError], None],
        on_end: Callable[["asyncio.Task[None]"], None],
    ) -> None:
        self._clock, self._random = cluster.clock, cluster.random
        self._connections = connections
        self._plan = plan
        self._rules = rules
        self._lock = lock
        self._leaders = leaders
        self._on_answer = on_answer
        self._on_failure = on_failure
        self._on_end = on_end
        self._lanes: dict[int, list[_Lane]] = {}
        self._wake_handle: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_stopped = False
        self._loop = asyncio.get_running_loop()
        self.is_full = False
        """Whether fetching stopped because the plan is full."""
        self.requests = 0

    def wake(self) -> None:
        """Looks in the loop's next turn for what can be fetched now."""
        if self._wake_handle is None and not self._is_stopped:
            self._wake_handle = self._loop.call_soon(self._launch)

    def has_room_again(self) -> bool:
        """To be asked after something was taken: whether the plan was full and is not any more. Then call `wake`."""
        if not self.is_full:
            return False
        with self._lock:
            self.is_full = self._plan.is_full
        return not self.is_full

    async def stop(self) -> None:
        """Cancels the requests in flight and gives the connections back."""
        self._is_stopped = True
        for handle in (self._wake_handle, self._timer):
            if handle is not None:
                handle.cancel()
        for lane in [lane for lanes in self._lanes.values() for lane in lanes]:
            await stop_task(lane.fetching)
            if lane.connection is not None:
                self._connections.give_back(lane.broker, lane.connection)

    def _launch(self) -> None:
        """Sends a request for everything that can be asked for now, to each broker that has a free lane."""
        self._wake_handle = None
        now = self._clock.monotonic()
        with self._lock:
            leaders = self._leaders()
            self.is_full = self._plan.is_full
            for broker, wanted in self._plan.plan(leaders, now).items():
                lane = self._free_lane(broker)
                if lane is not None:
                    self._plan.on_sent(wanted)
                    lane.fetching = self._loop.create_task(self._fetch(lane, wanted))
                    lane.fetching.add_done_callback(self._on_end)
            self._set_timer(now)

    def _set_timer(self, now: float) -> None:
        """Wakes up when the first partition that is backing off may be asked for."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        retry_at = self._plan.next_retry(now)
        if retry_at is not None:
            self._timer = self._loop.call_later(retry_at - now, self.wake)

    def _free_lane(self, broker: int) -> _Lane | None:
        lanes = self._lanes.setdefault(broker, [])
        free = next((lane for lane in lanes if lane.fetching is None), None)
        if free is None and len(lanes) < LANES:
            free = _Lane(broker, FetchSessionState(is_lasting=self._rules.has_sessions and not lanes))
            lanes.append(free)
        return free

    async def _fetch(self, lane: _Lane, wanted: list[Wanted]) -> None:
        try:
            answer = await self._ask(lane, wanted)
            with self._lock:
                problems = self._plan.on_answer(wanted, answer, self._clock.monotonic())
        except BaseException as error:
            with self._lock:
                self._plan.on_failed(wanted)
            if not isinstance(error, OttlaError):
                raise
            await self._back_off(lane, error)
        else:
            self._on_answer(problems)
        finally:
            lane.fetching = None
        self.wake()

    async def _ask(self, lane: _Lane, wanted: list[Wanted]) -> list[Fetched]:
        connection = lane.connection
        if connection is None or connection.is_closed:
            connection = lane.connection = await self._connections.take(lane.broker)
        rules = self._rules
        version = connection.version_for(ApiKey.FETCH, VERSION if rules.topic_id is None else VERSION_BY_ID)
        if version < VERSION:
            raise UnsupportedByBrokerError(f"{connection.address} does not support FETCH {VERSION}; use a newer broker")
        topic_id = rules.topic_id if version == VERSION_BY_ID else None
        asked = lane.session.ask(wanted)
        body = fetch_body(
            asked.wanted,
            isolation_level=self._plan.limits.isolation_level,
            wait_ms=rules.wait_ms,
            bytes_min=rules.bytes_min,
            bytes_max=rules.bytes_max,
            rack=rules.rack,
            session=asked.session,
            forgotten=asked.forgotten,
            topic_id=topic_id,
        )
        self.requests += 1
        timeout_ms = rules.wait_ms + rules.request_timeout_ms
        frame = await connection.request_bytes(
            ApiKey.FETCH, version, body, timeout_ms=timeout_ms, wait_ms=rules.wait_ms
        )
        return lane.session.read(frame, None if topic_id is None else wanted[0].partition.topic)

    async def _back_off(self, lane: _Lane, error: OttlaError) -> None:
        """After a failed request: closes the connection, reports the error, and waits before the lane is used again."""
        lane.session.on_lost()
        if lane.connection is not None:
            lane.connection.close()
        lane.connection = None
        log.info("fetch from broker %s failed, retrying: %s", lane.broker, error)
        self._on_failure(error)
        await self._clock.sleep(self._rules.backoff.wait_ms(1, self._random) / 1000)
