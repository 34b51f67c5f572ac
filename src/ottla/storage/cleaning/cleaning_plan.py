"""What compaction may do to a log: how far it may go, how dirty the log is, and which segments are merged.

Nothing here reads or writes records. The two passes are in `cleaning_work.py`, and `cleaner.py` puts their result into
the log.

    log start <= first_dirty_offset <= first_uncleanable_offset <= last stable offset

Below the first dirty offset keys are already unique. The first uncleanable offset is a segment's base offset: the
active segment, segments that reach the last stable offset, and those within `min.compaction.lag.ms` are not cleaned.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ottla.model.ids import Offset, TimestampMs
from ottla.records.layout import HEADER_BYTES
from ottla.storage.log import Log
from ottla.storage.log_config import UNLIMITED, LogConfig
from ottla.storage.segments.segment import RELATIVE_OFFSET_MAX, Segment

_INDEX_ENTRY_BYTES: Final = 12
"""Of the time index, which has the larger entries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleanable:
    """A log that can be compacted."""

    log: Log
    first_dirty_offset: Offset
    first_uncleanable_offset: Offset
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool
    """Whether a dirty record has waited longer than `max.compaction.lag.ms`."""

    @property
    def dirty_ratio(self) -> float:
        """The share of dirty bytes in what a cleaning would read."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    @property
    def is_due(self) -> bool:
        """Whether it should be cleaned now."""
        if self.dirty_bytes == 0:
            return False
        return self.is_overdue or self.dirty_ratio > self.log.config.min_cleanable_dirty_ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSegment:
    """A sealed segment to be cleaned."""

    base_offset: Offset
    end_offset: Offset
    """All its offsets are below."""
    size_bytes: int


def look_at(log: Log, now: TimestampMs) -> Cleanable:
    """The state of a log with regard to compaction."""
    first_dirty = max(log.cleaned_offset, log.start_offset)
    first_uncleanable = first_uncleanable_offset(log, first_dirty, now)
    clean_bytes, dirty = 0, []
    for at, segment in enumerate(log.segments):
        if segment.base_offset >= first_uncleanable:
            break
        if log.segments.end_of(at) <= first_dirty:
            clean_bytes += segment.size_bytes
        else:
            dirty.append(segment)
    return Cleanable(
        log=log,
        first_dirty_offset=first_dirty,
        first_uncleanable_offset=first_uncleanable,
        clean_bytes=clean_bytes,
        dirty_bytes=sum(segment.size_bytes for segment in dirty),
        is_overdue=_is_overdue(dirty, log.config, now),
    )


def first_uncleanable_offset(log: Log, first_dirty: Offset, now: TimestampMs) -> Offset:
    """The base offset of the first segment that must not be cleaned."""
    limit = min(log.segments.active.base_offset, log.last_stable_offset)
    lag_ms = log.config.min_compaction_lag_ms
    for segment in log.segments.from_offset(first_dirty) if lag_ms > 0 else ():
        if segment.base_offset >= limit:
            break
        if segment.newest_ms > now - lag_ms:
            return segment.base_offset
    return log.segments[log.segments.index_of(limit)].base_offset


def sources_below(log: Log, end: Offset) -> list[SourceSegment]:
    """The segments that begin below `end`."""
    return [
        SourceSegment(
            base_offset=segment.base_offset, end_offset=log.segments.end_of(at), size_bytes=segment.size_bytes
        )
        for at, segment in enumerate(log.segments)
        if segment.base_offset < end
    ]


def grouped(sources: Sequence[SourceSegment], config: LogConfig) -> list[list[SourceSegment]]:
    """Adjacent segments that fit into one, by their size, their index and the range of relative offsets."""
    groups: list[list[SourceSegment]] = []
    for source in sources:
        if groups and _fits(groups[-1], source, config):
            groups[-1].append(source)
        else:
            groups.append([source])
    return groups


def index_bytes_at_most(log_bytes: int, config: LogConfig) -> int:
    """The largest possible index for this many bytes of batches."""
    entries = log_bytes // max(config.index_interval_bytes, HEADER_BYTES) + 2
    return entries * _INDEX_ENTRY_BYTES


def _fits(group: Sequence[SourceSegment], source: SourceSegment, config: LogConfig) -> bool:
    size = sum(member.size_bytes for member in group) + source.size_bytes
    return (
        size <= config.segment_bytes
        and index_bytes_at_most(size, config) <= config.segment_index_bytes
        and source.end_offset - 1 - group[0].base_offset <= RELATIVE_OFFSET_MAX
    )


def _is_overdue(dirty: Sequence[Segment], config: LogConfig, now: TimestampMs) -> bool:
    """Whether the first batch of a dirty segment is older than `max.compaction.lag.ms`; reads sealed segments from
    disk."""
    if config.max_compaction_lag_ms >= UNLIMITED:
        return False
    for segment in dirty:
        first = segment.locate(segment.base_offset)
        if first is not None and 0 <= first.max_timestamp < now - config.max_compaction_lag_ms:
            return True
    return False
