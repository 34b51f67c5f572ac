"""The follower's core: whatever both logs went through, after some rounds the follower's is a beginning of its
leader's, and nothing that they had in common was cut."""

from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.error_codes import ErrorCode
from ottla.model.ids import NO_OFFSET, BrokerId, LeaderEpoch, Offset
from ottla.protocol.replica_fetch_frames import PartitionAnswer
from ottla.replication.follower_state import (
    AppendRecords,
    Copy,
    FollowBounds,
    FollowerState,
    NextFetch,
    Reaction,
    TruncateFully,
    TruncateTo,
)
from ottla.storage.epoch_history import EpochHistory

STATE = FollowerState(BrokerId(1), LeaderEpoch(9))


def copy_of(*epochs: int, start: int = 0) -> Copy:
    """A log with a record of each of these epochs, from `start` on."""
    history = EpochHistory()
    for offset, epoch in enumerate(epochs, start):
        history.assign(LeaderEpoch(epoch), Offset(offset))
    end = Offset(start + len(epochs))
    return Copy(start_offset=Offset(start), end_offset=end, end_of=lambda epoch: history.end_offset_for(epoch, end))


def diverging(epoch: int, end: int) -> PartitionAnswer:
    return PartitionAnswer(diverging=(LeaderEpoch(epoch), Offset(end)))


def test_records_then_bounds() -> None:
    answer = PartitionAnswer(has_records=True, high_watermark=Offset(7), start_offset=Offset(2))
    bounds = FollowBounds(Offset(7), Offset(2))
    assert Reaction((AppendRecords(), bounds)) == STATE.on_answer(answer, copy_of(0))
    nothing = PartitionAnswer(high_watermark=Offset(7), start_offset=Offset(2))
    assert Reaction((bounds,)) == STATE.on_answer(nothing, copy_of(0))


@pytest.mark.parametrize(
    ("own", "leader_says", "cut"),
    [
        ([1, 1, 1], (1, 2), 2),
        ([1, 1, 2, 2], (1, 2), 2),
        ([1, 1, 2, 2], (1, 1), 1),
        ([1, 1, 3, 3], (2, 5), 2),
        ([0, 2, 2, 4], (3, 9), 3),
    ],
    ids=["shorter there", "an epoch that it never had", "both", "its next lower epoch", "in between"],
)
def test_where_histories_diverge(own: list[int], leader_says: tuple[int, int], cut: int) -> None:
    assert Reaction((TruncateTo(Offset(cut)),)) == STATE.on_answer(diverging(*leader_says), copy_of(*own))


def test_nothing_in_common() -> None:
    assert Reaction((TruncateFully(Offset(5)),)) == STATE.on_answer(diverging(-1, 0), copy_of(4, 4, start=5))


def test_a_truncation_that_changes_nothing_backs_off() -> None:
    assert Reaction((), NextFetch.AFTER_BACKOFF) == STATE.on_answer(diverging(1, 9), copy_of(1, 1))


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (8, 20, Reaction((TruncateFully(Offset(8)),))),
        (0, 2, Reaction((TruncateTo(Offset(2)),))),
        (0, 3, Reaction((), NextFetch.AFTER_BACKOFF)),
        (-1, -1, Reaction((), NextFetch.AFTER_BACKOFF)),
    ],
    ids=["behind its start", "beyond its end", "within: it has changed its mind", "it does not say"],
)
def test_out_of_range(start: int, end: int, expected: Reaction) -> None:
    answer = PartitionAnswer(error=ErrorCode.OFFSET_OUT_OF_RANGE, start_offset=Offset(start), end_offset=Offset(end))
    assert expected == STATE.on_answer(answer, copy_of(1, 1, 1))


@pytest.mark.parametrize(
    ("error", "next_fetch"),
    [
        (ErrorCode.FENCED_LEADER_EPOCH, NextFetch.AFTER_METADATA_CHANGE),
        (ErrorCode.INCONSISTENT_TOPIC_ID, NextFetch.AFTER_METADATA_CHANGE),
        (ErrorCode.UNKNOWN_LEADER_EPOCH, NextFetch.AFTER_BACKOFF),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, NextFetch.AFTER_BACKOFF),
        (ErrorCode.UNKNOWN_TOPIC_ID, NextFetch.AFTER_BACKOFF),
        (ErrorCode.KAFKA_STORAGE_ERROR, NextFetch.AFTER_BACKOFF),
    ],
)
def test_when_to_fetch_again_after_an_error(error: ErrorCode, next_fetch: NextFetch) -> None:
    assert Reaction((), next_fetch) == STATE.on_answer(PartitionAnswer(error=error), copy_of(1))


