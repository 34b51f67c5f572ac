"""Offsets of server-side groups: who may commit, fetch and delete them, when they expire; and looking at the groups."""

from typing import Any

import pytest

from ottla.coordination.groups.consumer.requests import (
    DescribedConsumerGroup,
    DescribedMember,
    DescribedPartitions,
)
from ottla.coordination.groups.requests import (
    DeleteGroupRequest,
    ListedGroup,
    NewOffset,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    TopicOffsets,
    TransactionalCommitRequest,
    WantedPartition,
    WholeCommitRequest,
    WholeCommitResponse,
)
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import ProducerEpoch, ProducerId
from tests.unit.coordination.consumer_group_driver import BAR, FOO
from tests.unit.coordination.consumer_offsets_driver import ShardDriver, subscription

DAY_MS = 24 * 3_600_000


def commit(driver: ShardDriver, member_id: str, epoch: int, *partitions: int, **fields: Any) -> list[ErrorCode]:
    offsets = tuple(NewOffset(topic="foo", partition=partition, offset=7) for partition in partitions or (0,))
    request = OffsetCommitRequest(group_id="g", member_id=member_id, generation=epoch, offsets=offsets, **fields)
    in_bulk = commit_in_bulk(driver, request)
    response = driver.ask(driver.shard.commit_offsets(request, driver.now_ms, "t"))
    errors = [outcome.error for outcome in response.partitions]
    assert errors == in_bulk
    return errors


def commit_in_bulk(driver: ShardDriver, request: OffsetCommitRequest) -> list[ErrorCode]:
    rows: list[tuple[int, int, int, str | None]] = [(each.partition, each.offset, -1, None) for each in request.offsets]
    whole = WholeCommitRequest(
        group_id=request.group_id,
        generation=request.generation,
        member_id=request.member_id,
        instance_id=request.instance_id,
        retention_ms=request.retention_ms,
        topics=(TopicOffsets("foo", None, rows),),
        metadata_bytes_max=0,
        knows_group_not_found=request.knows_group_not_found,
    )
    response = driver.ask(driver.shard.commit_whole(whole, driver.now_ms, "t"))
    if isinstance(response, WholeCommitResponse):
        return [response.error] * len(rows)
    return [outcome.error for outcome in response.partitions]


def commit_in_transaction(driver: ShardDriver, member_id: str, epoch: int) -> list[ErrorCode]:
    request = TransactionalCommitRequest(
        group_id="g",
        transactional_id="x",
        producer_id=ProducerId(1),
        producer_epoch=ProducerEpoch(0),
        member_id=member_id,
        generation=epoch,
        offsets=(NewOffset(topic="foo", partition=0, offset=7),),
    )
    response = driver.ask(driver.shard.commit_in_transaction(request, driver.now_ms, "t"))
    return [outcome.error for outcome in response.partitions]


def fetch(driver: ShardDriver, member_id: str | None, epoch: int) -> ErrorCode | int:
    request = OffsetFetchRequest(
        group_id="g", partitions=(WantedPartition("foo", 0),), member_id=member_id, member_epoch=epoch
    )
    response = driver.ask(driver.shard.fetch_offsets(request, driver.now_ms, "t"))
    error: ErrorCode = response.error
    return error if error is not ErrorCode.NONE else int(response.offsets[0].offset)


def moved() -> ShardDriver:
    """Member a has partitions 0 and 1 since epoch 2 and is at 3; b has 2 and 3 since epoch 3."""
    driver = ShardDriver()
    driver.consume("a")
    driver.consume("b")
    driver.beat("a", 2, owned_partitions={FOO: (0, 1, 2, 3)})
    driver.beat("a", 2, owned_partitions={FOO: (0, 1)})
    driver.beat("b", 3)
    return driver


