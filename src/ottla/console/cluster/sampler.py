"""Samples the cluster every few seconds, for charts and rates: the last 60 minutes, in memory, nothing on disk.

Uses Kafka's public APIs only: metadata, end offsets, log dirs, groups and their committed offsets. Series, by kind:

| kind | name | value |
|---|---|---|
| `cluster.in`, `cluster.out` | "" | records/s appended; records/s that groups committed |
| `cluster.size` | "" | bytes of all replicas |
| `topic.in`, `topic.size` | topic | records/s appended; bytes of all its replicas |
| `topic.out` | topic | records/s that groups committed |
| `group.lag`, `group.out` | group | records behind; records/s committed |
| `broker.size` | broker id | bytes in its log dirs |
| `broker.requests`, `broker.received`, `broker.sent` | broker id | requests/s and bytes/s, if its /metrics is known |
| `broker.produce_mean`, `broker.produce_p99` | broker id | milliseconds that Produce took, if its /metrics is known |

A cluster that does not answer leaves gaps; `status` says since when.
"""

import asyncio
import logging
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from ottla.client.admin.async_admin import AsyncAdmin, OffsetSpec
from ottla.client.admin.broker_states import BrokerProbe, probe_brokers
from ottla.client.admin.cluster_problems import Problem, find_problems
from ottla.client.admin.share_group_requests import SHARE
from ottla.client.errors import AnswerError
from ottla.client.network.cluster import Cluster
from ottla.client.network.cluster_view import ClusterView
from ottla.console.cluster.broker_metrics import BrokerMetrics, Scrape, rates_between, scrape_all
from ottla.console.cluster.samples import Samples, Series, SeriesKey
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition

if TYPE_CHECKING:
    import httpx

_LOGGER: Final = logging.getLogger(__name__)
_GROUPS_MAX: Final = 200
"""Groups whose offsets are read in one turn; with more groups they take turns."""
_COMMIT_TURNS: Final = 3
"""Rates of commits are over this many turns: consumers commit every 5 s by default, as often as samples are taken."""
_PROBLEMS_EVERY: Final = 6
"""Turns between two looks for problems, which ask brokers about all replicas; a change is looked at in its own turn."""
_TURN_SECONDS_MAX: Final = 20.0
_DENIED: Final = frozenset({ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED})
Committed = Mapping[tuple[str, TopicPartition], int]
"""Offsets by group and partition."""
ALL: Final = ""
"""The name of the series of kinds about the whole cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerStatus:
    """Whether the cluster answers."""

    answered_at_ms: int | None = None
    """The last time it did."""
    silent_since_ms: int | None = None
    """Set while it does not answer."""
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What was counted at one time; rates are differences of two."""

    at: float
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    committed: Mapping[tuple[str, TopicPartition], int] = field(default_factory=dict)


