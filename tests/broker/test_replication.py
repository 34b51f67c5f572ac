"""Several brokers with real sockets and files: what is committed is everywhere, and comes back everywhere."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.broker import Broker
from ottla.broker.broker_lifecycle import BrokerLifecycle
from ottla.broker.requests.leader_hints import leader_hint
from ottla.client.admin.async_admin import AsyncAdmin
from ottla.client.admin.values import NewTopic
from ottla.client.consumer.async_consumer import AsyncConsumer
from ottla.client.producer.async_producer import AsyncProducer
from ottla.client.producer.errors import NotDeliveredError
from ottla.client.values import OffsetAndMetadata
from ottla.controller.controller import Controller
from ottla.metadata.records import broker_key, encode, partition_key, partition_record
from ottla.metadata.store import Delete, Operation, Put
from ottla.model.errors import NotLeaderError, UnknownPartitionError
from ottla.model.ids import BrokerId, LeaderEpoch, TopicPartition
from ottla.replication.replica_fetcher import ReplicaFetchers
from ottla.storage.log_store import LogStore
from tests.broker.inside import replica_fetchers
from tests.broker.replicated import SOON_LATE, ReplicatedBrokers
from tests.unit.replication.rig import Noted
from tests.unit.storage.rig import batch
from tests.waiting import PATIENCE_SECONDS

VALUES = [b"value %d" % number for number in range(500)]


@asynccontextmanager
async def replicated(tmp_path: Path, **settings: str) -> AsyncIterator[ReplicatedBrokers]:
    async with ReplicatedBrokers(tmp_path, settings) as brokers:
        yield brokers


async def read_all(brokers: ReplicatedBrokers, topic: str, count: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    async with AsyncConsumer(bootstrap_servers=brokers.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(found) < count:
                for records in (await consumer.poll(timeout_ms=500)).values():
                    found += [record.value for record in records]
    return found


async def test_what_is_committed_is_on_every_broker_byte_for_byte(tmp_path: Path) -> None:
    async with replicated(tmp_path) as brokers:
        await brokers.make_topic("t")
        await brokers.send("t", VALUES)
        assert [500] * 3 == [copy.end_offset for copy in brokers.copies("t").values()]
        await brokers.wait_in_sync("t")
        assert 1 == len(set(brokers.contents("t").values()))
        assert VALUES == await read_all(brokers, "t", 500)


async def test_a_broker_that_stops_hands_over_and_catches_up_when_it_returns(tmp_path: Path) -> None:
    async with replicated(tmp_path) as brokers:
        await brokers.make_topic("t")
        await brokers.send("t", VALUES)
        old = brokers.leader("t")
        await brokers.stop(old)
        await brokers.wait(lambda: brokers.leader("t") != old)
        await brokers.send("t", [b"meanwhile"] * 100)
        await brokers.start(old)
        await brokers.wait_in_sync("t")
        assert 1 == len(set(brokers.contents("t").values()))
        assert [600] * 3 == [copy.end_offset for copy in brokers.copies("t").values()]
        assert [*VALUES, *[b"meanwhile"] * 100] == await read_all(brokers, "t", 600)


async def test_one_that_lost_its_disk_copies_everything_anew(tmp_path: Path) -> None:
    async with replicated(tmp_path) as brokers:
        await brokers.make_topic("t")
        await brokers.send("t", VALUES)
        lost = next(number for number in brokers.brokers if number != brokers.leader("t"))
        await brokers.stop(lost)
        brokers.wipe(lost)
        await brokers.start(lost)
        await brokers.wait_in_sync("t")
        assert 1 == len(set(brokers.contents("t").values()))


async def test_one_with_records_that_nobody_else_has_cuts_them_off(tmp_path: Path) -> None:
    """It led once, wrote what was never committed, and went; the others went on without it."""
    async with replicated(tmp_path) as brokers:
        await brokers.make_topic("t")
        await brokers.send("t", VALUES)
        old = brokers.leader("t")
        data = brokers.data(old)
        await brokers.stop(old)
        await write_into(data, b"uncommitted", b"uncommitted, too")
        await brokers.send("t", [b"committed"])
        await brokers.start(old)
        await brokers.wait_in_sync("t")
        assert [501] * 3 == [copy.end_offset for copy in brokers.copies("t").values()]
        assert 1 == len(set(brokers.contents("t").values()))


async def write_into(data: Path, *values: bytes) -> None:
    """Appends to t-0 of a broker that is stopped, in the epoch that it had."""
    from ottla.env.real_clock import RealClock
    from ottla.env.real_disk import RealDisk
    from ottla.env.real_random import RealRandom
    from ottla.storage.data_dirs.checkpoints import read_properties
    from ottla.storage.log_config import LogConfig

    disk = RealDisk()
    properties = read_properties(disk, str(data / "meta.properties"))
    store = LogStore(
        disk,
        RealClock(),
        RealRandom(),
        [str(data)],
        node_id=int(properties["node.id"]),
        cluster_id=properties["cluster.id"],
        owner="a test",
        config_of=lambda _: LogConfig(),
    )
    await store.open()
    log = store.get(TopicPartition("t", 0))
    for value in values:
        log.append([batch(value)], leader_epoch=LeaderEpoch(0), now=RealClock().now_ms())
    await store.close()
    disk.close()


async def test_the_start_moves_everywhere(tmp_path: Path) -> None:
    async with replicated(tmp_path) as brokers:
        await brokers.make_topic("t")
        await brokers.send("t", VALUES)
        async with AsyncAdmin(bootstrap_servers=brokers.bootstrap) as admin:
            await admin.delete_records({TopicPartition("t", 0): 123})
        await brokers.wait(lambda: {123} == {copy.start_offset for copy in brokers.copies("t").values()})
        lost = next(number for number in brokers.brokers if number != brokers.leader("t"))
        await brokers.stop(lost)
        brokers.wipe(lost)
        await brokers.start(lost)
        await brokers.wait_in_sync("t")
        assert [123] * 3 == [copy.start_offset for copy in brokers.copies("t").values()]


async def test_a_registration_that_is_lost_is_made_anew_and_somebody_leads(tmp_path: Path) -> None:
    async with replicated(tmp_path) as brokers:
        await brokers.make_topic("t")
        await brokers.send("t", VALUES)
        old = brokers.leader("t")
        broker = brokers.brokers[old]
        key = broker_key(BrokerId(old))
        before, led = broker.image.revision_of(key), broker.image.topics["t"].partitions[0].leader_epoch
        await brokers.stores[old].commit([Delete(key)])
        await brokers.wait(lambda: broker.is_registered and broker.image.revision_of(key) > before)
        # The old leader itself, if it has registered again before the controller looked: its log is intact.
        await brokers.wait(
            lambda: all(each.image.topics["t"].partitions[0].leader_epoch > led for each in brokers.brokers.values())
        )
        await brokers.send("t", [b"after"])
        await brokers.wait_in_sync("t")
        assert [*VALUES, b"after"] == await read_all(brokers, "t", 501)


async def test_too_few_in_sync_refuse_acks_all_and_take_acks_one(tmp_path: Path) -> None:
    async with replicated(tmp_path) as brokers:
        await brokers.make_topic("t", min_insync_replicas="3")
        await brokers.send("t", [b"first"])
        gone = next(number for number in brokers.brokers if number != brokers.leader("t"))
        await brokers.stop(gone)
        await brokers.wait(
            lambda: all(len(each.image.topics["t"].partitions[0].isr) == 2 for each in brokers.brokers.values())
        )
        async with (
            AsyncProducer(
                bootstrap_servers=brokers.bootstrap, acks="all", delivery_timeout_ms=1500, request_timeout_ms=1000
            ) as producer,
            asyncio.timeout(PATIENCE_SECONDS),
        ):
            said = ""
            # On a machine that stalls, the time may be over before the broker has answered.
            while "NOT_ENOUGH_REPLICAS" not in said:
                with pytest.raises(NotDeliveredError) as refused:
                    await (await producer.send("t", value=b"no"))
                said = str(refused.value)
        async with AsyncProducer(bootstrap_servers=brokers.bootstrap, acks=1, enable_idempotence=False) as producer:
            assert 1 == (await (await producer.send("t", value=b"yes"))).offset
        partition = next(iter(brokers.brokers.values())).image.topics["t"].partitions[0]
        assert (gone,) == partition.eligible
        assert [b"first"] == await read_all(brokers, "t", 1), "what too few have is not committed"
        await brokers.start(gone)
        assert [b"first", b"yes"] == await read_all(brokers, "t", 2)
        await brokers.wait(lambda: () == brokers.brokers[gone].image.topics["t"].partitions[0].eligible)


async def test_coordinators_move_with_their_partitions(tmp_path: Path) -> None:
    async with replicated(
        tmp_path, **{"offsets.topic.num.partitions": "3", "offsets.topic.replication.factor": "3"}
    ) as brokers:
        await brokers.make_topic("t")
        await brokers.send("t", VALUES)

        async def position_of_group() -> int | OffsetAndMetadata | None:
            async with AsyncConsumer(bootstrap_servers=brokers.bootstrap, group_id="g") as consumer:
                return await consumer.committed(TopicPartition("t", 0))

        async with AsyncConsumer(
            "t", bootstrap_servers=brokers.bootstrap, group_id="g", auto_offset_reset="earliest"
        ) as consumer:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not await consumer.poll(timeout_ms=500):
                    pass
            await consumer.commit()
        before = await position_of_group()
        assert before
        for number in list(brokers.brokers):
            await brokers.stop(number)
            assert before == await position_of_group()
            await brokers.start(number)


async def test_a_transaction_over_partitions_of_several_leaders(tmp_path: Path) -> None:
    async with replicated(
        tmp_path, **{"transaction.state.log.num.partitions": "3", "transaction.state.log.replication.factor": "3"}
    ) as brokers:
        await brokers.make_topic("t", partitions=6)
        leaders = {brokers.leader("t", index) for index in range(6)}
        assert 3 == len(leaders)
        async with AsyncProducer(bootstrap_servers=brokers.bootstrap, transactional_id="tx") as producer:
            await producer.init_transactions()
            for committed in (True, False, True):
                producer.begin_transaction()
                for index in range(6):
                    await producer.send("t", value=b"%d" % committed, partition=index)
                await (producer.commit_transaction() if committed else producer.abort_transaction())
        async with AsyncConsumer(
            bootstrap_servers=brokers.bootstrap, auto_offset_reset="earliest", isolation_level="read_committed"
        ) as consumer:
            consumer.assign([TopicPartition("t", index) for index in range(6)])
            found: list[bytes | None] = []
            async with asyncio.timeout(PATIENCE_SECONDS):
                while len(found) < 12:
                    for records in (await consumer.poll(timeout_ms=500)).values():
                        found += [record.value for record in records]
            assert [b"1"] * 12 == found


async def test_clients_that_ask_the_wrong_broker_are_told(tmp_path: Path) -> None:
    async with replicated(tmp_path) as brokers:
        await brokers.make_topic("t")
        wrong = next(broker for number, broker in brokers.brokers.items() if number != brokers.leader("t"))
        with pytest.raises(NotLeaderError):
            wrong.partitions.find("t", 0)
        for index in (1, -1, -7):
            with pytest.raises(UnknownPartitionError):
                wrong.partitions.find("t", index)
            assert None is leader_hint(wrong.image, "t", index)


@pytest.mark.parametrize("stops", ["the leader", "a follower"])
async def test_a_broker_that_stops_leaves_nothing_to_one_that_is_silent(
    tmp_path: Path, stops: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A registration may outlive its machine; what that one had not flushed is gone."""
    async with replicated(tmp_path, **{"replica.lag.time.max.ms": "60000"}) as brokers:
        await brokers.make_topic("t", replicas=2)
        await brokers.send("t", VALUES)
        await brokers.wait_in_sync("t")
        leader = brokers.brokers[brokers.leader("t")]
        replicas = leader.image.topics["t"].partitions[0].replicas
        follower = brokers.brokers[next(each for each in replicas if each != leader.id)]
        going, staying = (leader, follower) if stops == "the leader" else (follower, leader)
        where, heard_of = TopicPartition("t", 0), replica_fetchers(going).has_heard_of
        await brokers.wait(lambda: heard_of(where, staying.id))
        # Neither the one's questions nor the other's answers are heard any more.
        resume = await brokers.silence(follower.id)
        await brokers.wait(lambda: not heard_of(where, staying.id))
        leave, left = Controller.leave, []

        async def noted(*asked: Any) -> Any:
            left.append(await leave(*asked))
            return left[-1]

        monkeypatch.setattr(Controller, "leave", noted)
        async with brokers.isrs("t", seen_by=staying.id) as isrs:
            stopping = asyncio.create_task(brokers.stop(going.id))
            await brokers.wait(lambda: len(left) >= 3)
            assert ([], [()] * 3) == (isrs, [each.outcomes for each in left[:3]])
            resume()
            await stopping
            await brokers.wait(lambda: brokers.leader("t") == staying.id)
        assert [(staying.id,)] == isrs


