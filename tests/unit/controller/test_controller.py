"""The controller over a real store: what it commits, races that it wins later, and its fence."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ottla.controller.controller import ATTEMPTS_MAX, Controller
from ottla.controller.decisions import NewPartitions, NewTopic, Reassignment, TopicOutcome, TopicReference
from ottla.controller.registration import become_controller, ensure_cluster_id, register_broker
from ottla.metadata.changes import apply, image_of
from ottla.metadata.image import BrokerImage, ClusterImage
from ottla.metadata.records import (
    CLUSTER_KEY,
    PRODUCER_IDS_KEY,
    ClusterRecord,
    ProducerIdsRecord,
    encode,
    topic_configs_key,
    topic_key,
)
from ottla.metadata.sqlite.sqlite_store import SqliteStore
from ottla.metadata.store import ConflictError, Delete, Operation, Put
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import NotControllerError, UnknownTopicError
from ottla.model.ids import BrokerId, TopicPartition
from ottla.sim.clock import SimClock
from ottla.sim.random import SimRandom
from tests.unit.controller.images import brokers
from tests.unit.metadata.store_rig import opened

BROKER = BrokerImage(id=BrokerId(0), host="localhost", port=9092)


class Follower:
    """A broker's image, kept by following the store; a test can make it fall behind."""

    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        self.image = ClusterImage()

    def seen(self) -> ClusterImage:
        return self.image

    async def catch_up(self) -> ClusterImage:
        revision = (await self.store.snapshot())[0]
        changes = self.store.follow(self.image.revision)
        while self.image.revision < revision:
            self.image = apply(self.image, await anext(changes))
        return self.image


@asynccontextmanager
async def rigged(tmp_path: Path) -> AsyncIterator[tuple[SqliteStore, Follower, Controller]]:
    async with opened(tmp_path / "metadata.db") as store:
        await register_broker(store, BROKER, SimClock())
        follower = Follower(store)
        await follower.catch_up()
        yield store, follower, Controller(store, follower.seen, SimRandom(1))


def errors(outcomes: tuple[TopicOutcome, ...]) -> list[ErrorCode]:
    return [outcome.error for outcome in outcomes]


async def test_a_topics_life(tmp_path: Path) -> None:
    async with rigged(tmp_path) as (store, follower, controller):
        created = await controller.create_topics([NewTopic(name="t", partition_count=2)])
        image = await follower.catch_up()
        assert created.revision == image.revision
        assert created.outcomes[0].id == image.topics["t"].id
        grown = await controller.create_partitions([NewPartitions(topic="t", partition_count=3)])
        revision = await controller.set_topic_configs("t", {"a": "1"}, expected=0)
        image = await follower.catch_up()
        assert (grown.revision + 1, revision) == (revision, image.revision)
        assert (3, {"a": "1"}) == (len(image.topics["t"].partitions), image.topics["t"].configs)
        elected = await controller.elect_leaders([TopicPartition("t", 0)])
        assert [ErrorCode.ELECTION_NOT_NEEDED] == [outcome.error for outcome in elected.outcomes]
        moved = await controller.alter_reassignments([Reassignment(topic="t", partition=0, replicas=brokers(0))])
        assert [ErrorCode.NONE] == [outcome.error for outcome in moved.outcomes]
        assert revision == moved.revision == (await controller.finish_reassignments()).revision
        assert revision + 1 == await controller.set_broker_configs("", {"b": "2"})
        assert {"": {"b": "2"}} == (await follower.catch_up()).broker_configs
        deleted = await controller.delete_topics([TopicReference(name="t")])
        assert [ErrorCode.NONE] == errors(deleted.outcomes)
        assert {} == (await follower.catch_up()).topics
        with pytest.raises(UnknownTopicError):
            await controller.set_topic_configs("t", {})
        assert follower.image == image_of(*await store.snapshot())


async def test_ids_and_configs_survive_a_restart(tmp_path: Path) -> None:
    async with rigged(tmp_path) as (store, _, controller):
        created = await controller.create_topics([NewTopic(name="t", configs={"a": "1"})])
        cluster_id = await ensure_cluster_id(store, SimRandom(5))
    async with rigged(tmp_path) as (store, follower, _):
        topic = follower.image.topics["t"]
        assert (created.outcomes[0].id, {"a": "1"}) == (topic.id, topic.configs)
        assert cluster_id == await ensure_cluster_id(store, SimRandom(6)) == follower.image.cluster_id
        assert 22 == len(cluster_id)


async def test_a_store_of_an_earlier_version_gets_a_login_secret(tmp_path: Path) -> None:
    async with rigged(tmp_path) as (store, follower, _):
        await store.commit([Put(CLUSTER_KEY, encode(ClusterRecord(id="earlier")), 0)])
        assert ["earlier"] * 2 == [await ensure_cluster_id(store, SimRandom(number)) for number in range(2)]
        secret = (await follower.catch_up()).login_secret
        assert 32 == len(secret)
    async with rigged(tmp_path) as (store, follower, _):
        assert "earlier" == await ensure_cluster_id(store, SimRandom(5))
        assert secret == (await follower.catch_up()).login_secret


