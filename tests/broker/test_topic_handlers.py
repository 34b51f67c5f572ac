"""CreateTopics, DeleteTopics, CreatePartitions, ElectLeaders and reassignments: outcomes become answers."""

from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from ottla.broker.handlers.cluster.elections import moves_of
from ottla.metadata.image import ClusterImage, PartitionImage, TopicImage
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import BrokerId, LeaderEpoch
from ottla.protocol.apis import ApiKey
from tests.broker.running_broker import SOON, ask, broker_on, make_topic, metadata_store, request_of, running


def wish(name: str, **values: Any) -> dict[str, Any]:
    return {"name": name, "num_partitions": -1, "replication_factor": -1, **values}


def errors_of(topics: Any) -> list[tuple[str | None, int]]:
    return [(topic.name, topic.error_code.value) for topic in topics]


class TestCreateTopics:
    async def test_the_answer_shows_what_was_made(self, tmp_path: Path) -> None:
        async with running(tmp_path, num_partitions="3", log_segment_bytes="2097152") as broker:
            configs = [{"name": "retention.ms", "value": "5"}]
            request = {"timeout": SOON, "topics": [wish("t", configs=configs), wish("u")]}
            made, other = (await ask(broker, ApiKey.CREATE_TOPICS, request)).topics
            assert (broker.image.topics["t"].id, 3, 1) == (made.topic_id, made.num_partitions, made.replication_factor)
            shown = {config.name: (config.value, config.config_source) for config in made.configs}
            assert ("5", 1) == shown["retention.ms"]
            assert ("2097152", 4) == shown["segment.bytes"]
            others = {config.name: (config.value, config.config_source) for config in other.configs}
            assert ("604800000", 5) == others["retention.ms"]
            assert 3 == len(broker.partitions.of_topic("t"))

    async def test_configs_are_shown_from_version_5_on(self, tmp_path: Path) -> None:
        async with running(tmp_path) as broker:
            for version, is_shown in ((4, False), (5, True)):
                request = {"timeout": SOON, "topics": [wish(f"t{version}")]}
                (made,) = (await ask(broker, ApiKey.CREATE_TOPICS, request, version)).topics
                assert is_shown == bool(getattr(made, "configs", ()))

    async def test_a_name_that_is_there_twice_has_one_answer(self, tmp_path: Path) -> None:
        async with running(tmp_path) as broker:
            request = {"timeout": SOON, "topics": [wish("t"), wish("u"), wish("t")]}
            assert [("t", 42), ("u", 0)] == errors_of((await ask(broker, ApiKey.CREATE_TOPICS, request)).topics)

    async def test_too_many_partitions(self, tmp_path: Path) -> None:
        async with running(tmp_path) as broker:
            request = {"timeout": SOON, "topics": [wish("t", num_partitions=2**31 - 1, replication_factor=1)]}
            (refused,) = (await ask(broker, ApiKey.CREATE_TOPICS, request)).topics
            assert (ErrorCode.POLICY_VIOLATION, None, ()) == (
                refused.error_code.value,
                refused.topic_id,
                refused.configs,
            )

    @pytest.mark.parametrize("seconds", [0, -1])
    async def test_no_time_to_wait(self, tmp_path: Path, seconds: int) -> None:
        """The topic is made; whether that shows in time is a matter of luck, and what is said is true in both cases."""
        async with running(tmp_path) as broker:
            request = {"timeout": timedelta(seconds=seconds), "topics": [wish("t"), wish("no topic")]}
            made, refused = errors_of((await ask(broker, ApiKey.CREATE_TOPICS, request)).topics)
            assert made[1] in (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT)
            assert ErrorCode.INVALID_TOPIC_EXCEPTION == refused[1]
            again = {"timeout": SOON, "topics": [wish("t")]}
            (found,) = (await ask(broker, ApiKey.CREATE_TOPICS, again)).topics
            assert ErrorCode.TOPIC_ALREADY_EXISTS == found.error_code.value

    async def test_a_store_that_fails(self, tmp_path: Path) -> None:
        store = metadata_store(tmp_path)
        async with broker_on(tmp_path, store=store) as broker:
            await store.close()
            request = {"timeout": SOON, "topics": [wish("t"), wish("u")]}
            for topic in (await ask(broker, ApiKey.CREATE_TOPICS, request)).topics:
                assert topic.error_code.value != 0
                assert topic.error_message


