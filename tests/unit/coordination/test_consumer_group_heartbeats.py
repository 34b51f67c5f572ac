"""Heartbeats of server-side groups: joining, living on, giving up, leaving, and all that is refused."""

from typing import Any

import pytest

from ottla.coordination.groups.consumer.group import GroupState
from ottla.coordination.groups.consumer.records import (
    CurrentRecord,
    CurrentValue,
    EpochRecord,
    EpochValue,
    GroupRecord,
    MemberRecord,
    MemberState,
    MemberValue,
    PartitionMetadataRecord,
    RegexRecord,
    RegexValue,
    TargetEpochRecord,
    TargetEpochValue,
    TargetRecord,
    encode,
)
from ottla.coordination.groups.consumer.requests import ConsumerGroupConfig, ConsumerHeartbeatResponse
from ottla.coordination.groups.group_kind import Topic
from ottla.coordination.runtime.effects import CoordinatorRecord
from ottla.model.error_codes import ErrorCode
from ottla.model.invariants import InvariantViolation
from tests.unit.coordination.consumer_group_driver import BAR, BAZ, FOO, START_MS, TOPICS, Driver

ALL_FOO = {FOO: (0, 1, 2, 3)}


def error_of(response: ConsumerHeartbeatResponse) -> ErrorCode:
    return response.error


# Joining


def test_the_first_member_gets_everything_at_once() -> None:
    driver = Driver()
    expected = ConsumerHeartbeatResponse(
        member_id="a", member_epoch=2, heartbeat_interval_ms=5000, assignment={BAR: (0, 1), FOO: (0, 1, 2, 3)}
    )
    assert expected == driver.join("a", "foo", "bar")
    assert GroupState.STABLE is driver.group().state
    said = MemberValue(client_id="c", client_host="/h", topic_names=("bar", "foo"), rebalance_timeout_ms=60_000)
    member, epoch, target, target_epoch, current = driver.written()
    assert MemberRecord("g", "a", said) == member
    assert isinstance(epoch, EpochRecord)
    assert epoch.value is not None
    assert (2, True) == (epoch.value.epoch, epoch.value.metadata_hash != 0)
    assert TargetRecord("g", "a", {BAR: (0, 1), FOO: (0, 1, 2, 3)}) == target
    assert TargetEpochRecord("g", TargetEpochValue(epoch=2, timestamp_ms=START_MS)) == target_epoch
    expected_current = CurrentValue(
        member_epoch=2,
        previous_member_epoch=0,
        state=MemberState.STABLE,
        assigned={BAR: {0: 2, 1: 2}, FOO: {0: 2, 1: 2, 2: 2, 3: 2}},
        revoking={},
    )
    assert CurrentRecord("g", "a", expected_current) == current


def test_a_member_of_nothing_joins_the_first_epoch() -> None:
    driver = Driver()
    response = driver.join("a", topic_names=())
    assert (1, {}) == (response.member_epoch, response.assignment)
    assert GroupState.STABLE is driver.group().state


def test_an_unknown_topic_is_waited_for() -> None:
    driver = Driver()
    assert {} == driver.join("a", "baz").assignment
    driver.set_topics({**TOPICS, "baz": Topic(BAZ, 1)})
    response = driver.beat("a", 2)
    assert (3, {BAZ: (0,)}) == (response.member_epoch, response.assignment)


def test_an_old_client_is_given_a_member_id() -> None:
    driver = Driver()
    response = driver.join("", api_version=0)
    assert response.member_id in driver.group().members
    assert 22 == len(response.member_id or "")


def test_a_quiet_heartbeat_writes_nothing_and_is_told_nothing_new() -> None:
    driver = Driver()
    driver.join("a")
    driver.written()
    expected = ConsumerHeartbeatResponse(member_id="a", member_epoch=2, heartbeat_interval_ms=5000)
    assert expected == driver.beat("a", 2)
    assert [] == driver.written()


def test_a_full_heartbeat_is_told_all() -> None:
    driver = Driver()
    driver.join("a")
    full: dict[str, Any] = {"rebalance_timeout_ms": 60_000, "topic_names": ("foo",), "owned_partitions": ALL_FOO}
    assert ALL_FOO == driver.beat("a", 2, **full).assignment
    assert driver.beat("a", 2, owned_partitions=ALL_FOO).assignment is None


