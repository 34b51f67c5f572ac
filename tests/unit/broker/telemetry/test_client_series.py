"""What clients push, as series: names, labels, deltas, and the limits."""

from uuid import UUID

import pytest

from ottla.broker.telemetry import client_series
from ottla.broker.telemetry.client_series import ClientSeries
from ottla.broker.telemetry.otlp import DataPoint, PushedMetric
from ottla.broker.telemetry.subscriptions import TelemetryClient
from ottla.broker.telemetry.telemetry_state import EXPIRY_MS_MIN
from ottla.model.base64_ids import id_text

INTERVAL_MS = 1000
Shown = dict[tuple[str, bool], list[tuple[dict[str, str], float]]]


def client(number: int) -> TelemetryClient:
    return TelemetryClient(UUID(int=number + 10), f"c{number}", "soft", "1.0", "h", "1")


def gauge(name: str, *values: float, **attributes: str) -> PushedMetric:
    points = [DataPoint(tuple(attributes.items()), value) for value in values]
    return PushedMetric(resource=(("group_id", "g"),), name=name, points=points)


def total(name: str, value: float, *, is_delta: bool = True, is_monotonic: bool = True) -> PushedMetric:
    points = [DataPoint((), value)]
    return PushedMetric(
        resource=(), name=name, is_sum=True, is_monotonic=is_monotonic, is_delta=is_delta, points=points
    )


def push(series: ClientSeries, number: int, *metrics: PushedMetric, now_ms: float = 0) -> None:
    if series.begin(client(number), INTERVAL_MS, now_ms):
        for metric in metrics:
            series.add(client(number), metric)
        series.end(client(number))


def shown(series: ClientSeries) -> Shown:
    """Without the labels that every series has, which are checked here."""
    found: Shown = {}
    count = 0
    for name, is_counter, samples in series.families():
        for labels, value in samples:
            count += 1
            rest = dict(labels)
            assert id_text(client(int(rest.pop("client_id")[1:])).instance_id) == rest.pop("client_instance_id")
            found.setdefault((name, is_counter), []).append((rest, value))
    assert count == len(series)
    return found


def test_names_and_labels_are_made_fit_for_prometheus() -> None:
    series = ClientSeries()
    attributes = {"node.id": "7", "1st": "a", "": "b", "client_id": "not me", "__name__": "x"}
    push(series, 0, gauge("org.apache.kafka.producer.record-queue.time", 1.5, **attributes), gauge("..", 2))
    labels = {"node_id": "7", "key_1st": "a", "key_": "b", "name": "x"}
    assert {
        ("ottla_client_telemetry_producer_record_queue_time", False): [(labels, 1.5)],
        ("ottla_client_telemetry_unnamed", False): [({}, 2)],
    } == shown(series)
    (known,) = series.clients()
    assert {
        "client_instance_id": id_text(client(0).instance_id),
        "client_id": "c0",
        "client_software_name": "soft",
        "client_software_version": "1.0",
        "group_id": "g",
    } == dict(known)


def test_deltas_become_totals() -> None:
    series = ClientSeries()
    for value in (3, 4):
        push(
            series,
            0,
            total("sent.total", value),
            total("bytes", value, is_delta=False),
            total("open", -value, is_monotonic=False),
        )
    push(series, 0)
    prefix = "ottla_client_telemetry_"
    counters: Shown = {(prefix + "sent_total", True): [({}, 7)], (prefix + "bytes_total", True): [({}, 4)]}
    assert counters == shown(series)
    push(series, 0, total("open", 1, is_monotonic=False))
    assert counters | {(prefix + "open", False): [({}, 1)]} == shown(series)


def test_gauges_that_are_not_pushed_again_are_gone() -> None:
    series = ClientSeries()
    push(series, 0, gauge("a", 1), gauge("b", 2))
    push(series, 1, gauge("b", 3))
    push(series, 0, gauge("a", 4))
    assert {
        ("ottla_client_telemetry_a", False): [({}, 4)],
        ("ottla_client_telemetry_b", False): [({}, 3)],
    } == shown(series)


def test_series_of_silent_clients_are_removed() -> None:
    series = ClientSeries()
    push(series, 0, gauge("a", 1), total("t", 1))
    push(series, 1, gauge("a", 2), now_ms=1)
    series.expire(EXPIRY_MS_MIN)
    assert {("ottla_client_telemetry_a", False): [({}, 2)]} == shown(series)
    series.expire(EXPIRY_MS_MIN + 1)
    assert ({}, []) == (shown(series), list(series.clients()))
    push(series, 0, total("a", 5))
    assert {("ottla_client_telemetry_a_total", True): [({}, 5)]} == shown(series)


def test_a_name_has_one_kind() -> None:
    """Clients that disagree would make the page unreadable."""
    series = ClientSeries()
    push(series, 0, total("a", 1))
    push(series, 1, gauge("a_total", 2), gauge("a", 3))
    push(series, 0, gauge("a.total", 4))
    assert {
        ("ottla_client_telemetry_a", False): [({}, 3)],
        ("ottla_client_telemetry_a_total", True): [({}, 1)],
    } == shown(series)
    assert {"kind": 2} == series.dropped


def test_series_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_series, "SERIES_MAX", 5)
    monkeypatch.setattr(client_series, "SERIES_PER_CLIENT_MAX", 3)
    monkeypatch.setattr(client_series, "CLIENTS_MAX", 2)
    series = ClientSeries()
    for number in range(3):
        push(series, number, *(gauge(f"m{at}", at) for at in range(4)))
    assert (5, {"series": 3, "clients": 1}) == (len(series), series.dropped)
    push(series, 0, gauge("m0", 9), gauge("m3", 9))
    assert [({}, 9), ({}, 0)] == shown(series)["ottla_client_telemetry_m0", False]
    assert {"series": 4, "clients": 1} == series.dropped
    push(series, 0, gauge("m0", 9), gauge("m3", 9))
    assert [({}, 9)] == shown(series)["ottla_client_telemetry_m3", False]


def test_long_texts_are_cut() -> None:
    series = ClientSeries()
    push(series, 0, gauge("n" * 5000, 1, **{"k" * 5000: "v" * 5000}))
    push(series, 0, gauge("n" * 5000, 1, **{f"k{at}": "v" for at in range(100)}))
    (((name, _), [(labels, _)]),) = shown(series).items()
    assert (223, 16) == (len(name), len(labels))
