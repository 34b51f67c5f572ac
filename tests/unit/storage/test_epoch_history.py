"""Leader epochs: assigning, asking, truncating; and a history held against the batches."""

import pytest

from ottla.model.ids import LeaderEpoch, Offset
from ottla.storage.epoch_history import EpochHistory
from ottla.storage.recovery.epoch_rebuild import epochs_agree, epochs_of
from ottla.storage.segments.scanner import BatchEpoch
from tests.unit.storage.rig import fill, new_log


def history(**starts: int) -> EpochHistory:
    return EpochHistory({LeaderEpoch(int(epoch[1:])): Offset(start) for epoch, start in starts.items()})


def test_assigning() -> None:
    epochs = EpochHistory()
    assert (-1, False) == (epochs.latest, epochs.dirty)
    epochs.assign(LeaderEpoch(-1), Offset(0))
    assert {} == epochs.starts
    epochs.assign(LeaderEpoch(0), Offset(0))
    epochs.assign(LeaderEpoch(2), Offset(10))
    assert (2, True, {0: 0, 2: 10}) == (epochs.latest, epochs.dirty, epochs.starts)
    epochs.assign(LeaderEpoch(2), Offset(15))
    assert {0: 0, 2: 10} == epochs.starts
    epochs.assign(LeaderEpoch(3), Offset(10))
    assert {0: 0, 3: 10} == epochs.starts
    epochs.assign(LeaderEpoch(1), Offset(4))
    assert {0: 0, 1: 4} == epochs.starts


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [(-1, (-1, -1)), (0, (0, 5)), (1, (1, 10)), (2, (2, 20)), (3, (2, 20)), (4, (4, 30)), (5, (-1, -1))],
)
def test_ends(epoch: int, expected: tuple[int, int]) -> None:
    epochs = history(e1=5, e2=10, e4=20)
    assert expected == epochs.end_offset_for(LeaderEpoch(epoch), Offset(30))


def test_epochs_of_offsets() -> None:
    epochs = history(e1=5, e4=20)
    assert [-1, 1, 1, 4, 4] == [epochs.epoch_at(Offset(offset)) for offset in (4, 5, 19, 20, 99)]


def test_truncating() -> None:
    epochs = history(e1=5, e2=10, e4=20)
    epochs.truncate_from_end(Offset(21))
    assert not epochs.dirty
    epochs.truncate_from_end(Offset(20))
    assert ({1: 5, 2: 10}, True) == (epochs.starts, epochs.dirty)
    epochs.truncate_from_start(Offset(12))
    assert {2: 12} == epochs.starts
    epochs.clear()
    assert {} == epochs.starts


class TestAgainstBatches:
    def test_the_truth(self) -> None:
        log = new_log()
        for epoch in (1, 3, 5):
            fill(log, 4, first=log.end_offset, epoch=LeaderEpoch(epoch))
        assert epochs_agree(log.epochs, list(log.segments), log.start_offset, None)
        assert {1: 0, 3: 4, 5: 8} == epochs_of(list(log.segments)).starts
        assert epochs_agree(history(e1=2, e3=4, e5=8, e9=12), list(log.segments)[1:], Offset(2), None)

    def test_a_log_start_within_a_segment(self) -> None:
        log = new_log()
        fill(log, 4, epoch=LeaderEpoch(1))
        log.advance_start(Offset(2))
        assert {1: 2} == log.epochs.starts
        assert epochs_agree(log.epochs, list(log.segments), log.start_offset, None)
        assert not epochs_agree(log.epochs, list(log.segments), Offset(0), None)

    @pytest.mark.parametrize(("starts", "is_right"), [({}, False), ({"e1": 0}, False), ({"e1": 0, "e3": 4}, True)])
    def test_the_last_batch(self, starts: dict[str, int], is_right: bool) -> None:
        log = new_log()
        for epoch in (1, 3):
            fill(log, 4, first=log.end_offset, epoch=LeaderEpoch(epoch))
        last = BatchEpoch(0, Offset(7), LeaderEpoch(3))
        assert is_right == epochs_agree(history(**starts), list(log.segments), Offset(0), last)

    @pytest.mark.parametrize(
        "lie",
        [{"e1": 0, "e5": 8}, {"e3": 4, "e5": 8}, {"e0": 0}, {"e1": 0, "e3": 5}, {"e1": 0, "e3": 3}, {"e1": 0, "e4": 4}],
    )
    def test_a_lie(self, lie: dict[str, int]) -> None:
        log = new_log()
        for epoch in (1, 3, 5):
            fill(log, 4, first=log.end_offset, epoch=LeaderEpoch(epoch))
        assert not epochs_agree(history(**lie), list(log.segments), Offset(0), None)