def test_a_member_may_join_again_and_keeps_what_it_has() -> None:
    driver = Driver()
    driver.join("a")
    response = driver.join("a")
    assert (2, ALL_FOO) == (response.member_epoch, response.assignment)


# From owner to owner


def test_a_partition_moves_only_when_its_owner_has_given_it_up() -> None:
    driver = Driver()
    driver.join("a")
    joined = driver.join("b")
    assert (3, {}) == (joined.member_epoch, joined.assignment)
    assert GroupState.RECONCILING is driver.group().state
    assert MemberState.UNRELEASED is driver.group().members["b"].state

    told = driver.beat("a", 2, owned_partitions=ALL_FOO)
    assert (2, {FOO: (0, 1)}) == (told.member_epoch, told.assignment)
    assert MemberState.UNREVOKED is driver.group().members["a"].state
    assert driver.beat("a", 2).assignment is None
    assert driver.beat("b", 3).assignment is None

    acknowledged = driver.beat("a", 2, owned_partitions={FOO: (0, 1)})
    assert (3, None) == (acknowledged.member_epoch, acknowledged.assignment)
    given = driver.beat("b", 3)
    assert (3, {FOO: (2, 3)}) == (given.member_epoch, given.assignment)
    assert GroupState.STABLE is driver.group().state
    assert {0: 2, 1: 2} == driver.group().members["a"].assigned[FOO]
    assert {2: 3, 3: 3} == driver.group().members["b"].assigned[FOO]


def test_a_member_that_owns_none_of_what_it_loses_moves_on_at_once() -> None:
    driver = Driver()
    driver.join("a")
    driver.join("b")
    told = driver.beat("a", 2, owned_partitions={FOO: (0,)})
    assert (3, {FOO: (0, 1)}) == (told.member_epoch, told.assignment)


def test_while_it_gives_up_a_newer_target_waits() -> None:
    driver = Driver()
    driver.join("a")
    driver.join("b")
    driver.beat("a", 2, owned_partitions=ALL_FOO)
    driver.beat("b", -1)
    # The new target gives a all of it back, of which it was still giving up two.
    told = driver.beat("a", 2, owned_partitions=ALL_FOO)
    assert (2, None) == (told.member_epoch, told.assignment)
    back = driver.beat("a", 2, owned_partitions={FOO: (0, 1)})
    assert (4, ALL_FOO) == (back.member_epoch, back.assignment)
    assert {0: 2, 1: 2, 2: 4, 3: 4} == driver.group().members["a"].assigned[FOO]


def test_a_target_is_computed_once_a_second_at_most() -> None:
    driver = Driver(ConsumerGroupConfig())
    driver.join("a")
    joined = driver.join("b")
    assert (2, {}) == (joined.member_epoch, joined.assignment)
    assert GroupState.ASSIGNING is driver.group().state
    driver.pass_ms(999)
    assert 2 == driver.beat("b", 2).member_epoch
    driver.pass_ms(1)
    assert 3 == driver.beat("b", 2).member_epoch
    assert GroupState.RECONCILING is driver.group().state


def test_a_clock_that_was_set_back_does_not_hold_the_target_up() -> None:
    driver = Driver(ConsumerGroupConfig())
    driver.join("a")
    driver.now_ms -= 600_000
    assert 3 == driver.join("b").member_epoch


# Changing one's mind


def test_unsubscribed_topics_are_given_up_before_others_get_them() -> None:
    driver = Driver()
    driver.join("a", "foo", "bar")
    owned = {FOO: (0, 1, 2, 3), BAR: (0, 1)}
    told = driver.beat("a", 2, topic_names=("foo",), owned_partitions=owned)
    assert (2, {FOO: (0, 1, 2, 3)}) == (told.member_epoch, told.assignment)
    assert 3 == driver.beat("a", 2, owned_partitions=ALL_FOO).member_epoch


def test_unsubscribed_topics_go_even_while_the_target_has_to_wait() -> None:
    driver = Driver(ConsumerGroupConfig())
    driver.join("a", "foo", "bar")
    owned = {FOO: (0, 1, 2, 3), BAR: (0, 1)}
    told = driver.beat("a", 2, topic_names=("foo",), owned_partitions=owned)
    assert (2, {FOO: (0, 1, 2, 3)}) == (told.member_epoch, told.assignment)
    assert MemberState.UNREVOKED is driver.group().members["a"].state
    driver.pass_ms(1_000)
    assert 3 == driver.beat("a", 2, owned_partitions=ALL_FOO).member_epoch


