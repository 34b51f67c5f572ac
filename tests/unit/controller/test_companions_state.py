"""Companion topics: created, grown, moved, configured and deleted with their topic."""

import re
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.configs.topic_settings import validate_topic_configs
from ottla.controller.companions_state import GroupCompanions, beside, companion_configs, group_companions, mark_of
from ottla.controller.configs_state import decide_topic_configs
from ottla.controller.decisions import (
    ControllerDecision,
    NewPartitions,
    NewTopic,
    Reassignment,
    ReplicaAssignment,
    TopicDefaults,
    TopicOutcome,
    TopicReference,
)
from ottla.controller.partitions_state import decide_add_partitions, decide_reassign
from ottla.controller.recovery_state import KEEP_EVERYTHING
from ottla.controller.topics_state import decide_create, decide_delete
from ottla.metadata.configs.topic_configs import RECOVERED
from ottla.metadata.image import NO_LEADER, ClusterImage, PartitionImage, TopicImage
from ottla.metadata.records import ConfigsRecord, encode, topic_configs_key
from ottla.metadata.store import Put
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import InvalidConfigError
from ottla.model.ids import LeaderEpoch
from ottla.model.queue_names import CompanionKind
from ottla.sim.random import SimRandom
from tests.unit.controller.images import after, brokers, cluster, without_broker

RANDOM = SimRandom(1)
DELAY = {"ottla.delay.enable": "true"}
RETRY = {"ottla.retry.enable": "true"}
HALF = {"ottla.half.enable": "true"}
TTL = {"ottla.ttl.ms": "5"}


def create(
    image: ClusterImage, *topics: NewTopic, validate_only: bool = False
) -> tuple[ClusterImage, tuple[TopicOutcome, ...]]:
    decision = decide_create(
        image,
        topics,
        defaults=TopicDefaults(partition_count=2),
        validate_configs=validate_topic_configs,
        random=RANDOM,
        validate_only=validate_only,
    )
    return after(image, decision), decision.outcomes


def recovered(name: str, count: int = 3, image: ClusterImage | None = None) -> ClusterImage:
    """A topic as recovery makes it: without the configs that it had."""
    image = created(name, {}, count=count, image=image)
    record = encode(ConfigsRecord(configs=KEEP_EVERYTHING))
    marked: ControllerDecision[None] = ControllerDecision(operations=(Put(topic_configs_key(name), record, 0),))
    return after(image, marked)


def created(name: str, configs: Mapping[str, str], count: int = 3, image: ClusterImage | None = None) -> ClusterImage:
    topic = NewTopic(name=name, partition_count=count, replication_factor=1, configs=configs)
    image, (outcome,) = create(image or cluster(), topic)
    assert (ErrorCode.NONE, None) == (outcome.error, outcome.message)
    return image


def refused(image: ClusterImage, topic: NewTopic) -> tuple[ErrorCode, str]:
    unchanged, (outcome,) = create(image, topic)
    assert unchanged is image
    assert outcome.message is not None
    return outcome.error, outcome.message


def configured(image: ClusterImage, name: str, configs: Mapping[str, str]) -> ClusterImage:
    return after(image, decide_topic_configs(image, name, configs, random=RANDOM))


def delete(image: ClusterImage, *names: str) -> ControllerDecision[TopicOutcome]:
    return decide_delete(image, [TopicReference(name=name) for name in names])


def kinds(image: ClusterImage) -> dict[str, tuple[str, str] | None]:
    return {
        name: None if (mark := mark_of(topic)) is None else (mark.topic, mark.kind.value)
        for name, topic in image.topics.items()
    }


