"""The broker's numbers as Prometheus reads them: looked up when somebody asks, so that they cost nothing otherwise.

Every part of the broker counts for itself in plain attributes; here they are read, added up and named, as
`docs/metrics.md` lists them. The only thing that runs between two scrapes is `LoopLag`. How they are served is
`http_endpoint.py`.
"""

import asyncio
from bisect import bisect_left
from collections import Counter as tally
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from ottla.coordination.runtime.shard import Shard
from ottla.env.ports import Clock
from ottla.metadata.image import NO_LEADER, ClusterImage
from ottla.model.errors import MisuseError
from ottla.protocol.apis import ApiKey
from ottla.transport.request_times import BOUNDS_SECONDS, FOLLOWER_FETCH
from ottla.version import __version__

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

    from ottla.broker.broker import Broker

TOPICS_MAX: Final = 200
"""Topics that have series of their own, the oldest first; the totals count all."""

GROUP_TOPICS_MAX: Final = 1000
"""Pairs of a group and a topic whose lag has a series of its own."""

_PARTITIONS_PER_BREATH: Final = 500
"""After so many the event loop may do something else."""

LAG_BOUNDS_SECONDS: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
_LAG_PERIOD_SECONDS: Final = 0.25


_API_NAMES: Final = {**{int(key): key.name.lower() for key in ApiKey}, FOLLOWER_FETCH: "fetch_by_follower"}


class LoopLag:
    """Measures how late the event loop is: four times a second, against the clock. `run` until cancelled."""

    __slots__ = ("_clock", "counts", "last_seconds", "sum_seconds")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.counts = [0] * (len(LAG_BOUNDS_SECONDS) + 1)
        """How many measurements lie up to each bound and above the one before; the last, above all."""
        self.sum_seconds = 0.0
        self.last_seconds = 0.0

    async def run(self) -> None:
        """Measures for ever."""
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


