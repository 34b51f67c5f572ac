"""A partition's decisions against a simple model: who has which offset, and which request waits for what.

The model computes the high watermark, and which requests wait, from scratch after each event; the state keeps them up
to date. The machine carries out the effects in order, as the shell does, and checks at each answer that it was due.
"""

from dataclasses import dataclass

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.model.errors import (
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    NotLeaderError,
    OttlaError,
    StorageError,
    UnknownPartitionError,
)
from ottla.model.ids import BrokerId, LeaderEpoch, Offset
from ottla.replication.follower_state import FollowerState
from ottla.replication.leader_state import LeaderState
from ottla.replication.partition_state import (
    ALL_REPLICAS,
    AdvanceHighWatermark,
    AdvanceStart,
    FinishFetches,
    Flush,
    Part,
    PartitionEffect,
    PartitionState,
    Tell,
    WakeFollowers,
)
from ottla.storage.log import Appended
from tests.effort import effort

pytestmark = pytest.mark.slow

ME = BrokerId(1)
LAG = 10.0
ROLE_STEPS = 12
SPANS = st.lists(st.tuples(st.integers(1, 3), st.sampled_from([ALL_REPLICAS, ALL_REPLICAS, 1, 0])), max_size=4)


@dataclass(eq=False, kw_only=True)
class Request:
    """One part of a produce request; `retries` if it waits again after a shortage, as coordinators do."""

    machine: "PartitionMachine"
    acks: int
    end_offset: int
    retries: bool = False
    is_waiting: bool = False
    answer: Appended | OttlaError | None = None

    def on_waiting(self) -> None:
        assert self.answer is None, "told to wait after the answer"
        self.is_waiting = True

    def on_outcome(self, at: int, outcome: Appended | OttlaError) -> None:
        assert self.answer is None, "answered twice"
        self.answer = outcome
        self.is_waiting = False
        self.machine.check_answer(self, outcome)


@dataclass(eq=False, kw_only=True)
class Fetch:
    """A fetch that waits, and counts what it is told."""

    is_committed: bool = False
    bytes: int = 0
    is_over: bool = False

    def on_progress(self, added_bytes: int) -> None:
        assert added_bytes > 0
        self.bytes += added_bytes

    def finish(self) -> None:
        self.is_over = True


