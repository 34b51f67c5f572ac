"""Requests about transactions that are wrong, forged or too large: the right error, and nothing is damaged by them."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from ottla.protocol.apis import ApiKey
from ottla.records.builder import BatchBuilder
from tests.wire.exchange import RawConnection, request_frame
from tests.wire.transactional_producer import (
    GROUP_KEY,
    TransactionalProducer,
    find_coordinator,
    stable_offset,
    transactional_batch,
    wait_stable,
)
from tests.wire.world import FIRST_TIMESTAMP, TIMEOUT, create_topic, unused_name

OK = ErrorCode.none


class Scene:
    """A topic, and a producer that has written one record to it in a transaction which is open."""

    def __init__(self, connection: RawConnection) -> None:
        self.connection = connection
        self.topic = unused_name()
        self.topic_id: UUID = create_topic(connection, self.topic, 2, segment_ms=str(10**15))
        self.producer = TransactionalProducer(connection)
        assert [OK] == self.producer.add(self.topic, [0])
        assert (OK, 0) == self.send(self.batch(0))

    def batch(self, sequence: int, **values: Any) -> bytes:
        """A batch of the producer's."""
        return transactional_batch(self.producer.producer_id, self.producer.epoch, sequence, **values)

    def send(self, content: bytes, **values: Any) -> tuple[ErrorCode, int]:
        """(error, base offset)."""
        return self.producer.send(self.topic, self.topic_id, content, **values)

    def check_unharmed(self) -> None:
        """The transaction is as it was, goes on and is committed."""
        assert 0 == stable_offset(self.connection, self.topic_id)
        assert (OK, 1) == self.send(self.batch(1))
        assert OK is self.producer.end(commit=True)
        wait_stable(self.connection, self.topic_id, 3)


@pytest.fixture
def scene(connection: RawConnection) -> Scene:
    """One for each test."""
    return Scene(connection)


def odd_batch(scene: Scene, **values: Any) -> bytes:
    """A batch of the producer's with some fields as they should not be."""
    usual = {
        "producer_id": scene.producer.producer_id,
        "producer_epoch": scene.producer.epoch,
        "base_sequence": 1,
        "transactional": True,
    }
    builder = BatchBuilder(**{**usual, **values})
    builder.append(FIRST_TIMESTAMP, b"key", b"value")
    return builder.build()


@pytest.mark.parametrize("version", [9, 13])
@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"producer_id": 987_654_321}, ErrorCode.invalid_producer_id_mapping),
        ({"producer_epoch": 30_000}, ErrorCode.invalid_producer_epoch),
        ({"base_sequence": -1}, ErrorCode.invalid_record),
        ({"base_sequence": 5}, ErrorCode.out_of_order_sequence_number),
        ({"control": True}, ErrorCode.invalid_record),
        ({"transactional": False}, ErrorCode.invalid_txn_state),
        ({"producer_id": -1, "producer_epoch": -1, "base_sequence": -1}, ErrorCode.invalid_record),
    ],
)
def test_batches_of_no_transaction(scene: Scene, values: dict[str, Any], error: ErrorCode, version: int) -> None:
    assert (error, -1) == scene.send(odd_batch(scene, **values), version=version)
    scene.check_unharmed()


@pytest.mark.parametrize("version", [9, 13])
def test_a_transactional_batch_without_a_transactional_id(scene: Scene, version: int) -> None:
    refused = scene.send(scene.batch(1), version=version, transactional_id=None)
    assert (ErrorCode.transactional_id_authorization_failed, -1) == refused
    scene.check_unharmed()


@pytest.mark.parametrize("version", [9, 13])
def test_another_transactional_id(scene: Scene, version: int) -> None:
    """Known or not: the batch is another producer's, and would be the first in its partition."""
    other = TransactionalProducer(scene.connection)
    for transactional_id in (other.transactional_id, unused_name()):
        refused = scene.send(scene.batch(0), index=1, version=version, transactional_id=transactional_id)
        assert (ErrorCode.invalid_producer_id_mapping, -1) == refused
    scene.check_unharmed()


