"""Plans of reassignments: even, in as many racks as there can be, and without moving what may stay."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.ids import TopicPartition
from ottla.operations.reassignment.plan import PlanError, plan_moves, read_plan, write_plan


def partitions(*replicas: tuple[int, ...]) -> dict[TopicPartition, tuple[int, ...]]:
    return {TopicPartition("t", at): each for at, each in enumerate(replicas)}


@st.composite
def clusters(draw: st.DrawFn) -> tuple[dict[TopicPartition, tuple[int, ...]], dict[int, str | None], int]:
    before = draw(st.integers(1, 6))
    factor = draw(st.integers(1, before))
    lists = st.permutations(range(before)).map(lambda order: tuple(order[:factor]))
    present = draw(st.lists(lists, min_size=1, max_size=15))
    brokers = sorted(draw(st.sets(st.integers(0, 8), min_size=factor, max_size=9)))
    return partitions(*present), dict.fromkeys(brokers), factor


@given(clusters())
def test_without_racks_all_is_even(
    cluster: tuple[dict[TopicPartition, tuple[int, ...]], dict[int, str | None], int],
) -> None:
    present, brokers, factor = cluster
    after = {**present, **plan_moves(present, brokers)}
    assert all(len(each) == len(set(each)) == factor and set(each) <= brokers.keys() for each in after.values())
    held = Counter(dict.fromkeys(brokers, 0))
    held.update(broker for each in after.values() for broker in each)
    assert max(held.values()) - min(held.values()) <= 1
    led = Counter(dict.fromkeys(brokers, 0))
    led.update(each[0] for each in after.values())
    # What is even already is left alone.
    assert {} == plan_moves(after, brokers)
    if factor == len(brokers):
        assert max(led.values()) - min(led.values()) <= 1


def test_a_new_broker_gets_its_share_and_nothing_else_moves() -> None:
    present = partitions((0, 1, 2), (1, 2, 0), (2, 0, 1), (0, 1, 2))
    plan = plan_moves(present, {0: None, 1: None, 2: None, 3: None})
    copied = [set(replicas) - set(present[each]) for each, replicas in plan.items()]
    assert 3 == sum(map(len, copied))
    assert {3} == set().union(*copied)
    after = {**present, **plan}
    assert {0: 1, 1: 1, 2: 1, 3: 1} == Counter(each[0] for each in after.values())


def test_a_broker_that_leaves_is_replaced() -> None:
    present = partitions((0, 1), (1, 2), (2, 0))
    after = {**present, **plan_moves(present, {0: None, 1: None, 3: None})}
    assert {0: 2, 1: 2, 3: 2} == Counter(broker for each in after.values() for broker in each)
    assert all(set(present[each]) - {2} <= set(after[each]) for each in present)


def test_racks_are_kept_apart() -> None:
    racks = {0: "a", 1: "a", 2: "b", 3: "b"}
    after = plan_moves(partitions((0, 1), (1, 0), (0, 1), (1, 0)), racks, 2)
    # Two replicas in one rack stay there, unless a move makes it more even; new ones go to other racks.
    grown = plan_moves(partitions((0,), (1,), (2,), (3,)), racks, 2)
    assert all({racks[each] for each in replicas} == {"a", "b"} for replicas in grown.values())
    assert {0: 2, 1: 2, 2: 2, 3: 2} == Counter(broker for each in grown.values() for broker in each)
    assert {0: 2, 1: 2, 2: 2, 3: 2} == Counter(broker for each in after.values() for broker in each)


def test_fewer_replicas_keep_the_leader() -> None:
    assert partitions((0,), (1,)) == plan_moves(partitions((0, 1), (1, 0)), {0: None, 1: None}, 1)


def test_too_few_brokers_are_told() -> None:
    with pytest.raises(PlanError, match="3 replicas need 3 brokers, but only 2 are given"):
        plan_moves(partitions((0, 1, 2)), {0: None, 1: None})


def test_plans_are_read_as_they_are_written() -> None:
    plan = partitions((0, 1), (1, 2))
    text = '{"partitions":[{"topic":"t","partition":0,"replicas":[0,1]},{"topic":"t","partition":1,"replicas":[1,2]}],'
    assert text + '"version":1}' == write_plan(plan)
    assert plan == read_plan(write_plan(plan))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not a valid reassignment plan"),
        ("[]", "not a valid reassignment plan"),
        ('{"partitions": [{"topic": "t"}]}', "not a valid reassignment plan"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": []}]}', "list each broker once"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 1]}]}', "list each broker once"),
    ],
)
def test_what_is_no_plan(text: str, words: str) -> None:
    with pytest.raises(PlanError, match=words):
        read_plan(text)
