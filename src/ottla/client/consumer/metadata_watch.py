"""Keeps what a consumer knows of its topics young: asked now and then, and at once when somebody says that it is old.

Also says who leads a partition, from what is known. What follows from a change (a pattern that matches more, a leader
that must assign again) is the callers'.
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Final

from ottla.client.consumer.fetch_plan_state import Leader
from ottla.client.errors import CannotConnectError
from ottla.client.network.backoff import Backoff
from ottla.client.network.cluster import Cluster
from ottla.client.network.cluster_view import ClusterView
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition

log: Final = logging.getLogger(__name__)


class MetadataWatch:
    """See the module's docstring. `topics` is asked each time what to watch, None for every topic there is."""

    def __init__(
        self,
        cluster: Cluster,
        backoff: Backoff,
        *,
        max_age_ms: int,
        auto_create: bool,
        topics: Callable[[], Collection[str] | None],
        on_view: Callable[[ClusterView], None],
        on_unreachable: Callable[[OttlaError], None],
    ) -> None:
        self._cluster = cluster
        self._backoff = backoff
        self._max_age_ms = max_age_ms
        self._auto_create = auto_create
        self._topics = topics
        self._on_view = on_view
        self._on_unreachable = on_unreachable
        self._asked = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._missing: frozenset[str] = frozenset()

    def start(self) -> "asyncio.Task[None]":
        """Begins; the task goes on until `stop`."""
        self._task = asyncio.create_task(self._run())
        return self._task

    def refresh_soon(self) -> None:
        """Somebody found that what is known is old."""
        self._asked.set()

    async def stop(self) -> None:
        """Ends the task."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    def leader(self, partition: TopicPartition) -> Leader | None:
        """Who leads, as far as is known."""
        topic = self._cluster.view.topics.get(partition.topic)
        if topic is None or not 0 <= partition.partition < len(topic.partitions):
            return None
        found = topic.partitions[partition.partition]
        return None if found.leader is None else Leader(found.leader, found.leader_epoch)

    async def _run(self) -> None:
        tries = 0
        clock = self._cluster.clock
        while True:
            self._asked.clear()
            topics = self._topics()
            asked_at = None
            if topics is None or topics:
                asked_at = clock.monotonic()
                try:
                    view = await self._cluster.refresh(topics, auto_create=self._auto_create and topics is not None)
                    self._on_view(view)
                    tries = tries + 1 if self._is_incomplete(view, topics) else 0
                except OttlaError as error:
                    tries += 1
                    log.info("metadata: %s; trying again", error)
                    if isinstance(error, CannotConnectError) and not self._cluster.view.brokers:
                        self._on_unreachable(error)
            if tries:
                wait_ms = min(self._backoff.wait_ms(tries, self._cluster.random), self._max_age_ms)
                await clock.sleep(wait_ms / 1000)
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(self._max_age_ms / 1000):
                    await self._asked.wait()
            if asked_at is not None:
                # Not more often than that, however often it is asked for.
                await clock.sleep(max(asked_at + self._backoff.first_ms / 1000 - clock.monotonic(), 0))

    def _is_incomplete(self, view: ClusterView, topics: Collection[str] | None) -> bool:
        """Whether something is missing that may come soon; says so once for each topic."""
        missing = frozenset(topic for topic in topics or () if topic not in view.topics)
        for topic in sorted(missing - self._missing):
            code = view.errors.get(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            log.warning("topic %s: %s; waiting for it", topic, code.name)
        self._missing = missing
        leaderless = any(
            partition.leader is None
            for topic in topics or ()
            if topic in view.topics
            for partition in view.topics[topic].partitions
        )
        return bool(missing) or leaderless
