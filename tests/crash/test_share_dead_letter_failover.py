"""The leader of a share-partition is killed after it answered a rejection: the next one writes the dead letter.

Brokers are processes, and are killed with SIGKILL.
"""

from datetime import timedelta
from pathlib import Path
from uuid import UUID

from kio.schema.errors import ErrorCode

from ottla import Consumer
from ottla.client.values import ConsumerRecord
from ottla.model.dead_letters import read_dead_letter
from ottla.protocol.apis import ApiKey
from ottla.records.builder import build_batch
from ottla.records.record import Record
from ottla.testing.broker_cluster import BrokerCluster
from ottla.testing.process_broker import ProcessBroker
from tests.crash.test_share_failover import SETTINGS, ask, join
from tests.topic_contents import first_records
from tests.waiting import PATIENCE_SECONDS, wait_until
from tests.wire.exchange import RawConnection
from tests.wire.share_member import ACCEPT, REJECT, Member, set_up
from tests.wire.world import batch, create_topic, produce

DEAD_LETTERS = "dlq.t"


def create_dead_letter_topic(cluster: BrokerCluster, broker_id: int) -> None:
    """With one replica, on this broker."""
    topic = {
        "name": DEAD_LETTERS,
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": [{"partition_index": 0, "broker_ids": [broker_id]}],
        "configs": [{"name": "errors.deadletterqueue.group.enable", "value": "true"}],
    }
    wish = {"topics": [topic], "timeout": timedelta(seconds=30)}
    answer = ask(cluster.answering[0], ApiKey.CREATE_TOPICS, wish)
    assert ErrorCode.none is answer.topics[0].error_code, answer.topics[0].error_message
    cluster.leader_of(DEAD_LETTERS)


def begin(cluster: BrokerCluster) -> UUID:
    """Topic t with some records, and group g, which starts at the first and has a dead-letter topic."""
    cluster.create_topic("t", 1)
    with RawConnection(cluster.leader_of("t").bootstrap) as connection:
        topic_id = UUID(str(connection.ask_newest(ApiKey.METADATA, {"topics": [{"name": "t"}]}).topics[0].topic_id))
        produce(connection, topic_id, batch())
    configs = {
        "share.auto.offset.reset": "earliest",
        "errors.deadletterqueue.topic.name": DEAD_LETTERS,
        "errors.deadletterqueue.copy.record.enable": "true",
    }
    changes = [{"name": name, "config_operation": 0, "value": value} for name, value in configs.items()]
    resource = {"resource_type": 32, "resource_name": "g", "configs": changes}
    answer = ask(cluster.brokers[0], ApiKey.INCREMENTAL_ALTER_CONFIGS, {"resources": [resource]})
    assert ErrorCode.none is answer.responses[0].error_code
    coordinator = {"key_type": 0, "coordinator_keys": ["g"]}
    wait_until(
        lambda: (
            ask(cluster.brokers[0], ApiKey.FIND_COORDINATOR, coordinator).coordinators[0].error_code is ErrorCode.none
        )
    )
    join(cluster)
    return topic_id


def read_dead_letters(cluster: BrokerCluster, count: int) -> list[ConsumerRecord]:
    return first_records(cluster.bootstrap, DEAD_LETTERS, count)


def test_dead_letters_survive_the_leader_that_owes_them(tmp_path: Path) -> None:
    with BrokerCluster(tmp_path / "cluster", SETTINGS, kind=ProcessBroker) as cluster:
        topic_id = begin(cluster)
        leader = cluster.leader_of("t")
        other = cluster.followers_of("t")[0]
        create_dead_letter_topic(cluster, other.id)
        with RawConnection(leader.bootstrap) as connection:
            member = Member(connection, "g", topic_id, "one")
            ((_, last, _),) = wait_until(lambda: member.fetch(max_wait=timedelta(seconds=30)))
            # Nothing can be written to the dead-letter topic while its broker is down.
            other.kill()
            types = [ACCEPT, REJECT, REJECT] + [ACCEPT] * (last - 2)
            # The share coordinator may have been there, too.
            wait_until(lambda: member.acknowledge((0, last, types)) == [ErrorCode.none])
            leader.kill()
        other.start()
        leader.start()
        cluster.wait_in_sync()
        acquired: list[tuple[int, int, int]] = []
        with RawConnection(cluster.leader_of("t").bootstrap) as connection:
            successor = Member(connection, "g", topic_id, "two")
            wait_until(lambda: successor.ask_fetch().error_code is ErrorCode.none)
            found = read_dead_letters(cluster, 2)
            acquired += successor.fetch()
        stories = [read_dead_letter(record.headers) for record in found]
        assert [1, 2] == [story.origin.offset for story in stories if story is not None]
        assert [b"value 1", b"value 2"] == [record.value for record in found]
        # What was acknowledged stays so.
        assert [] == acquired


