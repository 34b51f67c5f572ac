"""Who coordinates which id, and how shards come, go and finish what a crash cut off; on a real broker."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from ottla.broker.broker import Broker
from ottla.client.admin.async_admin import AsyncAdmin
from ottla.controller.decisions import TopicReference
from ottla.controller.topics_state import decide_delete
from ottla.coordination.groups.coordinator import TOPIC as OFFSETS_TOPIC
from ottla.coordination.runtime.internal_topic import partition_of
from ottla.metadata.records import encode, partition_key, partition_record
from ottla.metadata.store import Put
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import LeaderEpoch, TopicPartition
from ottla.protocol.apis import ApiKey
from tests.broker.coordinator_requests import begin, commit_offset, committed_offsets, join, produce_in
from tests.broker.metric_samples import samples_of, value_of
from tests.broker.replicated import ReplicatedBrokers
from tests.broker.running_broker import ask, change_metadata, find_coordinator, make_topic, running
from tests.waiting import until

GROUP = "g"
SMALL = {"offsets_topic_num_partitions": "1", "transaction_state_log_num_partitions": "1"}
READ_COMMITTED = 1


@pytest.mark.parametrize(
    ("id", "expected"),
    [
        ("", 0),
        ("g", 3),
        ("group-1", 49),
        ("my-transactional-id", 46),
        ("čaj", 22),
        ("\U0001f600", 49),
        ("polygenelubricants", 0),  # Its hash is the smallest number there is.
    ],
)
def test_ids_belong_to_the_partitions_that_java_says(id: str, expected: int) -> None:
    assert expected == partition_of(id, 50)


async def test_before_the_topic_exists_nobody_coordinates_and_finding_makes_it(tmp_path: Path) -> None:
    async def errors() -> list[int]:
        heartbeat = {"group_id": GROUP, "member_id": "m", "generation_id": 1}
        end = {"transactional_id": "t", "producer_id": 1, "producer_epoch": 0}
        return [
            (await ask(broker, ApiKey.HEARTBEAT, heartbeat)).error_code.value,
            (await ask(broker, ApiKey.END_TXN, end)).error_code.value,
        ]

    async with running(tmp_path) as broker:
        assert [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2 == await errors()
        assert [broker.id] * 3 == await asyncio.gather(*(find_coordinator(broker, GROUP) for _ in range(3)))
        assert broker.id == await find_coordinator(broker, "t", of_transactions=True)
        offsets, states = broker.image.topics[OFFSETS_TOPIC], broker.image.topics["__transaction_state"]
        assert (50, "compact") == (len(offsets.partitions), offsets.configs["cleanup.policy"])
        assert (50, "1") == (len(states.partitions), states.configs["min.insync.replicas"])
        assert "ottla_coordinators_loading" not in {name for name, _ in samples_of(broker)}
        assert [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.INVALID_PRODUCER_ID_MAPPING] == await errors()


async def test_offsets_survive_a_restart_and_go_with_their_topic(tmp_path: Path) -> None:
    kept, deleted, in_the_night = (TopicPartition(name, 0) for name in ("kept", "deleted", "deleted-in-the-night"))
    async with running(tmp_path, **SMALL) as broker:
        await find_coordinator(broker, GROUP)
        for offset, partition in enumerate((kept, deleted, in_the_night)):
            await make_topic(broker, partition.topic)
            await commit_offset(broker, GROUP, partition.topic, offset)
    async with running(tmp_path, **SMALL) as broker:
        before = await committed_offsets(broker, GROUP)
        async with AsyncAdmin(bootstrap_servers=f"127.0.0.1:{broker.port}") as admin:
            await admin.delete_topics([deleted.topic])
        after = await committed_offsets(broker, GROUP)
    # Nobody tells the coordinator of this one.
    deletion = decide_delete(broker.image, [TopicReference(name=in_the_night.topic)])
    await change_metadata(tmp_path, *deletion.operations)
    async with running(tmp_path, **SMALL) as broker:
        at_last = await committed_offsets(broker, GROUP)
    assert [{kept: 0, deleted: 1, in_the_night: 2}, {kept: 0, in_the_night: 2}, {kept: 0}] == [before, after, at_last]


async def wait_joining(broker: Broker) -> None:
    await until(lambda: value_of(broker, "ottla_groups", type="classic", state="PreparingRebalance") == 1)


async def test_a_member_that_waits_is_told_when_the_broker_stops(tmp_path: Path) -> None:
    async with running(tmp_path, group_initial_rebalance_delay_ms="60000", **SMALL) as broker:
        await find_coordinator(broker, GROUP)
        waiting = join(broker, GROUP)
        await wait_joining(broker)
        assert not waiting.done()
    assert ErrorCode.NOT_COORDINATOR == (await waiting).error_code.value


async def stable_offset(broker: Broker, partition: int = 0) -> int:
    """How far a consumer of committed transactions may read topic t."""
    topics = [{"name": "t", "partitions": [{"partition_index": partition, "timestamp": -1}]}]
    request = {"replica_id": -1, "isolation_level": READ_COMMITTED, "topics": topics}
    ((found,),) = (topic.partitions for topic in (await ask(broker, ApiKey.LIST_OFFSETS, request)).topics)
    return int(found.offset)


async def test_a_commit_writes_markers_and_lets_offsets_count(tmp_path: Path) -> None:
    async with running(tmp_path, **SMALL) as broker:
        await make_topic(broker, "t", 2)
        await find_coordinator(broker, GROUP)
        transaction = await begin(broker, "t")
        assert [0, 0] == await transaction.add_partitions(TopicPartition("t", 0), TopicPartition("t", 1))
        assert 0 == (await produce_in(transaction, "t", transaction.batch(0, b"v"))).error_code.value
        await transaction.commit_offset(GROUP, "t", 5)
        assert (0, {}) == (await stable_offset(broker), await committed_offsets(broker, GROUP))
        await transaction.end(commit=True)
        await transaction.wait_state("CompleteCommit")
        ends = [await stable_offset(broker, index) for index in (0, 1)]
        assert ([2, 1], {TopicPartition("t", 0): 5}) == (ends, await committed_offsets(broker, GROUP))


async def test_a_partition_that_is_gone_does_not_hold_up_the_transaction(tmp_path: Path) -> None:
    async with running(tmp_path, **SMALL) as broker:
        await make_topic(broker, "t")
        await make_topic(broker, "gone")
        transaction = await begin(broker, "t")
        assert [0, 0] == await transaction.add_partitions(TopicPartition("t", 0), TopicPartition("gone", 0))
        async with AsyncAdmin(bootstrap_servers=f"127.0.0.1:{broker.port}") as admin:
            await admin.delete_topics(["gone"])
        await transaction.end(commit=False)
        await transaction.wait_state("CompleteAbort")
        assert 1 == await stable_offset(broker)


async def test_a_new_leader_epoch_loads_the_shard_again(tmp_path: Path) -> None:
    """Who waits in the old one is told."""
    settings = {"group.initial.rebalance.delay.ms": "60000", "offsets.topic.num.partitions": "1"}
    async with ReplicatedBrokers(tmp_path, settings, count=1) as cluster:
        broker = cluster.brokers[0]
        await cluster.make_topic("kept", replicas=1)
        await find_coordinator(broker, GROUP)
        await commit_offset(broker, GROUP, "kept", 9)
        waiting = join(broker, GROUP)
        await wait_joining(broker)
        (image,) = broker.image.topics[OFFSETS_TOPIC].partitions
        newer = partition_record(replace(image, leader_epoch=LeaderEpoch(image.leader_epoch + 1)))
        await cluster.stores[0].commit([Put(partition_key(OFFSETS_TOPIC, 0), encode(newer))])
        assert ErrorCode.NOT_COORDINATOR == (await waiting).error_code.value
        assert {TopicPartition("kept", 0): 9} == await committed_offsets(broker, GROUP)
