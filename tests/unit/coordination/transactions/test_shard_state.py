"""A partition's transactional ids with their timers, markers and failures, driven as the runtime drives them."""

from typing import Any

import pytest

from ottla.coordination.runtime.effects import Respond, Write
from ottla.coordination.transactions.records import TransactionStatus, entry_record
from ottla.coordination.transactions.requests import (
    AddPartitions,
    AddPartitionsResponse,
    EndTransaction,
    InitProducerId,
    ProducerIdResponse,
    SendMarkers,
    TransactionSettings,
)
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import ProducerEpoch, ProducerId, TimestampMs, TopicPartition
from ottla.model.invariants import InvariantViolation
from tests.unit.coordination.transaction_rig import FIRST_PRODUCER_ID, TransactionRig

E = ErrorCode
S = TransactionStatus
PID = ProducerId(FIRST_PRODUCER_ID)
ORDERS, BILLS = TopicPartition("orders", 0), TopicPartition("bills", 1)
HOUR_MS = 3_600_000


class Client(TransactionRig):
    """A rig with requests of one producer, each answered by what was told, or None while nothing was."""

    tokens = 0
    client_version = 2

    def ask(self, method: str, request: Any) -> Any:
        self.tokens += 1
        self.run(getattr(self.shard, method)(request, self.now_ms, self.tokens))
        return self.answers.get(self.tokens)

    def init(self, expected: tuple[int, int] = (-1, -1), timeout_ms: int = 60_000, transactional_id: str = "t") -> Any:
        return self.ask(
            "init_producer_id",
            InitProducerId(
                transactional_id=transactional_id,
                timeout_ms=timeout_ms,
                expected_producer_id=ProducerId(expected[0]),
                expected_producer_epoch=ProducerEpoch(expected[1]),
            ),
        )

    def add(self, *partitions: TopicPartition, epoch: int = 0, verify_only: bool = False, name: str = "t") -> Any:
        request = AddPartitions(
            transactional_id=name,
            producer_id=PID,
            producer_epoch=ProducerEpoch(epoch),
            partitions=partitions,
            verify_only=verify_only,
            client_version=self.client_version,
        )
        return self.ask("add_partitions", request)

    def end(self, commit: bool = True, epoch: int = 0, name: str = "t") -> Any:
        request = EndTransaction(
            transactional_id=name,
            producer_id=PID,
            producer_epoch=ProducerEpoch(epoch),
            commit=commit,
            client_version=self.client_version,
        )
        return self.ask("end_transaction", request)

    def status(self) -> TransactionStatus | None:
        """A method, so that the type checker does not take it for a constant."""
        entry = self.shard.entries.get("t")
        return entry.status if entry is not None else None


def joined(*errors: tuple[TopicPartition, ErrorCode]) -> AddPartitionsResponse:
    return AddPartitionsResponse(errors=errors)


def goes_on(epoch: int, producer_id: int = PID) -> ProducerIdResponse:
    return ProducerIdResponse(producer_id=ProducerId(producer_id), producer_epoch=ProducerEpoch(epoch))


def refused(error: ErrorCode) -> ProducerIdResponse:
    return ProducerIdResponse(error=error)


@pytest.fixture
def client() -> Client:
    return Client()


@pytest.fixture
def ongoing(client: Client) -> Client:
    assert goes_on(0) == client.init()
    assert joined((ORDERS, E.NONE), (BILLS, E.NONE)) == client.add(ORDERS, BILLS)
    return client


def markers(client: Client, *partitions: TopicPartition, epoch: int, commit: bool, version: int = 2) -> SendMarkers:
    return SendMarkers(
        transactional_id="t",
        producer_id=PID,
        producer_epoch=ProducerEpoch(epoch),
        coordinator_epoch=client.coordinator_epoch,
        commit=commit,
        partitions=partitions,
        transaction_version=version,
    )


