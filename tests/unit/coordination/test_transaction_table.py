"""What a transactional id answers in each of its states, cell by cell, and the rules that hold in all of them.

The tables are meant to be read beside the protocol's own: state, request, answer, the state that follows, and how far
the epoch went. Clients of version 1 keep their epoch, those of version 2 get a new one with each end. How an answer
comes about is tested in `test_transaction_state.py`, whole lives in `tests/scenarios/transactions`.
"""

from dataclasses import dataclass, replace
from typing import Any

import pytest

from ottla.coordination.transactions.requests import AddPartitions, EndTransaction, InitProducerId, TransactionSettings
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerEpoch, ProducerId, TopicPartition
from tests.unit.coordination.transaction_rig import FIRST_PRODUCER_ID, TransactionRig

NO_ID, EMPTY, ONGOING = "no id", "Empty", "Ongoing"
PREPARE_COMMIT, PREPARE_ABORT = "PrepareCommit", "PrepareAbort"
COMPLETE_COMMIT, COMPLETE_ABORT = "CompleteCommit", "CompleteAbort"
STATES = [EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT]
PREPARED = [PREPARE_COMMIT, PREPARE_ABORT]
AT_REST = [EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT]

OK = ErrorCode.NONE
INVALID_STATE = ErrorCode.INVALID_TXN_STATE
MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING
FENCED = ErrorCode.PRODUCER_FENCED
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
TIMEOUT_MS = 10_000


@dataclass
class Staged:
    """An id in some state, and a client of some version that has its producer id and epoch."""

    rig: TransactionRig
    version: int
    producer_id: ProducerId = NO_PRODUCER_ID
    epoch: ProducerEpoch = NO_PRODUCER_EPOCH
    tokens: int = 0

    def ask(self, method: str, request: Any) -> Any:
        self.tokens += 1
        self.rig.run(getattr(self.rig.shard, method)(request, self.rig.now_ms, f"t{self.tokens}"))
        return self.rig.answers[f"t{self.tokens}"]

    def init(self, **fields: Any) -> ErrorCode:
        response = self.ask("init_producer_id", InitProducerId(**{"timeout_ms": TIMEOUT_MS, **self.named, **fields}))
        if response.error is OK:
            self.producer_id, self.epoch = response.producer_id, response.producer_epoch
        return ErrorCode(response.error)

    def add(self, *partitions: TopicPartition, **fields: Any) -> ErrorCode:
        said = {**self.named, **self.known, "partitions": partitions or (T0,), **fields}
        return ErrorCode(self.ask("add_partitions", AddPartitions(**said)).errors[0][1])

    def end(self, *, commit: bool, **fields: Any) -> ErrorCode:
        response = self.ask(
            "end_transaction", EndTransaction(**{**self.named, **self.known, "commit": commit, **fields})
        )
        if response.error is OK and response.producer_id >= 0:
            self.producer_id, self.epoch = response.producer_id, response.producer_epoch
        return ErrorCode(response.error)

    @property
    def named(self) -> dict[str, Any]:
        return {"transactional_id": "x"}

    @property
    def known(self) -> dict[str, Any]:
        version = 2 if self.version == 2 else 0
        return {"producer_id": self.producer_id, "producer_epoch": self.epoch, "client_version": version}

    @property
    def state(self) -> str:
        entry = self.rig.shard.entries.get("x")
        return NO_ID if entry is None else entry.status.wire_name

    @property
    def entry_epoch(self) -> int:
        return self.rig.shard.entries["x"].producer_epoch


