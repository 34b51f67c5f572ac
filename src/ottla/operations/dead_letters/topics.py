"""Which topics have dead letters: those that are named so, and those that the configs of other topics name."""

import asyncio
from dataclasses import dataclass
from typing import Final

from ottla.client.admin.config_requests import Resource, ResourceType, describe_many
from ottla.client.consumer.topic_queues import DEAD_LETTER_TOPIC, topic_queue
from ottla.client.network.cluster import Cluster
from ottla.model.errors import MisuseError
from ottla.operations.dead_letters.letters import bounds_of

_ASKED_AT_ONCE: Final = 20
_DESCRIBED_AT_ONCE: Final = 1000
"""Topics in one request for configs."""
PREFIX: Final = "dlq."
"""How the name of a dead-letter topic begins unless a config gives another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterTopic:
    """One dead-letter topic; `records` counts offsets, up to the first open transaction."""

    name: str
    partitions: int
    records: int
    origins: tuple[str, ...]
    """The existing topics whose configs name it."""


async def dead_letter_origins(cluster: Cluster) -> dict[str, tuple[str, ...]]:
    """The dead-letter topics, sorted, each with the existing topics whose dead letters go there by their configs."""
    view = await cluster.refresh(None)
    names = sorted(name for name, topic in view.topics.items() if not topic.is_internal)
    wanted: dict[str, list[str]] = {}
    for at in range(0, len(names), _DESCRIBED_AT_ONCE):
        asked = [Resource(type=ResourceType.TOPIC, name=name) for name in names[at : at + _DESCRIBED_AT_ONCE]]
        # Topics that were deleted meanwhile, or whose configs this user may not see, name no dead-letter topic.
        for topic, entries in (await describe_many(cluster, asked, [DEAD_LETTER_TOPIC])).items():
            target = topic_queue(topic.name, {each.name: each.value for each in entries}).dead_letter_topic
            wanted.setdefault(target, []).append(topic.name)
    return {name: tuple(wanted.get(name, ())) for name in names if name in wanted or name.startswith(PREFIX)}


async def dead_letter_topics(cluster: Cluster) -> list[DeadLetterTopic]:
    """The dead-letter topics with the number of their letters."""
    limit = asyncio.Semaphore(_ASKED_AT_ONCE)

    async def count(name: str, origins: tuple[str, ...]) -> DeadLetterTopic:
        async with limit:
            bounds = await bounds_of(cluster, name)
        records = sum(end - start for start, end in bounds.values())
        return DeadLetterTopic(name=name, partitions=len(bounds), records=records, origins=origins)

    found = await dead_letter_origins(cluster)
    return list(await asyncio.gather(*(count(name, origins) for name, origins in found.items())))


async def refuse_other_topic(cluster: Cluster, topic: str) -> None:
    """Raises `MisuseError` if the topic is not a dead-letter topic."""
    if topic not in await dead_letter_origins(cluster):
        raise MisuseError(
            f"{topic} is not a dead-letter topic: its name does not begin with {PREFIX}, and no topic names it in"
            " errors.deadletterqueue.topic.name; to delete its records, use ottla topics delete-records"
        )