class Sampler:
    """`run` samples until it is cancelled; everything else can be read at any time."""

    def __init__(self, now_ms: Callable[[], int], seconds: float = 5.0, metrics_urls: Sequence[str] = ()) -> None:
        self._now_ms = now_ms
        self._metrics_urls = metrics_urls
        self._scrapes: dict[int, tuple[float, Scrape]] = {}
        self._seconds = seconds
        self.samples = Samples()
        self.status = SamplerStatus()
        self.view: ClusterView | None = None
        """The metadata of the last turn that succeeded."""
        self.problems: list[Problem] | None = None
        """The problems, as `ottla cluster health` prints them; None before they were looked for."""
        self.probes: Mapping[int, BrokerProbe] = {}
        """Which brokers answered last, with their log dirs."""
        self.metrics: Mapping[int, BrokerMetrics] = {}
        """What the last scrape of each broker's /metrics said, by broker id."""
        self.looked = asyncio.Event()
        """Set when the first turn has looked for problems, or has failed."""
        self._counts: Counts | None = None
        self._committed_before: deque[Counts] = deque(maxlen=_COMMIT_TURNS)
        self._turn = 0
        self._seen: object = None
        self._group_place = 0
        self._share_lags: dict[str, float] = {}
        self._lags: dict[str, float] = {}
        """The lag of each group that exists, when it was read last: with many groups they take turns."""

    @property
    def has_counts(self) -> bool:
        """Whether the last turn counted offsets; if not, that a group has none means nothing."""
        return self._counts is not None

    @property
    def end_offsets(self) -> Mapping[TopicPartition, int]:
        """The end offsets of the last turn."""
        return {} if self._counts is None else self._counts.ends

    @property
    def committed(self) -> Mapping[tuple[str, TopicPartition], int]:
        """The committed offsets of the last turns, by group and partition."""
        return {} if self._counts is None else self._counts.committed

    def latest(self, kind: str, name: str = ALL) -> float | None:
        """The last value of a series; None if there is none, or the cluster does not answer. The lag of a group is
        that of its last turn."""
        if self.status.silent_since_ms is not None:
            return None
        return self._lags.get(name) if kind == "group.lag" else self.samples.latest(kind, name)

    def series(self, kind: str, name: str = ALL) -> Series:
        """The last 60 minutes of a series, oldest first; a gap is None."""
        return self.samples.series(kind, name)

    async def run(self, admin: AsyncAdmin) -> None:
        """Samples until cancelled; what fails is a gap, and is logged once."""
        loop = asyncio.get_running_loop()
        async with _web_client() if self._metrics_urls else nullcontext() as web:
            while True:
                started = loop.time()
                await self.sample(admin, web)
                await asyncio.sleep(max(0.0, self._seconds - (loop.time() - started)))

    async def sample(self, admin: AsyncAdmin, web: "httpx.AsyncClient | None" = None) -> None:
        """One turn; `web` reads metrics. Never raises: `status` has the error. A sampler that ended would leave the
        last numbers on all pages as if they were new."""
        try:
            async with asyncio.timeout(_TURN_SECONDS_MAX):
                scraped = {} if web is None else await self._scrape(web)
                await self._sample(admin, scraped)
        except Exception as error:
            words = str(error) or f"no answer within {_TURN_SECONDS_MAX:.0f} s"
            if self.status.silent_since_ms is None:
                is_known = isinstance(error, OttlaError | TimeoutError)
                _LOGGER.warning("cannot sample the cluster: %s", words, exc_info=None if is_known else error)
                self.status = replace(self.status, silent_since_ms=self._now_ms())
            self.status = replace(self.status, error=words)
            self.samples.add(self._now_ms() / 1000, {})
            self._counts = None
            self._committed_before.clear()
            self._lags.clear()
            self.looked.set()
            return
        if self.status.silent_since_ms is not None:
            _LOGGER.info("the cluster answers again")
        self.status = SamplerStatus(answered_at_ms=self._now_ms())

    async def _scrape(self, web: "httpx.AsyncClient") -> dict[SeriesKey, float]:
        if not self._metrics_urls:
            return {}
        scrapes = await scrape_all(self._metrics_urls, web)
        now = asyncio.get_running_loop().time()
        found: dict[int, BrokerMetrics] = {}
        values: dict[SeriesKey, float] = {}
        for broker, scrape in scrapes.items():
            at, before = self._scrapes.get(broker, (now, None))
            found[broker] = made = rates_between(before, scrape, now - at)
            if made.received_per_second is not None and made.sent_per_second is not None:
                values["broker.requests", str(broker)] = sum(each.per_second for each in made.apis)
                values["broker.received", str(broker)] = made.received_per_second
                values["broker.sent", str(broker)] = made.sent_per_second
            produce = next((each for each in made.apis if each.api == "produce"), None)
            if produce is not None and produce.mean_ms is not None:
                values["broker.produce_mean", str(broker)] = produce.mean_ms
            if produce is not None and produce.p99_estimate_ms is not None:
                values["broker.produce_p99", str(broker)] = produce.p99_estimate_ms
        self._scrapes = {broker: (now, scrape) for broker, scrape in scrapes.items()}
        self.metrics = found
        return values

    async def _sample(self, admin: AsyncAdmin, scraped: Mapping[SeriesKey, float]) -> None:
        cluster = admin.cluster
        view = await cluster.retry(cluster.refresh, timeout_ms=int(self._seconds * 1000))
        self.view = view
        probes = await probe_brokers(cluster, view, accepts_denial=True)
        self.probes = probes
        seen = _seen(view, probes)
        if self._turn % _PROBLEMS_EVERY == 0 or seen != self._seen:
            self.problems = await _problems(cluster, view, probes)
        self.looked.set()
        self._seen = seen
        self._turn += 1
        led = {
            TopicPartition(name, each.index): OffsetSpec.LATEST
            for name, topic in view.topics.items()
            for each in topic.partitions
            if each.leader is not None and each.leader in view.brokers
        }
        ends: dict[TopicPartition, int] = {}
        with suppress(OttlaError):
            # A leader that is away leaves its partitions' rates as a gap.
            found = await admin.list_offsets(led, raise_errors=False)
            ends = {each: answer.offset for each, answer in found.items()}
        committed, kept = await self._committed(admin)
        counts = Counts(at=self._now_ms() / 1000, ends=ends, committed=committed)
        values = rates_of(self._counts, counts, self._committed_before[0] if self._committed_before else None)
        values |= {("group.lag", group): lag for group, lag in self._share_lags.items()}
        self._lags |= {name: value for (kind, name), value in values.items() if kind == "group.lag"}
        values |= sizes_of(probes)
        values |= scraped
        self._counts = Counts(at=counts.at, ends=ends, committed={**kept, **committed})
        self._committed_before.append(replace(self._counts, ends={}))
        # There may be more topics than series that are kept: those of the cluster, brokers and groups come first.
        self.samples.add(counts.at, dict(sorted(values.items(), key=lambda item: item[0][0].startswith("topic."))))

    async def _note_share_lags(self, admin: AsyncAdmin, groups: Sequence[str]) -> None:
        """The lags of share groups, as their coordinators count them; of as many as fit into one turn."""
        found: dict[str, float] = {}
        for group in groups[:_GROUPS_MAX]:
            with suppress(OttlaError):
                lags = [each.lag for each in (await admin.list_share_group_offsets(group)).values()]
                known = [each for each in lags if each is not None]
                if known:
                    found[group] = float(sum(known))
        self._share_lags = found

    async def _committed(self, admin: AsyncAdmin) -> tuple[Committed, Committed]:
        """The committed offsets of groups, of as many as fit into one turn; and those of earlier turns that still hold:
        of groups that exist, and were not read in this one."""
        found: dict[tuple[str, TopicPartition], int] = {}
        kept = self.committed
        with suppress(OttlaError):
            listed = await admin.list_groups()
            unread = {each.group_id for each in listed}
            kept = {key: offset for key, offset in kept.items() if key[0] in unread}
            self._lags = {group: lag for group, lag in self._lags.items() if group in unread}
            await self._note_share_lags(admin, [each.group_id for each in listed if each.type == SHARE])
            groups = [each.group_id for each in listed if each.type != SHARE]
            if len(groups) > _GROUPS_MAX:
                self._group_place %= len(groups)
                turned = groups[self._group_place :] + groups[: self._group_place]
                self._group_place += _GROUPS_MAX
                groups = turned[:_GROUPS_MAX]
            for group in groups:
                with suppress(OttlaError):
                    for partition, offset in (await admin.list_consumer_group_offsets(group)).items():
                        found[group, partition] = offset.offset
                    unread.discard(group)
                    self._lags.pop(group, None)
            kept = {key: offset for key, offset in kept.items() if key[0] in unread}
        return found, kept


