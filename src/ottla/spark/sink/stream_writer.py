"""The stream writer that Spark talks to: `write` in tasks, then `commit` or `abort` on the driver, once for each batch.

Spark makes a new one for every use, so nothing is kept here: what the driver must know comes in the tasks' messages.
What happens is in `sink_task.py` and `sink_coordinator.py`, imported where it happens: Spark has other processes for
each of these steps, and a query's first batch waits for what they import.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from ottla.model.errors import MisuseError
from ottla.spark.launch.worker_memory import begin_use
from ottla.spark.sink.columns import sink_columns
from ottla.spark.sink.decision import BatchName
from ottla.spark.sink.messages import TaskMessage, transactions_of
from ottla.spark.sink.options import Delivery, sink_options

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of one query. Raises `OptionError` for options and columns that cannot be."""

    def __init__(self, options: dict[str, str], schema: "StructType") -> None:
        # On the driver Spark makes one for each micro-batch to plan, and one to commit, in processes that it keeps.
        begin_use()
        self._options = sink_options(options, is_stream=True)
        self._columns = sink_columns(
            [(field.name, field.dataType.simpleString()) for field in schema.fields], self._options.topic
        )

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        """One task."""
        context = TaskContext.get()
        query = context.getLocalProperty("sql.streaming.queryId") if context is not None else None
        batch_id = context.getLocalProperty("streaming.sql.batchId") if context is not None else None
        if query is None or batch_id is None:
            raise MisuseError("a stream's task must know its query and batch; Spark tells neither here")
        from ottla.spark.sink.task import write_task

        batch = BatchName(sink_id=self._options.sink_id or query, owner=query, batch_id=int(batch_id))
        return write_task(iterator, self._options, self._columns, batch, context.partitionId())

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """All tasks have written: makes the batch visible, exactly once."""
        batch = _batch(messages, batchId)
        if batch is not None and self._options.delivery is Delivery.EXACTLY_ONCE:
            from ottla.spark.sink.driver import commit_batch

            commit_batch(self._options, batch, transactions_of(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """The batch failed: what was written for it, and is not decided, will never be visible."""
        batch = _batch(messages, batchId)
        if batch is not None and self._options.delivery is Delivery.EXACTLY_ONCE:
            from ottla.spark.sink.driver import abort_batch

            abort_batch(self._options, batch, transactions_of(messages), finish_decided=False)


def _batch(messages: Sequence[WriterCommitMessage | None], batch_id: int) -> BatchName | None:
    """Which batch the tasks wrote; None if no task says so."""
    batch = next((each.batch for each in messages if isinstance(each, TaskMessage)), None)
    if batch is not None and batch.batch_id != batch_id:
        raise MisuseError(f"tasks wrote for batch {batch.batch_id}, and batch {batch_id} is to be committed")
    return batch
