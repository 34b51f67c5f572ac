"""Fetch: ranges of files for what a consumer or a follower wants, or a wait until there is enough of it.

Covers limits, sessions, isolation, leader epochs and the throttling of followers that are behind. A follower's fetch
also says how far it has come. A full response has every partition that was asked for, an incremental one those with
news. The bytes themselves are not touched: the transport sends ranges.
"""

from operator import itemgetter
from typing import TYPE_CHECKING, Final, cast

from ottla.broker.fetch_sessions import FetchPlan, SessionPartition
from ottla.broker.read_replicas import check_copy_has, copy_to_read, is_rack_aware, nearer_replica
from ottla.metadata.records import broker_key
from ottla.model.errors import NotLeaderError, OffsetOutOfRangeError, OttlaError, StorageError
from ottla.model.ids import NO_OFFSET, BrokerId, LeaderEpoch, Offset
from ottla.protocol.replica_fetch_frames import Asker
from ottla.protocol.scan import FetchRequest, FetchResult
from ottla.replication.fetch_waiter import FetchWaiter
from ottla.replication.partition import Partition
from ottla.storage.segment import FileRange
from ottla.transport.connection import Slot

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

PARTITIONS_MAX: Final = 50_000
"""Of one request: each is looked at in microseconds, during which nobody else is served."""

_READ_COMMITTED: Final = 1
_NO_EPOCH: Final = -1
_FOLLOWER_READS_SINCE: Final = 11
_RESPONSE_BYTES_MAX: Final = 2**31 - 1 - 64 * 1024 * 1024
"""A frame's size must fit its 32 bits, headers included."""


