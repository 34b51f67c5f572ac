"""The APIs of groups whose partitions the broker assigns, in every version."""

from datetime import timedelta
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from ottla.protocol.apis import ApiKey
from tests.wire.exchange import RawConnection, every_version
from tests.wire.groups import (
    SESSION,
    commit_errors,
    commit_values,
    fetch_offsets,
    join_alone,
    join_values,
    subscription,
    unused_group,
)
from tests.wire.share_member import set_configs
from tests.wire.world import PARTITIONS, World

GROUP_OPERATIONS = sum(1 << bit for bit in (3, 6, 8, 10, 11))
NOT_ASKED = -(2**31)
AS_BEFORE = timedelta(milliseconds=-1)
MEMBER = "a-member"
INTERVAL = timedelta(seconds=5)


def first_beat(group_id: str, *topics: str, **values: Any) -> dict[str, Any]:
    """Joins."""
    return {
        "group_id": group_id,
        "member_id": MEMBER,
        "member_epoch": 0,
        "rebalance_timeout": SESSION,
        "subscribed_topic_names": list(topics),
        "topic_partitions": [],
        **values,
    }


def later_beat(group_id: str, member_id: str, epoch: int, **values: Any) -> dict[str, Any]:
    """Says nothing new."""
    return {
        "group_id": group_id,
        "member_id": member_id,
        "member_epoch": epoch,
        "rebalance_timeout": AS_BEFORE,
        "subscribed_topic_names": None,
        "topic_partitions": None,
        **values,
    }


def join_consumer_group(connection: RawConnection, world: World, version: int = 1) -> tuple[str, str, int]:
    """A new group whose only member has all partitions of the world's topic: group, member and epoch."""
    group_id = unused_group(connection)
    values = first_beat(group_id, world.topic, member_id="" if version == 0 else MEMBER)
    answer = connection.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, version, values)
    assert (ErrorCode.none, None, INTERVAL) == (answer.error_code, answer.error_message, answer.heartbeat_interval)
    assert answer.member_id if version == 0 else answer.member_id == MEMBER
    (assigned,) = answer.assignment.topic_partitions
    assert (world.topic_id, tuple(range(PARTITIONS))) == (assigned.topic_id, tuple(sorted(assigned.partitions)))
    return group_id, answer.member_id, answer.member_epoch


def test_a_group_has_its_own_heartbeat_interval(connection: RawConnection, world: World) -> None:
    group_id, member_id, epoch = join_consumer_group(connection, world)
    set_configs(connection, group_id, consumer_heartbeat_interval_ms="6000", consumer_session_timeout_ms="50000")
    # The configs apply from the next heartbeat on.
    answer = connection.ask_newest(ApiKey.CONSUMER_GROUP_HEARTBEAT, later_beat(group_id, member_id, epoch))
    assert (ErrorCode.none, timedelta(seconds=6)) == (answer.error_code, answer.heartbeat_interval)


@every_version(ApiKey.CONSUMER_GROUP_HEARTBEAT)
def test_consumer_group_heartbeat(connection: RawConnection, world: World, version: int) -> None:
    group_id, member_id, epoch = join_consumer_group(connection, world, version)
    owned = [{"topic_id": world.topic_id, "partitions": list(range(PARTITIONS))}]
    for values in (
        later_beat(group_id, member_id, epoch),
        later_beat(group_id, member_id, epoch, topic_partitions=owned),
    ):
        answer = connection.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, version, values)
        assert (ErrorCode.none, member_id, epoch) == (answer.error_code, answer.member_id, answer.member_epoch)
        assert answer.assignment is None
    left = connection.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, version, later_beat(group_id, member_id, -1))
    assert (ErrorCode.none, member_id, -1) == (left.error_code, left.member_id, left.member_epoch)
    answer = connection.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, version, later_beat(group_id, member_id, epoch))
    assert ErrorCode.unknown_member_id is answer.error_code