def test_a_plain_batch_with_a_transactional_id_is_a_plain_batch(scene: Scene) -> None:
    """As in Kafka, which looks at the batch."""
    assert (OK, 0) == scene.send(transactional_batch(-1, -1, -1, transactional=False), index=1)
    assert 1 == stable_offset(scene.connection, scene.topic_id, 1)
    scene.check_unharmed()


def test_batches_of_two_producers_in_one_request(scene: Scene) -> None:
    other = TransactionalProducer(scene.connection)
    contents = [scene.batch(1), transactional_batch(other.producer_id, other.epoch)]
    parts = [{"index": index, "records": content} for index, content in enumerate(contents)]
    request = {
        "transactional_id": scene.producer.transactional_id,
        "acks": -1,
        "timeout": TIMEOUT,
        "topic_data": [{"name": scene.topic, "topic_id": scene.topic_id, "partition_data": parts}],
    }
    for version in (9, 13):
        (topic,) = scene.connection.ask(ApiKey.PRODUCE, version, request).responses
        assert [ErrorCode.invalid_producer_id_mapping] * 2 == [part.error_code for part in topic.partition_responses]
    scene.check_unharmed()


def test_internal_topics_are_not_for_clients(scene: Scene) -> None:
    find_coordinator(scene.connection, unused_name(), GROUP_KEY)
    for topic in ("__consumer_offsets", "__transaction_state"):
        refused = scene.producer.send(topic, UUID(int=0), scene.batch(0), version=9)
        assert (ErrorCode.invalid_topic_exception, -1) == refused
        plain = transactional_batch(-1, -1, -1, transactional=False)
        refused = scene.producer.send(topic, UUID(int=0), plain, version=9, transactional_id=None)
        assert (ErrorCode.invalid_topic_exception, -1) == refused
        assert [ErrorCode.topic_authorization_failed] == scene.producer.add(topic, [0])
    scene.check_unharmed()


def test_an_empty_transactional_id(scene: Scene) -> None:
    nobody: dict[str, Any] = {"transactional_id": ""}
    invalid = ErrorCode.invalid_request
    assert invalid is scene.producer.init(**nobody).error_code
    assert [invalid] == scene.producer.add(scene.topic, [0], **nobody)
    assert invalid is scene.producer.add_offsets(unused_name(), **nobody)
    assert invalid is scene.producer.end(commit=True, **nobody)
    assert (invalid, -1) == scene.send(scene.batch(0), index=1, **nobody)
    scene.check_unharmed()


@pytest.mark.parametrize(
    "values",
    [{"producer_epoch": -1}, {"producer_epoch": 32_767}, {"producer_id": -1}, {"producer_id": 2**63 - 1}],
)
def test_forged_identities_end_nothing(scene: Scene, values: dict[str, int]) -> None:
    wrong_id = ErrorCode.invalid_producer_id_mapping
    for version, fenced in ((0, ErrorCode.invalid_producer_epoch), (5, ErrorCode.producer_fenced)):
        expected = fenced if "producer_epoch" in values else wrong_id
        assert expected is scene.producer.end(commit=False, version=version, **values)
    expected = ErrorCode.producer_fenced if "producer_epoch" in values else wrong_id
    assert [expected] == scene.producer.add(scene.topic, [1], **values)
    scene.check_unharmed()


def test_markers_of_nobody(scene: Scene) -> None:
    for producer_id, epoch in ((-1, 0), (scene.producer.producer_id, -1), (-(2**63), -(2**15))):
        topics = [{"name": scene.topic, "partition_indexes": [0, 0]}]
        marker = {"producer_id": producer_id, "producer_epoch": epoch, "topics": topics}
        (result,) = scene.connection.ask_newest(ApiKey.WRITE_TXN_MARKERS, {"markers": [marker]}).markers
        assert [ErrorCode.invalid_request] * 2 == [part.error_code for part in result.topics[0].partitions]
    assert () == scene.connection.ask_newest(ApiKey.WRITE_TXN_MARKERS, {"markers": []}).markers
    scene.check_unharmed()