@pytest.mark.parametrize(
    ("configs", "companions"),
    [
        ({}, {}),
        (TTL, {}),
        (DELAY, {"t.delayed": ("t", "delayed"), "dlq.t": ("t", "dead-letters")}),
        (RETRY, {"dlq.t": ("t", "dead-letters")}),
        (
            HALF,
            {"t.half": ("t", "half"), "t.half-checks": ("t", "half-checks"), "dlq.t": ("t", "dead-letters")},
        ),
        ({**TTL, "errors.deadletterqueue.topic.name": "d"}, {"d": ("t", "dead-letters")}),
    ],
)
class TestWhichCompanions:
    def test_are_created_with_the_topic(self, configs: dict[str, str], companions: dict[str, tuple[str, str]]) -> None:
        assert {"t": None, **companions} == kinds(created("t", configs))

    def test_are_created_when_their_feature_is_enabled(
        self, configs: dict[str, str], companions: dict[str, tuple[str, str]]
    ) -> None:
        image = configured(created("t", {}), "t", configs)
        assert {"t": None, **companions} == kinds(image)
        assert configs == image.topics["t"].configs

    def test_stay_when_their_feature_is_disabled_and_are_used_again(
        self, configs: dict[str, str], companions: dict[str, tuple[str, str]]
    ) -> None:
        image = created("t", configs)
        ids = {name: topic.id for name, topic in image.topics.items()}
        for wanted in ({}, configs):
            image = configured(image, "t", wanted)
            assert ids == {name: topic.id for name, topic in image.topics.items()}