# The whole walk


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_of_version_2(ongoing: Client, commit: bool) -> None:
    assert goes_on(1) == ongoing.end(commit)
    assert [markers(ongoing, ORDERS, BILLS, epoch=1, commit=commit)] == ongoing.markers
    assert refused(E.CONCURRENT_TRANSACTIONS) == ongoing.end(commit)
    assert joined((ORDERS, E.CONCURRENT_TRANSACTIONS)) == ongoing.add(ORDERS, epoch=1)
    ongoing.written(ongoing.markers[0])
    assert (S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT) is ongoing.status()
    assert goes_on(1) == ongoing.end(commit), "the same request again"
    assert joined((ORDERS, E.NONE)) == ongoing.add(ORDERS, epoch=1)


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_of_version_0(ongoing: Client, commit: bool) -> None:
    ongoing.client_version = 0
    assert ProducerIdResponse() == ongoing.end(commit)
    assert [markers(ongoing, ORDERS, BILLS, epoch=0, commit=commit, version=0)] == ongoing.markers
    ongoing.written(ongoing.markers[0])
    assert ProducerIdResponse() == ongoing.end(commit)
    assert refused(E.INVALID_TXN_STATE) == ongoing.end(not commit)
    assert joined((ORDERS, E.NONE)) == ongoing.add(ORDERS)


def test_an_abort_without_partitions_is_complete_at_once(client: Client) -> None:
    client.init()
    assert goes_on(1) == client.end(commit=False)
    assert (S.COMPLETE_ABORT, []) == (client.status(), client.markers)


# Requests that are refused


@pytest.mark.parametrize("name", ["", "x" * 32768])
def test_ids_that_cannot_be_written_are_refused(client: Client, name: str) -> None:
    assert refused(E.INVALID_REQUEST) == client.init(transactional_id=name)
    assert refused(E.INVALID_REQUEST) == client.end(name=name)
    assert joined((ORDERS, E.INVALID_REQUEST)) == client.add(ORDERS, name=name)
    assert joined((ORDERS, E.INVALID_REQUEST)) == client.add(ORDERS, name=name, verify_only=True)
    assert [] == client.log


@pytest.mark.parametrize(
    ("timeout_ms", "error"),
    [
        (-1, E.INVALID_TRANSACTION_TIMEOUT),
        (0, E.INVALID_TRANSACTION_TIMEOUT),
        (1, E.NONE),
        (900_000, E.NONE),
        (900_001, E.INVALID_TRANSACTION_TIMEOUT),
    ],
)
def test_timeouts_have_a_maximum(client: Client, timeout_ms: int, error: ErrorCode) -> None:
    assert error is client.init(timeout_ms=timeout_ms).error


@pytest.mark.parametrize("expected", [(PID, -1), (-1, 3)])
def test_half_an_expectation_is_refused(client: Client, expected: tuple[int, int]) -> None:
    assert refused(E.INVALID_REQUEST) == client.init(expected)


def test_partitions_are_verified(ongoing: Client) -> None:
    other = TopicPartition("other", 0)
    assert joined((ORDERS, E.NONE), (other, E.TRANSACTION_ABORTABLE)) == ongoing.add(ORDERS, other, verify_only=True)
    assert (ORDERS, BILLS) == ongoing.shard.entries["t"].partitions


# Durable before told


def test_nothing_is_told_or_sent_before_it_is_committed(client: Client) -> None:
    client.auto_commit = False
    assert client.init() is None
    assert client.add(ORDERS) is None
    assert client.add(ORDERS) is None, "it is there, but might still be forgotten"
    assert client.add(ORDERS, verify_only=True) is None
    assert client.end() is None
    assert ([], {}) == (client.markers, client.answers)
    client.commit()
    assert [goes_on(0), *[joined((ORDERS, E.NONE))] * 3, goes_on(1)] == list(client.answers.values())
    assert [markers(client, ORDERS, epoch=1, commit=True)] == client.markers


