"""Which offsets a group has yet to be told: never backwards, never lost, never in the way of others."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.model.ids import TopicPartition
from ottla.spark.progress import GroupEnd
from ottla.spark.source.group_following_state import BACKOFF_MAX_S, GroupFollowing

ORDERS = TopicPartition("orders", 0)
OTHER = TopicPartition("orders", 1)
KEY = ("h:1", "g")


def end(group: str = "g", **offsets: int) -> list[GroupEnd]:
    partitions = {"zero": ORDERS, "one": OTHER}
    return [
        GroupEnd(group=group, bootstrap="h:1", offsets={partitions[name]: offset for name, offset in offsets.items()})
    ]


def test_a_batch_is_due_until_it_is_committed() -> None:
    state = GroupFollowing()
    assert state.is_settled()
    state.on_batch(end(zero=5, one=7))
    assert {KEY: {ORDERS: 5, OTHER: 7}} == state.due(0.0)
    state.on_committed(KEY, {ORDERS: 5})
    assert {KEY: {OTHER: 7}} == state.due(0.0)
    state.on_committed(KEY, {OTHER: 9})
    assert state.is_settled()


def test_offset_zero_is_committed_too() -> None:
    state = GroupFollowing()
    state.on_batch(end(zero=0))
    assert {KEY: {ORDERS: 0}} == state.due(0.0)


def test_nothing_goes_back() -> None:
    state = GroupFollowing()
    state.on_batch(end(zero=5))
    state.on_batch(end(zero=3))
    assert {KEY: {ORDERS: 5}} == state.due(0.0)
    state.on_committed(KEY, {ORDERS: 5})
    state.on_batch(end(zero=4))
    assert state.is_settled()


def test_a_group_that_fails_waits_longer_each_time_and_alone() -> None:
    state = GroupFollowing()
    state.on_batch([*end(zero=5), *end("h", zero=1)])
    pauses = [state.on_failed(KEY, 100.0) for _ in range(30)]
    assert sorted(pauses) == pauses
    assert BACKOFF_MAX_S == pauses[-1]
    assert {("h:1", "h"): {ORDERS: 1}} == state.due(100.0)
    assert {KEY, ("h:1", "h")} == set(state.due(100.0 + BACKOFF_MAX_S))
    state.on_committed(("h:1", "h"), {ORDERS: 1})
    assert 100.0 + BACKOFF_MAX_S == state.next_deadline()
    state.on_committed(KEY, {ORDERS: 5})
    state.on_batch(end(zero=6))
    assert {KEY: {ORDERS: 6}} == state.due(0.0), "a success ends the waiting"


_events = st.lists(st.tuples(st.sampled_from(["batch", "commit", "fail"]), st.integers(0, 20)))


@given(_events)
def test_the_group_ends_where_the_furthest_batch_did(events: list[tuple[str, int]]) -> None:
    state = GroupFollowing()
    has, furthest, now = -1, -1, 0.0
    for kind, offset in events:
        now += BACKOFF_MAX_S
        if kind == "batch":
            furthest = max(furthest, offset)
            state.on_batch(end(zero=offset))
        for key, offsets in state.due(now).items():
            if kind == "fail":
                state.on_failed(key, now)
            else:
                assert offsets[ORDERS] > has
                has = offsets[ORDERS]
                state.on_committed(key, offsets)
    for key, offsets in state.due(now + BACKOFF_MAX_S).items():
        has = offsets[ORDERS]
        state.on_committed(key, offsets)
    assert furthest == has
    assert state.is_settled()
