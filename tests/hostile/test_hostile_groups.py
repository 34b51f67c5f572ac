"""Members that lie, shout or never come back: each gets its error, honest ones go on, memory is bounded."""

from datetime import timedelta
from select import select
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from ottla.protocol.apis import ApiKey
from tests.broker_process import BrokerProcess
from tests.hostile.conftest import GROWTH_BYTES_MAX
from tests.hostile.requests import Target
from tests.wire.exchange import RawConnection, request_frame
from tests.wire.groups import (
    ASSIGNMENT,
    PROTOCOL,
    OnlyMember,
    fetch_offsets,
    join_alone,
    join_values,
    subscription,
    sync_values,
    unused_group,
)

MEBIBYTE = 1 << 20
LONG_NAME = "x" * 32_767
FOR_EVER = timedelta(milliseconds=2**31 - 1)


@pytest.fixture(scope="module")
def connection(broker: BrokerProcess) -> Any:
    with RawConnection(broker.address) as opened:
        yield opened


@pytest.fixture
def honest(connection: RawConnection, target: Target) -> Any:
    """A member whose group must be as it was when the test is over."""
    member = join_alone(connection, target.topic)
    commit = commit_of(target, member, 7)
    assert [ErrorCode.none] == errors_of(connection.ask(ApiKey.OFFSET_COMMIT, 9, commit))
    yield member
    assert ErrorCode.none is connection.ask_newest(ApiKey.HEARTBEAT, member.identity).error_code
    (group,) = connection.ask(ApiKey.DESCRIBE_GROUPS, 6, {"groups": [member.group_id]}).groups
    assert ("Stable", [(member.member_id, subscription(target.topic), ASSIGNMENT)]) == (
        group.group_state,
        [(each.member_id, each.member_metadata, each.member_assignment) for each in group.members],
    )
    assert {(target.topic, 0): (7, "")} == fetch_offsets(connection, member.group_id)


def commit_of(target: Target, member: OnlyMember, offset: int, **values: Any) -> dict[str, Any]:
    partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": "", **values}
    return {
        "group_id": member.group_id,
        "member_id": member.member_id,
        "generation_id_or_member_epoch": 1,
        "topics": [{"name": target.topic, "partitions": [partition]}],
    }


def errors_of(answer: Any) -> list[ErrorCode]:
    return [part.error_code for topic in answer.topics for part in topic.partitions]


# Lies


def test_forged_member_ids(connection: RawConnection, honest: OnlyMember, target: Target) -> None:
    for forged in ("", "nobody", honest.member_id.upper(), honest.member_id + "\0", LONG_NAME):
        who = {**honest.identity, "member_id": forged}
        assert ErrorCode.unknown_member_id is connection.ask_newest(ApiKey.HEARTBEAT, who).error_code
        answer = connection.ask_newest(ApiKey.SYNC_GROUP, sync_values(honest.group_id, forged))
        assert (ErrorCode.unknown_member_id, b"") == (answer.error_code, answer.assignment)
        commit = {**commit_of(target, honest, 1), "member_id": forged}
        assert [ErrorCode.unknown_member_id] == errors_of(connection.ask(ApiKey.OFFSET_COMMIT, 9, commit))
        leave = {"group_id": honest.group_id, "members": [{"member_id": forged}]}
        (left,) = connection.ask_newest(ApiKey.LEAVE_GROUP, leave).members
        assert ErrorCode.unknown_member_id is left.error_code
        if forged:
            joined = connection.ask_newest(ApiKey.JOIN_GROUP, join_values(honest.group_id, member_id=forged))
            assert joined.error_code in (ErrorCode.unknown_member_id, ErrorCode.invalid_request)


def test_stale_and_future_generations(connection: RawConnection, honest: OnlyMember, target: Target) -> None:
    for generation in (0, 2, -2, 2**31 - 1, -(2**31)):
        who = {**honest.identity, "generation_id": generation}
        assert ErrorCode.illegal_generation is connection.ask_newest(ApiKey.HEARTBEAT, who).error_code
        values = sync_values(honest.group_id, honest.member_id, generation_id=generation)
        assert ErrorCode.illegal_generation is connection.ask_newest(ApiKey.SYNC_GROUP, values).error_code
        commit = {**commit_of(target, honest, 1), "generation_id_or_member_epoch": generation}
        assert [ErrorCode.illegal_generation] == errors_of(connection.ask(ApiKey.OFFSET_COMMIT, 9, commit))


def test_names_that_no_record_can_hold(connection: RawConnection, honest: OnlyMember) -> None:
    values = join_values(LONG_NAME)
    assert ErrorCode.invalid_group_id is connection.ask_newest(ApiKey.JOIN_GROUP, values).error_code
    for name in ("group_instance_id", "protocol_type"):
        values = join_values(honest.group_id, **{name: LONG_NAME})
        assert ErrorCode.invalid_request is connection.ask_newest(ApiKey.JOIN_GROUP, values).error_code
    values = join_values(honest.group_id, protocols=[{"name": LONG_NAME, "metadata": b""}])
    assert ErrorCode.invalid_request is connection.ask_newest(ApiKey.JOIN_GROUP, values).error_code
    (found,) = connection.ask_newest(ApiKey.FIND_COORDINATOR, {"coordinator_keys": [LONG_NAME]}).coordinators
    assert ErrorCode.invalid_request is found.error_code


