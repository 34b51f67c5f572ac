"""Consumers with a real broker beside them: listeners, assignors of one's own, what is left when they end."""

import asyncio
import threading
from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

import pytest

from ottla.client.admin.async_admin import AsyncAdmin
from ottla.client.admin.topic_requests import create_topic
from ottla.client.consumer.async_consumer import AsyncConsumer
from ottla.client.consumer.blocking_consumer import Consumer
from ottla.client.errors import AnswerError, DeadlineError
from ottla.client.group.assignors.assignor import Assignment, MemberSubscription, PlainAssignor
from ottla.client.group.rebalance_listener import ConsumerRebalanceListener
from ottla.client.network.cluster import Cluster
from ottla.client.producer.batch_sender import BatchSender
from ottla.model.ids import TopicPartition
from ottla.records.builder import BatchBuilder
from ottla.transport.addresses import Address
from tests.waiting import until, wait_until

QUICK: dict[str, Any] = {"session_timeout_ms": 20_000, "heartbeat_interval_ms": 200, "auto_offset_reset": "earliest"}


async def fill(address: Address, topic: str, partitions: int = 1, count: int = 10) -> list[TopicPartition]:
    made = [TopicPartition(topic, index) for index in range(partitions)]
    async with Cluster([address]) as cluster:
        await create_topic(cluster, topic, partitions=partitions)
        async with BatchSender(cluster) as sender:
            for partition in made:
                builder = BatchBuilder()
                for number in range(count):
                    builder.append(1000 + number, None, b"%d" % number)
                await sender.send(partition, builder.build())
    return made


async def poll_forever(consumer: AsyncConsumer) -> None:
    while True:
        await consumer.poll(5000)


class Backwards(PlainAssignor):
    """Everything to the member that comes last."""

    name = "backwards"

    def assign(self, partition_counts: Mapping[str, int], members: Mapping[str, MemberSubscription]) -> Assignment:
        last = max(members)
        everything = [TopicPartition(topic, at) for topic, count in partition_counts.items() for at in range(count)]
        return {member_id: everything if member_id == last else [] for member_id in members}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_pattern_subscriber_does_not_create_a_deleted_topic_again(address: Address, protocol: Any) -> None:
    name = f"deleted-under-{protocol}"
    partitions = await fill(address, name, 2)
    options: dict[str, Any] = {
        "auto_offset_reset": "earliest",
        "metadata_max_age_ms": 50,
        "group_id": name,
        "group_protocol": protocol,
    }
    async with (
        AsyncAdmin(bootstrap_servers=str(address)) as admin,
        AsyncConsumer(bootstrap_servers=str(address), **options) as consumer,
    ):
        consumer.subscribe(pattern=f"{name}.*")
        while consumer.assignment() != set(partitions):
            await consumer.poll(100)
        await admin.delete_topics([name])
        while consumer.assignment():
            await consumer.poll(100)
            assert name not in await admin.list_topics()


async def test_an_assignor_of_ones_own(address: Address) -> None:
    partitions = await fill(address, "own-assignor", 3)
    options = {**QUICK, "group_id": "own-assignor", "partition_assignment_strategy": [Backwards()]}
    async with (
        AsyncConsumer("own-assignor", bootstrap_servers=str(address), **options) as one,
        AsyncConsumer("own-assignor", bootstrap_servers=str(address), **options) as two,
    ):
        # The first to join may be alone in the first generation.
        is_backwards = False
        while not is_backwards:
            await asyncio.gather(one.poll(200), two.poll(200))
            found = {each.group_metadata().member_id: each.assignment() for each in (one, two)}
            are_together = 1 == len({each.group_metadata().generation_id for each in (one, two)})
            is_backwards = are_together and [set(), set(partitions)] == [found[each] for each in sorted(found)]


class Telling(ConsumerRebalanceListener):
    """An asyncio listener that commits, and may fail."""

    def __init__(self, consumer: AsyncConsumer, fails: bool) -> None:
        self.heard: list[tuple[str, list[int]]] = []
        self._consumer = consumer
        self._fails = fails

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        await self._consumer.commit()
        self.heard.append(("revoked", [each.partition for each in revoked]))
        if self._fails:
            raise ValueError("the listener failed")

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self.heard.append(("assigned", [each.partition for each in assigned]))
        for partition in assigned:
            self._consumer.seek(partition, 7)


