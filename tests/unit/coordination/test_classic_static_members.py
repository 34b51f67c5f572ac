"""Static members of a classic group: they return under a new id, keep their place, and fence their former selves."""

import pytest

from ottla.coordination.groups.requests import JoinedMember, JoinResponse, MemberProtocol
from ottla.model.error_codes import ErrorCode
from tests.unit.coordination.group_rig import GroupRig, subscription

INITIAL_MS = 3_000
SESSION_MS = 10_000
REBALANCE_MS = 60_000


@pytest.fixture
def rig() -> GroupRig:
    return GroupRig()


def static(rig: GroupRig, *, is_leader: bool = True) -> tuple[str, str]:
    """A stable group of a static member and a dynamic one: their ids."""
    tokens = {}
    for each in ("static", "dynamic") if is_leader else ("dynamic", "static"):
        tokens[each] = rig.join(instance_id="i" if each == "static" else None)
    rig.after(2 * INITIAL_MS)
    ids = {each: rig.joined(token).member_id for each, token in tokens.items()}
    leader = ids["static" if is_leader else "dynamic"]
    rig.sync_all(1, leader, [each for each in ids.values() if each != leader])
    assert ids["static"].startswith("i-")
    return ids["static"], ids["dynamic"]


def test_a_static_follower_returns_without_a_rebalance(rig: GroupRig) -> None:
    old, leader = static(rig, is_leader=False)
    answer = rig.joined(rig.join(instance_id="i"))
    new = answer.member_id
    assert new != old
    assert (
        JoinResponse(member_id=new, generation=1, protocol_type="consumer", protocol_name="range", leader=leader)
        == answer
    )
    assert "Stable" == rig.state()
    assert old.encode() == rig.responses[rig.sync(new, 1)].assignment


def test_a_static_leader_returns_and_is_told_not_to_assign(rig: GroupRig) -> None:
    old, follower = static(rig)
    answer = rig.joined(rig.join(instance_id="i"))
    new = answer.member_id
    assert (new, True) == (answer.leader, answer.skip_assignment)
    assert (
        JoinedMember(new, "i", subscription("t")),
        JoinedMember(follower, None, subscription("t")),
    ) == answer.members
    assert old.encode() == rig.responses[rig.sync(new, 1)].assignment


def test_an_older_static_leader_returns_as_if_it_followed(rig: GroupRig) -> None:
    old, _ = static(rig)
    answer = rig.joined(rig.join(instance_id="i", can_skip_assignment=False))
    assert (old, False, ()) == (answer.leader, answer.skip_assignment, answer.members)
    assert old.encode() == rig.responses[rig.sync(answer.member_id, 1)].assignment


def test_the_replaced_member_is_fenced(rig: GroupRig) -> None:
    old, _ = static(rig)
    rig.join(instance_id="i")
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert fenced == rig.heartbeat(old, 1, "i")
    assert fenced == rig.responses[rig.sync(old, 1, instance_id="i")].error
    assert fenced == rig.joined(rig.join(old, "i")).error
    assert fenced == rig.commit(1, 1, old, instance_id="i")
    assert ErrorCode.UNKNOWN_MEMBER_ID == rig.heartbeat(old, 1)


def test_a_returned_static_member_survives_a_failover(rig: GroupRig) -> None:
    old, _ = static(rig)
    new = rig.joined(rig.join(instance_id="i")).member_id
    rig.crash()
    assert ErrorCode.NONE == rig.heartbeat(new, 1, "i")
    assert ErrorCode.FENCED_INSTANCE_ID == rig.heartbeat(old, 1, "i")


def test_a_return_that_cannot_be_written_changes_nothing(rig: GroupRig) -> None:
    old, _ = static(rig)
    rig.writes_fail = True
    more = (MemberProtocol("range", subscription("u")), MemberProtocol("sticky", b""))
    assert ErrorCode.COORDINATOR_NOT_AVAILABLE == rig.joined(rig.join(instance_id="i", protocols=more)).error
    assert ErrorCode.NONE == rig.heartbeat(old, 1, "i")
    group = rig.shard.classic.groups.get("g")
    assert group is not None
    assert subscription("t") == group.members[old].metadata("range")
    rig.writes_fail = False
    assert ErrorCode.NONE == rig.joined(rig.join(instance_id="i")).error
    rig.after(SESSION_MS - 1)
    assert ErrorCode.FENCED_INSTANCE_ID == rig.heartbeat(old, 1, "i")


