"""Dead letters: which topics have them, what is in one topic by reason, origin and time, one letter, redrive and purge.

Reading, choosing, redriving and purging are those of `ottla queues dead-letters` (`ottla.operations.dead_letters`). A
page reads a bounded number of letters, the newest of each partition, and says how many.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Final

from ottla.client.admin.group_offsets import committed_offsets
from ottla.client.errors import AnswerError
from ottla.client.values import Header
from ottla.console.cluster.access import Access
from ottla.console.cluster.jobs import Job
from ottla.console.errors import InvalidFormError, NotFoundError
from ottla.console.services.topic_changes import check_id, parse_points, write_points
from ottla.console.services.topics import topic_view
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.operations.dead_letters.letters import Bounds, Letter, LetterFilter, bounds_of, read_letters
from ottla.operations.dead_letters.purging import purge_points
from ottla.operations.dead_letters.redrive import (
    Redrive,
    RedriveOutcome,
    RedriveRules,
    redrive_group,
    redriven_headers,
)
from ottla.operations.dead_letters.redrive_progress import RedriveProgress, parse_progress
from ottla.operations.dead_letters.topics import DeadLetterTopic, dead_letter_topics, refuse_other_topic

SCANNED_MAX: Final = 10_000
"""Letters that a page reads unless its address asks for more."""
SCANNED_LIMIT: Final = 1_000_000
LISTED_MAX: Final = 100
_ASKED_AT_ONCE: Final = 16
_SCAN_SECONDS_MAX: Final = 10.0
_PLAN_SECONDS_MAX: Final = 15.0
CAUSES_MAX: Final = 1_000
"""Causes that are told apart: reasons that name a number or an id are all different."""
_ROWS_KEPT: Final = 2 * LISTED_MAX
"""Letters that are kept while others are read, with their values."""
_REASON_CHARACTERS_MAX: Final = 200
_BUCKETS_MAX: Final = 48
_HOUR_MS: Final = 3_600_000
_BUCKET_MS: Final = (
    *(60_000, 120_000, 300_000, 600_000, 1_800_000),
    *(hours * _HOUR_MS for hours in (1, 2, 3, 6, 12, 24, 48, 168, 720)),
)
"""The spans that letters are counted by: minutes, hours, days."""
_LARGE_REQUEST: Final = {"max_request_size": 64 << 20, "buffer_memory": 128 << 20}


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRow:
    """One dead-letter topic in the list."""

    topic: DeadLetterTopic
    left: int
    """Offsets that were not redriven yet; an upper bound of the letters."""
    newest_ms: int | None
    """When the newest letter was written; None if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicList:
    """All dead-letter topics at one time."""

    rows: Sequence[TopicRow]
    at_ms: int


