"""What both share consumers have in common: membership, sessions, fetched records and acknowledgements, on one loop.

`async_share_consumer.py` and `blocking_share_consumer.py` add what a program sees. All methods are called on the loop,
except `take`, `take_chunks`, `put_back` and `acquired`'s, which the program's thread may use: a lock guards them.
"""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Collection, Coroutine, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from ottla.client.consumer.errors import ConsumerBrokenError, UnreadableRecordError, WakeupError
from ottla.client.errors import (
    RETRIABLE_CODES,
    CannotConnectError,
    DeadlineError,
    answer_error,
    error_code_of,
)
from ottla.client.fetch.metadata_watch import MetadataWatch
from ottla.client.group.group_member import GroupMember
from ottla.client.group.membership_requests import MemberIdentity
from ottla.client.group.share_membership_state import ShareMembershipState
from ottla.client.network.cluster import Cluster
from ottla.client.network.cluster_view import ClusterView
from ottla.client.serializers import NotPreparedError
from ottla.client.share.acquired_chunk import AcquiredChunk, AcquiredReader, sorted_ranges
from ottla.client.share.acquired_records_state import AcquiredRecordsState, Lock
from ottla.client.share.errors import NotAcquiredError, UnacknowledgedRecordsError
from ottla.client.share.options import ACQUIRE_MODES, ShareConsumerConfig
from ottla.client.share.share_fetcher import Exchange, ShareFetcher, ShareRules
from ottla.client.share.share_session_state import Acknowledgements, Settled
from ottla.client.share.values import AcknowledgeType, ShareRecord, ShareRecords
from ottla.model.base64_ids import id_text, new_id
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import MisuseError, OttlaError, RetriableError
from ottla.model.ids import TopicPartition
from ottla.protocol.share_frames import AcknowledgementBatch, ShareFetched, TopicIdPartition
from ottla.records.batch import scan
from ottla.transport.addresses import parse_bootstrap

log: Final = logging.getLogger(__name__)

_LEAVE_TIMEOUT_MS: Final = 5_000
_FOREVER: Final = float("inf")

T = TypeVar("T")
Results = dict[TopicPartition, OttlaError | None]
Answered = tuple[dict[TopicPartition, frozenset[int]], OttlaError | None]


@dataclass(slots=True, eq=False)
class _Commit:
    """A commit that waits until its acknowledgements are answered."""

    done: "asyncio.Future[None]"
    waiting: dict[int, Acknowledgements] = field(default_factory=dict)
    """By identity."""
    results: Results = field(default_factory=dict)

    def on_settled(self, settled: Settled) -> None:
        """Notes the result of acknowledgements; ends the wait after the last."""
        self.note(settled)
        self.waiting.pop(id(settled.acknowledgements), None)
        if not self.waiting and not self.done.done():
            self.done.set_result(None)

    def note(self, settled: Settled) -> None:
        """An error stays, whatever comes of other records of the partition."""
        if settled.acknowledgements.types:
            name = settled.acknowledgements.name
            self.results[name] = self.results.get(name) or settled.error


