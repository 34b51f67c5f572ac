"""The handlers of groups where the wire cannot lead them: shards that load, missing topics, bytes that wait."""

import asyncio
import inspect
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from ottla.broker.broker import Broker
from ottla.broker.handlers.groups import group_members
from ottla.broker.handlers.groups.group_members import client_host
from ottla.broker.requests.dispatch import handler_of
from ottla.coordination.groups.consumer.topic_patterns import TopicPattern
from ottla.coordination.groups.group_kind import Topic
from ottla.coordination.runtime.shard import Shard
from ottla.model.error_codes import ErrorCode
from ottla.protocol.apis import SERVED, ApiKey
from ottla.protocol.group_answers import JOIN_SINCE, joined_body
from ottla.protocol.messages import frame_body, read_request, read_response, write_response
from ottla.protocol.offset_commits import OffsetCommit
from tests.broker.contexts import context_of
from tests.broker.running_broker import ask, make_topic, running
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


async def over_the_wire(broker: Broker, api_key: ApiKey, version: int, values: dict[str, Any]) -> Any:
    """A request from its bytes to its answer's, as dispatch would do it; the answer is read in its newest class."""
    request = read_request(api_key, version, memoryview(request_body(api_key, version, values)))
    context = context_of(version)
    answer = handler_of(api_key)(broker.parts.services, context, request)
    if inspect.isawaitable(answer):
        answer = await answer
    if isinstance(answer, bytes):
        return read_response(api_key, version, memoryview(frame_body(api_key, version, 1, answer))[4:])[1]
    return read_response(api_key, version, memoryview(write_response(api_key, version, 1, answer))[4:])[1]


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

    async def test_while_a_shard_is_loading(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Members that send heartbeats live on; a list that lacked groups would be a lie."""
        async with running(tmp_path) as broker:
            await make_topic(broker, "t")
            await ask(broker, ApiKey.FIND_COORDINATOR, {"coordinator_keys": ["g"]})
            shard = broker.parts.groups.shard_of("g")
            unloaded = Shard(
                shard.partition,
                shard.machine,
                clock=broker.parts.services.clock,
                disk=broker.parts.services.disk,
                timers=broker.parts.timers,
            )
            monkeypatch.setattr(broker.parts.groups, "shard_of", lambda group_id: unloaded)
            monkeypatch.setattr(broker.parts.groups, "shards", lambda: [unloaded])
            errors = await errors_of_all(broker)
            assert ErrorCode.NONE == errors.pop("heartbeat")
            assert {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS} == set(errors.values())
            unloaded.unload()
            assert ErrorCode.NONE == (await ask(broker, ApiKey.LIST_GROUPS, {})).error_code.value

    @pytest.mark.parametrize("version", range(1, 11))
    async def test_where_a_fetch_says_so(self, tmp_path: Path, version: int) -> None:
        """The first version has no place for it but the partitions."""
        async with running(tmp_path) as broker:
            await make_topic(broker, "t")
            topics = [{"name": "t", "topic_id": broker.image.topics["t"].id, "partition_indexes": [0, 1]}]
            values = {"group_id": "g", "topics": topics, "groups": [{"group_id": "g", "topics": topics}]}
            answer = await over_the_wire(broker, ApiKey.OFFSET_FETCH, version, values)
            (group,) = answer.groups
            parts = [part.error_code.value for topic in group.topics for part in topic.partitions]
            wrong = ErrorCode.NOT_COORDINATOR
            assert ((0, [wrong, wrong]) if version == 1 else (wrong, [])) == (group.error_code.value, parts)


class TestWaitingMembers:
    async def test_bytes_that_wait_are_counted(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(group_members, "WAITING_BYTES_MAX", 15)
        async with running(tmp_path, group_initial_rebalance_delay_ms=AT_ONCE) as broker:
            await ask(broker, ApiKey.FIND_COORDINATOR, {"coordinator_keys": ["g"]})
            first = await over_the_wire(broker, ApiKey.JOIN_GROUP, 3, JOIN)
            assert (0, 0) == (first.error_code.value, broker.parts.groups.waiting_bytes)
            second = asyncio.ensure_future(over_the_wire(broker, ApiKey.JOIN_GROUP, 3, JOIN))
            await asyncio.sleep(0)
            assert (False, len("range12345")) == (second.done(), broker.parts.groups.waiting_bytes)
            refused = await over_the_wire(broker, ApiKey.JOIN_GROUP, 3, JOIN)
            assert ErrorCode.COORDINATOR_LOAD_IN_PROGRESS == refused.error_code.value
            leave = {"group_id": "g", "members": [{"member_id": first.member_id}]}
            await ask(broker, ApiKey.LEAVE_GROUP, leave)
            assert ErrorCode.NONE == (await second).error_code.value
            assert 0 == broker.parts.groups.waiting_bytes

    async def test_an_answer_that_cannot_be_written_ends_its_own_connection_only(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        def write(version: int, **fields: Any) -> bytes:
            if version == JOIN_SINCE:
                raise ValueError("it cannot be written")
            return joined_body(version, **fields)

        monkeypatch.setattr(group_members, "joined_body", write)
        async with running(tmp_path, group_initial_rebalance_delay_ms="2000") as broker:
            await ask(broker, ApiKey.FIND_COORDINATOR, {"coordinator_keys": ["g"]})
            groups = broker.parts.groups.shard_of("g").machine.classic.groups
            # Static members, which join without being given an id first, and are answered in this order.
            broken, first = await asyncio.open_connection("127.0.0.1", broker.port)
            first.write(request_frame(ApiKey.JOIN_GROUP, JOIN_SINCE, {**JOIN, "group_instance_id": "a"}))
            await until(lambda: "g" in groups)
            reader, second = await asyncio.open_connection("127.0.0.1", broker.port)
            second.write(request_frame(ApiKey.JOIN_GROUP, 9, {**JOIN, "group_instance_id": "b"}))
            frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
            assert ErrorCode.NONE == read_response(ApiKey.JOIN_GROUP, 9, memoryview(frame))[1].error_code.value
            assert b"" == await broken.read()
            assert 0 == broker.parts.groups.waiting_bytes
            first.close()
            second.close()
        assert "it cannot be written" in caplog.text

    async def test_a_single_one_may_be_as_large_as_it_likes(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(group_members, "WAITING_BYTES_MAX", 1)
        async with running(tmp_path, group_initial_rebalance_delay_ms=AT_ONCE) as broker:
            await ask(broker, ApiKey.FIND_COORDINATOR, {"coordinator_keys": ["g"]})
            assert ErrorCode.NONE == (await over_the_wire(broker, ApiKey.JOIN_GROUP, 3, JOIN)).error_code.value


class TestOffsets:
    @pytest.mark.parametrize("version", range(SERVED[ApiKey.OFFSET_COMMIT].lowest, 10))
    async def test_they_survive_a_restart(self, tmp_path: Path, version: int) -> None:
        async with running(tmp_path) as broker:
            await make_topic(broker, "t")
            await ask(broker, ApiKey.FIND_COORDINATOR, {"coordinator_keys": ["g"]})
            assert ErrorCode.NONE == await commit_error(broker, version)
        async with running(tmp_path) as broker:
            while (answer := await over_the_wire(broker, ApiKey.OFFSET_FETCH, 9, FETCH)).groups[0].error_code.value:
                await broker.parts.services.clock.sleep(0.01)
            assert [1, -1] == [part.committed_offset for part in answer.groups[0].topics[0].partitions]

    async def test_a_commit_is_answered_when_it_is_on_disk(self, tmp_path: Path) -> None:
        """Long after its handler has returned, and without a task: the records are flushed first."""
        async with running(tmp_path, log_flush_interval_messages="1") as broker:
            await make_topic(broker, "t")
            await ask(broker, ApiKey.FIND_COORDINATOR, {"coordinator_keys": ["g"]})
            partition = broker.parts.groups.shard_of("g").partition
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
        async with running(tmp_path) as broker:
            await make_topic(broker, "t")
            await ask(broker, ApiKey.FIND_COORDINATOR, {"coordinator_keys": ["g"]})
            machine = broker.parts.groups.shard_of("g").machine
            for version, retention, expires in ((4, timedelta(hours=1), True), (4, -timedelta(milliseconds=1), False)):
                await over_the_wire(broker, ApiKey.OFFSET_COMMIT, version, {**COMMIT, "retention_time": retention})
                soon = broker.parts.services.clock.now_ms() + 3_600_001
                old = machine.offsets.expired("g", empty_since_ms=None, retention_ms=2**60, now_ms=soon)
                assert expires == bool(old)


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
    slices = sum(1 for _ in TopicPattern(pattern).unmatched(names))
    async with running(tmp_path) as broker:
        await broker.parts.groups.find("g")
        shard = broker.parts.groups.shard_of("g")
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
        turns = 0
        heartbeat = asyncio.ensure_future(over_the_wire(broker, ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, asked))
        while not heartbeat.done():
            await asyncio.sleep(0)
            turns += 1
        assert 0 == (await heartbeat).error_code.value
        assert names == list(shard.machine.consumers.groups["g"].regexes[pattern].topics)
        assert slices > 100
        assert turns >= slices