def test_partitions_that_are_named_again_and_again(scene: Scene) -> None:
    """They join once: what is remembered of a transaction is bounded by the partitions that exist."""
    errors = scene.producer.add(scene.topic, [0, 1] * 10_000)
    assert [OK] * 20_000 == errors
    request = {"transactional_ids": [scene.producer.transactional_id]}
    (state,) = scene.connection.ask_newest(ApiKey.DESCRIBE_TRANSACTIONS, request).transaction_states
    assert [(scene.topic, [0, 1])] == [(each.topic, sorted(each.partitions)) for each in state.topics]
    scene.check_unharmed()


def test_long_lists_of_partitions_that_do_not_exist(scene: Scene) -> None:
    count = 20_000
    errors = scene.producer.add(scene.topic, range(2, 2 + count))
    assert [ErrorCode.unknown_topic_or_partition] * count == errors
    scene.check_unharmed()


def test_longer_lists_than_anybody_needs(scene: Scene, address: str) -> None:
    """Nobody is given the memory for them."""
    with RawConnection(address) as other:
        greedy = TransactionalProducer(other)
        topics = [{"name": scene.topic, "partitions": list(range(1_000_000))}]
        request = {f"v3_and_below_{name}": value for name, value in {**greedy.identity, "topics": topics}.items()}
        other.send(request_frame(ApiKey.ADD_PARTITIONS_TO_TXN, 3, request))
        assert b"" == other.wait_closed()
    scene.check_unharmed()


def test_giant_metadata_of_offsets(scene: Scene) -> None:
    group_id = unused_name()
    find_coordinator(scene.connection, group_id, GROUP_KEY)
    assert OK is scene.producer.add_offsets(group_id)
    parts = [
        {"partition_index": 0, "committed_offset": 1, "committed_metadata": "m" * 30_000},
        {"partition_index": 1, "committed_offset": 1, "committed_metadata": "m" * 100},
    ]
    request = {**scene.producer.identity, "group_id": group_id, "topics": [{"name": scene.topic, "partitions": parts}]}
    (topic,) = scene.connection.ask(ApiKey.TXN_OFFSET_COMMIT, 3, request).topics
    assert [ErrorCode.offset_metadata_too_large, OK] == [part.error_code for part in topic.partitions]
    scene.check_unharmed()


def test_a_fenced_producer_changes_nothing_any_more(scene: Scene) -> None:
    """Another has taken its transactional id over, and with that its transaction is aborted."""
    TransactionalProducer(scene.connection, scene.producer.transactional_id)
    wait_stable(scene.connection, scene.topic_id, 2)
    old = scene.producer
    tries: list[tuple[ErrorCode, Callable[[], object]]] = [
        (ErrorCode.producer_fenced, lambda: old.end(commit=True)),
        (ErrorCode.invalid_producer_epoch, lambda: old.end(commit=True, version=1)),
        (ErrorCode.producer_fenced, lambda: old.add(scene.topic, [1])[0]),
        (ErrorCode.invalid_producer_epoch, lambda: scene.send(scene.batch(1))[0]),
        (ErrorCode.invalid_producer_epoch, lambda: scene.send(scene.batch(1), version=13)[0]),
        (ErrorCode.invalid_producer_epoch, lambda: old.commit_offsets("g", scene.topic, [(0, 1)], 5)[0]),
    ]
    find_coordinator(scene.connection, "g", GROUP_KEY)
    for expected, attempt in tries:
        assert expected is attempt()
    assert 2 == stable_offset(scene.connection, scene.topic_id)
