"""The cluster's client quotas, applied to this broker's requests: the `Quotas` port on `ClientQuotas` and a clock.

The requests of other brokers are exempt: a quota for all clients must not slow down replication, transaction markers or
deliveries of queues.
"""

from collections.abc import Callable, Container, Mapping
from typing import Final

from ottla.env.ports import Clock
from ottla.protocol.apis import ApiKey
from ottla.security.authorizer import Authorizer, allows_cached
from ottla.security.client_quotas import ClientQuotas, QuotaKey
from ottla.security.connection_context import ConnectionContext
from ottla.security.quota_entity import QuotaEntity
from ottla.security.resources import CLUSTER_NAME, Operation, ResourceType

BROKER_CLIENT_PREFIX: Final = "broker-"
"""The client ids of brokers begin so."""
_BROKER_ID_DIGITS_MAX: Final = 10


class CountedQuotas:
    """Quotas whose use is counted. Brokers are the clients of the inter-broker listener that have a broker's client id
    and may act for the cluster."""

    def __init__(
        self,
        quotas: ClientQuotas,
        clock: Clock,
        authorizer: Authorizer,
        broker_ids: Callable[[], Container[int]],
        *,
        inter_broker_listener: str,
    ) -> None:
        self._quotas = quotas
        self._clock = clock
        self._authorizer = authorizer
        self._broker_ids = broker_ids
        self._inter_broker_listener = inter_broker_listener
        # An attribute, not a property: every Produce and Fetch reads it.
        self.is_unlimited = quotas.is_unlimited
        """Whether there is no quota of users or client ids."""

    def replace(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        """Other quotas apply from now on."""
        self._quotas.replace(quotas)
        self.is_unlimited = self._quotas.is_unlimited

    def throttle_ms(
        self,
        client: ConnectionContext,
        client_id: str | None,
        api_key: int,
        *,
        request_bytes: int,
        response_bytes: int,
        counts_time: bool = True,
    ) -> int:
        """The longer one of the throttle times for bytes and for request time."""
        if self._is_broker(client, client_id):
            return 0
        quotas, user, name, now_ms = self._quotas, client.principal.name, client_id or "", self._now_ms()
        of_time = quotas.use(QuotaKey.REQUEST_PERCENTAGE, user, name, 0, now_ms) if counts_time else 0
        of_bytes, key = 0, QuotaKey.REQUEST_PERCENTAGE
        if api_key == ApiKey.PRODUCE:
            key = QuotaKey.PRODUCER_BYTE_RATE
            of_bytes = quotas.use(key, user, name, request_bytes, now_ms)
        elif api_key == ApiKey.FETCH:
            key = QuotaKey.CONSUMER_BYTE_RATE
            # The response will have no records if it is throttled for its time.
            of_bytes = quotas.use_if_within(key, user, name, 0 if of_time else response_bytes, now_ms)
        throttle_ms = max(of_bytes, of_time)
        if throttle_ms:
            quotas.count_throttled(key if of_bytes > of_time else QuotaKey.REQUEST_PERCENTAGE, throttle_ms)
        return throttle_ms

    def fetch_bytes_max(self, client: ConnectionContext, client_id: str | None) -> int | None:
        """What the quota allows in ten seconds."""
        if self._is_broker(client, client_id):
            return None
        usable = self._quotas.usable_at_once(QuotaKey.CONSUMER_BYTE_RATE, client.principal.name, client_id or "")
        return None if usable is None else max(int(usable), 1)

    def record_time(self, client: ConnectionContext, client_id: str | None, seconds: float) -> None:
        """Counts it as percent of the event loop's time."""
        if not self._is_broker(client, client_id):
            self._quotas.use(
                QuotaKey.REQUEST_PERCENTAGE, client.principal.name, client_id or "", seconds * 100, self._now_ms()
            )

    def mutate(
        self, client: ConnectionContext, client_id: str | None, partition_count: int, *, is_strict: bool
    ) -> tuple[bool, int]:
        """Asks the token bucket of the client."""
        user, name = client.principal.name, client_id or ""
        may, throttle_ms = self._quotas.mutate(user, name, partition_count, self._now_ms(), is_strict=is_strict)
        if throttle_ms:
            self._quotas.count_throttled(QuotaKey.CONTROLLER_MUTATION_RATE, throttle_ms)
        return may, throttle_ms

    def take_back_mutations(self, client: ConnectionContext, client_id: str | None, partition_count: int) -> None:
        """Gives the tokens back."""
        user, name = client.principal.name, client_id or ""
        self._quotas.take_back_mutations(user, name, partition_count, self._now_ms())

    def connection_throttle_ms(self, host: str) -> int:
        """After how long a new connection from this address must be closed; 0 if it may stay."""
        if not self._quotas.limits_connections:
            return 0
        throttle_ms = self._quotas.connect(host, self._now_ms())
        if throttle_ms:
            self._quotas.count_throttled(QuotaKey.CONNECTION_CREATION_RATE, throttle_ms)
        return throttle_ms

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    def _is_broker(self, client: ConnectionContext, client_id: str | None) -> bool:
        if (
            client_id is None
            or client.listener != self._inter_broker_listener
            or not client_id.startswith(BROKER_CLIENT_PREFIX)
        ):
            return False
        number = client_id.removeprefix(BROKER_CLIENT_PREFIX).partition("-")[0]
        return (
            len(number) <= _BROKER_ID_DIGITS_MAX
            and number.isascii()
            and number.isdigit()
            and int(number) in self._broker_ids()
            and allows_cached(self._authorizer, client, Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
        )