@pytest.mark.parametrize(
    ("member_id", "epoch", "fields", "expected"),
    [
        ("a", 3, {}, ErrorCode.NONE),
        ("a", 4, {}, ErrorCode.STALE_MEMBER_EPOCH),
        ("a", 1, {}, ErrorCode.STALE_MEMBER_EPOCH),
        ("a", -1, {}, ErrorCode.STALE_MEMBER_EPOCH),
        ("x", 3, {}, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, {}, ErrorCode.UNKNOWN_MEMBER_ID),
        ("a", 3, {"knows_group_not_found": False}, ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_who_may_commit(member_id: str, epoch: int, fields: dict[str, Any], expected: ErrorCode) -> None:
    assert [expected] == commit(moved(), member_id, epoch, **fields)


def test_an_older_epoch_is_good_for_what_the_member_has_had_since_then() -> None:
    driver = moved()
    stale = ErrorCode.STALE_MEMBER_EPOCH
    assert [ErrorCode.NONE, stale, ErrorCode.NONE, stale] == commit(driver, "a", 2, 0, 2, 1, 9)
    assert [stale] == commit(driver, "b", 2, 2)
    assert 7 == fetch(driver, "a", 3)
    assert ["foo-0", "foo-1"] == sorted(map(str, driver.shard.offsets.partitions("g")))


def test_what_is_being_given_up_may_still_be_committed() -> None:
    driver = ShardDriver()
    driver.consume("a")
    driver.consume("b")
    driver.beat("a", 2, owned_partitions={FOO: (0, 1, 2, 3)})
    assert [ErrorCode.NONE, ErrorCode.NONE] == commit(driver, "a", 2, 0, 3)


def test_anyone_may_commit_for_a_group_without_members() -> None:
    driver = ShardDriver()
    driver.consume("a")
    driver.beat("a", -1)
    assert [ErrorCode.NONE] == commit(driver, "", -1)
    assert [ErrorCode.UNKNOWN_MEMBER_ID] == commit(driver, "a", 2)


def test_old_members_have_generations() -> None:
    driver = ShardDriver()
    old = driver.stable_classic()
    driver.consume("n")
    driver.join(old, subscription("foo"))
    assert [ErrorCode.NONE] == commit(driver, old, 2, knows_group_not_found=False)
    assert [ErrorCode.ILLEGAL_GENERATION] == commit(driver, old, 3)
    assert ErrorCode.ILLEGAL_GENERATION is fetch(driver, old, 1)


@pytest.mark.parametrize(
    ("member_id", "epoch", "expected"),
    [
        ("", -1, ErrorCode.NONE),
        ("a", 3, ErrorCode.NONE),
        ("a", 2, ErrorCode.NONE),
        ("a", 1, ErrorCode.STALE_MEMBER_EPOCH),
        ("x", 3, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_who_may_commit_in_a_transaction(member_id: str, epoch: int, expected: ErrorCode) -> None:
    assert [expected] == commit_in_transaction(moved(), member_id, epoch)


@pytest.mark.parametrize(
    ("member_id", "epoch", "expected"),
    [
        (None, -1, -1),
        ("a", 3, -1),
        ("a", 2, ErrorCode.STALE_MEMBER_EPOCH),
        ("x", 3, ErrorCode.UNKNOWN_MEMBER_ID),
        (None, 3, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_who_may_fetch(member_id: str | None, epoch: int, expected: ErrorCode | int) -> None:
    assert expected == fetch(moved(), member_id, epoch)


def test_offsets_of_subscribed_topics_cannot_be_deleted() -> None:
    driver = moved()
    commit(driver, "a", 3)
    request = OffsetDeleteRequest(group_id="g", partitions=(WantedPartition("foo", 0), WantedPartition("bar", 0)))
    response = driver.ask(driver.shard.delete_offsets(request, driver.now_ms, "t"))
    errors = [outcome.error for outcome in response.partitions]
    assert [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE] == errors
    driver.beat("a", -1)
    driver.beat("b", -1)
    response = driver.ask(driver.shard.delete_offsets(request, driver.now_ms, "t"))
    assert [ErrorCode.NONE, ErrorCode.NONE] == [outcome.error for outcome in response.partitions]
    assert [] == driver.shard.offsets.partitions("g")


def test_offsets_survive_the_change_to_classic_and_back() -> None:
    driver = moved()
    commit(driver, "a", 3)
    driver.beat("a", -1)
    driver.beat("b", -1)
    driver.stable_classic()
    assert 7 == fetch(driver, None, -1)
    driver.reload()
    assert 7 == fetch(driver, None, -1)
    driver.consume("n")
    assert 7 == fetch(driver, None, -1)


def test_offsets_are_not_forgotten_with_one_who_never_joined() -> None:
    driver = moved()
    commit(driver, "a", 3)
    driver.beat("a", -1)
    driver.beat("b", -1)
    asked = driver.join("", subscription("foo"))
    assert asked is not None
    assert ErrorCode.MEMBER_ID_REQUIRED is asked.error
    driver.pass_ms(30_000)
    assert [ListedGroup("g", "", "Empty", "classic")] == driver.shard.list_groups()


def test_offsets_older_than_their_group_do_not_make_it_classic() -> None:
    driver = ShardDriver()
    assert [ErrorCode.NONE] == commit(driver, "", -1)
    driver.consume("a")
    # As it is when compaction has thrown the tombstones out.
    driver.log = [(record, producer_id) for record, producer_id in driver.log if record.value is not None]
    driver.reload()
    assert [ListedGroup("g", "consumer", "Stable", "consumer")] == driver.shard.list_groups()
    assert 7 == fetch(driver, "a", 2)


def test_a_group_with_members_is_not_deleted_and_one_without_is_with_its_offsets() -> None:
    driver = moved()
    commit(driver, "a", 3)
    request = DeleteGroupRequest(group_id="g")
    assert ErrorCode.NON_EMPTY_GROUP is driver.ask(driver.shard.delete_group(request, driver.now_ms, "t")).error
    driver.beat("a", -1)
    driver.beat("b", -1)
    assert ErrorCode.NONE is driver.ask(driver.shard.delete_group(request, driver.now_ms, "t")).error
    assert ({}, []) == (driver.consumers, driver.shard.offsets.partitions("g"))
    assert ErrorCode.GROUP_ID_NOT_FOUND is driver.ask(driver.shard.delete_group(request, driver.now_ms, "t")).error


def test_offsets_that_nobody_wants_expire_and_the_empty_group_with_them() -> None:
    driver = moved()
    commit(driver, "a", 3)
    driver.reload()
    driver.now_ms += 8 * DAY_MS
    driver.beat("a", 3)
    driver.beat("b", 3)
    driver.pass_ms(1)
    assert 7 == fetch(driver, "a", 3)
    driver.beat("a", -1)
    driver.beat("b", -1)
    driver.pass_ms(DAY_MS)
    assert ({}, []) == (driver.consumers, driver.shard.offsets.partitions("g"))


# Looking at groups


def test_groups_of_both_kinds_are_listed() -> None:
    driver = moved()
    commit(driver, "a", 3)
    driver.reload()
    expected = [ListedGroup("g", "consumer", "Stable", "consumer")]
    assert expected == driver.shard.list_groups()
    assert expected == driver.shard.list_groups(states=["stable"], types=["Consumer"])
    assert [] == driver.shard.list_groups(types=["classic"])
    assert [] == driver.shard.list_groups(states=["Empty"])


def test_a_group_is_described_with_all_its_members() -> None:
    driver = ShardDriver()
    driver.consume("a", "foo", "bar", rack_id="r", client_id="c", client_host="/h", server_assignor="range")
    driver.consume("b", topic_names=None, topic_regex="f.*", instance_id="i")
    driver.beat("a", 2, owned_partitions={FOO: (0, 1, 2, 3), BAR: (0, 1)}, client_id="c", client_host="/h")
    all_bar = DescribedPartitions(topic_id=BAR, topic_name="bar", partitions=(0, 1))
    expected = DescribedConsumerGroup(
        group_id="g",
        group_state="Reconciling",
        group_epoch=3,
        assignment_epoch=3,
        assignor="range",
        members=(
            DescribedMember(
                member_id="a",
                instance_id=None,
                rack_id="r",
                member_epoch=2,
                client_id="c",
                client_host="/h",
                topic_names=("bar", "foo"),
                topic_regex="",
                assignment=(all_bar, DescribedPartitions(topic_id=FOO, topic_name="foo", partitions=(0, 1, 2, 3))),
                target_assignment=(all_bar, DescribedPartitions(topic_id=FOO, topic_name="foo", partitions=(2, 3))),
                is_classic=False,
            ),
            DescribedMember(
                member_id="b",
                instance_id="i",
                rack_id=None,
                member_epoch=3,
                client_id="",
                client_host="",
                topic_names=(),
                topic_regex="f.*",
                assignment=(),
                target_assignment=(DescribedPartitions(topic_id=FOO, topic_name="foo", partitions=(0, 1)),),
                is_classic=False,
            ),
        ),
    )
    assert expected == driver.shard.describe_consumer_group("g")


def test_a_deleted_topic_has_no_name_to_show() -> None:
    driver = ShardDriver()
    driver.consume("a")
    driver.shard.on_metadata({}, driver.now_ms)
    (member,) = driver.shard.describe_consumer_group("g").members
    assert ((), ()) == (member.assignment, member.target_assignment)


def test_each_kind_is_not_found_where_the_other_is_described() -> None:
    driver = moved()
    assert ErrorCode.GROUP_ID_NOT_FOUND is driver.shard.describe_group("g").error
    assert (ErrorCode.GROUP_ID_NOT_FOUND, "Dead") == (
        driver.shard.describe_consumer_group("other").error,
        driver.shard.describe_consumer_group("other").group_state,
    )
