"""The topology of a Kafka Streams application as its members send it. Plain values; written to the group's log.

What the cluster's topics make of it, such as the number of tasks, is computed in `topology_configuration.py`.
"""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class InternalTopic:
    """A repartition or changelog topic. 0 partitions: as many as the topology needs; 0 replicas: the default."""

    name: str
    partitions: int = 0
    replication_factor: int = 0
    configs: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CopartitionGroup:
    """Source topics that must have equally many partitions, as positions in the lists of their subtopology."""

    source_topics: tuple[int, ...] = ()
    source_topic_regex: tuple[int, ...] = ()
    repartition_source_topics: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Subtopology:
    """A part of the topology whose processors are connected directly. Its tasks process one partition each."""

    subtopology_id: str
    source_topics: tuple[str, ...] = ()
    source_topic_regex: tuple[str, ...] = ()
    changelog_topics: tuple[InternalTopic, ...] = ()
    repartition_sink_topics: tuple[str, ...] = ()
    repartition_source_topics: tuple[InternalTopic, ...] = ()
    copartition_groups: tuple[CopartitionGroup, ...] = ()

    def input_topics(self) -> Iterator[str]:
        """The topics whose partitions its tasks process."""
        yield from self.source_topics
        for topic in self.repartition_source_topics:
            yield topic.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """All subtopologies of an application; the epoch counts its versions."""

    epoch: int
    subtopologies: tuple[Subtopology, ...] = ()

    def required_topics(self) -> set[str]:
        """The topics that must exist before tasks are assigned."""
        names = {name for each in self.subtopologies for name in each.input_topics()}
        return names | {topic.name for each in self.subtopologies for topic in each.changelog_topics}

    def subtopology_of_topics(self) -> dict[str, str]:
        """The id of the subtopology that consumes each topic."""
        return {name: each.subtopology_id for each in self.subtopologies for name in each.input_topics()}

    def is_same(self, other: "Topology") -> bool:
        """Whether both are the same topology in the same epoch; the order of subtopologies does not matter."""
        return self.epoch == other.epoch and _by_id(self) == _by_id(other)


def _by_id(topology: Topology) -> dict[str, Subtopology]:
    return {each.subtopology_id: each for each in topology.subtopologies}
