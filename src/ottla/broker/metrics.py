"""The metrics of a broker for Prometheus, collected when they are asked for, so that they cost nothing otherwise.

Every part of the broker counts in plain attributes; here they are read, added up and named, as `docs/metrics.md` lists
them. Only `LoopLag` runs between two scrapes. `http_endpoint.py` serves them.
"""

import asyncio
from bisect import bisect_left
from collections import Counter as tally
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from ottla.broker.health import Health
from ottla.broker.requests.fetch_sessions import FetchSessions
from ottla.broker.requests.request_counts import RequestCounts
from ottla.broker.schema_validation.held_batches import HeldBatches
from ottla.broker.schema_validation.schema_ids import SchemaIds
from ottla.broker.share_metrics import collect_shares
from ottla.broker.telemetry.client_telemetry import ClientTelemetry
from ottla.broker.telemetry.exposition import collect_telemetry
from ottla.controller.active_controller import ActiveController
from ottla.coordination.groups.coordinator import GroupCoordinator
from ottla.coordination.runtime.shard import Shard
from ottla.coordination.share_partitions.share_fetching import ShareFetching
from ottla.coordination.transactions.coordinator import TransactionCoordinator
from ottla.env.ports import Clock
from ottla.metadata.image import NO_LEADER, ClusterImage
from ottla.model.errors import MisuseError
from ottla.model.ids import BrokerId
from ottla.protocol.apis import ApiKey
from ottla.queues.queue_shards import QueueShards
from ottla.replication.isr_proposals import IsrProposals
from ottla.replication.partition_table import PartitionTable
from ottla.replication.timers import Timers
from ottla.security.client_quotas import ClientQuotas
from ottla.storage.log_store import LogStore
from ottla.transport.listeners import Listeners
from ottla.transport.request_times import BOUNDS_SECONDS, FOLLOWER_FETCH
from ottla.version import __version__

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

TOPICS_MAX: Final = 200
"""Topics that have series of their own, the oldest first; the totals count all."""

GROUP_TOPICS_MAX: Final = 1000
"""Pairs of a group and a topic whose lag has a series of its own."""

_PARTITIONS_PER_BREATH: Final = 500
"""Partitions that are counted before the event loop may do something else."""

LAG_BOUNDS_SECONDS: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
_LAG_PERIOD_SECONDS: Final = 0.25


_API_NAMES: Final = {**{int(key): key.name.lower() for key in ApiKey}, FOLLOWER_FETCH: "fetch_by_follower"}


class LoopLag:
    """Measures how late the event loop is: four times a second, against the clock. `run` until cancelled."""

    __slots__ = ("_clock", "counts", "last_seconds", "sum_seconds")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.counts = [0] * (len(LAG_BOUNDS_SECONDS) + 1)
        """Measurements up to each bound and above the one before; the last above all bounds."""
        self.sum_seconds = 0.0
        self.last_seconds = 0.0

    async def run(self) -> None:
        """Measures until cancelled."""
        while True:
            due = self._clock.monotonic() + _LAG_PERIOD_SECONDS
            await self._clock.sleep(_LAG_PERIOD_SECONDS)
            self.add(self._clock.monotonic() - due)

    def add(self, seconds: float) -> None:
        """Counts one measurement."""
        seconds = max(seconds, 0.0)
        self.last_seconds = seconds
        self.sum_seconds += seconds
        self.counts[bisect_left(LAG_BOUNDS_SECONDS, seconds)] += 1


@dataclass(slots=True)
class TopicCounts:
    """One topic's partitions added up, or those of all topics."""

    partitions: int = 0
    appended_records: int = 0
    appended_bytes: int = 0
    fetched_bytes: int = 0
    copied_bytes: int = 0
    replicated_bytes: int = 0
    expired_records: int = 0
    log_bytes: int = 0

    def add(self, other: "TopicCounts") -> None:
        """Counts another one's together with these."""
        self.partitions += other.partitions
        self.log_bytes += other.log_bytes
        self.add_flow(other)

    def add_flow(self, other: "TopicCounts") -> None:
        """Only what passed through, without what is there."""
        self.appended_records += other.appended_records
        self.appended_bytes += other.appended_bytes
        self.fetched_bytes += other.fetched_bytes
        self.copied_bytes += other.copied_bytes
        self.replicated_bytes += other.replicated_bytes
        self.expired_records += other.expired_records


