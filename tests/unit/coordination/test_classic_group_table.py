"""What a classic group answers in each of its states, cell by cell, and each of its timers and limits.

The tables are meant to be read beside the protocol's own: state, who asks, answer, and the state that follows. How an
answer comes about is tested in `test_classic_group_state.py`, whole lives in `tests/scenarios/groups`.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

import pytest

from ottla.coordination.groups.requests import GroupSettings, MemberProtocol, NewOffset
from ottla.model.error_codes import ErrorCode
from tests.unit.coordination.group_rig import GroupRig, subscription

E, P, C, S, D = "Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead"
WAITS, JOINED, SYNCED = "waits", "joined", "synced"
OK = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
GENERATION = ErrorCode.ILLEGAL_GENERATION
REBALANCE = ErrorCode.REBALANCE_IN_PROGRESS
UNAVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE
PROTOCOL = ErrorCode.INCONSISTENT_GROUP_PROTOCOL

CHANGED = (MemberProtocol("range", subscription("t", "u")),)
WEEK_MS = 7 * 24 * 3_600_000


@dataclass
class Staged:
    """A group in some state. Its leader and its follower know who they are, wherever it is now."""

    rig: GroupRig
    members: dict[str, str] = field(default_factory=dict)
    generation: int = -1

    def outcome(self, token: Hashable) -> str | ErrorCode:
        """What came of a request."""
        if token in self.rig.waiting:
            return WAITS
        response: Any = self.rig.responses[token]
        if response.error is not OK:
            return ErrorCode(response.error)
        return SYNCED if hasattr(response, "assignment") else JOINED


def staged(state: str) -> Staged:
    """A group of two in the state, reached as groups reach it; the leader's session lasts 10 s, its rebalance 60 s."""
    rig = GroupRig()
    if state == E:
        # Somebody was here, and left: the group is written, and remembers its protocol.
        leader, follower = rig.stable(2)
        rig.leave(leader, follower)
        members = {"leader": leader, "follower": follower}
    elif state == C:
        members = dict(zip(("leader", "follower"), rig.completing(2), strict=True))
    else:
        members = dict(zip(("leader", "follower"), rig.stable(2), strict=True))
    if state == P:
        rig.join()
    group = rig.shard.classic.groups.get("g")
    assert group is not None
    generation = group.generation
    if state == D:
        group.on_unloaded(ErrorCode.NOT_COORDINATOR)
    assert state == rig.state()
    return Staged(rig, members, generation)


@pytest.mark.parametrize(
    ("state", "who", "answer", "then"),
    [
        (E, "somebody new", WAITS, P),
        (E, "an unknown id", UNKNOWN, E),
        (P, "somebody new", WAITS, P),
        (P, "an unknown id", UNKNOWN, P),
        (P, "the leader", WAITS, P),
        (P, "the follower", WAITS, P),
        (P, "everybody", JOINED, C),
        (C, "the leader", JOINED, C),
        (C, "the follower", JOINED, C),
        (C, "the leader, changed", WAITS, P),
        (C, "the follower, changed", WAITS, P),
        (C, "somebody new", WAITS, P),
        (C, "an unknown id", UNKNOWN, C),
        (S, "the leader", WAITS, P),
        (S, "the leader, changed", WAITS, P),
        (S, "the follower", JOINED, S),
        (S, "the follower, changed", WAITS, P),
        (S, "somebody new", WAITS, P),
        (S, "an unknown id", UNKNOWN, S),
        (D, "somebody new", UNAVAILABLE, D),
        (D, "the leader", UNAVAILABLE, D),
        (D, "an unknown id", UNAVAILABLE, D),
    ],
)
def test_join(state: str, who: str, answer: str | ErrorCode, then: str) -> None:
    group = staged(state)
    protocols = CHANGED if who.endswith(", changed") else group.rig.request().protocols
    names = {"somebody new": "", "an unknown id": "stranger", "everybody": group.members["leader"]}
    names |= {f"the {role}": member_id for role, member_id in group.members.items()}
    if who == "everybody":
        group.rig.join(group.members["follower"])
    token = group.rig.join(names[who.removesuffix(", changed")], protocols=protocols)
    assert (answer, then) == (group.outcome(token), group.rig.state())