@pytest.mark.parametrize(
    "metadata",
    [
        b"",
        b"\0",
        b"\0\0\x7f\xff\xff\xff",
        b"\0\0\xff\xff\xff\xfe",
        b"\0\0\0\0\0\1\0\x09short",
        b"\0\0\0\0\0\1\0\2\xff\xfe\xff\xff\xff\xff",
        b"\x7f\xff" + bytes(range(256)),
        subscription("a") + b"more than that",
    ],
)
def test_subscriptions_that_are_none(connection: RawConnection, target: Target, metadata: bytes) -> None:
    """Opaque to a classic group, whose offsets are then nobody's to delete; refused where they have to be read."""
    group_id = unused_group(connection)
    values = join_values(group_id, protocols=[{"name": PROTOCOL, "metadata": metadata}])
    joined = connection.ask(ApiKey.JOIN_GROUP, 3, values)
    assert (ErrorCode.none, metadata) == (joined.error_code, joined.members[0].metadata)
    synced = connection.ask_newest(ApiKey.SYNC_GROUP, sync_values(group_id, joined.member_id))
    assert ErrorCode.none is synced.error_code
    modern = {
        "group_id": group_id,
        "member_id": "modern",
        "rebalance_timeout": timedelta(seconds=10),
        "subscribed_topic_names": [target.topic],
        "topic_partitions": [],
    }
    answer = connection.ask_newest(ApiKey.CONSUMER_GROUP_HEARTBEAT, modern)
    assert answer.error_code in (ErrorCode.group_id_not_found, ErrorCode.none)
    beat = {"group_id": group_id, "member_id": joined.member_id, "generation_id": 1}
    heard = connection.ask_newest(ApiKey.HEARTBEAT, beat).error_code
    assert heard in (ErrorCode.none, ErrorCode.rebalance_in_progress)


# Size


def test_giant_metadata_of_members(broker: BrokerProcess, connection: RawConnection, honest: OnlyMember) -> None:
    """What no record could hold is refused when it comes, and not when the leader brings its plan."""
    values = join_values(honest.group_id, protocols=[{"name": PROTOCOL, "metadata": b"x" * (2 * MEBIBYTE)}])
    for version in (3, 9):
        assert ErrorCode.invalid_request is connection.ask(ApiKey.JOIN_GROUP, version, values).error_code


def test_a_giant_plan(connection: RawConnection) -> None:
    """It can never be written, so its leader must not try for ever."""
    group_id = unused_group(connection)
    joined = connection.ask(ApiKey.JOIN_GROUP, 3, join_values(group_id))
    plan = [{"member_id": joined.member_id, "assignment": b"x" * (2 * MEBIBYTE)}]
    values = sync_values(group_id, joined.member_id, assignments=plan)
    answer = connection.ask_newest(ApiKey.SYNC_GROUP, values)
    assert (ErrorCode.unknown_server_error, b"") == (answer.error_code, answer.assignment)
    answer = connection.ask_newest(ApiKey.SYNC_GROUP, sync_values(group_id, joined.member_id))
    assert (ErrorCode.none, ASSIGNMENT) == (answer.error_code, answer.assignment)


def test_a_giant_commit(connection: RawConnection, honest: OnlyMember, target: Target) -> None:
    """Each offset may be small and all of them too much for one batch: all or nothing, and nothing for ever."""
    commit = commit_of(target, honest, 1)
    commit["topics"][0]["partitions"] = [
        {"partition_index": 0, "committed_offset": 1, "committed_metadata": "x" * 4_000} for _ in range(600)
    ]
    errors = errors_of(connection.ask(ApiKey.OFFSET_COMMIT, 9, commit))
    assert [ErrorCode.invalid_commit_offset_size] * 600 == errors


def test_giant_offset_metadata(connection: RawConnection, honest: OnlyMember, target: Target) -> None:
    commit = commit_of(target, honest, 1, committed_metadata=LONG_NAME)
    assert [ErrorCode.offset_metadata_too_large] == errors_of(connection.ask(ApiKey.OFFSET_COMMIT, 9, commit))


def test_members_that_wait_for_ever(broker: BrokerProcess, connection: RawConnection, honest: OnlyMember) -> None:
    """Each brings what is just allowed, and waits for a rebalance that takes weeks: some are sent away."""
    group_id = unused_group(connection)
    metadata = b"x" * (MEBIBYTE - 1000)
    values = join_values(
        group_id,
        rebalance_timeout=FOR_EVER,
        session_timeout=timedelta(minutes=30),
        protocols=[{"name": PROTOCOL, "metadata": metadata}],
    )
    leader = connection.ask(ApiKey.JOIN_GROUP, 3, values)
    assert ErrorCode.none is leader.error_code
    broker.forget_peak()
    before = broker.resident_bytes()
    waiting = [RawConnection(broker.address) for _ in range(100)]
    try:
        for number, each in enumerate(waiting):
            each.send(request_frame(ApiKey.JOIN_GROUP, 3, values, correlation_id=number))
        # Whoever is answered was sent away: the others wait.
        answered, _, _ = select([each.fileno() for each in waiting], [], [], 20)
        first = next(each for each in waiting if each.fileno() in answered)
        assert ErrorCode.coordinator_load_in_progress.value.to_bytes(2) == first.receive()[8:10]
        assert broker.peak_bytes() - before < GROWTH_BYTES_MAX
    finally:
        for each in waiting:
            each.__exit__(None, None, None)
    leave = {"group_id": group_id, "members": [{"member_id": leader.member_id}]}
    connection.ask_newest(ApiKey.LEAVE_GROUP, leave)
