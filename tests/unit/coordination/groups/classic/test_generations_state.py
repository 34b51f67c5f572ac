"""Generations of a classic group: the initial delay, timeouts, sessions, a log that refuses, and failover."""

import pytest

from ottla.coordination.groups.requests import (
    GroupSettings,
    JoinedMember,
    JoinResponse,
    LeaveResponse,
    LeftMember,
    MemberProtocol,
    SyncResponse,
)
from ottla.model.error_codes import ErrorCode
from tests.unit.coordination.group_rig import GroupRig, subscription

INITIAL_MS = 3_000
SESSION_MS = 10_000
REBALANCE_MS = 60_000

OTHER_TOPIC = (MemberProtocol("range", subscription("u")),)


@pytest.fixture
def rig() -> GroupRig:
    return GroupRig()


# The initial rebalance


def test_the_first_member_waits_the_initial_delay(rig: GroupRig) -> None:
    token = rig.join()
    rig.after(INITIAL_MS - 1)
    assert token in rig.waiting
    rig.after(1)
    assert JoinResponse(
        member_id=rig.joined(token).member_id,
        generation=1,
        protocol_type="consumer",
        protocol_name="range",
        leader=rig.joined(token).member_id,
        members=(JoinedMember(rig.joined(token).member_id, None, subscription("t")),),
    ) == rig.joined(token)


def test_the_delay_is_extended_while_members_come(rig: GroupRig) -> None:
    first = rig.join()
    rig.after(INITIAL_MS - 1)
    second = rig.join()
    rig.after(1)
    assert first in rig.waiting
    rig.after(INITIAL_MS - 1)
    assert first in rig.waiting
    rig.after(1)
    assert [1, 1] == [rig.joined(token).generation for token in (first, second)]


def test_the_delay_ends_with_the_rebalance_timeout(rig: GroupRig) -> None:
    tokens = [rig.join(rebalance_timeout_ms=7_000)]
    for _ in range(6):
        rig.after(1_000)
        tokens.append(rig.join(rebalance_timeout_ms=7_000))
    assert all(token in rig.waiting for token in tokens)
    rig.after(1_000)
    assert [1] * 7 == [rig.joined(token).generation for token in tokens]


def test_without_a_delay_the_first_member_is_alone() -> None:
    rig = GroupRig(GroupSettings(initial_rebalance_delay_ms=0))
    assert 1 == rig.joined(rig.join()).generation


def test_a_member_that_leaves_before_the_first_generation(rig: GroupRig) -> None:
    token = rig.join(rig.joined(rig.join(requires_member_id=True)).member_id)
    member = rig.shard.describe_group("g").members[0].member_id
    assert LeaveResponse(members=(LeftMember(member_id=member),)) == rig.leave(member)
    assert ErrorCode.UNKNOWN_MEMBER_ID == rig.joined(token).error
    rig.after(INITIAL_MS)
    assert "Empty" == rig.state()


# Rebalance timeout, session expiry, pending syncs