@pytest.mark.parametrize(("state", "who"), [(C, "leader"), (C, "follower"), (S, "follower")])
def test_a_member_that_brings_nothing_new_is_answered_as_before(state: str, who: str) -> None:
    group = staged(state)
    token = group.rig.join(group.members[who])
    joined = group.rig.joined(token)
    everyone = list(group.members.values()) if who == "leader" else []
    assert (group.generation, group.members[who], group.members["leader"], everyone) == (
        joined.generation,
        joined.member_id,
        joined.leader,
        [each.member_id for each in joined.members],
    )


@pytest.mark.parametrize(
    ("state", "who", "answer", "then"),
    [
        (E, "leader", UNKNOWN, E),
        (E, "follower", UNKNOWN, E),
        (P, "leader", REBALANCE, P),
        (P, "follower", REBALANCE, P),
        (C, "follower", WAITS, C),
        (C, "leader", SYNCED, S),
        (S, "leader", SYNCED, S),
        (S, "follower", SYNCED, S),
        (D, "leader", UNAVAILABLE, D),
    ],
)
def test_sync(state: str, who: str, answer: str | ErrorCode, then: str) -> None:
    group = staged(state)
    token = group.rig.sync(group.members[who], group.generation, {group.members[who]: b"all"})
    assert (answer, then) == (group.outcome(token), group.rig.state())


@pytest.mark.parametrize(
    ("state", "says", "answer"),
    [
        *((state, {"member_id": "stranger"}, UNKNOWN) for state in (P, C, S)),
        *((state, {"generation": 0}, GENERATION) for state in (P, C, S)),
        *((state, {"generation": 9}, GENERATION) for state in (P, C, S)),
        *((state, {"protocol_type": "connect"}, PROTOCOL) for state in (P, C, S)),
        *((state, {"protocol_name": "sticky"}, PROTOCOL) for state in (P, C, S)),
    ],
)
def test_a_sync_is_checked_in_every_state(state: str, says: dict[str, Any], answer: ErrorCode) -> None:
    group = staged(state)
    token = group.rig.sync(group.members["leader"], group.generation, None, **says)
    assert (answer, state) == (group.outcome(token), group.rig.state())


@pytest.mark.parametrize(
    ("state", "answer"), [(E, UNKNOWN), (P, REBALANCE), (C, OK), (S, OK), (D, UNAVAILABLE)], ids=[E, P, C, S, D]
)
def test_heartbeat(state: str, answer: ErrorCode) -> None:
    group = staged(state)
    assert answer == group.rig.heartbeat(group.members["follower"], group.generation)
    assert state == group.rig.state()


@pytest.mark.parametrize("state", [P, C, S])
def test_a_heartbeat_is_checked_in_every_state(state: str) -> None:
    group = staged(state)
    said = [("stranger", group.generation), (group.members["leader"], 0), (group.members["leader"], 9)]
    assert [UNKNOWN, GENERATION, GENERATION] == [group.rig.heartbeat(*each) for each in said]


@pytest.mark.parametrize(
    ("state", "member", "no_member", "other_generation", "unknown"),
    [
        (E, UNKNOWN, OK, UNKNOWN, UNKNOWN),
        (P, OK, UNKNOWN, GENERATION, UNKNOWN),
        (C, REBALANCE, UNKNOWN, GENERATION, UNKNOWN),
        (S, OK, UNKNOWN, GENERATION, UNKNOWN),
        (D, UNAVAILABLE, UNAVAILABLE, UNAVAILABLE, UNAVAILABLE),
    ],
)
def test_commit(
    state: str, member: ErrorCode, no_member: ErrorCode, other_generation: ErrorCode, unknown: ErrorCode
) -> None:
    group = staged(state)
    name, generation = group.members["follower"], group.generation
    outcomes = [
        group.rig.commit(1, *who) for who in ((generation, name), (-1, ""), (9, name), (generation, "stranger"))
    ]
    assert [member, no_member, other_generation, unknown] == outcomes
    assert (1 if OK in outcomes else -1) == group.rig.offset()