class TestCreate:
    def test_a_companion_has_the_partitions_of_its_topic(self) -> None:
        assignments = tuple(ReplicaAssignment(at, brokers(*each)) for at, each in enumerate([(0, 1), (1, 2), (2, 0)]))
        image, _ = create(cluster(3), NewTopic(name="t", assignments=assignments, configs=DELAY))
        assert 3 == len(image.topics["t"].partitions)
        assert image.topics["t"].partitions == image.topics["t.delayed"].partitions == image.topics["dlq.t"].partitions

    def test_only_the_topic_has_an_outcome(self) -> None:
        _, outcomes = create(cluster(), NewTopic(name="t", configs=DELAY))
        assert ["t"] == [outcome.name for outcome in outcomes]

    def test_validate_only_creates_nothing(self) -> None:
        image = cluster()
        unchanged, (outcome,) = create(image, NewTopic(name="t", configs=DELAY), validate_only=True)
        assert (image, ErrorCode.NONE) == (unchanged, outcome.error)

    def test_a_name_that_another_topic_has_is_refused(self) -> None:
        image = created("t.delayed", {})
        error, message = refused(image, NewTopic(name="t", configs=DELAY))
        assert ErrorCode.INVALID_CONFIG == error
        assert (
            "ottla.delay.enable of topic 't' needs the topic 't.delayed', but another topic has that name; "
            "delete it or use another topic"
        ) == message

    def test_a_name_that_another_topic_of_the_request_has_is_refused(self) -> None:
        image = cluster()
        image, outcomes = create(image, NewTopic(name="t.delayed"), NewTopic(name="t", configs=DELAY))
        assert ([ErrorCode.NONE, ErrorCode.INVALID_CONFIG], {"t.delayed": None}) == (
            [outcome.error for outcome in outcomes],
            kinds(image),
        )

    def test_a_companions_name_is_taken_for_the_rest_of_the_request(self) -> None:
        _, outcomes = create(cluster(), NewTopic(name="t", configs=DELAY), NewTopic(name="t.delayed"))
        assert [ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS] == [outcome.error for outcome in outcomes]

    def test_a_colliding_name_is_refused(self) -> None:
        error, message = refused(created("t_delayed", {}), NewTopic(name="t", configs=DELAY))
        assert ErrorCode.INVALID_CONFIG == error
        assert "topic 't_delayed' has a colliding name" in message

    def test_a_name_that_would_be_too_long_is_refused(self) -> None:
        longest = "t" * (249 - len(".delayed"))
        assert f"{longest}.delayed" in created(longest, DELAY).topics
        error, message = refused(cluster(), NewTopic(name=f"{longest}t", configs=DELAY))
        assert ErrorCode.INVALID_CONFIG == error
        assert "at most 249 characters, not 250" in message

    @pytest.mark.parametrize("configs", [DELAY, RETRY, TTL])
    def test_an_internal_topic_has_no_queues(self, configs: dict[str, str]) -> None:
        name = "__consumer_offsets"
        error, message = refused(cluster(), NewTopic(name=name, configs=configs))
        assert (ErrorCode.INVALID_CONFIG, f"topic '{name}' is an internal topic; it cannot have queues") == (
            error,
            message,
        )
        with pytest.raises(InvalidConfigError, match="is an internal topic"):
            decide_topic_configs(created(name, {}), name, configs, random=RANDOM)

    @pytest.mark.parametrize(
        ("dead_letters", "why"),
        [
            ("t", "cannot be its own dead-letter topic"),
            ("__consumer_offsets", "is an internal topic"),
            ("no such name", "use only ASCII letters"),
            ("o.delayed", "that is a companion of kind delayed"),
        ],
    )
    def test_a_dead_letter_topic_that_is_impossible(self, dead_letters: str, why: str) -> None:
        image = created("o", DELAY)
        configs = {"errors.deadletterqueue.topic.name": dead_letters}
        error, message = refused(image, NewTopic(name="t", configs=configs))
        assert ErrorCode.INVALID_CONFIG == error
        assert why in message

    def test_dead_letters_that_expire_must_not_return(self) -> None:
        def expiring(dead_letters: str) -> dict[str, str]:
            return {"ottla.ttl.ms": "1000", "errors.deadletterqueue.topic.name": dead_letters}

        image = created("a", {})
        image = created("b", expiring("a"), image=image)
        image = created("c", expiring("b"), image=image)
        with pytest.raises(InvalidConfigError, match="would return to it as dead letters: a -> c -> b -> a"):
            decide_topic_configs(image, "a", expiring("c"), random=RANDOM)
        # Without a TTL nothing moves on, and a topic beside a cycle is not part of it.
        image = configured(image, "a", {"errors.deadletterqueue.topic.name": "c"})
        image = configured(image, "a", expiring("d"))
        assert {"a": None, "b": None, "c": None, "d": ("a", "dead-letters")} == kinds(image)

    def test_topics_may_share_a_dead_letter_topic(self) -> None:
        configs = {"errors.deadletterqueue.topic.name": "d"}
        image, outcomes = create(cluster(), NewTopic(name="a", configs=configs), NewTopic(name="b", configs=configs))
        assert [ErrorCode.NONE] * 2 == [outcome.error for outcome in outcomes]
        image = created("c", configs, count=2, image=image)
        assert {"a": None, "b": None, "c": None, "d": ("a", "dead-letters")} == kinds(image)

    def test_an_ordinary_topic_may_be_a_dead_letter_topic(self) -> None:
        image = created("d", {})
        before = image.topics["d"]
        image = created("t", {"errors.deadletterqueue.topic.name": "d"}, image=image)
        assert before is image.topics["d"]

    def test_a_dead_letter_topic_of_the_same_request(self) -> None:
        topic = NewTopic(name="t", configs={"errors.deadletterqueue.topic.name": "d"})
        image, outcomes = create(cluster(), NewTopic(name="d"), topic)
        assert ([ErrorCode.NONE] * 2, {"d": None, "t": None}) == ([each.error for each in outcomes], kinds(image))

    def test_a_dead_letter_topic_may_have_fewer_partitions(self) -> None:
        image = created("t", {"errors.deadletterqueue.topic.name": "d"}, image=created("d", {}, count=1))
        assert 1 == len(image.topics["d"].partitions)

    @pytest.mark.parametrize("config", ["ottla.companion.of", "ottla.companion.kind"])
    def test_clients_cannot_mark_a_companion(self, config: str) -> None:
        error, message = refused(cluster(), NewTopic(name="t", configs={config: "delayed"}))
        assert (
            ErrorCode.INVALID_CONFIG,
            f"{config} is set by the controller only; enable a queue on the topic instead",
        ) == (error, message)

    def test_companions_count_for_the_limit_of_one_request(self) -> None:
        error, message = refused(cluster(), NewTopic(name="t", partition_count=4_000, configs=DELAY))
        assert ErrorCode.POLICY_VIOLATION == error
        assert "create these 12000 in another request" in message


