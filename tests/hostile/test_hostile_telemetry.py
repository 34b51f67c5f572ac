"""Pushes of client telemetry that are small and take long to read: other clients do not wait for them."""

from kio.schema.errors import ErrorCode
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    Gauge,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from ottla.protocol.apis import ApiKey
from ottla.records.compression import compress
from ottla.records.layout import Codec
from tests.broker_process import BrokerProcess
from tests.hostile.bystander import ROUNDS_MIN, Bystander
from tests.wire.exchange import RawConnection

MEBIBYTE = 1 << 20
GROWTH_BYTES_MAX = 64 * MEBIBYTE
"""A payload takes 8 MiB when it is decompressed; twelve clients that keep it would take more."""
CLIENTS_MIN = 12


def payload(name: str, points: int, key: str = "k") -> bytes:
    """Compressed to about a thousandth."""
    data_points = [
        NumberDataPoint(as_int=at, attributes=[KeyValue(key="k", value=AnyValue(int_value=at))]) for at in range(points)
    ]
    metric = Metric(name=name, gauge=Gauge(data_points=data_points))
    resource = Resource(attributes=[KeyValue(key=key, value=AnyValue(string_value="v"))])
    metrics = ResourceMetrics(resource=resource, scope_metrics=[ScopeMetrics(metrics=[metric])])
    return compress(Codec.ZSTD, MetricsData(resource_metrics=[metrics]).SerializeToString())


def push(connection: RawConnection, content: bytes) -> ErrorCode:
    """As a new client."""
    got = connection.ask_newest(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, {})
    values = {
        "client_instance_id": got.client_instance_id,
        "subscription_id": got.subscription_id,
        "compression_type": Codec.ZSTD,
        "metrics": content,
    }
    return ErrorCode(connection.ask_newest(ApiKey.PUSH_TELEMETRY, values).error_code)


def test_telemetry_that_takes_long_to_read(broker: BrokerProcess) -> None:
    long = "a-" * (4 * MEBIBYTE - 1000)
    payloads = [payload(long, 1), payload("many", 8_000), payload("resource", 1, key=long)]
    assert max(map(len, payloads)) < 64 * 1024
    broker.forget_peak()
    before = broker.resident_bytes()
    clients = 0
    with RawConnection(broker.address) as connection, Bystander(broker.address) as bystander:
        while len(bystander.disturbed) < ROUNDS_MIN or clients < CLIENTS_MIN:
            assert ErrorCode.none is push(connection, payloads[clients % len(payloads)])
            clients += 1
    bystander.check()
    assert broker.resident_bytes() - before < GROWTH_BYTES_MAX
