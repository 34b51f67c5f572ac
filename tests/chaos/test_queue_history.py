"""The judge of queues finds each broken promise, and nothing in a good history."""

import pytest

from tests.chaos.queue_history import Arrived, Parked, QueueHistory


def history(*arrived: Arrived) -> QueueHistory:
    parked = {
        name: Parked(name=name, sink="t", due_ms=100, is_acked=True, is_withdrawn=name == "withdrawn")
        for name in ("a", "b", "withdrawn")
    }
    return QueueHistory({**parked, "unsure": Parked(name="unsure", sink="t", due_ms=100)}, list(arrived))


def arrival(name: str, offset: int, *, topic: str = "t", seen_ms: int = 100, origin: int = 0) -> Arrived:
    return Arrived(name, topic, 0, offset, seen_ms, f"t.delayed/0/{origin}", 100)


GOOD = (arrival("a", 0), arrival("b", 1, origin=1))


def test_nothing_is_wrong() -> None:
    assert [] == history(*GOOD).violations()
    assert [] == history(*GOOD, arrival("unsure", 2, origin=2)).violations()


@pytest.mark.parametrize(
    ("arrived", "expected"),
    [
        (GOOD[:1], "lost: b was acknowledged"),
        ((*GOOD, arrival("a", 2, origin=0)), "twice: a"),
        ((GOOD[0], arrival("b", 1, origin=1, seen_ms=99)), "early: b, by 1 ms"),
        ((*GOOD, arrival("withdrawn", 2, origin=2)), "withdrawn: withdrawn arrived"),
        ((GOOD[0], arrival("b", 1, origin=1, topic="dlq.t")), "misplaced: b is in dlq.t, not in t"),
        ((*GOOD, arrival("c", 2, origin=2)), "unknown: c in t-0"),
        ((arrival("b", 0, origin=1), arrival("a", 1)), "out of order: a, parked at t.delayed/0/0, after offset 1"),
    ],
)
def test_what_is_wrong_is_found(arrived: tuple[Arrived, ...], expected: str) -> None:
    assert expected in history(*arrived).violations()
