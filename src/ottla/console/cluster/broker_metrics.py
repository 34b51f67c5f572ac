"""The `/metrics` of Ottla's brokers, if the console knows their URLs: version, uptime, connections, requests by API.

Kafka's protocol does not tell these. A broker whose metrics cannot be read is left out; the page says so.
"""

import asyncio
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

_TIMEOUT_SECONDS: Final = 3.0
_BYTES_MAX: Final = 32 * 1024 * 1024
_LINE: Final = re.compile(rb"^(ottla_[a-z_]+)(?:\{([^}]*)\})? ([^ \n]+)$", re.MULTILINE)
_LABEL: Final = re.compile(rb'([a-z_]+)="((?:[^"\\]|\\.)*)"')
_WANTED: Final = frozenset(
    {
        b"ottla_build_info",
        b"ottla_uptime_seconds",
        b"ottla_connections",
        b"ottla_received_bytes_total",
        b"ottla_sent_bytes_total",
        b"ottla_requests_total",
        b"ottla_request_seconds_bucket",
        b"ottla_request_seconds_sum",
        b"ottla_request_seconds_count",
        b"ottla_loop_lag_last_seconds",
    }
)

if TYPE_CHECKING:
    import httpx


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiCounts:
    """How often an API was requested, how long that took in all, and how often at most how long."""

    count: float = 0.0
    seconds: float = 0.0
    buckets: tuple[tuple[float, float], ...] = ()
    """Pairs of a bound in seconds, and the number of requests below it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scrape:
    """What one scrape said."""

    broker: int
    version: str
    uptime_seconds: float | None
    connections: float | None
    received_bytes: float
    sent_bytes: float
    loop_lag_seconds: float | None
    apis: Mapping[str, ApiCounts] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRate:
    """An API between two scrapes. Latencies are None if there was no request."""

    api: str
    per_second: float
    mean_ms: float | None
    p99_ms: float | None
    """The bound of the histogram's bucket that holds the 99th percentile: at most this long."""
    p99_estimate_ms: float | None = None
    """The 99th percentile, if requests are spread evenly over that bucket: as histogram_quantile of Prometheus says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerMetrics:
    """A broker between two scrapes."""

    version: str
    uptime_seconds: float | None
    connections: int | None
    loop_lag_seconds: float | None
    received_per_second: float | None
    sent_per_second: float | None
    apis: tuple[ApiRate, ...]


def parse_scrape(text: bytes) -> Scrape | None:
    """What a broker of Ottla says; None if this is something else."""
    numbers: dict[str, float] = {}
    info: dict[str, str] = {}
    counts: dict[str, float] = defaultdict(float)
    seconds: dict[str, float] = defaultdict(float)
    buckets: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for name, labels, value in _lines(text):
        match name:
            case "ottla_build_info":
                info = labels
            case "ottla_request_seconds_sum":
                seconds[labels.get("api", "")] += value
            case "ottla_request_seconds_count":
                counts[labels.get("api", "")] += value
            case "ottla_request_seconds_bucket":
                bound = _float(labels.get("le", ""))
                if bound is not None:
                    buckets[labels.get("api", "")].append((bound, value))
            case _:
                numbers[name] = numbers.get(name, 0.0) + value
    if not re.fullmatch("[0-9]{1,10}", info.get("broker", "")):
        return None
    return Scrape(
        broker=int(info["broker"]),
        version=info.get("version", ""),
        uptime_seconds=numbers.get("ottla_uptime_seconds"),
        connections=numbers.get("ottla_connections"),
        received_bytes=numbers.get("ottla_received_bytes_total", 0.0),
        sent_bytes=numbers.get("ottla_sent_bytes_total", 0.0),
        loop_lag_seconds=numbers.get("ottla_loop_lag_last_seconds"),
        apis={
            api: ApiCounts(count=counts[api], seconds=seconds[api], buckets=tuple(sorted(buckets[api])))
            for api in counts
        },
    )


def _lines(text: bytes) -> Iterator[tuple[str, dict[str, str], float]]:
    for found in _LINE.finditer(text):
        if found[1] in _WANTED:
            labels = {name.decode(): value.decode(errors="replace") for name, value in _LABEL.findall(found[2] or b"")}
            value = _float(found[3].decode(errors="replace"))
            if value is not None and math.isfinite(value):
                yield found[1].decode(), labels, value


def _float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def rates_between(before: Scrape | None, now: Scrape, seconds: float) -> BrokerMetrics:
    """Rates and latencies between two scrapes of a broker; without rates if it was restarted between them."""
    is_same = before is not None and seconds > 0 and (now.uptime_seconds or 0) >= (before.uptime_seconds or 0)
    apis: list[ApiRate] = []
    if before is not None and is_same:
        for api, counts in now.apis.items():
            earlier = before.apis.get(api, ApiCounts())
            count = counts.count - earlier.count
            if count > 0:
                p99_ms, p99_estimate_ms = _p99_ms(earlier, counts, count)
                apis.append(
                    ApiRate(
                        api=api,
                        per_second=count / seconds,
                        mean_ms=(counts.seconds - earlier.seconds) / count * 1000,
                        p99_ms=p99_ms,
                        p99_estimate_ms=p99_estimate_ms,
                    )
                )
    return BrokerMetrics(
        version=now.version,
        uptime_seconds=now.uptime_seconds,
        connections=None if now.connections is None else int(now.connections),
        loop_lag_seconds=now.loop_lag_seconds,
        received_per_second=(now.received_bytes - before.received_bytes) / seconds if before and is_same else None,
        sent_per_second=(now.sent_bytes - before.sent_bytes) / seconds if before and is_same else None,
        apis=tuple(sorted(apis, key=lambda each: -each.per_second)),
    )


def _p99_ms(before: ApiCounts, now: ApiCounts, count: float) -> tuple[float | None, float | None]:
    """The bound of the bucket with the 99th percentile, and the percentile within it."""
    earlier = dict(before.buckets)
    below, below_count = 0.0, 0.0
    for bound, total in now.buckets:
        number = total - earlier.get(bound, 0.0)
        if number >= count * 0.99:
            if math.isinf(bound):
                return None, below * 1000
            share = (count * 0.99 - below_count) / (number - below_count)
            return bound * 1000, (below + (bound - below) * share) * 1000
        below, below_count = bound, number
    return None, None


async def scrape_all(urls: Sequence[str], client: "httpx.AsyncClient") -> dict[int, Scrape]:
    """The scrapes of all URLs that answer, by broker."""
    answers = await asyncio.gather(*(_scrape(each, client) for each in urls))
    return {each.broker: each for each in answers if each is not None}


async def _scrape(url: str, client: "httpx.AsyncClient") -> Scrape | None:
    import httpx

    try:
        response = await client.get(url, timeout=_TIMEOUT_SECONDS)
    except (httpx.HTTPError, httpx.InvalidURL):
        return None
    if response.status_code != 200 or len(response.content) > _BYTES_MAX:
        return None
    return await asyncio.to_thread(parse_scrape, response.content)
