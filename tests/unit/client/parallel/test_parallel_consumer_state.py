"""The decisions of a parallel consumer one by one: who may run beside whom, what is tried again, what is committed."""

from typing import Any

import pytest

from ottla.client.network.backoff import Backoff
from ottla.client.parallel.parallel_consumer_state import ParallelConsumerState, ParallelLimits, Work
from ottla.client.values import ConsumerRecord
from ottla.model.ids import TopicPartition
from ottla.sim.random import SimRandom

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
CHANCE = SimRandom(1)
WAIT = 0.1


def state_of(partitions: tuple[TopicPartition, ...] = (A,), **limits: Any) -> ParallelConsumerState:
    backoff = Backoff(first_ms=100, most_ms=100, jitter=0.0)
    state = ParallelConsumerState(ParallelLimits(**{"workers": 10, "backoff": backoff, **limits}))
    state.assign(partitions)
    return state


def take(state: ParallelConsumerState, first: int, *keys: bytes | None, partition: TopicPartition = A) -> None:
    """Records of ten bytes with these keys, from this offset on."""
    records = [
        ConsumerRecord("t", partition.partition, 0, first + at, 0, 0, key, b"v", (), 0, 10)
        for at, key in enumerate(keys)
    ]
    state.take(partition, records)
    state.check()


def started(state: ParallelConsumerState, now: float = 0.0) -> list[Work]:
    found = state.next_work(now)
    state.check()
    return found


def offsets(works: list[Work]) -> list[int]:
    return [work.record.offset for work in works]


@pytest.mark.parametrize(
    ("ordering", "expected"), [("key", [0, 1, 3, 4]), ("partition", [0]), ("unordered", [0, 1, 2, 3, 4])]
)
def test_what_may_run_side_by_side(ordering: str, expected: list[int]) -> None:
    """Records without a key have no order among themselves."""
    state = state_of(ordering=ordering)
    take(state, 0, b"a", b"b", b"a", None, None)
    first = started(state)
    assert expected == offsets(first)
    state.done(first[0])
    following = {"key": [2], "partition": [1], "unordered": []}[ordering]
    assert following == offsets(started(state))


def test_no_more_than_there_are_workers() -> None:
    state = state_of(workers=2, ordering="unordered")
    take(state, 0, *[None] * 5)
    first = started(state)
    assert [0, 1] == offsets(first)
    assert [] == started(state)
    state.done(first[1])
    assert [2] == offsets(started(state))


def test_commits_reach_up_to_the_oldest_that_is_not_done() -> None:
    state = state_of(ordering="unordered")
    take(state, 5, None, None, None)
    works = started(state)
    # Nothing is done: what was committed before still holds.
    assert {} == state.committable()
    state.done(works[1])
    assert {} == state.committable()
    state.done(works[0])
    assert {A: 7} == state.committable()
    assert ({}, {A: 7}) == (state.committable([B]), state.committable([A]))
    state.committed({A: 7})
    assert {} == state.committable()
    state.done(works[2])
    assert {A: 8} == state.committable()


def test_a_failure_is_tried_so_often_and_not_before_its_time() -> None:
    state = state_of(retries=2)
    take(state, 0, b"a", b"a")
    for attempt, now in ((1, 0.0), (2, 1.0), (3, 2.0)):
        if attempt > 1:
            assert [] == started(state, now - 0.01)
        (work,) = started(state, now)
        assert (0, attempt) == (work.record.offset, work.attempts)
        is_last = state.failed(work, now + 1.0 - WAIT, CHANCE)
        assert is_last is (attempt == 3)
        assert (None if is_last else pytest.approx(now + 1.0)) == state.next_deadline()
    # It still runs while it is put aside; only then comes the next one of its key.
    assert [] == started(state, 9.0)
    state.done(work)
    assert [1] == offsets(started(state, 9.0))


def test_what_will_never_be_good_is_not_tried_again() -> None:
    state = state_of(retries=2)
    take(state, 0, b"a")
    (work,) = started(state)
    assert state.failed(work, 0.0, CHANCE, is_final=True)


def test_a_partition_that_is_about_to_go_starts_nothing_more() -> None:
    state = state_of((A, B), workers=3)
    take(state, 0, b"a", b"a", b"b", b"c", b"d")
    take(state, 0, b"x", partition=B)
    running, failing, delayed = started(state)
    state.failed(delayed, 0.0, CHANCE)
    state.end([A])
    # Neither what waits for a worker, nor for its time, nor behind what runs, nor what comes in late.
    take(state, 5, b"e")
    assert [B] == [work.partition for work in started(state, 9.0)]
    state.done(running)
    assert not state.failed(failing, 9.0, CHANCE)
    assert ([], None) == (started(state, 99.0), state.next_deadline())
    # What ended meanwhile counts.
    assert {A: 1} == state.committable()
    assert 5 == state.buffered


def test_a_partition_that_is_gone_is_forgotten_with_all_that_waits() -> None:
    state = state_of((A, B), workers=2)
    take(state, 0, b"a", b"a", b"b", b"c")
    first, second = started(state)
    state.revoke([A])
    state.check()
    assert (True, 2) == (first.is_revoked, state.buffered)
    assert {} == state.committable()
    state.done(first)
    assert not state.failed(second, 0.0, CHANCE)
    assert (0, [], None) == (state.buffered, started(state, 9.0), state.next_deadline())
    state.check()
    # It may come back, from wherever somebody else left it.
    state.assign([A])
    take(state, 7, b"a")
    (work,) = started(state)
    state.done(work)
    assert {A: 8} == state.committable()


def test_assigning_what_is_assigned_changes_nothing() -> None:
    state = state_of(ordering="unordered")
    take(state, 0, None)
    (work,) = started(state)
    state.assign([A, B])
    state.done(work)
    assert {A: 1} == state.committable()


@pytest.mark.parametrize("limits", [{"buffered_records_max": 4}, {"buffered_bytes_max": 40}])
def test_fetching_stops_at_the_limit_and_goes_on_at_half_of_it(limits: dict[str, Any]) -> None:
    state = state_of(ordering="unordered", **limits)
    take(state, 0, None, None, None)
    assert (False, (set(), set())) == (state.is_full, state.pauses())
    take(state, 3, None)
    assert (True, ({A}, set())) == (state.is_full, state.pauses())
    works = started(state)
    state.done(works[0])
    assert (True, (set(), set())) == (state.is_full, state.pauses())
    state.done(works[1])
    assert (False, (set(), {A})) == (state.is_full, state.pauses())


def test_a_partition_too_far_ahead_of_its_oldest_record_pauses_alone() -> None:
    state = state_of((A, B), ordering="unordered", uncommitted_max=4)
    take(state, 0, None, None, None, None)
    take(state, 0, None, partition=B)
    works = started(state)
    assert ({A}, set()) == state.pauses()
    for work in works[1:4]:
        state.done(work)
    # The oldest one still holds it up.
    assert (set(), set()) == state.pauses()
    state.done(works[0])
    assert (set(), {A}) == state.pauses()


def test_room_is_what_is_left_of_the_limit() -> None:
    state = state_of(ordering="unordered", buffered_records_max=3)
    assert 3 == state.room
    take(state, 0, None, None, None, None)
    assert 0 == state.room
