"""The batch writer that Spark calls: a whole job is one batch, visible completely or not at all.

With `sinkId` and `batchId`, repeating a completed job writes nothing. Without them the sink has a unique id. `task.py`
and `driver.py` do the work.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from ottla.spark.sink.columns import field_columns, sink_columns
from ottla.spark.sink.decision import BatchName
from ottla.spark.sink.messages import transactions_of
from ottla.spark.sink.options import Delivery, sink_options

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class BatchWriter(DataSourceArrowWriter):
    """Writes one job. Raises `OptionError` for invalid options and columns. Tasks get copies of it."""

    def __init__(self, options: dict[str, str], schema: "StructType") -> None:
        self._options = sink_options(options, is_stream=False)
        find = sink_columns if self._options.encoder is None else field_columns
        self._columns = find(
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
        """Makes the rows of the job visible, after all tasks have written."""
        if self._options.delivery is Delivery.EXACTLY_ONCE:
            from ottla.spark.sink.driver import commit_batch

            commit_batch(self._options, self._batch, transactions_of(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Aborts a failed job: none of its rows becomes visible, unless the decision to commit it is stored."""
        if self._options.delivery is Delivery.EXACTLY_ONCE:
            from ottla.spark.sink.driver import abort_batch

            abort_batch(self._options, self._batch, transactions_of(messages), finish_decided=True)
