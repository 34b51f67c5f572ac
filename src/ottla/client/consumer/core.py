"""What both consumers stand on: a subscription, a membership, fetching and commits, put together on one event loop.

`consumer.py` and `blocking_consumer.py` add what a program sees: polls that call listeners on its own thread, and
iteration. All methods belong to the loop, except `take`, `take_chunks` and `is_settled`, which the program's thread may
call: what they touch is guarded by a lock.
"""

import asyncio
import base64
import logging
import threading
from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import Any, Final

from ottla.client.consumer.errors import (
    ConsumerBrokenError,
    RecordDeserializationError,
    UnreadableRecordError,
    WakeupError,
)
from ottla.client.consumer.fetch_plan_state import FetchLimits, FetchPlanState, FetchProblem, Records, UnreadableError
from ottla.client.consumer.fetcher import Fetcher
from ottla.client.consumer.interceptors import ConsumerInterceptors
from ottla.client.consumer.metadata_watch import MetadataWatch
from ottla.client.consumer.options import ISOLATION_LEVELS, ConsumerConfig
from ottla.client.consumer.position_finder import PositionFinder
from ottla.client.consumer.reader import Chunk
from ottla.client.consumer.subscription_state import RESETS, Kind, SubscriptionState
from ottla.client.errors import RETRIABLE_CODES, CorruptLogError, answer_error, error_code_of
from ottla.client.group.classic_membership_state import MembershipState, MembershipTimes
from ottla.client.group.consumer_membership_state import ConsumerMembershipState
from ottla.client.group.membership import GroupMembership, GroupState
from ottla.client.group.offset_committer import OffsetCommitter, Offsets
from ottla.client.group.rebalance import Handover
from ottla.client.group.requests import MemberIdentity
from ottla.client.group.solo_membership_state import SoloMembershipState
from ottla.client.network.cluster import Cluster
from ottla.client.network.cluster_view import ClusterView
from ottla.client.values import ConsumerGroupMetadata, OffsetAndMetadata
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import CorruptError, MisuseError, OttlaError
from ottla.model.ids import TopicPartition
from ottla.transport.addresses import parse_bootstrap

log: Final = logging.getLogger(__name__)

_READ_AHEAD_ANSWERS: Final = 2
"""How many partitions' full answers may wait before nothing more is asked for."""
_LEAVE_TIMEOUT_MS: Final = 5_000


