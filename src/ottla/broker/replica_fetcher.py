"""Copies partitions from one leader: one connection, one session, one question at a time about all of them.

What is asked is each partition's own end; what an answer means is `follower_state.py`'s. A partition whose leader is
not ready is left out for a while. A question that waits at the leader is followed by another one when partitions have
come or gone, and the leader then answers the first at once. The question that opens a session does not wait: until it
is answered, there is no session to ask a second one in.

A broker that is about to stop goes on copying, and says so with each question: leaders do not take it into an ISR then.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.metadata.image import BrokerImage
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import CorruptError, OttlaError
from ottla.model.ids import BrokerId
from ottla.protocol.apis import ApiKey
from ottla.protocol.replica_fetch_frames import VERSION, Asker, Limits, Part, Place, Question, fetch_body, read_answer
from ottla.replication.follower_state import Patience
from ottla.replication.partition import Partition
from ottla.replication.replica_copy import take_answer
from ottla.storage.scanner import DamagedSegmentError
from ottla.transport.addresses import Address
from ottla.transport.client_connection import Connection

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

_LOGGER: Final = logging.getLogger(__name__)

_CONNECT_TIMEOUT_MS: Final = 5_000
_ANSWER_TIMEOUT_MS: Final = 10_000
"""Beyond what the leader was told to wait: a leader that does not answer is taken for lost."""
_NEW_SESSION: Final = (0, 0)
_THROTTLED_SECONDS_MAX: Final = 1.0
"""After so long a throttled partition is looked at again: its throttle may have changed."""


class _Asked(NamedTuple):
    answer: "asyncio.Future[memoryview]"
    offsets: dict[Place, int]
    """Where each partition of the session stood when this was asked."""
    said_leaving: bool
    """Whether the leader learns from it that this broker is about to stop."""


class ReplicaFetcher:
    """See the module's docstring. `set_partitions`, and `run` until cancelled."""

    def __init__(self, broker: "Broker", leader: BrokerImage) -> None:
        self.leader = leader
        self._broker = broker
        self._partitions: dict[Place, Partition] = {}
        self._waits_until: dict[Place, float] = {}
        """Partitions that are not asked for until then; for ever means until the cluster says something new."""
        self._changed = asyncio.Event()
        self._session = _NEW_SESSION
        self._has_room = True
        """Whether the leader has a session for us, as far as we know."""
        self._told: dict[Place, Question] = {}
        """What the leader knows that this session wants."""
        self.answered_at = float("-inf")
        """When the leader last answered anything."""
        self.knows_leaving = False
        """Whether the leader knows that this broker is about to stop."""

    def set_partitions(self, partitions: Iterable[Partition]) -> None:
        """From now on copies these; those that were put off for news are asked for again."""
        self._partitions = {(each.topic_id.bytes, each.index): each for each in partitions}
        self._waits_until.clear()
        self._changed.set()

    async def run(self) -> None:
        """Copies for ever; a connection that breaks is made again, with pauses."""
        while True:
            try:
                await self._copy()
            except OttlaError as error:
                _LOGGER.info("copying from broker %d is interrupted: %s", self.leader.id, error)
            await self._broker.clock.sleep(self._pause_seconds)

    @property
    def _pause_seconds(self) -> float:
        return self._broker.config.replica_fetch_backoff_ms / 1000

    async def _copy(self) -> None:
        connection = await Connection.open(
            self._broker.world.network,
            Address(self.leader.host, self.leader.port),
            client_id=f"broker-{self._broker.id}-follower",
            timeout_ms=_CONNECT_TIMEOUT_MS,
        )
        self._session = _NEW_SESSION
        asked: deque[_Asked] = deque()
        try:
            while True:
                if not asked:
                    asked.append(await self._ask(connection))
                if len(asked) > 1 or await self._is_answered(asked[0]):
                    # With two under way a change is no reason for a third: it is told with the next question.
                    first = asked.popleft()
                    await self._take(await first.answer, first)
                else:
                    asked.append(await self._ask(connection))
        finally:
            connection.close()

    async def _is_answered(self, asked: _Asked) -> bool:
        """Waits for the answer, or for partitions that came or went."""
        if asked.answer.done():
            return True
        change = asyncio.ensure_future(self._changed.wait())
        try:
            await asyncio.wait((asked.answer, change), return_when=asyncio.FIRST_COMPLETED)
        finally:
            change.cancel()
        return asked.answer.done()

    async def _ask(self, connection: Connection) -> _Asked:
        while not (wanted := self._wanted()):
            await self._wait_changed()
        self._changed.clear()
        is_new = self._session == _NEW_SESSION
        if is_new:
            self._told = {}
        changed = [(place, question) for place, question in wanted.items() if self._told.get(place) != question]
        forgotten = [place for place in self._told if place not in wanted]
        self._told = wanted
        config, is_leaving = self._broker.config, self._broker.is_leaving
        # Who leaves waits for every leader to know it.
        is_urgent = (is_new and self._has_room) or (is_leaving and not self.knows_leaving)
        body = fetch_body(
            Asker(self._broker.id, self._broker.broker_epoch, is_leaving),
            Limits(
                0 if is_urgent else config.replica_fetch_wait_max_ms,
                config.replica_fetch_min_bytes,
                config.replica_fetch_response_max_bytes,
            ),
            self._session,
            sorted(changed),
            forgotten,
        )
        session_id, epoch = self._session
        self._session = (session_id, epoch + 1)
        answer = connection.request_bytes(
            ApiKey.FETCH, VERSION, [body], timeout_ms=config.replica_fetch_wait_max_ms + _ANSWER_TIMEOUT_MS
        )
        return _Asked(answer, {place: question.offset for place, question in wanted.items()}, is_leaving)

    def _wanted(self) -> dict[Place, Question]:
        now = self._broker.clock.monotonic()
        for place in [place for place, until in self._waits_until.items() if until <= now]:
            del self._waits_until[place]
        bytes_max = self._broker.config.replica_fetch_max_bytes
        wanted: dict[Place, Question] = {}
        for place, partition in self._partitions.items():
            # What is not sound will be copied anew, and no leader must count on what is there now.
            if place in self._waits_until or partition.follower is None or not partition.log.health.is_sound:
                continue
            seconds = self._throttled_seconds(partition, now)
            if seconds:
                self._waits_until[place] = now + seconds
                continue
            log = partition.log
            wanted[place] = Question(
                partition.leader_epoch, log.end_offset, log.epochs.latest, log.start_offset, bytes_max
            )
        return wanted

    async def _wait_changed(self) -> None:
        """Until partitions came or went, or one that was put off is due."""
        self._changed.clear()
        due = min(self._waits_until.values(), default=float("inf"))
        seconds = due - self._broker.clock.monotonic()
        if seconds == float("inf"):
            await self._changed.wait()
        elif seconds > 0:
            try:
                async with asyncio.timeout(seconds):
                    await self._changed.wait()
            except TimeoutError:
                return

    async def _take(self, frame: memoryview, asked: _Asked) -> None:
        self.answered_at = self._broker.clock.monotonic()
        told = read_answer(frame)
        if told.error:
            _LOGGER.info("broker %d answers a follower's fetch with %s", self.leader.id, told.error.name)
            self._session = _NEW_SESSION
            if told.error not in (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH):
                await self._broker.clock.sleep(self._pause_seconds)
            return
        self.knows_leaving = asked.said_leaving
        # A leader without room for another session answers 0, and is then told everything each time.
        epoch = self._session[1]
        self._has_room = told.session_id != 0
        self._session = _NEW_SESSION if told.session_id == 0 else (told.session_id, max(epoch, 1))
        unsafe: list[Partition] = []
        for part in told.parts:
            partition = self._partitions.get(part.place)
            if partition is None or asked.offsets.get(part.place) != partition.log.end_offset:
                # Gone meanwhile, or asked twice and answered before.
                continue
            self._take_part(partition, part)
            if partition.log.flush_is_due:
                unsafe.append(partition)
        for partition in unsafe:
            # What a follower asks for says what it has; where the topic flushes, it has what the disk has.
            try:
                await partition.log.wait_flushed(partition.log.end_offset)
            except OttlaError as error:
                self._broker.report_failure(error)

    def _take_part(self, partition: Partition, part: Part) -> None:
        try:
            patience = take_answer(partition, part.answer, part.records, self._broker.clock)
        except DamagedSegmentError as error:
            # In its own log, which is mended.
            self._broker.report_failure(error)
            patience = Patience.A_WHILE
        except CorruptError as error:
            _LOGGER.error("what broker %d sent is damaged; it is asked again: %s", self.leader.id, error)
            patience = Patience.A_WHILE
        except OttlaError as error:
            self._broker.report_failure(error)
            patience = Patience.A_WHILE
        throttle = self._broker.throttles.of_follower(partition) if part.records else None
        if throttle is not None:
            throttle.record(len(part.records), self._broker.clock.monotonic())
        if patience is Patience.A_WHILE:
            self._waits_until[part.place] = self._broker.clock.monotonic() + self._pause_seconds
        elif patience is Patience.NEWS:
            self._waits_until[part.place] = float("inf")

    def _throttled_seconds(self, partition: Partition, now: float) -> float:
        """How long to leave a partition alone, since so much has come, of this one or of others; 0 to ask for it."""
        throttle = self._broker.throttles.of_follower(partition)
        if throttle is None:
            return 0.0
        topic = self._broker.image.topics.get(partition.topic)
        is_in_sync = topic is not None and self._broker.id in topic.partitions[partition.index].isr
        return 0.0 if is_in_sync else min(throttle.seconds_until_open(now), _THROTTLED_SECONDS_MAX)


