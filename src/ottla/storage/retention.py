"""Which records expire, by time or by size. Whole segments are deleted as the log start moves past them."""

from ottla.model.ids import Offset, TimestampMs
from ottla.storage.log import Log


def delete_expired(log: Log, now: TimestampMs) -> int:
    """Moves the log start past the expired segments, and deletes the segments below it; returns how many."""
    expire(log, now)
    return log.delete_below_start()


def expire(log: Log, now: TimestampMs) -> bool:
    """Moves the log start past the expired segments; returns whether any is to be deleted.

    Never past the high watermark. An active segment that has expired is rolled first, so that it can be deleted too.
    """
    start = expired_end(log, now)
    if start == log.end_offset and log.segments.active.size_bytes > 0:
        log.roll(now)
    log.advance_start(start)
    return log.segments.index_of(log.start_offset) > 0


def expired_end(log: Log, now: TimestampMs) -> Offset:
    """Where the log would start without its expired segments, which may include the active one."""
    config = log.config
    start = log.start_offset
    if not config.cleanup_delete:
        return start
    surplus = log.size_bytes - config.retention_bytes if config.retention_bytes >= 0 else 0
    for at, segment in enumerate(log.segments):
        end = log.segments.end_of(at)
        if end > log.high_watermark or segment.size_bytes == 0:
            break
        too_old = config.retention_ms >= 0 and now - segment.newest_ms > config.retention_ms
        too_much = surplus >= segment.size_bytes and at < len(log.segments) - 1
        if not (too_old or too_much or end <= start):
            break
        surplus -= segment.size_bytes
        start = max(start, end)
    return start
