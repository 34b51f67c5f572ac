"""Copies partitions from one leader: one connection, one fetch session, one request at a time for all of them.

A request has each partition's end offset; what a response means is decided in `follower_state.py`. A partition whose
leader is not ready is left out for a while. When partitions come or go while a request waits at the leader, another
request follows, and the leader then answers the first at once. A request without a session, such as the one that opens
it, is not followed by another, which would need the session's id; the one that opens it does not wait at the leader.

A broker that is about to stop keeps copying, and says in each request that it stops: leaders then do not add it to an
ISR.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from ottla.env.ports import Clock, Network
from ottla.metadata.image import BrokerImage, ClusterImage
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import CorruptError, DeniedError, OttlaError
from ottla.model.ids import BrokerId, TopicPartition
from ottla.protocol.apis import ApiKey
from ottla.protocol.replica_fetch_frames import (
    VERSION,
    FetchPosition,
    Follower,
    Limits,
    Part,
    TopicIdPartition,
    fetch_body,
    read_answer,
)
from ottla.replication.follower_state import NextFetch
from ottla.replication.partition import Partition
from ottla.replication.partition_table import PartitionTable
from ottla.replication.replica_copy import take_answer
from ottla.replication.throttles import ReplicationThrottles
from ottla.security.authorizer import BrokerDeniedError
from ottla.storage.segments.scanner import DamagedSegmentError
from ottla.transport.addresses import Address
from ottla.transport.client_connection import CannotConnectError, Connection
from ottla.transport.client_security import ClientSecurity

_LOGGER: Final = logging.getLogger(__name__)

_CONNECT_TIMEOUT_MS: Final = 5_000
_ANSWER_TIMEOUT_MS: Final = 10_000
"""Beyond the wait that the leader is allowed: after that, it counts as unreachable."""
_NEW_SESSION: Final = (0, 0)
_THROTTLED_SECONDS_MAX: Final = 1.0
"""When a throttled partition is looked at again: its throttle may have changed."""
_HEARD_OF_FETCHES: Final = 3
_HEARD_OF_SECONDS_MIN: Final = 0.5
"""A replica that is alive has fetched, or responded, within this many waits of a fetch, and this time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaFetchConfig:
    """The broker's `replica.fetch.*` configs."""

    wait_max_ms: int
    min_bytes: int
    max_bytes: int
    """Of one partition."""
    response_max_bytes: int
    backoff_ms: int
    listener: str = "PLAINTEXT"
    """The leader's listener to connect to."""


class _Asked(NamedTuple):
    """A request that was sent."""

    answer: "asyncio.Future[memoryview]"
    positions: dict[TopicIdPartition, FetchPosition]
    """Each partition of the session, as it was when this was sent."""
    said_leaving: bool
    """Whether it tells the leader that this broker is about to stop."""