class PendingFetch:
    """One request, from its first look at the partitions to its response."""

    __slots__ = (
        "_broker",
        "_is_rack_aware",
        "_plan",
        "_replica",
        "_request",
        "_slot",
        "_throttled_seconds",
        "_waiter",
    )

    def __init__(self, broker: "Broker", request: FetchRequest, slot: Slot) -> None:
        self._broker = broker
        self._request = request
        self._slot = slot
        self._plan: FetchPlan = broker.fetch_sessions.plan(request, broker.clock.monotonic())
        self._waiter: FetchWaiter | None = None
        self._throttled_seconds = 0.0
        """How long a follower has to wait for what it may not have yet."""
        self._replica = _follower_of(broker, request)
        self._is_rack_aware = (
            request.replica_id < 0 and request.version >= _FOLLOWER_READS_SINCE and is_rack_aware(broker)
        )
        """Whether a follower may be read, here or elsewhere."""
        if self._replica is not None:
            # It asks again because it wants something else by now; answers leave in order, so the first must not wait.
            earlier = broker.waiting_followers.pop(self._replica.broker, None)
            if earlier is not None:
                earlier.finish()

    def start(self) -> None:
        """Answers at once if there is enough, or nothing to wait for; else waits."""
        request = self._request
        if self._plan.error:
            self._complete(request.answer(int(self._plan.error), 0, [], [], 0))
            return
        results, size, has_failed = self._read()
        if size >= request.min_bytes or request.max_wait_ms <= 0 or has_failed or not self._plan.partitions:
            self._answer(results)
            return
        partitions = [partition for each in self._plan.partitions if (partition := self._find(each)) is not None]
        self._waiter = FetchWaiter(
            partitions,
            missing_bytes=request.min_bytes - size,
            is_committed=request.isolation_level == _READ_COMMITTED,
            max_wait_ms=self._wait_ms(),
            timers=self._broker.timers,
            on_ready=self._on_ready,
            is_replica=self._replica is not None,
        )
        if self._replica is not None:
            self._broker.waiting_followers[self._replica.broker] = self._waiter
        self._slot.on_abandoned = self._on_abandoned

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
            return self._broker.partitions.find(wanted.topic, wanted.index)
        except NotLeaderError:
            copy = copy_to_read(self._broker, wanted.topic, wanted.index) if self._is_rack_aware else None
            if copy is None:
                raise
            return copy

    def _on_ready(self) -> None:
        """Reads when the turn's appends are all done, so that one response has them all."""
        self._broker.turn.add_wake(self._finish)

    def _finish(self) -> None:
        try:
            if not self._slot.connection.is_closed():
                self._answer(self._read()[0])
        except Exception as error:
            self._slot.fail(f"a fetch cannot be answered: {error}")
            raise

    def _on_abandoned(self) -> None:
        if self._waiter is not None:
            self._waiter.cancel()

    def _read(self) -> tuple[list[FetchResult], int, bool]:
        """(a result for each partition, bytes of records in them, whether one has failed)."""
        request = self._request
        left = min(max(request.max_bytes, 0), self._broker.fetch_bytes_max, _RESPONSE_BYTES_MAX)
        is_committed = request.isolation_level == _READ_COMMITTED
        results: list[FetchResult] = []
        size = 0
        has_failed = False
        for wanted in self._plan.partitions:
            result = self._read_one(wanted, min(wanted.max_bytes, left), is_committed, is_first=size == 0)
            results.append(result)
            size += result[9]
            left = max(left - result[9], 0)
            # Who is to go elsewhere need not wait here.
            has_failed = has_failed or result[2] != 0 or result[7] >= 0 or result[10] is not None
        return results, size, has_failed

    def _read_one(self, wanted: SessionPartition, max_bytes: int, is_committed: bool, *, is_first: bool) -> FetchResult:
        topic, index = wanted.topic, wanted.index
        try:
            partition = self._readable(wanted)
            partition.check_leader_epoch(wanted.current_epoch)
            log = partition.log
            if self._is_rack_aware:
                nearer = self._nearer(partition, Offset(wanted.fetch_offset))
                if nearer is not None:
                    return (
                        topic, index, 0, log.high_watermark, log.last_stable_offset, log.start_offset,
                        None, nearer, None, 0, None, None,
                    )  # fmt: skip
            diverging = _diverging(partition, wanted)
            if diverging is not None:
                return (
                    topic, index, 0, log.high_watermark, log.last_stable_offset, log.start_offset,
                    None, -1, None, 0, diverging, None,
                )  # fmt: skip
            if self._replica is not None:
                return self._read_for_replica(self._replica, partition, wanted, max(max_bytes, 0), is_first=is_first)
            found = partition.read(
                Offset(wanted.fetch_offset),
                max(max_bytes, 0),
                is_committed=is_committed,
                at_least_one=is_first,
            )
            stable = log.last_stable_offset
            aborted = _aborted(partition, Offset(wanted.fetch_offset), found) if is_committed else None
            if found is None or found.size == 0:
                return (topic, index, 0, log.high_watermark, stable, log.start_offset, aborted, -1, None, 0, None, None)
            partition.fetched_bytes += found.size
            return (
                topic, index, 0, log.high_watermark, stable, log.start_offset,
                aborted, -1, found, found.size, None, None,
            )  # fmt: skip
        except OttlaError as error:
            if isinstance(error, StorageError):
                self._broker.report_failure(error)
            self._broker.failed_fetches += 1
            leader = self._broker.leader_hint(topic, index) if isinstance(error, NotLeaderError) else None
            code = int(self._broker.repairs.code_of(error, topic, index))
            return (topic, index, code, -1, -1, -1, None, -1, None, 0, None, leader)

    def _nearer(self, partition: Partition, offset: Offset) -> BrokerId | None:
        """Where a consumer should rather read; None if here."""
        if partition.leader is None:
            check_copy_has(partition, offset)
            return None
        rack = self._request.rack_id
        return nearer_replica(self._broker, partition, rack, offset) if rack else None

    def _read_for_replica(
        self, replica: Asker, partition: Partition, wanted: SessionPartition, max_bytes: int, *, is_first: bool
    ) -> FetchResult:
        log, offset = partition.log, Offset(wanted.fetch_offset)
        try:
            found = partition.read_as_replica(offset, max_bytes, at_least_one=is_first)
        except OffsetOutOfRangeError as error:
            # The follower has to know where to go instead, and Kafka's answer has no better place for the end.
            return (
                wanted.topic, wanted.index, int(error.code), log.end_offset, log.end_offset, log.start_offset,
                None, -1, None, 0, None, None,
            )  # fmt: skip
        partition.on_follower_fetch(
            replica.broker,
            offset=offset,
            start_offset=Offset(wanted.log_start_told),
            # Of no life: in the ISR it counts, but nobody of that epoch can be added to it.
            broker_epoch=_NO_EPOCH if replica.is_leaving else replica.broker_epoch,
        )
        self._broker.isr_changes.on_follower_fetch(partition, replica.broker)
        size = self._allowed(replica.broker, partition, found.size if found is not None else 0)
        partition.replicated_bytes += size
        return (
            wanted.topic, wanted.index, 0, log.high_watermark, log.last_stable_offset, log.start_offset,
            None, -1, found if size else None, size, None, None,
        )  # fmt: skip

    def _allowed(self, replica: BrokerId, partition: Partition, size: int) -> int:
        """How much of so many bytes the follower may have now: all, or nothing if it is to be slowed down."""
        throttle = self._broker.throttles.of_leader(partition) if size else None
        if throttle is None:
            return size
        now = self._broker.clock.monotonic()
        seconds = throttle.seconds_until_open(now)
        # Who is in sync must stay so.
        if seconds and partition.leader is not None and replica not in partition.leader.isr:
            self._throttled_seconds = min(seconds, self._throttled_seconds or seconds)
            return 0
        throttle.record(size, now)
        return size

    def _answer(self, results: list[FetchResult]) -> None:
        plan, request = self._plan, self._request
        session = plan.session
        if session is not None:
            served = [(result[0], result[1]) for result in results if result[9]]
            told = [
                result
                for wanted, result in zip(plan.partitions, results, strict=True)
                if wanted.has_news(result[2], result[3], result[5], result[9])
                or plan.is_full
                or result[7] >= 0
                or result[10] is not None
            ]
            session.rotate(served)
            results = told
        endpoints = self._broker.endpoints_of(results, 11)
        results = _grouped(results)
        self._complete(request.answer(0, plan.session_id, results, endpoints, 0))

    def _complete(self, pieces: list[bytes | object]) -> None:
        # What lies between the bytes are the ranges that storage gave.
        self._slot.complete(cast("list[bytes | FileRange]", pieces))