@dataclass(slots=True)
class PartitionCounts:
    """All partitions of the broker at one moment, more or less."""

    topics: dict[tuple[str, UUID], TopicCounts] = field(default_factory=dict)
    total: TopicCounts = field(default_factory=TopicCounts)
    led: int = 0
    under_replicated: int = 0
    under_min_isr: int = 0
    at_min_isr: int = 0
    without_leader: int = 0
    """In the whole cluster, where this broker is the controller."""
    waiting_fetches: int = 0


@dataclass(slots=True)
class GroupLag:
    """How far a group is behind in one topic, as far as this broker knows."""

    records: int = 0
    unknown_partitions: int = 0
    """Partitions that this broker has no replica of, so that it does not know their end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSources:
    """The parts of a broker that count something."""

    image: Callable[[], ClusterImage]
    partitions: PartitionTable
    logs: LogStore
    listeners: Listeners
    counts: RequestCounts
    fetch_sessions: FetchSessions
    timers: Timers
    isr_proposals: IsrProposals
    active_controller: ActiveController
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    share_fetching: ShareFetching
    queues: QueueShards
    schema_ids: SchemaIds
    held_batches: HeldBatches
    client_quotas: ClientQuotas
    telemetry: ClientTelemetry


class Metrics:
    """The metrics of one broker; exists before its parts do, since a long start can be watched."""

    def __init__(self, broker_id: BrokerId, clock: Clock, health: Health) -> None:
        self.lag = LoopLag(clock)
        self._broker_id = broker_id
        self._clock = clock
        self._health = health
        self._sources: MetricSources | None = None
        self._began = clock.monotonic()
        self._seen: dict[tuple[str, UUID], TopicCounts] = {}
        """The counts of the last scrape."""
        self._gone = TopicCounts()
        """The flow of deleted topics: a total must not go back."""
        self._registry: CollectorRegistry | None = None
        self._counts = PartitionCounts()
        self._lags: dict[tuple[str, str], GroupLag] = {}
        self._lags_left_out = 0

    def watch(self, sources: MetricSources) -> None:
        """From now on tells about these parts."""
        self._sources = sources

    def load(self) -> None:
        """Imports Prometheus's client, which only the HTTP endpoint needs; to be called before `text`."""
        from prometheus_client import CollectorRegistry
        from prometheus_client.process_collector import ProcessCollector

        self._registry = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=self._registry)
        self._registry.register(self)

    async def text(self) -> tuple[bytes, str]:
        """All metrics in Prometheus's text format, and its content type. Yields to the event loop meanwhile."""
        from prometheus_client import generate_latest
        from prometheus_client.exposition import CONTENT_TYPE_LATEST

        if self._registry is None:
            raise MisuseError("call load() before text()")
        if self._sources is not None:
            self._counts = await self._count_partitions(self._sources)
            await self._measure_lags(self._sources)
        return generate_latest(self._registry), CONTENT_TYPE_LATEST

    async def _count_partitions(self, sources: MetricSources) -> PartitionCounts:
        """Adds up what the partitions have counted."""
        counts = PartitionCounts()
        waiters: set[object] = set()
        for at, partition in enumerate(list(sources.partitions.held.values())):
            if at % _PARTITIONS_PER_BREATH == _PARTITIONS_PER_BREATH - 1:
                await asyncio.sleep(0)
            log = partition.log
            topic = counts.topics.setdefault((partition.topic, partition.topic_id), TopicCounts())
            topic.partitions += 1
            topic.appended_records += partition.appended_records
            topic.appended_bytes += partition.appended_bytes
            topic.fetched_bytes += partition.fetched_bytes
            topic.copied_bytes += partition.copied_bytes
            topic.replicated_bytes += partition.replicated_bytes
            topic.expired_records += partition.expired_records
            topic.log_bytes += log.size_bytes
            leader = partition.leader
            if leader is not None:
                in_sync = len(leader.isr)
                counts.led += 1
                counts.under_replicated += in_sync < len(leader.replicas)
                counts.under_min_isr += partition.is_short
                counts.at_min_isr += in_sync == partition.effective_min_isr
            waiters.update(partition.fetch_waiters)
        counts.waiting_fetches = len(waiters)
        if sources.active_controller.is_active:
            for at, image in enumerate(list(sources.image().topics.values())):
                if at % _PARTITIONS_PER_BREATH == _PARTITIONS_PER_BREATH - 1:
                    await asyncio.sleep(0)
                counts.without_leader += sum(each.leader == NO_LEADER for each in image.partitions)
        for key, seen in self._seen.items():
            if key not in counts.topics:
                self._gone.add_flow(seen)
        self._seen = counts.topics
        for topic in counts.topics.values():
            counts.total.add(topic)
        counts.total.add_flow(self._gone)
        return counts

    async def _measure_lags(self, sources: MetricSources) -> None:
        """Compares the committed offsets of the groups coordinated here with the high watermarks known here."""
        lags: dict[tuple[str, str], GroupLag] = {}
        left_out: set[tuple[str, str]] = set()
        seen = 0
        for shard in sources.groups.shards():
            offsets = shard.machine.offsets
            for group in offsets.group_ids():
                for where in offsets.partitions(group):
                    seen += 1
                    if seen % _PARTITIONS_PER_BREATH == 0:
                        await asyncio.sleep(0)
                    key = group, where.topic
                    if key not in lags and len(lags) >= GROUP_TOPICS_MAX:
                        left_out.add(key)
                        continue
                    committed = offsets.get(group, where)
                    if committed is None:
                        continue
                    lag = lags.setdefault(key, GroupLag())
                    partition = sources.partitions.held.get(where)
                    if partition is None:
                        lag.unknown_partitions += 1
                    else:
                        lag.records += max(partition.high_watermark - committed.offset, 0)
        self._lags, self._lags_left_out = lags, len(left_out)

    # What the registry asks for

    def collect(self) -> "Iterator[Metric]":
        """Every metric family, from the last partition counts and the broker as it is now."""
        from prometheus_client.core import GaugeMetricFamily as Gauge
        from prometheus_client.core import InfoMetricFamily

        sources = self._sources
        yield InfoMetricFamily(
            "ottla_build",
            "Version of Ottla and id of the broker.",
            value={"version": __version__, "broker": str(self._broker_id)},
        )
        uptime = self._clock.monotonic() - self._began
        yield Gauge("ottla_uptime_seconds", "Time since the broker began to start.", value=uptime)
        yield Gauge("ottla_ready", "1 while the broker serves clients.", value=int(self._health.is_ready))
        yield from self._collect_lag()
        if sources is None:
            return
        is_active = sources.active_controller.is_active
        yield Gauge("ottla_active_controller", "1 if this broker is the controller.", value=int(is_active))
        yield Gauge("ottla_brokers", "Brokers registered in the cluster.", value=len(sources.image().brokers))
        yield from _collect_requests(sources.counts)
        yield from _collect_schema_validation(sources)
        yield from _collect_times(sources.listeners)
        yield from _collect_connections(sources.listeners)
        yield from _collect_quotas(sources.client_quotas)
        yield from self._collect_partitions(sources)
        yield from self._collect_topics()
        yield from self._collect_waiting(sources)
        yield from _collect_coordinators(sources)
        yield from collect_shares(sources.share_fetching)
        yield from _collect_queues(sources.queues)
        yield from self._collect_group_lags()
        yield from collect_telemetry(sources.telemetry)

    def _collect_partitions(self, sources: MetricSources) -> "Iterator[Metric]":
        from prometheus_client.core import CounterMetricFamily as Counter
        from prometheus_client.core import GaugeMetricFamily as Gauge

        counts, total = self._counts, self._counts.total
        yield Gauge("ottla_topics", "Topics with a partition on this broker.", value=len(counts.topics))
        yield Gauge("ottla_partitions", "Partitions with a replica on this broker.", value=total.partitions)
        yield Gauge("ottla_partitions_led", "Partitions that this broker leads.", value=counts.led)
        yield Counter("ottla_appended_records", "Records appended by producers.", value=total.appended_records)
        yield Counter("ottla_appended_bytes", "Bytes of batches appended by producers.", value=total.appended_bytes)
        yield Counter("ottla_fetched_bytes", "Bytes of batches sent to consumers.", value=total.fetched_bytes)
        yield Counter("ottla_expired_records", "Records that expired by their TTL.", value=total.expired_records)
        yield Counter("ottla_replication_in_bytes", "Bytes copied from leaders.", value=total.copied_bytes)
        yield Counter("ottla_replication_out_bytes", "Bytes sent to followers.", value=total.replicated_bytes)
        yield Gauge("ottla_log_bytes", "Size of all logs.", value=total.log_bytes)
        yield Gauge(
            "ottla_partitions_under_replicated",
            "Partitions led here with fewer in-sync replicas than replicas.",
            value=counts.under_replicated,
        )
        yield Gauge(
            "ottla_partitions_at_min_isr",
            "Partitions led here with exactly min.insync.replicas replicas in sync.",
            value=counts.at_min_isr,
        )
        yield Gauge(
            "ottla_cluster_partitions_without_leader",
            "Partitions of the cluster without a leader, as known to the controller.",
            value=counts.without_leader,
        )
        proposals = sources.isr_proposals
        yield Counter(
            "ottla_isr_shrinks", "Removals of replicas from the ISRs of partitions led here.", value=proposals.shrinks
        )
        yield Counter(
            "ottla_isr_expansions",
            "Returns of replicas to the ISRs of partitions led here.",
            value=proposals.expansions,
        )
        yield Gauge(
            "ottla_partitions_under_min_isr",
            "Partitions with fewer replicas in sync than min.insync.replicas.",
            value=counts.under_min_isr,
        )
        offline = len(self._health.offline_partitions())
        yield Gauge("ottla_partitions_offline", "Partitions whose log cannot be used.", value=offline)
        yield Gauge(
            "ottla_coordinator_partitions_failed",
            "Partitions of __consumer_offsets and __transaction_state that cannot be loaded; their groups and"
            " transactional ids have no coordinator.",
            value=sum(each.failure is not None for each in _shards(sources)),
        )
        damaged = len(self._health.damaged_partitions())
        yield Gauge("ottla_partitions_damaged", "Partitions with a corrupt batch in their log.", value=damaged)
        dirs = Gauge("ottla_data_dir_failed", "1 if the data dir cannot be used.", labels=["dir"])
        for folder in sources.logs.dirs:
            dirs.add_metric([folder.path], int(folder.failure is not None))
        yield dirs

    def _collect_topics(self) -> "Iterator[Metric]":
        from prometheus_client.core import CounterMetricFamily as Counter
        from prometheus_client.core import GaugeMetricFamily as Gauge

        topics = [(name, counts) for (name, _), counts in self._counts.topics.items()]
        shown, left_out = topics[:TOPICS_MAX], max(len(topics) - TOPICS_MAX, 0)
        families: list[tuple[Any, str]] = [
            (Gauge("ottla_topic_partitions", "Partitions of the topic here.", labels=["topic"]), "partitions"),
            (
                Counter("ottla_topic_appended_records", "Records appended, by topic.", labels=["topic"]),
                "appended_records",
            ),
            (Counter("ottla_topic_appended_bytes", "Bytes appended, by topic.", labels=["topic"]), "appended_bytes"),
            (Counter("ottla_topic_fetched_bytes", "Bytes fetched, by topic.", labels=["topic"]), "fetched_bytes"),
            (Counter("ottla_topic_replication_in_bytes", "Bytes copied, by topic.", labels=["topic"]), "copied_bytes"),
            (Counter("ottla_topic_expired_records", "Records expired, by topic.", labels=["topic"]), "expired_records"),
            (Gauge("ottla_topic_log_bytes", "Size of the topic's logs here.", labels=["topic"]), "log_bytes"),
        ]
        for family, attribute in families:
            for name, counts in shown:
                family.add_metric([name], getattr(counts, attribute))
            yield family
        yield Gauge(
            "ottla_topics_without_series",
            f"Topics beyond the first {TOPICS_MAX}, which have no series of their own; the totals count them.",
            value=left_out,
        )

    def _collect_waiting(self, sources: MetricSources) -> "Iterator[Metric]":
        from prometheus_client.core import CounterMetricFamily as Counter
        from prometheus_client.core import GaugeMetricFamily as Gauge

        yield Gauge("ottla_fetches_waiting", "Fetches that wait for records.", value=self._counts.waiting_fetches)
        sessions = sources.fetch_sessions
        yield Gauge("ottla_fetch_sessions", "Fetch sessions that are open.", value=len(sessions))
        yield Gauge("ottla_fetch_sessions_max", "Fetch sessions that may be open.", value=sessions.slots_max)
        yield Counter("ottla_fetch_sessions_evicted", "Fetch sessions evicted for new ones.", value=sessions.evicted)
        yield Gauge("ottla_timers", "Pending deadlines.", value=len(sources.timers))

    def _collect_group_lags(self) -> "Iterator[Metric]":
        from prometheus_client.core import GaugeMetricFamily as Gauge

        labels = ["group", "topic"]
        behind = Gauge("ottla_consumer_group_lag", "Records behind the high watermark.", labels=labels)
        unknown = Gauge("ottla_consumer_group_lag_unknown_partitions", "Partitions left out of the lag.", labels=labels)
        for key, lag in self._lags.items():
            behind.add_metric(key, lag.records)
            if lag.unknown_partitions:
                unknown.add_metric(key, lag.unknown_partitions)
        yield behind
        yield unknown
        yield Gauge(
            "ottla_consumer_group_lags_without_series",
            f"Pairs of group and topic beyond the first {GROUP_TOPICS_MAX}, which have no series.",
            value=self._lags_left_out,
        )

    def _collect_lag(self) -> "Iterator[Metric]":
        from prometheus_client.core import GaugeMetricFamily as Gauge
        from prometheus_client.core import HistogramMetricFamily

        lag = self.lag
        yield Gauge("ottla_loop_lag_last_seconds", "Last measured delay of the event loop.", value=lag.last_seconds)
        buckets = _buckets(LAG_BOUNDS_SECONDS, lag.counts)
        yield HistogramMetricFamily(
            "ottla_loop_lag_seconds", "Delay of the event loop.", buckets=buckets, sum_value=lag.sum_seconds
        )


