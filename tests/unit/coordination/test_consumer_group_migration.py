"""Groups that change their protocol, empty or with members, and members of both kinds in one group."""

import pytest

from ottla.coordination.groups.classic.generations_state import GroupState as ClassicState
from ottla.coordination.groups.consumer.group import GroupState
from ottla.coordination.groups.consumer.requests import ConsumerGroupConfig, MigrationPolicy
from ottla.coordination.groups.requests import (
    LeaveRequest,
    LeavingMember,
    LeftMember,
    MemberProtocol,
)
from ottla.model.error_codes import ErrorCode
from tests.unit.coordination.consumer_group_driver import FOO
from tests.unit.coordination.consumer_offsets_driver import ShardDriver, assignment, subscription

ALL_FOO = {FOO: (0, 1, 2, 3)}


def leave(driver: ShardDriver, *members: LeavingMember) -> tuple[LeftMember, ...]:
    request = LeaveRequest(group_id="g", members=members)
    response = driver.ask(driver.shard.leave(request, driver.now_ms, "t"))
    assert ErrorCode.NONE is response.error
    left: tuple[LeftMember, ...] = response.members
    return left


# Empty groups


def test_an_empty_classic_group_makes_room() -> None:
    driver = ShardDriver(ConsumerGroupConfig(migration_policy=MigrationPolicy.DISABLED))
    member_id = driver.stable_classic()
    leave(driver, LeavingMember(member_id=member_id))
    assert ALL_FOO == driver.consume("n").assignment
    assert driver.shard.classic.groups.get("g") is None
    driver.reload()
    assert ["n"] == list(driver.consumers["g"].members)
    assert driver.shard.classic.groups.get("g") is None


def test_an_empty_server_side_group_makes_room() -> None:
    driver = ShardDriver(ConsumerGroupConfig(migration_policy=MigrationPolicy.DISABLED))
    driver.consume("n")
    driver.beat("n", -1)
    driver.stable_classic()
    assert {} == driver.consumers
    driver.reload()
    classic = driver.shard.classic.groups.get("g")
    assert classic is not None
    assert ClassicState.STABLE is classic.state


# From classic to server-side, with members


def test_a_classic_group_becomes_a_server_side_one_with_its_members() -> None:
    driver = ShardDriver()
    old = driver.stable_classic()
    response = driver.consume("n")
    assert (2, {}) == (response.member_epoch, response.assignment)
    group = driver.consumers["g"]
    assert {FOO: {0: 1, 1: 1, 2: 1, 3: 1}} == group.members[old].assigned
    assert GroupState.RECONCILING is group.state
    assert driver.shard.classic.groups.get("g") is None

    # The old member hears of it, joins and gives up two, joins again and is where the others are.
    assert ErrorCode.REBALANCE_IN_PROGRESS is driver.classic_beat(old, 1)
    owned = {"foo": (0, 1, 2, 3)}
    joined = driver.join(old, subscription("foo", owned=owned))
    assert joined is not None
    assert (ErrorCode.NONE, 1, "range", "") == (joined.error, joined.generation, joined.protocol_name, joined.leader)
    assert {"foo": (0, 1)} == driver.synced(old, 1)
    assert driver.beat("n", 2).assignment is None
    joined = driver.join(old, subscription("foo", owned={"foo": (0, 1)}))
    assert joined is not None
    assert 2 == joined.generation
    assert {"foo": (0, 1)} == driver.synced(old, 2)
    assert {FOO: (2, 3)} == driver.beat("n", 2).assignment
    assert ErrorCode.NONE is driver.classic_beat(old, 2)
    assert GroupState.STABLE is driver.consumers["g"].state
    before = driver.consumers["g"].members
    driver.reload()
    assert before == driver.consumers["g"].members


def test_who_waits_for_the_classic_group_is_sent_to_the_new_one() -> None:
    driver = ShardDriver()
    old = driver.stable_classic()
    known = driver.join("", subscription("foo"), token="k")
    assert known is not None
    assert driver.join(known.member_id, subscription("foo"), token="waiting") is None
    driver.consume("n")
    assert ErrorCode.REBALANCE_IN_PROGRESS is driver.answers.pop("waiting").error
    assert {old, known.member_id, "n"} == set(driver.consumers["g"].members)