def test_what_must_be_tried_again_is_told_at_once(ongoing: Client) -> None:
    ongoing.auto_commit = False
    ongoing.end()
    assert refused(E.CONCURRENT_TRANSACTIONS) == ongoing.end()
    assert ongoing.end(epoch=5) == refused(E.CONCURRENT_TRANSACTIONS)
    assert ongoing.init() == refused(E.CONCURRENT_TRANSACTIONS)


def test_a_fence_is_not_told_of_before_it_is_committed(client: Client) -> None:
    client.init()
    client.auto_commit = False
    client.init()
    assert client.add(ORDERS, epoch=0) is None
    client.commit()
    assert joined((ORDERS, E.PRODUCER_FENCED)) == client.answers[client.tokens]


def test_a_write_that_fails_changes_nothing(ongoing: Client) -> None:
    before = dict(ongoing.shard.entries)
    ongoing.appends_fail = True
    unavailable = E.COORDINATOR_NOT_AVAILABLE
    assert refused(unavailable) == ongoing.end()
    assert refused(unavailable) == ongoing.init()
    assert joined((TopicPartition("new", 0), unavailable)) == ongoing.add(TopicPartition("new", 0))
    assert (before, []) == (dict(ongoing.shard.entries), ongoing.markers)
    ongoing.appends_fail = False
    assert goes_on(1) == ongoing.end()


def test_without_producer_ids_a_new_id_is_refused(client: Client) -> None:
    client.producer_ids_fail = True
    assert refused(E.COORDINATOR_NOT_AVAILABLE) == client.init()
    assert {} == client.shard.entries


# Markers


def test_each_partition_is_tried_until_it_has_its_marker(ongoing: Client) -> None:
    ongoing.end()
    ongoing.written(ongoing.markers[0], {ORDERS: E.NONE, BILLS: E.NOT_LEADER_OR_FOLLOWER})
    assert ongoing.now_ms + 100 == ongoing.shard.next_deadline()
    ongoing.tick(99)
    assert [] == ongoing.markers
    ongoing.tick(1)
    assert [markers(ongoing, BILLS, epoch=1, commit=True)] == ongoing.markers
    assert ongoing.shard.next_deadline() is None, "nothing to do but wait"
    ongoing.written(ongoing.markers[0], {})
    assert ongoing.now_ms + 200 == ongoing.shard.next_deadline()
    ongoing.tick(200)
    ongoing.written(ongoing.markers[0])
    assert S.COMPLETE_COMMIT is ongoing.status()


def test_waiting_between_tries_has_a_bound(ongoing: Client) -> None:
    ongoing.end()
    waits = []
    for _ in range(40):
        ongoing.written(ongoing.markers[0], {})
        waits.append((ongoing.shard.next_deadline() or 0) - ongoing.now_ms)
        ongoing.tick(waits[-1])
    assert [100, 200, 400, 800, 1600, 3200, 5000] == waits[:7]
    assert 5000 == waits[-1]


@pytest.mark.parametrize("error", [E.UNKNOWN_TOPIC_OR_PARTITION, E.UNKNOWN_TOPIC_ID])
def test_a_deleted_partition_needs_no_marker(ongoing: Client, error: ErrorCode) -> None:
    ongoing.end()
    ongoing.written(ongoing.markers[0], {ORDERS: E.NONE, BILLS: error})
    assert S.COMPLETE_COMMIT is ongoing.status()


@pytest.mark.parametrize("error", [E.TRANSACTION_COORDINATOR_FENCED, E.INVALID_PRODUCER_EPOCH])
def test_a_replaced_coordinator_stops(ongoing: Client, error: ErrorCode) -> None:
    ongoing.end()
    ongoing.written(ongoing.markers[0], {ORDERS: error, BILLS: E.REQUEST_TIMED_OUT})
    ongoing.tick(HOUR_MS)
    assert (S.PREPARE_COMMIT, [], None) == (ongoing.status(), ongoing.markers, ongoing.shard.next_deadline())
    ongoing.fail_over()
    assert [markers(ongoing, ORDERS, BILLS, epoch=1, commit=True)] == ongoing.markers


