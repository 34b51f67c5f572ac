"""The spans of tasks: ranges of partitions, split as the options say. Pure.

The arithmetic is that of Spark's Kafka connector, so a query that moves here keeps its number of tasks. It counts
offsets, not records: compaction and transactions leave gaps. How much a micro-batch reads is in `admission.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ottla.model.ids import TopicPartition


class OffsetSpan(NamedTuple):
    """From `start` to `end`, exclusive, of one partition."""

    partition: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        """The number of offsets."""
        return self.end - self.start


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitRules:
    """How spans are split into tasks; None for no such rule."""

    tasks_min: int | None = None
    records_max: int | None = None
    bytes_max: int | None = None


def spans_between(starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> list[OffsetSpan]:
    """The spans between two offsets of each partition; without empty ones."""
    return [
        OffsetSpan(partition, starts[partition], end)
        for partition, end in sorted(ends.items())
        if partition in starts and starts[partition] < end
    ]


def split_spans(
    spans: Sequence[OffsetSpan], rules: SplitRules, bytes_per_offset: Mapping[TopicPartition, float] | None = None
) -> list[OffsetSpan]:
    """The spans of all tasks, which together are the given ones.

    First no piece is larger than the most allowed, in records or, by the average given, in bytes; then, if there are
    too few, large ones are split in proportion to their size. The number of tasks is approximate.
    """
    pieces = [piece for span in spans if span.size > 0 for piece in _cut(span, _parts(span, rules, bytes_per_offset))]
    if rules.tasks_min is None or len(pieces) >= rules.tasks_min:
        return pieces
    total = sum(piece.size for piece in pieces)
    # Spans that are not split are left out of the proportion; else large spans would get too few pieces.
    small = [piece for piece in pieces if _share(piece.size, total, rules.tasks_min) == 1]
    rest = total - sum(piece.size for piece in small)
    wanted = max(rules.tasks_min - len(small), 1)
    kept = set(small)
    return [
        piece
        for whole in pieces
        for piece in ([whole] if whole in kept else _cut(whole, _share(whole.size, rest, wanted)))
    ]


def _parts(span: OffsetSpan, rules: SplitRules, bytes_per_offset: Mapping[TopicPartition, float] | None) -> int:
    parts = 1
    if rules.records_max is not None:
        parts = -(-span.size // rules.records_max)
    if rules.bytes_max is not None and bytes_per_offset is not None:
        average = bytes_per_offset.get(span.partition, 0.0)
        parts = max(parts, int(-(-(span.size * average) // rules.bytes_max)))
    return max(1, min(parts, span.size))


def _share(size: int, total: int, parts: int) -> int:
    return max(int(size / total * parts + 0.5), 1) if total else 1


def _cut(span: OffsetSpan, parts: int) -> list[OffsetSpan]:
    """Pieces of nearly the same size, none of them empty."""
    found: list[OffsetSpan] = []
    start, left = span.start, span.size
    for remaining in range(parts, 0, -1):
        size = left // remaining
        if size:
            found.append(OffsetSpan(span.partition, start, start + size))
        start, left = start + size, left - size
    return found
