"""The handlers of groups where the wire cannot lead them: shards that load, missing topics, bytes that wait."""

import asyncio
import itertools
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from ottla.broker.broker import Broker
from ottla.broker.handlers.groups import group_members
from ottla.broker.handlers.groups.group_members import client_host
from ottla.coordination.groups.coordinator import TOPIC as OFFSETS_TOPIC
from ottla.coordination.groups.group_kind import Topic
from ottla.env.world import real_world
from ottla.metadata.image import NO_LEADER
from ottla.metadata.records import encode, partition_key, partition_record
from ottla.metadata.store import Put
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import BrokerId, LeaderEpoch, TopicPartition
from ottla.model.re2_patterns import Pattern
from ottla.protocol.apis import SERVED, ApiKey
from ottla.protocol.group_answers import JOIN_SINCE, joined_body
from ottla.protocol.messages import read_request, read_response
from ottla.protocol.offset_commits import OffsetCommit
from tests.broker.contexts import context_of
from tests.broker.coordinator_requests import committed_offsets
from tests.broker.inside import group_shard
from tests.broker.metric_samples import value_of
from tests.broker.moved_clock import MovedClock
from tests.broker.replicated import ReplicatedBrokers
from tests.broker.running_broker import ask, ask_frame, broker_on, find_coordinator, make_topic, running
from tests.broker.sick_disk import SickDisk
from tests.waiting import until
from tests.wire.exchange import request_body, request_frame

SESSION = timedelta(seconds=10)
JOIN: dict[str, Any] = {
    "group_id": "g",
    "session_timeout": SESSION,
    "rebalance_timeout": SESSION,
    "protocol_type": "consumer",
    "protocols": [{"name": "range", "metadata": b"12345"}],
}
COMMIT: dict[str, Any] = {
    "group_id": "g",
    "generation_id_or_member_epoch": -1,
    "topics": [{"name": "t", "partitions": [{"partition_index": 0, "committed_offset": 1}]}],
}
FETCH: dict[str, Any] = {"groups": [{"group_id": "g", "topics": [{"name": "t", "partition_indexes": [0, 1]}]}]}
AT_ONCE = "0"
ONE_PARTITION = {"offsets_topic_num_partitions": "1"}
"""Of the topic with offsets: fifty take long to create."""


async def over_the_wire(broker: Broker, api_key: ApiKey, version: int, values: dict[str, Any]) -> Any:
    """The response to a request in this version, in the class of the newest."""
    return read_response(api_key, version, memoryview(await ask_frame(broker, api_key, values, version)))[1]


async def commit_error(broker: Broker, version: int = 9) -> ErrorCode:
    answer = await over_the_wire(broker, ApiKey.OFFSET_COMMIT, version, COMMIT)
    return ErrorCode(answer.topics[0].partitions[0].error_code.value)


async def errors_of_all(broker: Broker) -> dict[str, int]:
    """What every request of a group hears."""
    heartbeat = {"group_id": "g", "member_id": "m", "generation_id": 1}
    modern = {"group_id": "g", "member_id": "m", "rebalance_timeout": SESSION, "subscribed_topic_names": ["t"]}
    modern["topic_partitions"] = []
    leave = {"group_id": "g", "members": [{"member_id": "m"}]}
    sync = {**heartbeat, "protocol_type": "consumer", "protocol_name": "range"}
    topics = [{"name": "t", "partitions": [{"partition_index": 0}]}]
    return {
        "join": (await over_the_wire(broker, ApiKey.JOIN_GROUP, 9, JOIN)).error_code.value,
        "sync": (await over_the_wire(broker, ApiKey.SYNC_GROUP, 5, sync)).error_code.value,
        "heartbeat": (await over_the_wire(broker, ApiKey.HEARTBEAT, 4, heartbeat)).error_code.value,
        "leave": (await ask(broker, ApiKey.LEAVE_GROUP, leave)).error_code.value,
        "commit": await commit_error(broker),
        "fetch": (await over_the_wire(broker, ApiKey.OFFSET_FETCH, 9, FETCH)).groups[0].error_code.value,
        "delete offsets": (
            await ask(broker, ApiKey.OFFSET_DELETE, {"group_id": "g", "topics": topics})
        ).error_code.value,
        "describe": (await ask(broker, ApiKey.DESCRIBE_GROUPS, {"groups": ["g"]})).groups[0].error_code.value,
        "list": (await ask(broker, ApiKey.LIST_GROUPS, {})).error_code.value,
        "delete": (await ask(broker, ApiKey.DELETE_GROUPS, {"groups_names": ["g"]})).results[0].error_code.value,
        "modern": (await over_the_wire(broker, ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, modern)).error_code.value,
        "describe modern": (
            (await ask(broker, ApiKey.CONSUMER_GROUP_DESCRIBE, {"group_ids": ["g"]})).groups[0].error_code.value
        ),
    }