class ReplicaFetchers:
    """All of a broker's fetchers, one for each leader that it follows."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._fetchers: dict[BrokerId, tuple[ReplicaFetcher, asyncio.Task[None]]] = {}

    def refresh(self) -> None:
        """Follows whom the partitions say, at the addresses that the image says."""
        # Not this one: until it is told anew that it leads, there is nobody to copy from.
        brokers = {each: at for each, at in self._broker.image.brokers.items() if each != self._broker.id}
        by_leader: dict[BrokerId, list[Partition]] = {}
        for partition in self._broker.partitions.held.values():
            if partition.follower is not None and partition.follower.leader in brokers:
                by_leader.setdefault(partition.follower.leader, []).append(partition)
        for leader, (fetcher, task) in list(self._fetchers.items()):
            if leader not in by_leader or fetcher.leader != brokers[leader]:
                task.cancel()
                del self._fetchers[leader]
        for leader, partitions in by_leader.items():
            if leader not in self._fetchers:
                fetcher = ReplicaFetcher(self._broker, brokers[leader])
                self._fetchers[leader] = fetcher, asyncio.get_running_loop().create_task(fetcher.run())
            self._fetchers[leader][0].set_partitions(partitions)

    def answered_at(self, leader: BrokerId) -> float:
        """When a leader last answered, by the monotonic clock; long ago if nothing is copied from it.

        Also long ago if this broker is about to stop, and the leader does not know: it would take it back.
        """
        found = self._fetchers.get(leader)
        if found is None or (self._broker.is_leaving and not found[0].knows_leaving):
            return float("-inf")
        return found[0].answered_at

    async def close(self) -> None:
        """Copies nothing any more."""
        tasks = [task for _, task in self._fetchers.values()]
        self._fetchers.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
