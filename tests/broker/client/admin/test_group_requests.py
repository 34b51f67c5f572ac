"""Asking about groups where brokers are old, coordinators move, or members say what nobody can read."""

from collections.abc import Callable
from typing import Any

import pytest

from ottla.client.admin.group_offsets import CommittedOffset, commit_offsets, committed_offsets, delete_offsets
from ottla.client.admin.group_requests import GroupDescription, delete_group, describe_group, list_groups
from ottla.client.errors import AnswerError
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.protocol.apis import ApiKey
from ottla.protocol.consumer_protocol import write_assignment
from ottla.protocol.messages import wire_error
from tests.broker.client.scripted_broker import response
from tests.broker.client.scripted_cluster import BROKER, Script, scripted_cluster

EVENTS = TopicPartition("events", 0)


def in_turn(*answers: Any) -> Callable[[], Any]:
    """Each answer once, in order."""
    left = list(answers)
    return lambda: left.pop(0)


def classic(
    state: str = "Stable",
    *,
    error: ErrorCode = ErrorCode.NONE,
    protocol_type: str = "consumer",
    assignment: bytes = b"",
    metadata: bytes = b"",
) -> Any:
    member = {
        "member_id": "m",
        "client_id": "c",
        "client_host": "/h",
        "member_metadata": metadata,
        "member_assignment": assignment,
    }
    group = {
        "error_code": wire_error(error),
        "group_id": "g",
        "group_state": state,
        "protocol_type": protocol_type,
        "protocol_data": "range",
        "members": [member] if state == "Stable" else [],
    }
    return response(ApiKey.DESCRIBE_GROUPS, 6, groups=[group])


def server_side(error: ErrorCode) -> Any:
    return response(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, groups=[{"error_code": wire_error(error), "group_id": "g"}])


async def described(script: Script) -> GroupDescription:
    async with scripted_cluster(script) as cluster:
        return await describe_group(cluster, "g")


async def test_a_broker_that_knows_only_classic_groups_is_asked_for_those() -> None:
    script = Script({ApiKey.DESCRIBE_GROUPS: lambda: classic()}, without=frozenset({ApiKey.CONSUMER_GROUP_DESCRIBE}))
    group = await described(script)
    assert ("classic", "Stable", BROKER) == (group.type, group.state, group.coordinator)


async def test_a_coordinator_that_has_moved_is_looked_up_again() -> None:
    script = Script(
        {
            ApiKey.CONSUMER_GROUP_DESCRIBE: in_turn(
                server_side(ErrorCode.NOT_COORDINATOR), server_side(ErrorCode.GROUP_ID_NOT_FOUND)
            ),
            ApiKey.DESCRIBE_GROUPS: lambda: classic(),
        }
    )
    assert "Stable" == (await described(script)).state
    once = [ApiKey.FIND_COORDINATOR, ApiKey.CONSUMER_GROUP_DESCRIBE]
    assert [*once, *once, ApiKey.DESCRIBE_GROUPS] == [each for each in script.asked if each is not ApiKey.METADATA]


def coordinator(code: ErrorCode, message: str | None = None) -> Any:
    found = {"key": "g", "node_id": -1, "port": -1, "error_code": wire_error(code), "error_message": message}
    return response(ApiKey.FIND_COORDINATOR, 6, coordinators=[found])


async def test_a_coordinator_is_waited_for_while_there_is_none_and_a_refusal_is_told() -> None:
    script = Script(
        {
            ApiKey.FIND_COORDINATOR: in_turn(
                coordinator(ErrorCode.COORDINATOR_NOT_AVAILABLE),
                coordinator(ErrorCode.INVALID_GROUP_ID, "The group is wrong."),
            )
        }
    )
    with pytest.raises(AnswerError, match=r"the coordinator of group 'g': The group is wrong \(INVALID_GROUP_ID, 24\)"):
        await described(script)
    assert 2 == script.asked.count(ApiKey.FIND_COORDINATOR)


@pytest.mark.parametrize("answer", [classic("Dead"), classic("Dead", error=ErrorCode.GROUP_ID_NOT_FOUND)])
async def test_a_dead_group_is_one_that_is_not_there(answer: Any) -> None:
    script = Script(
        {
            ApiKey.CONSUMER_GROUP_DESCRIBE: lambda: server_side(ErrorCode.GROUP_ID_NOT_FOUND),
            ApiKey.DESCRIBE_GROUPS: lambda: answer,
        }
    )
    with pytest.raises(AnswerError, match="group g: the group does not exist; `ottla groups list`") as refused:
        await described(script)
    assert ErrorCode.GROUP_ID_NOT_FOUND is refused.value.error_code


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (classic(assignment=write_assignment({"events": (1, 0)}, 1)), (EVENTS, TopicPartition("events", 1))),
        (classic(), ()),
        (classic(assignment=b"\0\1\0\0\0\7"), None),
        (classic(assignment=b"", metadata=b"\0\1\x7f\xff\xff\xff"), None),
        (classic(assignment=b"anything", protocol_type="connect"), None),
    ],
)
async def test_what_members_were_assigned_is_read_where_it_can_be(answer: Any, expected: Any) -> None:
    script = Script({ApiKey.DESCRIBE_GROUPS: lambda: answer}, without=frozenset({ApiKey.CONSUMER_GROUP_DESCRIBE}))
    (member,) = (await described(script)).members
    assert expected == member.assignment


