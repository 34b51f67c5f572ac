"""Sends the requests of all share sessions: for each broker one after the other, on a connection of its own.

A session belongs to its connection: a broker that loses the connection releases the records of the session. Fetches are
sent only while a poll wants records, because locks run from the moment a broker acquires records. The decisions are in
`share_session_state.py`.
"""

import asyncio
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from ottla.client.errors import ConnectionLostError, UnsupportedByBrokerError
from ottla.client.network.backoff import Backoff
from ottla.client.network.cluster import Cluster
from ottla.client.share.share_session_state import (
    AcknowledgeRequest,
    FetchRequest,
    Outcome,
    Request,
    ShareSessionState,
    batches_by_partition,
)
from ottla.client.stop_task import stop_task
from ottla.model.errors import OttlaError
from ottla.protocol.apis import ApiKey
from ottla.protocol.share_frames import (
    VERSION,
    ShareAnswer,
    ShareLimits,
    read_share_acknowledge,
    read_share_fetch,
    share_acknowledge_body,
    share_fetch_body,
)
from ottla.transport.client_connection import Connection

log: Final = logging.getLogger(__name__)

_FOREVER: Final = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareRules:
    """How brokers are asked for records."""

    group_id: str
    member_id: str
    wait_ms: int
    bytes_min: int
    bytes_max: int
    batch_records: int
    acquire_mode: int
    is_record_limit: bool
    """Whether only one broker at a time is asked, so that no more records are acquired than are wanted."""
    request_timeout_ms: int
    """How long a response may take beyond `wait_ms`."""
    backoff: Backoff


@dataclass(slots=True, eq=False)
class _Lane:
    session: ShareSessionState
    connection: Connection | None = None
    exchange: "asyncio.Task[None] | None" = None
    tries: int = field(default=0)
    """Requests that failed since the last response."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A request that was answered, or was not."""

    broker: int
    session: int
    """The number of the session in which records were acquired."""
    outcome: Outcome
    lock_timeout_ms: int
    """0 if the broker did not say."""


