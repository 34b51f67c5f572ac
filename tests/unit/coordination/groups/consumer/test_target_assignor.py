"""The assignors of server-side groups: every partition once, evenly, with few moves; and as Kafka's do.

What Kafka's assignors make of three hundred groups is in `tests/golden/coordination`. Range has one right answer; where
uniform has several, ours must be as even and move as little.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.coordination.groups.consumer.target_assignor import ASSIGNORS, RANGE, UNIFORM, AssignedMember, assign
from ottla.coordination.groups.record_values import Assignment
from tests.effort import effort

A, B, C = (UUID(int=number) for number in (1, 2, 3))
GOLDEN: Final = Path(__file__).parents[4] / "golden" / "coordination" / "target_assignments.jsonl"
EFFORT: Final = effort(80)


@st.composite
def topics(draw: st.DrawFn) -> dict[UUID, int]:
    return {UUID(int=1 + index): draw(st.integers(1, 12)) for index in range(draw(st.integers(1, 5)))}


@st.composite
def groups(draw: st.DrawFn, *, alike: bool) -> tuple[list[AssignedMember], dict[UUID, int]]:
    """Members with subscriptions, and a last target that gives no partition twice but may be out of date."""
    counts = draw(topics())
    member_ids = [f"m{index}" for index in range(draw(st.integers(1, 6)))]
    some = st.lists(st.sampled_from(list(counts)), unique=True)
    same = tuple(counts)
    last: dict[str, dict[UUID, list[int]]] = {member_id: {} for member_id in member_ids}
    for topic_id, count in counts.items():
        for partition in range(count + 1):
            owner = draw(st.sampled_from([None, *member_ids]))
            if owner is not None:
                last[owner].setdefault(topic_id, []).append(partition)
    members = [
        AssignedMember(
            member_id=member_id,
            instance_id=draw(st.sampled_from([None, f"i{9 - index}"])),
            topic_ids=same if alike else tuple(sorted(draw(some))),
            last_target={topic_id: tuple(partitions) for topic_id, partitions in last[member_id].items()},
        )
        for index, member_id in enumerate(member_ids)
    ]
    return members, counts


def pairs(assignment: Assignment) -> list[tuple[UUID, int]]:
    return [(topic_id, partition) for topic_id, partitions in assignment.items() for partition in partitions]


def check_complete(
    members: list[AssignedMember], counts: Mapping[UUID, int], targets: Mapping[str, Assignment]
) -> None:
    """Each subscribed partition has one owner, who is subscribed; nothing else is assigned."""
    wanted = {topic_id for member in members for topic_id in member.topic_ids}
    given = sorted(pair for target in targets.values() for pair in pairs(target))
    assert sorted((topic_id, p) for topic_id in wanted for p in range(counts[topic_id])) == given
    for member in members:
        assert set() == set(targets[member.member_id]) - set(member.topic_ids)
        assert all(partitions for partitions in targets[member.member_id].values())


@pytest.mark.parametrize("name", ASSIGNORS)
@pytest.mark.parametrize("alike", [True, False])
def test_every_partition_is_assigned_once(name: str, alike: bool) -> None:
    @EFFORT
    @given(groups(alike=alike))
    def run(group: tuple[list[AssignedMember], dict[UUID, int]]) -> None:
        members, counts = group
        targets = assign(name, members, counts)
        check_complete(members, counts, targets)
        assert targets == assign(name, members[::-1], counts)

    run()


@EFFORT
@given(groups(alike=True))
def test_uniform_is_level_and_moves_no_more_than_it_must(group: tuple[list[AssignedMember], dict[UUID, int]]) -> None:
    members, counts = group
    targets = assign(UNIFORM, members, counts)
    quota, extra = divmod(sum(counts.values()), len(members))
    loads = [len(pairs(targets[member.member_id])) for member in members]
    assert sorted([quota + 1] * extra + [quota] * (len(members) - extra)) == sorted(loads)

    had = {member.member_id: {(t, p) for t, p in pairs(member.last_target) if p < counts[t]} for member in members}
    above = sum(len(had[member.member_id]) > quota for member in members)
    can_stay = sum(min(len(had[member.member_id]), quota) for member in members) + min(extra, above)
    stayed = sum(len(had[member.member_id] & set(pairs(targets[member.member_id]))) for member in members)
    assert can_stay == stayed


@EFFORT
@given(groups(alike=False))
def test_uniform_with_overlapping_subscriptions_is_level_in_each_topic(
    group: tuple[list[AssignedMember], dict[UUID, int]],
) -> None:
    members, counts = group
    targets = assign(UNIFORM, members, counts)
    loads = {member.member_id: len(pairs(targets[member.member_id])) for member in members}
    for topic_id in counts:
        subscribers = [member.member_id for member in members if topic_id in member.topic_ids]
        least = min((loads[member_id] for member_id in subscribers), default=0)
        givers = [loads[member_id] for member_id in subscribers if topic_id in targets[member_id]]
        assert max(givers, default=0) - least <= 1


@pytest.mark.parametrize("alike", [True, False])
def test_uniform_leaves_its_own_target_alone(alike: bool) -> None:
    @EFFORT
    @given(groups(alike=alike))
    def run(group: tuple[list[AssignedMember], dict[UUID, int]]) -> None:
        members, counts = group
        first = assign(UNIFORM, members, counts)
        again = [
            AssignedMember(member_id=m.member_id, topic_ids=m.topic_ids, last_target=first[m.member_id])
            for m in members
        ]
        assert first == assign(UNIFORM, again, counts)

    run()


def test_range_cuts_topics_alike_and_puts_static_members_first() -> None:
    members = [
        AssignedMember(member_id="a", topic_ids=(A, B)),
        AssignedMember(member_id="b", instance_id="i2", topic_ids=(A, B)),
        AssignedMember(member_id="c", instance_id="i1", topic_ids=(A, B)),
    ]
    expected = {
        "c": {A: (0, 1, 2), B: (0, 1, 2)},
        "b": {A: (3, 4), B: (3, 4)},
        "a": {A: (5, 6), B: (5, 6)},
    }
    assert expected == assign(RANGE, members, {A: 7, B: 7})


def test_range_with_fewer_partitions_than_members_leaves_some_without() -> None:
    members = [AssignedMember(member_id=name, topic_ids=(A,)) for name in "abc"]
    assert {"a": {A: (0,)}, "b": {A: (1,)}, "c": {}} == assign(RANGE, members, {A: 2})


def test_range_counts_only_subscribers() -> None:
    members = [
        AssignedMember(member_id="a", topic_ids=(A,)),
        AssignedMember(member_id="b", topic_ids=(A, B)),
        AssignedMember(member_id="c", topic_ids=(B,)),
    ]
    expected = {"a": {A: (0, 1)}, "b": {A: (2,), B: (0, 1)}, "c": {B: (2,)}}
    assert expected == assign(RANGE, members, {A: 3, B: 3})


def test_uniform_spreads_over_topics_what_range_would_not() -> None:
    members = [AssignedMember(member_id=name, topic_ids=(A, B, C)) for name in "abc"]
    targets = assign(UNIFORM, members, {A: 1, B: 1, C: 1})
    assert {1} == {len(pairs(target)) for target in targets.values()}


def test_uniform_gives_a_newcomer_only_its_share() -> None:
    members = [
        AssignedMember(member_id="a", topic_ids=(A,), last_target={A: (0, 2, 4)}),
        AssignedMember(member_id="b", topic_ids=(A,), last_target={A: (1, 3, 5)}),
        AssignedMember(member_id="c", topic_ids=(A,)),
    ]
    expected: dict[str, Assignment] = {"a": {A: (0, 2)}, "b": {A: (1, 3)}, "c": {A: (4, 5)}}
    assert expected == assign(UNIFORM, members, {A: 6})


@pytest.mark.parametrize("name", ASSIGNORS)
def test_nobody_and_nothing(name: str) -> None:
    assert {} == assign(name, [], {})
    assert {"a": {}} == assign(name, [AssignedMember(member_id="a")], {A: 3})


class GoldenGroup(NamedTuple):
    """A group, and what Kafka's assignors say."""

    members: list[AssignedMember]
    counts: dict[UUID, int]
    by_kafka: dict[str, dict[str, Assignment]]


