"""The batch writer that Spark talks to: a whole job is one batch, visible as a whole or not at all.

With `sinkId` and `batchId` a job that was done once does nothing when it is run again. Without them it has a name that
nobody else has. What happens is in `sink_task.py` and `sink_coordinator.py`.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from ottla.spark.sink.columns import sink_columns
from ottla.spark.sink.decision import BatchName
from ottla.spark.sink.messages import transactions_of
from ottla.spark.sink.options import Delivery, sink_options

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class BatchWriter(DataSourceArrowWriter):
    """Writes one job. Raises `OptionError` for options and columns that cannot be. The tasks get copies of it."""

    def __init__(self, options: dict[str, str], schema: "StructType") -> None:
        self._options = sink_options(options, is_stream=False)
        self._columns = sink_columns(
            [(field.name, field.dataType.simpleString()) for field in schema.fields], self._options.topic
        )
        if self._options.batch_id is not None and self._options.sink_id is not None:
            self._batch = BatchName(sink_id=self._options.sink_id, owner="", batch_id=self._options.batch_id)
        else:
            self._batch = BatchName(sink_id=str(uuid4()), owner="", batch_id=0)

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        """One task."""
        from ottla.spark.sink.task import write_task

        return write_task(iterator, self._options, self._columns, self._batch, TaskContext.get().partitionId())

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """All tasks have written: makes the job's rows visible."""
        if self._options.delivery is Delivery.EXACTLY_ONCE:
            from ottla.spark.sink.driver import commit_batch

            commit_batch(self._options, self._batch, transactions_of(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """The job failed: nothing of it will be visible, unless it was decided that all of it will."""
        if self._options.delivery is Delivery.EXACTLY_ONCE:
            from ottla.spark.sink.driver import abort_batch

            abort_batch(self._options, self._batch, transactions_of(messages), finish_decided=True)
