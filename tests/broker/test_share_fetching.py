"""Share groups on a broker with short locks and few sessions: what expires, what is refused, what is not delivered."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from ottla.coordination.share_partitions import share_partition
from ottla.protocol.apis import ApiKey
from ottla.records.batch import Batch, scan
from ottla.records.builder import build_batch
from ottla.records.record import Record
from ottla.testing.broker_cluster import BrokerCluster
from ottla.testing.broker_handle import BrokerHandle
from ottla.testing.in_process_broker import InProcessBroker
from tests.waiting import wait_until
from tests.wire.exchange import RawConnection
from tests.wire.groups import unused_group
from tests.wire.share_member import ACCEPT, LONG, RENEW, SOON, Member, join, set_configs, set_up
from tests.wire.transactional_producer import TransactionalProducer, transactional_batch, wait_stable
from tests.wire.world import batch, create_topic, produce, unused_name, wait_served

SETTINGS = {
    "share.coordinator.state.topic.num.partitions": "1",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.max.size": "2",
    "group.share.max.share.sessions": "2",
}


pytestmark = pytest.mark.ottla_broker(SETTINGS)


@pytest.fixture
def connection(broker: InProcessBroker) -> Iterator[RawConnection]:
    with RawConnection(broker.bootstrap) as connection:
        yield connection


def test_a_lock_expires_and_its_records_go_to_another_member(connection: RawConnection) -> None:
    group_id, topic_id = set_up(connection, 1, share_record_lock_duration_ms="1000")
    silent, other = (Member(connection, group_id, topic_id, name) for name in ("silent", "other"))
    ((first, last, _),) = silent.fetch()
    # Only the first lock is short: the second must not expire before it is used.
    set_configs(connection, group_id, share_record_lock_duration_ms="60000")
    assert [(first, last, 2)] == other.fetch(max_wait=LONG)
    assert [ErrorCode.invalid_record_state] == silent.acknowledge((first, last, [ACCEPT]))
    assert [ErrorCode.none] == other.acknowledge((first, last, [ACCEPT]))


def test_a_renewed_lock_lasts_as_long_as_is_configured_now(connection: RawConnection) -> None:
    group_id, topic_id = set_up(connection, 1, share_record_lock_duration_ms="60000")
    silent, other = (Member(connection, group_id, topic_id, name) for name in ("silent", "other"))
    ((first, last, _),) = silent.fetch()
    set_configs(connection, group_id, share_record_lock_duration_ms="1000")
    assert [ErrorCode.none] == silent.acknowledge((first, last, [RENEW]), is_renew_ack=True)
    assert [(first, last, 2)] == other.fetch(max_wait=LONG)


def test_the_size_of_a_group_is_limited(connection: RawConnection) -> None:
    group_id, _ = set_up(connection, 1)

    def join(member_id: str, member_epoch: int = 0) -> ErrorCode:
        values = {"group_id": group_id, "member_id": member_id, "member_epoch": member_epoch}
        answer = connection.ask_newest(ApiKey.SHARE_GROUP_HEARTBEAT, {**values, "subscribed_topic_names": ["t"]})
        return ErrorCode(answer.error_code)

    full = ErrorCode.group_max_size_reached
    assert [ErrorCode.none, full, ErrorCode.none] == [join("two"), join("three"), join("two")]
    assert [ErrorCode.none, ErrorCode.none, full] == [join("two", -1), join("three"), join("two")]


def test_sessions_are_limited(connection: RawConnection, broker: InProcessBroker) -> None:
    group_id, topic_id = set_up(connection, 1)
    members = [Member(connection, group_id, topic_id, name) for name in ("one", "two")]
    for member in members:
        member.fetch(max_wait=SOON)
    third = Member(connection, group_id, topic_id, "three")
    assert ErrorCode.share_session_limit_reached is third.ask_fetch(max_wait=timedelta(0)).error_code
    # A session that is opened again counts once.
    members[0].epoch = 0
    members[0].fetch(max_wait=SOON)
    members[1].acknowledge(share_session_epoch=-1)
    assert ErrorCode.none is third.ask_fetch(max_wait=SOON).error_code
    assert ErrorCode.share_session_limit_reached is members[1].ask_fetch(share_session_epoch=0).error_code


def test_aborted_records_are_not_delivered_with_read_committed(connection: RawConnection) -> None:
    name = unused_name()
    group_id, topic_id = set_up(connection, 0, name=name, share_isolation_level="read_committed")
    producer = TransactionalProducer(connection)
    expected = []
    for commit in (False, True, False, True):
        assert [ErrorCode.none] == producer.add(name, [0])
        # Every transaction is the first of its epoch.
        error, offset = producer.send(name, topic_id)
        assert ErrorCode.none is error
        assert ErrorCode.none is producer.end(commit=commit)
        wait_stable(connection, topic_id, offset + 2)
        producer.epoch = producer.init().producer_epoch
        if commit:
            expected.append((offset, offset))
    member = Member(connection, group_id, topic_id)
    acquired = member.fetch(max_wait=LONG)
    assert expected == [(first, last) for first, last, _ in acquired]
    assert [ErrorCode.none] == member.acknowledge(*[(first, last, [ACCEPT]) for first, last in expected])
    described = connection.ask_newest(
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, {"groups": [{"group_id": group_id, "topics": None}]}
    )
    (part,) = described.groups[0].topics[0].partitions
    assert 0 == part.lag


def test_a_fetch_of_one_record_passes_a_long_aborted_transaction(connection: RawConnection) -> None:
    name = unused_name()
    group_id, topic_id = set_up(connection, 0, name=name, share_isolation_level="read_committed")
    produce(connection, topic_id, build_batch([Record(0, 1, None, b"a")]))
    member = Member(connection, group_id, topic_id)
    assert [(0, 0, 1)] == member.fetch(max_wait=LONG)
    producer = TransactionalProducer(connection)
    assert [ErrorCode.none] == producer.add(name, [0])
    count = 40
    for at in range(1, count + 1):
        content = transactional_batch(producer.producer_id, producer.epoch, at - 1, b"x" * 100_000)
        assert (ErrorCode.none, at) == producer.send(name, topic_id, content)
    assert ErrorCode.none is producer.end(commit=False)
    wait_stable(connection, topic_id, count + 2)
    produce(connection, topic_id, build_batch([Record(0, 1, None, b"a")]))
    # Without time to wait, the share-partition is read once.
    fetched = member.fetch(max_wait=timedelta(0), max_records=1)
    assert [(count + 2, count + 2, 1)] == fetched


def test_a_deleted_topic_is_forgotten(connection: RawConnection) -> None:
    name = unused_name()
    group_id, topic_id = set_up(connection, 1, name=name)
    member = Member(connection, group_id, topic_id)
    member.fetch()
    deleted = connection.ask_newest(
        ApiKey.DELETE_TOPICS, {"topics": [{"name": name, "topic_id": None}], "timeout": LONG}
    )
    assert ErrorCode.none is deleted.responses[0].error_code
    answer = member.ask_fetch()
    # An error that comes with broker 0 as leader would send clients there.
    assert [(ErrorCode.unknown_topic_id, -1, -1)] == [
        (part.error_code, part.current_leader.leader_id, part.current_leader.leader_epoch)
        for each in answer.responses
        for part in each.partitions
    ]
    described = connection.ask_newest(
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, {"groups": [{"group_id": group_id, "topics": None}]}
    )
    assert () == described.groups[0].topics


def test_what_is_in_flight_survives_a_restart_of_the_broker(tmp_path: Path) -> None:
    with InProcessBroker(tmp_path / "broker", SETTINGS) as broker:
        with RawConnection(broker.bootstrap) as connection:
            group_id, topic_id = set_up(connection, 2)
            member = Member(connection, group_id, topic_id)
            ((_, last, _),) = member.fetch()
            assert [ErrorCode.none] == member.acknowledge((0, 0, [ACCEPT]))
        broker.restart()
        with RawConnection(broker.bootstrap) as connection:
            member = Member(connection, group_id, topic_id)
            acquired: list[tuple[int, int, int]] = []
            while not acquired:
                acquired = member.fetch(max_wait=LONG)
            assert (1, last) == (acquired[0][0], acquired[-1][1])


def test_records_do_not_wait_for_partitions_that_are_not_loaded(tmp_path: Path) -> None:
    """The share coordinator of one partition is away: the records of the other are delivered without it."""
    settings = {
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": "1",
        "share.coordinator.state.topic.num.partitions": "2",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
    }
    with BrokerCluster(tmp_path / "cluster", settings, brokers=2) as cluster:
        group_id, name = unused_name(), unused_name()
        coordinator = coordinator_of(cluster, group_id)
        with RawConnection(coordinator.bootstrap) as connection:
            topic = {
                "name": name,
                "num_partitions": -1,
                "replication_factor": -1,
                "assignments": [{"partition_index": index, "broker_ids": [coordinator.id]} for index in range(2)],
                "configs": [{"name": "retention.ms", "value": "-1"}],
            }
            (made,) = connection.ask_newest(ApiKey.CREATE_TOPICS, {"timeout": LONG, "topics": [topic]}).topics
            wait_served(connection, made.topic_id, 2)
            set_configs(connection, group_id, share_auto_offset_reset="earliest")
            for index in range(2):
                produce(connection, made.topic_id, batch(), index)
            join(connection, group_id, name, partitions=2)
            (other,) = set(cluster.brokers) - {coordinator}
            other.kill()
            partitions = [{"partition_index": index} for index in range(2)]
            wish = {"max_wait": LONG, "min_bytes": 1, "max_bytes": 1_000_000, "max_records": 100, "batch_size": 100}
            topics = [{"topic_id": made.topic_id, "partitions": partitions}]

            def fetch(epoch: int) -> list[tuple[ErrorCode, list[int]]]:
                """The error and the acquired offsets of the partitions that are answered."""
                asked = {"group_id": group_id, "member_id": "m", "share_session_epoch": epoch, "topics": topics, **wish}
                answer = connection.ask_newest(ApiKey.SHARE_FETCH, asked)
                return sorted(
                    (part.error_code, [each.first_offset for each in part.acquired_records])
                    for topic in answer.responses
                    for part in topic.partitions
                )

            assert [(ErrorCode.none, []), (ErrorCode.none, [0])] == fetch(0)
            assert [(ErrorCode.coordinator_not_available, [])] == fetch(1)


def test_records_do_not_wait_until_other_partitions_are_loaded(connection: RawConnection) -> None:
    """As in Kafka: the first fetch of a session has the records of the partition that is loaded first."""
    name = unused_name()
    topic_id = create_topic(connection, name, 2)
    group_id = unused_group(connection)
    set_configs(connection, group_id, share_auto_offset_reset="earliest")
    for index in range(2):
        produce(connection, topic_id, batch(), index)
    join(connection, group_id, name, partitions=2)
    topics = [{"topic_id": topic_id, "partitions": [{"partition_index": index} for index in range(2)]}]
    member = Member(connection, group_id, topic_id)
    fetched = [member.ask_fetch(max_wait=LONG, topics=topics) for _ in range(2)]
    acquired = [
        [part.partition_index for topic in answer.responses for part in topic.partitions if part.acquired_records]
        for answer in fetched
    ]
    assert [1, 1] == list(map(len, acquired))
    assert {0, 1} == {partition for partitions in acquired for partition in partitions}


def coordinator_of(cluster: BrokerCluster, group_id: str) -> BrokerHandle:
    """The broker that coordinates a group."""
    with RawConnection(cluster.brokers[0].bootstrap) as connection:
        asked = {"key_type": 0, "coordinator_keys": [group_id]}

        def found() -> Any:
            (answer,) = connection.ask_newest(ApiKey.FIND_COORDINATOR, asked).coordinators
            return answer if answer.error_code is ErrorCode.none else None

        id = wait_until(found, "the group has a coordinator").node_id
    return next(broker for broker in cluster.brokers if broker.id == id)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of all reads of share-partitions."""
    sizes: list[int] = []

    def counting(content: bytes, **options: bool) -> tuple[list[Batch], int, str | None]:
        sizes.append(len(content))
        return scan(content, **options)

    monkeypatch.setattr(share_partition, "scan", counting)
    return sizes


