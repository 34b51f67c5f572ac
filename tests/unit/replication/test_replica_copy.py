"""What a follower tells the operator when its leader's log makes it truncate its own."""

import logging

import pytest

from ottla.model.error_codes import ErrorCode
from ottla.model.ids import BrokerId, LeaderEpoch, Offset
from ottla.protocol.replica_fetch_frames import PartitionAnswer
from ottla.replication.follower_state import FollowerState
from ottla.replication.replica_copy import take_answer
from ottla.sim.clock import SimClock
from tests.unit.replication.rig import PartitionRig
from tests.unit.storage.rig import EPOCH, append, batch, fill

OUT_OF_RANGE = ErrorCode.OFFSET_OUT_OF_RANGE


async def after(answer: PartitionAnswer, *, committed: int = 10, written: int = 20) -> tuple[int, int]:
    """(start, end) of a follower's log with these records after an answer of leader 7."""
    rig = await PartitionRig.make()
    log = rig.partition.log
    fill(log, committed)
    rig.partition.become_follower(FollowerState(BrokerId(7), LeaderEpoch(9)))
    for number in range(committed, written):
        append(log, batch(b"%d" % number))
    take_answer(rig.partition, answer, memoryview(b""), SimClock())
    return log.start_offset, log.end_offset


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    return [(each.levelno, each.getMessage()) for each in caplog.records if "truncated" in each.getMessage()]


async def test_an_uncommitted_tail_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    answer = PartitionAnswer(diverging=(EPOCH, Offset(15)))
    assert (0, 15) == await after(answer)
    assert [
        (
            logging.WARNING,
            "partition t-0: truncated from offset 20 to 15 (5 records) because leader 7 (leader epoch 9) has leader"
            f" epoch {EPOCH} only up to offset 15",
        )
    ] == told(caplog)


async def test_committed_records_are_an_error(caplog: pytest.LogCaptureFixture) -> None:
    answer = PartitionAnswer(error=OUT_OF_RANGE, start_offset=Offset(0), end_offset=Offset(4))
    assert (0, 4) == await after(answer)
    assert [
        (
            logging.ERROR,
            "partition t-0: truncated from offset 20 to 4 (16 records) because the log of leader 7 (leader epoch 9)"
            " ends at offset 4; 6 of them were committed: the high watermark was 10",
        )
    ] == told(caplog)


async def test_a_leader_without_any_record_is_an_error(caplog: pytest.LogCaptureFixture) -> None:
    answer = PartitionAnswer(error=OUT_OF_RANGE, start_offset=Offset(0), end_offset=Offset(0))
    assert (0, 0) == await after(answer)
    ((level, message),) = told(caplog)
    assert (logging.ERROR, True) == (level, "from offset 20 to 0 (20 records)" in message)


async def test_records_that_the_leader_has_deleted_are_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    answer = PartitionAnswer(error=OUT_OF_RANGE, start_offset=Offset(50), end_offset=Offset(80))
    assert (50, 50) == await after(answer)
    assert [
        (
            logging.WARNING,
            "partition t-0: truncated from offset 20 to 0 (20 records) because the log of leader 7 (leader epoch 9)"
            " starts at offset 50",
        )
    ] == told(caplog)


async def test_an_empty_copy_that_begins_where_its_leader_does_loses_nothing(caplog: pytest.LogCaptureFixture) -> None:
    answer = PartitionAnswer(error=OUT_OF_RANGE, start_offset=Offset(50), end_offset=Offset(80))
    assert (50, 50) == await after(answer, committed=0, written=0)
    assert [] == told(caplog)
