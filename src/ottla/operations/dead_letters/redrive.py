"""Sends dead letters back to the topics that they came from, each exactly once.

Letters are sent in transactions, which also commit what was redriven as offsets of a group. A command that was killed
is simply run again: its transaction is aborted, and the next one continues after the last that was committed. Two
commands cannot redrive the same topic at the same time: the second fences the first. Consumers that read uncommitted
records also see those of an aborted transaction, and so such a letter twice.

Letters are left, with the reason, if their topic would not handle them as before: records that would expire again at
once, and half messages whose producer never committed them.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from ottla.client.admin.config_requests import Resource, ResourceType, describe_configs
from ottla.client.admin.group_offsets import committed_offsets
from ottla.client.errors import AnswerError
from ottla.client.network.cluster import Cluster
from ottla.client.producer.errors import RecordTooLargeError, TransactionFailedError
from ottla.client.values import Header, OffsetAndMetadata
from ottla.model.dead_letters import RETRY_NAMES, STORY_NAMES
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import MisuseError
from ottla.model.ids import TopicPartition
from ottla.model.queue_names import (
    NO_DECISION,
    REDRIVE_COUNT,
    REDRIVE_TIMESTAMP,
    REPEATED_ID,
    TTL_DEFAULT_MS,
    TTL_ENABLE,
    TTL_MS,
    redelivery_topic,
)
from ottla.operations.dead_letters.letters import Bounds, Letter, LetterFilter, bounds_of, read_letters
from ottla.operations.dead_letters.redrive_progress import RedriveProgress, parse_progress

if TYPE_CHECKING:
    from ottla.client.producer.async_producer import AsyncProducer

TRANSACTION_LETTERS_MAX: Final = 500
_COUNT_DIGITS_MAX: Final = 9
_REFUSALS: Final = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
)
"""Codes by which a broker refuses a record for good."""
_RETENTION: Final = ("cleanup.policy", "message.timestamp.type", "retention.ms")


def redrive_group(topic: str) -> str:
    """The group whose committed offsets say what was redriven."""
    return f"ottla-redrive-{topic}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveRules:
    """What to redrive, and where to."""

    topic: str
    """The dead-letter topic."""
    chosen: LetterFilter
    to: str | None = None
    """A topic for all letters; None for the topic of each."""
    to_group: bool = False
    """To the redelivery topic of the group that gave the letter up, so that other groups do not read it again."""
    redrives_max: int = 3
    """A letter that was redriven this often is left: it probably comes back each time."""
    rate: float | None = None
    """The most letters in a second."""
    is_forced: bool = False
    """Sends expired letters too, with the time of now, and half messages that were never committed."""
    ends: Mapping[TopicPartition, int] | None = None
    """The offset of each partition up to which letters are redriven (exclusive), as a dry run found them; None for the
    present end. Partitions that are not named are left."""

    def check(self) -> None:
        """Raises `MisuseError` for rules that would send letters in a circle."""
        if self.to == self.topic:
            raise MisuseError(f"cannot redrive {self.topic} into itself; pass --to with another topic")


@dataclass(slots=True)
class RedriveOutcome:
    """What became of the letters."""

    redriven: Counter[str] = field(default_factory=Counter)
    """Letters by the topic that they were sent to."""
    left: Counter[str] = field(default_factory=Counter)
    """Letters that were chosen but not sent, by the reason."""
    earlier: int = 0
    """Letters that were chosen but had been redriven before."""
    scanned: int = 0
    """Letters that were read, chosen or not."""


class Redrive:
    """One run."""

    def __init__(
        self,
        cluster: Cluster,
        rules: RedriveRules,
        on_progress: Callable[[RedriveOutcome], None] = lambda outcome: None,
    ) -> None:
        self._cluster = cluster
        self._rules = rules
        self._on_progress = on_progress
        """Called with the outcome so far after each letter that is sent, or would be."""
        self._stop = asyncio.Event()
        self._counts: dict[str, int | None] = {}
        """Partitions of target topics, None if the topic does not exist."""
        self._ages: dict[str, _Ages] = {}
        self.outcome = RedriveOutcome()
        self.ends: dict[TopicPartition, int] = {}
        """The offset of each partition up to which letters are read (exclusive)."""

    async def plan(self) -> RedriveOutcome:
        """What `run` would do with the rules and these `ends`."""
        bounds, progress = await self._begin()
        async for partition, _, letters in read_letters(self._cluster, bounds):
            for letter in letters:
                if await self._target_of(letter, progress[partition]) is not None:
                    self._on_progress(self.outcome)
            self.outcome.scanned += len(letters)
            if self._stop.is_set():
                break
        return self.outcome

    def stop(self) -> None:
        """Ends a run after the letters that it has sent so far; what is left can be redriven later."""
        self._stop.set()

    async def run(self, new_producer: "Callable[[str], AsyncProducer]") -> RedriveOutcome:
        """Redrives the letters. `new_producer` gets the transactional id. Raises the errors of a producer."""
        async with new_producer(redrive_group(self._rules.topic)) as producer:
            # Fences a command that still runs, and ends the transaction of one that was killed.
            await producer.init_transactions()
            bounds, progress = await self._begin()
            work = _Transactions(producer, self._rules, progress, self.outcome, self._stop)
            async with aclosing(read_letters(self._cluster, bounds)) as pieces:
                async for partition, end, letters in pieces:
                    start = work.positions.get(partition, bounds[partition][0])
                    if not await self._redrive_piece(work, progress[partition], start, letters):
                        break
                    progress[partition].add(letters[-1].record.offset + 1 if letters else start, end)
                    work.positions[partition] = end
            await work.commit()
        return self.outcome

    async def _redrive_piece(
        self, work: "_Transactions", progress: RedriveProgress, start: int, letters: list[Letter]
    ) -> bool:
        """Sends the letters of one piece that begins at `start`. False if the run was stopped among them."""
        position = start
        for letter in letters:
            if self._stop.is_set():
                return False
            offset = letter.record.offset
            progress.add(position, offset)
            position = offset + 1
            self.outcome.scanned += 1
            target = await self._target_of(letter, progress)
            if target is None:
                continue
            is_too_old = _is_older(letter, (await self._ages_of(target)).retention_ms)
            keeps_time = not (is_too_old or await self._is_expired(letter, target))
            partition_to = self._partition_of(letter, target)
            if not await work.send(_Sending(letter, target, partition_to, keeps_time=keeps_time)):
                self.outcome.redriven[target] -= 1
                return False
            self._on_progress(self.outcome)
        return True

    async def _begin(self) -> tuple[Bounds, dict[TopicPartition, RedriveProgress]]:
        """What is to be read, and what was redriven of it."""
        topic, rules_ends = self._rules.topic, self._rules.ends
        whole = await bounds_of(self._cluster, topic)
        committed = await committed_offsets(self._cluster, redrive_group(topic))
        progress: dict[TopicPartition, RedriveProgress] = {}
        bounds: Bounds = {}
        for partition, (start, last) in whole.items():
            end = last if rules_ends is None else max(start, min(last, rules_ends.get(partition, start)))
            self.ends[partition] = end
            found = committed.get(partition)
            known = RedriveProgress(start) if found is None else parse_progress(found.offset, found.metadata)
            # A topic that was deleted and created again begins at 0.
            if known.offset > last:
                known = RedriveProgress(start)
            known.add(known.offset, start)
            progress[partition] = known
            bounds[partition] = (max(start, known.offset), end)
        return bounds, progress

    async def _target_of(self, letter: Letter, progress: RedriveProgress) -> str | None:
        """The topic that a letter is sent to; None if it is not sent. Counts it."""
        rules, outcome = self._rules, self.outcome
        if not rules.chosen.matches(letter):
            return None
        if progress.is_done(letter.record.offset):
            outcome.earlier += 1
            return None
        target, problem = wanted_target(letter, rules)
        if target is not None and await self._partitions(target) is None:
            problem = f"topic {target} does not exist"
        elif target is not None and not rules.is_forced and await self._is_expired(letter, target):
            problem = (
                f"it would expire in topic {target} at once; pass --to TOPIC, or --force to send it with a new time"
            )
        if target is None or problem is not None:
            outcome.left[problem or ""] += 1
            return None
        outcome.redriven[target] += 1
        return target

    def _partition_of(self, letter: Letter, target: str) -> int | None:
        """The partition that the record came from, if its topic has as many; None to choose by the key."""
        count, story = self._counts[target], letter.story
        if self._rules.to is not None or story is None or count is None or story.origin.partition >= count:
            return None
        return story.origin.partition

    async def _is_expired(self, letter: Letter, target: str) -> bool:
        """Whether consumers of a topic would not get a letter that is sent there with its old timestamp."""
        ages = await self._ages_of(target)
        return _is_older(letter, ages.ttl_of(letter.record.headers))

    async def _ages_of(self, target: str) -> "_Ages":
        if target not in self._ages:
            resource = Resource(type=ResourceType.TOPIC, name=target)
            entries = await describe_configs(self._cluster, resource, (TTL_ENABLE, TTL_DEFAULT_MS, *_RETENTION))
            self._ages[target] = _Ages.of({each.name: each.value for each in entries})
        return self._ages[target]

    async def _partitions(self, topic: str) -> int | None:
        if topic not in self._counts:
            try:
                self._counts[topic] = len((await self._cluster.topic(topic)).partitions)
            except AnswerError as error:
                if error.error_code not in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION):
                    raise
                self._counts[topic] = None
        return self._counts[topic]


@dataclass(frozen=True, slots=True)
class _Sending:
    letter: Letter
    target: str
    partition: int | None
    keeps_time: bool = True


class _Ages(NamedTuple):
    """How old the records of a topic may be, by its configs."""

    has_ttl: bool
    ttl_ms: int
    """Of records without a header; -1 for none."""
    retention_ms: int | None
    """None if records are not deleted by their timestamps."""

    @classmethod
    def of(cls, configs: Mapping[str, str | None]) -> Self:
        """The ages of a topic with these configs."""
        policy, kind, limit = (configs.get(name) or "" for name in _RETENTION)
        retention_ms = int(limit or -1) if "delete" in policy and kind != "LogAppendTime" else -1
        ttl_ms = int(configs.get(TTL_DEFAULT_MS) or -1)
        return cls(configs.get(TTL_ENABLE) == "true", ttl_ms, retention_ms if retention_ms >= 0 else None)

    def ttl_of(self, headers: "tuple[Header, ...] | list[Header]") -> int | None:
        """After how long a record with these headers expires; None for never."""
        if not self.has_ttl and self.ttl_ms < 0:
            return None
        told = [value for name, value in headers if name == TTL_MS and value is not None]
        if told and told[-1].isdigit():
            return int(told[-1])
        return self.ttl_ms if self.ttl_ms >= 0 else None


def _is_older(letter: Letter, age_ms: int | None) -> bool:
    timestamp = letter.record.timestamp
    return age_ms is not None and timestamp >= 0 and timestamp + age_ms <= time.time_ns() // 1_000_000


class _Transactions:
    """Sends letters in transactions that also note them as redriven."""

    def __init__(
        self,
        producer: "AsyncProducer",
        rules: RedriveRules,
        progress: dict[TopicPartition, RedriveProgress],
        outcome: RedriveOutcome,
        stop: asyncio.Event,
    ) -> None:
        self._producer = producer
        self._stop = stop
        self._rules = rules
        self._progress = progress
        self._outcome = outcome
        self._sent = 0
        self._waiting: list[_Sending] = []
        """The letters of the next transaction."""
        self._start = time.monotonic()
        self.positions: dict[TopicPartition, int] = {}
        """The offset that each partition was read up to."""

    async def send(self, sending: _Sending) -> bool:
        """Sends a letter, when the rate allows it; it is redriven after the next `commit`.

        False if the run was stopped before the rate allowed it: the letter is not sent.
        """
        rate = self._rules.rate
        if rate is not None:
            wait = self._start + self._sent / rate - time.monotonic()
            if wait > 0:
                await self.commit()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._stop.wait(), wait)
                    return False
        self._sent += 1
        self._waiting.append(sending)
        if len(self._waiting) >= TRANSACTION_LETTERS_MAX:
            await self.commit()
        return True

    async def commit(self) -> None:
        """Redrives the letters that were sent. Those that a broker refuses are left, with its words."""
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        try:
            await self._redrive(waiting)
        except (RecordTooLargeError, TransactionFailedError) as error:
            await self._producer.abort_transaction()
            if _refusal(error) is None:
                raise
        else:
            return
        # One of them was refused: each gets a transaction of its own.
        for sending in waiting:
            try:
                await self._redrive([sending])
            except (RecordTooLargeError, TransactionFailedError) as error:
                await self._producer.abort_transaction()
                refusal = _refusal(error)
                if refusal is None:
                    raise
                self._outcome.redriven[sending.target] -= 1
                self._outcome.left[refusal] += 1

    async def _redrive(self, some: list[_Sending]) -> None:
        """One transaction with these letters."""
        progress = {each: self._progress[each].copy() for each in {sending.letter.partition for sending in some}}
        self._producer.begin_transaction()
        for sending in some:
            record = sending.letter.record
            headers = redriven_headers(record.headers)
            timestamp_ms = record.timestamp if record.timestamp >= 0 and sending.keeps_time else None
            if not sending.keeps_time and all(name != REDRIVE_TIMESTAMP for name, _ in headers):
                headers.append((REDRIVE_TIMESTAMP, b"%d" % record.timestamp))
            await self._producer.send(
                sending.target, record.value, record.key, headers, sending.partition, timestamp_ms
            )
            progress[sending.letter.partition].add(record.offset, record.offset + 1)
        offsets = {each: OffsetAndMetadata(done.offset, done.metadata()) for each, done in sorted(progress.items())}
        # The records first: if one is refused, nothing else must be undone.
        await self._producer.flush()
        await self._producer.send_offsets_to_transaction(offsets, redrive_group(self._rules.topic))
        await self._producer.commit_transaction()
        self._progress.update(progress)


def _refusal(error: RecordTooLargeError | TransactionFailedError) -> str | None:
    """Why a broker will never accept a record; None if the error is about something else."""
    if isinstance(error, RecordTooLargeError):
        return str(error)
    cause = error.__cause__
    return str(cause) if isinstance(cause, AnswerError) and cause.error_code in _REFUSALS else None


def wanted_target(letter: Letter, rules: RedriveRules) -> tuple[str | None, str | None]:
    """Where a letter goes by the rules, or why it stays."""
    count = redrive_count(letter.record.headers)
    if count >= rules.redrives_max:
        return None, f"redriven {count} times already; raise --max-redrives to try again"
    if rules.to is not None:
        return rules.to, None
    story = letter.story
    if story is None:
        return None, "no origin in the headers; pass --to TOPIC"
    if rules.to_group and story.group is None:
        return None, "no group in the headers; omit --to-group, or pass --to TOPIC"
    target = redelivery_topic(story.origin.topic, story.group or "") if rules.to_group else story.origin.topic
    if target == rules.topic:
        return None, "it came from this dead-letter topic itself; pass --to TOPIC"
    if story.reason.startswith((NO_DECISION, REPEATED_ID)) and not rules.is_forced:
        return None, "a half message that its producer never committed; pass --to TOPIC, or --force to deliver it"
    return target, None


def redrive_count(headers: "tuple[Header, ...] | list[Header]") -> int:
    """How often a record was redriven, as its header says."""
    counts = [value for name, value in headers if name == REDRIVE_COUNT and value is not None]
    if not counts or not counts[-1].isdigit() or len(counts[-1]) > _COUNT_DIGITS_MAX:
        return 0
    return int(counts[-1])


def redriven_headers(headers: "tuple[Header, ...] | list[Header]") -> list[Header]:
    """The headers of a record that is sent back: its own, and how often that was done."""
    dropped = STORY_NAMES | RETRY_NAMES | {REDRIVE_COUNT}
    kept = [header for header in headers if header[0] not in dropped]
    return [*kept, (REDRIVE_COUNT, str(redrive_count(headers) + 1).encode())]