def test_unsubscribed_topics_that_it_does_not_own_go_without_more_ado() -> None:
    driver = Driver(ConsumerGroupConfig())
    driver.join("a", "foo", "bar")
    told = driver.beat("a", 2, topic_names=("foo",), owned_partitions=ALL_FOO)
    assert (2, ALL_FOO) == (told.member_epoch, told.assignment)
    assert (MemberState.STABLE, {}) == (driver.group().members["a"].state, driver.group().members["a"].revoking)


def test_what_is_left_out_stays_as_it_was() -> None:
    driver = Driver()
    driver.join("a", instance_id=None, rack_id="r", server_assignor="range")
    driver.beat("a", 2, client_id="c2")
    said = driver.group().members["a"].said
    assert ("r", "range", ("foo",), 60_000, "c2") == (
        said.rack_id,
        said.server_assignor,
        said.topic_names,
        said.rebalance_timeout_ms,
        said.client_id,
    )
    assert 2 == driver.group().epoch


def test_most_votes_choose_the_assignor() -> None:
    driver = Driver(topics={"foo": Topic(FOO, 4), "bar": Topic(BAR, 1)})
    for name, assignor in (("a", "range"), ("b", "range"), ("c", "uniform"), ("d", None)):
        driver.join(name, "foo", "bar", server_assignor=assignor)
    # Only range gives the first member the first partition of both topics.
    assert {FOO: (0,), BAR: (0,)} == driver.group().targets["a"]


# Topics change


def test_more_partitions_are_shared_out() -> None:
    driver = Driver()
    driver.join("a")
    driver.set_topics({"foo": Topic(FOO, 5)})
    response = driver.beat("a", 2)
    assert (3, {FOO: (0, 1, 2, 3, 4)}) == (response.member_epoch, response.assignment)


def test_a_deleted_topic_is_taken_away() -> None:
    driver = Driver()
    driver.join("a", "foo", "bar")
    driver.set_topics({"foo": TOPICS["foo"]})
    owned = {FOO: (0, 1, 2, 3), BAR: (0, 1)}
    assert {FOO: (0, 1, 2, 3)} == driver.beat("a", 2, owned_partitions=owned).assignment
    assert 3 == driver.beat("a", 2, owned_partitions=ALL_FOO).member_epoch


def test_topics_that_nobody_wants_change_nothing() -> None:
    driver = Driver()
    driver.join("a")
    driver.written()
    driver.set_topics({**TOPICS, "baz": Topic(BAZ, 9)})
    assert 2 == driver.beat("a", 2).member_epoch
    assert [] == driver.written()


def test_what_an_older_kafka_wrote_about_partitions_is_deleted() -> None:
    driver = Driver()
    driver.join("a")
    key = encode(PartitionMetadataRecord("g", False)).key
    driver.shard.replay(CoordinatorRecord(key, b"\0\0\1\0"))
    driver.written()
    driver.join("b")
    assert PartitionMetadataRecord("g", False) in driver.written()
    assert not driver.group().has_partition_metadata


# Leaving and being thrown out


def test_a_leaving_member_frees_its_partitions_at_once() -> None:
    driver = Driver()
    driver.join("a")
    driver.join("b")
    driver.written()
    assert ConsumerHeartbeatResponse(member_id="a", member_epoch=-1) == driver.beat("a", -1)
    first = driver.written()[:3]
    assert [CurrentRecord("g", "a", None), TargetRecord("g", "a", None), MemberRecord("g", "a", None)] == first
    assert ALL_FOO == driver.beat("b", 3).assignment


def test_an_empty_group_stays_until_it_is_deleted() -> None:
    driver = Driver()
    driver.join("a")
    driver.beat("a", -1)
    assert GroupState.EMPTY is driver.group().state
    driver.log += driver.shard.deletion_records("g")
    driver.reload()
    assert {} == driver.shard.groups
    assert () == driver.shard.deletion_records("g")


