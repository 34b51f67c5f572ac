"""Topics: the list, and one topic with its partitions, groups and configs. Changes are in `topic_changes.py`.

The list needs one Metadata request for all topics, which is kept for two seconds: filtering while typing does not ask
again. Sizes, rates and lags are those of the last sample. Offsets and cleanup policies are asked for the rows that are
shown only; a sort by the number of records uses the end offsets of the last sample and start offsets of the last 30 s.
"""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final
from weakref import WeakKeyDictionary

from ottla.client.admin.broker_states import BrokerProbe, probe_brokers
from ottla.client.admin.config_requests import ConfigEntry, ConfigSource, Resource, ResourceType, describe_many
from ottla.client.admin.topic_requests import eligible_replicas
from ottla.client.network.cluster import Cluster
from ottla.client.network.cluster_view import ClusterView, TopicView
from ottla.client.network.list_offsets import END, START, find_offsets
from ottla.console.cluster.access import Access
from ottla.console.cluster.sampler import Sampler
from ottla.console.errors import NotFoundError
from ottla.console.settings import AuthMode
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition

CLEANUP: Final = "cleanup.policy"
_FRESH_SECONDS: Final = 2.0
_STARTS_SECONDS: Final = 30.0
_STARTS: Final = "start offsets"
_OFFSETS_SECONDS_MAX: Final = 3.0
"""How long a page waits for offsets; a leader that does not answer leaves them unknown."""
_views: Final[WeakKeyDictionary[Cluster, tuple[float, ClusterView]]] = WeakKeyDictionary()
"""The last metadata of all topics of each client, and when it was received."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRow:
    """One topic in the list. What is not known is None."""

    name: str
    is_internal: bool
    partitions: int
    replication_factor: int
    offline: int
    """Partitions without a leader."""
    under_replicated: int
    size_bytes: float | None
    """Of all replicas, as of the last sample."""
    in_per_second: float | None
    out_per_second: float | None
    lag: int | None
    """Of all groups together; None if no group has offsets in it."""
    records: int | None = None
    cleanup: str | None = None


async def find_topics(access: Access, *, is_fresh: bool = True) -> list[TopicRow]:
    """All topics that the user may see, without records and cleanup policies; if not fresh, of the last two seconds."""
    sampler = access.sampler
    if is_fresh:
        forget_topics(access.cluster)
    view = await all_topics(access.cluster)
    sizes = topic_sizes(sampler)
    lags = topic_lags(sampler)
    return [_row(topic, sizes, lags, sampler) for topic in view.topics.values()]


async def all_topics(cluster: Cluster) -> ClusterView:
    """The metadata of all topics, at most two seconds old."""
    found = _views.get(cluster)
    now = cluster.clock.monotonic()
    if found is not None and now - found[0] <= _FRESH_SECONDS:
        return found[1]
    view = await cluster.retry(cluster.refresh)
    _views[cluster] = (cluster.clock.monotonic(), view)
    return view


def forget_topics(cluster: Cluster) -> None:
    """The next list asks again: topics were changed."""
    _views.pop(cluster, None)


def _row(topic: TopicView, sizes: Mapping[str, int], lags: Mapping[str, int], sampler: Sampler) -> TopicRow:
    name = topic.name
    return TopicRow(
        name=name,
        is_internal=topic.is_internal,
        partitions=len(topic.partitions),
        replication_factor=max((len(each.replicas) for each in topic.partitions), default=0),
        offline=sum(each.leader is None for each in topic.partitions),
        under_replicated=sum(len(each.isr) < len(each.replicas) for each in topic.partitions),
        size_bytes=sizes.get(name),
        in_per_second=sampler.latest("topic.in", name),
        out_per_second=sampler.latest("topic.out", name),
        lag=lags.get(name),
    )


def topic_sizes(sampler: Sampler) -> dict[str, int]:
    """Bytes of all replicas of each topic, as of the last sample."""
    sizes: dict[str, int] = defaultdict(int)
    for probe in sampler.probes.values():
        for log_dir in probe.log_dirs:
            for each in log_dir.partitions:
                sizes[each.partition.topic] += max(each.size_bytes, 0)
    return dict(sizes)


def topic_lags(sampler: Sampler) -> dict[str, int]:
    """The lag of all groups in each topic, as of the last samples."""
    ends = sampler.end_offsets
    lags: dict[str, int] = defaultdict(int)
    for (_, partition), offset in sampler.committed.items():
        if partition in ends:
            lags[partition.topic] += max(ends[partition] - offset, 0)
    return dict(lags)


async def with_records(access: Access, rows: Sequence[TopicRow]) -> list[TopicRow]:
    """The rows with their number of records: two requests to each leader for all of them."""
    cluster = access.cluster
    views = (await all_topics(cluster)).topics
    bounds = await partition_bounds(cluster, [views[each.name] for each in rows if each.name in views])
    counts: dict[str, int] = defaultdict(int)
    known: set[str] = set()
    for partition, (start, end) in bounds.items():
        counts[partition.topic] += end - start
        known.add(partition.topic)
    return [replace(each, records=counts[each.name] if each.name in known else None) for each in rows]


async def record_counts(access: Access) -> dict[str, int]:
    """About how many records each topic has, to sort all topics by it."""
    topics = (await all_topics(access.cluster)).topics.values()
    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    if access.sampler.has_counts:
        starts, ends = await _start_offsets(access), access.sampler.end_offsets
    else:
        bounds = await partition_bounds(access.cluster, topics)
        starts = {each: start for each, (start, _) in bounds.items()}
        ends = {each: end for each, (_, end) in bounds.items()}
    counts: dict[str, int] = {}
    for topic in topics:
        known = [TopicPartition(topic.name, each.index) for each in topic.partitions]
        known = [each for each in known if each in ends]
        if known:
            # A topic that is newer than the start offsets begins with offset 0.
            counts[topic.name] = sum(max(0, ends[each] - starts.get(each, 0)) for each in known)
    return counts


async def _start_offsets(access: Access) -> Mapping[TopicPartition, int]:
    """Of all partitions, at most 30 s old: they change only when records are deleted."""

    async def ask() -> dict[TopicPartition, int]:
        cluster = access.cluster
        async with asyncio.timeout(_OFFSETS_SECONDS_MAX):
            found = await find_offsets(
                cluster, dict.fromkeys(_led(cluster, (await all_topics(cluster)).topics.values()), START)
            )
        return {each: answer.offset for each, answer in found.items()}

    try:
        return await access.clients.remembered.get(_STARTS, _STARTS_SECONDS, ask)
    except (OttlaError, TimeoutError):
        return {}


def forget_start_offsets(access: Access) -> None:
    """The next sort asks again: records were deleted."""
    access.clients.remembered.forget(_STARTS)


async def with_cleanup(access: Access, rows: Sequence[TopicRow]) -> list[TopicRow]:
    """The rows with their cleanup policies: one request for all of them."""
    resources = [Resource(type=ResourceType.TOPIC, name=each.name) for each in rows]
    try:
        found = await describe_many(access.cluster, resources, [CLEANUP])
    except OttlaError:
        # The list is worth more than this column.
        return list(rows)
    policies = {resource.name: entries[0].value for resource, entries in found.items() if entries}
    return [replace(each, cleanup=policies.get(each.name)) for each in rows]


async def partition_bounds(cluster: Cluster, topics: Collection[TopicView]) -> dict[TopicPartition, tuple[int, int]]:
    """Start and end offset of each partition that has a leader; empty if the leaders do not answer."""
    led = _led(cluster, topics)
    try:
        async with asyncio.timeout(_OFFSETS_SECONDS_MAX):
            starts = await find_offsets(cluster, dict.fromkeys(led, START))
            ends = await find_offsets(cluster, dict.fromkeys(led, END))
    except (OttlaError, TimeoutError):
        return {}
    return {each: (starts[each].offset, max(ends[each].offset, starts[each].offset)) for each in led}


def _led(cluster: Cluster, topics: Iterable[TopicView]) -> list[TopicPartition]:
    """The partitions that have a leader."""
    brokers = cluster.view.brokers
    return [
        TopicPartition(topic.name, each.index)
        for topic in topics
        for each in topic.partitions
        if each.leader is not None and each.leader in brokers
    ]


# One topic


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaPlace:
    """One replica on a broker's disk."""

    broker: int
    path: str
    size_bytes: int
    lag: int
    is_future: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRow:
    """One partition of a topic."""

    index: int
    leader: int | None
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    eligible: tuple[int, ...]
    """Eligible leader replicas outside the ISR."""
    lost: tuple[int, ...]
    offline: tuple[int, ...]
    start: int | None
    end: int | None
    size_bytes: int | None
    """On its leader."""
    places: tuple[ReplicaPlace, ...]

    @property
    def records(self) -> int | None:
        """Offsets between start and end."""
        return None if self.start is None or self.end is None else self.end - self.start

    @property
    def level(self) -> str:
        """ok, warning or error."""
        if self.leader is None:
            return "error"
        return "warning" if len(self.isr) < len(self.replicas) else "ok"

    @property
    def word(self) -> str:
        """Its state in words."""
        if self.leader is None:
            return "no leader"
        missing = len(self.replicas) - len(self.isr)
        return "in sync" if not missing else f"{missing} of {len(self.replicas)} behind"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPage:
    """What all tabs of a topic show."""

    view: TopicView
    partitions: Sequence[PartitionRow]
    brokers: tuple[int, ...]
    at_ms: int | None

    @property
    def name(self) -> str:
        """The topic's name."""
        return self.view.name

    @property
    def records(self) -> int | None:
        """Offsets between start and end of all partitions whose offsets are known."""
        known = [each.records for each in self.partitions if each.records is not None]
        return sum(known) if known else None

    @property
    def size_bytes(self) -> int | None:
        """Of all leaders; None if it is not known."""
        known = [each.size_bytes for each in self.partitions if each.size_bytes is not None]
        return sum(known) if known else None

    @property
    def replication_factor(self) -> int:
        """The largest number of replicas of a partition."""
        return max((len(each.replicas) for each in self.partitions), default=0)

    @property
    def behind(self) -> int:
        """Partitions that are not in sync."""
        return sum(each.level == "warning" for each in self.partitions)

    @property
    def leaderless(self) -> int:
        """Partitions without a leader."""
        return sum(each.level == "error" for each in self.partitions)


