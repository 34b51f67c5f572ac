"""Decides which records of a parallel consumer are handled now, and up to which offset each partition is done.

Records arrive by partition and in order. Handlers get them out of order, as far as `ordering` allows, and a partition
may be committed up to its oldest record that is not done. Pure: `async_parallel_consumer.py` polls, calls handlers and
commits.

Each record is *waiting* (behind another, or for a worker), *delayed* (until its next retry), *running*, or *done*. In
an ordered queue only the first record may be anything but waiting.
"""

import heapq
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ottla.client.network.backoff import Backoff
from ottla.client.values import ConsumerRecord
from ottla.env.ports import Random
from ottla.model.ids import TopicPartition
from ottla.model.invariants import InvariantViolation

Ordering = Literal["key", "partition", "unordered"]
_QueueKey = bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelLimits:
    """How many records may be handled and buffered."""

    workers: int
    ordering: Ordering = "key"
    buffered_records_max: int = 1000
    buffered_bytes_max: int = 64 << 20
    """Above either, nothing more is fetched until half of it is done."""
    uncommitted_max: int = 10_000
    """How many records a partition may be ahead of its oldest unfinished one before it pauses."""
    retries: int = 3
    backoff: Backoff = field(default_factory=Backoff)


class Work:
    """One record to handle; `attempts` counts how often a handler was called with it."""

    __slots__ = ("attempts", "partition", "record", "size", "track")

    def __init__(self, record: ConsumerRecord, partition: TopicPartition, track: "_Track") -> None:
        self.record = record
        self.partition = partition
        self.track = track
        self.size = max(record.serialized_key_size, 0) + max(record.serialized_value_size, 0)
        self.attempts = 0

    @property
    def is_revoked(self) -> bool:
        """Whether its partition was revoked; its next owner handles the record then."""
        return self.track.is_revoked


class _Track:
    """One partition while it is assigned. `offsets` are in order and start with the oldest unfinished one."""

    __slots__ = (
        "committed",
        "is_behind",
        "is_ending",
        "is_paused",
        "is_revoked",
        "next_offset",
        "offsets",
        "queues",
        "unfinished",
    )

    def __init__(self) -> None:
        self.offsets: deque[int] = deque()
        self.unfinished: dict[int, Work] = {}
        self.queues: dict[_QueueKey, deque[Work]] = {}
        self.next_offset: int | None = None
        """The offset after the last record taken; None before the first."""
        self.committed: int | None = None
        """The committed offset, or the first offset that was read."""
        self.is_paused = False
        self.is_behind = False
        self.is_ending = False
        """No more records of it start."""
        self.is_revoked = False

    @property
    def done_up_to(self) -> int | None:
        """All records below this offset are done; it is never above an offset in `unfinished`."""
        return self.offsets[0] if self.offsets else self.next_offset


