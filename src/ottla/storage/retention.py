"""Which segments are old enough to go: by time, by size, or because the log's start has moved past them."""

from ottla.model.ids import TimestampMs
from ottla.storage.log import Log


def delete_expired(log: Log, now: TimestampMs) -> int:
    """Deletes the segments from the front that retention lets go; says how many.

    Never past the high watermark. An expired active segment is rolled first, so that a silent partition empties too.
    """
    count = expired_count(log, now)
    if count == len(log.segments) and log.segments.active.size_bytes > 0:
        log.roll(now)
    count = min(count, len(log.segments) - 1)
    log.delete_oldest(count)
    return count


def expired_count(log: Log, now: TimestampMs) -> int:
    """How many segments from the front have expired, the active one perhaps among them."""
    config = log.config
    surplus = log.size_bytes - config.retention_bytes if config.cleanup_delete and config.retention_bytes >= 0 else 0
    count = 0
    for at, segment in enumerate(log.segments):
        end = log.segments.end_of(at)
        if end > log.high_watermark or segment.size_bytes == 0:
            break
        too_old = config.cleanup_delete and config.retention_ms >= 0 and now - segment.newest_ms > config.retention_ms
        too_much = surplus >= segment.size_bytes and at < len(log.segments) - 1
        if not (too_old or too_much or end <= log.start_offset):
            break
        surplus -= segment.size_bytes
        count += 1
    return count