async def topic_view(cluster: Cluster, name: str) -> TopicView:
    """The topic's metadata. Raises `NotFoundError`."""
    view = await cluster.retry(lambda: cluster.refresh([name]))
    if name not in view.topics:
        raise NotFoundError(f"topic {name} does not exist, or you may not describe it")
    return view.topics[name]


async def topic_page(access: Access, name: str) -> TopicPage:
    """One topic. Raises `NotFoundError`."""
    cluster = access.cluster
    view = await topic_view(cluster, name)
    bounds = await partition_bounds(cluster, [view])
    try:
        eligible = await eligible_replicas(cluster, [name])
    except OttlaError:
        eligible = {}
    sampled = _places(access.sampler.probes, name)
    places = sampled if access.settings.auth is AuthMode.NONE else await _own_places(access, view)
    rows = []
    for each in view.partitions:
        partition = TopicPartition(name, each.index)
        start, end = bounds.get(partition, (None, None))
        known = places.get(partition) or sampled.get(partition, ())
        elr = eligible.get(partition)
        rows.append(
            PartitionRow(
                index=each.index,
                leader=each.leader,
                leader_epoch=each.leader_epoch,
                replicas=each.replicas,
                isr=each.isr,
                eligible=() if elr is None else elr.eligible,
                lost=() if elr is None else elr.last_known,
                offline=each.offline,
                start=start,
                end=end,
                size_bytes=next((at.size_bytes for at in known if at.broker == each.leader and not at.is_future), None),
                places=places.get(partition, ()),
            )
        )
    return TopicPage(
        view=view,
        partitions=rows,
        brokers=tuple(sorted(cluster.view.brokers)),
        at_ms=access.sampler.status.answered_at_ms,
    )


