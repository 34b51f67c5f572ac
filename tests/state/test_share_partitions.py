"""A share-partition against members that accept, release, reject, renew, go silent, and a leader that crashes.

What is stored goes to a real share coordinator's machine, whose writes may fail, or seem to have failed. All along, no
record is held by two members, none comes back after its acknowledgement was stored, none is delivered more often than
the limit, and the start offset never passes a record that is not done. Left alone at last, every record is done.
"""

from uuid import UUID

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ottla.coordination.groups.group_kind import Topic
from ottla.coordination.runtime.effects import Respond, Write
from ottla.coordination.share_partitions.settings import SharePartitionSettings
from ottla.coordination.share_partitions.share_partition_state import (
    Acknowledgement,
    AcknowledgeRefusedError,
    AcknowledgeType,
    AcquireMode,
    DeadLetters,
    DeadReason,
    Persist,
    RecordState,
    SharePartitionState,
    Span,
)
from ottla.coordination.share_state.records import ShareKey
from ottla.coordination.share_state.requests import ShareStateSettings, StateRead, StateWrite
from ottla.coordination.share_state.shard_state import ShareStateShard
from ottla.model.error_codes import ErrorCode
from tests.effort import effort

pytestmark = pytest.mark.slow

TOPIC = UUID(int=1)
KEY = ShareKey("g", TOPIC, 0)
MEMBERS = ("a", "b", "c")
LOCK_MS = 1_000
LIMIT = 3
DONE = (AcknowledgeType.ACCEPT, AcknowledgeType.REJECT, AcknowledgeType.GAP)