class ConsumerCore:
    """See the module's docstring. To be made within the running loop."""

    def __init__(self, config: ConsumerConfig, *, cluster: Cluster | None = None) -> None:
        self.config = config
        bootstrap = config.bootstrap_servers
        self.cluster = cluster or Cluster(
            parse_bootstrap(bootstrap if isinstance(bootstrap, str) else ",".join(bootstrap)),
            client_id=config.client_id,
            connect_timeout_ms=config.socket_connection_setup_timeout_ms,
            request_timeout_ms=config.request_timeout_ms,
            backoff=config.backoff,
        )
        self.interceptors = ConsumerInterceptors(config.interceptors)
        self.subscription = SubscriptionState(reset_policy=RESETS[config.auto_offset_reset])
        self.lock = threading.RLock()
        self.loop = asyncio.get_running_loop()
        self._ready = asyncio.Event()
        """Something has happened that whoever polls may want to know."""
        self._error: OttlaError | None = None
        self._is_woken = False
        self._is_started = False
        self._broken: ConsumerBrokenError | None = None
        self._next_auto_commit = 0.0
        self._background: dict[asyncio.Task[None], None] = {}
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
        self.plan = FetchPlanState(self.subscription, limits)
        identity = MemberIdentity(
            group_id=config.group_id or "",
            instance_id=config.group_instance_id,
            rack_id=config.client_rack or None,
            session_timeout_ms=config.session_timeout_ms,
            rebalance_timeout_ms=config.max_poll_interval_ms,
            request_timeout_ms=config.request_timeout_ms,
            remote_assignor=config.group_remote_assignor,
        )
        self.membership = GroupMembership(
            self.cluster,
            self._new_membership(),
            identity,
            config.backoff,
            on_change=self._ready.set,
            on_unreachable=self.raise_in_poll,
        )
        self.metadata = MetadataWatch(
            self.cluster,
            config.backoff,
            max_age_ms=config.metadata_max_age_ms,
            auto_create=config.allow_auto_create_topics,
            topics=self._watched_topics,
            on_view=self._on_view,
            on_unreachable=self.raise_in_poll,
        )
        self.committer = OffsetCommitter(self.cluster, self.membership, config, self.interceptors)
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
            self.metadata,
            self.subscription,
            self.plan,
            config,
            lock=self.lock,
            on_arrival=self._ready.set,
            on_problems=self._on_problems,
            on_failure=self.raise_in_poll,
            on_new_leader=self.positions.wake,
            on_end=self._on_end,
        )

    def _new_membership(self) -> GroupState:
        config = self.config
        if config.group_id is None:
            return SoloMembershipState()
        poll_interval = config.max_poll_interval_ms / 1000
        if config.group_protocol == "consumer":
            # The id is the client's to choose, in the shape in which Kafka writes its own ids.
            member_id = base64.urlsafe_b64encode(self.cluster.random.randbytes(16)).decode().rstrip("=")
            return ConsumerMembershipState(
                group_id=config.group_id,
                member_id=member_id,
                poll_interval=poll_interval,
                patience=config.session_timeout_ms / 1000,
                instance_id=config.group_instance_id,
            )
        return MembershipState(
            group_id=config.group_id,
            times=MembershipTimes(
                session=config.session_timeout_ms / 1000,
                heartbeat=config.heartbeat_interval_ms / 1000,
                poll_interval=poll_interval,
            ),
            assignors=config.assignors(),
            instance_id=config.group_instance_id,
            rack_id=config.client_rack or None,
        )

    # Life

    def start(self) -> None:
        """Begins whatever goes on in the background; does nothing if it has begun."""
        if not self._is_started:
            self._is_started = True
            for part in (self.metadata, self.positions, self.membership):
                part.start().add_done_callback(self._on_end)

    def _on_end(self, task: "asyncio.Task[None]") -> None:
        """Something that should go on for the consumer's life has ended; whoever polls must not wait for ever."""
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("the consumer cannot go on", exc_info=error)
            self._broken = ConsumerBrokenError(f"the consumer cannot go on, by a fault of its own: {error!r}; close it")
            self._ready.set()

    async def close(self, *, leave: bool = True) -> None:
        """Leaves the group, and ends everything. Offsets and listeners are the caller's, before."""
        await self.membership.stop()
        if leave:
            timeout_ms = min(_LEAVE_TIMEOUT_MS, self.config.request_timeout_ms)
            await self.membership.leave("the consumer was closed", timeout_ms)
        await self.positions.stop()
        await self.fetcher.stop()
        await self.metadata.stop()
        for task in list(self._background):
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        await self.cluster.close()
        self.interceptors.close()

    # What is wanted

    def subscribe(self, topics: Collection[str], pattern: str | None) -> None:
        """Wants topics, or those that match; the group hears of it when somebody polls."""
        remote = self.membership.state if isinstance(self.membership.state, ConsumerMembershipState) else None
        with self.lock:
            if pattern is None:
                self.subscription.subscribe(topics)
            elif remote is not None:
                self.subscription.subscribe_remotely()
            else:
                self.subscription.subscribe_pattern(pattern)
                self.subscription.match(self.cluster.view.topics)
        if pattern is not None and remote is not None:
            # Coordinators match whole names; here, as in other Python clients, a pattern is for how names begin.
            remote.subscribe((), f"(?:{pattern}).*")
            self.membership.wake()
        else:
            self._tell_group()
        self.metadata.refresh_soon()

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Has exactly these partitions."""
        with self.lock:
            before = set(self.subscription.partitions)
            self.subscription.assign_by_hand(partitions)
            self.plan.forget(before - set(partitions))
        self.metadata.refresh_soon()
        self._wake_readers()

    async def unsubscribe(self) -> None:
        """Leaves the group, and has nothing."""
        if self.subscription.kind in (Kind.TOPICS, Kind.PATTERN):
            self.membership.state.subscribe(None)
            await self.membership.leave("the consumer unsubscribed", _LEAVE_TIMEOUT_MS)
        with self.lock:
            self.plan.forget(list(self.subscription.partitions))
            self.subscription.unsubscribe()

    def seek(self, partition: TopicPartition, offset: int, offset_epoch: int = -1) -> None:
        """Goes on elsewhere."""
        if offset < 0:
            raise MisuseError(f"{offset} is no offset in {partition}; they begin at 0")
        with self.lock:
            self.subscription.seek(partition, offset, offset_epoch)
            self.plan.forget([partition])
        self._wake_readers()

    def reset(self, partition: TopicPartition, to: int) -> None:
        """Goes on where the partition begins or ends."""
        with self.lock:
            self.subscription.reset(partition, to)
            self.plan.forget([partition])
        self._wake_readers()

    def pause(self, partition: TopicPartition) -> None:
        """Hands out nothing of a partition."""
        with self.lock:
            self.subscription.state(partition).is_paused = True
        self.fetcher.wake()

    def resume(self, partition: TopicPartition) -> None:
        """Hands it out again."""
        with self.lock:
            self.subscription.state(partition).is_paused = False
        self.fetcher.wake()
        self._ready.set()

    # Polling, from the program's thread

    def take(self, records_max: int) -> Records:
        """Records that are here; nothing is waited for. Raises what makes the next one unreadable."""
        try:
            found = self.plan.take(records_max, self.lock)
        except UnreadableError as error:
            raise self._unreadable(error) from error.__cause__
        self._after_taking()
        return self.interceptors.on_consume(found) if self.interceptors and found else found

    def take_chunks(self, bytes_max: int) -> list[Chunk]:
        """Whole batches that are here, by partition; positions move behind them as they do behind records."""
        with self.lock:
            found = self.plan.take_chunks(bytes_max)
        self._after_taking()
        return found

    @property
    def is_settled(self) -> bool:
        """Whether nothing must be done on the loop before records can be taken."""
        state = self.membership.state
        is_due = self._next_auto_commit and self.cluster.clock.monotonic() >= self._next_auto_commit
        is_told = self._error or self._broken or self._is_woken or state.failure
        return not (is_told or state.handover or state.wants_poll or is_due)

    def _after_taking(self) -> None:
        if self.fetcher.is_full:
            with self.lock:
                self.fetcher.is_full = self.plan.is_full
            if not self.fetcher.is_full:
                self.call_soon(self.fetcher.wake)

    # Polling, on the loop

    def begin_poll(self) -> None:
        """Somebody polls; raises what it must be told. To be followed by `end_poll`."""
        self.start()
        state = self.membership.state
        if self._is_woken:
            self._is_woken = False
            raise WakeupError("another thread called wakeup()")
        self.raise_error()
        now = self.cluster.clock.monotonic()
        state.is_polling = True
        state.on_poll(now)
        self.membership.wake()
        self._auto_commit_if_due(now)

    def end_poll(self) -> None:
        """Nobody waits in a poll any more."""
        state = self.membership.state
        state.is_polling = False
        state.touch(self.cluster.clock.monotonic())

    async def wait_ready(self, seconds: float) -> None:
        """Returns when something may be there for whoever polls, or after that long."""
        try:
            async with asyncio.timeout(seconds if seconds != float("inf") else None):
                await self._ready.wait()
        except TimeoutError:
            return
        finally:
            self._ready.clear()

    async def wait_work(self, seconds: float) -> Handover | None:
        """Polls until records are here, something is to be handed over, or after that long; for another thread."""
        clock = self.cluster.clock
        deadline = clock.monotonic() + seconds
        while True:
            self.begin_poll()
            state = self.membership.state
            remaining = deadline - clock.monotonic()
            if state.handover is not None:
                # The other thread does it, whatever the group says meanwhile.
                state.on_handover_started(state.handover)
                return state.handover
            if self.plan.has_records or remaining <= 0:
                return None
            await self.wait_ready(remaining)

    def wakeup(self) -> None:
        """Makes the poll that is under way, or the next one, raise `WakeupError`."""
        self._is_woken = True
        self._ready.set()

    def raise_error(self) -> None:
        """Raises what went wrong in the background, once; what ended the membership, always."""
        if self._broken is not None:
            raise self._broken
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        if self.membership.state.failure is not None:
            raise self.membership.state.failure

    def raise_in_poll(self, error: OttlaError) -> None:
        """Whoever polls next is told; the first error wins."""
        self._error = self._error or error
        self._ready.set()

    async def release(self, handover: Handover) -> None:
        """Before a handover: commits what was read of partitions that go, if that is this consumer's duty."""
        self.membership.state.on_handover_started(handover)
        if handover.revoked and self.config.enable_auto_commit and self.config.group_id is not None:
            await self.commit_quietly(self.offsets_to_commit(handover.revoked))

    def apply(self, handover: Handover) -> None:
        """Has what the handover says."""
        with self.lock:
            gone = set(self.subscription.partitions) - handover.assigned
            self.plan.forget(gone)
            self.subscription.assign_by_group(sorted(handover.assigned))

    def finish(self, handover: Handover) -> None:
        """The listener has heard of it."""
        self.membership.state.on_handover_done(handover)
        self.membership.state.on_poll(self.cluster.clock.monotonic())
        self.membership.wake()
        self._wake_readers()

    # Offsets

    def offsets_to_commit(self, partitions: Collection[TopicPartition] | None = None) -> Offsets:
        """The positions of all partitions that have one, or of these."""
        with self.lock:
            return {
                partition: OffsetAndMetadata(offset, "", epoch)
                for partition, (offset, epoch) in self.subscription.positions().items()
                if partitions is None or partition in partitions
            }

    async def commit(self, offsets: Offsets, timeout_ms: int | None = None) -> None:
        """See `OffsetCommitter.commit`."""
        by_member = self.subscription.kind in (Kind.TOPICS, Kind.PATTERN)
        timeout_ms = self.config.default_api_timeout_ms if timeout_ms is None else timeout_ms
        await self.committer.commit(offsets, by_member=by_member, timeout_ms=timeout_ms)

    async def commit_quietly(self, offsets: Offsets, timeout_ms: int | None = None) -> None:
        """Commits, and only logs if that fails: whoever goes on from the last commit sees some records twice."""
        try:
            await self.commit(offsets, timeout_ms or self.config.request_timeout_ms)
        except OttlaError as error:
            log.warning("offsets were not committed: %s", error)

    def _auto_commit_if_due(self, now: float) -> None:
        if not self.config.enable_auto_commit or self.config.group_id is None or now < self._next_auto_commit:
            return
        is_first = not self._next_auto_commit
        self._next_auto_commit = now + max(self.config.auto_commit_interval_ms / 1000, 0.001)
        offsets = self.offsets_to_commit()
        if not is_first and offsets:
            self.run_behind(self.commit_quietly(offsets))

    def run_behind(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Runs something beside the rest, until it ends or the consumer does."""
        task = self.loop.create_task(work)
        self._background[task] = None
        task.add_done_callback(self._background.pop)
        return task

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Has something called on the loop, from any thread."""
        self.loop.call_soon_threadsafe(callback)

    @property
    def is_fenced(self) -> bool:
        """Whether the group has gone on without this member."""
        state = self.membership.state
        return not state.is_member and not isinstance(state, SoloMembershipState)

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Who this member is at the moment."""
        state = self.membership.state
        return ConsumerGroupMetadata(
            group_id=self.config.group_id or "",
            generation_id=state.generation,
            member_id=state.member_id,
            group_instance_id=self.config.group_instance_id,
        )

    def metrics(self) -> dict[str, float]:
        """Numbers, by name."""
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
            "rebalances_total": float(self.membership.state.rebalances),
            "records_consumed_total": float(self.plan.records_taken),
            "records_lag_max": float(max((lag for lag in lags if lag is not None), default=0)),
            "seconds_until_auto_commit": max(self._next_auto_commit - now, 0.0),
        }

    @staticmethod
    def log_listener_failure() -> None:
        """Nobody polls any more who could be told."""
        log.exception("the rebalance listener failed while the consumer was closed")

    # What happens in the background

    def _tell_group(self) -> None:
        topics = self.subscription.topics
        if self.subscription.kind is Kind.PATTERN and self.config.exclude_internal_topics:
            views = self.cluster.view.topics
            topics = frozenset(topic for topic in topics if topic not in views or not views[topic].is_internal)
        self.membership.state.subscribe(topics)
        self.membership.wake()

    def _watched_topics(self) -> Collection[str] | None:
        kind = self.subscription.kind
        if kind is Kind.PATTERN and self.subscription.pattern is not None:
            return None
        if kind in (Kind.TOPICS, Kind.PATTERN):
            return self.membership.state.watched_topics()
        return {partition.topic for partition in self.subscription.partitions}

    def _on_view(self, view: ClusterView) -> None:
        if self.subscription.kind is Kind.PATTERN:
            with self.lock:
                has_changed = self.subscription.match(view.topics)
            if has_changed:
                self._tell_group()
        counts = {name: len(topic.partitions) for name, topic in view.topics.items()}
        self.membership.state.on_partition_counts(counts, view.racks(view.topics))
        self.membership.wake()
        self.positions.on_metadata()
        self.fetcher.wake()
        self._ready.set()

    def _on_positions(self) -> None:
        self.fetcher.wake()
        self._ready.set()

    def _wake_readers(self) -> None:
        self.positions.wake()
        self.fetcher.wake()

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
                if code is ErrorCode.OFFSET_OUT_OF_RANGE and self.subscription.reset_policy is not None:
                    log.info("%s: there is no such offset; starting over by auto_offset_reset", what)
                    self.plan.forget([problem.partition])
                    self.subscription.reset(problem.partition, self.subscription.reset_policy)
                    continue
            if problem.words is not None:
                words = f"{what}: {problem.words}; seek beyond it to leave it out"
                self.raise_in_poll(UnreadableRecordError(problem.partition, problem.offset, words))
            elif code is ErrorCode.CORRUPT_MESSAGE:
                words = str(CorruptLogError(problem.partition, problem.offset))
                self.raise_in_poll(UnreadableRecordError(problem.partition, problem.offset, words))
            elif code in RETRIABLE_CODES or code is ErrorCode.UNKNOWN_SERVER_ERROR:
                log.info("%s: %s; trying again", what, code.name)
                self.metadata.refresh_soon()
            else:
                words = None
                if code is ErrorCode.OFFSET_OUT_OF_RANGE:
                    words = "there is no such offset, and auto_offset_reset is none; seek to one that exists"
                self.raise_in_poll(answer_error(problem.error_code, what, words))
        self.positions.wake()

    @staticmethod
    def _unreadable(error: UnreadableError) -> OttlaError:
        cause = error.__cause__
        advice = f"seek to {error.offset + 1} or beyond to leave it out"
        if isinstance(cause, CorruptError):
            return UnreadableRecordError(error.partition, error.offset, f"{error}: {cause}; {advice}")
        words = f"{error}: a deserializer raised {type(cause).__name__}: {cause}; {advice}"
        return RecordDeserializationError(error.partition, error.offset, words)