def _collect_queues(queues: QueueShards) -> "Iterator[Metric]":
    from prometheus_client.core import CounterMetricFamily as Counter
    from prometheus_client.core import GaugeMetricFamily as Gauge

    labels = ["kind", "topic"]
    parked = Gauge("ottla_queue_parked_records", "Records that a queue still has to deliver.", labels=labels)
    due = Gauge("ottla_queue_due_records", "Records that are due and wait for their delivery.", labels=labels)
    late = Gauge("ottla_queue_late_seconds", "How long the oldest record that is due has waited.", labels=labels)
    counters = {
        name: Counter(f"ottla_queue_{name}", what, labels=labels)
        for name, what in (
            ("delivered_records", "Records that were delivered."),
            ("dead_records", "Records that became dead letters."),
            ("dropped_records", "Records that were cancelled or rolled back before they were delivered."),
            ("asked_records", "Questions about half messages without a decision."),
            ("contradicted_decisions", "Decisions about half messages that contradict an earlier one."),
            ("unmatched_decisions", "Decisions about half messages that no partition knows."),
            ("failed_deliveries", "Deliveries that failed and were retried."),
        )
    }
    gauges: dict[tuple[str, str], list[float]] = {}
    for shard in queues:
        found = gauges.setdefault((shard.kind.name, shard.name.topic), [0, 0, 0])
        found[0] += shard.parked
        found[1] += shard.due
        found[2] = max(found[2], shard.late_by_ms() / 1000)
    for key, values in list(gauges.items())[:TOPICS_MAX]:
        for gauge, value in zip((parked, due, late), values, strict=True):
            gauge.add_metric(list(key), value)
    for key, counts in list(queues.totals().items())[:TOPICS_MAX]:
        shown = (
            counts.delivered,
            counts.dead,
            counts.dropped,
            counts.asked,
            counts.contradicted,
            counts.unmatched,
            counts.failed_attempts,
        )
        for counter, count in zip(counters.values(), shown, strict=True):
            counter.add_metric(list(key), count)
    yield from (parked, due, late, *counters.values())


