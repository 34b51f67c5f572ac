"""What the driver asks a cluster: which partitions there are, where they begin and end, what a group committed.

Blocking, on an event loop of its own. What fails for a moment is tried again, as often as `fetchOffset.numRetries`
says, each time as long as the clients try by themselves. What the answers mean for a query: `stream_plan.py`.
"""

import re
import time
from collections.abc import Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from ottla.client.admin.group_offsets import commit_offsets, committed_offsets
from ottla.client.admin.options import AdminConfig
from ottla.client.admin.topic_requests import describe_log_dirs, partition_sizes
from ottla.client.consumer.leader_requests import ask_offsets
from ottla.client.consumer.options import ISOLATION_LEVELS
from ottla.client.errors import AnswerError, answer_error
from ottla.client.loop_thread import LoopThread
from ottla.client.network.cluster import Cluster
from ottla.client.network.list_offsets import END, START
from ottla.client.options import OptionError, configured
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import InvalidRequestError, OttlaError, RetriableError
from ottla.model.ids import TopicPartition
from ottla.spark.option_names import chosen_for
from ottla.spark.source.data_loss import logger
from ottla.spark.source.offset_text import EARLIEST, LATEST, listed
from ottla.spark.source.options import Position, Selection, SourceOptions
from ottla.spark.source.range_scan import client_id_of
from ottla.spark.source.segment_scan import SegmentHint

T = TypeVar("T")

HINTS_MAX_AGE_S: Final = 60.0
_GONE: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,)


