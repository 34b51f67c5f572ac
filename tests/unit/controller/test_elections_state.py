"""Leaders and ISRs after brokers have come and gone: every rule, and a model that never loses a record."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.controller.decisions import ControllerDecision, NewTopic, PartitionOutcome, ReplicaAssignment, TopicDefaults
from ottla.controller.elections_state import (
    TopicRules,
    decide_elections,
    decide_leave,
    decide_losses,
    decide_withdraw,
    settled,
    updates,
    with_isr,
)
from ottla.controller.topics_state import decide_create
from ottla.metadata.image import NO_LEADER, ClusterImage, PartitionImage
from ottla.metadata.records import (
    BrokerRecord,
    broker_key,
    encode,
    partition_key,
    partition_record,
)
from ottla.metadata.store import Check, Delete, Put
from ottla.model.ids import BrokerId, TopicPartition
from ottla.sim.random import SimRandom
from tests.effort import effort
from tests.unit.controller.images import after, after_operations, brokers, cluster

pytestmark = pytest.mark.slow

ONE = TopicRules(min_in_sync=1)
TWO = TopicRules(min_in_sync=2)


def with_topic(*replicas: int) -> ClusterImage:
    image = cluster(4)
    topic = NewTopic(name="t", assignments=(ReplicaAssignment(0, brokers(*replicas)),))
    decided = decide_create(
        image, [topic], defaults=TopicDefaults(), validate_configs=lambda _: None, random=SimRandom(1)
    )
    return after(image, decided)


def only(image: ClusterImage) -> PartitionImage:
    return image.topics["t"].partitions[0]


def gone(image: ClusterImage, *ids: int) -> ClusterImage:
    return after_operations(image, [Delete(broker_key(BrokerId(each))) for each in ids])


def back(image: ClusterImage, *ids: int, is_intact: bool = True) -> ClusterImage:
    record = BrokerRecord(host="h", port=1, is_intact=is_intact)
    return after_operations(image, [Put(broker_key(BrokerId(each)), encode(record)) for each in ids])


def elect(image: ClusterImage, rules: TopicRules = ONE) -> ClusterImage:
    decision = decide_elections(image, image.topics.values(), rules_of=lambda _: rules, limit=10)
    return after(image, decision) if decision.operations else image


def state(image: ClusterImage) -> tuple[int, tuple[int, ...], int]:
    """(leader, ISR, leader epoch)"""
    partition = only(image)
    return partition.leader, partition.isr, partition.leader_epoch


def test_nothing_is_to_do_while_everybody_is_there() -> None:
    image = with_topic(0, 1, 2)
    assert ControllerDecision() == decide_elections(image, image.topics.values(), limit=10)


def test_a_leader_that_goes_is_followed_by_the_next_in_sync() -> None:
    image = elect(gone(with_topic(0, 1, 2), 0))
    assert (1, (1, 2), 1) == state(image)
    assert image is elect(image)


def test_a_follower_that_goes_only_leaves_the_isr() -> None:
    assert (0, (0, 1), 0) == state(elect(gone(with_topic(0, 1, 2), 2)))


def test_who_was_away_for_a_moment_and_lost_something_is_out() -> None:
    """The cluster saw neither it go nor come, and yet it lost what it had not flushed."""
    image = with_topic(0, 1, 2)
    assert (1, (1, 2), 1) == state(elect(back(image, 0, is_intact=False)))
    assert (0, (0, 2), 0) == state(elect(back(image, 1, is_intact=False)))


def test_who_was_away_for_a_moment_and_lost_nothing_stays_in_sync() -> None:
    """A replica that seems present may be a machine without power; a replica that has everything must not give way to
    it."""
    image = with_topic(0, 1, 2)
    assert (0, (0, 1, 2), 1) == state(elect(back(image, 0)))
    assert (2, (2,), 2) == state(elect(gone(elect(back(gone(image, 0), 2)), 1)))


def test_the_last_one_keeps_its_place_and_leads_again_when_it_returns() -> None:
    image = elect(gone(elect(gone(with_topic(0, 1), 0)), 1))
    assert (NO_LEADER, (1,), 2) == state(image)
    image = elect(back(image, 0))
    assert (NO_LEADER, (1,), 2) == state(image), "it is behind, perhaps"
    image = elect(back(image, 1))
    assert (1, (1,), 3) == state(image)


def test_when_all_go_at_once_the_first_that_returns_whole_leads_alone() -> None:
    image = elect(gone(with_topic(0, 1, 2), 0, 1, 2))
    assert (NO_LEADER, (0, 1, 2), 1) == state(image)
    assert (2, (2,), 2) == state(elect(back(image, 2)))


def test_one_that_lost_something_waits_for_the_others() -> None:
    image = elect(gone(with_topic(0, 1, 2), 0, 1, 2))
    image = elect(back(image, 0, is_intact=False))
    assert (NO_LEADER, (1, 2), 1) == state(image)
    image = elect(back(image, 1))
    assert (1, (1,), 2) == state(image)


def test_the_last_one_leads_even_if_it_lost_something() -> None:
    image = elect(gone(with_topic(0, 1), 0, 1))
    image = elect(back(image, 0, is_intact=False))
    assert (1,) == state(image)[1]
    image = elect(back(image, 1, is_intact=False))
    assert (1, (1,), 2) == state(image)


def test_unclean_where_it_is_allowed() -> None:
    image = with_topic(0, 1, 2)
    alone = replace(only(image), isr=brokers(0))
    image = after_operations(image, [Put(partition_key("t", 0), encode(partition_record(alone)))])
    image = gone(image, 0)
    assert (NO_LEADER, (0,), 1) == state(elect(image))
    assert (1, (1,), 1) == state(elect(image, TopicRules(allows_unclean=True)))


def test_a_partition_without_others_is_left_alone() -> None:
    image = with_topic(0)
    assert image is not back(image, 0)
    assert (0, (0,), 0) == state(elect(back(image, 0)))


def test_the_commit_rests_on_the_registrations_of_the_isr() -> None:
    image = gone(with_topic(0, 1, 2), 0)
    decision = decide_elections(image, image.topics.values(), limit=10)
    checks = [each for each in decision.operations if isinstance(each, Check)]
    assert [Check(broker_key(each), image.revision_of(broker_key(each))) for each in brokers(1, 2)] == checks


def test_no_more_than_asked_for_at_once() -> None:
    image = cluster(4)
    topic = NewTopic(name="t", assignments=tuple(ReplicaAssignment(index, brokers(0, 1)) for index in range(5)))
    decided = decide_create(
        image, [topic], defaults=TopicDefaults(), validate_configs=lambda _: None, random=SimRandom(1)
    )
    image = gone(after(image, decided), 0)
    counts = []
    while (decision := decide_elections(image, image.topics.values(), limit=2)).operations:
        counts.append(len(decision.outcomes))
        image = after(image, decision)
    assert [2, 2, 1] == counts


class TestLeaving:
    def leave(self, image: ClusterImage, broker: int) -> ControllerDecision[PartitionOutcome]:
        return decide_leave(image, BrokerId(broker), limit=10)

    def test_leaders_move_and_the_isr_shrinks(self) -> None:
        image = with_topic(0, 1, 2)
        assert (1, (1, 2), 1) == state(after(image, self.leave(image, 0)))
        assert (0, (0, 2), 0) == state(after(image, self.leave(image, 1)))

    def test_the_last_one_stays_what_it_is(self) -> None:
        image = elect(gone(with_topic(0, 1), 1))
        assert ControllerDecision() == self.leave(image, 0)

    def test_others_that_are_gone_are_nobody_to_hand_over_to(self) -> None:
        image = gone(with_topic(0, 1), 1)
        assert ControllerDecision() == self.leave(image, 0)

    def test_who_has_no_part_in_it(self) -> None:
        assert ControllerDecision() == self.leave(with_topic(0, 1), 3)

    def test_only_those_who_were_heard_of_take_over(self) -> None:
        """A machine without power is registered until its session ends, and has lost what it had not flushed."""
        image = with_topic(0, 1, 2)
        decided = decide_leave(image, BrokerId(0), limit=10, may_take=lambda where, other: other == 2)
        assert (2, (1, 2), 1) == state(after(image, decided))
        assert ControllerDecision() == decide_leave(image, BrokerId(0), limit=10, may_take=lambda where, other: False)


class TestWithdrawing:
    def withdraw(self, image: ClusterImage, broker: int) -> ControllerDecision[PartitionOutcome]:
        return decide_withdraw(image, BrokerId(broker), [TopicPartition("t", 0)])

    def test_others_take_over_from_a_leader(self) -> None:
        image = with_topic(0, 1, 2)
        assert (1, (1, 2), 1) == state(after(image, self.withdraw(image, 0)))

    def test_a_follower_is_taken_out_in_a_new_epoch(self) -> None:
        """Or its leader could take it back in for what its old log had."""
        image = with_topic(0, 1, 2)
        image = after(image, self.withdraw(image, 2))
        assert (0, (0, 1), 1) == state(image)
        assert (0, (0, 1), 2) == state(after(image, self.withdraw(image, 2))), "also if it was out already"

    def test_a_leader_that_can_lead_goes_on_though_another_one_is_preferred(self) -> None:
        image = after(with_topic(0, 1, 2), self.withdraw(with_topic(0, 1, 2), 0))
        caught_up = replace(only(image), isr=brokers(0, 1, 2))
        image = after(
            image, ControllerDecision(operations=tuple(updates(image, [(TopicPartition("t", 0), caught_up)])))
        )
        assert (1, (0, 1), 2) == state(after(image, self.withdraw(image, 2)))

    def test_who_withdraws_is_not_eligible(self) -> None:
        image = with_topic(0, 1)
        partitions = [TopicPartition("t", 0)]
        image = after(image, decide_withdraw(image, BrokerId(0), partitions, rules_of=lambda _: TWO))
        assert ((1, (1,), 1), ()) == (state(image), only(image).eligible)

    def test_a_broker_with_a_full_disk_is_eligible(self) -> None:
        """It has all committed records. The replica that takes over may be a machine that has just lost power."""
        image = with_topic(0, 1)
        partitions = [TopicPartition("t", 0)]
        decided = decide_withdraw(
            image, BrokerId(0), partitions, rules_of=lambda _: TWO, is_sound=lambda where: where in partitions
        )
        image = after(image, decided)
        assert ((1, (1,), 1), (0,)) == (state(image), only(image).eligible)
        image = elect(back(gone(image, 1), 1, is_intact=False), TWO)
        assert ((0, (0,), 2), ()) == (state(image), only(image).eligible)

    def test_the_last_one_stays_what_it_is(self) -> None:
        image = elect(gone(with_topic(0, 1), 1))
        assert ControllerDecision() == self.withdraw(image, 0)

    def test_others_that_are_gone_are_nobody_to_hand_over_to(self) -> None:
        image = gone(with_topic(0, 1), 1)
        assert ControllerDecision() == self.withdraw(image, 0)

    def test_only_those_who_were_heard_of_take_over(self) -> None:
        image = with_topic(0, 1, 2)
        partitions = [TopicPartition("t", 0)]
        decided = decide_withdraw(image, BrokerId(0), partitions, may_take=lambda where, other: other == 2)
        assert (2, (1, 2), 1) == state(after(image, decided))

    def test_who_has_no_part_in_it_and_what_does_not_exist(self) -> None:
        image = with_topic(0, 1)
        assert ControllerDecision() == self.withdraw(image, 3)
        assert ControllerDecision() == decide_withdraw(
            image, BrokerId(0), [TopicPartition("t", 1), TopicPartition("u", 0)]
        )


class TestEligible:
    """Whoever left an ISR that is too small to commit anything has all that is committed."""

    def leave(self, image: ClusterImage, broker: int) -> ClusterImage:
        return after(image, decide_leave(image, BrokerId(broker), limit=10, rules_of=lambda _: TWO))

    def eligible(self, image: ClusterImage) -> tuple[int, ...]:
        return only(image).eligible

    def test_nobody_is_while_the_isr_is_large_enough(self) -> None:
        image = elect(gone(with_topic(0, 1, 2), 0), TWO)
        assert ((1, (1, 2), 1), ()) == (state(image), self.eligible(image))

    def test_an_isr_of_all_replicas_is_large_enough(self) -> None:
        image = with_topic(0, 1, 2)
        assert () == with_isr(replace(only(image), replicas=brokers(0)), brokers(0), TWO).eligible

    def test_who_leaves_when_it_becomes_too_small(self) -> None:
        image = elect(gone(elect(gone(with_topic(0, 1, 2), 0), TWO), 1), TWO)
        assert ((2, (2,), 2), (1,)) == (state(image), self.eligible(image))
        image = self.leave(elect(gone(with_topic(0, 1, 2), 0), TWO), 1)
        assert ((2, (2,), 2), (1,)) == (state(image), self.eligible(image))

    def test_it_leads_when_the_isr_is_gone(self) -> None:
        """A machine that lost power is registered and elected while the session of the other one ends."""
        image = elect(gone(with_topic(0, 1), 1), TWO)
        assert ((0, (0,), 0), (1,)) == (state(image), self.eligible(image))
        image = elect(back(image, 1), TWO)
        assert ((0, (0,), 0), (1,)) == (state(image), self.eligible(image))
        gone_first = elect(gone(image, 0), TWO)
        assert ((1, (1,), 1), (0,)) == (state(gone_first), self.eligible(gone_first))
        back_first = elect(back(image, 0, is_intact=False), TWO)
        assert ((1, (1,), 1), ()) == (state(back_first), self.eligible(back_first))

    def test_who_lost_something_waits_for_it(self) -> None:
        image = elect(gone(with_topic(0, 1), 1), TWO)
        image = elect(back(image, 0, is_intact=False), TWO)
        assert ((NO_LEADER, (1,), 1), ()) == (state(image), self.eligible(image))
        assert (1, (1,), 2) == state(elect(back(image, 1), TWO))

    def test_who_lost_something_is_not_eligible(self) -> None:
        image = elect(gone(with_topic(0, 1), 1), TWO)
        image = elect(back(image, 1, is_intact=False), TWO)
        assert ((0, (0,), 0), ()) == (state(image), self.eligible(image))
        image = elect(gone(with_topic(0, 1, 2), 1, 2), TWO)
        assert (1, 2) == self.eligible(image)
        partitions = [TopicPartition("t", 0)]
        image = after(back(image, 1, 2), decide_withdraw(back(image, 1, 2), BrokerId(0), partitions))
        assert ((0, (0,), 0), (1, 2)) == (state(image), self.eligible(image)), "the last one in sync stays"

    def test_an_unclean_leader_is_alone(self) -> None:
        image = gone(elect(gone(with_topic(0, 1, 2), 1), TWO), 0, 2)
        image = elect(back(image, 1), replace(TWO, allows_unclean=True))
        assert ((1, (1,), 1), ()) == (state(image), self.eligible(image))

    def test_the_commit_rests_on_the_registrations_of_the_eligible(self) -> None:
        image = gone(with_topic(0, 1), 0)
        decision = decide_elections(image, image.topics.values(), rules_of=lambda _: TWO, limit=10)
        assert Check(broker_key(BrokerId(0)), 0) in decision.operations


def loses(image: ClusterImage, broker: int, rules: TopicRules = TWO) -> ClusterImage:
    """A broker that starts finds its log of the partition missing."""
    decision = decide_losses(image, BrokerId(broker), [TopicPartition("t", 0)], rules_of=lambda _: rules)
    return after(image, decision) if decision.operations else image


def finds(image: ClusterImage, broker: int) -> ClusterImage:
    return after(image, decide_losses(image, BrokerId(broker), [], [TopicPartition("t", 0)]))


def in_sync_alone(image: ClusterImage, *isr: int) -> ClusterImage:
    record = partition_record(replace(only(image), isr=brokers(*isr), leader=BrokerId(isr[0])))
    return after_operations(image, [Put(partition_key("t", 0), encode(record))])


class TestLostLogs:
    """A replica whose folder is missing never leads, and never replaces what others have."""

    def test_a_leader_without_its_log_is_followed_by_another_replica(self) -> None:
        image = loses(gone(with_topic(0, 1, 2), 0, 1, 2), 0)
        assert ((NO_LEADER, (1, 2), 1), (0,)) == (state(image), only(image).lost)
        image = elect(back(image, 0), TWO)
        assert (NO_LEADER, (1, 2), 1) == state(image), "it waits for the others"
        image = elect(back(image, 1), TWO)
        assert ((1, (1,), 2), (2,), (0,)) == (state(image), only(image).eligible, only(image).lost)

    def test_a_follower_without_its_log_leaves_the_isr(self) -> None:
        image = back(loses(with_topic(0, 1, 2), 2), 2)
        assert ((0, (0, 1), 0), (2,)) == (state(image), only(image).lost)
        assert image is elect(image, TWO)

    def test_it_is_not_eligible(self) -> None:
        image = elect(gone(with_topic(0, 1, 2), 1, 2), TWO)
        assert (1, 2) == only(image).eligible
        image = loses(image, 1)
        assert ((2,), (1,)) == (only(image).eligible, only(image).lost)

    def test_an_eligible_replica_takes_over_from_the_only_member(self) -> None:
        image = loses(gone(elect(gone(with_topic(0, 1), 1), TWO), 0), 0)
        assert ((NO_LEADER, (1,), 1), (), (0,)) == (state(image), only(image).eligible, only(image).lost)

    def test_without_another_member_the_partition_has_no_leader(self) -> None:
        """Replicas outside of the ISR may have more than nothing, and an empty log would replace it."""
        image = loses(gone(in_sync_alone(with_topic(0, 1, 2), 0), 0), 0)
        image = elect(back(image, 0), TWO)
        assert ((NO_LEADER, (0,), 1), (0,)) == (state(image), only(image).lost)
        assert image is elect(image, TWO)

    def test_it_leads_again_when_the_log_is_back(self) -> None:
        image = elect(back(loses(gone(in_sync_alone(with_topic(0, 1, 2), 0), 0), 0), 0), TWO)
        image = elect(back(finds(gone(image, 0), 0), 0), TWO)
        assert ((0, (0,), 2), ()) == (state(image), only(image).lost)

    def test_where_unclean_is_allowed_another_replica_leads(self) -> None:
        image = back(loses(in_sync_alone(with_topic(0, 1, 2), 0), 0), 0)
        image = elect(image, replace(TWO, allows_unclean=True))
        assert ((1, (1,), 2), (0,)) == (state(image), only(image).lost)

    def test_where_unclean_is_allowed_others_that_may_come_back_are_waited_for(self) -> None:
        unclean = replace(TWO, allows_unclean=True)
        image = elect(gone(loses(in_sync_alone(with_topic(0, 1), 0), 0), 1), unclean)
        assert (NO_LEADER, (0,), 1) == state(image)
        assert (1, (1,), 2) == state(elect(back(image, 1), unclean))

    def test_where_unclean_is_allowed_an_empty_log_leads_if_all_are_lost(self) -> None:
        image = loses(loses(with_topic(0, 1), 0), 1)
        assert ((NO_LEADER, (1,), 2), (0, 1)) == (state(image), only(image).lost)
        image = elect(image, replace(TWO, allows_unclean=True))
        assert ((0, (0,), 3), (1,)) == (state(image), only(image).lost)

    def test_the_new_record_does_not_vouch_for_members_that_returned(self) -> None:
        image = back(gone(with_topic(0, 1, 2), 0, 1, 2), 0, is_intact=False)
        image = elect(loses(image, 1), TWO)
        assert ((NO_LEADER, (2,), 1), (1,)) == (state(image), only(image).lost)

    def test_neither_leaving_nor_withdrawing_hands_over_to_it(self) -> None:
        """Also where a record of an older version still has it in the ISR."""
        image = with_topic(0, 1)
        record = partition_record(replace(only(image), lost=brokers(1)))
        image = after_operations(image, [Put(partition_key("t", 0), encode(record))])
        assert ControllerDecision() == decide_leave(image, BrokerId(0), limit=10)
        assert ControllerDecision() == decide_withdraw(image, BrokerId(0), [TopicPartition("t", 0)])

    def test_what_does_not_exist_and_who_has_no_part_in_it(self) -> None:
        image = with_topic(0, 1)
        missing = [TopicPartition("t", 1), TopicPartition("u", 0)]
        assert ControllerDecision() == decide_losses(image, BrokerId(0), missing)
        assert image is loses(image, 3)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("go"), st.integers(0, 2)),
        st.tuples(st.just("come"), st.integers(0, 2)),
        st.tuples(st.just("bounce"), st.integers(0, 2)),
        st.tuples(st.just("write"), st.just(0)),
        st.tuples(st.just("catch up"), st.integers(0, 2)),
        st.tuples(st.just("elect"), st.just(0)),
    ),
    max_size=40,
)


@effort(300)
@given(STEPS)
def test_whoever_leads_has_all_that_was_committed(steps: list[tuple[str, int]]) -> None:
    """Copies survive the loss of a process: brokers come and go, and whole ones only ever miss what came later."""
    image = with_topic(0, 1, 2)
    has = {0: 0, 1: 0, 2: 0}
    committed = 0
    leads: int | None = 0
    for step, which in steps:
        broker = BrokerId(which)
        if step in ("go", "bounce") and broker in image.brokers:
            image = gone(image, which)
            leads = None if leads == which else leads
        if step in ("come", "bounce") and broker not in image.brokers:
            image = back(image, which)
        if step == "write" and leads is not None:
            # The leader writes; every living member of the ISR copies, and only that commits.
            has[leads] += 1
            alive = [each for each in only(image).isr if each in image.brokers]
            if set(alive) == set(only(image).isr):
                for each in alive:
                    has[each] = has[leads]
                committed = has[leads]
        if step == "catch up" and leads is not None and broker in image.brokers and broker not in only(image).isr:
            has[which] = has[leads]
            grown = replace(only(image), isr=(*only(image).isr, broker))
            if all(each in image.brokers for each in grown.isr):
                image = after_operations(image, [Put(partition_key("t", 0), encode(partition_record(grown)))])
        if step == "elect":
            image = elect(image)
            leader = only(image).leader
            if leader != NO_LEADER and leader != leads:
                assert has[leader] >= committed, (leader, has, committed)
                leads = leader
                for each in only(image).isr:
                    # A new leader's history is what counts.
                    has[each] = min(has[each], has[leader])
    image = elect(back(image, *(each for each in range(3) if BrokerId(each) not in image.brokers)))
    assert only(image).leader != NO_LEADER
    assert has[only(image).leader] >= committed


MACHINE_STEPS = st.lists(
    st.one_of(
        *(
            st.tuples(st.just(step), st.integers(0, 2))
            for step in ("power", "boot", "session", "kill", "start", "copy", "join", "late", "fill")
        ),
        st.tuples(st.sampled_from(["write", "elect"]), st.just(0)),
        st.tuples(st.sampled_from(["write", "elect"]), st.just(0)),
    ),
    max_size=60,
)


class Machines:
    """Three replicas with min.insync.replicas=2; the log of each is what was written, by number.

    One machine at a time may have lost everything that it had not flushed, until it is in sync again. It stays
    registered until its session ends.
    """

    def __init__(self) -> None:
        self.image = with_topic(0, 1, 2)
        self.logs: dict[int, tuple[int, ...]] = {0: (), 1: (), 2: ()}
        self.committed: tuple[int, ...] = ()
        self.dead: set[int] = set()
        self.tainted: int | None = None
        self.leads: int | None = 0
        self.written = 0

    @property
    def partition(self) -> PartitionImage:
        return only(self.image)

    def lives(self, which: int) -> bool:
        return which not in self.dead and BrokerId(which) in self.image.brokers

    def power(self, which: int) -> None:
        if self.tainted is None and self.lives(which):
            self.tainted = which
            self.dead.add(which)
            self.logs[which] = ()
            self.leads = None if self.leads == which else self.leads

    def boot(self, which: int) -> None:
        if which in self.dead:
            self.dead.remove(which)
            self.image = back(self.image, which, is_intact=False)

    def session(self, which: int) -> None:
        """Its session ends; a process that lives is back at once."""
        if BrokerId(which) in self.image.brokers:
            self.image = gone(self.image, which)
            self.leads = None if self.leads == which else self.leads
            if which not in self.dead:
                self.start(which)

    def kill(self, which: int) -> None:
        if self.lives(which):
            self.image = gone(self.image, which)
            self.leads = None if self.leads == which else self.leads

    def start(self, which: int) -> None:
        if which not in self.dead and BrokerId(which) not in self.image.brokers:
            # One that was not in sync again since it lost something is taken for what it is: it is not in the ISR.
            self.image = back(self.image, which, is_intact=self.tainted != which)

    def write(self, _: int) -> None:
        if self.leads is not None:
            self.written += 1
            self.logs[self.leads] += (self.written,)
            for each in self.partition.isr:
                self.copy(each)

    def copy(self, which: int) -> None:
        if self.leads is None or not self.lives(which):
            return
        self.logs[which] = self.logs[self.leads]
        members = self.partition.isr
        if len(members) >= TWO.min_in_sync and not self.partition.eligible:
            logs = [self.logs[each] for each in members if self.lives(each)]
            if len(logs) == len(members) and min(map(len, logs)) > len(self.committed):
                self.committed = min(logs, key=len)

    def join(self, which: int) -> None:
        if self.leads is not None and self.lives(which) and which not in self.partition.isr:
            self.copy(which)
            if self._propose((*self.partition.isr, BrokerId(which))) and which == self.tainted:
                self.tainted = None

    def late(self, which: int) -> None:
        """The leader removes a replica that does not fetch."""
        if self.leads is not None and which in self.partition.isr and which != self.leads:
            self._propose(tuple(each for each in self.partition.isr if each != which))

    def fill(self, which: int) -> None:
        """Its disk is full: it withdraws, and trusts every registration, also that of a machine without power."""
        if self.lives(which) and which in self.partition.isr:
            where = TopicPartition("t", 0)
            decided = decide_withdraw(
                self.image, BrokerId(which), [where], rules_of=lambda _: TWO, is_sound=lambda _: True
            )
            if decided.operations:
                self.show(after(self.image, decided))

    def _propose(self, isr: tuple[BrokerId, ...]) -> bool:
        where = TopicPartition("t", 0)
        if settled(self.image, where, self.partition, TWO) != self.partition:
            return False
        record = partition_record(with_isr(self.partition, isr, TWO))
        self.image = after_operations(self.image, [Put(partition_key("t", 0), encode(record))])
        return True

    def elect(self, _: int) -> None:
        self.show(elect(self.image, TWO))

    def show(self, image: ClusterImage) -> None:
        """Somebody was elected, perhaps."""
        before, self.image = self.partition.leader_epoch, image
        leader = self.partition.leader
        if self.partition.leader_epoch != before:
            self.leads = leader if leader != NO_LEADER and self.lives(leader) else None
        self.check()

    def check(self) -> None:
        if self.leads is not None:
            found = self.logs[self.leads][: len(self.committed)]
            assert self.committed == found, (self.leads, self.partition, self.logs)


@effort(500)
@given(MACHINE_STEPS)
def test_one_machine_at_a_time_that_loses_what_it_had_costs_nothing(steps: list[tuple[str, int]]) -> None:
    machines = Machines()
    for step, which in steps:
        getattr(machines, step)(which)
    for which in range(3):
        machines.boot(which)
        machines.start(which)
    machines.elect(0)
    assert machines.leads is not None


class Folders(Machines):
    """The same without power cuts: brokers are killed, and any number of them lose their folder while they are down."""

    def __init__(self) -> None:
        super().__init__()
        self.missing: set[int] = set()

    def lose(self, which: int) -> None:
        if BrokerId(which) not in self.image.brokers:
            self.missing.add(which)
            self.logs[which] = ()

    def start(self, which: int) -> None:
        if BrokerId(which) not in self.image.brokers:
            partition = self.partition
            if which in self.missing and which in (*partition.isr, *partition.eligible):
                self.show(loses(self.image, which))
            self.missing.discard(which)
            self.image = back(self.image, which)

    def _propose(self, isr: tuple[BrokerId, ...]) -> bool:
        if not super()._propose(isr):
            return False
        record = partition_record(replace(self.partition, lost=tuple(set(self.partition.lost) - set(isr))))
        self.image = after_operations(self.image, [Put(partition_key("t", 0), encode(record))])
        return True

    def check(self) -> None:
        super().check()
        partition = self.partition
        if not set(partition.lost).isdisjoint(partition.isr):
            assert NO_LEADER == partition.leader
            assert {*partition.isr, *partition.eligible} <= set(partition.lost)


FOLDER_STEPS = st.lists(
    st.one_of(
        *(st.tuples(st.just(step), st.integers(0, 2)) for step in ("kill", "start", "lose", "copy", "join", "late")),
        st.tuples(st.sampled_from(["write", "elect"]), st.just(0)),
        st.tuples(st.sampled_from(["write", "elect"]), st.just(0)),
    ),
    max_size=60,
)


@effort(500)
@given(FOLDER_STEPS)
def test_lost_folders_cost_nothing_while_one_member_has_its_log(steps: list[tuple[str, int]]) -> None:
    folders = Folders()
    for step, which in steps:
        getattr(folders, step)(which)
    for which in range(3):
        folders.start(which)
    folders.elect(0)
    partition = folders.partition
    has_member = not {*partition.isr, *partition.eligible} <= set(partition.lost)
    assert has_member == (folders.leads is not None)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_leader_is_in_the_isr_and_the_isr_is_never_empty(size: int) -> None:
    image = with_topic(*range(size))
    for broker in range(size):
        image = elect(gone(image, broker))
        assert only(image).isr
        assert only(image).leader in (NO_LEADER, *only(image).isr)