def test_who_does_not_join_again_in_time_is_dropped(rig: GroupRig) -> None:
    leader, follower = rig.stable(2)
    token = rig.join(leader)
    for _ in range(REBALANCE_MS // 5_000):
        rig.after(5_000 - 1)
        rig.heartbeat(follower, 1)
    assert token in rig.waiting
    rig.after(REBALANCE_MS // 5_000)
    assert [leader] == [each.member_id for each in rig.joined(token).members]
    assert ErrorCode.UNKNOWN_MEMBER_ID == rig.heartbeat(follower, 2)


def test_the_longest_rebalance_timeout_counts(rig: GroupRig) -> None:
    leader = rig.stable()[0]
    rig.join(rebalance_timeout_ms=120_000)
    for _ in range(11):
        rig.after(9_999)
        assert ErrorCode.REBALANCE_IN_PROGRESS == rig.heartbeat(leader, 1)
    rig.after(9_999)
    assert "PreparingRebalance" == rig.state()
    rig.heartbeat(leader, 1)
    rig.after(12)
    assert "CompletingRebalance" == rig.state()


def test_a_leader_that_does_not_join_again_is_replaced(rig: GroupRig) -> None:
    leader, follower = rig.stable(2)
    token = rig.join(follower, protocols=OTHER_TOPIC)
    rig.after(SESSION_MS)
    answer = rig.joined(token)
    assert (follower, 2, [follower]) == (answer.leader, answer.generation, [each.member_id for each in answer.members])
    assert ErrorCode.UNKNOWN_MEMBER_ID == rig.heartbeat(leader, 2)


def test_a_silent_member_expires_and_the_others_rebalance(rig: GroupRig) -> None:
    leader, follower = rig.stable(2)
    rig.after(SESSION_MS - 1)
    rig.heartbeat(leader, 1)
    rig.after(1)
    assert "PreparingRebalance" == rig.state()
    assert ErrorCode.REBALANCE_IN_PROGRESS == rig.heartbeat(leader, 1)
    token = rig.join(leader)
    assert [leader] == [each.member_id for each in rig.joined(token).members]
    assert ErrorCode.UNKNOWN_MEMBER_ID == rig.heartbeat(follower, 2)


def test_the_last_member_that_expires_leaves_an_empty_group(rig: GroupRig) -> None:
    rig.stable()
    rig.after(SESSION_MS)
    described = rig.shard.describe_group("g")
    assert ("Empty", "consumer", ()) == (described.state, described.protocol_type, described.members)
    token = rig.join()
    rig.after(INITIAL_MS)
    assert 3 == rig.joined(token).generation, "the empty group was a generation too"


def test_a_member_that_waits_does_not_expire(rig: GroupRig) -> None:
    leader, follower = rig.stable(2)
    token = rig.join(leader)
    for _ in range(4):
        rig.after(SESSION_MS - 1)
        rig.heartbeat(follower, 1)
    assert token in rig.waiting
    rig.join(follower)
    assert 2 == rig.joined(token).generation


def test_a_new_member_expires_even_while_it_waits(rig: GroupRig) -> None:
    leader = rig.stable()[0]
    token = rig.join(rebalance_timeout_ms=600_000)
    for _ in range(30):
        rig.after(9_999)
        rig.heartbeat(leader, 1)
    assert token in rig.waiting
    rig.after(30)
    assert JoinResponse(error=ErrorCode.UNKNOWN_MEMBER_ID) == rig.joined(token)


def test_a_sync_that_waits_keeps_the_member_alive(rig: GroupRig) -> None:
    leader, follower = rig.completing()
    token = rig.sync(follower, 1)
    rig.after(SESSION_MS - 1)
    rig.heartbeat(leader, 1)
    rig.after(SESSION_MS - 1)
    assert token in rig.waiting
    rig.sync(leader, 1, {follower: b"F"})
    assert b"F" == rig.responses[token].assignment
    rig.after(SESSION_MS - 1)
    assert ErrorCode.NONE == rig.heartbeat(follower, 1)


@pytest.mark.parametrize("is_leader_late", [False, True])
def test_who_never_syncs_is_put_out(rig: GroupRig, is_leader_late: bool) -> None:
    leader, follower = rig.completing()
    prompt, late = (follower, leader) if is_leader_late else (leader, follower)
    token = rig.sync(prompt, 1, {leader: b"L", follower: b"F"})
    assert is_leader_late == (token in rig.waiting)
    for _ in range(REBALANCE_MS // 5_000):
        rig.after(5_000)
        error = rig.heartbeat(late, 1)
        rig.heartbeat(prompt, 1)
    assert ErrorCode.UNKNOWN_MEMBER_ID == error
    assert "PreparingRebalance" == rig.state()
    if is_leader_late:
        assert ErrorCode.REBALANCE_IN_PROGRESS == rig.responses[token].error


def test_a_request_that_is_sent_again_ends_the_first_one(rig: GroupRig) -> None:
    leader, follower = rig.stable(2)
    first = rig.join(leader)
    rig.join(leader)
    assert ErrorCode.REBALANCE_IN_PROGRESS == rig.joined(first).error
    rig.join(follower)
    first = rig.sync(follower, 2)
    second = rig.sync(follower, 2)
    assert ErrorCode.REBALANCE_IN_PROGRESS == rig.responses[first].error
    rig.sync(leader, 2, {follower: b"F"})
    assert b"F" == rig.responses[second].assignment


# When the log refuses


def test_assignments_that_cannot_be_written_are_not_given(rig: GroupRig) -> None:
    leader, follower = rig.completing()
    parked = rig.sync(follower, 1)
    rig.writes_fail = True
    token = rig.sync(leader, 1, {leader: b"L", follower: b"F"})
    away = SyncResponse(error=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert [away, away] == [rig.responses[each] for each in (parked, token)]
    assert "CompletingRebalance" == rig.state()
    rig.writes_fail = False
    rig.sync_all(1, leader, [follower])
    assert "Stable" == rig.state()


def test_an_empty_group_that_cannot_be_written_is_written_later(rig: GroupRig) -> None:
    member = rig.stable()[0]
    rig.writes_fail = True
    assert LeaveResponse(error=ErrorCode.COORDINATOR_NOT_AVAILABLE) == rig.leave(member)
    rig.writes_fail = False
    assert "PreparingRebalance" == rig.state()
    rig.after(5_000)
    assert "Empty" == rig.state()


# Failover


def test_a_stable_group_survives(rig: GroupRig) -> None:
    leader, follower = rig.stable(2)
    before = rig.shard.describe_group("g")
    rig.crash()
    assert before == rig.shard.describe_group("g")
    rig.after(SESSION_MS - 1)
    assert [ErrorCode.NONE, ErrorCode.NONE] == [rig.heartbeat(each, 1) for each in (leader, follower)]
    assert b"\1" == rig.responses[rig.sync(follower, 1)].assignment
    assert 1 == rig.joined(rig.join(follower)).generation


def test_sessions_start_anew_after_a_failover(rig: GroupRig) -> None:
    rig.stable()
    rig.after(SESSION_MS - 1)
    rig.crash()
    rig.after(SESSION_MS - 1)
    assert "Stable" == rig.state()
    rig.after(1)
    assert "Empty" == rig.state()


def test_a_generation_that_was_not_written_is_forgotten(rig: GroupRig) -> None:
    leader, follower = rig.stable(2)
    rig.join(leader)
    rig.join(follower)
    assert ErrorCode.NONE == rig.heartbeat(leader, 2)
    rig.crash()
    assert ErrorCode.ILLEGAL_GENERATION == rig.heartbeat(leader, 2)
    assert ErrorCode.NONE == rig.heartbeat(leader, 1)


def test_a_group_that_was_never_stable_is_forgotten(rig: GroupRig) -> None:
    leader, _ = rig.completing()
    rig.crash()
    assert ErrorCode.UNKNOWN_MEMBER_ID == rig.heartbeat(leader, 1)
    assert [] == rig.shard.list_groups()


def test_generations_start_anew_after_the_last(rig: GroupRig) -> None:
    member = rig.stable()[0]
    rig.shard.classic.groups["g"].generation = 2**31 - 1
    assert 1 == rig.joined(rig.join(member)).generation


# What is written, applied at once and when it is loaded


def facts(rig: GroupRig) -> tuple[object, ...]:
    """All that a record says of the group."""
    group = rig.shard.classic.groups["g"]
    members = [member.value(group.protocol or "", member.assignment) for member in group.members]
    return (
        group.state, group.generation, group.protocol_type, group.protocol, group.state_ms, group.members.leader,
        group.subscribed_topics, members, group.members.candidates(),
    )  # fmt: skip


def test_a_group_that_gets_its_assignments_is_as_it_is_loaded(rig: GroupRig) -> None:
    first = rig.join()
    second = rig.join(instance_id="i", protocols=OTHER_TOPIC)
    rig.after(2 * INITIAL_MS)
    leader, follower = rig.joined(first).member_id, rig.joined(second).member_id
    waiting = rig.sync(follower, 1)
    rig.sync(leader, 1, {leader: b"a", follower: b"b"})
    assert b"b" == rig.responses[waiting].assignment
    assert frozenset({"t", "u"}) == rig.shard.classic.groups["g"].subscribed_topics
    before = facts(rig)
    rig.crash()
    assert before == facts(rig)


def test_a_group_that_loses_its_last_member_is_as_it_is_loaded(rig: GroupRig) -> None:
    rig.after(1)
    token = rig.join(requires_member_id=False)
    (group,) = rig.shard.classic.groups.values()
    (member,) = group.members
    rig.leave(member.member_id)
    rig.after(REBALANCE_MS)
    assert ErrorCode.UNKNOWN_MEMBER_ID is rig.joined(token).error
    before = facts(rig)
    # No member ever had a generation, but the group is one of consumers.
    assert frozenset() == before[6]
    rig.crash()
    assert before == facts(rig)