def test_reports_of_another_transaction_are_ignored(ongoing: Client) -> None:
    ongoing.end()
    first = ongoing.markers[0]
    ongoing.written(first)
    ongoing.add(ORDERS, epoch=1)
    ongoing.end(epoch=1)
    ongoing.written(first)
    assert S.PREPARE_COMMIT is ongoing.status()
    assert [markers(ongoing, ORDERS, epoch=2, commit=True)] == ongoing.markers


def test_a_completion_that_cannot_be_written_is_tried_again(ongoing: Client) -> None:
    ongoing.end()
    ongoing.appends_fail = True
    ongoing.written(ongoing.markers[0])
    assert S.PREPARE_COMMIT is ongoing.status()
    ongoing.appends_fail = False
    ongoing.tick(5000)
    assert S.COMPLETE_COMMIT is ongoing.status()


# Failover


@pytest.mark.parametrize("commit", [True, False])
def test_a_new_coordinator_sends_the_markers_again(ongoing: Client, commit: bool) -> None:
    ongoing.end(commit)
    ongoing.written(ongoing.markers[0], {ORDERS: E.NONE})
    ongoing.fail_over()
    assert 1 == ongoing.coordinator_epoch
    assert [markers(ongoing, ORDERS, BILLS, epoch=1, commit=commit)] == ongoing.markers
    ongoing.written(ongoing.markers[0])
    assert (S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT) is ongoing.status()


def test_a_new_coordinator_completes_what_has_no_partitions(client: Client) -> None:
    client.init()
    entry = client.shard.entries["t"]
    client.end(commit=False)
    client.log.pop()
    client.committed = len(client.log)
    client.fail_over()
    assert S.COMPLETE_ABORT is client.status()
    assert entry.producer_epoch + 1 == client.shard.entries["t"].producer_epoch


def test_a_new_coordinator_keeps_the_time(ongoing: Client) -> None:
    ongoing.now_ms += 30_000
    ongoing.fail_over()
    ongoing.tick(30_000)
    assert S.ONGOING is ongoing.status()
    ongoing.tick(1)
    assert S.PREPARE_ABORT is ongoing.status()


def test_what_was_not_committed_never_was(ongoing: Client) -> None:
    ongoing.auto_commit = False
    assert ongoing.end() is None
    ongoing.fail_over()
    assert S.ONGOING is ongoing.status()
    ongoing.auto_commit = True
    assert goes_on(1) == ongoing.end(commit=False), "no outcome had been promised"


def test_a_retry_of_init_is_known(client: Client) -> None:
    client.init()
    assert goes_on(1) == client.init((PID, 0))
    assert goes_on(1) == client.init((PID, 0))
    client.fail_over()
    assert refused(E.PRODUCER_FENCED) == client.init((PID, 0))
    assert goes_on(2) == client.init((PID, 1))


def test_a_retry_of_what_failed_to_be_written_does_not_take_anothers_epoch(client: Client) -> None:
    client.init()
    client.appends_fail = True
    assert refused(E.COORDINATOR_NOT_AVAILABLE) == client.init((PID, 0))
    client.appends_fail = False
    assert goes_on(1) == client.init(), "another producer"
    assert refused(E.PRODUCER_FENCED) == client.init((PID, 0))


def test_records_of_newer_kinds_are_skipped(ongoing: Client) -> None:
    before = dict(ongoing.shard.entries)
    ongoing.shard.replay(ongoing.log[-1]._replace(key=b"\0\1new"))
    assert before == dict(ongoing.shard.entries)


@pytest.mark.parametrize("status", [S.DEAD, S.PREPARE_EPOCH_FENCE])
def test_states_that_nobody_writes_are_survived(ongoing: Client, status: TransactionStatus) -> None:
    entry = ongoing.shard.entries["t"]
    fields = {name: getattr(entry, name) for name in entry.__slots__}
    ongoing.log.append(entry_record("t", type(entry)(**{**fields, "status": status}), 2))
    ongoing.fail_over(survives=len(ongoing.log))
    ongoing.tick()
    assert (None if status is S.DEAD else S.PREPARE_ABORT) is ongoing.status()