def test_a_silent_member_is_thrown_out_after_its_session() -> None:
    driver = Driver()
    driver.join("a")
    driver.pass_ms(30_000)
    driver.beat("a", 2)
    assert START_MS + 75_000 == driver.shard.next_deadline()
    driver.pass_ms(44_999)
    assert ["a"] == list(driver.group().members)
    driver.pass_ms(1)
    assert {} == driver.group().members
    assert driver.shard.next_deadline() is None
    assert ErrorCode.UNKNOWN_MEMBER_ID is error_of(driver.beat("a", 2))


@pytest.mark.parametrize("leap_ms", [3_600_000, -3_600_000])
def test_a_clock_that_is_set_throws_nobody_out_and_keeps_nobody(leap_ms: int) -> None:
    driver = Driver()
    driver.join("a")
    driver.pass_ms(30_000)
    driver.shard.on_clock_set(leap_ms)
    driver.now_ms += leap_ms
    driver.pass_ms(14_999)
    assert ["a"] == list(driver.group().members)
    driver.pass_ms(1)
    assert {} == driver.group().members


def test_members_that_go_silent_together_cost_one_epoch() -> None:
    driver = Driver()
    driver.join("a")
    driver.join("b")
    driver.pass_ms(45_000)
    assert {} == driver.group().members
    assert 4 == driver.group().epoch


def test_a_member_whose_removal_could_not_be_written_is_tried_again() -> None:
    driver = Driver()
    driver.join("a")
    driver.now_ms += 45_000
    driver.shard.on_tick(driver.now_ms)
    assert ["a"] == list(driver.group().members)
    driver.pass_ms(45_000)
    assert {} == driver.group().members


def test_one_that_does_not_give_up_in_time_is_thrown_out() -> None:
    driver = Driver()
    driver.join("a", rebalance_timeout_ms=10_000)
    driver.join("b")
    driver.beat("a", 2, owned_partitions=ALL_FOO)
    driver.pass_ms(9_999)
    assert 2 == driver.beat("a", 2, owned_partitions=ALL_FOO).member_epoch
    driver.pass_ms(1)
    assert ["b"] == list(driver.group().members)
    assert ALL_FOO == driver.beat("b", 3).assignment


def test_one_that_gave_up_in_time_stays() -> None:
    driver = Driver()
    driver.join("a", rebalance_timeout_ms=10_000)
    driver.join("b")
    driver.beat("a", 2, owned_partitions=ALL_FOO)
    driver.beat("a", 2, owned_partitions={FOO: (0, 1)})
    driver.pass_ms(20_000)
    assert ["a", "b"] == list(driver.group().members)


def test_timers_start_anew_when_the_partition_is_loaded() -> None:
    driver = Driver()
    driver.join("a", rebalance_timeout_ms=10_000)
    driver.join("b")
    driver.beat("a", 2, owned_partitions=ALL_FOO)
    driver.now_ms += 100_000
    driver.reload()
    assert driver.now_ms + 10_000 == driver.shard.next_deadline()
    driver.pass_ms(10_000)
    assert ["b"] == list(driver.group().members)


# Static members


def test_a_static_member_comes_back_to_what_it_had() -> None:
    driver = Driver()
    driver.join("a", instance_id="i")
    driver.join("z")
    driver.beat("a", 2, instance_id="i", owned_partitions=ALL_FOO)
    driver.beat("a", 2, instance_id="i", owned_partitions={FOO: (0, 1)})
    left = driver.beat("a", -2, instance_id="i")
    assert ConsumerHeartbeatResponse(member_id="a", member_epoch=-2) == left
    assert {FOO: {0: 0, 1: 0}} == driver.group().members["a"].assigned
    back = driver.join("a2", instance_id="i")
    assert (3, {FOO: (0, 1)}) == (back.member_epoch, back.assignment)
    assert ["z", "a2"] == list(driver.group().members)
    assert 3 == driver.group().epoch
    driver.reload()
    assert {"i": "a2"} == driver.group().static_ids


def test_a_static_member_may_come_back_under_its_old_id() -> None:
    driver = Driver()
    driver.join("a", instance_id="i")
    driver.beat("a", -2, instance_id="i")
    back = driver.join("a", instance_id="i")
    assert (2, ALL_FOO) == (back.member_epoch, back.assignment)
    driver.pass_ms(45_000)
    assert {} == driver.group().members


