"""DescribeCluster, DescribeTopicPartitions and DescribeLogDirs."""

import os
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from ottla.broker.handlers.cluster.cluster import description_of
from ottla.broker.handlers.topics.topic_partitions import page_of
from ottla.metadata.image import NO_LEADER, BrokerImage, ClusterImage, PartitionImage, TopicImage
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import BrokerId, LeaderEpoch
from ottla.protocol.apis import ApiKey
from ottla.protocol.messages import wire_error
from tests.broker.contexts import context_of
from tests.broker.inside import append
from tests.broker.running_broker import ask, make_topic, request_of, running
from tests.unit.storage.rig import batch

ONE, TWO, GONE = BrokerId(1), BrokerId(2), BrokerId(3)
BROKERS = {id_: BrokerImage(id=id_, host=f"host-{id_}", port=9000 + id_) for id_ in (TWO, ONE)}


class TestDescribeCluster:
    def test_brokers_in_order(self) -> None:
        image = ClusterImage(cluster_id="the cluster", controller=TWO, brokers=BROKERS)
        found = description_of(image, request_of(ApiKey.DESCRIBE_CLUSTER, {}), 2, "PLAINTEXT", -(2**31))
        assert [(1, "host-1", 9001), (2, "host-2", 9002)] == [(b.broker_id, b.host, b.port) for b in found.brokers]
        assert ("the cluster", 2, 1) == (found.cluster_id, found.controller_id, found.endpoint_type)
        assert -(2**31) == found.cluster_authorized_operations

    def test_a_controller_that_is_gone_is_not_named(self) -> None:
        image = ClusterImage(controller=GONE, brokers=BROKERS)
        assert NO_LEADER == int(
            description_of(image, request_of(ApiKey.DESCRIBE_CLUSTER, {}), 2, "PLAINTEXT", -(2**31)).controller_id
        )

    @pytest.mark.parametrize(
        ("endpoint_type", "version", "expected"),
        [
            (2, 1, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
            (7, 1, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
            (2, 0, ErrorCode.INVALID_REQUEST),
        ],
    )
    def test_endpoints_that_are_not_here(self, endpoint_type: int, version: int, expected: ErrorCode) -> None:
        request = request_of(ApiKey.DESCRIBE_CLUSTER, {"endpoint_type": endpoint_type})
        found = description_of(ClusterImage(brokers=BROKERS), request, version, "PLAINTEXT", -(2**31))
        assert (wire_error(expected), ()) == (found.error_code, found.brokers)
        assert f"asks for type {endpoint_type}" in str(found.error_message)


def topic(name: str, *leaders: BrokerId) -> TopicImage:
    partitions = tuple(
        PartitionImage(replicas=(leader, ONE), isr=(leader,), leader=leader, leader_epoch=LeaderEpoch(4))
        for leader in leaders
    )
    return TopicImage(name=name, id=UUID(int=len(name)), partitions=partitions)


TOPICS = {each.name: each for each in (topic("b", ONE, ONE, ONE), topic("a", ONE, TWO), topic("c", GONE))}
IMAGE = ClusterImage(brokers=BROKERS, topics=TOPICS)
Page = tuple[list[tuple[str | None, int, list[int]]], tuple[str, int] | None]


def page(*, partitions_max: int = 2000, **values: Any) -> Page:
    """([(topic, error, partitions)], next cursor)."""
    found = page_of(IMAGE, request_of(ApiKey.DESCRIBE_TOPIC_PARTITIONS, values), partitions_max, context_of(0))
    cursor = found.next_cursor
    return (
        [
            (each.name, each.error_code.value, [part.partition_index for part in each.partitions])
            for each in found.topics
        ],
        None if cursor is None else (cursor.topic_name, cursor.partition_index),
    )


def at(name: str, index: int) -> dict[str, object]:
    return {"topic_name": name, "partition_index": index}


class TestDescribeTopicPartitions:
    def test_all_topics_in_the_order_of_their_names(self) -> None:
        assert ([("a", 0, [0, 1]), ("b", 0, [0, 1, 2]), ("c", 0, [0])], None) == page()

    def test_page_by_page(self) -> None:
        """A page that ends with its topic points at the next one; only a topic that is not whole at itself."""
        assert ([("a", 0, [0])], ("a", 1)) == page(response_partition_limit=1)
        assert ([("a", 0, [0, 1])], ("b", 0)) == page(response_partition_limit=2)
        assert ([("a", 0, [0, 1]), ("b", 0, [0])], ("b", 1)) == page(response_partition_limit=3)
        assert ([("b", 0, [1, 2])], ("c", 0)) == page(response_partition_limit=2, cursor=at("b", 1))
        assert ([("c", 0, [0])], None) == page(response_partition_limit=2, cursor=at("c", 0))

    @pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 6, 7])
    def test_pages_together_are_everything(self, limit: int) -> None:
        seen: list[tuple[str | None, int]] = []
        cursor: dict[str, object] | None = None
        while True:
            topics, following = page(response_partition_limit=limit, cursor=cursor)
            seen += [(name, index) for name, _, partitions in topics for index in partitions]
            if following is None:
                break
            cursor = at(*following)
        assert [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2), ("c", 0)] == seen

    def test_the_broker_s_own_limit(self) -> None:
        assert ([("a", 0, [0])], ("a", 1)) == page(partitions_max=1)
        assert ([("a", 0, [0])], ("a", 1)) == page(response_partition_limit=0)
        assert ([("a", 0, [0])], ("a", 1)) == page(response_partition_limit=-5)

    def test_topics_that_are_not_there(self) -> None:
        wanted = [{"name": name} for name in ("x", "b", "no topic", "b")]
        assert ([("b", 0, [0, 1, 2]), ("no topic", 17, []), ("x", 3, [])], None) == page(topics=wanted)

    def test_a_cursor_at_a_topic_that_went_meanwhile(self) -> None:
        assert ([("b", 0, [0, 1, 2]), ("c", 0, [0])], None) == page(cursor=at("aa", 1))
        assert ([("b", 0, []), ("c", 0, [0])], None) == page(cursor=at("b", 9))

    @pytest.mark.parametrize("cursor", [at("c", 0), at("a", -1)])
    def test_cursors_that_no_page_led_to(self, cursor: dict[str, object]) -> None:
        assert ([("a", 42, [])], None) == page(topics=[{"name": "a"}], cursor=cursor)

    def test_a_leader_that_is_gone(self) -> None:
        request = request_of(ApiKey.DESCRIBE_TOPIC_PARTITIONS, {"topics": [{"name": "c"}]})
        part: Any = page_of(IMAGE, request, 9, context_of(0)).topics[0].partitions[0]
        assert ErrorCode.LEADER_NOT_AVAILABLE == part.error_code.value
        assert (NO_LEADER, (GONE,)) == (part.leader_id, part.offline_replicas)