@dataclass(slots=True)
class Cause:
    """Letters with the same reason, exception, origin and group."""

    reason: str
    exception: str
    topic: str
    group: str
    letters: int = 0
    redriven: int = 0
    first_ms: int = 0
    last_ms: int = 0
    partitions: Counter[int] = field(default_factory=Counter)
    """Letters by the partition of the origin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterRow:
    """One letter in the list."""

    letter: Letter
    is_redriven: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """Letters of a span of time."""

    start_ms: int
    letters: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterSummary:
    """What the newest letters of a topic are."""

    topic: str
    causes: Sequence[Cause]
    """The largest first."""
    other_letters: int
    """Letters with further causes."""
    rows: Sequence[LetterRow]
    """The newest of those that match, at most `LISTED_MAX`."""
    buckets: Sequence[Bucket]
    bucket_ms: int
    matched: int
    scanned: int
    total: int
    """Offsets in the topic."""
    is_timed_out: bool
    at_ms: int

    @property
    def is_whole(self) -> bool:
        """Whether all letters were read."""
        return self.scanned >= self.total


async def find_topics(access: Access) -> TopicList:
    """The dead-letter topics that the user may see."""
    cluster = access.cluster
    limit = asyncio.Semaphore(_ASKED_AT_ONCE)

    async def row(topic: DeadLetterTopic) -> TopicRow:
        async with limit:
            bounds = await bounds_of(cluster, topic.name)
            progress = await _progress(access, topic.name, bounds)
            left = sum(end - max(start, progress[each].offset) for each, (start, end) in bounds.items())
            return TopicRow(topic=topic, left=left, newest_ms=await _newest_ms(access, bounds))

    rows = await asyncio.gather(*map(row, await dead_letter_topics(cluster)))
    rows.sort(key=lambda row: (-row.left, row.topic.name))
    return TopicList(rows=rows, at_ms=cluster.clock.now_ms())


async def _newest_ms(access: Access, bounds: Bounds) -> int | None:
    """The time of the newest letter: of the last record of each partition. None if the user may not read them."""
    last = {each: (end - 1, end) for each, (start, end) in bounds.items() if end > start}
    newest: int | None = None
    try:
        async with aclosing(read_letters(access.cluster, last)) as pieces:
            async for _, _, letters in pieces:
                for letter in letters:
                    newest = max(newest or 0, letter.record.timestamp)
    except AnswerError as error:
        if error.error_code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise
    return newest


async def _progress(access: Access, topic: str, bounds: Bounds) -> dict[TopicPartition, RedriveProgress]:
    """What was redriven in each partition; nothing if that cannot be read."""
    try:
        committed = await committed_offsets(access.cluster, redrive_group(topic))
    except AnswerError:
        # Reading needs DESCRIBE on the redrive group; the letters are shown without it.
        committed = {}
    found: dict[TopicPartition, RedriveProgress] = {}
    for partition, (start, end) in bounds.items():
        known = committed.get(partition)
        progress = RedriveProgress(start) if known is None else parse_progress(known.offset, known.metadata)
        # A topic that was deleted and created again begins at 0.
        found[partition] = RedriveProgress(start) if progress.offset > end else progress
    return found


async def summarize(access: Access, topic: str, chosen: LetterFilter, scanned_max: int = SCANNED_MAX) -> LetterSummary:
    """Groups the newest letters of a topic. Raises `NotFoundError`."""
    cluster = access.cluster
    bounds = await _bounds(access, topic)
    progress = await _progress(access, topic, bounds)
    total = sum(end - start for start, end in bounds.values())
    newest = newest_bounds(bounds, scanned_max)
    causes: dict[tuple[str, str, str, str], Cause] = {}
    times: Counter[int] = Counter()
    rows: list[LetterRow] = []
    scanned = matched = others = 0
    is_timed_out = False
    deadline = asyncio.get_running_loop().time() + _SCAN_SECONDS_MAX
    async with aclosing(read_letters(cluster, newest)) as pieces:
        async for partition, _, letters in pieces:
            for letter in letters:
                scanned += 1
                if not chosen.matches(letter):
                    continue
                matched += 1
                row = LetterRow(letter=letter, is_redriven=progress[partition].is_done(letter.record.offset))
                others += not add_cause(causes, row)
                times[max(0, letter.record.timestamp) // _BUCKET_MS[0]] += 1
                rows.append(row)
                if len(rows) > _ROWS_KEPT:
                    rows = _newest_rows(rows)
            if asyncio.get_running_loop().time() > deadline:
                is_timed_out = True
                break
    # Offsets without a letter (markers of transactions) were read as well.
    covered = sum(end - start for start, end in newest.values())
    bucket_ms, buckets = in_buckets(times)
    return LetterSummary(
        topic=topic,
        causes=sorted(causes.values(), key=lambda cause: -cause.letters),
        other_letters=others,
        rows=_newest_rows(rows),
        buckets=buckets,
        bucket_ms=bucket_ms,
        matched=matched,
        scanned=scanned if is_timed_out else covered,
        total=total,
        is_timed_out=is_timed_out,
        at_ms=cluster.clock.now_ms(),
    )


def newest_bounds(bounds: Bounds, count: int) -> Bounds:
    """The newest offsets of each partition, `count` in all, or all if they are fewer.

    Partitions that have less than their share leave the rest to the others.
    """
    found: Bounds = {}
    left, places = count, sorted(bounds.items(), key=lambda item: item[1][1] - item[1][0])
    for at, (partition, (start, end)) in enumerate(places):
        share = -(-left // (len(places) - at))
        first = max(start, end - share)
        found[partition] = (first, end)
        left -= end - first
    return found


def add_cause(causes: dict[tuple[str, str, str, str], Cause], row: LetterRow) -> bool:
    """Counts a letter with those of the same reason, exception, origin and group. False if there are too many causes to
    add another one."""
    story, at_ms = row.letter.story, row.letter.record.timestamp
    reason = "" if story is None else story.reason[:_REASON_CHARACTERS_MAX]
    exception = "" if story is None else (story.exception or "")[:_REASON_CHARACTERS_MAX]
    topic = "" if story is None else story.origin.topic
    group = "" if story is None else story.group or ""
    cause = causes.get((reason, exception, topic, group))
    if cause is None:
        if len(causes) >= CAUSES_MAX:
            return False
        cause = Cause(reason, exception, topic, group, first_ms=at_ms, last_ms=at_ms)
        causes[reason, exception, topic, group] = cause
    cause.letters += 1
    cause.redriven += row.is_redriven
    cause.first_ms, cause.last_ms = min(cause.first_ms, at_ms), max(cause.last_ms, at_ms)
    if story is not None:
        cause.partitions[story.origin.partition] += 1
    return True


def in_buckets(minutes: Mapping[int, int]) -> tuple[int, list[Bucket]]:
    """Letters by minute (since 1970) in at most 48 spans of equal length, without gaps; the length is the first."""
    if not minutes:
        return _BUCKET_MS[0], []
    first, last = min(minutes) * _BUCKET_MS[0], max(minutes) * _BUCKET_MS[0]
    size = next((each for each in _BUCKET_MS if (last - first) // each < _BUCKETS_MAX), None)
    if size is None:
        size = -(-(last - first + 1) // _BUCKETS_MAX)
    counts: Counter[int] = Counter()
    for minute, letters in minutes.items():
        counts[minute * _BUCKET_MS[0] // size] += letters
    places = range(first // size, last // size + 1)
    return size, [Bucket(start_ms=at * size, letters=counts[at]) for at in places]


def _newest_rows(rows: list[LetterRow]) -> list[LetterRow]:
    return sorted(
        rows,
        key=lambda row: (-row.letter.record.timestamp, row.letter.partition, -row.letter.record.offset),
    )[:LISTED_MAX]


async def _bounds(access: Access, topic: str) -> Bounds:
    try:
        return await bounds_of(access.cluster, topic)
    except AnswerError as error:
        if error.error_code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION):
            raise NotFoundError(f"topic {topic} does not exist") from None
        raise


async def find_letter(access: Access, topic: str, partition: int, offset: int) -> LetterRow:
    """One letter. Raises `NotFoundError`."""
    bounds = await _bounds(access, topic)
    place = TopicPartition(topic, partition)
    start, end = bounds.get(place, (0, 0))
    if start <= offset < end:
        progress = await _progress(access, topic, bounds)
        async with aclosing(read_letters(access.cluster, {place: (offset, offset + 1)})) as pieces:
            async for _, _, letters in pieces:
                for letter in letters:
                    return LetterRow(letter=letter, is_redriven=progress[place].is_done(offset))
    raise NotFoundError(
        f"dead-letter topic {topic} has no letter {partition}:{offset}; it may have been purged or deleted by retention"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """A record that is made from a letter, and sent."""

    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


def copy_of(letter: Letter) -> Copy:
    """The record as a redrive would send it: the form's first content."""
    story, record = letter.story, letter.record
    return Copy(
        topic="" if story is None else story.origin.topic,
        partition=None if story is None else story.origin.partition,
        key=record.key,
        value=record.value,
        headers=tuple(redriven_headers(record.headers)),
    )


