"""The admin client, method by method, against the broker under test; what differs between brokers is left open."""

from collections.abc import Iterator
from typing import Any

import pytest

from ottla.client.admin.async_admin import OffsetSpec
from ottla.client.admin.blocking_admin import Admin
from ottla.client.admin.config_requests import ConfigSource, ResourceType
from ottla.client.admin.replica_requests import ElectionType
from ottla.client.admin.transaction_requests import NoOpenTransactionError
from ottla.client.admin.values import ConfigResource, MemberToRemove, NewPartitions, NewTopic, Outcomes
from ottla.client.consumer.blocking_consumer import Consumer
from ottla.client.errors import AnswerError, UnsupportedByBrokerError
from ottla.client.producer.blocking_producer import Producer
from ottla.client.values import OffsetAndMetadata, OffsetAndTimestamp
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import TopicPartition
from tests.compat.clients.broker_under_test import TARGET

MISSING = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.fixture
def admin(bootstrap: str) -> Iterator[Admin]:
    with Admin(bootstrap_servers=bootstrap) as made:
        yield made


def codes(outcomes: Outcomes[Any, Any]) -> dict[Any, ErrorCode]:
    return {key: error.error_code for key, error in outcomes.errors.items() if isinstance(error, AnswerError)}


def test_the_cluster(admin: Admin, bootstrap: str) -> None:
    described = admin.describe_cluster()
    (broker,) = described.brokers
    assert (bootstrap, broker.id) == (str(broker.address), described.controller)
    (log_dir,) = admin.describe_log_dirs()[broker.id]
    assert (ErrorCode.NONE, True) == (log_dir.error_code, log_dir.total_bytes > 0)


def test_topics_from_creation_to_deletion(admin: Admin, topic: str) -> None:
    (broker,) = admin.describe_cluster().brokers
    placed = f"{topic}-placed"
    wishes = [NewTopic(topic, 2, 1), NewTopic(placed, replica_assignments={0: [broker.id]})]
    created = admin.create_topics(wishes, wait_for_metadata=True)
    assert {topic: 2, placed: 1} == {name: each.partitions for name, each in created.items()}
    admin.create_partitions({topic: 3, placed: NewPartitions(2, [[broker.id]])})
    admin.wait_for_topics([topic, placed])
    with pytest.raises(AnswerError) as fewer:
        admin.create_partitions({topic: 1})
    assert ErrorCode.INVALID_PARTITIONS is fewer.value.error_code
    mixed = admin.create_topics([NewTopic(topic), NewTopic("no/name")], validate_only=True, raise_errors=False)
    assert {topic: ErrorCode.TOPIC_ALREADY_EXISTS, "no/name": ErrorCode.INVALID_TOPIC_EXCEPTION} == codes(mixed)
    gone = admin.delete_topics([topic, placed, f"{topic}-gone"], raise_errors=False)
    assert ([topic, placed], {f"{topic}-gone": MISSING}) == (list(gone), codes(gone))


def test_configs(admin: Admin, topic: str) -> None:
    admin.create_topics([NewTopic(topic, 1, 1, topic_configs={"retention.ms": "1000"})], wait_for_metadata=True)
    asked = ConfigResource(ResourceType.TOPIC, topic, ["retention.ms", "cleanup.policy"])
    assert "1000" == admin.describe_configs([asked])[asked]["retention.ms"].value
    admin.alter_configs(
        [ConfigResource(ResourceType.TOPIC, topic, {"retention.ms": None, "cleanup.policy": "compact"})]
    )
    after = admin.describe_configs([asked])[asked]
    assert ("compact", ConfigSource.TOPIC) == (after["cleanup.policy"].value, after["cleanup.policy"].source)
    assert ConfigSource.TOPIC != after["retention.ms"].source
    with pytest.raises(AnswerError) as refused:
        admin.alter_configs([ConfigResource(ResourceType.TOPIC, topic, {"retention.ms": "x"})])
    assert ErrorCode.INVALID_CONFIG is refused.value.error_code
    broker = ConfigResource(ResourceType.BROKER, str(admin.describe_cluster().brokers[0].id), ["log.dirs"])
    assert admin.describe_configs([broker], True)[broker]["log.dirs"].documentation
    if TARGET == "kafka-3.9":
        with pytest.raises(UnsupportedByBrokerError, match="can only list resources of type CLIENT_METRICS"):
            admin.list_config_resources([ResourceType.TOPIC])
    else:
        assert asked in admin.list_config_resources([ResourceType.TOPIC])


