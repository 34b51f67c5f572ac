"""The decision of a sink about a batch, and the transactions of its tasks: values only.

`decision_text.py` encodes decisions, `decision_state.py` makes and follows them.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple


class FirstOffset(NamedTuple):
    """The offset of the first record of a transaction in a partition."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTransaction:
    """The transaction with all rows of one attempt of a task."""

    task: int
    """The partition number in Spark: the same in every run of the batch."""
    transactional_id: str
    producer_id: int
    epoch: int
    row_count: int
    byte_count: int
    """Size of keys and values; with `row_count`, it tells whether another run wrote the same rows."""
    first_offsets: tuple[FirstOffset, ...]
    """One per partition; a decision that was read back has only the first."""

    @property
    def name(self) -> tuple[str, int, int]:
        """Unique for every transaction."""
        return self.transactional_id, self.producer_id, self.epoch

    @property
    def content(self) -> tuple[int, int, int]:
        """Equal if another run wrote the same rows."""
        return self.task, self.row_count, self.byte_count


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitDecision:
    """The transactions of a batch. Once it is stored, exactly these are committed, even after a crash."""

    owner: str
    """The query, or empty for a batch write: two queries must not share a sink."""
    batch_id: int
    transactions: tuple[TaskTransaction, ...] = ()
    """In the order of tasks."""
    is_done: bool = False
    """Whether all transactions are committed; then they are no longer listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchName:
    """Identifies a batch: the sink, its owner, and the number."""

    sink_id: str
    owner: str
    batch_id: int


def contents(transactions: Iterable[TaskTransaction]) -> set[tuple[int, int, int]]:
    """The contents of transactions, to compare runs."""
    return {each.content for each in transactions}


def commit_waves(transactions: Iterable[TaskTransaction]) -> tuple[tuple[TaskTransaction, ...], ...]:
    """The order of commits that lets readers see the records of a partition at once, if possible.

    read_committed readers see nothing after the first open transaction of a partition. So transactions that are first
    in a partition are committed last, together.
    """
    every = tuple(transactions)
    first: dict[tuple[str, int], tuple[int, TaskTransaction]] = {}
    for each in every:
        for topic, partition, offset in each.first_offsets:
            known = first.get((topic, partition))
            if known is None or offset < known[0]:
                first[topic, partition] = (offset, each)
    last = {each.name for _, each in first.values()}
    waves = (
        tuple(each for each in every if each.name not in last),
        tuple(each for each in every if each.name in last),
    )
    return tuple(wave for wave in waves if wave)
