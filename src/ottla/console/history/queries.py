"""The one query of each kind of series (see `ottla.console.cluster.sampler`) in Prometheus's language. Pure.

A page chooses a kind of this table and a name; the name is a quoted label value, or a broker's number. Nothing else of
a request becomes part of a query. Kinds that Prometheus does not know are not here: Ottla's brokers do not count the
records that consumers read.
"""

import re
from collections.abc import Sequence
from typing import Final

from ottla.model.errors import MisuseError

_RATE_SECONDS: Final = (60, 240)
"""Rates are over the first span, or over the second where Prometheus scrapes too seldom for the first."""
_NAME_CHARACTERS_MAX: Final = 1000
_LABEL_NAME: Final = re.compile("[a-zA-Z_][a-zA-Z0-9_]*")
_BROKER: Final = re.compile("[0-9]{1,10}")

_GAUGES: Final = {
    "cluster.size": ("ottla_log_bytes", ""),
    "topic.size": ("ottla_topic_log_bytes", "topic"),
    "group.lag": ("ottla_consumer_group_lag", "group"),
    "broker.size": ("ottla_log_bytes", "broker"),
}
"""The metric that is summed, and the label that has the name of the series."""
_COUNTERS: Final = {
    "cluster.in": ("ottla_appended_records_total", ""),
    "topic.in": ("ottla_topic_appended_records_total", "topic"),
    "broker.requests": ("ottla_requests_total", "broker"),
    "broker.received": ("ottla_received_bytes_total", "broker"),
    "broker.sent": ("ottla_sent_bytes_total", "broker"),
}
"""The same for counters, whose rates are summed."""
_PRODUCE: Final = 'api="produce"'


class Queries:
    """The queries for one cluster: `labels` are what its brokers have in Prometheus, such as (("job", "main"),)."""

    def __init__(self, labels: Sequence[tuple[str, str]] = ()) -> None:
        self._own = [f"{name}={quoted(value)}" for name, value in labels]

    def query_of(self, kind: str, name: str, step: int) -> str | None:
        """The query of a series, with rates over at least `step` seconds; None if Prometheus does not have it."""
        if len(name) > _NAME_CHARACTERS_MAX or (kind.startswith("broker.") and not _BROKER.fullmatch(name)):
            return None
        if kind in _GAUGES:
            metric, label = _GAUGES[kind]
            return f"sum({self._gauge(metric, label, name)})"
        if kind in _COUNTERS:
            metric, label = _COUNTERS[kind]
            return f"sum({self._rate(metric, label, name, step)})"
        if kind == "broker.produce_mean":
            spent, count = (
                self._rate(f"ottla_request_seconds_{each}", "broker", name, step, _PRODUCE) for each in ("sum", "count")
            )
            return f"1000 * sum({spent}) / (sum({count}) > 0)"
        if kind == "broker.produce_p99":
            buckets = self._rate("ottla_request_seconds_bucket", "broker", name, step, _PRODUCE)
            return f"1000 * histogram_quantile(0.99, sum by (le) ({buckets}))"
        return None

    def _gauge(self, metric: str, label: str, name: str) -> str:
        if label == "broker":
            return f"{self._selector(metric)}{self._of_broker(name)}"
        return self._selector(metric, *([f"{label}={quoted(name)}"] if label else []))

    def _rate(self, metric: str, label: str, name: str, step: int, *more: str) -> str:
        is_broker = label == "broker"
        selector = self._selector(metric, *more, *([f"{label}={quoted(name)}"] if label and not is_broker else []))
        rates = " or ".join(f"rate({selector}[{max(each, step)}s])" for each in _RATE_SECONDS)
        return f"({rates}){self._of_broker(name)}" if is_broker else rates

    def _of_broker(self, broker: str) -> str:
        """Only the series of one broker: which target of Prometheus that is, its build info says."""
        info = self._selector("ottla_build_info", f"broker={quoted(broker)}")
        return f" * on (job, instance) group_left () max by (job, instance) ({info})"

    def _selector(self, metric: str, *matchers: str) -> str:
        every = ", ".join([*self._own, *matchers])
        return f"{metric}{{{every}}}" if every else metric


def quoted(value: str) -> str:
    """A label value as a string of Prometheus's language."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def parse_labels(given: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Labels from `NAME=VALUE`. Raises `MisuseError`."""
    labels = []
    for each in given:
        name, equals, value = each.partition("=")
        if not equals or not _LABEL_NAME.fullmatch(name):
            raise MisuseError(f"--prometheus-label {each}: write it as NAME=VALUE, such as job=ottla")
        labels.append((name, value))
    return tuple(labels)
