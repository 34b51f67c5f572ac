"""Topics with queues and their companions, as their configs say."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ottla.client.admin.config_requests import (
    ConfigSource,
    Resource,
    ResourceType,
    describe_configs,
    list_config_resources,
)
from ottla.client.errors import AnswerError
from ottla.client.network.cluster import Cluster
from ottla.metadata.configs.queue_settings import QUEUE_CONFIGS, CompanionMark, QueueSettings, queue_settings_of
from ottla.metadata.configs.topic_configs import CONTROLLER_CONFIGS
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import MisuseError
from ottla.model.queue_names import PARKING_KINDS, CompanionKind

_ASKED_AT_ONCE: Final = 20
_LEFT_OUT: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.TOPIC_AUTHORIZATION_FAILED})
_QUEUES: Final = (("delay", CompanionKind.DELAYED), ("retry", CompanionKind.RETRY), ("half", CompanionKind.HALF))


class NoQueueError(MisuseError):
    """The topic has no queue of the kind that is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueTopic:
    """A topic with queues."""

    name: str
    settings: QueueSettings | None
    """None if all its queues are disabled."""
    configs: Mapping[str, str]
    """Its own queue configs."""
    companions: dict[str, CompanionKind] = field(default_factory=dict)

    @property
    def queues(self) -> list[str]:
        """What is enabled."""
        settings = self.settings
        if settings is None:
            return []
        return [name for name, kind in _QUEUES if settings.enables(kind)] + (["ttl"] if settings.has_ttl else [])

    @property
    def parking(self) -> list[str]:
        """The companions that hold parked records."""
        return sorted(name for name, kind in self.companions.items() if kind in PARKING_KINDS)

    @property
    def dead_letters(self) -> str | None:
        """Where its dead letters go, if it has any."""
        settings = self.settings
        is_used = settings is not None and settings.enables(CompanionKind.DEAD_LETTERS)
        return settings.dead_letters_of(self.name) if settings is not None and is_used else None


async def queue_topics(cluster: Cluster) -> dict[str, QueueTopic]:
    """All topics with queues, by name; also those whose queues are disabled but still have companions."""
    resources = await list_config_resources(cluster, [ResourceType.TOPIC])
    limit = asyncio.Semaphore(_ASKED_AT_ONCE)

    async def ask(name: str) -> tuple[str, dict[str, str]]:
        async with limit:
            try:
                return name, await queue_configs(cluster, name)
            except AnswerError as error:
                # Deleted meanwhile, or its configs may not be seen.
                if error.error_code not in _LEFT_OUT:
                    raise
                return name, {}

    found = dict(await asyncio.gather(*[ask(each.name) for each in resources]))
    settings = {name: queue_settings_of(configs) for name, configs in found.items()}
    topics = {
        name: QueueTopic(name=name, settings=each, configs=found[name])
        for name, each in sorted(settings.items())
        if each is not None and each.companion is None
    }
    for name, each in settings.items():
        mark = each.companion if each is not None else None
        if mark is not None:
            owner = topics.setdefault(
                mark.topic, QueueTopic(name=mark.topic, settings=None, configs=found.get(mark.topic, {}))
            )
            owner.companions[name] = mark.kind
    return topics


async def queue_configs(cluster: Cluster, topic: str) -> dict[str, str]:
    """The queue configs that are set on a topic, and its mark if it is a companion."""
    entries = await describe_configs(
        cluster, Resource(type=ResourceType.TOPIC, name=topic), sorted(QUEUE_CONFIGS | CONTROLLER_CONFIGS)
    )
    return {each.name: each.value for each in entries if each.source is ConfigSource.TOPIC and each.value is not None}


async def chosen_queues(cluster: Cluster, topic: str) -> list[tuple[str, CompanionMark]]:
    """The parking companions that a name stands for: itself, or those of the topic. Raises NoQueueError."""
    settings = queue_settings_of(await queue_configs(cluster, topic))
    mark = settings.companion if settings is not None else None
    if mark is not None:
        if mark.kind in PARKING_KINDS:
            return [(topic, mark)]
        raise NoQueueError(f"{topic} holds no parked records; read it with `ottla consume {topic}`")
    await cluster.topic(topic)
    found = (await queue_topics(cluster)).get(topic)
    if found is None or not found.parking:
        raise NoQueueError(f"topic {topic} has no queue that parks records; `ottla queues create {topic}` enables one")
    return [(name, CompanionMark(topic, found.companions[name])) for name in found.parking]
