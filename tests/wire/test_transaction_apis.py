"""The APIs of transactions, in every version: what each does, what it refuses, and with which of the codes it knows."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from ottla.protocol.apis import ApiKey
from tests.waiting import tries
from tests.wire.exchange import RawConnection, every_version, read_response, request_frame
from tests.wire.transactional_producer import (
    BATCHED_SINCE,
    GROUP_KEY,
    TransactionalProducer,
    find_coordinator,
    stable_offset,
    stable_part,
    transactional_batch,
    wait_stable,
)
from tests.wire.world import TIMEOUT, create_topic, unused_name

OK = ErrorCode.none
UNKNOWN = ErrorCode.unknown_topic_or_partition
WRONG_PRODUCER = ErrorCode.invalid_producer_id_mapping
_TIMEOUT_MS = (TIMEOUT // timedelta(milliseconds=1)).to_bytes(4, "big")
_NEVER_BEGUN = _TIMEOUT_MS + (-1).to_bytes(8, "big", signed=True)
_BEGUN_IN_1970 = _TIMEOUT_MS + bytes(8)


def fenced(version: int, since: int = 2) -> ErrorCode:
    """What a producer hears that another has replaced."""
    return ErrorCode.producer_fenced if version >= since else ErrorCode.invalid_producer_epoch


@pytest.fixture
def producer(connection: RawConnection) -> TransactionalProducer:
    """One with a transactional id of its own."""
    return TransactionalProducer(connection)


@pytest.fixture
def topic() -> str:
    """The name of a topic of the test's own."""
    return unused_name()


@pytest.fixture
def topic_id(connection: RawConnection, topic: str) -> UUID:
    """That topic, with two partitions."""
    # Markers have the time of now, and records that of the tests: they shall be in one segment all the same.
    return create_topic(connection, topic, 2, segment_ms=str(10**15))


@every_version(ApiKey.INIT_PRODUCER_ID)
def test_init_producer_id_with_a_transactional_id(producer: TransactionalProducer, version: int) -> None:
    assert 0 == producer.epoch
    again = producer.init(version)
    assert (OK, producer.producer_id, 1) == (again.error_code, again.producer_id, again.producer_epoch)
    too_long = producer.init(version, transaction_timeout=60 * 60 * TIMEOUT)
    assert (ErrorCode.invalid_transaction_timeout, -1, -1) == (
        too_long.error_code,
        too_long.producer_id,
        too_long.producer_epoch,
    )
    if version >= 3:
        current = {"producer_id": producer.producer_id, "producer_epoch": 1}
        bumped = producer.init(version, **current)
        assert (OK, producer.producer_id, 2) == (bumped.error_code, bumped.producer_id, bumped.producer_epoch)
        repeated = producer.init(version, **current)
        assert (OK, 2) == (repeated.error_code, repeated.producer_epoch)
        old = producer.init(version, producer_id=producer.producer_id, producer_epoch=0)
        assert (fenced(version, 4), -1, -1) == (old.error_code, old.producer_id, old.producer_epoch)


@every_version(ApiKey.ADD_PARTITIONS_TO_TXN)
def test_add_partitions_to_txn(producer: TransactionalProducer, topic: str, topic_id: UUID, version: int) -> None:
    refused = [ErrorCode.operation_not_attempted, UNKNOWN]
    assert refused == producer.add(topic, [0, 9], version)
    assert [UNKNOWN] == producer.add("no-such", [0], version)
    assert [WRONG_PRODUCER] == producer.add(topic, [0], version, producer_id=producer.producer_id + 1)
    assert [WRONG_PRODUCER] == producer.add(topic, [0], version, transactional_id=unused_name())
    assert [fenced(version)] == producer.add(topic, [0], version, producer_epoch=7)
    assert [OK, OK] == producer.add(topic, [1, 0], version)
    assert [OK] == producer.add(topic, [1], version)