async def send_copy(access: Access, letter: str, copy: Copy) -> tuple[int, int]:
    """Sends a record that was made from `letter`; returns the partition and offset that it got."""
    details = {"topic": copy.topic, "partition": copy.partition, "from": letter}
    async with access.change("send copy of dead letter", copy.topic, details):
        count = len((await access.cluster.topic(copy.topic)).partitions)
        if copy.partition is not None and copy.partition >= count:
            raise InvalidFormError(
                f"topic {copy.topic} has no partition {copy.partition}; it has {count}, from 0", "partition"
            )
        async with access.producer(**_LARGE_REQUEST) as producer:
            sent = await producer.send_and_wait(copy.topic, copy.value, copy.key, list(copy.headers), copy.partition)
        return sent.partition, sent.offset


@dataclass(frozen=True, slots=True, kw_only=True)
class RedrivePlan:
    """What a redrive would do; of all letters that were read."""

    outcome: RedriveOutcome
    rules: RedriveRules
    """With the ends that were found: a redrive with them sends no letter that was written later."""
    topic_id: str
    is_whole: bool
    """Whether all letters were read in the time that a page may take."""
    at_ms: int

    @property
    def letters(self) -> int:
        """How many would be sent."""
        return self.outcome.redriven.total()

    @property
    def lines(self) -> str:
        """The ends, as `pinned_rules` reads them."""
        return write_points(self.rules.ends or {})


