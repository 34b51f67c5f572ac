"""The message from a task to the driver when its rows are written. Does not import Arrow, which the driver lacks."""

from collections.abc import Iterable
from dataclasses import dataclass

from pyspark.sql.datasource import WriterCommitMessage

from ottla.spark.sink.decision import BatchName, TaskTransaction


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskMessage(WriterCommitMessage):
    """The batch that a task wrote for, and the transaction with its rows, if it had any."""

    batch: BatchName
    transaction: TaskTransaction | None


def transactions_of(messages: Iterable[WriterCommitMessage | None]) -> list[TaskTransaction]:
    """The transactions in messages; tasks that failed or had no rows have none."""
    told = [each for each in messages if isinstance(each, TaskMessage)]
    return [each.transaction for each in told if each.transaction is not None]
