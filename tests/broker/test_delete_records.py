"""DeleteRecords in a cluster: answered when the replicas that live begin where the leader does."""

import asyncio
from pathlib import Path

import pytest
from kio.schema.delete_records.v2.request import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kio.schema.types import TopicName
from kio.static.primitive import i32, i64

from ottla.client.admin.async_admin import AsyncAdmin
from ottla.client.admin.topic_requests import delete_records_of
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.protocol.apis import ApiKey
from ottla.protocol.messages import milliseconds
from ottla.replication.partition import Partition
from tests.broker.replicated import ReplicatedBrokers

WHERE = TopicPartition("t", 0)
PART = DeleteRecordsPartition(partition_index=i32(0), offset=i64(7))


async def test_it_is_answered_when_all_have_deleted(tmp_path: Path) -> None:
    async with ReplicatedBrokers(tmp_path, {"replica.fetch.wait.max.ms": "60000"}) as cluster:
        await cluster.make_topic("t")
        await cluster.send("t", [b"x"] * 10)
        async with AsyncAdmin(bootstrap_servers=cluster.bootstrap) as admin, asyncio.timeout(20):
            assert 7 == await delete_records_of(admin.cluster, WHERE, 7)
        found = [copy.start_offset for copy in cluster.copies("t").values()]
    assert [7, 7, 7] == found


async def test_the_dead_are_not_waited_for(tmp_path: Path) -> None:
    async with ReplicatedBrokers(tmp_path) as cluster:
        await cluster.make_topic("t")
        await cluster.send("t", [b"x"] * 10)
        await cluster.stop(next(each for each in cluster.brokers if each != cluster.leader("t")))
        async with AsyncAdmin(bootstrap_servers=cluster.bootstrap) as admin, asyncio.timeout(20):
            await delete_records_of(admin.cluster, WHERE, 7)
        found = [copy.start_offset for copy in cluster.copies("t").values()]
    assert [7, 7] == found


async def test_who_does_not_follow_is_waited_for_in_vain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with ReplicatedBrokers(tmp_path) as cluster:
        await cluster.make_topic("t")
        await cluster.send("t", [b"x"] * 10)
        # Nobody's fetch says anything any more.
        monkeypatch.setattr(Partition, "on_follower_fetch", lambda *args, **options: None)
        async with AsyncAdmin(bootstrap_servers=cluster.bootstrap) as admin, asyncio.timeout(20):
            request = DeleteRecordsRequest(
                topics=(DeleteRecordsTopic(name=TopicName("t"), partitions=(PART,)),), timeout=milliseconds(300)
            )
            response = await admin.cluster.to_leader(WHERE, ApiKey.DELETE_RECORDS, request)
            found = int(response.topics[0].partitions[0].error_code)
    assert ErrorCode.REQUEST_TIMED_OUT == found