def test_a_refused_heartbeat_leaves_the_classic_group_alone() -> None:
    driver = ShardDriver()
    driver.stable_classic()
    known = driver.join("", subscription("foo"), token="k")
    assert known is not None
    assert driver.join(known.member_id, subscription("foo"), token="waiting") is None
    refused = driver.consume("n", topic_names=None, topic_regex="(")
    assert ErrorCode.INVALID_REGULAR_EXPRESSION is refused.error
    assert "waiting" not in driver.answers
    assert {} == driver.consumers


@pytest.mark.parametrize("policy", [MigrationPolicy.DISABLED, MigrationPolicy.DOWNGRADE])
def test_a_policy_may_forbid_the_upgrade(policy: MigrationPolicy) -> None:
    driver = ShardDriver(ConsumerGroupConfig(migration_policy=policy))
    driver.stable_classic()
    response = driver.consume("n")
    assert ErrorCode.GROUP_ID_NOT_FOUND is response.error
    assert "upgrade is disabled" in (response.error_message or "")


def test_a_group_larger_than_allowed_is_not_upgraded() -> None:
    driver = ShardDriver(ConsumerGroupConfig(max_size=0))
    driver.stable_classic()
    assert ErrorCode.GROUP_ID_NOT_FOUND is driver.consume("n").error


def test_data_of_a_custom_assignor_is_not_thrown_away() -> None:
    driver = ShardDriver()
    driver.stable_classic(user_data=b"precious")
    response = driver.consume("n")
    assert ErrorCode.GROUP_ID_NOT_FOUND is response.error
    assert "custom assignor" in (response.error_message or "")


def test_a_group_that_is_no_consumers_is_not_upgraded() -> None:
    driver = ShardDriver()
    connect = {"protocol_type": "connect", "requires_member_id": False}
    driver.join("", b"opaque", **connect)
    response = driver.consume("n")
    assert ErrorCode.GROUP_ID_NOT_FOUND is response.error


def test_partitions_that_do_not_exist_are_not_taken_over() -> None:
    driver = ShardDriver()
    old = driver.stable_classic(partitions={"foo": (0, 0, 9), "gone": (1,)})
    driver.consume("n")
    assert {FOO: {0: 1}} == driver.consumers["g"].members[old].assigned


def test_a_leader_that_gave_a_partition_away_twice_is_not_believed() -> None:
    driver = ShardDriver()
    first = driver.stable_classic()
    known = driver.join("", subscription("foo"))
    assert known is not None
    assert driver.join(known.member_id, subscription("foo"), token="second") is None
    joined = driver.join(first, subscription("foo"))
    assert joined is not None
    everything = assignment({"foo": (0, 1, 2, 3)})
    both = ((first, everything), (known.member_id, everything))
    assert ErrorCode.NONE is driver.sync(first, joined.generation, both).error
    driver.consume("n")
    members = driver.consumers["g"].members
    assert (4, {}) == (len(members[first].assigned[FOO]), members[known.member_id].assigned)


def test_a_malformed_subscription_stays_classic() -> None:
    driver = ShardDriver()
    driver.join("", b"\0\1\0", requires_member_id=False)
    response = driver.consume("n")
    assert "malformed" in (response.error_message or "")


# Members of both kinds


def mixed(config: ConsumerGroupConfig | None = None) -> tuple[ShardDriver, str]:
    """A stable group of one old and one new member, two partitions each."""
    driver = ShardDriver(config)
    old = driver.stable_classic()
    driver.consume("n")
    driver.join(old, subscription("foo"))
    driver.synced(old, 2)
    assert {FOO: (2, 3)} == driver.beat("n", 2).assignment
    return driver, old


def test_an_old_member_that_gives_up_everything_before_joining_moves_on_at_once() -> None:
    driver, old = mixed()
    assert GroupState.STABLE is driver.consumers["g"].state
    assert {FOO: {0: 1, 1: 1}} == driver.consumers["g"].members[old].assigned


def test_an_old_member_is_called_back_when_what_it_waits_for_is_free() -> None:
    driver, old = mixed()
    driver.beat("n", 2, topic_names=("bar",), owned_partitions={FOO: (2, 3)})
    assert ErrorCode.REBALANCE_IN_PROGRESS is driver.classic_beat(old, 2)
    joined = driver.join(old, subscription("foo", owned={"foo": (0, 1)}))
    assert joined is not None
    assert {"foo": (0, 1)} == driver.synced(old, joined.generation)
    assert ErrorCode.NONE is driver.classic_beat(old, joined.generation)
    driver.beat("n", 2, owned_partitions={})
    assert ErrorCode.REBALANCE_IN_PROGRESS is driver.classic_beat(old, joined.generation)
    joined = driver.join(old, subscription("foo", owned={"foo": (0, 1)}))
    assert joined is not None
    assert {"foo": (0, 1, 2, 3)} == driver.synced(old, joined.generation)


