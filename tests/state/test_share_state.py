"""The share coordinator against a model of one state for each offset, through crashes and pruning."""

from itertools import pairwise
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ottla.coordination.groups.group_kind import Topic
from ottla.coordination.runtime.effects import CoordinatorRecord, Respond, Write
from ottla.coordination.share_state.records import ShareKey, decode
from ottla.coordination.share_state.requests import PruneLog, ShareStateSettings, StateOutcome, StateRead, StateWrite
from ottla.coordination.share_state.shard_state import ShareStateShard
from ottla.coordination.share_state.state_batches import StateBatch, combined
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import Offset
from tests.effort import effort

TOPIC = UUID(int=1)
KEYS = [ShareKey("g", TOPIC, 0), ShareKey("g", TOPIC, 1), ShareKey("h", TOPIC, 0)]

batches = st.builds(
    lambda first, size, state, count: StateBatch(first, first + size, state, count),
    st.integers(0, 30),
    st.integers(0, 10),
    st.sampled_from([0, 2, 4]),
    st.integers(1, 5),
)


def by_offset(found: tuple[StateBatch, ...] | list[StateBatch], start_offset: int) -> dict[int, tuple[int, int]]:
    """The latest state of each offset: the one with the highest count, then the highest state."""
    states: dict[int, tuple[int, int]] = {}
    for each in found:
        for offset in range(max(each.first_offset, start_offset), each.last_offset + 1):
            states[offset] = max(states.get(offset, (-1, -1)), (each.delivery_count, each.delivery_state))
    return states


@effort(300, 1)
@given(found=st.lists(batches, max_size=8), start_offset=st.integers(-1, 20))
def test_combined_batches_say_the_same_of_every_offset(found: list[StateBatch], start_offset: int) -> None:
    result = combined(found, start_offset)
    assert by_offset(found, start_offset) == by_offset(result, start_offset)
    for before, after in pairwise(result):
        assert before.last_offset < after.first_offset
        assert before.last_offset + 1 < after.first_offset or before[2:] != after[2:]


class ShareStateMachine(RuleBasedStateMachine):
    """One partition of the topic, its log, and what leaders and groups have been told."""

    @initialize(updates=st.sampled_from([0, 1, 3, 500]))
    def begin(self, updates: int) -> None:
        self.settings = ShareStateSettings(
            updates_per_snapshot=updates, prune_interval_ms=1_000, cold_snapshot_interval_ms=2_000
        )
        self.now_ms = 1_000
        self.log: list[CoordinatorRecord] = []
        self.log_start = 0
        self.model: dict[ShareKey, tuple[int, int, int, dict[int, tuple[int, int]]]] = {}
        """State epoch, leader epoch, start offset, and the state of each offset."""
        self.load()

    def load(self) -> None:
        self.shard = ShareStateShard(self.settings)
        self.shard.before_replay(Offset(self.log_start))
        # From the bytes alone, as another broker would.
        self.shard.replay_all([CoordinatorRecord(*record) for record in self.log[self.log_start :]])
        self.shard.on_metadata({"t": Topic(TOPIC, 2)}, self.now_ms)
        self.shard.on_loaded(self.now_ms)

    def run(self, effects: list[object]) -> object:
        answer: object = None
        for effect in effects:
            match effect:
                case Write(records, responses, _):
                    self.shard.before_replay(Offset(len(self.log)))
                    self.log += records
                    assert [decode(CoordinatorRecord(*record)) for record in records] == [*map(decode, records)]
                    self.shard.replay_all(records)
                    answer = responses[0].response if responses else answer
                case Respond(_, response):
                    answer = response
                case PruneLog(before):
                    assert self.log_start <= before <= len(self.log)
                    self.log_start = before
        return answer

    @rule(key=st.sampled_from(KEYS), epoch=st.integers(0, 3), start=st.sampled_from([-1, 0, 7]))
    def set_up(self, key: ShareKey, epoch: int, start: int) -> None:
        outcome = self.run(list(self.shard.initialize(key, epoch, start, self.now_ms, "t")))
        assert isinstance(outcome, StateOutcome)
        known = self.model.get(key)
        if known is not None and epoch < known[0]:
            assert ErrorCode.FENCED_STATE_EPOCH is outcome.error
        elif known is None or epoch > known[0] or start != -1:
            self.model[key] = (epoch, 0 if known is None else known[1], start, {})

    @rule(key=st.sampled_from(KEYS), leader_epoch=st.integers(0, 3))
    def read(self, key: ShareKey, leader_epoch: int) -> None:
        read = self.run(list(self.shard.read(key, leader_epoch, self.now_ms, "t")))
        assert isinstance(read, StateRead)
        known = self.model.get(key)
        if known is None:
            assert ErrorCode.INVALID_REQUEST is read.error
        elif leader_epoch < known[1]:
            assert ErrorCode.FENCED_LEADER_EPOCH is read.error
        else:
            assert (ErrorCode.NONE, known[0], known[2]) == (read.error, read.state_epoch, read.start_offset)
            assert known[3] == by_offset(read.batches, read.start_offset)
            self.model[key] = (known[0], leader_epoch, known[2], known[3])

    @rule(
        key=st.sampled_from(KEYS),
        epochs=st.tuples(st.integers(-1, 3), st.integers(-1, 3)),
        ahead=st.integers(-3, 4),
        found=st.lists(batches, max_size=3),
    )
    def write(self, key: ShareKey, epochs: tuple[int, int], ahead: int, found: list[StateBatch]) -> None:
        known = self.model.get(key)
        start = max((known[2] if known is not None else 0) + ahead, 0)
        change = StateWrite(
            state_epoch=epochs[0],
            leader_epoch=epochs[1],
            start_offset=start,
            delivery_complete_count=0,
            batches=tuple(found),
        )
        outcome = self.run(list(self.shard.write(key, change, self.now_ms, "t")))
        assert isinstance(outcome, StateOutcome)
        if known is None:
            assert ErrorCode.INVALID_REQUEST is outcome.error
        elif -1 != epochs[1] < known[1]:
            assert ErrorCode.FENCED_LEADER_EPOCH is outcome.error
        elif -1 != epochs[0] < known[0]:
            assert ErrorCode.FENCED_STATE_EPOCH is outcome.error
        else:
            assert ErrorCode.NONE is outcome.error
            # A leader that does not know how far it is does not bring the group back.
            start = max(start, known[2])
            states = by_offset(found, start)
            for offset, state in known[3].items():
                if offset >= start:
                    states[offset] = max(state, states.get(offset, state))
            self.model[key] = (known[0], known[1], start, states)

    @rule(key=st.sampled_from(KEYS))
    def delete(self, key: ShareKey) -> None:
        outcome = self.run(list(self.shard.delete(key, self.now_ms, "t")))
        assert isinstance(outcome, StateOutcome)
        assert ErrorCode.NONE is outcome.error
        self.model.pop(key, None)

    @rule(span_ms=st.integers(1, 3_000))
    def wait(self, span_ms: int) -> None:
        self.now_ms += span_ms
        self.run(list(self.shard.on_tick(self.now_ms)))

    @rule()
    def crash(self) -> None:
        before = {key: entry.state for key, entry in self.shard.entries.items()}
        self.load()
        assert before == {key: entry.state for key, entry in self.shard.entries.items()}

    @invariant()
    def holds(self) -> None:
        self.shard.check()
        assert set(self.model) == set(self.shard.entries)


TestShareState = ShareStateMachine.TestCase
TestShareState.settings = effort(60, 40)
