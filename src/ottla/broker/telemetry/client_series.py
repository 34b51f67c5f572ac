"""The newest values that clients have pushed, as series with Prometheus's names. Pure: takes the time, in ms.

Names and labels come from clients, so everything is bounded: series of one client and of all, labels of a series, and
the length of texts. What is beyond is dropped and counted. A client's series are removed when it has been silent for
three push intervals, its gauges also when it no longer pushes them.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from uuid import UUID

from ottla.broker.telemetry.otlp import Attributes, PushedMetric
from ottla.broker.telemetry.subscriptions import TelemetryClient
from ottla.broker.telemetry.telemetry_state import expiry_ms
from ottla.model.base64_ids import id_text

SERIES_MAX: Final = 5_000
"""Series of all clients together."""
SERIES_PER_CLIENT_MAX: Final = 1_000
CLIENTS_MAX: Final = 1_000
"""Clients that have series."""
_LABELS_MAX: Final = 16
_NAME_CHARACTERS_MAX: Final = 200
_VALUE_CHARACTERS_MAX: Final = 200

_PREFIX: Final = "ottla_client_telemetry_"
_KAFKA_PREFIX: Final = "org.apache.kafka."
_NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9_]+")
_TOTAL: Final = "_total"

Labels = tuple[tuple[str, str], ...]


class Series(NamedTuple):
    """One sample to show."""

    labels: Labels
    value: float


@dataclass(slots=True)
class _Value:
    """One series: its value and the push that it was last in."""

    value: float
    push: int


@dataclass(slots=True)
class _Client:
    """What one client has pushed."""

    labels: Labels
    software: Labels
    resource: Labels = ()
    expires_ms: float = 0.0
    pushes: int = 0
    values: dict[tuple[str, Labels], _Value] = field(default_factory=dict)
    """By the exposed name and the labels of the data point."""


class ClientSeries:
    """The series of the clients of one broker."""

    def __init__(self) -> None:
        self.dropped: Counter[str] = Counter()
        """Data points without a series, by reason."""
        self._clients: dict[UUID, _Client] = {}
        self._kinds: dict[str, tuple[bool, int]] = {}
        """Whether a name is a counter, and how many series it has."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def begin(self, client: TelemetryClient, interval_ms: int, now_ms: float) -> bool:
        """A push of this client begins; False if there are too many clients already."""
        self.expire(now_ms)
        found = self._clients.get(client.instance_id)
        if found is None:
            if len(self._clients) >= CLIENTS_MAX:
                self.dropped["clients"] += 1
                return False
            found = self._clients[client.instance_id] = _Client(_client_labels(client), _software_labels(client))
        found.expires_ms = now_ms + expiry_ms(interval_ms)
        found.pushes += 1
        return True

    def add(self, client: TelemetryClient, metric: PushedMetric) -> None:
        """Takes the values of a metric of the push that has begun."""
        found = self._clients.get(client.instance_id)
        if found is None:
            return
        found.resource = _point_labels(metric.resource)
        is_counter = metric.is_sum and metric.is_monotonic
        name = _exposed_name(metric.name, is_counter=is_counter)
        for point in metric.points:
            key = name, _point_labels(point.attributes)
            known = found.values.get(key)
            if known is None and (reason := self._refusal(found, name, is_counter=is_counter)) is not None:
                self.dropped[reason] += 1
                continue
            if known is None:
                known = found.values[key] = _Value(0.0, 0)
                self._count += 1
                self._kinds[name] = is_counter, self._kinds.get(name, (is_counter, 0))[1] + 1
            elif self._kinds[name][0] is not is_counter:
                self.dropped["kind"] += 1
                continue
            known.value = known.value + point.value if metric.is_sum and metric.is_delta else point.value
            known.push = found.pushes

    def end(self, client: TelemetryClient) -> None:
        """The push is complete: gauges that were not in it are gone."""
        found = self._clients.get(client.instance_id)
        if found is None:
            return
        for key in [
            key for key, each in found.values.items() if each.push != found.pushes and not self._kinds[key[0]][0]
        ]:
            del found.values[key]
            self._uncount(key[0])

    def expire(self, now_ms: float) -> None:
        """Removes the series of clients that were silent for too long."""
        for instance_id, client in [each for each in self._clients.items() if each[1].expires_ms <= now_ms]:
            del self._clients[instance_id]
            for name, _ in client.values:
                self._uncount(name)

    def families(self) -> Iterator[tuple[str, bool, list[Series]]]:
        """Exposed name, whether it is a counter, and its series; sorted by name."""
        by_name: dict[str, list[Series]] = {}
        for client in self._clients.values():
            for (name, labels), each in client.values.items():
                by_name.setdefault(name, []).append(Series((*client.labels, *labels), each.value))
        for name in sorted(by_name):
            yield name, self._kinds[name][0], by_name[name]

    def clients(self) -> Iterator[Labels]:
        """Labels that describe each client: its ids, its software, and the attributes of its resource."""
        for client in self._clients.values():
            known = dict((*client.labels, *client.software))
            rest = [each for each in client.resource if each[0] not in known]
            yield (*client.labels, *client.software, *rest)

    def _refusal(self, client: _Client, name: str, *, is_counter: bool) -> str | None:
        if name in self._kinds and self._kinds[name][0] is not is_counter:
            return "kind"
        if len(client.values) >= SERIES_PER_CLIENT_MAX or self._count >= SERIES_MAX:
            return "series"
        return None

    def _uncount(self, name: str) -> None:
        is_counter, count = self._kinds[name]
        self._count -= 1
        if count > 1:
            self._kinds[name] = is_counter, count - 1
        else:
            del self._kinds[name]


def _exposed_name(name: str, *, is_counter: bool) -> str:
    """The name as it is shown: with a prefix that only client metrics have, since clients may choose any name."""
    plain = _NOT_IN_NAMES.sub("_", name.removeprefix(_KAFKA_PREFIX)).strip("_")[:_NAME_CHARACTERS_MAX] or "unnamed"
    shown = _PREFIX + plain
    return shown + _TOTAL if is_counter and not shown.endswith(_TOTAL) else shown


def _client_labels(client: TelemetryClient) -> Labels:
    return (
        ("client_instance_id", id_text(client.instance_id)),
        ("client_id", (client.client_id or "")[:_VALUE_CHARACTERS_MAX]),
    )


def _software_labels(client: TelemetryClient) -> Labels:
    return (
        ("client_software_name", client.software_name[:_VALUE_CHARACTERS_MAX]),
        ("client_software_version", client.software_version[:_VALUE_CHARACTERS_MAX]),
    )


_RESERVED_LABELS: Final = frozenset({"client_instance_id", "client_id"})


def _point_labels(attributes: Attributes) -> Labels:
    """Attributes as labels: with valid and distinct names, sorted."""
    found: dict[str, str] = {}
    for key, value in attributes[:_LABELS_MAX]:
        name = _NOT_IN_NAMES.sub("_", key).strip("_")[:_NAME_CHARACTERS_MAX]
        if not name or name[0].isdigit():
            name = f"key_{name}"
        if name not in _RESERVED_LABELS:
            found[name] = value[:_VALUE_CHARACTERS_MAX]
    return tuple(sorted(found.items()))