class SharePartitionMachine(RuleBasedStateMachine):
    """One partition, one group, one leader at a time."""

    @initialize(
        in_flight_max=st.sampled_from([4, 20]),
        backoff_ms=st.sampled_from([0, 100]),
        updates=st.sampled_from([0, 1, 5]),
        dead_letter_topic=st.sampled_from(["", "dlq.t"]),
    )
    def begin(self, in_flight_max: int, backoff_ms: int, updates: int, dead_letter_topic: str) -> None:
        """A partition with a few records, and its first leader."""
        self.now_ms = 1_000
        self.settings = SharePartitionSettings(
            lock_duration_ms=LOCK_MS,
            delivery_count_limit=LIMIT,
            in_flight_max=in_flight_max,
            release_backoff_ms=backoff_ms,
            release_backoff_max_ms=150,
            dead_letter_topic=dead_letter_topic,
        )
        self.batches: list[Span] = []
        self.log_start = self.log_end = 0
        self.skipped: list[Span] = []
        self.store = ShareStateShard(ShareStateSettings(updates_per_snapshot=updates))
        self.store.on_metadata({"t": Topic(TOPIC, 1)}, 0)
        self.ask_store("initialize", 1, 0)
        self.leader_epoch = 0
        self.pending: list[tuple[Persist, dict[int, AcknowledgeType]]] = []
        self.held: dict[int, str] = {}
        self.counts: dict[int, int] = {}
        self.done: set[int] = set()
        self.rejected: set[int] = set()
        """Offsets whose rejection is stored."""
        self.owed: list[DeadLetters] = []
        self.letters: set[int] = set()
        """Offsets that have a dead letter."""
        self.unclear: set[int] = set()
        """Offsets that may be done: that was stored, and the leader does not know it."""
        self.lead()
        self.produce(count=3, gap=0, is_aborted=False)

    # The share coordinator

    def ask_store(self, name: str, *arguments: object) -> object:
        effects = getattr(self.store, name)(KEY, *arguments, self.now_ms, "token")
        for effect in effects:
            if isinstance(effect, Write):
                self.store.replay_all(effect.records)
                return effect.responses[0].response
            assert isinstance(effect, Respond)
            return effect.response
        return None

    def lead(self) -> None:
        self.leader_epoch += 1
        read = self.ask_store("read", self.leader_epoch)
        assert isinstance(read, StateRead)
        assert ErrorCode.NONE is read.error
        self.state = SharePartitionState(self.settings, read.start_offset, read.batches)
        self.owed = self.state.take_dead_letters()
        self.state.on_log_start(self.log_start)
        self.held.clear()
        # How often records that were in flight had been delivered is not known to the new leader.
        self.counts = {
            offset: run.delivery_count for run in self.state.runs for offset in range(run.first, run.last + 1)
        }

    def stored(self, persist: Persist, *, is_stored: bool, is_told: bool = True) -> None:
        outlook = self.state.outlook({persist.id})
        change = StateWrite(
            state_epoch=1,
            leader_epoch=self.leader_epoch,
            start_offset=outlook.start_offset,
            delivery_complete_count=outlook.delivery_complete_count,
            batches=persist.batches,
        )
        if is_stored:
            outcome = self.ask_store("write", change)
            assert ErrorCode.NONE is outcome.error  # type: ignore[attr-defined]
        self.state.on_persisted(persist.id, self.now_ms, is_stored=is_stored and is_told)

    # The log

    @rule(count=st.integers(1, 6), gap=st.integers(0, 2), is_aborted=st.integers(0, 5).map(lambda each: each == 0))
    def produce(self, count: int, gap: int, is_aborted: bool) -> None:
        for size in (count, 7 - count):
            first = self.log_end + gap
            span = Span(first, first + size - 1)
            self.batches.append(span)
            self.log_end = span.last + 1
        if is_aborted:
            self.skipped.append(span)

    @rule(by=st.integers(-4, 3).map(lambda each: max(each, 0)))
    def delete_records(self, by: int) -> None:
        self.log_start = min(self.log_start + by, self.log_end)
        self.state.on_log_start(self.log_start)
        self.held = {offset: member for offset, member in self.held.items() if offset >= self.state.start_offset}

    # Members

    @rule(
        member=st.sampled_from(MEMBERS),
        max_records=st.integers(1, 8),
        limited=st.booleans(),
        read=st.integers(1, 4),
    )
    def fetch(self, member: str, max_records: int, limited: bool, read: int) -> None:
        offset = self.state.fetch_offset(self.now_ms)
        if offset is None or offset >= self.log_end:
            return
        batches = [span for span in self.batches if span.last >= offset][:read]
        mode = AcquireMode.RECORD_LIMIT if limited else AcquireMode.BATCH_OPTIMIZED
        acquired = self.state.acquire(
            member,
            offset,
            batches,
            now_ms=self.now_ms,
            max_records=max_records,
            batch_size=3,
            mode=mode,
            skipped=[span for span in self.skipped if span in batches],
        )
        offsets = [offset for each in acquired for offset in range(each.first, each.last + 1)]
        assert sorted(set(offsets)) == offsets
        if limited:
            assert len(offsets) <= max_records
        for each in acquired:
            for offset in range(each.first, each.last + 1):
                assert offset not in self.held, f"{offset} belongs to {self.held[offset]}"
                assert offset not in self.done, f"{offset} is done"
                assert not any(span.first <= offset <= span.last for span in self.skipped)
                self.counts[offset] = self.counts.get(offset, 0) + 1
                assert self.counts[offset] == each.delivery_count
                self.held[offset] = member

    @rule(data=st.data(), outcome=st.sampled_from(["stored", "failed", "untold", "later"]))
    def acknowledge(self, data: st.DataObject, outcome: str) -> None:
        if not self.held:
            self.fetch(member="a", max_records=8, limited=False, read=4)
        if not self.held:
            return
        member = data.draw(st.sampled_from(sorted(set(self.held.values()))))
        own = sorted(offset for offset, owner in self.held.items() if owner == member)
        chosen = data.draw(st.lists(st.sampled_from(own), min_size=1, max_size=6, unique=True))
        types = {offset: data.draw(st.sampled_from(list(AcknowledgeType))) for offset in sorted(chosen)}
        waiting = {offset for _, waits in self.pending for offset in waits}
        try:
            persist = self.state.acknowledge(
                member, [Acknowledgement(offset, offset, type_) for offset, type_ in types.items()], self.now_ms
            )
        except AcknowledgeRefusedError:
            assert waiting & set(types)
            return
        assert not waiting & set(types)
        changed: dict[int, AcknowledgeType] = {
            offset: type_ for offset, type_ in types.items() if type_ is not AcknowledgeType.RENEW
        }
        if persist is None:
            assert not changed
        elif outcome == "later":
            self.pending.append((persist, changed))
        else:
            self.finish(persist, changed, is_stored=outcome != "failed", is_told=outcome != "untold")

    @rule(is_stored=st.booleans(), is_told=st.booleans())
    def answer(self, is_stored: bool, is_told: bool) -> None:
        """The share coordinator answers a write that took longer."""
        if self.pending:
            persist, changed = self.pending.pop(0)
            self.finish(persist, changed, is_stored=is_stored, is_told=is_told)

    def finish(
        self, persist: Persist, changed: dict[int, AcknowledgeType], *, is_stored: bool, is_told: bool = True
    ) -> None:
        self.stored(persist, is_stored=is_stored, is_told=is_told)
        if is_stored and not is_told:
            ended = [offset for offset, type_ in changed.items() if type_ in DONE or self.counts[offset] >= LIMIT]
            self.unclear.update(ended)
        if not is_stored or not is_told:
            return
        for offset, type_ in changed.items():
            self.held.pop(offset, None)
            if type_ is AcknowledgeType.REJECT:
                self.rejected.add(offset)
            if type_ in DONE or self.counts[offset] >= LIMIT:
                self.done.add(offset)

    @rule(member=st.sampled_from(MEMBERS))
    def foreign_acknowledgement(self, member: str) -> None:
        """A member cannot acknowledge what another one has, nor what nobody has."""
        others = [
            offset for offset, owner in self.held.items() if owner != member and offset >= self.state.start_offset
        ]
        for offset in (*others[:1], self.state.next_offset):
            before = list(map(repr, self.state.runs))
            try:
                self.state.acknowledge(member, [Acknowledgement(offset, offset, AcknowledgeType.ACCEPT)], self.now_ms)
            except AcknowledgeRefusedError:
                assert before == list(map(repr, self.state.runs))
            else:
                raise AssertionError(f"{member} acknowledged {offset}")

    @rule(member=st.sampled_from(MEMBERS))
    def leave(self, member: str) -> None:
        persist = self.state.release_member(member, self.now_ms)
        waiting = {offset for _, waits in self.pending for offset in waits}
        own = [offset for offset, owner in self.held.items() if owner == member and offset not in waiting]
        if persist is not None:
            self.finish(persist, dict.fromkeys(own, AcknowledgeType.RELEASE), is_stored=True)

    @rule(span_ms=st.integers(1, 1_500))
    def wait(self, span_ms: int) -> None:
        self.now_ms += span_ms
        waiting = {offset for _, waits in self.pending for offset in waits}
        persist, _ = self.state.on_tick(self.now_ms)
        acquired = {
            offset
            for run in self.state.runs
            if run.state is RecordState.ACQUIRED
            for offset in range(run.first, run.last + 1)
        }
        for offset in [each for each in self.held if each not in acquired and each not in waiting]:
            del self.held[offset]
            if self.counts[offset] >= LIMIT:
                self.done.add(offset)
        if persist is not None:
            self.stored(persist, is_stored=True)
        deadline = self.state.next_deadline()
        assert deadline is None or deadline > self.now_ms

    @rule(count=st.integers(0, 5), is_stored=st.booleans())
    def write_dead_letters(self, count: int, is_stored: bool) -> None:
        """Some of the dead letters that are owed are written; storing that may fail."""
        self.owed += self.state.take_dead_letters()
        assert [] == self.state.take_dead_letters()
        for letters in self.owed[:count]:
            assert self.settings.dead_letter_topic
            for offset in range(letters.first, letters.last + 1):
                assert offset in self.done | self.unclear, f"{offset} has a dead letter and is not done"
                if letters.reason is DeadReason.TOO_OFTEN:
                    assert LIMIT == letters.delivery_count
                self.letters.add(offset)
            persist = self.state.on_dead_letters(Span(letters.first, letters.last))
            if persist is not None:
                self.stored(persist, is_stored=is_stored)
        del self.owed[:count]

    @rule()
    def crash(self) -> None:
        """Another leader takes over. What was being stored is not."""
        self.pending.clear()
        self.lead()

    @invariant()
    def holds(self) -> None:
        self.state.check()
        self.store.check()

    @invariant()
    def no_record_is_lost(self) -> None:
        for span in self.batches:
            if span in self.skipped:
                continue
            for offset in range(max(span.first, self.log_start), min(span.last + 1, self.state.start_offset)):
                assert offset in self.done | self.unclear, f"the start offset passed {offset}, which is not done"

    @invariant()
    def no_dead_letter_is_lost(self) -> None:
        """What was rejected, and that was answered, has its dead letter, or the next leader finds that it is owed;
        also if the log no longer has the record."""
        if not self.settings.dead_letter_topic:
            return
        stored = self.store.entries[KEY].state
        for offset in self.rejected - self.letters:
            found = [each for each in stored.batches if each.first_offset <= offset <= each.last_offset]
            assert stored.start_offset <= offset, f"the start offset passed {offset}, which has no dead letter"
            assert [RecordState.ARCHIVING] == [each.delivery_state for each in found], f"{offset} is not owed"

    def teardown(self) -> None:
        """Left alone, every record is delivered and done."""
        if not hasattr(self, "state"):
            return
        while self.pending:
            self.answer(is_stored=True, is_told=True)
        for _ in range(500):
            if self.state.start_offset >= self.log_end:
                break
            self.wait(span_ms=LOCK_MS + 200)
            self.write_dead_letters(count=1_000, is_stored=True)
            self.fetch(member="a", max_records=100, limited=False, read=100)
            own = sorted(offset for offset, owner in self.held.items() if owner == "a")
            accepted = [Acknowledgement(offset, offset, AcknowledgeType.ACCEPT) for offset in own]
            persist = self.state.acknowledge("a", accepted, self.now_ms)
            if persist is not None:
                self.finish(persist, dict.fromkeys(own, AcknowledgeType.ACCEPT), is_stored=True)
            self.holds()
        assert self.state.start_offset >= self.log_end
        assert not self.held


