"""Queues of topics: which topics have them, what is parked and when it is due, and instructions about parked records.

Counting reads the log of a companion twice, so that a page only does it for logs of a bounded length; longer ones are
counted by a job. The work is that of `ottla queues` (`ottla.operations.queues`).
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ottla.client.errors import AnswerError, UnsupportedByBrokerError
from ottla.client.network.list_offsets import offset_bounds
from ottla.console.cluster.access import Access
from ottla.console.cluster.jobs import Job
from ottla.console.errors import NotFoundError
from ottla.console.services.topic_changes import check_id, parse_points, write_points
from ottla.console.services.topics import topic_view
from ottla.console.web.human import plural, time_text
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import InvalidRequestError
from ottla.model.ids import TopicPartition
from ottla.model.queue_names import DELAY_ID, HALF_CHECKS, HALF_ID, RETRY_ATTEMPT, RETRY_REASON, CompanionKind
from ottla.operations.queues import instructions
from ottla.operations.queues.due_histogram import Bucket
from ottla.operations.queues.owed_scan import Parked
from ottla.operations.queues.parked import (
    ParkingQueue,
    QueueCounts,
    chosen_if,
    count_parked,
    inspect_queue,
    parked_at,
    parking_queues,
)
from ottla.operations.queues.queue_topics import NoQueueError, QueueTopic, queue_topics

SCANNED_MAX: Final = 100_000
"""Offsets of a queue that a page reads (twice)."""
LISTED_MAX: Final = 50
_LARGE_REQUEST: Final = {"max_request_size": 64 << 20, "buffer_memory": 128 << 20}


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRow:
    """One topic with queues."""

    topic: QueueTopic
    log: Mapping[str, int]
    """Offsets in the log of each companion that parks records: an upper bound of what is parked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueList:
    """All topics with queues at one time."""

    rows: Sequence[QueueRow]
    at_ms: int
    is_supported: bool = True
    """False if the brokers have no queues: Apache Kafka."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkedRow:
    """One parked record."""

    parked: Parked
    kind: CompanionKind

    @property
    def place(self) -> str:
        """As `ottla queues peek` names it."""
        return f"{self.parked.partition.partition}:{self.parked.record.offset}"

    @property
    def due_ms(self) -> int:
        """When it is delivered, or asked about."""
        return self.parked.owed.due_ms

    @property
    def headers(self) -> dict[str, bytes | None]:
        """The last one of each name."""
        return dict(self.parked.record.headers)

    @property
    def id(self) -> bytes | None:
        """Its `ottla.delay.id` or `ottla.half.id`."""
        headers = self.headers
        return headers.get(DELAY_ID) or headers.get(HALF_ID)

    @property
    def note(self) -> str:
        """Attempts and reason of a record that was handed back; questions about a half message."""
        headers = self.headers
        if self.kind is CompanionKind.RETRY:
            attempt, reason = (_text(headers.get(name)) for name in (RETRY_ATTEMPT, RETRY_REASON))
            return ": ".join(each for each in (f"attempt {attempt}" if attempt else "", reason) if each)
        checks = _text(headers.get(HALF_CHECKS)) if self.kind is CompanionKind.HALF else ""
        return f"asked {checks} times" if checks else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueView:
    """One companion that parks records."""

    queue: ParkingQueue
    log_offsets: int
    counts: QueueCounts | None
    """None if its log is too long for a page."""
    rows: Sequence[ParkedRow]
    ends: Mapping[TopicPartition, int]
    """The end offset of each partition: what is parked later is not part of this view."""
    queue_id: str
    """Of the companion topic."""
    at_ms: int

    @property
    def lines(self) -> str:
        """The ends, as `start_release_all` takes them: exactly what was shown is released."""
        return write_points(self.ends)

    @property
    def kind(self) -> CompanionKind:
        """What it is for."""
        return self.queue.mark.kind

    @property
    def buckets(self) -> list[Bucket]:
        """The histogram of due times."""
        return [] if self.counts is None else self.counts.every.buckets()

    @property
    def largest(self) -> int:
        """The largest bucket."""
        return max((each.records for each in self.buckets), default=0)

    @property
    def words(self) -> str:
        """What the records of this kind are."""
        return _WORDS[self.kind]

    @property
    def takes_instructions(self) -> bool:
        """Whether records can be released or cancelled by their place."""
        return self.kind in (CompanionKind.DELAYED, CompanionKind.RETRY)


_WORDS: Final = {
    CompanionKind.DELAYED: "delayed records",
    CompanionKind.RETRY: "records that wait for their next attempt",
    CompanionKind.HALF: "half messages that wait for their decision",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePage:
    """The queues of one topic."""

    topic: QueueTopic
    views: Sequence[QueueView]
    at_ms: int


def _text(data: bytes | None) -> str:
    return "" if data is None else data.decode("utf-8", "replace")


async def find_queues(access: Access) -> QueueList:
    """The topics with queues."""
    cluster = access.cluster
    try:
        topics = await queue_topics(cluster)
    except UnsupportedByBrokerError:
        return QueueList(rows=[], at_ms=cluster.clock.now_ms(), is_supported=False)
    rows = []
    for topic in topics.values():
        logs: dict[str, int] = {}
        for name in topic.parking:
            logs[name] = await _log_offsets(access, await _places(access, name))
        rows.append(QueueRow(topic=topic, log=logs))
    return QueueList(rows=rows, at_ms=cluster.clock.now_ms())


async def _places(access: Access, name: str) -> list[TopicPartition]:
    count = len((await access.cluster.topic(name)).partitions)
    return [TopicPartition(name, index) for index in range(count)]


async def _log_offsets(access: Access, places: Sequence[TopicPartition]) -> int:
    return _length(await offset_bounds(access.cluster, places))


def _length(bounds: Mapping[TopicPartition, tuple[int, int]]) -> int:
    return sum(end - start for start, end in bounds.values())


async def find_topic(access: Access, topic: str) -> QueuePage:
    """The queues of one topic, counted. Raises `NotFoundError` if the topic does not exist."""
    cluster = access.cluster
    try:
        await cluster.topic(topic)
        found = (await queue_topics(cluster)).get(topic)
    except UnsupportedByBrokerError:
        found = None
    except AnswerError as error:
        if error.error_code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        raise NotFoundError(f"topic {topic} does not exist") from None
    if found is None:
        found = QueueTopic(name=topic, settings=None, configs={})
    queues = await parking_queues(cluster, topic) if found.parking else []
    views = [await _view(access, queue) for queue in queues]
    return QueuePage(topic=found, views=views, at_ms=cluster.clock.now_ms())


async def _view(access: Access, queue: ParkingQueue) -> QueueView:
    cluster = access.cluster
    queue_id = str((await topic_view(cluster, queue.name)).id)
    bounds = await offset_bounds(cluster, queue.places)
    log_offsets = _length(bounds)
    counts: QueueCounts | None = None
    rows: list[ParkedRow] = []
    if log_offsets <= SCANNED_MAX:
        counts, parked = await inspect_queue(cluster, queue, LISTED_MAX)
        rows = [ParkedRow(parked=each, kind=queue.mark.kind) for each in parked]
    return QueueView(
        queue=queue,
        log_offsets=log_offsets,
        counts=counts,
        rows=rows,
        ends={each: end for each, (_, end) in bounds.items()} if counts is None else counts.ends,
        queue_id=queue_id,
        at_ms=cluster.clock.now_ms(),
    )


async def find_queue(access: Access, queue_name: str) -> QueueView:
    """One queue, counted."""
    return await _view(access, await _queue(access, queue_name))


def start_count(access: Access, queue_name: str, topic: str) -> Job:
    """Counts a long queue as a job; the outcome has the numbers."""

    async def work(job: Job) -> str:
        job.result_address = f"/topics/{topic}/queues"
        queues = await parking_queues(access.cluster, queue_name)

        def on_progress(done: int, total: int) -> None:
            job.report(done, total, unit="offsets")

        (found,) = await count_parked(access.cluster, queues, on_progress)
        every = found.every
        due = "" if every.next_due_ms is None else f", next due at {time_text(every.next_due_ms)}"
        buckets = ", ".join(f"{each.label} {each.records:,}" for each in every.buckets() if each.records)
        return f"{plural(every.parked, 'record')} parked{due}" + (f": {buckets}" if buckets else "")

    return access.start_job("count queue", f"Count of {queue_name}", work)


async def find_parked(access: Access, queue_name: str, partition: int, offset: int) -> ParkedRow:
    """One parked record. Raises `NotFoundError` if it is not parked (any more)."""
    queue = await _queue(access, queue_name)
    place = TopicPartition(queue_name, partition)
    if place not in queue.places:
        raise NotFoundError(f"{queue_name} has no partition {partition}")
    try:
        parked = await parked_at(access.cluster, place, offset)
    except NoQueueError:
        raise NotFoundError(f"{queue_name}: record {partition}:{offset} was delivered or cancelled meanwhile") from None
    return ParkedRow(parked=parked, kind=queue.mark.kind)


async def _queue(access: Access, queue_name: str) -> ParkingQueue:
    try:
        queues = await parking_queues(access.cluster, queue_name)
    except AnswerError as error:
        if error.error_code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        raise NotFoundError(f"queue {queue_name} does not exist") from None
    queue = next((each for each in queues if each.name == queue_name), None)
    if queue is None:
        raise NoQueueError(f"{queue_name} is not a queue, such as orders.delayed or orders.billing.retry")
    return queue


async def _instructed(access: Access, queue_name: str) -> ParkingQueue:
    queue = await _queue(access, queue_name)
    if queue.mark.kind not in (CompanionKind.DELAYED, CompanionKind.RETRY):
        raise InvalidRequestError(
            f"{queue_name} holds half messages: each waits for the decision of its producer, commit or rollback"
        )
    return queue


async def release(access: Access, queue_name: str, partition: int, offset: int) -> None:
    """Makes one record due now. Raises `NoQueueError` if it is not parked."""
    async with access.change("release parked record", queue_name, {"record": f"{partition}:{offset}"}):
        await _instructed(access, queue_name)
        place = TopicPartition(queue_name, partition)
        await parked_at(access.cluster, place, offset)
        async with access.producer() as producer:
            await instructions.release(producer, place, [offset])


async def cancel(access: Access, queue_name: str, partition: int, offset: int) -> None:
    """Cancels one record: it is not delivered, and does not become a dead letter."""
    async with access.change("cancel parked record", queue_name, {"record": f"{partition}:{offset}"}):
        await _instructed(access, queue_name)
        place = TopicPartition(queue_name, partition)
        await parked_at(access.cluster, place, offset)
        async with access.producer() as producer:
            await instructions.cancel_at(producer, place, [offset])


async def reschedule(access: Access, queue_name: str, partition: int, offset: int, due_ms: int) -> None:
    """Lets a delayed record be due at another time: in one transaction it is cancelled, and a copy is parked."""
    details = {"record": f"{partition}:{offset}", "due_ms": due_ms}
    async with access.change("reschedule parked record", queue_name, details):
        queue = await _queue(access, queue_name)
        if queue.mark.kind is not CompanionKind.DELAYED:
            raise InvalidRequestError(f"{queue_name}: only delayed records can be given another time")
        place = TopicPartition(queue_name, partition)
        parked = await parked_at(access.cluster, place, offset)
        id = instructions.rescheduling_id(queue_name)
        async with access.producer(transactional_id=id, **_LARGE_REQUEST) as producer:
            await producer.init_transactions()
            await instructions.reschedule(producer, parked, due_ms)


def start_release_all(access: Access, queue_name: str, topic: str, lines: str, queue_id: str) -> Job:
    """Makes the records of a queue due now that a view of it had (its `lines` and `queue_id`), as a job."""
    ends = parse_points(queue_name, lines)

    async def work(job: Job) -> str:
        job.result_address = f"/topics/{topic}/queues"
        before = {str(each.partition): end for each, end in ends.items()}
        async with access.change("release all parked records", queue_name, {"before": before}):
            await check_id(access, queue_name, queue_id)
            queue = await _instructed(access, queue_name)
            job.report(note="reading what is parked")
            chosen = (await chosen_if(access.cluster, queue.places, lambda owed: True)).before(ends)
            job.report(0, chosen.total, unit="records", note="")
            done = 0
            async with access.producer(**_LARGE_REQUEST) as producer:
                for place, offsets in chosen.records.items():
                    for at in range(0, len(offsets), 1000):
                        some = offsets[at : at + 1000]
                        await instructions.release(producer, place, some)
                        done += len(some)
                        job.report(done, note=f"{done:,} of {chosen.total:,} are due now")
                        await asyncio.sleep(0)
        return f"{plural(chosen.total, 'record')} of {queue_name} due now" if chosen.total else "nothing was parked"

    return access.start_job("release queue", f"Release of {queue_name}", work)
