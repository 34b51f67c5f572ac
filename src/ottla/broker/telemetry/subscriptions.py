"""Which metrics a client is asked for: all subscriptions that match it, combined. Pure."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

from ottla.metadata.configs.client_metrics_configs import (
    INTERVAL_MS,
    INTERVAL_MS_DEFAULT,
    MATCH,
    METRICS,
    parse_match,
)
from ottla.metadata.configs.definition import split_list
from ottla.model.base64_ids import id_text
from ottla.model.errors import OttlaError
from ottla.model.re2_patterns import Pattern
from ottla.records.batch import crc32c

ALL_METRICS: Final = "*"
_LOGGER: Final = logging.getLogger(__name__)
_INT_MAX: Final = 2**31 - 1
_WORD: Final = 2**32
_LONG_MASK: Final = 2**64 - 1


class TelemetryClient(NamedTuple):
    """What is known of a client that subscriptions choose by."""

    instance_id: UUID
    client_id: str | None
    software_name: str
    software_version: str
    address: str
    port: str

    def attributes(self) -> dict[str, str | None]:
        """By the keys of the `match` config."""
        return {
            "client_instance_id": id_text(self.instance_id),
            "client_id": self.client_id,
            "client_software_name": self.software_name,
            "client_software_version": self.software_version,
            "client_source_address": self.address,
            "client_source_port": self.port,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """One client metrics resource."""

    metrics: tuple[str, ...]
    interval_ms: int
    match: Mapping[str, Pattern]
    """Compiled patterns by key; all must match the whole attribute."""

    def matches(self, attributes: Mapping[str, str | None]) -> bool:
        """Whether the subscription is for a client with these attributes."""
        return all(
            (found := attributes[key]) is not None and pattern.matches(found) for key, pattern in self.match.items()
        )


class WantedMetrics(NamedTuple):
    """What one client is asked for."""

    metrics: tuple[str, ...]
    """Prefixes of names, sorted; `*` alone for all metrics, none if no subscription matches."""
    interval_ms: int
    subscription_id: int


def read_subscriptions(resources: Mapping[str, Mapping[str, str]]) -> tuple[Subscription, ...]:
    """The subscriptions of the cluster. One that this version does not understand is left out."""
    found = []
    for name, configs in sorted(resources.items()):
        try:
            found.append(
                Subscription(
                    metrics=split_list(configs.get(METRICS, "")),
                    interval_ms=int(configs.get(INTERVAL_MS, INTERVAL_MS_DEFAULT)),
                    match=parse_match(configs.get(MATCH, "")),
                )
            )
        except (OttlaError, ValueError) as error:
            _LOGGER.warning("ignoring the client metrics subscription %s: %s", name[:100], error)
    return tuple(found)


def wanted_metrics(client: TelemetryClient, subscriptions: Iterable[Subscription]) -> WantedMetrics:
    """The union of the metrics of all matching subscriptions, with their shortest interval."""
    attributes = client.attributes()
    metrics: set[str] = set()
    interval_ms = INTERVAL_MS_DEFAULT
    for each in subscriptions:
        if each.matches(attributes):
            metrics.update(each.metrics)
            interval_ms = min(interval_ms, each.interval_ms)
    chosen = (ALL_METRICS,) if ALL_METRICS in metrics else tuple(sorted(metrics))
    return WantedMetrics(chosen, interval_ms, _subscription_id(chosen, interval_ms, client.instance_id))


def _subscription_id(metrics: tuple[str, ...], interval_ms: int, instance_id: UUID) -> int:
    """As Kafka computes it: equal for equal subscriptions, different for each client."""
    checksum = crc32c(f"[{', '.join(metrics)}]{interval_ms}".encode())
    folded = (instance_id.int >> 64) ^ (instance_id.int & _LONG_MASK)
    found = checksum ^ (folded >> 32) ^ (folded & (_WORD - 1))
    return found - _WORD if found > _INT_MAX else found
