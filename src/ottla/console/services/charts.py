"""Charts: the console's own samples, and before them what Prometheus knows.

A series is sampled by the console since some time; before that, its values are Prometheus's. Every chart says since
when it has values and where they are from. While Prometheus does not answer, a chart has the samples only, and says so.
"""

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from ottla.console.cluster.access import Access
from ottla.console.cluster.samples import Series
from ottla.console.history.prometheus import Past
from ottla.console.history.ranges import TimeRange
from ottla.console.settings import AuthMode
from ottla.console.web.human import time_text
from ottla.model.errors import DeniedError

_FINE_STEP: Final = 15
"""Up to this step, samples are drawn as they were taken; in longer ranges, their means."""


class WantedSeries(NamedTuple):
    """One line of a chart."""

    label: str
    kind: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """What is drawn."""

    times: Sequence[float]
    """In seconds since 1970."""
    series: Mapping[str, Sequence[float | None]]
    """Values at the times, by label; None is a gap."""
    note: str
    """Since when it has values, and where they are from."""
    is_waiting: bool = False
    """Whether Prometheus's answer is still under way."""


async def read_chart(access: Access, wanted: Sequence[WantedSeries], asked: TimeRange) -> Chart:
    """The series in a range of times. Raises `DeniedError` for topics and groups that the user may not describe."""
    await _check_rights(access, wanted)
    sampled = {each.label: access.sampler.series(each.kind, each.name) for each in wanted}
    server = access.prometheus
    if server is None:
        times = next((each.times for each in sampled.values()), [])
        series = {label: each.values for label, each in sampled.items()}
        return Chart(times=times, series=series, note=_since(times, series, "sampled by this console"))
    own = {label: _within(each, asked) for label, each in sampled.items()}
    missing = [each for each in wanted if _first(own[each.label]) > asked.start + asked.step]
    found = await asyncio.gather(*(server.past(each.kind, each.name, asked) for each in missing))
    pasts = {each.label: past for each, past in zip(missing, found, strict=True)}
    return _joined(own, pasts, asked, [each.label for each in missing if not server.has(each.kind, each.name)])


async def _check_rights(access: Access, wanted: Sequence[WantedSeries]) -> None:
    """With a login, charts are shown of topics and groups that the user may describe. Raises `DeniedError`."""
    if access.settings.auth is AuthMode.NONE:
        return
    for _, kind, name in wanted:
        match kind.partition(".")[0]:
            case "topic":
                await access.admin().describe_topics([name])
            case "group" if name not in {each.group_id for each in await access.admin().list_groups()}:
                raise DeniedError(f"you may not describe the group {name}")


def _within(series: Series, asked: TimeRange) -> Series:
    """The samples of a range; in a long one, the mean of each step."""
    kept = [(at, value) for at, value in zip(*series, strict=True) if asked.start <= at <= asked.end + asked.step]
    if asked.step > _FINE_STEP:
        steps: dict[int, list[float]] = {}
        for at, value in kept:
            known = steps.setdefault(math.floor(at / asked.step) * asked.step, [])
            if value is not None:
                known.append(value)
        means = [(float(at), sum(some) / len(some) if some else None) for at, some in steps.items()]
        return Series([at for at, _ in means], [value for _, value in means])
    return Series([at for at, _ in kept], [value for _, value in kept])


def _first(series: Series) -> float:
    """The first time with a value."""
    return next((at for at, value in zip(*series, strict=True) if value is not None), math.inf)


def _joined(own: Mapping[str, Series], pasts: Mapping[str, Past], asked: TimeRange, unknown: Sequence[str]) -> Chart:
    """The samples, and before the first one of each series what Prometheus knows of it."""
    begun = min(map(_first, own.values()), default=math.inf)
    sampled = next((each.times for each in own.values()), [])
    pasts = {label: _before(each, _first(own[label])) for label, each in pasts.items()}
    past_end = max((past.end for past in pasts.values() if past.values), default=-math.inf)
    before = [float(at) for at in asked.times if at < begun and at <= past_end]
    times = before + [at for at in sampled if at >= begun]
    series: dict[str, list[float | None]] = {}
    for label, each in own.items():
        first, known = _first(each), dict(zip(*each, strict=True))
        past = pasts[label].values if label in pasts else {}
        series[label] = [
            known.get(at) if at >= first else past.get(math.floor(at / asked.step) * asked.step) for at in times
        ]
    return Chart(
        times=times,
        series=series,
        note=_note(times, series, own, pasts, unknown),
        is_waiting=any(each.is_waiting for each in pasts.values()),
    )


def _before(past: Past, first: float) -> Past:
    """What is older than the first sample."""
    return replace(past, values={at: value for at, value in past.values.items() if at < first})


def _note(
    times: Sequence[float],
    series: Mapping[str, Sequence[float | None]],
    own: Mapping[str, Series],
    pasts: Mapping[str, Past],
    unknown: Sequence[str],
) -> str:
    begun = min(map(_first, own.values()), default=math.inf)
    sampled = "sampled by this console"
    if any(each.values for each in pasts.values()):
        source = "from Prometheus" if math.isinf(begun) else f"from Prometheus, {sampled} since {_time(begun)}"
        parts = [_since(times, series, source)]
        parts += [f"{each}: {sampled} only, Prometheus does not have it" for each in unknown if each in series]
        return "; ".join(parts)
    problem = next((each.problem for each in pasts.values() if each.problem), "")
    if not problem and any(each.is_waiting for each in pasts.values()):
        problem = "waiting for Prometheus"
    elif not problem and pasts:
        problem = "Prometheus has nothing older"
    return "; ".join(each for each in (_since(times, series, sampled), problem) if each)


def _since(times: Sequence[float], series: Mapping[str, Sequence[float | None]], source: str) -> str:
    known = (
        at for at, *values in zip(times, *series.values(), strict=True) if any(each is not None for each in values)
    )
    first = next(known, None)
    return "" if first is None else f"since {_time(first)}, {source}"


def _time(seconds: float) -> str:
    return time_text(int(seconds * 1000))
