"""All groups of a partition: finding them, looking at them, timers of many, and records of other machines."""

from dataclasses import replace

import pytest

from ottla.coordination.groups.group_kind import (
    ALLOWED,
    AnyCommit,
    CommitVerdict,
    ExpiringGroup,
    Subscribes,
    Topics,
)
from ottla.coordination.groups.records import group_tombstone, offset_tombstone
from ottla.coordination.groups.requests import (
    DeleteGroupRequest,
    DescribedGroup,
    DescribedMember,
    LeaveRequest,
    LeavingMember,
    ListedGroup,
    MemberProtocol,
    NewOffset,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    PartitionOutcome,
    WantedPartition,
)
from ottla.coordination.runtime.effects import CoordinatorRecord, Effect, Write
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import CorruptError
from ottla.model.invariants import InvariantViolation
from tests.unit.coordination.group_rig import GroupRig, subscription

INITIAL_MS = 3_000
SESSION_MS = 10_000


@pytest.fixture
def rig() -> GroupRig:
    return GroupRig()


def test_describe_a_stable_group(rig: GroupRig) -> None:
    member = rig.stable()[0]
    described = DescribedGroup(
        group_id="g",
        state="Stable",
        protocol_type="consumer",
        protocol="range",
        members=(
            DescribedMember(
                member_id=member,
                instance_id=None,
                client_id="c",
                client_host="/h",
                metadata=subscription("t"),
                assignment=b"\0",
            ),
        ),
    )
    assert described == rig.shard.describe_group("g")
    rig.join(member, protocols=(MemberProtocol("range", subscription("u")),))
    assert replace(
        described, state="CompletingRebalance", protocol="", members=(replace(described.members[0], metadata=b""),)
    ) == rig.shard.describe_group("g")


def test_describe_an_unknown_group(rig: GroupRig) -> None:
    assert DescribedGroup(
        group_id="g",
        state="Dead",
        error=ErrorCode.GROUP_ID_NOT_FOUND,
        error_message="Group g not found.",
    ) == rig.shard.describe_group("g")


def test_list_by_state_and_type(rig: GroupRig) -> None:
    rig.stable()
    rig.commit(1, group_id="simple")
    rig.join(group_id="joining", protocol_type="connect")
    stable = ("g", "consumer", "Stable", "classic")
    simple = ("simple", "", "Empty", "classic")
    joining = ("joining", "connect", "PreparingRebalance", "classic")
    for states, types, expected in (
        ((), (), [stable, simple, joining]),
        (("stable",), (), [stable]),
        (("Empty", " PREPARINGREBALANCE "), ("Classic",), [simple, joining]),
        (("Dead", "Assigning"), (), []),
        ((), ("consumer", "share"), []),
    ):
        assert expected == rig.shard.list_groups(states, types)


def test_member_ids_come_from_the_clients_name(rig: GroupRig) -> None:
    dynamic = rig.joined(rig.join(client_id="app", requires_member_id=True)).member_id
    assert ("app-", 40) == (dynamic[:4], len(dynamic))
    rig.join(client_id="x" * 5_000, instance_id="i" * 249)
    rig.after(INITIAL_MS)
    static = rig.shard.describe_group("g").members[0].member_id
    assert 237 == len(static)


def test_one_tick_serves_all_groups_and_each_writes_once(rig: GroupRig) -> None:
    tokens = [rig.join(group_id=group_id) for group_id in ("a", "b") for _ in range(2)]
    rig.after(2 * INITIAL_MS)
    assert [ErrorCode.NONE] * 4 == [rig.joined(token).error for token in tokens]
    rig.now_ms += SESSION_MS
    effects = rig.shard.on_tick(rig.now_ms)
    rig.run(effects)
    writes = [effect for effect in effects if isinstance(effect, Write)]
    assert 2 == len(writes)
    rig.after(0)
    assert ["Empty", "Empty"] == [rig.state("a"), rig.state("b")]


def test_a_tick_before_its_time_does_nothing(rig: GroupRig) -> None:
    rig.join()
    assert rig.now_ms + INITIAL_MS == rig.shard.next_deadline()
    assert [] == rig.shard.on_tick(rig.now_ms + INITIAL_MS - 1)


@pytest.mark.parametrize("leap_ms", [3_600_000, -3_600_000])
def test_a_clock_that_is_set_throws_nobody_out_and_keeps_nobody(rig: GroupRig, leap_ms: int) -> None:
    member, _ = rig.stable(2)
    rig.after(SESSION_MS - 2)
    rig.heartbeat(member, 1)
    rig.shard.on_clock_set(leap_ms)
    rig.now_ms += leap_ms
    rig.after(1)
    assert "Stable" == rig.state()
    rig.after(1)
    assert "PreparingRebalance" == rig.state(), "the other one was silent for a session"