class MissingTopicError(InvalidRequestError):
    """A topic, or a partition, that a query names does not exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selected:
    """The partitions that a query reads, as they are now."""

    partitions: frozenset[TopicPartition]
    topic_ids: Mapping[str, str]
    """Of topics whose broker tells."""
    missing: tuple[str, ...] = ()
    """What the query names and the cluster does not have: topics, or partitions."""


class TopicOffsets:
    """Asks about the partitions that the options select. `close` ends it."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        client = {"client_id": client_id_of(options), **options.client}
        config = configured(AdminConfig, "the source ottla", chosen_for(AdminConfig, client))
        self._thread = LoopThread("ottla spark offsets")
        self._cluster: Cluster = config.cluster()
        self._level = ISOLATION_LEVELS[options.isolation_level]
        self._hints: dict[TopicPartition, SegmentHint | None] = {}
        self._hints_at = -HINTS_MAX_AGE_S

    def close(self) -> None:
        """Closes all connections. Closing twice is harmless."""
        self._thread.close()

    def selected(self) -> Selected:
        """Which partitions there are now; a topic that is missing is no error here."""
        return self._ask(lambda: self._selected(self._options.selection))

    def all_there(self) -> Selected:
        """The same, for a query that begins: raises `MissingTopicError`."""
        for left in range(self._options.offset_tries - 1, -1, -1):
            found = self.selected()
            if not found.missing and (found.partitions or self._options.selection.pattern is not None):
                break
            if left == 0:
                raise MissingTopicError(
                    f"{self._options.selection}: there is no {', '.join(found.missing)} at {self._options.bootstrap}; "
                    "`ottla topics list` shows what there is"
                )
            time.sleep(self._options.offset_retry_ms / 1000)
        return found

    def earliest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset of each that is still there."""
        return self.at_numbers(dict.fromkeys(partitions, START))

    def latest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The end of each, as readers of this isolation level see it; partitions that are gone are left out."""
        return self.at_numbers(dict.fromkeys(partitions, END))

    def at_numbers(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The first offset at or after a time in ms, -1 if there is none; or what `START` and `END` stand for."""
        if not wanted:
            return {}
        found = self._ask(lambda: self._listed(wanted))
        return dict(sorted(found.items()))

    def resolved(self, position: Position, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Where a position is in each partition; raises `OptionError` if it does not fit them.

        As a start, a time without a record means what the option says; as an end, it means the end.
        """
        is_end = position.option.startswith("ending")
        if position.kind in ("earliest", "latest"):
            return self.earliest(partitions) if position.kind == "earliest" else self.latest(partitions)
        numbers = position.numbers
        if position.kind == "timestamp":
            numbers = dict.fromkeys(partitions, position.timestamp)
        if set(numbers) != set(partitions):
            missing, strange = set(partitions) - set(numbers), set(numbers) - set(partitions)
            raise OptionError(
                f"{position.option} must name every partition that is read, and no other: "
                + "; ".join(
                    [
                        *([f"{listed(missing)} is missing"] if missing else []),
                        *([f"{listed(strange)} is not read"] if strange else []),
                    ]
                )
                + ". In offsets, -2 stands for the earliest and -1 for the latest"
            )
        if position.kind == "offsets":
            words = {each: number for each, number in numbers.items() if number in (EARLIEST, LATEST)}
            return dict(sorted({**numbers, **self.at_numbers(words)}.items()))
        found = self.at_numbers(numbers)
        absent = [each for each, offset in found.items() if offset < 0]
        if absent and not is_end and self._options.no_match == "error":
            raise OptionError(
                f"{position.option}: {listed(set(absent))} has no record of the time {numbers[absent[0]]} or later; "
                "startingOffsetsByTimestampStrategy=latest begins with what comes next"
            )
        return dict(sorted({**found, **self.latest(absent)}.items()))

    def committed(self, group: str, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """What a group committed for these partitions."""
        found = self._ask(lambda: committed_offsets(self._cluster, group))
        return {each: found[each].offset for each in partitions if each in found}

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commits for a group that nobody is in what is further than it has.

        A failure is logged, and no more: the query's own offsets are elsewhere.
        """
        try:
            has = self._thread.call(committed_offsets(self._cluster, group))
            ahead = {each: offset for each, offset in offsets.items() if each not in has or has[each].offset < offset}
            refused = self._thread.call(commit_offsets(self._cluster, group, ahead)) if ahead else {}
        except OttlaError as failure:
            logger.warning("the offsets are not committed to group %s: %s", group, failure)
            return
        for partition, error in refused.items():
            logger.warning("the offset of %s is not committed to group %s: %s", partition, group, error)

    def record_bytes(self, bounds: Mapping[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, float]:
        """About how many bytes of the log an offset takes, for partitions with these (start, end)."""
        sizes = self._ask(lambda: partition_sizes(self._cluster, list(bounds)))
        return {each: sizes[each] / max(1, end - start) for each, (start, end) in bounds.items() if each in sizes}

    def segment_hints(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, SegmentHint]:
        """Where the leaders keep these partitions' files; those that do not tell are left out."""
        wanted = set(partitions)
        now = time.monotonic()
        if now - self._hints_at >= HINTS_MAX_AGE_S or not wanted <= self._hints.keys():
            try:
                found = self._ask(lambda: self._segment_hints(wanted))
            except OttlaError as error:
                # A broker may keep this to itself; then records are fetched.
                logger.info("no segment files: %s", error)
                found = {}
            self._hints = {each: found.get(each) for each in wanted}
            self._hints_at = now
        return {each: hint for each, hint in self._hints.items() if hint is not None and each in wanted}

    async def _segment_hints(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, SegmentHint]:
        by_leader: dict[int, list[TopicPartition]] = {}
        for partition in sorted(partitions):
            by_leader.setdefault(await self._cluster.leader_of(partition), []).append(partition)
        found: dict[TopicPartition, SegmentHint] = {}
        for leader, some in by_leader.items():
            for log_dir in await describe_log_dirs(self._cluster, leader, some):
                for each in log_dir.partitions:
                    topic = self._cluster.view.topics.get(each.partition.topic)
                    if not each.is_future and topic is not None and topic.id is not None:
                        hint = SegmentHint(log_dir=log_dir.path, broker=leader, topic_id=str(topic.id))
                        found[each.partition] = hint
        return found

    async def _selected(self, selection: Selection) -> Selected:
        cluster = self._cluster
        names = selection.topics
        if selection.partitions is not None:
            names = tuple(sorted({each.topic for each in selection.partitions}))
        view = await cluster.retry(lambda: cluster.refresh(names))
        pattern = None if selection.pattern is None else re.compile(selection.pattern)
        if pattern is not None:
            names = tuple(
                sorted(name for name, each in view.topics.items() if not each.is_internal and pattern.fullmatch(name))
            )
        topics = {name: view.topics[name] for name in names or () if name in view.topics}
        for name, code in view.errors.items():
            if name in (names or ()) and code not in (*_GONE, ErrorCode.LEADER_NOT_AVAILABLE):
                raise answer_error(code, f"topic {name}")
        there = {TopicPartition(name, each.index) for name, topic in topics.items() for each in topic.partitions}
        missing = [f"topic {name}" for name in names or () if name not in topics]
        if selection.partitions is not None:
            missing += [
                f"partition {each}" for each in selection.partitions if each not in there and each.topic in topics
            ]
            there &= set(selection.partitions)
        return Selected(
            partitions=frozenset(there),
            topic_ids={name: str(topic.id) for name, topic in topics.items() if topic.id is not None},
            missing=tuple(missing),
        )

    async def _listed(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        cluster = self._cluster
        found: dict[TopicPartition, int] = {}

        async def ask_missing() -> None:
            by_leader: dict[int, dict[TopicPartition, int]] = {}
            for partition, to in wanted.items():
                if partition not in found:
                    by_leader.setdefault(await cluster.leader_of(partition), {})[partition] = to
            for leader, some in by_leader.items():
                connection = await cluster.broker_connection(leader)
                answers = await ask_offsets(connection, some, self._level, cluster.request_timeout_ms)
                for partition, answer in answers.items():
                    if not answer.error_code:
                        found[partition] = answer.offset
                for partition, answer in answers.items():
                    if answer.error_code:
                        cluster.forget_topic(partition.topic)
                        raise answer_error(answer.error_code, f"offsets of {partition}")

        await cluster.retry(ask_missing, give_up=_GONE)
        return found

    def _ask(self, question: Callable[[], Coroutine[Any, Any, T]]) -> T:
        tries = max(1, self._options.offset_tries)
        for left in range(tries - 1, -1, -1):
            try:
                return self._thread.call(question())
            except (RetriableError, AnswerError):
                if left == 0:
                    raise
                time.sleep(self._options.offset_retry_ms / 1000)
        raise AssertionError("unreachable")