def _web_client() -> "httpx.AsyncClient":
    # Needs megabytes of memory, which a console without metrics of brokers does not spend.
    import httpx

    return httpx.AsyncClient()


async def _problems(cluster: Cluster, view: ClusterView, probes: Mapping[int, BrokerProbe]) -> list[Problem] | None:
    """The problems; None if the console's own user may not look for them. A denial is an answer, not silence."""
    try:
        return await find_problems(cluster, view, probes)
    except AnswerError as error:
        if error.error_code in _DENIED:
            return None
        raise


def _seen(view: ClusterView, probes: Mapping[int, BrokerProbe]) -> object:
    """What changes when a problem begins or ends: brokers, the controller, leaders and replicas in sync."""
    unwell = frozenset(
        (name, each.index, each.leader, each.isr)
        for name, topic in view.topics.items()
        for each in topic.partitions
        if each.leader is None or len(each.isr) < len(each.replicas)
    )
    return view.controller is None, tuple((broker, probe.state) for broker, probe in probes.items()), unwell


def rates_of(before: Counts | None, now: Counts, older: Counts | None = None) -> dict[SeriesKey, float]:
    """Rates between two counts, and lags of the second; rates of commits since `older`, if it is given."""
    values: dict[SeriesKey, float] = {}
    lags: dict[str, int] = defaultdict(int)
    for (group, partition), offset in now.committed.items():
        if partition in now.ends:
            lags[group] += max(0, now.ends[partition] - offset)
    for group, lag in lags.items():
        values["group.lag", group] = float(lag)
    if before is None or now.at <= before.at:
        return values
    seconds = now.at - before.at
    appended: dict[str, int] = defaultdict(int)
    for partition, end in now.ends.items():
        appended[partition.topic] += max(0, end - before.ends.get(partition, end))
    for topic, count in appended.items():
        values["topic.in", topic] = count / seconds
    if now.ends:
        values["cluster.in", ALL] = sum(appended.values()) / seconds
    since = older or before
    read_by_group: dict[str, int] = defaultdict(int)
    read_by_topic: dict[str, int] = defaultdict(int)
    for (group, partition), offset in now.committed.items():
        count = max(0, offset - since.committed.get((group, partition), offset))
        read_by_group[group] += count
        read_by_topic[partition.topic] += count
    span = now.at - since.at
    values |= {("group.out", group): count / span for group, count in read_by_group.items()}
    values |= {("topic.out", topic): count / span for topic, count in read_by_topic.items()}
    values["cluster.out", ALL] = sum(read_by_group.values()) / span
    return values


def sizes_of(probes: Mapping[int, BrokerProbe]) -> dict[SeriesKey, float]:
    """The sizes that brokers reported, of topics, brokers and the cluster."""
    by_topic: dict[str, int] = defaultdict(int)
    values: dict[SeriesKey, float] = {}
    total = 0
    for broker, probe in probes.items():
        if not probe.log_dirs:
            continue
        size = 0
        for log_dir in probe.log_dirs:
            for each in log_dir.partitions:
                size += max(0, each.size_bytes)
                by_topic[each.partition.topic] += max(0, each.size_bytes)
        values["broker.size", str(broker)] = float(size)
        total += size
    values |= {("topic.size", topic): float(size) for topic, size in by_topic.items()}
    if values:
        values["cluster.size", ALL] = float(total)
    return values
