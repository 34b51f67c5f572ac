"""A classic group: every state against every event, timers, static members, protocols, and what a failover keeps."""

from typing import Any

import pytest

from ottla.coordination.groups.requests import (
    GroupSettings,
    JoinedMember,
    JoinResponse,
    LeaveRequest,
    LeaveResponse,
    LeavingMember,
    LeftMember,
    MemberProtocol,
    SyncResponse,
)
from ottla.model.error_codes import ErrorCode
from ottla.model.invariants import InvariantViolation
from tests.unit.coordination.group_rig import GroupRig, subscription

INITIAL_MS = 3_000
SESSION_MS = 10_000
MANY = GroupSettings(group_size_max=2)

OTHER_TOPIC = (MemberProtocol("range", subscription("u")),)


@pytest.fixture
def rig() -> GroupRig:
    return GroupRig()


# The table of states and events: join


def test_empty_new_member_prepares(rig: GroupRig) -> None:
    token = rig.join()
    assert ("PreparingRebalance", True) == (rig.state(), token in rig.waiting)


def test_empty_unknown_id_is_refused(rig: GroupRig) -> None:
    assert JoinResponse(error=ErrorCode.UNKNOWN_MEMBER_ID, member_id="x") == rig.joined(rig.join("x"))
    rig.commit(1)
    assert "Empty" == rig.state()
    assert ErrorCode.UNKNOWN_MEMBER_ID == rig.joined(rig.join("x")).error


def test_preparing_parks_every_join(rig: GroupRig) -> None:
    leader, follower = rig.stable(2)
    first = rig.join(leader)
    assert "PreparingRebalance" == rig.state()
    assert first in rig.waiting
    second = rig.join(follower)
    assert [leader, follower] == [rig.joined(token).member_id for token in (first, second)]
    assert [2, 2] == [rig.joined(token).generation for token in (first, second)]


def test_completing_unchanged_gets_the_current_answer(rig: GroupRig) -> None:
    leader, follower = rig.completing()
    again = rig.joined(rig.join(leader))
    assert (1, leader, 2) == (again.generation, again.leader, len(again.members))
    again = rig.joined(rig.join(follower))
    assert (1, leader, ()) == (again.generation, again.leader, again.members)
    assert "CompletingRebalance" == rig.state()


@pytest.mark.parametrize("is_new", [False, True])
def test_completing_changed_or_new_rebalances(rig: GroupRig, is_new: bool) -> None:
    leader, follower = rig.completing()
    parked = rig.sync(follower, 1)
    token = rig.join() if is_new else rig.join(leader, protocols=OTHER_TOPIC)
    assert token in rig.waiting
    assert "PreparingRebalance" == rig.state()
    assert SyncResponse(error=ErrorCode.REBALANCE_IN_PROGRESS) == rig.responses[parked]


def test_stable_leader_rebalances(rig: GroupRig) -> None:
    leader, _ = rig.stable(2)
    assert rig.join(leader) in rig.waiting
    assert "PreparingRebalance" == rig.state()


def test_stable_changed_follower_rebalances(rig: GroupRig) -> None:
    _, follower = rig.stable(2)
    assert rig.join(follower, protocols=OTHER_TOPIC) in rig.waiting
    assert "PreparingRebalance" == rig.state()


def test_stable_unchanged_follower_gets_the_current_answer(rig: GroupRig) -> None:
    leader, follower = rig.stable(2)
    assert JoinResponse(
        member_id=follower, generation=1, protocol_type="consumer", protocol_name="range", leader=leader
    ) == rig.joined(rig.join(follower))
    assert "Stable" == rig.state()


def test_an_unchanged_follower_that_joins_lives(rig: GroupRig) -> None:
    leader, follower = rig.stable(2)
    rig.after(SESSION_MS - 1)
    rig.heartbeat(leader, 1)
    rig.join(follower)
    rig.after(SESSION_MS - 1)
    assert ErrorCode.NONE == rig.heartbeat(follower, 1)


def test_stable_new_member_rebalances(rig: GroupRig) -> None:
    rig.stable()
    assert rig.join() in rig.waiting
    assert "PreparingRebalance" == rig.state()


# The table: sync


def test_empty_refuses_a_sync(rig: GroupRig) -> None:
    assert ErrorCode.UNKNOWN_MEMBER_ID == rig.responses[rig.sync("x", 1)].error
    rig.commit(1)
    assert ErrorCode.UNKNOWN_MEMBER_ID == rig.responses[rig.sync("x", 0)].error


def test_preparing_refuses_a_sync(rig: GroupRig) -> None:
    leader, follower = rig.stable(2)
    rig.join(leader)
    assert ErrorCode.REBALANCE_IN_PROGRESS == rig.responses[rig.sync(follower, 1)].error


