"""The driver's requests to a cluster: partitions, their first and end offsets, and committed offsets.

Blocking, on an event loop of its own. Retriable errors are retried `fetchOffset.numRetries` times, each for as long as
the clients retry by themselves. What follows for a query is in `stream_plan.py`.
"""

import time
from collections.abc import Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from ottla.client.admin.acls import ACLOperation
from ottla.client.admin.config_requests import Resource, describe_configs
from ottla.client.admin.group_offsets import commit_offsets, committed_offsets
from ottla.client.admin.options import AdminConfig
from ottla.client.admin.topic_requests import describe_log_dirs, partition_sizes, topic_operations
from ottla.client.consumer.options import ISOLATION_LEVELS
from ottla.client.consumer.topic_pattern import TopicPattern
from ottla.client.errors import AnswerError, answer_error
from ottla.client.loop_thread import LoopThread
from ottla.client.network.cluster import Cluster
from ottla.client.network.list_offsets import END, START, find_offsets
from ottla.client.options import OptionError, configured
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import InvalidRequestError, OttlaError, RetriableError
from ottla.model.ids import TopicPartition
from ottla.model.queue_names import TTL_DEFAULT_MS, TTL_ENABLE
from ottla.protocol.config_resources import ResourceType
from ottla.spark.option_names import chosen_for
from ottla.spark.source.data_loss import logger
from ottla.spark.source.offset_text import EARLIEST, LATEST, listed
from ottla.spark.source.options import Position, Selection, SourceOptions
from ottla.spark.source.segment_scan import SegmentHint
from ottla.spark.source.span_scan import client_id_of

T = TypeVar("T")

HINTS_MAX_AGE_S: Final = 60.0
_GONE: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,)


class MissingTopicError(InvalidRequestError):
    """A topic or partition that a query names does not exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selected:
    """The partitions that a query reads, as they are now."""

    partitions: frozenset[TopicPartition]
    topic_ids: Mapping[str, str]
    """Of topics whose id the broker tells."""
    missing: tuple[str, ...] = ()
    """Topics or partitions that the query names and the cluster does not have."""


class TopicOffsets:
    """The requests of one query, about the partitions that its options select."""

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
        """Closes all connections. Calling it again does nothing."""
        self._thread.close()

    def selected(self) -> Selected:
        """The selected partitions as they are now; a missing topic is not an error here."""
        return self._ask(lambda: self._selected(self._options.selection))

    def all_there(self) -> Selected:
        """The same for a new query: raises `MissingTopicError`."""
        for left in range(self._options.offset_tries - 1, -1, -1):
            found = self.selected()
            if not found.missing and (found.partitions or self._options.selection.pattern is not None):
                break
            if left == 0:
                raise MissingTopicError(
                    f"{self._options.selection}: {self._options.bootstrap} has no {', '.join(found.missing)}; "
                    "`ottla topics list` shows all topics"
                )
            time.sleep(self._options.offset_retry_ms / 1000)
        return found

    def earliest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset of each partition."""
        return self.at_numbers(dict.fromkeys(partitions, START))

    def latest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The end offset of each partition for the query's isolation level."""
        return self.at_numbers(dict.fromkeys(partitions, END))

    def at_numbers(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The first offset at or after a timestamp in ms, -1 if there is none; or for `START` and `END`."""
        if not wanted:
            return {}
        found = self._ask(lambda: self._listed(wanted))
        return dict(sorted(found.items()))

    def resolved(self, position: Position, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset of a position in each partition. Raises `OptionError` if it does not fit the partitions.

        A timestamp after the last record means the end offset; for a start it may be an error, as the options say.
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
                f"{position.option} must name exactly the partitions that are read: "
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
                f"{position.option}: {listed(set(absent))} has no record at or after timestamp {numbers[absent[0]]}; "
                "startingOffsetsByTimestampStrategy=latest begins at the end offset"
            )
        return dict(sorted({**found, **self.latest(absent)}.items()))

    def committed(self, group: str, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The committed offsets of a group for these partitions."""
        found = self._ask(lambda: committed_offsets(self._cluster, group))
        return {each: found[each].offset for each in partitions if each in found}

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commits for a group without members the offsets that are further than its committed ones.

        A failure is only logged: the query's own offsets are in its checkpoint.
        """
        try:
            has = self._thread.call(committed_offsets(self._cluster, group))
            ahead = {each: offset for each, offset in offsets.items() if each not in has or has[each].offset < offset}
            refused = self._thread.call(commit_offsets(self._cluster, group, ahead)) if ahead else {}
        except OttlaError as failure:
            logger.warning("commit to group %s failed: %s", group, failure)
            return
        for partition, error in refused.items():
            logger.warning("commit of %s to group %s failed: %s", partition, group, error)

    def record_bytes(self, bounds: Mapping[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, float]:
        """The average bytes per offset in the log, for partitions with these (start, end)."""
        sizes = self._ask(lambda: partition_sizes(self._cluster, list(bounds)))
        return {each: sizes[each] / max(1, end - start) for each, (start, end) in bounds.items() if each in sizes}

    def segment_hints(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, SegmentHint]:
        """Where the leaders have these partitions' files.

        Left out are partitions whose leader does not report its files, topics that this client may not read (files have
        no ACLs), and topics with a TTL, whose files still have expired records.
        """
        wanted = set(partitions)
        now = time.monotonic()
        try:
            if now - self._hints_at >= HINTS_MAX_AGE_S or not wanted <= self._hints.keys():
                self._hints = dict.fromkeys(wanted)
                self._hints_at = now
                self._hints.update(self._ask(lambda: self._segment_hints(wanted)))
            known = {each: hint for each, hint in self._hints.items() if hint is not None and each in wanted}
            # Asked every time: a TTL counts from the moment when it is set, and so does an ACL.
            readable = self._ask(lambda: self._readable_topics({each.topic for each in known}))
            known = {each: hint for each, hint in known.items() if each.topic in readable}
            timed = self._ask(lambda: self._topics_with_ttl(readable))
        except OttlaError as error:
            # A broker may not tell; then records are fetched.
            logger.info("cannot use segment files, fetching instead: %s", error)
            return {}
        return {each: hint for each, hint in known.items() if each.topic not in timed}

    async def _readable_topics(self, topics: Collection[str]) -> set[str]:
        if not topics:
            return set()
        operations = await topic_operations(self._cluster, topics)
        return {topic for topic, bits in operations.items() if bits & (1 << ACLOperation.READ)}

    async def _topics_with_ttl(self, topics: Collection[str]) -> set[str]:
        found = set()
        for topic in topics:
            entries = await describe_configs(
                self._cluster, Resource(type=ResourceType.TOPIC, name=topic), (TTL_ENABLE, TTL_DEFAULT_MS), of_any=True
            )
            values = {each.name: each.value for each in entries}
            # Apache Kafka knows neither.
            if values.get(TTL_ENABLE, "false") != "false" or values.get(TTL_DEFAULT_MS, "-1") != "-1":
                found.add(topic)
        return found

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
        pattern = None if selection.pattern is None else TopicPattern(selection.pattern)
        if pattern is not None:
            names = tuple(
                sorted(
                    name for name, each in view.topics.items() if not each.is_internal and pattern.matches_whole(name)
                )
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
        found = await find_offsets(self._cluster, wanted, isolation_level=self._level, give_up=_GONE)
        return {partition: answer.offset for partition, answer in found.items()}

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
