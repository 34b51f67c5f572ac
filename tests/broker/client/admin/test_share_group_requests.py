"""Asking about share groups, streams groups and groups of any type, of brokers that have them and of others."""

from collections.abc import Callable
from typing import Any

import pytest

from ottla.client.admin.any_group import describe_any_group
from ottla.client.admin.group_requests import GroupDescription, GroupMember
from ottla.client.admin.share_group_requests import (
    ShareGroupOffset,
    alter_share_group_offsets,
    delete_share_group_offsets,
    share_group_offsets,
)
from ottla.client.admin.streams_group_requests import (
    StreamsGroupDescription,
    StreamsGroupMember,
    Subtopology,
)
from ottla.client.errors import AnswerError
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.protocol.apis import SERVED, ApiKey
from ottla.protocol.messages import wire_error
from tests.broker.client.scripted_broker import response
from tests.broker.client.scripted_cluster import BROKER, Script, scripted_cluster

NOT_FOUND = wire_error(ErrorCode.GROUP_ID_NOT_FOUND)
FIRST, SECOND = TopicPartition("events", 0), TopicPartition("events", 1)


def always(answer: Any) -> Callable[[], Any]:
    return lambda: answer


def described(api_key: ApiKey, **group: Any) -> Callable[[], Any]:
    """A response that describes one group."""
    return always(response(api_key, SERVED[api_key].highest, groups=[{"group_id": "g", **group}]))


MISSING = {
    key: described(key, error_code=NOT_FOUND)
    for key in (
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        ApiKey.DESCRIBE_GROUPS,
        ApiKey.SHARE_GROUP_DESCRIBE,
        ApiKey.STREAMS_GROUP_DESCRIBE,
    )
}
SHARE_GROUP = described(
    ApiKey.SHARE_GROUP_DESCRIBE,
    group_state="Stable",
    group_epoch=3,
    assignment_epoch=2,
    assignor_name="simple",
    members=[
        {
            "member_id": "m",
            "member_epoch": 3,
            "client_id": "c",
            "client_host": "/h",
            "subscribed_topic_names": ("events",),
            "assignment": {"topic_partitions": [{"topic_name": "events", "partitions": (1, 0)}]},
        }
    ],
)
TASKS = {"active_tasks": [{"subtopology_id": "0", "partitions": (0, 1)}], "standby_tasks": [], "warmup_tasks": []}
STREAMS_GROUP = described(
    ApiKey.STREAMS_GROUP_DESCRIBE,
    group_state="NotReady",
    group_epoch=3,
    assignment_epoch=2,
    topology={
        "epoch": 1,
        "subtopologies": [
            {
                "subtopology_id": "0",
                "source_topics": ("events",),
                "repartition_sink_topics": ("sink",),
                "state_changelog_topics": [{"name": "store"}],
                "repartition_source_topics": [{"name": "again"}],
            }
        ],
    },
    members=[
        {
            "member_id": "m",
            "member_epoch": 3,
            "client_id": "c",
            "client_host": "/h",
            "process_id": "p",
            "topology_epoch": 1,
            "assignment": TASKS,
            "target_assignment": {**TASKS, "active_tasks": []},
        }
    ],
)


async def test_a_share_group_is_found_behind_those_that_it_is_not() -> None:
    script = Script({**MISSING, ApiKey.SHARE_GROUP_DESCRIBE: SHARE_GROUP})
    async with scripted_cluster(script) as cluster:
        found = await describe_any_group(cluster, "g")
    member = GroupMember(
        member_id="m",
        instance_id=None,
        client_id="c",
        host="/h",
        assignment=(FIRST, SECOND),
        member_epoch=3,
        subscription=("events",),
    )
    expected = GroupDescription(
        group_id="g",
        type="share",
        state="Stable",
        protocol_type="share",
        assignor="simple",
        coordinator=BROKER,
        group_epoch=3,
        assignment_epoch=2,
        members=(member,),
    )
    assert expected == found


async def test_a_streams_group_has_its_topology_and_what_its_tasks_read() -> None:
    script = Script({**MISSING, ApiKey.STREAMS_GROUP_DESCRIBE: STREAMS_GROUP})
    async with scripted_cluster(script) as cluster:
        found = await describe_any_group(cluster, "g")
    again = [TopicPartition("again", index) for index in range(2)]
    member = StreamsGroupMember(
        member_id="m",
        instance_id=None,
        client_id="c",
        host="/h",
        assignment=(*again, FIRST, SECOND),
        target=(),
        member_epoch=3,
        process_id="p",
        topology_epoch=1,
        active_tasks={"0": (0, 1)},
        standby_tasks={},
        warmup_tasks={},
    )
    part = Subtopology(
        subtopology_id="0",
        source_topics=("events",),
        repartition_source_topics=("again",),
        repartition_sink_topics=("sink",),
        state_changelog_topics=("store",),
    )
    expected = StreamsGroupDescription(
        group_id="g",
        type="streams",
        state="NotReady",
        protocol_type="streams",
        assignor="",
        coordinator=BROKER,
        group_epoch=3,
        assignment_epoch=2,
        members=(member,),
        topology_epoch=1,
        subtopologies=(part,),
    )
    assert expected == found


async def test_a_group_that_is_none_of_them_does_not_exist() -> None:
    async with scripted_cluster(Script(MISSING)) as cluster:
        with pytest.raises(AnswerError, match="`ottla groups list` shows all groups"):
            await describe_any_group(cluster, "g")


async def test_a_broker_without_share_groups_has_none() -> None:
    without = frozenset({ApiKey.SHARE_GROUP_DESCRIBE, ApiKey.STREAMS_GROUP_DESCRIBE})
    script = Script(MISSING, without=without)
    async with scripted_cluster(script) as cluster:
        with pytest.raises(AnswerError):
            await describe_any_group(cluster, "g")
    assert not without & set(script.asked)


async def test_offsets_with_and_without_a_lag() -> None:
    partitions = [
        {"partition_index": 0, "start_offset": 4, "leader_epoch": 1, "lag": 6},
        {"partition_index": 1, "start_offset": 0, "leader_epoch": 0, "lag": -1},
        {"partition_index": 2, "start_offset": -1, "leader_epoch": 0, "lag": -1},
    ]
    answer = described(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, topics=[{"topic_name": "events", "partitions": partitions}])
    async with scripted_cluster(Script({ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: answer})) as cluster:
        found = await share_group_offsets(cluster, "g")
    assert {
        FIRST: ShareGroupOffset(start_offset=4, leader_epoch=1, lag=6),
        SECOND: ShareGroupOffset(start_offset=0, leader_epoch=0, lag=None),
    } == found


async def test_refused_partitions_and_topics_are_returned() -> None:
    refused = wire_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    altered = response(
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        0,
        responses=[
            {
                "topic_name": "events",
                "partitions": [{"partition_index": 0}, {"partition_index": 1, "error_code": refused}],
            }
        ],
    )
    deleted = response(
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
        0,
        responses=[{"topic_name": "events"}, {"topic_name": "x", "error_code": refused}],
    )
    script = Script(
        {ApiKey.ALTER_SHARE_GROUP_OFFSETS: always(altered), ApiKey.DELETE_SHARE_GROUP_OFFSETS: always(deleted)}
    )
    async with scripted_cluster(script) as cluster:
        assert [SECOND] == list(await alter_share_group_offsets(cluster, "g", {FIRST: 1, SECOND: 2}))
        assert ["x"] == list(await delete_share_group_offsets(cluster, "g", ["events", "x"]))
