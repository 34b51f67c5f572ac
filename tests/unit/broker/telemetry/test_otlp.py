"""The reader of what clients push, judged by OpenTelemetry's own protobuf classes."""

import math
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    Gauge,
    Histogram,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from ottla.broker.telemetry import otlp
from ottla.broker.telemetry.otlp import InvalidPayloadError, PayloadLimitError, PushedMetric, read_metrics
from tests.effort import effort

TEXTS = st.text(max_size=8)
LONGS = st.integers(-(2**63), 2**63 - 1)
DOUBLES = st.floats(allow_nan=False)


def any_value(kind: str, value: Any) -> AnyValue:
    return AnyValue(**{kind: value})


VALUES = st.one_of(
    st.just(AnyValue()),
    TEXTS.map(lambda value: any_value("string_value", value)),
    st.booleans().map(lambda value: any_value("bool_value", value)),
    LONGS.map(lambda value: any_value("int_value", value)),
    DOUBLES.map(lambda value: any_value("double_value", value)),
    st.binary(max_size=3).map(lambda value: any_value("bytes_value", value)),
    st.just(AnyValue(array_value=ArrayValue(values=[AnyValue(string_value="a")]))),
)
ATTRIBUTES = st.lists(st.builds(lambda key, value: KeyValue(key=key, value=value), TEXTS, VALUES), max_size=3)
POINTS = st.lists(
    st.builds(
        lambda attributes, value, flags: NumberDataPoint(attributes=attributes, flags=flags, time_unix_nano=7, **value),
        ATTRIBUTES,
        st.one_of(
            st.just({}),
            DOUBLES.map(lambda value: {"as_double": value}),
            LONGS.map(lambda value: {"as_int": value}),
        ),
        st.integers(0, 3),
    ),
    max_size=3,
)
DATA: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.just({}),
    POINTS.map(lambda points: {"gauge": Gauge(data_points=points)}),
    st.builds(
        lambda points, temporality, is_monotonic: {
            "sum": Sum(data_points=points, aggregation_temporality=temporality, is_monotonic=is_monotonic)
        },
        POINTS,
        st.integers(0, 2),
        st.booleans(),
    ),
    st.just({"histogram": Histogram(data_points=[])}),
)
METRICS = st.builds(
    lambda name, unit, data: Metric(name=name, unit=unit, description="what it counts", **data), TEXTS, TEXTS, DATA
)
PAYLOADS = st.lists(
    st.builds(
        lambda attributes, scopes: ResourceMetrics(
            resource=Resource(attributes=attributes),
            scope_metrics=[ScopeMetrics(metrics=metrics, schema_url="s") for metrics in scopes],
        ),
        ATTRIBUTES,
        st.lists(st.lists(METRICS, max_size=3), max_size=2),
    ),
    max_size=2,
).map(lambda resources: MetricsData(resource_metrics=resources))


def text_of(value: AnyValue) -> str | None:
    match value.WhichOneof("value"):
        case "string_value":
            return str(value.string_value)
        case "bool_value":
            return "true" if value.bool_value else "false"
        case "int_value":
            return str(value.int_value)
        case "double_value":
            return repr(value.double_value)
    return None


def attributes_of(found: Any) -> tuple[tuple[str, str], ...]:
    return tuple((each.key, text) for each in found if (text := text_of(each.value)) is not None)


def judged(data: MetricsData) -> list[PushedMetric]:
    """What the reader must find, by OpenTelemetry's classes."""
    found = []
    for resource in data.resource_metrics:
        for metric in [metric for scope in resource.scope_metrics for metric in scope.metrics]:
            kind = metric.WhichOneof("data")
            if kind not in ("gauge", "sum"):
                continue
            values = getattr(metric, kind)
            found.append(
                PushedMetric(
                    resource=attributes_of(resource.resource.attributes),
                    name=metric.name,
                    unit=metric.unit,
                    is_sum=kind == "sum",
                    is_monotonic=kind == "sum" and values.is_monotonic,
                    is_delta=kind == "sum" and values.aggregation_temporality == 1,
                    points=[
                        otlp.DataPoint(attributes_of(point.attributes), getattr(point, point.WhichOneof("value")))
                        for point in values.data_points
                        if point.WhichOneof("value") and not point.flags & 1
                    ],
                )
            )
    return found


def comparable(metrics: list[PushedMetric]) -> list[str]:
    """With NaN equal to itself."""
    return [repr(each) for each in metrics]


@pytest.mark.slow
@effort(100)
@given(PAYLOADS)
def test_payloads_are_read_as_opentelemetry_writes_them(data: MetricsData) -> None:
    assert judged(data) == list(read_metrics(data.SerializeToString()))


