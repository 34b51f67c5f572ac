"""The stream writer that Spark calls: `write` in tasks, then `commit` or `abort` on the driver, once per batch.

Spark creates a new one for every use, so it has no state: the driver gets everything from the messages of the tasks.
`task.py` and `driver.py` do the work. They are imported late: Spark uses different processes for these steps, and the
first batch of a query waits for their imports.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from ottla.model.errors import MisuseError
from ottla.spark.launch.worker_memory import begin_use
from ottla.spark.sink.columns import field_columns, sink_columns
from ottla.spark.sink.decision import BatchName
from ottla.spark.sink.messages import TaskMessage, transactions_of
from ottla.spark.sink.options import Delivery, sink_options

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of one query. Raises `OptionError` for invalid options and columns."""

    def __init__(self, options: dict[str, str], schema: "StructType") -> None:
        # On the driver Spark creates one per micro-batch to plan and one to commit, in processes that it keeps.
        begin_use()
        self._options = sink_options(options, is_stream=True)
        find = sink_columns if self._options.encoder is None else field_columns
        self._columns = find(
            [(field.name, field.dataType.simpleString()) for field in schema.fields], self._options.topic
        )

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        """One task."""
        context = TaskContext.get()
        query = context.getLocalProperty("sql.streaming.queryId") if context is not None else None
        batch_id = context.getLocalProperty("streaming.sql.batchId") if context is not None else None
        if query is None or batch_id is None:
            raise MisuseError("Spark did not pass the query and batch to the task of a stream")
        from ottla.spark.sink.task import write_task

        batch = BatchName(sink_id=self._options.sink_id or query, owner=query, batch_id=int(batch_id))
        return write_task(iterator, self._options, self._columns, batch, context.partitionId())

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Makes the batch visible exactly once, after all tasks have written."""
        batch = _batch(messages, batchId)
        if batch is not None and self._options.delivery is Delivery.EXACTLY_ONCE:
            from ottla.spark.sink.driver import commit_batch

            commit_batch(self._options, batch, transactions_of(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Aborts a failed batch: undecided transactions never become visible."""
        batch = _batch(messages, batchId)
        if batch is not None and self._options.delivery is Delivery.EXACTLY_ONCE:
            from ottla.spark.sink.driver import abort_batch

            abort_batch(self._options, batch, transactions_of(messages), finish_decided=False)


def _batch(messages: Sequence[WriterCommitMessage | None], batch_id: int) -> BatchName | None:
    """The batch that the tasks wrote; None if there are no messages."""
    batch = next((each.batch for each in messages if isinstance(each, TaskMessage)), None)
    if batch is not None and batch.batch_id != batch_id:
        raise MisuseError(f"tasks wrote batch {batch.batch_id}, but batch {batch_id} is to be committed")
    return batch
