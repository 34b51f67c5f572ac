"""What the configs of a topic say about its queues: whether records can be handed back, and where dead letters go.

Apache Kafka has none of these configs. There, records cannot be handed back, and dead letters of a topic go to
`dlq.<topic>`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from ottla.client.admin.config_requests import Resource, ResourceType, describe_configs
from ottla.client.network.cluster import Cluster
from ottla.model.dead_letters import DeadLetterHeaders
from ottla.model.error_codes import ErrorCode
from ottla.model.queue_names import dead_letter_topic

RETRY_ENABLE: Final = "ottla.retry.enable"
RETRY_ORDER: Final = "ottla.retry.order"
DEAD_LETTER_TOPIC: Final = "errors.deadletterqueue.topic.name"
DEAD_LETTER_HEADERS: Final = "ottla.deadletter.headers"

_NAMES: Final = (RETRY_ENABLE, RETRY_ORDER, DEAD_LETTER_TOPIC, DEAD_LETTER_HEADERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicQueue:
    """The queue configs of one topic."""

    has_retry: bool
    keeps_key_order: bool = False
    dead_letter_topic: str
    dead_letter_headers: DeadLetterHeaders = DeadLetterHeaders.KIP1191


class TopicQueues:
    """Looks the configs up, and remembers them for `max_age_ms`."""

    def __init__(self, cluster: Cluster, max_age_ms: int) -> None:
        self._cluster = cluster
        self._max_age = max_age_ms / 1000
        self._found: dict[str, tuple[float, TopicQueue]] = {}

    async def of(self, topic: str) -> TopicQueue:
        """The queue configs of a topic. Raises `AnswerError`, at once if the topic does not exist."""
        now = self._cluster.clock.monotonic()
        known = self._found.get(topic)
        if known is not None and now - known[0] <= self._max_age:
            return known[1]
        resource = Resource(type=ResourceType.TOPIC, name=topic)
        entries = await self._cluster.retry(
            lambda: describe_configs(self._cluster, resource, _NAMES),
            give_up=(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,),
        )
        found = topic_queue(topic, {each.name: each.value for each in entries})
        self._found[topic] = (now, found)
        return found


def topic_queue(topic: str, configs: Mapping[str, str | None]) -> TopicQueue:
    """The queue configs out of all configs of a topic; a config that the broker does not have has its default."""
    style = configs.get(DEAD_LETTER_HEADERS)
    return TopicQueue(
        has_retry=configs.get(RETRY_ENABLE) == "true",
        keeps_key_order=configs.get(RETRY_ORDER) == "key",
        dead_letter_topic=configs.get(DEAD_LETTER_TOPIC) or dead_letter_topic(topic),
        dead_letter_headers=DeadLetterHeaders.SPRING
        if style == DeadLetterHeaders.SPRING.value
        else DeadLetterHeaders.KIP1191,
    )


_COMPANION_ENDINGS: Final = (".delayed", ".retry", ".redelivery", ".half", ".half-checks")


def without_companions(topics: Iterable[str]) -> frozenset[str]:
    """The topics without the companions of any of them, which a pattern for the topic usually matches too."""
    names = frozenset(topics)
    return frozenset(name for name in names if not (name.endswith(_COMPANION_ENDINGS) and _has_base(name, names)))


def _has_base(name: str, names: frozenset[str]) -> bool:
    return any(name[:at] in names for at, character in enumerate(name) if character == ".")
