"""The leader's core: the high watermark is the smallest safe end over the maximal ISR, and never goes back; replicas
leave the ISR when they are late, and come in when they have caught up and are who they were."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.ids import BrokerId, LeaderEpoch, Offset
from ottla.model.invariants import InvariantViolation
from ottla.replication.leader_state import IsrProposal, LeaderState

LAG = 10.0
ALIVE = {BrokerId(each): 100 + each for each in (1, 2, 3)}
"""Broker epochs, as the cluster knows them."""


def leader(
    replicas: list[int],
    isr: list[int],
    high_watermark: int = 0,
    epoch_start: int = 0,
    *,
    min_in_sync: int = 1,
    eligible: tuple[int, ...] = (),
) -> LeaderState:
    return LeaderState(
        BrokerId(1),
        replicas=[BrokerId(each) for each in replicas],
        isr=[BrokerId(each) for each in isr],
        leader_epoch=LeaderEpoch(4),
        high_watermark=Offset(high_watermark),
        epoch_start=Offset(epoch_start),
        min_in_sync=min_in_sync,
        eligible=[BrokerId(each) for each in eligible],
    )


def fetch(state: LeaderState, broker: int, offset: int, *, now: float = 0.0, epoch: int | None = None) -> int:
    return state.on_follower_fetch(
        BrokerId(broker),
        offset=Offset(offset),
        start_offset=Offset(0),
        broker_epoch=100 + broker if epoch is None else epoch,
        leader_end=state.local_end,
        now=now,
    )


def test_alone_the_own_end_is_the_high_watermark() -> None:
    state = leader([1], [1])
    assert [5, 5, 9] == [state.on_local_end(Offset(end)) for end in (5, 5, 9)]


def test_a_late_report_of_an_earlier_end_changes_nothing() -> None:
    state = leader([1, 2], [1, 2])
    state.on_local_end(Offset(8))
    assert 8 == fetch(state, 2, 8)
    assert 8 == state.on_local_end(Offset(5))
    assert 8 == state.local_end


def test_followers_in_the_isr_hold_it_back_until_they_fetch_or_leave() -> None:
    state = leader([1, 2, 3], [1, 2])
    assert 0 == state.on_local_end(Offset(10))
    assert 4 == fetch(state, 2, 4)
    assert 4 == fetch(state, 3, 7), "who is not in the ISR has no say"
    assert 10 == state.on_isr([BrokerId(1)], LeaderEpoch(4))


def test_it_starts_where_it_is_told_and_never_goes_back() -> None:
    state = leader([1, 2], [1, 2], high_watermark=7)
    assert 7 == state.on_local_end(Offset(9))
    assert 7 == fetch(state, 2, 3)
    assert 9 == fetch(state, 2, 9)
    assert 9 == fetch(state, 2, 2), "a follower that lost its disk begins anew"


def test_what_others_say_is_not_counted() -> None:
    state = leader([1, 2], [1, 2])
    state.on_local_end(Offset(3))
    assert 0 == fetch(state, 9, 3)


@pytest.mark.parametrize(("replicas", "isr"), [([1, 2], [2]), ([1], [1, 2]), ([1], [])])
def test_an_impossible_isr_is_refused(replicas: list[int], isr: list[int]) -> None:
    with pytest.raises(InvariantViolation):
        leader(replicas, isr)


class TestShrinking:
    def test_who_is_behind_for_too_long_goes(self) -> None:
        state = leader([1, 2, 3], [1, 2, 3])
        state.on_local_end(Offset(5))
        fetch(state, 2, 5, now=8.0)
        fetch(state, 3, 4, now=8.0)
        assert None is state.propose(LAG, LAG, ALIVE)
        expected = IsrProposal(isr=(BrokerId(1), BrokerId(2)), removed=(BrokerId(3),))
        assert expected == state.propose(LAG + 0.1, LAG, ALIVE)
        assert None is state.propose(LAG + 50, LAG, ALIVE), "one at a time"
        assert 4 == state.high_watermark, "until it is agreed, it counts"
        assert 5 == state.on_isr([BrokerId(1), BrokerId(2)], LeaderEpoch(4))

    def test_who_has_all_there_is_stays_however_long_nothing_comes(self) -> None:
        state = leader([1, 2], [1, 2])
        state.on_local_end(Offset(5))
        fetch(state, 2, 5, now=1.0)
        assert None is state.propose(1000.0, LAG, ALIVE)

    def test_who_keeps_up_with_a_busy_leader_stays(self) -> None:
        state = leader([1, 2], [1, 2])
        for second in range(30):
            state.on_local_end(Offset(10 * second + 10))
            fetch(state, 2, 10 * second, now=float(second))
            assert None is state.propose(float(second), LAG, ALIVE), "it has what there was a second ago"

    def test_who_is_always_further_behind_goes(self) -> None:
        state = leader([1, 2], [1, 2])
        proposals = []
        for second in range(30):
            state.on_local_end(Offset(10 * second + 10))
            fetch(state, 2, second, now=float(second))
            proposals.append(state.propose(float(second), LAG, ALIVE))
        assert [BrokerId(2)] == [gone for each in proposals if each is not None for gone in each.removed]


class TestGrowing:
    def test_who_has_all_that_is_committed_comes_in(self) -> None:
        state = leader([1, 2, 3], [1, 2])
        state.on_local_end(Offset(9))
        fetch(state, 2, 6)
        fetch(state, 3, 5)
        assert None is state.propose(1.0, LAG, ALIVE), "6 are committed"
        fetch(state, 3, 6)
        proposal = state.propose(1.0, LAG, ALIVE)
        assert IsrProposal(isr=(BrokerId(1), BrokerId(2), BrokerId(3)), added=((BrokerId(3), 103),)) == proposal

    def test_until_it_is_settled_the_one_who_comes_counts_already(self) -> None:
        state = leader([1, 2], [1])
        state.on_local_end(Offset(5))
        fetch(state, 2, 5)
        proposal = state.propose(1.0, LAG, ALIVE)
        assert proposal is not None
        assert 5 == state.on_local_end(Offset(8)), "the cluster may have agreed by now"
        assert {BrokerId(1), BrokerId(2)} == state.maximal_isr
        assert 8 == state.on_refused(proposal)
        assert {BrokerId(1)} == state.maximal_isr

    def test_a_refusal_of_an_older_proposal_changes_nothing(self) -> None:
        state = leader([1, 2], [1])
        fetch(state, 2, 0)
        old = state.propose(1.0, LAG, ALIVE)
        assert old is not None
        state.on_isr([BrokerId(1)], LeaderEpoch(4))
        fetch(state, 2, 0)
        new = state.propose(1.0, LAG, ALIVE)
        assert new is not None
        state.on_refused(old)
        assert new is state.proposal

    def test_who_lacks_the_beginning_of_this_epoch_waits(self) -> None:
        state = leader([1, 2], [1], high_watermark=3, epoch_start=7)
        state.on_local_end(Offset(7))
        state.high_watermark = Offset(3)
        fetch(state, 2, 5)
        assert None is state.propose(1.0, LAG, ALIVE), "an earlier leader may have committed up to 7"
        fetch(state, 2, 7)
        assert None is not state.propose(1.0, LAG, ALIVE)

    @pytest.mark.parametrize("alive", [{}, {BrokerId(2): 555}])
    def test_only_the_life_that_caught_up(self, alive: dict[BrokerId, int]) -> None:
        state = leader([1, 2], [1])
        fetch(state, 2, 0)
        assert None is state.propose(1.0, LAG, alive)


class TestTooFewInSync:
    def test_nothing_is_committed_until_there_are_enough(self) -> None:
        state = leader([1, 2, 3], [1, 2], min_in_sync=2)
        state.on_local_end(Offset(5))
        assert 3 == fetch(state, 2, 3)
        assert 3 == state.on_isr([BrokerId(1)], LeaderEpoch(4), eligible=[BrokerId(2)])
        assert 3 == state.on_local_end(Offset(9))
        assert 3 == fetch(state, 3, 9, now=LAG + 1)
        proposal = state.propose(LAG + 1, LAG, ALIVE)
        assert proposal is not None
        assert (1, 3) == proposal.isr
        assert 3 == state.high_watermark, "the cluster has not agreed yet"
        assert 9 == state.on_isr(proposal.isr, LeaderEpoch(4))

    def test_one_of_one_is_enough(self) -> None:
        assert 5 == leader([1], [1], min_in_sync=2).on_local_end(Offset(5))

    def test_fewer_are_asked_for(self) -> None:
        state = leader([1, 2], [1], min_in_sync=2)
        assert 0 == state.on_local_end(Offset(5))
        assert 5 == state.on_min_in_sync(1)

    def test_who_is_eligible_must_not_be_any_more_before_anything_is_committed(self) -> None:
        """It lacks what is committed from then on."""
        state = leader([1, 2], [1], min_in_sync=2, eligible=(2,))
        state.on_local_end(Offset(5))
        assert None is state.propose(0.0, LAG, ALIVE)
        assert 0 == state.on_min_in_sync(1)
        assert IsrProposal(isr=(BrokerId(1),)) == state.propose(0.0, LAG, ALIVE)
        assert 5 == state.on_isr([BrokerId(1)], LeaderEpoch(4))


def test_other_replicas_bring_and_take_followers() -> None:
    state = leader([1, 2], [1, 2])
    state.on_local_end(Offset(5))
    fetch(state, 2, 5)
    state.on_isr([BrokerId(1)], LeaderEpoch(4), [BrokerId(1), BrokerId(3)], now=3.0)
    assert [BrokerId(3)] == list(state.followers)
    assert 5 == fetch(state, 2, 1)


def test_the_low_watermark_is_the_smallest_start_of_those_who_live() -> None:
    state = leader([1, 2, 3], [1, 2, 3])
    for broker, start in ((2, 4), (3, 2)):
        state.on_follower_fetch(
            BrokerId(broker),
            offset=Offset(9),
            start_offset=Offset(start),
            broker_epoch=1,
            leader_end=Offset(9),
            now=0.0,
        )
    everybody = [BrokerId(1), BrokerId(2), BrokerId(3)]
    assert (2, 4, 6) == (
        state.low_watermark(Offset(6), everybody),
        state.low_watermark(Offset(6), everybody[:2]),
        state.low_watermark(Offset(6), everybody[:1]),
    )


EVENTS = st.one_of(
    st.tuples(st.just("end"), st.integers(0, 30)),
    st.tuples(st.just("fetch"), st.sampled_from([2, 3]), st.integers(0, 30)),
    st.tuples(st.just("time"), st.floats(0.1, 20)),
    st.tuples(st.just("agree"), st.booleans()),
)


@given(st.lists(EVENTS, max_size=60))
def test_what_is_committed_is_on_everybody_who_may_be_in_the_isr(events: list[tuple[object, ...]]) -> None:
    state = leader([1, 2, 3], [1, 2], min_in_sync=2)
    has = {2: 0, 3: 0}
    now = 0.0
    before = 0
    for kind, *rest in events:
        match kind, rest:
            case "end", [int(end)]:
                state.on_local_end(Offset(max(end, state.local_end)))
            case "fetch", [int(broker), int(offset)]:
                has[broker] = max(min(offset, state.local_end), has[broker])
                fetch(state, broker, has[broker], now=now)
            case "time", [float(seconds)]:
                now += seconds
                state.propose(now, LAG, ALIVE)
            case "agree", [bool(agreed)] if state.proposal is not None:
                if agreed:
                    state.on_isr(state.proposal.isr, LeaderEpoch(4))
                else:
                    state.on_refused(state.proposal)
        assert before <= state.high_watermark <= state.local_end
        newly = state.high_watermark > before
        assert not newly or len(state.isr) >= 2
        for broker in (2, 3):
            if newly and BrokerId(broker) in state.maximal_isr:
                assert state.high_watermark <= has[broker]
        before = state.high_watermark
