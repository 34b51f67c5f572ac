"""Samples of the last 60 minutes: one ring per series, all with the same times. Pure; the sampler fills it.

A series has a kind and a name, such as ("topic.in", "orders"). A value that is missing at a time is a gap (NaN). A
series that always had the same value, as most topics of a large cluster have, is only this value and the time since
when: so memory is bounded by the series that change.
"""

import math
from array import array
from collections.abc import Mapping
from typing import Final, NamedTuple

SeriesKey = tuple[str, str]
_GAP: Final = math.nan
_STEADY_EVERY: Final = 60
"""Times between two looks for rings that have become steady."""


class Series(NamedTuple):
    """Times in seconds since the epoch, and values; None is a gap."""

    times: list[float]
    values: list[float | None]


class Samples:
    """At most `count_max` times of at most `series_max` series, of which at most `rings_max` have changed.

    A new series beyond that is left out; one that changes beyond that begins again with its new value.
    """

    def __init__(self, count_max: int = 720, series_max: int = 30_000, rings_max: int = 2000) -> None:
        self._count_max = count_max
        self._series_max = series_max
        self._rings_max = rings_max
        self._times = array("d")
        self._silent = array("b")
        """1 for times without any value: a gap of all series."""
        self._first = 0
        self._number = 0
        """How many times were added."""
        self._steady: dict[SeriesKey, tuple[int, float]] = {}
        """The number of the first time, and the value of the series since then, at all times that are not silent."""
        self._rings: dict[SeriesKey, array[float]] = {}
        self._seen_at: dict[SeriesKey, float] = {}
        self.left_out = 0
        """Series whose history was not kept at the last time, because there were too many."""

    def __len__(self) -> int:
        return len(self._times)

    @property
    def since(self) -> float | None:
        """The first time that is kept; None if there is none."""
        return self._times[self._first] if self._times else None

    def add(self, at: float, values: Mapping[SeriesKey, float]) -> None:
        """Adds the values of one time; series without a value get a gap."""
        if len(self._times) < self._count_max:
            place = len(self._times)
            self._times.append(at)
            self._silent.append(not values)
            for ring in self._rings.values():
                ring.append(_GAP)
        else:
            place = self._first
            self._times[place] = at
            self._silent[place] = not values
            self._first = (place + 1) % self._count_max
            for ring in self._rings.values():
                ring[place] = _GAP
        self._number += 1
        self.left_out = 0
        if values:
            for key in self._steady.keys() - values.keys():
                self._end_steady(key)
        for key, value in values.items():
            if key in self._steady and self._steady[key][1] != value:
                self._end_steady(key)
            if key in self._rings:
                self._rings[key][place] = value
                self._seen_at[key] = at
            elif key not in self._steady:
                if len(self._rings) + len(self._steady) < self._series_max:
                    self._steady[key] = self._number, value
                else:
                    self.left_out += 1
        self._tidy_rings()

    def _end_steady(self, key: SeriesKey) -> None:
        """Makes a ring of a series that has a gap or another value now."""
        since, value = self._steady.pop(key)
        if len(self._rings) >= self._rings_max:
            self.left_out += 1
            return
        count = len(self._times)
        ring = array("d", [_GAP]) * count
        for place in range(self._first - min(self._number - since + 1, count), self._first - 1):
            if not self._silent[place]:
                ring[place] = value
        self._rings[key] = ring
        self._seen_at[key] = self._times[self._first - 1]

    def _tidy_rings(self) -> None:
        """Forgets series that were silent for the whole time, and rings of those that had one value for all of it."""
        oldest = self._times[self._first]
        for key in [key for key, seen in self._seen_at.items() if seen < oldest]:
            del self._rings[key], self._seen_at[key]
        if self._number % _STEADY_EVERY == 0:
            for key in [key for key, ring in self._rings.items() if ring.count(ring[0]) == len(ring)]:
                self._steady[key] = self._number - len(self._times) + 1, self._rings[key][0]
                del self._rings[key], self._seen_at[key]

    def latest(self, kind: str, name: str) -> float | None:
        """The value at the last time; None if there is none."""
        if (kind, name) in self._steady:
            return None if self._silent[self._first - 1] else self._steady[kind, name][1]
        ring = self._rings.get((kind, name))
        if ring is None or not self._times:
            return None
        value = ring[self._first - 1]
        return None if math.isnan(value) else value

    def names(self, kind: str) -> list[str]:
        """The names of all series of a kind."""
        return [name for series in (self._steady, self._rings) for each, name in series if each == kind]

    def series(self, kind: str, name: str) -> Series:
        """The whole series, oldest first; without values if it does not exist."""
        order = [*range(self._first, len(self._times)), *range(self._first)]
        times = [self._times[each] for each in order]
        if (kind, name) in self._steady:
            since, value = self._steady[kind, name]
            unknown = len(times) - min(self._number - since + 1, len(times))
            known = [None if self._silent[each] else value for each in order[unknown:]]
            return Series(times, [*[None] * unknown, *known])
        ring = self._rings.get((kind, name))
        if ring is None:
            return Series(times, [None] * len(times))
        return Series(times, [None if math.isnan(ring[each]) else ring[each] for each in order])