class TestWhenNobodyCanBeAsked:
    async def test_before_the_first_group(self, tmp_path: Path) -> None:
        """Without the internal topic there is no coordinator; consumers expect another word for it when they fetch."""
        async with running(tmp_path) as broker:
            await make_topic(broker, "t")
            errors = await errors_of_all(broker)
            assert ErrorCode.NONE == errors.pop("list")
            assert ErrorCode.NOT_COORDINATOR == errors.pop("fetch")
            assert {ErrorCode.COORDINATOR_NOT_AVAILABLE} == set(errors.values())

    async def test_while_a_shard_is_loading(self, tmp_path: Path) -> None:
        """Members that send heartbeats live on; a list that lacked groups would be a lie."""

        async def elect(leader: int) -> None:
            (image,) = cluster.brokers[0].image.topics[OFFSETS_TOPIC].partitions
            epoch = LeaderEpoch(image.leader_epoch + 1)
            record = partition_record(replace(image, leader=BrokerId(leader), leader_epoch=epoch))
            await cluster.stores[0].commit([Put(partition_key(OFFSETS_TOPIC, 0), encode(record))])

        async def is_listed() -> bool:
            return bool((await ask(broker, ApiKey.LIST_GROUPS, {})).error_code.value == ErrorCode.NONE)

        cluster = ReplicatedBrokers(tmp_path, {"offsets.topic.num.partitions": "1"}, count=1)
        disk = cluster.disks[0] = SickDisk()
        async with cluster:
            broker = cluster.brokers[0]
            await cluster.make_topic("t", replicas=1)
            await find_coordinator(broker, "g")
            assert ErrorCode.NONE == await commit_error(broker)
            disk.hang_reads(f"{OFFSETS_TOPIC}-0")
            await elect(broker.id)
            await until(lambda: disk.hung > 0)
            errors = await errors_of_all(broker)
            assert ErrorCode.NONE == errors.pop("heartbeat")
            assert {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS} == set(errors.values())
            # Another broker's groups are listed there.
            await elect(NO_LEADER)
            await until(is_listed)
            disk.heal()
        disk.close()

    async def test_where_a_fetch_says_so(self, tmp_path: Path) -> None:
        """The first version has no place for it but the partitions."""
        async with running(tmp_path) as broker:
            await make_topic(broker, "t")
            topics = [{"name": "t", "topic_id": broker.image.topics["t"].id, "partition_indexes": [0, 1]}]
            values = {"group_id": "g", "topics": topics, "groups": [{"group_id": "g", "topics": topics}]}
            errors = {}
            for version in range(1, 11):
                (group,) = (await over_the_wire(broker, ApiKey.OFFSET_FETCH, version, values)).groups
                parts = [part.error_code.value for topic in group.topics for part in topic.partitions]
                errors[version] = group.error_code.value, parts
            wrong = ErrorCode.NOT_COORDINATOR
            assert {1: (0, [wrong, wrong])} | dict.fromkeys(range(2, 11), (wrong, [])) == errors


async def join_another(broker: Broker, size_bytes: int) -> int:
    """The error of the only member of a new group, whose request has so many bytes of a protocol."""
    protocols = [{"name": "x", "metadata": bytes(size_bytes - 1)}]
    response = await over_the_wire(
        broker, ApiKey.JOIN_GROUP, 3, {**JOIN, "group_id": uuid4().hex, "protocols": protocols}
    )
    return int(response.error_code.value)


