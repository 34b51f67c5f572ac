"""Who coordinates which id, and how shards come, go and finish what a crash cut off; on a real broker."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.broker import Broker
from ottla.controller.decisions import TopicReference
from ottla.coordination.groups.coordinator import TOPIC as OFFSETS_TOPIC
from ottla.coordination.groups.coordinator import GroupsShard
from ottla.coordination.groups.requests import (
    JoinRequest,
    MemberProtocol,
    NewOffset,
    OffsetCommitRequest,
    TransactionalCommitRequest,
)
from ottla.coordination.runtime.internal_topic import partition_of
from ottla.coordination.transactions.coordinator import TransactionsShard
from ottla.coordination.transactions.records import TransactionStatus
from ottla.coordination.transactions.requests import AddPartitions, EndTransaction, InitProducerId
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import CoordinatorNotAvailableError
from ottla.model.ids import LeaderEpoch, ProducerEpoch, ProducerId, TopicPartition
from tests.broker.running_broker import append, led_anew, make_topic, running
from tests.unit.storage.rig import batch
from tests.waiting import until

GROUP = "g"


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


async def test_before_the_topic_exists_nobody_leads_what_an_id_needs(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        for topic in (broker.parts.groups._shards._topic, broker.parts.transactions._shards._topic):
            with pytest.raises(CoordinatorNotAvailableError):
                topic.leader_of(GROUP)


async def test_before_the_topic_exists_nobody_coordinates_and_finding_makes_it(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        with pytest.raises(CoordinatorNotAvailableError):
            broker.parts.groups.shard_of(GROUP)
        found = await asyncio.gather(*(broker.parts.groups.find(GROUP) for _ in range(3)))
        assert [broker.id] * 3 == [each.id for each in found]
        assert {broker.id} == {(await broker.parts.transactions.find("t")).id}
        offsets, states = broker.image.topics[OFFSETS_TOPIC], broker.image.topics["__transaction_state"]
        assert (50, "compact") == (len(offsets.partitions), offsets.configs["cleanup.policy"])
        assert (50, "1") == (len(states.partitions), states.configs["min.insync.replicas"])
        assert all(shard.is_active for shard in broker.parts.groups.shards())
        assert all(shard.is_active for shard in broker.parts.transactions.shards())


async def commit_offset(shard: GroupsShard, topic: str, offset: int) -> Any:
    request = OffsetCommitRequest(group_id=GROUP, offsets=(NewOffset(topic=topic, partition=0, offset=offset),))
    return await shard.ask(lambda now, token: shard.machine.commit_offsets(request, now, token))


def committed(shard: GroupsShard) -> dict[TopicPartition, int]:
    found = ((each, shard.machine.offsets.get(GROUP, each)) for each in shard.machine.offsets.partitions(GROUP))
    return {partition: value.offset for partition, value in found if value is not None}


async def active(broker: Broker) -> GroupsShard:
    await until(lambda: broker.parts.groups.shard_of(GROUP).is_active)
    return broker.parts.groups.shard_of(GROUP)


async def test_offsets_survive_a_restart_and_go_with_their_topic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as broker:
        for topic in ("kept", "deleted", "deleted-in-the-night"):
            await make_topic(broker, topic)
        await broker.parts.groups.find(GROUP)
        shard = broker.parts.groups.shard_of(GROUP)
        for offset, topic in enumerate(("kept", "deleted", "deleted-in-the-night")):
            await commit_offset(shard, topic, offset)
    async with running(tmp_path) as broker:
        shard = await active(broker)
        before = {TopicPartition("kept", 0): 0, TopicPartition("deleted", 0): 1}
        assert {**before, TopicPartition("deleted-in-the-night", 0): 2} == committed(shard)
        outcome = await broker.parts.controller.delete_topics([TopicReference(name="deleted")])
        await broker.wait_revision(outcome.revision)
        assert {TopicPartition("kept", 0): 0, TopicPartition("deleted-in-the-night", 0): 2} == committed(shard)
        # Nobody tells the shard of this one.
        monkeypatch.setattr(broker.parts.groups, "on_image", lambda image: None)
        outcome = await broker.parts.controller.delete_topics([TopicReference(name="deleted-in-the-night")])
        await broker.wait_revision(outcome.revision)
    async with running(tmp_path) as broker:
        assert {TopicPartition("kept", 0): 0} == (committed(await active(broker)))


async def test_a_member_that_waits_is_told_when_the_broker_stops(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await broker.parts.groups.find(GROUP)
        shard = broker.parts.groups.shard_of(GROUP)
        request = JoinRequest(
            group_id=GROUP,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=(MemberProtocol("range", b""),),
            requires_member_id=False,
        )
        waiting = asyncio.ensure_future(shard.ask(lambda now, token: shard.machine.join(request, now, token)))
        await asyncio.sleep(0)
        assert not waiting.done()
    assert ErrorCode.NOT_COORDINATOR is (await waiting).error


async def begin(broker: Broker, *partitions: TopicPartition) -> tuple[TransactionsShard, ProducerId, ProducerEpoch]:
    await broker.parts.transactions.find("t")
    shard = broker.parts.transactions.shard_of("t")
    request = InitProducerId(transactional_id="t", timeout_ms=60_000)
    identity = await shard.ask(lambda now, token: shard.machine.init_producer_id(request, now, token))
    adding = AddPartitions(
        transactional_id="t",
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
        partitions=partitions,
    )
    added = await shard.ask(lambda now, token: shard.machine.add_partitions(adding, now, token))
    assert {ErrorCode.NONE} == {error for _, error in added.errors}
    return shard, identity.producer_id, identity.producer_epoch


async def test_a_commit_writes_markers_and_lets_offsets_count(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await make_topic(broker, "t", 2)
        await broker.parts.groups.find(GROUP)
        groups = broker.parts.groups.shard_of(GROUP)
        places = [TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition(OFFSETS_TOPIC, groups.partition.index)]
        shard, producer_id, epoch = await begin(broker, *places)
        append(
            broker.partitions.find("t", 0),
            batch(b"v", producer_id=producer_id, epoch=epoch, sequence=0, transactional=True),
        )
        offsets = TransactionalCommitRequest(
            transactional_id="t",
            producer_id=producer_id,
            producer_epoch=epoch,
            group_id=GROUP,
            offsets=(NewOffset(topic="t", partition=0, offset=5),),
        )
        await groups.ask(lambda now, token: groups.machine.commit_in_transaction(offsets, now, token))
        assert (0, {}) == (broker.partitions.find("t", 0).last_stable_offset, committed(groups))
        end = EndTransaction(transactional_id="t", producer_id=producer_id, producer_epoch=epoch, commit=True)
        assert ErrorCode.NONE is (await shard.ask(lambda now, t: shard.machine.end_transaction(end, now, t))).error
        assert TransactionStatus.COMPLETE_COMMIT is shard.machine.entries["t"].status
        ends = [broker.partitions.find("t", index).last_stable_offset for index in (0, 1)]
        assert ([2, 1], {TopicPartition("t", 0): 5}) == (ends, committed(groups))


async def test_a_partition_that_is_gone_does_not_hold_up_the_transaction(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await make_topic(broker, "t")
        shard, producer_id, epoch = await begin(broker, TopicPartition("t", 0), TopicPartition("never", 3))
        end = EndTransaction(transactional_id="t", producer_id=producer_id, producer_epoch=epoch, commit=False)
        await shard.ask(lambda now, token: shard.machine.end_transaction(end, now, token))
        assert TransactionStatus.COMPLETE_ABORT is shard.machine.entries["t"].status


async def test_a_new_leader_epoch_loads_the_shard_anew(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await make_topic(broker, "kept")
        await broker.parts.groups.find(GROUP)
        old = broker.parts.groups.shard_of(GROUP)
        await commit_offset(old, "kept", 9)
        partition = old.partition
        led_anew(partition, LeaderEpoch(partition.leader_epoch + 1))
        broker.parts.groups.on_image(broker.image)
        new = await active(broker)
        assert (False, False, {TopicPartition("kept", 0): 9}) == (new is old, old.is_active, committed(new))
