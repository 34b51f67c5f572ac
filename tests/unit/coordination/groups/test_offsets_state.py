"""Committed offsets: plain and transactional commits, what is fetched, deleted, and what expires when."""

from dataclasses import replace
from uuid import UUID

import pytest

from ottla.coordination.groups.consumer.requests import ConsumerGroupConfig
from ottla.coordination.groups.requests import (
    DeleteGroupRequest,
    DeleteGroupResponse,
    FetchedOffset,
    GroupSettings,
    MemberProtocol,
    NewOffset,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    PartitionOutcome,
    WantedPartition,
)
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import ProducerId, TopicPartition
from ottla.model.invariants import InvariantViolation
from tests.unit.coordination.group_rig import GroupRig

DAY_MS = 24 * 3_600_000
SWEEP_MS = 600_000
UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT


@pytest.fixture
def rig() -> GroupRig:
    return GroupRig()


def commit_many(rig: GroupRig, offsets: dict[str, int]) -> None:
    """Commits topics' first partitions as a consumer that is no member."""
    new = tuple(NewOffset(topic=topic, partition=0, offset=offset) for topic, offset in offsets.items())
    rig.ask("commit_offsets", OffsetCommitRequest(group_id="g", offsets=new))


def fetch_all(rig: GroupRig, *, require_stable: bool = False) -> tuple[FetchedOffset, ...]:
    response = rig.answer("fetch_offsets", OffsetFetchRequest(group_id="g", require_stable=require_stable))
    assert isinstance(response, OffsetFetchResponse)
    return response.offsets


# Commit and fetch


def test_a_commit_is_fetched_with_all_that_it_said(rig: GroupRig) -> None:
    new = NewOffset(topic="t", partition=2, offset=7, leader_epoch=3, metadata="m", topic_id=UUID(int=5))
    rig.ask("commit_offsets", OffsetCommitRequest(group_id="g", offsets=(new,)))
    expected = (FetchedOffset("t", 2, 7, 3, "m"),)
    assert expected == fetch_all(rig)
    rig.crash()
    assert expected == fetch_all(rig)
    value = rig.shard.offsets.get("g", TopicPartition("t", 2))
    assert value is not None
    assert UUID(int=5) == value.topic_id


def test_what_was_never_committed_is_no_error(rig: GroupRig) -> None:
    assert -1 == rig.offset()
    assert () == fetch_all(rig)
    commit_many(rig, {"t": 1})
    wanted = (WantedPartition("t", 1), WantedPartition("u", 0), WantedPartition("t", 0))
    request = OffsetFetchRequest(group_id="g", partitions=wanted)
    assert OffsetFetchResponse(
        group_id="g", offsets=(FetchedOffset("t", 1), FetchedOffset("u", 0), FetchedOffset("t", 0, 1))
    ) == rig.answer("fetch_offsets", request)


def test_all_offsets_come_topic_by_topic(rig: GroupRig) -> None:
    for topic, partition in (("u", 1), ("t", 10), ("u", 0), ("t", 2)):
        new = NewOffset(topic=topic, partition=partition, offset=1)
        rig.ask("commit_offsets", OffsetCommitRequest(group_id="g", offsets=(new,)))
    assert [("t", 2), ("t", 10), ("u", 0), ("u", 1)] == [each[:2] for each in fetch_all(rig)]


def test_the_last_commit_counts_even_if_it_goes_back(rig: GroupRig) -> None:
    for offset in (5, 9, 3):
        assert ErrorCode.NONE == rig.commit(offset)
        assert offset == rig.offset()


def test_long_metadata_is_refused_alone(rig: GroupRig) -> None:
    offsets = tuple(
        NewOffset(topic="t", partition=index, offset=1, metadata="m" * size) for index, size in enumerate((4096, 4097))
    )
    response = rig.answer("commit_offsets", OffsetCommitRequest(group_id="g", offsets=offsets))
    assert (
        PartitionOutcome("t", 0),
        PartitionOutcome("t", 1, ErrorCode.OFFSET_METADATA_TOO_LARGE),
    ) == response.partitions
    assert (FetchedOffset("t", 0, 1, -1, "m" * 4096),) == fetch_all(rig)


