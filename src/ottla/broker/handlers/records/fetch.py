"""Fetch: ranges of files for what a consumer or a follower wants, or a wait until there is enough of it.

Covers limits, sessions, isolation, leader epochs and the throttling of followers that are behind. A follower's fetch
also says how far it has come. A full response has every partition that was asked for, an incremental one those with
news. The bytes themselves are not touched: the transport sends ranges.
"""

from collections.abc import Mapping
from operator import itemgetter
from typing import Final, cast

from ottla.broker.requests.fetch_sessions import NO_SESSION, FetchPlan, SessionPartition
from ottla.broker.requests.leader_hints import endpoints_of, leader_hint, topic_name
from ottla.broker.requests.services import Services
from ottla.broker.requests.throttling import throttle
from ottla.metadata.records import broker_key
from ottla.model.errors import NotLeaderError, OffsetOutOfRangeError, OttlaError, StorageError, UnknownTopicIdError
from ottla.model.ids import NO_OFFSET, BrokerId, LeaderEpoch, Offset
from ottla.protocol.replica_fetch_frames import Follower
from ottla.protocol.results import FetchResult
from ottla.protocol.scan import FetchRequest
from ottla.replication.fetch_waiter import FetchWaiter
from ottla.replication.partition import Partition
from ottla.replication.read_replicas import check_copy_has, copy_to_read, is_rack_aware, nearer_replica
from ottla.security.audit import log_denials
from ottla.security.authorizer import TopicAuthorizationError, allows_cached
from ottla.security.resources import CLUSTER_NAME, Operation, ResourceType
from ottla.storage.segments.segment import FileRange
from ottla.transport.connection import Slot

PARTITIONS_MAX: Final = 250_000
"""Of one request: each takes microseconds, in which no other request is served."""

_NOTHING_DENIED: Final[Mapping[str | bytes, OttlaError]] = {}
_READ_COMMITTED: Final = 1
_NO_EPOCH: Final = -1
_FOLLOWER_READS_SINCE: Final = 11
_RESPONSE_BYTES_MAX: Final = 2**31 - 1 - 64 * 1024 * 1024
"""A frame's size must fit its 32 bits, headers included."""