def test_completing_parks_syncs_until_the_leader_assigns(rig: GroupRig) -> None:
    leader, follower = rig.completing()
    parked = rig.sync(follower, 1)
    assert parked in rig.waiting
    token = rig.sync(leader, 1, {leader: b"L", follower: b"F", "stranger": b"S"})
    answers = [rig.responses[each] for each in (parked, token)]
    assert [
        SyncResponse(protocol_type="consumer", protocol_name="range", assignment=each) for each in (b"F", b"L")
    ] == answers
    assert "Stable" == rig.state()


def test_stable_answers_a_sync(rig: GroupRig) -> None:
    _, follower = rig.stable(2)
    assert b"\1" == rig.responses[rig.sync(follower, 1)].assignment


def test_a_member_without_assignment_gets_an_empty_one(rig: GroupRig) -> None:
    leader, follower = rig.completing()
    rig.sync(leader, 1, {leader: b"L"})
    assert SyncResponse(protocol_type="consumer", protocol_name="range") == rig.responses[rig.sync(follower, 1)]


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"generation": 2}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation": 0}, ErrorCode.ILLEGAL_GENERATION),
        ({"member_id": "x"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"instance_id": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_name": "sticky"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": "consumer", "protocol_name": "range"}, ErrorCode.NONE),
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"group_id": "other"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_sync_is_checked(rig: GroupRig, changes: dict[str, Any], error: ErrorCode) -> None:
    member = rig.stable()[0]
    assert error == rig.responses[rig.sync(member, 1, **changes)].error


# The table: heartbeat


def test_heartbeat_in_every_state(rig: GroupRig) -> None:
    assert ErrorCode.UNKNOWN_MEMBER_ID == rig.heartbeat("x", 0)
    rig.commit(1)
    assert ErrorCode.UNKNOWN_MEMBER_ID == rig.heartbeat("x", 0)
    leader, follower = rig.completing()
    assert ErrorCode.NONE == rig.heartbeat(follower, 1)
    rig.sync_all(1, leader, [follower])
    assert ErrorCode.NONE == rig.heartbeat(follower, 1)
    assert ErrorCode.ILLEGAL_GENERATION == rig.heartbeat(follower, 0)
    assert ErrorCode.ILLEGAL_GENERATION == rig.heartbeat(follower, 2)
    assert ErrorCode.UNKNOWN_MEMBER_ID == rig.heartbeat("x", 1)
    rig.join(leader)
    assert ErrorCode.REBALANCE_IN_PROGRESS == rig.heartbeat(follower, 1)


def test_a_heartbeat_restarts_the_session_also_while_preparing(rig: GroupRig) -> None:
    leader, follower = rig.stable(2)
    rig.join(leader)
    for _ in range(5):
        rig.after(SESSION_MS - 1)
        assert ErrorCode.REBALANCE_IN_PROGRESS == rig.heartbeat(follower, 1)
    rig.after(SESSION_MS)
    assert ErrorCode.UNKNOWN_MEMBER_ID == rig.heartbeat(follower, 1)


# The table: commit


def test_commit_in_every_state(rig: GroupRig) -> None:
    assert ErrorCode.GROUP_ID_NOT_FOUND == rig.commit(1, 1, "x")
    assert ErrorCode.ILLEGAL_GENERATION == rig.commit(1, 1, "x", knows_group_not_found=False)
    assert ErrorCode.NONE == rig.commit(1)
    assert ErrorCode.UNKNOWN_MEMBER_ID == rig.commit(1, 1, "x")
    leader, follower = rig.completing()
    assert ErrorCode.REBALANCE_IN_PROGRESS == rig.commit(2, 1, follower)
    rig.sync_all(1, leader, [follower])
    assert ErrorCode.NONE == rig.commit(3, 1, follower)
    assert ErrorCode.ILLEGAL_GENERATION == rig.commit(4, 0, follower)
    assert ErrorCode.UNKNOWN_MEMBER_ID == rig.commit(4)
    rig.join(leader)
    assert ErrorCode.NONE == rig.commit(5, 1, follower)
    assert 5 == rig.offset()


def test_a_commit_restarts_the_session(rig: GroupRig) -> None:
    member = rig.stable()[0]
    for offset in range(5):
        rig.after(SESSION_MS - 1)
        assert ErrorCode.NONE == rig.commit(offset, 1, member)


# The table: dead


def test_a_dead_group_sends_everyone_away(rig: GroupRig) -> None:
    leader, follower = rig.completing()
    parked = rig.sync(follower, 1)
    rig.run(rig.shard.on_unloaded())
    assert SyncResponse(error=ErrorCode.NOT_COORDINATOR) == rig.responses[parked]
    assert "Dead" == rig.state()
    away = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert away == rig.joined(rig.join(leader)).error
    assert away == rig.joined(rig.join()).error
    assert away == rig.responses[rig.sync(leader, 1)].error
    assert away == rig.heartbeat(leader, 1)
    assert away == rig.commit(1, 1, leader)
    assert LeaveResponse(error=away) == rig.leave(leader)
    assert None is rig.shard.next_deadline()


