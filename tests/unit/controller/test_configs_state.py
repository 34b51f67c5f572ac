"""Storing configs and handing out producer ids."""

import pytest

from ottla.controller.configs_state import decide_broker_configs, decide_producer_ids, decide_topic_configs
from ottla.controller.decisions import ControllerDecision, NewTopic, TopicDefaults
from ottla.controller.topics_state import decide_create
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import (
    PRODUCER_IDS_KEY,
    ProducerIdsRecord,
    broker_configs_key,
    encode,
    topic_configs_key,
    topic_key,
)
from ottla.metadata.store import Check, ConflictError, Put
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import InvalidRequestError, StorageError, UnknownTopicError
from ottla.sim.random import SimRandom
from tests.unit.controller.images import after, after_operations, cluster

RANDOM = SimRandom(1)


def with_topic() -> ClusterImage:
    image = cluster()
    made = decide_create(
        image,
        [NewTopic(name="t")],
        defaults=TopicDefaults(),
        validate_configs=lambda _: None,
        random=RANDOM,
    )
    return after(image, made)


def test_a_topics_configs_are_replaced_and_removed() -> None:
    image = with_topic()
    image = after(image, decide_topic_configs(image, "t", {"a": "1", "b": "2"}, random=RANDOM))
    assert {"a": "1", "b": "2"} == image.topics["t"].configs
    assert ControllerDecision() == decide_topic_configs(image, "t", {"b": "2", "a": "1"}, random=RANDOM)
    image = after(image, decide_topic_configs(image, "t", {"b": "3"}, random=RANDOM))
    assert {"b": "3"} == image.topics["t"].configs
    image = after(image, decide_topic_configs(image, "t", {}, random=RANDOM))
    assert ({}, 0) == (image.topics["t"].configs, image.revision_of(topic_configs_key("t")))
    assert ControllerDecision() == decide_topic_configs(image, "t", {}, random=RANDOM)


def test_a_topic_that_goes_meanwhile_takes_no_configs() -> None:
    image = with_topic()
    assert Check(topic_key("t"), 2) in decide_topic_configs(image, "t", {"a": "1"}, random=RANDOM).operations
    with pytest.raises(UnknownTopicError, match="'x'") as raised:
        decide_topic_configs(image, "x", {}, random=RANDOM)
    assert ErrorCode.UNKNOWN_TOPIC_OR_PARTITION == raised.value.code


def test_expected_revision() -> None:
    image = with_topic()
    image = after(image, decide_topic_configs(image, "t", {"a": "1"}, expected=0, random=RANDOM))
    with pytest.raises(ConflictError, match="not at 0"):
        decide_topic_configs(image, "t", {"a": "1"}, expected=0, random=RANDOM)
    revision = image.revision_of(topic_configs_key("t"))
    assert {"a": "2"} == after(image, decide_topic_configs(image, "t", {"a": "2"}, revision, random=RANDOM)).topics[
        "t"
    ].configs


def test_broker_configs() -> None:
    image = cluster()
    image = after(image, decide_broker_configs(image, "", {"a": "1"}))
    image = after(image, decide_broker_configs(image, "7", {"a": "2"}, expected=0))
    assert {"": {"a": "1"}, "7": {"a": "2"}} == image.broker_configs
    with pytest.raises(ConflictError, match="not at 0"):
        decide_broker_configs(image, "7", {}, expected=0)
    image = after(image, decide_broker_configs(image, "7", {}, image.revision_of(broker_configs_key("7"))))
    assert {"": {"a": "1"}} == image.broker_configs


@pytest.mark.parametrize("broker", ["default", "-1", "a/b", "١", " "])
def test_a_broker_is_a_number(broker: str) -> None:
    with pytest.raises(InvalidRequestError, match="not a broker id"):
        decide_broker_configs(cluster(), broker, {"a": "1"})


def test_blocks_of_producer_ids_follow_each_other() -> None:
    image = cluster()
    blocks: list[range] = []
    for _ in range(3):
        decision = decide_producer_ids(image)
        blocks += decision.outcomes
        image = after(image, decision)
    assert [range(1000), range(1000, 2000), range(2000, 3000)] == blocks


def test_no_producer_id_is_beyond_the_wire() -> None:
    used_up = Put(PRODUCER_IDS_KEY, encode(ProducerIdsRecord(next_id=2**63 - 5)))
    with pytest.raises(StorageError, match="no producer ids are left"):
        decide_producer_ids(after_operations(cluster(), [used_up]))
