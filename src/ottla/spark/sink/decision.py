"""A sink's decision about a batch, and the tasks' transactions it is about: values only.

`decision_text.py` writes them down, `sink_decision_state.py` makes and follows them.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple


class FirstOffset(NamedTuple):
    """Where a transaction's first record in one partition is."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTransaction:
    """The transaction into which one attempt of one task wrote all of its rows."""

    task: int
    """The number of Spark's partition: what the same task is called in every run of the batch."""
    transactional_id: str
    producer_id: int
    epoch: int
    row_count: int
    byte_count: int
    """Of keys and values: with the rows, by which another run's rows are recognized as the same."""
    first_offsets: tuple[FirstOffset, ...]
    """One for each partition written to; a decision that was read back has only the first of them."""

    @property
    def name(self) -> tuple[str, int, int]:
        """No other transaction has the same."""
        return self.transactional_id, self.producer_id, self.epoch

    @property
    def content(self) -> tuple[int, int, int]:
        """By which another run's attempt at the same rows is recognized."""
        return self.task, self.row_count, self.byte_count


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Which transactions are a batch. Once stored they are committed, whatever happens, and no others."""

    owner: str
    """The query, or nothing for a batch write: two of them must not share a sink."""
    batch_id: int
    transactions: tuple[TaskTransaction, ...] = ()
    """In the order of their tasks."""
    is_done: bool = False
    """Whether all of them are known to be committed; then they are not listed any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchName:
    """Which batch of which sink, and whose."""

    sink_id: str
    owner: str
    batch_id: int


def contents(transactions: Iterable[TaskTransaction]) -> set[tuple[int, int, int]]:
    """What these transactions hold, as far as runs can be compared."""
    return {each.content for each in transactions}


def commit_waves(transactions: Iterable[TaskTransaction]) -> tuple[tuple[TaskTransaction, ...], ...]:
    """In what order to commit them, so that readers see a partition's part of the batch all at once if that can be.

    Readers of committed records see nothing behind a partition's first open transaction. So those that are first in
    some partition go last, together.
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
