"""The metrics of share groups on this broker, as `docs/metrics.md` lists them; `metrics.py` has all others."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from ottla.coordination.share_partitions.share_fetching import ShareFetching
from ottla.coordination.share_partitions.share_partition_state import AcknowledgeType

if TYPE_CHECKING:
    from prometheus_client.core import Metric

_COUNTERS: Final = (
    ("acquired_records", "acquired", "Deliveries of records to members of share groups."),
    ("redelivered_records", "redelivered", "Deliveries of records that were delivered before."),
    ("locks_expired_records", "locks_expired", "Records whose lock expired before they were acknowledged."),
    ("delivery_limit_records", "limit_reached", "Records that reached the limit of deliveries."),
    ("dead_records", "dead_letters", "Records that were written to a dead-letter topic."),
    ("dead_records_failed", "dead_letters_failed", "Records archived whose dead letter could not be written."),
    ("dead_letter_retries", "dead_letter_retries", "Writes of dead letters that failed and were retried."),
    ("fetches", "fetches", "Reads of a partition that gave records to a member."),
    ("fetched_bytes", "fetched_bytes", "Bytes of batches read for members."),
    ("acknowledgements_refused", "acknowledgements_refused", "Acknowledgements of a partition that were refused."),
)
"""Name, attribute of the counts, and what it is."""


def collect_shares(fetching: ShareFetching) -> "Iterator[Metric]":
    """Every metric family of share groups."""
    from prometheus_client.core import CounterMetricFamily as Counter
    from prometheus_client.core import GaugeMetricFamily as Gauge

    partitions = fetching.partitions
    counts = partitions.counts
    yield Gauge("ottla_share_sessions", "Share sessions that are open.", value=len(fetching.sessions))
    yield Gauge("ottla_share_partitions", "Share-partitions in memory.", value=len(partitions))
    yield Gauge(
        "ottla_share_in_flight_records",
        "Offsets between the start offset and the end of what was delivered.",
        value=partitions.in_flight,
    )
    acknowledged = Counter("ottla_share_acknowledged_records", "Records acknowledged, by type.", labels=["type"])
    for each in AcknowledgeType:
        acknowledged.add_metric([each.name.lower()], counts.acknowledged[each])
    yield acknowledged
    for name, attribute, what in _COUNTERS:
        yield Counter(f"ottla_share_{name}", what, value=getattr(counts, attribute))