@pytest.mark.parametrize("version", range(BATCHED_SINCE, 6))
def test_add_partitions_for_several_transactions(
    producer: TransactionalProducer, connection: RawConnection, topic: str, topic_id: UUID, version: int
) -> None:
    """As brokers ask: some only want to know."""
    other = TransactionalProducer(connection)
    topics = [{"name": topic, "partitions": [0]}]
    asked = [
        {**producer.identity, "topics": topics},
        {**other.identity, "topics": topics, "verify_only": True},
        {**other.identity, "topics": topics, "transactional_id": unused_name()},
    ]
    answer = connection.ask(ApiKey.ADD_PARTITIONS_TO_TXN, version, {"transactions": asked})
    found = {
        each.transactional_id: each.topic_results[0].results_by_partition[0].partition_error_code
        for each in answer.results_by_transaction
    }
    assert {
        producer.transactional_id: OK,
        other.transactional_id: ErrorCode.transaction_abortable,
        asked[2]["transactional_id"]: WRONG_PRODUCER,
    } == found
    assert [OK] == producer.add(topic, [0], version, verify_only=True)


@every_version(ApiKey.ADD_OFFSETS_TO_TXN)
def test_add_offsets_to_txn(producer: TransactionalProducer, version: int) -> None:
    group_id = unused_name()
    find_coordinator(producer.connection, group_id, GROUP_KEY)
    assert WRONG_PRODUCER is producer.add_offsets(group_id, version, producer_id=producer.producer_id + 1)
    assert fenced(version) is producer.add_offsets(group_id, version, producer_epoch=7)
    assert OK is producer.add_offsets(group_id, version)
    request = {"transactional_ids": [producer.transactional_id]}
    (state,) = producer.connection.ask_newest(ApiKey.DESCRIBE_TRANSACTIONS, request).transaction_states
    assert ["__consumer_offsets"] == [each.topic for each in state.topics]


@every_version(ApiKey.END_TXN)
def test_end_txn(producer: TransactionalProducer, topic: str, topic_id: UUID, version: int) -> None:
    assert ErrorCode.invalid_txn_state is producer.end(commit=True, version=version)
    offset = 0
    for sequence, commit in enumerate((True, False, True)):
        epoch = producer.epoch
        assert [OK] == producer.add(topic, [0])
        sequence = 0 if version >= 5 else sequence
        content = transactional_batch(producer.producer_id, producer.epoch, sequence)
        assert (OK, offset) == producer.send(topic, topic_id, content)
        assert offset == stable_offset(producer.connection, topic_id)
        assert WRONG_PRODUCER is producer.end(commit=commit, version=version, producer_id=producer.producer_id + 1)
        assert fenced(version) is producer.end(commit=commit, version=version, producer_epoch=producer.epoch + 7)
        assert OK is producer.end(commit=commit, version=version)
        assert epoch + (version >= 5) == producer.epoch
        offset += 2
        wait_stable(producer.connection, topic_id, offset)
    found = stable_part(producer.connection, topic_id)
    assert [(producer.producer_id, 2)] == [(each.producer_id, each.first_offset) for each in found.aborted_transactions]


def test_a_retried_end_is_answered_again(producer: TransactionalProducer, topic: str, topic_id: UUID) -> None:
    assert [OK] == producer.add(topic, [0])
    before = {"producer_epoch": producer.epoch}
    assert OK is producer.end(commit=True, version=5)
    assert 1 == producer.epoch
    for _ in tries():
        error = producer.end(commit=True, version=5, **before)
        if error is OK:
            break
        assert ErrorCode.concurrent_transactions is error
    assert 1 == producer.epoch
    assert ErrorCode.invalid_txn_state is producer.end(commit=False, version=5, **before)


