"""Samples of the last 60 minutes: one ring per series, all with the same times. Pure; the sampler fills it.

A series has a kind and a name, such as ("topic.in", "orders"). A value that is missing at a time is a gap (NaN).
"""

import math
from array import array
from collections.abc import Mapping
from typing import Final, NamedTuple

SeriesKey = tuple[str, str]
_GAP: Final = math.nan


class Series(NamedTuple):
    """Times in seconds since the epoch, and values; None is a gap."""

    times: list[float]
    values: list[float | None]


class Samples:
    """At most `count_max` times of at most `series_max` series; a new series beyond that is left out."""

    def __init__(self, count_max: int = 720, series_max: int = 6000) -> None:
        self._count_max = count_max
        self._series_max = series_max
        self._times = array("d")
        self._first = 0
        self._rings: dict[SeriesKey, array[float]] = {}
        self._seen_at: dict[SeriesKey, float] = {}
        self.left_out = 0
        """Series that were not kept at the last time, because there were too many."""

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
            for ring in self._rings.values():
                ring.append(_GAP)
        else:
            place = self._first
            self._times[place] = at
            self._first = (place + 1) % self._count_max
            for ring in self._rings.values():
                ring[place] = _GAP
        self.left_out = 0
        for key, value in values.items():
            found = self._rings.get(key)
            if found is None:
                if len(self._rings) >= self._series_max:
                    self.left_out += 1
                    continue
                found = self._rings[key] = array("d", [_GAP]) * len(self._times)
            found[place] = value
            self._seen_at[key] = at
        self._forget_silent()

    def _forget_silent(self) -> None:
        oldest = self._times[self._first]
        for key in [key for key, seen in self._seen_at.items() if seen < oldest]:
            del self._rings[key], self._seen_at[key]

    def latest(self, kind: str, name: str) -> float | None:
        """The value at the last time; None if there is none."""
        ring = self._rings.get((kind, name))
        if ring is None or not self._times:
            return None
        value = ring[self._first - 1 if self._first else len(self._times) - 1]
        return None if math.isnan(value) else value

    def names(self, kind: str) -> list[str]:
        """The names of all series of a kind."""
        return [name for each, name in self._rings if each == kind]

    def series(self, kind: str, name: str) -> Series:
        """The whole series, oldest first; without values if it does not exist."""
        order = [*range(self._first, len(self._times)), *range(self._first)]
        times = [self._times[each] for each in order]
        ring = self._rings.get((kind, name))
        if ring is None:
            return Series(times, [None] * len(times))
        return Series(times, [None if math.isnan(ring[each]) else ring[each] for each in order])
