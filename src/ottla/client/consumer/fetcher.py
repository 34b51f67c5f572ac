"""Fetches what `fetch_plan_state.py` plans: requests to each leader, one long poll after the other.

A broker answers the requests of one connection in order, so a long poll holds up what comes behind it. Each leader
therefore has two lanes, connections of their own: while the first waits for records, the second asks for partitions
that have just been assigned or sought. The first has a session with its broker (`fetch_session_state.py`), so that a
consumer of many partitions does not name all of them each time.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from typing import Final

from ottla.client.consumer.fetch_plan_state import FetchPlanState, FetchProblem
from ottla.client.consumer.fetch_session_state import FetchSessionState
from ottla.client.consumer.metadata_watch import MetadataWatch
from ottla.client.consumer.options import ISOLATION_LEVELS, ConsumerConfig
from ottla.client.consumer.subscription_state import SubscriptionState
from ottla.client.errors import UnsupportedByBrokerError
from ottla.client.network.cluster import Cluster
from ottla.model.errors import OttlaError, RetriableError
from ottla.protocol.apis import ApiKey
from ottla.protocol.fetch_frames import VERSION, Wanted, fetch_body
from ottla.transport.client_connection import Connection

log: Final = logging.getLogger(__name__)

LANES: Final = 2


@dataclass(slots=True, eq=False)
class _Lane:
    broker: int
    session: FetchSessionState = field(default_factory=FetchSessionState)
    connection: Connection | None = None
    fetching: asyncio.Task[None] | None = None


class Fetcher:
    """See the module's docstring. The plan is touched only under `lock`: records are taken by the program's thread."""

    def __init__(
        self,
        cluster: Cluster,
        metadata: MetadataWatch,
        subscription: SubscriptionState,
        plan: FetchPlanState,
        config: ConsumerConfig,
        *,
        lock: AbstractContextManager[object],
        on_arrival: Callable[[], None],
        on_problems: Callable[[Sequence[FetchProblem]], None],
        on_failure: Callable[[OttlaError], None],
        on_new_leader: Callable[[], None],
        on_end: Callable[["asyncio.Task[None]"], None],
    ) -> None:
        self._cluster = cluster
        self._metadata = metadata
        self._subscription = subscription
        self._plan = plan
        self._config = config
        self._lock = lock
        self._on_arrival = on_arrival
        self._on_problems = on_problems
        self._on_failure = on_failure
        self._on_new_leader = on_new_leader
        self._on_end = on_end
        self._lanes: dict[int, list[_Lane]] = {}
        self._wake_handle: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_stopped = False
        self._loop = asyncio.get_running_loop()
        self.is_full = False
        """Whether nothing more is fetched until something is taken."""
        self.requests = 0

    def wake(self) -> None:
        """Something can be fetched that could not before; looked at in the loop's next turn."""
        if self._wake_handle is None and not self._is_stopped:
            self._wake_handle = self._loop.call_soon(self._launch)

    async def stop(self) -> None:
        """Gives up what is under way."""
        self._is_stopped = True
        for handle in (self._wake_handle, self._timer):
            if handle is not None:
                handle.cancel()
        lanes = [lane for lanes in self._lanes.values() for lane in lanes]
        for lane in lanes:
            if lane.fetching is not None:
                lane.fetching.cancel()
                with suppress(asyncio.CancelledError):
                    await lane.fetching
            if lane.connection is not None:
                lane.connection.close()

    def _launch(self) -> None:
        """Sends a request for everything that can be asked for now and finds a free lane."""
        self._wake_handle = None
        now = self._cluster.clock.monotonic()
        with self._lock:
            leaders = {}
            is_new = False
            for partition in list(self._subscription.partitions):
                leader = self._metadata.leader(partition)
                if leader is None:
                    self._metadata.refresh_soon()
                    continue
                leaders[partition] = leader
                is_new |= self._subscription.on_leader(partition, leader.epoch)
            self.is_full = self._plan.is_full
            planned = self._plan.plan(leaders, now)
            for broker, wanted in planned.items():
                lane = self._free_lane(broker)
                if lane is not None:
                    self._plan.on_sent(wanted)
                    lane.fetching = self._loop.create_task(self._fetch(lane, wanted))
                    lane.fetching.add_done_callback(self._on_end)
            self._set_timer(now)
        if is_new:
            self._on_new_leader()

    def _set_timer(self, now: float) -> None:
        """Looks again when the first partition that was refused may be asked about."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        retries = [state.retry_at for state in self._subscription.partitions.values() if state.retry_at > now]
        if retries:
            self._timer = self._loop.call_later(min(retries) - now, self.wake)

    def _free_lane(self, broker: int) -> _Lane | None:
        lanes = self._lanes.setdefault(broker, [])
        free = next((lane for lane in lanes if lane.fetching is None), None)
        if free is None and len(lanes) < LANES:
            free = _Lane(broker, FetchSessionState(is_lasting=not lanes))
            lanes.append(free)
        return free

    async def _fetch(self, lane: _Lane, wanted: list[Wanted]) -> None:
        problems: Sequence[FetchProblem] = ()
        try:
            answer = lane.session.read(await self._ask(lane, wanted))
            with self._lock:
                problems = self._plan.on_answer(wanted, answer, self._cluster.clock.monotonic())
        except BaseException as error:
            with self._lock:
                self._plan.on_failed(wanted)
            if not isinstance(error, OttlaError):
                raise
            await self._on_lost(lane, error)
        finally:
            lane.fetching = None
        if problems:
            self._on_problems(problems)
        self._on_arrival()
        self.wake()

    async def _ask(self, lane: _Lane, wanted: list[Wanted]) -> memoryview:
        if lane.connection is None or lane.connection.is_closed:
            lane.connection = await self._cluster.own_connection(lane.broker)
            if lane.connection.version_for(ApiKey.FETCH, VERSION) < VERSION:
                address = lane.connection.address
                raise UnsupportedByBrokerError(f"{address} does not speak FETCH {VERSION}; use a newer broker")
        config = self._config
        asked = lane.session.ask(wanted)
        body = fetch_body(
            asked.wanted,
            isolation_level=ISOLATION_LEVELS[config.isolation_level],
            wait_ms=config.fetch_max_wait_ms,
            bytes_min=config.fetch_min_bytes,
            bytes_max=config.fetch_max_bytes,
            rack=config.client_rack,
            session=asked.session,
            forgotten=asked.forgotten,
        )
        self.requests += 1
        wait_ms = config.fetch_max_wait_ms
        timeout_ms = wait_ms + config.request_timeout_ms
        return await lane.connection.request_bytes(ApiKey.FETCH, VERSION, body, timeout_ms=timeout_ms, wait_ms=wait_ms)

    async def _on_lost(self, lane: _Lane, error: OttlaError) -> None:
        """Without an answer: whoever leads now is asked, after a moment."""
        lane.session.on_lost()
        if lane.connection is not None:
            lane.connection.close()
        lane.connection = None
        log.info("fetching from broker %s: %s; trying again", lane.broker, error)
        if not isinstance(error, RetriableError):
            self._on_failure(error)
        self._metadata.refresh_soon()
        await self._cluster.clock.sleep(self._config.backoff.wait_ms(1, self._cluster.random) / 1000)