class ParallelConsumerState:
    """All partitions of one parallel consumer."""

    def __init__(self, limits: ParallelLimits) -> None:
        self.limits = limits
        self._tracks: dict[TopicPartition, _Track] = {}
        self._ready: deque[Work] = deque()
        self._delayed: list[tuple[float, int, Work]] = []
        self._delays = 0
        self._running: set[Work] = set()
        self._records = 0
        self._bytes = 0
        self._is_full = False

    # Assignment

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Adds partitions; those that are assigned already are left as they are."""
        for partition in partitions:
            self._tracks.setdefault(partition, _Track())

    def end(self, partitions: Collection[TopicPartition]) -> None:
        """Starts no more records of partitions that are about to be revoked; running handlers still count."""
        for partition in partitions:
            if partition in self._tracks:
                self._tracks[partition].is_ending = True
        self._ready = deque(work for work in self._ready if not work.track.is_ending)
        self._delayed = [entry for entry in self._delayed if not entry[2].track.is_ending]
        heapq.heapify(self._delayed)

    def revoke(self, partitions: Collection[TopicPartition]) -> None:
        """Forgets partitions and their waiting records; running handlers no longer count."""
        self.end(partitions)
        for partition in partitions:
            track = self._tracks.pop(partition, None)
            if track is None:
                continue
            track.is_revoked = True
            for work in track.unfinished.values():
                if work not in self._running:
                    self._forget(work)
            track.queues.clear()

    # Polled records

    def take(self, partition: TopicPartition, records: Sequence[ConsumerRecord]) -> None:
        """Takes polled records, in order; ignores partitions that are not assigned or about to be revoked."""
        track = self._tracks.get(partition)
        if track is None or track.is_ending:
            return
        for record in records:
            if track.next_offset is None:
                track.committed = record.offset
            track.next_offset = record.offset + 1
            work = Work(record, partition, track)
            track.offsets.append(record.offset)
            track.unfinished[record.offset] = work
            self._records += 1
            self._bytes += work.size
            if self._stands_alone(record):
                self._ready.append(work)
                continue
            key = self._queue_key(record)
            queue = track.queues.get(key)
            if queue is None:
                track.queues[key] = deque((work,))
                self._ready.append(work)
            else:
                queue.append(work)

    def _stands_alone(self, record: ConsumerRecord) -> bool:
        """Whether the record need not wait for others: there is no ordering, or it has no key."""
        ordering = self.limits.ordering
        return ordering == "unordered" or (ordering == "key" and record.key is None)

    def _queue_key(self, record: ConsumerRecord) -> _QueueKey:
        return record.key if self.limits.ordering == "key" else None

    # Handling

    def next_work(self, now: float) -> list[Work]:
        """The records to handle now; each must be finished by `done` or `failed`."""
        while self._delayed and self._delayed[0][0] <= now:
            self._ready.append(heapq.heappop(self._delayed)[2])
        started: list[Work] = []
        while self._ready and len(self._running) < self.limits.workers:
            work = self._ready.popleft()
            work.attempts += 1
            self._running.add(work)
            started.append(work)
        return started

    def done(self, work: Work) -> None:
        """A record was handled, or is in the dead-letter topic."""
        self._running.remove(work)
        self._forget(work)
        track = work.track
        if track.is_revoked:
            return
        offsets, unfinished = track.offsets, track.unfinished
        del unfinished[work.record.offset]
        while offsets and offsets[0] not in unfinished:
            offsets.popleft()
        if not self._stands_alone(work.record):
            key = self._queue_key(work.record)
            queue = track.queues[key]
            queue.popleft()
            if not queue:
                del track.queues[key]
            elif not track.is_ending:
                self._ready.append(queue[0])

    def failed(self, work: Work, now: float, random: Random, *, is_final: bool = False) -> bool:
        """A handler failed. Returns False if the record will be retried, or its partition was revoked.

        Returns True after the last retry, or with `is_final`: the record counts as running until `done` is called.
        """
        if work.is_revoked:
            self._running.remove(work)
            self._forget(work)
            return False
        if is_final or work.attempts > self.limits.retries:
            return True
        self._running.remove(work)
        if work.track.is_ending:
            return False
        due = now + self.limits.backoff.wait_ms(work.attempts, random) / 1000
        self._delays += 1
        heapq.heappush(self._delayed, (due, self._delays, work))
        return False

    def _forget(self, work: Work) -> None:
        self._records -= 1
        self._bytes -= work.size

    def next_deadline(self) -> float | None:
        """When the next delayed record is due, None without any."""
        return self._delayed[0][0] if self._delayed else None

    # Commits

    def committable(self, partitions: Collection[TopicPartition] | None = None) -> dict[TopicPartition, int]:
        """The offsets to commit, of these partitions or all, where more is done than committed."""
        found: dict[TopicPartition, int] = {}
        for partition, track in self._tracks.items():
            offset = track.done_up_to
            is_asked = partitions is None or partition in partitions
            if is_asked and offset is not None and offset != track.committed:
                found[partition] = offset
        return found

    def committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """These offsets are committed."""
        for partition, offset in offsets.items():
            if partition in self._tracks:
                self._tracks[partition].committed = offset

    def running_of(self, partitions: Collection[TopicPartition] | None = None) -> list[Work]:
        """The running records of these partitions, or all."""
        return [work for work in self._running if partitions is None or work.partition in partitions]

    # Back-pressure

    @property
    def is_full(self) -> bool:
        """Whether to stop fetching: true from the limit on, until half of it is done."""
        limits = self.limits
        if self._records >= limits.buffered_records_max or self._bytes >= limits.buffered_bytes_max:
            self._is_full = True
        elif self._records <= limits.buffered_records_max // 2 and self._bytes <= limits.buffered_bytes_max // 2:
            self._is_full = False
        return self._is_full

    @property
    def room(self) -> int:
        """How many more records may be taken."""
        return max(self.limits.buffered_records_max - self._records, 0)

    @property
    def buffered(self) -> int:
        """How many records are waiting, delayed or running."""
        return self._records

    def pauses(self) -> tuple[set[TopicPartition], set[TopicPartition]]:
        """The partitions to pause now and those to resume; the next call assumes that both was done."""
        is_full, limit = self.is_full, self.limits.uncommitted_max
        to_pause: set[TopicPartition] = set()
        to_resume: set[TopicPartition] = set()
        for partition, track in self._tracks.items():
            if len(track.offsets) >= limit:
                track.is_behind = True
            elif len(track.offsets) <= limit // 2:
                track.is_behind = False
            wanted = is_full or track.is_behind
            if wanted is not track.is_paused:
                track.is_paused = wanted
                (to_pause if wanted else to_resume).add(partition)
        return to_pause, to_resume

    def check(self) -> None:
        """Raises `InvariantViolation` if counts or orders are inconsistent."""
        delayed = {entry[2] for entry in self._delayed}
        ready = set(self._ready)
        held = list(self._running)
        for track in self._tracks.values():
            held += [work for work in track.unfinished.values() if work not in self._running]
            if track.unfinished and min(track.unfinished) != track.done_up_to:
                raise InvariantViolation(f"{track.done_up_to} is not the oldest unfinished offset")
            for queue in track.queues.values():
                if any(work in self._running or work in ready or work in delayed for work in list(queue)[1:]):
                    raise InvariantViolation("a record was started although an earlier one of its queue is not done")
                if not track.is_ending and queue[0] not in self._running | ready | delayed:
                    raise InvariantViolation("the first record of a queue is neither running nor ready nor delayed")
        if (len(held), sum(work.size for work in held)) != (self._records, self._bytes):
            raise InvariantViolation(f"{self._records} records are counted, but {len(held)} are held")
        if len(self._running) > self.limits.workers:
            raise InvariantViolation(f"{len(self._running)} records are running with {self.limits.workers} workers")
