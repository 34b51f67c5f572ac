"""Companion topics under any order of decisions: they always fit the topics that they belong to."""

from contextlib import suppress

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ottla.broker.configs.topic_settings import validate_topic_configs
from ottla.controller.companions_state import changed_configs, group_companions, mark_of, needed_companions
from ottla.controller.configs_state import decide_topic_configs
from ottla.controller.decisions import (
    ControllerDecision,
    NewPartitions,
    NewTopic,
    TopicDefaults,
    TopicOutcome,
    TopicReference,
)
from ottla.controller.partitions_state import decide_add_partitions
from ottla.controller.topics_state import decide_create, decide_delete
from ottla.metadata.configs.queue_settings import queue_settings_of
from ottla.model.errors import InvalidConfigError
from ottla.model.queue_names import CompanionKind
from ottla.sim.random import SimRandom
from tests.effort import effort
from tests.unit.controller.images import after_operations, cluster

pytestmark = pytest.mark.slow

RANDOM = SimRandom(1)
OWNERS = st.sampled_from(["a", "b", "a.b", "dlq.a", "a.delayed"])
NAMES = OWNERS | st.sampled_from(
    [
        "a.delayed",
        "a.half",
        "a.half-checks",
        "dlq.a",
        "dlq.b",
        "d",
        "a.g.retry",
        "a.g.redelivery",
        "a.b.g.retry",
        "b_half",
    ]
)
CONFIGS = st.fixed_dictionaries(
    {},
    optional={
        "ottla.delay.enable": st.sampled_from(["true", "false"]),
        "ottla.retry.enable": st.sampled_from(["true", "false"]),
        "ottla.half.enable": st.just("true"),
        "ottla.ttl.ms": st.just("5"),
        "errors.deadletterqueue.topic.name": st.sampled_from(["d", "a", "a.delayed"]),
        "min.insync.replicas": st.sampled_from(["1", "2"]),
        "retention.ms": st.just("5"),
    },
)


class Companions(RuleBasedStateMachine):
    """Clients that create, configure, grow and delete topics."""

    def __init__(self) -> None:
        super().__init__()
        self.image = cluster(2)

    def commit(self, decision: ControllerDecision[TopicOutcome] | ControllerDecision[None]) -> None:
        # This checks that every key has the revision that the decision expects.
        self.image = after_operations(self.image, decision.operations)

    @rule(name=NAMES, count=st.integers(1, 3), configs=CONFIGS)
    def create(self, name: str, count: int, configs: dict[str, str]) -> None:
        self.commit(
            decide_create(
                self.image,
                [NewTopic(name=name, partition_count=count, configs=configs), NewTopic(name=f"{name}.g.retry")],
                defaults=TopicDefaults(),
                validate_configs=validate_topic_configs,
                random=RANDOM,
            )
        )

    @rule(name=NAMES, configs=CONFIGS)
    def configure(self, name: str, configs: dict[str, str]) -> None:
        if name in self.image.topics:
            with suppress(InvalidConfigError):
                validate_topic_configs(changed_configs(self.image, self.image.topics[name], configs))
                self.commit(decide_topic_configs(self.image, name, configs, random=RANDOM))

    @rule(name=NAMES, count=st.integers(1, 5))
    def grow(self, name: str, count: int) -> None:
        self.commit(
            decide_add_partitions(self.image, [NewPartitions(topic=name, partition_count=count)], random=RANDOM)
        )

    @rule(picks=st.lists(st.integers(0, 50), min_size=1, max_size=2))
    def delete(self, picks: list[int]) -> None:
        present = sorted(self.image.topics) or ["missing"]
        names = {present[pick % len(present)] for pick in picks}
        self.commit(decide_delete(self.image, [TopicReference(name=name) for name in sorted(names)]))

    @invariant()
    def enabled_queues_have_their_companions(self) -> None:
        for topic in self.image.topics.values():
            for name, kind in needed_companions(topic.name, queue_settings_of(topic.configs)):
                mark = mark_of(self.image.topics[name])
                if kind is CompanionKind.DEAD_LETTERS:
                    assert mark is None or mark.kind is kind
                else:
                    assert (topic.name, kind) == mark

    @invariant()
    def companions_fit_their_topics(self) -> None:
        for topic in self.image.topics.values():
            mark = mark_of(topic)
            if mark is None or mark.kind is CompanionKind.DEAD_LETTERS:
                continue
            owner = self.image.topics[mark.topic]
            assert len(owner.partitions) == len(topic.partitions)
            assert owner.configs.get("min.insync.replicas") == topic.configs.get("min.insync.replicas")
            validate_topic_configs(topic.configs)

    @invariant()
    def groups_have_both_companions(self) -> None:
        for topic in self.image.topics.values():
            mark = mark_of(topic)
            group = group_companions(self.image.topics, topic.name)
            if group is not None and mark is not None and mark.topic == group.topic:
                assert {each.name for each in group.both} <= {*self.image.topics}


TestCompanions = Companions.TestCase
TestCompanions.settings = effort(150, 30)
