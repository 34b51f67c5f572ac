"""Reads ranges of partitions, without a group and without commits: the caller says from which offset to which.

Handles leaders that move and brokers that restart. Consumers that follow topics are in `ottla.client.consumer`.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from ottla.client.errors import (
    AnswerError,
    CannotConnectError,
    ConnectionLostError,
    CorruptLogError,
    DeadlineError,
    RetriableAnswerError,
    answer_error,
    error_code_of,
)
from ottla.client.fetch.chunk import Chunk
from ottla.client.fetch.fetch_connections import FetchConnections
from ottla.client.fetch.fetch_plan_state import FetchLimits, FetchPlanState, FetchProblem, Leader
from ottla.client.fetch.fetcher import Fetcher, FetchRules
from ottla.client.fetch.metadata_watch import MetadataWatch
from ottla.client.fetch.partition_state import PartitionState, Phase
from ottla.client.network.cluster import Cluster, UnknownPartitionInTopicError
from ottla.client.network.cluster_view import ClusterView
from ottla.client.network.list_offsets import START, list_offsets
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import OttlaError, RetriableError
from ottla.model.ids import TopicPartition
from ottla.protocol.fetch_frames import READ_UNCOMMITTED

FETCH_BYTES_MAX: Final = 16 * 1024 * 1024
PARTITION_BYTES_MAX: Final = 4 * 1024 * 1024
WAIT_MS: Final = 500
_ANSWER_TIMEOUT_MS: Final = 30_000
_METADATA_MAX_AGE_MS: Final = 300_000
_READ_AHEAD_ANSWERS: Final = 3
"""How many full responses of a partition may wait before nothing more is asked for."""
MISSING_CODES: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """From `start` to `end`, exclusive; without an end, reading never stops by itself."""

    start: int
    end: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeRules:
    """How ranges are read."""

    isolation_level: int = READ_UNCOMMITTED
    wait_ms: int = WAIT_MS
    """How long a broker waits for records that are not written yet."""
    fetch_bytes_max: int = FETCH_BYTES_MAX
    partition_bytes_max: int = PARTITION_BYTES_MAX
    request_timeout_ms: int = _ANSWER_TIMEOUT_MS
    retry_timeout_ms: int | None = None
    """How long failures are retried while no broker answers; None for the client's request timeout."""
    records_timeout_ms: int | None = None
    """How long no record may arrive; None to wait forever, as long as brokers answer."""
    missing_tries: int | None = None
    """How often a topic or partition may be unknown before that is final; None to retry like any other failure."""
    topic_id: UUID | None = None
    """The id of the one topic that is read: a topic recreated under the same name is unknown."""
    skips_deleted: bool = False
    """Whether records that are deleted before they are read are left out; otherwise that is an error."""