class TestGroupCompanions:
    @pytest.mark.parametrize("asked", ["t.g.retry", "t.g.redelivery"])
    def test_both_are_created(self, asked: str) -> None:
        image, (outcome,) = create(created("t", RETRY), NewTopic(name=asked))
        assert (asked, image.topics[asked].id, 3, 1, image.topics[asked].configs) == (
            outcome.name,
            outcome.id,
            outcome.partition_count,
            outcome.replication_factor,
            outcome.configs,
        )
        assert {
            "t": None,
            "dlq.t": ("t", "dead-letters"),
            "t.g.retry": ("t", "retry"),
            "t.g.redelivery": ("t", "redelivery"),
        } == kinds(image)
        assert image.topics["t"].partitions == image.topics["t.g.retry"].partitions
        assert ErrorCode.TOPIC_ALREADY_EXISTS == refused(image, NewTopic(name=asked))[0]

    def test_both_in_one_request(self) -> None:
        image = created("t", RETRY)
        _, outcomes = create(image, NewTopic(name="t.g.retry"), NewTopic(name="t.g.redelivery"))
        assert [ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS] == [outcome.error for outcome in outcomes]

    def test_together_with_their_topic(self) -> None:
        image, outcomes = create(cluster(), NewTopic(name="t", configs=RETRY), NewTopic(name="t.g.retry"))
        assert [ErrorCode.NONE] * 2 == [outcome.error for outcome in outcomes]
        assert ("t", "retry") == kinds(image)["t.g.retry"]
        assert ("t", "redelivery") == kinds(image)["t.g.redelivery"]

    @pytest.mark.parametrize("name", ["t.g.retry", "t.g.redelivery"])
    def test_retry_is_refused_where_an_ordinary_topic_has_the_name(self, name: str) -> None:
        image = created(name, {})
        error, message = refused(image, NewTopic(name="t", configs=RETRY))
        assert ErrorCode.INVALID_CONFIG == error
        assert f"needs the topic '{name}' for consumer group 'g', but another topic has that name" in message
        _, outcomes = create(cluster(), NewTopic(name=name), NewTopic(name="t", configs=RETRY))
        assert [ErrorCode.NONE, ErrorCode.INVALID_CONFIG] == [outcome.error for outcome in outcomes]
        with pytest.raises(InvalidConfigError, match="for consumer group 'g'"):
            decide_topic_configs(created("t", {}, image=image), "t", RETRY, random=RANDOM)

    def test_without_retry_it_is_an_ordinary_topic(self) -> None:
        image, _ = create(created("t", DELAY), NewTopic(name="t.g.retry"))
        assert None is kinds(image)["t.g.retry"]

    @pytest.mark.parametrize(
        "options",
        [{"partition_count": 4}, {"replication_factor": 2}, {"configs": {"retention.ms": "5"}}],
    )
    def test_one_that_differs_from_its_topic_is_refused(self, options: dict[str, int]) -> None:
        error, message = refused(created("t", RETRY), NewTopic(name="t.g.retry", **options))  # type: ignore[arg-type]
        assert ErrorCode.POLICY_VIOLATION == error
        assert "with 3 partition(s) and replication factor 1" in message

    def test_the_counts_of_its_topic_are_allowed(self) -> None:
        new = NewTopic(name="t.g.retry", partition_count=3, replication_factor=1)
        assert "t.g.redelivery" in create(created("t", RETRY), new)[0].topics

    def test_a_group_id_that_is_not_legal_in_a_topics_name(self) -> None:
        error, message = refused(created("t", RETRY), NewTopic(name="t.my group.retry"))
        assert ErrorCode.INVALID_TOPIC_EXCEPTION == error
        assert message.endswith(": consumer group 'my group' cannot have companions of topic 't'")

    @pytest.mark.parametrize(
        ("name", "found"),
        [
            ("a.g.retry", GroupCompanions("a", "g")),
            ("a.b.g.redelivery", GroupCompanions("a.b", "g")),
            ("a.x.y.retry", GroupCompanions("a", "x.y")),
            ("a.retry", None),
            ("a..retry", None),
            (".g.retry", None),
            ("c.g.retry", None),
            ("plain.g.retry", None),
            ("a.g.delayed", None),
            (".retry", None),
        ],
    )
    def test_the_topic_and_group_of_a_name(self, name: str, found: GroupCompanions | None) -> None:
        image = created("plain", DELAY, image=created("a.b", RETRY, image=created("a", RETRY)))
        assert found == group_companions(image.topics, name)

    @given(st.text(alphabet="ab.", max_size=6), st.sampled_from([".retry", ".redelivery", ""]))
    def test_any_name_is_told(self, stem: str, suffix: str) -> None:
        image = cluster()
        topics = {name: TopicImage(name=name, id=RANDOM_ID, partitions=(), configs=RETRY) for name in ("a", "a.b", "b")}
        found = group_companions(topics, stem + suffix)
        assert found is None or stem + suffix in [each.name for each in found.both]
        assert image.topics == {}