@every_version(ApiKey.CONSUMER_GROUP_HEARTBEAT)
def test_consumer_group_heartbeat_refused(connection: RawConnection, world: World, version: int) -> None:
    group_id, member_id, epoch = join_consumer_group(connection, world, version)
    own: dict[str, Any] = {"member_id": member_id}
    wrong: list[tuple[dict[str, Any], ErrorCode]] = [
        ({"group_id": ""}, ErrorCode.invalid_request),
        ({"rebalance_timeout": AS_BEFORE}, ErrorCode.invalid_request),
        ({"subscribed_topic_names": None}, ErrorCode.invalid_request),
        ({"topic_partitions": None}, ErrorCode.invalid_request),
        ({"topic_partitions": [{"topic_id": world.topic_id, "partitions": [0]}]}, ErrorCode.invalid_request),
        ({"instance_id": ""}, ErrorCode.invalid_request),
        ({"rack_id": ""}, ErrorCode.invalid_request),
        ({"member_epoch": -3}, ErrorCode.invalid_request),
        ({"member_epoch": -2}, ErrorCode.invalid_request),
        ({"server_assignor": "nonsense"}, ErrorCode.unsupported_assignor),
        ({**own, "member_epoch": epoch + 1}, ErrorCode.fenced_member_epoch),
        ({"member_id": "nobody", "member_epoch": epoch}, ErrorCode.unknown_member_id),
        ({"member_id": "nobody", "member_epoch": -1}, ErrorCode.unknown_member_id),
    ]
    if version >= 1:
        wrong += [
            ({"member_id": ""}, ErrorCode.invalid_request),
            ({"subscribed_topic_regex": "["}, ErrorCode.invalid_regular_expression),
        ]
    for changed, error in wrong:
        values = {**first_beat(group_id, world.topic), **changed}
        answer = connection.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, version, values)
        assert (error, None, 0, None) == (answer.error_code, answer.member_id, answer.member_epoch, answer.assignment)
        assert answer.error_message
    answer = connection.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, version, later_beat(group_id, member_id, epoch))
    assert (ErrorCode.none, epoch) == (answer.error_code, answer.member_epoch)


def test_subscription_by_pattern(connection: RawConnection, world: World) -> None:
    group_id = unused_group(connection)
    values = first_beat(group_id, subscribed_topic_names=None, subscribed_topic_regex=f"{world.topic[:-1]}.")
    answer = connection.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, values)
    while answer.assignment is None or not answer.assignment.topic_partitions:
        assert ErrorCode.none is answer.error_code
        values = later_beat(group_id, MEMBER, answer.member_epoch)
        answer = connection.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, values)
    assert [world.topic_id] == [topic.topic_id for topic in answer.assignment.topic_partitions]


@every_version(ApiKey.CONSUMER_GROUP_DESCRIBE)
def test_consumer_group_describe(connection: RawConnection, world: World, version: int) -> None:
    group_id, member_id, epoch = join_consumer_group(connection, world)
    classic = join_alone(connection).group_id
    for asks in (False, True):
        request = {"group_ids": [group_id, "no-such", classic], "include_authorized_operations": asks}
        answer = connection.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, version, request)
        groups = {group.group_id: group for group in answer.groups}
        group = groups[group_id]
        assert (ErrorCode.none, None, "Stable", epoch, epoch, "uniform") == (
            group.error_code,
            group.error_message,
            group.group_state,
            group.group_epoch,
            group.assignment_epoch,
            group.assignor_name,
        )
        assert (GROUP_OPERATIONS if asks else NOT_ASKED) == group.authorized_operations
        (member,) = group.members
        assert (member_id, None, None, epoch, "wire", "/127.0.0.1", (world.topic,), None) == (
            member.member_id,
            member.instance_id,
            member.rack_id,
            member.member_epoch,
            member.client_id,
            member.client_host,
            member.subscribed_topic_names,
            member.subscribed_topic_regex or None,
        )
        for assignment in (member.assignment, member.target_assignment):
            (topic,) = assignment.topic_partitions
            assert (world.topic_id, world.topic) == (topic.topic_id, topic.topic_name)
            assert list(range(PARTITIONS)) == sorted(topic.partitions)
        if version >= 1:
            assert 1 == member.member_type
        for other in ("no-such", classic):
            missing = groups[other]
            assert (ErrorCode.group_id_not_found, "", (), NOT_ASKED) == (
                missing.error_code,
                missing.group_state,
                missing.members,
                missing.authorized_operations,
            )
            assert missing.error_message