TestSharePartitions = SharePartitionMachine.TestCase
TestSharePartitions.settings = effort(300, 60)


def test_a_write_that_seemed_to_fail_does_not_bring_acknowledged_records_back() -> None:
    """The start offset was stored, and the leader does not know it when it stores that a lock has expired."""
    machine = SharePartitionMachine()
    machine.begin(in_flight_max=20, backoff_ms=0, updates=5, dead_letter_topic="")
    machine.fetch(member="a", max_records=4, limited=True, read=1)
    for offset, is_told in ((1, True), (2, True), (0, False)):
        accepted = Acknowledgement(offset, offset, AcknowledgeType.ACCEPT)
        persist = machine.state.acknowledge("a", [accepted], machine.now_ms)
        assert persist is not None
        machine.finish(persist, {offset: AcknowledgeType.ACCEPT}, is_stored=True, is_told=is_told)
    machine.wait(span_ms=LOCK_MS)
    machine.crash()
    assert 3 == machine.state.start_offset


def test_a_rejected_record_that_the_log_deletes_before_that_is_stored_has_a_dead_letter() -> None:
    settings = SharePartitionSettings(dead_letter_topic="dlq.t")
    for log_start in (2, 3, 9):
        state = SharePartitionState(settings, 0)
        state.acquire("a", 0, [Span(0, 4)], now_ms=0, max_records=5)
        persist = state.acknowledge("a", [Acknowledgement(0, 2, AcknowledgeType.REJECT)], 0)
        assert persist is not None
        state.on_log_start(log_start)
        state.check()
        assert [] == state.take_dead_letters(), "the member may be told that its rejection was not stored"
        state.on_persisted(persist.id, 0, is_stored=True)
        state.check()
        letters = state.take_dead_letters()
        assert [0, 1, 2] == [offset for each in letters for offset in range(each.first, each.last + 1)]
        assert {DeadReason.REJECTED} == {each.reason for each in letters}
        for each in letters:
            state.on_dead_letters(Span(each.first, each.last))
            state.check()
        assert (max(log_start, 3), []) == (state.start_offset, state.take_dead_letters())