class ShareFetcher:
    """Runs until `close`. `on_exchange` is called after every request, `on_failure` when a broker did not answer, and
    `on_end` with every task that ended."""

    def __init__(
        self,
        cluster: Cluster,
        rules: ShareRules,
        *,
        on_exchange: Callable[[Exchange], None],
        on_failure: Callable[[OttlaError], None],
        on_end: Callable[["asyncio.Task[None]"], None],
    ) -> None:
        self._cluster = cluster
        self._rules = rules
        self._on_exchange = on_exchange
        self._on_failure = on_failure
        self._on_end = on_end
        self._lanes: dict[int, _Lane] = {}
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._wanted = 0
        self._until = 0.0
        self._is_closing = False
        self.requests = 0

    def session(self, broker: int) -> ShareSessionState:
        """The session with a broker."""
        lane = self._lanes.get(broker)
        if lane is None:
            lane = self._lanes[broker] = _Lane(ShareSessionState(broker=broker))
        return lane.session

    def sessions(self) -> list[ShareSessionState]:
        """All sessions."""
        return [lane.session for lane in self._lanes.values()]

    def is_held(self, broker: int, session: int) -> bool:
        """Whether records that were acquired in a session are still held, as far as the consumer knows."""
        lane = self._lanes.get(broker)
        return lane is not None and lane.session.number == session

    def want(self, count: int, until: float) -> None:
        """A poll wants this many records, 0 for none any more, and waits for them until a time."""
        self._wanted, self._until = count, until
        self.launch()

    def launch(self) -> None:
        """Sends what can be sent now."""
        if self._is_closing:
            return
        now = self._cluster.clock.monotonic()
        lanes = list(self._lanes.values())
        for lane in lanes:
            if lane.exchange is not None:
                continue
            wants = self._wanted > 0 and not (self._rules.is_record_limit and self._is_fetching(lanes))
            request = lane.session.next_request(now, wants_records=wants)
            if request is None:
                continue
            if isinstance(request, FetchRequest):
                # The next time another broker is asked first.
                self._lanes[lane.session.broker] = self._lanes.pop(lane.session.broker)
            lane.exchange = self._loop.create_task(self._exchange(lane, request))
            lane.exchange.add_done_callback(self._on_end)
        self._set_timer(now)

    @staticmethod
    def _is_fetching(lanes: list[_Lane]) -> bool:
        return any(isinstance(lane.session.in_flight, FetchRequest) for lane in lanes)

    def _set_timer(self, now: float) -> None:
        """Wakes up when a request that waits after an error may be sent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting = [each for lane in self._lanes.values() if (each := lane.session.next_deadline(now)) is not None]
        if waiting:
            self._timer = self._loop.call_later(min(waiting) - now, self.launch)

    async def _exchange(self, lane: _Lane, request: Request) -> None:
        session = lane.session
        number = session.number
        clock = self._cluster.clock
        try:
            answer = await self._ask(lane, request)
        except BaseException as error:
            known = error if isinstance(error, OttlaError) else ConnectionLostError("the request was abandoned")
            lane.tries += 1
            self._close_connection(lane)
            lane.exchange = None
            retry_at = self._retry_at(lane)
            if isinstance(request, FetchRequest) and session.is_open:
                # A broker notices a lost connection when it answers. Until then the new session would only replace the
                # old one, and the records of the old one would stay locked.
                retry_at += self._rules.wait_ms / 1000
            outcome = session.on_lost(known, retry_at)
            self._on_exchange(Exchange(broker=session.broker, session=number, outcome=outcome, lock_timeout_ms=0))
            if not isinstance(error, OttlaError):
                raise
            log.info("request to broker %s failed, opening a new share session: %s", session.broker, error)
            self._on_failure(error)
        else:
            outcome = session.on_answer(answer, clock.monotonic(), self._retry_at(lane))
            lane.tries = lane.tries + 1 if outcome.error is not None else 0
            lane.exchange = None
            if outcome.must_disconnect:
                log.info("broker %s no longer has the share session, opening a new one", session.broker)
                self._close_connection(lane)
            self._on_exchange(
                Exchange(broker=session.broker, session=number, outcome=outcome, lock_timeout_ms=answer.lock_timeout_ms)
            )
        self.launch()

    def _retry_at(self, lane: _Lane) -> float:
        wait = self._rules.backoff.wait_ms(lane.tries + 1, self._cluster.random)
        return self._cluster.clock.monotonic() + wait / 1000

    async def _ask(self, lane: _Lane, request: Request) -> ShareAnswer:
        connection = lane.connection
        if connection is None or connection.is_closed:
            if lane.session.is_open:
                raise ConnectionLostError(f"the connection to broker {lane.session.broker} was lost")
            connection = lane.connection = await self._cluster.own_connection(lane.session.broker)
        self.requests += 1
        if isinstance(request, FetchRequest):
            return await self._fetch(connection, request)
        return await self._acknowledge(connection, request)

    async def _fetch(self, connection: Connection, request: FetchRequest) -> ShareAnswer:
        rules = self._rules
        version = connection.version_for(ApiKey.SHARE_FETCH)
        if rules.is_record_limit and version < VERSION:
            raise UnsupportedByBrokerError(
                f'{connection.address} does not support share_acquire_mode="record_limit"; use "batch_optimized"'
            )
        wait_ms = self._wait_ms()
        count = max(self._wanted, 1)
        body = share_fetch_body(
            version,
            group_id=rules.group_id,
            member_id=rules.member_id,
            epoch=request.epoch,
            limits=ShareLimits(wait_ms, rules.bytes_min, rules.bytes_max, count, min(count, rules.batch_records)),
            acquire_mode=rules.acquire_mode,
            partitions=request.added,
            acknowledgements=batches_by_partition(request),
            forgotten=request.forgotten,
        )
        frame = await connection.request_bytes(
            ApiKey.SHARE_FETCH, version, body, timeout_ms=wait_ms + rules.request_timeout_ms, wait_ms=wait_ms
        )
        return read_share_fetch(frame)

    def _wait_ms(self) -> int:
        """Not longer than the poll: records that come later would be locked, and no poll returns them."""
        left = (self._until - self._cluster.clock.monotonic()) * 1000
        return self._rules.wait_ms if left <= 0 or left == _FOREVER else min(self._rules.wait_ms, math.ceil(left))

    async def _acknowledge(self, connection: Connection, request: AcknowledgeRequest) -> ShareAnswer:
        rules = self._rules
        version = connection.version_for(ApiKey.SHARE_ACKNOWLEDGE)
        if request.is_renewal and version < VERSION:
            raise UnsupportedByBrokerError(f"{connection.address} does not support AcknowledgeType.RENEW")
        body = share_acknowledge_body(
            version,
            group_id=rules.group_id,
            member_id=rules.member_id,
            epoch=request.epoch,
            is_renewal=request.is_renewal,
            acknowledgements=batches_by_partition(request),
        )
        frame = await connection.request_bytes(
            ApiKey.SHARE_ACKNOWLEDGE, version, body, timeout_ms=rules.request_timeout_ms
        )
        return read_share_acknowledge(frame, version)

    # Closing

    async def close_sessions(self, timeout_ms: float) -> None:
        """Sends the last acknowledgements and closes all sessions, within the time given; a failure is only logged.

        Brokers then release what was not acknowledged. Afterwards new sessions can be opened.
        """
        self._is_closing = True
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await asyncio.gather(*(self._close_session(lane) for lane in self._lanes.values()))
        except TimeoutError:
            log.warning("share sessions were not closed in time; brokers release the records when the connections end")
        finally:
            for lane in self._lanes.values():
                await stop_task(lane.exchange)
                self._close_connection(lane)
            self._lanes.clear()
            self._is_closing = False
            self._set_timer(0.0)

    async def _close_session(self, lane: _Lane) -> None:
        if lane.exchange is not None:
            # A fetch that waits at the broker; an acknowledgement cannot overtake it.
            await asyncio.wait([lane.exchange])
        request = lane.session.close()
        if request is not None:
            lane.exchange = self._loop.create_task(self._exchange(lane, request))
            lane.exchange.add_done_callback(self._on_end)
            await asyncio.wait([lane.exchange])

    @staticmethod
    def _close_connection(lane: _Lane) -> None:
        if lane.connection is not None:
            lane.connection.close()
        lane.connection = None