class PendingFetch:
    """One request, from its first look at the partitions to its response."""

    __slots__ = (
        "_config",
        "_denied",
        "_has_failed",
        "_is_rack_aware",
        "_plan",
        "_quota_bytes",
        "_replica",
        "_request",
        "_services",
        "_slot",
        "_throttled_seconds",
        "_waiter",
    )

    def __init__(self, services: Services, request: FetchRequest, slot: Slot) -> None:
        self._services = services
        self._config = services.config
        self._request = request
        self._slot = slot
        self._has_failed = False
        """Whether a partition was answered with something other than records, for which the client need not wait."""
        self._plan: FetchPlan = services.fetch_sessions.plan(request, services.clock.monotonic(), slot.client.principal)
        self._waiter: FetchWaiter | None = None
        self._throttled_seconds = 0.0
        """How long a follower has to wait for what it may not have yet."""
        self._denied = _NOTHING_DENIED if services.authorizer.allows_all else self._denied_topics()
        """The error of each topic that the client may not read."""
        self._replica = _follower_of(services, request, slot)
        self._is_rack_aware = (
            request.replica_id < 0 and request.version >= _FOLLOWER_READS_SINCE and is_rack_aware(self._config.values)
        )
        """Whether a follower may be read, here or elsewhere."""
        quotas = services.quotas
        self._quota_bytes = (
            None
            if quotas.is_unlimited or request.replica_id >= 0
            else quotas.fetch_bytes_max(slot.client, request.client_id)
        )
        """More could never be sent within the client's quota."""
        if self._replica is not None:
            # It asks again because it wants something else by now; answers leave in order, so the first must not wait.
            earlier = services.waiting_followers.pop(self._replica.broker, None)
            if earlier is not None:
                earlier.finish()

    def start(self) -> None:
        """Answers at once if there is enough, or nothing to wait for; else waits."""
        request = self._request
        if self._plan.error:
            self._complete(request.answer(int(self._plan.error), 0, [], [], 0))
            return
        results, size = self._read()
        min_bytes = request.min_bytes
        if self._quota_bytes is not None and min_bytes > self._quota_bytes:
            min_bytes = self._quota_bytes
        if size >= min_bytes or request.max_wait_ms <= 0 or self._has_failed or not self._plan.partitions:
            self._answer(results)
            return
        partitions = [partition for each in self._plan.partitions if (partition := self._find(each)) is not None]
        self._waiter = FetchWaiter(
            partitions,
            missing_bytes=min_bytes - size,
            is_committed=request.isolation_level == _READ_COMMITTED,
            max_wait_ms=self._wait_ms(),
            timers=self._services.timers,
            on_ready=self._on_ready,
            is_replica=self._replica is not None,
        )
        if self._replica is not None:
            self._services.waiting_followers[self._replica.broker] = self._waiter
        self._slot.on_abandoned = self._on_abandoned

    def _denied_topics(self) -> Mapping[str | bytes, OttlaError]:
        """All topics are denied to a follower that may not act for the cluster. A topic id without a name in the image
        is unknown, even if its partition is already served: its name, and so the permission, is not known yet."""
        services, client = self._services, self._slot.client
        if services.authorizer.allows_all:
            return _NOTHING_DENIED
        topics = dict.fromkeys(wanted.topic for wanted in self._plan.partitions)
        denied = TopicAuthorizationError("the client is not authorized to read this topic")
        if self._request.replica_id >= 0:
            return _NOTHING_DENIED if _may_replicate(services, self._slot) else dict.fromkeys(topics, denied)
        errors: dict[str | bytes, OttlaError] = {}
        for topic in topics:
            name = topic_name(services.image, topic)
            if name is None:
                errors[topic] = UnknownTopicIdError("no topic has this id")
            elif not allows_cached(services.authorizer, client, Operation.READ, ResourceType.TOPIC, name):
                errors[topic] = denied
        return errors

    def _wait_ms(self) -> int:
        wait_ms: int = self._request.max_wait_ms
        if self._throttled_seconds and self._throttled_seconds * 1000 < wait_ms:
            return int(self._throttled_seconds * 1000) + 1
        return wait_ms

    def _find(self, wanted: SessionPartition) -> Partition | None:
        try:
            return self._readable(wanted)
        except OttlaError:
            return None

    def _readable(self, wanted: SessionPartition) -> Partition:
        """The partition, if it is led here, or copied here and may be read so. Raises as the table does."""
        try:
            return self._services.partitions.find(wanted.topic, wanted.index)
        except NotLeaderError:
            copy = (
                copy_to_read(self._services.image, self._services.partitions, wanted.topic, wanted.index)
                if self._is_rack_aware
                else None
            )
            if copy is None:
                raise
            return copy

    def _on_ready(self) -> None:
        """Reads when the turn's appends are all done, so that one response has them all."""
        self._services.turn.add_wake(self._finish)

    def _finish(self) -> None:
        try:
            if not self._slot.is_abandoned:
                # Permissions may have changed while the fetch waited.
                self._denied = self._denied_topics()
                log_denials(self._slot.client)
                self._answer(self._read()[0])
        except Exception as error:
            self._slot.fail(f"cannot answer a Fetch request: {error}")
            raise

    def _on_abandoned(self) -> None:
        if self._waiter is None:
            return
        if self._slot.is_abandoned:
            self._waiter.cancel()
        else:
            # The client sends no more and has probably gone: it need not be waited for.
            self._waiter.finish()

    def _read(self) -> tuple[list[FetchResult], int]:
        """(a result for each partition, bytes of records in them). Also sets whether one has failed."""
        request = self._request
        is_committed = request.isolation_level == _READ_COMMITTED
        results: list[FetchResult] = []
        size = 0
        self._has_failed = False
        # Comparisons, as this runs for every partition: `min` and `max` cost as much as finding the partition.
        left = self._config.fetch_max_bytes
        if left > request.max_bytes:
            left = request.max_bytes
        if left > _RESPONSE_BYTES_MAX:
            left = _RESPONSE_BYTES_MAX
        quota_bytes = self._quota_bytes
        if quota_bytes is not None and left > quota_bytes:
            left = quota_bytes
        for wanted in self._plan.partitions:
            max_bytes = wanted.max_bytes if wanted.max_bytes < left else left
            result = self._read_one(wanted, max_bytes if max_bytes > 0 else 0, is_committed, is_first=size == 0)
            results.append(result)
            found_bytes = result.size
            if found_bytes:
                size += found_bytes
                left -= found_bytes
            elif result.error_code != 0 or result.preferred_read_replica >= 0 or result.diverging is not None:
                # A client that is sent to another replica, or has to truncate, need not wait.
                self._has_failed = True
        return results, size

    def _read_one(self, wanted: SessionPartition, max_bytes: int, is_committed: bool, *, is_first: bool) -> FetchResult:
        topic, index = wanted.topic, wanted.index
        try:
            if self._denied and topic in self._denied:
                raise self._denied[topic]
            partition = self._readable(wanted)
            if wanted.current_epoch != _NO_EPOCH:
                partition.check_leader_epoch(wanted.current_epoch)
            log, offset = partition.log, Offset(wanted.fetch_offset)
            if self._is_rack_aware:
                nearer = self._nearer(partition, offset)
                if nearer is not None:
                    return FetchResult(
                        topic, index, 0, log.high_watermark, log.last_stable_offset, log.start_offset,
                        preferred_read_replica=nearer,
                    )  # fmt: skip
            diverging = _diverging(partition, wanted) if wanted.last_epoch >= 0 else None
            if diverging is not None:
                return FetchResult(
                    topic, index, 0, log.high_watermark, log.last_stable_offset, log.start_offset, diverging=diverging
                )
            if self._replica is not None:
                return self._read_for_replica(self._replica, partition, wanted, max_bytes, is_first=is_first)
            found = partition.read(offset, max_bytes, is_committed=is_committed, at_least_one=is_first)
            # A follower that is not registered here yet reads like a consumer, but needs the log as it is.
            if partition.ttl_ms is not None and found is not None and self._request.replica_id < 0:
                return self._without_expired(partition, wanted, found, max_bytes, is_committed, is_first=is_first)
            stable = log.last_stable_offset
            aborted = _aborted(partition, offset, found) if is_committed else None
            if found is None or found.size == 0:
                return FetchResult(topic, index, 0, log.high_watermark, stable, log.start_offset, aborted)
            partition.fetched_bytes += found.size
            return FetchResult(
                topic, index, 0, log.high_watermark, stable, log.start_offset, aborted, -1, found, found.size
            )
        except OttlaError as error:
            if isinstance(error, StorageError):
                self._services.report_failure(error)
            self._services.counts.failed_fetches += 1
            leader = leader_hint(self._services.image, topic, index) if isinstance(error, NotLeaderError) else None
            code = int(self._services.repairs.code_of(error, topic, index))
            return FetchResult(topic, index, code, leader=leader)

    def _without_expired(
        self,
        partition: Partition,
        wanted: SessionPartition,
        found: FileRange,
        max_bytes: int,
        is_committed: bool,
        *,
        is_first: bool,
    ) -> FetchResult:
        """The result for a topic with a TTL: `found`, or what is left of it."""
        log = partition.log
        read = self._services.expiry.read(
            partition,
            Offset(wanted.fetch_offset),
            found,
            max(max_bytes, 0),
            is_committed=is_committed,
            at_least_one=is_first,
        )
        aborted = _aborted(partition, read.offset, read.found) if is_committed else None
        partition.fetched_bytes += read.size
        return FetchResult(
            wanted.topic, wanted.index, 0, log.high_watermark, log.last_stable_offset, log.start_offset, aborted, -1,
            read.records, read.size,
        )  # fmt: skip

    def _nearer(self, partition: Partition, offset: Offset) -> BrokerId | None:
        """Where a consumer should rather read; None if here."""
        if partition.leader is None:
            check_copy_has(partition, offset)
            return None
        rack = self._request.rack_id
        if not rack or rack == self._services.config.broker_rack:
            return None
        return nearer_replica(partition, offset, rack, self._services.image.brokers)

    def _read_for_replica(
        self, replica: Follower, partition: Partition, wanted: SessionPartition, max_bytes: int, *, is_first: bool
    ) -> FetchResult:
        log, offset = partition.log, Offset(wanted.fetch_offset)
        try:
            found = partition.read_as_replica(offset, max_bytes, at_least_one=is_first)
        except OffsetOutOfRangeError as error:
            # The follower has to know where to continue, and the response has no better field for the end offset.
            return FetchResult(wanted.topic, wanted.index, error.code, log.end_offset, log.end_offset, log.start_offset)
        partition.on_follower_fetch(
            replica.broker,
            offset=offset,
            start_offset=Offset(wanted.log_start_told),
            # A broker that leaves counts while it is in the ISR, but cannot be added to it.
            broker_epoch=_NO_EPOCH if replica.is_leaving else replica.broker_epoch,
        )
        self._services.isr_proposals.on_follower_fetch(partition, replica.broker)
        size = self._allowed(replica.broker, partition, found.size if found is not None else 0)
        partition.replicated_bytes += size
        return FetchResult(
            wanted.topic, wanted.index, 0, log.high_watermark, log.last_stable_offset, log.start_offset,
            records=found if size else None, size=size,
        )  # fmt: skip

    def _allowed(self, replica: BrokerId, partition: Partition, size: int) -> int:
        """How many of these bytes the follower may get now: all, or none while it is throttled."""
        throttle = self._services.throttles.of_leader(partition) if size else None
        if throttle is None:
            return size
        now = self._services.clock.monotonic()
        seconds = throttle.seconds_until_open(now)
        # Replicas in the ISR are not throttled, so that they stay in it.
        if seconds and partition.leader is not None and replica not in partition.leader.isr:
            self._throttled_seconds = min(seconds, self._throttled_seconds or seconds)
            return 0
        throttle.record(size, now)
        return size

    def _answer(self, results: list[FetchResult]) -> None:
        plan, request = self._plan, self._request
        services = self._services
        # Followers are exempt, but a client that only claims to be one is not.
        if not services.quotas.is_unlimited and (request.replica_id < 0 or not _may_replicate(services, self._slot)):
            size = sum(result.size for result in results)
            throttle_ms = throttle(self._services.quotas, request, self._slot, size)
            if throttle_ms:
                # The client asks again for the same. To a full fetch it expects all partitions: it discards an empty
                # response together with the session.
                if plan.is_full:
                    self._services.fetch_sessions.forget(plan.session_id)
                session_id = NO_SESSION if plan.is_full else plan.session_id
                self._complete(request.answer(0, session_id, [], [], throttle_ms))
                return
        session = plan.session
        if session is not None:
            served = [(result.topic, result.partition) for result in results if result.size]
            told = [
                result
                for number, result in enumerate(results)
                if plan.partitions[number].has_news(
                    result.error_code, result.high_watermark, result.log_start_offset, result.size
                )
                or plan.is_full
                or result.preferred_read_replica >= 0
                or result.diverging is not None
            ]
            session.rotate(served)
            results = told
        endpoints = endpoints_of(self._services.image, self._slot.client.listener, results) if self._has_failed else []
        results = _grouped(results) if len(results) > 1 else results
        self._complete(request.answer(0, plan.session_id, results, endpoints, 0))

    def _complete(self, pieces: list[bytes | object]) -> None:
        # What lies between the bytes of the response are the ranges that storage gave, or rewritten batches.
        self._slot.complete(cast("list[bytes | FileRange]", pieces))