@dataclass
class History:
    """A log as (epoch, what was written) by offset; leaders take turns in writing to some of two logs."""

    records: list[tuple[int, int]] = field(default_factory=list)

    def epochs(self) -> EpochHistory:
        history = EpochHistory()
        for offset, (epoch, _) in enumerate(self.records):
            history.assign(LeaderEpoch(epoch), Offset(offset))
        return history


@st.composite
def two_logs(draw: st.DrawFn) -> tuple[History, History, int]:
    """What elections can leave behind: in each epoch one of two leads, and the other copies some of what it wrote."""
    logs = (History(), History())
    mark = 0
    for epoch in range(draw(st.integers(1, 6))):
        leader = draw(st.integers(0, 1))
        led, follows = logs[leader], logs[1 - leader]
        for _ in range(draw(st.integers(0, 4))):
            mark += 1
            led.records.append((epoch, mark))
        if draw(st.booleans()):
            # It follows properly: cut to what is common, then some of the rest.
            follows.records[:] = led.records[: draw(st.integers(_common(led, follows), len(led.records)))]
    return *logs, epoch + 1


def _common(one: History, other: History) -> int:
    for at, (left, right) in enumerate(zip(one.records, other.records, strict=False)):
        if left != right:
            return at
    return min(len(one.records), len(other.records))


@given(two_logs())
def test_a_follower_comes_to_agree_with_its_leader(logs: tuple[History, History, int]) -> None:
    leader, follower, epoch = logs
    common = _common(leader, follower)
    history = leader.epochs()
    history.assign(LeaderEpoch(epoch), Offset(len(leader.records)))
    for _ in range(20):
        own = follower.epochs()
        end = Offset(len(follower.records))
        answer = _ask(leader, history, own.latest, end)
        if answer.diverging is None and not answer.error:
            break
        copy = Copy(start_offset=Offset(0), end_offset=end, end_of=partial(_end_of, own, end))
        reaction = STATE.on_answer(answer, copy)
        for effect in reaction.effects:
            match effect:
                case TruncateTo(offset):
                    del follower.records[offset:]
                case TruncateFully():
                    follower.records.clear()
        assert len(follower.records) >= common, "what both have was cut"
        assert reaction.effects, "no step towards the leader"
    else:
        pytest.fail("they do not come to agree")
    assert leader.records[: len(follower.records)] == follower.records


def _end_of(history: EpochHistory, end: Offset, epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset]:
    return history.end_offset_for(epoch, end)


def _ask(leader: History, history: EpochHistory, last_epoch: LeaderEpoch, offset: Offset) -> PartitionAnswer:
    """As a leader's fetch answers."""
    end = Offset(len(leader.records))
    if last_epoch >= 0:
        epoch, epoch_end = history.end_offset_for(last_epoch, end)
        assert epoch_end != NO_OFFSET
        if epoch < last_epoch or epoch_end < offset:
            return PartitionAnswer(diverging=(epoch, epoch_end))
    if offset > end:
        return PartitionAnswer(error=ErrorCode.OFFSET_OUT_OF_RANGE, start_offset=Offset(0), end_offset=end)
    return PartitionAnswer()


def test_the_generator_makes_logs_that_diverge() -> None:
    """Or the property above would say nothing."""
    seen = set()

    @given(two_logs())
    def look(logs: tuple[History, History, int]) -> None:
        leader, follower, _ = logs
        common = _common(leader, follower)
        epochs = [epoch for epoch, _ in follower.records[common:]]
        seen.add((common < len(follower.records), len(set(epochs)) > 1, any(a < b for a, b in pairwise(epochs))))

    look()
    assert {(True, True, True), (True, False, False), (False, False, False)} <= seen