RANDOM_ID = created("x", {}).topics["x"].id


class TestConfigs:
    def test_parked_records_are_as_durable_as_the_topic(self) -> None:
        durable = {"min.insync.replicas": "2", "flush.messages": "1", "unclean.leader.election.enable": "true"}
        image = created("t", {**DELAY, **durable, "retention.ms": "5"})
        assert {
            **durable,
            "ottla.companion.of": "t",
            "ottla.companion.kind": "delayed",
            "cleanup.policy": "delete",
            "retention.ms": "-1",
            "retention.bytes": "-1",
            "max.message.bytes": str(2**31 - 1),
            "message.timestamp.type": "CreateTime",
            "message.timestamp.before.max.ms": str(2**63 - 1),
            "message.timestamp.after.max.ms": str(2**63 - 1),
        } == image.topics["t.delayed"].configs

    def test_redelivered_records_live_as_long_as_the_topics(self) -> None:
        configs = companion_configs("t", CompanionKind.REDELIVERY, {"retention.ms": "5", "cleanup.policy": "compact"})
        assert ("5", "delete") == (configs["retention.ms"], configs["cleanup.policy"])

    @pytest.mark.parametrize("kind", CompanionKind)
    def test_the_configs_of_a_companion_are_valid(self, kind: CompanionKind) -> None:
        validate_topic_configs(companion_configs("t", kind, {"min.insync.replicas": "2", "retention.ms": "5"}))

    def test_companions_follow_their_topic(self) -> None:
        image = created("t", {**DELAY, "min.insync.replicas": "2"})
        image = configured(image, "t.delayed", {**image.topics["t.delayed"].configs, "segment.bytes": "2000000"})
        image = configured(image, "t", {**DELAY, "flush.ms": "9"})
        delayed = image.topics["t.delayed"].configs
        assert ("9", None, "2000000") == tuple(map(delayed.get, ("flush.ms", "min.insync.replicas", "segment.bytes")))
        assert "2" == image.topics["dlq.t"].configs["min.insync.replicas"]

    def test_replacing_a_companions_configs_keeps_what_follows_the_topic(self) -> None:
        image = created("t", {**DELAY, "min.insync.replicas": "2"})
        before = image.topics["t.delayed"].configs
        image = configured(image, "t.delayed", {"segment.bytes": "2000000"})
        assert {**before, "segment.bytes": "2000000"} == image.topics["t.delayed"].configs

    @pytest.mark.parametrize(
        ("topic", "config"),
        [
            ("t", {"ottla.companion.of": "x"}),
            ("t.delayed", {"ottla.companion.of": "x"}),
            ("t.delayed", {"ottla.companion.kind": "half"}),
            ("t.delayed", {"retention.ms": "5"}),
            ("t.delayed", {"min.insync.replicas": "5"}),
            ("dlq.t", {"ottla.companion.kind": "half"}),
        ],
    )
    def test_what_the_controller_sets_is_refused(self, topic: str, config: dict[str, str]) -> None:
        image = created("t", DELAY)
        with pytest.raises(InvalidConfigError, match=f"{next(iter(config))} .*set by the controller"):
            decide_topic_configs(image, topic, {**image.topics[topic].configs, **config}, random=RANDOM)

    def test_dead_letters_may_be_limited(self) -> None:
        image = created("t", DELAY)
        image = configured(image, "dlq.t", {"retention.ms": "5"})
        assert {"ottla.companion.of": "t", "ottla.companion.kind": "dead-letters", "retention.ms": "5"} == image.topics[
            "dlq.t"
        ].configs

    def test_enabling_is_refused_where_the_name_is_taken(self) -> None:
        image = created("t.half", {}, image=created("t", {}))
        for validate_only in (False, True):
            with pytest.raises(InvalidConfigError, match=r"ottla\.half\.enable of topic 't' needs the topic 't\.half'"):
                decide_topic_configs(image, "t", HALF, random=RANDOM, validate_only=validate_only)

    def test_companions_are_recognised_after_the_metadata_was_recovered(self) -> None:
        wanted = {**DELAY, **RETRY}
        before, _ = create(created("t", wanted), NewTopic(name="t.g.retry"))
        image = cluster()
        for name, topic in before.topics.items():
            image = recovered(name, count=len(topic.partitions), image=image)
        ids = {name: topic.id for name, topic in image.topics.items()}
        image = configured(image, "t", {**KEEP_EVERYTHING, **wanted})
        assert ids == {name: topic.id for name, topic in image.topics.items()}
        assert {**kinds(before), "dlq.t": None} == kinds(image)
        assert before.topics["t.delayed"].configs == image.topics["t.delayed"].configs

    def test_a_topic_that_someone_configured_is_not_taken_for_a_recovered_companion(self) -> None:
        image = recovered("t.delayed", image=recovered("t"))
        image = configured(image, "t.delayed", {**KEEP_EVERYTHING, "segment.ms": "5"})
        assert {"retention.ms": "-1", "segment.ms": "5"} == image.topics["t.delayed"].configs
        with pytest.raises(InvalidConfigError, match="another topic has that name"):
            decide_topic_configs(image, "t", DELAY, random=RANDOM)

    @pytest.mark.parametrize("name", ["t.delayed", "t.half", "t.half-checks", "t.g.retry", "t.g.redelivery"])
    def test_a_planted_topic_is_not_adopted(self, name: str) -> None:
        """Its records came from clients that may not be allowed to write to the topic itself."""
        wanted = {**DELAY, **HALF, **RETRY}
        planted = {config: value for config, value in KEEP_EVERYTHING.items() if config != RECOVERED}
        for image in (created("t", {}), recovered("t")):
            image = created(name, planted, image=image)
            with pytest.raises(InvalidConfigError, match=f"needs the topic '{re.escape(name)}'.*another topic has"):
                decide_topic_configs(image, "t", wanted, random=RANDOM)
        _, (outcome,) = create(created(name, planted), NewTopic(name="t", replication_factor=1, configs=wanted))
        assert (ErrorCode.INVALID_CONFIG, True) == (outcome.error, f"'{name}'" in (outcome.message or ""))

    def test_clients_cannot_mark_a_topic_as_recovered(self) -> None:
        _, (outcome,) = create(cluster(), NewTopic(name="t", replication_factor=1, configs=KEEP_EVERYTHING))
        assert (ErrorCode.INVALID_CONFIG, True) == (outcome.error, RECOVERED in (outcome.message or ""))
        with pytest.raises(InvalidConfigError, match=RECOVERED):
            decide_topic_configs(created("t", {}), "t", KEEP_EVERYTHING, random=RANDOM)

    def test_the_mark_of_a_recovered_topic_ends_with_a_change(self) -> None:
        image = recovered("t")
        for unchanged in (KEEP_EVERYTHING, {"retention.ms": "-1"}):
            assert ControllerDecision() == decide_topic_configs(image, "t", unchanged, random=RANDOM)
        changed = configured(image, "t", {**KEEP_EVERYTHING, "retention.ms": "5"})
        assert {"retention.ms": "5"} == changed.topics["t"].configs
        assert {} == configured(image, "t", {}).topics["t"].configs

    def test_validate_only_changes_nothing(self) -> None:
        image = created("t", {})
        assert ControllerDecision() == decide_topic_configs(image, "t", HALF, random=RANDOM, validate_only=True)


