"""Offsets of a group are reset: planned from what the group and the partitions have, and committed."""

import time

import pytest

from ottla.client.admin.group_offsets import CommittedOffset
from ottla.client.consumer.async_consumer import AsyncConsumer
from ottla.client.network.cluster import Cluster, UnknownPartitionInTopicError
from ottla.client.producer.async_producer import AsyncProducer
from ottla.model.ids import TopicPartition
from ottla.operations.groups.offset_resets import (
    PlannedReset,
    Target,
    ToEarliest,
    ToGroup,
    ToLatest,
    ToListed,
    ToOffset,
    ToTime,
)
from ottla.operations.groups.offsets_by_type import (
    GroupOffsets,
    WholeTopicsError,
    alter_offsets,
    offsets_of,
    remove_offsets,
)
from ottla.operations.groups.progress import end_offsets
from ottla.operations.groups.reset import (
    GroupInUseError,
    NothingToResetError,
    carry_out,
    offsets_of_group,
    plan_resets,
    type_of_idle_group,
)
from ottla.testing import InProcessBroker
from tests.waiting import until

TOPIC = "operations-resets"
P0, P1 = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
START_MS = time.time_ns() // 1_000_000 - 60_000


@pytest.fixture(scope="module")
def topic(ottla_shared_broker: InProcessBroker) -> str:
    return ottla_shared_broker.create_topic(TOPIC, 2)


@pytest.fixture
async def filled(topic: str, cluster: Cluster, producer: AsyncProducer) -> str:
    """Three records a second apart in the first partition, none in the other."""
    while (await end_offsets(cluster, [P0]))[P0] < 3:
        number = (await end_offsets(cluster, [P0]))[P0]
        await producer.send_and_wait(topic, b"", partition=0, timestamp_ms=START_MS + 1000 * number)
    return topic


def committed(offset: int) -> CommittedOffset:
    return CommittedOffset(offset=offset, leader_epoch=-1, metadata="")


def planned(partition: TopicPartition, current: int | None, new: int, note: str = "") -> PlannedReset:
    return PlannedReset(partition=partition, current=current, new=new, note=note)


@pytest.mark.parametrize(
    ("target", "plan"),
    [
        (ToEarliest(), [planned(P0, 1, 0), planned(P1, None, 0)]),
        (ToLatest(), [planned(P0, 1, 3), planned(P1, None, 0)]),
        (ToOffset(2), [planned(P0, 1, 2), planned(P1, None, 0, "2 is after the end offset 0")]),
        (ToTime(START_MS + 1500), [planned(P0, 1, 2), planned(P1, None, 0, "no record at or after that time")]),
        (ToTime(-1), [planned(P0, 1, 0), planned(P1, None, 0, "no record at or after that time")]),
        (ToListed({P0: 2}), [planned(P0, 1, 2)]),
    ],
)
async def test_a_plan_for_all_topics_of_a_group(
    target: Target, plan: list[PlannedReset], filled: str, cluster: Cluster
) -> None:
    group = "operations-planned"
    assert {} == await alter_offsets(cluster, None, group, {P0: 1})
    assert GroupOffsets(offsets={P0: committed(1)}) == await offsets_of(cluster, "classic", group)
    assert plan == await plan_resets(cluster, group, "classic", target, [], all_topics=True)


async def test_a_plan_is_carried_out_and_copied_to_another_group(filled: str, cluster: Cluster) -> None:
    group = "operations-copied"
    plan = await plan_resets(cluster, group, None, ToLatest(), [f"{filled}:0"], all_topics=False)
    assert [planned(P0, None, 3)] == plan
    assert {} == await carry_out(cluster, group, None, plan)
    assert ToListed({P0: 3}) == await offsets_of_group(cluster, ToGroup(group))
    copy = await plan_resets(cluster, "operations-copy", None, ToGroup(group), [], all_topics=False)
    assert [planned(P0, None, 3)] == copy
    assert {} == await remove_offsets(cluster, "classic", group, [filled], [P0])
    assert GroupOffsets() == await offsets_of(cluster, "classic", group)


async def test_nothing_to_reset(filled: str, cluster: Cluster) -> None:
    with pytest.raises(NothingToResetError) as refused:
        await plan_resets(cluster, "operations-none", None, ToEarliest(), [], all_topics=True)
    assert "group operations-none has no committed offsets; pass --topic TOPIC" == str(refused.value)
    listed = ToListed({TopicPartition(filled, 7): 0})
    with pytest.raises(UnknownPartitionInTopicError, match="has no partition 7"):
        await plan_resets(cluster, "operations-none", None, listed, [], all_topics=False)


async def test_a_group_with_members_is_in_use(
    filled: str, cluster: Cluster, ottla_shared_broker: InProcessBroker
) -> None:
    group = "operations-used"
    assert await type_of_idle_group(cluster, group) is None
    bootstrap = ottla_shared_broker.bootstrap
    async with AsyncConsumer(
        filled, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest"
    ) as consumer:
        await until(lambda: _has_records(consumer))
        with pytest.raises(GroupInUseError) as refused:
            await type_of_idle_group(cluster, group)
        await consumer.commit()
    assert (
        f"group {group} is in use (Stable, 1 member); stop its consumers before you reset its offsets "
        f"(`ottla groups describe {group} --members` lists them)"
    ) == str(refused.value)
    kind = await type_of_idle_group(cluster, group)
    assert kind in ("classic", "consumer")


async def _has_records(consumer: AsyncConsumer) -> bool:
    return bool(await consumer.poll(timeout_ms=100))


async def test_offsets_of_a_share_group(filled: str, cluster: Cluster) -> None:
    """They have no epochs or metadata, and are deleted by topics."""
    group = "operations-shared"
    assert {} == await alter_offsets(cluster, "share", group, {P0: 2})
    found = await offsets_of(cluster, "share", group)
    assert (2, 1) == (found.offsets[P0].offset, found.lags[P0])
    with pytest.raises(WholeTopicsError) as refused:
        await remove_offsets(cluster, "share", group, [filled, f"{filled}:0"], [P0])
    assert (
        f"{filled}:0: the offsets of a share group can only be deleted for whole topics; pass --topic {filled}"
    ) == str(refused.value)
    assert {} == await remove_offsets(cluster, "share", group, [filled], [P0, P1])
    assert GroupOffsets() == await offsets_of(cluster, "share", group)


async def test_end_offsets_of_topics_that_are_there(filled: str, cluster: Cluster) -> None:
    assert {P0: 3, P1: 0} == await end_offsets(cluster, [P0, P1, TopicPartition("operations-deleted", 0)])