def test_a_returned_static_member_has_a_session(rig: GroupRig) -> None:
    _, follower = static(rig)
    new = rig.joined(rig.join(instance_id="i")).member_id
    rig.after(SESSION_MS - 1)
    rig.heartbeat(follower, 1)
    assert ErrorCode.NONE == rig.heartbeat(new, 1, "i")
    rig.after(SESSION_MS - 1)
    rig.heartbeat(follower, 1)
    rig.after(1)
    assert ErrorCode.UNKNOWN_MEMBER_ID == rig.heartbeat(new, 1, "i")


def test_a_returned_static_member_still_speaks_all_its_protocols(rig: GroupRig) -> None:
    both = (MemberProtocol("range", b""), MemberProtocol("sticky", b""))
    leader = rig.join(protocols=both)
    rig.join(instance_id="i", protocols=both)
    rig.after(2 * INITIAL_MS)
    rig.sync_all(1, rig.joined(leader).member_id, [rig.joined(leader).members[1].member_id])
    new = rig.joined(rig.join(instance_id="i", protocols=both)).member_id
    assert 1 == rig.joined(rig.join(new, "i", protocols=both)).generation, "nothing is new, so nothing is rebalanced"


def test_a_return_that_changes_the_protocol_rebalances(rig: GroupRig) -> None:
    both = (MemberProtocol("range", b""), MemberProtocol("sticky", b""))
    token = rig.join(instance_id="i", protocols=both)
    rig.after(INITIAL_MS)
    rig.sync_all(1, rig.joined(token).member_id)
    token = rig.join(instance_id="i", protocols=both[::-1])
    assert (2, "sticky") == (rig.joined(token).generation, rig.joined(token).protocol_name)


def test_a_return_during_the_assignment_rebalances(rig: GroupRig) -> None:
    token = rig.join(instance_id="i")
    rig.join()
    rig.after(2 * INITIAL_MS)
    old, other = (each.member_id for each in rig.joined(token).members)
    parked = rig.sync(other, 1)
    back = rig.join(instance_id="i")
    assert "PreparingRebalance" == rig.state()
    assert ErrorCode.REBALANCE_IN_PROGRESS == rig.responses[parked].error
    rig.join(other)
    assert 2 == rig.joined(back).generation
    assert ErrorCode.FENCED_INSTANCE_ID == rig.heartbeat(old, 2, "i")


def test_a_return_fences_a_sync_that_waits(rig: GroupRig) -> None:
    leader = rig.join()
    follower = rig.join(instance_id="i")
    rig.after(2 * INITIAL_MS)
    parked = rig.sync(rig.joined(follower).member_id, 1, instance_id="i")
    assert parked in rig.waiting
    rig.join(instance_id="i")
    assert ErrorCode.FENCED_INSTANCE_ID == rig.responses[parked].error
    assert ErrorCode.REBALANCE_IN_PROGRESS == rig.heartbeat(rig.joined(leader).member_id, 1)


def test_a_return_fences_what_waits(rig: GroupRig) -> None:
    first = rig.join(instance_id="i")
    second = rig.join(instance_id="i")
    assert ErrorCode.FENCED_INSTANCE_ID == rig.joined(first).error
    rig.after(INITIAL_MS)
    assert 1 == rig.joined(second).generation


def test_a_static_member_that_does_not_join_again_keeps_its_place(rig: GroupRig) -> None:
    slow = 1_000_000
    token = rig.join(instance_id="i", session_timeout_ms=slow)
    rig.after(INITIAL_MS)
    old = rig.joined(token).member_id
    rig.sync_all(1, old)
    token = rig.join()
    rig.after(REBALANCE_MS)
    answer = rig.joined(token)
    assert [old, answer.member_id] == [each.member_id for each in answer.members]
    assert answer.member_id == answer.leader
    rig.sync_all(2, answer.leader, [old])
    rig.crash()
    assert answer.leader == rig.joined(rig.join(old, "i")).leader, "who leads is written too"


@pytest.mark.parametrize("rebalance_ms", [0, REBALANCE_MS])
def test_a_group_of_absent_static_members_waits_for_them(rig: GroupRig, rebalance_ms: int) -> None:
    token = rig.join(instance_id="i", session_timeout_ms=1_000_000, rebalance_timeout_ms=rebalance_ms)
    gone = rig.join()
    rig.after(2 * INITIAL_MS)
    members = [each.member_id for each in rig.joined(token).members]
    rig.sync_all(1, members[0], members[1:])
    rig.leave(rig.joined(gone).member_id)
    rig.after(3 * REBALANCE_MS)
    assert "PreparingRebalance" == rig.state()
    back = rig.join(instance_id="i")
    assert 2 == rig.joined(back).generation
