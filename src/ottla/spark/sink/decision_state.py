"""How a driver commits a batch exactly once: decides the next step. Pure; `broker_requests.py` carries it out.

A batch is a set of transactions, one for each task that had rows. First a decision that lists them is stored; then they
are committed. A driver that repeats the batch finds the decision, completes it, and aborts what it wrote itself.

    fence -> read -+- none, or of an older batch, done ----- -> store -> commit -> finish
                   +- an older batch's, not done --------------> commit -> store -> commit -> finish
                   +- this batch's, not done ------------------> commit -> finish
                   +- this batch's, done ----------------------> finish
    commit -> some are refused -> inspect -+- all committed after all -> on, as above
                                           +- some are aborted: store a decision with what this run wrote instead

Two rules make it safe. A decision is stored under the fence that was taken before the last decision was read, so no
other decision can come in between. And a transaction counts as lost only if the log has its abort marker.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from ottla.client.admin.transaction_outcome import TransactionOutcome
from ottla.model.errors import MisuseError
from ottla.spark.sink.decision import CommitDecision, TaskTransaction, commit_waves, contents
from ottla.spark.sink.errors import (
    BatchNotWrittenError,
    BatchTornError,
    LaterBatchError,
    OutcomeUnknownError,
    SinkTakenError,
)

Names: TypeAlias = frozenset[tuple[str, int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeFence:
    """Fence all other drivers of the sink; then `on_fence`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadDecision:
    """Read the last decision of the sink; then `on_read`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreDecision:
    """Store the decision atomically, and only if the fence is still held; then `on_stored`."""

    decision: CommitDecision


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitTransactions:
    """Commit the transactions, wave after wave; then `on_ended` with those that cannot be committed."""

    waves: tuple[tuple[TaskTransaction, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectTransactions:
    """Find the outcomes of the transactions in the log; then `on_inspected`."""

    transactions: tuple[TaskTransaction, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishBatch:
    """Store that the batch is done, if needed, and abort undecided transactions. The last step."""

    done: CommitDecision | None
    undecided: tuple[TaskTransaction, ...]
    """Transactions of this run that are not part of the batch."""
    keep: Names
    """Decided transactions, which must not be aborted."""


Effect: TypeAlias = TakeFence | ReadDecision | StoreDecision | CommitTransactions | InspectTransactions | FinishBatch


class SinkCommitState:
    """One run of one batch on one driver, after all tasks have written."""

    def __init__(self, *, sink_id: str, owner: str, batch_id: int, offered: Iterable[TaskTransaction]) -> None:
        self._sink_id = sink_id
        self._owner = owner
        self._batch_id = batch_id
        self._offered = tuple(sorted(offered, key=lambda each: each.task))
        """The transactions of this run, by task."""
        self._followed: CommitDecision | None = None
        """The stored decision that is being carried out, until it is done."""
        self._storing: CommitDecision | None = None
        if len({each.task for each in self._offered}) != len(self._offered):
            raise MisuseError(f"two transactions of one task are offered for batch {batch_id} of sink {sink_id}")

    def start(self) -> Effect:
        """The first step."""
        return TakeFence()

    def on_fence(self) -> Effect:
        """All other drivers are fenced."""
        return ReadDecision()

    def on_read(self, found: CommitDecision | None) -> Effect:
        """The last decision was read. Raises `SinkTakenError`, `LaterBatchError`."""
        if found is None:
            return self._decide()
        self._check_ours(found)
        if found.is_done:
            return self._decide() if found.batch_id < self._batch_id else self._finish(None, ())
        self._followed = found
        return CommitTransactions(waves=commit_waves(found.transactions))

    def on_stored(self) -> Effect:
        """The decision is stored."""
        if self._storing is None:
            raise MisuseError("no decision was to be stored")
        self._followed, self._storing = self._storing, None
        return CommitTransactions(waves=commit_waves(self._followed.transactions))

    def on_ended(self, refused: Iterable[TaskTransaction]) -> Effect:
        """All decided transactions are committed except these, which the coordinator refused."""
        doubtful = tuple(refused)
        return InspectTransactions(transactions=doubtful) if doubtful else self._on_committed()

    def on_inspected(self, outcomes: Mapping[TaskTransaction, TransactionOutcome]) -> Effect:
        """The outcomes were found. Raises `OutcomeUnknownError`, `BatchNotWrittenError`, `BatchTornError`."""
        for each, outcome in outcomes.items():
            if outcome in (TransactionOutcome.OPEN, TransactionOutcome.UNKNOWN):
                raise self._unknown(each, outcome)
        lost = [each for each, outcome in outcomes.items() if outcome is TransactionOutcome.ABORTED]
        return self._replace(lost) if lost else self._on_committed()

    # Steps

    def _decide(self) -> Effect:
        if not self._offered:
            return self._finish(None, ())
        return self._store(CommitDecision(owner=self._owner, batch_id=self._batch_id, transactions=self._offered))

    def _store(self, decision: CommitDecision) -> Effect:
        self._storing = decision
        return StoreDecision(decision=decision)

    def _on_committed(self) -> Effect:
        followed = self._carried_out()
        if followed.batch_id < self._batch_id:
            self._followed = None
            return self._decide()
        done = CommitDecision(owner=followed.owner, batch_id=followed.batch_id, is_done=True)
        return self._finish(done, followed.transactions)

    def _finish(self, done: CommitDecision | None, decided: tuple[TaskTransaction, ...]) -> Effect:
        keep = frozenset(each.name for each in decided)
        return FinishBatch(
            done=done, undecided=tuple(each for each in self._offered if each.name not in keep), keep=keep
        )

    def _replace(self, lost: list[TaskTransaction]) -> Effect:
        """A decision in which transactions of this run replace the aborted ones."""
        followed = self._carried_out()
        gone = {each.name for each in lost}
        kept = [each for each in followed.transactions if each.name not in gone]
        if followed.batch_id < self._batch_id or any(each.name in gone for each in self._offered):
            raise self._not_written(followed, lost, kept)
        if not kept and self._offered:
            return self._store(replace(followed, transactions=self._offered))
        if contents(self._offered) != contents(followed.transactions):
            raise self._torn(followed, lost, kept)
        ours = {each.task: each for each in self._offered}
        whole = [ours[each.task] if each.name in gone else each for each in followed.transactions]
        return self._store(replace(followed, transactions=tuple(whole)))

    def _carried_out(self) -> CommitDecision:
        if self._followed is None:
            raise MisuseError("no decision is being carried out")
        return self._followed

    # Refusals

    def _check_ours(self, found: CommitDecision) -> None:
        if found.owner != self._owner:
            raise SinkTakenError(
                f"sink {self._sink_id} belongs to {_whose(found.owner)}, but {_whose(self._owner)} tried to write to"
                f" it; give each its own sinkId, or delete the group ottla-spark-{self._sink_id} if its owner is gone"
            )
        if found.batch_id > self._batch_id:
            raise LaterBatchError(
                f"sink {self._sink_id} already has batch {found.batch_id}, so batch {self._batch_id} cannot be written:"
                " the checkpoint is an older copy, or another driver runs the same query; nothing was written"
            )

    def _not_written(
        self, followed: CommitDecision, lost: list[TaskTransaction], kept: list[TaskTransaction]
    ) -> BatchNotWrittenError:
        return BatchNotWrittenError(
            f"batch {followed.batch_id} of sink {self._sink_id}: the brokers aborted {_told(lost)} before it was"
            f" committed; committed: {_told(kept)}. A transaction must be committed within transactionTimeoutMs of its"
            " first record: start the query again to write the missing rows; use smaller batches if this happens again"
        )

    def _torn(
        self, followed: CommitDecision, lost: list[TaskTransaction], kept: list[TaskTransaction]
    ) -> BatchTornError:
        return BatchTornError(
            f"batch {followed.batch_id} of sink {self._sink_id} was written only in part: {_told(kept)} committed,"
            f" {_told(lost)} aborted by the brokers, and the tasks of this run have different rows from those of the"
            " last run, so the missing rows cannot be identified. Compare the output topics with the input of the"
            " batch, accept or repair the output, and continue with another sinkId"
        )

    def _unknown(self, transaction: TaskTransaction, outcome: TransactionOutcome) -> OutcomeUnknownError:
        first = transaction.first_offsets[0]
        return OutcomeUnknownError(
            f"batch {self._batch_id} of sink {self._sink_id}: the transaction of task {transaction.task}, from offset"
            f" {first.offset} of {first.topic}-{first.partition} on, is {outcome.value}; start the query again later"
        )


def undecided_of(offered: Iterable[TaskTransaction], found: CommitDecision | None) -> tuple[TaskTransaction, ...]:
    """The transactions of a failed run that may be aborted: those that are not in the decision."""
    decided = {each.name for each in found.transactions} if found is not None else set()
    return tuple(each for each in offered if each.name not in decided)


def _whose(owner: str) -> str:
    return f"the query {owner}" if owner else "a batch write"


def _told(transactions: list[TaskTransaction]) -> str:
    """Number of rows and tasks, for a message."""
    if not transactions:
        return "nothing"
    rows = sum(each.row_count for each in transactions)
    tasks = ", ".join(str(each.task) for each in transactions[:10])
    return f"{rows} rows of task{'s' if len(transactions) > 1 else ''} {tasks}{' …' if len(transactions) > 10 else ''}"