def test_what_is_due_behind_a_write_waits_for_it(rig: GroupRig) -> None:
    """A rebalance that nobody joined and a promised place end in the same instant: the group is written empty once."""
    member = rig.stable()[0]
    joining = rig.join()
    rig.leave(*(each.member_id for each in rig.shard.describe_group("g").members if each.member_id != member))
    assert ErrorCode.UNKNOWN_MEMBER_ID == rig.joined(joining).error
    for _ in range(10):
        rig.after(5_000)
        rig.heartbeat(member, 1)
    rig.join(requires_member_id=True)
    rig.after(5_000)
    rig.heartbeat(member, 1)
    rig.now_ms += 5_000
    written = len(rig.log)
    effects = rig.shard.on_tick(rig.now_ms)
    assert 1 == len(effects)
    rig.run(effects)
    assert "Empty" == rig.state()
    assert rig.now_ms == rig.shard.next_deadline(), "the promise is still due"
    rig.after(0)
    assert written + 1 == len(rig.log)
    group = rig.shard.classic.groups.get("g")
    assert group is not None
    assert {} == group.members.promised


def test_records_of_newer_protocols_are_left_alone(rig: GroupRig) -> None:
    for kind in (3, 5, 16, 17, 99):
        assert not rig.shard.classic.replay(CoordinatorRecord(kind.to_bytes(2) + b"\0\1g", b"\0\0\0\0\0\1"))
    for kind in (30, 99):
        assert not rig.shard.replay(CoordinatorRecord(kind.to_bytes(2) + b"\0\1g", b"\0\0\0\0\0\1"))
    assert [] == rig.shard.list_groups()


def test_damaged_records_say_so(rig: GroupRig) -> None:
    with pytest.raises(CorruptError, match="a classic group"):
        rig.shard.replay(CoordinatorRecord(b"\0\2\0\1g", b"\0\3\0"))


def test_offsets_whose_group_was_deleted_have_a_group_again_when_loaded(rig: GroupRig) -> None:
    rig.commit(1)
    rig.run([Write((group_tombstone("g"),))])
    rig.crash()
    assert [("g", "", "Empty", "classic")] == rig.shard.list_groups()


def test_groups_do_not_mix(rig: GroupRig) -> None:
    rig.stable()
    rig.commit(7, group_id="other")
    assert -1 == rig.offset()
    request = LeaveRequest(group_id="other", members=(LeavingMember(member_id="c"),))
    assert ErrorCode.UNKNOWN_MEMBER_ID == rig.answer("leave", request).members[0].error
    assert "Stable" == rig.state()


def test_a_busy_group_is_cheap_to_ask_for_its_deadline(rig: GroupRig) -> None:
    """A heartbeat moves a deadline without another entry in the queue: memory does not grow with them."""
    member = rig.stable()[0]
    queue = rig.shard.classic._deadlines.queued
    before = len(queue)
    for _ in range(1_000):
        rig.now_ms += 1
        rig.heartbeat(member, 1)
    assert before == len(queue)


# Groups of another kind


class OtherKind:
    """A kind of group that has group g, and says of it what a test wants."""

    type = "other"
    record_types = frozenset[int]()

    def __init__(self, verdict: CommitVerdict, subscribed: str) -> None:
        self.verdict = verdict
        self.subscribed = subscribed
        self.commits: list[str] = []
        self.groups = {"g": None}

    def commit_verdict(self, request: AnyCommit, *, is_transactional: bool) -> CommitVerdict:
        return self.verdict

    def on_commit(self, group_id: str, member_id: str, now_ms: int) -> None:
        self.commits.append(member_id)

    def fetch_refusal(self, request: OffsetFetchRequest) -> ErrorCode:
        return ErrorCode.NONE

    def offset_delete_refusal(self, group_id: str) -> ErrorCode:
        return ErrorCode.NONE

    def subscription_of(self, group_id: str) -> Subscribes:
        return lambda topic: topic == self.subscribed

    def expiring_groups(self) -> list[ExpiringGroup]:
        return [ExpiringGroup("g", self.subscription_of("g"), None, is_deletable=True)]

    def delete_refusal(self, group_id: str) -> ErrorCode:
        return ErrorCode.NONE

    def deletion_records(self, group_id: str) -> tuple[CoordinatorRecord, ...]:
        return (group_tombstone(group_id),)

    def listed(self) -> list[ListedGroup]:
        return [ListedGroup("g", "", "Stable", "other")]

    def replay(self, record: CoordinatorRecord) -> bool:
        return False

    def on_loaded(self, now_ms: int) -> list[Effect]:
        return []

    def on_unloaded(self) -> list[Effect]:
        return []

    def on_metadata(self, topics: Topics) -> None: ...

    def next_deadline(self) -> int | None:
        return None

    @property
    def queued_deadlines(self) -> tuple[()]:
        return ()

    def on_clock_set(self, by_ms: int) -> None: ...

    def on_tick(self, now_ms: int) -> list[Effect]:
        return []

    def check(self) -> None: ...