async def plan_redrive(access: Access, rules: RedriveRules) -> RedrivePlan:
    """A dry run, for at most some seconds."""
    rules.check()
    await _bounds(access, rules.topic)
    topic_id = str((await topic_view(access.cluster, rules.topic)).id)
    running = Redrive(access.cluster, rules)
    is_cut = False

    def cut() -> None:
        nonlocal is_cut
        is_cut = True
        running.stop()

    timer = asyncio.get_running_loop().call_later(_PLAN_SECONDS_MAX, cut)
    try:
        outcome = await running.plan()
    finally:
        timer.cancel()
    return RedrivePlan(
        outcome=outcome,
        rules=replace(rules, ends=running.ends),
        topic_id=topic_id,
        is_whole=not is_cut,
        at_ms=access.cluster.clock.now_ms(),
    )


def pinned_rules(rules: RedriveRules, lines: str) -> RedriveRules:
    """The rules with the ends of a dry run. Raises `InvalidFormError`."""
    return replace(rules, ends=parse_points(rules.topic, lines))


def start_redrive(access: Access, rules: RedriveRules, total: int | None, topic_id: str) -> Job:
    """Redrives as a job, which can be stopped between two letters; `total` is the dry run's number of letters,
    `topic_id` the topic that it read."""
    rules.check()

    async def work(job: Job) -> str:
        job.result_address = f"/dead-letters/{rules.topic}"
        job.report(0, total, unit="letters")
        running = Redrive(access.cluster, rules, lambda outcome: job.report(outcome.redriven.total()))
        async with access.change("redrive dead letters", rules.topic, rules_details(rules)):
            await check_id(access, rules.topic, topic_id)
            task = asyncio.ensure_future(running.run(lambda id: access.producer(transactional_id=id, **_LARGE_REQUEST)))
            is_stopped = False
            try:
                await asyncio.shield(task)
            except asyncio.CancelledError:
                # What was sent so far is committed before the job ends.
                is_stopped = True
                running.stop()
                await task
        words = outcome_words(running.outcome)
        job.report(running.outcome.redriven.total(), note=f"stopped: {words}" if is_stopped else "")
        if is_stopped:
            raise asyncio.CancelledError
        return words

    return access.start_job("redrive", f"Redrive of {rules.topic}", work)


def outcome_words(outcome: RedriveOutcome) -> str:
    """One sentence with what became of the letters."""
    parts = [f"{count:,} to {topic}" for topic, count in sorted(outcome.redriven.items()) if count]
    words = [f"redriven {', '.join(parts)}" if parts else "no letters redriven"]
    words += [f"{count:,} left: {reason}" for reason, count in sorted(outcome.left.items()) if count]
    if outcome.earlier:
        words.append(f"{outcome.earlier:,} redriven earlier")
    return "; ".join(words)


def rules_details(rules: RedriveRules) -> dict[str, object]:
    """The rules, for the audit log."""
    chosen = rules.chosen
    named = {
        "reason": chosen.reason,
        "origin": chosen.topic,
        "group": chosen.group,
        "key": chosen.key,
        "since_ms": chosen.since_ms,
        "until_ms": chosen.until_ms,
        "to": rules.to,
        "rate": rules.rate,
        "to_group": rules.to_group or None,
        "force": rules.is_forced or None,
        "max_redrives": rules.redrives_max,
        "before": None if rules.ends is None else {str(each.partition): end for each, end in rules.ends.items()},
    }
    return {name: value for name, value in named.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgePlan:
    """Up to where letters would be deleted, by partition: the log start, and the new one."""

    topic: str
    points: Bounds
    left: int
    """Offsets that would be deleted but were not redriven."""
    at_ms: int

    @property
    def offsets(self) -> int:
        """How many offsets would be deleted."""
        return sum(end - start for start, end in self.points.values())

    @property
    def lines(self) -> str:
        """As `purge` takes them: exactly what was shown is deleted."""
        return "\n".join(f"{each.partition},{end}" for each, (start, end) in self.points.items() if end > start)


async def plan_purge(access: Access, topic: str, *, redriven: bool, until_ms: int | None) -> PurgePlan:
    """What would be deleted. Raises `MisuseError` if the topic is not a dead-letter topic."""
    await _bounds(access, topic)
    await refuse_other_topic(access.cluster, topic)
    points = await purge_points(access.cluster, topic, redriven=redriven, until_ms=until_ms)
    progress = await _progress(access, topic, points)
    left = sum(max(0, end - max(start, progress[each].offset)) for each, (start, end) in points.items())
    return PurgePlan(topic=topic, points=points, left=left, at_ms=access.cluster.clock.now_ms())


async def purge(access: Access, topic: str, lines: str) -> None:
    """Deletes the letters below the offsets of a plan."""
    before = parse_points(topic, lines)
    details = {str(each): offset for each, offset in before.items()}
    async with access.change("purge dead letters", topic, {"before": details}):
        await refuse_other_topic(access.cluster, topic)
        await access.admin().delete_records(before)
