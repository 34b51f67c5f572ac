"""The one way we measure: rivals take turns in one run, and the result is a ratio between them.

Covers timing, medians, spread, goals and the table. Does not cover what is measured: that is a module beside this one,
with a function `run(quick)` that `python -m benchmarks` finds:

    from benchmarks.measure import Goal, Result, interleaved

    def run(quick: bool = False) -> list[Result]:
        data = make_batches(10_000)  # prepared once, outside the timing

        def ours() -> float:
            return decode(data).count  # the amount of work done, here records

        def rival() -> float:
            return sum(1 for _ in rival_parser(data))

        return [
            interleaved(
                {"ottla": ours, "rival": rival},
                title="decode, 100-byte values",
                unit="records",
                baseline="rival",
                goals=[Goal(rival="ottla", at_least=3.5)],
                quick=quick,
            )
        ]

    if __name__ == "__main__":
        report(run())

A rival returns how many units it did, or None for one; its rate is units per second, and more is better. A call should
take some ten milliseconds at least, so that the clock and the first touch of memory do not count. Work that must be
repeated before each call, but not be timed, goes to `before`.

Why turns: on a shared machine the speed drifts by a third within a minute. Each round runs every rival once, the order
rotates from round to round, and a ratio is taken within its round; the drift then hits both sides alike.
"""

import gc
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

Rival = Callable[[], float | None]

ROUNDS: Final = 7
ROUNDS_QUICK: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """A ratio that a rival should reach against another one: the baseline, unless `against` names it."""

    rival: str
    at_least: float
    against: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One rival's rates, and its ratios against the baseline: the median over the rounds, the least and the most."""

    rival: str
    rate: float
    rate_min: float
    rate_max: float
    ratio: float
    ratio_min: float
    ratio_max: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What became of a goal."""

    rival: str
    against: str
    at_least: float
    ratio: float
    met: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One comparison, measured."""

    title: str
    unit: str
    baseline: str
    rounds: int
    rows: tuple[Row, ...]
    verdicts: tuple[Verdict, ...]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def table(self) -> str:
        """For people: one line per rival, then one per goal."""
        width = max(len(row.rival) for row in self.rows)
        lines = [
            f"{self.title}  ({self.unit}/s, median of {self.rounds} rounds, least..most)",
            *(_row_line(row, self.baseline, width) for row in self.rows),
            *(_verdict_line(verdict) for verdict in self.verdicts),
        ]
        return "\n".join(lines)


def interleaved(
    rivals: Mapping[str, Rival],
    *,
    title: str,
    baseline: str,
    unit: str = "calls",
    goals: Sequence[Goal] = (),
    before: Mapping[str, Callable[[], object]] | None = None,
    rounds: int = ROUNDS,
    quick: bool = False,
    clock: Callable[[], float] = time.perf_counter,
) -> Result:
    """Runs the rivals in turn, after one round that is not counted, and compares them.

    `quick` makes it three rounds at most: enough to see that a benchmark works, not to believe its numbers. A goal or a
    baseline that names no rival raises `ValueError` before anything runs.
    """
    _check_names(rivals, baseline, goals, before or {})
    counted = min(rounds, ROUNDS_QUICK) if quick else rounds
    if counted < 1:
        raise ValueError(f"{title}: {rounds} rounds measure nothing; ask for one at least")
    rates: dict[str, list[float]] = {name: [] for name in rivals}
    for number in range(-1, counted):
        _progress(f"{title}: {'warming up' if number < 0 else f'round {number + 1} of {counted}'}")
        for name in _rotated(list(rivals), number):
            prepare = (before or {}).get(name)
            if prepare is not None:
                prepare()
            rate = _timed(name, rivals[name], clock)
            if number >= 0:
                rates[name].append(rate)
    return Result(
        title=title,
        unit=unit,
        baseline=baseline,
        rounds=counted,
        rows=tuple(_row(name, rates[name], rates[baseline]) for name in rivals),
        verdicts=tuple(_verdict(goal, rates, baseline) for goal in goals),
    )


def report(results: Sequence[Result]) -> None:
    """Prints the tables; what a benchmark module does when it is run by itself."""
    print("\n\n".join(result.table() for result in results), flush=True)


def _check_names(
    rivals: Mapping[str, Rival], baseline: str, goals: Sequence[Goal], before: Mapping[str, Callable[[], object]]
) -> None:
    """A misspelt name must not cost a whole run."""
    named = [baseline, *before, *(goal.rival for goal in goals), *(goal.against or baseline for goal in goals)]
    unknown = sorted(set(named) - set(rivals))
    if unknown:
        raise ValueError(f"no such rival: {', '.join(unknown)}; there are {', '.join(rivals)}")


def _rotated(names: list[str], number: int) -> list[str]:
    """Each round starts with another rival, so that none always runs in the wake of the same one."""
    start = number % len(names)
    return names[start:] + names[:start]


def _timed(name: str, rival: Rival, clock: Callable[[], float]) -> float:
    """Units per second of one call. Garbage of the call before is collected first: it is not this rival's."""
    gc.collect()
    start = clock()
    units = rival()
    seconds = clock() - start
    if seconds <= 0:
        raise ValueError(f"{name} took no time that the clock can see; give it more work per call")
    return (1.0 if units is None else units) / seconds


def _paired_ratios(rates: Sequence[float], against: Sequence[float]) -> list[float]:
    if 0.0 in against:
        raise ValueError("a rival that did no work cannot be compared against; let it return the units it did")
    return [mine / theirs for mine, theirs in zip(rates, against, strict=True)]


def _row(rival: str, rates: Sequence[float], against: Sequence[float]) -> Row:
    ratios = _paired_ratios(rates, against)
    return Row(
        rival=rival,
        rate=statistics.median(rates),
        rate_min=min(rates),
        rate_max=max(rates),
        ratio=statistics.median(ratios),
        ratio_min=min(ratios),
        ratio_max=max(ratios),
    )


def _verdict(goal: Goal, rates: Mapping[str, Sequence[float]], baseline: str) -> Verdict:
    against = goal.against or baseline
    ratio = statistics.median(_paired_ratios(rates[goal.rival], rates[against]))
    return Verdict(
        rival=goal.rival, against=against, at_least=goal.at_least, ratio=ratio, met=bool(ratio >= goal.at_least)
    )


def _row_line(row: Row, baseline: str, width: int) -> str:
    rates = f"{_short(row.rate):>8}  {_short(row.rate_min):>8} .. {_short(row.rate_max):<8}"
    if row.rival == baseline:
        return f"  {row.rival:<{width}}  {rates}  baseline"
    return f"  {row.rival:<{width}}  {rates}  {row.ratio:.2f} x  ({row.ratio_min:.2f} .. {row.ratio_max:.2f})"


def _verdict_line(verdict: Verdict) -> str:
    outcome = "met" if verdict.met else "missed"
    return f"  goal {outcome}: {verdict.rival} {verdict.ratio:.2f} x {verdict.against}, wanted {verdict.at_least:g} x"


def _short(number: float) -> str:
    """Three digits that a person can compare: 17.6 M, 934 k, 1.2."""
    for divisor, letter in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if number >= divisor:
            return f"{number / divisor:.3g}{letter}"
    return f"{number:.3g}"


def _progress(line: str) -> None:
    print(f"  .. {line}", file=sys.stderr, flush=True)