class Metrics:
    """See the module's docstring. Works as far as the broker has been started."""

    def __init__(self, broker: "Broker", lag: LoopLag) -> None:
        self._broker = broker
        self._lag = lag
        self._began = broker.clock.monotonic()
        self._seen: dict[tuple[str, UUID], TopicCounts] = {}
        """As they were at the last scrape."""
        self._gone = TopicCounts()
        """What passed through topics that are deleted: a total must not go back."""
        self._registry: CollectorRegistry | None = None
        self._counts = PartitionCounts()
        self._lags: dict[tuple[str, str], GroupLag] = {}
        self._lags_left_out = 0

    def load(self) -> None:
        """Imports Prometheus's client, which a broker without the endpoint does not need; call it before `text`."""
        from prometheus_client import CollectorRegistry
        from prometheus_client.process_collector import ProcessCollector

        self._registry = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=self._registry)
        self._registry.register(self)

    async def text(self) -> tuple[bytes, str]:
        """All metrics in Prometheus's text format, and its content type. Lets others run meanwhile."""
        from prometheus_client import generate_latest
        from prometheus_client.exposition import CONTENT_TYPE_LATEST

        if self._registry is None:
            raise MisuseError("the metrics are asked for before they were loaded")
        self._counts = await self.count_partitions()
        await self._measure_lags()
        return generate_latest(self._registry), CONTENT_TYPE_LATEST

    async def count_partitions(self) -> PartitionCounts:
        """Adds up what the partitions have counted."""
        counts = PartitionCounts()
        waiters: set[object] = set()
        for at, partition in enumerate(list(self._broker.partitions.held.values())):
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
            topic.log_bytes += log.size_bytes
            leader = partition.leader
            if leader is not None:
                in_sync = len(leader.isr)
                counts.led += 1
                counts.under_replicated += in_sync < len(leader.replicas)
                counts.under_min_isr += partition.is_short
                counts.at_min_isr += in_sync == leader.effective_min_isr
            waiters.update(partition.fetch_waiters)
        counts.waiting_fetches = len(waiters)
        if self._is_controller:
            for at, image in enumerate(list(self._broker.image.topics.values())):
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

    @property
    def _is_controller(self) -> bool:
        office = getattr(self._broker, "office", None)
        return office is not None and office.is_held

    async def _measure_lags(self) -> None:
        """Compares the committed offsets of the groups coordinated here with the high watermarks known here."""
        lags: dict[tuple[str, str], GroupLag] = {}
        left_out: set[tuple[str, str]] = set()
        seen = 0
        groups = self._broker.groups.shards() if hasattr(self._broker, "groups") else []
        for shard in groups:
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
                    partition = self._broker.partitions.held.get(where)
                    if partition is None:
                        lag.unknown_partitions += 1
                    else:
                        lag.records += max(partition.high_watermark - committed.offset, 0)
        self._lags, self._lags_left_out = lags, len(left_out)

    # What the registry asks for

    def collect(self) -> "Iterator[Metric]":
        """Every family, from the counts taken last and the broker as it is."""
        from prometheus_client.core import GaugeMetricFamily as Gauge
        from prometheus_client.core import InfoMetricFamily

        broker = self._broker
        yield InfoMetricFamily(
            "ottla_build", "What is running.", value={"version": __version__, "broker": str(broker.id)}
        )
        uptime = broker.clock.monotonic() - self._began
        yield Gauge("ottla_uptime_seconds", "Time since the broker began to start.", value=uptime)
        yield Gauge("ottla_ready", "1 while the broker serves clients.", value=int(broker.is_ready))
        yield Gauge("ottla_active_controller", "1 if this broker is the controller.", value=int(self._is_controller))
        image = getattr(broker, "image", ClusterImage())
        yield Gauge("ottla_brokers", "Brokers registered in the cluster.", value=len(image.brokers))
        yield from self._collect_requests()
        yield from self._collect_times()
        yield from self._collect_connections()
        yield from self._collect_partitions()
        yield from self._collect_topics()
        yield from self._collect_waiting()
        yield from self._collect_coordinators()
        yield from self._collect_group_lags()
        yield from self._collect_lag()

    def _collect_requests(self) -> "Iterator[Metric]":
        from prometheus_client.core import CounterMetricFamily as Counter

        dispatch = getattr(self._broker, "dispatch", None)
        requests = Counter(
            "ottla_requests", "Requests served, by API and version; unknown ones together.", labels=["api", "version"]
        )
        if dispatch is not None:
            for (api_key, version), count in sorted(dispatch.requests.items()):
                if count:
                    requests.add_metric([ApiKey(api_key).name.lower(), str(version)], count)
            if dispatch.unknown_requests:
                requests.add_metric(["unknown", ""], dispatch.unknown_requests)
        yield requests
        yield Counter(
            "ottla_produce_failed",
            "Partitions of Produce requests answered with an error.",
            value=self._broker.failed_produces,
        )
        yield Counter(
            "ottla_fetch_failed",
            "Partitions of Fetch requests answered with an error.",
            value=self._broker.failed_fetches,
        )

    def _collect_times(self) -> "Iterator[Metric]":
        from prometheus_client.core import HistogramMetricFamily

        family = HistogramMetricFamily(
            "ottla_request_seconds", "Time from receiving a request to its response.", labels=["api"]
        )
        listener = getattr(self._broker, "listener", None)
        for api_key, histogram in listener.times.by_api.items() if listener is not None else ():
            if any(histogram.counts):
                buckets = _buckets(BOUNDS_SECONDS, histogram.counts)
                family.add_metric([_API_NAMES.get(api_key, "unknown")], buckets, histogram.sum_seconds)
        yield family

    def _collect_connections(self) -> "Iterator[Metric]":
        from prometheus_client.core import CounterMetricFamily as Counter
        from prometheus_client.core import GaugeMetricFamily as Gauge

        listener = getattr(self._broker, "listener", None)
        if listener is None:
            return
        open_now = list(listener.connections)
        received = listener.bytes_in + sum(each.bytes_in for each in open_now)
        sent = listener.bytes_out + sum(each.bytes_out for each in open_now)
        yield Counter("ottla_received_bytes", "Bytes received from clients.", value=received)
        yield Counter("ottla_sent_bytes", "Bytes sent to clients.", value=sent)
        yield Gauge("ottla_connections", "Connections that are open.", value=len(open_now))
        yield Counter("ottla_connections_accepted", "Connections accepted.", value=listener.accepted)
        yield Counter("ottla_connections_refused", "Connections refused by a limit.", value=listener.refused)
        yield Counter("ottla_connections_stalled", "Connections closed for a stalled request.", value=listener.stalled)
        memory = listener.receive_memory
        yield Gauge("ottla_receive_memory_bytes", "Memory that holds large requests.", value=memory.lent_bytes)
        yield Gauge("ottla_receive_memory_max_bytes", "The bound of that memory.", value=memory.bytes_max)
        yield Gauge("ottla_receive_memory_waiting", "Connections that wait for memory.", value=memory.waiting)

    def _collect_partitions(self) -> "Iterator[Metric]":
        from prometheus_client.core import CounterMetricFamily as Counter
        from prometheus_client.core import GaugeMetricFamily as Gauge

        counts, total = self._counts, self._counts.total
        yield Gauge("ottla_topics", "Topics with a partition on this broker.", value=len(counts.topics))
        yield Gauge("ottla_partitions", "Partitions with a replica on this broker.", value=total.partitions)
        yield Gauge("ottla_partitions_led", "Partitions that this broker leads.", value=counts.led)
        yield Counter("ottla_appended_records", "Records appended by producers.", value=total.appended_records)
        yield Counter("ottla_appended_bytes", "Bytes of batches appended by producers.", value=total.appended_bytes)
        yield Counter("ottla_fetched_bytes", "Bytes of batches handed to consumers.", value=total.fetched_bytes)
        yield Counter("ottla_replication_in_bytes", "Bytes copied from leaders.", value=total.copied_bytes)
        yield Counter("ottla_replication_out_bytes", "Bytes handed to followers.", value=total.replicated_bytes)
        yield Gauge("ottla_log_bytes", "Size of all logs.", value=total.log_bytes)
        yield Gauge(
            "ottla_partitions_under_replicated",
            "Partitions led here with fewer replicas in sync than they have.",
            value=counts.under_replicated,
        )
        yield Gauge(
            "ottla_partitions_at_min_isr",
            "Partitions led here with exactly min.insync.replicas replicas in sync.",
            value=counts.at_min_isr,
        )
        yield Gauge(
            "ottla_cluster_partitions_without_leader",
            "Partitions of the cluster without a leader, told by the controller.",
            value=counts.without_leader,
        )
        changes = getattr(self._broker, "isr_changes", None)
        shrinks, expansions = (changes.shrinks, changes.expansions) if changes is not None else (0, 0)
        yield Counter("ottla_isr_shrinks", "Replicas' removals from ISRs led here.", value=shrinks)
        yield Counter("ottla_isr_expansions", "Replicas' returns to ISRs led here.", value=expansions)
        yield Gauge(
            "ottla_partitions_under_min_isr",
            "Partitions with fewer replicas in sync than min.insync.replicas asks for.",
            value=counts.under_min_isr,
        )
        store = getattr(self._broker, "store", None)
        offline = len(self._broker.offline_partitions())
        yield Gauge("ottla_partitions_offline", "Partitions whose log cannot be used.", value=offline)
        yield Gauge(
            "ottla_coordinator_partitions_failed",
            "Partitions of __consumer_offsets and __transaction_state that cannot be loaded, so that their ids wait.",
            value=self._failed_coordinators(),
        )
        damaged = len(self._broker.damaged_partitions())
        yield Gauge("ottla_partitions_damaged", "Partitions with a corrupt batch in their log.", value=damaged)
        dirs = Gauge("ottla_data_dir_failed", "1 if the data dir cannot be used.", labels=["dir"])
        for folder in store.dirs if store is not None else ():
            dirs.add_metric([folder.path], int(folder.failure is not None))
        yield dirs

    def _failed_coordinators(self) -> int:
        coordinators = (getattr(self._broker, name, None) for name in ("groups", "transactions"))
        return sum(each.failure is not None for found in coordinators if found is not None for each in found.shards())

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

    def _collect_waiting(self) -> "Iterator[Metric]":
        from prometheus_client.core import CounterMetricFamily as Counter
        from prometheus_client.core import GaugeMetricFamily as Gauge

        yield Gauge("ottla_fetches_waiting", "Fetches that wait for records.", value=self._counts.waiting_fetches)
        sessions = getattr(self._broker, "fetch_sessions", None)
        if sessions is not None:
            yield Gauge("ottla_fetch_sessions", "Fetch sessions that are open.", value=len(sessions))
            yield Gauge("ottla_fetch_sessions_max", "Fetch sessions that may be open.", value=sessions.slots_max)
            yield Counter("ottla_fetch_sessions_evicted", "Fetch sessions that made room.", value=sessions.evicted)
        timers = getattr(self._broker, "timers", None)
        if timers is not None:
            yield Gauge("ottla_timers", "Deadlines that are waited for.", value=len(timers))

    def _collect_coordinators(self) -> "Iterator[Metric]":
        from prometheus_client.core import GaugeMetricFamily as Gauge

        if not hasattr(self._broker, "groups"):
            return
        groups, transactions = self._broker.groups.shards(), self._broker.transactions.shards()
        kinds = tally((each.type, each.state) for shard in groups for each in shard.machine.list_groups())
        states = tally((entry.status.wire_name,) for each in transactions for entry in each.machine.entries.values())
        every: list[Shard[Any]] = [*groups, *transactions]
        loading = tally((each.partition.topic,) for each in every if not each.is_active)
        for counts, family in (
            (kinds, Gauge("ottla_groups", "Consumer groups coordinated here.", labels=["type", "state"])),
            (states, Gauge("ottla_transactions", "Transactional ids coordinated here.", labels=["state"])),
            (loading, Gauge("ottla_coordinators_loading", "Coordinators being read from disk.", labels=["topic"])),
        ):
            for labels, count in sorted(counts.items()):
                family.add_metric(labels, count)
            yield family

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

        lag = self._lag
        yield Gauge("ottla_loop_lag_last_seconds", "How late the event loop was last.", value=lag.last_seconds)
        buckets = _buckets(LAG_BOUNDS_SECONDS, lag.counts)
        yield HistogramMetricFamily(
            "ottla_loop_lag_seconds", "How late the event loop is.", buckets=buckets, sum_value=lag.sum_seconds
        )


def _buckets(bounds: Sequence[float], counts: Sequence[int]) -> list[tuple[str, float]]:
    """Counts by bound, each with all below it, as Prometheus wants them."""
    return list(zip([*map(str, bounds), "+Inf"], accumulate(counts), strict=True))
