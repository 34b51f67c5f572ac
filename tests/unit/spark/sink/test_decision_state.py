"""The sink's commit protocol against a model of the brokers: crashes at every step, zombies, timeouts, runs again.

The promise: of every batch each task's rows are committed exactly once, or the query stops with an error.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.admin.transaction_outcome import TransactionOutcome
from ottla.model.errors import OttlaError
from ottla.spark.sink.decision import CommitDecision, FirstOffset, TaskTransaction, commit_waves
from ottla.spark.sink.decision_state import (
    CommitTransactions,
    FinishBatch,
    InspectTransactions,
    ReadDecision,
    SinkCommitState,
    StoreDecision,
    TakeFence,
    undecided_of,
)
from ottla.spark.sink.errors import (
    BatchNotWrittenError,
    BatchTornError,
    LaterBatchError,
    OutcomeUnknownError,
    ReplacedDriverError,
    SinkTakenError,
)
from tests.effort import effort

pytestmark = pytest.mark.slow

Name = tuple[str, int, int]
OPEN, COMMITTED, ABORTED = "open", "committed", "aborted"
_OUTCOMES = {
    OPEN: TransactionOutcome.OPEN,
    COMMITTED: TransactionOutcome.COMMITTED,
    ABORTED: TransactionOutcome.ABORTED,
}


@dataclass
class Brokers:
    """What all drivers share."""

    fence: int = 0
    decision: CommitDecision | None = None
    states: dict[Name, str] = field(default_factory=dict)
    batches: dict[Name, tuple[int, TaskTransaction]] = field(default_factory=dict)
    ever_decided: set[Name] = field(default_factory=set)
    forgotten: set[Name] = field(default_factory=set)
    """Ended transactions of which the coordinator knows nothing more."""

    def write(self, batch_id: int, task: int, row_count: int = 1) -> TaskTransaction:
        number = len(self.states)
        made = TaskTransaction(
            task=task,
            transactional_id=f"ottla-spark-s.task-{number:x}",
            producer_id=number,
            epoch=0,
            row_count=row_count,
            byte_count=row_count,
            first_offsets=(FirstOffset("t", task % 2, number),),
        )
        self.states[made.name] = OPEN
        self.batches[made.name] = (batch_id, made)
        return made

    def end(self, name: Name, state: str) -> None:
        if self.states[name] == OPEN:
            self.states[name] = state

    def commit(self, name: Name) -> bool:
        self.end(name, COMMITTED)
        return self.states[name] == COMMITTED and name not in self.forgotten

    def committed(self, batch_id: int) -> list[TaskTransaction]:
        return [
            made for name, (batch, made) in self.batches.items() if batch == batch_id and self.states[name] == COMMITTED
        ]

    def check(self) -> None:
        for name, state in self.states.items():
            assert state != COMMITTED or name in self.ever_decided, "a transaction was committed that nobody decided"
        for batch_id in {batch for batch, _ in self.batches.values()}:
            often = Counter(made.task for made in self.committed(batch_id))
            assert all(count == 1 for count in often.values()), f"batch {batch_id} has a task's rows twice: {often}"


class Driver:
    """One run of one batch: each `step` is one thing that happens on the brokers, and what follows from it."""

    def __init__(self, brokers: Brokers, batch_id: int, rows: dict[int, int]) -> None:
        self.brokers = brokers
        self.batch_id = batch_id
        self.offered = [brokers.write(batch_id, task, count) for task, count in rows.items()]
        self.error: OttlaError | None = None
        self.is_finished = False
        self._fence = -1
        self._steps = self._run()

    @property
    def is_over(self) -> bool:
        return self.is_finished or self.error is not None

    def step(self) -> None:
        try:
            next(self._steps)
        except StopIteration:
            self.is_finished = True
        except OttlaError as error:
            self.error = error

    def run(self) -> None:
        while not self.is_over:
            self.step()
            self.brokers.check()

    def _run(self) -> Iterator[None]:
        brokers = self.brokers
        state = SinkCommitState(sink_id="s", owner="q", batch_id=self.batch_id, offered=self.offered)
        effect = state.start()
        while True:
            match effect:
                case TakeFence():
                    brokers.fence += 1
                    self._fence = brokers.fence
                    yield
                    effect = state.on_fence()
                case ReadDecision():
                    found = brokers.decision
                    yield
                    effect = state.on_read(found)
                case StoreDecision(decision=decision):
                    self._store(decision)
                    yield
                    effect = state.on_stored()
                case CommitTransactions(waves=waves):
                    refused = []
                    for each in (each for wave in waves for each in wave):
                        if not brokers.commit(each.name):
                            refused.append(each)
                        yield
                    effect = state.on_ended(refused)
                case InspectTransactions(transactions=some):
                    effect = state.on_inspected({each: _OUTCOMES[brokers.states[each.name]] for each in some})
                    yield
                case FinishBatch() as finish:
                    for each in finish.undecided:
                        brokers.end(each.name, ABORTED)
                        yield
                    for name in [name for name, at in brokers.states.items() if at == OPEN and name not in finish.keep]:
                        brokers.end(name, ABORTED)
                        yield
                    if finish.done is not None:
                        self._store(finish.done)
                    return

    def _store(self, decision: CommitDecision) -> None:
        if self._fence != self.brokers.fence:
            raise ReplacedDriverError("fenced")
        self.brokers.decision = decision
        self.brokers.ever_decided |= {each.name for each in decision.transactions}

    def abort(self) -> None:
        """What Spark calls after a failure, at once."""
        self.brokers.fence += 1
        for each in undecided_of(self.offered, self.brokers.decision):
            self.brokers.end(each.name, ABORTED)


def test_a_batch_is_committed_once_all_its_tasks_are_written() -> None:
    brokers = Brokers()
    driver = Driver(brokers, 0, {0: 5, 1: 7})
    driver.run()
    assert driver.is_finished
    assert [COMMITTED, COMMITTED] == list(brokers.states.values())
    assert CommitDecision(owner="q", batch_id=0, is_done=True) == brokers.decision


@pytest.mark.parametrize("with_timeout", [False, True])
def test_a_driver_that_dies_at_any_step_is_carried_on(with_timeout: bool) -> None:
    for steps in range(20):
        brokers = Brokers()
        dead = Driver(brokers, 0, {0: 5, 1: 7, 2: 1})
        for _ in range(steps):
            if not dead.is_over:
                dead.step()
        if with_timeout:
            for name in brokers.states:
                brokers.end(name, ABORTED)
        again = Driver(brokers, 0, {0: 5, 1: 7, 2: 1})
        again.run()
        assert again.error is None
        assert [0, 1, 2] == sorted(each.task for each in brokers.committed(0)), f"died after {steps} steps"
        following = Driver(brokers, 1, {0: 1})
        following.run()
        assert following.is_finished


def test_a_commit_that_raises_and_its_abort_leave_what_was_decided() -> None:
    for steps in range(20):
        brokers = Brokers()
        failed = Driver(brokers, 0, {0: 5, 1: 7})
        for _ in range(steps):
            if not failed.is_over:
                failed.step()
        failed.abort()
        again = Driver(brokers, 0, {0: 5, 1: 7})
        again.run()
        assert [0, 1] == sorted(each.task for each in brokers.committed(0))


def test_a_part_that_timed_out_is_written_by_the_next_run() -> None:
    brokers = Brokers()
    dead = Driver(brokers, 0, {0: 5, 1: 7})
    for _ in range(4):
        dead.step()
    assert 1 == len(brokers.committed(0))
    for name in brokers.states:
        brokers.end(name, ABORTED)
    Driver(brokers, 0, {0: 5, 1: 7}).run()
    assert [0, 1] == sorted(each.task for each in brokers.committed(0))


def test_a_part_that_timed_out_is_not_replaced_by_other_rows() -> None:
    brokers = Brokers()
    dead = Driver(brokers, 0, {0: 5, 1: 7})
    for _ in range(4):
        dead.step()
    for name in brokers.states:
        brokers.end(name, ABORTED)
    again = Driver(brokers, 0, {0: 6, 1: 6})
    again.run()
    assert isinstance(again.error, BatchTornError)
    assert "5 rows of task 0 committed" in str(again.error) or "7 rows of task 1 committed" in str(again.error)


def test_nothing_committed_yet_is_replaced_by_whatever_rows() -> None:
    brokers = Brokers()
    dead = Driver(brokers, 0, {0: 5, 1: 7})
    for _ in range(3):
        dead.step()
    for name in brokers.states:
        brokers.end(name, ABORTED)
    again = Driver(brokers, 0, {0: 12})
    again.run()
    assert again.is_finished
    assert [0] == [each.task for each in brokers.committed(0)]


def test_a_first_run_whose_transactions_timed_out_asks_to_be_run_again() -> None:
    brokers = Brokers()
    slow = Driver(brokers, 0, {0: 5})
    brokers.end(slow.offered[0].name, ABORTED)
    slow.run()
    assert isinstance(slow.error, BatchNotWrittenError)
    Driver(brokers, 0, {0: 5}).run()
    assert 1 == len(brokers.committed(0))


def test_an_older_decision_is_carried_out_before_a_new_one_is_made() -> None:
    brokers = Brokers()
    dead = Driver(brokers, 0, {0: 5})
    for _ in range(3):
        dead.step()
    following = Driver(brokers, 1, {0: 4})
    following.run()
    assert following.is_finished
    assert [1, 1] == [len(brokers.committed(0)), len(brokers.committed(1))]


def test_a_committed_transaction_that_its_coordinator_forgot_is_not_written_again() -> None:
    brokers = Brokers()
    dead = Driver(brokers, 0, {0: 5, 1: 7})
    for _ in range(5):
        dead.step()
    brokers.forgotten |= set(brokers.states)
    again = Driver(brokers, 0, {0: 5, 1: 7})
    again.run()
    assert again.is_finished
    assert [0, 1] == sorted(each.task for each in brokers.committed(0))


def test_what_cannot_be_found_out_stops_the_query() -> None:
    state = SinkCommitState(sink_id="s", owner="q", batch_id=3, offered=[])
    transaction = Brokers().write(3, 0)
    state.on_read(CommitDecision(owner="q", batch_id=3, transactions=(transaction,)))
    with pytest.raises(OutcomeUnknownError, match="from offset 0 of t-0 on, is unknown, because its records are"):
        state.on_inspected({transaction: TransactionOutcome.UNKNOWN})


def test_another_query_cannot_have_the_sink() -> None:
    state = SinkCommitState(sink_id="s", owner="q", batch_id=3, offered=[])
    with pytest.raises(SinkTakenError, match="sink s belongs to the query other"):
        state.on_read(CommitDecision(owner="other", batch_id=2, is_done=True))


def test_an_older_batch_than_the_sinks_is_refused() -> None:
    state = SinkCommitState(sink_id="s", owner="q", batch_id=3, offered=[])
    with pytest.raises(LaterBatchError, match="already has batch 4, so batch 3 cannot be written"):
        state.on_read(CommitDecision(owner="q", batch_id=4))


def test_a_batch_without_rows_stores_nothing() -> None:
    state = SinkCommitState(sink_id="s", owner="q", batch_id=3, offered=[])
    assert FinishBatch(done=None, undecided=(), keep=frozenset()) == state.on_read(None)


def test_those_that_hold_readers_back_are_committed_last() -> None:
    def made(task: int, *firsts: tuple[int, int]) -> TaskTransaction:
        return TaskTransaction(
            task=task,
            transactional_id=str(task),
            producer_id=task,
            epoch=0,
            row_count=1,
            byte_count=1,
            first_offsets=tuple(FirstOffset("t", partition, offset) for partition, offset in firsts),
        )

    first, second, third = made(0, (0, 10), (1, 5)), made(1, (0, 12), (1, 7)), made(2, (1, 3))
    assert ((second,), (first, third)) == commit_waves([first, second, third])
    assert ((first,),) == commit_waves([first])
    assert () == commit_waves([])


@effort(400)
@given(data=st.data())
def test_whatever_happens_each_row_is_there_once_or_the_query_stops(data: st.DataObject) -> None:
    """Drivers come, hang, die and wake up again in any order, and brokers abort what takes too long."""
    brokers = Brokers()
    drivers: list[Driver] = []
    contents: dict[int, list[set[tuple[int, int]]]] = {}
    batch_id = 0
    for _ in range(data.draw(st.integers(5, 60))):
        alive = [each for each in drivers if not each.is_over]
        choice = data.draw(st.sampled_from(["start", "step", "step", "step", "run", "timeout", "forget", "abort"]))
        if choice == "start" or not alive:
            rows = {0: 5, 1: 7, 2: 3} if data.draw(st.booleans()) or batch_id % 2 else {0: 4, 1: 11}
            again = data.draw(st.integers(max(batch_id - 1, 0), batch_id))
            drivers.append(Driver(brokers, again, rows))
            contents.setdefault(again, []).append(set(rows.items()))
        elif choice in ("step", "run"):
            driver = data.draw(st.sampled_from(alive))
            driver.step() if choice == "step" else driver.run()
            if driver.is_finished:
                written = {(each.task, each.row_count) for each in brokers.committed(driver.batch_id)}
                assert written in contents[driver.batch_id], "a batch that is done is not one run's rows"
                # A zombie is late, but the log that Spark itself keeps only goes on from the batch that is next.
                batch_id = max(batch_id, driver.batch_id + 1)
        elif choice == "abort":
            data.draw(st.sampled_from(alive)).abort()
        else:
            name = data.draw(st.sampled_from(sorted(brokers.states)))
            if choice == "timeout":
                brokers.end(name, ABORTED)
            elif brokers.states[name] != OPEN:
                brokers.forgotten.add(name)
        brokers.check()