@pytest.mark.parametrize(
    ("state", "member", "silent", "other_generation"),
    [
        (E, UNKNOWN, OK, UNKNOWN),
        (P, OK, OK, GENERATION),
        (C, OK, OK, GENERATION),
        (S, OK, OK, GENERATION),
        (D, UNAVAILABLE, UNAVAILABLE, UNAVAILABLE),
    ],
)
def test_commit_in_a_transaction(state: str, member: ErrorCode, silent: ErrorCode, other_generation: ErrorCode) -> None:
    group = staged(state)
    name, generation = group.members["follower"], group.generation
    said: list[dict[str, Any]] = [
        {"generation": generation, "member_id": name},
        {},
        {"generation": 9, "member_id": name},
    ]
    assert [member, silent, other_generation] == [group.rig.commit_in_transaction(1, 7, **each) for each in said]


def test_a_group_that_nobody_knows() -> None:
    rig = GroupRig()
    joined, synced = rig.join("a"), rig.sync("a", 1)
    group = Staged(rig)
    assert [UNKNOWN, UNKNOWN] == [group.outcome(joined), group.outcome(synced)]
    assert UNKNOWN == rig.heartbeat("a", 1)
    assert UNKNOWN == rig.leave("a").members[0].error
    assert ErrorCode.GROUP_ID_NOT_FOUND == rig.commit(1, 1, "a")
    assert GENERATION == rig.commit(1, 1, "a", knows_group_not_found=False)
    assert OK == rig.commit(1)


# Timers


@pytest.mark.parametrize(
    ("arrivals_ms", "complete_ms"),
    [
        ([0], 3_000),
        ([0, 2_999], 6_000),
        ([0, 2_999, 5_999], 9_000),
        ([0, 3_000], 6_000),
        ([0, *range(2_000, 60_000, 2_000)], 60_000),
    ],
)
def test_an_initial_rebalance_waits_while_members_arrive(arrivals_ms: list[int], complete_ms: int) -> None:
    """Three seconds at a time, but not longer than the first member's rebalance timeout."""
    rig = GroupRig()
    start_ms = rig.now_ms
    for arrival_ms in arrivals_ms:
        rig.after(start_ms + arrival_ms - rig.now_ms - 1)
        rig.now_ms += 1
        rig.join(client_id=str(arrival_ms))
    rig.after(start_ms + complete_ms - rig.now_ms - 1)
    assert P == rig.state()
    rig.after(1)
    assert C == rig.state()


def test_a_join_phase_lasts_as_long_as_the_most_patient_member_wants() -> None:
    rig = GroupRig()
    patient = rig.join(rebalance_timeout_ms=90_000, session_timeout_ms=200_000)
    rig.join(rebalance_timeout_ms=30_000, session_timeout_ms=200_000)
    rig.after(6_000)
    leader = rig.joined(patient).member_id
    rig.sync_all(1, leader)
    newcomer = rig.join()
    rig.after(89_999)
    assert (P, True) == (rig.state(), newcomer in rig.waiting)
    rig.after(1)
    assert C == rig.state()
    assert [rig.joined(newcomer).member_id] == [each.member_id for each in rig.joined(newcomer).members]
    assert UNKNOWN == rig.heartbeat(leader, 2)


def test_who_never_syncs_goes_after_the_rebalance_timeout() -> None:
    rig = GroupRig()
    tokens = [rig.join(session_timeout_ms=200_000) for _ in range(2)]
    rig.after(6_000)
    leader, follower = (rig.joined(token).member_id for token in tokens)
    rig.sync(leader, 1, {leader: b"all"})
    rig.after(59_999)
    assert S == rig.state()
    rig.after(1)
    assert (P, UNKNOWN) == (rig.state(), rig.heartbeat(follower, 1))


@pytest.mark.parametrize("sign", ["join", "sync", "heartbeat", "commit", "nothing"])
def test_signs_of_life(sign: str) -> None:
    group = staged(S)
    rig, follower = group.rig, group.members["follower"]
    rig.after(9_000)
    rig.heartbeat(group.members["leader"], group.generation)
    match sign:
        case "join":
            rig.join(follower)
        case "sync":
            rig.sync(follower, group.generation)
        case "heartbeat":
            rig.heartbeat(follower, group.generation)
        case "commit":
            rig.commit(1, group.generation, follower)
    rig.after(9_999)
    members = rig.shard.classic.groups.get("g")
    assert members is not None
    assert (sign != "nothing") == (follower in members.members)
    rig.after(1)
    assert follower not in members.members


