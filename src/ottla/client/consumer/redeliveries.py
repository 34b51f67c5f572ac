"""Which redelivery topics a consumer of a group reads beside the topics that it subscribes to.

A topic has one for the group if its config `ottla.retry.enable` is set. Asking for its metadata creates it.
"""

from collections.abc import Collection, Iterable

from ottla.client.consumer.topic_queues import TopicQueues, without_companions
from ottla.client.errors import AnswerError
from ottla.client.network.cluster import Cluster
from ottla.model.error_codes import ErrorCode
from ottla.model.queue_names import redelivery_topic


class Redeliveries:
    """The redelivery topics of one group, as far as they were looked up."""

    def __init__(self, cluster: Cluster, queues: TopicQueues, group: str) -> None:
        self._cluster = cluster
        self._queues = queues
        self._group = group
        self._has_retry: dict[str, bool] = {}
        self._missing: set[str] = set()
        """Topics that did not exist when they were looked up."""

    def are_unknown(self, topics: Iterable[str]) -> bool:
        """Whether some topics were not looked up yet."""
        return any(topic not in self._has_retry and topic not in self._missing for topic in without_companions(topics))

    def of(self, topics: Iterable[str]) -> frozenset[str]:
        """The redelivery topics of these topics."""
        return frozenset(
            redelivery_topic(topic, self._group)
            for topic in without_companions(topics)
            if self._has_retry.get(topic, False)
        )

    async def find(self, topics: Iterable[str]) -> None:
        """Looks up the topics that were not looked up yet. Raises `AnswerError` and connection errors."""
        for topic in sorted(without_companions(topics)):
            if topic in self._has_retry or topic in self._missing:
                continue
            try:
                has_retry = (await self._queues.of(topic)).has_retry
            except AnswerError as error:
                if error.error_code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
                self._missing.add(topic)
                continue
            if has_retry:
                await self._cluster.refresh([redelivery_topic(topic, self._group)], auto_create=True)
            self._has_retry[topic] = has_retry

    def on_topics(self, topics: Collection[str]) -> bool:
        """These topics exist; returns whether one of them has to be looked up now."""
        appeared = self._missing.intersection(topics)
        self._missing -= appeared
        return bool(appeared)