def _collect_requests(counts: RequestCounts) -> "Iterator[Metric]":
    from prometheus_client.core import CounterMetricFamily as Counter

    requests = Counter(
        "ottla_requests",
        "Requests served, by API and version; unknown APIs are counted together.",
        labels=["api", "version"],
    )
    for (api_key, version), count in sorted(counts.by_api.items()):
        if count:
            requests.add_metric([ApiKey(api_key).name.lower(), str(version)], count)
    if counts.unknown:
        requests.add_metric(["unknown", ""], counts.unknown)
    yield requests
    yield Counter(
        "ottla_produce_failed",
        "Partitions of Produce requests answered with an error.",
        value=counts.failed_produces,
    )
    yield Counter(
        "ottla_fetch_failed",
        "Partitions of Fetch requests answered with an error.",
        value=counts.failed_fetches,
    )


def _collect_schema_validation(sources: MetricSources) -> "Iterator[Metric]":
    from prometheus_client.core import CounterMetricFamily as Counter
    from prometheus_client.core import GaugeMetricFamily as Gauge

    refused = Counter(
        "ottla_schema_validation_refused_batches",
        "Batches refused by schema validation: invalid, or unchecked because the registry did not answer.",
        labels=["topic", "reason"],
    )
    for (topic, reason), count in list(sources.schema_ids.refused_batches.items())[: 2 * TOPICS_MAX]:
        refused.add_metric([topic, reason], count)
    lookups = Counter(
        "ottla_schema_validation_lookups",
        "Schema ids looked up in the registry, by result: valid, invalid or failed.",
        labels=["result"],
    )
    for result, count in sources.schema_ids.lookups.items():
        lookups.add_metric([result], count)
    yield refused
    yield lookups
    yield Gauge(
        "ottla_schema_validation_held_bytes",
        "Bytes of batches that wait for the schema registry.",
        value=sources.held_batches.bytes,
    )


