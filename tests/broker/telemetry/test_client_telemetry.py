"""What clients push to a real broker, as Prometheus reads it from /metrics."""

from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AggregationTemporality,
    Gauge,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)

from ottla.broker.broker import Broker
from ottla.broker.configs.configuration import BrokerConfig
from ottla.broker.telemetry import otlp
from ottla.model.base64_ids import id_text
from ottla.model.error_codes import ErrorCode
from ottla.protocol.apis import TELEMETRY_APIS, ApiKey
from ottla.protocol.config_resources import ResourceType
from ottla.records.compression import compress
from ottla.records.layout import Codec
from tests.broker.http_client import HOST, endpoint_of
from tests.broker.metric_samples import samples_of, value
from tests.broker.running_broker import Client, ask, connected, running
from tests.broker.test_metrics import exchange, scrape
from tests.wire.exchange import read_response, request_frame

DELTA = AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA


def payload(sent: int, waiting: float, name: str = "waiting") -> bytes:
    metrics = [
        Metric(
            name="org.apache.kafka.producer.record.send.total",
            sum=Sum(
                data_points=[NumberDataPoint(as_int=sent)],
                aggregation_temporality=AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA,
                is_monotonic=True,
            ),
        ),
        Metric(name=f"org.apache.kafka.{name}", gauge=Gauge(data_points=[NumberDataPoint(as_double=waiting)])),
    ]
    data = MetricsData(resource_metrics=[ResourceMetrics(scope_metrics=[ScopeMetrics(metrics=metrics)])])
    return bytes(data.SerializeToString())


async def push(client: Client, got: Any, content: bytes, codec: int = Codec.NONE, **values: Any) -> ErrorCode:
    """A push of these bytes."""
    identity = {"client_instance_id": got.client_instance_id, "subscription_id": got.subscription_id}
    request = {**identity, "compression_type": codec, "metrics": content, **values}
    answer = await client.ask(ApiKey.PUSH_TELEMETRY, request)
    return ErrorCode(answer.error_code)


async def subscribe(broker: Broker, **configs: str) -> None:
    """A subscription of the broker to the metrics of its clients."""
    changes = [{"name": name, "config_operation": 0, "value": setting} for name, setting in configs.items()]
    resource = {"resource_type": ResourceType.CLIENT_METRICS, "resource_name": "s", "configs": changes}
    response = await ask(broker, ApiKey.INCREMENTAL_ALTER_CONFIGS, {"resources": [resource]})
    assert [0] == [changed.error_code.value for changed in response.responses]


async def get(client: Client) -> Any:
    return await client.ask(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, {})


@pytest.mark.parametrize("codec", list(Codec))
async def test_pushed_metrics_are_shown(tmp_path: Path, codec: Codec) -> None:
    async with running(tmp_path) as broker, connected(broker) as client:
        endpoint = endpoint_of(broker)
        port = await endpoint.start(HOST, 0)
        got = await get(client)
        codes = [
            await push(client, got, compress(codec, payload(3, 0.5, "gone")), codec),
            await push(client, got, compress(codec, payload(4, 1.5)), codec, terminating=True),
        ]
        samples = await scrape(port)
        await endpoint.stop()
    assert [ErrorCode.NONE] * 2 == codes
    labels = {"client_id": "test", "client_instance_id": id_text(got.client_instance_id)}
    assert 7 == value(samples, "ottla_client_telemetry_producer_record_send_total", **labels)
    assert 1.5 == value(samples, "ottla_client_telemetry_waiting", **labels)
    software = {"client_software_name": "unknown", "client_software_version": "unknown"}
    assert 1 == value(samples, "ottla_telemetry_client_info", **labels, **software)
    assert (1, 2, 2) == (
        value(samples, "ottla_telemetry_clients"),
        value(samples, "ottla_telemetry_series"),
        value(samples, "ottla_telemetry_pushes_total", error="NONE"),
    )


async def test_what_cannot_be_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Payloads that decompress to too much, damaged ones; of one with too many fields the first metrics count."""
    async with running(tmp_path, telemetry_max_bytes="1000") as broker, connected(broker) as client:
        bomb = compress(Codec.ZSTD, bytes(8001))
        cases = [(bomb, Codec.ZSTD), (b"\x28\xb5\x2f\xfd", Codec.ZSTD), (b"\x0a\x05", Codec.NONE)]
        codes = [await push(client, await get(client), content, codec) for content, codec in cases]
        monkeypatch.setattr(otlp, "FIELDS_MAX", 12)
        codes.append(await push(client, await get(client), payload(1, 2)))
        samples = samples_of(broker)
    expected = [ErrorCode.TELEMETRY_TOO_LARGE, ErrorCode.INVALID_RECORD, ErrorCode.INVALID_RECORD, ErrorCode.NONE]
    dropped = {labels: number for (name, labels), number in samples.items() if name == "ottla_telemetry_dropped_total"}
    assert (expected, 1, {(("reason", "payload"),): 1}) == (codes, value(samples, "ottla_telemetry_series"), dropped)


async def test_a_subscription_that_is_made_counts_for_the_next_request(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as client:
        before = await get(client)
        await subscribe(broker, metrics="a.", match="client_id=te.*")
        refused = await push(client, before, b"")
        after = await client.ask(
            ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
            {"client_instance_id": before.client_instance_id},
        )
        found = [before.requested_metrics, refused, after.requested_metrics]
    assert [(), ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ("a.",)] == found


async def test_the_apis_are_advertised_where_metrics_are_shown(tmp_path: Path) -> None:
    """Over a socket; the software that the client names with its first request is what it can be chosen by."""
    software = {"client_software_name": "some-client", "client_software_version": "1.0"}
    frames = [
        request_frame(ApiKey.API_VERSIONS, 3, software),
        request_frame(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, 0, {}),
    ]

    async def shown(http: tuple[str, int] | None) -> tuple[bool, tuple[str, ...]]:
        config = {"log.dirs": str(tmp_path / "data"), "listeners": "PLAINTEXT://127.0.0.1:0"}
        async with Broker(BrokerConfig.parse(settings=config), http=http) as broker:
            match = "client_software_name=some-.*,client_source_address=127\\.0\\.0\\.1"
            await subscribe(broker, metrics="a.", match=match)
            versions, got = await exchange(broker, *frames)
            listed = {each.api_key for each in read_response(ApiKey.API_VERSIONS, 3, versions)[1].api_keys}
            is_listed = bool(listed & TELEMETRY_APIS)
            return is_listed, read_response(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, 0, got)[1].requested_metrics

    assert (True, ("a.",)) == await shown((HOST, 0))
    assert (False, ("a.",)) == await shown(None)