def test_a_new_old_style_member_joins_a_mixed_group() -> None:
    driver, _ = mixed()
    known = driver.join("", subscription("foo"))
    assert known is not None
    assert ErrorCode.MEMBER_ID_REQUIRED is known.error
    joined = driver.join(known.member_id, subscription("foo"))
    assert joined is not None
    assert (ErrorCode.NONE, 3) == (joined.error, joined.generation)
    assert {} == driver.synced(known.member_id, 3)


def test_old_members_must_share_a_protocol() -> None:
    driver, _ = mixed()
    other = (MemberProtocol("sticky", subscription("foo")),)
    joined = driver.join("", b"", protocols=other)
    assert joined is not None
    assert ErrorCode.INCONSISTENT_GROUP_PROTOCOL is joined.error
    joined = driver.join("", subscription("foo"), protocol_type="connect")
    assert joined is not None
    assert ErrorCode.INCONSISTENT_GROUP_PROTOCOL is joined.error
    joined = driver.join("", b"\0\1\0", requires_member_id=False)
    assert joined is not None
    assert ErrorCode.INCONSISTENT_GROUP_PROTOCOL is joined.error


def test_what_old_members_are_refused() -> None:
    driver, old = mixed()
    assert ErrorCode.UNKNOWN_MEMBER_ID is driver.classic_beat("x", 2)
    assert ErrorCode.UNKNOWN_MEMBER_ID is driver.classic_beat("n", 2)
    assert ErrorCode.ILLEGAL_GENERATION is driver.classic_beat(old, 1)
    assert ErrorCode.UNKNOWN_MEMBER_ID is driver.classic_beat(old, 2, instance_id="i")
    assert ErrorCode.ILLEGAL_GENERATION is driver.sync(old, 1).error
    assert ErrorCode.INCONSISTENT_GROUP_PROTOCOL is driver.sync(old, 2, protocol_name="sticky").error
    driver.consume("m")
    assert ErrorCode.REBALANCE_IN_PROGRESS is driver.sync(old, 2).error


def test_a_static_member_changes_its_kind_and_keeps_its_partitions() -> None:
    driver, _ = mixed()
    driver.consume("s", "bar", instance_id="i")
    joined = driver.join("", subscription("bar"), instance_id="i")
    assert joined is not None
    assert {"bar": (0, 1)} == driver.synced(joined.member_id, joined.generation)
    back = driver.consume("s2", "bar", instance_id="i")
    assert ErrorCode.NONE is back.error
    assert driver.consumers["g"].members["s2"].classic is None


def test_a_static_old_member_takes_the_place_of_one_with_a_pattern() -> None:
    driver, _ = mixed()
    driver.consume("s", topic_names=None, topic_regex="ba.*", instance_id="i")
    assert ["ba.*"] == list(driver.consumers["g"].regexes)
    joined = driver.join("", subscription("bar", version=0), instance_id="i")
    assert joined is not None
    assert {} == driver.consumers["g"].regexes
    assert {"bar": (0, 1)} == driver.synced(joined.member_id, joined.generation)
    again = driver.join(joined.member_id, subscription("bar", owned={"bar": (0, 1)}), instance_id="i")
    assert again is not None
    assert (ErrorCode.NONE, joined.generation) == (again.error, again.generation)
    fenced = driver.join("other", subscription("bar"), instance_id="i")
    assert fenced is not None
    assert ErrorCode.FENCED_INSTANCE_ID is fenced.error
    unknown = driver.join("other", subscription("bar"), instance_id="nobody")
    assert unknown is not None
    assert ErrorCode.UNKNOWN_MEMBER_ID is unknown.error


def test_a_full_mixed_group_takes_nobody_more() -> None:
    driver, _ = mixed(ConsumerGroupConfig(assignment_interval_ms=0, max_size=2))
    joined = driver.join("", subscription("foo"))
    assert joined is not None
    assert ErrorCode.GROUP_MAX_SIZE_REACHED is joined.error


