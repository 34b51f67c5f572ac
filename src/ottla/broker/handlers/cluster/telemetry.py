"""GetTelemetrySubscriptions and PushTelemetry (KIP-714). Any client may send them, as in Kafka; the decisions are made
in `ottla.broker.telemetry`."""

from uuid import UUID

from kio.schema.get_telemetry_subscriptions.v0.request import GetTelemetrySubscriptionsRequest
from kio.schema.get_telemetry_subscriptions.v0.response import GetTelemetrySubscriptionsResponse
from kio.schema.push_telemetry.v0.request import PushTelemetryRequest
from kio.schema.push_telemetry.v0.response import PushTelemetryResponse
from kio.static.primitive import i8, i32

from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.services import Services
from ottla.broker.telemetry.subscriptions import TelemetryClient
from ottla.broker.telemetry.telemetry_state import Push
from ottla.model.base64_ids import new_id
from ottla.model.error_codes import ErrorCode
from ottla.protocol.messages import milliseconds, wire_error
from ottla.records.layout import Codec

_NO_ID = UUID(int=0)
_CODECS = (Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY)
"""The codecs that clients may use, the best first."""


def get_telemetry_subscriptions(
    services: Services, context: RequestContext, request: GetTelemetrySubscriptionsRequest
) -> GetTelemetrySubscriptionsResponse:
    """Which metrics the client is asked for, and how often. A client without an id gets one."""
    instance_id = request.client_instance_id or new_id(services.random.randbytes)
    client = _client(context, instance_id)
    error, wanted = services.telemetry.get(client, _connection(context))
    if error is not ErrorCode.NONE:
        return GetTelemetrySubscriptionsResponse(
            throttle_time=milliseconds(0),
            error_code=wire_error(error),
            client_instance_id=None,
            subscription_id=i32(0),
            accepted_compression_types=(),
            push_interval=milliseconds(0),
            telemetry_max_bytes=i32(0),
            delta_temporality=False,
            requested_metrics=(),
        )
    return GetTelemetrySubscriptionsResponse(
        throttle_time=milliseconds(0),
        error_code=wire_error(error),
        client_instance_id=instance_id,
        subscription_id=i32(wanted.subscription_id),
        accepted_compression_types=tuple(i8(each) for each in _CODECS),
        push_interval=milliseconds(wanted.interval_ms),
        telemetry_max_bytes=i32(services.config.telemetry_max_bytes),
        delta_temporality=True,
        requested_metrics=wanted.metrics,
    )


async def push_telemetry(
    services: Services, context: RequestContext, request: PushTelemetryRequest
) -> PushTelemetryResponse:
    """Takes the metrics of a client."""
    push = Push(
        subscription_id=request.subscription_id,
        is_terminating=request.terminating,
        codec=request.compression_type,
        size_bytes=len(request.metrics),
    )
    error = await services.telemetry.push(
        _client(context, request.client_instance_id or _NO_ID),
        _connection(context),
        push,
        request.metrics,
        services.config.telemetry_max_bytes,
    )
    return PushTelemetryResponse(throttle_time=milliseconds(0), error_code=wire_error(error))


def _client(context: RequestContext, instance_id: UUID) -> TelemetryClient:
    connection = context.connection
    host, _, port = connection.address.rpartition(":")
    return TelemetryClient(
        instance_id=instance_id,
        client_id=context.client_id,
        software_name=connection.software.name,
        software_version=connection.software.version,
        address=host.strip("[]"),
        port=port,
    )


def _connection(context: RequestContext) -> tuple[str, str]:
    return context.connection.listener, context.connection.address
