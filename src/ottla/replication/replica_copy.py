"""A follower's answer from its leader, done to the log: what `follower_state.py` decides, in order.

Asking the leader, and how often, is the broker's duty.
"""

import logging
from typing import Final, NamedTuple

from ottla.env.ports import Clock
from ottla.model.ids import Offset
from ottla.protocol.replica_fetch_frames import Answer
from ottla.replication.follower_state import (
    AppendRecords,
    BeginAnew,
    Copy,
    FollowBounds,
    FollowerState,
    Patience,
    TruncateTo,
)
from ottla.replication.partition import Partition
from ottla.storage.log import Log

_LOGGER: Final = logging.getLogger(__name__)

OFFSET_BYTES: Final = 8
"""A batch begins with its base offset."""


def take_answer(partition: Partition, answer: Answer, records: memoryview, clock: Clock) -> Patience:
    """Makes a leader's answer true here; says what to wait for before the next question.

    Raises CorruptBatchError if the records are damaged, StorageError if they cannot be written.
    """
    log = partition.log
    if partition.follower is None:
        return Patience.NEWS
    copy = Copy(
        start_offset=log.start_offset,
        end_offset=log.end_offset,
        end_of=lambda epoch: log.epochs.end_offset_for(epoch, log.end_offset),
    )
    reaction = partition.follower.on_answer(answer, copy)
    for effect in reaction.effects:
        match effect:
            case TruncateTo(offset):
                before = _Bounds.of(log)
                log.truncate_to(offset, now=clock.now_ms())
                before.report_cut(log, partition.follower, answer)
                partition.on_copy_cut()
            case BeginAnew(offset):
                before = _Bounds.of(log)
                log.truncate_fully(offset, now=clock.now_ms())
                before.report_cut(log, partition.follower, answer)
                partition.on_copy_cut()
            case AppendRecords():
                _begin_with_batch(log, records, clock)
                log.append_as_follower(records, now=clock.now_ms())
                partition.copied_bytes += len(records)
                partition.on_copied(len(records))
            case FollowBounds(high_watermark, start_offset):
                log.advance_high_watermark(max(min(high_watermark, log.end_offset), log.high_watermark))
                log.advance_start(min(start_offset, log.high_watermark))
                partition.on_copy_bounds()
    return reaction.patience


class _Bounds(NamedTuple):
    """A log's offsets before it is truncated."""

    start_offset: Offset
    high_watermark: Offset
    end_offset: Offset

    @classmethod
    def of(cls, log: Log) -> "_Bounds":
        return cls(log.start_offset, log.high_watermark, log.end_offset)

    def report_cut(self, log: Log, follower: FollowerState, answer: Answer) -> None:
        """Logs what a truncation took, and why: as an error if it was committed."""
        leader = f"leader {follower.leader} (leader epoch {follower.leader_epoch})"
        if log.start_offset >= self.end_offset:
            kept = self.start_offset
            why = f"the log of {leader} starts at offset {log.start_offset}"
        elif answer.diverging is not None:
            kept = log.end_offset
            epoch, end_offset = answer.diverging
            why = f"{leader} has leader epoch {epoch} only up to offset {end_offset}"
        else:
            kept = log.end_offset
            why = f"the log of {leader} ends at offset {answer.end_offset}"
        if kept >= self.end_offset:
            return
        _LOGGER.log(
            logging.ERROR if log.end_offset < self.high_watermark else logging.WARNING,
            "partition %s: truncated from offset %d to %d (%d records) because %s%s",
            log.partition, self.end_offset, kept, self.end_offset - kept, why,
            f"; {self.high_watermark - kept} of them were committed: the high watermark was {self.high_watermark}"
            if log.end_offset < self.high_watermark
            else "",
        )  # fmt: skip


def _begin_with_batch(log: Log, records: memoryview, clock: Clock) -> None:
    """An empty copy begins where the leader's log does, which may be within a batch; that batch comes whole."""
    if log.start_offset == log.end_offset and len(records) >= OFFSET_BYTES:
        base_offset = Offset(int.from_bytes(records[:OFFSET_BYTES], "big", signed=True))
        if 0 <= base_offset < log.end_offset:
            log.truncate_fully(base_offset, now=clock.now_ms())