async def test_an_image_that_is_behind_decides_nothing_twice(tmp_path: Path) -> None:
    """The follower is stopped; the controller knows its own commits all the same."""
    async with rigged(tmp_path) as (store, follower, controller):
        created = await asyncio.gather(
            *(controller.create_topics([NewTopic(name=name)]) for name in ("a.b", "a_b", "a.b"))
        )
        assert [ErrorCode.NONE, ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.TOPIC_ALREADY_EXISTS] == [
            each.outcomes[0].error for each in created
        ]
        assert [range(n * 1000, n * 1000 + 1000) for n in range(3)] == [
            await controller.allocate_producer_ids() for _ in range(3)
        ]
        assert 1 == follower.image.revision
        assert 5 == (await store.snapshot())[0]


async def test_somebody_else_was_faster(tmp_path: Path) -> None:
    async with rigged(tmp_path) as (store, follower, controller):
        other = Controller(store, follower.seen, SimRandom(2))
        await other.create_topics([NewTopic(name="t")])
        assert range(1000) == await other.allocate_producer_ids()
        lost = await controller.create_topics([NewTopic(name="t"), NewTopic(name="u")])
        assert [ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.NONE] == errors(lost.outcomes)
        assert range(1000, 2000) == await controller.allocate_producer_ids()
        assert range(2000, 3000) == await other.allocate_producer_ids()


async def test_a_commit_between_two_of_its_own(tmp_path: Path) -> None:
    """Its own image then lacks the other's change; it must not be decided on."""
    async with rigged(tmp_path) as (store, follower, controller):
        other = Controller(store, follower.seen, SimRandom(2))
        await other.create_topics([NewTopic(name="a.b")])
        await controller.create_topics([NewTopic(name="c")])
        lost = await controller.create_topics([NewTopic(name="a_b")])
        assert [ErrorCode.INVALID_TOPIC_EXCEPTION] == errors(lost.outcomes)


async def test_a_cancelled_caller_leaves_no_doubt(tmp_path: Path) -> None:
    async with rigged(tmp_path) as (_, _, controller):
        creating = asyncio.create_task(controller.create_topics([NewTopic(name="a.b")]))
        for _ in range(5):
            await asyncio.sleep(0)
        creating.cancel()
        with pytest.raises(asyncio.CancelledError):
            await creating
        lost = await controller.create_topics([NewTopic(name="a_b")])
        assert [ErrorCode.INVALID_TOPIC_EXCEPTION] == errors(lost.outcomes)


async def test_configs_that_changed_since_they_were_read(tmp_path: Path) -> None:
    async with rigged(tmp_path) as (_, follower, controller):
        await controller.create_topics([NewTopic(name="t")])
        await controller.set_topic_configs("t", {"a": "1"}, expected=0)
        with pytest.raises(ConflictError, match="read it again and retry"):
            await controller.set_topic_configs("t", {"b": "1"}, expected=0)
        expected = (await follower.catch_up()).revision_of(topic_configs_key("t"))
        await controller.set_topic_configs("t", {"a": "1", "b": "1"}, expected=expected)
        assert {"a": "1", "b": "1"} == (await follower.catch_up()).topics["t"].configs


async def test_a_topic_deleted_under_its_configs(tmp_path: Path) -> None:
    async with rigged(tmp_path) as (store, follower, controller):
        await controller.create_topics([NewTopic(name="t")])
        await follower.catch_up()
        await Controller(store, follower.seen, SimRandom(2)).delete_topics([TopicReference(name="t")])
        with pytest.raises(UnknownTopicError):
            await controller.set_topic_configs("t", {"a": "1"})
        assert {} == (await follower.catch_up()).topics