class RangeFetch:
    """Reads each partition's range from its leader. `chunks` may be iterated once.

    `connections` are shared with other readers of the cluster; without them, this one has its own.
    """

    def __init__(
        self,
        cluster: Cluster,
        ranges: Mapping[TopicPartition, OffsetRange],
        rules: RangeRules | None = None,
        *,
        connections: FetchConnections | None = None,
    ) -> None:
        self._cluster = cluster
        self._rules = rules or RangeRules()
        self._connections = connections or FetchConnections(cluster)
        self._owns_connections = connections is None
        self._partitions = {
            partition: PartitionState(phase=Phase.FETCHING, offset=each.start, end=each.end)
            for partition, each in ranges.items()
            if each.end is None or each.start < each.end
        }
        """The partitions that are not read to their end."""
        self._plan = FetchPlanState(self._partitions, self._limits())
        self._metadata = MetadataWatch(
            cluster,
            cluster.backoff,
            max_age_ms=_METADATA_MAX_AGE_MS,
            may_create=lambda: False,
            topics=lambda: {partition.topic for partition in self._partitions},
            on_view=self._on_view,
            on_error=self._on_network_error,
        )
        self._fetcher = Fetcher(
            cluster,
            self._connections,
            self._plan,
            self._fetch_rules(),
            leaders=self._leaders,
            on_answer=self._on_answer,
            on_failure=self._on_fetch_failure,
            on_end=self._on_task_end,
        )
        self._changed = asyncio.Event()
        self._failure: BaseException | None = None
        """The error that ends reading, once everything fetched before it was handed out."""
        self._out_of_range: dict[TopicPartition, OttlaError] = {}
        """Partitions whose next offset does not exist, and may have been deleted."""
        self._trouble: OttlaError | None = None
        """The last error that is retried."""
        self._failing_since: float | None = None
        """When the first failure happened since a broker last answered."""
        self._records_at = 0.0
        """When records were last handed out."""
        self._tries: dict[TopicPartition, int] = {}
        """How often each partition failed since its records were last handed out."""

    def _limits(self) -> FetchLimits:
        rules = self._rules
        return FetchLimits(
            partition_bytes_max=rules.partition_bytes_max,
            read_ahead_bytes=max(_READ_AHEAD_ANSWERS * rules.partition_bytes_max, rules.fetch_bytes_max),
            isolation_level=rules.isolation_level,
        )

    async def chunks(self) -> AsyncGenerator[Chunk, None]:
        """Yields the chunks of all partitions as they arrive, in order within each; ends when all ranges are read.

        Raises `AnswerError` for what cannot be read, such as an offset out of range, after all records before it;
        `DeadlineError`, `CannotConnectError` or `ConnectionLostError` when the time for retries is over.
        """
        if not self._partitions:
            return
        try:
            is_current = all(self._metadata.leader(partition) is not None for partition in self._partitions)
            self._metadata.start(is_current=is_current).add_done_callback(self._on_task_end)
            self._fetcher.wake()
            self._records_at = self._cluster.clock.monotonic()
            while self._partitions:
                self._changed.clear()
                found = self._plan.take_chunks(0)
                for chunk in found:
                    self._on_taken(chunk.partition)
                    yield chunk
                if not found and not self._forget_finished():
                    await self._wait()
        finally:
            await self._fetcher.stop()
            await self._metadata.stop()
            if self._owns_connections:
                self._connections.close()

    def _fetch_rules(self) -> FetchRules:
        rules = self._rules
        return FetchRules(
            wait_ms=rules.wait_ms,
            bytes_min=1,
            bytes_max=rules.fetch_bytes_max,
            request_timeout_ms=rules.request_timeout_ms,
            backoff=self._cluster.backoff,
            has_sessions=False,
            topic_id=rules.topic_id,
        )

    # Handing out

    def _on_taken(self, partition: TopicPartition) -> None:
        self._records_at = self._cluster.clock.monotonic()
        self._tries.pop(partition, None)
        self._out_of_range.pop(partition, None)
        if self._partitions[partition].is_at_end:
            del self._partitions[partition]
        if self._fetcher.has_room_again():
            self._fetcher.wake()

    def _forget_finished(self) -> bool:
        """With nothing queued, partitions whose range ends in a gap are finished too; says whether there were any."""
        finished = [partition for partition, state in self._partitions.items() if state.is_at_end]
        for partition in finished:
            del self._partitions[partition]
        return bool(finished)

    async def _wait(self) -> None:
        """Returns when something happened; raises the error that ends reading."""
        if self._failure is not None:
            raise self._failure
        if self._out_of_range:
            await self._skip_deleted()
            return
        now = self._cluster.clock.monotonic()
        deadlines = []
        if self._failing_since is not None:
            deadlines.append(self._failing_since + self._retry_timeout_ms / 1000)
        if self._rules.records_timeout_ms is not None:
            deadlines.append(self._records_at + self._rules.records_timeout_ms / 1000)
        if deadlines and min(deadlines) <= now:
            raise self._deadline_error(now)
        try:
            async with asyncio.timeout(min(deadlines) - now if deadlines else None):
                await self._changed.wait()
        except TimeoutError:
            return

    async def _skip_deleted(self) -> None:
        """Goes on at the start of each log. An offset behind that is not written yet: its error ends reading."""
        for partition in self._out_of_range:
            self._partitions[partition].phase = Phase.RESETTING
        starts = await list_offsets(self._cluster, dict.fromkeys(self._out_of_range, START))
        for partition, (start, _) in starts.items():
            error, state = self._out_of_range.pop(partition), self._partitions[partition]
            if start <= state.offset:
                self._fail(error)
            state.offset, state.phase = start, Phase.FETCHING
        self._fetcher.wake()

    @property
    def _retry_timeout_ms(self) -> int:
        timeout_ms = self._rules.retry_timeout_ms
        return self._cluster.request_timeout_ms if timeout_ms is None else timeout_ms

    def _deadline_error(self, now: float) -> OttlaError:
        trouble = self._trouble
        records_timeout_ms = self._rules.records_timeout_ms
        if records_timeout_ms is not None and self._records_at + records_timeout_ms / 1000 <= now:
            partition, state = next(iter(self._partitions.items()))
            reason = "" if trouble is None else f" ({trouble})"
            return DeadlineError(
                f"{partition}: no records arrived at offset {state.offset} for {records_timeout_ms} ms{reason}"
            )
        if isinstance(trouble, RetriableAnswerError):
            return trouble
        kind = type(trouble) if isinstance(trouble, CannotConnectError | ConnectionLostError) else DeadlineError
        return kind(f"{trouble} (no broker answered for {self._retry_timeout_ms} ms)")

    # What brokers answer

    def _leaders(self) -> dict[TopicPartition, Leader]:
        if self._failure is not None:
            # Nothing more is fetched: the error is raised once what was fetched is handed out.
            return {}
        found = {each: leader for each in self._partitions if (leader := self._metadata.leader(each)) is not None}
        if len(found) < len(self._partitions):
            self._metadata.refresh_soon()
        return found

    def _on_answer(self, problems: Sequence[FetchProblem]) -> None:
        self._failing_since = self._trouble = None
        for problem in problems:
            self._on_partition_error(problem.partition, _error_of(problem))
            self._metadata.refresh_soon()
        self._changed.set()

    def _on_fetch_failure(self, error: OttlaError) -> None:
        self._on_network_error(error)
        self._metadata.refresh_soon()

    def _on_network_error(self, error: OttlaError) -> None:
        """A request failed. An address where nothing listens at the first try is final: it is probably wrong."""
        is_first_contact = isinstance(error, CannotConnectError) and not self._cluster.view.brokers
        if is_first_contact or not isinstance(error, RetriableError):
            self._fail(error)
        else:
            self._on_trouble(error)

    def _on_view(self, view: ClusterView) -> None:
        """The metadata was refreshed: partitions without a leader cannot be read for now."""
        for partition in self._partitions:
            if self._metadata.leader(partition) is None:
                self._on_partition_error(partition, _missing_error(partition, view))
        self._fetcher.wake()
        self._changed.set()

    def _on_partition_error(self, partition: TopicPartition, error: OttlaError) -> None:
        """A partition cannot be read now; what is final ends reading, the rest is retried after a backoff."""
        state = self._partitions.get(partition)
        if state is None:
            return
        tries = self._tries[partition] = self._tries.get(partition, 0) + 1
        state.retry_at = (
            self._cluster.clock.monotonic() + self._cluster.backoff.wait_ms(tries, self._cluster.random) / 1000
        )
        missing_tries = self._rules.missing_tries
        if is_missing(error) and missing_tries is not None:
            is_final = tries > missing_tries
        else:
            is_final = not isinstance(error, RetriableError)
        if is_final and self._rules.skips_deleted and _is_out_of_range(error):
            self._out_of_range[partition] = error
        elif is_final:
            self._fail(error)
        else:
            self._on_trouble(error)

    def _on_trouble(self, error: OttlaError) -> None:
        self._trouble = error
        if self._failing_since is None:
            self._failing_since = self._cluster.clock.monotonic()
        self._changed.set()

    def _fail(self, error: BaseException) -> None:
        self._failure = self._failure or error
        self._changed.set()

    def _on_task_end(self, task: "asyncio.Task[None]") -> None:
        """Raises in `chunks` what ended a task by mistake."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)


def is_missing(error: OttlaError) -> bool:
    """Whether an error says that a topic or partition does not exist."""
    if isinstance(error, UnknownPartitionInTopicError):
        return True
    return isinstance(error, RetriableAnswerError) and error.error_code in MISSING_CODES


def _is_out_of_range(error: OttlaError) -> bool:
    return isinstance(error, AnswerError) and error.error_code is ErrorCode.OFFSET_OUT_OF_RANGE


def _missing_error(partition: TopicPartition, view: ClusterView) -> OttlaError:
    topic = view.topics.get(partition.topic)
    if topic is None:
        code = view.errors.get(partition.topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return answer_error(code, f"topic {partition.topic}")
    if not 0 <= partition.partition < len(topic.partitions):
        return UnknownPartitionInTopicError(
            f"topic {topic.name} has no partition {partition.partition};"
            f" its partitions are 0 to {len(topic.partitions) - 1}"
        )
    return answer_error(ErrorCode.LEADER_NOT_AVAILABLE, f"partition {partition}")


def _error_of(problem: FetchProblem) -> OttlaError:
    what = f"reading {problem.partition} at offset {problem.offset}"
    if problem.detail is not None:
        return AnswerError(error_code_of(problem.error_code), f"{what}: {problem.detail}")
    if problem.error_code == ErrorCode.CORRUPT_MESSAGE:
        # Not retriable here: where another replica has the batch, the broker answers KAFKA_STORAGE_ERROR meanwhile.
        return CorruptLogError(problem.partition, problem.offset)
    advice = None
    if problem.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
        advice = "the offset does not exist; its record was deleted or is not written yet"
    return answer_error(problem.error_code, what, advice)