def test_a_commit_of_nothing_is_answered(rig: GroupRig) -> None:
    assert () == rig.answer("commit_offsets", OffsetCommitRequest(group_id="g", offsets=())).partitions
    assert [] == rig.log


def test_names_that_no_record_can_hold_are_refused(rig: GroupRig) -> None:
    assert ErrorCode.INVALID_GROUP_ID == rig.commit(1, group_id="g" * 40_000)
    request = OffsetCommitRequest(group_id="g", offsets=(NewOffset(topic="t" * 40_000, partition=0, offset=1),))
    assert ErrorCode.INVALID_TOPIC_EXCEPTION == rig.answer("commit_offsets", request).partitions[0].error
    request_all = OffsetFetchRequest(group_id="g" * 40_000)
    assert ErrorCode.INVALID_GROUP_ID == rig.answer("fetch_offsets", request_all).error


def test_the_empty_group_may_commit(rig: GroupRig) -> None:
    assert ErrorCode.NONE == rig.commit(1, group_id="")


def test_a_commit_that_cannot_be_written_is_not_there(rig: GroupRig) -> None:
    rig.commit(1)
    rig.writes_fail = True
    assert ErrorCode.COORDINATOR_NOT_AVAILABLE == rig.commit(2)
    assert 1 == rig.offset()


def test_a_commit_makes_a_group(rig: GroupRig) -> None:
    rig.commit(1)
    assert [("g", "", "Empty", "classic")] == rig.shard.list_groups()
    rig.crash()
    assert [("g", "", "Empty", "classic")] == rig.shard.list_groups()


# Transactions


def test_an_offset_of_a_transaction_waits_for_its_marker(rig: GroupRig) -> None:
    rig.commit(1)
    assert ErrorCode.NONE == rig.commit_in_transaction(5)
    assert [1, UNSTABLE] == [rig.offset(), rig.offset(require_stable=True)]
    rig.marker(1, commit=True)
    assert [5, 5] == [rig.offset(), rig.offset(require_stable=True)]


def test_an_aborted_transaction_leaves_no_offset(rig: GroupRig) -> None:
    rig.commit(1)
    rig.commit_in_transaction(5)
    rig.marker(1, commit=False)
    assert [1, 1] == [rig.offset(), rig.offset(require_stable=True)]


@pytest.mark.parametrize("commit", [False, True])
def test_an_open_transaction_survives_a_failover(rig: GroupRig, commit: bool) -> None:
    rig.commit_in_transaction(5)
    rig.crash()
    assert [-1, UNSTABLE] == [rig.offset(), rig.offset(require_stable=True)]
    rig.marker(1, commit=commit)
    rig.crash()
    assert (5 if commit else -1) == rig.offset(require_stable=True)


def test_markers_of_others_change_nothing(rig: GroupRig) -> None:
    rig.commit_in_transaction(5, 1)
    rig.marker(2, commit=True)
    assert UNSTABLE == rig.offset(require_stable=True)


def test_of_two_commits_the_one_written_later_counts(rig: GroupRig) -> None:
    rig.commit_in_transaction(5, 1)
    rig.commit(7)
    rig.marker(1, commit=True)
    assert 7 == rig.offset()
    rig.commit_in_transaction(8, 1)
    rig.commit_in_transaction(9, 2)
    rig.marker(2, commit=True)
    rig.marker(1, commit=True)
    assert 9 == rig.offset()
    rig.crash()
    assert 9 == rig.offset()