def test_offsets_and_deleting_records(admin: Admin, bootstrap: str, topic: str) -> None:
    admin.create_topics([NewTopic(topic, 2, 1)], wait_for_metadata=True)
    with Producer(bootstrap_servers=bootstrap) as producer:
        for at in range(10):
            producer.send(topic, b"x", partition=0, timestamp_ms=1_700_000_000_000 + at)
    full, empty, gone = (TopicPartition(topic, at) for at in range(3))
    assert {full: 10, empty: 0} == {
        each: found.offset for each, found in admin.list_offsets({full: OffsetSpec.LATEST, empty: -1}).items()
    }
    assert OffsetAndTimestamp(4, 1_700_000_000_004) == admin.list_offsets({full: 1_700_000_000_004})[full]
    assert 9 == admin.list_offsets({full: OffsetSpec.MAX_TIMESTAMP})[full].offset
    deleted = admin.delete_records({full: 3, empty: 5}, raise_errors=False)
    assert ({full: 3}, {empty: ErrorCode.OFFSET_OUT_OF_RANGE}) == (dict(deleted), codes(deleted))
    mixed = admin.list_offsets({full: OffsetSpec.EARLIEST, gone: OffsetSpec.EARLIEST}, raise_errors=False)
    assert (3, {gone: MISSING}) == (mixed[full].offset, codes(mixed))


def test_elections_and_reassignments(admin: Admin, topic: str) -> None:
    admin.create_topics([NewTopic(topic, 1, 1)], wait_for_metadata=True)
    (broker,) = admin.describe_cluster().brokers
    led, gone = TopicPartition(topic, 0), TopicPartition(topic, 5)
    elected = admin.elect_leaders(ElectionType.PREFERRED, [led, gone], raise_errors=False)
    assert ([led], {gone: MISSING}) == (list(elected), codes(elected))
    moved = admin.alter_partition_reassignments({led: [broker.id], gone: [broker.id]}, raise_errors=False)
    assert ([led], {gone: MISSING}) == (list(moved), codes(moved))
    with pytest.raises(AnswerError) as refused:
        admin.alter_partition_reassignments({led: [broker.id, 99]})
    assert ErrorCode.INVALID_REPLICA_ASSIGNMENT is refused.value.error_code
    with pytest.raises(AnswerError) as nothing:
        admin.alter_partition_reassignments({led: None})
    assert ErrorCode.NO_REASSIGNMENT_IN_PROGRESS is nothing.value.error_code
    assert {} == admin.list_partition_reassignments([led])


def test_groups(admin: Admin, bootstrap: str, topic: str) -> None:
    admin.create_topics([NewTopic(topic, 2, 1)], wait_for_metadata=True)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    admin.alter_consumer_group_offsets(topic, {first: 5, second: OffsetAndMetadata(7, "mine")})
    found = admin.list_consumer_group_offsets(topic)
    assert {first: 5, second: 7} == {each: offset.offset for each, offset in found.items()}
    assert "mine" == found[second].metadata
    admin.delete_consumer_group_offsets(topic, [first])
    assert [second] == list(admin.list_consumer_group_offsets(topic))
    with Consumer(topic, bootstrap_servers=bootstrap, group_id=topic, group_instance_id="anna") as consumer:
        while not consumer.assignment():
            consumer.poll(100)
        described = admin.describe_consumer_groups([topic])[topic]
        assert ("Stable", ["anna"]) == (described.state, [each.instance_id for each in described.members])
        assert (first, second) == described.members[0].assignment
        assert topic in [each.group_id for each in admin.list_consumer_groups(states_filter=["Stable"])]
        with pytest.raises(AnswerError) as refused:
            admin.delete_consumer_groups([topic])
        assert ErrorCode.NON_EMPTY_GROUP is refused.value.error_code
        anna, nobody = MemberToRemove(group_instance_id="anna"), MemberToRemove(group_instance_id="nobody")
        removed = admin.remove_consumer_group_members(topic, [nobody, anna], reason="a test", raise_errors=False)
        assert ([anna], {nobody: ErrorCode.UNKNOWN_MEMBER_ID}) == (list(removed), codes(removed))
        consumer.close(autocommit=False)
    admin.remove_consumer_group_members(topic)
    admin.delete_consumer_groups([topic])
    with pytest.raises(AnswerError) as gone:
        admin.describe_consumer_groups([topic])
    assert ErrorCode.GROUP_ID_NOT_FOUND is gone.value.error_code


def test_transactions(admin: Admin, bootstrap: str, topic: str) -> None:
    admin.create_topics([NewTopic(topic, 1, 1)], wait_for_metadata=True)
    partition = TopicPartition(topic, 0)
    with Producer(bootstrap_servers=bootstrap, transactional_id=topic) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"1").get(30)
        assert topic in [each.transactional_id for each in admin.list_transactions(state_filters=["Ongoing"])]
        assert (partition,) == admin.describe_transactions([topic])[topic].partitions
        (writer,) = admin.describe_producers([partition])[partition]
        assert 0 == writer.start_offset
        assert 0 == admin.list_offsets({partition: OffsetSpec.LATEST}, read_committed=True)[partition].offset
        assert [] == admin.find_hanging_transactions([partition])
        with pytest.raises(NoOpenTransactionError):
            admin.abort_transaction(partition, 1)
        admin.abort_transaction(partition, 0)
        assert 2 == admin.list_offsets({partition: OffsetSpec.LATEST}, read_committed=True)[partition].offset
        producer.abort_transaction()
