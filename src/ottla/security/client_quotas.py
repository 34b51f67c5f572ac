"""Client quotas: which quota applies to a client, what it has used, and for how long it is throttled. Pure.

The rules are Kafka's. The most specific entity with a value for a key decides, for each key separately. A quota of a
user is one bucket for all its clients; a quota of a client id is one bucket for all its users; a quota of both is one
bucket for each pair. Usage is counted per broker.

The number of buckets is bounded. If all are in use, further clients share one bucket for each key, so that inventing
client ids neither takes memory nor resets what others have used.
"""

from collections.abc import Mapping
from enum import StrEnum
from hashlib import sha256
from ipaddress import IPv6Address, ip_address
from typing import Final

from ottla.security.quota_entity import DEFAULT_NAME, QuotaEntity
from ottla.security.rate_samples import SAMPLE_MS, WINDOW_SECONDS_MIN, RateSamples
from ottla.security.token_bucket import TokenBucket

BUCKETS_MAX: Final = 10_000
NAME_LENGTH_MAX: Final = 256
"""Longer client ids are kept by their hash."""
THROTTLE_MS_MAX: Final = 2**31 - 1
"""What the field of a response can hold."""


class QuotaKey(StrEnum):
    """What is limited."""

    PRODUCER_BYTE_RATE = "producer_byte_rate"
    CONSUMER_BYTE_RATE = "consumer_byte_rate"
    REQUEST_PERCENTAGE = "request_percentage"
    CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
    CONNECTION_CREATION_RATE = "connection_creation_rate"


_THROTTLE_MS_MAX: Final = {
    QuotaKey.REQUEST_PERCENTAGE: SAMPLE_MS,
    QuotaKey.CONNECTION_CREATION_RATE: SAMPLE_MS,
}
"""The longest throttle time of a key; the others have no limit."""

_Names = tuple[str | None, str | None]
"""User and client id; None where the quota, or the bucket, does not tell them apart."""
_BucketId = tuple[QuotaKey, str | None, str | None]


class ThrottleCount:
    """How often, and for how long in all, clients were throttled by one kind of quota."""

    __slots__ = ("milliseconds", "times")

    def __init__(self) -> None:
        self.times = 0
        self.milliseconds = 0


