"""Applies a leader's answer to a follower's log, as `follower_state.py` decides.

`replica_fetcher.py` sends the fetches.
"""

import logging
from typing import Final, NamedTuple

from ottla.env.ports import Clock
from ottla.model.ids import Offset
from ottla.protocol.replica_fetch_frames import PartitionAnswer
from ottla.replication.follower_state import (
    AppendRecords,
    Copy,
    FollowBounds,
    FollowerState,
    NextFetch,
    TruncateFully,
    TruncateTo,
)
from ottla.replication.partition import Partition
from ottla.storage.log import Log

_LOGGER: Final = logging.getLogger(__name__)

OFFSET_BYTES: Final = 8
"""The size of the base offset, the first field of a batch."""


def take_answer(partition: Partition, answer: PartitionAnswer, records: memoryview, clock: Clock) -> NextFetch:
    """Applies a leader's answer; says when to fetch again.

    Raises CorruptBatchError if the records are damaged, StorageError if they cannot be written.
    """
    log = partition.log
    if partition.follower is None:
        return NextFetch.AFTER_METADATA_CHANGE
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
                partition.on_truncated()
            case TruncateFully(offset):
                before = _Bounds.of(log)
                log.truncate_fully(offset, now=clock.now_ms())
                before.report_cut(log, partition.follower, answer)
                partition.on_truncated()
            case AppendRecords():
                _start_with_batch(partition, records, clock)
                log.append_as_follower(records, now=clock.now_ms())
                partition.on_copied(len(records))
            case FollowBounds(high_watermark, start_offset):
                partition.on_leader_bounds(high_watermark, start_offset)
    return reaction.next_fetch


class _Bounds(NamedTuple):
    """A log's offsets before it is truncated."""

    start_offset: Offset
    high_watermark: Offset
    end_offset: Offset

    @classmethod
    def of(cls, log: Log) -> "_Bounds":
        return cls(log.start_offset, log.high_watermark, log.end_offset)

    def report_cut(self, log: Log, follower: FollowerState, answer: PartitionAnswer) -> None:
        """Logs what a truncation removed, and why: as an error if some of it was committed."""
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


def _start_with_batch(partition: Partition, records: memoryview, clock: Clock) -> None:
    """Lets an empty copy start with the leader's first batch, whose first records may lie below the leader's start."""
    log = partition.log
    if log.start_offset == log.end_offset and len(records) >= OFFSET_BYTES:
        base_offset = Offset(int.from_bytes(records[:OFFSET_BYTES], "big", signed=True))
        if 0 <= base_offset < log.end_offset:
            log.truncate_fully(base_offset, now=clock.now_ms())
            partition.on_truncated()
