"""The parallel consumer's decisions under any order of events: order per key, safe commits, bounded memory."""

from collections import defaultdict

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.client.network.backoff import Backoff
from ottla.client.parallel.parallel_consumer_state import Ordering, ParallelConsumerState, ParallelLimits, Work
from ottla.client.values import ConsumerRecord
from ottla.model.ids import TopicPartition
from ottla.sim.random import SimRandom
from tests.effort import effort

PARTITIONS = [TopicPartition("t", 0), TopicPartition("t", 1)]
KEYS = [None, b"a", b"b"]
RECORDS_MAX = 12


class Machine(RuleBasedStateMachine):
    """Plays the shell, and keeps what the truth is: which offsets are done, and what ran before what."""

    @initialize(
        ordering=st.sampled_from(["key", "partition", "unordered"]),
        workers=st.integers(1, 4),
        retries=st.integers(0, 2),
    )
    def begin(self, ordering: Ordering, workers: int, retries: int) -> None:
        self.limits = ParallelLimits(
            workers=workers,
            ordering=ordering,
            buffered_records_max=RECORDS_MAX,
            buffered_bytes_max=1000,
            uncommitted_max=8,
            retries=retries,
            backoff=Backoff(first_ms=1000, most_ms=4000, jitter=0),
        )
        self.state = ParallelConsumerState(self.limits)
        self.random = SimRandom(1)
        self.now = 0.0
        self.next_offset = dict.fromkeys(PARTITIONS, 0)
        self.owned: set[TopicPartition] = set()
        self.ending: set[TopicPartition] = set()
        self.undone: dict[TopicPartition, set[int]] = defaultdict(set)
        self.paused: set[TopicPartition] = set()
        self.running: list[Work] = []
        self.finished: dict[tuple[TopicPartition, object], int] = {}
        self.committed: dict[TopicPartition, int] = {}

    @rule(partition=st.sampled_from(PARTITIONS))
    def assign(self, partition: TopicPartition) -> None:
        if partition not in self.owned:
            # Whoever has it now begins where the group is.
            self.next_offset[partition] = self.committed.get(partition, 0)
            self.undone[partition] = set()
            self.finished = {key: offset for key, offset in self.finished.items() if key[0] != partition}
        self.owned.add(partition)
        self.state.assign([partition])

    @rule(partition=st.sampled_from(PARTITIONS))
    def end_partition(self, partition: TopicPartition) -> None:
        if partition in self.owned:
            self.ending.add(partition)
        self.state.end([partition])

    @rule(partition=st.sampled_from(PARTITIONS))
    def revoke(self, partition: TopicPartition) -> None:
        self.owned.discard(partition)
        self.ending.discard(partition)
        self.paused.discard(partition)
        self.state.revoke([partition])

    @rule(partition=st.sampled_from(PARTITIONS), keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=4))
    def take(self, partition: TopicPartition, keys: list[bytes | None]) -> None:
        if partition in self.ending:
            self.state.take(partition, [ConsumerRecord("t", 0, 0, 10**6, 0, 0, None, b"", (), -1, 10)])
            return
        if partition in self.owned and (partition in self.paused or self.state.room < len(keys)):
            return
        records = []
        for key in keys:
            offset = self.next_offset[partition]
            # Every third offset is a gap, as after compaction.
            self.next_offset[partition] += 2 if offset % 3 == 0 else 1
            records.append(ConsumerRecord("t", partition.partition, 0, offset, 0, 0, key, b"", (), len(key or b""), 10))
            if partition in self.owned:
                self.undone[partition].add(offset)
        self.state.take(partition, records)

    @rule(seconds=st.sampled_from([0.0, 1.0, 5.0]))
    def start(self, seconds: float) -> None:
        self.now += seconds
        started = self.state.next_work(self.now)
        for work in started:
            assert work.partition in self.owned - self.ending
            self._check_order(work)
            self.running.append(work)

    def _check_order(self, work: Work) -> None:
        """Nothing of the same queue runs, and everything of it that came before is done."""
        key = work.record.key
        if self.limits.ordering == "unordered" or (self.limits.ordering == "key" and key is None):
            return
        same = (work.partition, key if self.limits.ordering == "key" else "all")
        alike = [
            each
            for each in self.running
            if not each.is_revoked
            and each.partition == work.partition
            and (self.limits.ordering == "partition" or each.record.key == key)
        ]
        assert [] == alike
        assert self.finished.get(same, -1) < work.record.offset

    @precondition(lambda self: bool(getattr(self, "running", None)))
    @rule(data=st.data(), fate=st.sampled_from(["done", "failed", "rejected"]))
    def end(self, data: st.DataObject, fate: str) -> None:
        work = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
        was_revoked = work.is_revoked
        if fate != "done":
            is_over = self.state.failed(work, self.now, self.random, is_final=fate == "rejected")
            expected = not was_revoked and (fate == "rejected" or work.attempts == self.limits.retries + 1)
            assert expected == is_over
            if not is_over:
                return
        self.state.done(work)
        if not was_revoked:
            self.undone[work.partition].remove(work.record.offset)
            key = work.record.key if self.limits.ordering == "key" else "all"
            self.finished[work.partition, key] = work.record.offset

    @rule()
    def commit(self) -> None:
        offsets = self.state.committable()
        for partition, offset in offsets.items():
            assert partition in self.owned
            assert self.committed.get(partition, 0) <= offset
            self.committed[partition] = offset
        self.state.committed(offsets)
        assert {} == self.state.committable()

    @rule()
    def look_at_pauses(self) -> None:
        to_pause, to_resume = self.state.pauses()
        assert to_pause <= self.owned - self.paused
        assert to_resume <= self.paused
        self.paused = (self.paused | to_pause) - to_resume
        assert (set(), set()) == self.state.pauses()
        if self.state.is_full:
            assert self.owned == self.paused

    @invariant()
    def nothing_undone_is_committable(self) -> None:
        if not hasattr(self, "state"):
            return
        self.state.check()
        assert self.state.buffered <= RECORDS_MAX + len(self.running)
        for partition, offset in self.state.committable().items():
            assert all(offset <= each for each in self.undone[partition])

    def teardown(self) -> None:
        """Whatever happened, everything that is owned can be done, and then all of it is committable."""
        if not hasattr(self, "state"):
            return
        for work in [each for each in self.running if each.partition in self.ending or each.is_revoked]:
            self.running.remove(work)
            self.state.done(work)
        self.state.revoke(self.ending)
        for _ in range(10_000):
            self.now += 10
            self.running += self.state.next_work(self.now)
            if not self.running:
                break
            while self.running:
                self.state.done(self.running.pop())
        assert (0, None) == (self.state.buffered, self.state.next_deadline())
        for partition, offset in self.state.committable().items():
            assert self.next_offset[partition] - offset in (0, 1)


TestParallelConsumer = Machine.TestCase
TestParallelConsumer.settings = effort(60, 50)