def test_dead_letters_of_records_that_the_log_deletes_survive_a_crash() -> None:
    """While they wait, the start offset that is stored does not pass them, and they count as in flight."""
    machine = SharePartitionMachine()
    machine.begin(in_flight_max=20, backoff_ms=0, updates=5, dead_letter_topic="dlq.t")
    machine.fetch(member="a", max_records=8, limited=True, read=4)

    def acknowledge(offset: int, how: AcknowledgeType) -> None:
        persist = machine.state.acknowledge("a", [Acknowledgement(offset, offset, how)], machine.now_ms)
        assert persist is not None
        machine.finish(persist, {offset: how}, is_stored=True)
        machine.no_dead_letter_is_lost()
        machine.holds()

    acknowledge(0, AcknowledgeType.REJECT)
    acknowledge(2, AcknowledgeType.REJECT)
    machine.owed = machine.state.take_dead_letters()
    machine.delete_records(by=3)
    machine.delete_records(by=2)
    in_flight = machine.state.in_flight
    acknowledge(5, AcknowledgeType.ACCEPT)
    assert (6, in_flight - 1) == (machine.state.start_offset, machine.state.in_flight)
    stored = machine.store.entries[KEY].state
    assert (0, 4) == (stored.start_offset, stored.delivery_complete_count)
    machine.crash()
    machine.no_dead_letter_is_lost()
    assert [0, 2] == [each.first for each in machine.owed]
    machine.write_dead_letters(count=1, is_stored=True)
    assert 2 == machine.store.entries[KEY].state.start_offset
    machine.write_dead_letters(count=1, is_stored=True)
    assert 6 == machine.store.entries[KEY].state.start_offset


def test_aborted_batches_do_not_use_up_the_records_of_a_fetch() -> None:
    state = SharePartitionState(SharePartitionSettings(is_read_committed=True), 0)
    aborted = [Span(10 * at, 10 * at + 9) for at in range(50)]
    found = state.acquire(
        "a", 0, [*aborted, Span(500, 509)], now_ms=0, max_records=1, mode=AcquireMode.RECORD_LIMIT, skipped=aborted
    )
    state.check()
    assert [(500, 500, 1)] == found
    assert (500, 501) == (state.start_offset, state.next_offset)
