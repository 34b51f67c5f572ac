"""Numbers of partitions and tasks, and what is wrong with topics that do not fit."""

from uuid import UUID

import pytest

from ottla.coordination.groups.group_kind import Topic
from ottla.coordination.groups.streams.requests import Refusal, StatusCode
from ottla.coordination.groups.streams.topology import CopartitionGroup, InternalTopic, Subtopology, Topology
from ottla.coordination.groups.streams.topology_configuration import ConfiguredTopology, configure


def configured(*subtopologies: Subtopology, **counts: int) -> ConfiguredTopology:
    topics = {name: Topic(UUID(int=at), count) for at, (name, count) in enumerate(counts.items(), start=1)}
    return configure(Topology(epoch=0, subtopologies=subtopologies), topics)


def internal(*names: str, partitions: int = 0) -> tuple[InternalTopic, ...]:
    return tuple(InternalTopic(name=name, partitions=partitions) for name in names)


def test_a_chain_of_repartition_topics_has_the_partitions_of_its_largest_source() -> None:
    found = configured(
        Subtopology(subtopology_id="2", repartition_source_topics=internal("r2"), changelog_topics=internal("c")),
        Subtopology(subtopology_id="1", repartition_source_topics=internal("r1"), repartition_sink_topics=("r2",)),
        Subtopology(subtopology_id="0", source_topics=("a", "b"), repartition_sink_topics=("r1",)),
        a=2,
        b=5,
    )
    assert {"0": 5, "1": 5, "2": 5} == {key: each.task_count for key, each in found.subtopologies.items()}
    assert {"c": 5, "r1": 5, "r2": 5} == {topic.name: topic.partitions for topic in found.missing_topics}
    assert found.problem is not None
    assert StatusCode.MISSING_INTERNAL_TOPICS is found.problem.code


def test_a_number_that_the_topology_sets_counts() -> None:
    found = configured(
        Subtopology(subtopology_id="0", source_topics=("a",), repartition_sink_topics=("r",)),
        Subtopology(subtopology_id="1", repartition_source_topics=internal("r", partitions=7)),
        a=2,
        r=7,
    )
    assert found.is_ready
    assert {"0": 2, "1": 7} == {key: each.task_count for key, each in found.subtopologies.items()}


def test_a_repartition_topic_follows_the_topic_that_it_is_copartitioned_with() -> None:
    found = configured(
        Subtopology(subtopology_id="0", source_topics=("a",), repartition_sink_topics=("r",)),
        Subtopology(
            subtopology_id="1",
            source_topics=("b",),
            repartition_source_topics=internal("r"),
            copartition_groups=(CopartitionGroup(source_topics=(0,), repartition_source_topics=(0,)),),
        ),
        a=2,
        b=6,
    )
    assert [("r", 6)] == [(topic.name, topic.partitions) for topic in found.missing_topics]


@pytest.mark.parametrize(
    ("subtopology", "counts", "detail"),
    [
        (
            Subtopology(
                subtopology_id="0",
                source_topics=("a", "b"),
                copartition_groups=(CopartitionGroup(source_topics=(0, 1)),),
            ),
            {"a": 2, "b": 3},
            "Following topics do not have the same number of partitions: [{a=2, b=3}]",
        ),
        (
            Subtopology(subtopology_id="0", source_topics=("a",), changelog_topics=internal("c")),
            {"a": 2, "c": 3},
            "Existing topic c has different number of partitions: expected 2, found 3",
        ),
    ],
)
def test_wrong_numbers_of_partitions(subtopology: Subtopology, counts: dict[str, int], detail: str) -> None:
    problem = configured(subtopology, **counts).problem
    assert (StatusCode.INCORRECTLY_PARTITIONED_TOPICS, detail) == problem


def test_missing_source_topics_are_named() -> None:
    problem = configured(Subtopology(subtopology_id="0", source_topics=("d", "c", "b", "a"))).problem
    detail = "Source topics a, b, c and 1 additional topics are missing."
    assert (StatusCode.MISSING_SOURCE_TOPICS, detail) == problem


@pytest.mark.parametrize("sinks", [("r",), ()])
def test_a_repartition_topic_without_an_input_of_known_size_is_refused(sinks: tuple[str, ...]) -> None:
    with pytest.raises(Refusal):
        configured(
            Subtopology(subtopology_id="0", repartition_source_topics=internal("r"), repartition_sink_topics=sinks)
        )
