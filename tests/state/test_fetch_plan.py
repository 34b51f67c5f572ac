"""A consumer's subscription and fetch plan against plain logs: whatever order things happen in, every record that comes
out is the one that the position said, positions go on without gaps, and nothing is asked for twice at once.
"""

from collections.abc import Sequence

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ottla.client.consumer.subscription_state import SubscriptionState
from ottla.client.fetch.fetch_plan_state import FetchLimits, FetchPlanState, Leader
from ottla.client.fetch.partition_state import Phase
from ottla.client.network.list_offsets import END, START
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.protocol.fetch_frames import READ_UNCOMMITTED, Fetched, Wanted
from ottla.records.builder import BatchBuilder
from tests.effort import effort

PARTITIONS = [TopicPartition("t", index) for index in range(4)]
RECORDS = 40
BATCH = 5
READ_AHEAD = 400


def log_of(partition: TopicPartition) -> list[bytes]:
    batches = []
    for base in range(0, RECORDS, BATCH):
        builder = BatchBuilder(base_offset=base, leader_epoch=1)
        for offset in range(base, base + BATCH):
            builder.append(offset, None, b"%d/%d" % (partition.partition, offset))
        batches.append(builder.build())
    return batches


LOGS = {partition: log_of(partition) for partition in PARTITIONS}


def fetched(wanted: Wanted, batch_count: int, error_code: int = 0) -> Fetched:
    first = wanted.offset // BATCH
    records = b"".join(LOGS[wanted.partition][first : first + batch_count])
    return Fetched(wanted.partition, error_code, RECORDS, RECORDS, 0, [], memoryview(records))


class FetchPlanMachine(RuleBasedStateMachine):
    """A broker that answers late, partly, wrongly or never, and a program that does what it wants."""

    def __init__(self) -> None:
        super().__init__()
        self.subscription = SubscriptionState(reset_policy=START)
        limits = FetchLimits(partition_bytes_max=1000, read_ahead_bytes=READ_AHEAD, isolation_level=READ_UNCOMMITTED)
        self.plan = FetchPlanState(self.subscription.partitions, limits)
        self.in_flight: list[list[Wanted]] = []
        self.positions: dict[TopicPartition, int] = {}
        """What the program believes."""

    def partition(self, pick: int) -> TopicPartition:
        have = list(self.subscription.partitions)
        return have[pick % len(have)]

    @rule(chosen=st.sets(st.sampled_from(PARTITIONS)))
    def assign(self, chosen: set[TopicPartition]) -> None:
        before = set(self.subscription.partitions)
        self.subscription.assign_by_hand(sorted(chosen))
        self.plan.forget(before - chosen)
        for partition in chosen - before:
            assert self.subscription.on_committed(partition, None, -1)
            self.subscription.on_reset(partition, START, 0)
            self.positions[partition] = 0
        for partition in before - chosen:
            del self.positions[partition]

    @precondition(lambda self: self.positions)
    @rule(pick=st.integers(0, 9), offset=st.integers(0, RECORDS))
    def seek(self, pick: int, offset: int) -> None:
        partition = self.partition(pick)
        self.subscription.seek(partition, offset)
        self.plan.forget([partition])
        self.positions[partition] = offset

    @precondition(lambda self: self.positions)
    @rule(pick=st.integers(0, 9), to=st.sampled_from([START, END]), is_old=st.booleans())
    def reset(self, pick: int, to: int, is_old: bool) -> None:
        partition = self.partition(pick)
        self.subscription.reset(partition, to)
        self.plan.forget([partition])
        if is_old:
            # The answer to a question that nobody asks any more changes nothing.
            self.subscription.on_reset(partition, START + END - to, 17)
            assert Phase.RESETTING is self.subscription.state(partition).phase
        self.subscription.on_reset(partition, to, 0 if to == START else RECORDS)
        self.positions[partition] = 0 if to == START else RECORDS

    @precondition(lambda self: self.positions)
    @rule(pick=st.integers(0, 9), paused=st.booleans())
    def pause_or_resume(self, pick: int, paused: bool) -> None:
        self.subscription.state(self.partition(pick)).is_paused = paused

    @rule()
    def ask(self) -> None:
        leaders = {partition: Leader(partition.partition % 2, 1) for partition in PARTITIONS}
        planned = self.plan.plan(leaders, now=0.0)
        for broker, wanted in planned.items():
            assert [broker] * len(wanted) == [each.partition.partition % 2 for each in wanted]
            for each in wanted:
                asked = [other for request in self.in_flight for other in request if other[:2] == each[:2]]
                assert [] == asked, "asked for again while it is under way"
            self.plan.on_sent(wanted)
            self.in_flight.append(wanted)

    @precondition(lambda self: self.in_flight)
    @rule(pick=st.integers(0, 9), counts=st.lists(st.integers(0, 4), min_size=4, max_size=4), is_wrong=st.booleans())
    def answer(self, pick: int, counts: Sequence[int], is_wrong: bool) -> None:
        wanted = self.in_flight.pop(pick % len(self.in_flight))
        code = int(ErrorCode.NOT_LEADER_OR_FOLLOWER) if is_wrong else 0
        answers = [fetched(each, count, code) for each, count in zip(wanted, counts, strict=False)]
        problems = self.plan.on_answer(wanted, answers, now=0.0)
        assert is_wrong or [] == problems
        assert all(code == problem.error_code for problem in problems)

    @precondition(lambda self: self.in_flight)
    @rule(pick=st.integers(0, 9))
    def lose(self, pick: int) -> None:
        self.plan.on_failed(self.in_flight.pop(pick % len(self.in_flight)))

    @rule(count=st.integers(1, 12))
    def take(self, count: int) -> None:
        found = self.plan.take(count)
        assert sum(map(len, found.values())) <= count
        for partition, records in found.items():
            assert not self.subscription.state(partition).is_paused
            start = self.positions[partition]
            expected = [b"%d/%d" % (partition.partition, offset) for offset in range(start, start + len(records))]
            assert expected == [record.value for record in records]
            self.positions[partition] = start + len(records)

    @rule(bytes_max=st.integers(0, 2000))
    def take_chunks(self, bytes_max: int) -> None:
        for chunk in self.plan.take_chunks(bytes_max):
            assert self.positions[chunk.partition] == chunk.start
            offsets = [record.offset for record in chunk.records()]
            assert list(range(chunk.start, chunk.next_offset)) == offsets
            self.positions[chunk.partition] = chunk.next_offset

    @invariant()
    def positions_are_what_was_taken(self) -> None:
        self.subscription.check()
        self.plan.check()
        assert self.positions == {each: offset for each, (offset, _) in self.subscription.positions().items()}

    def teardown(self) -> None:
        """In the end everything that is assigned can be read to its end."""
        for state in self.subscription.partitions.values():
            state.is_paused = False
        for _ in range(4 * RECORDS):
            self.take(100)
            self.ask()
            while self.in_flight:
                self.answer(0, [2] * 4, is_wrong=False)
        assert all(RECORDS == offset for offset in self.positions.values())


TestFetchPlan = FetchPlanMachine.TestCase
TestFetchPlan.settings = effort(examples=60, steps=50)
