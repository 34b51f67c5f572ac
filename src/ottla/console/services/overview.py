"""The cluster in one screen: what is wrong, how much flows, which groups lag, what waits as dead letters.

Without a login it is mostly the last sample, so that the page is there at once, and also while no broker answers. With
a login the cluster is asked with the rights of the user, because the samples know more than the user may see.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from ottla.client.admin.broker_states import BrokerProbe, BrokerState, probe_brokers
from ottla.client.admin.cluster_problems import Problem, find_problems
from ottla.client.errors import AnswerError
from ottla.client.network.cluster import Cluster
from ottla.client.network.cluster_view import ClusterView
from ottla.console.cluster.access import Access
from ottla.console.services.brokers import BrokerRow, rows_of
from ottla.console.services.pipelines import PipelineView, find_projects, list_pipelines, read_pipeline
from ottla.console.settings import AuthMode
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import OttlaError
from ottla.operations.dead_letters.topics import DeadLetterTopic, dead_letter_topics

_SHOWN_MAX: Final = 8
_DEAD_LETTERS_SECONDS: Final = 60.0
"""Finding dead-letter topics asks for the configs of all topics."""
_FIRST_SAMPLE_SECONDS: Final = 10.0
"""How long the page of a console that has just started waits for its first sample before it asks the cluster itself."""
_PATIENCE_SECONDS: Final = 0.1
"""The page does not wait longer for them: it shows the last ones, or that they are being read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLag:
    """A group that has records left to read."""

    group: str
    lag: float
    per_second: float | None
    """Records that it commits per second."""

    @property
    def seconds_left(self) -> float | None:
        """How long it needs at its rate; None if it stands still."""
        return self.lag / self.per_second if self.per_second else None


@dataclass(frozen=True, slots=True, kw_only=True)
class BusyTopic:
    """A topic that is written to."""

    topic: str
    per_second: float
    size_bytes: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """What the page shows. With `is_stale`, it is what was last known."""

    is_stale: bool
    brokers: list[BrokerRow]
    problems: list[Problem] | None
    """None if the user may not look for them."""
    topics: int
    partitions: int
    under_replicated: int
    offline: int
    laggards: list[GroupLag]
    busiest: list[BusyTopic]
    dead_letters: list[DeadLetterTopic] | None
    """Those with letters; None if they are still being read, or cannot be."""
    pipelines: list[PipelineView]

    @property
    def online(self) -> int:
        """Brokers that answer."""
        return sum(each.state is BrokerState.ONLINE for each in self.brokers)


async def overview(access: Access) -> Overview:
    """The cluster now, or as it was last known. Raises if nothing is known yet and no broker answers."""
    sampler = access.sampler
    if access.settings.auth is AuthMode.NONE and not sampler.looked.is_set():
        # A console that has just started is asking the cluster the same for its first sample.
        with suppress(TimeoutError):
            async with asyncio.timeout(_FIRST_SAMPLE_SECONDS):
                await sampler.looked.wait()
    is_sampled = access.settings.auth is AuthMode.NONE and sampler.view is not None and sampler.problems is not None
    if is_sampled and sampler.view is not None:
        view, probes, problems = sampler.view, sampler.probes, sampler.problems
    else:
        cluster = access.cluster
        view = await cluster.retry(cluster.refresh)
        probes = await probe_brokers(cluster, view, accepts_denial=True)
        problems = await _problems(cluster, view, probes)
    is_stale = sampler.status.silent_since_ms is not None
    partitions = [each for topic in view.topics.values() for each in topic.partitions]
    return Overview(
        is_stale=is_stale,
        brokers=rows_of(view, probes, sampler.metrics),
        problems=None if problems is None else sorted(problems, key=lambda each: not each.is_severe),
        topics=len(view.topics),
        partitions=len(partitions),
        under_replicated=sum(len(each.isr) < len(each.replicas) for each in partitions),
        offline=sum(each.leader is None for each in partitions),
        laggards=await _laggards(access, is_stale),
        busiest=_busiest(access, view),
        dead_letters=None if is_stale else await _dead_letters(access),
        pipelines=await _pipelines(access),
    )


async def _problems(cluster: Cluster, view: ClusterView, probes: Mapping[int, BrokerProbe]) -> list[Problem] | None:
    try:
        return await find_problems(cluster, view, probes)
    except AnswerError as error:
        if (
            error.error_code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            or error.error_code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        ):
            return None
        raise


async def _laggards(access: Access, is_stale: bool) -> list[GroupLag]:
    sampler = access.sampler
    names = set(sampler.samples.names("group.lag"))
    if access.settings.auth is not AuthMode.NONE:
        if is_stale:
            return []
        names &= {each.group_id for each in await access.admin().list_groups()}
    found = [
        GroupLag(group=name, lag=lag, per_second=sampler.latest("group.out", name))
        for name in names
        if (lag := sampler.latest("group.lag", name))
    ]
    return sorted(found, key=lambda each: (-each.lag, each.group))[:_SHOWN_MAX]


def _busiest(access: Access, view: ClusterView) -> list[BusyTopic]:
    sampler = access.sampler
    found = [
        BusyTopic(topic=name, per_second=rate, size_bytes=sampler.latest("topic.size", name))
        for name in view.topics
        if (rate := sampler.latest("topic.in", name))
    ]
    return sorted(found, key=lambda each: (-each.per_second, each.topic))[:_SHOWN_MAX]


async def _dead_letters(access: Access) -> list[DeadLetterTopic] | None:
    try:
        found = await access.clients.remembered.get(
            "dead letters",
            _DEAD_LETTERS_SECONDS,
            lambda: dead_letter_topics(access.cluster),
            patience_seconds=_PATIENCE_SECONDS,
        )
    except (TimeoutError, OttlaError):
        return None
    return sorted((each for each in found if each.records), key=lambda each: -each.records)[:_SHOWN_MAX]


async def _pipelines(access: Access) -> list[PipelineView]:
    def read() -> list[PipelineView]:
        return [read_pipeline(key, folder) for key, folder in find_projects(access.settings.pipelines).items()]

    if not access.settings.pipelines:
        return []
    return await asyncio.to_thread(read) if access.settings.auth is AuthMode.NONE else await list_pipelines(access)
