"""Decides about GetTelemetrySubscriptions and PushTelemetry requests, as Kafka does. Pure: takes the time, in ms.

A client first asks for its subscription, then pushes once in each interval. Earlier requests are refused with
THROTTLING_QUOTA_EXCEEDED, pushes for a subscription that has changed with UNKNOWN_SUBSCRIPTION_ID. What is known of a
client is forgotten when its connection ends, when it has been silent for three intervals, or for newer clients beyond
`INSTANCES_MAX`; a client that comes back then starts as a new one.
"""

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from ottla.broker.telemetry.subscriptions import Subscription, TelemetryClient, WantedMetrics, wanted_metrics
from ottla.metadata.configs.client_metrics_configs import INTERVAL_MS_DEFAULT
from ottla.model.error_codes import ErrorCode
from ottla.records.layout import Codec

INSTANCES_MAX: Final = 16_384
"""Clients that are remembered, as in Kafka."""
EXPIRY_MS_MIN: Final = 60_000
_EXPIRY_INTERVALS: Final = 3
_SWEEP_MS: Final = 10_000
_RESERVED: Final = frozenset({UUID(int=0), UUID(int=1)})
_ASK_AGAIN: Final = frozenset({ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE})
"""A client that got one of these may ask for its subscription at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Push:
    """A PushTelemetry request without its metrics."""

    subscription_id: int
    is_terminating: bool
    codec: int
    size_bytes: int


@dataclass(slots=True, kw_only=True, eq=False)
class Instance:
    """One client. Deadlines count from its last accepted requests."""

    client: TelemetryClient
    connection: Hashable
    wanted: WantedMetrics
    version: int
    """Of the subscriptions that `wanted` was computed from."""
    expires_ms: float
    last_get_ms: float = float("-inf")
    last_push_ms: float = float("-inf")
    may_push_early: bool = False
    """Whether it has got its subscription since its last push: clients spread their first push over the interval."""
    is_terminated: bool = False
    last_error: ErrorCode = ErrorCode.NONE


class TelemetryState:
    """The clients of one broker that ask for subscriptions or push."""

    def __init__(self) -> None:
        self.throttled = 0
        self.unknown_subscriptions = 0
        self._subscriptions: Sequence[Subscription] = ()
        self._version = 0
        self._instances: OrderedDict[UUID, Instance] = OrderedDict()
        """The one that was silent for longest first."""
        self._by_connection: dict[Hashable, set[UUID]] = {}
        """The clients that last came on each connection; one connection may speak for several."""
        self._sweep_due_ms = float("-inf")

    def __len__(self) -> int:
        return len(self._instances)

    def replace_subscriptions(self, subscriptions: Sequence[Subscription]) -> None:
        """From now on these are in force; what each client is asked for is computed again when it next comes."""
        self._subscriptions = subscriptions
        self._version += 1

    def get(self, client: TelemetryClient, connection: Hashable, now_ms: float) -> tuple[ErrorCode, WantedMetrics]:
        """What a client is asked for; without an error it may push then."""
        instance = self._instance(client, connection, now_ms)
        elapsed = now_ms - max(instance.last_get_ms, instance.last_push_ms)
        if elapsed < instance.wanted.interval_ms and instance.last_error not in _ASK_AGAIN:
            self.throttled += 1
            return ErrorCode.THROTTLING_QUOTA_EXCEEDED, instance.wanted
        instance.last_get_ms = now_ms
        instance.may_push_early = True
        instance.last_error = ErrorCode.NONE
        return ErrorCode.NONE, instance.wanted

    def push(
        self, client: TelemetryClient, connection: Hashable, push: Push, now_ms: float, bytes_max: int
    ) -> ErrorCode:
        """Whether a push is accepted."""
        if client.instance_id in _RESERVED:
            return ErrorCode.INVALID_REQUEST
        instance = self._instance(client, connection, now_ms)
        error = self._check_push(instance, push, now_ms, bytes_max)
        instance.last_error = error
        instance.is_terminated = instance.is_terminated or push.is_terminating
        return error

    def interval_ms_of(self, instance_id: UUID) -> int:
        """The push interval of a client; the default for one that was forgotten."""
        instance = self._instances.get(instance_id)
        return INTERVAL_MS_DEFAULT if instance is None else instance.wanted.interval_ms

    def on_rejected(self, instance_id: UUID, error: ErrorCode) -> None:
        """Notes that the metrics of an accepted push could not be used."""
        instance = self._instances.get(instance_id)
        if instance is not None:
            instance.last_error = error

    def on_closed(self, connection: Hashable) -> None:
        """Forgets the clients of a connection that was closed."""
        for instance_id in self._by_connection.pop(connection, ()):
            del self._instances[instance_id]

    def check(self) -> list[str]:
        """The invariants that do not hold."""
        found = []
        if len(self._instances) > INSTANCES_MAX:
            found.append(f"{len(self._instances)} clients are remembered, more than {INSTANCES_MAX}")
        connections: dict[Hashable, set[UUID]] = {}
        for key, each in self._instances.items():
            connections.setdefault(each.connection, set()).add(key)
        if connections != self._by_connection:
            found.append("the clients and their connections differ")
        return found

    def _check_push(self, instance: Instance, push: Push, now_ms: float, bytes_max: int) -> ErrorCode:
        if instance.is_terminated:
            return ErrorCode.INVALID_REQUEST
        is_due = instance.may_push_early or now_ms - instance.last_push_ms >= instance.wanted.interval_ms
        if is_due:
            instance.last_push_ms = now_ms
            instance.may_push_early = False
        elif not push.is_terminating:
            self.throttled += 1
            return ErrorCode.THROTTLING_QUOTA_EXCEEDED
        if push.subscription_id != instance.wanted.subscription_id:
            self.unknown_subscriptions += 1
            return ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        if push.codec not in set(Codec):
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        return ErrorCode.TELEMETRY_TOO_LARGE if push.size_bytes > bytes_max else ErrorCode.NONE

    def _instance(self, client: TelemetryClient, connection: Hashable, now_ms: float) -> Instance:
        if now_ms >= self._sweep_due_ms:
            self._sweep(now_ms)
        found = self._instances.get(client.instance_id)
        if found is None or found.version != self._version:
            # With another subscription, a client starts as a new one: it may ask at once.
            known = client if found is None else found.client
            if found is not None:
                self._forget(found)
            found = self._instances[client.instance_id] = Instance(
                client=known,
                connection=connection,
                wanted=wanted_metrics(known, self._subscriptions),
                version=self._version,
                expires_ms=0,
            )
        else:
            self._unbind(found)
            found.connection = connection
        self._by_connection.setdefault(connection, set()).add(client.instance_id)
        found.expires_ms = now_ms + expiry_ms(found.wanted.interval_ms)
        self._instances.move_to_end(client.instance_id)
        if len(self._instances) > INSTANCES_MAX:
            self._forget(next(iter(self._instances.values())))
        return found

    def _sweep(self, now_ms: float) -> None:
        """Forgets clients that were silent for too long."""
        self._sweep_due_ms = now_ms + _SWEEP_MS
        for each in [each for each in self._instances.values() if each.expires_ms <= now_ms]:
            self._forget(each)

    def _forget(self, instance: Instance) -> None:
        self._unbind(instance)
        del self._instances[instance.client.instance_id]

    def _unbind(self, instance: Instance) -> None:
        bound = self._by_connection[instance.connection]
        bound.discard(instance.client.instance_id)
        if not bound:
            del self._by_connection[instance.connection]


def expiry_ms(interval_ms: int) -> int:
    """How long a client with this push interval may be silent before it is forgotten."""
    return max(EXPIRY_MS_MIN, _EXPIRY_INTERVALS * interval_ms)