def fetch(broker: "Broker", request: FetchRequest, slot: Slot) -> None:
    """Serves one request; its slot is completed now, or when there is enough to read."""
    if len(request.wanted) > PARTITIONS_MAX:
        slot.fail(f"a fetch names {len(request.wanted)} partitions, {PARTITIONS_MAX} at most")
        return
    PendingFetch(broker, request, slot).start()


def _follower_of(broker: "Broker", request: FetchRequest) -> Asker | None:
    """Which follower asks, None if it is a consumer; only the present life of a registered broker is believed."""
    if request.replica_id < 0 or request.replica_epoch == _NO_EPOCH:
        return None
    replica = Asker.read(BrokerId(request.replica_id), request.replica_epoch)
    image = broker.image
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
    """Where the asker's history leaves ours, if it says how far it has come in which epoch."""
    if wanted.last_epoch < 0:
        return None
    epoch, end_offset = partition.log.epochs.end_offset_for(LeaderEpoch(wanted.last_epoch), partition.end_offset)
    if end_offset == NO_OFFSET:
        raise OffsetOutOfRangeError(
            f"{partition.topic}-{partition.index} never was in leader epoch {wanted.last_epoch}, which the reader knows"
        )
    if epoch < wanted.last_epoch or end_offset < wanted.fetch_offset:
        return (epoch, end_offset)
    return None


def _grouped(results: list[FetchResult]) -> list[FetchResult]:
    """Neighbours of one topic together, since a response names each topic once; mostly they are already."""
    seen: set[str | bytes] = set()
    last: str | bytes | None = None
    for result in results:
        if result[0] != last:
            if result[0] in seen:
                order: dict[str | bytes, list[FetchResult]] = {}
                for each in results:
                    order.setdefault(each[0], []).append(each)
                return [each for group in order.values() for each in group]
            last = result[0]
            seen.add(last)
    return results