def test_a_heartbeat_while_the_group_rebalances_is_a_sign_of_life() -> None:
    group = staged(P)
    follower = group.members["follower"]
    group.rig.after(9_000)
    assert REBALANCE == group.rig.heartbeat(follower, group.generation)
    group.rig.after(9_999)
    assert REBALANCE == group.rig.heartbeat(follower, group.generation)
    group.rig.after(10_000)
    assert UNKNOWN == group.rig.heartbeat(follower, group.generation)


@pytest.mark.parametrize(
    ("session_ms", "answer"),
    [
        (5_999, ErrorCode.INVALID_SESSION_TIMEOUT),
        (6_000, WAITS),
        (1_800_000, WAITS),
        (1_800_001, ErrorCode.INVALID_SESSION_TIMEOUT),
        (0, ErrorCode.INVALID_SESSION_TIMEOUT),
        (-1, ErrorCode.INVALID_SESSION_TIMEOUT),
    ],
)
def test_sessions_have_limits(session_ms: int, answer: str | ErrorCode) -> None:
    rig = GroupRig()
    assert answer == Staged(rig).outcome(rig.join(session_timeout_ms=session_ms))


def test_syncs_that_wait_are_told_of_a_new_rebalance() -> None:
    group = staged(C)
    waiting = group.rig.sync(group.members["follower"], group.generation)
    group.rig.join()
    assert REBALANCE == group.outcome(waiting)


@pytest.mark.parametrize("state", [P, C, S])
def test_a_full_group(state: str) -> None:
    settings = GroupSettings(group_size_max=2)
    rig = GroupRig(settings)
    leader = (rig.completing(2) if state == C else rig.stable(2))[0]
    if state == P:
        # While members join again, it is full when so many have.
        rig.join(leader)
    assert state == rig.state()
    first = Staged(rig).outcome(rig.join())
    second = Staged(rig).outcome(rig.join())
    full = ErrorCode.GROUP_MAX_SIZE_REACHED
    assert ((WAITS, full) if state == P else (full, full)) == (first, second)


@pytest.mark.parametrize("state", [P, C, S])
def test_a_fenced_instance(state: str) -> None:
    rig = GroupRig()
    token = rig.join("", "i")
    rig.after(3_000)
    old = rig.joined(token).member_id
    if state != C:
        rig.sync_all(1, old)
    if state == P:
        rig.join()
    rig.join("", "i")
    asked = (rig.join(old, "i"), rig.sync(old, 1, None, instance_id="i"))
    answers = [rig.responses[token].error for token in asked]
    answers += [rig.heartbeat(old, 1, "i"), rig.commit(1, 1, old, instance_id="i")]
    assert [ErrorCode.FENCED_INSTANCE_ID] * 4 == answers


def test_offsets_expire_a_week_after_the_group_is_empty() -> None:
    group = staged(S)
    rig = group.rig
    assert OK == rig.commit(1, group.generation, group.members["leader"])
    rig.after(9_000)
    rig.leave(*group.members.values())
    rig.after(WEEK_MS - 1)
    assert (1, E) == (rig.offset(), rig.state())
    # They are looked for every ten minutes.
    rig.after(600_000)
    assert (-1, D) == (rig.offset(), rig.state())


def test_offsets_that_a_group_in_use_does_not_consume_expire_a_week_after_their_commit() -> None:
    group = staged(S)
    rig, leader = group.rig, group.members["leader"]
    offsets = tuple(NewOffset(topic=topic, partition=0, offset=1) for topic in ("t", "u"))
    assert OK == rig.commit(0, group.generation, leader, offsets=offsets)
    end_ms = rig.now_ms + WEEK_MS + 600_000
    rig.leave(group.members["follower"])
    rig.join(leader, session_timeout_ms=1_800_000)
    rig.sync_all(2, leader)
    while rig.now_ms < end_ms:
        assert OK == rig.heartbeat(leader, 2)
        rig.after(1_799_000)
    assert (1, -1) == (rig.offset("t"), rig.offset("u"))
