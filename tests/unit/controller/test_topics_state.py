"""Creating and deleting topics: every answer, and what is committed."""

from collections import Counter
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest

from ottla.controller.decisions import (
    ControllerDecision,
    NewTopic,
    ReplicaAssignment,
    TopicDefaults,
    TopicOutcome,
    TopicReference,
)
from ottla.controller.topics_state import decide_create, decide_delete
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import deleted_topic_key, topic_configs_key, topic_key
from ottla.metadata.store import Check, Delete
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import InvalidConfigError
from ottla.sim.random import SimRandom
from tests.unit.controller.images import after, brokers, cluster

RANDOM = SimRandom(1)


def only_known(configs: Mapping[str, str]) -> None:
    for name in configs:
        if name != "retention.ms":
            raise InvalidConfigError(f"unknown config {name!r}")


def create(image: ClusterImage, *topics: NewTopic, **options: Any) -> ControllerDecision[TopicOutcome]:
    return decide_create(
        image,
        topics,
        defaults=TopicDefaults(partition_count=3, replication_factor=2),
        validate_configs=only_known,
        random=RANDOM,
        **options,
    )


def errors(decision: ControllerDecision[TopicOutcome]) -> list[ErrorCode]:
    return [outcome.error for outcome in decision.outcomes]


def assigned(*replicas: tuple[int, ...]) -> tuple[ReplicaAssignment, ...]:
    return tuple(ReplicaAssignment(index, brokers(*each)) for index, each in enumerate(replicas))