class TestPartitions:
    def test_companions_grow_with_their_topic(self) -> None:
        image = create(created("t", {**RETRY, **DELAY}, image=cluster(3)), NewTopic(name="t.g.retry"))[0]
        decision = decide_add_partitions(image, [NewPartitions(topic="t", partition_count=5)], random=RANDOM)
        assert ["t"] == [outcome.name for outcome in decision.outcomes]
        image = after(image, decision)
        assert {"t", "t.delayed", "dlq.t", "t.g.retry", "t.g.redelivery"} == {*image.topics}
        assert {image.topics["t"].partitions} == {topic.partitions for topic in image.topics.values()}
        assert 5 == len(image.topics["t"].partitions)

    def test_a_dead_letter_topic_with_more_partitions_stays(self) -> None:
        image = created("t", DELAY)
        image = after(
            image, decide_add_partitions(image, [NewPartitions(topic="dlq.t", partition_count=5)], random=RANDOM)
        )
        for count, expected in ((4, 5), (6, 6)):
            new = [NewPartitions(topic="t", partition_count=count)]
            image = after(image, decide_add_partitions(image, new, random=RANDOM))
            assert (count, count, expected) == tuple(
                len(image.topics[name].partitions) for name in ("t", "t.delayed", "dlq.t")
            )

    def test_a_companion_does_not_grow_alone(self) -> None:
        image = created("t", DELAY)
        new = NewPartitions(topic="t.delayed", partition_count=5)
        (outcome,) = decide_add_partitions(image, [new], random=RANDOM).outcomes
        assert (
            ErrorCode.POLICY_VIOLATION,
            "topic 't.delayed' is a companion of topic 't' and always has as many partitions; add partitions to 't'",
        ) == (outcome.error, outcome.message)

    def test_companions_move_with_their_topic(self) -> None:
        image = created("t", DELAY, count=1, image=cluster(3))
        (first,) = image.topics["t"].partitions[0].replicas
        second, third = [each for each in brokers(0, 1, 2) if each != first]
        decision = decide_reassign(image, [Reassignment(topic="t", partition=0, replicas=(second,))])
        assert ["t"] == [outcome.topic for outcome in decision.outcomes]
        moved = after(image, decision)
        assert moved.topics["t"].partitions == moved.topics["t.delayed"].partitions != image.topics["t"].partitions
        assert image.topics["dlq.t"].partitions == moved.topics["dlq.t"].partitions
        requests = [
            Reassignment(topic="t", partition=0, replicas=(second,)),
            Reassignment(topic="t.delayed", partition=0, replicas=(third,)),
        ]
        moved = after(image, decide_reassign(image, requests))
        assert brokers(third) == moved.topics["t.delayed"].partitions[0].adding

    def test_a_move_of_the_topic_alone_is_cancelled(self) -> None:
        image = created("t", DELAY, count=1, image=cluster(3))
        (first,) = image.topics["t"].partitions[0].replicas
        second = next(each for each in brokers(0, 1) if each != first)
        move = [
            Reassignment(topic="t", partition=0, replicas=(second,)),
            Reassignment(topic="t.delayed", partition=0, replicas=(first,)),
        ]
        moved = after(image, decide_reassign(image, move))
        (outcome,) = (back := decide_reassign(moved, [Reassignment(topic="t", partition=0, replicas=None)])).outcomes
        assert ErrorCode.NONE == outcome.error
        assert brokers(first) == after(moved, back).topics["t"].partitions[0].replicas

    def test_a_new_companion_is_beside_its_topic(self) -> None:
        image = cluster(4)
        partition = PartitionImage(
            replicas=brokers(0, 1, 2, 3), isr=brokers(1), leader=brokers(1)[0], leader_epoch=LeaderEpoch(7),
            removing=brokers(3),
        )  # fmt: skip
        made = beside(without_broker(image, 0), partition)
        assert (
            PartitionImage(
                replicas=brokers(0, 1, 2), isr=brokers(1, 2), leader=brokers(1)[0], leader_epoch=LeaderEpoch(0)
            )
            == made
        )
        assert brokers(0, 2) == beside(without_broker(image, 1), partition).isr
        alone = PartitionImage(replicas=brokers(3), isr=brokers(3), leader=brokers(3)[0], leader_epoch=LeaderEpoch(7))
        assert NO_LEADER == beside(without_broker(image, 3), alone).leader