class TestWaitingMembers:
    async def test_bytes_that_wait_are_counted(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(group_members, "WAITING_BYTES_MAX", 15)
        async with running(tmp_path, group_initial_rebalance_delay_ms=AT_ONCE, **ONE_PARTITION) as broker:
            await find_coordinator(broker, "g")
            first = await over_the_wire(broker, ApiKey.JOIN_GROUP, 3, JOIN)
            empty = await join_another(broker, 16)
            second = asyncio.ensure_future(over_the_wire(broker, ApiKey.JOIN_GROUP, 3, JOIN))
            await until(lambda: value_of(broker, "ottla_groups", type="classic", state="PreparingRebalance") == 1)
            # The second has 10 bytes.
            refused, fitting = await join_another(broker, 6), await join_another(broker, 5)
            assert not second.done()
            leave = {"group_id": "g", "members": [{"member_id": first.member_id}]}
            await ask(broker, ApiKey.LEAVE_GROUP, leave)
            joined = (await second).error_code.value
            codes = [first.error_code.value, empty, refused, fitting, joined, await join_another(broker, 16)]
            assert [0, 0, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 0, 0, 0] == codes

    async def test_an_answer_that_cannot_be_written_ends_its_own_connection_only(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        def write(version: int, **fields: Any) -> bytes:
            if version == JOIN_SINCE:
                raise ValueError("it cannot be written")
            return joined_body(version, **fields)

        monkeypatch.setattr(group_members, "joined_body", write)
        async with running(tmp_path, group_initial_rebalance_delay_ms="2000", **ONE_PARTITION) as broker:
            await find_coordinator(broker, "g")
            # Static members, which join without being given an id first, and are answered in this order.
            broken, first = await asyncio.open_connection("127.0.0.1", broker.port)
            first.write(request_frame(ApiKey.JOIN_GROUP, JOIN_SINCE, {**JOIN, "group_instance_id": "a"}))
            await until(lambda: value_of(broker, "ottla_groups", type="classic", state="PreparingRebalance") == 1)
            reader, second = await asyncio.open_connection("127.0.0.1", broker.port)
            second.write(request_frame(ApiKey.JOIN_GROUP, 9, {**JOIN, "group_instance_id": "b"}))
            frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
            assert ErrorCode.NONE == read_response(ApiKey.JOIN_GROUP, 9, memoryview(frame))[1].error_code.value
            assert b"" == await broken.read()
            monkeypatch.setattr(group_members, "WAITING_BYTES_MAX", 15)
            # It waits: were anything counted still, it would be refused at once.
            large = asyncio.ensure_future(join_another(broker, 16))
            await until(lambda: value_of(broker, "ottla_groups", type="classic", state="PreparingRebalance") == 1)
            assert not large.done()
            first.close()
            second.close()
        assert "it cannot be written" in caplog.text

    async def test_a_single_one_may_be_as_large_as_it_likes(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(group_members, "WAITING_BYTES_MAX", 1)
        async with running(tmp_path, group_initial_rebalance_delay_ms=AT_ONCE, **ONE_PARTITION) as broker:
            await find_coordinator(broker, "g")
            assert ErrorCode.NONE == (await over_the_wire(broker, ApiKey.JOIN_GROUP, 3, JOIN)).error_code.value


class TestOffsets:
    async def test_they_survive_a_restart(self, tmp_path: Path) -> None:
        versions = range(SERVED[ApiKey.OFFSET_COMMIT].lowest, 10)
        async with running(tmp_path, **ONE_PARTITION) as broker:
            await make_topic(broker, "t")
            await find_coordinator(broker, "g")
            for version in versions:
                commit = {**COMMIT, "group_id": f"g{version}"}
                answer = await over_the_wire(broker, ApiKey.OFFSET_COMMIT, version, commit)
                assert ErrorCode.NONE == answer.topics[0].partitions[0].error_code.value
        async with running(tmp_path, **ONE_PARTITION) as broker:
            found = {version: await committed_offsets(broker, f"g{version}") for version in versions}
        assert {version: {TopicPartition("t", 0): 1} for version in versions} == found

    async def test_a_commit_is_answered_when_it_is_on_disk(self, tmp_path: Path) -> None:
        """Long after its handler has returned, and without a task: the records are flushed first."""
        async with running(tmp_path, log_flush_interval_messages="1", **ONE_PARTITION) as broker:
            await make_topic(broker, "t")
            await find_coordinator(broker, "g")
            partition = broker.partitions.find(OFFSETS_TOPIC, 0)
            reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
            for offset in (5, 6):
                topics = [{"name": "t", "partitions": [{"partition_index": 0, "committed_offset": offset}]}]
                writer.write(request_frame(ApiKey.OFFSET_COMMIT, 9, {**COMMIT, "topics": topics}))
                frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
                answer = read_response(ApiKey.OFFSET_COMMIT, 9, memoryview(frame))[1]
                assert ErrorCode.NONE == answer.topics[0].partitions[0].error_code.value
                assert partition.end_offset == partition.log.recovery_point
            writer.close()
            found = await over_the_wire(broker, ApiKey.OFFSET_FETCH, 9, FETCH)
            assert [6, -1] == [part.committed_offset for part in found.groups[0].topics[0].partitions]

    async def test_a_retention_of_its_own_counts(self, tmp_path: Path) -> None:
        clock = MovedClock()
        async with broker_on(
            tmp_path, {"offsets.topic.num.partitions": "1"}, world=replace(real_world(), clock=clock)
        ) as broker:
            await make_topic(broker, "t")
            await find_coordinator(broker, "g")
            for group_id, retention in (("hour", timedelta(hours=1)), ("default", -timedelta(milliseconds=1))):
                values = {**COMMIT, "group_id": group_id, "retention_time": retention}
                await over_the_wire(broker, ApiKey.OFFSET_COMMIT, 4, values)
            partition = TopicPartition("t", 0)
            clock.move(timedelta(minutes=59).total_seconds())
            assert {partition: 1} == await committed_offsets(broker, "hour")
            clock.move(timedelta(minutes=12).total_seconds())

            async def is_expired() -> bool:
                return not await committed_offsets(broker, "hour")

            await until(is_expired)
            assert {partition: 1} == await committed_offsets(broker, "default")


def test_commits_are_plain() -> None:
    """The one request that does not come in kio's class."""
    body = request_body(ApiKey.OFFSET_COMMIT, 9, COMMIT)
    assert isinstance(read_request(ApiKey.OFFSET_COMMIT, 9, memoryview(body)), OffsetCommit)


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("127.0.0.1:4711", "/127.0.0.1"),
        ("[::1]:4711", "/0:0:0:0:0:0:0:1"),
        ("2001:db8::a:4711", "/2001:db8:0:0:0:0:0:a"),
        ("a.example:1", "/a.example"),
    ],
)
def test_hosts_as_kafka_shows_them(peer: str, host: str) -> None:
    assert host == client_host(context_of(0, address=peer))


async def test_other_work_goes_on_while_a_pattern_is_matched_against_many_topics(tmp_path: Path) -> None:
    names = [f"{number:04}-" + "a" * 240 for number in range(3000)]
    pattern = ".*(a|b).{100}[0-9]?"
    slices = sum(1 for _ in Pattern(pattern, of_ascii=True).slices(names))
    async with running(tmp_path, **ONE_PARTITION) as broker:
        await find_coordinator(broker, "g")
        shard = group_shard(broker, "g")
        shard.machine.consumers.topics = {name: Topic(uuid4(), 1) for name in names}
        asked = {
            "group_id": "g",
            "member_id": "m",
            "member_epoch": 0,
            "rebalance_timeout": timedelta(seconds=60),
            "subscribed_topic_names": [],
            "subscribed_topic_regex": pattern,
            "topic_partitions": [],
        }

        async def turns_during(**values: str) -> int:
            heartbeat = asyncio.ensure_future(
                over_the_wire(broker, ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, {**asked, **values})
            )
            for turns in itertools.count():
                if heartbeat.done():
                    assert 0 == heartbeat.result().error_code.value
                    return turns
                await asyncio.sleep(0)
            raise AssertionError

        idle = await turns_during(group_id="idle", subscribed_topic_regex="a")
        turns = await turns_during()
        assert names == list(shard.machine.consumers.groups["g"].regexes[pattern].topics)
        assert slices > 100
        assert idle < slices // 2, "requests themselves take few turns"
        assert turns >= slices