def test_unloading_answers_joins_that_wait(rig: GroupRig) -> None:
    token = rig.join()
    rig.run(rig.shard.on_unloaded())
    assert ErrorCode.NOT_COORDINATOR == rig.joined(token).error


# Member ids


def test_a_member_id_is_required(rig: GroupRig) -> None:
    refused = rig.joined(rig.join(requires_member_id=True))
    assert ErrorCode.MEMBER_ID_REQUIRED == refused.error
    assert refused.member_id.startswith("c-")
    token = rig.join(refused.member_id, requires_member_id=True)
    rig.after(INITIAL_MS)
    assert (ErrorCode.NONE, refused.member_id) == (rig.joined(token).error, rig.joined(token).member_id)


def test_a_promised_place_is_kept_for_one_session(rig: GroupRig) -> None:
    promised = rig.joined(rig.join(requires_member_id=True)).member_id
    rig.after(SESSION_MS)
    assert ErrorCode.UNKNOWN_MEMBER_ID == rig.joined(rig.join(promised)).error
    assert "Dead" == rig.state(), "a group that nobody joined is forgotten"


def test_a_rebalance_waits_for_a_promised_place(rig: GroupRig) -> None:
    member = rig.stable()[0]
    promised = rig.joined(rig.join(requires_member_id=True)).member_id
    token = rig.join(member)
    assert token in rig.waiting
    rig.join(promised)
    assert {member, promised} == {each.member_id for each in rig.joined(token).members}


def test_a_rebalance_goes_on_when_a_promised_place_is_given_up(rig: GroupRig) -> None:
    member = rig.stable()[0]
    promised = rig.joined(rig.join(requires_member_id=True)).member_id
    token = rig.join(member)
    assert LeaveResponse(members=(LeftMember(member_id=promised),)) == rig.leave(promised)
    assert 2 == rig.joined(token).generation


def test_promises_are_bounded(rig: GroupRig) -> None:
    first = rig.joined(rig.join(requires_member_id=True)).member_id
    for _ in range(10_000):
        rig.shard.join(rig.request(requires_member_id=True), rig.now_ms, "t")
    assert ErrorCode.UNKNOWN_MEMBER_ID == rig.joined(rig.join(first)).error