class Contested:
    """A store in which another writer takes producer ids before each commit."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self.open, self.close = store.open, store.close
        self.snapshot, self.follow, self.lease = store.snapshot, store.follow, store.lease
        self.commits = 0

    async def commit(self, operations: list[Operation]) -> int:
        self.commits += 1
        await self._store.commit([Put(PRODUCER_IDS_KEY, encode(ProducerIdsRecord(next_id=self.commits)))])
        return await self._store.commit(operations)


async def test_races_are_not_lost_for_ever(tmp_path: Path) -> None:
    async with rigged(tmp_path) as (store, follower, _):
        contested = Contested(store)
        controller = Controller(contested, follower.seen, SimRandom(2))  # type: ignore[arg-type]
        with pytest.raises(ConflictError, match="retry later"):
            await controller.allocate_producer_ids()
        assert ATTEMPTS_MAX == contested.commits


class TestFence:
    async def test_one_controller_at_a_time(self, tmp_path: Path) -> None:
        async with rigged(tmp_path) as (store, follower, _):
            lease = await become_controller(store, BrokerId(0))
            assert lease is not None
            assert await become_controller(store, BrokerId(1)) is None
            assert 0 == (await follower.catch_up()).controller
            controller = Controller(store, follower.seen, SimRandom(1), lease=lease)
            assert [ErrorCode.NONE] == errors((await controller.create_topics([NewTopic(name="t")])).outcomes)

    async def test_a_replaced_controller_commits_nothing(self, tmp_path: Path) -> None:
        """It does not know yet that it was replaced: its lease looks fine, and its image is old."""
        async with rigged(tmp_path) as (store, follower, _):
            lease = await become_controller(store, BrokerId(0))
            assert lease is not None
            await follower.catch_up()
            old = Controller(store, follower.seen, SimRandom(1), lease=lease)
            await store.commit([Delete("controller", lease.revision)])
            assert not lease.is_lost
            with pytest.raises(NotControllerError):
                await old.create_topics([NewTopic(name="t")])
            successor = await become_controller(store, BrokerId(1))
            assert successor is not None
            with pytest.raises(NotControllerError) as raised:
                await old.create_topics([NewTopic(name="t")])
            assert ErrorCode.NOT_CONTROLLER == raised.value.code
            assert [] == [entry for entry in (await store.snapshot())[1] if entry.key == topic_key("t")]

    async def test_a_released_lease_ends_it(self, tmp_path: Path) -> None:
        async with rigged(tmp_path) as (store, follower, _):
            lease = await become_controller(store, BrokerId(0))
            assert lease is not None
            controller = Controller(store, follower.seen, SimRandom(1), lease=lease)
            await lease.release()
            with pytest.raises(NotControllerError):
                await controller.create_topics([NewTopic(name="t")], validate_only=True)


class TestRegistration:
    async def test_a_broker_is_seen_while_it_lives(self, tmp_path: Path) -> None:
        async with opened(tmp_path / "metadata.db") as store:
            follower = Follower(store)
            lease = await register_broker(store, BROKER, SimClock())
            assert {0: BROKER} == (await follower.catch_up()).brokers
            await lease.release()
            assert {} == (await follower.catch_up()).brokers

    async def test_an_id_that_is_taken(self, tmp_path: Path) -> None:
        async with opened(tmp_path / "metadata.db") as store:
            await register_broker(store, BROKER, SimClock())
            with pytest.raises(ConflictError, match=r"broker id 0 is taken.*choose another id"):
                await register_broker(store, BROKER, SimClock(), timeout_ms=0)

    async def test_an_id_that_becomes_free(self, tmp_path: Path) -> None:
        async with opened(tmp_path / "metadata.db") as store:
            clock = SimClock()
            first = await register_broker(store, BROKER, clock)
            waiting = asyncio.create_task(register_broker(store, BROKER, clock))
            await store.snapshot()
            await first.release()
            while not waiting.done():
                clock.advance(0.1)
                await asyncio.sleep(0)
            assert 3 == waiting.result().revision

    async def test_two_founders_agree(self, tmp_path: Path) -> None:
        path = tmp_path / "metadata.db"
        async with opened(path, shared=True) as one, opened(path, shared=True) as two:
            ids = await asyncio.gather(*(ensure_cluster_id(store, SimRandom(n)) for n, store in enumerate((one, two))))
            assert ids[0] == ids[1]


async def test_ten_thousand_partitions_at_once(tmp_path: Path) -> None:
    async with rigged(tmp_path) as (_, follower, controller):
        await controller.create_topics([NewTopic(name="t", partition_count=10_000)])
        assert 10_000 == len((await follower.catch_up()).topics["t"].partitions)


async def test_a_broker_that_the_image_does_not_show_yet_is_no_reason_to_refuse(tmp_path: Path) -> None:
    """The image may be behind: what needs more brokers than it shows is decided again on the store's newest state."""
    async with rigged(tmp_path) as (store, follower, controller):
        await register_broker(store, BrokerImage(id=BrokerId(1), host="localhost", port=9093), SimClock())
        assert [BrokerId(0)] == list(follower.image.brokers)
        wish = NewTopic(name="t", partition_count=1, replication_factor=2)
        created = await controller.create_topics([wish])
        assert [ErrorCode.NONE] == errors(created.outcomes)
        assert {0, 1} == set((await follower.catch_up()).topics["t"].partitions[0].replicas)
        refused = await controller.create_topics([NewTopic(name="u", partition_count=1, replication_factor=3)])
        assert [ErrorCode.INVALID_REPLICATION_FACTOR] == errors(refused.outcomes)
        assert "only 2 broker(s) are registered" in (refused.outcomes[0].message or "")


async def test_a_reassignment_to_a_broker_that_the_image_does_not_show_yet(tmp_path: Path) -> None:
    async with rigged(tmp_path) as (store, follower, controller):
        await controller.create_topics([NewTopic(name="t", partition_count=1)])
        await follower.catch_up()
        await register_broker(store, BrokerImage(id=BrokerId(1), host="localhost", port=9093), SimClock())
        moved = await controller.alter_reassignments([Reassignment(topic="t", partition=0, replicas=brokers(1))])
        assert [ErrorCode.NONE] == [outcome.error for outcome in moved.outcomes]
