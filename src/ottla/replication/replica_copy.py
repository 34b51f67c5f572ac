"""A follower's answer from its leader, done to the log: what `follower_state.py` decides, in order.

Asking the leader, and how often, is the broker's duty.
"""

import logging
from typing import Final

from ottla.env.ports import Clock
from ottla.model.ids import Offset
from ottla.replication.follower_state import (
    Answer,
    AppendRecords,
    BeginAnew,
    Copy,
    FollowBounds,
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
                if offset < log.high_watermark:
                    _LOGGER.warning(
                        "%s is cut to %d, below its high watermark %d: after an unclean election, records are lost",
                        log.partition, offset, log.high_watermark,
                    )  # fmt: skip
                log.truncate_to(offset, now=clock.now_ms())
                partition.on_copy_cut()
            case BeginAnew(offset):
                log.truncate_fully(offset, now=clock.now_ms())
                partition.on_copy_cut()
            case AppendRecords():
                _begin_with_batch(log, records, clock)
                before = log.end_offset
                log.append_as_follower(records, now=clock.now_ms())
                partition.appended_records += log.end_offset - before
                partition.appended_bytes += len(records)
                partition.on_copied(len(records))
            case FollowBounds(high_watermark, start_offset):
                log.advance_high_watermark(max(min(high_watermark, log.end_offset), log.high_watermark))
                log.advance_start(min(start_offset, log.high_watermark))
                partition.on_copy_bounds()
    return reaction.patience


def _begin_with_batch(log: Log, records: memoryview, clock: Clock) -> None:
    """An empty copy begins where the leader's log does, which may be within a batch; that batch comes whole."""
    if log.start_offset == log.end_offset and len(records) >= OFFSET_BYTES:
        base_offset = Offset(int.from_bytes(records[:OFFSET_BYTES], "big", signed=True))
        if 0 <= base_offset < log.end_offset:
            log.truncate_fully(base_offset, now=clock.now_ms())