async def _own_places(access: Access, view: TopicView) -> dict[TopicPartition, tuple[ReplicaPlace, ...]]:
    """Where replicas are, as far as brokers tell the user (DESCRIBE on the cluster): paths are theirs to tell, not the
    console's."""
    partitions = [TopicPartition(view.name, each.index) for each in view.partitions]
    return _places(await probe_brokers(access.cluster, access.cluster.view, partitions, accepts_denial=True), view.name)


def _places(probes: Mapping[int, BrokerProbe], topic: str) -> dict[TopicPartition, tuple[ReplicaPlace, ...]]:
    found: dict[TopicPartition, list[ReplicaPlace]] = defaultdict(list)
    for broker, probe in probes.items():
        for log_dir in probe.log_dirs:
            for each in log_dir.partitions:
                if each.partition.topic == topic:
                    found[each.partition].append(
                        ReplicaPlace(
                            broker=broker,
                            path=log_dir.path,
                            size_bytes=each.size_bytes,
                            lag=each.lag,
                            is_future=each.is_future,
                        )
                    )
    return {partition: tuple(some) for partition, some in found.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingGroup:
    """A group that has offsets in a topic."""

    group_id: str
    state: str
    kind: str
    partitions: int
    lag: int | None
    """None if the end of one of its partitions is not known."""
    rate: float | None
    """Records per second that it commits, in all its topics."""


async def reading_groups(access: Access, name: str) -> list[ReadingGroup] | None:
    """The groups with offsets in the topic, the largest lag first; only groups that the user may see. None if there is
    no sample to know them from."""
    sampler = access.sampler
    if not sampler.has_counts:
        return None
    ends = sampler.end_offsets
    lags: dict[str, list[int | None]] = defaultdict(list)
    for (group, partition), offset in sampler.committed.items():
        if partition.topic == name:
            end = ends.get(partition)
            lags[group].append(None if end is None else max(end - offset, 0))
    listed = {each.group_id: each for each in await access.admin().list_groups()} if lags else {}
    found = [
        ReadingGroup(
            group_id=group,
            state=listed[group].state,
            kind=listed[group].type,
            partitions=len(some),
            lag=total_lag(some),
            rate=sampler.latest("group.out", group),
        )
        for group, some in lags.items()
        if group in listed
    ]
    return sorted(found, key=lambda each: (-(each.lag or 0), each.group_id))


def total_lag(lags: Iterable[int | None]) -> int | None:
    """The sum of the lags; None if one of them is not known."""
    found = list(lags)
    return None if None in found else sum(each or 0 for each in found)


async def topic_configs(access: Access, name: str) -> list[ConfigEntry]:
    """All configs of the topic with their documentation: those that were set first."""
    resource = Resource(type=ResourceType.TOPIC, name=name)
    found = await describe_many(access.cluster, [resource], documentation=True)
    if resource not in found:
        raise NotFoundError(f"topic {name} does not exist, or you may not describe its configs")
    return sorted(found[resource], key=lambda each: (each.source is not ConfigSource.TOPIC, each.name))


def is_set(entry: ConfigEntry) -> bool:
    """Whether the topic has a value of its own."""
    return entry.source is ConfigSource.TOPIC
