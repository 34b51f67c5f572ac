"""The APIs of classic groups, in every version: finding the coordinator, being a member, looking and deleting."""

from itertools import product
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from ottla.protocol.apis import SERVED, ApiKey
from tests.wire.exchange import RawConnection, every_version, read_response, request_frame
from tests.wire.groups import (
    ASSIGNMENT,
    PROTOCOL,
    PROTOCOL_TYPE,
    SESSION,
    commit_errors,
    commit_values,
    fetch_offsets,
    join_alone,
    join_values,
    subscription,
    sync_values,
    unused_group,
)
from tests.wire.world import World

GROUP_OPERATIONS = sum(1 << bit for bit in (3, 6, 8, 10, 11))
NOT_ASKED = -(2**31)


# FindCoordinator


@every_version(ApiKey.FIND_COORDINATOR)
def test_find_coordinator(connection: RawConnection, world: World, version: int) -> None:
    group_id = unused_group(connection)
    request = {"key": group_id, "key_type": 0, "coordinator_keys": [group_id, "", group_id]}
    answer = connection.ask(ApiKey.FIND_COORDINATOR, version, request)
    found = [answer] if version < 4 else answer.coordinators
    if version >= 4:
        assert [group_id, "", group_id] == [each.key for each in found]
    host, _, port = world.address.rpartition(":")
    expected = (ErrorCode.none, world.broker_id, host, int(port))
    assert {expected} == {(each.error_code, each.node_id, each.host, each.port) for each in found}
    if version >= 1:
        assert {"NONE" if version < 4 else ""} == {each.error_message for each in found}


# Type 2 is that of share groups from version 6 on.
@pytest.mark.parametrize(("version", "key_type"), [each for each in product(range(1, 7), (2, 3, -1)) if each != (6, 2)])
def test_keys_that_nobody_coordinates(connection: RawConnection, version: int, key_type: int) -> None:
    request = {"key": "x", "key_type": key_type, "coordinator_keys": ["x"]}
    answer = connection.ask(ApiKey.FIND_COORDINATOR, version, request)
    refused = answer if version < 4 else answer.coordinators[0]
    assert (ErrorCode.invalid_request, -1, "", -1) == (refused.error_code, refused.node_id, refused.host, refused.port)


@pytest.mark.parametrize("version", range(1, 7))
def test_find_coordinator_of_a_transactional_id(connection: RawConnection, world: World, version: int) -> None:
    request = {"key": "an-id", "key_type": 1, "coordinator_keys": ["an-id"]}
    while True:
        answer = connection.ask(ApiKey.FIND_COORDINATOR, version, request)
        found = answer if version < 4 else answer.coordinators[0]
        if found.error_code is not ErrorCode.coordinator_not_available:
            break
    assert (ErrorCode.none, world.broker_id) == (found.error_code, found.node_id)


# JoinGroup


@every_version(ApiKey.JOIN_GROUP)
def test_join_group(connection: RawConnection, version: int) -> None:
    group_id = unused_group(connection)
    protocols = [{"name": PROTOCOL, "metadata": b"first"}, {"name": "other", "metadata": b"second"}]
    values = join_values(group_id, protocols=protocols)
    joined = connection.ask(ApiKey.JOIN_GROUP, version, values)
    if version >= 4:
        assert ErrorCode.member_id_required is joined.error_code
        assert_no_place(joined, version, joined.member_id)
        joined = connection.ask(ApiKey.JOIN_GROUP, version, {**values, "member_id": joined.member_id})
    assert joined.member_id.startswith("wire-")
    assert (ErrorCode.none, 1, PROTOCOL, joined.member_id) == (
        joined.error_code,
        joined.generation_id,
        joined.protocol_name,
        joined.leader,
    )
    (member,) = joined.members
    assert (joined.member_id, b"first") == (member.member_id, member.metadata)
    if version >= 5:
        assert member.group_instance_id is None
    if version >= 7:
        assert PROTOCOL_TYPE == joined.protocol_type
    if version >= 9:
        assert not joined.skip_assignment


def assert_no_place(answer: Any, version: int, member_id: str) -> None:
    """A refused join says nothing of a generation."""
    assert (-1, "", member_id, ()) == (answer.generation_id, answer.leader, answer.member_id, answer.members)
    assert (None if version >= 7 else "") == answer.protocol_name
    if version >= 7:
        assert answer.protocol_type is None