def golden() -> list[GoldenGroup]:
    return [_golden_group(json.loads(line)) for line in GOLDEN.read_text(encoding="utf-8").splitlines()]


def _golden_group(group: dict[str, Any]) -> GoldenGroup:
    members = [
        AssignedMember(
            member_id=member_id,
            instance_id=member["instance"],
            topic_ids=tuple(sorted(_topic(number) for number in member["topics"])),
            last_target=_assignment(member["last"]),
        )
        for member_id, member in group["members"].items()
    ]
    # Kafka leaves out members that get nothing, or not.
    by_kafka = {
        name: {member.member_id: _assignment(group[name].get(member.member_id, {})) for member in members}
        for name in ASSIGNORS
    }
    return GoldenGroup(members, {_topic(number): count for number, count in group["counts"].items()}, by_kafka)


def _topic(number: str) -> UUID:
    return UUID(int=int(number))


def _assignment(written: dict[str, list[int]]) -> Assignment:
    return {_topic(number): tuple(partitions) for number, partitions in written.items()}


def loads(targets: Mapping[str, Assignment]) -> list[int]:
    return sorted(len(pairs(target)) for target in targets.values())


def moves(members: list[AssignedMember], targets: Mapping[str, Assignment]) -> int:
    return sum(len({*pairs(member.last_target)} - {*pairs(targets[member.member_id])}) for member in members)


def test_range_assigns_as_kafka_does() -> None:
    for group in golden():
        assert group.by_kafka[RANGE] == assign(RANGE, group.members, group.counts)


def test_uniform_is_as_even_as_kafkas_and_moves_no_more() -> None:
    unevenness = {"ours": 0, "kafka": 0}
    moved = {"ours": 0, "kafka": 0}
    for group in golden():
        ours, theirs = assign(UNIFORM, group.members, group.counts), group.by_kafka[UNIFORM]
        if len({member.topic_ids for member in group.members}) == 1:
            assert loads(theirs) == loads(ours)
            assert moves(group.members, theirs) == moves(group.members, ours)
            continue
        for who, targets in (("ours", ours), ("kafka", theirs)):
            unevenness[who] += sum(load**2 for load in loads(targets))
            moved[who] += moves(group.members, targets)
    assert unevenness["ours"] <= unevenness["kafka"]
    assert moved["ours"] <= moved["kafka"]
