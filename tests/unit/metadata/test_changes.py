"""Images made of snapshots and of changes: both ways to the same image, and damage that is named."""

from collections.abc import Mapping
from types import MappingProxyType
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.metadata.changes import apply, changes_of, image_of
from ottla.metadata.image import NO_LEADER, BrokerImage, ClusterImage, PartitionImage, TopicImage
from ottla.metadata.records import (
    BrokerRecord,
    ClusterRecord,
    ConfigsRecord,
    ControllerRecord,
    DeletedTopicRecord,
    LoginSecretRecord,
    PartitionRecord,
    ProducerIdsRecord,
    TopicRecord,
    broker_configs_key,
    broker_key,
    deleted_topic_key,
    encode,
    partition_key,
    topic_configs_key,
    topic_key,
)
from ottla.metadata.store import Change, Check, Delete, Entry, Put
from ottla.model.errors import CorruptError, MisuseError
from ottla.model.ids import BrokerId, LeaderEpoch

ONE = BrokerId(1)


def partition(leader_epoch: int = 0) -> bytes:
    return encode(PartitionRecord(replicas=(ONE,), isr=(ONE,), leader=ONE, leader_epoch=LeaderEpoch(leader_epoch)))


def partition_seen(leader_epoch: int = 0) -> PartitionImage:
    return PartitionImage(replicas=(ONE,), isr=(ONE,), leader=ONE, leader_epoch=LeaderEpoch(leader_epoch))


def commit(image: ClusterImage, values: Mapping[str, bytes | None]) -> ClusterImage:
    return apply(image, [Change(image.revision + 1, key, value) for key, value in values.items()])


TOPIC: dict[str, bytes | None] = {
    topic_key("t"): encode(TopicRecord(id=UUID(int=1))),
    partition_key("t", 0): partition(),
    partition_key("t", 1): partition(1),
    topic_configs_key("t"): encode(ConfigsRecord(configs={"a": "b"})),
}


def test_everything_is_seen() -> None:
    image = commit(
        ClusterImage(),
        {
            "cluster": encode(ClusterRecord(id="c")),
            "controller": encode(ControllerRecord(broker=ONE)),
            "producer-ids": encode(ProducerIdsRecord(next_id=1000)),
            "login-secret": encode(LoginSecretRecord(secret=b"secret")),
            broker_key(ONE): encode(BrokerRecord(host="h", port=2, rack="r")),
            broker_configs_key(""): encode(ConfigsRecord(configs={"all": "1"})),
            broker_configs_key("1"): encode(ConfigsRecord(configs={"one": "2"})),
            "quotas/somebody": b"of a later version",
            **TOPIC,
        },
    )
    topic = TopicImage(name="t", id=UUID(int=1), partitions=(partition_seen(), partition_seen(1)), configs={"a": "b"})
    assert (
        ClusterImage(
            revision=1,
            cluster_id="c",
            controller=ONE,
            brokers={ONE: BrokerImage(id=ONE, host="h", port=2, rack="r")},
            topics={"t": topic},
            topics_by_id={UUID(int=1): topic},
            broker_configs={"": {"all": "1"}, "1": {"one": "2"}},
            next_producer_id=1000,
            login_secret=b"secret",
            revisions=image.revisions,
        )
        == image
    )
    assert "login_secret" not in repr(image)
    assert (1, 1, 0) == (image.revision_of("cluster"), image.revision_of("quotas/somebody"), image.revision_of("x"))


def test_everything_goes() -> None:
    values = {
        "cluster": encode(ClusterRecord(id="c")),
        "controller": encode(ControllerRecord(broker=ONE)),
        "producer-ids": encode(ProducerIdsRecord(next_id=1000)),
        "login-secret": encode(LoginSecretRecord(secret=b"secret")),
        broker_key(ONE): encode(BrokerRecord(host="h", port=2)),
        broker_configs_key(""): encode(ConfigsRecord(configs={"all": "1"})),
        deleted_topic_key(UUID(int=9)): encode(DeletedTopicRecord(name="gone")),
        **TOPIC,
    }
    image = commit(commit(ClusterImage(), values), dict.fromkeys(values))
    assert ClusterImage(revision=2) == image
    assert NO_LEADER == image.controller


def test_history_and_deleted_topics() -> None:
    key = deleted_topic_key(UUID(int=9))
    values: dict[str, bytes | None] = {
        "cluster": encode(ClusterRecord(id="c", history="h")),
        key: encode(DeletedTopicRecord(name="gone")),
    }
    image = commit(ClusterImage(), values)
    assert ("c", "h", {UUID(int=9): "gone"}) == (image.cluster_id, image.history, image.deleted_topics)
    assert {} == commit(image, {key: None}).deleted_topics


def test_a_change_leaves_the_old_image_and_shares_the_rest() -> None:
    other: dict[str, bytes | None] = {
        topic_key("u"): encode(TopicRecord(id=UUID(int=2))),
        partition_key("u", 0): partition(),
    }
    before = commit(ClusterImage(), {**TOPIC, **other})
    after = commit(before, {partition_key("t", 1): partition(9)})
    assert partition_seen(1) == before.topics["t"].partitions[1]
    assert (partition_seen(), partition_seen(9)) == after.topics["t"].partitions
    assert after.topics["t"] is after.topics_by_id[UUID(int=1)]
    assert {"a": "b"} == after.topics["t"].configs
    assert after.topics["u"] is before.topics["u"]
    assert (2, 1) == (after.revision_of(partition_key("t", 1)), after.revision_of(partition_key("t", 0)))
    assert isinstance(after.topics, MappingProxyType)