def test_the_classic_apis_see_it(connection: RawConnection, world: World) -> None:
    group_id, _, _ = join_consumer_group(connection, world)
    (described,) = connection.ask(ApiKey.DESCRIBE_GROUPS, 6, {"groups": [group_id]}).groups
    assert (ErrorCode.group_id_not_found, "Dead") == (described.error_code, described.group_state)
    answer = connection.ask(ApiKey.LIST_GROUPS, 5, {"types_filter": ["consumer"]})
    listed = {group.group_id: (group.protocol_type, group.group_state, group.group_type) for group in answer.groups}
    assert ("consumer", "Stable", "consumer") == listed[group_id]
    (refused,) = connection.ask(ApiKey.DELETE_GROUPS, 2, {"groups_names": [group_id]}).results
    assert ErrorCode.non_empty_group is refused.error_code


@pytest.mark.parametrize("version", range(2, 11))
def test_commits_of_its_members(connection: RawConnection, world: World, version: int) -> None:
    """Versions before 9 cannot say all that may be wrong, and are refused."""
    group_id, member_id, epoch = join_consumer_group(connection, world)

    def commit(member: str, member_epoch: int) -> list[ErrorCode]:
        values = commit_values(
            world, group_id, {0: member_epoch}, member_id=member, generation_id_or_member_epoch=member_epoch
        )
        return commit_errors(connection.ask(ApiKey.OFFSET_COMMIT, version, values))

    is_modern = version >= 9
    assert [ErrorCode.unknown_member_id] == commit("nobody", epoch)
    assert [ErrorCode.unknown_member_id] == commit("", -1)
    assert [ErrorCode.stale_member_epoch if is_modern else ErrorCode.unsupported_version] == commit(
        member_id, epoch + 1
    )
    assert [ErrorCode.none if is_modern else ErrorCode.unsupported_version] == commit(member_id, epoch)
    assert ({(world.topic, 0): (epoch, "note")} if is_modern else {}) == fetch_offsets(connection, group_id)


@pytest.mark.parametrize("version", [9, 10])
def test_fetches_of_its_members(connection: RawConnection, world: World, version: int) -> None:
    group_id, member_id, epoch = join_consumer_group(connection, world)
    for member, member_epoch, error in (
        (member_id, epoch, ErrorCode.none),
        (member_id, epoch + 1, ErrorCode.stale_member_epoch),
        ("nobody", epoch, ErrorCode.unknown_member_id),
        (None, -1, ErrorCode.none),
    ):
        values = {"group_id": group_id, "topics": None, "member_id": member, "member_epoch": member_epoch}
        (group,) = connection.ask(ApiKey.OFFSET_FETCH, version, {"groups": [values]}).groups
        assert (error, ()) == (group.error_code, group.topics)


def test_a_classic_member_joins_it(connection: RawConnection, world: World) -> None:
    """A group with members of both protocols."""
    group_id, member_id, epoch = join_consumer_group(connection, world)
    values = join_values(group_id, protocols=[{"name": "range", "metadata": subscription(world.topic)}])
    joined = connection.ask(ApiKey.JOIN_GROUP, 3, values)
    assert (ErrorCode.none, "", ()) == (joined.error_code, joined.leader, joined.members)
    assert epoch <= joined.generation_id
    (group,) = connection.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, {"group_ids": [group_id]}).groups
    assert {(member_id, 1), (joined.member_id, 0)} == {(each.member_id, each.member_type) for each in group.members}
