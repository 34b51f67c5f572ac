"""The executor's side of a write: writes the rows of one task into one transaction, and reports it to the driver.

Imported only in workers that write, since it imports Arrow. `stream_writer.py` and `batch_writer.py` know the batch.
"""

from collections.abc import Iterator
from itertools import chain
from typing import Final

import pyarrow as pa

from ottla.spark.launch.worker_memory import begin_use
from ottla.spark.sink.columns import SinkColumns
from ottla.spark.sink.decision import BatchName, TaskTransaction
from ottla.spark.sink.messages import TaskMessage
from ottla.spark.sink.options import Delivery, SinkOptions
from ottla.spark.sink.row_writer import RowWriter
from ottla.spark.sink.transaction_pool import POOL

_CLOSE_SECONDS: Final = 5.0


def write_task(
    batches: Iterator[pa.RecordBatch], options: SinkOptions, columns: SinkColumns, batch: BatchName, task: int
) -> TaskMessage:
    """Writes all rows and returns when they are acknowledged; with exactly-once, in a transaction that stays open."""
    begin_use()
    full = (each for each in batches if each.num_rows)
    first = next(full, None)
    if first is None:
        return TaskMessage(batch=batch, transaction=None)
    rows = chain([first], full)
    if options.delivery is Delivery.AT_LEAST_ONCE:
        _write_plainly(rows, options, columns)
        return TaskMessage(batch=batch, transaction=None)
    return TaskMessage(batch=batch, transaction=_write_prepared(rows, options, columns, batch, task))


def _write_plainly(rows: Iterator[pa.RecordBatch], options: SinkOptions, columns: SinkColumns) -> None:
    producer = POOL.plain(options)
    try:
        writer = RowWriter(producer, columns, options.topic, options.encoder)
        writer.write_all(rows)
        writer.finish()
    except BaseException:
        producer.close(0)
        raise
    POOL.give_back(options, None, 0, producer)


def _write_prepared(
    rows: Iterator[pa.RecordBatch], options: SinkOptions, columns: SinkColumns, batch: BatchName, task: int
) -> TaskTransaction:
    producer = POOL.begin(options, batch.sink_id, batch.batch_id)
    try:
        writer = RowWriter(producer, columns, options.topic, options.encoder)
        writer.write_all(rows)
        first_offsets = writer.finish()
        prepared = producer.prepare()
    except BaseException:
        # Also aborts the transaction, if the broker can be reached soon.
        producer.close(_CLOSE_SECONDS)
        raise
    POOL.give_back(options, batch.sink_id, batch.batch_id, producer)
    return TaskTransaction(
        task=task,
        transactional_id=prepared.transactional_id,
        producer_id=prepared.producer_id,
        epoch=prepared.epoch,
        row_count=writer.row_count,
        byte_count=writer.byte_count,
        first_offsets=first_offsets,
    )