class ClientQuotas:
    """The quotas of a cluster and what one broker's clients have used of them. Times are in milliseconds."""

    def __init__(self, *, buckets_max: int = BUCKETS_MAX) -> None:
        self.is_unlimited = True
        """Whether no quota of users or client ids exists."""
        self.limits_connections = False
        """Whether a quota of addresses exists."""
        self.throttled: Final = {key: ThrottleCount() for key in QuotaKey}
        self._buckets_max = buckets_max
        self._bounds: dict[QuotaKey, dict[_Names, float]] = {}
        self._ip_bounds: dict[str, float] = {}
        self._applied: dict[_BucketId, tuple[float, _BucketId] | None] = {}
        """The quota of a client and its bucket, as found before."""
        self._rates: dict[_BucketId, RateSamples] = {}
        self._mutations: dict[_BucketId, TokenBucket] = {}
        self._swept_ms: int | None = None

    def replace(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        """Other quotas apply from now on, to what was already used as well."""
        self._bounds = {}
        self._ip_bounds = {}
        for entity, values in quotas.items():
            for key, bound in values.items():
                if entity.ip is not None:
                    if key == QuotaKey.CONNECTION_CREATION_RATE:
                        self._ip_bounds[entity.ip and _address(entity.ip)] = bound
                elif key in _CLIENT_KEYS:
                    self._bounds.setdefault(QuotaKey(key), {})[entity.user, entity.client_id] = bound
        self.is_unlimited = not self._bounds
        self.limits_connections = bool(self._ip_bounds)
        self._applied.clear()
        if self.is_unlimited:
            self._mutations.clear()
        if self.is_unlimited and not self.limits_connections:
            self._rates.clear()

    def bound(self, key: QuotaKey, user: str, client_id: str) -> float | None:
        """The quota that applies to a client; None if none does."""
        applied = self._applied_to(key, user, client_id)
        return None if applied is None else applied[0]

    # Rates

    def use(self, key: QuotaKey, user: str, client_id: str, amount: float, now_ms: int) -> int:
        """Counts a use; returns the throttle time, 0 if the quota is not exceeded."""
        applied = self._applied_to(key, user, client_id)
        if applied is None:
            return 0
        bound, bucket_id = applied
        rate = self._rate(bucket_id, now_ms)
        rate.add(amount, now_ms)
        return _capped(key, rate.throttle_ms(bound, now_ms))

    def use_if_within(self, key: QuotaKey, user: str, client_id: str, amount: float, now_ms: int) -> int:
        """Counts a use unless it exceeds the quota; returns the throttle time, 0 if it was counted.

        A use that exceeds the quota by itself is let through if nothing else was used: it could never be otherwise.
        """
        applied = self._applied_to(key, user, client_id)
        if applied is None:
            return 0
        bound, bucket_id = applied
        rate = self._rate(bucket_id, now_ms)
        was_idle = rate.total(now_ms) <= 0
        rate.add(amount, now_ms)
        throttle_ms = rate.throttle_ms(bound, now_ms)
        if not throttle_ms or was_idle:
            return 0
        rate.add(-amount, now_ms)
        return _capped(key, throttle_ms)

    def take_back(self, key: QuotaKey, user: str, client_id: str, amount: float, now_ms: int) -> None:
        """A use that was counted did not happen."""
        applied = self._applied_to(key, user, client_id)
        if applied is not None:
            self._rate(applied[1], now_ms).add(-amount, now_ms)

    def usable_at_once(self, key: QuotaKey, user: str, client_id: str) -> float | None:
        """What an idle client may use at once, None for any amount: a larger use would always exceed the quota."""
        bound = self.bound(key, user, client_id)
        return None if bound is None else bound * WINDOW_SECONDS_MIN

    # Controller mutations

    def mutate(self, user: str, client_id: str, count: int, now_ms: int, *, is_strict: bool) -> tuple[bool, int]:
        """(whether partitions may be created or deleted, the throttle time).

        They always may if not strict, for clients that do not know the error code. Strict refuses all while there is a
        debt, and counts what is not refused; only a refusal is throttled.
        """
        applied = self._applied_to(QuotaKey.CONTROLLER_MUTATION_RATE, user, client_id)
        if applied is None:
            return True, 0
        rate, bucket_id = applied
        bucket = self._mutation_bucket(bucket_id, now_ms)
        debt_ms = bucket.throttle_ms(rate, now_ms)
        if is_strict and debt_ms:
            return False, min(debt_ms, THROTTLE_MS_MAX)
        bucket.take(count, rate, now_ms)
        return True, 0 if is_strict else min(bucket.throttle_ms(rate, now_ms), THROTTLE_MS_MAX)

    def take_back_mutations(self, user: str, client_id: str, count: int, now_ms: int) -> None:
        """Mutations that were counted were refused for another reason."""
        applied = self._applied_to(QuotaKey.CONTROLLER_MUTATION_RATE, user, client_id)
        if applied is not None:
            self._mutation_bucket(applied[1], now_ms).take(-count, applied[0], now_ms)

    # Connections

    def connect(self, ip: str, now_ms: int) -> int:
        """Counts a connection from an address; returns 0, or after how long it must be closed, not counted."""
        ip = _address(ip)
        bound = self._ip_bounds.get(ip, self._ip_bounds.get(DEFAULT_NAME))
        if bound is None:
            return 0
        key = QuotaKey.CONNECTION_CREATION_RATE
        rate = self._rate((key, None, ip), now_ms)
        rate.add(1, now_ms)
        throttle_ms = _capped(key, rate.throttle_ms(bound, now_ms))
        if throttle_ms:
            rate.add(-1, now_ms)
        return throttle_ms

    def count_throttled(self, key: QuotaKey, throttle_ms: int) -> None:
        """A client was throttled for this time."""
        count = self.throttled[key]
        count.times += 1
        count.milliseconds += throttle_ms

    # Buckets

    @property
    def bucket_count(self) -> int:
        """Buckets in memory."""
        return len(self._rates) + len(self._mutations)

    def _applied_to(self, key: QuotaKey, user: str, client_id: str) -> tuple[float, _BucketId] | None:
        bounds = self._bounds.get(key)
        if bounds is None:
            return None
        question = (key, user, client_id if len(client_id) <= NAME_LENGTH_MAX else _shortened(client_id))
        if question in self._applied:
            return self._applied[question]
        found = _most_specific(bounds, user, client_id)
        applied = None
        if found is not None:
            bound, (of_user, of_client) = found
            applied = (
                bound,
                (key, user if of_user is not None else None, question[2] if of_client is not None else None),
            )
        if len(self._applied) >= self._buckets_max:
            self._applied.clear()
        self._applied[question] = applied
        return applied

    def _rate(self, bucket_id: _BucketId, now_ms: int) -> RateSamples:
        rate = self._rates.get(bucket_id)
        if rate is None:
            bucket_id = self._admitted(bucket_id, now_ms)
            rate = self._rates.get(bucket_id)
            if rate is None:
                rate = self._rates[bucket_id] = RateSamples()
        return rate

    def _mutation_bucket(self, bucket_id: _BucketId, now_ms: int) -> TokenBucket:
        bucket = self._mutations.get(bucket_id)
        if bucket is None:
            bucket_id = self._admitted(bucket_id, now_ms)
            bucket = self._mutations.get(bucket_id)
            if bucket is None:
                bucket = self._mutations[bucket_id] = TokenBucket()
        return bucket

    def _admitted(self, bucket_id: _BucketId, now_ms: int) -> _BucketId:
        """The bucket's id, or that of the bucket for all clients that have none of their own."""
        if self.bucket_count < self._buckets_max:
            return bucket_id
        if self._swept_ms is None or now_ms - self._swept_ms >= SAMPLE_MS:
            self._swept_ms = now_ms
            self._rates = {each: rate for each, rate in self._rates.items() if not rate.is_idle(now_ms)}
            self._mutations = {each: bucket for each, bucket in self._mutations.items() if not bucket.is_idle(now_ms)}
            if self.bucket_count < self._buckets_max:
                return bucket_id
        return bucket_id[0], None, None


_CLIENT_KEYS: Final = frozenset(QuotaKey) - {QuotaKey.CONNECTION_CREATION_RATE}


def _most_specific(bounds: Mapping[_Names, float], user: str, client_id: str) -> tuple[float, _Names] | None:
    for names in (
        (user, client_id),
        (user, DEFAULT_NAME),
        (user, None),
        (DEFAULT_NAME, client_id),
        (DEFAULT_NAME, DEFAULT_NAME),
        (DEFAULT_NAME, None),
        (None, client_id),
        (None, DEFAULT_NAME),
    ):
        bound = bounds.get(names)
        if bound is not None:
            return bound, names
    return None


def _shortened(name: str) -> str:
    return f"sha256:{sha256(name.encode(errors='surrogatepass')).hexdigest()}"


def _address(text: str) -> str:
    """One spelling for each address. IPv4 addresses that arrive on an IPv6 socket are IPv4 addresses."""
    try:
        found = ip_address(text.strip("[]").partition("%")[0])
    except ValueError:
        return text
    if isinstance(found, IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    return str(found)


def _capped(key: QuotaKey, throttle_ms: int) -> int:
    return min(throttle_ms, _THROTTLE_MS_MAX.get(key, THROTTLE_MS_MAX))