@every_version(ApiKey.JOIN_GROUP)
def test_join_group_refused(connection: RawConnection, version: int) -> None:
    group_id = unused_group(connection)
    wrong: list[tuple[dict[str, Any], ErrorCode]] = [
        ({"member_id": "nobody"}, ErrorCode.unknown_member_id),
        ({"group_id": "", "member_id": "me"}, ErrorCode.invalid_group_id),
        ({"session_timeout": SESSION / 20}, ErrorCode.invalid_session_timeout),
        ({"session_timeout": 1000 * SESSION}, ErrorCode.invalid_session_timeout),
        ({"protocols": []}, ErrorCode.inconsistent_group_protocol),
        ({"protocol_type": ""}, ErrorCode.inconsistent_group_protocol),
    ]
    for values, error in wrong:
        answer = connection.ask(ApiKey.JOIN_GROUP, version, {**join_values(group_id), **values})
        assert error is answer.error_code
        assert_no_place(answer, version, values.get("member_id", ""))


@pytest.mark.parametrize("version", range(5, 10))
def test_a_static_member_comes_back(connection: RawConnection, version: int) -> None:
    """Without a rebalance; from version 9 on it hears that it leads, and that it need not assign."""
    former = join_alone(connection, instance_id="first")
    values = join_values(former.group_id, group_instance_id="first")
    values["protocols"] = [{"name": PROTOCOL, "metadata": subscription()}]
    joined = connection.ask(ApiKey.JOIN_GROUP, version, values)
    assert (ErrorCode.none, 1) == (joined.error_code, joined.generation_id)
    assert former.member_id != joined.member_id
    if version >= 9:
        assert (joined.member_id, True) == (joined.leader, joined.skip_assignment)
        assert [(joined.member_id, "first")] == [(each.member_id, each.group_instance_id) for each in joined.members]
    else:
        assert (former.member_id, ()) == (joined.leader, joined.members)
    zombie = {**former.identity, "group_instance_id": "first"}
    answer = connection.ask(ApiKey.HEARTBEAT, 4, zombie)
    assert ErrorCode.fenced_instance_id is answer.error_code
    values = sync_values(former.group_id, joined.member_id, group_instance_id="first", assignments=[])
    synced = connection.ask_newest(ApiKey.SYNC_GROUP, values)
    assert (ErrorCode.none, ASSIGNMENT) == (synced.error_code, synced.assignment)


def test_two_members_become_a_generation(address: str, connection: RawConnection) -> None:
    """The first one's heartbeat tells it to join again; then both wait for each other, and for the leader's plan."""
    first = join_alone(connection)
    values = join_values(first.group_id)
    with RawConnection(address) as other:
        second = other.ask_newest(ApiKey.JOIN_GROUP, values).member_id
        other.send(frame(ApiKey.JOIN_GROUP, {**values, "member_id": second}))
        while True:
            beat = connection.ask_newest(ApiKey.HEARTBEAT, first.identity)
            if beat.error_code is not ErrorCode.none:
                break
        assert ErrorCode.rebalance_in_progress is beat.error_code
        led = connection.ask_newest(ApiKey.JOIN_GROUP, {**values, "member_id": first.member_id})
        followed = answer_of(ApiKey.JOIN_GROUP, other)
        assert (2, 2, first.member_id) == (led.generation_id, followed.generation_id, followed.leader)
        assert {first.member_id, second} == {each.member_id for each in led.members}
        assert () == followed.members
        other.send(frame(ApiKey.SYNC_GROUP, sync_values(first.group_id, second, generation_id=2, assignments=[])))
        plan = [{"member_id": first.member_id, "assignment": b"1"}, {"member_id": second, "assignment": b"2"}]
        values = sync_values(first.group_id, first.member_id, generation_id=2, assignments=plan)
        assert b"1" == connection.ask_newest(ApiKey.SYNC_GROUP, values).assignment
        assert b"2" == answer_of(ApiKey.SYNC_GROUP, other).assignment


def frame(api_key: ApiKey, values: dict[str, Any]) -> bytes:
    return request_frame(api_key, SERVED[api_key].highest, values)


def answer_of(api_key: ApiKey, connection: RawConnection) -> Any:
    return read_response(api_key, SERVED[api_key].highest, connection.receive())[1]


# SyncGroup