async def test_a_follower_that_stops_does_not_wait_for_the_end_of_a_long_fetch(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It says at once that it leaves; its leader would not answer before records come."""
    async with replicated(
        tmp_path, **{"replica.fetch.wait.max.ms": "60000", "replica.lag.time.max.ms": "120000"}
    ) as brokers:
        await brokers.make_topic("t", replicas=2)
        await brokers.send("t", VALUES)
        going = next(each for each in brokers.copies("t") if each != brokers.leader("t"))
        staying = brokers.leader("t")
        async with brokers.isrs("t", seen_by=staying) as isrs:
            await brokers.stop(going)
        assert [(staying,)] == isrs
        assert [] == [each.message for each in caplog.records if "without having handed over" in each.message]


def waiting_append(leader: Broker) -> Noted:
    """An append that its followers have not got."""
    noted = Noted()
    leader.partitions.find("t", 0).append_own(batch(b"a"), noted)
    return noted


@pytest.mark.parametrize("gone", ["moved", "deleted"])
async def test_who_waits_for_a_partition_that_goes_is_told_where_it_went(tmp_path: Path, gone: str) -> None:
    """One that was moved has another leader, and that is no answer for who asks whether it exists."""
    async with replicated(tmp_path, **{"replica.lag.time.max.ms": "60000"}) as brokers:
        async with AsyncAdmin(bootstrap_servers=brokers.bootstrap) as admin:
            await admin.create_topics([NewTopic("t", replica_assignments={0: [0, 1]})])
        await brokers.wait(lambda: all("t" in each.image.topics for each in brokers.brokers.values()))
        await brokers.wait_in_sync("t")
        leader = brokers.brokers[0]
        await brokers.silence(1)
        noted = waiting_append(leader)
        if gone == "moved":
            other = BrokerId(1)
            record = replace(
                leader.image.topics["t"].partitions[0],
                replicas=(other, BrokerId(2)),
                isr=(other,),
                leader=other,
                leader_epoch=LeaderEpoch(9),
            )
            await brokers.stores[leader.id].commit([Put(partition_key("t", 0), encode(partition_record(record)))])
        else:
            async with AsyncAdmin(bootstrap_servers=brokers.bootstrap) as admin:
                await admin.delete_topics(["t"])
        await brokers.wait(lambda: bool(noted.outcomes))
        (outcome,) = noted.outcomes.values()
        expected = NotLeaderError if gone == "moved" else UnknownPartitionError
        assert (expected, "t-0 was " + gone) == (type(outcome), str(outcome)[: len("t-0 was " + gone)])


@pytest.mark.parametrize("stops", ["the leader", "a follower"])
async def test_a_broker_that_has_handed_over_is_not_taken_back_before_it_is_gone(
    tmp_path: Path, stops: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has all there is, is registered and goes on copying until it ends; and yet nobody must count on it again."""
    async with replicated(tmp_path) as brokers:
        await brokers.make_topic("t", replicas=2)
        await brokers.send("t", VALUES)
        await brokers.wait_in_sync("t")
        leads = brokers.leader("t")
        follows = next(each for each in brokers.copies("t") if each != leads)
        going, staying = (leads, follows) if stops == "the leader" else (follows, leads)
        partition = brokers.copies("t")[staying]
        may_end = asyncio.Event()
        hand_over = BrokerLifecycle.hand_over

        async def held(lifecycle: BrokerLifecycle, controller: Controller, fetchers: ReplicaFetchers) -> None:
            await hand_over(lifecycle, controller, fetchers)
            await may_end.wait()

        monkeypatch.setattr(BrokerLifecycle, "hand_over", held)
        async with brokers.isrs("t", seen_by=staying) as isrs:
            stopping = asyncio.create_task(brokers.stop(going))
            await brokers.wait(lambda: isrs[:1] == [(staying,)])
            for _ in range(3):
                await partition.wait_follower_fetch()
            assert partition.leader is not None
            assert partition.end_offset == partition.leader.followers[BrokerId(going)].end_offset
            # A commit that comes after what the fetches could have led to.
            await brokers.make_topic("later")
            may_end.set()
            await stopping
        assert [(staying,)] == isrs
        await brokers.start(going)
        await brokers.wait_in_sync("t")


async def test_the_isrs_of_many_topics_change_in_few_commits_though_somebody_is_in_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with replicated(tmp_path, **SOON_LATE) as brokers:
        names = [f"t{number}" for number in range(20)]
        async with AsyncAdmin(bootstrap_servers=brokers.bootstrap) as admin:
            await admin.create_topics([NewTopic(name, replica_assignments={0: [0, 1, 2]}) for name in names])
        await brokers.wait(
            lambda: all(name in each.image.topics for name in names for each in brokers.brokers.values())
        )
        for name in names:
            await brokers.wait_in_sync(name)
        leader, silent = brokers.brokers[0], brokers.brokers[2]
        commit, commits = brokers.stores[leader.id].commit, []

        async def obstructed(operations: Sequence[Operation]) -> int:
            commits.append(operations)
            if len(commits) == 1:
                # Just before it, one of its partitions is written by another one.
                record = leader.image.topics[names[0]].partitions[0]
                await brokers.stores[silent.id].commit(
                    [Put(partition_key(names[0], 0), encode(partition_record(record)))]
                )
            return await commit(operations)

        monkeypatch.setattr(brokers.stores[leader.id], "commit", obstructed)
        resume = await brokers.silence(silent.id)
        for name in names:
            leader.partitions.find(name, 0).append_own(batch(b"a"), Noted())
        await brokers.wait(lambda: all(2 not in leader.image.topics[name].partitions[0].isr for name in names))
        assert len(commits) <= 5
        resume()
        for name in names:
            await brokers.wait_in_sync(name)