class TestDelete:
    def test_companions_are_deleted_with_their_topic_but_dead_letters_stay(self) -> None:
        image = created("t", {**DELAY, **RETRY, **HALF}, image=created("other", DELAY))
        image, _ = create(image, NewTopic(name="t.g.retry"))
        image = after(image, delete(image, "t"))
        assert {"other", "other.delayed", "dlq.other", "dlq.t"} == {*image.topics}
        assert {"t", "t.delayed", "t.half", "t.half-checks", "t.g.retry", "t.g.redelivery"} == {
            *image.deleted_topics.values()
        }
        image = created("t", DELAY, image=image)
        assert ("t", "dead-letters") == kinds(image)["dlq.t"]
        assert {"t", "t.delayed", "dlq.t"} <= {*image.topics}

    def test_a_companion_of_a_disabled_feature_may_be_deleted(self) -> None:
        image = configured(created("t", DELAY), "t", {})
        assert "t.delayed" not in after(image, delete(image, "t.delayed")).topics

    @pytest.mark.parametrize(
        ("name", "why"),
        [
            ("t.delayed", "topic 't.delayed' belongs to topic 't'; set ottla.delay.enable=false there first"),
            ("t.half-checks", "topic 't.half-checks' belongs to topic 't'; set ottla.half.enable=false there first"),
            (
                "t.g.redelivery",
                "topic 't.g.redelivery' belongs to topic 't'; delete 't.g.retry', which deletes both",
            ),
            ("dlq.t", "topic 'dlq.t' is the dead-letter topic of topic 't'; disable the queues there first"),
        ],
    )
    def test_a_companion_of_an_enabled_feature_is_not_deleted(self, name: str, why: str) -> None:
        image, _ = create(created("t", {**DELAY, **RETRY, **HALF}), NewTopic(name="t.g.retry"))
        decision = delete(image, name)
        assert ((), [(name, ErrorCode.POLICY_VIOLATION, why)]) == (
            decision.operations,
            [(outcome.name, outcome.error, outcome.message) for outcome in decision.outcomes],
        )

    @pytest.mark.parametrize("names", [["t.g.retry"], ["t.g.retry", "t.g.redelivery"], ["t.g.redelivery", "t.g.retry"]])
    def test_the_companions_of_a_group_are_deleted_together(self, names: list[str]) -> None:
        image, _ = create(created("t", RETRY), NewTopic(name="t.g.retry"))
        assert {"t", "dlq.t"} == {*after(image, delete(image, *names)).topics}

    def test_everything_in_one_request(self) -> None:
        image, _ = create(created("t", {**DELAY, **RETRY}), NewTopic(name="t.g.retry"))
        decision = delete(image, *image.topics)
        assert {ErrorCode.NONE} == {outcome.error for outcome in decision.outcomes}
        assert {} == after(image, decision).topics

    def test_a_dead_letter_topic_is_kept_for_all_that_use_it(self) -> None:
        configs = {"errors.deadletterqueue.topic.name": "d"}
        image = created("b", configs, image=created("a", configs))
        image = after(image, delete(image, "a"))
        assert [ErrorCode.POLICY_VIOLATION] == [outcome.error for outcome in delete(image, "d").outcomes]
        image = after(image, delete(image, "b"))
        assert {} == after(image, delete(image, "d")).topics