def staged(state: str, version: int) -> Staged:
    """An id in the state, reached as ids reach it."""
    client = Staged(TransactionRig(TransactionSettings(transaction_version=version)), version)
    if state == NO_ID:
        return client
    # Twice, so that there is a smaller epoch.
    client.init()
    client.init()
    if state != EMPTY:
        client.add(T0)
    if state not in (EMPTY, ONGOING):
        client.end(commit=state.endswith("Commit"))
    if state in (COMPLETE_COMMIT, COMPLETE_ABORT):
        client.rig.written(client.rig.markers[0])
    assert state == client.state
    return client


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("state", "answer", "then", "epochs"),
    [
        (EMPTY, OK, EMPTY, 1),
        (ONGOING, CONCURRENT, PREPARE_ABORT, 1),
        (PREPARE_COMMIT, CONCURRENT, PREPARE_COMMIT, 0),
        (PREPARE_ABORT, CONCURRENT, PREPARE_ABORT, 0),
        (COMPLETE_COMMIT, OK, EMPTY, 1),
        (COMPLETE_ABORT, OK, EMPTY, 1),
    ],
)
def test_init_producer_id(version: int, state: str, answer: ErrorCode, then: str, epochs: int) -> None:
    client = staged(state, version)
    before = client.entry_epoch
    assert (answer, then, before + epochs) == (client.init(), client.state, client.entry_epoch)


@pytest.mark.parametrize("version", [1, 2])
def test_an_id_is_initialised(version: int) -> None:
    client = staged(NO_ID, version)
    assert (OK, EMPTY) == (client.init(), client.state)
    assert (FIRST_PRODUCER_ID, 0) == (client.producer_id, client.epoch)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("state", "answer", "then"),
    [
        (NO_ID, MAPPING, NO_ID),
        (EMPTY, OK, ONGOING),
        (ONGOING, OK, ONGOING),
        (PREPARE_COMMIT, CONCURRENT, PREPARE_COMMIT),
        (PREPARE_ABORT, CONCURRENT, PREPARE_ABORT),
        (COMPLETE_COMMIT, OK, ONGOING),
        (COMPLETE_ABORT, OK, ONGOING),
    ],
)
def test_add_partitions(version: int, state: str, answer: ErrorCode, then: str) -> None:
    client = staged(state, version)
    assert (answer, then) == (client.add(T1), client.state)
    expected = {ONGOING: (T0, T1)}.get(state, (T1,)) if then == ONGOING else None
    assert expected is None or expected == client.rig.shard.entries["x"].partitions


@pytest.mark.parametrize(
    ("state", "commit", "answer", "then"),
    [
        (NO_ID, True, MAPPING, NO_ID),
        (NO_ID, False, MAPPING, NO_ID),
        (EMPTY, True, INVALID_STATE, EMPTY),
        (EMPTY, False, INVALID_STATE, EMPTY),
        (ONGOING, True, OK, PREPARE_COMMIT),
        (ONGOING, False, OK, PREPARE_ABORT),
        (PREPARE_COMMIT, True, CONCURRENT, PREPARE_COMMIT),
        (PREPARE_COMMIT, False, INVALID_STATE, PREPARE_COMMIT),
        (PREPARE_ABORT, True, INVALID_STATE, PREPARE_ABORT),
        (PREPARE_ABORT, False, CONCURRENT, PREPARE_ABORT),
        (COMPLETE_COMMIT, True, OK, COMPLETE_COMMIT),
        (COMPLETE_COMMIT, False, INVALID_STATE, COMPLETE_COMMIT),
        (COMPLETE_ABORT, True, INVALID_STATE, COMPLETE_ABORT),
        (COMPLETE_ABORT, False, OK, COMPLETE_ABORT),
    ],
)
def test_end_of_version_1(state: str, commit: bool, answer: ErrorCode, then: str) -> None:
    client = staged(state, 1)
    epoch = client.epoch
    assert (answer, then, epoch) == (client.end(commit=commit), client.state, client.epoch)


