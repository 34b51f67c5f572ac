"""Partitions as people choose them: `events`, or `events:0,2`."""

from collections.abc import Iterable, Sequence

from ottla.client.network.cluster import Cluster
from ottla.model.errors import MisuseError
from ottla.model.ids import TopicPartition


class BadTopicChoiceError(MisuseError):
    """The text does not name a topic or partitions of one."""


def parse_topic_choice(text: str) -> tuple[str, tuple[int, ...] | None]:
    """A topic and its chosen partitions; None for all."""
    topic, colon, listed = text.partition(":")
    indexes = [part.strip() for part in listed.split(",")] if colon else []
    if not topic or not all(part.isascii() and part.isdecimal() for part in indexes):
        raise BadTopicChoiceError(f"{text!r} is not TOPIC or TOPIC:0,1,2")
    return topic, tuple(dict.fromkeys(map(int, indexes))) if colon else None


async def chosen_partitions(
    cluster: Cluster, choices: Iterable[str], partitions: Sequence[int] = ()
) -> list[TopicPartition]:
    """The chosen partitions, each once, in order; `partitions` applies to topics that come without any.

    Raises what the broker says about a topic that does not exist, and an error for a partition that does not.
    """
    found: set[TopicPartition] = set()
    for choice in choices:
        topic, indexes = parse_topic_choice(choice)
        known = await cluster.topic(topic)
        some = indexes if indexes is not None else partitions or [each.index for each in known.partitions]
        for index in some:
            partition = TopicPartition(topic, index)
            await cluster.partition(partition)
            found.add(partition)
    return sorted(found)