class TestDeleteTopics:
    async def test_by_name_or_id(self, tmp_path: Path) -> None:
        async with running(tmp_path) as broker:
            await make_topic(broker, "t")
            await make_topic(broker, "u")
            topic_id = broker.image.topics["u"].id
            wanted = [{"name": "t"}, {"name": None, "topic_id": topic_id}, {"name": "missing"}]
            found = (await ask(broker, ApiKey.DELETE_TOPICS, {"timeout": SOON, "topics": wanted})).responses
            assert [("t", 0), ("u", 0), ("missing", 3)] == errors_of(found)
            assert topic_id == found[1].topic_id
            assert [] == [*broker.image.topics, *broker.partitions]

    @pytest.mark.parametrize(("version", "error"), [(2, 42), (3, 73), (6, 73)])
    async def test_where_it_is_switched_off(self, tmp_path: Path, version: int, error: int) -> None:
        async with running(tmp_path, delete_topic_enable="false") as broker:
            await make_topic(broker, "t")
            names = ["t", "missing"]
            request = {"timeout": SOON, "topics": [{"name": name} for name in names], "topic_names": names}
            found = (await ask(broker, ApiKey.DELETE_TOPICS, request, version)).responses
            assert [("t", error), ("missing", error)] == errors_of(found)
            assert ["t"] == list(broker.image.topics)


class TestCreatePartitions:
    async def test_added_partitions_are_served(self, tmp_path: Path) -> None:
        async with running(tmp_path) as broker:
            await make_topic(broker, "t")
            topics = [{"name": "t", "count": 3, "assignments": None}]
            answer = await ask(broker, ApiKey.CREATE_PARTITIONS, {"timeout": SOON, "topics": topics})
            assert [("t", 0)] == errors_of(answer.results)
            assert [0, 1, 2] == [partition.index for partition in broker.partitions.of_topic("t")]


class TestElections:
    async def test_all_partitions_and_none_that_needs_it(self, tmp_path: Path) -> None:
        async with running(tmp_path) as broker:
            await make_topic(broker, "t", 2)
            answer = await ask(broker, ApiKey.ELECT_LEADERS, {"timeout": SOON, "topic_partitions": None})
            assert (0, ()) == (answer.error_code.value, answer.replica_election_results)

    async def test_an_unknown_kind(self, tmp_path: Path) -> None:
        async with running(tmp_path) as broker:
            wanted = [{"topic": "t", "partitions": [0, 1]}]
            request = {"timeout": SOON, "topic_partitions": wanted, "election_type": 2}
            answer = await ask(broker, ApiKey.ELECT_LEADERS, request)
            (topic,) = answer.replica_election_results
            assert (42, [42, 42]) == (answer.error_code.value, [p.error_code.value for p in topic.partition_result])
            nowhere = await ask(broker, ApiKey.ELECT_LEADERS, {"topic_partitions": None, "election_type": 2})
            assert (42, ()) == (nowhere.error_code.value, nowhere.replica_election_results)


class TestReassignments:
    async def test_the_replication_factor_may_have_to_stay(self, tmp_path: Path) -> None:
        async with running(tmp_path) as broker:
            await make_topic(broker, "t", 2)
            parts = [{"partition_index": 0, "replicas": (0, 1)}, {"partition_index": 1, "replicas": (0,)}]
            request = {"timeout": SOON, "topics": [{"name": "t", "partitions": parts}]}
            for is_allowed, expected in ((True, {0: 39, 1: 0}), (False, {0: 38, 1: 0})):
                request["allow_replication_factor_change"] = is_allowed
                answer = await ask(broker, ApiKey.ALTER_PARTITION_REASSIGNMENTS, request)
                (topic,) = answer.responses
                assert expected == {part.partition_index: part.error_code.value for part in topic.partitions}
                assert is_allowed == answer.allow_replication_factor_change

    def test_moves_that_are_under_way(self) -> None:
        one, two, three = BrokerId(1), BrokerId(2), BrokerId(3)
        still = PartitionImage(replicas=(one,), isr=(one,), leader=one, leader_epoch=LeaderEpoch(0))
        moving = PartitionImage(
            replicas=(two, one), isr=(one,), leader=one, leader_epoch=LeaderEpoch(0), adding=(two,), removing=(one,)
        )
        leaving = PartitionImage(
            replicas=(one, three), isr=(one,), leader=one, leader_epoch=LeaderEpoch(0), removing=(three,)
        )
        topics = {
            "t": TopicImage(name="t", id=UUID(int=1), partitions=(still, moving)),
            "u": TopicImage(name="u", id=UUID(int=2), partitions=(leaving,)),
            "v": TopicImage(name="v", id=UUID(int=3), partitions=(still,)),
        }
        image = ClusterImage(topics=topics)

        def moves(wanted: list[dict[str, object]] | None) -> dict[str, list[tuple[object, ...]]]:
            found = moves_of(image, request_of(ApiKey.LIST_PARTITION_REASSIGNMENTS, {"topics": wanted}))
            return {
                topic.name: [
                    (part.partition_index, part.replicas, part.adding_replicas, part.removing_replicas)
                    for part in topic.partitions
                ]
                for topic in found.topics
            }

        expected = {"t": [(1, (2, 1), (2,), (1,))], "u": [(0, (1, 3), (), (3,))]}
        assert expected == moves(None)
        some: list[dict[str, object]] = [
            {"name": "u", "partition_indexes": [0, 1, -1]},
            {"name": "w", "partition_indexes": [0]},
        ]
        assert {"u": expected["u"]} == moves(some)
        assert {} == moves([{"name": "t", "partition_indexes": [0]}])
        assert {} == moves([])