def fetch(services: Services, request: FetchRequest, slot: Slot) -> None:
    """Serves one request; its slot is completed now, or when there is enough to read."""
    if len(request.wanted) > PARTITIONS_MAX:
        slot.fail(f"a Fetch request has {len(request.wanted)} partitions; the limit is {PARTITIONS_MAX}")
        return
    PendingFetch(services, request, slot).start()


def _may_replicate(services: Services, slot: Slot) -> bool:
    return allows_cached(services.authorizer, slot.client, Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)


def _follower_of(services: Services, request: FetchRequest, slot: Slot) -> Follower | None:
    """The follower that sent the request, None if a consumer did. It must be registered with this epoch, and may have
    to be authorized."""
    if request.replica_id < 0 or request.replica_epoch == _NO_EPOCH or not _may_replicate(services, slot):
        return None
    replica = Follower.read(BrokerId(request.replica_id), request.replica_epoch)
    image = services.image
    is_known = replica.broker in image.brokers and image.revision_of(broker_key(replica.broker)) == replica.broker_epoch
    return replica if is_known else None


def _aborted(partition: Partition, offset: Offset, found: FileRange | None) -> list[tuple[int, int]]:
    """(producer id, first offset) of the aborted transactions in what was found from `offset` on.

    In the order in which they began: kafkajs takes them to be, where others sort by themselves.
    """
    if found is None:
        return []
    log = partition.log
    aborted = log.aborted_transactions(offset, log.last_stable_offset, found)
    return sorted(((int(each.producer_id), int(each.first_offset)) for each in aborted), key=itemgetter(1))