def test_dead_letters_of_deleted_records_survive_the_leader_that_owes_them(tmp_path: Path) -> None:
    """The log deletes the records while their dead letters wait, and the group goes on: these have headers only."""
    with BrokerCluster(tmp_path / "cluster", SETTINGS, kind=ProcessBroker) as cluster:
        topic_id = begin(cluster)
        leader = cluster.leader_of("t")
        other = cluster.followers_of("t")[0]
        create_dead_letter_topic(cluster, other.id)
        with RawConnection(leader.bootstrap) as connection:
            produce(connection, topic_id, batch())
            member = Member(connection, "g", topic_id, "one")
            ((_, last, _),) = wait_until(lambda: member.fetch(max_wait=timedelta(seconds=30)))
            # Nothing can be written to the dead-letter topic while its broker is down.
            other.kill()
            wait_until(lambda: member.acknowledge((0, 2, [ACCEPT, REJECT, REJECT])) == [ErrorCode.none])
            parts = [{"partition_index": 0, "offset": 3}]
            wish = {"topics": [{"name": "t", "partitions": parts}], "timeout": timedelta(seconds=30)}
            deleted = ask(leader, ApiKey.DELETE_RECORDS, wish)
            assert ErrorCode.none is deleted.topics[0].partitions[0].error_code
            assert [] == member.fetch()
            assert [ErrorCode.none] == member.acknowledge((3, last, [ACCEPT]))
            leader.kill()
        other.start()
        leader.start()
        cluster.wait_in_sync()
        with RawConnection(cluster.leader_of("t").bootstrap) as connection:
            successor = Member(connection, "g", topic_id, "two")
            wait_until(lambda: successor.ask_fetch().error_code is ErrorCode.none)
            found = read_dead_letters(cluster, 2)
            assert [] == successor.fetch()
        stories = [read_dead_letter(record.headers) for record in found]
        assert [1, 2] == [story.origin.offset for story in stories if story is not None]
        assert [None, None] == [record.value for record in found]


def test_a_kill_while_dead_letters_are_written_loses_none(tmp_path: Path) -> None:
    count = 1_500
    with ProcessBroker(tmp_path / "broker", SETTINGS) as broker:
        with RawConnection(broker.bootstrap) as connection:
            create_topic(connection, DEAD_LETTERS, errors_deadletterqueue_group_enable="true")
            group_id, topic_id = set_up(connection, 0, errors_deadletterqueue_topic_name=DEAD_LETTERS)
            produce(connection, topic_id, build_batch([Record(at, at, None, b"x") for at in range(count)]))
            member = Member(connection, group_id, topic_id)
            acquired = wait_until(lambda: member.fetch(max_wait=timedelta(seconds=30), max_records=count))
            assert (0, count - 1) == (acquired[0][0], acquired[-1][1])
            assert [ErrorCode.none] == member.acknowledge((0, count - 1, [REJECT]))
            broker.kill()
        broker.start()
        found: dict[int | None, None] = {}
        with RawConnection(broker.bootstrap) as connection:
            successor = Member(connection, group_id, topic_id, "two")
            wait_until(lambda: successor.ask_fetch().error_code is ErrorCode.none)
            with Consumer(
                DEAD_LETTERS,
                bootstrap_servers=broker.bootstrap,
                group_id=None,
                auto_offset_reset="earliest",
                consumer_timeout_ms=PATIENCE_SECONDS * 1000,
            ) as consumer:
                for record in consumer:
                    story = read_dead_letter(record.headers)
                    found[None if story is None else story.origin.offset] = None
                    if len(found) == count:
                        break
        assert list(range(count)) == sorted(offset for offset in found if offset is not None)