def test_all_offsets_with_require_stable(rig: GroupRig) -> None:
    commit_many(rig, {"t": 1, "u": 2})
    rig.commit_in_transaction(5)
    assert (FetchedOffset("t", 0, error=UNSTABLE), FetchedOffset("u", 0, 2)) == fetch_all(rig, require_stable=True)
    assert (FetchedOffset("t", 0, 1), FetchedOffset("u", 0, 2)) == fetch_all(rig)


def test_a_transactional_commit_checks_the_member(rig: GroupRig) -> None:
    assert ErrorCode.ILLEGAL_GENERATION == rig.commit_in_transaction(1, generation=1, member_id="x")
    leader, _ = rig.stable(2)
    assert ErrorCode.UNKNOWN_MEMBER_ID == rig.commit_in_transaction(1, generation=1, member_id="x")
    assert ErrorCode.ILLEGAL_GENERATION == rig.commit_in_transaction(1, generation=2, member_id=leader)
    assert ErrorCode.UNKNOWN_MEMBER_ID == rig.commit_in_transaction(1, generation=1, instance_id="i")
    assert ErrorCode.NONE == rig.commit_in_transaction(1, generation=1, member_id=leader)
    assert ErrorCode.NONE == rig.commit_in_transaction(1), "older versions say no member"


def test_a_transactional_commit_of_a_fenced_instance(rig: GroupRig) -> None:
    token = rig.join(instance_id="i")
    rig.after(3_000)
    old = rig.joined(token).member_id
    rig.sync_all(1, old)
    rig.join(instance_id="i")
    error = rig.commit_in_transaction(1, generation=1, member_id=old, instance_id="i")
    assert ErrorCode.FENCED_INSTANCE_ID == error


def test_a_transactional_commit_while_completing(rig: GroupRig) -> None:
    token = rig.join()
    rig.after(3_000)
    assert ErrorCode.NONE == rig.commit_in_transaction(1, generation=1, member_id=rig.joined(token).member_id)


def test_a_transactional_commit_that_cannot_be_written(rig: GroupRig) -> None:
    rig.writes_fail = True
    assert ErrorCode.COORDINATOR_NOT_AVAILABLE == rig.commit_in_transaction(1)
    assert -1 == rig.offset(require_stable=True)


# Deletion


def delete(rig: GroupRig, *topics: str) -> OffsetDeleteResponse:
    wanted = tuple(WantedPartition(topic, 0) for topic in topics)
    response = rig.answer("delete_offsets", OffsetDeleteRequest(group_id="g", partitions=wanted))
    assert isinstance(response, OffsetDeleteResponse)
    return response


def test_offsets_are_deleted(rig: GroupRig) -> None:
    assert OffsetDeleteResponse(error=ErrorCode.GROUP_ID_NOT_FOUND) == delete(rig, "t")
    commit_many(rig, {"t": 1, "u": 2})
    expected = OffsetDeleteResponse(partitions=(PartitionOutcome("t", 0), PartitionOutcome("missing", 0)))
    assert expected == delete(rig, "t", "missing")
    assert (FetchedOffset("u", 0, 2),) == fetch_all(rig)
    rig.crash()
    assert (FetchedOffset("u", 0, 2),) == fetch_all(rig)


def test_a_pending_offset_is_deleted_too(rig: GroupRig) -> None:
    rig.commit_in_transaction(5)
    delete(rig, "t")
    assert -1 == rig.offset(require_stable=True)
    rig.marker(1, commit=True)
    assert -1 == rig.offset()


def test_offsets_of_subscribed_topics_stay(rig: GroupRig) -> None:
    commit_many(rig, {"t": 1, "u": 2})
    rig.stable()
    assert OffsetDeleteResponse(
        partitions=(PartitionOutcome("t", 0, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC), PartitionOutcome("u", 0))
    ) == delete(rig, "t", "u")
    assert (FetchedOffset("t", 0, 1),) == fetch_all(rig)


