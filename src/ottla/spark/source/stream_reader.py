"""Reading topics as a stream: Spark asks for the end of each micro-batch and for its tasks.

On the driver the reader lives as long as its query and keeps its connections; workers only call `read`. Decisions are
in `stream_plan.py` and `admission.py`, requests to the cluster in `topic_offsets.py`.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from ottla.client.errors import AnswerError
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.spark.launch.quiet_exit import end_source_runner
from ottla.spark.source.admission import Limits, must_wait
from ottla.spark.source.data_loss import report_data_loss
from ottla.spark.source.offset_text import EXTRA, StreamOffset, read_offset
from ottla.spark.source.span_plan import spans_between
from ottla.spark.source.span_reading import SpanPartition, SpanReading, options_of, tasks_of
from ottla.spark.source.stream_plan import begins_of, late_losses, look, next_offset
from ottla.spark.source.topic_offsets import Selected, TopicOffsets

BUSY_POLL_S: Final = 0.02
IDLE_POLL_S: Final = 0.1
IDLE_AFTER_S: Final = 5.0
"""Spark polls an idle query 80 times a second; brokers are asked less often, even less while nothing arrives."""
PARTITIONS_MAX_AGE_S: Final = 1.0
RECORD_BYTES_MAX_AGE_S: Final = 10.0


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The topics of one query, from its starting position or its checkpoint on."""

    def __init__(self, options: dict[str, str], schema: Any) -> None:
        self._options = options_of(options, is_stream=True)
        self._reading = SpanReading.for_query(self._options, schema)
        self._limits = Limits(
            offsets_max=self._options.offsets_max,
            bytes_max=self._options.bytes_max,
            offsets_min=self._options.offsets_min,
            delay_ms=self._options.trigger_delay_ms,
        )
        self._asked: TopicOffsets | None = None
        self._initial: StreamOffset | None = None
        self._selected: Selected | None = None
        self._selected_at = 0.0
        self._ends: dict[TopicPartition, int] = {}
        self._ends_at = -IDLE_POLL_S
        self._moved_at = 0.0
        self._last_trigger: float | None = None
        self._is_available_now = False
        self._target: dict[TopicPartition, int] | None = None
        self._record_bytes: dict[TopicPartition, float] = {}
        self._record_bytes_at: float | None = None

    # Called by Spark on the driver

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query begins; resolved once, since "latest" moves."""
        if self._initial is None:
            selected = self._cluster().all_there()
            partitions = selected.partitions
            offsets = self._cluster().resolved(self._options.starting, partitions)
            if self._options.group_id is not None:
                offsets |= self._cluster().committed(self._options.group_id, partitions)
            self._selected, self._selected_at = selected, time.monotonic()
            self._initial = StreamOffset(offsets=offsets, topic_ids=selected.topic_ids, is_initial=True)
        return self._initial.as_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """One of the limits, so that Spark knows that there are some; `latestOffset` applies all of them."""
        if self._limits.offsets_max is not None:
            return ReadMaxRows(self._limits.offsets_max)
        if self._limits.bytes_max is not None:
            return ReadMaxBytes(self._limits.bytes_max)
        if self._limits.offsets_min is not None:
            return ReadMinRows(self._limits.offsets_min)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next micro-batch; `start` itself if there is nothing to read, or not enough yet."""
        begin = read_offset(start)
        limits = Limits() if isinstance(limit, ReadAllAvailable) else self._limits
        ends, selected = self._ends_for(begin)
        changes = look(begin, ends, selected.topic_ids, str(self._options.selection))
        firsts = self._cluster().earliest(changes.new) if changes.new else {}
        losses = [*changes.losses, *late_losses(changes, firsts)]
        if losses:
            report_data_loss("; ".join(losses), fails=self._options.fail_on_data_loss)
        if not self._is_available_now and must_wait({**begin.offsets, **firsts}, ends, limits, self._waited_ms()):
            return start
        averages = self._averages(ends) if limits.bytes_max is not None else None
        template = StreamOffset(
            offsets={},
            topic_ids=selected.topic_ids,
            group=self._options.group_id,
            bootstrap=None if self._options.group_id is None else self._options.bootstrap,
        )
        end = next_offset(begin, ends, firsts, limits, averages, pins=self._start_moves(), template=template)
        if end is None:
            return start
        self._last_trigger = time.monotonic()
        return end.as_json()

    def prepareForTriggerAvailableNow(self) -> None:
        """Trigger.AvailableNow: the stream ends at the end offsets of the next lookup."""
        self._is_available_now = True

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The end offsets for the query's progress; with the bytes of a record, where these are known."""
        if not self._ends:
            return None
        found = StreamOffset(offsets=self._ends).as_json()
        by_topic: dict[str, list[float]] = {}
        # A broker that does not tell log sizes must not fail the query: the bytes are left out.
        with suppress(OttlaError):
            for partition, size in self._averages(self._ends).items():
                by_topic.setdefault(partition.topic, []).append(size)
        if by_topic:
            averages = {topic: round(sum(some) / len(some), 1) for topic, some in sorted(by_topic.items())}
            found[EXTRA] = {"record_bytes": averages}
        return found

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[SpanPartition]:
        """The tasks of the micro-batch between two offsets; the same after a restart."""
        finish = read_offset(end)
        spans = spans_between(begins_of(read_offset(start), finish), finish.offsets)
        return tasks_of(self._options, spans, finish.topic_ids, self._cluster())

    def commit(self, end: dict[str, Any]) -> None:
        """Spark has finished all batches up to `end`: commits it to the group."""
        if self._options.group_id is not None:
            self._cluster().commit(self._options.group_id, read_offset(end).offsets)

    def stop(self) -> None:
        """The query has ended."""
        if self._asked is not None:
            self._asked.close()
            self._asked = None
        end_source_runner()

    # Called by tasks

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        return self._reading.read(partition)

    # Lookups, kept for a while

    def _cluster(self) -> TopicOffsets:
        if self._asked is None:
            self._asked = TopicOffsets(self._options)
        return self._asked

    def _start_moves(self) -> bool:
        """Whether a restart before the first batch would begin somewhere else."""
        starting = self._options.starting
        return starting.kind in ("latest", "timestamp", "timestamps") or -1 in starting.numbers.values()

    def _waited_ms(self) -> float:
        if self._last_trigger is None:
            return float("inf")
        return (time.monotonic() - self._last_trigger) * 1000

    def _ends_for(self, begin: StreamOffset) -> tuple[Mapping[TopicPartition, int], Selected]:
        """The end offsets: current ones, or for AvailableNow those of the first lookup."""
        if self._target is not None and self._selected is not None:
            return self._target, self._selected
        now = time.monotonic()
        wait = IDLE_POLL_S if now - self._moved_at > IDLE_AFTER_S else BUSY_POLL_S
        selected = self._selected
        if selected is None or now - self._ends_at >= wait:
            selected = self._poll(begin)
        if self._is_available_now:
            self._target = self._ends
        return self._ends, selected

    def _poll(self, begin: StreamOffset) -> Selected:
        selected = self._current_partitions()
        try:
            ends = self._cluster().latest(selected.partitions)
        except AnswerError as error:
            if error.error_code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            # A topic was deleted since its partitions were looked up.
            self._selected = None
            selected = self._current_partitions()
            ends = self._cluster().latest(selected.partitions)
        for _ in range(self._options.offset_tries - 1):
            # A leader that was just elected may tell less than was read already.
            if all(ends[each] >= offset for each, offset in begin.offsets.items() if each in ends):
                break
            time.sleep(self._options.offset_retry_ms / 1000)
            ends |= self._cluster().latest(ends)
        now = time.monotonic()
        if ends != self._ends:
            self._moved_at = now
        self._ends, self._ends_at = ends, now
        return selected

    def _current_partitions(self) -> Selected:
        now = time.monotonic()
        max_age_ms = self._options.partitions_max_age_ms
        max_age = PARTITIONS_MAX_AGE_S if max_age_ms is None else max_age_ms / 1000
        if self._selected is None or now - self._selected_at >= max_age:
            self._selected, self._selected_at = self._cluster().selected(), now
        return self._selected

    def _averages(self, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, float]:
        now = time.monotonic()
        is_old = self._record_bytes_at is None or now - self._record_bytes_at >= RECORD_BYTES_MAX_AGE_S
        if is_old or not self._record_bytes.keys() >= ends.keys():
            starts = self._cluster().earliest(ends.keys())
            self._record_bytes = self._cluster().record_bytes({each: (starts[each], end) for each, end in ends.items()})
            self._record_bytes_at = now
        return self._record_bytes