def test_a_silent_old_member_goes_after_its_own_session() -> None:
    driver, old = mixed()
    driver.now_ms += 29_999
    driver.beat("n", 2)
    driver.pass_ms(1)
    assert ["n"] == list(driver.consumers["g"].members)
    assert old not in driver.consumers["g"].targets


def test_an_old_member_that_does_all_it_is_told_stays() -> None:
    driver, old = mixed()
    driver.consume("m")
    assert ErrorCode.REBALANCE_IN_PROGRESS is driver.classic_beat(old, 2)
    joined = driver.join(old, subscription("foo"))
    assert joined is not None
    driver.synced(old, joined.generation)
    for _ in range(7):
        driver.pass_ms(10_000)
        assert ErrorCode.NONE is driver.classic_beat(old, joined.generation)
        driver.beat("n", driver.consumers["g"].members["n"].member_epoch, owned_partitions={})
        driver.beat("m", driver.consumers["g"].members["m"].member_epoch)
    assert [old, "n", "m"] == list(driver.consumers["g"].members)


def test_an_old_member_that_does_not_join_again_in_time_goes() -> None:
    driver, old = mixed()
    driver.consume("m")
    for _ in range(7):
        driver.classic_beat(old, 2)
        driver.beat("n", 2, owned_partitions={FOO: ()})
        driver.beat("m", 3)
        driver.pass_ms(10_000)
    assert ["n", "m"] == list(driver.consumers["g"].members)


def test_an_old_member_that_does_not_sync_in_time_goes() -> None:
    driver, old = mixed()
    driver.join(old, subscription("foo", owned={"foo": (0, 1)}))
    for _ in range(6):
        assert ErrorCode.NONE is driver.classic_beat(old, 2)
        driver.beat("n", 2)
        driver.pass_ms(10_000)
    assert ["n"] == list(driver.consumers["g"].members)


# Back to classic


def test_when_the_last_new_member_leaves_the_group_is_classic_again() -> None:
    driver, old = mixed()
    assert ErrorCode.NONE is driver.beat("n", -1).error
    assert {} == driver.consumers
    classic = driver.shard.classic.groups.get("g")
    assert classic is not None
    assert (ClassicState.PREPARING_REBALANCE, 2, "range") == (classic.state, classic.generation, classic.protocol)
    assert ErrorCode.REBALANCE_IN_PROGRESS is driver.classic_beat(old, 2)
    joined = driver.join(old, subscription("foo"))
    assert joined is not None
    assert (3, old) == (joined.generation, joined.leader)


def test_a_group_that_became_classic_survives_a_failover() -> None:
    driver, old = mixed()
    driver.beat("n", -1)
    driver.reload()
    assert {} == driver.consumers
    classic = driver.shard.classic.groups.get("g")
    assert classic is not None
    assert [old] == [member.member_id for member in classic.members]


def test_when_the_last_new_member_is_thrown_out_the_group_is_classic_again() -> None:
    driver, old = mixed()
    for _ in range(5):
        driver.pass_ms(10_000)
        driver.classic_beat(old, 2)
    assert {} == driver.consumers
    assert driver.shard.classic.groups.get("g") is not None


@pytest.mark.parametrize(
    "config",
    [
        ConsumerGroupConfig(assignment_interval_ms=0, migration_policy=MigrationPolicy.UPGRADE),
        ConsumerGroupConfig(assignment_interval_ms=0, classic_max_size=0),
    ],
)
def test_a_policy_or_a_size_may_forbid_the_downgrade(config: ConsumerGroupConfig) -> None:
    driver, old = mixed(config)
    driver.beat("n", -1)
    assert [old] == list(driver.consumers["g"].members)


def test_members_of_both_kinds_can_be_removed_by_an_operator() -> None:
    driver, old = mixed()
    driver.consume("s", instance_id="i")
    outcomes = leave(
        driver,
        LeavingMember(instance_id="i"),
        LeavingMember(member_id="x"),
        LeavingMember(member_id="n", instance_id="nobody"),
        LeavingMember(member_id=old),
    )
    errors = [outcome.error for outcome in outcomes]
    expected = [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE]
    assert expected == errors
    assert ["n"] == list(driver.consumers["g"].members)


def test_nobody_leaving_changes_nothing() -> None:
    driver, _ = mixed()
    epoch = driver.consumers["g"].epoch
    leave(driver, LeavingMember(member_id="x"))
    assert epoch == driver.consumers["g"].epoch
