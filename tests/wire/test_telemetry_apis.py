"""GetTelemetrySubscriptions and PushTelemetry, over a socket."""

from datetime import timedelta
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode

from ottla.protocol.apis import ApiKey
from ottla.protocol.config_resources import ResourceType
from tests.wire.exchange import CLIENT_ID, RawConnection, every_version
from tests.wire.world import unused_name

INTERVAL_MS = 100_000


def subscribe(connection: RawConnection, metrics: str | None) -> None:
    """Sets or removes the subscription of the clients of this module."""
    wanted = {"metrics": metrics, "interval.ms": str(INTERVAL_MS), "match": f"client_id={CLIENT_ID.decode()}"}
    configs = [
        {"name": name, "config_operation": 1 if metrics is None else 0, "value": None if metrics is None else value}
        for name, value in wanted.items()
    ]
    resource = {"resource_type": ResourceType.CLIENT_METRICS, "resource_name": "wire", "configs": configs}
    (answer,) = connection.ask_newest(ApiKey.INCREMENTAL_ALTER_CONFIGS, {"resources": [resource]}).responses
    assert ErrorCode.none is answer.error_code


def push_values(got: Any, **values: Any) -> dict[str, Any]:
    return {"client_instance_id": got.client_instance_id, "subscription_id": got.subscription_id} | values


@every_version(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS)
def test_get_telemetry_subscriptions(connection: RawConnection, version: int) -> None:
    prefix = unused_name()
    subscribe(connection, f"{prefix}.b,{prefix}.a")
    try:
        got = connection.ask(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, version, {})
        again = connection.ask(
            ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, version, {"client_instance_id": got.client_instance_id}
        )
    finally:
        subscribe(connection, None)
    assert (ErrorCode.none, 4) == (got.error_code, got.client_instance_id.version)
    assert ((4, 3, 1, 2), timedelta(milliseconds=INTERVAL_MS), 1024 * 1024, True) == (
        got.accepted_compression_types,
        got.push_interval,
        got.telemetry_max_bytes,
        got.delta_temporality,
    )
    assert (f"{prefix}.a", f"{prefix}.b") == got.requested_metrics
    assert (ErrorCode.throttling_quota_exceeded, None) == (again.error_code, again.client_instance_id)
    without = connection.ask(
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, version, {"client_instance_id": got.client_instance_id}
    )
    assert (ErrorCode.none, (), timedelta(minutes=5)) == (
        without.error_code,
        without.requested_metrics,
        without.push_interval,
    )
    assert (got.client_instance_id, True) == (
        without.client_instance_id,
        got.subscription_id != without.subscription_id,
    )


@every_version(ApiKey.PUSH_TELEMETRY)
def test_push_telemetry(connection: RawConnection, version: int) -> None:
    def push(**values: Any) -> ErrorCode:
        found: ErrorCode = connection.ask(ApiKey.PUSH_TELEMETRY, version, push_values(got, **values)).error_code
        return found

    got = connection.ask_newest(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, {})
    assert [ErrorCode.none, ErrorCode.throttling_quota_exceeded] == [push(), push()]
    for refused in (None, UUID(int=1)):
        assert ErrorCode.invalid_request is push(client_instance_id=refused)
    assert [ErrorCode.none, ErrorCode.invalid_request] == [push(terminating=True), push(terminating=True)]
    for values, error in (
        ({"subscription_id": got.subscription_id ^ 1}, ErrorCode.unknown_subscription_id),
        ({"compression_type": 9}, ErrorCode.unsupported_compression_type),
        ({"metrics": bytes(1024 * 1024 + 1)}, ErrorCode.telemetry_too_large),
        ({"metrics": b"garbage"}, ErrorCode.invalid_record),
        ({"metrics": b"garbage", "compression_type": 4}, ErrorCode.invalid_record),
    ):
        got = connection.ask_newest(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, {})
        assert error is push(**{"subscription_id": got.subscription_id, **values})
