"""Keeps the metadata of a reader's topics current: refreshed at intervals, and soon after it was found stale.

Also tells the leader of a partition. The owner reacts to changes, such as more topics that match a pattern.
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Final

from ottla.client.fetch.fetch_plan_state import Leader
from ottla.client.network.backoff import Backoff
from ottla.client.network.cluster import Cluster
from ottla.client.network.cluster_view import ClusterView
from ottla.client.stop_task import stop_task
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition

log: Final = logging.getLogger(__name__)


class MetadataWatch:
    """Runs from `start` to `stop`. `topics` returns what to refresh, None for all topics.

    `may_create` says whether brokers may create the topics that are missing.
    """

    def __init__(
        self,
        cluster: Cluster,
        backoff: Backoff,
        *,
        max_age_ms: int,
        may_create: Callable[[], bool],
        topics: Callable[[], Collection[str] | None],
        on_view: Callable[[ClusterView], None],
        on_error: Callable[[OttlaError], None],
    ) -> None:
        self._cluster = cluster
        self._backoff = backoff
        self._max_age_ms = max_age_ms
        self._may_create = may_create
        self._topics = topics
        self._on_view = on_view
        self._on_error = on_error
        self._asked = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._missing: frozenset[str] = frozenset()

    def start(self, *, is_current: bool = False) -> "asyncio.Task[None]":
        """Starts the task, which runs until `stop`. If the metadata is current, it is not refreshed right away."""
        self._task = asyncio.create_task(self._run(is_current))
        return self._task

    def refresh_soon(self) -> None:
        """The metadata was found stale or incomplete."""
        self._asked.set()

    async def stop(self) -> None:
        """Stops the task."""
        task, self._task = self._task, None
        await stop_task(task)

    def leader(self, partition: TopicPartition) -> Leader | None:
        """The leader of a partition; None if there is none or it is not known."""
        topic = self._cluster.view.topics.get(partition.topic)
        if topic is None or not 0 <= partition.partition < len(topic.partitions):
            return None
        found = topic.partitions[partition.partition]
        return None if found.leader is None else Leader(found.leader, found.leader_epoch)

    async def _run(self, is_current: bool) -> None:
        tries = 0
        clock = self._cluster.clock
        if is_current:
            await self._wait_asked()
        while True:
            self._asked.clear()
            topics = self._topics()
            asked_at = None
            if topics is None or topics:
                asked_at = clock.monotonic()
                try:
                    view = await self._cluster.refresh(topics, auto_create=self._may_create() and topics is not None)
                    self._on_view(view)
                    tries = tries + 1 if self._is_incomplete(view, topics) else 0
                except OttlaError as error:
                    tries += 1
                    log.info("metadata refresh failed, retrying: %s", error)
                    self._on_error(error)
            if tries:
                wait_ms = min(self._backoff.wait_ms(tries, self._cluster.random), self._max_age_ms)
                await clock.sleep(wait_ms / 1000)
                continue
            await self._wait_asked()
            if asked_at is not None:
                # However often a refresh is asked for, at least the backoff lies between two.
                await clock.sleep(max(asked_at + self._backoff.first_ms / 1000 - clock.monotonic(), 0))

    async def _wait_asked(self) -> None:
        """Returns when a refresh is asked for, or due by age."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._max_age_ms / 1000):
                await self._asked.wait()

    def _is_incomplete(self, view: ClusterView, topics: Collection[str] | None) -> bool:
        """Whether topics or leaders are missing that may appear soon; warns once for each missing topic."""
        missing = frozenset(topic for topic in topics or () if topic not in view.topics)
        for topic in sorted(missing - self._missing):
            code = view.errors.get(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            log.warning("topic %s is not available (%s), waiting for it", topic, code.name)
        self._missing = missing
        leaderless = any(
            partition.leader is None
            for topic in topics or ()
            if topic in view.topics
            for partition in view.topics[topic].partitions
        )
        return bool(missing) or leaderless
