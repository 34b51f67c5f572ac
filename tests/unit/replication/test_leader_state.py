"""The leader's role: the high watermark is the smallest safe end over the maximal ISR, and never goes back; replicas
leave the ISR when they are late, and come in when they have caught up in the epoch in which they are registered."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.ids import BrokerId, LeaderEpoch, Offset
from ottla.model.invariants import InvariantViolation
from ottla.replication.leader_state import IsrProposal, LeaderState
from ottla.replication.partition_state import PartitionState

LAG = 10.0
ALIVE = {BrokerId(each): 100 + each for each in (1, 2, 3)}
"""Broker epochs, as the cluster knows them."""


class Led:
    """A partition that this broker leads. Each event answers the high watermark that follows from it."""

    def __init__(self, state: PartitionState, leader: LeaderState) -> None:
        self.partition = state
        self.leader = leader
        state.become_leader(leader, end_offset=Offset(0), flush_is_due=False)

    @property
    def high_watermark(self) -> Offset:
        return self.partition.high_watermark

    @property
    def proposal(self) -> IsrProposal | None:
        return self.leader.proposal

    def on_local_end(self, end_offset: Offset) -> Offset:
        self.partition.on_flushed(end_offset)
        return self.checked()

    def on_isr(
        self,
        isr: Iterable[BrokerId],
        replicas: Iterable[BrokerId] | None = None,
        *,
        eligible: Iterable[BrokerId] = (),
        now: float = 0.0,
    ) -> Offset:
        self.partition.on_isr(
            self.leader.replicas if replicas is None else tuple(replicas), tuple(isr), tuple(eligible), now
        )
        return self.checked()

    def on_min_in_sync(self, count: int) -> Offset:
        self.partition.on_min_insync_replicas(count)
        return self.checked()

    def on_refused(self, proposal: IsrProposal) -> Offset:
        self.partition.on_isr_refused(proposal)
        return self.checked()

    def propose(self, now: float, lag_seconds_max: float, alive: dict[BrokerId, int]) -> IsrProposal | None:
        return self.partition.propose_isr(now, lag_seconds_max, alive)

    def checked(self) -> Offset:
        self.partition.check()
        return self.high_watermark


def leader(
    replicas: list[int],
    isr: list[int],
    high_watermark: int = 0,
    epoch_start: int = 0,
    *,
    min_in_sync: int = 1,
    eligible: tuple[int, ...] = (),
) -> Led:
    state = LeaderState(
        BrokerId(1),
        replicas=[BrokerId(each) for each in replicas],
        isr=[BrokerId(each) for each in isr],
        leader_epoch=LeaderEpoch(4),
        epoch_start=Offset(epoch_start),
        eligible=[BrokerId(each) for each in eligible],
    )
    return Led(PartitionState("t-0", high_watermark=Offset(high_watermark), min_insync_replicas=min_in_sync), state)


def fetch(state: Led, broker: int, offset: int, *, now: float = 0.0, epoch: int | None = None) -> int:
    state.partition.on_follower_fetch(
        BrokerId(broker),
        offset=Offset(offset),
        start_offset=Offset(0),
        broker_epoch=100 + broker if epoch is None else epoch,
        leader_end=state.leader.local_end,
        now=now,
    )
    return state.checked()


def test_without_followers_the_leaders_end_is_the_high_watermark() -> None:
    state = leader([1], [1])
    assert [5, 5, 9] == [state.on_local_end(Offset(end)) for end in (5, 5, 9)]


def test_a_late_report_of_an_earlier_end_changes_nothing() -> None:
    state = leader([1, 2], [1, 2])
    state.on_local_end(Offset(8))
    assert 8 == fetch(state, 2, 8)
    assert 8 == state.on_local_end(Offset(5))
    assert 8 == state.leader.local_end


def test_followers_in_the_isr_hold_it_back_until_they_fetch_or_leave() -> None:
    state = leader([1, 2, 3], [1, 2])
    assert 0 == state.on_local_end(Offset(10))
    assert 4 == fetch(state, 2, 4)
    assert 4 == fetch(state, 3, 7), "replicas outside the ISR do not count"
    assert 10 == state.on_isr([BrokerId(1)])


def test_it_starts_where_it_is_told_and_never_goes_back() -> None:
    state = leader([1, 2], [1, 2], high_watermark=7)
    assert 7 == state.on_local_end(Offset(9))
    assert 7 == fetch(state, 2, 3)
    assert 9 == fetch(state, 2, 9)
    assert 9 == fetch(state, 2, 2), "a follower that lost its disk starts again"


def test_fetches_of_brokers_that_are_not_replicas_do_not_count() -> None:
    state = leader([1, 2], [1, 2])
    state.on_local_end(Offset(3))
    assert 0 == fetch(state, 9, 3)


@pytest.mark.parametrize(("replicas", "isr"), [([1, 2], [2]), ([1], [1, 2]), ([1], [])])
def test_an_impossible_isr_is_refused(replicas: list[int], isr: list[int]) -> None:
    with pytest.raises(InvariantViolation):
        leader(replicas, isr)


class TestShrinking:
    def test_a_follower_that_is_late_for_too_long_leaves(self) -> None:
        state = leader([1, 2, 3], [1, 2, 3])
        state.on_local_end(Offset(5))
        fetch(state, 2, 5, now=8.0)
        fetch(state, 3, 4, now=8.0)
        assert None is state.propose(LAG, LAG, ALIVE)
        expected = IsrProposal(isr=(BrokerId(1), BrokerId(2)), removed=(BrokerId(3),))
        assert expected == state.propose(LAG + 0.1, LAG, ALIVE)
        assert None is state.propose(LAG + 50, LAG, ALIVE), "one at a time"
        assert 4 == state.high_watermark, "it counts until the cluster has agreed"
        assert 5 == state.on_isr([BrokerId(1), BrokerId(2)])

    def test_a_follower_that_has_everything_stays_while_nothing_is_written(self) -> None:
        state = leader([1, 2], [1, 2])
        state.on_local_end(Offset(5))
        fetch(state, 2, 5, now=1.0)
        assert None is state.propose(1000.0, LAG, ALIVE)

    def test_a_follower_that_keeps_up_with_a_busy_leader_stays(self) -> None:
        state = leader([1, 2], [1, 2])
        for second in range(30):
            state.on_local_end(Offset(10 * second + 10))
            fetch(state, 2, 10 * second, now=float(second))
            assert None is state.propose(float(second), LAG, ALIVE), "it has everything that was written a second ago"

    def test_a_follower_that_falls_further_behind_leaves(self) -> None:
        state = leader([1, 2], [1, 2])
        proposals = []
        for second in range(30):
            state.on_local_end(Offset(10 * second + 10))
            fetch(state, 2, second, now=float(second))
            proposals.append(state.propose(float(second), LAG, ALIVE))
        assert [BrokerId(2)] == [gone for each in proposals if each is not None for gone in each.removed]


class TestGrowing:
    def test_a_follower_that_has_all_committed_records_comes_in(self) -> None:
        state = leader([1, 2, 3], [1, 2])
        state.on_local_end(Offset(9))
        fetch(state, 2, 6)
        fetch(state, 3, 5)
        assert None is state.propose(1.0, LAG, ALIVE), "6 are committed"
        fetch(state, 3, 6)
        proposal = state.propose(1.0, LAG, ALIVE)
        assert IsrProposal(isr=(BrokerId(1), BrokerId(2), BrokerId(3)), added=((BrokerId(3), 103),)) == proposal

    def test_a_replica_counts_while_the_proposal_that_adds_it_is_open(self) -> None:
        state = leader([1, 2], [1])
        state.on_local_end(Offset(5))
        fetch(state, 2, 5)
        proposal = state.propose(1.0, LAG, ALIVE)
        assert proposal is not None
        assert 5 == state.on_local_end(Offset(8)), "the cluster may have agreed by now"
        assert {BrokerId(1), BrokerId(2)} == state.leader.maximal_isr
        assert 8 == state.on_refused(proposal)
        assert {BrokerId(1)} == state.leader.maximal_isr

    def test_a_refusal_of_an_older_proposal_changes_nothing(self) -> None:
        state = leader([1, 2], [1])
        fetch(state, 2, 0)
        old = state.propose(1.0, LAG, ALIVE)
        assert old is not None
        state.on_isr([BrokerId(1)])
        fetch(state, 2, 0)
        new = state.propose(1.0, LAG, ALIVE)
        assert new is not None
        state.on_refused(old)
        assert new is state.proposal

    def test_a_follower_that_ends_before_this_epoch_stays_outside(self) -> None:
        state = leader([1, 2, 3], [1, 3], high_watermark=3, epoch_start=7)
        state.on_local_end(Offset(7))
        fetch(state, 3, 3)
        fetch(state, 2, 5)
        assert 3 == state.high_watermark
        assert None is state.propose(1.0, LAG, ALIVE), "an earlier leader may have committed up to 7"
        fetch(state, 2, 7)
        assert state.propose(1.0, LAG, ALIVE) == IsrProposal(
            isr=(BrokerId(1), BrokerId(2), BrokerId(3)), added=((BrokerId(2), 102),)
        )

    @pytest.mark.parametrize("alive", [{}, {BrokerId(2): 555}])
    def test_only_the_broker_epoch_that_caught_up_comes_in(self, alive: dict[BrokerId, int]) -> None:
        state = leader([1, 2], [1])
        fetch(state, 2, 0)
        assert None is state.propose(1.0, LAG, alive)


class TestTooFewInSync:
    def test_nothing_is_committed_until_there_are_enough(self) -> None:
        state = leader([1, 2, 3], [1, 2], min_in_sync=2)
        state.on_local_end(Offset(5))
        assert 3 == fetch(state, 2, 3)
        assert 3 == state.on_isr([BrokerId(1)], eligible=[BrokerId(2)])
        assert 3 == state.on_local_end(Offset(9))
        assert 3 == fetch(state, 3, 9, now=LAG + 1)
        proposal = state.propose(LAG + 1, LAG, ALIVE)
        assert proposal is not None
        assert (1, 3) == proposal.isr
        assert 3 == state.high_watermark, "the cluster has not agreed yet"
        assert 9 == state.on_isr(proposal.isr)

    def test_one_replica_of_one_is_enough(self) -> None:
        assert 5 == leader([1], [1], min_in_sync=2).on_local_end(Offset(5))

    def test_min_insync_replicas_is_lowered(self) -> None:
        state = leader([1, 2], [1], min_in_sync=2)
        assert 0 == state.on_local_end(Offset(5))
        assert 5 == state.on_min_in_sync(1)

    def test_nothing_is_committed_while_a_replica_outside_the_isr_is_eligible(self) -> None:
        """It would lack what is committed from then on."""
        state = leader([1, 2], [1], min_in_sync=2, eligible=(2,))
        state.on_local_end(Offset(5))
        assert None is state.propose(0.0, LAG, ALIVE)
        assert 0 == state.on_min_in_sync(1)
        assert IsrProposal(isr=(BrokerId(1),)) == state.propose(0.0, LAG, ALIVE)
        assert 5 == state.on_isr([BrokerId(1)])


def test_followers_change_with_the_replicas() -> None:
    state = leader([1, 2], [1, 2])
    state.on_local_end(Offset(5))
    fetch(state, 2, 5)
    state.on_isr([BrokerId(1)], [BrokerId(1), BrokerId(3)], now=3.0)
    assert [BrokerId(3)] == list(state.leader.followers)
    assert 5 == fetch(state, 2, 1)


def test_the_low_watermark_is_the_smallest_start_of_the_live_replicas() -> None:
    state = leader([1, 2, 3], [1, 2, 3])
    for broker, start in ((2, 4), (3, 2)):
        state.leader.on_follower_fetch(
            BrokerId(broker),
            offset=Offset(9),
            start_offset=Offset(start),
            broker_epoch=1,
            leader_end=Offset(9),
            now=0.0,
        )
    replicas = [BrokerId(1), BrokerId(2), BrokerId(3)]
    assert (2, 4, 6) == (
        state.leader.low_watermark(Offset(6), replicas),
        state.leader.low_watermark(Offset(6), replicas[:2]),
        state.leader.low_watermark(Offset(6), replicas[:1]),
    )


EVENTS = st.one_of(
    st.tuples(st.just("end"), st.integers(0, 30)),
    st.tuples(st.just("fetch"), st.sampled_from([2, 3]), st.integers(0, 30)),
    st.tuples(st.just("time"), st.floats(0.1, 20)),
    st.tuples(st.just("agree"), st.booleans()),
)


@given(st.lists(EVENTS, max_size=60))
def test_every_replica_that_may_be_in_the_isr_has_what_is_committed(events: list[tuple[object, ...]]) -> None:
    state = leader([1, 2, 3], [1, 2], min_in_sync=2)
    has = {2: 0, 3: 0}
    now = 0.0
    before = 0
    for kind, *rest in events:
        match kind, rest:
            case "end", [int(end)]:
                state.on_local_end(Offset(max(end, state.leader.local_end)))
            case "fetch", [int(broker), int(offset)]:
                has[broker] = max(min(offset, state.leader.local_end), has[broker])
                fetch(state, broker, has[broker], now=now)
            case "time", [float(seconds)]:
                now += seconds
                state.propose(now, LAG, ALIVE)
            case "agree", [bool(agreed)] if state.proposal is not None:
                if agreed:
                    state.on_isr(state.proposal.isr)
                else:
                    state.on_refused(state.proposal)
        assert before <= state.high_watermark <= state.leader.local_end
        newly = state.high_watermark > before
        assert not newly or len(state.leader.isr) >= 2
        for broker in (2, 3):
            if newly and BrokerId(broker) in state.leader.maximal_isr:
                assert state.high_watermark <= has[broker]
        before = state.high_watermark