class TestCreate:
    def test_a_topic(self) -> None:
        image = cluster(3)
        decision = create(
            image, NewTopic(name="t", partition_count=6, replication_factor=1, configs={"retention.ms": "1"})
        )
        (outcome,) = decision.outcomes
        assert ("t", ErrorCode.NONE, None, 6, 1, {"retention.ms": "1"}) == (
            outcome.name,
            outcome.error,
            outcome.message,
            outcome.partition_count,
            outcome.replication_factor,
            outcome.configs,
        )
        topic = after(image, decision).topics["t"]
        assert (outcome.id, {"retention.ms": "1"}) == (topic.id, topic.configs)
        assert Counter({0: 2, 1: 2, 2: 2}) == Counter(partition.leader for partition in topic.partitions)
        for partition in topic.partitions:
            assert (partition.leader,) == partition.replicas == partition.isr
            assert (0, 0) == (partition.leader_epoch, partition.partition_epoch)

    def test_defaults(self) -> None:
        (outcome,) = create(cluster(2), NewTopic(name="t")).outcomes
        assert (3, 2) == (outcome.partition_count, outcome.replication_factor)

    def test_an_assignment(self) -> None:
        image = cluster(3)
        decision = create(image, NewTopic(name="t", assignments=assigned((2, 0), (1, 2))))
        (outcome,) = decision.outcomes
        assert (2, 2) == (outcome.partition_count, outcome.replication_factor)
        partitions = after(image, decision).topics["t"].partitions
        assert [brokers(2, 0), brokers(1, 2)] == [partition.replicas for partition in partitions]
        assert [2, 1] == [partition.leader for partition in partitions]

    def test_an_assignment_in_any_order(self) -> None:
        image = cluster(2)
        swapped = (ReplicaAssignment(1, brokers(1)), ReplicaAssignment(0, brokers(0)))
        partitions = after(image, create(image, NewTopic(name="t", assignments=swapped))).topics["t"].partitions
        assert [brokers(0), brokers(1)] == [partition.replicas for partition in partitions]

    @pytest.mark.parametrize(
        ("topic", "error", "message"),
        [
            (NewTopic(name="a b"), ErrorCode.INVALID_TOPIC_EXCEPTION, "is not a valid topic name"),
            (NewTopic(name="__cluster_metadata"), ErrorCode.INVALID_REQUEST, "reserved"),
            (NewTopic(name="old.one"), ErrorCode.TOPIC_ALREADY_EXISTS, "'old.one' already exists"),
            (NewTopic(name="old_one"), ErrorCode.INVALID_TOPIC_EXCEPTION, "collides with topic 'old.one'"),
            (NewTopic(name="t", partition_count=0), ErrorCode.INVALID_PARTITIONS, "at least one"),
            (NewTopic(name="t", partition_count=-2), ErrorCode.INVALID_PARTITIONS, "not -2"),
            (NewTopic(name="t", partition_count=2**31 - 1), ErrorCode.POLICY_VIOLATION, "at most 10000"),
            (NewTopic(name="t", replication_factor=0), ErrorCode.INVALID_REPLICATION_FACTOR, "at least 1"),
            (NewTopic(name="t", replication_factor=-2), ErrorCode.INVALID_REPLICATION_FACTOR, "not -2"),
            (NewTopic(name="t", replication_factor=4), ErrorCode.INVALID_REPLICATION_FACTOR, "only 3 broker(s)"),
            (NewTopic(name="t", configs={"x": "1"}), ErrorCode.INVALID_CONFIG, "unknown config 'x'"),
            (NewTopic(name="t", configs={"retention.ms": None}), ErrorCode.INVALID_CONFIG, "has no value"),
            (NewTopic(name="t", partition_count=1, assignments=assigned((0,))), ErrorCode.INVALID_REQUEST, "-1"),
            (NewTopic(name="t", replication_factor=1, assignments=assigned((0,))), ErrorCode.INVALID_REQUEST, "-1"),
            (NewTopic(name="t", assignments=assigned(())), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "no replica"),
            (NewTopic(name="t", assignments=assigned((0, 0))), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "twice"),
            (NewTopic(name="t", assignments=assigned((0, 9))), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "broker 9"),
            (
                NewTopic(name="t", assignments=assigned((0,), (0, 1))),
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "the same number of replicas",
            ),
            (
                NewTopic(name="t", assignments=(ReplicaAssignment(1, brokers(0)),)),
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "from 0",
            ),
            (
                NewTopic(name="t", assignments=(ReplicaAssignment(0, brokers(0)), ReplicaAssignment(0, brokers(1)))),
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "once",
            ),
        ],
    )
    def test_refusals(self, topic: NewTopic, error: ErrorCode, message: str) -> None:
        image = cluster(3)
        image = after(image, create(image, NewTopic(name="old.one")))
        decision = create(image, topic, NewTopic(name="fine"))
        assert [error, ErrorCode.NONE] == errors(decision)
        assert message in (decision.outcomes[0].message or "")
        assert {"old.one", "fine"} == set(after(image, decision).topics)

    def test_one_name_twice(self) -> None:
        decision = create(cluster(2), NewTopic(name="t"), NewTopic(name="u"), NewTopic(name="t"))
        assert [ErrorCode.INVALID_REQUEST, ErrorCode.NONE, ErrorCode.INVALID_REQUEST] == errors(decision)

    def test_names_that_collide_in_one_request(self) -> None:
        decision = create(cluster(2), NewTopic(name="a.b"), NewTopic(name="a_b"))
        assert [ErrorCode.NONE, ErrorCode.INVALID_TOPIC_EXCEPTION] == errors(decision)

    def test_the_bound_is_for_the_whole_request(self) -> None:
        topics = [NewTopic(name=f"t{n}", partition_count=4000, replication_factor=1) for n in range(3)]
        last = NewTopic(name="last", partition_count=2000, replication_factor=1)
        decision = create(cluster(1), *topics, last)
        assert [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.POLICY_VIOLATION, ErrorCode.NONE] == errors(decision)

    def test_no_broker_at_all(self) -> None:
        decision = create(ClusterImage(), NewTopic(name="t", replication_factor=1))
        assert [ErrorCode.INVALID_REPLICATION_FACTOR] == errors(decision)

    def test_validate_only(self) -> None:
        decision = create(cluster(2), NewTopic(name="t"), NewTopic(name="a b"), validate_only=True)
        assert () == decision.operations
        assert [ErrorCode.NONE, ErrorCode.INVALID_TOPIC_EXCEPTION] == errors(decision)
        assert 3 == decision.outcomes[0].partition_count

    def test_nothing_is_overwritten(self) -> None:
        decision = create(cluster(2), NewTopic(name="t", configs={"retention.ms": "1"}))
        assert [0] * 5 == [operation.expected for operation in decision.operations]


