"""Which topics have dead letters: those that are named so, and those that the configs of other topics name."""

import asyncio
from dataclasses import dataclass
from typing import Final

from ottla.client.consumer.topic_queues import TopicQueues
from ottla.client.errors import AnswerError
from ottla.client.network.cluster import Cluster
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import MisuseError
from ottla.operations.dead_letters.letters import bounds_of

_CONFIGS_AGE_MS: Final = 60_000
_ASKED_AT_ONCE: Final = 20
_LEFT_OUT: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.TOPIC_AUTHORIZATION_FAILED})
"""Topics that were deleted meanwhile, or whose configs this user may not see, name no dead-letter topic."""
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
    queues = TopicQueues(cluster, _CONFIGS_AGE_MS)
    view = await cluster.refresh(None)
    names = sorted(name for name, topic in view.topics.items() if not topic.is_internal)
    limit = asyncio.Semaphore(_ASKED_AT_ONCE)

    async def ask(name: str) -> str | None:
        async with limit:
            try:
                return (await queues.of(name)).dead_letter_topic
            except AnswerError as error:
                if error.error_code not in _LEFT_OUT:
                    raise
                return None

    wanted: dict[str, list[str]] = {}
    for name, target in zip(names, await asyncio.gather(*map(ask, names)), strict=True):
        if target is not None:
            wanted.setdefault(target, []).append(name)
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
