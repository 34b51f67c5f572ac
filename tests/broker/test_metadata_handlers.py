"""Metadata: encoded topics are true and shared, the loop gets its turns, and topics come to be by being asked for."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from ottla.broker.handlers.availability import Availability, availability
from ottla.broker.handlers.topics.metadata_bodies import MetadataBodies, encode_error
from ottla.metadata.image import NO_LEADER, BrokerImage, ClusterImage, PartitionImage, TopicImage
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import BrokerId, LeaderEpoch
from ottla.protocol.apis import SERVED, ApiKey
from ottla.protocol.messages import frame_body
from ottla.security.resources import ALL_OPERATION_BITS, OPERATIONS_NOT_REQUESTED, ResourceType
from tests.broker.running_broker import ask, make_topic, running
from tests.wire.exchange import read_response

VERSIONS = range(SERVED[ApiKey.METADATA].highest + 1)
NOT_REQUESTED = OPERATIONS_NOT_REQUESTED
TOPIC_BITS, CLUSTER_BITS = (ALL_OPERATION_BITS[each] for each in (ResourceType.TOPIC, ResourceType.CLUSTER))
ONE, TWO, GONE = BrokerId(1), BrokerId(2), BrokerId(3)


def partition(*replicas: BrokerId, leader: BrokerId = ONE) -> PartitionImage:
    return PartitionImage(replicas=replicas, isr=replicas[:1], leader=leader, leader_epoch=LeaderEpoch(4))


def topic(number: int, *partitions: PartitionImage) -> TopicImage:
    return TopicImage(name=f"topic-{number:03}", id=UUID(int=number + 1), partitions=partitions)


def image_of(*topics: TopicImage) -> ClusterImage:
    brokers = {id_: BrokerImage(id=id_, host=f"host-{id_}", port=9000 + id_, rack="r") for id_ in (ONE, TWO)}
    return ClusterImage(
        revision=5,
        cluster_id="the cluster",
        controller=TWO,
        brokers=brokers,
        topics={each.name: each for each in topics},
        topics_by_id={each.id: each for each in topics},
    )


def parsed(body: bytes, version: int) -> Any:
    """A body as kio reads it, which must not leave a byte."""
    return read_response(ApiKey.METADATA, version, frame_body(ApiKey.METADATA, version, 1, body)[4:])[1]


def everything(
    bodies: MetadataBodies,
    image: ClusterImage,
    version: int,
    *,
    with_operations: bool = False,
    with_cluster_operations: bool = False,
) -> Any:
    body = asyncio.run(
        bodies.everything(
            image,
            version,
            topic_operations=TOPIC_BITS if with_operations else NOT_REQUESTED,
            cluster_operations=CLUSTER_BITS if with_cluster_operations else NOT_REQUESTED,
        )
    )
    return parsed(body, version)


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        (partition(ONE, TWO), Availability(ErrorCode.NONE, ONE, ())),
        (partition(ONE, GONE), Availability(ErrorCode.NONE, ONE, (GONE,))),
        (partition(GONE, ONE, leader=GONE), Availability(ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER, (GONE,))),
        (partition(ONE, leader=NO_LEADER), Availability(ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER, ())),
    ],
)
def test_availability(image: PartitionImage, expected: Availability) -> None:
    assert expected == availability(image, {ONE, TWO}, {ONE, TWO})


class TestBodies:
    @pytest.mark.parametrize("version", VERSIONS)
    @pytest.mark.parametrize("count", [0, 1, 126, 127, 128, 300])
    def test_any_number_of_topics_in_every_version(self, version: int, count: int) -> None:
        """The number of topics is a varint in newer versions: 127 of them are the first that need two bytes."""
        image = image_of(*(topic(number, partition(ONE), partition(TWO, GONE)) for number in range(count)))
        found = everything(MetadataBodies("PLAINTEXT"), image, version)
        assert list(image.topics) == [each.name for each in found.topics]
        assert [("host-1", 9001), ("host-2", 9002)] == [(each.host, each.port) for each in found.brokers]
        if version >= 1:
            assert (2, "r") == (found.controller_id, found.brokers[0].rack)
        if version >= 2:
            assert "the cluster" == found.cluster_id
        for each in found.topics:
            assert [0, 1] == [part.partition_index for part in each.partitions]
            assert [(1,), (2, 3)] == [part.replica_nodes for part in each.partitions]
            if version >= 5:
                assert [(), (3,)] == [part.offline_replicas for part in each.partitions]

    @pytest.mark.parametrize("version", VERSIONS)
    def test_topics_that_are_not_shown_in_every_version(self, version: int) -> None:
        """A name of 127 bytes is the first whose length needs two bytes in newer versions."""
        names = ["", "a", "ü" * 3, "n" * 126, "n" * 127, "__consumer_offsets"]
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        entries = [encode_error(version, error, name=name, operations=TOPIC_BITS) for name in names]
        ids = [UUID(int=7), UUID(int=2**127)] if version >= 12 else []
        entries += [encode_error(version, ErrorCode.UNKNOWN_TOPIC_ID, topic_id=each) for each in ids]
        image = image_of()
        body = MetadataBodies("PLAINTEXT").assemble(image, version, entries, NOT_REQUESTED)
        found = parsed(body, version).topics
        assert [*names, *(None for _ in ids)] == [each.name for each in found]
        assert [error] * len(names) + [ErrorCode.UNKNOWN_TOPIC_ID] * len(ids) == [each.error_code for each in found]
        assert all(() == each.partitions for each in found)
        if version >= 1:
            assert ["__consumer_offsets"] == [each.name for each in found if each.is_internal]
        if version >= 8:
            assert [TOPIC_BITS] * len(names) == [each.topic_authorized_operations for each in found[: len(names)]]
        if version >= 10:
            assert [*(None for _ in names), *ids] == [each.topic_id for each in found]

    def test_what_did_not_change_is_not_encoded_again(self) -> None:
        first, second = topic(1, partition(ONE)), topic(2, partition(ONE))
        image, bodies = image_of(first, second), MetadataBodies("PLAINTEXT")
        kept = {each.name: bodies.topic(image, each, 9, NOT_REQUESTED, is_internal=False) for each in (first, second)}
        changed = replace(first, partitions=(partition(TWO),))
        newer = replace(image, topics={first.name: changed, second.name: second})
        assert kept[second.name] is bodies.topic(newer, second, 9, NOT_REQUESTED, is_internal=False)
        assert kept[first.name] != bodies.topic(newer, changed, 9, NOT_REQUESTED, is_internal=False)
        assert [(2,), (1,)] == [each.partitions[0].replica_nodes for each in everything(bodies, newer, 9).topics]

    def test_operations_are_an_answer_of_their_own(self) -> None:
        image, bodies = image_of(topic(1, partition(ONE))), MetadataBodies("PLAINTEXT")
        for with_operations, expected in ((False, -(2**31)), (True, 3576), (False, -(2**31))):
            found = everything(bodies, image, 8, with_operations=with_operations)
            assert expected == found.topics[0].topic_authorized_operations

    def test_a_broker_that_goes_changes_every_topic(self) -> None:
        image, bodies = image_of(topic(1, partition(ONE))), MetadataBodies("PLAINTEXT")
        assert ErrorCode.NONE == everything(bodies, image, 7).topics[0].partitions[0].error_code.value
        alone = replace(image, brokers={TWO: image.brokers[TWO]})
        found = everything(bodies, alone, 7)
        assert ["host-2"] == [broker.host for broker in found.brokers]
        part = found.topics[0].partitions[0]
        assert (ErrorCode.LEADER_NOT_AVAILABLE, -1, (1,)) == (
            part.error_code.value,
            part.leader_id,
            part.offline_replicas,
        )

    def test_another_controller_is_told(self) -> None:
        image, bodies = image_of(topic(1, partition(ONE))), MetadataBodies("PLAINTEXT")
        assert [2, 1] == [everything(bodies, each, 9).controller_id for each in (image, replace(image, controller=ONE))]

    def test_topics_that_are_gone_are_not_kept_for_ever(self) -> None:
        bodies = MetadataBodies("PLAINTEXT")
        for number in range(1000):
            alone = topic(number, partition(ONE))
            bodies.topic(image_of(alone), alone, 9, NOT_REQUESTED, is_internal=False)
        assert sum(map(len, bodies._topics.values())) < 200

    async def test_the_loop_gets_its_turns(self) -> None:
        image = image_of(*(topic(number, *[partition(ONE)] * 10) for number in range(200)))
        turns = 0
        work = asyncio.ensure_future(
            MetadataBodies("PLAINTEXT").everything(
                image, 13, topic_operations=NOT_REQUESTED, cluster_operations=NOT_REQUESTED
            )
        )
        while not work.done():
            await asyncio.sleep(0)
            turns += 1
        assert (turns) >= 200 * 10 // 250


def topics_of(answer: Any) -> dict[str | None, tuple[int, int]]:
    """Error and number of partitions of each topic in an answer."""
    return {each.name: (each.error_code.value, len(each.partitions)) for each in answer.topics}


class TestMakingTopics:
    async def test_who_asks_gets_the_topic_at_once(self, tmp_path: Path) -> None:
        async with running(tmp_path, num_partitions="3") as broker:
            request = {"topics": [{"name": "new"}, {"name": "old"}, {"name": "no topic"}, {"name": "new"}]}
            await make_topic(broker, "old", 2)
            assert {"new": (0, 3), "old": (0, 2), "no topic": (17, 0)} == topics_of(
                await ask(broker, ApiKey.METADATA, request)
            )
            assert 3 == len(broker.partitions.of_topic("new"))

    async def test_only_where_both_sides_agree(self, tmp_path: Path) -> None:
        async with running(tmp_path) as broker:
            request = {"topics": [{"name": "new"}], "allow_auto_topic_creation": False}
            assert {"new": (3, 0)} == topics_of(await ask(broker, ApiKey.METADATA, request))
            assert () == (await ask(broker, ApiKey.METADATA, {"topics": None})).topics
            assert {} == dict(broker.image.topics)
        async with running(tmp_path, auto_create_topics_enable="false") as broker:
            assert {"new": (3, 0)} == topics_of(await ask(broker, ApiKey.METADATA, {"topics": [{"name": "new"}]}))

    async def test_internal_topics_are_left_to_their_coordinators(self, tmp_path: Path) -> None:
        async with running(tmp_path) as broker:
            answer = await ask(broker, ApiKey.METADATA, {"topics": [{"name": "__consumer_offsets"}]})
            (found,) = answer.topics
            assert (3, True) == (found.error_code.value, found.is_internal)

    async def test_a_topic_that_cannot_be_made_says_why(self, tmp_path: Path) -> None:
        async with running(tmp_path, default_replication_factor="2") as broker:
            await make_topic(broker, "a.b")
            request = {"topics": [{"name": "new"}, {"name": "a_b"}]}
            assert {
                "new": (ErrorCode.INVALID_REPLICATION_FACTOR, 0),
                "a_b": (ErrorCode.INVALID_TOPIC_EXCEPTION, 0),
            } == topics_of(await ask(broker, ApiKey.METADATA, request))

    async def test_many_who_ask_at_once(self, tmp_path: Path) -> None:
        async with running(tmp_path) as broker:
            requests = [ask(broker, ApiKey.METADATA, {"topics": [{"name": "new"}]}) for _ in range(20)]
            answers = await asyncio.gather(*requests)
            assert 1 == len(set(answers))
            assert {"new": (0, 1)} == topics_of(answers[0])


class TestSelecting:
    async def test_ids_count_alone_and_the_unknown_come_first(self, tmp_path: Path) -> None:
        async with running(tmp_path) as broker:
            await make_topic(broker, "one")
            await make_topic(broker, "two")
            known, unknown = broker.image.topics["one"].id, UUID(int=9)
            wanted = [{"name": None, "topic_id": known}, {"name": "two"}, {"name": None, "topic_id": unknown}]
            found = (await ask(broker, ApiKey.METADATA, {"topics": wanted})).topics
            assert [(None, unknown, 100), ("one", known, 0)] == [
                (each.name, each.topic_id, each.error_code.value) for each in found
            ]

    @pytest.mark.parametrize(
        ("version", "wanted"),
        [(13, {"name": None}), (11, {"name": None}), (10, {"name": "x", "topic_id": UUID(int=1)})],
    )
    async def test_a_topic_without_a_name_that_counts(
        self, tmp_path: Path, version: int, wanted: dict[str, Any]
    ) -> None:
        async with running(tmp_path) as broker:
            answer = await ask(broker, ApiKey.METADATA, {"topics": [wanted]}, version)
            assert [ErrorCode.INVALID_REQUEST] == [each.error_code.value for each in answer.topics]
            assert () == answer.brokers
            if version >= 13:
                assert ErrorCode.INVALID_REQUEST == answer.error_code.value