class TestDescribeLogDirs:
    async def test_every_dir_with_what_is_in_it(self, tmp_path: Path) -> None:
        dirs = [str(tmp_path / "one"), str(tmp_path / "two")]
        async with running(tmp_path, log_dirs=",".join(dirs)) as broker:
            await make_topic(broker, "t", 4)
            append(broker.partitions.find("t", 2), batch(b"value"))
            found = (await ask(broker, ApiKey.DESCRIBE_LOG_DIRS, {"topics": None})).results
            assert dirs == [each.log_dir for each in found]
            sizes = {
                part.partition_index: part.partition_size
                for each in found
                for topic in each.topics
                for part in topic.partitions
            }
            size = batch(b"value").size_bytes
            assert {0: 0, 1: 0, 2: size, 3: 0} == sizes
            assert [2, 2] == [len(each.topics[0].partitions) for each in found]
            for each in found:
                usage = os.statvfs(each.log_dir)
                assert usage.f_blocks * usage.f_frsize == each.total_bytes
                assert 0 < each.usable_bytes <= each.total_bytes

    async def test_a_dir_that_failed(self, tmp_path: Path) -> None:
        (tmp_path / "no folder").touch()
        async with running(tmp_path, log_dirs=f"{tmp_path / 'data'},{tmp_path / 'no folder'}") as broker:
            await make_topic(broker, "t")
            intact, found = (await ask(broker, ApiKey.DESCRIBE_LOG_DIRS, {"topics": None})).results
            assert (0, ["t"]) == (intact.error_code.value, [topic.name for topic in intact.topics])
            assert (ErrorCode.KAFKA_STORAGE_ERROR, ()) == (found.error_code.value, found.topics)
            assert (-1, -1) == (found.total_bytes, found.usable_bytes)