class TestDelete:
    def made(self) -> ClusterImage:
        image = cluster(2)
        return after(image, create(image, NewTopic(name="t", configs={"retention.ms": "1"}), NewTopic(name="u")))

    def test_by_name_and_by_id(self) -> None:
        image = self.made()
        ids = {name: topic.id for name, topic in image.topics.items()}
        decision = decide_delete(image, [TopicReference(name="t"), TopicReference(id=ids["u"])])
        assert (
            TopicOutcome(name="t", id=ids["t"]),
            TopicOutcome(name="u", id=ids["u"]),
        ) == decision.outcomes
        gone = after(image, decision)
        assert ({}, {}) == (gone.topics, gone.topics_by_id)
        deleted = {deleted_topic_key(each) for each in ids.values()}
        assert {"brokers/0", "brokers/1", *deleted} == set(gone.revisions)
        assert {topic_id: name for name, topic_id in ids.items()} == gone.deleted_topics

    def test_the_oldest_deletions_are_forgotten(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("ottla.controller.topics_state.DELETIONS_REMEMBERED_MAX", 3)
        image = cluster(2)
        for number in range(5):
            image = after(image, create(image, NewTopic(name=f"t{number}")))
            image = after(image, decide_delete(image, [TopicReference(name=f"t{number}")]))
        assert ["t2", "t3", "t4"] == sorted(image.deleted_topics.values())

    def test_a_refusal_forgets_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("ottla.controller.topics_state.DELETIONS_REMEMBERED_MAX", 1)
        image = self.made()
        image = after(image, decide_delete(image, [TopicReference(name="t")]))
        assert () == decide_delete(image, [TopicReference(name="x")]).operations

    @pytest.mark.parametrize(
        ("reference", "error"),
        [
            (TopicReference(name="x"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (TopicReference(name=""), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (TopicReference(id=UUID(int=9)), ErrorCode.UNKNOWN_TOPIC_ID),
            (TopicReference(), ErrorCode.INVALID_REQUEST),
            (TopicReference(name="t", id=UUID(int=9)), ErrorCode.INVALID_REQUEST),
        ],
    )
    def test_refusals(self, reference: TopicReference, error: ErrorCode) -> None:
        image = self.made()
        decision = decide_delete(image, [reference, TopicReference(name="u")])
        assert [error, ErrorCode.NONE] == errors(decision)
        assert (reference.name, reference.id) == (decision.outcomes[0].name, decision.outcomes[0].id)
        assert {"t"} == set(after(image, decision).topics)

    def test_one_topic_twice_goes_not_at_all(self) -> None:
        image = self.made()
        twice = [TopicReference(name="t"), TopicReference(id=image.topics["t"].id)]
        decision = decide_delete(image, twice)
        assert [ErrorCode.INVALID_REQUEST] * 2 == errors(decision)
        assert () == decision.operations

    def test_whoever_adds_to_it_meanwhile_is_noticed(self) -> None:
        """The topic's key guards its partitions; its configs are guarded whether they exist or not."""
        image = self.made()
        with_configs = decide_delete(image, [TopicReference(name="t")]).operations
        without = decide_delete(image, [TopicReference(name="u")]).operations
        assert Delete(topic_key("t"), 2) in with_configs
        assert Delete(topic_configs_key("t"), 2) in with_configs
        assert Check(topic_configs_key("u"), 0) in without
