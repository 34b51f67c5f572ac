"""A share group on three brokers whose share-partition leader, share coordinator and group coordinator are killed: what
was acknowledged stays so, and the rest is delivered again."""

from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode

from ottla.coordination.runtime.internal_topic import partition_of
from ottla.coordination.share_state.records import ShareKey
from ottla.protocol.apis import ApiKey
from ottla.testing.broker_cluster import BrokerCluster
from ottla.testing.broker_handle import BrokerHandle
from tests.waiting import wait_until
from tests.wire.exchange import RawConnection
from tests.wire.share_member import ACCEPT, RELEASE, Member
from tests.wire.world import batch, produce

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
}


def ask(broker: BrokerHandle, api_key: ApiKey, values: dict[str, Any]) -> Any:
    with RawConnection(broker.bootstrap) as connection:
        return connection.ask_newest(api_key, values)


def join(cluster: BrokerCluster) -> None:
    """A member that gets the topic's partition, once the share coordinator has initialized it."""
    epoch = 0

    def beat() -> bool:
        nonlocal epoch
        broker = cluster.leader_of("__consumer_offsets")
        member = {"group_id": "g", "member_id": "m", "member_epoch": epoch, "subscribed_topic_names": ["t"]}
        answer = ask(broker, ApiKey.SHARE_GROUP_HEARTBEAT, member)
        if answer.error_code is not ErrorCode.none:
            return False
        epoch = answer.member_epoch
        return bool(answer.assignment and answer.assignment.topic_partitions)

    wait_until(beat)


def kill_and_wait(cluster: BrokerCluster, topic: str) -> None:
    """Kills the leader of a partition, waits for another one, and brings the broker back."""
    victim = cluster.leader_of(topic)
    victim.kill()
    wait_until(lambda: cluster.leader_of(topic).id != victim.id)
    victim.start()
    cluster.wait_in_sync()


def test_a_share_group_survives_the_brokers_that_it_needs(tmp_path: Path) -> None:
    with BrokerCluster(tmp_path / "cluster", SETTINGS) as cluster:
        cluster.create_topic("t", 1)
        broker = cluster.brokers[0]
        with RawConnection(cluster.leader_of("t").bootstrap) as connection:
            topic_id = UUID(str(connection.ask_newest(ApiKey.METADATA, {"topics": [{"name": "t"}]}).topics[0].topic_id))
            produce(connection, topic_id, batch())
            part = {"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}
            listed = connection.ask_newest(
                ApiKey.LIST_OFFSETS, {"replica_id": -1, "topics": [{"name": "t", "partitions": [part]}]}
            )
            end_offset = int(listed.topics[0].partitions[0].offset)
        config = {"name": "share.auto.offset.reset", "config_operation": 0, "value": "earliest"}
        resource = {"resource_type": 32, "resource_name": "g", "configs": [config]}
        ask(broker, ApiKey.INCREMENTAL_ALTER_CONFIGS, {"resources": [resource]})
        wait_until(
            lambda: (
                ask(broker, ApiKey.FIND_COORDINATOR, {"key_type": 0, "coordinator_keys": ["g"]})
                .coordinators[0]
                .error_code
                is ErrorCode.none
            )
        )
        join(cluster)
        assert 0 == partition_of(ShareKey("g", topic_id, 0).text, 1)

        leader = cluster.leader_of("t")
        with RawConnection(leader.bootstrap) as connection:
            first = Member(connection, "g", topic_id, "one")
            assert [(0, end_offset - 1, 1)] == first.fetch(max_wait=timedelta(seconds=30))
            assert [ErrorCode.none] == first.acknowledge((0, 0, [ACCEPT]), (1, 1, [RELEASE]))
        # Without a word: what the member has is released when its connection is gone, or with its leader.
        kill_and_wait(cluster, "t")
        with RawConnection(cluster.leader_of("t").bootstrap) as connection:
            second = Member(connection, "g", topic_id, "two")
            acquired = wait_until(lambda: second.fetch(max_wait=timedelta(seconds=10)))
            offsets = [offset for begin, end, _ in acquired for offset in range(begin, end + 1)]
            assert list(range(1, end_offset)) == offsets
            assert 2 == acquired[0][2]

        kill_and_wait(cluster, "__share_group_state")
        kill_and_wait(cluster, "__consumer_offsets")
        with RawConnection(cluster.leader_of("t").bootstrap) as connection:
            third = Member(connection, "g", topic_id, "three")
            acquired = wait_until(lambda: third.fetch(max_wait=timedelta(seconds=10)))
            assert (1, end_offset - 1) == (acquired[0][0], acquired[-1][1])
            assert [ErrorCode.none] == third.acknowledge((1, end_offset - 1, [ACCEPT]))
        coordinator = cluster.leader_of("__consumer_offsets")
        wanted = {"groups": [{"group_id": "g", "topics": None}]}
        # It may be loading its groups.
        (topic,) = wait_until(lambda: ask(coordinator, ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, wanted).groups[0].topics)
        (part,) = topic.partitions
        assert (end_offset, 0) == (part.start_offset, part.lag)