@pytest.mark.slow
@effort(300)
@given(PAYLOADS, st.data())
def test_damaged_payloads_are_read_as_protobuf_reads_them(data: MetricsData, draw: st.DataObject) -> None:
    """Whatever protobuf accepts is read alike; nothing else than the two errors is raised."""
    content = bytearray(data.SerializeToString())
    for _ in range(draw.draw(st.integers(1, 3))):
        at = draw.draw(st.integers(0, len(content)))
        content[at : at + draw.draw(st.integers(0, 3))] = draw.draw(st.binary(max_size=4))
    damaged = MetricsData()
    try:
        damaged.ParseFromString(bytes(content))
        expected = judged(damaged)
    except (DecodeError, UnicodeDecodeError):
        expected = None
    try:
        found = list(read_metrics(bytes(content)))
    except InvalidPayloadError:
        assert expected is None
    else:
        # What is skipped is not looked into, so that some payloads are read that protobuf refuses.
        assert expected is None or comparable(expected) == comparable(found)


@effort(200)
@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    try:
        list(read_metrics(content))
    except (InvalidPayloadError, PayloadLimitError):
        return


def test_fields_that_occur_twice_are_merged() -> None:
    """A gauge after a sum replaces it; a second gauge adds its points; a resource may come last."""
    point = NumberDataPoint(as_int=1).SerializeToString()

    def nested(number: int, content: bytes) -> bytes:
        return bytes([number << 3 | 2, len(content)]) + content

    metric = (
        nested(1, b"first")
        + nested(7, nested(1, point) + b"\x18\x01")
        + nested(5, nested(1, point))
        + nested(5, nested(1, point))
        + nested(1, b"last")
    )
    attribute = KeyValue(key="k", value=AnyValue(string_value="v")).SerializeToString()
    content = nested(1, nested(2, nested(2, metric)) + nested(1, nested(1, attribute)))
    data = MetricsData()
    data.ParseFromString(content)
    expected = PushedMetric(resource=(("k", "v"),), name="last", points=[otlp.DataPoint((), 1), otlp.DataPoint((), 1)])
    assert [expected] == list(read_metrics(content)) == judged(data)


def test_groups_are_skipped() -> None:
    content = b"\x9b\x06\x0b\x0c\x9c\x06"
    MetricsData().ParseFromString(content)
    assert [] == list(read_metrics(content))
    for broken in (b"\x0b", b"\x0c", b"\x0b\x14", b"\x0b" * 200):
        with pytest.raises(InvalidPayloadError):
            list(read_metrics(broken))


def test_values_that_are_not_numbers_are_kept() -> None:
    points = [NumberDataPoint(as_double=math.nan), NumberDataPoint(as_double=-math.inf)]
    metric = Metric(name="m", gauge=Gauge(data_points=points))
    data = MetricsData(resource_metrics=[ResourceMetrics(scope_metrics=[ScopeMetrics(metrics=[metric])])])
    (found,) = read_metrics(data.SerializeToString())
    assert ["nan", "-inf"] == [str(each.value) for each in found.points]


@pytest.mark.parametrize("filler", [b"\x28\x00", b"\x0a\x00", b"\x0b\x0c"])
def test_the_work_is_bounded(filler: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the fields are; the metrics before the limit are there."""
    monkeypatch.setattr(otlp, "FIELDS_MAX", 100)
    metric = Metric(name="m", gauge=Gauge(data_points=[NumberDataPoint(as_int=1)]))
    data = MetricsData(resource_metrics=[ResourceMetrics(scope_metrics=[ScopeMetrics(metrics=[metric])])])
    reading = read_metrics(data.SerializeToString() + filler * 100)
    assert "m" == next(reading).name
    with pytest.raises(PayloadLimitError):
        list(reading)


def test_the_metrics_of_a_resource_share_its_attributes() -> None:
    """A copy for each of many metrics would take most of the time of a push."""
    attributes = [KeyValue(key="host", value=AnyValue(string_value="a"))]
    metrics = [Metric(name=name, gauge=Gauge(data_points=[NumberDataPoint(as_int=1)])) for name in ("one", "two")]
    data = MetricsData(
        resource_metrics=[
            ResourceMetrics(resource=Resource(attributes=attributes), scope_metrics=[ScopeMetrics(metrics=metrics)])
        ]
    )
    first, second = read_metrics(data.SerializeToString())
    assert (("host", "a"),) == first.resource
    assert first.resource is second.resource