def test_what_is_before_an_open_transaction_is_read_once(connection: RawConnection, read: list[int]) -> None:
    name = unused_name()
    group_id, topic_id = set_up(connection, 0, name=name, share_isolation_level="read_committed")
    produce(connection, topic_id, build_batch([Record(0, 1, None, b"a")]))
    producer = TransactionalProducer(connection)
    assert [ErrorCode.none] == producer.add(name, [0])
    assert (ErrorCode.none, 1) == producer.send(name, topic_id)
    member = Member(connection, group_id, topic_id)
    assert [(0, 0, 1)] == member.fetch(max_wait=LONG)
    assert 1 == len(read)
    assert ErrorCode.none is producer.end(commit=False)


def test_a_fetch_of_few_records_reads_little_of_the_log(connection: RawConnection, read: list[int]) -> None:
    group_id, topic_id = set_up(connection, 0)
    value = b"x" * 100_000
    for at in range(40):
        produce(connection, topic_id, build_batch([Record(0, at, None, value)]))
    member = Member(connection, group_id, topic_id)
    wish = {"max_bytes": 50_000_000, "max_wait": LONG}
    assert [(0, 0, 1)] == member.fetch(max_records=1, **wish)
    assert sum(read) < 10 * len(value)
    # As many as are wanted come at once, when the size of records is known.
    assert [(1, 30, 1)] == member.fetch(max_records=30, **wish)