def test_offsets_of_a_group_whose_subscription_cannot_be_read_stay(rig: GroupRig) -> None:
    commit_many(rig, {"u": 2})
    token = rig.join(protocols=(MemberProtocol("range", b"\0\1\x7f\xff"),))
    rig.after(3_000)
    rig.sync_all(1, rig.joined(token).member_id)
    assert ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC == delete(rig, "u").partitions[0].error


def test_offsets_of_members_that_are_no_consumers_stay(rig: GroupRig) -> None:
    rig.join(protocol_type="connect")
    assert OffsetDeleteResponse(error=ErrorCode.NON_EMPTY_GROUP) == delete(rig, "t")


def test_a_deleted_topic_takes_all_its_offsets_along(rig: GroupRig) -> None:
    commit_many(rig, {"t": 1, "u": 2})
    rig.commit(3, group_id="h")
    rig.commit_in_transaction(5)
    rig.run(rig.shard.on_topics_deleted(["t"], rig.now_ms))
    assert (FetchedOffset("u", 0, 2),) == fetch_all(rig)
    assert -1 == rig.offset(require_stable=True)
    rig.crash()
    assert () == rig.answer("fetch_offsets", OffsetFetchRequest(group_id="h")).offsets


def test_deletions_are_written_in_bounded_batches(rig: GroupRig) -> None:
    offsets = tuple(NewOffset(topic="t", partition=index, offset=1) for index in range(2_500))
    rig.ask("commit_offsets", OffsetCommitRequest(group_id="g", offsets=offsets))
    effects = rig.shard.on_topics_deleted(["t"], rig.now_ms)
    assert [1_000, 1_000, 500] == [len(effect.records) for effect in effects]  # type: ignore[union-attr]


