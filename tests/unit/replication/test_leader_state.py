"""The leader's core: the high watermark is the smallest safe end in the ISR, and never goes back."""

import pytest

from ottla.model.ids import BrokerId, LeaderEpoch, Offset
from ottla.model.invariants import InvariantViolation
from ottla.replication.leader_state import LeaderState


def leader(replicas: list[int], isr: list[int], high_watermark: int = 0) -> LeaderState:
    return LeaderState(
        BrokerId(1),
        replicas=[BrokerId(each) for each in replicas],
        isr=[BrokerId(each) for each in isr],
        leader_epoch=LeaderEpoch(4),
        high_watermark=Offset(high_watermark),
    )


def test_alone_the_own_end_is_the_high_watermark() -> None:
    state = leader([1], [1])
    assert [5, 5, 9] == [state.on_local_end(Offset(end)) for end in (5, 5, 9)]


def test_a_late_report_of_an_earlier_end_changes_nothing() -> None:
    state = leader([1, 2], [1, 2])
    state.ends[BrokerId(2)] = Offset(20)
    assert 8 == state.on_local_end(Offset(8))
    assert 8 == state.on_local_end(Offset(5))
    assert 8 == state.ends[BrokerId(1)]


def test_others_in_the_isr_hold_it_back_until_they_leave() -> None:
    state = leader([1, 2, 3], [1, 2])
    assert 0 == state.on_local_end(Offset(10))
    assert 10 == state.on_isr([BrokerId(1)], LeaderEpoch(5))
    assert 5 == state.leader_epoch
    assert 10 == state.on_isr([BrokerId(1), BrokerId(3)], LeaderEpoch(4))
    assert 5 == state.leader_epoch
    assert 10 == state.high_watermark


def test_it_starts_where_it_is_told() -> None:
    state = leader([1], [1], high_watermark=7)
    assert 7 == state.on_local_end(Offset(3))


@pytest.mark.parametrize(("replicas", "isr"), [([1, 2], [2]), ([1], [1, 2]), ([1], [])])
def test_an_impossible_isr_is_refused(replicas: list[int], isr: list[int]) -> None:
    with pytest.raises(InvariantViolation):
        leader(replicas, isr)