@pytest.mark.parametrize(
    ("state", "commit", "answer", "then", "epochs"),
    [
        (NO_ID, True, MAPPING, NO_ID, 0),
        (NO_ID, False, MAPPING, NO_ID, 0),
        (EMPTY, True, INVALID_STATE, EMPTY, 0),
        (EMPTY, False, OK, COMPLETE_ABORT, 1),
        (ONGOING, True, OK, PREPARE_COMMIT, 1),
        (ONGOING, False, OK, PREPARE_ABORT, 1),
        (PREPARE_COMMIT, True, CONCURRENT, PREPARE_COMMIT, 0),
        (PREPARE_COMMIT, False, CONCURRENT, PREPARE_COMMIT, 0),
        (PREPARE_ABORT, True, CONCURRENT, PREPARE_ABORT, 0),
        (PREPARE_ABORT, False, CONCURRENT, PREPARE_ABORT, 0),
        (COMPLETE_COMMIT, True, INVALID_STATE, COMPLETE_COMMIT, 0),
        (COMPLETE_COMMIT, False, OK, COMPLETE_ABORT, 1),
        (COMPLETE_ABORT, True, INVALID_STATE, COMPLETE_ABORT, 0),
        (COMPLETE_ABORT, False, OK, COMPLETE_ABORT, 1),
    ],
)
def test_end_of_version_2(state: str, commit: bool, answer: ErrorCode, then: str, epochs: int) -> None:
    """With the epoch that the last end gave: a new wish, for the next transaction."""
    client = staged(state, 2)
    epoch = client.epoch
    assert (answer, then, epoch + epochs) == (client.end(commit=commit), client.state, client.epoch)


@pytest.mark.parametrize(
    ("state", "commit", "answer"),
    [
        (PREPARE_COMMIT, True, CONCURRENT),
        (PREPARE_COMMIT, False, INVALID_STATE),
        (PREPARE_ABORT, True, INVALID_STATE),
        (PREPARE_ABORT, False, CONCURRENT),
        (COMPLETE_COMMIT, True, OK),
        (COMPLETE_COMMIT, False, INVALID_STATE),
        (COMPLETE_ABORT, True, INVALID_STATE),
        (COMPLETE_ABORT, False, OK),
    ],
)
def test_end_of_version_2_again(state: str, commit: bool, answer: ErrorCode) -> None:
    """With the epoch before that: the answer was lost, and is given again."""
    client = staged(state, 2)
    epoch = client.epoch
    assert answer == client.end(commit=commit, producer_epoch=epoch - 1)
    assert (state, epoch) == (client.state, client.entry_epoch)
    assert (client.producer_id, epoch) == (client.rig.shard.entries["x"].producer_id, client.epoch)


# What holds in all states


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("state", STATES)
def test_a_wrong_producer_id(state: str, version: int) -> None:
    client = staged(state, version)
    stranger = ProducerId(client.producer_id + 1)
    # While markers are under way a client may already use the id that comes with them: it waits.
    waits = state in PREPARED
    assert (CONCURRENT if waits else MAPPING) == client.add(T1, producer_id=stranger)
    assert MAPPING == client.add(T0, producer_id=stranger, verify_only=True)
    expected = CONCURRENT if waits and version == 2 else MAPPING
    assert [expected] * 2 == [client.end(commit=commit, producer_id=stranger) for commit in (True, False)]
    fenced = CONCURRENT if waits else FENCED
    assert fenced == client.init(expected_producer_id=stranger, expected_producer_epoch=client.epoch)
    assert state == client.state


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("distance", [-2, -1, 1])
def test_a_wrong_epoch(state: str, version: int, distance: int) -> None:
    client = staged(state, version)
    client.rig.shard._remembered.clear()
    wrong = client.entry_epoch + distance
    waits = state in PREPARED
    assert (CONCURRENT if waits else FENCED) == client.add(T1, producer_epoch=wrong)
    assert FENCED == client.add(T0, producer_epoch=wrong, verify_only=True)
    is_retry = version == 2 and distance == -1 and state not in (EMPTY, ONGOING)
    if not is_retry:
        expected = CONCURRENT if waits and version == 2 else FENCED
        assert [expected] * 2 == [client.end(commit=commit, producer_epoch=wrong) for commit in (True, False)]
    if wrong >= 0:
        fenced = CONCURRENT if waits else FENCED
        assert fenced == client.init(expected_producer_id=client.producer_id, expected_producer_epoch=wrong)
    assert state == client.state


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("commit", [True, False])
def test_a_transition_that_is_pending(version: int, commit: bool) -> None:
    """The end is written and not yet committed: nobody is told of it, and whatever else is wanted has to wait."""
    client = staged(ONGOING, version)
    rig = client.rig
    rig.auto_commit = False
    end = EndTransaction(transactional_id="x", commit=commit, **client.known)
    rig.run(rig.shard.end_transaction(end, rig.now_ms, "end"))
    assert ([CONCURRENT] * 3, [], False) == (
        [client.init(), client.add(T1), client.end(commit=commit)],
        rig.markers,
        "end" in rig.answers,
    )
    rig.commit()
    assert (OK, 1) == (rig.answers["end"].error, len(rig.markers))