class ReplicaFetcher:
    """Copies from one leader. `set_partitions`, and `run` until cancelled.

    `identity` is how this broker names itself in each request; `on_failure` is called when a log cannot be written;
    `security` says how to encrypt the connection and log in.
    """

    def __init__(
        self,
        leader: BrokerImage,
        network: Network,
        clock: Clock,
        config: ReplicaFetchConfig,
        image: Callable[[], ClusterImage],
        throttles: ReplicationThrottles,
        *,
        identity: Callable[[], Follower],
        on_failure: Callable[[OttlaError], None],
        security: Callable[[], ClientSecurity | None] = lambda: None,
    ) -> None:
        self.leader = leader
        self._security = security
        self._refusal = ""
        """Why the leader refused this broker last; logged once, as it stays until an operator changes something."""
        self._network = network
        self._clock = clock
        self._config = config
        self._image = image
        self._throttles = throttles
        self._identity = identity
        self._on_failure = on_failure
        self._partitions: dict[TopicIdPartition, Partition] = {}
        self._waits_until: dict[TopicIdPartition, float] = {}
        """Partitions that are not fetched until then; infinity means until the next call of `set_partitions`."""
        self._changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when partitions came or went since the last request. A future, not an event: a wait needs no task."""
        self._session = _NEW_SESSION
        self._has_room = True
        """Whether the leader has room for a session, as far as we know."""
        self._told: dict[TopicIdPartition, FetchPosition] = {}
        """The partitions of the session, as the leader knows them."""
        self.answered_at = float("-inf")
        """When the leader last responded."""
        self.knows_leaving = False
        """Whether the leader knows that this broker is about to stop."""

    def set_partitions(self, partitions: Iterable[Partition]) -> None:
        """Copies these from now on; those that waited for a change of the cluster are fetched again."""
        self._partitions = {(each.topic_id.bytes, each.index): each for each in partitions}
        self._waits_until.clear()
        if not self._changed.done():
            self._changed.set_result(None)

    async def run(self) -> None:
        """Copies until cancelled; a broken connection is opened again after a pause."""
        while True:
            try:
                await self._copy()
            except OttlaError as error:
                is_new_refusal = isinstance(error, DeniedError) and str(error) != self._refusal
                self._refusal = str(error) if isinstance(error, DeniedError) else self._refusal
                _LOGGER.log(
                    logging.ERROR if is_new_refusal else logging.INFO,
                    "replica fetcher: connection to leader %d failed, retrying: %s",
                    self.leader.id,
                    error,
                )
            await self._clock.sleep(self._pause_seconds)

    @property
    def _pause_seconds(self) -> float:
        return self._config.backoff_ms / 1000

    async def _copy(self) -> None:
        endpoint = self.leader.endpoint(self._config.listener)
        if endpoint is None:
            raise CannotConnectError(f"broker {self.leader.id} has no listener named {self._config.listener}")
        connection = await Connection.open(
            self._network,
            Address(endpoint.host, endpoint.port),
            client_id=f"broker-{self._identity().broker}-follower",
            timeout_ms=_CONNECT_TIMEOUT_MS,
            security=self._security(),
        )
        self._refusal = ""
        self._session = _NEW_SESSION
        asked: deque[_Asked] = deque()
        try:
            while True:
                if not asked:
                    asked.append(await self._ask(connection))
                if len(asked) > 1 or not self._has_session or await self._is_answered(asked[0]):
                    # With two requests under way a change does not send a third: it is part of the next request.
                    first = asked.popleft()
                    await self._take(await first.answer, first)
                else:
                    asked.append(await self._ask(connection))
        finally:
            connection.close()

    @property
    def _has_session(self) -> bool:
        return self._session[0] != 0

    async def _is_answered(self, asked: _Asked) -> bool:
        """Waits for the response, or for partitions that came or went."""
        if not asked.answer.done():
            await asyncio.wait((asked.answer, self._changed), return_when=asyncio.FIRST_COMPLETED)
        return asked.answer.done()

    async def _ask(self, connection: Connection) -> _Asked:
        while not (wanted := self._wanted()):
            await self._wait_changed()
        self._note_changes()
        is_new = self._session == _NEW_SESSION
        if is_new:
            self._told = {}
        changed = [(place, position) for place, position in wanted.items() if self._told.get(place) != position]
        forgotten = [place for place in self._told if place not in wanted]
        self._told = wanted
        config, identity = self._config, self._identity()
        # A broker that stops waits until every leader knows it.
        is_urgent = (is_new and self._has_room) or (identity.is_leaving and not self.knows_leaving)
        body = fetch_body(
            identity,
            Limits(0 if is_urgent else config.wait_max_ms, config.min_bytes, config.response_max_bytes),
            self._session,
            sorted(changed),
            forgotten,
        )
        session_id, epoch = self._session
        self._session = (session_id, epoch + 1)
        answer = connection.request_bytes(
            ApiKey.FETCH, VERSION, [body], timeout_ms=config.wait_max_ms + _ANSWER_TIMEOUT_MS
        )
        return _Asked(answer, wanted, identity.is_leaving)

    def _wanted(self) -> dict[TopicIdPartition, FetchPosition]:
        now = self._clock.monotonic()
        for place in [place for place, until in self._waits_until.items() if until <= now]:
            del self._waits_until[place]
        bytes_max = self._config.max_bytes
        wanted: dict[TopicIdPartition, FetchPosition] = {}
        for place, partition in self._partitions.items():
            # A log that is not sound will be copied again; no leader must count on what it has now.
            if place in self._waits_until or partition.follower is None or not partition.log.health.is_sound:
                continue
            seconds = self._throttled_seconds(partition, now)
            if seconds:
                self._waits_until[place] = now + seconds
                continue
            log = partition.log
            wanted[place] = FetchPosition(
                partition.leader_epoch, log.end_offset, log.epochs.latest, log.start_offset, bytes_max
            )
        return wanted

    async def _wait_changed(self) -> None:
        """Waits until partitions came or went, or one that was put off is due."""
        self._note_changes()
        due = min(self._waits_until.values(), default=float("inf"))
        seconds = due - self._clock.monotonic()
        if seconds > 0:
            await asyncio.wait((self._changed,), timeout=None if seconds == float("inf") else seconds)

    def _note_changes(self) -> None:
        """Only later changes count from now on."""
        if self._changed.done():
            self._changed = asyncio.get_running_loop().create_future()

    async def _take(self, frame: memoryview, asked: _Asked) -> None:
        self.answered_at = self._clock.monotonic()
        answer = read_answer(frame)
        if answer.error:
            _LOGGER.info(
                "replica fetcher: leader %d responded with %s, opening a new fetch session",
                self.leader.id, answer.error.name,
            )  # fmt: skip
            self._session = _NEW_SESSION
            if answer.error not in (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH):
                await self._clock.sleep(self._pause_seconds)
            return
        self.knows_leaving = asked.said_leaving
        # A leader without room for another session responds with 0; each request then has all partitions.
        epoch = self._session[1]
        self._has_room = answer.session_id != 0
        self._session = _NEW_SESSION if answer.session_id == 0 else (answer.session_id, max(epoch, 1))
        unsafe: list[Partition] = []
        for part in answer.parts:
            partition, position = self._partitions.get(part.place), asked.positions.get(part.place)
            if partition is None or position is None or position.offset != partition.log.end_offset:
                # Removed meanwhile, or fetched twice and already answered.
                continue
            if position.leader_epoch != partition.leader_epoch and part.answer.is_refusal:
                # It refused an older leader epoch. The leader refuses the present one again if it must.
                continue
            self._take_part(partition, part)
            if partition.log.flush_is_due:
                unsafe.append(partition)
        for partition in unsafe:
            # The fetch offset tells the leader what this follower has; if the topic flushes, that is what the disk has.
            try:
                await partition.log.wait_flushed(partition.log.end_offset)
            except OttlaError as error:
                self._on_failure(error)

    def _take_part(self, partition: Partition, part: Part) -> None:
        if part.answer.error is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            self._on_failure(BrokerDeniedError(self.leader.id))
        try:
            next_fetch = take_answer(partition, part.answer, part.records, self._clock)
        except DamagedSegmentError as error:
            # The damage is in its own log, which will be repaired.
            self._on_failure(error)
            next_fetch = NextFetch.AFTER_BACKOFF
        except CorruptError as error:
            _LOGGER.error(
                "replica fetcher: leader %d sent a corrupt batch of partition %s, fetching again: %s",
                self.leader.id, partition.log.partition, error,
            )  # fmt: skip
            next_fetch = NextFetch.AFTER_BACKOFF
        except OttlaError as error:
            self._on_failure(error)
            next_fetch = NextFetch.AFTER_BACKOFF
        throttle = self._throttles.of_follower(partition) if part.records else None
        if throttle is not None:
            throttle.record(len(part.records), self._clock.monotonic())
        if next_fetch is NextFetch.AFTER_BACKOFF:
            self._waits_until[part.place] = self._clock.monotonic() + self._pause_seconds
        elif next_fetch is NextFetch.AFTER_METADATA_CHANGE:
            self._waits_until[part.place] = float("inf")

    def _throttled_seconds(self, partition: Partition, now: float) -> float:
        """How long not to fetch a partition because its throttle is exhausted; 0 to fetch it."""
        throttle = self._throttles.of_follower(partition)
        if throttle is None:
            return 0.0
        topic = self._image().topics.get(partition.topic)
        is_in_sync = topic is not None and self._identity().broker in topic.partitions[partition.index].isr
        return 0.0 if is_in_sync else min(throttle.seconds_until_open(now), _THROTTLED_SECONDS_MAX)


class ReplicaFetchers:
    """All fetchers of this broker, one for each leader that it follows."""

    def __init__(
        self,
        partitions: PartitionTable,
        image: Callable[[], ClusterImage],
        clock: Clock,
        *,
        fetcher_for: Callable[[BrokerImage], ReplicaFetcher],
        identity: Callable[[], Follower],
        wait_max_ms: int,
    ) -> None:
        self._partitions = partitions
        self._image = image
        self._clock = clock
        self._fetcher_for = fetcher_for
        self._identity = identity
        self._heard_of_seconds = max(_HEARD_OF_FETCHES * wait_max_ms / 1000, _HEARD_OF_SECONDS_MIN)
        self._fetchers: dict[BrokerId, tuple[ReplicaFetcher, asyncio.Task[None]]] = {}

    def refresh(self) -> None:
        """Follows the leaders of the partitions, at the addresses of the image. To be called when they change."""
        # A broker that leads by a record of its former registration follows itself: it has no leader to copy from.
        me = self._identity().broker
        brokers = {each: at for each, at in self._image().brokers.items() if each != me}
        if not brokers and not self._fetchers:
            return  # A broker alone need not look at its partitions for each image.
        by_leader: dict[BrokerId, list[Partition]] = {}
        for partition in self._partitions.held.values():
            if partition.follower is not None and partition.follower.leader in brokers:
                by_leader.setdefault(partition.follower.leader, []).append(partition)
        for leader, (fetcher, task) in list(self._fetchers.items()):
            if leader not in by_leader or fetcher.leader != brokers[leader]:
                task.cancel()
                del self._fetchers[leader]
        for leader, partitions in by_leader.items():
            if leader not in self._fetchers:
                fetcher = self._fetcher_for(brokers[leader])
                self._fetchers[leader] = fetcher, asyncio.get_running_loop().create_task(fetcher.run())
            self._fetchers[leader][0].set_partitions(partitions)

    def answered_at(self, leader: BrokerId) -> float:
        """When a leader last responded, by the monotonic clock; never if nothing is copied from it.

        Also never if this broker is about to stop and the leader does not know it: it would take it back into ISRs.
        """
        found = self._fetchers.get(leader)
        if found is None or (self._identity().is_leaving and not found[0].knows_leaving):
            return float("-inf")
        return found[0].answered_at

    def has_heard_of(self, where: TopicPartition, other: BrokerId) -> bool:
        """Whether another replica of a partition is alive: it fetched from us, or responded to us, a moment ago."""
        partition = self._partitions.held.get(where)
        if partition is None:
            return False
        heard_at = float("-inf")
        if partition.leader is not None:
            follower = partition.leader.followers.get(other)
            heard_at = follower.fetched_at if follower is not None else heard_at
        elif partition.follower is not None and partition.follower.leader == other:
            heard_at = self.answered_at(other)
        return self._clock.monotonic() - heard_at <= self._heard_of_seconds

    async def close(self) -> None:
        """Stops all fetchers."""
        tasks = [task for _, task in self._fetchers.values()]
        self._fetchers.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