def with_other_kind(rig: GroupRig, verdict: CommitVerdict = ALLOWED, subscribed: str = "") -> OtherKind:
    """The rig's shard with a further kind, which has group g."""
    kind = OtherKind(verdict, subscribed)
    rig.shard.kinds.append(kind)
    return kind


@pytest.mark.parametrize("refusal", [ErrorCode.NONE, ErrorCode.STALE_MEMBER_EPOCH])
def test_the_kind_of_a_group_judges_its_members(rig: GroupRig, refusal: ErrorCode) -> None:
    kind = with_other_kind(rig, CommitVerdict(error=refusal))
    offsets = (NewOffset(topic="t", partition=0, offset=5),)
    request = OffsetCommitRequest(group_id="g", generation=7, member_id="m", offsets=offsets)
    rig.waiting["commit"] = request
    rig.run(rig.shard.commit_offsets(request, rig.now_ms, "commit"))
    assert (PartitionOutcome("t", 0, refusal),) == rig.responses["commit"].partitions
    assert (5 if refusal is ErrorCode.NONE else -1) == rig.offset()
    assert (["m"] if refusal is ErrorCode.NONE else []) == kind.commits
    assert ["other"] == [group.type for group in rig.shard.list_groups()], "its group is not a classic one"
    assert [] == rig.shard.list_groups(types=["classic"])
    assert "Group g is not a classic group." == rig.shard.describe_group("g").error_message


def test_offsets_of_a_group_of_any_kind_are_deleted_and_expire(rig: GroupRig) -> None:
    with_other_kind(rig, subscribed="t")
    for topic in ("t", "u", "v"):
        new = NewOffset(topic=topic, partition=0, offset=5)
        rig.waiting[topic] = OffsetCommitRequest(group_id="g", offsets=(new,))
        rig.run(rig.shard.commit_offsets(rig.waiting[topic], rig.now_ms, topic))
    wanted = (WantedPartition("t", 0), WantedPartition("u", 0))
    rig.waiting["delete"] = OffsetDeleteRequest(group_id="g", partitions=wanted)
    rig.run(rig.shard.delete_offsets(rig.waiting["delete"], rig.now_ms, "delete"))
    assert [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE] == [
        each.error for each in rig.responses["delete"].partitions
    ]
    assert [5, -1, 5] == [rig.offset("t"), rig.offset("u"), rig.offset("v")]
    week_ms = rig.settings.offsets_retention_ms
    assert [] == rig.shard.on_tick(rig.now_ms + week_ms - 1)
    check_ms = rig.settings.offsets_check_interval_ms
    assert [Write((offset_tombstone("g", "v", 0),))] == rig.shard.on_tick(rig.now_ms + week_ms + check_ms)


def test_a_group_of_any_kind_is_deleted_with_its_offsets(rig: GroupRig) -> None:
    with_other_kind(rig)
    new = NewOffset(topic="t", partition=0, offset=5)
    rig.waiting["commit"] = OffsetCommitRequest(group_id="g", offsets=(new,))
    rig.run(rig.shard.commit_offsets(rig.waiting["commit"], rig.now_ms, "commit"))
    effects = rig.shard.delete_group(DeleteGroupRequest(group_id="g"), rig.now_ms, "delete")
    assert [(offset_tombstone("g", "t", 0), group_tombstone("g"))] == [
        effect.records for effect in effects if isinstance(effect, Write)
    ]


def test_a_group_is_given_up_and_its_offsets_stay(rig: GroupRig) -> None:
    rig.commit(5)
    rig.stable()
    group = rig.shard.classic.groups.get("g")
    assert group is not None
    rig.shard.classic.give_up("g")
    assert (None, 5) == (rig.shard.classic.groups.get("g"), rig.offset())
    rig.after(SESSION_MS)
    assert "Dead" == group.state.value


def test_a_group_that_is_waited_for_cannot_be_given_up(rig: GroupRig) -> None:
    rig.join()
    with pytest.raises(InvariantViolation, match="given up while its members wait"):
        rig.shard.classic.give_up("g")
