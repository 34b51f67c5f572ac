"""What both consumers share: subscription, group membership, fetching and commits, put together on one event loop.

`async_consumer.py` and `blocking_consumer.py` add what a program sees: polls that call listeners in its own thread, and
iteration. All methods are called on the loop, except `take`, `prepare`, `take_chunks` and `is_settled`, which the
program's thread may call: a lock guards what they use.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Collection, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ottla.client.consumer.errors import (
    ConsumerBrokenError,
    RecordDeserializationError,
    UnreadableRecordError,
    WakeupError,
)
from ottla.client.consumer.interceptors import ConsumerInterceptors
from ottla.client.consumer.options import ISOLATION_LEVELS, ConsumerConfig
from ottla.client.consumer.position_finder import PositionFinder
from ottla.client.consumer.redeliveries import Redeliveries
from ottla.client.consumer.returned_records import ReturnedRecords
from ottla.client.consumer.subscription_state import RESETS, Kind, SubscriptionState
from ottla.client.consumer.topic_queues import without_companions
from ottla.client.errors import RETRIABLE_CODES, CannotConnectError, CorruptLogError, answer_error, error_code_of
from ottla.client.fetch.chunk import Chunk
from ottla.client.fetch.fetch_connections import FetchConnections
from ottla.client.fetch.fetch_plan_state import (
    FetchLimits,
    FetchPlanState,
    FetchProblem,
    Leader,
    Records,
    UnreadableError,
)
from ottla.client.fetch.fetcher import Fetcher, FetchRules
from ottla.client.fetch.metadata_watch import MetadataWatch
from ottla.client.group.classic_membership_state import ClassicMembershipState
from ottla.client.group.consumer_membership_state import ConsumerMembershipState
from ottla.client.group.group_member import GroupMember
from ottla.client.group.handover import Handover
from ottla.client.group.membership_requests import MemberIdentity
from ottla.client.group.membership_state import MembershipState
from ottla.client.group.offset_committer import OffsetCommitter, Offsets
from ottla.client.group.rebalance_listener import ConsumerRebalanceListener
from ottla.client.group.solo_membership_state import SoloMembershipState
from ottla.client.network.cluster import Cluster
from ottla.client.network.cluster_view import ClusterView
from ottla.client.serializers import NotPreparedError
from ottla.client.values import ConsumerGroupMetadata, OffsetAndMetadata
from ottla.model.base64_ids import id_text, new_id
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import CorruptError, MisuseError, OttlaError, RetriableError
from ottla.model.ids import TopicPartition
from ottla.transport.addresses import parse_bootstrap

log: Final = logging.getLogger(__name__)

_READ_AHEAD_ANSWERS: Final = 2
"""How many full responses of a partition may wait before nothing more is fetched."""
_LEAVE_TIMEOUT_MS: Final = 5_000


@dataclass(frozen=True, slots=True)
class HandoverStep:
    """One step of a handover. The listener's steps run in the program's thread, the others on the loop.

    An error of the listener is raised after the last step.
    """

    run: Callable[[], object]
    is_listeners: bool = False


class ConsumerCore:
    """One consumer. Must be created in the running loop."""

    def __init__(self, config: ConsumerConfig, *, cluster: Cluster | None = None) -> None:
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
        self.interceptors = ConsumerInterceptors(config.interceptors)
        self.subscription = SubscriptionState(reset_policy=RESETS[config.auto_offset_reset])
        self.lock = threading.RLock()
        self.loop = asyncio.get_running_loop()
        self._ready = asyncio.Event()
        """Set when something happened that a poll may be waiting for."""
        self._error: OttlaError | None = None
        self._is_woken = False
        self._is_started = False
        self._broken: ConsumerBrokenError | None = None
        self._next_auto_commit = 0.0
        self._background: dict[asyncio.Task[None], None] = {}
        self._finding: asyncio.Task[None] | None = None
        self._make_parts()

    def _make_parts(self) -> None:
        config = self.config
        limits = FetchLimits(
            partition_bytes_max=config.max_partition_fetch_bytes,
            read_ahead_bytes=_READ_AHEAD_ANSWERS * config.max_partition_fetch_bytes,
            isolation_level=ISOLATION_LEVELS[config.isolation_level],
            check_crcs=config.check_crcs,
            key_deserializer=config.key_deserializer,
            value_deserializer=config.value_deserializer,
        )
        self.plan = FetchPlanState(self.subscription.partitions, limits)
        identity = MemberIdentity(
            group_id=config.group_id or "",
            instance_id=config.group_instance_id,
            rack_id=config.client_rack or None,
            session_timeout_ms=config.session_timeout_ms,
            rebalance_timeout_ms=config.max_poll_interval_ms,
            request_timeout_ms=config.request_timeout_ms,
            remote_assignor=config.group_remote_assignor,
        )
        self.member = GroupMember(
            self.cluster,
            self._new_membership(),
            identity,
            config.backoff,
            on_change=self._ready.set,
            on_error=self._on_network_error,
        )
        self.metadata = MetadataWatch(
            self.cluster,
            config.backoff,
            max_age_ms=config.metadata_max_age_ms,
            may_create=self._may_create_topics,
            topics=self._watched_topics,
            on_view=self._on_view,
            on_error=self._on_network_error,
        )
        self.returned = ReturnedRecords(self.cluster, config, self.subscription.partitions.__contains__)
        self.redeliveries: Redeliveries | None = None
        if config.enable_retry and config.group_id is not None:
            self.redeliveries = Redeliveries(self.cluster, self.returned.queues, config.group_id)
        self.committer = OffsetCommitter(self.cluster, self.member, config, self.interceptors)
        self.positions = PositionFinder(
            self.cluster,
            self.metadata,
            self.subscription,
            self.plan,
            config,
            lock=self.lock,
            committed=None if config.group_id is None else self.committer.committed_once,
            on_found=self._on_positions,
            on_error=self.raise_in_poll,
        )
        self.fetcher = Fetcher(
            self.cluster,
            FetchConnections(self.cluster),
            self.plan,
            FetchRules(
                wait_ms=config.fetch_max_wait_ms,
                bytes_min=config.fetch_min_bytes,
                bytes_max=config.fetch_max_bytes,
                request_timeout_ms=config.request_timeout_ms,
                backoff=config.backoff,
                rack=config.client_rack,
            ),
            lock=self.lock,
            leaders=self._leaders,
            on_answer=self._on_fetched,
            on_failure=self._on_fetch_failure,
            on_end=self._on_end,
        )

    def _new_membership(self) -> MembershipState[Any, Any]:
        config = self.config
        if config.group_id is None:
            return SoloMembershipState()
        poll_interval = config.max_poll_interval_ms / 1000
        if config.group_protocol == "consumer":
            # The client chooses the member id, in the form of Kafka's own ids.
            member_id = id_text(new_id(self.cluster.random.randbytes))
            return ConsumerMembershipState(
                group_id=config.group_id,
                member_id=member_id,
                poll_interval=poll_interval,
                patience=config.session_timeout_ms / 1000,
                instance_id=config.group_instance_id,
            )
        return ClassicMembershipState(
            group_id=config.group_id,
            poll_interval=poll_interval,
            session=config.session_timeout_ms / 1000,
            heartbeat_interval=config.heartbeat_interval_ms / 1000,
            assignors=config.assignors(),
            instance_id=config.group_instance_id,
            rack_id=config.client_rack or None,
        )

    # Starting and closing

    def start(self) -> None:
        """Starts the background tasks; does nothing if they run."""
        if not self._is_started:
            self._is_started = True
            for part in (self.metadata, self.positions, self.member):
                part.start().add_done_callback(self._on_end)

    def _on_end(self, task: "asyncio.Task[None]") -> None:
        """A background task ended by an internal error: polls must raise it instead of waiting forever."""
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("internal error in a consumer", exc_info=error)
            self._broken = ConsumerBrokenError(f"internal error in the consumer: {error!r}; close it")
            self._ready.set()

    async def close(self, *, leave: bool = True) -> None:
        """Leaves the group and stops everything. Commits and listeners are up to the caller, before."""
        await self.member.stop()
        if leave:
            timeout_ms = min(_LEAVE_TIMEOUT_MS, self.config.request_timeout_ms)
            await self.member.leave("the consumer was closed", timeout_ms)
        await self.positions.stop()
        await self.fetcher.stop()
        await self.metadata.stop()
        await self.returned.close()
        for task in list(self._background):
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        await self.cluster.close()
        self.interceptors.close()

    # Subscribing and positions

    def subscribe(self, topics: Collection[str], pattern: str | None) -> None:
        """Subscribes to topics, or to those that match a pattern; the next poll joins the group."""
        if pattern is not None and self.redeliveries is not None and self.config.group_protocol == "consumer":
            raise MisuseError('enable_retry with a pattern needs group_protocol="classic": brokers match the pattern')
        remote = self.member.state if isinstance(self.member.state, ConsumerMembershipState) else None
        with self.lock:
            if pattern is None:
                self.subscription.subscribe(topics)
            elif remote is not None:
                self.subscription.subscribe_remotely()
            else:
                self.subscription.subscribe_pattern(pattern)
                self.subscription.match(self.cluster.view.topics)
        if pattern is not None and remote is not None:
            # Coordinators match whole names; in Python clients a pattern matches the beginning of a name.
            remote.subscribe((), f"(?:{pattern}).*")
            self.member.wake()
        else:
            self._tell_group()
        self.metadata.refresh_soon()

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Assigns exactly these partitions."""
        with self.lock:
            before = set(self.subscription.partitions)
            self.subscription.assign_by_hand(partitions)
            self.plan.forget(before - set(partitions))
        self.metadata.refresh_soon()
        self._wake_readers()

    async def unsubscribe(self) -> None:
        """Leaves the group and ends the assignment."""
        if self.subscription.kind in (Kind.TOPICS, Kind.PATTERN):
            self.member.state.subscribe(None)
            await self.member.leave("the consumer unsubscribed", _LEAVE_TIMEOUT_MS)
        with self.lock:
            self.plan.forget(list(self.subscription.partitions))
            self.subscription.unsubscribe()

    def seek(self, partition: TopicPartition, offset: int, offset_epoch: int = -1) -> None:
        """Moves the position."""
        if offset < 0:
            raise MisuseError(f"{partition}: cannot seek to {offset}; offsets are 0 or more")
        with self.lock:
            self.subscription.seek(partition, offset, offset_epoch)
            self.plan.forget([partition])
        self._wake_readers()

    def reset(self, partition: TopicPartition, to: int) -> None:
        """Moves the position to the first or the end offset."""
        with self.lock:
            self.subscription.reset(partition, to)
            self.plan.forget([partition])
        self._wake_readers()

    def pause(self, partition: TopicPartition) -> None:
        """Stops handing out records of a partition."""
        with self.lock:
            self.subscription.state(partition).is_paused = True
        self.fetcher.wake()

    def resume(self, partition: TopicPartition) -> None:
        """Undoes `pause`."""
        with self.lock:
            self.subscription.state(partition).is_paused = False
        self.fetcher.wake()
        self._ready.set()

    # Polling, from the program's thread

    def take(self, records_max: int) -> Records:
        """Takes records that were fetched, without waiting. Raises an error if the next record cannot be read.

        `UnreadableError` means that its deserializer must be prepared first: call `prepare`, then this again.
        """
        try:
            found = self.plan.take(records_max, self.lock)
        except UnreadableError as error:
            if isinstance(error.__cause__, NotPreparedError):
                raise
            raise self._unreadable(error, error.__cause__) from error.__cause__
        self._after_taking()
        return self.interceptors.on_consume(found) if self.interceptors and found else found

    def prepare(self, unread: UnreadableError) -> None:
        """Prepares the deserializer for a record, which may block. Raises `RecordDeserializationError`."""
        missing = unread.__cause__
        if isinstance(missing, NotPreparedError):
            try:
                missing.prepare()
            except Exception as error:
                raise self._unreadable(unread, error) from error

    def take_chunks(self, bytes_max: int) -> list[Chunk]:
        """Takes whole batches that were fetched, without waiting; the positions move behind them."""
        with self.lock:
            found = self.plan.take_chunks(bytes_max)
        self._after_taking()
        return found

    @property
    def is_settled(self) -> bool:
        """Whether records can be taken at once: no error, rebalance or commit waits for a poll."""
        state = self.member.state
        is_due = self._next_auto_commit and self.cluster.clock.monotonic() >= self._next_auto_commit
        is_told = self._error or self._broken or self._is_woken or state.failure
        return not (is_told or state.handover or state.wants_poll or is_due)

    def _after_taking(self) -> None:
        if self.fetcher.has_room_again():
            self.call_soon(self.fetcher.wake)

    # Polling, on the loop

    def begin_poll(self) -> None:
        """Begins a poll, or goes on with one; raises errors from the background. `end_poll` must follow."""
        self.start()
        state = self.member.state
        if self._is_woken:
            self._is_woken = False
            raise WakeupError("wakeup() was called")
        self.raise_error()
        now = self.cluster.clock.monotonic()
        state.is_polling = True
        state.on_poll(now)
        self.member.wake()
        self._auto_commit_if_due(now)

    def end_poll(self) -> None:
        """The poll ends."""
        state = self.member.state
        state.is_polling = False
        state.touch(self.cluster.clock.monotonic())

    async def wait_ready(self, seconds: float) -> None:
        """Returns when something happened that a poll may be waiting for, or after this many seconds."""
        try:
            async with asyncio.timeout(seconds if seconds != float("inf") else None):
                await self._ready.wait()
        except TimeoutError:
            return
        finally:
            self._ready.clear()

    async def wait_work(self, seconds: float) -> Handover | None:
        """Polls until there are records or a handover, or for this many seconds; for the program's thread."""
        clock = self.cluster.clock
        deadline = clock.monotonic() + seconds
        while True:
            self.begin_poll()
            state = self.member.state
            remaining = deadline - clock.monotonic()
            if state.handover is not None:
                # The program's thread carries it out, whatever the group decides meanwhile.
                state.on_handover_started(state.handover)
                return state.handover
            if self.plan.has_records or remaining <= 0:
                return None
            await self.wait_ready(remaining)

    def wakeup(self) -> None:
        """Makes the current poll, or the next one, raise `WakeupError`."""
        self._is_woken = True
        self._ready.set()

    def raise_error(self) -> None:
        """Raises an error from the background once; the error that ended the membership every time."""
        if self._broken is not None:
            raise self._broken
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        if self.member.state.failure is not None:
            raise self.member.state.failure

    def raise_in_poll(self, error: OttlaError) -> None:
        """The next poll raises this error, unless another one waits already."""
        self._error = self._error or error
        self._ready.set()

    def handover_steps(self, handover: Handover, listener: ConsumerRebalanceListener | None) -> Iterator[HandoverStep]:
        """The steps of a handover, to be run and awaited one after the other."""
        yield HandoverStep(lambda: self._release(handover))
        if listener is not None and handover.lost:
            yield HandoverStep(lambda: listener.on_partitions_lost(sorted(handover.lost)), is_listeners=True)
        if listener is not None and handover.revoked:
            yield HandoverStep(lambda: listener.on_partitions_revoked(sorted(handover.revoked)), is_listeners=True)
        yield HandoverStep(lambda: self._apply(handover))
        if listener is not None and handover.is_new_assignment:
            yield HandoverStep(lambda: listener.on_partitions_assigned(sorted(handover.added)), is_listeners=True)
        yield HandoverStep(lambda: self._finish(handover))

    def farewell(self, listener: ConsumerRebalanceListener | None) -> Callable[[], object] | None:
        """What tells the listener that all partitions go; None if there is nothing to tell."""
        owned = sorted(self.member.state.owned)
        if listener is None or not owned:
            return None
        hook = listener.on_partitions_lost if self.is_fenced else listener.on_partitions_revoked
        return lambda: hook(owned)

    async def _release(self, handover: Handover) -> None:
        """First step of a handover: commits the positions of revoked partitions, if auto-commit is enabled."""
        self.member.state.on_handover_started(handover)
        if handover.revoked and self.config.enable_auto_commit and self.config.group_id is not None:
            await self.commit_quietly(self.offsets_to_commit(handover.revoked))

    def _apply(self, handover: Handover) -> None:
        """Second step: changes the assignment."""
        with self.lock:
            gone = set(self.subscription.partitions) - handover.assigned
            self.plan.forget(gone)
            self.returned.order.forget(gone)
            self.subscription.assign_by_group(sorted(handover.assigned))

    def _finish(self, handover: Handover) -> None:
        """Last step: the listener was called."""
        self.member.state.on_handover_done(handover)
        self.member.state.on_poll(self.cluster.clock.monotonic())
        self.member.wake()
        self._wake_readers()

    # Offsets

    def offsets_to_commit(self, partitions: Collection[TopicPartition] | None = None) -> Offsets:
        """The known positions of all partitions, or of these."""
        with self.lock:
            return {
                partition: OffsetAndMetadata(offset, "", epoch)
                for partition, (offset, epoch) in self.subscription.positions().items()
                if partitions is None or partition in partitions
            }

    async def commit(self, offsets: Offsets, timeout_ms: int | None = None) -> None:
        """Commits offsets; `OffsetCommitter.commit` has the errors."""
        by_member = self.subscription.kind in (Kind.TOPICS, Kind.PATTERN)
        timeout_ms = self.config.default_api_timeout_ms if timeout_ms is None else timeout_ms
        await self.committer.commit(offsets, by_member=by_member, timeout_ms=timeout_ms)

    async def commit_quietly(self, offsets: Offsets, timeout_ms: int | None = None) -> None:
        """Commits, and only logs a failure: then some records are read again after a restart or rebalance."""
        try:
            await self.commit(offsets, timeout_ms or self.config.request_timeout_ms)
        except OttlaError as error:
            log.warning("commit of %d offsets failed: %s", len(offsets), error)

    def _auto_commit_if_due(self, now: float) -> None:
        if not self.config.enable_auto_commit or self.config.group_id is None or now < self._next_auto_commit:
            return
        is_first = not self._next_auto_commit
        self._next_auto_commit = now + max(self.config.auto_commit_interval_ms / 1000, 0.001)
        offsets = self.offsets_to_commit()
        if not is_first and offsets:
            self.run_behind(self.commit_quietly(offsets))

    def run_behind(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Runs something in the background until it ends or the consumer is closed."""
        task = self.loop.create_task(work)
        self._background[task] = None
        task.add_done_callback(self._background.pop)
        return task

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Calls something on the loop, from any thread."""
        self.loop.call_soon_threadsafe(callback)

    @property
    def is_fenced(self) -> bool:
        """Whether the group removed this member, so that its partitions are lost."""
        state = self.member.state
        return not state.is_member and not isinstance(state, SoloMembershipState)

    def group_metadata(self) -> ConsumerGroupMetadata:
        """The current identity of this member."""
        state = self.member.state
        return ConsumerGroupMetadata(
            group_id=self.config.group_id or "",
            generation_id=state.generation,
            member_id=state.member_id,
            group_instance_id=self.config.group_instance_id,
        )

    def metrics(self) -> dict[str, float]:
        """Metrics by name."""
        now = self.cluster.clock.monotonic()
        committed_only = ISOLATION_LEVELS[self.config.isolation_level] != 0
        with self.lock:
            partitions = list(self.subscription.partitions)
            lags = [self.subscription.lag(each, committed_only=committed_only) for each in partitions]
        return {
            "assigned_partitions": float(len(partitions)),
            "bytes_fetched_total": float(self.plan.bytes_fetched),
            "bytes_waiting": float(self.plan.waiting_bytes()),
            "commit_failures_total": float(self.committer.failures),
            "commits_total": float(self.committer.commits),
            "fetch_requests_total": float(self.fetcher.requests),
            "rebalances_total": float(self.member.state.rebalances),
            "records_consumed_total": float(self.plan.records_taken),
            "records_lag_max": float(max((lag for lag in lags if lag is not None), default=0)),
            "seconds_until_auto_commit": max(self._next_auto_commit - now, 0.0),
        }

    @staticmethod
    def log_listener_failure() -> None:
        """At `close` no poll is left that could raise the error."""
        log.exception("error in the rebalance listener while the consumer was closed")

    # In the background

    def _tell_group(self) -> None:
        topics = self.subscription.topics
        if self.subscription.kind is Kind.PATTERN and self.config.exclude_internal_topics:
            views = self.cluster.view.topics
            topics = frozenset(topic for topic in topics if topic not in views or not views[topic].is_internal)
        if self.redeliveries is not None:
            if self.redeliveries.are_unknown(topics):
                self._find_redeliveries(topics)
                return
            found = self.redeliveries.of(topics)
            self.subscription.redeliveries.update(found)
            topics = without_companions(topics) | found
        self.member.state.subscribe(topics)
        self.member.wake()

    def _find_redeliveries(self, topics: Collection[str]) -> None:
        """Looks up which topics have a redelivery topic, and tells the group then."""
        redeliveries = self.redeliveries
        if redeliveries is None or self._finding is not None:
            return

        async def find() -> None:
            tries = 0
            while self.subscription.kind in (Kind.TOPICS, Kind.PATTERN):
                try:
                    await redeliveries.find(topics)
                    break
                except OttlaError as error:
                    tries += 1
                    self._on_fetch_failure(error)
                    self._on_network_error(error)
                    await self.cluster.clock.sleep(self.config.backoff.wait_ms(tries, self.cluster.random) / 1000)
            self._finding = None
            if self.subscription.kind in (Kind.TOPICS, Kind.PATTERN):
                self._tell_group()
                self.metadata.refresh_soon()

        self._finding = self.run_behind(find())

    def _watched_topics(self) -> Collection[str] | None:
        kind = self.subscription.kind
        if kind is Kind.PATTERN and self.subscription.pattern is not None:
            return None
        if kind in (Kind.TOPICS, Kind.PATTERN):
            return self.member.state.watched_topics()
        return {partition.topic for partition in self.subscription.partitions}

    def _may_create_topics(self) -> bool:
        # A topic that a pattern matched exists, or was deleted and must not be created again.
        return self.config.allow_auto_create_topics and self.subscription.kind is not Kind.PATTERN

    def _on_view(self, view: ClusterView) -> None:
        if self.subscription.kind is Kind.PATTERN:
            with self.lock:
                has_changed = self.subscription.match(view.topics)
            if has_changed:
                self._tell_group()
        if self.redeliveries is not None and self.redeliveries.on_topics(view.topics):
            self._tell_group()
        counts = {name: len(topic.partitions) for name, topic in view.topics.items()}
        self.member.state.on_partition_counts(counts, view.racks(view.topics))
        self.member.wake()
        self.positions.on_metadata()
        self.fetcher.wake()
        self._ready.set()

    def _on_positions(self) -> None:
        self.fetcher.wake()
        self._ready.set()

    def _wake_readers(self) -> None:
        self.positions.wake()
        self.fetcher.wake()

    def _leaders(self) -> dict[TopicPartition, Leader]:
        """The known leaders of all partitions; positions are validated again after a leader change. Under the lock."""
        found: dict[TopicPartition, Leader] = {}
        for partition in list(self.subscription.partitions):
            leader = self.metadata.leader(partition)
            if leader is None:
                self.metadata.refresh_soon()
                continue
            found[partition] = leader
            if self.subscription.on_leader(partition, leader.epoch):
                self.positions.wake()
        return found

    def _on_network_error(self, error: OttlaError) -> None:
        """Polls raise when no broker was ever reached, for then the address is probably wrong; else it is retried."""
        if isinstance(error, CannotConnectError) and not self.cluster.view.brokers:
            self.raise_in_poll(error)

    def _on_fetch_failure(self, error: OttlaError) -> None:
        if not isinstance(error, RetriableError):
            self.raise_in_poll(error)
        self.metadata.refresh_soon()

    def _on_fetched(self, problems: Sequence[FetchProblem]) -> None:
        if problems:
            self._on_problems(problems)
        self._ready.set()

    def _on_problems(self, problems: Sequence[FetchProblem]) -> None:
        retry_at = self.cluster.clock.monotonic() + self.config.backoff.wait_ms(1, self.cluster.random) / 1000
        for problem in problems:
            code = error_code_of(problem.error_code)
            what = f"reading {problem.partition} at offset {problem.offset}"
            with self.lock:
                state = self.subscription.partitions.get(problem.partition)
                if state is None:
                    continue
                state.retry_at = retry_at
                policy = self.subscription.policy_of(problem.partition)
                if code is ErrorCode.OFFSET_OUT_OF_RANGE and policy is not None:
                    log.warning("%s: offset out of range; position reset by auto_offset_reset", what)
                    self.plan.forget([problem.partition])
                    self.subscription.reset(problem.partition, policy)
                    continue
            if problem.detail is not None:
                words = f"{what}: {problem.detail}; seek to a later offset to skip it"
                self.raise_in_poll(UnreadableRecordError(problem.partition, problem.offset, words))
            elif code is ErrorCode.CORRUPT_MESSAGE:
                words = str(CorruptLogError(problem.partition, problem.offset))
                self.raise_in_poll(UnreadableRecordError(problem.partition, problem.offset, words))
            elif code in RETRIABLE_CODES or code is ErrorCode.UNKNOWN_SERVER_ERROR:
                log.info("%s failed, retrying: %s", what, code.name)
                self.metadata.refresh_soon()
            else:
                words = None
                if code is ErrorCode.OFFSET_OUT_OF_RANGE:
                    words = "offset out of range, and auto_offset_reset is none; seek to an offset that exists"
                self.raise_in_poll(answer_error(problem.error_code, what, words))
        self.positions.wake()

    @staticmethod
    def _unreadable(error: UnreadableError, cause: BaseException | None) -> OttlaError:
        advice = f"seek to {error.offset + 1} or later to skip it"
        if isinstance(cause, CorruptError):
            return UnreadableRecordError(error.partition, error.offset, f"{error}: {cause}; {advice}")
        words = f"{error}: a deserializer raised {type(cause).__name__}: {cause}; {advice}"
        return RecordDeserializationError(error.partition, error.offset, words)