async def test_listeners_may_commit_seek_and_fail(address: Address) -> None:
    (first, second) = await fill(address, "listened", 2)
    options = {**QUICK, "group_id": "listened", "enable_auto_commit": False, "allow_auto_create_topics": False}
    async with AsyncConsumer(bootstrap_servers=str(address), **options) as consumer:
        listener = Telling(consumer, fails=True)
        consumer.subscribe(["listened"], listener=listener)
        read: list[tuple[int, int]] = []
        while len(read) < 6:
            for records in (await consumer.poll(5000)).values():
                read += [(each.partition, each.offset) for each in records]
        # It was sought before anything was read.
        assert [(0, 7), (0, 8), (0, 9), (1, 7), (1, 8), (1, 9)] == sorted(read)
        consumer.subscribe(["listened", "nowhere"], listener=listener)
        with pytest.raises(ValueError, match="the listener failed"):
            await poll_forever(consumer)
        assert [("assigned", [0, 1]), ("revoked", [0, 1])] == listener.heard
        assert (10, 10) == (await consumer.committed(first), await consumer.committed(second))
        # The rebalance goes on all the same.
        while len(listener.heard) < 3:
            await consumer.poll(200)
        assert ("assigned", [0, 1]) == listener.heard[2]


def test_the_blocking_listener_is_called_where_poll_is(address: Address) -> None:
    asyncio.run(fill(address, "threads"))
    threads: list[threading.Thread] = []

    class Where(ConsumerRebalanceListener):
        def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
            threads.append(threading.current_thread())

        def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
            threads.append(threading.current_thread())
            consumer.commit()

    with Consumer(bootstrap_servers=str(address), group_id="threads", **QUICK) as consumer:
        consumer.subscribe(["threads"], listener=Where())
        wait_until(lambda: consumer.poll(1000), "there are records")
    assert [threading.main_thread()] * 2 == threads


def test_what_does_not_exist_is_told_in_time(address: Address) -> None:
    missing = TopicPartition("no-such-topic", 0)
    with Consumer(bootstrap_servers=str(address), allow_auto_create_topics=False, **QUICK) as consumer:
        with pytest.raises(AnswerError, match="topic no-such-topic: the topic or partition does not exist"):
            consumer.end_offsets([missing], timeout_ms=2000)
        consumer.assign([missing])
        assert {} == consumer.poll(100)
        with pytest.raises(DeadlineError, match="no-such-topic-0: the position could not be determined within 300 ms"):
            consumer.position(missing, timeout_ms=300)


async def test_a_topic_that_comes_later_is_read(address: Address) -> None:
    async with AsyncConsumer(
        "comes-later",
        bootstrap_servers=str(address),
        auto_offset_reset="earliest",
        allow_auto_create_topics=False,
    ) as consumer:
        assert {} == await consumer.poll(100)
        (partition,) = await fill(address, "comes-later")
        while not (found := await consumer.poll(5000)):
            pass
        assert [partition] == list(found)


async def test_nothing_is_left_after_closing(address: Address) -> None:
    await fill(address, "left", 3)
    choices: list[dict[str, Any]] = [{}, {"group_id": "l"}, {"group_id": "l-new", "group_protocol": "consumer"}]
    for options in choices:
        before = asyncio.all_tasks()
        consumer = AsyncConsumer("left", bootstrap_servers=str(address), **QUICK, **options)
        await until(partial(consumer.poll, 5000))
        await consumer.close()
        await consumer.close()
        assert before == asyncio.all_tasks()


def test_metrics_count(address: Address) -> None:
    asyncio.run(fill(address, "counted", 2))
    with Consumer("counted", bootstrap_servers=str(address), **QUICK) as consumer:
        read = 0
        while read < 20:
            read += sum(map(len, consumer.poll(5000).values()))
        found = consumer.metrics()
    assert (20, 2, 0) == tuple(
        found[name] for name in ("records_consumed_total", "assigned_partitions", "records_lag_max")
    )
    assert found["bytes_fetched_total"] > 0


async def test_polls_without_a_timeout_do_not_starve_the_event_loop(address: Address) -> None:
    await fill(address, "impatient")
    async with AsyncConsumer("impatient", bootstrap_servers=str(address), auto_offset_reset="earliest") as consumer:
        found = 0
        while found < 10:
            found += sum(map(len, (await consumer.poll()).values()))