class PartitionMachine(RuleBasedStateMachine):
    """This broker is 1. Followers never lose what they have fetched."""

    @initialize(count=st.integers(1, 3), min_isr=st.integers(1, 3))
    def start(self, count: int, min_isr: int) -> None:
        self.replicas = tuple(BrokerId(each) for each in range(1, count + 1))
        self.isr = set(self.replicas)
        self.eligible: set[BrokerId] = set()
        self.min_isr = min_isr
        self.has = dict.fromkeys(self.replicas, 0)
        """The end of each replica's log, as the leader was told."""
        self.end = self.safe = self.high_watermark = self.log_high_watermark = 0
        self.writes: list[tuple[int, int]] = []
        """(end offset, bytes) of each write that consumers have not been told of."""
        self.flushes_first = False
        self.failure: StorageError | None = None
        self.flushes: list[int] = []
        self.waiting: list[Request] = []
        self.consumer = Fetch()
        self.follower = Fetch()
        self.expected_consumer_bytes = self.expected_follower_bytes = 0
        self.is_leader = False
        self.steps = 0
        """Since the last change of role: a role lasts long enough for something to happen in it."""
        self.epoch = 0
        self.now = 0.0
        self.state = PartitionState("t-0", high_watermark=Offset(0), min_insync_replicas=min_isr)
        self.new_fetches()
        self.lead()

    # What the model says

    @property
    def needed(self) -> int:
        return min(self.min_isr, len(self.replicas))

    @property
    def is_short(self) -> bool:
        return len(self.isr) < self.needed

    @property
    def maximal_isr(self) -> set[BrokerId]:
        proposal = None if self.state.leader is None else self.state.leader.proposal
        return self.isr | ({broker for broker, _ in proposal.added} if proposal is not None else set())

    def commit(self) -> None:
        """Moves the model's high watermark."""
        if self.is_leader and not self.is_short and not self.eligible:
            ends = [self.safe if each == ME else self.has[each] for each in self.maximal_isr]
            self.high_watermark = max(self.high_watermark, min(ends))
        self.reveal()

    def reveal(self) -> None:
        shown = [size for end, size in self.writes if end <= self.high_watermark]
        self.expected_consumer_bytes += sum(shown)
        self.writes = self.writes[len(shown) :]

    def check_answer(self, request: Request, outcome: Appended | OttlaError) -> None:
        """At the moment at which a request is answered."""
        if isinstance(outcome, Appended):
            assert request.end_offset == outcome.last_offset + 1
            if request.acks == ALL_REPLICAS:
                assert request.end_offset <= self.log_high_watermark, "answered before the log was told"
                assert request.end_offset <= self.high_watermark
            else:
                assert request.end_offset <= self.safe
        elif isinstance(outcome, NotEnoughReplicasAfterAppendError):
            assert self.is_short
            assert request.acks == ALL_REPLICAS
            assert request.end_offset > self.high_watermark
            if request.retries:
                self.wait_for_commit(retries=False)

    def carry_out(self, effects: list[PartitionEffect]) -> None:
        """As the shell does. The model must know of the event already."""
        for effect in effects:
            match effect:
                case AdvanceHighWatermark(offset, added_bytes):
                    assert offset > self.log_high_watermark
                    assert offset <= self.end
                    self.log_high_watermark = offset
                    if added_bytes:
                        self.consumer.on_progress(added_bytes)
                case Tell(told):
                    assert told
                    for waiter, at, outcome in told:
                        if outcome is None:
                            waiter.on_waiting()
                        else:
                            waiter.on_outcome(at, outcome)
                case WakeFollowers(added_bytes):
                    self.follower.on_progress(added_bytes)
                case FinishFetches(waiters):
                    for fetch in waiters:
                        fetch.finish()
                case AdvanceStart(offset):
                    assert offset <= self.log_high_watermark
                case Flush(end_offset):
                    self.flushes.append(end_offset)
        for fetch in (self.consumer, self.follower):
            if fetch.is_over:
                self.new_fetches()

    def new_fetches(self) -> None:
        """A finished fetch takes what there is, and the next one comes."""
        self.state.fetch_waiters.clear()
        self.state.replica_waiters.clear()
        self.consumer, self.follower = Fetch(), Fetch()
        self.state.fetch_waiters[self.consumer] = None
        self.state.replica_waiters[self.follower] = None
        self.expected_consumer_bytes = self.expected_follower_bytes = 0

    # Roles

    def lead(self) -> None:
        self.epoch += 1
        self.is_leader = True
        leader = LeaderState(
            ME,
            replicas=self.replicas,
            isr=self.isr,
            eligible=self.eligible,
            leader_epoch=LeaderEpoch(self.epoch),
            epoch_start=Offset(self.end),
            now=self.now,
        )
        # A new leader does not know what its followers have.
        self.has = {each: self.end if each == ME else -1 for each in self.replicas}
        self.safe = 0
        if not self.flushes_first:
            self.safe = self.end
        self.commit()
        self.carry_out(self.state.become_leader(leader, end_offset=Offset(self.end), flush_is_due=self.flushes_first))

    @precondition(lambda self: not self.is_leader and self.failure is None)
    @rule(isr=st.sets(st.sampled_from([2, 3])))
    def become_leader(self, isr: set[int]) -> None:
        self.isr = {ME} | {BrokerId(each) for each in isr if each in self.replicas}
        self.eligible = set()
        self.lead()

    @precondition(lambda self: self.is_leader)
    @rule()
    def become_leader_again(self) -> None:
        """In the next epoch, without another leader in between; what waits goes on waiting."""
        self.lead()

    @precondition(lambda self: self.steps > ROLE_STEPS)
    @rule()
    def become_follower(self) -> None:
        self.steps = 0
        expected = list(self.waiting)
        was_leader, self.is_leader = self.is_leader, False
        if was_leader:
            self.writes = []
        self.flushes = []
        self.epoch += 1
        self.carry_out(self.state.become_follower(FollowerState(BrokerId(9), LeaderEpoch(self.epoch))))
        for request in expected:
            assert isinstance(request.answer, NotLeaderError)
        assert (None, LeaderEpoch(self.epoch)) == (self.state.leader, self.state.leader_epoch)

    # Appends

    @precondition(lambda self: self.is_leader)
    @rule(spans=SPANS, refused=st.integers(0, 9), flushes_first=st.booleans(), retries=st.booleans())
    def append(self, spans: list[tuple[int, int]], refused: int, flushes_first: bool, retries: bool) -> None:
        """Some batches at once; one may be refused by the log."""
        self.flushes_first = flushes_first
        parts: list[Part] = []
        outcomes: list[Appended | OttlaError] = []
        for at, (count, acks) in enumerate(spans):
            if at == refused or self.failure is not None:
                outcomes.append(StorageError("refused"))
                end = -1
            else:
                outcomes.append(Appended(Offset(self.end), Offset(self.end + count - 1)))
                self.end += count
                end = self.end
            request = Request(machine=self, acks=acks, end_offset=end, retries=retries)
            parts.append(("", acks, request, at))
        added_bytes = 10 * sum(isinstance(each, Appended) for each in outcomes)
        if spans:
            self.on_append(parts, outcomes, added_bytes)

    @precondition(lambda self: self.is_leader and self.end > 0)
    @rule(back=st.integers(0, 5), acks=st.sampled_from([ALL_REPLICAS, 1]))
    def repeat(self, back: int, acks: int) -> None:
        """A batch that is in the log already, committed or not."""
        last = max(self.end - 1 - back, 0)
        outcome = Appended(Offset(last), Offset(last), is_duplicate=True)
        request = Request(machine=self, acks=acks, end_offset=last + 1)
        self.on_append([("", acks, request, 0)], [outcome], 0)

    def on_append(self, parts: list[Part], outcomes: list[Appended | OttlaError], added_bytes: int) -> None:
        if added_bytes:
            self.writes.append((self.end, added_bytes))
            self.expected_follower_bytes += added_bytes
        recovery_point = self.safe
        if self.failure is None and not self.flushes_first:
            self.safe = self.end
        self.commit()
        requests = [part[2] for part in parts]
        self.waiting += [each for each in requests if isinstance(each, Request)]
        self.carry_out(
            self.state.on_append(
                parts,
                outcomes,
                added_bytes=added_bytes,
                end_offset=Offset(self.end),
                recovery_point=Offset(recovery_point),
                flush_is_due=self.flushes_first,
                failure=self.failure,
            )
        )
        for request, outcome in zip(requests, outcomes, strict=True):
            assert isinstance(request, Request)
            if isinstance(outcome, OttlaError):
                assert outcome is request.answer
            elif self.failure is not None:
                assert self.failure is request.answer
            else:
                is_safe = request.end_offset <= (recovery_point if self.flushes_first else self.end)
                is_committed = request.end_offset <= self.high_watermark
                if request.acks == ALL_REPLICAS and not is_committed and self.is_short:
                    assert isinstance(request.answer, NotEnoughReplicasAfterAppendError)
                elif is_committed if request.acks == ALL_REPLICAS else is_safe:
                    # A committed record may still wait for the flush that its topic asks for.
                    assert outcome is request.answer or (not is_safe and request.is_waiting)

    @precondition(lambda self: self.is_leader)
    @rule(retries=st.booleans())
    def wait_for_commit(self, retries: bool) -> None:
        request = Request(machine=self, acks=ALL_REPLICAS, end_offset=self.end, retries=retries, is_waiting=True)
        self.waiting.append(request)
        self.carry_out(self.state.wait_committed(request, Appended(Offset(self.end), Offset(self.end - 1))))

    @precondition(lambda self: self.flushes)
    @rule(pick=st.integers(0, 5))
    def flush(self, pick: int) -> None:
        """Flushes may end in any order."""
        end = self.flushes.pop(pick % len(self.flushes))
        if self.failure is None:
            self.safe = max(self.safe, end)
            self.commit()
            self.carry_out(self.state.on_flushed(Offset(end)))

    @precondition(lambda self: self.is_leader and self.failure is None and self.steps > ROLE_STEPS)
    @rule()
    def fail(self) -> None:
        """The disk fails: no request may wait for what cannot come."""
        self.failure = StorageError("broken")
        self.flushes = []
        expected = list(self.waiting)
        self.carry_out(self.state.fail_waiting(self.failure))
        for request in expected:
            assert self.failure is request.answer

    @precondition(lambda self: self.steps > ROLE_STEPS)
    @rule()
    def delete(self) -> None:
        error = UnknownPartitionError("deleted")
        expected = list(self.waiting)
        self.carry_out(self.state.fail_waiting(error))
        for request in expected:
            assert error is request.answer

    # Replicas

    @precondition(lambda self: self.is_leader and len(self.replicas) > 1)
    @rule(broker=st.sampled_from([2, 3]), ahead=st.integers(0, 8), seconds=st.floats(0, LAG))
    def follower_fetches(self, broker: int, ahead: int, seconds: float) -> None:
        """Also one that is not a replica, which counts for nothing."""
        self.now += seconds
        offset = min(max(self.has.get(BrokerId(broker), 0), 0) + ahead, self.end)
        if broker in self.has:
            self.has[BrokerId(broker)] = offset
        self.commit()
        self.carry_out(
            self.state.on_follower_fetch(
                BrokerId(broker),
                offset=Offset(offset),
                start_offset=Offset(0),
                broker_epoch=broker,
                leader_end=Offset(self.end),
                now=self.now,
            )
        )

    @precondition(lambda self: self.is_leader)
    @rule(seconds=st.floats(0, 2 * LAG))
    def propose(self, seconds: float) -> None:
        self.now += seconds
        alive = {each: int(each) for each in self.replicas}
        proposal = self.state.propose_isr(self.now, LAG, alive)
        if proposal is not None:
            for broker, _ in proposal.added:
                assert self.has[broker] >= self.high_watermark, "not in sync"

    @precondition(lambda self: self.state.leader is not None and self.state.leader.proposal is not None)
    @rule(agreed=st.booleans())
    def settle(self, agreed: bool) -> None:
        assert self.state.leader is not None
        proposal = self.state.leader.proposal
        assert proposal is not None
        if agreed:
            self.on_isr(set(proposal.isr))
        else:
            members = self.isr
            # The model's maximal ISR is without the replicas that were to be added.
            if not self.is_short and not self.eligible:
                ends = [self.safe if each == ME else self.has[each] for each in members]
                self.high_watermark = max(self.high_watermark, min(ends))
            self.reveal()
            self.carry_out(self.state.on_isr_refused(proposal))

    @precondition(lambda self: self.is_leader and len(self.isr) > 1)
    @rule(pick=st.integers(0, 1))
    def broker_dies(self, pick: int) -> None:
        """The controller removes it from the ISR, without being asked."""
        others = sorted(self.isr - {ME})
        self.on_isr(self.isr - {others[pick % len(others)]})

    @precondition(lambda self: self.is_leader and len(self.replicas) < 3)
    @rule()
    def add_replica(self) -> None:
        """Fetches of followers that wait end: the new one may have fetched before it was known here."""
        new = BrokerId(len(self.replicas) + 1)
        self.replicas = (*self.replicas, new)
        self.has[new] = -1
        waiting = self.follower
        self.on_isr(self.isr)
        assert waiting.is_over

    def on_isr(self, isr: set[BrokerId]) -> None:
        """As the controller decides: replicas that leave an ISR which becomes too small remain eligible to lead."""
        left = self.isr - isr
        self.isr = isr
        self.eligible = ((self.eligible | left) - isr) if self.is_short else set()
        assert self.state.leader is not None
        expected = list(self.waiting)
        # The proposal that was open is settled by this.
        if not self.is_short and not self.eligible:
            ends = [self.safe if each == ME else self.has[each] for each in isr]
            self.high_watermark = max(self.high_watermark, min(ends))
        self.reveal()
        in_order = tuple(each for each in self.replicas if each in isr)
        self.carry_out(self.state.on_isr(self.replicas, in_order, tuple(sorted(self.eligible)), self.now))
        self.check_shortage(expected)

    @rule(count=st.integers(1, 4))
    def change_min_isr(self, count: int) -> None:
        self.min_isr = count
        expected = list(self.waiting)
        self.commit()
        self.carry_out(self.state.on_min_insync_replicas(count))
        if self.is_leader:
            self.check_shortage(expected)

    def check_shortage(self, waited: list[Request]) -> None:
        """Requests that waited for a commit have an answer if none can come."""
        for request in waited:
            if self.is_short and request.acks == ALL_REPLICAS and request.end_offset > self.high_watermark:
                assert isinstance(request.answer, NotEnoughReplicasAfterAppendError)

    # Following

    @precondition(lambda self: not self.is_leader and self.failure is None)
    @rule(count=st.integers(1, 4))
    def copy(self, count: int) -> None:
        self.end += count
        self.writes.append((self.end, 10))
        self.state.on_copied(Offset(self.end), 10)

    @precondition(lambda self: not self.is_leader and self.failure is None)
    @rule(high_watermark=st.integers(0, 60), start=st.integers(0, 60))
    def hear_bounds(self, high_watermark: int, start: int) -> None:
        self.high_watermark = max(self.high_watermark, min(high_watermark, self.end))
        self.reveal()
        self.carry_out(self.state.on_leader_bounds(Offset(high_watermark), Offset(start), end_offset=Offset(self.end)))

    @precondition(lambda self: not self.is_leader and self.failure is None)
    @rule(cut=st.integers(1, 6))
    def truncate(self, cut: int) -> None:
        """The one way in which a high watermark goes back."""
        self.end = max(self.end - cut, 0)
        self.high_watermark = self.log_high_watermark = min(self.high_watermark, self.end)
        self.writes = []
        self.state.on_truncated(Offset(self.high_watermark))

    @precondition(lambda self: not self.is_leader and self.failure is not None)
    @rule()
    def replace_log(self) -> None:
        """An empty log in place of the one that failed."""
        self.failure = None
        self.end = self.high_watermark = self.log_high_watermark = 0
        self.writes = []
        consumer = self.consumer
        self.carry_out(self.state.on_log_replaced(Offset(0)))
        assert consumer.is_over

    # Always

    @invariant()
    def agrees_with_the_model(self) -> None:
        self.steps += 1
        self.state.check()
        assert self.high_watermark == self.state.high_watermark == self.log_high_watermark
        self.waiting = [each for each in self.waiting if each.answer is None]
        for request in self.waiting:
            assert request.is_waiting
            is_safe = request.end_offset <= self.safe
            is_committed = request.end_offset <= self.high_watermark
            assert not (is_committed and is_safe), "forgotten"
            if request.acks != ALL_REPLICAS:
                assert not is_safe, "forgotten"
        assert len(self.waiting) == len(self.state._waiting_for_commit) + len(self.state._waiting_for_disk)
        assert (self.expected_consumer_bytes, self.expected_follower_bytes) == (
            self.consumer.bytes,
            self.follower.bytes,
        )

    @invariant()
    def refuses_what_cannot_be_committed(self) -> None:
        if self.is_leader and not self.is_short:
            self.state.check_in_sync()
        else:
            with pytest.raises(NotEnoughReplicasError if self.is_leader else NotLeaderError):
                self.state.check_in_sync()
        if self.is_leader:
            assert self.needed == self.state.effective_min_isr


PartitionMachine.TestCase.settings = effort(300, 60)
TestPartitionMachine = PartitionMachine.TestCase
