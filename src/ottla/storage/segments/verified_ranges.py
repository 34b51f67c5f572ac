"""Which byte ranges of a file have been checked against their checksums since it was opened. Pure."""

from bisect import bisect_right


class VerifiedRanges:
    """Disjoint half-open ranges, in order; adjacent ones are merged, so that a sequential reader leaves one."""

    __slots__ = ("_ranges",)

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int]] = []

    def covers(self, start: int, end: int) -> bool:
        """Whether every byte of the range has been checked."""
        for known_start, known_end in reversed(self._ranges):
            if known_start <= start:
                return end <= known_end
        return start >= end

    def add(self, start: int, end: int) -> None:
        """A range has been checked."""
        ranges = self._ranges
        if ranges and ranges[-1][0] <= start <= ranges[-1][1]:
            ranges[-1] = (ranges[-1][0], max(end, ranges[-1][1]))
            return
        at = bisect_right(ranges, (start, end))
        merged = [(start, end)]
        while at > 0 and ranges[at - 1][1] >= start:
            at -= 1
            merged.append(ranges.pop(at))
        while at < len(ranges) and ranges[at][0] <= end:
            merged.append(ranges.pop(at))
        ranges.insert(at, (min(r[0] for r in merged), max(r[1] for r in merged)))

    def truncate_to(self, end: int) -> None:
        """Forgets everything at or behind a position."""
        self._ranges = [(start, min(known, end)) for start, known in self._ranges if start < end]