# Checks of a join


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"group_id": "g" * 40_000}, ErrorCode.INVALID_GROUP_ID),
        ({"session_timeout_ms": 5_999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"client_id": "c" * 9_000}, ErrorCode.INVALID_REQUEST),
        ({"protocols": (MemberProtocol("p" * 9_000, b""),)}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_first_join_is_checked(rig: GroupRig, changes: dict[str, Any], error: ErrorCode) -> None:
    assert error == rig.joined(rig.join(**changes)).error
    assert [] == rig.shard.list_groups()


@pytest.mark.parametrize("timeout_ms", [6_000, 1_800_000])
def test_the_bounds_of_a_session_are_allowed(rig: GroupRig, timeout_ms: int) -> None:
    assert rig.join(session_timeout_ms=timeout_ms) in rig.waiting


def test_the_first_version_has_one_timeout(rig: GroupRig) -> None:
    rig.stable()
    rig.join(rebalance_timeout_ms=-1, session_timeout_ms=70_000)
    assert 70_000 == rig.shard.classic.groups["g"].members.rebalance_timeout_ms()


def test_protocols_must_meet(rig: GroupRig) -> None:
    rig.stable()
    inconsistent = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert inconsistent == rig.joined(rig.join(protocols=(MemberProtocol("sticky", b""),))).error
    assert inconsistent == rig.joined(rig.join(protocol_type="connect")).error
    assert "Stable" == rig.state()


def test_protocol_with_most_votes_wins(rig: GroupRig) -> None:
    preferences = [("a", "b", "c"), ("b", "a"), ("b", "c", "a")]
    tokens = [rig.join(protocols=tuple(MemberProtocol(each, each.encode()) for each in names)) for names in preferences]
    rig.after(2 * INITIAL_MS)
    assert ["b"] * 3 == [rig.joined(token).protocol_name for token in tokens]
    leader = rig.joined(tokens[0])
    assert tuple(JoinedMember(rig.joined(token).member_id, None, b"b") for token in tokens) == leader.members
    assert [(), ()] == [rig.joined(token).members for token in tokens[1:]]


def test_only_a_protocol_that_all_speak_can_win(rig: GroupRig) -> None:
    first = rig.join(protocols=(MemberProtocol("a", b""), MemberProtocol("b", b"")))
    rig.join(protocols=(MemberProtocol("a", b""), MemberProtocol("b", b"")))
    rig.join(protocols=(MemberProtocol("b", b""),))
    rig.after(2 * INITIAL_MS)
    assert "b" == rig.joined(first).protocol_name


def test_a_full_group_refuses() -> None:
    rig = GroupRig(MANY)
    leader, follower = rig.stable(2)
    assert JoinResponse(error=ErrorCode.GROUP_MAX_SIZE_REACHED) == rig.joined(rig.join())
    rig.join(leader)
    rig.join(follower)
    assert "CompletingRebalance" == rig.state()
    assert ErrorCode.GROUP_MAX_SIZE_REACHED == rig.joined(rig.join()).error
    rig.sync_all(2, leader, [follower])
    assert "Stable" == rig.state()


def test_a_full_group_takes_its_static_member_back() -> None:
    rig = GroupRig(MANY)
    token = rig.join(instance_id="i")
    rig.join()
    rig.after(2 * INITIAL_MS)
    leader, follower = (each.member_id for each in rig.joined(token).members)
    rig.sync_all(1, leader, [follower])
    assert ErrorCode.NONE == rig.joined(rig.join(instance_id="i")).error


def test_who_comes_last_to_an_overfull_group_is_put_out() -> None:
    rig = GroupRig()
    members = rig.stable(3)
    rig.settings = MANY
    rig.crash()
    assert "PreparingRebalance" == rig.state()
    tokens = [rig.join(member) for member in members]
    assert [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.GROUP_MAX_SIZE_REACHED] == [
        rig.joined(token).error for token in tokens
    ]
    assert "CompletingRebalance" == rig.state()


# Leave


def test_a_member_that_leaves_starts_a_rebalance(rig: GroupRig) -> None:
    leader, follower = rig.stable(2)
    assert LeaveResponse(members=(LeftMember(member_id=leader),)) == rig.leave(leader)
    assert "PreparingRebalance" == rig.state()
    assert follower == rig.joined(rig.join(follower)).leader


def test_the_last_member_that_leaves_empties_the_group(rig: GroupRig) -> None:
    members = rig.stable(2)
    assert LeaveResponse(members=tuple(LeftMember(member_id=each) for each in members)) == rig.leave(*members)
    assert "Empty" == rig.state()
    rig.crash()
    assert "Empty" == rig.state()


def test_leaving_has_an_outcome_for_each(rig: GroupRig) -> None:
    token = rig.join(instance_id="i")
    other = rig.join()
    rig.after(2 * INITIAL_MS)
    static, dynamic = rig.joined(token).member_id, rig.joined(other).member_id
    leaving = [
        ("", "i", ErrorCode.NONE),
        ("", "unknown", ErrorCode.UNKNOWN_MEMBER_ID),
        ("", None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("unknown", None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("wrong", "i", ErrorCode.FENCED_INSTANCE_ID),
        (static, "i", ErrorCode.UNKNOWN_MEMBER_ID),
        (dynamic, None, ErrorCode.NONE),
    ]
    request = LeaveRequest(
        group_id="g",
        members=tuple(LeavingMember(member_id=member, instance_id=each) for member, each, _ in leaving),
    )
    assert LeaveResponse(
        members=tuple(LeftMember(member_id=member, instance_id=each, error=error) for member, each, error in leaving)
    ) == rig.answer("leave", request)
    assert "Empty" == rig.state()


def test_leaving_an_unknown_group(rig: GroupRig) -> None:
    unknown = LeftMember(member_id="x", error=ErrorCode.UNKNOWN_MEMBER_ID)
    assert LeaveResponse(members=(unknown,)) == rig.leave("x")
    empty = LeaveRequest(group_id="", members=())
    assert LeaveResponse(error=ErrorCode.INVALID_GROUP_ID) == rig.answer("leave", empty)


def test_leaving_answers_what_waits(rig: GroupRig) -> None:
    leader, follower = rig.completing()
    token = rig.sync(follower, 1)
    rig.leave(follower)
    assert ErrorCode.UNKNOWN_MEMBER_ID == rig.responses[token].error
    token = rig.join(leader)
    assert 2 == rig.joined(token).generation


# Looking at it


def test_check_finds_a_broken_invariant(rig: GroupRig) -> None:
    member = rig.stable()[0]
    group = rig.shard.classic.groups["g"]
    group.members[member].join_token = "t"
    with pytest.raises(InvariantViolation, match=r"a join of .* waits in group g, which is Stable"):
        rig.shard.check()
    group.members[member].join_token = None
    group.members.leader = "x"
    with pytest.raises(InvariantViolation, match="led by x"):
        rig.shard.check()
