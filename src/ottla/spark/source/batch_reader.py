"""Reading topics as a batch: on the driver it finds the offsets to read and divides them into tasks.

Spark creates it on the driver, calls `partitions`, and sends it to the workers, whose tasks call `read`; so it holds
plain values only. What a task does is in `span_scan.py`; streams are read in `stream_reader.py`.
"""

from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader

from ottla.client.options import OptionError
from ottla.model.ids import TopicPartition
from ottla.spark.source.span_plan import spans_between
from ottla.spark.source.span_reading import SpanPartition, SpanReading, options_of, tasks_of
from ottla.spark.source.topic_offsets import TopicOffsets


class BatchReader(DataSourceReader):
    """The records between two positions, which are resolved when the query is planned."""

    def __init__(self, options: dict[str, str], schema: Any) -> None:
        self._options = options_of(options, is_stream=False)
        self._reading = SpanReading.for_query(self._options, schema)

    def partitions(self) -> list[SpanPartition]:
        """One for each task."""
        with closing(TopicOffsets(self._options)) as asked:
            found = asked.all_there()
            selected = found.partitions
            starts = asked.resolved(self._options.starting, selected)
            if self._options.group_id is not None:
                starts |= asked.committed(self._options.group_id, selected)
            ends = asked.resolved(self._options.ending, selected)
            _refuse_backwards(starts, ends)
            return tasks_of(self._options, spans_between(starts, ends), found.topic_ids, asked)

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        return self._reading.read(partition)


def _refuse_backwards(starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> None:
    for partition, start in starts.items():
        if start > ends[partition]:
            raise OptionError(
                f"{partition}: the starting offset {start} is after the end {ends[partition]}; it was not written yet, "
                "or the topic was recreated"
            )