def test_a_static_member_that_stays_away_is_thrown_out() -> None:
    driver = Driver()
    driver.join("a", instance_id="i")
    driver.beat("a", -2, instance_id="i")
    driver.pass_ms(45_000)
    assert {} == driver.group().members
    assert {} == driver.group().static_ids


def test_one_that_left_for_a_while_has_nothing_more_to_give_up() -> None:
    driver = Driver()
    driver.join("a", instance_id="i", rebalance_timeout_ms=10_000)
    driver.join("b")
    driver.beat("a", 2, instance_id="i", owned_partitions=ALL_FOO)
    driver.beat("a", -2, instance_id="i")
    driver.pass_ms(10_000)
    assert ["a", "b"] == list(driver.group().members)


def test_a_static_member_that_leaves_for_good_is_gone() -> None:
    driver = Driver()
    driver.join("a", instance_id="i")
    driver.beat("a", -1, instance_id="i")
    assert {} == driver.group().members


@pytest.mark.parametrize(
    ("member_id", "epoch", "instance_id", "error"),
    [
        ("b", 0, "i", ErrorCode.UNRELEASED_INSTANCE_ID),
        ("b", 2, "i", ErrorCode.FENCED_INSTANCE_ID),
        ("b", -1, "i", ErrorCode.FENCED_INSTANCE_ID),
        ("b", -2, "i", ErrorCode.FENCED_INSTANCE_ID),
        ("a", 2, "nobody", ErrorCode.UNKNOWN_MEMBER_ID),
        ("a", -2, "nobody", ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_an_instance_id_belongs_to_one(member_id: str, epoch: int, instance_id: str, error: ErrorCode) -> None:
    driver = Driver()
    driver.join("a", instance_id="i")
    full: dict[str, Any] = {"rebalance_timeout_ms": 1, "topic_names": ("foo",), "owned_partitions": {}}
    assert error is error_of(driver.beat(member_id, epoch, instance_id=instance_id, **full))


def test_a_static_member_that_left_is_fenced_until_it_joins() -> None:
    driver = Driver()
    driver.join("a", instance_id="i")
    driver.beat("a", -2, instance_id="i")
    assert ErrorCode.FENCED_MEMBER_EPOCH is error_of(driver.beat("a", 2, instance_id="i"))


# Epochs


def test_a_member_that_missed_a_response_may_go_on() -> None:
    driver = Driver()
    driver.join("a", "foo")
    driver.set_topics({"foo": Topic(FOO, 5)})
    driver.beat("a", 2)
    assert 3 == driver.beat("a", 2, owned_partitions=ALL_FOO).member_epoch


@pytest.mark.parametrize(
    ("epoch", "owned"),
    [(4, ALL_FOO), (1, ALL_FOO), (2, None), (2, {FOO: (0, 7)}), (2, {BAR: (0,)})],
    ids=["ahead", "two behind", "behind and silent", "behind with another's", "behind with another topic"],
)
def test_a_member_elsewhere_is_fenced(epoch: int, owned: dict[Any, tuple[int, ...]] | None) -> None:
    driver = Driver()
    driver.join("a", "foo")
    driver.set_topics({"foo": Topic(FOO, 5)})
    driver.beat("a", 2)
    assert ErrorCode.FENCED_MEMBER_EPOCH is error_of(driver.beat("a", epoch, owned_partitions=owned))


def test_a_state_of_the_future_is_left_by_joining_again() -> None:
    driver = Driver()
    driver.join("a")
    unknown = CurrentValue(
        member_epoch=2, previous_member_epoch=2, state=MemberState.UNKNOWN, assigned={FOO: {0: 2}}, revoking={}
    )
    driver.shard.replay(encode(CurrentRecord("g", "a", unknown)))
    assert ErrorCode.FENCED_MEMBER_EPOCH is error_of(driver.beat("a", 2))
    assert ALL_FOO == driver.join("a").assignment


# Patterns


def test_a_pattern_stands_for_topics_old_and_new() -> None:
    driver = Driver()
    response = driver.join("a", topic_names=None, topic_regex="ba.*")
    assert {BAR: (0, 1)} == response.assignment
    driver.set_topics({**TOPICS, "baz": Topic(BAZ, 1)})
    assert driver.beat("a", 2).assignment is None
    driver.pass_ms(10_000)
    assert {BAR: (0, 1), BAZ: (0,)} == driver.beat("a", 2).assignment
    resolved = driver.group().regexes["ba.*"]
    assert (("bar", "baz"), driver.now_ms) == (resolved.topics, resolved.timestamp_ms)


def test_many_patterns_are_resolved_by_and_by() -> None:
    driver = Driver()
    for index in range(6):
        driver.join(f"m{index}", topic_names=None, topic_regex=f"ba.{{1,{index + 1}}}")
    driver.set_topics({**TOPICS, "baz": Topic(BAZ, 1)})
    driver.pass_ms(10_000)
    driver.beat("m0", driver.group().members["m0"].member_epoch)
    assert 4 == sum("baz" in resolved.topics for resolved in driver.group().regexes.values())
    driver.beat("m1", driver.group().members["m1"].member_epoch)
    assert 6 == sum("baz" in resolved.topics for resolved in driver.group().regexes.values())


def test_a_pattern_that_another_broker_took_keeps_what_it_stood_for() -> None:
    driver = Driver()
    driver.join("a", topic_names=None, topic_regex="ba.*")
    value = RegexValue(topics=("bar",), version=1, timestamp_ms=START_MS)
    driver.shard.replay(encode(RegexRecord("g", "(?=b)ar", value)))
    driver.set_topics({**TOPICS, "baz": Topic(BAZ, 1)})
    driver.pass_ms(10_000)
    assert {BAR: (0, 1), BAZ: (0,)} == driver.beat("a", 2).assignment
    assert value == driver.group().regexes["(?=b)ar"]


def test_topics_that_came_during_a_failover_are_found() -> None:
    driver = Driver()
    driver.join("a", topic_names=None, topic_regex="ba.*")
    driver.topics["baz"] = Topic(BAZ, 1)
    driver.reload()
    driver.pass_ms(10_000)
    assert {BAR: (0, 1), BAZ: (0,)} == driver.beat("a", 2).assignment


def test_names_and_a_pattern_add_up() -> None:
    driver = Driver()
    assert {BAR: (0, 1), FOO: (0, 1, 2, 3)} == driver.join("a", "foo", topic_regex="ba.*").assignment


def test_a_pattern_does_not_match_topics_that_only_the_broker_reads() -> None:
    driver = Driver(topics={"foo": Topic(FOO, 4), "bar": Topic(BAR, 2, is_parking=True)})
    response = driver.join("a", topic_names=None, topic_regex=".*")
    assert {FOO: (0, 1, 2, 3)} == response.assignment
    assert {BAR: (0, 1)} == driver.join("a", "bar", topic_regex="").assignment


def test_a_pattern_shows_only_what_the_member_may_know() -> None:
    driver = Driver()
    response = driver.join("a", topic_names=None, topic_regex=".*", may_describe=lambda name: name == "bar")
    assert {BAR: (0, 1)} == response.assignment


def test_rights_that_change_are_noticed_in_time() -> None:
    driver = Driver()
    driver.join("a", topic_names=None, topic_regex=".*")
    for _ in range(20):
        driver.pass_ms(30_000)
        last = driver.beat("a", 2, may_describe=lambda name: name == "bar", owned_partitions={FOO: (0,)})
    assert {BAR: (0, 1)} == last.assignment


def test_a_pattern_that_nobody_has_is_forgotten() -> None:
    driver = Driver()
    driver.join("a", topic_names=None, topic_regex="ba.*")
    driver.join("b", topic_names=None, topic_regex="ba.*")
    driver.beat("b", -1)
    assert ["ba.*"] == list(driver.group().regexes)
    owned = {BAR: (0,)}
    driver.beat("a", 2, topic_regex="f.*", owned_partitions=owned)
    assert ["f.*"] == list(driver.group().regexes)
    assert RegexRecord("g", "ba.*", None) in driver.written()
    driver.beat("a", -1)
    assert {} == driver.group().regexes


def test_a_pattern_may_be_given_up_for_names() -> None:
    driver = Driver()
    driver.join("a", topic_names=None, topic_regex="ba.*")
    driver.beat("a", 2, topic_regex="", topic_names=("foo",), owned_partitions={})
    assert ALL_FOO == driver.join("a", topic_regex="").assignment
    assert {} == driver.group().regexes


def test_an_invalid_pattern_is_refused_and_changes_nothing() -> None:
    driver = Driver()
    response = driver.join("a", topic_names=None, topic_regex="(")
    assert ErrorCode.INVALID_REGULAR_EXPRESSION is response.error
    assert "`(`" in (response.error_message or "")
    assert [] == driver.log


# Refusals


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"member_id": "", "member_epoch": 3, "api_version": 0}, ErrorCode.INVALID_REQUEST),
        ({"member_id": "", "member_epoch": -1, "api_version": 0}, ErrorCode.INVALID_REQUEST),
        ({"group_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"group_id": "g" * 10_000}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"owned_partitions": None}, ErrorCode.INVALID_REQUEST),
        ({"owned_partitions": {FOO: (1,)}}, ErrorCode.INVALID_REQUEST),
        ({"topic_names": None}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -3}, ErrorCode.INVALID_REQUEST),
        ({"server_assignor": "sticky"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"member_epoch": 1}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"member_epoch": -1}, ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
def test_what_is_refused(fields: dict[str, Any], error: ErrorCode) -> None:
    driver = Driver()
    full: dict[str, Any] = {
        "member_id": "a",
        "member_epoch": 0,
        "topic_names": ("foo",),
        "rebalance_timeout_ms": 1,
        "owned_partitions": {},
    }
    merged = {**full, **fields}
    assert error is error_of(driver.beat(merged.pop("member_id"), merged.pop("member_epoch"), **merged))
    assert [] == driver.log


def test_strangers_are_unknown() -> None:
    driver = Driver()
    driver.join("a")
    assert ErrorCode.UNKNOWN_MEMBER_ID is error_of(driver.beat("b", 2))
    assert ErrorCode.UNKNOWN_MEMBER_ID is error_of(driver.beat("b", -1))


def test_a_full_group_takes_nobody_more() -> None:
    driver = Driver(ConsumerGroupConfig(max_size=1))
    driver.join("a")
    assert ErrorCode.GROUP_MAX_SIZE_REACHED is error_of(driver.join("b"))
    assert ErrorCode.NONE is error_of(driver.beat("a", 2))


def current(epoch: int, **fields: Any) -> CurrentValue:
    whole = {"previous_member_epoch": epoch, "state": MemberState.STABLE, "assigned": {}, "revoking": {}}
    return CurrentValue(**{**whole, "member_epoch": epoch, **fields})


@pytest.mark.parametrize(
    ("record", "broken"),
    [
        (CurrentRecord("g", "a", current(3)), "beyond the target's"),
        (CurrentRecord("g", "a", current(-3)), "is at epoch -3"),
        (EpochRecord("g", EpochValue(epoch=1)), "the target's epoch 2 is beyond 1"),
        (TargetRecord("g", "b", {}), "b has a target but is not a member"),
        (TargetRecord("g", "a", {FOO: (0, 0)}), None),
    ],
)
def test_what_must_never_be_stops_the_broker(record: GroupRecord, broken: str | None) -> None:
    driver = Driver()
    driver.join("a")
    driver.shard.replay(encode(record))
    if broken is None:
        driver.shard.check()
    else:
        with pytest.raises(InvariantViolation, match=broken):
            driver.shard.check()


def test_a_partition_promised_twice_stops_the_broker() -> None:
    driver = Driver()
    driver.join("a")
    driver.join("b")
    driver.shard.replay(encode(TargetRecord("g", "b", ALL_FOO)))
    with pytest.raises(InvariantViolation, match="is promised to a and to b"):
        driver.shard.check()


def test_records_of_others_are_left_alone() -> None:
    assert not Driver().shard.replay(CoordinatorRecord(b"\0\2\0\1g", None))


def test_two_owners_of_a_partition_stop_the_broker() -> None:
    driver = Driver()
    driver.join("a")
    stolen = CurrentValue(
        member_epoch=2, previous_member_epoch=2, state=MemberState.STABLE, assigned={FOO: {0: 2}}, revoking={}
    )
    driver.shard.replay(encode(CurrentRecord("g", "b", stolen)))
    with pytest.raises(InvariantViolation, match="belongs to"):
        driver.shard.check()
