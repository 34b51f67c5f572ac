"""Metrics of a registry instance, for Prometheus.

Requests only count in plain dictionaries; everything else is read when Prometheus asks.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from ottla.registry.service.registry import Registry
from ottla.registry.state.qualified_subjects import ALL_CONTEXTS

_BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics(Collector):
    """Counts requests by method, route and status, with their durations."""

    content_type: Final = "text/plain; version=0.0.4; charset=utf-8"

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._requests: dict[tuple[str, str, int], int] = defaultdict(int)
        self._durations: dict[tuple[str, str], list[int]] = {}
        self._seconds: dict[tuple[str, str], float] = defaultdict(float)
        self.forwarded = 0
        self.cached = 0
        self._collectors = CollectorRegistry(auto_describe=False)
        self._collectors.register(self)

    def on_answer(self, method: str, route: str, status: int, seconds: float) -> None:
        """A request was answered."""
        self._requests[method, route, status] += 1
        counts = self._durations.get((method, route))
        if counts is None:
            counts = self._durations[method, route] = [0] * (len(_BUCKETS) + 1)
        place = 0
        while place < len(_BUCKETS) and seconds > _BUCKETS[place]:
            place += 1
        counts[place] += 1
        self._seconds[method, route] += seconds

    def text(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self._collectors)

    def collect(self) -> Iterator[Metric]:
        """The metrics at this moment."""
        registry = self._registry
        requests = CounterMetricFamily(
            "ottla_registry_requests", "Requests answered.", labels=["method", "route", "status"]
        )
        for (method, route, status), count in self._requests.items():
            requests.add_metric([method, route, str(status)], count)
        yield requests
        durations = HistogramMetricFamily(
            "ottla_registry_request_seconds", "Time to answer a request.", labels=["method", "route"]
        )
        for key, counts in self._durations.items():
            total, buckets = 0, []
            for bound, count in zip((*map(str, _BUCKETS), "+Inf"), counts, strict=True):
                total += count
                buckets.append((bound, total))
            durations.add_metric(list(key), buckets, self._seconds[key])
        yield durations
        counters = {
            "requests_cached": ("Look-ups answered from the cache.", self.cached),
            "requests_forwarded": ("Writes forwarded to the leader.", self.forwarded),
            "records_refused": ("Records of the topic that contradict earlier ones.", registry.refused_records),
            "records_written": ("Records written as leader.", registry.written.records),
            "transactions": ("Transactions committed as leader.", registry.written.transactions),
        }
        for name, (words, value) in counters.items():
            yield CounterMetricFamily(f"ottla_registry_{name}", words, value=value)
        leadership = registry.leadership
        gauges = {
            "leader": ("1 if this instance leads.", int(leadership is not None)),
            "leader_known": ("1 if this instance leads or knows the leader.", int(registry.leader is not None)),
            "topic_lost": ("1 if the topic is lost and writes are refused.", int(registry.problem is not None)),
            "applied_offset": ("Records of the topic below this offset are applied.", registry.applied),
            "subjects": ("Subjects, soft-deleted ones too.", len(registry.image.subjects_with_prefix(ALL_CONTEXTS))),
        }
        for name, (words, value) in gauges.items():
            yield GaugeMetricFamily(f"ottla_registry_{name}", words, value=value)