async def test_a_broker_too_old_to_filter_is_filtered_here() -> None:
    groups = [
        {"group_id": name, "protocol_type": "consumer", "group_state": state, "group_type": kind}
        for name, state, kind in (("b", "Empty", ""), ("a", "Stable", "Classic"), ("c", "Stable", "Consumer"))
    ]
    answer = response(ApiKey.LIST_GROUPS, 5, groups=groups)
    async with scripted_cluster(Script({ApiKey.LIST_GROUPS: lambda: answer})) as cluster:
        listed = await list_groups(cluster)
        assert [("a", "classic"), ("b", "classic"), ("c", "consumer")] == [
            (each.group_id, each.type) for each in listed
        ]
        assert ["a", "c"] == [each.group_id for each in await list_groups(cluster, states=["stable"])]
        assert ["a"] == [each.group_id for each in await list_groups(cluster, states=["Stable"], types=["CLASSIC"])]


def fetched(*, group_error: ErrorCode = ErrorCode.NONE, offset: int = 7) -> Any:
    topic = {"name": "events", "partitions": [{"partition_index": 0, "committed_offset": offset}]}
    group = {"group_id": "g", "topics": [topic], "error_code": wire_error(group_error)}
    return response(ApiKey.OFFSET_FETCH, 9, groups=[group])


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([fetched()], {EVENTS: CommittedOffset(offset=7, leader_epoch=-1, metadata="")}),
        ([fetched(offset=-1)], {}),
        ([fetched(group_error=ErrorCode.GROUP_ID_NOT_FOUND)], {}),
        (
            [fetched(group_error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), fetched()],
            {EVENTS: CommittedOffset(offset=7, leader_epoch=-1, metadata="")},
        ),
    ],
)
@pytest.mark.parametrize("version_max", [10, 7])
async def test_what_was_committed_is_asked_for_by_name(answers: list[Any], expected: Any, version_max: int) -> None:
    script = Script({ApiKey.OFFSET_FETCH: in_turn(*answers)}, versions_max={ApiKey.OFFSET_FETCH: version_max})
    async with scripted_cluster(script) as cluster:
        assert expected == await committed_offsets(cluster, "g")


def committed(*codes: ErrorCode) -> Any:
    parts = [{"partition_index": at, "error_code": wire_error(code)} for at, code in enumerate(codes)]
    return response(ApiKey.OFFSET_COMMIT, 9, topics=[{"name": "events", "partitions": parts}])


async def test_a_commit_is_tried_again_for_what_passes_and_refused_for_what_does_not() -> None:
    script = Script(
        {
            ApiKey.OFFSET_COMMIT: in_turn(
                committed(ErrorCode.NONE, ErrorCode.NOT_COORDINATOR),
                committed(ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE),
            )
        }
    )
    async with scripted_cluster(script) as cluster:
        refused = await commit_offsets(cluster, "g", {TopicPartition("events", at): 1 for at in range(3)})
        assert {
            EVENTS: ErrorCode.UNKNOWN_MEMBER_ID,
            TopicPartition("events", 1): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        } == {partition: error.error_code for partition, error in refused.items()}
        assert "stop its consumers first" in str(refused[EVENTS])
    assert 2 == script.asked.count(ApiKey.OFFSET_COMMIT)


async def test_a_group_that_is_refused_is_an_error_with_what_to_do() -> None:
    result = {"group_id": "g", "error_code": wire_error(ErrorCode.NON_EMPTY_GROUP)}
    not_found = wire_error(ErrorCode.GROUP_ID_NOT_FOUND)
    script = Script(
        {
            ApiKey.DELETE_GROUPS: lambda: response(ApiKey.DELETE_GROUPS, 2, results=[result]),
            ApiKey.OFFSET_DELETE: lambda: response(ApiKey.OFFSET_DELETE, 0, error_code=not_found),
        }
    )
    async with scripted_cluster(script) as cluster:
        with pytest.raises(AnswerError, match="group g: the group has members; stop its consumers first"):
            await delete_group(cluster, "g")
        with pytest.raises(AnswerError, match="group g: the group does not exist"):
            await delete_offsets(cluster, "g", [EVENTS])