def test_a_topic_that_was_made_anew_has_one_id() -> None:
    first = commit(ClusterImage(), TOPIC)
    second = commit(first, {topic_key("t"): encode(TopicRecord(id=UUID(int=2)))})
    assert [UUID(int=2)] == list(second.topics_by_id)


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({topic_key("t"): TOPIC[topic_key("t")]}, "'partitions/t/0' is not in the metadata store"),
        ({topic_key("t"): TOPIC[topic_key("t")], partition_key("t", 1): partition()}, "'partitions/t/0' is not in"),
        ({partition_key("t", 0): partition()}, "'topics/t' is not"),
        ({topic_configs_key("t"): TOPIC[topic_configs_key("t")]}, "'topics/t' is not"),
        ({"brokers/one": encode(BrokerRecord(host="h", port=1))}, "'brokers/one'"),
        ({"brokers/": encode(BrokerRecord(host="h", port=1))}, "'brokers/'"),
        ({**TOPIC, "partitions/t/01": partition()}, "'01', which is not a number"),
        ({**TOPIC, "partitions/t/" + "9" * 5000: partition()}, "which is not a number"),
        ({"cluster": b"?"}, "'cluster' is not a ClusterRecord"),
        ({"deleted-topics/x": encode(DeletedTopicRecord(name="t"))}, "'deleted-topics/x' in the metadata store"),
        ({**TOPIC, topic_key("u"): TOPIC[topic_key("t")], partition_key("u", 0): partition()}, "has the id"),
    ],
)
def test_damage_is_named(values: dict[str, bytes], complaint: str) -> None:
    with pytest.raises(CorruptError, match=complaint):
        image_of(1, [Entry(key, value, 1) for key, value in values.items()])
    with pytest.raises(CorruptError, match=complaint):
        commit(ClusterImage(), values)


def test_partitions_left_behind_are_damage() -> None:
    image = commit(ClusterImage(), TOPIC)
    with pytest.raises(CorruptError, match="'topics/t' is not"):
        commit(image, {topic_key("t"): None, partition_key("t", 0): None, topic_configs_key("t"): None})


def test_commits_are_applied_once_and_whole() -> None:
    image = commit(ClusterImage(), TOPIC)
    assert image is apply(image, [])
    with pytest.raises(MisuseError, match="in order"):
        apply(image, [Change(1, "x", b"")])
    with pytest.raises(MisuseError, match="in order"):
        apply(image, [Change(2, "x", b""), Change(3, "y", b"")])


def test_changes_of_operations() -> None:
    assert [Change(5, "a", b"1"), Change(5, "b", None)] == changes_of(
        5, [Put("a", b"1", 3), Check("c", 0), Delete("b", 2)]
    )


# Random histories: topics come, go, grow and change, brokers come and go.

NAMES = st.sampled_from(["a", "b", "c.d"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("create"), NAMES, st.integers(1, 3)),
        st.tuples(st.just("delete"), NAMES, st.just(0)),
        st.tuples(st.just("grow"), NAMES, st.integers(1, 3)),
        st.tuples(st.just("lead"), NAMES, st.integers(0, 9)),
        st.tuples(st.just("configure"), NAMES, st.integers(0, 2)),
        st.tuples(st.just("broker"), st.sampled_from(["1", "2"]), st.integers(0, 2)),
        st.tuples(st.just("defaults"), st.sampled_from(["", "1"]), st.integers(0, 2)),
        st.tuples(st.just("other"), st.sampled_from(["x", "y/z"]), st.integers(0, 2)),
    ),
    max_size=25,
)


def operations_of(step: tuple[str, str, int], image: ClusterImage) -> dict[str, bytes | None]:
    """The keys that one step writes; nothing where it has no sense."""
    kind, name, number = step
    topic = image.topics.get(name)
    fresh = encode(TopicRecord(id=UUID(int=image.revision + 100)))
    values: dict[str, bytes | None] = {}
    if kind == "create" and topic is None:
        values |= {partition_key(name, index): partition() for index in range(number)}
        values[topic_key(name)] = fresh
    elif kind == "delete" and topic is not None:
        values = {partition_key(name, index): None for index in range(len(topic.partitions))}
        values |= {topic_key(name): None, topic_configs_key(name): None}
    elif kind == "grow" and topic is not None:
        start = len(topic.partitions)
        values = {partition_key(name, start + index): partition() for index in range(number)}
    elif kind == "lead" and topic is not None:
        values = {partition_key(name, number % len(topic.partitions)): partition(number)}
    elif kind == "configure" and topic is not None:
        values = {topic_configs_key(name): encode(ConfigsRecord(configs={"n": str(number)})) if number else None}
    elif kind == "broker":
        values = {f"brokers/{name}": encode(BrokerRecord(host="h", port=number)) if number else None}
    elif kind == "defaults":
        configs = encode(ConfigsRecord(configs={"n": str(number)}))
        values = {broker_configs_key(name): configs if number else None}
    elif kind == "other":
        values = {name: b"?" if number else None}
    return values


@given(STEPS)
def test_changes_one_by_one_equal_the_snapshot(steps: list[tuple[str, str, int]]) -> None:
    image = ClusterImage()
    entries: dict[str, Entry] = {}
    for step in steps:
        values = operations_of(step, image)
        if not values:
            continue
        image = commit(image, values)
        for key, value in values.items():
            entries.pop(key, None)
            if value is not None:
                entries[key] = Entry(key, value, image.revision)
        assert image_of(image.revision, sorted(entries.values())) == image
