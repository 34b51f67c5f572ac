"""Heartbeats of streams groups: tasks that move, statuses, shutdown, deadlines and commits."""

import pytest

from ottla.coordination.groups.requests import NewOffset, OffsetCommitRequest
from ottla.coordination.groups.streams.requests import (
    GroupState,
    StatusCode,
    StreamsGroupConfig,
    StreamsHeartbeatResponse,
)
from ottla.coordination.groups.streams.topology import Topology
from ottla.model.error_codes import ErrorCode
from tests.unit.coordination.streams_group_driver import CHANGELOG, COUNTING, REPARTITION, Driver

ALL = {"0": (0, 1), "1": (0, 1)}


def codes(response: StreamsHeartbeatResponse) -> list[StatusCode]:
    return [status.code for status in response.statuses]


def owning(active: dict[str, tuple[int, ...]]) -> dict[str, object]:
    return {"active_tasks": active, "standby_tasks": {}, "warmup_tasks": {}}


def test_a_task_moves_only_after_it_was_given_up() -> None:
    driver = Driver()
    first = driver.join("m1")
    assert first.tasks is not None
    assert ALL == first.tasks.active
    second = driver.join("m2")
    assert second.tasks is not None
    assert {} == second.tasks.active
    told = driver.beat("m1", first.member_epoch)
    assert told.tasks is not None
    assert first.member_epoch == told.member_epoch
    kept = dict(told.tasks.active)
    assert 2 == sum(map(len, kept.values()))
    waiting = driver.beat("m2", second.member_epoch)
    assert waiting.tasks is None
    assert GroupState.RECONCILING is driver.group().state
    freed = driver.beat("m1", told.member_epoch, **owning(kept))
    assert second.member_epoch == freed.member_epoch
    moved = driver.beat("m2", second.member_epoch)
    assert moved.tasks is not None
    assert 2 == sum(map(len, moved.tasks.active.values()))
    assert GroupState.STABLE is driver.group().state


def test_a_member_that_missed_a_response_is_told_again() -> None:
    driver = Driver()
    joined = driver.join("m1")
    assert driver.beat("m1", joined.member_epoch).tasks is None
    again = driver.beat("m1", joined.member_epoch, **owning({}))
    assert again.tasks is not None
    assert ALL == again.tasks.active


def test_standby_tasks_are_in_another_process() -> None:
    driver = Driver(StreamsGroupConfig(initial_rebalance_delay_ms=0, assignment_interval_ms=0, standby_replicas=1))
    driver.join("m1", process_id="p")
    driver.join("m2", process_id="q")
    targets = driver.group().targets
    for member_id, other in (("m1", "m2"), ("m2", "m1")):
        assert targets[other].active.get("1", ()) == targets[member_id].standby.get("1", ())


def test_topics_that_are_missing_come_with_a_status() -> None:
    driver = Driver(topics={})
    assert [StatusCode.MISSING_SOURCE_TOPICS] == codes(driver.join("m1"))
    driver.add_topics({"words": 3})
    answer = driver.beat("m1", driver.group().members["m1"].member_epoch)
    assert [StatusCode.MISSING_INTERNAL_TOPICS] == codes(answer)
    assert {REPARTITION: 3, CHANGELOG: 3} == {topic.name: topic.partitions for topic in answer.missing_topics}
    assert GroupState.NOT_READY is driver.group().state
    driver.add_topics({REPARTITION: 3, CHANGELOG: 3})
    answer = driver.beat("m1", answer.member_epoch)
    assert ([], {"0": (0, 1, 2), "1": (0, 1, 2)}) == (codes(answer), answer.tasks and answer.tasks.active)
    driver.set_topics({name: topic for name, topic in driver.topics.items() if name != "words"})
    # The next target is empty, and the member gives its tasks up.
    assert [StatusCode.MISSING_SOURCE_TOPICS] == codes(driver.beat("m1", answer.member_epoch))
    assert {} == driver.group().members["m1"].assigned.active


def test_an_older_topology_is_stale_and_another_one_is_refused() -> None:
    driver = Driver()
    newer = Topology(epoch=1, subtopologies=COUNTING.subtopologies)
    driver.join("m1", topology=newer)
    assert [StatusCode.STALE_TOPOLOGY] == codes(driver.join("m2"))
    other = Topology(epoch=1, subtopologies=COUNTING.subtopologies[:1])
    assert ErrorCode.INVALID_REQUEST is driver.join("m3", topology=other).error
    assert ErrorCode.NONE is driver.join("m3", topology=newer).error