def _collect_times(listeners: Listeners) -> "Iterator[Metric]":
    from prometheus_client.core import HistogramMetricFamily

    family = HistogramMetricFamily(
        "ottla_request_seconds", "Time from receiving a request to its response.", labels=["api"]
    )
    for api_key, histogram in listeners.times.by_api.items():
        if any(histogram.counts):
            buckets = _buckets(BOUNDS_SECONDS, histogram.counts)
            family.add_metric([_API_NAMES.get(api_key, "unknown")], buckets, histogram.sum_seconds)
    yield family


def _collect_connections(listeners: Listeners) -> "Iterator[Metric]":
    from prometheus_client.core import CounterMetricFamily as Counter
    from prometheus_client.core import GaugeMetricFamily as Gauge

    open_now = list(listeners.connections)
    received = listeners.bytes_in + sum(each.bytes_in for each in open_now)
    sent = listeners.bytes_out + sum(each.bytes_out for each in open_now)
    yield Counter("ottla_received_bytes", "Bytes received from clients.", value=received)
    yield Counter("ottla_sent_bytes", "Bytes sent to clients.", value=sent)
    yield Gauge("ottla_connections", "Connections that are open.", value=len(open_now))
    yield Counter("ottla_connections_accepted", "Connections accepted.", value=listeners.accepted)
    yield Counter("ottla_connections_refused", "Connections refused by a limit.", value=listeners.refused)
    yield Counter("ottla_connections_stalled", "Connections closed for a stalled request.", value=listeners.stalled)
    yield Counter(
        "ottla_tls_handshakes_failed", "TLS handshakes that did not complete.", value=listeners.failed_handshakes
    )
    yield Gauge("ottla_tls_handshakes_under_way", "TLS handshakes under way.", value=len(listeners.handshakes))
    logins = Counter(
        "ottla_logins", "Logins and re-authentications with SASL.", labels=["listener", "mechanism", "outcome"]
    )
    counts = listeners.logins.counts
    for outcome, counted in (("succeeded", counts.succeeded), ("failed", counts.failed)):
        for (listener, mechanism), count in counted.items():
            logins.add_metric([listener, mechanism, outcome], count)
    yield logins
    yield Gauge("ottla_logins_under_way", "Connections that have not logged in yet.", value=len(listeners.logins))
    memory = listeners.receive_memory
    yield Gauge("ottla_receive_memory_bytes", "Memory used by large requests.", value=memory.lent_bytes)
    yield Gauge("ottla_receive_memory_max_bytes", "The limit of that memory.", value=memory.bytes_max)
    yield Gauge("ottla_receive_memory_waiting", "Connections that wait for memory.", value=memory.waiting)


