"""What a task tells the driver when its rows are written. Light: the driver needs no Arrow for it."""

from collections.abc import Iterable
from dataclasses import dataclass

from pyspark.sql.datasource import WriterCommitMessage

from ottla.spark.sink.decision import BatchName, TaskTransaction


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskMessage(WriterCommitMessage):
    """What a task tells the driver: for which batch it wrote, and the transaction that has its rows, if it had any."""

    batch: BatchName
    transaction: TaskTransaction | None


def transactions_of(messages: Iterable[WriterCommitMessage | None]) -> list[TaskTransaction]:
    """The transactions that messages tell of; tasks that failed have none, nor have those without rows."""
    told = [each for each in messages if isinstance(each, TaskMessage)]
    return [each.transaction for each in told if each.transaction is not None]