@every_version(ApiKey.SYNC_GROUP)
def test_sync_group(connection: RawConnection, version: int) -> None:
    group_id = unused_group(connection)
    joined = connection.ask(ApiKey.JOIN_GROUP, 3, join_values(group_id))
    values = sync_values(group_id, joined.member_id)
    wrong: list[tuple[dict[str, Any], ErrorCode]] = [
        ({"generation_id": 2}, ErrorCode.illegal_generation),
        ({"member_id": "nobody"}, ErrorCode.unknown_member_id),
        ({"group_id": ""}, ErrorCode.invalid_group_id),
        ({"group_id": "no-such"}, ErrorCode.unknown_member_id),
    ]
    if version >= 5:
        wrong += [
            ({"protocol_type": None}, ErrorCode.inconsistent_group_protocol),
            ({"protocol_name": None}, ErrorCode.inconsistent_group_protocol),
            ({"protocol_name": "other"}, ErrorCode.inconsistent_group_protocol),
        ]
    for changed, error in wrong:
        answer = connection.ask(ApiKey.SYNC_GROUP, version, {**values, **changed})
        assert (error, b"") == (answer.error_code, answer.assignment)
    strangers = [*values["assignments"], {"member_id": "stranger", "assignment": b"x"}]
    synced = connection.ask(ApiKey.SYNC_GROUP, version, {**values, "assignments": strangers})
    assert (ErrorCode.none, ASSIGNMENT) == (synced.error_code, synced.assignment)
    if version >= 5:
        assert (PROTOCOL_TYPE, PROTOCOL) == (synced.protocol_type, synced.protocol_name)
    again = connection.ask(ApiKey.SYNC_GROUP, version, {**values, "assignments": []})
    assert (ErrorCode.none, ASSIGNMENT) == (again.error_code, again.assignment)


# Heartbeat


@every_version(ApiKey.HEARTBEAT)
def test_heartbeat(connection: RawConnection, version: int) -> None:
    member = join_alone(connection)
    wrong: list[tuple[dict[str, Any], ErrorCode]] = [
        ({}, ErrorCode.none),
        ({"generation_id": 2}, ErrorCode.illegal_generation),
        ({"generation_id": -1}, ErrorCode.illegal_generation),
        ({"member_id": "nobody"}, ErrorCode.unknown_member_id),
        ({"group_id": ""}, ErrorCode.invalid_group_id),
        ({"group_id": "no-such"}, ErrorCode.unknown_member_id),
    ]
    if version >= 3:
        wrong.append(({"group_instance_id": "nobody's"}, ErrorCode.unknown_member_id))
    for changed, error in wrong:
        assert error is connection.ask(ApiKey.HEARTBEAT, version, {**member.identity, **changed}).error_code


# LeaveGroup


@every_version(ApiKey.LEAVE_GROUP)
def test_leave_group(connection: RawConnection, version: int) -> None:
    member = join_alone(connection)

    def leave(group_id: str, member_id: str) -> tuple[ErrorCode, list[ErrorCode]]:
        values = {"group_id": group_id, "member_id": member_id, "members": [{"member_id": member_id}]}
        answer = connection.ask(ApiKey.LEAVE_GROUP, version, values)
        if version < 3:
            return answer.error_code, []
        return answer.error_code, [each.error_code for each in answer.members]

    def outcome(error: ErrorCode) -> tuple[ErrorCode, list[ErrorCode]]:
        """Of the only member: where old versions have it, and where new ones do."""
        return (error, []) if version < 3 else (ErrorCode.none, [error])

    assert outcome(ErrorCode.unknown_member_id) == leave(member.group_id, "nobody")
    assert outcome(ErrorCode.unknown_member_id) == leave("no-such", "nobody")
    assert (ErrorCode.invalid_group_id, []) == leave("", "nobody")
    assert "Stable" == state_of(connection, member.group_id)
    assert outcome(ErrorCode.none) == leave(member.group_id, member.member_id)
    assert "Empty" == state_of(connection, member.group_id)
    assert outcome(ErrorCode.unknown_member_id) == leave(member.group_id, member.member_id)


@pytest.mark.parametrize("version", [3, 4, 5])
def test_several_leave_at_once(connection: RawConnection, version: int) -> None:
    member = join_alone(connection, instance_id="first")
    members = [
        {"member_id": "nobody"},
        {"member_id": "", "group_instance_id": "nobody's"},
        {"member_id": "nobody", "group_instance_id": "first"},
        {"member_id": "", "group_instance_id": "first", "reason": "an operator says so"},
    ]
    answer = connection.ask(ApiKey.LEAVE_GROUP, version, {"group_id": member.group_id, "members": members})
    assert ErrorCode.none is answer.error_code
    assert [
        ("nobody", None, ErrorCode.unknown_member_id),
        ("", "nobody's", ErrorCode.unknown_member_id),
        ("nobody", "first", ErrorCode.fenced_instance_id),
        ("", "first", ErrorCode.none),
    ] == [(each.member_id, each.group_instance_id, each.error_code) for each in answer.members]
    assert "Empty" == state_of(connection, member.group_id)