@every_version(ApiKey.TXN_OFFSET_COMMIT)
def test_txn_offset_commit(producer: TransactionalProducer, topic: str, topic_id: UUID, version: int) -> None:
    group_id = unused_name()
    find_coordinator(producer.connection, group_id, GROUP_KEY)

    def commit(offsets: list[tuple[int, int]], **values: Any) -> list[ErrorCode]:
        return producer.commit_offsets(group_id, topic, offsets, version, topic_id, **values)

    if version < 5:
        unverified = ErrorCode.transaction_abortable if version >= 4 else ErrorCode.invalid_txn_state
        assert [unverified] == commit([(0, 5)])
        assert OK is producer.add_offsets(group_id)
    assert [WRONG_PRODUCER] == commit([(0, 5)], producer_id=producer.producer_id + 1)
    assert [ErrorCode.invalid_producer_epoch] == commit([(0, 5)], producer_epoch=producer.epoch + 7)
    missing = producer.commit_offsets(group_id, "no-such", [(0, 5)], version, UUID(int=78))
    assert [ErrorCode.unknown_topic_id if version >= 6 else UNKNOWN] == missing
    if version >= 3:
        (error,) = commit([(0, 7)], member_id="nobody", generation_id=3)
        assert error is (ErrorCode.group_id_not_found if version >= 6 else ErrorCode.illegal_generation)
    assert [OK, UNKNOWN] == commit([(0, 5), (9, 5)])
    if version >= 3:
        (error,) = commit([(0, 7)], member_id="nobody", generation_id=3)
        assert error in (ErrorCode.illegal_generation, ErrorCode.unknown_member_id, ErrorCode.group_id_not_found)
    assert (-1, ErrorCode.unstable_offset_commit) == committed(producer.connection, group_id, topic)
    assert OK is producer.end(commit=True, version=5 if version >= 5 else 3)
    for _ in tries():
        found = committed(producer.connection, group_id, topic)
        if found[1] is OK:
            break
        assert ErrorCode.unstable_offset_commit is found[1]
    assert (5, OK) == found


def committed(connection: RawConnection, group_id: str, topic: str) -> tuple[int, ErrorCode]:
    """(offset, error) that a group's consumer of the first partition would begin with."""
    topics = [{"name": topic, "partition_indexes": [0]}]
    request = {"groups": [{"group_id": group_id, "topics": topics}], "require_stable": True}
    (group,) = connection.ask(ApiKey.OFFSET_FETCH, 9, request).groups
    (part,) = group.topics[0].partitions
    return part.committed_offset, part.error_code


@every_version(ApiKey.PRODUCE)
def test_produce_in_a_transaction(producer: TransactionalProducer, topic: str, topic_id: UUID, version: int) -> None:
    """The first write to each partition; older clients have to add it, for newer ones it joins."""
    if version < 12:
        unverified = ErrorCode.transaction_abortable if version == 11 else ErrorCode.invalid_txn_state
        assert (unverified, -1) == producer.send(topic, topic_id, version=version)
        assert [OK, OK] == producer.add(topic, [0, 1])
    old = transactional_batch(producer.producer_id, producer.epoch + 7)
    assert (ErrorCode.invalid_producer_epoch, -1) == producer.send(topic, topic_id, old, version=version)
    stranger = transactional_batch(producer.producer_id + 1, producer.epoch)
    assert (WRONG_PRODUCER, -1) == producer.send(topic, topic_id, stranger, version=version)
    for index in (0, 1):
        assert (OK, 0) == producer.send(topic, topic_id, index=index, version=version)
        more = transactional_batch(producer.producer_id, producer.epoch, 1, b"a", b"b")
        assert (OK, 1) == producer.send(topic, topic_id, more, index=index, version=version)
    assert [0, 0] == [stable_offset(producer.connection, topic_id, index) for index in (0, 1)]
    assert OK is producer.end(commit=True, version=5 if version >= 12 else 3)
    for index in (0, 1):
        wait_stable(producer.connection, topic_id, 4, index)