@pytest.mark.parametrize("kind", ["active_tasks", "standby_tasks"])
def test_tasks_that_the_topology_does_not_have_are_refused(kind: str) -> None:
    driver = Driver()
    joined = driver.join("m1")
    for tasks, message in (
        ({"1": (0, 2)}, "Task 2 for subtopology 1 is invalid. Number of tasks for this subtopology: 2"),
        ({"1": (-1,)}, "Task -1 for subtopology 1 is invalid. Number of tasks for this subtopology: 2"),
        ({"9": (0,)}, "Subtopology 9 does not exist in the topology."),
    ):
        refused = driver.beat("m1", joined.member_epoch, **{**owning({}), kind: tasks})
        assert (ErrorCode.INVALID_REQUEST, message) == (refused.error, refused.error_message)
    assert ErrorCode.NONE is driver.beat("m1", joined.member_epoch, **{**owning({}), kind: {"1": (1,)}}).error


def test_a_shutdown_is_told_to_all_until_the_group_is_empty() -> None:
    driver = Driver()
    first, _ = driver.join("m1"), driver.join("m2")
    driver.beat("m2", -1, shutdown_application=True)
    assert [StatusCode.SHUTDOWN_APPLICATION] == codes(driver.beat("m1", first.member_epoch))
    driver.beat("m1", -1)
    assert [] == codes(driver.join("m3"))


def test_a_new_group_waits_for_members_and_then_assigns_once() -> None:
    driver = Driver(StreamsGroupConfig(initial_rebalance_delay_ms=3_000))
    first = driver.join("m1")
    second = driver.join("m2")
    assert [StatusCode.ASSIGNMENT_DELAYED] == codes(first) == codes(second)
    driver.pass_ms(3_000)
    for member_id, joined in (("m1", first), ("m2", second)):
        answer = driver.beat(member_id, joined.member_epoch)
        assert answer.tasks is not None
        assert 2 == sum(map(len, answer.tasks.active.values()))
    assert GroupState.STABLE is driver.group().state


def test_a_silent_member_is_removed_also_after_a_failover() -> None:
    driver = Driver()
    driver.join("m1")
    driver.reload()
    driver.pass_ms(44_999)
    assert ["m1"] == list(driver.group().members)
    driver.pass_ms(1)
    assert [] == list(driver.group().members)
    assert GroupState.EMPTY is driver.group().state


def test_a_group_that_is_full_takes_no_further_member() -> None:
    driver = Driver(StreamsGroupConfig(initial_rebalance_delay_ms=0, max_size=1))
    driver.join("m1")
    assert ErrorCode.GROUP_MAX_SIZE_REACHED is driver.join("m2").error
    assert ErrorCode.NONE is driver.join("m1").error


def test_an_older_epoch_commits_only_tasks_that_the_member_had_then() -> None:
    driver = Driver()
    first = driver.join("m1")
    driver.join("m2")
    driver.beat("m2", -1)
    now = driver.beat("m1", first.member_epoch)
    assert first.member_epoch < now.member_epoch

    def verdict(epoch: int, member_id: str = "m1") -> list[ErrorCode]:
        offsets = (NewOffset(topic="words", partition=0, offset=1), NewOffset(topic="other", partition=0, offset=1))
        request = OffsetCommitRequest(group_id="g", member_id=member_id, generation=epoch, offsets=offsets)
        found = driver.shard.commit_verdict(request, is_transactional=False)
        ids = [driver.topics["words"].topic_id, None]
        return [found.error_for(topic_id, 0) for topic_id in ids]

    stale = ErrorCode.STALE_MEMBER_EPOCH
    assert [ErrorCode.NONE, ErrorCode.NONE] == verdict(now.member_epoch)
    assert [ErrorCode.NONE, stale] == verdict(first.member_epoch)
    assert [stale, stale] == verdict(first.member_epoch - 1)
    assert [stale, stale] == verdict(now.member_epoch + 1)
    assert [ErrorCode.UNKNOWN_MEMBER_ID] * 2 == verdict(now.member_epoch, "nobody")