def _diverging(partition: Partition, wanted: SessionPartition) -> tuple[int, int] | None:
    """Where the reader's log diverges from this one, if the request has the epoch of its last record."""
    if wanted.last_epoch < 0:
        return None
    epoch, end_offset = partition.log.epochs.end_offset_for(LeaderEpoch(wanted.last_epoch), partition.end_offset)
    if end_offset == NO_OFFSET:
        raise OffsetOutOfRangeError(
            f"{partition.topic}-{partition.index} never had leader epoch {wanted.last_epoch}, which the request names"
        )
    if epoch < wanted.last_epoch or end_offset < wanted.fetch_offset:
        return (epoch, end_offset)
    return None


def _grouped(results: list[FetchResult]) -> list[FetchResult]:
    """Neighbours of one topic together, since a response names each topic once; mostly they are already."""
    seen: set[str | bytes] = set()
    last: str | bytes | None = None
    for result in results:
        # Mostly the same object: a scan gives the partitions of one topic the same one.
        if result.topic is not last and result.topic != last:
            if result.topic in seen:
                order: dict[str | bytes, list[FetchResult]] = {}
                for each in results:
                    order.setdefault(each.topic, []).append(each)
                return [each for group in order.values() for each in group]
            last = result.topic
            seen.add(last)
    return results
