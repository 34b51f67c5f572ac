"""What batch and stream readers share: options, tasks for spans, and reading in a task.

Spark sends `SpanReading` from the driver to the workers, so it holds plain values only.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from ottla.client.options import OptionError
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.spark.launch.worker_memory import begin_use
from ottla.spark.source.options import SourceOptions, parse_source_options
from ottla.spark.source.schema import COLUMN_TYPES, chosen_columns
from ottla.spark.source.segment_scan import OFFSETS_MIN, SegmentHint
from ottla.spark.source.span_plan import OffsetSpan, SplitRules, split_spans
from ottla.spark.source.span_scan import ScanPlan, scan_plan, scan_span
from ottla.spark.source.topic_offsets import TopicOffsets


class SpanPartition(InputPartition):
    """The work of one task, as Spark sends it."""

    def __init__(self, span: OffsetSpan, hint: SegmentHint | None, topic_id: str | None) -> None:
        super().__init__(span)
        self.hint = hint
        self.topic_id = topic_id


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanReading:
    """How the tasks of a query read."""

    plan: ScanPlan
    decoder: Any
    """Decodes values into columns; None if values stay bytes."""

    @classmethod
    def for_query(cls, options: SourceOptions, schema: Any) -> "SpanReading":
        """The reading for these options and columns. Raises `OptionError` for an unknown column."""
        if options.value_format is None:
            return cls(plan=scan_plan(options, chosen_columns(schema)), decoder=None)
        from ottla.spark.values.value_format import decoder_for

        decoder = decoder_for(options.raw, schema)
        with_headers = bool(getattr(decoder, "wants_headers", True))
        columns = [name for name in COLUMN_TYPES if with_headers or name != "headers"]
        return cls(plan=scan_plan(options, columns), decoder=decoder)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task; none for the empty task that Spark adds when there is nothing to read."""
        begin_use()
        span = partition.value
        if span is None:
            return
        hint, topic_id = getattr(partition, "hint", None), getattr(partition, "topic_id", None)
        for batch in scan_span(self.plan, OffsetSpan(*span), hint, topic_id):
            if self.decoder is None:
                yield batch
            else:
                yield from self.decoder.decode(batch)


def options_of(raw: dict[str, str], *, is_stream: bool) -> SourceOptions:
    """The options of a query, those of value formats included."""
    if not raw:
        raise OptionError(
            "no options were passed. Spark drops those of CREATE TABLE … USING ottla; use CREATE TEMPORARY VIEW … "
            "USING ottla OPTIONS (…), or spark.read.format('ottla').options(…)"
        )
    further: tuple[str, ...] = ()
    if raw.get("valueformat", "").strip():
        from ottla.spark.values.value_format import OPTION_NAMES

        further = tuple(OPTION_NAMES)
    return parse_source_options(raw, is_stream=is_stream, further=further)


def tasks_of(
    options: SourceOptions, spans: Sequence[OffsetSpan], topic_ids: Mapping[str, str], asked: TopicOffsets
) -> list[SpanPartition]:
    """The work of all tasks, by the query's options; `topic_ids` are those of the topics that the spans are of."""
    rules = SplitRules(
        tasks_min=options.partitions_min,
        records_max=options.records_per_task_max,
        bytes_max=options.bytes_per_task_max,
    )
    averages = _averages(spans, asked) if rules.bytes_max is not None and spans else None
    pieces = split_spans(spans, rules, averages)
    large = {each.partition for each in pieces if options.segments == "always" or each.size >= OFFSETS_MIN}
    hints = _hints(spans, large, asked) if large and options.segments != "never" else {}
    tasks = []
    for each in pieces:
        hint, topic_id = hints.get(each.partition), topic_ids.get(each.partition.topic)
        is_other = hint is not None and topic_id not in (None, hint.topic_id)
        tasks.append(SpanPartition(each, None if is_other else hint, topic_id))
    return tasks


def _averages(spans: Sequence[OffsetSpan], asked: TopicOffsets) -> dict[TopicPartition, float] | None:
    partitions = {each.partition for each in spans}
    # What is gone meanwhile is for the tasks to tell: they know whether the query may go on without.
    with suppress(OttlaError):
        starts, ends = asked.earliest(partitions), asked.latest(partitions)
        return asked.record_bytes({each: (starts[each], ends[each]) for each in partitions})
    return None


def _hints(
    spans: Sequence[OffsetSpan], large: set[TopicPartition], asked: TopicOffsets
) -> dict[TopicPartition, SegmentHint]:
    with suppress(OttlaError):
        firsts = asked.earliest(large)
        # Files may still have records before the log's start, which are deleted: only the broker tells of that loss.
        return asked.segment_hints(
            [each.partition for each in spans if each.start >= firsts.get(each.partition, each.end)]
        )
    return {}