def _collect_quotas(quotas: ClientQuotas) -> "Iterator[Metric]":
    from prometheus_client.core import CounterMetricFamily as Counter
    from prometheus_client.core import GaugeMetricFamily as Gauge

    times = Counter("ottla_quota_throttled", "Requests and connections throttled, by quota.", labels=["quota"])
    seconds = Counter("ottla_quota_throttle_seconds", "Sum of throttle times, by quota.", labels=["quota"])
    for key, count in quotas.throttled.items():
        times.add_metric([key.value], count.times)
        seconds.add_metric([key.value], count.milliseconds / 1000)
    yield times
    yield seconds
    yield Gauge("ottla_quota_buckets", "Clients whose use of a quota is counted.", value=quotas.bucket_count)


def _collect_coordinators(sources: MetricSources) -> "Iterator[Metric]":
    from prometheus_client.core import GaugeMetricFamily as Gauge

    groups, transactions = sources.groups.shards(), sources.transactions.shards()
    kinds = tally((each.type, each.state) for shard in groups for each in shard.machine.list_groups())
    states = tally((entry.status.wire_name,) for each in transactions for entry in each.machine.entries.values())
    loading = tally((each.partition.topic,) for each in _shards(sources) if not each.is_active)
    for counts, family in (
        (kinds, Gauge("ottla_groups", "Consumer groups coordinated here.", labels=["type", "state"])),
        (states, Gauge("ottla_transactions", "Transactional ids coordinated here.", labels=["state"])),
        (loading, Gauge("ottla_coordinators_loading", "Coordinators being read from disk.", labels=["topic"])),
    ):
        for labels, count in sorted(counts.items()):
            family.add_metric(labels, count)
        yield family


def _shards(sources: MetricSources) -> list[Shard[Any]]:
    return [*sources.groups.shards(), *sources.transactions.shards()]


def _buckets(bounds: Sequence[float], counts: Sequence[int]) -> list[tuple[str, float]]:
    """Cumulative counts by bound, as Prometheus wants them."""
    return list(zip([*map(str, bounds), "+Inf"], accumulate(counts), strict=True))