@every_version(ApiKey.WRITE_TXN_MARKERS)
def test_write_txn_markers(producer: TransactionalProducer, topic: str, topic_id: UUID, version: int) -> None:
    """A person ends a transaction with what DescribeProducers says of it."""
    assert [OK] == producer.add(topic, [0])
    assert (OK, 0) == producer.send(topic, topic_id)

    def ask(**values: object) -> list[ErrorCode]:
        marker = {"producer_id": producer.producer_id, "producer_epoch": producer.epoch, "coordinator_epoch": 0}
        topics = [{"name": topic, "partition_indexes": [0, 9]}]
        request = {"markers": [{**marker, "transaction_result": False, "topics": topics, **values}]}
        (result,) = producer.connection.ask(ApiKey.WRITE_TXN_MARKERS, version, request).markers
        assert values.get("producer_id", producer.producer_id) == result.producer_id
        (found,) = result.topics
        assert (topic, [0, 9]) == (found.name, sorted(part.partition_index for part in found.partitions))
        return [part.error_code for part in sorted(found.partitions, key=lambda part: part.partition_index)]

    assert [OK, UNKNOWN] == ask(producer_id=producer.producer_id + 1, coordinator_epoch=5)
    if version >= 2:
        assert [ErrorCode.invalid_producer_epoch, UNKNOWN] == ask(transaction_version=2)
    assert 0 == stable_offset(producer.connection, topic_id)
    assert [OK, UNKNOWN] == ask(coordinator_epoch=3)
    found = stable_part(producer.connection, topic_id)
    assert 3 == found.last_stable_offset
    assert [(producer.producer_id, 0)] == [(each.producer_id, each.first_offset) for each in found.aborted_transactions]
    assert [ErrorCode.transaction_coordinator_fenced, UNKNOWN] == ask(coordinator_epoch=2)


@every_version(ApiKey.DESCRIBE_TRANSACTIONS)
def test_describe_transactions(producer: TransactionalProducer, topic: str, topic_id: UUID, version: int) -> None:
    missing = unused_name()

    def ask(*, is_begun: bool) -> dict[str, tuple[object, ...]]:
        request = {"transactional_ids": [producer.transactional_id, missing]}
        producer.connection.send(request_frame(ApiKey.DESCRIBE_TRANSACTIONS, version, request))
        frame = producer.connection.receive()
        # kio cannot read that a transaction has never begun.
        _, answer = read_response(ApiKey.DESCRIBE_TRANSACTIONS, version, frame.replace(_NEVER_BEGUN, _BEGUN_IN_1970))
        assert is_begun == (_NEVER_BEGUN not in frame)
        return {
            each.transactional_id: (
                each.error_code,
                each.transaction_state,
                each.producer_id,
                each.producer_epoch,
                [(found.topic, sorted(found.partitions)) for found in each.topics],
            )
            for each in answer.transaction_states
        }

    states = ask(is_begun=False)
    assert (OK, "Empty", producer.producer_id, 0, []) == states[producer.transactional_id]
    assert ErrorCode.transactional_id_not_found is states[missing][0]
    assert [OK, OK] == producer.add(topic, [1, 0])
    states = ask(is_begun=True)
    assert (OK, "Ongoing", producer.producer_id, 0, [(topic, [0, 1])]) == states[producer.transactional_id]


@every_version(ApiKey.LIST_TRANSACTIONS)
def test_list_transactions(producer: TransactionalProducer, topic: str, topic_id: UUID, version: int) -> None:
    open_one = TransactionalProducer(producer.connection)
    assert [OK] == open_one.add(topic, [0])

    def ask(**values: object) -> tuple[list[str], list[tuple[str, int, str]]]:
        answer = producer.connection.ask(ApiKey.LIST_TRANSACTIONS, version, values)
        assert OK is answer.error_code
        mine = {producer.transactional_id, open_one.transactional_id}
        found = [
            (each.transactional_id, each.producer_id, each.transaction_state)
            for each in answer.transaction_states
            if each.transactional_id in mine
        ]
        return list(answer.unknown_state_filters), found

    at_rest = (producer.transactional_id, producer.producer_id, "Empty")
    ongoing = (open_one.transactional_id, open_one.producer_id, "Ongoing")
    assert sorted([at_rest, ongoing]) == sorted(ask()[1])
    assert (["Odd"], [ongoing]) == ask(state_filters=["Ongoing", "Odd"])
    assert ([], [at_rest]) == ask(producer_id_filters=[producer.producer_id])
    if version >= 1:
        assert ([], [at_rest]) == ask(duration_filter=10_000_000)
    if version >= 2:
        assert ([], [ongoing]) == ask(transactional_id_pattern=f"{open_one.transactional_id[:-1]}.")
        answer = producer.connection.ask(ApiKey.LIST_TRANSACTIONS, version, {"transactional_id_pattern": "("})
        assert ErrorCode.invalid_regular_expression is answer.error_code