@pytest.mark.parametrize(
    ("timeout_ms", "answer"),
    [
        (900_000, OK),
        (900_001, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (1, OK),
        (0, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (-1, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
    ],
)
@pytest.mark.parametrize("state", [NO_ID, EMPTY, COMPLETE_COMMIT])
def test_timeouts_have_a_maximum(state: str, timeout_ms: int, answer: ErrorCode) -> None:
    assert answer == staged(state, 2).init(timeout_ms=timeout_ms)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("state", STATES)
def test_only_an_open_transaction_times_out(state: str, version: int) -> None:
    """It is aborted under a new epoch, so that its producer is fenced."""
    client = staged(state, version)
    rig, before = client.rig, client.entry_epoch
    client.rig.markers.clear()
    rig.tick(TIMEOUT_MS)
    assert (state, before) == (client.state, client.entry_epoch)
    rig.tick(1)
    if state != ONGOING:
        assert (state, before, []) == (client.state, client.entry_epoch, rig.markers)
        return
    assert (PREPARE_ABORT, before + 1) == (client.state, client.entry_epoch)
    assert [(False, before + 1, (T0,))] == [(each.commit, each.producer_epoch, each.partitions) for each in rig.markers]
    rig.written(rig.markers[0])
    assert (COMPLETE_ABORT, FENCED) == (client.state, client.add(T1))


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("state", STATES)
def test_a_new_coordinator_sends_markers_of_what_was_decided(state: str, version: int) -> None:
    client = staged(state, version)
    epoch = client.entry_epoch
    client.rig.fail_over()
    expected = [(state == PREPARE_COMMIT, epoch, 1, (T0,))] if state in PREPARED else []
    sent = client.rig.markers
    assert expected == [(each.commit, each.producer_epoch, each.coordinator_epoch, each.partitions) for each in sent]
    for each in list(sent):
        client.rig.written(each)
    assert state.replace("Prepare", "Complete") == client.state


def test_only_markers_that_failed_are_sent_again() -> None:
    """Brokers report one by one; what another still works on is left to it."""
    client = staged(ONGOING, 2)
    client.add(T1)
    client.end(commit=True)
    sent = client.rig.markers.pop()
    client.rig.written(replace(sent, partitions=(T0,)), {T0: ErrorCode.NOT_LEADER_OR_FOLLOWER})
    client.rig.tick(100)
    assert [replace(sent, partitions=(T0,))] == client.rig.markers
    client.rig.written(replace(sent, partitions=(T1,)))
    assert PREPARE_COMMIT == client.state
    client.rig.written(client.rig.markers[0])
    assert COMPLETE_COMMIT == client.state


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("state", STATES)
def test_only_ids_at_rest_expire(state: str, version: int) -> None:
    client = staged(state, version)
    client.rig.tick(7 * 24 * 3_600_000 - 1)
    assert NO_ID != client.state
    client.rig.tick(1)
    assert (state in AT_REST) == (client.state == NO_ID)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("state", STATES)
def test_verification(state: str, version: int) -> None:
    """A broker may take records only for what belongs to the open transaction."""
    client = staged(state, version)
    asked = [client.add(each, verify_only=True, producer_epoch=client.entry_epoch) for each in (T0, T1)]
    abortable = ErrorCode.TRANSACTION_ABORTABLE
    if state in PREPARED:
        assert [CONCURRENT, CONCURRENT] == asked
    else:
        assert [OK if state == ONGOING else abortable, abortable] == asked
    assert state == client.state
