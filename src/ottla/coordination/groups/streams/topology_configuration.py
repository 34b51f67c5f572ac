"""What the topics of the cluster make of a topology: the number of tasks, and the internal topics that it needs.

Pure functions. A repartition topic gets as many partitions as the largest topic that flows into it, unless the topology
sets a number or it is copartitioned with another topic; a changelog topic as many as its subtopology has tasks. A
topology whose topics are missing or wrong is not ready: its tasks are not assigned, and members are told why.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from ottla.coordination.groups.group_kind import Topics
from ottla.coordination.groups.streams.requests import Refusal, Status, StatusCode
from ottla.coordination.groups.streams.topology import CopartitionGroup, InternalTopic, Subtopology, Topology
from ottla.model.error_codes import ErrorCode

PARTITIONS_MAX: Final = 100_000
"""More partitions of an internal topic are refused."""
_SHOWN_TOPICS_MAX: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredSubtopology:
    """A subtopology with its number of tasks; internal topics have their number of partitions."""

    subtopology_id: str
    task_count: int
    source_topics: tuple[str, ...]
    repartition_sink_topics: tuple[str, ...]
    repartition_source_topics: tuple[InternalTopic, ...]
    changelog_topics: tuple[InternalTopic, ...]

    @property
    def is_stateful(self) -> bool:
        """Whether its tasks have state, which standby tasks can copy."""
        return bool(self.changelog_topics)

    @property
    def input_topics(self) -> tuple[str, ...]:
        """The topics whose partitions its tasks process."""
        return (*self.source_topics, *(topic.name for topic in self.repartition_source_topics))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredTopology:
    """A topology with the topics of the cluster. `problem` is None if tasks can be assigned."""

    topology: Topology
    problem: Status | None = None
    subtopologies: Mapping[str, ConfiguredSubtopology] = field(default_factory=dict)
    """By id, ascending; empty if the numbers of tasks cannot be computed."""
    missing_topics: tuple[InternalTopic, ...] = ()
    """Internal topics to create."""

    @property
    def is_ready(self) -> bool:
        """Whether tasks can be assigned."""
        return self.problem is None


class _Problem(Exception):
    """The topics do not fit the topology; becomes a status."""

    def __init__(self, code: StatusCode, detail: str) -> None:
        super().__init__(detail)
        self.status = Status(code, detail)


def check_topology(topology: Topology) -> None:
    """Refuses a topology that no topics can make valid."""
    if topology.epoch < 0:
        raise _invalid(f"Topology epoch {topology.epoch} must not be negative.")
    ids = [each.subtopology_id for each in topology.subtopologies]
    if len(ids) != len(set(ids)):
        raise _invalid("A subtopology id occurs more than once.")
    for each in topology.subtopologies:
        for topic in each.changelog_topics:
            if topic.partitions != 0:
                raise _invalid(
                    f"Changelog topic {topic.name} must have an undefined partition count, but it is set to "
                    f"{topic.partitions}."
                )
        for topic in each.repartition_source_topics:
            if not 0 <= topic.partitions <= PARTITIONS_MAX:
                raise _invalid(f"Repartition topic {topic.name} cannot have {topic.partitions} partitions.")
        if not any(each.input_topics()):
            raise _invalid(f"No source topics found for subtopology {each.subtopology_id}")
        for group in each.copartition_groups:
            _check_positions(each, group)


def _check_positions(subtopology: Subtopology, group: CopartitionGroup) -> None:
    is_valid = all(0 <= at < len(subtopology.source_topics) for at in group.source_topics) and all(
        0 <= at < len(subtopology.repartition_source_topics) for at in group.repartition_source_topics
    )
    if not is_valid:
        raise _invalid(
            f"A copartition group of subtopology {subtopology.subtopology_id} refers to topics that do not exist."
        )


def configure(topology: Topology, topics: Topics) -> ConfiguredTopology:
    """Computes partitions and tasks. Raises `Refusal` if the topology itself makes that impossible."""
    try:
        missing = sorted({name for each in topology.subtopologies for name in each.source_topics if name not in topics})
        if missing:
            raise _Problem(StatusCode.MISSING_SOURCE_TOPICS, f"Source topics {_summary(missing)} are missing.")
        counts = _internal_counts(topology, topics)

        def count_of(name: str) -> int:
            return topics[name].partition_count if name in topics else counts[name]

        subtopologies = {
            each.subtopology_id: _configured(each, counts, count_of)
            for each in sorted(topology.subtopologies, key=lambda each: each.subtopology_id)
        }
        to_create = _missing_internal_topics(subtopologies.values(), topics)
    except _Problem as problem:
        return ConfiguredTopology(topology=topology, problem=problem.status)
    problem_found = None
    if to_create:
        detail = f"Internal topics are missing: {_summary([topic.name for topic in to_create])}"
        problem_found = Status(StatusCode.MISSING_INTERNAL_TOPICS, detail)
    return ConfiguredTopology(
        topology=topology, problem=problem_found, subtopologies=subtopologies, missing_topics=to_create
    )


def _configured(
    subtopology: Subtopology, counts: Mapping[str, int], count_of: Callable[[str], int]
) -> ConfiguredSubtopology:
    def sized(topic: InternalTopic) -> InternalTopic:
        return replace(topic, partitions=topic.partitions or counts[topic.name])

    return ConfiguredSubtopology(
        subtopology_id=subtopology.subtopology_id,
        task_count=max(map(count_of, subtopology.input_topics())),
        source_topics=tuple(sorted(set(subtopology.source_topics))),
        repartition_sink_topics=tuple(sorted(set(subtopology.repartition_sink_topics))),
        repartition_source_topics=_by_name(map(sized, subtopology.repartition_source_topics)),
        changelog_topics=_by_name(map(sized, subtopology.changelog_topics)),
    )


def _by_name(topics: Iterable[InternalTopic]) -> tuple[InternalTopic, ...]:
    return tuple(topic for _, topic in sorted({topic.name: topic for topic in topics}.items()))


def _missing_internal_topics(
    subtopologies: Collection[ConfiguredSubtopology], topics: Topics
) -> tuple[InternalTopic, ...]:
    wanted = {
        topic.name: topic
        for each in subtopologies
        for topic in (*each.repartition_source_topics, *each.changelog_topics)
    }
    for name, topic in sorted(wanted.items()):
        found = topics.get(name)
        if found is not None and found.partition_count != topic.partitions:
            raise _Problem(
                StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
                f"Existing topic {name} has different number of partitions: expected {topic.partitions}, found "
                f"{found.partition_count}",
            )
    return _by_name(topic for name, topic in wanted.items() if name not in topics)


# Numbers of partitions


def _internal_counts(topology: Topology, topics: Topics) -> dict[str, int]:
    """The number of partitions that every internal topic is to have, whether it exists or not."""
    counts = _repartition_counts(topology, topics)
    fixed = {
        topic.name for each in topology.subtopologies for topic in each.repartition_source_topics if topic.partitions
    }
    flexible = {
        topic.name
        for each in topology.subtopologies
        for topic in each.repartition_source_topics
        if not topic.partitions
    }

    def count_of(name: str) -> int:
        return topics[name].partition_count if name in topics else counts[name]

    for each in topology.subtopologies:
        for group in each.copartition_groups:
            names = {each.source_topics[at] for at in group.source_topics}
            names |= {each.repartition_source_topics[at].name for at in group.repartition_source_topics}
            if names:
                counts |= _copartitioned(names, fixed, flexible, count_of)
    for each in topology.subtopologies:
        task_count = max(map(count_of, each.input_topics()))
        counts |= {topic.name: task_count for topic in each.changelog_topics}
    return counts


def _repartition_counts(topology: Topology, topics: Topics) -> dict[str, int]:
    """The partitions of repartition topics by what flows into them, round by round, since they may feed each other."""
    counts = {
        topic.name: topic.partitions
        for each in topology.subtopologies
        for topic in each.repartition_source_topics
        if topic.partitions
    }
    pending = [each for each in topology.subtopologies if each.repartition_sink_topics]
    while pending:
        waiting = []
        for each in pending:
            inputs = [counts[topic.name] for topic in each.repartition_source_topics if topic.name in counts]
            inputs += [topics[name].partition_count for name in each.source_topics]
            missing = [name for name in each.repartition_sink_topics if name not in counts]
            if inputs:
                counts |= dict.fromkeys(missing, max(inputs))
            elif missing:
                waiting.append(each)
        if len(waiting) == len(pending):
            raise _invalid(
                "Failed to compute number of partitions for all repartition topics. There may be loops in the topology "
                "that cannot be resolved."
            )
        pending = waiting
    if any(topic.name not in counts for each in topology.subtopologies for topic in each.repartition_source_topics):
        raise _invalid(
            "Failed to compute number of partitions for all repartition topics, because a repartition source topic is "
            "never used as a sink topic."
        )
    return counts


def _copartitioned(
    names: Collection[str], fixed: Collection[str], flexible: Collection[str], count_of: Callable[[str], int]
) -> dict[str, int]:
    """The partitions of the repartition topics of a copartition group. Topics of users decide, then numbers that the
    topology sets, then the largest."""
    repartition = {name: count_of(name) for name in sorted(names) if name in fixed or name in flexible}
    others = {name: count_of(name) for name in sorted(names) if name not in repartition}
    if others:
        decided = _same(others)
    else:
        set_counts = {name: count for name, count in repartition.items() if name in fixed}
        decided = _same(set_counts) if set_counts else max(repartition.values())
    for name, count in repartition.items():
        if name in fixed and count != decided:
            raise _Problem(
                StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
                f"Number of partitions [{count}] of repartition topic [{name}] doesn't match number of partitions "
                f"[{decided}] of the source topic.",
            )
    return dict.fromkeys(repartition, decided)


def _same(counts: Mapping[str, int]) -> int:
    distinct = set(counts.values())
    if len(distinct) > 1:
        shown = ", ".join(f"{name}={count}" for name, count in counts.items())
        raise _Problem(
            StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
            f"Following topics do not have the same number of partitions: [{{{shown}}}]",
        )
    return distinct.pop()


def _summary(names: list[str]) -> str:
    shown = ", ".join(names[:_SHOWN_TOPICS_MAX])
    left = len(names) - _SHOWN_TOPICS_MAX
    return f"{shown} and {left} additional topics" if left > 0 else shown


def _invalid(why: str) -> Refusal:
    return Refusal(ErrorCode.STREAMS_INVALID_TOPOLOGY, why)