# Timers


def test_a_transaction_times_out(ongoing: Client) -> None:
    assert ongoing.now_ms + 60_001 == ongoing.shard.next_deadline()
    ongoing.tick(60_000)
    assert S.ONGOING is ongoing.status()
    ongoing.tick(1)
    assert [markers(ongoing, ORDERS, BILLS, epoch=1, commit=False)] == ongoing.markers
    ongoing.written(ongoing.markers[0])
    assert refused(E.INVALID_TXN_STATE) == ongoing.end(commit=True)
    assert joined((ORDERS, E.PRODUCER_FENCED)) == ongoing.add(ORDERS)
    assert goes_on(1) == ongoing.end(commit=False), "an abort is what it wanted, and it goes on"


@pytest.mark.parametrize("leap_ms", [3_600_000, -3_600_000])
def test_a_clock_that_is_set_gives_a_transaction_neither_more_nor_less_time(ongoing: Client, leap_ms: int) -> None:
    ongoing.tick(20_000)
    ongoing.now_ms += leap_ms
    ongoing.shard.on_clock_set(leap_ms)
    ongoing.tick(40_000)
    assert S.ONGOING is ongoing.status()
    ongoing.tick(1)
    assert [markers(ongoing, ORDERS, BILLS, epoch=1, commit=False)] == ongoing.markers


def test_a_transaction_that_was_begun_by_a_clock_ahead_times_out_all_the_same(ongoing: Client) -> None:
    ongoing.now_ms -= 3_600_000
    ongoing.fail_over()
    ongoing.tick(60_000)
    assert S.ONGOING is ongoing.status()
    ongoing.tick(1)
    assert S.PREPARE_ABORT is ongoing.status()


def test_a_client_of_version_0_is_fenced_by_a_timeout(ongoing: Client) -> None:
    ongoing.client_version = 0
    ongoing.tick(60_001)
    ongoing.written(ongoing.markers[0])
    assert refused(E.PRODUCER_FENCED) == ongoing.end(commit=False)


def test_the_start_counts_not_the_last_partition(ongoing: Client) -> None:
    ongoing.tick(59_000)
    ongoing.add(TopicPartition("late", 0))
    ongoing.tick(1_001)
    assert S.PREPARE_ABORT is ongoing.status()


def test_a_timeout_that_cannot_be_written_is_tried_again(ongoing: Client) -> None:
    ongoing.appends_fail = True
    ongoing.tick(60_001)
    assert (S.ONGOING, []) == (ongoing.status(), ongoing.markers)
    ongoing.appends_fail = False
    ongoing.tick(5_000)
    assert S.PREPARE_ABORT is ongoing.status()


def at_the_last_epoch(client: Client) -> Client:
    client.init()
    client.log.append(
        entry_record(
            "t",
            type(client.shard.entries["t"])(
                producer_id=PID,
                previous_producer_id=PID,
                producer_epoch=ProducerEpoch(32766),
                timeout_ms=60_000,
                status=S.ONGOING,
                partitions=(ORDERS,),
                last_update_ms=TimestampMs(client.now_ms),
                start_ms=TimestampMs(client.now_ms),
                client_version=2,
            ),
            2,
        )
    )
    client.fail_over(survives=len(client.log))
    return client


def test_epochs_run_out(client: Client) -> None:
    at_the_last_epoch(client)
    assert goes_on(0, PID + 1) == client.end(epoch=32766)
    assert [markers(client, ORDERS, epoch=32767, commit=True)] == client.markers
    client.written(client.markers[0])
    entry = client.shard.entries["t"]
    assert (PID + 1, 0, PID) == (entry.producer_id, entry.producer_epoch, entry.previous_producer_id)
    assert goes_on(0, PID + 1) == client.end(epoch=32766)