def test_groups_are_deleted(rig: GroupRig) -> None:
    request = DeleteGroupRequest(group_id="g")
    not_found = DeleteGroupResponse(group_id="g", error=ErrorCode.GROUP_ID_NOT_FOUND)
    assert not_found == rig.answer("delete_group", request)
    commit_many(rig, {"t": 1, "u": 2})
    rig.commit_in_transaction(5, offsets=(NewOffset(topic="v", partition=0, offset=5),))
    member = rig.stable()[0]
    refused = DeleteGroupResponse(group_id="g", error=ErrorCode.NON_EMPTY_GROUP)
    assert refused == rig.answer("delete_group", request)
    rig.leave(member)
    rig.writes_fail = True
    failed = DeleteGroupResponse(group_id="g", error=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert failed == rig.answer("delete_group", request)
    rig.writes_fail = False
    assert DeleteGroupResponse(group_id="g") == rig.answer("delete_group", request)
    for _ in range(2):
        assert ([], (), []) == (rig.shard.list_groups(), fetch_all(rig), rig.shard.offsets.group_ids())
        rig.marker(1, commit=True)
        rig.crash()


# Expiry


def test_offsets_expire_when_the_group_was_empty_for_long(rig: GroupRig) -> None:
    member = rig.stable()[0]
    rig.commit(1, 1, member)
    rig.leave(member)
    rig.after(7 * DAY_MS - 1)
    assert 1 == rig.offset()
    rig.after(SWEEP_MS)
    assert -1 == rig.offset()
    assert [] == rig.shard.list_groups(), "the group goes with its last offset"
    rig.crash()
    assert [] == rig.shard.list_groups()


def test_the_time_runs_from_the_moment_the_group_became_empty() -> None:
    rig = GroupRig(GroupSettings(offsets_retention_ms=20_000, offsets_check_interval_ms=1_000))
    member = rig.stable()[0]
    rig.commit(1, 1, member)
    for _ in range(5):
        rig.after(9_000)
        rig.heartbeat(member, 1)
    rig.leave(member)
    rig.after(10_000)
    rig.crash()
    rig.after(9_999)
    assert 1 == rig.offset()
    rig.after(1_000)
    assert -1 == rig.offset()


def test_a_later_commit_to_an_empty_group_lives_its_whole_time(rig: GroupRig) -> None:
    rig.leave(rig.stable()[0])
    commit_many(rig, {"t": 1})
    rig.after(6 * DAY_MS)
    commit_many(rig, {"u": 2})
    rig.after(DAY_MS + SWEEP_MS)
    assert (FetchedOffset("u", 0, 2),) == fetch_all(rig)
    rig.after(6 * DAY_MS)
    assert () == fetch_all(rig)


def test_offsets_without_members_expire_by_their_commit(rig: GroupRig) -> None:
    rig.commit(1)
    rig.after(6 * DAY_MS)
    rig.commit(2)
    rig.after(6 * DAY_MS)
    assert 2 == rig.offset()
    rig.after(DAY_MS + SWEEP_MS)
    assert -1 == rig.offset()


def test_a_stable_group_loses_only_what_it_does_not_subscribe() -> None:
    rig = GroupRig(GroupSettings(offsets_retention_ms=5_000, offsets_check_interval_ms=1_000))
    commit_many(rig, {"t": 1, "u": 2})
    rig.stable()
    assert [1, 2] == [rig.offset("t"), rig.offset("u")]
    rig.after(6_000)
    assert [1, -1] == [rig.offset("t"), rig.offset("u")]
    assert "Stable" == rig.state()


def test_nothing_expires_while_a_group_rebalances() -> None:
    rig = GroupRig(GroupSettings(offsets_retention_ms=1_000, offsets_check_interval_ms=100))
    commit_many(rig, {"u": 2})
    rig.join()
    rig.after(2_999)
    assert ("PreparingRebalance", 2) == (rig.state(), rig.offset("u"))
    rig.after(1)
    assert ("CompletingRebalance", 2) == (rig.state(), rig.offset("u"))


def test_what_a_transaction_may_change_does_not_expire(rig: GroupRig) -> None:
    rig.commit(1)
    rig.commit_in_transaction(5)
    rig.after(8 * DAY_MS)
    assert [1, UNSTABLE] == [rig.offset(), rig.offset(require_stable=True)]
    rig.marker(1, commit=False)
    rig.after(SWEEP_MS)
    assert -1 == rig.offset()


@pytest.mark.parametrize("retention_ms", [3_600_000, 30 * DAY_MS])
def test_an_old_client_may_name_its_own_retention(rig: GroupRig, retention_ms: int) -> None:
    rig.commit(1, retention_ms=retention_ms)
    rig.crash()
    rig.after(retention_ms - 1)
    assert 1 == rig.offset()
    rig.after(SWEEP_MS)
    assert -1 == rig.offset()


@pytest.mark.parametrize("retention_ms", [2**63 - 1, -2, -(2**63)])
def test_any_retention_can_be_written(rig: GroupRig, retention_ms: int) -> None:
    assert ErrorCode.NONE == rig.commit(1, retention_ms=retention_ms)


def test_expiry_that_cannot_be_written_is_tried_again(rig: GroupRig) -> None:
    rig.commit(1)
    rig.writes_fail = True
    rig.after(8 * DAY_MS)
    assert 1 == rig.offset()
    rig.writes_fail = False
    rig.after(SWEEP_MS)
    assert -1 == rig.offset()


def test_a_group_without_offsets_and_members_goes(rig: GroupRig) -> None:
    rig.leave(rig.stable()[0])
    rig.after(SWEEP_MS)
    assert [] == rig.shard.list_groups()


def test_settings_change_at_once(rig: GroupRig) -> None:
    rig.commit(1)
    rig.shard.on_settings(replace(rig.settings, offsets_retention_ms=1_000), ConsumerGroupConfig())
    rig.after(SWEEP_MS)
    assert -1 == rig.offset()


def test_check_finds_a_broken_book(rig: GroupRig) -> None:
    rig.commit_in_transaction(1)
    rig.shard.offsets._open["g"][ProducerId(9)] = None
    with pytest.raises(InvariantViolation, match="waits for producer 9"):
        rig.shard.check()