def state_of(connection: RawConnection, group_id: str) -> str:
    (group,) = connection.ask(ApiKey.DESCRIBE_GROUPS, 5, {"groups": [group_id]}).groups
    return str(group.group_state)


# DescribeGroups, ListGroups, DeleteGroups


@every_version(ApiKey.DESCRIBE_GROUPS)
def test_describe_groups(connection: RawConnection, version: int) -> None:
    member = join_alone(connection, "a", instance_id="first")
    for asks in (False, True):
        request = {"groups": [member.group_id, "no-such"], "include_authorized_operations": asks}
        groups = {each.group_id: each for each in connection.ask(ApiKey.DESCRIBE_GROUPS, version, request).groups}
        group, missing = groups[member.group_id], groups["no-such"]
        assert (ErrorCode.none, "Stable", PROTOCOL_TYPE, PROTOCOL) == (
            group.error_code,
            group.group_state,
            group.protocol_type,
            group.protocol_data,
        )
        (described,) = group.members
        assert (member.member_id, "wire", "/127.0.0.1", subscription("a"), ASSIGNMENT) == (
            described.member_id,
            described.client_id,
            described.client_host,
            described.member_metadata,
            described.member_assignment,
        )
        if version >= 4:
            assert "first" == described.group_instance_id
        error = ErrorCode.group_id_not_found if version >= 6 else ErrorCode.none
        assert (error, "Dead", "", "", ()) == (
            missing.error_code,
            missing.group_state,
            missing.protocol_type,
            missing.protocol_data,
            missing.members,
        )
        if version >= 6:
            assert (None, "Group no-such not found.") == (group.error_message, missing.error_message)
        if version >= 3:
            assert (GROUP_OPERATIONS if asks else NOT_ASKED) == group.authorized_operations


@every_version(ApiKey.LIST_GROUPS)
def test_list_groups(connection: RawConnection, world: World, version: int) -> None:
    stable, empty = join_alone(connection).group_id, unused_group(connection)
    request = commit_values(world, empty, {0: 1})
    assert [ErrorCode.none] == commit_errors(connection.ask(ApiKey.OFFSET_COMMIT, 9, request))
    everything = {stable: (PROTOCOL_TYPE, "Stable", "classic"), empty: ("", "Empty", "classic")}
    wishes: list[tuple[list[str], list[str], set[str]]] = [([], [], {stable, empty})]
    if version >= 4:
        wishes += [(["Stable"], [], {stable}), (["empty", "Dead"], [], {empty}), (["nonsense"], [], set())]
    if version >= 5:
        wishes += [
            ([], ["Classic"], {stable, empty}),
            ([], ["consumer"], set()),
            (["Empty"], ["classic", "consumer"], {empty}),
            ([], ["nonsense"], set()),
        ]
    for states, types, expected in wishes:
        answer = connection.ask(ApiKey.LIST_GROUPS, version, {"states_filter": states, "types_filter": types})
        assert ErrorCode.none is answer.error_code
        listed = {each.group_id: each for each in answer.groups if each.group_id in everything}
        assert expected == set(listed)
        for group_id, group in listed.items():
            protocol_type, state, kind = everything[group_id]
            assert protocol_type == group.protocol_type
            assert state == (group.group_state if version >= 4 else state)
            assert kind == (group.group_type if version >= 5 else kind)


@every_version(ApiKey.DELETE_GROUPS)
def test_delete_groups(connection: RawConnection, world: World, version: int) -> None:
    member, empty = join_alone(connection), unused_group(connection)
    connection.ask(ApiKey.OFFSET_COMMIT, 9, commit_values(world, empty, {0: 1}))
    request = {"groups_names": [member.group_id, empty, "no-such", empty]}
    answer = connection.ask(ApiKey.DELETE_GROUPS, version, request)
    assert {
        (member.group_id, ErrorCode.non_empty_group),
        (empty, ErrorCode.none),
        ("no-such", ErrorCode.group_id_not_found),
    } == {(each.group_id, each.error_code) for each in answer.results}
    assert 3 == len(answer.results)
    if version >= 3:
        assert [False, True, False] == [each.error_message is None for each in answer.results]
    assert {} == fetch_offsets(connection, empty)
    assert ("Dead", "Stable") == (state_of(connection, empty), state_of(connection, member.group_id))
