"""Samples in, ratios and tables out. Pure: knows nothing of brokers or loads.

A ratio says how many times better Ottla is: its rate by Kafka's where more is better, Kafka's figure by its own where
less is. Ratios are taken within a round, and the median of them is what a goal is held against.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

KAFKA: Final = "kafka"
OTTLA: Final = "ottla"
CLIENT_BUSY_CORES: Final = 0.85
"""From here on a client with one working thread is taken to be the limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One figure that both rivals get in every round."""

    case: str
    quantity: str
    more_is_better: bool
    goal: float | None = None

    @property
    def title(self) -> str:
        """For tables."""
        return f"{self.case}, {self.quantity}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What one rival reached in one round. `client_cores` is what the client used meanwhile, if that can limit it."""

    value: float
    client_cores: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One measure over all rounds."""

    measure: Measure
    rounds: int
    kafka: float
    ottla: float
    ratio: float
    ratio_min: float
    ratio_max: float
    client_bound: bool
    """The client was the limit for Ottla: the ratio then says little about the broker, and no goal is judged."""

    @property
    def verdict(self) -> str:
        """`met`, `missed`, `client` where the client is the limit, or nothing where there is no goal."""
        if self.measure.goal is None:
            return ""
        if self.ratio >= self.measure.goal:
            return "met"
        return "client" if self.client_bound else "missed"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "verdict": self.verdict}


def better_by(measure: Measure, *, kafka: float, ottla: float) -> float:
    """How many times better Ottla is; a figure of nothing cannot be compared and raises `ValueError`."""
    above, below = (ottla, kafka) if measure.more_is_better else (kafka, ottla)
    if below <= 0:
        raise ValueError(f"{measure.title}: a figure of {below} cannot be compared against")
    return above / below


def score(measure: Measure, samples: Mapping[str, Sequence[Sample]]) -> Line:
    """Samples of both rivals, one of each per round and in the same order."""
    pairs = list(zip(samples[KAFKA], samples[OTTLA], strict=True))
    ratios = [better_by(measure, kafka=kafka.value, ottla=ottla.value) for kafka, ottla in pairs]
    return Line(
        measure=measure,
        rounds=len(pairs),
        kafka=statistics.median(kafka.value for kafka, _ in pairs),
        ottla=statistics.median(ottla.value for _, ottla in pairs),
        ratio=statistics.median(ratios),
        ratio_min=min(ratios),
        ratio_max=max(ratios),
        client_bound=statistics.median(ottla.client_cores for _, ottla in pairs) >= CLIENT_BUSY_CORES,
    )


def table(lines: Sequence[Line]) -> str:
    """For a terminal."""
    width = max((len(line.measure.title) for line in lines), default=0)
    rows = [f"{'':<{width}}  {'Kafka':>9}  {'Ottla':>9}  {'better by':>9}  {'least..most':<15}  goal"]
    for line in lines:
        spread = f"{line.ratio_min:.2f}..{line.ratio_max:.2f}"
        figures = f"{_short(line.kafka):>9}  {_short(line.ottla):>9}  {f'{line.ratio:.2f} x':>9}  {spread:<15}"
        rows.append(f"{line.measure.title:<{width}}  {figures}  {_goal_words(line)}".rstrip())
    return "\n".join(rows)


def markdown(lines: Sequence[Line]) -> str:
    """For a document."""
    rows = ["| measure | Kafka | Ottla | Ottla is better by | least .. most | goal |", "|---|---:|---:|---:|---|---|"]
    rows += [
        f"| {line.measure.title} | {_short(line.kafka)} | {_short(line.ottla)} | **{line.ratio:.2f} ×** "
        f"| {line.ratio_min:.2f} .. {line.ratio_max:.2f} | {_goal_words(line)} |"
        for line in lines
    ]
    return "\n".join(rows)


def _goal_words(line: Line) -> str:
    if line.measure.goal is None:
        return "(the client is the limit)" if line.client_bound else ""
    wanted = f"{line.measure.goal:g} x"
    outcomes = {"met": f"{wanted} met", "missed": f"{wanted} missed", "client": f"{wanted}; the client is the limit"}
    return outcomes[line.verdict]


def _short(number: float) -> str:
    """Three digits that a person can compare."""
    for divisor, letter in ((1e6, " M"), (1e3, " k")):
        if number >= divisor * 0.9995:
            return f"{number / divisor:.3g}{letter}"
    return f"{number:.3g}"
