"""Client telemetry as Prometheus metrics: what clients have pushed, and what became of their pushes."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.broker.telemetry.client_telemetry import ClientTelemetry

if TYPE_CHECKING:
    from prometheus_client.core import Metric


def collect_telemetry(telemetry: ClientTelemetry) -> "Iterator[Metric]":
    """Every family of client telemetry. Names that clients choose have a prefix of their own."""
    from prometheus_client.core import CounterMetricFamily as Counter
    from prometheus_client.core import GaugeMetricFamily as Gauge
    from prometheus_client.core import Metric

    telemetry.expire()
    state, series = telemetry.state, telemetry.series
    yield Gauge("ottla_telemetry_clients", "Clients that take part in telemetry.", value=len(state))
    yield Gauge("ottla_telemetry_series", "Series that clients have pushed.", value=len(series))
    pushes = Counter("ottla_telemetry_pushes", "Pushes of clients, by error.", labels=["error"])
    for error, count in sorted(telemetry.pushes.items()):
        pushes.add_metric([error.name], count)
    yield pushes
    dropped = Counter("ottla_telemetry_dropped", "Pushed metrics that were dropped.", labels=["reason"])
    for reason, count in sorted(series.dropped.items()):
        dropped.add_metric([reason], count)
    yield dropped
    yield Counter("ottla_telemetry_throttled", "Requests refused because they came too early.", value=state.throttled)
    known = Metric("ottla_telemetry_client_info", "1 for each client that has series; the labels describe it.", "gauge")
    for labels in series.clients():
        known.add_sample(known.name, dict(labels), 1)
    yield known
    for name, is_counter, samples in series.families():
        family = Metric(
            name.removesuffix("_total") if is_counter else name,
            "Pushed by clients.",
            "counter" if is_counter else "gauge",
        )
        for labels, value in samples:
            family.add_sample(name, dict(labels), value)
        yield family