def test_epochs_run_out_by_a_timeout(client: Client) -> None:
    at_the_last_epoch(client)
    client.producer_ids_fail = True
    client.tick(60_001)
    assert S.ONGOING is client.status()
    client.producer_ids_fail = False
    client.tick(5_000)
    client.written(client.markers[0])
    entry = client.shard.entries["t"]
    assert (S.COMPLETE_ABORT, PID + 1, 0) == (entry.status, entry.producer_id, entry.producer_epoch)


def test_a_timeout_that_waited_for_an_id_looks_again(client: Client) -> None:
    at_the_last_epoch(client)
    client.now_ms += 60_001
    (need,) = client.shard.on_tick(client.now_ms)
    assert goes_on(0, PID + 1) == client.end(epoch=32766)
    assert [] == client.shard.on_producer_id(need, ProducerId(5), client.now_ms)  # type: ignore[arg-type]


def test_two_producers_that_need_an_id_at_once(client: Client) -> None:
    request = InitProducerId(transactional_id="t", timeout_ms=1)
    needs = [client.shard.init_producer_id(request, client.now_ms, token)[0] for token in "ab"]
    client.run(needs)
    assert [goes_on(0), goes_on(1)] == list(client.answers.values())


def test_ids_that_nobody_uses_are_forgotten(client: Client) -> None:
    client.settings = TransactionSettings(id_expiration_ms=HOUR_MS)
    client.fail_over()
    client.init()
    client.init(transactional_id="busy")
    client.tick(HOUR_MS - 1)
    client.init(transactional_id="busy")
    assert ["t", "busy"] == list(client.shard.entries)
    client.tick(1)
    assert ["busy"] == list(client.shard.entries)
    assert client.log[-1].value is None
    assert joined((ORDERS, E.INVALID_PRODUCER_ID_MAPPING)) == client.add(ORDERS)
    client.fail_over()
    assert ["busy"] == list(client.shard.entries)
    assert goes_on(0, PID + 2) == client.init()


def test_open_transactions_do_not_expire(client: Client) -> None:
    client.settings = TransactionSettings(id_expiration_ms=10, timeout_max_ms=HOUR_MS)
    client.fail_over()
    client.init(timeout_ms=HOUR_MS)
    client.add(ORDERS)
    client.tick(1000)
    assert S.ONGOING is client.status()
    client.end()
    client.tick(1000)
    assert S.PREPARE_COMMIT is client.status()
    client.written(client.markers[0])
    client.tick(10)
    assert client.status() is None


def test_many_tombstones_are_many_writes(client: Client) -> None:
    for index in range(5):
        client.init(transactional_id=f"{index}" * 30_000)
    client.now_ms += client.settings.id_expiration_ms
    writes = client.shard.on_tick(client.now_ms)
    assert [3, 2] == [len(write.records) for write in writes if isinstance(write, Write)]
    client.appends_fail = True
    client.run(writes)
    assert 5 == len(client.shard.entries)
    client.appends_fail = False
    client.tick(5_000)
    assert {} == client.shard.entries


# Answers to tools, and invariants


def test_a_description_tells_who_waits_for_what(ongoing: Client) -> None:
    described = ongoing.shard.describe_transaction("t")
    assert ("Ongoing", (ORDERS, BILLS), 60_000, ongoing.now_ms, PID, 0) == (
        described.state, described.partitions, described.timeout_ms, described.start_ms,
        described.producer_id, described.producer_epoch,
    )  # fmt: skip
    ongoing.end()
    ongoing.written(ongoing.markers[0], {ORDERS: E.NONE})
    described = ongoing.shard.describe_transaction("t")
    assert ("PrepareCommit", (BILLS,)) == (described.state, described.partitions)


def test_a_shard_that_is_wrong_is_noticed(ongoing: Client) -> None:
    ongoing.shard._due.clear("t")
    with pytest.raises(InvariantViolation, match="would never time out"):
        ongoing.shard.check()


def test_refusals_at_once_are_plain_responses(client: Client) -> None:
    request = InitProducerId(transactional_id="", timeout_ms=1)
    assert [Respond("x", refused(E.INVALID_REQUEST))] == client.shard.init_producer_id(request, 0, "x")