class ShareConsumerCore:
    """One share consumer. Must be created in the running loop."""

    def __init__(self, config: ShareConsumerConfig, *, cluster: Cluster | None = None) -> None:
        self.config = config
        bootstrap = config.bootstrap_servers
        self.cluster = cluster or Cluster(
            parse_bootstrap(bootstrap if isinstance(bootstrap, str) else ",".join(bootstrap)),
            client_id=config.client_id,
            connect_timeout_ms=config.socket_connection_setup_timeout_ms,
            request_timeout_ms=config.request_timeout_ms,
            backoff=config.backoff,
            security=config.security,
        )
        self.loop = asyncio.get_running_loop()
        self.acquired = AcquiredRecordsState()
        self.lock = threading.Lock()
        self.keeps_answers = False
        """Whether answered acknowledgements are kept for a callback."""
        self.answered: deque[Answered] = deque()
        self.lock_timeout_ms: int | None = None
        self._queue: deque[AcquiredReader] = deque()
        self._names: dict[TopicIdPartition, TopicPartition] = {}
        self._commits: dict[_Commit, None] = {}
        self._background: dict[asyncio.Task[Any], None] = {}
        self._ready = asyncio.Event()
        """Set when something happened that a poll may be waiting for."""
        self._error: OttlaError | None = None
        self._broken: ConsumerBrokenError | None = None
        self._is_woken = False
        self._is_started = False
        self._records_taken = 0
        self._acknowledged = 0
        self._failed = 0
        self._make_parts()

    def _make_parts(self) -> None:
        config = self.config
        # The client chooses the member id, in the form of Kafka's own ids.
        member_id = id_text(new_id(self.cluster.random.randbytes))
        self.state = ShareMembershipState(
            group_id=config.group_id, member_id=member_id, poll_interval=config.max_poll_interval_ms / 1000
        )
        self.member = GroupMember(
            self.cluster,
            self.state,
            MemberIdentity(
                group_id=config.group_id,
                instance_id=None,
                rack_id=config.client_rack or None,
                session_timeout_ms=config.request_timeout_ms,
                rebalance_timeout_ms=config.max_poll_interval_ms,
                request_timeout_ms=config.request_timeout_ms,
            ),
            config.backoff,
            on_change=self._on_change,
            on_error=self._on_network_error,
        )
        self.metadata = MetadataWatch(
            self.cluster,
            config.backoff,
            max_age_ms=config.metadata_max_age_ms,
            may_create=lambda: False,
            topics=self.state.watched_topics,
            on_view=self._on_view,
            on_error=self._on_network_error,
        )
        self.fetcher = ShareFetcher(
            self.cluster,
            ShareRules(
                group_id=config.group_id,
                member_id=member_id,
                wait_ms=config.fetch_max_wait_ms,
                bytes_min=config.fetch_min_bytes,
                bytes_max=config.fetch_max_bytes,
                batch_records=config.max_poll_records,
                acquire_mode=ACQUIRE_MODES[config.share_acquire_mode],
                is_record_limit=config.share_acquire_mode == "record_limit",
                request_timeout_ms=config.request_timeout_ms,
                backoff=config.backoff,
            ),
            on_exchange=self._on_exchange,
            on_failure=self._on_fetch_failure,
            on_end=self._on_end,
        )

    @property
    def is_implicit(self) -> bool:
        """Whether polls acknowledge by themselves."""
        return self.config.share_acknowledgement_mode == "implicit"

    # Starting and closing

    def start(self) -> None:
        """Starts the background tasks; does nothing if they run."""
        if not self._is_started:
            self._is_started = True
            for part in (self.metadata, self.member):
                part.start().add_done_callback(self._on_end)

    def _on_end(self, task: "asyncio.Task[None]") -> None:
        """A background task ended by an internal error: polls must raise it instead of waiting forever."""
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("internal error in a share consumer", exc_info=error)
            self._broken = ConsumerBrokenError(f"internal error in the share consumer: {error!r}; close it")
            self._ready.set()

    async def close(self, timeout_ms: float) -> None:
        """Sends what was acknowledged, releases the rest, leaves the group and stops everything."""
        await self._close_sessions(timeout_ms)
        await self.member.stop()
        await self.member.leave("the consumer was closed", min(_LEAVE_TIMEOUT_MS, self.config.request_timeout_ms))
        await self.metadata.stop()
        for task in list(self._background):
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        await self.cluster.close()

    async def _close_sessions(self, timeout_ms: float) -> None:
        self.send_acknowledgements()
        self.fetcher.want(0, 0.0)
        await self.fetcher.close_sessions(timeout_ms)
        with self.lock:
            self.acquired.forget()
        self._queue.clear()

    # Subscribing

    def subscribe(self, topics: Collection[str]) -> None:
        """Subscribes to topics; the next poll joins the group."""
        self.state.subscribe(topics)
        self.member.wake()
        self.metadata.refresh_soon()

    async def unsubscribe(self) -> None:
        """Leaves the group; records that were not acknowledged are released."""
        await self._close_sessions(self.config.default_api_timeout_ms)
        self.state.subscribe(None)
        await self.member.leave("the consumer unsubscribed", _LEAVE_TIMEOUT_MS)

    # Taking records, from the program's thread

    def take(self, count: int) -> ShareRecords:
        """Takes records that were fetched or whose locks were renewed, without waiting.

        Raises `NotPreparedError` if a deserializer must be prepared, and an error if the next record cannot be read.
        """
        with self.lock:
            found = self.acquired.take_renewed()
        if found:
            return found
        left = count
        while left > 0 and (reader := self._next_reader()) is not None:
            chunk = reader.chunk
            try:
                records = reader.read(left)
            except NotPreparedError:
                if found:
                    break
                raise
            except OttlaError as error:
                if not found:
                    raise
                self.raise_later(error)
                break
            finally:
                self._settle_own(chunk, reader.take_own())
            with self.lock:
                self.acquired.deliver(chunk.partition, chunk.lock, records)
            if records:
                found.setdefault(chunk.partition, []).extend(records)
                left -= len(records)
        self._records_taken += count - left
        return found

    def take_chunks(self, count: int) -> list[AcquiredChunk]:
        """Takes whole chunks of different partitions, until they have this many acquired offsets; at least one if there
        is any."""
        found: list[AcquiredChunk] = []
        left = count
        while left > 0 and (reader := self._next_reader()) is not None:
            if any(each.partition == reader.chunk.partition for each in found):
                break
            self._queue.popleft()
            self._settle_own(reader.chunk, reader.take_own())
            found.append(reader.rest())
            left -= found[-1].count
        return found

    def put_back(self, chunk: AcquiredChunk) -> None:
        """Puts back the rest of a chunk, so that the next poll returns it."""
        self._queue.appendleft(self._reader(chunk))

    def delivered(self, chunk: AcquiredChunk, offsets: Collection[int], own: Iterable[AcknowledgementBatch]) -> None:
        """The records of a chunk are returned in another form."""
        self._settle_own(chunk, own)
        with self.lock:
            self.acquired.deliver_offsets(chunk.partition, chunk.lock, offsets)
        self._records_taken += len(offsets)

    def refuse(self, error: BaseException) -> None:
        """The deserializer of the next record cannot be prepared: `take` releases the record and raises."""
        if self._queue:
            self._queue[0].refuse(error)

    def raise_later(self, error: OttlaError) -> None:
        """The next poll raises this error, unless another one waits already."""
        self._error = self._error or error

    def accept_iterated(self, record: ShareRecord) -> None:
        """The program has iterated over a record, which may have been committed meanwhile."""
        with self.lock, suppress(NotAcquiredError):
            partition = TopicPartition(record.topic, record.partition)
            self.acquired.acknowledge(partition, record.offset, AcknowledgeType.ACCEPT)

    def acknowledge(self, partition: TopicPartition, offset: int, how: AcknowledgeType) -> None:
        """Decides about one record. Raises `NotAcquiredError`."""
        with self.lock:
            self.acquired.acknowledge(partition, offset, how)

    def _next_reader(self) -> AcquiredReader | None:
        """The first chunk that has something left and whose lock holds; others are dropped."""
        now = self.cluster.clock.monotonic()
        while self._queue:
            reader = self._queue[0]
            lock = reader.chunk.lock
            if not reader.is_done and lock.deadline > now and self.fetcher.is_held(lock.broker, lock.session):
                return reader
            if not reader.is_done:
                log.info(
                    "%s: dropped acquired records because their lock timed out or the share session was lost; the group"
                    " delivers them again",
                    reader.chunk.partition,
                )
            self._queue.popleft()
        return None

    def _settle_own(self, chunk: AcquiredChunk, own: Iterable[AcknowledgementBatch]) -> None:
        with self.lock:
            for each in own:
                self.acquired.settle_range(chunk.partition, chunk.lock, each)

    def _reader(self, chunk: AcquiredChunk) -> AcquiredReader:
        config = self.config
        return AcquiredReader(
            chunk,
            key_deserializer=config.key_deserializer,
            value_deserializer=config.value_deserializer,
            check_crcs=config.check_crcs,
        )

    def run_behind(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Runs something in the background until it ends or the consumer is closed."""
        task = self.loop.create_task(work)
        self._background[task] = None
        task.add_done_callback(self._background.pop)
        return task

    # Polling

    def begin_poll(self, left_out: Collection[tuple[TopicPartition, int]] = ()) -> None:
        """A poll begins: acknowledges what the last one returned, in implicit mode; else raises if it was not done."""
        if self.state.topics is None:
            raise MisuseError("the consumer is not subscribed to topics; call subscribe first")
        with self.lock:
            if self.is_implicit:
                self.acquired.acknowledge_all(AcknowledgeType.ACCEPT, left_out=left_out)
            elif undecided := self.acquired.undecided:
                raise UnacknowledgedRecordsError(undecided)
        self._begin_round()

    def _begin_round(self) -> None:
        self.start()
        if self._is_woken:
            self._is_woken = False
            raise WakeupError("wakeup() was called")
        self._raise_error()
        self.state.is_polling = True
        self.state.on_poll(self.cluster.clock.monotonic())
        self.member.wake()
        self.send_acknowledgements()

    @property
    def can_take(self) -> bool:
        """Whether something was fetched, or locks were renewed."""
        with self.lock:
            return bool(self._queue) or self.acquired.has_renewed

    def end_poll(self) -> None:
        """The poll ends."""
        self.fetcher.want(0, 0.0)
        self.state.is_polling = False
        self.state.touch(self.cluster.clock.monotonic())

    async def wait_records(self, count: int, deadline: float) -> None:
        """Fetches, and returns when something happened that a poll may be waiting for, at the latest at `deadline`."""
        self._begin_round()
        with self.lock:
            is_renewing = self.acquired.is_renewing
        self.fetcher.want(0 if is_renewing or self._queue else count, deadline)
        if self._queue:
            return
        seconds = deadline - self.cluster.clock.monotonic()
        try:
            async with asyncio.timeout(None if seconds == _FOREVER else max(seconds, 0)):
                await self._ready.wait()
        except TimeoutError:
            return
        finally:
            self._ready.clear()

    def wakeup(self) -> None:
        """Makes the current poll, or the next one, raise `WakeupError`."""
        self._is_woken = True
        self._ready.set()

    def _raise_error(self) -> None:
        """Raises an error from the background once; the error that ended the membership every time."""
        if self._broken is not None:
            raise self._broken
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        if self.state.failure is not None:
            raise self.state.failure

    def _raise_in_poll(self, error: OttlaError) -> None:
        self.raise_later(error)
        self._ready.set()

    # Acknowledging

    def send_acknowledgements(self) -> tuple[list[Acknowledgements], list[Settled]]:
        """Gives what was decided to the sessions; returns what is on its way, and what cannot be sent."""
        with self.lock:
            sending, failed = self.acquired.take(self.cluster.clock.monotonic())
        waiting: list[Acknowledgements] = []
        for each in sending:
            refused = self.fetcher.session(each.broker).acknowledge(each.acknowledgements, each.session)
            if refused is None:
                waiting.append(each.acknowledgements)
            else:
                failed.append(refused)
        for settled in failed:
            self._on_settled(settled, 0.0)
        if waiting:
            self.fetcher.launch()
        return waiting, failed

    async def commit(self, left_out: Collection[tuple[TopicPartition, int]], timeout_ms: float) -> Results:
        """Sends what was acknowledged and waits for the answers: None or an error for each partition."""
        if self.is_implicit:
            with self.lock:
                self.acquired.acknowledge_all(AcknowledgeType.ACCEPT, left_out=left_out)
        waiting, failed = self.send_acknowledgements()
        commit = _Commit(self.loop.create_future(), {id(each): each for each in waiting})
        for settled in failed:
            commit.note(settled)
        if commit.waiting:
            self._commits[commit] = None
            try:
                async with asyncio.timeout(timeout_ms / 1000):
                    await commit.done
            except TimeoutError:
                for each in commit.waiting.values():
                    if each.types:
                        words = f"acknowledgement of {len(each.types)} records of {each.name} was not answered in time"
                        commit.results[each.name] = commit.results.get(each.name) or DeadlineError(words)
            finally:
                del self._commits[commit]
        return commit.results

    def _on_settled(self, settled: Settled, deadline: float) -> None:
        given = settled.acknowledgements
        with self.lock:
            self.acquired.on_settled(settled, deadline)
        for commit in list(self._commits):
            if id(given) in commit.waiting:
                commit.on_settled(settled)
        if given.types and self.keeps_answers:
            self.answered.append(({given.name: frozenset(given.types)}, settled.error))
        if settled.error is None:
            self._acknowledged += len(given.types)
        else:
            self._failed += len(given.types)
            log.warning("%s: %d records were not acknowledged: %s", given.name, len(given.types), settled.error)
        self._ready.set()

    # In the background

    def _on_change(self) -> None:
        self._assign_sessions()
        self._ready.set()

    def _on_view(self, view: ClusterView) -> None:
        self._assign_sessions()

    def _assign_sessions(self) -> None:
        """Tells each session which assigned partitions its broker leads."""
        assigned = self.state.assigned()
        by_broker: dict[int, set[TopicIdPartition]] = {}
        for partition, name in assigned.items():
            topic = self.cluster.view.topics.get(name.topic)
            leader = self.metadata.leader(name)
            if leader is None or topic is None or topic.id != partition.topic_id:
                self.metadata.refresh_soon()
                continue
            by_broker.setdefault(leader.broker, set()).add(partition)
        in_use = {each for session in self.fetcher.sessions() for each in session.named}
        kept = {each: name for each, name in self._names.items() if each in in_use}
        self._names = kept | assigned
        for broker in by_broker:
            self.fetcher.session(broker)
        for session in self.fetcher.sessions():
            session.wanted = frozenset(by_broker.get(session.broker, ()))
        self.fetcher.launch()

    def _on_exchange(self, exchange: Exchange) -> None:
        now = self.cluster.clock.monotonic()
        deadline = now + exchange.lock_timeout_ms / 1000 if exchange.lock_timeout_ms > 0 else _FOREVER
        if exchange.lock_timeout_ms > 0:
            self.lock_timeout_ms = exchange.lock_timeout_ms
        for settled in exchange.outcome.settled:
            self._on_settled(settled, deadline)
        for fetched in exchange.outcome.fetched:
            name = self._names.get(fetched.partition)
            if name is None:
                continue
            if fetched.error_code:
                self._on_problem(name, fetched)
            if fetched.acquired:
                lock = Lock(exchange.broker, exchange.session, fetched.partition, deadline)
                self._on_acquired(name, lock, fetched)
        if self._queue:
            # The locks of further records would run while the program works on these.
            self.fetcher.want(0, 0.0)
        if exchange.outcome.error is not None:
            self._on_fetch_failure(exchange.outcome.error)
        self._ready.set()

    def _on_acquired(self, name: TopicPartition, lock: Lock, fetched: ShareFetched) -> None:
        batches, _, damage = scan(fetched.records, check_crc=False)
        ranges = sorted_ranges(fetched.acquired)
        if damage is not None:
            # What follows cannot even be walked through; another fetch may find it whole.
            end = batches[-1].next_offset if batches else ranges[0].first_offset
            for each in ranges:
                first = max(each.first_offset, end)
                if first <= each.last_offset:
                    released = AcknowledgementBatch(first, each.last_offset, AcknowledgeType.RELEASE)
                    with self.lock:
                        self.acquired.settle_range(name, lock, released)
            ranges = [
                each._replace(last_offset=min(each.last_offset, end - 1)) for each in ranges if each.first_offset < end
            ]
            self._raise_in_poll(UnreadableRecordError(name, end, f"{name} at offset {end}: {damage}; released"))
        if ranges:
            self._queue.append(
                self._reader(AcquiredChunk(partition=name, lock=lock, batches=batches, ranges=tuple(ranges)))
            )

    def _on_problem(self, name: TopicPartition, fetched: ShareFetched) -> None:
        code = error_code_of(fetched.error_code)
        if code in RETRIABLE_CODES or code is ErrorCode.UNKNOWN_SERVER_ERROR:
            log.info("reading %s failed, retrying: %s", name, code.name)
            self.metadata.refresh_soon()
        else:
            self._raise_in_poll(answer_error(fetched.error_code, f"reading {name}", fetched.error_message))

    def _on_network_error(self, error: OttlaError) -> None:
        """Polls raise when no broker was ever reached, for then the address is probably wrong; else it is retried."""
        if isinstance(error, CannotConnectError) and not self.cluster.view.brokers:
            self._raise_in_poll(error)

    def _on_fetch_failure(self, error: OttlaError) -> None:
        if getattr(error, "error_code", None) is ErrorCode.UNKNOWN_MEMBER_ID:
            self.state.on_commit_refused(ErrorCode.UNKNOWN_MEMBER_ID, self.state.generation)
            self.member.wake()
        elif getattr(error, "error_code", None) is ErrorCode.SHARE_SESSION_LIMIT_REACHED:
            log.warning("%s; retrying", error)
        elif not isinstance(error, RetriableError):
            self._raise_in_poll(error)
        self.metadata.refresh_soon()

    def metrics(self) -> dict[str, float]:
        """Metrics by name."""
        return {
            "acknowledgement_failures_total": float(self._failed),
            "acknowledgements_total": float(self._acknowledged),
            "assigned_partitions": float(len(self.state.owned)),
            "rebalances_total": float(self.state.rebalances),
            "records_consumed_total": float(self._records_taken),
            "records_held": float(self.acquired.held),
            "share_requests_total": float(self.fetcher.requests),
        }
