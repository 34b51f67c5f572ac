"""How many parked records are due how soon, counted while they are read. Pure."""

from bisect import bisect_left
from collections.abc import Iterable
from typing import Final, NamedTuple

from ottla.queues.owed_records import Owed

_MINUTE, _HOUR, _DAY = 60_000, 3_600_000, 86_400_000
_BOUNDS: Final = (
    (0, "due now"),
    (1_000, "within 1 s"),
    (10_000, "within 10 s"),
    (_MINUTE, "within 1 m"),
    (10 * _MINUTE, "within 10 m"),
    (_HOUR, "within 1 h"),
    (6 * _HOUR, "within 6 h"),
    (_DAY, "within 1 d"),
    (7 * _DAY, "within 7 d"),
    (30 * _DAY, "within 30 d"),
)
_LATER: Final = "later"
_BAR_WIDTH: Final = 40


class Bucket(NamedTuple):
    """Records that are due within a span and not within the one before it."""

    label: str
    within_ms: int | None
    """None for the last one, which has no bound."""
    records: int


class DueCounts:
    """Counts the parked records of a partition or a queue; `now_ms` is the time that they are compared with."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self._bounds = [now_ms + within_ms for within_ms, _ in _BOUNDS]
        self._records = [0] * (len(_BOUNDS) + 1)
        self.parked = 0
        self.next_due_ms: int | None = None
        """When the first one is or was due."""
        self.first_offset: int | None = None
        """The lowest offset, if all are of one partition."""

    def add(self, owed: Iterable[Owed]) -> None:
        """Counts more records."""
        records, bounds = self._records, self._bounds
        for due_ms, offset, _ in owed:
            records[bisect_left(bounds, due_ms)] += 1
            self.parked += 1
            if self.next_due_ms is None or due_ms < self.next_due_ms:
                self.next_due_ms = due_ms
            if self.first_offset is None or offset < self.first_offset:
                self.first_offset = offset

    def add_counts(self, other: "DueCounts") -> None:
        """Counts those of another partition too, which were compared with the same time."""
        self._records = [mine + theirs for mine, theirs in zip(self._records, other._records, strict=True)]
        self.parked += other.parked
        dues = [each for each in (self.next_due_ms, other.next_due_ms) if each is not None]
        self.next_due_ms = min(dues, default=None)

    @property
    def due(self) -> int:
        """How many are due."""
        return self._records[0]

    @property
    def late_ms(self) -> int:
        """How long the first one has been due; 0 if none is."""
        return self._now_ms - self.next_due_ms if self.next_due_ms is not None and self.due else 0

    def buckets(self) -> list[Bucket]:
        """The buckets from those that are due now to the last one that has records."""
        spans = [*((within_ms, label) for within_ms, label in _BOUNDS), (None, _LATER)]
        buckets = [
            Bucket(label, within_ms, count) for (within_ms, label), count in zip(spans, self._records, strict=True)
        ]
        while len(buckets) > 1 and buckets[-1].records == 0:
            buckets.pop()
        return buckets


def bar(count: int, largest: int) -> str:
    """A bar whose length shows a count; any count above 0 shows."""
    return "#" * -(-count * _BAR_WIDTH // largest) if largest else ""
