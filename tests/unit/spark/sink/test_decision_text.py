"""Decisions as text: they come back as they were, in parts that brokers keep, and damage is noticed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.spark.sink.decision import CommitDecision, FirstOffset, TaskTransaction
from ottla.spark.sink.decision_text import (
    PART_CHARACTERS_MAX,
    DecisionTextError,
    part_count,
    read_decision,
    write_decision,
)
from ottla.spark.sink.names import task_id

_NUMBERS = st.integers(0, 2**62)


def _made(task: int, token: str = "00ff00ff00ff00ff", topic: str = "t", offset: int = 7) -> TaskTransaction:
    return TaskTransaction(
        task=task,
        transactional_id=task_id("sink", token),
        producer_id=1_000 + task,
        epoch=3,
        row_count=10_000,
        byte_count=1_000_000,
        first_offsets=(FirstOffset(topic, task % 5, offset),),
    )


@given(
    batch_id=_NUMBERS,
    owner=st.text(max_size=40),
    tasks=st.lists(
        st.tuples(
            _NUMBERS, st.text("0123456789abcdef", min_size=1, max_size=16), st.sampled_from(["t", "ü.x"]), _NUMBERS
        ),
        max_size=120,
    ),
)
def test_a_decision_comes_back_as_it_was(batch_id: int, owner: str, tasks: list[tuple[int, str, str, int]]) -> None:
    decision = CommitDecision(owner=owner, batch_id=batch_id, transactions=tuple(_made(*each) for each in tasks))
    parts = write_decision(decision)
    assert len(parts) == part_count(parts[0])
    assert decision == read_decision(parts, "sink")
    assert all(len(part.encode()) <= PART_CHARACTERS_MAX for part in parts)


def test_a_small_one_can_be_read_by_people() -> None:
    (text,) = write_decision(CommitDecision(owner="q", batch_id=5, transactions=(_made(0),)))
    assert (
        '{"v":1,"batch":5,"owner":"q","done":false,"topics":["t"],'
        '"tasks":[[0,"00ff00ff00ff00ff",1000,3,10000,1000000,0,0,7]]}' == text
    )


def test_only_one_place_of_a_transaction_is_kept() -> None:
    whole = TaskTransaction(
        task=0,
        transactional_id=task_id("sink", "ab"),
        producer_id=1,
        epoch=0,
        row_count=2,
        byte_count=3,
        first_offsets=(FirstOffset("a", 0, 4), FirstOffset("b", 1, 5)),
    )
    (again,) = read_decision(
        write_decision(CommitDecision(owner="q", batch_id=0, transactions=(whole,))), "sink"
    ).transactions
    assert (whole.name, whole.content, (FirstOffset("a", 0, 4),)) == (again.name, again.content, again.first_offsets)


def test_a_thousand_tasks_fit_into_a_dozen_parts() -> None:
    import random

    dice = random.Random(7)
    tasks = tuple(_made(task, f"{dice.getrandbits(64):016x}", offset=dice.getrandbits(40)) for task in range(1000))
    decision = CommitDecision(owner="0b54a5b2-8a51-4a2f-9f0c-0a8a4f0f2b10", batch_id=12, transactions=tasks)
    parts = write_decision(decision)
    assert len(parts) <= 12
    assert decision == read_decision(parts, "sink")


def _large(batch_id: int) -> list[str]:
    tokens = [f"{task * 0x9E3779B97F4A7C15 % 2**64:016x}" for task in range(400)]
    decision = CommitDecision(
        owner="q", batch_id=batch_id, transactions=tuple(_made(task, token) for task, token in enumerate(tokens))
    )
    return write_decision(decision)


@pytest.mark.parametrize(
    "parts",
    [
        ["nonsense"],
        [""],
        ["{}"],
        ['{"v":2,"batch":5,"owner":"q","done":false,"topics":[],"tasks":[]}'],
        ['{"v":1,"batch":5,"owner":"q","done":false,"topics":[],"tasks":[[0]]}'],
        _large(1)[:-1],
        [*_large(1)[:-1], ""],
        [_large(1)[0], *_large(2)[1:]],
        [_large(1)[1], _large(1)[0], *_large(1)[2:]],
        [_large(1)[0][:-4] + "AAAA", *_large(1)[1:]],
    ],
)
def test_what_is_no_decision_is_refused(parts: list[str]) -> None:
    with pytest.raises(DecisionTextError):
        read_decision(parts, "sink")
